//! AUTH: what is sent when, the meaning of replies, and that secrets are in no error.

use base64ct::{Base64, Encoding as _};

use super::*;

const OFFERS: &str = "250-mx.example\r\n250-PIPELINING\r\n250 AUTH PLAIN LOGIN SCRAM-SHA-256 GSSAPI\r\n";

fn asked() -> ClientSession {
    let mut session = ClientSession::new(Arc::new(config()), 0);
    session.protect(TlsUse::Never, true);
    say(&mut session, "220 hi\r\n");
    take(&mut session);
    say(&mut session, OFFERS);
    match session.poll_event() {
        Some(ClientEvent::Authenticate(offered)) => assert_eq!(offered.to_string(), "SCRAM-SHA-256 PLAIN LOGIN others"),
        other => panic!("{other:?}"),
    }
    assert!(!session.can_begin() && session.poll_event().is_none() && take(&mut session).is_empty());
    session
}

fn challenge(session: &mut ClientSession) -> Vec<u8> {
    match session.poll_event() {
        Some(ClientEvent::Challenge(SaslOctets(octets))) => octets,
        other => panic!("{other:?}"),
    }
}

fn accepted(session: &mut ClientSession) {
    assert_eq!(session.poll_event(), Some(ClientEvent::Authenticated));
    assert!(matches!(session.poll_event(), Some(ClientEvent::Ready(caps)) if caps.pipelining));
    assert!(session.can_begin() && !session.in_auth());
}

#[test]
fn an_initial_response_goes_with_the_command() {
    for (initial, sent) in [
        (&b"\0ann\0secret"[..], "AUTH PLAIN AGFubgBzZWNyZXQ=\r\n"),
        // RFC 4954 section 4: an empty initial response is not the same as none.
        (&b""[..], "AUTH PLAIN =\r\n"),
    ] {
        let mut session = asked();
        session.auth("PLAIN", Some(initial), 5).unwrap();
        assert!(session.in_auth());
        assert_eq!((take(&mut session).as_str(), session.deadline()), (sent, 120_005));
        say(&mut session, "235 2.7.0 welcome\r\n");
        accepted(&mut session);
        begin(&mut session, 1, 3, &["a@x"]);
        assert_eq!(take(&mut session), "MAIL FROM:<s@us.example>\r\nRCPT TO:<a@x>\r\nDATA\r\n");
    }
}

#[test]
fn challenges_are_handed_out_and_answered() {
    let mut session = asked();
    session.auth("LOGIN", None, 0).unwrap();
    assert_eq!(take(&mut session), "AUTH LOGIN\r\n");
    say(&mut session, "334 VXNlcm5hbWU6\r\n");
    assert_eq!(challenge(&mut session), b"Username:");
    assert_eq!(session.deadline(), u64::MAX, "the time is the caller's");
    session.respond(b"ann", 0).unwrap();
    assert_eq!(take(&mut session), "YW5u\r\n");
    assert_eq!(session.respond(b"ann", 0), Err(ClientError::NotReady));
    // No text is an empty challenge; an empty response is an empty line.
    for empty in ["334\r\n", "334 \r\n"] {
        say(&mut session, empty);
        assert_eq!(challenge(&mut session), b"");
        session.respond(b"", 0).unwrap();
        assert_eq!(take(&mut session), "\r\n");
    }
    say(&mut session, "235 ok\r\n");
    accepted(&mut session);
}

/// The command line is limited to 512 octets; a longer response waits for the server's go-ahead.
#[test]
fn a_long_initial_response_waits_for_an_empty_challenge() {
    let fits = 512 - "AUTH XOAUTH2 \r\n".len();
    for (length, at_once) in [(fits / 4 * 3, true), (fits / 4 * 3 + 1, false)] {
        let token = vec![b'x'; length];
        let encoded = Base64::encode_string(&token);
        let mut session = asked();
        session.auth("XOAUTH2", Some(&token), 0).unwrap();
        if at_once {
            let line = take(&mut session);
            assert!(line == format!("AUTH XOAUTH2 {encoded}\r\n") && line.len() <= 512);
        } else {
            assert_eq!(take(&mut session), "AUTH XOAUTH2\r\n");
            say(&mut session, "334 \r\n");
            assert_eq!(take(&mut session), format!("{encoded}\r\n"));
        }
        say(&mut session, "235 ok\r\n");
        accepted(&mut session);
    }
    // Success before the response was sent is nonsense.
    let mut session = asked();
    session.auth("XOAUTH2", Some(&[b'x'; 600]), 0).unwrap();
    assert!(session.receive(b"235 ok\r\n", 0).is_err());
    assert!(matches!(closed(&mut session), Some(ClientError::Unexpected { to: "AUTH", .. })));
    // RFC 4954 section 4.
    let mut session = asked();
    assert_eq!(session.auth("PLAIN", Some(&[b'x'; 9300]), 0), Err(ClientError::NotReady));
}

