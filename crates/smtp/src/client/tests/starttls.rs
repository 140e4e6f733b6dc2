//! STARTTLS: no cleartext input survives it, and a session that continues in clear says why.

use super::*;

const OFFERED: &str = "250-mx.clear\r\n250-PIPELINING\r\n250-SIZE 70000\r\n250-DSN\r\n250-STARTTLS\r\n250 CHUNKING\r\n";
const WITHIN: &str = "250-mx.tls\r\n250-REQUIRETLS\r\n250 SIZE\r\n";

fn protected(tls: TlsUse) -> ClientSession {
    let mut session = ClientSession::new(Arc::new(config()), 0);
    session.protect(tls, false);
    session
}

/// Creates a session that has sent EHLO, and got this reply.
fn greeted(tls: TlsUse, ehlo: &str) -> ClientSession {
    let mut session = protected(tls);
    say(&mut session, "220 mx.example ESMTP\r\n");
    assert_eq!(take(&mut session), "EHLO us.example\r\n");
    let _ = session.receive(ehlo.as_bytes(), 0);
    session
}

/// Creates a session whose server expects the handshake.
fn securing(tls: TlsUse) -> ClientSession {
    let mut session = greeted(tls, OFFERED);
    assert_eq!((take(&mut session).as_str(), session.tls_stage()), ("STARTTLS\r\n", TlsStage::Asked));
    say(&mut session, "220-2.0.0 ready\r\n220 go\r\n");
    assert_eq!((session.poll_event(), session.tls_stage()), (Some(ClientEvent::StartTls), TlsStage::Handshake));
    session
}

#[test]
fn after_the_handshake_it_begins_anew_and_knows_nothing() {
    for tls in [TlsUse::IfOffered, TlsUse::Required] {
        let mut session = securing(tls);
        assert!(!session.is_secured() && !session.can_begin() && take(&mut session).is_empty());
        assert_eq!(session.begin(&spec(1, 3), [TxRcpt::new("a@x")], 0), Err(ClientError::NotReady));
        session.secured(7).unwrap();
        assert_eq!(session.caps(), &Caps::default());
        assert_eq!((take(&mut session).as_str(), session.tls_stage()), ("EHLO us.example\r\n", TlsStage::Hello));
        assert_eq!(session.deadline(), 300_007);
        say(&mut session, WITHIN);
        let Some(ClientEvent::Ready(caps)) = session.poll_event() else { panic!() };
        assert_eq!((&*caps.peer_name, caps.pipelining, caps.chunking, caps.dsn), ("mx.tls", false, false, false));
        assert_eq!((caps.size, caps.starttls(), session.tls_stage()), (Some(0), false, TlsStage::Secured));
        begin(&mut session, 1, 90_000, &["a@x"]);
        assert_eq!(take(&mut session), "MAIL FROM:<s@us.example> SIZE=90000\r\n");
        assert_eq!(session.secured(7), Err(ClientError::NotReady));
    }
}

/// A server that offers STARTTLS within TLS, or sends HELO's reply there, is odd but acceptable.
#[test]
fn starttls_is_not_sent_within_tls() {
    for ehlo in [OFFERED, "502 what\r\n"] {
        let mut session = securing(TlsUse::Required);
        session.secured(0).unwrap();
        take(&mut session);
        say(&mut session, ehlo);
        if ehlo != OFFERED {
            assert_eq!(take(&mut session), "HELO us.example\r\n");
            say(&mut session, "250 mx\r\n");
        }
        assert!(matches!(session.poll_event(), Some(ClientEvent::Ready(_))));
        assert_eq!((take(&mut session).as_str(), session.tls_stage()), ("", TlsStage::Secured));
    }
}

/// CVE-2021-38371: cleartext octets must not become the reply to the EHLO within TLS; in one read, in two, or cut
/// short.
#[test]
fn octets_in_clear_behind_the_go_ahead_end_it() {
    for tail in ["250 mx.evil\r\n", "2", "\r\n", " ", "220 again\r\n"] {
        for split in [false, true] {
            let mut session = greeted(TlsUse::IfOffered, OFFERED);
            take(&mut session);
            let ended = if split {
                say(&mut session, "220 go\r\n");
                session.receive(tail.as_bytes(), 0)
            } else {
                session.receive(format!("220 go\r\n{tail}").as_bytes(), 0)
            };
            assert_eq!((ended, session.poll_event()), (Err(ClientError::Injected), Some(ClientEvent::StartTls)));
            assert_eq!(closed(&mut session), Some(ClientError::Injected));
            assert_eq!((take(&mut session).as_str(), session.secured(0)), ("", Err(ClientError::NotReady)));
            assert_eq!(session.tls_stage(), TlsStage::Handshake);
        }
    }
}

