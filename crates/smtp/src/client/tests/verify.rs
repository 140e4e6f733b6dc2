//! Asking whether a recipient would be accepted, without content.

use super::*;

fn ask(session: &mut ClientSession, tx: u64, address: &str) -> String {
    session.verify(tx, "", address, 0).unwrap();
    take(session)
}

#[test]
fn an_address_is_asked_for_without_content_and_the_next_one_behind_a_reset() {
    let mut session = ready(ALL);
    assert_eq!(ask(&mut session, 1, "ann@x"), "MAIL FROM:<>\r\nRCPT TO:<ann@x>\r\n");
    assert_eq!(session.verify(2, "", "bob@x", 0), Err(ClientError::NotReady));
    say(&mut session, "250 ok\r\n250 2.1.5 fine\r\n");
    assert_eq!(done(&mut session), [(RcptStage::Rcpt, 250)]);
    assert_eq!(ask(&mut session, 2, "bob@x"), "RSET\r\nMAIL FROM:<>\r\nRCPT TO:<bob@x>\r\n");
    say(&mut session, "250 ok\r\n250 ok\r\n550 5.1.1 No such user\r\n");
    assert_eq!(done(&mut session), [(RcptStage::Rcpt, 550)]);
    session.quit(0);
    assert_eq!(take(&mut session), "QUIT\r\n");
    say(&mut session, "221 bye\r\n");
    assert_eq!(closed(&mut session), None);
}

#[test]
fn without_pipelining_one_command_waits_for_the_other() {
    let mut session = ready(PLAIN);
    assert_eq!(ask(&mut session, 1, "ann@x"), "MAIL FROM:<>\r\n");
    say(&mut session, "250 ok\r\n");
    assert_eq!(take(&mut session), "RCPT TO:<ann@x>\r\n");
    say(&mut session, "450 4.2.0 Greylisted\r\n");
    assert_eq!(done(&mut session), [(RcptStage::Rcpt, 450)]);
    // A refused sender ends it before the recipient is named.
    assert_eq!(ask(&mut session, 2, "bob@x"), "RSET\r\n");
    say(&mut session, "250 ok\r\n");
    assert_eq!(take(&mut session), "MAIL FROM:<>\r\n");
    say(&mut session, "550 5.7.1 No bounces here\r\n");
    assert_eq!(done(&mut session), [(RcptStage::Mail, 550)]);
    assert!(session.can_begin());
}

#[test]
fn what_cannot_be_asked_is_said_and_what_is_lost_too() {
    let mut session = ready(PLAIN);
    assert_eq!(ask(&mut session, 1, "j\u{f6}rg@x"), "");
    assert_eq!(done(&mut session), [(RcptStage::Local, 550)]);
    assert_eq!(ask(&mut session, 2, "a@x>\r\nDATA"), "");
    assert_eq!(done(&mut session), [(RcptStage::Local, 553)]);
    ask(&mut session, 3, "ann@x");
    session.disconnected();
    assert_eq!(done(&mut session), [(RcptStage::Lost, 421)]);
    assert!(closed(&mut session).is_some());

    let mut session = ready(ALL);
    ask(&mut session, 1, "ann@x");
    say(&mut session, "250 ok\r\n");
    assert!(session.receive(b"421 4.7.0 too many errors\r\n", 0).is_err());
    assert_eq!(done(&mut session), [(RcptStage::Rcpt, 421)]);
}
