//! Reports read back by another MIME parser.

use mail_parser::{Message, MessageParser, MimeHeaders as _, PartType};
use proptest::prelude::*;

use super::*;

fn rcpt(address: &str) -> ReportRcpt<'_> {
    ReportRcpt {
        address,
        orcpt: None,
        action: DsnAction::Failed,
        status: Enhanced::new(5, 1, 1),
        remote_mta: Some("mx.far.example"),
        diagnostic: Some("550 5.1.1 No such user"),
        reason: None,
        last_attempt: Some("Sat, 21 Nov 2026 21:16:40 +0000"),
        will_retry_until: None,
    }
}

fn report<'a>(rcpts: &'a [ReportRcpt<'a>], original: &'a [u8]) -> Dsn<'a> {
    Dsn {
        hostname: "mx.us.example",
        to: "sender@home.example",
        date: "Sat, 21 Nov 2026 21:20:00 +0000",
        message_id: "1.2@mx.us.example",
        queue_id: "abc1",
        arrival: Some("Sat, 21 Nov 2026 21:16:39 +0000"),
        envid: Some("QQ+2B+3D1"),
        received_from: Some("client.example"),
        rcpts,
        original,
        original_whole: true,
        ret: Ret::Headers,
        archive: None,
        smtputf8: false,
    }
}

/// Returns content types and bodies of the three parts.
fn parts(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    assert!(!memchr::memchr_iter(b'\n', bytes).any(|at| at == 0 || bytes[at - 1] != b'\r'), "bare LF");
    assert!(!memchr::memchr_iter(b'\r', bytes).any(|at| bytes.get(at + 1) != Some(&b'\n')), "bare CR");
    let message: Message<'_> = MessageParser::default().parse(bytes).unwrap();
    let PartType::Multipart(children) = &message.parts[0].body else { panic!("not a multipart") };
    let describe = |&id: &u32| {
        let part = &message.parts[id as usize];
        let kind = part.content_type().unwrap();
        let body = bytes[part.offset_body as usize..part.offset_end as usize].to_vec();
        (format!("{}/{}", kind.ctype(), kind.subtype().unwrap_or_default()), body)
    };
    children.iter().map(describe).collect()
}

fn text(body: &[u8]) -> &str {
    std::str::from_utf8(body).unwrap()
}

#[test]
fn a_failure_with_headers() {
    let rcpts = [ReportRcpt { orcpt: Some("rfc822;a+2Bb@far.example"), ..rcpt("x@far.example") }];
    let bytes = build(&report(&rcpts, b"Subject: hi\r\nFrom: me\r\n\r\nbody\r\n"));
    assert!(bytes.is_ascii());
    let message = MessageParser::default().parse(&bytes).unwrap();
    assert_eq!(message.subject(), Some("Undelivered Mail Returned to Sender"));
    assert_eq!(message.from().unwrap().first().unwrap().address(), Some("MAILER-DAEMON@mx.us.example"));
    assert_eq!(message.to().unwrap().first().unwrap().address(), Some("sender@home.example"));
    assert_eq!(message.message_id(), Some("1.2@mx.us.example"));
    assert_eq!(message.header_raw("Auto-Submitted").unwrap().trim(), "auto-replied");
    let parts = parts(&bytes);
    let kinds: Vec<&str> = parts.iter().map(|part| part.0.as_str()).collect();
    assert_eq!(kinds, ["text/plain", "message/delivery-status", "text/rfc822-headers"]);
    assert!(text(&parts[0].1).contains("<x@far.example>\r\n    host mx.far.example\r\n    it replied: 550 5.1.1"));
    assert_eq!(
        text(&parts[1].1).trim_end(),
        "Reporting-MTA: dns; mx.us.example\r\nOriginal-Envelope-Id: QQ+=1\r\nX-Queue-ID: abc1\r\n\
         Received-From-MTA: dns; client.example\r\nArrival-Date: Sat, 21 Nov 2026 21:16:39 +0000\r\n\r\n\
         Original-Recipient: rfc822; a+b@far.example\r\nFinal-Recipient: rfc822; x@far.example\r\n\
         Action: failed\r\nStatus: 5.1.1\r\nRemote-MTA: dns; mx.far.example\r\n\
         Diagnostic-Code: smtp; 550 5.1.1 No such user\r\n\
         Last-Attempt-Date: Sat, 21 Nov 2026 21:16:40 +0000"
    );
    assert_eq!(text(&parts[2].1).trim_end(), "Subject: hi\r\nFrom: me");
}

