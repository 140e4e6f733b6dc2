//! LMTP: a greeting of its own, and one reply for each accepted recipient after the body (RFC 2033 section 4.2).

use super::*;

fn lmtp() -> Run {
    let config = ServerConfig { lmtp: true, ..config() };
    let session = ServerSession::new(Arc::new(config), true, NOW);
    let mut run = Run { session, steps: Vec::new(), output: Vec::new(), closed: false, now: NOW, name: None };
    run.pump();
    assert_eq!(run.take(), "220 mx.example.org LMTP Stentor\r\n");
    run
}

fn with_recipients() -> Run {
    let mut run = lmtp();
    run.send(b"LHLO c\r\nMAIL FROM:<a@x.org>\r\nRCPT TO:<b@y.org>\r\nRCPT TO:<no@y.org>\r\nRCPT TO:<c@y.org>\r\n");
    assert_eq!(run.codes(), [250, 250, 250, 550, 250]);
    run
}

#[test]
fn lhlo_alone_opens_a_session() {
    let mut run = lmtp();
    run.send(b"EHLO c\r\nHELO c\r\nMAIL FROM:<a@x.org>\r\n");
    assert_eq!(run.codes(), [500, 500, 503]);
    let offered = run.send(b"LHLO c\r\n").take();
    assert!(offered.contains("PIPELINING") && offered.ends_with("250 SMTPUTF8\r\n"), "{offered}");
    assert!(!offered.contains("CHUNKING") && !offered.contains("DSN"), "{offered}");
    let mut smtp = Run::new();
    smtp.take();
    assert_eq!(smtp.send(b"LHLO c\r\n").codes(), [502]);
}

#[test]
fn each_accepted_recipient_has_its_reply() {
    let mut run = with_recipients();
    run.send(b"DATA\r\n");
    assert_eq!(run.codes(), [354]);
    run.session.receive(b"Subject: x\r\n\r\nbody\r\n.\r\nNOOP\r\n");
    assert!(matches!(run.session.step(NOW), Step::EndOfData(_)));
    run.session.answer(Reply::fixed(250, Enhanced::new(2, 1, 5), "Delivered"));
    assert_eq!(run.session.output().as_slice(), b"250 2.1.5 Delivered\r\n", "written before the other is known");
    run.session.answer(Reply::fixed(452, Enhanced::new(4, 2, 2), "Full"));
    run.pump();
    assert_eq!(run.codes(), [250, 452, 250]);
    assert!(!run.session.in_transaction());
}

#[test]
fn a_body_that_is_refused_is_refused_for_each() {
    let mut run = with_recipients();
    run.send(b"DATA\r\n").take();
    run.send(&[b"x".repeat(900), b"\r\n".to_vec()].concat().repeat(12)).send(b".\r\n");
    assert_eq!(run.codes(), [552, 552]);
    assert_eq!(run.resets(), 1);
    assert_eq!(run.send(b"NOOP\r\n").codes(), [250]);
}

#[test]
fn a_chunk_is_no_command() {
    let mut run = with_recipients();
    run.send(b"BDAT 6 LAST\r\nNOOP\r\n");
    assert_eq!(run.codes(), [502]);
    assert!(run.closed);
}
