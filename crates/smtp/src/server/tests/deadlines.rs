//! Deadlines: a client without progress is disconnected; a trusted transaction with progress is not.

use super::*;

fn timed() -> ServerConfig {
    ServerConfig { command_timeout_ms: 300, data_timeout_ms: 180, session_timeout_ms: 10_000, ..config() }
}

#[test]
fn a_trickled_command_does_not_move_its_deadline() {
    let mut run = Run::with(timed(), false);
    assert_eq!(run.session.deadline(), NOW + 300);
    run.now += 200;
    run.send(b"EH");
    run.now += 50;
    run.send(b"LO");
    assert_eq!(run.session.deadline(), NOW + 300);
    run.send(b" c\r\n");
    assert_eq!(run.session.deadline(), run.now + 300);
    run.take();
    run.session.timed_out();
    run.pump();
    assert_eq!(run.take(), "421 4.4.2 Timeout, closing\r\n");
    assert!(run.closed);
}

#[test]
fn commands_that_lead_nowhere_give_no_new_time() {
    for idle in
        ["NOOP", "RSET", "VRFY x", "HELP", "EHLO c", "HELO c", "FOO", "RCPT TO:<b@y.org>", "DATA", "MAIL FROM:x y"]
    {
        let mut run = Run::with(timed(), false);
        run.send(b"EHLO c\r\n");
        let deadline = run.session.deadline();
        for _ in 0..2 {
            run.now += 100;
            run.send(format!("{idle}\r\n").as_bytes());
            assert_eq!(run.session.deadline(), deadline, "{idle}");
        }
        // A command that makes progress gets its full time, whatever comes with it.
        run.send(format!("MAIL FROM:<>\r\n{idle}\r\n").as_bytes());
        assert_eq!(run.session.deadline(), run.now + 300, "{idle}");
    }
    // A trusted client may keep its session.
    let mut run = Run::with(timed(), true);
    run.send(b"EHLO c\r\n");
    run.now += 100;
    run.send(b"NOOP\r\n");
    assert_eq!(run.session.deadline(), run.now + 300);
}

#[test]
fn a_trickled_body_moves_its_deadline_by_what_it_is_worth() {
    let mut run = Run::with(timed(), false);
    run.send(b"EHLO c\r\nMAIL FROM:<>\r\nRCPT TO:<b@y.org>\r\nDATA\r\n");
    let deadline = run.session.deadline();
    assert_eq!(deadline, run.now + 180);
    run.now += 100;
    run.send(b"A: b\r\n");
    assert_eq!(run.session.deadline(), deadline + 12, "six octets at 500 in a second");
    run.send(&b"0123456789abcd\r\n".repeat(64));
    assert_eq!(run.session.deadline(), run.now + 180);
}

#[test]
fn a_slow_body_is_cut_whatever_its_size_and_our_time_is_not_the_clients() {
    let mut run = Run::with(ServerConfig { data_timeout_ms: 180_000, size_max: 1 << 30, ..config() }, false);
    run.send(b"EHLO c\r\nMAIL FROM:<>\r\nRCPT TO:<b@y.org>\r\nDATA\r\n").send(&b"0123456789abcd\r\n".repeat(10_000));
    // At 100 octets a second, the allowance lasts 180 / (1 - 100/500) s.
    let begun = run.now;
    while run.session.deadline() > run.now + 1_000 {
        run.now += 1_000;
        run.send(&[b'x'; 100]);
    }
    assert!((200_000..=226_000).contains(&(run.now - begun)), "{}", run.now - begun);
    // Also between chunks; while the caller works no allowance is used.
    let mut run = Run::with(ServerConfig { data_timeout_ms: 180_000, ..config() }, false);
    run.send(b"EHLO c\r\nMAIL FROM:<>\r\nRCPT TO:<b@y.org>\r\nBDAT 1\r\nx");
    assert_eq!(run.session.deadline(), run.now + 180_000);
    run.now += 100_000;
    run.send(b"BDAT 1\r\nx");
    assert!(run.session.deadline() <= run.now + 81_000);
    run.session.receive(b"BDAT 64\r\n");
    run.session.receive(&[b'x'; 64]);
    let before = run.session.deadline() - run.now;
    while !matches!(run.session.step(run.now), Step::Piece(_)) {}
    run.now += 500_000;
    run.pump();
    assert!(run.session.deadline() - run.now >= before);
    // Above that rate the transfer continues.
    let mut run = Run::with(ServerConfig { data_timeout_ms: 180_000, size_max: 1 << 30, ..config() }, false);
    run.send(b"EHLO c\r\nMAIL FROM:<>\r\nRCPT TO:<b@y.org>\r\nDATA\r\n");
    for _ in 0..600 {
        run.now += 2_000;
        run.send(&[b'x'; 1_010]);
        assert!(run.session.deadline() >= run.now + 170_000);
    }
}

#[test]
fn who_holds_a_place_that_others_want_has_little_time() {
    let mut run = Run::with(config(), true);
    run.session.hurry();
    assert_eq!(run.session.deadline(), NOW + 300_000);
    let mut run = Run::with(config(), false);
    run.now += 3_000;
    run.send(b"NO");
    run.session.hurry();
    assert_eq!(run.session.deadline(), NOW + 10_000, "octets that trickle in move nothing");
    run.send(b"OP\r\nEHLO c\r\nMAIL FROM:<>\r\nRCPT TO:<b@y.org>\r\nDATA\r\n");
    for _ in 0..3 {
        run.session.hurry();
        run.now += 3_000;
        run.send(b"x");
    }
    run.session.hurry();
    assert!(run.session.deadline() <= run.now + 1_010);
}

#[test]
fn who_does_not_read_is_cut() {
    let run = Run::with(ServerConfig { session_timeout_ms: 3_600_000, ..config() }, false);
    assert_eq!(run.session.write_deadline(run.now), run.now + 60_000);
    assert_eq!(run.session.write_deadline(NOW + 3_590_000), NOW + 3_600_000);
    let run = Run::with(config(), true);
    assert_eq!(run.session.write_deadline(run.now), run.now + 300_000);
}

#[test]
fn the_session_ends_at_its_deadline_unless_a_trusted_transaction_gets_on() {
    for trusted in [false, true] {
        let mut run = Run::with(timed(), trusted);
        run.now += 9_950;
        run.send(b"EHLO c\r\n");
        assert_eq!(run.session.deadline(), NOW + 10_000);
        run.send(b"MAIL FROM:<>\r\nRCPT TO:<b@y.org>\r\nDATA\r\n");
        assert_eq!(run.session.deadline(), if trusted { run.now + 180 } else { NOW + 10_000 });
        run.now += 100;
        run.send(b"x");
        assert_eq!(run.session.deadline(), if trusted { run.now + 180 } else { NOW + 10_000 });
        run.send(b"\r\n.\r\n");
        assert_eq!(run.session.deadline(), NOW + 10_000);
    }
}

#[test]
fn time_the_caller_took_is_not_the_clients() {
    let mut run = Run::with(timed(), false);
    run.send(b"EHLO c\r\n");
    run.session.receive(b"MAIL FROM:<>\r\n");
    assert!(matches!(run.session.step(run.now), Step::Mail(_)));
    run.now += 5_000;
    run.session.answer(Reply::fixed(250, Enhanced::new(2, 1, 0), "Ok"));
    run.pump();
    assert_eq!(run.session.deadline(), run.now + 300);
}
