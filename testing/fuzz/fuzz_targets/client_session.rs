//! Any server: every transaction gets its results, one per recipient, then the session closes; nothing counts as
//! delivered before its content was out, and no line but ours goes out. With TLS and AUTH in all their states: no
//! transaction begins in clear where TLS is required, or without AUTH where that is asked for; what AUTH sends is in no
//! error.
//!
//! The octet 255 ends a part; the one behind it says what else happens there.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use stentor_smtp::client::{
    ClientConfig, ClientEvent, ClientSession, SaslOctets, RcptStage, TlsStage, TlsUse, TxRcpt, TxSpec,
};

const CONTENT: &[u8] = b"Subject: x\r\n\r\n.\r\n";
const SECRET: &str = "s3cret-password";

/// What the caller does about TLS and AUTH. `is_late`: the handshake is made later on.
fn protect(session: &mut ClientSession, (flags, step): (u8, u8), is_late: bool, event: &ClientEvent, now: u64) {
    match event {
        ClientEvent::StartTls if step & 1 != 0 => session.tls_failed("expired"),
        ClientEvent::StartTls if is_late => {}
        ClientEvent::StartTls => {
            // Refused if something came behind the 220.
            let _ = session.secured(now);
        }
        ClientEvent::Authenticate(mechanisms) => {
            assert!(!mechanisms.is_empty());
            // Over, if more came behind the offer.
            let _ = match step % 4 {
                0 => Ok(session.decline_auth("none", now)),
                1 => session.auth("LOGIN", None, now),
                2 => session.auth("PLAIN", Some(SECRET.as_bytes()), now),
                _ => session.auth("XOAUTH2", Some(SECRET.repeat(40).as_bytes()), now),
            };
        }
        ClientEvent::Challenge(SaslOctets(octets)) => match octets.first() {
            Some(b'!') => session.decline_auth("no", now),
            Some(b'?') => drop(session.respond(b"", now)),
            // Closed since, if the server did not wait.
            _ => drop(session.respond(SECRET.as_bytes(), now)),
        },
        ClientEvent::Authenticated if flags & 64 != 0 => session.decline_auth("not proven", now),
        _ => {}
    }
}

fuzz_target!(|data: &[u8]| {
    let [flags, step, bytes @ ..] = data else { return };
    let config = ClientConfig { lmtp: flags & 1 != 0, pipelining: flags & 2 != 0, ..ClientConfig::default() };
    let mut session = ClientSession::new(Arc::new(config), 0);
    let tls = [TlsUse::Never, TlsUse::IfOffered, TlsUse::Required, TlsUse::Implicit][usize::from(flags >> 3 & 3)];
    let authenticates = flags & 32 != 0;
    session.protect(tls, authenticates);
    let mut authenticated = false;
    let (mut begun, mut done, mut closed, mut ended) = (0_u64, 0, false, Vec::new());
    let mut output = Vec::new();
    let is_late = step & 16 != 0;
    // Whoever says it unasked, or by itself, is no concern of ours.
    let said_by_server = bytes.windows(SECRET.len()).any(|octets| octets == SECRET.as_bytes());
    let mut events = |session: &mut ClientSession, ended: &[u64], now: u64| {
        while let Some(event) = session.poll_event() {
            assert!(!closed, "nothing comes after Closed");
            assert!(said_by_server || !format!("{event:?}").contains(SECRET), "a secret is shown");
            protect(session, (*flags, *step), is_late, &event, now);
            match event {
                ClientEvent::Unsecured(_) => assert_eq!(tls, TlsUse::IfOffered),
                ClientEvent::Authenticated => authenticated = true,
                ClientEvent::Ready(_) => {
                    let in_clear = matches!(session.tls_stage(), TlsStage::Clear | TlsStage::Refused);
                    assert!(!in_clear || matches!(tls, TlsUse::Never | TlsUse::IfOffered));
                    assert!(in_clear || session.tls_stage() == TlsStage::Secured);
                    assert_eq!(authenticated, authenticates);
                }
                ClientEvent::StartTls | ClientEvent::Authenticate(_) | ClientEvent::Challenge(_) => {}
                ClientEvent::Done { tx, results } => {
                    done += 1;
                    assert_eq!(results.len(), 3);
                    assert!(results.iter().all(|result| result.reply.code >= 200));
                    let out = results.iter().any(|result| result.is_delivered() || result.stage == RcptStage::AfterDot);
                    assert!(!out || ended.contains(&tx));
                    // What is tried again has got nothing.
                    assert!(results.iter().all(|result| result.blames.is_empty() || !result.is_delivered()));
                    session.recycle(results);
                }
                ClientEvent::Closed { .. } => closed = true,
            }
        }
    };
    let parts = bytes.split(|octet| *octet == 255).enumerate().flat_map(|(index, part)| {
        let (happens, part) = match part.split_first() {
            Some((&happens, rest)) if index > 0 => (happens, rest),
            _ => (0, part),
        };
        std::iter::once((happens, &b""[..])).chain(part.chunks(usize::from(*step) + 1).map(|piece| (0, piece)))
    });
    for (index, (happens, piece)) in parts.enumerate() {
        let now = index as u64;
        match happens % 8 {
            1 => _ = session.timed_out(session.deadline().min(u64::MAX - 1)),
            2 => session.disconnected(),
            3 => session.tls_failed("broken"),
            4 => session.quit(now),
            5 => session.decline_auth("no", now),
            // Octets in clear may have come before it.
            6 => _ = session.secured(now),
            _ => {}
        }
        let _ = session.receive(piece, now);
        if session.can_pipeline(CONTENT.len() as u64) && begun < 20 {
            begun += 1;
            let spec = TxSpec {
                tx: begun,
                sender: "a@b",
                size: CONTENT.len() as u64,
                size_exact: flags & 4 != 0 || !session.can_begin(),
                eight_bit: false,
                smtputf8: false,
                require_tls: flags & 128 != 0,
                ret: None,
                envid: None,
            };
            session.begin(&spec, ["c@d", "e@f", "g@h"].map(TxRcpt::new), now).expect("a transaction may begin");
        }
        if session.wants_body() {
            let tx = begun;
            session.push_body(CONTENT, now).expect("content is canonical");
            session.end_body(now).expect("content has its size");
            ended.push(tx);
        }
        assert!(session.deadline() > now);
        output.append(session.output());
        events(&mut session, &ended, now);
    }
    session.disconnected();
    events(&mut session, &ended, u64::MAX);
    assert!(closed && session.is_closed());
    assert_eq!(begun, done);
    for line in String::from_utf8(output).expect("ASCII").split_terminator("\r\n") {
        let ours = [
            "EHLO ",
            "HELO ",
            "LHLO ",
            "MAIL FROM:<",
            "RCPT TO:<",
            "BDAT 17 LAST",
            "DATA",
            "RSET",
            "QUIT",
            "Subject: x",
            "STARTTLS",
            "AUTH ",
        ];
        let is_response = |line: &str| line.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b));
        assert!(
            matches!(line, "" | "." | ".." | "*")
                || (authenticates && is_response(line))
                || ours.iter().any(|start| line.starts_with(start)),
            "{line:?}"
        );
    }
});
