//! Any text everywhere in a report: lines end with CRLF, and no field and no part appears that is not ours.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_mail::dsn::Ret;
use stentor_mail::dsn::{DsnAction, Dsn, ReportRcpt, build, status_of};

fuzz_target!(|data: &[u8]| {
    let [flags, bytes @ ..] = data else { return };
    let text = String::from_utf8_lossy(bytes);
    let rcpt = ReportRcpt {
        address: &text,
        orcpt: Some(&text),
        action: if flags & 1 == 0 { DsnAction::Failed } else { DsnAction::Relayed },
        status: status_of(550, None, true),
        remote_mta: Some(&text),
        diagnostic: Some(&text),
        reason: Some(&text),
        last_attempt: Some(&text),
        will_retry_until: Some(&text),
    };
    let report = Dsn {
        hostname: &text,
        to: &text,
        date: &text,
        message_id: &text,
        queue_id: &text,
        arrival: Some(&text),
        envid: Some(&text),
        received_from: Some(&text),
        rcpts: &[rcpt, rcpt],
        original: bytes,
        original_whole: true,
        ret: if flags & 2 == 0 { Ret::Full } else { Ret::Headers },
        archive: Some(&text),
        smtputf8: flags & 4 != 0,
    };
    let out = build(&report);
    for (at, b) in out.iter().enumerate() {
        match b {
            b'\r' => assert_eq!(out.get(at + 1), Some(&b'\n')),
            b'\n' => assert_eq!(out.get(at.wrapping_sub(1)), Some(&b'\r')),
            _ => assert_ne!(*b, 0),
        }
    }
    let header_end = out.windows(4).position(|w| w == b"\r\n\r\n").expect("a header");
    let header = String::from_utf8_lossy(&out[..header_end]);
    let start = header.rfind("boundary=\"").expect("a boundary") + 10;
    let delimiter = format!("--{}", header[start..].split('"').next().expect("its end"));
    let delimiters = out.split(|&b| b == b'\n').filter(|line| line.starts_with(delimiter.as_bytes())).count();
    assert_eq!(delimiters, 4);
    let known =
        [" ", "Date:", "From:", "To:", "Subject:", "Message-ID:", "Auto-Submitted:", "MIME-Version:", "Content-"];
    assert!(header.split("\r\n").all(|line| known.iter().any(|start| line.starts_with(start))));
});
