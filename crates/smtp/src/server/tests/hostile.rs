//! Attempts of untrusted clients to hold memory, time or places without submitting a message.

use super::*;
use crate::server::OUTPUT_BYTES_MAX;

/// Steps until the session waits for us to write or to send more; returns the octets that it has to write.
fn step_to_flush(session: &mut ServerSession) -> (Step, usize) {
    let step = session.step(NOW);
    assert!(matches!(step, Step::Flush | Step::NeedInput | Step::Close), "{step:?}");
    (step, session.output().len())
}

#[test]
fn replies_are_written_before_more_is_answered() {
    let config = ServerConfig { unproductive_max: 1 << 20, ..config() };
    for trusted in [false, true] {
        let mut session = ServerSession::new(Arc::new(config.clone()), trusted, NOW);
        session.receive(&b"EHLO a\r\n".repeat(8192));
        let (mut flushes, mut replies) = (0, 0);
        loop {
            let (step, bytes) = step_to_flush(&mut session);
            assert!(bytes < OUTPUT_BYTES_MAX + 512, "{bytes}");
            replies += memchr::memchr_iter(b'\n', session.output()).count();
            session.sent();
            assert!(session.output().capacity() <= 1024);
            if step != Step::Flush {
                break;
            }
            // Input is not read while the client does not read its replies: nothing else happens.
            flushes += 1;
        }
        assert!(flushes > 100 && replies > 8192 * 7, "{flushes} {replies}");
    }
}

#[test]
fn commands_that_lead_nowhere_are_counted() {
    for line in ["EHLO a", "HELO a", "NOOP", "RSET", "VRFY joe", "HELP", "BDAT 0"] {
        let mut run = Run::new();
        run.take();
        run.send(format!("{line}\r\n").repeat(200).as_bytes());
        let codes = run.codes();
        assert_eq!((codes.len(), codes.last(), run.closed), (101, Some(&421), true), "{line}");
    }
    // The same for transactions without data, endless valid recipients, or empty chunks.
    let mut run = Run::new();
    run.take();
    run.send(&b"MAIL FROM:<>\r\nRCPT TO:<b@y.org>\r\nRSET\r\n".repeat(60));
    assert!(run.closed);
    let mut run = Run::with(ServerConfig { recipients_max: 10, ..config() }, false);
    run.send(b"EHLO c\r\n").send(&b"MAIL FROM:<>\r\nRCPT TO:<b@y.org>\r\nRCPT TO:<b@y.org>\r\nRSET\r\n".repeat(40));
    assert!(run.closed && run.steps.iter().filter(|step| matches!(step, Step::Rcpt(_))).count() < 70);
    let mut run = Run::with_recipient();
    run.send(&b"BDAT 1\r\nx".repeat(200));
    assert!(run.closed && run.bodies().is_empty());
}

#[test]
fn those_who_hand_in_mail_or_are_trusted_are_not_cut() {
    let mut run = Run::with(config(), true);
    run.send(&b"NOOP\r\n".repeat(5_000));
    assert!(!run.closed);
    let mut run = Run::new();
    run.send(b"EHLO c\r\n");
    for _ in 0..100 {
        run.send(b"RSET\r\nNOOP\r\nMAIL FROM:<>\r\nRCPT TO:<b@y.org>\r\nRCPT TO:<later@y.org>\r\nDATA\r\n")
            .send(b"S: x\r\n\r\n.\r\n");
    }
    assert!(!run.closed && run.bodies().len() == 100);
    // A thousand recipients of one message, and a message in many chunks.
    let mut run = Run::with(ServerConfig { size_max: 1 << 20, ..config() }, false);
    run.send(b"EHLO c\r\nMAIL FROM:<>\r\n").send(&b"RCPT TO:<b@y.org>\r\n".repeat(1_000));
    run.send(&[b"BDAT 1024\r\n", [b'x'; 1024].as_slice()].concat().repeat(500)).send(b"BDAT 0 LAST\r\n");
    assert!(!run.closed && run.bodies().len() == 1);
}

