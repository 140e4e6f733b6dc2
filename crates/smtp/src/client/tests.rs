//! Sequential dialogues, and the properties that every dialogue must have.

mod auth;
mod offers;
mod starttls;
mod verify;

use std::sync::Arc;

use proptest::prelude::*;

use super::*;

const ALL: &str = "250-mx.example hello\r\n250-PIPELINING\r\n250-SIZE 100000\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n\
                   250-DSN\r\n250 CHUNKING\r\n";
const NO_CHUNKING: &str = "250-mx.example\r\n250-PIPELINING\r\n250 SIZE\r\n";
const PLAIN: &str = "250 mx.example\r\n";

fn config() -> ClientConfig {
    ClientConfig { ehlo_name: "us.example".to_owned(), ..ClientConfig::default() }
}

fn take(session: &mut ClientSession) -> String {
    String::from_utf8(std::mem::take(session.output())).unwrap()
}

fn ready_with(config: ClientConfig, ehlo: &str) -> ClientSession {
    let mut session = ClientSession::new(Arc::new(config), 0);
    session.receive(b"220 mx.example ESMTP\r\n", 0).unwrap();
    take(&mut session);
    session.receive(ehlo.as_bytes(), 0).unwrap();
    assert!(matches!(session.poll_event(), Some(ClientEvent::Ready(_))));
    assert!(session.can_begin());
    session
}

fn ready(ehlo: &str) -> ClientSession {
    ready_with(config(), ehlo)
}

fn spec(tx: u64, size: usize) -> TxSpec<'static> {
    TxSpec {
        tx,
        sender: "s@us.example",
        size: size as u64,
        size_exact: true,
        eight_bit: false,
        smtputf8: false,
        require_tls: false,
        ret: None,
        envid: None,
    }
}

fn begin(session: &mut ClientSession, tx: u64, size: usize, rcpts: &[&str]) {
    session.begin(&spec(tx, size), rcpts.iter().map(|a| TxRcpt::new(a)), 0).unwrap();
}

fn body(session: &mut ClientSession, content: &str) {
    assert!(session.wants_body());
    session.push_body(content.as_bytes(), 0).unwrap();
    session.end_body(0).unwrap();
    assert!(!session.wants_body());
}

fn say(session: &mut ClientSession, replies: &str) {
    session.receive(replies.as_bytes(), 0).unwrap();
}

/// Returns the results of the finished transaction: stage and code of each.
fn done(session: &mut ClientSession) -> Vec<(RcptStage, u16)> {
    match session.poll_event() {
        Some(ClientEvent::Done { results, .. }) => results.iter().map(|r| (r.stage, r.reply.code)).collect(),
        other => panic!("not done: {other:?}"),
    }
}

fn closed(session: &mut ClientSession) -> Option<ClientError> {
    match session.poll_event() {
        Some(ClientEvent::Closed { error }) => {
            assert_eq!(session.poll_event(), None);
            assert!(session.is_closed() && !session.can_begin() && session.deadline() == u64::MAX);
            error
        }
        other => panic!("not closed: {other:?}"),
    }
}

#[test]
fn chunked_in_one_write() {
    let mut session = ready(ALL);
    begin(&mut session, 7, 6, &["a@x", "b@x"]);
    body(&mut session, ".hi\r\n\n".strip_suffix('\n').unwrap().replace("hi", "hey").as_str());
    let expected = "MAIL FROM:<s@us.example> SIZE=6\r\nRCPT TO:<a@x>\r\nRCPT TO:<b@x>\r\nBDAT 6 LAST\r\n.hey\r\n";
    assert_eq!(take(&mut session), expected);
    say(&mut session, "250 ok\r\n250 ok\r\n550 5.1.1 no b\r\n250 2.0.0 taken\r\n");
    assert_eq!(done(&mut session), [(RcptStage::Final, 250), (RcptStage::Rcpt, 550)]);
    assert!(session.can_begin());
    // The next transaction needs no RSET.
    begin(&mut session, 8, 2, &["a@x"]);
    body(&mut session, "\r\n");
    assert!(take(&mut session).starts_with("MAIL"));
}

