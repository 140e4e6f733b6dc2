//! CHUNKING (RFC 3030).

use super::*;

#[test]
fn chunks_make_a_message() {
    let mut run = Run::with_recipient();
    run.take();
    run.send(b"BDAT 6\r\nA: b\r\nBDAT 0\r\nBDAT 5\r\n\r\n.\r\nBDAT 0 LAST\r\n");
    assert_eq!(
        run.take(),
        "250 2.0.0 6 octets received\r\n250 2.0.0 0 octets received\r\n250 2.0.0 5 octets received\r\n250 2.0.0 Queued\r\n"
    );
    assert_eq!(run.bodies(), [b"A: b\r\n\r\n.\r\n"]);
    assert_eq!(run.steps.iter().filter(|step| **step == Step::Data).count(), 1);
}

#[test]
fn a_whole_message_in_one_segment() {
    let mut run = Run::new();
    run.take();
    run.send(b"EHLO c\r\nMAIL FROM:<>\r\nRCPT TO:<b@y.org>\r\nBDAT 8 LAST\r\nA: b\r\n\r\nQUIT\r\n");
    assert_eq!(run.codes(), [250, 250, 250, 250, 221]);
    assert_eq!(run.bodies(), [b"A: b\r\n\r\n"]);
}

#[test]
fn last_twice_and_chunks_without_a_transaction_are_swallowed() {
    let mut run = Run::with_recipient();
    run.take();
    run.send(b"BDAT 3 LAST\r\nx\r\nBDAT 6 LAST\r\nQUIT\r\nBDAT 6\r\nQUIT\r\nNOOP\r\n");
    assert_eq!(run.codes(), [250, 503, 503, 250]);
    assert!(!run.closed && run.bodies().len() == 1);
}

#[test]
fn without_recipients() {
    let mut run = Run::new();
    run.send(b"EHLO c\r\nMAIL FROM:<>\r\nRCPT TO:<no@y.org>\r\n").take();
    run.send(b"BDAT 6 LAST\r\nQUIT\r\nNOOP\r\n");
    assert_eq!(run.codes(), [554, 250]);
}

#[test]
fn mixed_with_data_mail_and_rcpt() {
    let mut run = Run::with_recipient();
    run.take();
    run.send(b"BDAT 3\r\nx\r\nMAIL FROM:<>\r\nRCPT TO:<b@y.org>\r\n").send(b"DATA\r\n").send(b"BDAT 0 LAST\r\n");
    assert_eq!(run.codes(), [250, 503, 503, 503, 250]);
    assert_eq!(run.bodies(), [b"x\r\n"]);
    let mut run = Run::with_recipient();
    run.send(b"BDAT 3\r\nx\r\nRSET\r\n").take();
    run.send(b"BDAT 3 LAST\r\nx\r\nMAIL FROM:<>\r\n");
    assert_eq!((run.codes(), run.resets(), run.bodies().len()), (vec![503, 250], 1, 0));
}

#[test]
fn sizes_that_are_none_end_the_session() {
    for line in [&b"BDAT\r\n"[..], b"BDAT -1\r\n", b"BDAT 18446744073709551616\r\n", b"BDAT 3 LATS\r\n", b"BDAT 3x\r\n"]
    {
        let mut run = Run::with_recipient();
        run.take();
        run.send(line).send(b"MAIL FROM:<>\r\n");
        assert_eq!((run.codes(), run.closed, run.bodies().len()), (vec![501], true, 0), "{line:?}");
    }
}

#[test]
fn chunks_over_the_limit_are_552() {
    let mut run = Run::with_recipient();
    run.take();
    let chunk = b"0123456789abcd\r\n".repeat(500);
    run.send(b"BDAT 8000\r\n").send_in(&chunk, 333).send(b"BDAT 8000\r\n").send_in(&chunk, 333);
    assert_eq!((run.codes(), run.resets()), (vec![250, 552], 1));
    run.send(b"BDAT 8000 LAST\r\n").send_in(&chunk, 333);
    assert_eq!((run.codes(), run.bodies().len()), (vec![503], 0));
    // 2^64 - 1 octets are discarded as they arrive.
    let mut run = Run::with_recipient();
    run.take();
    run.send(b"BDAT 18446744073709551615 LAST\r\n").send_in(&chunk.repeat(100), 10_000);
    assert_eq!((run.codes().len(), run.resets(), run.session.input.rest().len()), (0, 1, 0));
}

#[test]
fn what_data_would_refuse_is_not_taken_but_framing_holds() {
    let dots: [&[u8]; 4] = [b"\0.\r\n", b".\0\r\n", b"a\r\n\0.\0\r\n", b"..\r\n\0\0.b\r\n"];
    for bad in [&b"a\nb\r\n"[..], b"a\rbb\r\n", b"\n12345", b"abcde\r", b"\r\r\n123"].into_iter().chain(dots) {
        for part_bytes in 1..=bad.len() {
            let mut run = Run::with_recipient();
            run.take();
            run.send(format!("BDAT {} LAST\r\n", bad.len()).as_bytes()).send_in(bad, part_bytes).send(b"NOOP\r\n");
            assert_eq!((run.codes(), run.bodies().len(), run.resets()), (vec![554, 250], 0, 1), "{bad:?}");
        }
    }
    // Chunks may cut a line end.
    let mut run = Run::with_recipient();
    run.send(b"BDAT 2\r\nx\rBDAT 1 LAST\r\n\n");
    assert_eq!(run.bodies(), [b"x\r\n"]);
}

#[test]
fn the_caller_refuses_the_first_chunk() {
    let mut run = Run::with_recipient();
    run.take();
    run.session.receive(b"BDAT 6\r\nQUIT\r\nBDAT 6 LAST\r\nQUIT\r\n");
    assert_eq!(run.session.step(NOW), Step::Data);
    run.session.answer(Reply::fixed(452, Enhanced::new(4, 3, 1), "Full"));
    run.pump();
    assert_eq!((run.codes(), run.resets(), run.closed), (vec![452, 503], 1, false));
}
