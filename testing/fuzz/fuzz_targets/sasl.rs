//! Any octets from both sides of SASL: no panic, nobody is logged in without a proof, and no server is believed without
//! one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_sasl::{
    ClientCredentials, Bindings, MechanismChoice, ClientExchange, ClientCapabilities, Mechanism, Mechanisms, ScramKeys, ServerExchange, ServerStep,
    choose, peek_user, prepare,
};

fuzz_target!(|data: &[u8]| {
    let [which, bound, rest @ ..] = data else { return };
    let mechanism = Mechanism::ALL[usize::from(*which) % Mechanism::ALL.len()];
    let bindings =
        Bindings { exporter: (bound & 1 != 0).then_some([7; 32]), end_point: (bound & 2 != 0).then(|| vec![9; 32]) };
    let messages = || rest.split(|octet| *octet == b'\n');

    let mut server = ServerExchange::new(mechanism, bindings.clone(), bound & 4 != 0, "%hvYDpWUa2RaTCAfuxFIlj");
    if bound & 8 != 0 {
        // Without an initial response.
        assert!(matches!(server.step(None), Ok(ServerStep::Challenge(_))));
    }
    for message in messages() {
        let _ = peek_user(mechanism, message);
        match server.step(Some(message)) {
            Ok(ServerStep::Keys { user }) => {
                let challenge = server.keys(ScramKeys::made_up(&[3; 32], &user, 4_096)).expect("keys were asked for");
                assert!(challenge.starts_with(b"r="));
            }
            Ok(ServerStep::Done { .. }) => panic!("nobody has these keys"),
            Ok(ServerStep::Challenge(_)) => {}
            Ok(ServerStep::Password(_) | ServerStep::Token(_)) | Err(_) => break,
        }
    }

    let account = ClientCredentials { user: "user".to_owned(), secret: "pencil".into(), host: "h".to_owned(), port: 25 };
    let Ok(mut client) = ClientExchange::new(&MechanismChoice::of(mechanism, &bindings), account, "rOprNGfwEbeRWgbNEkqO") else {
        return;
    };
    let _ = client.initial();
    // SCRAM's costs by its iterations, which the server chooses: kept small here.
    let is_scram = matches!(mechanism, Mechanism::ScramSha256 | Mechanism::ScramSha256Plus);
    for message in messages().take(4) {
        let text = String::from_utf8_lossy(message);
        if is_scram && text.rsplit("i=").next().is_some_and(|count| count.len() > 4) && text.contains("i=") {
            continue;
        }
        let _ = client.respond(message);
    }
    assert!(!is_scram || client.finish().is_err());

    let text = String::from_utf8_lossy(rest);
    let is_protected = bound & 32 != 0;
    let have =
        ClientCapabilities { is_token: bound & 16 != 0, allowed: Mechanisms::all(), is_protected, bindings: &bindings };
    // A proof in clear can be tried against guesses.
    assert!(choose(Mechanisms::parse(&text), &have).is_err() || is_protected);
    if let Ok(keys) = text.parse::<ScramKeys>() {
        assert_eq!(keys.to_string(), text);
    }
    if let Ok(once) = prepare(&text, 1_024) {
        assert_eq!(prepare(&once, 1_024).as_deref(), Ok(&*once));
    }
});
