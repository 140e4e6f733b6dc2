//! STARTTLS and AUTH.

use super::*;
use crate::server::{AUTH_LINE_BYTES_MAX, OUTPUT_BYTES_MAX, Offers, SecretBytes};

/// `\0ann\0secret`.
const PLAIN: &str = "AGFubgBzZWNyZXQ=";
/// `\0ann\0wrong`.
const WRONG: &str = "AGFubgB3cm9uZw==";

fn clear() -> Offers {
    Offers { starttls: true, auth_after_tls: true, ..Offers::default() }
}

fn run(offers: Offers) -> Run {
    let mut run = Run::new();
    run.session.offer(Arc::new(offers));
    run.take();
    run
}

/// Creates a session in TLS that has sent EHLO.
fn secured() -> Run {
    let mut run = run(clear());
    run.send(b"EHLO c\r\nSTARTTLS\r\n").send(b"EHLO c\r\n").take();
    run
}

fn responses(run: &Run) -> Vec<&[u8]> {
    let mut found = Vec::new();
    for step in &run.steps {
        if let Step::AuthResponse(response) = step {
            found.push(response.octets());
        }
    }
    found
}

#[test]
fn after_tls_nothing_from_before_is_left() {
    let mut run = run(clear());
    run.send(b"EHLO c\r\n");
    let listed = run.take();
    assert!(listed.contains("250-STARTTLS\r\n") && !listed.contains("AUTH") && !listed.contains("REQUIRETLS"));
    run.send(b"MAIL FROM:<a@x.org> SMTPUTF8\r\nRCPT TO:<b@y.org>\r\nSTARTTLS\r\n");
    assert_eq!(run.codes(), [250, 250, 220]);
    assert!(matches!(run.steps[2..], [Step::Reset, Step::StartTls]), "{:?}", run.steps);
    assert!(run.session.is_secured() && !run.session.in_transaction() && !run.session.is_esmtp());
    assert_eq!(run.session.helo(), "");
    run.send(b"RCPT TO:<b@y.org>\r\nMAIL FROM:<a@x.org>\r\n");
    assert_eq!(run.codes(), [503, 503]);
    run.send(b"EHLO c\r\n");
    let listed = run.take();
    assert!(!listed.contains("STARTTLS") && listed.contains("250-AUTH PLAIN LOGIN\r\n250-REQUIRETLS\r\n"), "{listed}");
    run.send(b"STARTTLS\r\n");
    assert_eq!(run.codes(), [503]);
    assert!(!run.closed);
}

#[test]
fn octets_behind_starttls_close_and_are_not_read() {
    for behind in ["EHLO c\r\nMAIL FROM:<a@x.org>\r\n", "\0", "\r\n", "RSET"] {
        let mut run = run(clear());
        run.send(format!("EHLO c\r\nSTARTTLS\r\n{behind}").as_bytes());
        assert_eq!((run.codes(), run.closed), (vec![250, 554], true), "{behind:?}");
        assert!(run.steps == [Step::Close]);
    }
    // Octets between the 220 and the handshake are not ours: none are read.
    let mut session = ServerSession::new(Arc::new(config()), false, NOW);
    session.offer(Arc::new(clear()));
    session.receive(b"STARTTLS\r\n");
    assert_eq!(session.step(NOW), Step::StartTls);
    session.receive(b"MAIL FROM:<a@x.org>\r\n");
    session.secured(Arc::new(clear()), false, NOW);
    assert_eq!(session.step(NOW), Step::NeedInput);
}

#[test]
fn starttls_is_refused_where_it_is_not_offered() {
    let mut run = Run::new();
    run.take();
    run.send(b"STARTTLS\r\nSTARTTLS now\r\nAUTH PLAIN =\r\n");
    assert_eq!(run.codes(), [502, 501, 502]);
}

#[test]
fn tls_from_the_first_octet() {
    let mut session = ServerSession::new(Arc::new(config()), false, NOW);
    session.secured(Arc::new(Offers { auth: "PLAIN".to_owned(), ..clear() }), false, NOW);
    session.receive(b"EHLO c\r\nSTARTTLS\r\n");
    assert_eq!(session.step(NOW), Step::NeedInput);
    let output = String::from_utf8_lossy(session.output());
    assert!(output.starts_with("220 mx") && !output.contains("250-STARTTLS") && output.contains("250-AUTH PLAIN"));
    assert!(output.ends_with("503 5.5.1 TLS is already active\r\n"));
}