/// A reply before STARTTLS was sent is not a reply to it.
#[test]
fn replies_before_starttls_are_not_its_replies() {
    let mut session = greeted(TlsUse::IfOffered, &format!("{OFFERED}220 go\r\n"));
    // It came in one read with the reply to EHLO, and is indistinguishable from a fast server's; but octets after it
    // are not.
    assert_eq!(session.poll_event(), Some(ClientEvent::StartTls));
    let mut session = greeted(TlsUse::IfOffered, &format!("{OFFERED}220 go\r\n250 mx.evil\r\n"));
    session.poll_event();
    assert_eq!(closed(&mut session), Some(ClientError::Injected));
}

#[test]
fn offered_and_refused_goes_on_in_clear_or_not_at_all() {
    for refusal in ["454 4.7.0 TLS not available\r\n", "502 5.5.1 what\r\n", "501-no\r\n501 no\r\n", "403 no\r\n"] {
        let mut session = greeted(TlsUse::IfOffered, OFFERED);
        take(&mut session);
        say(&mut session, refusal);
        match session.poll_event() {
            Some(ClientEvent::Unsecured(StartTlsRefusal::Refused(reply))) => {
                assert!(refusal.starts_with(&reply.code.to_string()));
            }
            other => panic!("{other:?}"),
        }
        // Its earlier offers remain valid: it is the same session.
        assert!(matches!(session.poll_event(), Some(ClientEvent::Ready(caps)) if caps.dsn && caps.chunking));
        assert!(session.can_begin() && !session.is_secured());
        assert_eq!(session.tls_stage(), TlsStage::Refused);

        let mut session = greeted(TlsUse::Required, OFFERED);
        take(&mut session);
        assert!(session.receive(refusal.as_bytes(), 0).is_err());
        assert!(matches!(closed(&mut session), Some(ClientError::TlsRefused(_))));
        assert_eq!(take(&mut session), "QUIT\r\n");
    }
}

#[test]
fn replies_to_starttls_that_mean_nothing_end_it() {
    for (reply, expected) in [
        ("250 ok\r\n", "unexpected reply to STARTTLS: 250 ok"),
        ("354 go\r\n", "unexpected reply to STARTTLS: 354 go"),
        ("421 4.3.2 busy\r\n", "server closed the session at STARTTLS: 421 4.3.2 busy"),
        ("hello\r\n", "not an SMTP reply"),
        ("\u{16}\u{3}\u{1}\r\n", "not an SMTP reply"),
        ("", "lost connection while sending STARTTLS"),
    ] {
        for tls in [TlsUse::IfOffered, TlsUse::Required] {
            let mut session = greeted(tls, OFFERED);
            take(&mut session);
            let _ = session.receive(reply.as_bytes(), 0);
            if reply.is_empty() {
                session.disconnected();
            }
            assert_eq!(closed(&mut session).unwrap().to_string(), expected);
            assert_eq!((take(&mut session).as_str(), session.tls_stage()), ("", TlsStage::Asked));
        }
    }
}

#[test]
fn not_offered_goes_on_in_clear_or_not_at_all() {
    for (ehlo, helo) in [(ALL, ""), ("502 what\r\n", "250-mx\r\n250 STARTTLS\r\n")] {
        let mut session = greeted(TlsUse::IfOffered, ehlo);
        let _ = session.receive(helo.as_bytes(), 0);
        assert_eq!(session.poll_event(), Some(ClientEvent::Unsecured(StartTlsRefusal::NotOffered)));
        assert!(matches!(session.poll_event(), Some(ClientEvent::Ready(_))));
        assert_eq!(session.tls_stage(), TlsStage::Clear);
        let mut session = greeted(TlsUse::Required, ehlo);
        let _ = session.receive(helo.as_bytes(), 0);
        assert_eq!(closed(&mut session), Some(ClientError::TlsNotOffered));
        assert!(take(&mut session).ends_with("QUIT\r\n"));
    }
    let mut session = greeted(TlsUse::Never, OFFERED);
    assert!(matches!(session.poll_event(), Some(ClientEvent::Ready(caps)) if caps.starttls()));
    assert_eq!((take(&mut session).as_str(), session.poll_event()), ("", None));
}

#[test]
fn lmtp_says_lhlo_again() {
    let mut session = ClientSession::new(Arc::new(ClientConfig { lmtp: true, ..config() }), 0);
    session.protect(TlsUse::Required, false);
    say(&mut session, "220 hi\r\n");
    take(&mut session);
    say(&mut session, OFFERED);
    say(&mut session, "220 go\r\n");
    take(&mut session);
    session.secured(0).unwrap();
    assert_eq!(take(&mut session), "LHLO us.example\r\n");
}