#[test]
fn large_content_waits_for_an_accepted_recipient() {
    let mut session = ready(ALL);
    begin(&mut session, 1, 90_000, &["a@x"]);
    assert!(!session.wants_body());
    assert_eq!(take(&mut session), "MAIL FROM:<s@us.example> SIZE=90000\r\nRCPT TO:<a@x>\r\n");
    say(&mut session, "250 ok\r\n550 no\r\n");
    assert_eq!(done(&mut session), [(RcptStage::Rcpt, 550)]);
    begin(&mut session, 2, 90_000, &["a@x"]);
    assert!(take(&mut session).starts_with("RSET\r\nMAIL"));
    say(&mut session, "250 reset\r\n250 ok\r\n250 ok\r\n");
    assert_eq!(take(&mut session), "BDAT 90000 LAST\r\n");
    session.push_body(&vec![b'x'; 40_000], 0).unwrap();
    session.push_body(&vec![b'x'; 50_000], 0).unwrap();
    session.end_body(0).unwrap();
    say(&mut session, "250 ok\r\n");
    assert_eq!(done(&mut session), [(RcptStage::Final, 250)]);
}

#[test]
fn pipelined_data() {
    let mut session = ready(NO_CHUNKING);
    begin(&mut session, 1, 10, &["a@x", "b@x"]);
    let expected = "MAIL FROM:<s@us.example> SIZE=10\r\nRCPT TO:<a@x>\r\nRCPT TO:<b@x>\r\nDATA\r\n";
    assert_eq!(take(&mut session), expected);
    assert!(!session.wants_body());
    say(&mut session, "250 ok\r\n452 4.5.3 too many\r\n250 ok\r\n354 go\r\n");
    body(&mut session, ".a\r\nb");
    assert_eq!(take(&mut session), "..a\r\nb\r\n.\r\n");
    say(&mut session, "250 ok\r\n");
    assert_eq!(done(&mut session), [(RcptStage::Rcpt, 452), (RcptStage::Final, 250)]);
}

#[test]
fn lockstep_without_pipelining() {
    let mut session = ready(PLAIN);
    begin(&mut session, 1, 3, &["a@x", "b@x", "c@x"]);
    for (sent, reply) in [
        ("MAIL FROM:<s@us.example>\r\n", "250 ok\r\n"),
        ("RCPT TO:<a@x>\r\n", "250 ok\r\n"),
        ("RCPT TO:<b@x>\r\n", "450 later\r\n"),
        ("RCPT TO:<c@x>\r\n", "250 ok\r\n"),
        ("DATA\r\n", "354 go\r\n"),
    ] {
        assert_eq!(take(&mut session), sent);
        say(&mut session, reply);
    }
    body(&mut session, "a\r\n");
    assert_eq!(take(&mut session), "a\r\n.\r\n");
    say(&mut session, "550 spam\r\n");
    assert_eq!(done(&mut session), [(RcptStage::Final, 550), (RcptStage::Rcpt, 450), (RcptStage::Final, 550)]);
    begin(&mut session, 2, 3, &["a@x", "b@x"]);
    assert_eq!(take(&mut session), "RSET\r\n");
    say(&mut session, "250 ok\r\n");
    assert_eq!(take(&mut session), "MAIL FROM:<s@us.example>\r\n");
    say(&mut session, "451 no\r\n");
    assert_eq!(done(&mut session), [(RcptStage::Mail, 451), (RcptStage::Mail, 451)]);
    assert!(session.can_begin() && take(&mut session).is_empty());
}

#[test]
fn all_refused_with_data_under_way() {
    let mut session = ready(NO_CHUNKING);
    begin(&mut session, 1, 10, &["a@x"]);
    take(&mut session);
    say(&mut session, "250 ok\r\n550 no\r\n503 no recipients\r\n");
    assert_eq!(done(&mut session), [(RcptStage::Rcpt, 550)]);
    begin(&mut session, 2, 10, &["a@x"]);
    take(&mut session);
    say(&mut session, "250 reset\r\n250 ok\r\n550 no\r\n354 go\r\n");
    assert_eq!(take(&mut session), ".\r\n");
    assert!(!session.wants_body());
    say(&mut session, "250 nothing\r\n");
    assert_eq!(done(&mut session), [(RcptStage::Rcpt, 550)]);
    assert!(session.can_begin());
}