#[test]
fn each_refusal_has_its_meaning() {
    for (reply, meaning) in [
        ("535 5.7.8 wrong\r\n", AuthRefusal::Credentials),
        ("454 4.7.0 not now\r\n", AuthRefusal::Temporary),
        ("451 later\r\n", AuthRefusal::Temporary),
        ("534 5.7.9 too weak\r\n", AuthRefusal::TooWeak),
        ("432 4.7.12 change it\r\n", AuthRefusal::PasswordTransition),
        ("538 5.7.11 TLS first\r\n", AuthRefusal::NeedsTls),
        ("530 5.7.0 TLS first\r\n", AuthRefusal::NeedsTls),
        ("504 5.5.4 unknown\r\n", AuthRefusal::Mechanism),
        ("500 5.5.6 too long\r\n", AuthRefusal::Syntax),
        ("501 5.5.2 not base64\r\n", AuthRefusal::Syntax),
        ("503 twice\r\n", AuthRefusal::Syntax),
        ("550 no\r\n", AuthRefusal::Other),
    ] {
        let mut session = asked();
        session.auth("PLAIN", Some(b"\0ann\0secret"), 0).unwrap();
        take(&mut session);
        assert!(session.receive(reply.as_bytes(), 0).is_err());
        let Some(ClientError::Auth { why, reply: kept }) = closed(&mut session) else { panic!("{reply}") };
        assert_eq!((why, format!("{kept}\r\n").as_str()), (meaning, reply));
        assert_eq!((take(&mut session).as_str(), session.in_auth()), ("QUIT\r\n", false));
    }
    for (reply, error) in [
        ("250 ok\r\n", "unexpected reply to AUTH: 250 ok"),
        ("354 go\r\n", "unexpected reply to AUTH: 354 go"),
        ("421 bye\r\n", "server closed the session at AUTH: 421 bye"),
        ("", "lost connection while authenticating"),
    ] {
        let mut session = asked();
        session.auth("PLAIN", Some(b"\0ann\0secret"), 0).unwrap();
        let _ = session.receive(reply.as_bytes(), 0);
        session.disconnected();
        assert_eq!(closed(&mut session).unwrap().to_string(), error);
    }
}

#[test]
fn broken_challenges_are_cancelled() {
    for challenges in
        [vec!["334 not base64\r\n"], vec!["334 AA\r\n"], vec!["334-AAAA\r\n334 AAAA\r\n"], vec!["334 AAAA\r\n"; 9]]
    {
        let mut session = asked();
        session.auth("LOGIN", None, 0).unwrap();
        for one in challenges {
            take(&mut session);
            say(&mut session, one);
            if session.poll_event().is_some() {
                session.respond(b"ann", 0).unwrap();
            }
        }
        assert_eq!(take(&mut session), "*\r\n");
        assert!(session.receive(b"501 5.0.0 cancelled\r\n", 0).is_err());
        assert!(matches!(closed(&mut session), Some(ClientError::NoAuth(_))));
    }
    // A server that continues after the cancel, or reports success, ends the session.
    for after in ["334 AAAA\r\n", "235 ok\r\n"] {
        let mut session = asked();
        session.auth("LOGIN", None, 0).unwrap();
        say(&mut session, "334 !\r\n");
        assert!(session.receive(after.as_bytes(), 0).is_err());
        assert!(matches!(closed(&mut session), Some(ClientError::Unexpected { to: "AUTH", .. })));
    }
}

#[test]
fn the_caller_may_decline_at_each_step() {
    // No common mechanism, or a server that has not proven its identity.
    let mut session = asked();
    session.decline_auth("no mechanism in common", 0);
    assert_eq!(closed(&mut session), Some(ClientError::NoAuth("no mechanism in common".into())));
    assert_eq!(take(&mut session), "QUIT\r\n");
    // In the middle.
    let mut session = asked();
    session.auth("LOGIN", None, 0).unwrap();
    take(&mut session);
    session.decline_auth("too early", 0);
    assert_eq!(take(&mut session), "", "the server's turn");
    say(&mut session, "334 AAAA\r\n");
    challenge(&mut session);
    session.decline_auth("wrong nonce", 0);
    assert_eq!(take(&mut session), "*\r\n");
    assert!(session.receive(b"501 ok\r\n", 0).is_err());
    assert_eq!(closed(&mut session), Some(ClientError::NoAuth("wrong nonce".into())));
    // A server that says 235 before proving that it knows the password (RFC 5802 section 3).
    let mut session = asked();
    session.auth("SCRAM-SHA-256", Some(b"n,,n=ann,r=x"), 0).unwrap();
    take(&mut session);
    say(&mut session, "235 ok\r\n");
    assert_eq!(session.poll_event(), Some(ClientEvent::Authenticated));
    session.decline_auth("the host has not proven itself", 0);
    assert_eq!(closed(&mut session), Some(ClientError::NoAuth("the host has not proven itself".into())));
    assert_eq!(take(&mut session), "QUIT\r\n");
}