#[test]
fn after_a_failed_handshake_nothing_is_sent() {
    type Failure = fn(&mut ClientSession);
    let failures: [(Failure, &str); 4] = [
        (|session| session.tls_failed("certificate expired"), "TLS failed: certificate expired"),
        (ClientSession::disconnected, "lost connection while negotiating TLS"),
        (|session| assert!(session.timed_out(60_000)), "timed out while negotiating TLS"),
        (|session| session.quit(0), "given up while negotiating TLS"),
    ];
    for (fail, expected) in failures {
        let mut session = securing(TlsUse::IfOffered);
        assert_eq!(session.deadline(), 60_000);
        fail(&mut session);
        assert_eq!(closed(&mut session).unwrap().to_string(), expected);
        session.quit(0);
        session.tls_failed("again");
        assert_eq!((take(&mut session).as_str(), session.poll_event()), ("", None));
        assert_eq!(session.tls_stage(), TlsStage::Handshake);
    }
    // In TLS 1.3 a server may refuse our side after we have finished (RFC 8446 section 4.4.2.4).
    let mut session = securing(TlsUse::IfOffered);
    session.secured(0).unwrap();
    session.tls_failed("certificate required");
    assert!(matches!(closed(&mut session), Some(ClientError::Tls(_))));
    assert_eq!((take(&mut session).as_str(), session.tls_stage()), ("", TlsStage::Hello));
}

#[test]
fn what_fails_later_decides_what_was_under_way() {
    let mut session = securing(TlsUse::Required);
    session.secured(0).unwrap();
    say(&mut session, ALL);
    session.poll_event();
    begin(&mut session, 1, 3, &["a@x"]);
    body(&mut session, "a\r\n");
    session.tls_failed("bad record");
    assert_eq!(done(&mut session), [(RcptStage::AfterDot, 421)]);
    assert!(matches!(closed(&mut session), Some(ClientError::Tls(_))));
}

/// RFC 8314: the handshake precedes the greeting.
#[test]
fn implicit_tls_needs_no_starttls() {
    let mut session = protected(TlsUse::Implicit);
    assert!(session.is_secured());
    say(&mut session, "220 hi\r\n");
    take(&mut session);
    say(&mut session, OFFERED);
    assert!(matches!(session.poll_event(), Some(ClientEvent::Ready(caps)) if caps.pipelining));
    assert_eq!((take(&mut session).as_str(), session.tls_stage()), ("", TlsStage::Secured));
}

/// RFC 8689 section 4.2.1: the keyword only counts within TLS.
#[test]
fn requiretls_goes_only_where_it_is_offered_within_tls() {
    let needs = TxSpec { require_tls: true, ..spec(1, 3) };
    let mut session = securing(TlsUse::Required);
    session.secured(0).unwrap();
    say(&mut session, WITHIN);
    session.poll_event();
    take(&mut session);
    session.begin(&needs, [TxRcpt::new("a@x")], 0).unwrap();
    assert_eq!(take(&mut session), "MAIL FROM:<s@us.example> SIZE=3 REQUIRETLS\r\n");

    let mut in_clear = greeted(TlsUse::Never, WITHIN);
    let mut not_offered = securing(TlsUse::Required);
    not_offered.secured(0).unwrap();
    take(&mut not_offered);
    say(&mut not_offered, PLAIN);
    for session in [&mut in_clear, &mut not_offered] {
        session.poll_event();
        session.begin(&needs, [TxRcpt::new("a@x")], 0).unwrap();
        let Some(ClientEvent::Done { results, .. }) = session.poll_event() else { panic!() };
        assert_eq!(results[0].stage, RcptStage::Local);
        assert!(results[0].reply.to_string().starts_with("550 5.7.30 "), "{}", results[0].reply);
        assert!(take(session).is_empty());
    }
}

/// TLS and AUTH cost sessions without them no memory.
#[test]
fn a_session_in_clear_is_no_larger() {
    assert!(size_of::<ClientSession>() <= 496, "{}", size_of::<ClientSession>());
}

proptest! {
    /// However the replies are cut, and whatever follows the 220: the handshake is requested, and performed only if
    /// nothing follows.
    #[test]
    fn cuts_of_the_input_do_not_matter(tail in "[ -~\r\n]{0,12}", cut in 1usize..60) {
        let mut session = protected(TlsUse::IfOffered);
        let mut ended = Ok(());
        for piece in format!("220 hi\r\n{OFFERED}220 go\r\n{tail}").as_bytes().chunks(cut) {
            ended = ended.and(session.receive(piece, 0));
        }
        prop_assert_eq!(session.poll_event(), Some(ClientEvent::StartTls));
        prop_assert_eq!(ended.is_ok(), tail.is_empty());
        prop_assert_eq!(session.secured(0).is_ok(), tail.is_empty());
    }
}