#[test]
fn the_whole_message_on_request() {
    let rcpts = [rcpt("x@far.example")];
    let original = "Subject: hi\r\n\r\nbödy\r\n".as_bytes();
    let full = Dsn { ret: Ret::Full, ..report(&rcpts, original) };
    let parts_of = |report: &Dsn<'_>| parts(&build(report)).remove(2);
    assert_eq!(parts_of(&full).0, "message/rfc822");
    assert!(text(&parts_of(&full).1).starts_with("Subject: hi\r\n\r\nbödy\r\n"));
    // Not if only its beginning is available, if it is too large, or in a report of success.
    assert_eq!(parts_of(&Dsn { original_whole: false, ..full }).0, "text/rfc822-headers");
    let large = [original, &vec![b'x'; ORIGINAL_BYTES_MAX]].concat();
    assert_eq!(parts_of(&Dsn { original: &large, ..full }).0, "text/rfc822-headers");
    let relayed = [ReportRcpt { action: DsnAction::Relayed, status: Enhanced::new(2, 0, 0), ..rcpts[0] }];
    let success = Dsn { rcpts: &relayed, ..full };
    assert_eq!(parts_of(&success).0, "text/rfc822-headers");
    let bytes = build(&success);
    let message = MessageParser::default().parse(&bytes).unwrap();
    assert_eq!(message.subject(), Some("Successful Mail Delivery Report"));
    assert!(text(&parts(&bytes)[1].1).contains("Action: relayed\r\nStatus: 2.0.0\r\n"));
}

#[test]
fn a_delay_is_a_warning() {
    let delayed = ReportRcpt {
        action: DsnAction::Delayed,
        status: Enhanced::new(4, 4, 1),
        diagnostic: None,
        reason: Some("Connection timed out"),
        will_retry_until: Some("Thu, 26 Nov 2026 21:16:39 +0000"),
        ..rcpt("x@far.example")
    };
    let original = b"Subject: hi\r\n\r\nbody\r\n";
    // RET=FULL applies to failures (RFC 3461 section 4.3).
    let rcpts = [delayed];
    let warning = Dsn { ret: Ret::Full, archive: Some("https://x.example/"), ..report(&rcpts, original) };
    let bytes = build(&warning);
    let message = MessageParser::default().parse(&bytes).unwrap();
    assert_eq!(message.subject(), Some("Delayed Mail (still being retried)"));
    let found = parts(&bytes);
    assert_eq!(found[2].0, "text/rfc822-headers");
    let status = text(&found[1].1);
    assert!(status.contains("Original-Envelope-Id: QQ+=1\r\n"), "{status}");
    assert!(status.contains("Action: delayed\r\nStatus: 4.4.1\r\n"), "{status}");
    assert!(status.contains("Will-Retry-Until: Thu, 26 Nov 2026 21:16:39 +0000\r\n"), "{status}");
    let words = text(&found[0].1);
    assert!(words.contains("is delayed; attempts continue") && words.contains("only a warning"), "{words}");
    assert!(!words.contains("archive"), "it is on its way: {words}");
    // With a failure it is a report of failure.
    let both = [delayed, rcpt("y@far.example")];
    let bytes = build(&Dsn { rcpts: &both, ..warning });
    let message = MessageParser::default().parse(&bytes).unwrap();
    assert_eq!(message.subject(), Some("Undelivered Mail Returned to Sender"));
    assert_eq!(parts(&bytes)[2].0, "message/rfc822");
    let words = String::from_utf8(parts(&bytes).remove(0).1).unwrap();
    assert!(words.contains("in the list's archive:\r\n    https://x.example/\r\n"), "{words}");
    assert!(!words.contains("only a warning"), "{words}");
}