#[test]
fn not_offered_is_an_error() {
    for ehlo in ["250-mx\r\n250 SIZE\r\n", "250-mx\r\n250 AUTH\r\n"] {
        let mut session = ClientSession::new(Arc::new(config()), 0);
        session.protect(TlsUse::IfOffered, true);
        say(&mut session, "220 hi\r\n");
        assert!(session.receive(ehlo.as_bytes(), 0).is_err());
        assert!(matches!(session.poll_event(), Some(ClientEvent::Unsecured(_))));
        assert_eq!(closed(&mut session).unwrap().to_string(), "cannot log in: the host does not offer AUTH");
    }
}

/// Mechanisms offered in clear do not count.
#[test]
fn mechanisms_are_those_offered_within_tls() {
    let mut session = ClientSession::new(Arc::new(config()), 0);
    session.protect(TlsUse::Required, true);
    say(&mut session, "220 hi\r\n");
    say(&mut session, "250-mx\r\n250-AUTH LOGIN\r\n250 STARTTLS\r\n");
    say(&mut session, "220 go\r\n");
    assert_eq!(session.poll_event(), Some(ClientEvent::StartTls));
    assert_eq!(session.auth("LOGIN", None, 0), Err(ClientError::NotReady));
    session.secured(0).unwrap();
    say(&mut session, "250-mx\r\n250 AUTH SCRAM-SHA-256\r\n");
    assert_eq!(session.poll_event(), Some(ClientEvent::Authenticate(OfferedMechanisms::of("SCRAM-SHA-256"))));
}

#[test]
fn nothing_that_was_sent_is_seen_in_errors() {
    let encoded = "AGFubgBzM2NyZXQtaGVyZQ==";
    for reply in [
        format!("535 5.7.8 bad {encoded} of ann with s3cret-here\r\n"),
        format!("421 you said {encoded}, s3cret-here\r\n"),
        format!("250 {encoded} s3cret-here\r\n"),
    ] {
        let mut session = asked();
        session.auth("PLAIN", Some(b"\0ann\0s3cret-here"), 0).unwrap();
        assert!(take(&mut session).contains(encoded));
        assert!(session.receive(reply.as_bytes(), 0).is_err());
        let error = closed(&mut session).unwrap();
        let shown = format!("{error} {error:?} {session:?}");
        assert!(!shown.contains("s3cret") && !shown.contains("AGFu") && shown.contains("(hidden)"), "{shown}");
    }
    // The same before it is sent, and for a challenge.
    let mut session = asked();
    session.auth("PLAIN", Some(b"\0ann\0s3cret-here"), 0).unwrap();
    assert!(!format!("{session:?}").contains("AGFu"));
    say(&mut session, "334 c2VjcmV0\r\n");
    let shown = format!("{session:?} {:?}", session.poll_event());
    assert!(!shown.contains("c2Vj") && !shown.contains("secret") && !shown.contains("115"), "{shown}");
    // A challenge out of turn.
    assert!(session.receive(b"334 c2VjcmV0\r\n", 0).is_err());
    assert_eq!(closed(&mut session).unwrap().to_string(), "unsolicited reply: 334");
}

#[test]
fn calls_that_do_not_fit_send_nothing() {
    let mut session = asked();
    for name in ["", "PLAIN X", "plain", "PLAIN\r\n", "ABCDEFGHIJKLMNOPQRSTU"] {
        assert_eq!(session.auth(name, None, 0), Err(ClientError::NotReady), "{name:?}");
    }
    assert_eq!(session.respond(b"x", 0), Err(ClientError::NotReady));
    assert!(take(&mut session).is_empty());
    let mut session = ready(OFFERS);
    assert_eq!(session.auth("PLAIN", None, 0), Err(ClientError::NotReady));
    begin(&mut session, 1, 3, &["a@x"]);
    take(&mut session);
    session.decline_auth("no", 0);
    assert!(take(&mut session).is_empty() && !session.is_closed());
}

proptest! {
    /// Whatever octets a mechanism sends, they arrive in one line, and are in no error.
    #[test]
    fn any_octets_go_through(octets in proptest::collection::vec(any::<u8>(), 0..600)) {
        let mut session = asked();
        session.auth("PLAIN", Some(&octets), 0).unwrap();
        let line = take(&mut session);
        let line = if line == "AUTH PLAIN\r\n" { say(&mut session, "334\r\n"); take(&mut session) } else { line };
        let sent = line.trim_start_matches("AUTH PLAIN ").trim_end_matches("\r\n");
        let sent = if sent == "=" { "" } else { sent };
        prop_assert_eq!(Base64::decode_vec(sent).unwrap(), octets);
        prop_assert!(line.ends_with("\r\n") && line.matches('\n').count() == 1);
        let ended = session.receive(format!("535 {sent}\r\n").as_bytes(), 0);
        prop_assert!(ended.is_err());
        let error = closed(&mut session).unwrap().to_string();
        prop_assert!(sent.len() < 4 || !error.contains(sent));
    }
}