#[test]
fn notifications_are_not_for_strangers() {
    let mut run = Run::new();
    run.send(b"EHLO c\r\n").take();
    run.send(b"MAIL FROM:<a@x.org> RET=FULL\r\nMAIL FROM:<a@x.org> ENVID=x\r\nMAIL FROM:<a@x.org>\r\n");
    run.send(b"RCPT TO:<b@y.org> NOTIFY=SUCCESS\r\nRCPT TO:<b@y.org> ORCPT=rfc822;b@y.org\r\nRCPT TO:<b@y.org>\r\n");
    assert_eq!(run.codes(), [555, 555, 250, 555, 555, 250]);
}

#[test]
fn a_body_is_refused_in_the_middle() {
    let reply = Reply::fixed(452, Enhanced::new(4, 3, 1), "Crowded");
    let mut run = Run::with_recipient();
    run.send(b"DATA\r\n").take();
    run.send(b"A: b\r\n\r\n");
    assert!(run.session.body_bytes().is_some_and(|bytes| bytes >= 8));
    run.session.refuse_body(reply.clone());
    assert_eq!((run.session.body_bytes(), run.session.in_transaction()), (None, false));
    run.send(&b"0123456789abcd\r\n".repeat(5_000)).send(b".\r\nNOOP\r\n");
    assert_eq!((run.codes(), run.resets(), run.bodies().len()), (vec![452, 250], 0, 0));
    let mut run = Run::with_recipient();
    run.take();
    run.send(b"BDAT 20\r\nA: b\r\n\r\n");
    run.session.refuse_body(reply);
    run.send(b"0123456789abNOOP\r\n");
    assert_eq!((run.codes(), run.resets(), run.bodies().len()), (vec![452, 250], 0, 0));
}

#[test]
fn a_refused_body_is_told_with_its_reply() {
    let refusals = |run: &Run| -> Vec<(u16, u64)> {
        let of = |step: &Step| match step {
            Step::Refused { reply, size } => Some((reply.code, *size)),
            _ => None,
        };
        run.steps.iter().filter_map(of).collect()
    };
    let long = b"0123456789abcd\r\n".repeat(1_000);
    for (command, body, wanted) in [
        (&b"DATA\r\n"[..], [&long[..], b".\r\n"].concat(), 552),
        (b"DATA\r\n", b"A: b\r\n\r\nx\n.\r\n".to_vec(), 550),
        (b"BDAT 16000\r\n", long.clone(), 552),
        (b"BDAT 6 LAST\r\n", b"a\nb\r\n\r\n".to_vec(), 554),
        (b"BDAT 2 LAST\r\n", b"a\r".to_vec(), 554),
        (b"DATA\r\n", [&b"To: a@b\r\n".repeat(10_001)[..], b".\r\n"].concat(), 552),
    ] {
        let mut run =
            Run::with(ServerConfig { size_max: if body.len() > 20_000 { 1 << 20 } else { 10_000 }, ..config() }, false);
        run.send(b"EHLO c\r\nMAIL FROM:<a@x.org>\r\nRCPT TO:<b@y.org>\r\n").send(command).send(&body);
        let refused = refusals(&run);
        assert!(refused.len() == 1 && refused[0].0 == wanted && refused[0].1 > 0, "{wanted} {refused:?}");
        assert!(run.bodies().is_empty() && !run.session.in_transaction());
    }
}

#[test]
fn loop_headers_have_a_bound_in_memory() {
    let mut run = Run::with(ServerConfig { size_max: 10 << 20, piece_bytes_max: 64 * 1024, ..config() }, false);
    run.send(b"EHLO c\r\nMAIL FROM:<>\r\nRCPT TO:<b@y.org>\r\nDATA\r\n").take();
    let field = format!("Delivered-To: {}\r\n", "x".repeat(500));
    run.send(field.repeat(900).as_bytes());
    assert_eq!(run.session.body_bytes(), None);
    run.send(b"\r\n.\r\n");
    assert_eq!(run.codes(), [552]);
}