#[test]
fn refused_at_mail_and_at_data() {
    let mut session = ready(ALL);
    begin(&mut session, 1, 2, &["a@x", "b@x"]);
    body(&mut session, "\r\n");
    say(&mut session, "550 5.7.1 go away\r\n503 no\r\n503 no\r\n503 no\r\n");
    assert_eq!(done(&mut session), [(RcptStage::Mail, 550), (RcptStage::Mail, 550)]);
    let mut session = ready(NO_CHUNKING);
    begin(&mut session, 1, 2, &["a@x", "b@x"]);
    say(&mut session, "250 ok\r\n250 ok\r\n550 no\r\n451 full\r\n");
    assert_eq!(done(&mut session), [(RcptStage::Data, 451), (RcptStage::Rcpt, 550)]);
    assert!(session.can_begin());
}

#[test]
fn lmtp_answers_for_each_recipient() {
    for chunking in ["250 CHUNKING\r\n", "250 SIZE\r\n"] {
        let ehlo = format!("250-mx\r\n250-PIPELINING\r\n{chunking}");
        let mut session = ready_with(ClientConfig { lmtp: true, ..config() }, &ehlo);
        begin(&mut session, 1, 3, &["a@x", "b@x", "c@x"]);
        if session.wants_body() {
            body(&mut session, "a\r\n");
            say(&mut session, "250 ok\r\n250 ok\r\n550 no\r\n250 ok\r\n");
        } else {
            say(&mut session, "250 ok\r\n250 ok\r\n550 no\r\n250 ok\r\n354 go\r\n");
            body(&mut session, "a\r\n");
        }
        say(&mut session, "250 2.1.5 a\r\n");
        assert_eq!(session.poll_event(), None);
        say(&mut session, "452 4.2.2 full\r\n");
        assert_eq!(done(&mut session), [(RcptStage::Final, 250), (RcptStage::Rcpt, 550), (RcptStage::Final, 452)]);
        assert!(session.can_begin());
    }
}

#[test]
fn lmtp_says_lhlo_and_never_helo() {
    let mut session = ClientSession::new(Arc::new(ClientConfig { lmtp: true, ..config() }), 0);
    say(&mut session, "220 hi\r\n");
    assert_eq!(take(&mut session), "LHLO us.example\r\n");
    assert!(session.receive(b"500 what\r\n", 0).is_err());
    assert!(matches!(closed(&mut session), Some(ClientError::Refused { at: "EHLO", .. })));
}

#[test]
fn helo_where_ehlo_is_unknown() {
    let mut session = ClientSession::new(Arc::new(config()), 0);
    say(&mut session, "220-hi\r\n220 there\r\n");
    assert_eq!(take(&mut session), "EHLO us.example\r\n");
    say(&mut session, "502 what\r\n");
    assert_eq!(take(&mut session), "HELO us.example\r\n");
    say(&mut session, "250-mx\r\n250 PIPELINING\r\n");
    assert_eq!(session.poll_event(), Some(ClientEvent::Ready(Caps { peer_name: "mx".into(), ..Caps::default() })));
}

#[test]
fn refused_on_entry() {
    for greeting in ["554 no mail\r\n", "450 later\r\n", "354 what\r\n"] {
        let mut session = ClientSession::new(Arc::new(config()), 0);
        assert!(session.receive(greeting.as_bytes(), 0).is_err());
        assert!(matches!(closed(&mut session), Some(ClientError::Refused { at: "greeting", .. })));
        assert_eq!(take(&mut session), "QUIT\r\n");
    }
}

/// Creates a session whose host has answered a transaction properly: several may be in progress now.
fn in_step() -> ClientSession {
    let mut session = ready(ALL);
    begin(&mut session, 0, 3, &["a@x"]);
    body(&mut session, "a\r\n");
    assert!(!session.can_pipeline(3), "the first goes alone");
    take(&mut session);
    say(&mut session, "250 ok\r\n250 ok\r\n250 taken\r\n");
    assert_eq!(done(&mut session), [(RcptStage::Final, 250)]);
    session
}

/// Replies to a later transaction must not be taken for missing ones.
#[test]
fn a_host_that_drops_commands_has_taken_nothing() {
    let mut session = ready(ALL);
    begin(&mut session, 1, 3, &["a@x", "b@x"]);
    body(&mut session, "a\r\n");
    take(&mut session);
    say(&mut session, "250 ok\r\n");
    assert!(!session.can_pipeline(3) && session.begin(&spec(2, 3), [TxRcpt::new("a@x")], 0).is_err());
    session.disconnected();
    assert_eq!(done(&mut session), [(RcptStage::AfterDot, 421), (RcptStage::AfterDot, 421)]);
}

