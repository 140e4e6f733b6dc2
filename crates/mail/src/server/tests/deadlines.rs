//! Time: whoever does not get on is cut; a trusted transaction that does is not.

use super::*;

fn timed() -> ServerConfig {
    ServerConfig { command_timeout_ms: 300, data_timeout_ms: 180, session_timeout_ms: 10_000, ..config() }
}

#[test]
fn a_trickled_command_does_not_move_its_deadline() {
    let mut run = Run::with(timed(), false);
    assert_eq!(run.session.deadline(), NOW + 300);
    run.now += 200;
    run.send(b"NO");
    run.now += 50;
    run.send(b"O");
    assert_eq!(run.session.deadline(), NOW + 300);
    run.send(b"P\r\n");
    assert_eq!(run.session.deadline(), run.now + 300);
    run.take();
    run.session.timed_out();
    run.pump();
    assert_eq!(run.take(), "421 4.4.2 Timeout, closing\r\n");
    assert!(run.closed);
}

#[test]
fn a_trickled_body_does_not_move_its_deadline_but_blocks_do() {
    let mut run = Run::with(timed(), false);
    run.send(b"EHLO c\r\nMAIL FROM:<>\r\nRCPT TO:<b@y.org>\r\nDATA\r\n");
    let deadline = run.session.deadline();
    assert_eq!(deadline, run.now + 180);
    run.now += 100;
    run.send(b"A: b\r\n");
    assert_eq!(run.session.deadline(), deadline);
    run.send(&b"0123456789abcd\r\n".repeat(64));
    assert_eq!(run.session.deadline(), run.now + 180);
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
fn time_the_shell_took_is_not_the_clients() {
    let mut run = Run::with(timed(), false);
    run.send(b"EHLO c\r\n");
    run.session.receive(b"MAIL FROM:<>\r\n");
    assert!(matches!(run.session.step(run.now), Step::Mail(_)));
    run.now += 5_000;
    run.session.answer(Reply::fixed(250, (2, 1, 0), "Ok"));
    run.pump();
    assert_eq!(run.session.deadline(), run.now + 300);
}
