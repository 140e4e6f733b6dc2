//! The cases of the table of hostile input that concern incoming SMTP.

use super::*;

/// Feeds a body in two parts cut at `cut`.
fn body_cut_at(body: &[u8], cut: usize) -> Run {
    let mut run = Run::with_recipient();
    run.send(b"DATA\r\n").take();
    run.send(&body[..cut]).send(&body[cut..]);
    run
}

#[test]
fn end_of_data_look_alikes_never_smuggle() {
    let smuggled = b"MAIL FROM:<evil@x.org>\r\nRCPT TO:<victim@y.org>\r\nDATA\r\nSubject: evil\r\n\r\n.\r\n";
    for look_alike in [
        &b"\n.\n"[..],
        b"\n.\r\n",
        b"\r.\r",
        b"\r.\r\n",
        b"\r\n.\n",
        b"\r\n.\r",
        b"\r\n\0.\r\n",
        b"\r\n.\0\r\n",
        b"\r\n.\r\0\n",
        b"\r\n\0.\0\r\n",
        b"\r\r\n.\r\n",
    ] {
        let body = [b"Subject: x\r\n\r\ntext", look_alike, smuggled].concat();
        for cut in 0..body.len() {
            let mut run = body_cut_at(&body, cut);
            assert!(run.closed, "{look_alike:?} cut at {cut}");
            assert_eq!(run.codes(), [550], "{look_alike:?} cut at {cut}");
            assert_eq!(run.bodies().len(), 0);
            assert!(!run.steps.iter().any(|step| matches!(step, Step::Mail(_) | Step::Rcpt(_))));
        }
    }
}

#[test]
fn nothing_is_read_after_a_close() {
    let mut run = body_cut_at(b"a\nb", 1);
    assert!(run.closed);
    run.take();
    run.send(b"\r\n.\r\nMAIL FROM:<a@x.org>\r\n");
    assert!(run.take().is_empty() && matches!(run.steps[..], [Step::Data, Step::Refused { .. }, Step::Close]));
}

#[test]
fn data_behind_data_in_the_same_segment() {
    let mut run = Run::with_recipient();
    run.take();
    run.send(b"DATA\r\nSubject: x\r\n\r\n.\r\nMAIL FROM:<a@x.org>\r\n");
    assert_eq!(run.codes(), [554]);
    assert!(run.closed && run.steps == [Step::Close]);
    let mut run = Run::new();
    run.take();
    run.send(b"DATA\r\nMAIL FROM:<a@x.org>\r\n");
    assert_eq!((run.codes(), run.closed), (vec![554], true));
}

#[test]
fn command_lines_over_the_limit() {
    let limit = config().command_bytes_max;
    for part_bytes in [1, 7, 2048, 100_000] {
        let mut run = Run::new();
        run.take();
        let at_limit = [b"NOOP ", vec![b'x'; limit - 7].as_slice(), b"\r\n"].concat();
        run.send_in(&at_limit, part_bytes);
        run.send_in(&[b"NOOP ", vec![b'x'; limit - 6].as_slice(), b"\r\nNOOP\r\n"].concat(), part_bytes);
        run.send_in(&[vec![b'x'; 300_000].as_slice(), b"\r\nNOOP\r\n"].concat(), part_bytes);
        assert_eq!(run.codes(), [250, 500, 250, 500, 250], "{part_bytes}");
    }
}

#[test]
fn an_endless_command_line_takes_no_memory() {
    let mut run = Run::new();
    let part = vec![b'x'; 64 * 1024];
    for _ in 0..1_000 {
        run.send(&part);
        assert_eq!(run.session.input.rest().len(), 0);
    }
    assert!(run.steps.is_empty());
}

#[test]
fn a_long_body_line_is_taken_as_it_is() {
    let config = ServerConfig { size_max: 4 << 20, piece_bytes_max: 64 * 1024, ..config() };
    let mut run = Run::with(config, true);
    run.send(b"EHLO c\r\nMAIL FROM:<>\r\nRCPT TO:<b@y.org>\r\nDATA\r\n");
    let body = [b"A: b\r\n\r\n", vec![b'x'; 3 << 20].as_slice(), b"\r\n"].concat();
    run.send_in(&body, 10_000).send(b".\r\n");
    assert!(run.bodies() == [body]);
    assert!(run.steps.iter().all(|step| !matches!(step, Step::Piece(piece) if piece.len() != 64 * 1024)));
}

#[test]
fn a_body_over_the_limit_is_drained() {
    let mut run = Run::with_recipient();
    run.send(b"DATA\r\n").take();
    let body = b"0123456789abcd\r\n".repeat(100_000);
    run.send_in(&body, 50_000);
    assert_eq!((run.resets(), run.take().as_str()), (1, ""));
    assert!(!run.session.in_transaction());
    run.send(b".\r\nMAIL FROM:<a@x.org>\r\n");
    assert!(run.take().starts_with("552 5.3.4 "));
    assert_eq!((run.bodies().len(), run.resets(), run.closed), (0, 1, false));
    // Exactly the limit is accepted.
    let mut run = Run::with_recipient();
    run.send(b"DATA\r\n").send(&body[..10_000]).send(b".\r\n");
    assert_eq!(run.bodies().len(), 1);
}

#[test]
fn declared_sizes() {
    let mut run = Run::new();
    run.send(b"EHLO c\r\n").take();
    for (size, wanted) in [
        ("10001", "552 5.3.4"),
        ("-1", "501 5.5.4"),
        ("18446744073709551616", "501 5.5.4"),
        ("99999999999999999999999", "501 5.5.4"),
        ("1e3", "501 5.5.4"),
    ] {
        run.send(format!("MAIL FROM:<a@x.org> SIZE={size}\r\n").as_bytes());
        assert!(run.take().starts_with(wanted), "{size}");
    }
    assert!(run.steps.is_empty());
}