/// RFC 5321 4.1.1.5 has no refusal of RSET; after one, 503 to MAIL says nothing about the mail.
#[test]
fn a_refused_reset_bounces_nobody() {
    let mut session = ready(NO_CHUNKING);
    begin(&mut session, 1, 3, &["a@x"]);
    say(&mut session, "250 ok\r\n550 no\r\n554 none\r\n");
    assert_eq!(done(&mut session), [(RcptStage::Rcpt, 550)]);
    begin(&mut session, 2, 3, &["a@x"]);
    assert!(session.receive(b"451 no\r\n503 nested\r\n", 0).is_err());
    assert_eq!(done(&mut session), [(RcptStage::Lost, 421)]);
}

#[test]
fn several_transactions_in_one_write() {
    let mut session = in_step();
    for tx in 1..=3 {
        assert!(session.can_pipeline(3));
        begin(&mut session, tx, 3, &["a@x", "b@x"]);
        assert!(!session.can_pipeline(3), "its content is not out yet");
        body(&mut session, "a\r\n");
    }
    assert!(!session.can_pipeline(90_000) && !session.can_begin());
    assert_eq!(session.in_flight(), 3);
    let mail = "MAIL FROM:<s@us.example> SIZE=3\r\nRCPT TO:<a@x>\r\nRCPT TO:<b@x>\r\nBDAT 3 LAST\r\na\r\n";
    assert_eq!(take(&mut session), format!("{mail}RSET\r\n{mail}RSET\r\n{mail}"));
    say(&mut session, "250 ok\r\n550 no\r\n550 no\r\n503 none\r\n");
    assert_eq!(done(&mut session), [(RcptStage::Rcpt, 550), (RcptStage::Rcpt, 550)]);
    say(&mut session, "250 reset\r\n250 ok\r\n250 ok\r\n550 no\r\n250 taken\r\n250 reset\r\n451 no\r\n503\r\n503\r\n");
    assert_eq!(done(&mut session), [(RcptStage::Final, 250), (RcptStage::Rcpt, 550)]);
    assert_eq!(session.poll_event(), None);
    say(&mut session, "503\r\n");
    assert_eq!(done(&mut session), [(RcptStage::Mail, 451), (RcptStage::Mail, 451)]);
    assert!(session.can_begin());
}

/// Simulates a good host that reads everything written and then answers all of it at once: one turn is one round trip.
/// Returns the turns that `copies` transactions of one recipient take, and the RSETs among their commands.
fn turns(ehlo: &str, copies: u64, refuses: bool) -> (usize, usize) {
    let mut session = ready(ehlo);
    let (mut next, mut finished, mut turns, mut resets) = (0, 0, 0, 0);
    while finished < copies {
        while next < copies && session.can_pipeline(3) {
            begin(&mut session, next, 3, &["a@x"]);
            next += 1;
            if session.wants_body() {
                body(&mut session, "a\r\n");
            }
        }
        let mut replies = String::new();
        let written = take(&mut session);
        for line in written.lines() {
            match line.split(' ').next().unwrap() {
                "a" => {}
                "." => replies.push_str("250 taken\r\n"),
                "RSET" => {
                    resets += 1;
                    replies.push_str("250 reset\r\n");
                }
                "RCPT" if refuses => replies.push_str("550 5.1.1 no\r\n"),
                "BDAT" if refuses => replies.push_str("503 none\r\n"),
                "DATA" => replies.push_str(if refuses { "554 none\r\n" } else { "354 go\r\n" }),
                _ => replies.push_str("250 ok\r\n"),
            }
        }
        turns += 1;
        assert!(turns < 1_000, "{written}");
        say(&mut session, &replies);
        while let Some(ClientEvent::Done { results, .. }) = session.poll_event() {
            assert_eq!(results[0].is_delivered(), !refuses);
            finished += 1;
        }
        if session.wants_body() {
            body(&mut session, "a\r\n");
        }
    }
    (turns, resets)
}

