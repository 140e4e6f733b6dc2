//! The result does not depend on how the octets were cut into segments.

use proptest::prelude::*;

use super::*;

/// Plays a script: parts that a client sends one after the other, each only when the one before is finished (RFC 2920
/// makes it wait after DATA).
fn play(script: &[Vec<u8>], cuts: &[usize], config: ServerConfig) -> (Vec<Step>, String) {
    let mut run = Run::with(config, false);
    run.session.offer(Arc::new(Offers { starttls: true, auth: "PLAIN LOGIN".to_owned(), ..Offers::default() }));
    let mut cuts = cuts.iter().cycle();
    for part in script {
        let mut rest = part.as_slice();
        while !rest.is_empty() {
            let count = cuts.next().map_or(rest.len(), |cut| (*cut).min(rest.len()));
            run.send(&rest[..count]);
            rest = &rest[count..];
        }
    }
    let replies = run.take();
    // How much of a refused body had arrived depends on the segments.
    let steps = run.steps.into_iter().map(|step| match step {
        Step::Refused { reply, .. } => Step::Refused { reply, size: 0 },
        step => step,
    });
    (steps.collect(), replies)
}

fn commands() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        Just("EHLO c\r\n".to_owned()),
        Just("HELO c\r\n".to_owned()),
        Just("RSET\r\n".to_owned()),
        Just("MAIL FROM:<a@x.org>\r\n".to_owned()),
        Just("EHLO c\r\nMAIL FROM:<> SMTPUTF8\r\nRCPT TO:<b@y.org>\r\n".to_owned()),
        Just("RCPT TO:<no@y.org>\r\n".to_owned()),
        Just("RCPT TO:<b@y.org>\r\n".to_owned()),
        Just("BDAT 5\r\nA: b\r".to_owned()),
        Just("BDAT 3 LAST\r\nx\r\n".to_owned()),
        Just("BDAT 90\r\n".to_owned() + &"0123456789\r\n\r\n0123456789\r\n.\r\n9\r\n".repeat(3)),
        Just("NOOP\n".to_owned()),
        Just("AUTH PLAIN\r\nAGFubgBzZWNyZXQ=\r\n".to_owned()),
        Just("AUTH LOGIN\r\nYW5u\r\n".to_owned()),
        Just("AUTH PLAIN AGFubgB3cm9uZw==\r\n".to_owned()),
        Just("AUTH PLAIN\r\n*\r\n".to_owned()),
        Just(format!("AUTH LOGIN\r\n{}\r\n", "A".repeat(13_000))),
        Just(format!("NOOP {}\r\n", "x".repeat(90))),
        "[A-Z\r\n\\. 0-9]{0,20}",
    ];
    proptest::collection::vec(line, 0..6).prop_map(|lines| lines.concat().into_bytes())
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        8 => "[A-C]: [a-z]{0,9}\r\n",
        4 => "\\.{0,2}[a-z.\u{e9}]{0,30}\r\n",
        2 => Just("\r\n".to_owned()),
        1 => "x{60,200}\r\n",
        1 => "[\r\n\\.\0]{1,4}",
        2 => Just(".\r\n".to_owned()),
    ];
    proptest::collection::vec(line, 0..12).prop_map(|lines| (lines.concat() + ".\r\n").into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn of_any_session(
        before in commands(),
        bodies in proptest::collection::vec(body(), 1..3),
        after in commands(),
        tls: bool,
        cuts in proptest::collection::vec(1usize..20, 1..30),
        size_max in 20u64..300,
        piece_bytes_max in 8usize..100,
    ) {
        let config = ServerConfig { size_max, piece_bytes_max, command_bytes_max: 80, errors_max: 5, ..config() };
        let mut script = vec![before];
        if tls {
            // Octets after it are noticed only if they have already arrived.
            script.push(b"RSET\r\nSTARTTLS\r\n".to_vec());
        }
        for body in bodies {
            script.push(b"RSET\r\nEHLO c\r\nMAIL FROM:<a@x.org>\r\nRCPT TO:<b@y.org>\r\nDATA\r\n".to_vec());
            script.push(body);
        }
        script.push(after);
        let whole = play(&script, &[], config.clone());
        let cut = play(&script, &cuts, config.clone());
        prop_assert_eq!(&cut.1, &whole.1);
        prop_assert_eq!(cut.0, whole.0);
        let bytewise = play(&script, &[1], config);
        prop_assert_eq!(bytewise.1, whole.1);
    }

    #[test]
    fn of_any_octets(bytes in proptest::collection::vec(any::<u8>(), 0..300), cut in 1usize..50) {
        let script = [b"EHLO c\r\nMAIL FROM:<>\r\nRCPT TO:<b@y.org>\r\nDATA\r\n".to_vec(), bytes];
        prop_assert_eq!(play(&script, &[cut], config()), play(&script, &[], config()));
    }
}