#[test]
fn what_tls_is_needed_for() {
    let mut run = run(Offers { require_tls: true, ..clear() });
    run.send(b"NOOP\r\nHELO c\r\nMAIL FROM:<a@x.org>\r\nRSET\r\nVRFY a\r\nAUTH PLAIN =\r\nHELP\r\nEHLO c\r\n");
    assert_eq!(run.codes(), [250, 530, 530, 530, 530, 530, 530, 250]);
    // Octets after a chunk or DATA are not commands.
    run.send(b"MAIL FROM:<a@x.org>\r\nBDAT 6 LAST\r\nQUIT\r\nDATA\r\n");
    assert!(run.replies().ends_with("530 5.7.0 Must issue a STARTTLS command first\r\n"), "{}", run.replies());
    assert_eq!(run.codes(), [530, 530, 530]);
    run.send(b"STARTTLS\r\n").send(b"EHLO c\r\nMAIL FROM:<a@x.org>\r\n");
    assert_eq!(run.codes(), [220, 250, 250]);
}

/// "Authentication required" would send people to look for a login that does not exist.
#[test]
fn who_may_not_send_is_told_whether_a_login_would_help() {
    for (auth, auth_after_tls, code) in [("", false, 554), ("PLAIN", false, 530), ("", true, 530)] {
        let mut run = run(Offers { require_auth: true, auth: auth.to_owned(), auth_after_tls, ..clear() });
        run.send(b"EHLO c\r\nMAIL FROM:<a@x.org>\r\nRCPT TO:<b@x.org>\r\n");
        assert_eq!(run.codes(), [250, code, 503], "{auth:?} {auth_after_tls}");
    }
}

#[test]
fn each_way_to_log_in() {
    let login = |run: &mut Run| {
        run.send(b"MAIL FROM:<a@x.org>\r\n");
        let mailed = run.codes();
        (mailed, run.session.is_authenticated())
    };
    for exchange in [
        &[format!("AUTH PLAIN {PLAIN}\r\n")][..],
        &["auth plain\r\n".to_owned(), format!("{PLAIN}\r\n")],
        &["AUTH LOGIN\r\n".to_owned(), "YW5u\r\n".to_owned(), "c2VjcmV0\r\n".to_owned()],
        &["AUTH LOGIN YW5u\r\n".to_owned(), "c2VjcmV0\r\n".to_owned()],
    ] {
        let mut run = secured();
        run.session.offer(Arc::new(Offers { require_auth: true, auth: "PLAIN LOGIN".to_owned(), ..clear() }));
        assert_eq!(login(&mut run), (vec![530], false));
        for line in exchange {
            run.send(line.as_bytes());
        }
        let codes = run.codes();
        assert_eq!(codes.last(), Some(&235), "{exchange:?}");
        assert!(codes[..codes.len() - 1].iter().all(|code| *code == 334) && codes.len() == exchange.len());
        run.send(format!("AUTH PLAIN {PLAIN}\r\n").as_bytes());
        assert_eq!(run.codes(), [503], "twice");
        assert_eq!(login(&mut run), (vec![250], true));
        // The client counts as trusted.
        run.send(b"RSET\r\nEHLO c\r\n");
        assert!(run.take().contains("250-DSN\r\n"));
    }
}

#[test]
fn challenges_are_base64() {
    let mut run = secured();
    run.send(b"AUTH PLAIN\r\n");
    assert_eq!(run.take(), "334 \r\n");
    run.send(b"*\r\nAUTH LOGIN\r\n");
    assert_eq!(run.take(), "501 5.7.0 Authentication cancelled\r\n334 VXNlcm5hbWU6\r\n");
    assert_eq!(run.steps.iter().filter(|step| **step == Step::AuthCancelled).count(), 1);
}

