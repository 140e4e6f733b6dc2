//! Tests of the server's exchanges, message by message: those of RFC 7677, and attacks.

use base64ct::{Base64, Encoding as _};
use proptest::prelude::*;

use super::*;
use crate::binding::BindingKind;
use crate::choice::{ClientFlag, MechanismChoice};
use crate::client::{ClientCredentials, ClientExchange};

const CLIENT_NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
const SERVER_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";

fn bindings() -> Bindings {
    Bindings { exporter: Some(std::array::from_fn(|n| n as u8)), end_point: Some(vec![9; 32]) }
}

fn keys() -> ScramKeys {
    ScramKeys::new("pencil", &Base64::decode_vec("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap(), 4_096).unwrap()
}

fn server(mechanism: Mechanism) -> ServerExchange {
    ServerExchange::new(mechanism, bindings(), true, SERVER_NONCE)
}

fn challenge(step: Result<ServerStep, SaslError>) -> String {
    match step {
        Ok(ServerStep::Challenge(octets)) => String::from_utf8(octets).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// The example of RFC 7677 section 3.
#[test]
fn the_example_of_scram_sha_256() {
    let mut server = ServerExchange::new(Mechanism::ScramSha256, Bindings::default(), false, SERVER_NONCE);
    assert_eq!(challenge(server.step(None)), "");
    let first = server.step(Some(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"));
    assert_eq!(first, Ok(ServerStep::Keys { user: "user".to_owned() }));
    let salted = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    assert_eq!(server.keys(keys()).unwrap(), salted.as_bytes());
    let proof =
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    assert_eq!(challenge(server.step(Some(proof))), "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    assert_eq!(server.step(Some(b"")), Ok(ServerStep::Done { user: "user".to_owned(), authzid: None }));
    assert_eq!(server.step(Some(b"")), Err(SaslError::OutOfOrder));
}

/// No RFC has an example with a binding: computed with Python's hmac and hashlib.
#[test]
fn an_exchange_that_is_bound_to_the_session() {
    let mut server = server(Mechanism::ScramSha256Plus);
    server.step(Some(b"p=tls-exporter,,n=user,r=rOprNGfwEbeRWgbNEkqO")).unwrap();
    server.keys(keys()).unwrap();
    let proof = b"c=cD10bHMtZXhwb3J0ZXIsLAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=QC6CS20quADQRb3mT99YUH+n3VJxUvzuK0K0E1Vrs2M=";
    assert_eq!(challenge(server.step(Some(proof))), "v=2GiAgapEppLVlUXbxUDksL3VgYHzuqiK5tR4mhJGgvs=");
}

/// The final result for a client with this flag and password.
fn outcome(mechanism: Mechanism, flag: ClientFlag, password: &str, keys: ScramKeys) -> Result<ServerStep, SaslError> {
    let account = ClientCredentials { user: "user".to_owned(), secret: password.into(), host: String::new(), port: 25 };
    let mut client = ClientExchange::new(&MechanismChoice { mechanism, flag }, account, CLIENT_NONCE).unwrap();
    let mut server = server(mechanism);
    server.step(client.initial().as_deref())?;
    let proof = client.respond(&server.keys(keys)?).unwrap();
    let ServerStep::Challenge(signature) = server.step(Some(&proof))? else { panic!("no signature") };
    let consent = client.respond(&signature).unwrap();
    client.finish().unwrap();
    server.step(Some(&consent))
}

#[test]
fn both_kinds_of_binding_hold() {
    for kind in [BindingKind::TlsExporter, BindingKind::TlsServerEndPoint] {
        let data = bindings().get(kind).unwrap().to_vec();
        let flag = ClientFlag::Bound(crate::Binding { kind, data });
        let done = ServerStep::Done { user: "user".to_owned(), authzid: None };
        assert_eq!(outcome(Mechanism::ScramSha256Plus, flag, "pencil", keys()), Ok(done));
        // The client's TLS ends at somebody else.
        let flag = ClientFlag::Bound(crate::Binding { kind, data: vec![1; 32] });
        assert_eq!(outcome(Mechanism::ScramSha256Plus, flag, "pencil", keys()), Err(SaslError::OtherChannel));
    }
}

#[test]
fn a_downgrade_of_the_binding_is_seen() {
    // An attacker removed PLUS from EHLO's reply; the client says that it supports it.
    let taken_out = outcome(Mechanism::ScramSha256, ClientFlag::ServerCannot, "pencil", keys());
    assert_eq!(taken_out, Err(SaslError::Downgraded));
    // An attacker changed the flag in transit, but it is signed.
    let mut server = server(Mechanism::ScramSha256);
    let account = ClientCredentials { user: "user".to_owned(), secret: "pencil".into(), host: String::new(), port: 25 };
    let choice = MechanismChoice { mechanism: Mechanism::ScramSha256, flag: ClientFlag::ServerCannot };
    let mut client = ClientExchange::new(&choice, account, CLIENT_NONCE).unwrap();
    let first = String::from_utf8(client.initial().unwrap()).unwrap().replacen('y', "n", 1);
    server.step(Some(first.as_bytes())).unwrap();
    let proof = client.respond(&server.keys(keys()).unwrap()).unwrap();
    assert_eq!(server.step(Some(&proof)), Err(SaslError::OtherChannel));
    // If PLUS is not offered, the same flag is right.
    let mut server = ServerExchange::new(Mechanism::ScramSha256, Bindings::default(), false, SERVER_NONCE);
    assert!(server.step(Some(b"y,,n=user,r=x")).is_ok());
}

#[test]
fn flag_and_mechanism_agree() {
    let step = |mechanism, text: &str| server(mechanism).step(Some(text.as_bytes()));
    assert!(matches!(step(Mechanism::ScramSha256, "p=tls-exporter,,n=user,r=x"), Err(SaslError::Malformed(_))));
    assert!(matches!(step(Mechanism::ScramSha256Plus, "n,,n=user,r=x"), Err(SaslError::Malformed(_))));
    assert_eq!(step(Mechanism::ScramSha256Plus, "p=tls-unique,,n=user,r=x"), Err(SaslError::NoSuchBinding));
    let mut clear = ServerExchange::new(Mechanism::ScramSha256Plus, Bindings::default(), true, SERVER_NONCE);
    assert_eq!(clear.step(Some(b"p=tls-exporter,,n=user,r=x")), Err(SaslError::NoSuchBinding));
}

#[test]
fn nobody_can_tell_a_user_from_none() {
    let made_up = ScramKeys::made_up(&[5; 32], "user", 4_096);
    let wrong = outcome(Mechanism::ScramSha256, ClientFlag::Not, "pen", keys());
    assert_eq!(wrong, Err(SaslError::Wrong));
    assert_eq!(outcome(Mechanism::ScramSha256, ClientFlag::Not, "pencil", made_up.clone()), wrong);
    // For an unknown user even a matching proof fails.
    let fitting = ScramKeys { is_made_up: true, ..keys() };
    assert_eq!(outcome(Mechanism::ScramSha256, ClientFlag::Not, "pencil", fitting), wrong);
    // The messages look the same.
    let salted = |keys: ScramKeys| {
        let mut server = server(Mechanism::ScramSha256);
        server.step(Some(b"n,,n=user,r=x")).unwrap();
        server.keys(keys).unwrap().len()
    };
    assert_eq!(salted(made_up), salted(keys()));
}

#[test]
fn a_name_is_prepared_and_the_other_identity_is_kept() {
    let mut server = server(Mechanism::ScramSha256);
    let step = server.step(Some("n,a=bob,n=I\u{ad}X,r=x".as_bytes()));
    assert_eq!(step, Ok(ServerStep::Keys { user: "IX".to_owned() }));
}

#[test]
fn plain_and_login_end_with_what_is_to_be_checked() {
    let wanted = Credentials { authzid: None, user: "tim".to_owned(), password: "pw".into() };
    let mut plain = server(Mechanism::Plain);
    assert_eq!(challenge(plain.step(None)), "");
    assert_eq!(plain.step(Some(b"\0tim\0pw")), Ok(ServerStep::Password(wanted.clone())));
    let mut login = server(Mechanism::Login);
    assert_eq!(challenge(login.step(None)), "Username:");
    assert_eq!(challenge(login.step(Some(b"tim"))), "Password:");
    assert_eq!(login.step(Some(b"pw")), Ok(ServerStep::Password(wanted.clone())));
    let mut login = server(Mechanism::Login);
    assert_eq!(challenge(login.step(Some(b"tim"))), "Password:");
    assert_eq!(login.step(Some(b"pw")), Ok(ServerStep::Password(wanted)));
}

#[test]
fn what_is_out_of_order_is_an_error() {
    assert_eq!(server(Mechanism::Plain).keys(keys()), Err(SaslError::OutOfOrder));
    let mut scram = server(Mechanism::ScramSha256);
    scram.step(Some(b"n,,n=user,r=x")).unwrap();
    assert_eq!(scram.step(Some(b"c=biws,r=x,p=AAAA")), Err(SaslError::OutOfOrder));
    assert_eq!(scram.step(None), Err(SaslError::OutOfOrder));
    assert_eq!(server(Mechanism::Plain).step(Some(&[0; MESSAGE_BYTES_MAX + 1])), Err(SaslError::TooLong));
    assert!(server(Mechanism::CramMd5).step(Some(b"x")).is_err());
}

#[test]
fn a_user_is_seen_in_what_is_handed_on() {
    let peek = |mechanism, text: &str| peek_user(mechanism, text.as_bytes());
    assert_eq!(peek(Mechanism::Plain, "\0tim\0pw").as_deref(), Some("tim"));
    assert_eq!(peek(Mechanism::Login, "tim").as_deref(), Some("tim"));
    assert_eq!(peek(Mechanism::ScramSha256, "n,,n=tim,r=x").as_deref(), Some("tim"));
    assert_eq!(peek(Mechanism::OauthBearer, "n,a=tim,\x01auth=Bearer x\x01\x01").as_deref(), Some("tim"));
    assert_eq!(peek(Mechanism::Xoauth2, "user=tim\x01auth=Bearer x\x01\x01").as_deref(), Some("tim"));
    assert_eq!(peek(Mechanism::Plain, "x"), None);
}

/// Changing one bit gives a wrong or invalid proof.
#[test]
fn a_changed_proof_is_wrong() {
    let good =
        *b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    let keys = keys();
    for bit in 0..8 * good.len() {
        let mut proof = good;
        proof[bit / 8] ^= 1 << (bit % 8);
        let mut server = ServerExchange::new(Mechanism::ScramSha256, Bindings::default(), false, SERVER_NONCE);
        server.step(Some(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")).unwrap();
        server.keys(keys.clone()).unwrap();
        assert!(server.step(Some(&proof)).is_err(), "{bit}");
    }
}

proptest! {
    #[test]
    fn whatever_clients_send_is_a_step_or_an_error(
        which in 0..Mechanism::ALL.len(),
        messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 1..5),
    ) {
        let mut server = server(Mechanism::ALL[which]);
        for message in messages {
            let step = server.step(Some(&message));
            prop_assert!(!matches!(step, Ok(ServerStep::Done { .. })), "nobody has proven anything");
            if let Ok(ServerStep::Keys { user }) = step {
                server.keys(ScramKeys::made_up(&[1; 32], &user, 4_096)).unwrap();
            }
        }
    }
}