/// The cost of per-recipient copies (VERP, personal fields): one round trip for sixteen of them, if the host permits.
#[test]
fn pipelined_transactions_save_round_trips() {
    // One recipient each; at most 16 are in progress. RSET is sent only after a transaction with an unknown end.
    assert_eq!(turns(ALL, 1, false), (1, 0));
    // The first goes alone.
    assert_eq!(turns(ALL, 17, false), (2, 15));
    assert_eq!(turns(ALL, 33, false), (3, 30));
    // Without CHUNKING: MAIL RCPT DATA, then the content. Without PIPELINING: one command at a time. No RSET between
    // successes.
    assert_eq!(turns(NO_CHUNKING, 16, false), (32, 0));
    assert_eq!(turns(PLAIN, 16, false), (64, 0));
    // If all are refused each needs an RSET, in the same round trip if the host pipelines.
    assert_eq!(turns(ALL, 16, true), (2, 15));
    assert_eq!(turns(NO_CHUNKING, 16, true), (16, 15));
}

#[test]
fn lost_with_several_under_way() {
    let mut session = in_step();
    begin(&mut session, 1, 3, &["a@x", "b@x"]);
    body(&mut session, "a\r\n");
    begin(&mut session, 2, 3, &["a@x"]);
    body(&mut session, "a\r\n");
    begin(&mut session, 3, 3, &["a@x"]);
    say(&mut session, "250 ok\r\n550 no\r\n");
    session.disconnected();
    assert_eq!(done(&mut session), [(RcptStage::Rcpt, 550), (RcptStage::AfterDot, 421)]);
    assert_eq!(done(&mut session), [(RcptStage::AfterDot, 421)]);
    assert_eq!(done(&mut session), [(RcptStage::Lost, 421)]);
    assert!(matches!(closed(&mut session), Some(ClientError::Disconnected("sending the message"))));
}

/// Plays the server's replies until it closes, for a transaction with recipients a and b; the content is sent after
/// 354.
fn data_dialogue_ending_with(replies: &[&str], end: &str) -> Vec<(RcptStage, u16)> {
    let mut session = ready(NO_CHUNKING);
    begin(&mut session, 1, 3, &["a@x", "b@x"]);
    for reply in replies {
        say(&mut session, reply);
        if session.wants_body() {
            body(&mut session, "a\r\n");
        }
    }
    if end.is_empty() {
        session.disconnected();
    } else {
        assert!(session.receive(end.as_bytes(), 0).is_err());
    }
    let results = done(&mut session);
    assert!(closed(&mut session).is_some());
    results
}

#[test]
fn closing_and_lost_connections_at_every_stage() {
    let replies = ["250 ok\r\n", "550 no\r\n", "250 ok\r\n", "354 go\r\n"];
    let stages = [
        [(RcptStage::Mail, 421), (RcptStage::Mail, 421)],
        [(RcptStage::Rcpt, 421), (RcptStage::Rcpt, 421)],
        [(RcptStage::Rcpt, 550), (RcptStage::Rcpt, 421)],
        [(RcptStage::Rcpt, 550), (RcptStage::Data, 421)],
        [(RcptStage::Rcpt, 550), (RcptStage::Final, 421)],
    ];
    for (count, expected) in stages.iter().enumerate() {
        assert_eq!(data_dialogue_ending_with(&replies[..count], "421 4.3.2 bye\r\n"), expected);
        let lost = data_dialogue_ending_with(&replies[..count], "");
        let stage = if count == 4 { RcptStage::AfterDot } else { RcptStage::Lost };
        assert_eq!(lost[1], (stage, 421));
        assert_eq!(lost[0], if count < 2 { (RcptStage::Lost, 421) } else { (RcptStage::Rcpt, 550) });
    }
}

#[test]
fn lost_in_the_middle_of_the_content_is_not_delivered() {
    let mut session = ready(NO_CHUNKING);
    begin(&mut session, 1, 3, &["a@x"]);
    say(&mut session, "250 ok\r\n250 ok\r\n354 go\r\n");
    session.push_body(b"a", 0).unwrap();
    session.disconnected();
    assert_eq!(done(&mut session), [(RcptStage::Lost, 421)]);
}

#[test]
fn a_refusal_in_the_middle_of_data_ends_the_session() {
    let mut session = ready(NO_CHUNKING);
    begin(&mut session, 1, 3, &["a@x"]);
    say(&mut session, "250 ok\r\n250 ok\r\n354 go\r\n");
    session.push_body(b"a", 0).unwrap();
    assert!(session.receive(b"552 5.3.4 too big\r\n", 0).is_err());
    assert_eq!(done(&mut session), [(RcptStage::Final, 552)]);
    assert!(matches!(closed(&mut session), Some(ClientError::RefusedInBody(_))));
    assert_eq!(session.push_body(b"b", 0), Err(ClientError::NotReady));
}