#[test]
fn addresses_with_utf8() {
    let rcpts = [ReportRcpt { diagnostic: Some("550 né"), ..rcpt("é@far.example") }];
    let plain = build(&report(&rcpts, b""));
    assert!(plain.is_ascii());
    assert!(text(&parts(&plain)[1].1).contains("Final-Recipient: utf-8; \\x{E9}@far.example\r\n"));
    let global = build(&Dsn { smtputf8: true, ..report(&rcpts, "X: ÿ = 1\r\n\r\n".as_bytes()) });
    let found = parts(&global);
    let kinds: Vec<&str> = found.iter().map(|part| part.0.as_str()).collect();
    assert_eq!(kinds, ["text/plain", "message/delivery-status", "message/global-headers"]);
    assert!(text(&found[0].1).contains("\r\n<é@far.example>\r\n"));
    assert!(text(&found[1].1).contains("Final-Recipient: utf-8; \\x{E9}@far.example\r\n"));
    assert!(text(&found[1].1).contains("Diagnostic-Code: smtp; 550 n\\x{E9}\r\n"));
    assert_eq!(text(&found[2].1).trim_end(), "X: =C3=BF =3D 1");
    // A header without UTF-8 has the old type, and a message of the new type is not sent unencoded.
    let plain = Dsn { smtputf8: true, ..report(&rcpts, b"X: y\r\n\r\n\xc3\xa9") };
    assert_eq!(parts(&build(&plain))[2].0, "text/rfc822-headers");
    assert_eq!(parts(&build(&Dsn { ret: Ret::Full, ..plain }))[2].0, "message/rfc822");
    let whole = Dsn { ret: Ret::Full, original: "X: ÿ\r\n\r\né\r\n".as_bytes(), ..plain };
    let found = parts(&build(&whole)).remove(2);
    assert_eq!((found.0.as_str(), text(&found.1).trim_end()), ("message/global", "X: =C3=BF\r\n\r\n=C3=A9"));
}

#[test]
fn many_recipients_are_capped() {
    let addresses: Vec<String> = (0..RECIPIENTS_MAX + 500).map(|n| format!("user{n}@far.example")).collect();
    let rcpts: Vec<ReportRcpt<'_>> = addresses.iter().map(|address| rcpt(address)).collect();
    let bytes = build(&report(&rcpts, b""));
    let parts = parts(&bytes);
    assert_eq!(text(&parts[1].1).matches("Final-Recipient:").count(), RECIPIENTS_MAX);
    assert!(text(&parts[0].1).contains("and 1450 more.\r\n"));
    assert!(bytes.len() < 1_000_000);
}

#[test]
fn the_original_cannot_close_its_part() {
    let rcpts = [rcpt("x@far.example")];
    let first = boundary("1.2@mx.us.example", b"");
    let original = format!("Subject: --{first}\r\n\r\n--{first}--\r\nContent-Type: text/html\r\n\r\nevil\r\n");
    let bytes = build(&Dsn { ret: Ret::Full, ..report(&rcpts, original.as_bytes()) });
    let parts = parts(&bytes);
    assert_eq!(parts.len(), 3);
    assert!(text(&parts[2].1).contains("evil"));
}

#[test]
fn header_sections_are_found_and_capped() {
    assert_eq!(header_section(b"a: b\r\n\r\nc"), b"a: b\r\n");
    assert_eq!(header_section(b"\r\nc\r\n\r\n"), b"");
    assert_eq!(header_section(b"a: b"), b"a: b");
    let long = b"a: 789012345678\r\n".repeat(10_000);
    let cut = header_section(&long);
    assert!(cut.ends_with(b"\r\n") && cut.len() <= ORIGINAL_HEADER_BYTES_MAX && cut.len() > 65_000);
    assert_eq!(normalise(b"a\rb\nc\0d\r\ne"), b"a\r\nb\r\nc d\r\ne\r\n");
}