#[test]
fn header_caps_are_552() {
    let config = || ServerConfig { size_max: 10 << 20, piece_bytes_max: 64 * 1024, ..config() };
    let fields = b"To: ann@x.example\r\n".repeat(100_000);
    let folded = [&b"To: "[..], &b"ann@x.example,\r\n ".repeat(100_000), b"\r\n"].concat();
    let short_lines = [&b"To: a@b\r\n"[..], &b"\t\r\n".repeat(2_000)].concat();
    for (body, why) in [
        (fields, "too many header fields"),
        (folded, "header section too large"),
        (short_lines.clone(), "too many short header lines"),
    ] {
        let mut run = Run::with(config(), true);
        run.send(b"EHLO c\r\nMAIL FROM:<>\r\nRCPT TO:<b@y.org>\r\nDATA\r\n").take();
        run.send_in(&body, 30_000).send(b".\r\nNOOP\r\n");
        let replies = run.take();
        let refusal = format!("552 5.3.4 Message refused: {why}\r\n");
        assert!(replies.ends_with(&format!("{refusal}250 2.0.0 Ok\r\n")), "{replies}");
        assert_eq!((run.resets(), run.bodies().len()), (1, 0));
    }
    // As many of them as a header may have are taken unchanged.
    let body = [&short_lines[..3_000], b"\r\nx\r\n"].concat();
    let mut run = Run::with(config(), true);
    run.send(b"EHLO c\r\nMAIL FROM:<>\r\nRCPT TO:<b@y.org>\r\nDATA\r\n").take();
    run.send_in(&body, 30_000).send(b".\r\n");
    assert!(run.bodies() == [body]);
}

#[test]
fn controls_in_commands_are_501() {
    let mut run = Run::with_recipient();
    run.take();
    run.send(b"RCPT TO:<a\0@x.org>\r\nRCPT TO:<a@x.org\r>\r\nRCPT TO:<a@x.org> ORCPT=rfc822;a\tb\r\nRCPT TO:<a@x.org> ORCPT=rfc822;a+0D\r\n");
    assert_eq!(run.codes(), [501, 501, 501, 501]);
    run.send(b"RCPT TO:<a\nRCPT TO:<b@x.org>\r\n");
    assert_eq!(run.codes(), [500, 250]);
}

#[test]
fn addresses_that_are_only_data_or_not_taken() {
    let mut run = Run::with_recipient();
    run.take();
    run.send(b"RCPT TO:<\"; touch /tmp/x;\"@y.org>\r\nRCPT TO:<${run{/bin/sh}}@y.org>\r\n");
    assert_eq!(run.codes(), [250, 250]);
    run.send(b"RCPT TO:<@a.org,@b.org:c@d.org>\r\n");
    assert!(run.take().starts_with("550 5.7.1"));
    run.send("RCPT TO:<jö@y.org>\r\n".as_bytes()).send(b"RCPT TO:<j\xff@y.org>\r\n");
    assert!(run.take().lines().all(|line| line.starts_with("553 5.6.7")));
}

#[test]
fn many_recipients_of_a_trusted_client() {
    let mut run = Run::with(config(), true);
    run.send(b"EHLO c\r\nMAIL FROM:<a@x.org>\r\n").take();
    let rcpt = b"RCPT TO:<b@y.org>\r\n";
    run.send_in(&rcpt.repeat(200_000), 64 * 1024);
    assert_eq!(run.output.len(), "250 2.1.5 Ok\r\n".len() * 200_000);
}

#[test]
fn others_are_capped_with_452() {
    let mut run = Run::with(ServerConfig { recipients_max: 3, ..config() }, false);
    run.send(b"EHLO c\r\nMAIL FROM:<a@x.org>\r\n").take();
    run.send(&b"RCPT TO:<no@y.org>\r\nRCPT TO:<b@y.org>\r\n".repeat(4));
    assert_eq!(run.codes(), [550, 250, 550, 250, 550, 250, 452, 452]);
    run.send(b"DATA\r\n").send(b"x\r\n.\r\n");
    assert_eq!(run.codes(), [354, 250]);
}

#[test]
fn too_many_errors_close() {
    let mut run = Run::with(ServerConfig { errors_max: 3, ..config() }, false);
    run.take();
    run.send(&b"FOO\r\n".repeat(10));
    assert_eq!(run.codes(), [500, 500, 500, 421]);
    assert!(run.closed);
    // An accepted message clears the count; a trusted client's unknown recipients are not errors.
    let mut run = Run::with(ServerConfig { errors_max: 3, ..config() }, true);
    run.send(b"EHLO c\r\nFOO\r\nFOO\r\nMAIL FROM:<>\r\nRCPT TO:<b@y.org>\r\n")
        .send(&b"RCPT TO:<no@y.org>\r\n".repeat(9));
    run.send(b"DATA\r\n").send(b"x\r\n.\r\nFOO\r\nFOO\r\nNOOP\r\n");
    assert!(!run.closed);
}

#[test]
fn a_browser_is_cut_off() {
    let mut run = Run::new();
    run.take();
    run.send(b"POST / HTTP/1.1\r\nHost: x\r\n\r\nEHLO c\r\nMAIL FROM:<a@x.org>\r\n");
    assert_eq!((run.codes(), run.closed, run.steps.len()), (vec![554], true, 1));
}