#[test]
fn a_refusal_before_the_end_of_a_small_chunk_does_not() {
    let mut session = ready(ALL);
    begin(&mut session, 1, 3, &["a@x"]);
    say(&mut session, "550 no\r\n503 no\r\n503 no\r\n");
    assert!(session.wants_body() && session.poll_event().is_none());
    body(&mut session, "a\r\n");
    assert_eq!(done(&mut session), [(RcptStage::Mail, 550)]);
    assert!(session.can_begin());
}

#[test]
fn replies_without_meaning_end_the_session() {
    // Success before all content is sent must never count as delivered.
    for (before, reply) in [
        ("", "354 go\r\n"),
        ("250 ok\r\n", "354 go\r\n"),
        ("250 ok\r\n250 ok\r\n", "250 taken\r\n"),
        ("250 ok\r\n250 ok\r\n354 go\r\n", "250 taken\r\n"),
    ] {
        let mut session = ready(NO_CHUNKING);
        begin(&mut session, 1, 3, &["a@x"]);
        say(&mut session, before);
        assert!(session.receive(reply.as_bytes(), 0).is_err());
        assert_eq!(done(&mut session), [(RcptStage::Lost, 421)], "{before:?}");
        assert!(matches!(closed(&mut session), Some(ClientError::Unexpected { .. })));
    }
    let mut session = ready(ALL);
    assert!(session.receive(b"250 what\r\n", 0).is_err());
    assert!(matches!(closed(&mut session), Some(ClientError::Unsolicited(_))));
    let mut session = ready(ALL);
    assert!(session.receive(b"421 idle for too long\r\n", 0).is_err());
    assert!(matches!(closed(&mut session), Some(ClientError::ServerClosing { at: "idle", .. })));
}

#[test]
fn hostile_replies_end_the_session() {
    for bytes in [b"250-x\r\n".repeat(101), vec![b'2'; 3000], b"haha\r\n".to_vec(), b"250-a\r\n251 b\r\n".to_vec()] {
        let mut session = ready(ALL);
        begin(&mut session, 1, 3, &["a@x"]);
        assert!(session.receive(&bytes, 0).is_err());
        assert_eq!(done(&mut session), [(RcptStage::Lost, 421)]);
        assert!(matches!(closed(&mut session), Some(ClientError::Reply(_))));
    }
}

#[test]
fn what_the_server_lacks_is_refused_here() {
    let refuse = |ehlo: &str, spec: TxSpec<'_>, rcpts: &[&str]| {
        let mut session = ready(ehlo);
        session.begin(&spec, rcpts.iter().map(|a| TxRcpt::new(a)), 0).unwrap();
        (done(&mut session), take(&mut session))
    };
    let local = |code| (vec![(RcptStage::Local, code)], String::new());
    assert_eq!(refuse(PLAIN, TxSpec { smtputf8: true, ..spec(1, 3) }, &["a@x"]), local(550));
    assert_eq!(refuse(ALL, TxSpec { sender: "é@x", ..spec(1, 3) }, &["a@x"]), local(550));
    assert_eq!(refuse(PLAIN, TxSpec { eight_bit: true, ..spec(1, 3) }, &["a@x"]), local(554));
    assert_eq!(refuse(ALL, spec(1, 100_001), &["a@x"]), local(552));
    assert_eq!(refuse(ALL, spec(1, 3), &["é@x"]), local(553));
    let mut session = ready(NO_CHUNKING);
    begin(&mut session, 1, 1_000_000, &["a@x", "é@x", "b@x"]);
    say(&mut session, "250 ok\r\n550 no\r\n451 no\r\n503\r\n");
    assert_eq!(done(&mut session), [(RcptStage::Rcpt, 550), (RcptStage::Local, 553), (RcptStage::Rcpt, 451)]);
}

/// A slow reply is timed from when it could have come, not from its last octet.
#[test]
fn a_reply_in_drops_buys_no_time() {
    let mut session = ready(ALL);
    begin(&mut session, 1, 3, &["a@x"]);
    let (deadline, replies) = (session.deadline(), session.replies());
    let drops = [b"250-a\r\n".repeat(90), b"250 never".to_vec()].concat();
    for (second, octet) in drops.iter().enumerate() {
        session.receive(&[*octet], second as u64 * 1000).unwrap();
        assert_eq!((session.deadline(), session.replies()), (deadline, replies));
    }
    assert!(session.timed_out(deadline));
}