#[test]
fn statuses() {
    assert_eq!(status_of(550, None, true), Enhanced::new(5, 0, 0));
    assert_eq!(status_of(451, Some(Enhanced::new(4, 7, 1)), true), Enhanced::new(5, 4, 7));
    assert_eq!(status_of(451, Some(Enhanced::new(4, 7, 1)), false), Enhanced::new(4, 7, 1));
}

proptest! {
    /// A report can be sent wherever its recipient can be reached: its header needs SMTPUTF8 only if the address does,
    /// the rest can be converted, and no diagnostics, addresses or header fields change that.
    #[test]
    fn a_report_can_always_be_sent(
        to in "[aé]{1,4}@x", address in "\\PC{0,40}", orcpt in "(utf-8|rfc822|x);\\PC{0,40}", words in "\\PC{0,200}",
        original in "([ -~éÿ]{0,60}\r\n){0,9}", smtputf8: bool, full: bool,
    ) {
        let rcpts = [ReportRcpt {
            orcpt: Some(&orcpt), diagnostic: Some(&words), reason: Some(&words), remote_mta: Some(&words), ..rcpt(&address)
        }];
        let ret = if full { Ret::Full } else { Ret::Headers };
        let bytes = build(&Dsn { to: &to, smtputf8, ret, ..report(&rcpts, original.as_bytes()) });
        let header = text(&bytes).split("\r\n\r\n").next().unwrap();
        prop_assert_eq!(header.is_ascii(), to.is_ascii());
        prop_assert!(text(&parts(&bytes)[1].1).is_ascii());
        if to.is_ascii() {
            let (mut converter, mut out) = (stentor_mime::recode::Converter::lossy(), Vec::new());
            converter.push(&bytes, &mut out).unwrap();
            converter.finish(&mut out).unwrap();
            prop_assert!(out.is_ascii());
        }
    }

    #[test]
    fn nothing_can_be_injected(
        hostile in "(\r\n|\n|\r|[ -~é\\x00]|--|: |Bcc){0,30}", original in "(\r\n|\n|\r|[ -~é\\x00]|--=_){0,40}",
        smtputf8: bool, full: bool,
    ) {
        let rcpts = [ReportRcpt {
            address: &hostile,
            orcpt: Some(&hostile),
            action: DsnAction::Failed,
            status: Enhanced::new(5, 0, 0),
            remote_mta: Some(&hostile),
            diagnostic: Some(&hostile),
            reason: Some(&hostile),
            last_attempt: Some(&hostile),
            will_retry_until: Some(&hostile),
        }];
        let report = Dsn {
            hostname: &hostile,
            to: &hostile,
            date: &hostile,
            message_id: &hostile,
            queue_id: &hostile,
            arrival: Some(&hostile),
            envid: Some(&hostile),
            received_from: Some(&hostile),
            rcpts: &rcpts,
            original: original.as_bytes(),
            original_whole: true,
            ret: if full { Ret::Full } else { Ret::Headers },
            archive: Some(&hostile),
            smtputf8,
        };
        let bytes = build(&report);
        let parts = parts(&bytes);
        prop_assert_eq!(parts.len(), 3);
        // One group for the message, one for the recipient, and only our own fields.
        let status = text(&parts[1].1).trim_end();
        prop_assert_eq!(status.split("\r\n\r\n").count(), 2);
        for line in status.split("\r\n").filter(|line| !line.is_empty()) {
            let known = line.starts_with(' ') || FIELDS.iter().any(|name| line.starts_with(name));
            prop_assert!(known, "{:?}", line);
        }
        let header = text(&bytes).split("\r\n\r\n").next().unwrap();
        prop_assert!(!header.split("\r\n").any(|line| line.starts_with("Bcc")));
    }
}

const FIELDS: [&str; 13] = [
    "Reporting-MTA:",
    "Original-Envelope-Id:",
    "X-Queue-ID:",
    "Received-From-MTA:",
    "Arrival-Date:",
    "Original-Recipient:",
    "Final-Recipient:",
    "Action:",
    "Status:",
    "Remote-MTA:",
    "Diagnostic-Code:",
    "Last-Attempt-Date:",
    "Will-Retry-Until:",
];