#[test]
fn what_auth_is_refused_for() {
    let mut run = run(clear());
    run.send(format!("EHLO c\r\nAUTH PLAIN {PLAIN}\r\n").as_bytes());
    assert!(run.take().ends_with("538 5.7.11 Encryption required: STARTTLS first\r\n"));
    run.send(b"STARTTLS\r\n").send(format!("AUTH PLAIN {PLAIN}\r\n").as_bytes());
    assert_eq!(run.codes(), [220, 503], "EHLO first");
    run.send(b"EHLO c\r\nAUTH\r\nAUTH CRAM-MD5\r\nAUTH PLAIN a b\r\nAUTH PLAIN YQ\r\nAUTH PLAIN *\r\nAUTH \xff\r\n");
    assert_eq!(run.codes(), [250, 501, 504, 501, 501, 501, 501]);
    run.send(format!("MAIL FROM:<a@x.org>\r\nAUTH PLAIN {PLAIN}\r\n").as_bytes());
    assert_eq!(run.codes(), [250, 503]);
    assert!(!run.steps.iter().any(|step| matches!(step, Step::Auth { .. })));
}

#[test]
fn an_empty_initial_response_and_one_that_is_none() {
    let mut run = secured();
    run.send(b"AUTH PLAIN =\r\n");
    let step = Step::Auth { mechanism: "PLAIN".into(), initial: Some(SecretBytes::default()) };
    assert_eq!(run.steps.last(), Some(&step));
    run.send(b"AUTH PLAIN\r\n\r\n");
    assert_eq!((run.codes(), responses(&run)), (vec![535, 334, 535], vec![&b""[..]]));
}

#[test]
fn lines_of_an_exchange_are_not_read_as_commands() {
    for bad in ["QUIT=\r\n", "QUIT \r\n", "YQ==\n", "RSET\0\r\n", "\u{e9}\r\n"] {
        let mut run = secured();
        run.send(b"AUTH PLAIN\r\n").send(bad.as_bytes()).send(b"NOOP\r\n");
        let codes = run.codes();
        assert!(codes[0] == 334 && (500..502).contains(&codes[1]) && codes[2..] == [250], "{bad:?}: {codes:?}");
        assert!(responses(&run).is_empty() && run.steps.contains(&Step::AuthCancelled));
    }
    // QUIT is base64, and decodes as part of a response.
    let mut run = secured();
    run.send(b"AUTH PLAIN\r\nQUIT\r\n");
    assert_eq!((run.codes(), run.closed), (vec![334, 535], false));
}

#[test]
fn long_lines_of_an_exchange() {
    let (most, over) = ("A".repeat(AUTH_LINE_BYTES_MAX - 4), "A".repeat(AUTH_LINE_BYTES_MAX));
    for part in [1_000, 100_000] {
        let mut run = secured();
        run.send(b"AUTH PLAIN\r\n").send_in(format!("{most}\r\n").as_bytes(), part);
        assert_eq!((run.codes(), responses(&run)[0].len()), (vec![334, 535], most.len() / 4 * 3));
        run.send(b"AUTH PLAIN\r\n").send_in(format!("{over}\r\nNOOP\r\n").as_bytes(), part);
        assert_eq!(run.codes(), [334, 500, 250]);
        let initial = "A".repeat((AUTH_LINE_BYTES_MAX - 13) / 4 * 4);
        run.send_in(format!("AUTH PLAIN {initial}\r\n").as_bytes(), part);
        assert_eq!(run.codes(), [535]);
        run.send_in(format!("AUTH PLAIN {over}\r\nNOOP\r\n").as_bytes(), part);
        assert_eq!(run.codes(), [500, 250]);
        // Without AUTH, lines are not longer than others.
        let mut run = Run::new();
        run.take();
        run.send_in(format!("AUTH PLAIN {most}\r\n").as_bytes(), part);
        assert!(run.take().starts_with("500 5.5.2 Line too long"));
    }
    let mut run = secured();
    run.send(b"AUTH PLAIN\r\n");
    for _ in 0..100 {
        run.send(&vec![b'A'; 64 * 1024]);
        assert_eq!(run.session.input.rest().len(), 0);
    }
}

#[test]
fn attempts_are_few() {
    for (trusted, lines) in [(false, format!("AUTH PLAIN {WRONG}\r\n")), (true, "AUTH PLAIN\r\n*\r\n".to_owned())] {
        let mut run = Run::with(config(), trusted);
        run.session.offer(Arc::new(Offers { auth: "PLAIN".to_owned(), ..clear() }));
        run.take();
        run.send(b"EHLO c\r\n").send(lines.repeat(9).as_bytes());
        let replies = run.take();
        assert!(run.closed && replies.ends_with("421 4.7.0 Too many failed logins, closing\r\n"), "{replies}");
        assert_eq!(run.steps.iter().filter(|step| matches!(step, Step::Auth { .. })).count(), 5);
    }
    // TLS does not permit more attempts.
    let mut run = run(Offers { auth: "PLAIN".to_owned(), ..clear() });
    run.send(b"EHLO c\r\n").send(format!("AUTH PLAIN {WRONG}\r\n").repeat(4).as_bytes()).send(b"STARTTLS\r\n");
    run.send(format!("EHLO c\r\nAUTH PLAIN {WRONG}\r\n").as_bytes());
    assert!(run.closed);
}