/// Endless octets in each form: the amount kept is bounded.
#[test]
fn floods_of_replies_are_cut_off() {
    let flood: [&[u8]; 6] = [b"250 ok\r\n", b"250-ok\r\n", b"2", b"\0", b"\n", b"250 \0\0\0\n"];
    for piece in flood {
        let mut session = ready(ALL);
        begin(&mut session, 1, 3, &["a@x"]);
        let taken = (0..10_000).take_while(|_| session.receive(&piece.repeat(4096 / piece.len()), 0).is_ok()).count();
        assert!(taken <= 8, "{taken} of {piece:?}");
        assert_eq!(done(&mut session).len(), 1);
        assert!(closed(&mut session).is_some());
        assert_eq!(session.receive(piece, 0), Ok(()), "nothing is looked at any more");
    }
}

#[test]
fn calls_that_do_not_fit_change_nothing() {
    let mut session = ready(ALL);
    assert_eq!(session.begin(&spec(1, 3), [], 0), Err(ClientError::NoRecipients));
    assert_eq!(
        session.begin(&TxSpec { sender: "b@x>", ..spec(1, 3) }, [TxRcpt::new("a@x")], 0),
        Err(ClientError::BadAddress)
    );
    assert_eq!(session.push_body(b"x", 0), Err(ClientError::NotReady));
    assert_eq!(session.end_body(0), Err(ClientError::NotReady));
    assert!(take(&mut session).is_empty() && session.can_begin() && session.poll_event().is_none());
    let mut session = ClientSession::new(Arc::new(config()), 0);
    assert_eq!(session.begin(&spec(1, 3), [TxRcpt::new("a@x")], 0), Err(ClientError::NotReady));
}

#[test]
fn content_that_must_not_go_out_ends_the_session() {
    for (ehlo, content) in
        [(ALL, "a\nb"), (NO_CHUNKING, "\r\n.\n"), (ALL, "abcd"), (ALL, "a"), (ALL, "ab\r"), (NO_CHUNKING, "\0.\r\n")]
    {
        let mut session = ready(ehlo);
        begin(&mut session, 1, 3, &["a@x"]);
        if ehlo == NO_CHUNKING {
            say(&mut session, "250 ok\r\n250 ok\r\n354 go\r\n");
        }
        let pushed = session.push_body(content.as_bytes(), 0).and_then(|()| session.end_body(0));
        assert!(pushed.is_err(), "{content:?}");
        assert_eq!(done(&mut session), [(RcptStage::Local, 554)]);
        assert_eq!(closed(&mut session), pushed.err());
    }
}

#[test]
fn deadlines_are_those_of_what_is_awaited() {
    let mut session = ClientSession::new(Arc::new(config()), 1000);
    assert_eq!(session.deadline(), 301_000);
    session.receive(b"220 hi\r\n25", 2000).unwrap();
    // Half a reply does not extend the deadline.
    session.receive(b"0", 9000).unwrap();
    assert_eq!(session.deadline(), 302_000);
    session.receive(b" mx\r\n", 9500).unwrap();
    assert_eq!(session.deadline(), u64::MAX);
    session.begin(&spec(1, 3), [TxRcpt::new("a@x")], 10_000).unwrap();
    assert_eq!(session.deadline(), 310_000);
    session.receive(b"250 ok\r\n", 11_000).unwrap();
    session.receive(b"250 ok\r\n", 12_000).unwrap();
    assert_eq!(session.deadline(), 132_000);
    session.receive(b"354 ok\r\n", 13_000).unwrap();
    assert_eq!(session.deadline(), 193_000);
    session.push_body(b"a", 14_000).unwrap();
    assert_eq!(session.deadline(), 194_000);
    session.end_body(15_000).unwrap();
    assert_eq!(session.deadline(), 615_000);
    assert!(!session.timed_out(614_999));
    session.poll_event();
    assert!(session.timed_out(615_000));
    assert_eq!(done(&mut session), [(RcptStage::AfterDot, 421)]);
    assert!(matches!(closed(&mut session), Some(ClientError::TimedOut("waiting for the reply to the message"))));
    assert!(!session.timed_out(u64::MAX));
}

