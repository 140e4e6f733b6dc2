//! Tests of the client's exchanges, and of malicious servers.

use proptest::prelude::*;

use super::*;
use crate::binding::Bindings;

const SALTED: &[u8] = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";

fn client(mechanism: Mechanism) -> ClientExchange {
    let account = ClientCredentials {
        user: "user".to_owned(),
        secret: "pencil".into(),
        host: "relay.example".to_owned(),
        port: 587,
    };
    ClientExchange::new(&MechanismChoice::of(mechanism, &Bindings::default()), account, "rOprNGfwEbeRWgbNEkqO").unwrap()
}

/// The example of RFC 7677 section 3.
#[test]
fn the_example_of_scram_sha_256() {
    let mut client = client(Mechanism::ScramSha256);
    assert_eq!(client.initial().unwrap(), b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
    let proof = client.respond(SALTED).unwrap();
    assert_eq!(
        String::from_utf8(proof).unwrap(),
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    );
    // A server that skips its proof does not have the keys.
    assert_eq!(client.finish(), Err(SaslError::ServerNotProven));
    assert_eq!(client.respond(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=").unwrap(), b"");
    assert_eq!(client.finish(), Ok(()));
    assert_eq!(client.respond(b""), Err(SaslError::OutOfOrder));
}

#[test]
fn a_server_that_is_not_the_one_is_an_error() {
    let mut forged = client(Mechanism::ScramSha256);
    forged.respond(SALTED).unwrap();
    let signature = b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
    assert_eq!(forged.respond(signature), Err(SaslError::ServerNotProven));
    assert_eq!(forged.finish(), Err(SaslError::ServerNotProven));
    let mut refused = client(Mechanism::ScramSha256);
    refused.respond(SALTED).unwrap();
    assert_eq!(refused.respond(b"e=invalid-proof"), Err(SaslError::Refused));
    let respond = |challenge: &str| client(Mechanism::ScramSha256).respond(challenge.as_bytes());
    assert_eq!(respond("r=rOprNGfwEbeRWgbNEkqO,s=c2FsdA==,i=4096"), Err(SaslError::ForeignNonce));
    assert_eq!(respond("r=other,s=c2FsdA==,i=4096"), Err(SaslError::ForeignNonce));
    assert_eq!(respond("r=rOprNGfwEbeRWgbNEkqOx,s=c2FsdA==,i=1"), Err(SaslError::Iterations(1)));
    assert_eq!(respond("r=rOprNGfwEbeRWgbNEkqOx,s=c2FsdA==,i=4000000000"), Err(SaslError::Iterations(4_000_000_000)));
}

#[test]
fn login_is_two_answers_and_cram_one() {
    let mut login = client(Mechanism::Login);
    assert_eq!(login.initial(), None);
    assert_eq!(login.respond(b"User Name\0").unwrap(), b"user");
    assert_eq!(login.respond(b"Password\0").unwrap(), b"pencil");
    assert_eq!(login.respond(b""), Err(SaslError::OutOfOrder));
    let mut cram = client(Mechanism::CramMd5);
    assert_eq!(cram.initial(), None);
    assert!(cram.respond(b"<1@x>").unwrap().starts_with(b"user "));
    assert_eq!(cram.respond(b"<1@x>"), Err(SaslError::OutOfOrder));
    assert_eq!(client(Mechanism::Plain).initial().unwrap(), b"\0user\0pencil");
}

#[test]
fn a_refused_token_is_acknowledged_and_said() {
    for (mechanism, wanted) in [(Mechanism::OauthBearer, &b"\x01"[..]), (Mechanism::Xoauth2, b"")] {
        let mut client = client(mechanism);
        assert_eq!(client.finish(), Ok(()));
        assert_eq!(client.respond(b"{\"status\":\"invalid_token\"}").unwrap(), wanted);
        assert_eq!(client.failure(), Some("{\"status\":\"invalid_token\"}"));
        assert_eq!(client.finish(), Err(SaslError::Refused));
        assert_eq!(client.respond(b""), Err(SaslError::OutOfOrder));
    }
    let mut client = client(Mechanism::Xoauth2);
    client.respond(format!("no pencil: {}", "\u{e9}".repeat(FAILURE_BYTES_MAX)).as_bytes()).unwrap();
    let said = client.failure().unwrap();
    assert!(said.starts_with("no (hidden): \u{e9}") && said.len() <= FAILURE_BYTES_MAX, "{said}");
}

#[test]
fn what_cannot_be_sent_is_refused_at_once() {
    let new = |user: &str, secret: &str, mechanism| {
        let account = ClientCredentials { user: user.to_owned(), secret: secret.into(), host: String::new(), port: 25 };
        ClientExchange::new(&MechanismChoice::of(mechanism, &Bindings::default()), account, "x").map(|_| ())
    };
    assert!(new("user\0", "pw", Mechanism::Plain).is_err());
    assert!(new("user", "p\0w", Mechanism::Plain).is_err());
    assert!(new("", "pw", Mechanism::Plain).is_err());
    assert!(new("user", "", Mechanism::Plain).is_err());
    assert_eq!(new("user", &"x".repeat(PASSWORD_BYTES_MAX + 1), Mechanism::Plain), Err(SaslError::TooLong));
    assert_eq!(new("user", &"x".repeat(PASSWORD_BYTES_MAX + 1), Mechanism::Xoauth2), Ok(()));
    assert_eq!(new("user", "\u{627}\u{31}", Mechanism::ScramSha256), Err(SaslError::Unprepared));
}

#[test]
fn no_secret_is_shown() {
    assert!(!format!("{:?}", client(Mechanism::ScramSha256)).contains("pencil"));
    assert!(!format!("{:?}", client(Mechanism::Plain)).contains("pencil"));
}

proptest! {
    #[test]
    fn whatever_servers_send_is_answered_or_an_error(
        which in 0..Mechanism::ALL.len(),
        messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 1..5),
    ) {
        let mut client = client(Mechanism::ALL[which]);
        for message in messages {
            let _ = client.respond(&message);
        }
        let proven = matches!(Mechanism::ALL[which], Mechanism::ScramSha256 | Mechanism::ScramSha256Plus);
        prop_assert!(!proven || client.finish().is_err());
    }
}
