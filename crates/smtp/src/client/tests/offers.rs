//! Extensions that a host offers and then refuses: which extension the refusal blames, and that other recipients are
//! unaffected.

use stentor_mail::dsn::Ret;

use super::*;

#[test]
fn one_recipients_address_or_parameter_is_no_matter_to_the_others() {
    let mut session = ready(ALL);
    let rcpts = [
        TxRcpt { orcpt: Some("utf-8;j\u{f6}rg@x"), ..TxRcpt::new("a@x") },
        TxRcpt::new("b@x>\r\nRSET"),
        TxRcpt::new("j\u{f6}rg@x"),
        TxRcpt { orcpt: Some("rfc822;a b"), ..TxRcpt::new("c@x") },
    ];
    session.begin(&spec(1, 3), rcpts, 0).unwrap();
    body(&mut session, "a\r\n");
    let expected = "MAIL FROM:<s@us.example> SIZE=3\r\nRCPT TO:<a@x> ORCPT=utf-8;j\\x{F6}rg@x\r\nRCPT TO:<c@x>\r\n\
                    BDAT 3 LAST\r\na\r\n";
    assert_eq!(take(&mut session), expected);
    say(&mut session, "250 ok\r\n250 ok\r\n250 ok\r\n250 taken\r\n");
    assert_eq!(
        done(&mut session),
        [(RcptStage::Final, 250), (RcptStage::Local, 553), (RcptStage::Local, 553), (RcptStage::Final, 250)]
    );
}

/// Returns the extensions that the results blame, in order.
fn blamed(session: &mut ClientSession) -> Vec<String> {
    match session.poll_event() {
        Some(ClientEvent::Done { results, .. }) => results.iter().map(|r| r.blames.to_string()).collect(),
        other => panic!("not done: {other:?}"),
    }
}

#[test]
fn a_parameter_that_is_offered_and_refused_is_blamed() {
    let all = TxSpec { eight_bit: true, smtputf8: true, ret: Some(Ret::Full), ..spec(1, 3) };
    let everything = "SIZE, 8BITMIME, SMTPUTF8, DSN";
    for (reply, blames) in [
        ("555 5.5.4 Unsupported option: SIZE=3\r\n", "SIZE"),
        ("501 body=8bitmime?\r\n", "8BITMIME"),
        ("504 no\r\n", everything),
        ("555 what\r\n", everything),
        ("501-5.5.2 what\r\n501 5.5.2 is RET and ENVID\r\n", "DSN"),
        // About the address, the policy, the time: the reply stands.
        ("501 5.1.7 Bad sender address syntax\r\n", ""),
        ("550 SIZE\r\n", ""),
        ("555 5.7.1 no\r\n", ""),
        ("450 BODY\r\n", ""),
    ] {
        let mut session = ready(ALL);
        session.begin(&all, [TxRcpt::new("a@x")], 0).unwrap();
        body(&mut session, "a\r\n");
        say(&mut session, reply);
        say(&mut session, "503 no\r\n503 no\r\n");
        assert_eq!(blamed(&mut session), [blames], "{reply}");
        assert!(session.can_begin());
    }
    // No parameter was used, so none is to blame.
    let mut session = ready(PLAIN);
    begin(&mut session, 1, 3, &["a@x"]);
    say(&mut session, "555 what\r\n");
    assert_eq!(blamed(&mut session), [""]);
}

#[test]
fn only_recipients_whose_parameters_are_refused_blame_them() {
    let mut session = ready(ALL);
    let with = |address| TxRcpt { notify: Some(4), ..TxRcpt::new(address) };
    session.begin(&spec(1, 3), [with("a@x"), TxRcpt::new("b@x"), with("c@x"), with("d@x"), with("e@x")], 0).unwrap();
    body(&mut session, "a\r\n");
    say(&mut session, "250 ok\r\n555 NOTIFY?\r\n555 what\r\n250 ok\r\n501 5.1.3 bad\r\n501 5.5.4 bad\r\n250 ok\r\n");
    assert_eq!(blamed(&mut session), ["DSN", "", "", "", "DSN"]);
    assert!(session.can_begin());
}