#[test]
fn quit() {
    let mut session = ready(ALL);
    session.quit(5);
    assert_eq!((take(&mut session).as_str(), session.deadline()), ("QUIT\r\n", 5005));
    assert!(!session.can_begin());
    say(&mut session, "221 bye\r\n");
    assert_eq!(closed(&mut session), None);
    let mut session = ready(ALL);
    session.quit(0);
    session.disconnected();
    assert_eq!(closed(&mut session), None);
    let mut session = ready(ALL);
    begin(&mut session, 1, 3, &["a@x"]);
    session.quit(0);
    assert_eq!(done(&mut session), [(RcptStage::Lost, 421)]);
    assert!(matches!(closed(&mut session), Some(ClientError::GivenUp(_))));
}

#[test]
fn equal_refusals_share_their_text() {
    let mut session = ready(ALL);
    begin(&mut session, 1, 3, &["a@x", "b@x"]);
    body(&mut session, "a\r\n");
    say(&mut session, "250 ok\r\n550 5.1.1 no\r\n550 5.1.1 no\r\n503 none\r\n");
    let Some(ClientEvent::Done { results, .. }) = session.poll_event() else { panic!() };
    assert!(Arc::ptr_eq(&results[0].reply.text, &results[1].reply.text));
    assert_eq!(results[0].reply.to_string(), "550 5.1.1 no");
    session.recycle(results);
}

/// Plays `script`, one reply after the other; `cut` splits each. The caller acts as soon as it is asked to.
fn play(ehlo: &str, script: &[String], rcpts: usize, cut: impl Fn(usize) -> usize) -> (Vec<ClientEvent>, Vec<u8>) {
    let mut session = ready(ehlo);
    let addresses: Vec<String> = (0..rcpts).map(|n| format!("r{n}@x")).collect();
    session.begin(&spec(1, 3), addresses.iter().map(|a| TxRcpt::new(a)), 0).unwrap();
    let mut index = 0;
    for reply in script {
        if session.wants_body() {
            session.push_body(b"a\r\n", 0).unwrap();
            session.end_body(0).unwrap();
        }
        let mut rest = reply.as_bytes();
        while !rest.is_empty() {
            let (head, tail) = rest.split_at(cut(index).clamp(1, rest.len()));
            let _ = session.receive(head, 0);
            rest = tail;
            index += 1;
        }
    }
    session.disconnected();
    let output = std::mem::take(session.output());
    (std::iter::from_fn(|| session.poll_event()).collect(), output)
}

fn reply() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => Just("250 2.1.0 ok\r\n".to_owned()),
        2 => Just("354 go\r\n".to_owned()),
        3 => "(450|550|503) [ -~]{0,20}\r\n",
        1 => Just("421 4.3.2 bye\r\n".to_owned()),
        1 => Just("250-a\r\n250-b\r\n250 c\r\n".to_owned()),
        1 => "[2-5][0-9]{2}[ -]?[a-z\\x00-\\x1f]{0,6}\r?\n",
    ]
}

proptest! {
    #[test]
    fn splits_of_the_input_do_not_matter(
        script in proptest::collection::vec(reply(), 0..12), rcpts in 1usize..5,
        cuts in proptest::collection::vec(1usize..9, 1..40), dialect in 0usize..3,
    ) {
        let ehlo = [ALL, NO_CHUNKING, PLAIN][dialect];
        let whole = play(ehlo, &script, rcpts, |_| usize::MAX);
        let split = play(ehlo, &script, rcpts, |index| cuts[index % cuts.len()]);
        prop_assert_eq!(&whole, &split);
        // Whatever the server did, there is one `Done` with every recipient, then one `Closed`.
        prop_assert_eq!(whole.0.len(), 2);
        let ClientEvent::Done { results, .. } = &whole.0[0] else { panic!() };
        prop_assert_eq!(results.len(), rcpts);
        let closed = matches!(whole.0[1], ClientEvent::Closed { .. });
        prop_assert!(closed);
        let delivered = results.iter().filter(|r| r.is_delivered()).count();
        prop_assert!(delivered == 0 || whole.1.windows(3).any(|w| w == b"a\r\n"));
    }

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut session = ready(ALL);
        begin(&mut session, 1, 3, &["a@x"]);
        let _ = session.receive(&bytes, 0);
        session.disconnected();
        prop_assert!(std::iter::from_fn(|| session.poll_event()).count() == 2);
    }
}