#[test]
fn what_may_be_a_password_is_shown_to_nobody() {
    let mut run = secured();
    run.session.tell_unknown();
    run.send(b"FOO\r\nAUTH BOGUS\r\nc2VjcmV0\r\nc2VjcmV0\r\nNOOP\r\nc2VjcmV0\r\n");
    assert_eq!(run.codes(), [500, 504, 500, 500, 250, 500]);
    run.send(b"AUTH LOGIN\r\n*\r\nc2VjcmV0\r\n");
    let shown: Vec<_> = run.steps.iter().filter(|step| matches!(step, Step::Unknown { .. })).collect();
    assert_eq!(shown.len(), 1, "{shown:?}");
    run.send(format!("AUTH PLAIN {PLAIN}\r\n").as_bytes());
    // Nor is the part that has arrived so far.
    run.session.receive(b"AUTH PLAIN AGFubgBzZWNyZXQ");
    let octets = format!("{:?}", b"AGFubgBzZWNyZXQ");
    assert!(!format!("{:?}", run.session).contains(octets.trim_matches(['[', ']'])));
    let steps = format!("{:?}{:?}", run.steps, run.session);
    assert!(!steps.contains("c2VjcmV0") && !steps.contains(PLAIN) && steps.contains("Secret(..)"));
    assert!(run.session.output().len() < OUTPUT_BYTES_MAX);
}

/// Whatever the outcome of AUTH, and whatever was sent since.
#[test]
fn no_form_of_auth_lets_a_later_line_be_shown() {
    let long = format!("AUTH PLAIN {}", "A".repeat(20_000));
    for before in [
        "AUTH",
        "auth LOGIN",
        "AUTH PLAIN !!!!",
        "AUTH PLAIN YQ== more",
        " AUTH LOGIN",
        "AUTHLOGIN",
        "AUTH=LOGIN",
        "AUTH LOGIN\r\n*\r\nNOOP",
        "AUTH LOGIN\r\nNOOP",
        "AUTH LOGIN\nNOOP",
        &long,
    ] {
        for after in ["", "NOOP\r\n", "RSET\r\nNOOP\r\n"] {
            let mut run = secured();
            run.session.tell_unknown();
            run.send(format!("{before}\r\n{after}*\r\nc2VjcmV0\r\nc2VjcmV0\r\n").as_bytes());
            let steps = format!("{:?}{:?}", run.steps, run.session);
            assert!(!steps.contains("c2VjcmV0") && !steps.contains("Unknown {"), "{before:.20} {after}: {steps}");
        }
    }
}

#[test]
fn a_proxys_login_is_one() {
    let mut run = Run::with(config(), true);
    run.session.allow_xclient();
    run.session.offer(Arc::new(Offers { require_auth: true, ..clear() }));
    run.take();
    run.send(b"XCLIENT LOGIN=ann HELO=c\r\nMAIL FROM:<a@x.org>\r\nRSET\r\n");
    assert_eq!(run.codes(), [220, 250, 250]);
    run.send(b"XCLIENT ADDR=192.0.2.1 HELO=c\r\nMAIL FROM:<a@x.org>\r\n");
    assert_eq!(run.codes(), [220, 530], "another client's");
}

#[test]
fn requiretls_is_for_secured_sessions() {
    let mut run = run(Offers { requiretls: true, ..clear() });
    run.send(b"EHLO c\r\nMAIL FROM:<a@x.org> REQUIRETLS\r\n");
    assert_eq!(run.codes(), [250, 555]);
    run.send(b"STARTTLS\r\n").send(b"EHLO c\r\nMAIL FROM:<a@x.org> REQUIRETLS AUTH=<>\r\n");
    assert_eq!(run.codes(), [220, 250, 250]);
    assert!(matches!(run.steps.last(), Some(Step::Mail(mail)) if mail.requiretls));
}