#[test]
fn commands_that_come_too_early_blame_pipelining() {
    let mut session = ready(NO_CHUNKING);
    begin(&mut session, 1, 3, &["a@x", "b@x"]);
    say(&mut session, "250 ok\r\n250 ok\r\n503 5.5.1 wait\r\n503 wait\r\n");
    assert_eq!(blamed(&mut session), ["PIPELINING", "PIPELINING"]);
    session.withhold(Extensions::PIPELINING);
    take(&mut session);
    begin(&mut session, 2, 3, &["a@x"]);
    assert_eq!(take(&mut session), "RSET\r\n");
    say(&mut session, "250 ok\r\n");
    assert_eq!(take(&mut session), "MAIL FROM:<s@us.example> SIZE=3\r\n");
    say(&mut session, "250 ok\r\n503 no\r\n");
    assert_eq!(blamed(&mut session), [""], "it did not come too early");
}

#[test]
fn what_is_withheld_is_not_used() {
    let mut session = ClientSession::new(Arc::new(config()), 0);
    session.withhold(Extensions::CHUNKING.and(Extensions::SIZE));
    session.receive(b"220 mx.example ESMTP\r\n", 0).unwrap();
    session.receive(ALL.as_bytes(), 0).unwrap();
    assert!(!session.caps().chunking && session.caps().pipelining && !session.uses_chunks());
    take(&mut session);
    begin(&mut session, 1, 3, &["a@x"]);
    assert_eq!(take(&mut session), "MAIL FROM:<s@us.example>\r\nRCPT TO:<a@x>\r\nDATA\r\n");
    session.restore(Extensions::CHUNKING);
    assert!(session.uses_chunks() && session.caps().size.is_none());
}

/// Octets after an unknown BDAT are commands to the server: replies after its refusal are meaningless.
#[test]
fn bdat_that_is_refused_ends_the_session_and_blames_chunking() {
    for refusal in ["500 what\r\n", "502 5.5.1 no\r\n", "503 no\r\n", "504 no\r\n"] {
        // BDAT has not succeeded yet, but several transactions may be in progress.
        let mut session = ready(ALL);
        begin(&mut session, 0, 3, &["a@x"]);
        body(&mut session, "a\r\n");
        say(&mut session, "250 ok\r\n550 no\r\n503 none\r\n");
        assert_eq!(done(&mut session), [(RcptStage::Rcpt, 550)]);
        for tx in 1..=2 {
            begin(&mut session, tx, 3, &["a@x", "b@x"]);
            body(&mut session, "a\r\n");
        }
        say(&mut session, "250 reset\r\n250 ok\r\n250 ok\r\n550 no\r\n");
        assert!(session.receive(format!("{refusal}500 what\r\n250 ok\r\n").as_bytes(), 0).is_err());
        assert_eq!(blamed(&mut session), ["CHUNKING", ""]);
        match session.poll_event() {
            Some(ClientEvent::Done { results, .. }) => {
                assert!(results.iter().all(|r| r.stage == RcptStage::Lost && r.blames == Extensions::CHUNKING));
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(closed(&mut session), Some(ClientError::ChunkingRefused(_))));
    }
    // Refusals of the message, or for lack of accepted recipients, do not count.
    for replies in [
        "250 ok\r\n250 ok\r\n554 5.7.1 spam\r\n",
        "250 ok\r\n250 ok\r\n503 5.7.1 no\r\n",
        "250 ok\r\n550 no\r\n503 none\r\n",
    ] {
        let mut session = ready(ALL);
        begin(&mut session, 1, 3, &["a@x"]);
        body(&mut session, "a\r\n");
        say(&mut session, replies);
        assert_eq!(blamed(&mut session), [""]);
        assert!(session.can_begin());
    }
    let mut session = ready_with(ClientConfig { lmtp: true, ..config() }, ALL);
    begin(&mut session, 1, 3, &["a@x", "b@x"]);
    body(&mut session, "a\r\n");
    say(&mut session, "250 ok\r\n250 ok\r\n250 ok\r\n250 taken\r\n503 not for b\r\n");
    assert_eq!(blamed(&mut session), ["", ""], "the other had its copy");
}

/// A server that has accepted content by BDAT knows it: transactions after a refusal may be delivered, and must not be
/// repeated.
#[test]
fn a_refusal_behind_bdat_that_was_taken_ends_nothing() {
    let mut session = in_step();
    for tx in 1..=2 {
        begin(&mut session, tx, 3, &["a@x"]);
        body(&mut session, "a\r\n");
    }
    say(&mut session, "250 ok\r\n250 ok\r\n503 not this\r\n250 reset\r\n250 ok\r\n250 ok\r\n250 taken\r\n");
    assert_eq!(blamed(&mut session), ["CHUNKING"]);
    assert_eq!(done(&mut session), [(RcptStage::Final, 250)]);
    assert!(session.can_begin());
}
