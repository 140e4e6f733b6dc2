//! Ordinary sessions.

use stentor_mail::address::ReversePath;
use stentor_mail::dsn::Ret;

use super::*;
use crate::server::{Body, Notify};

#[test]
fn offers_what_it_has_and_single_lines_else() {
    for (trusted, dsn) in [(true, "250-DSN\r\n"), (false, "")] {
        let mut run = Run::with(config(), trusted);
        run.take();
        run.send(b"EHLO client.example\r\n");
        assert_eq!(
            run.take(),
            format!(
                "250-mx.example.org\r\n250-PIPELINING\r\n250-SIZE 10000\r\n250-8BITMIME\r\n\
                 250-ENHANCEDSTATUSCODES\r\n250-SMTPUTF8\r\n{dsn}250 CHUNKING\r\n"
            )
        );
    }
    let mut run = Run::new();
    run.send(b"EHLO client.example\r\n").take();
    assert_eq!((run.session.helo(), run.session.is_esmtp()), ("client.example", true));
    run.send(
        b"HELO old\r\nNOOP\r\nHELP\r\nVRFY joe\r\nEXPN list\r\nRSET\r\nSTARTTLS\r\nAUTH PLAIN\r\nBOGUS\r\nQUIT\r\n",
    );
    assert_eq!((run.session.helo(), run.session.is_esmtp()), ("old", false));
    assert_eq!(run.codes(), [250, 250, 214, 252, 502, 250, 502, 502, 500, 221]);
    assert!(run.closed && run.steps == [Step::Close]);
}

#[test]
fn return_paths_are_for_trusted_clients_where_they_are_offered() {
    for (trusted, xverp, lmtp) in [(true, true, false), (true, false, false), (false, true, false), (true, true, true)]
    {
        let is_offered = trusted && xverp && !lmtp;
        let session = ServerSession::new(Arc::new(ServerConfig { lmtp, xverp, ..config() }), trusted, NOW);
        let mut run = Run { session, steps: Vec::new(), output: Vec::new(), closed: false, now: NOW, name: None };
        run.pump();
        run.send(if lmtp { b"LHLO c\r\n" } else { b"EHLO c\r\n" });
        assert_eq!(run.take().contains("250-XVERP\r\n"), is_offered);
        run.send(b"MAIL FROM:<a@x.org> XVERP\r\n");
        assert_eq!(run.codes(), [if is_offered { 250 } else { 555 }]);
        let is_asked = |step: &Step| matches!(step, Step::Mail(mail) if mail.verp.is_some());
        assert_eq!(run.steps.iter().any(is_asked), is_offered);
    }
    let mut run = Run::with(ServerConfig { xverp: true, ..config() }, true);
    run.send(b"EHLO c\r\n").take();
    run.send(b"MAIL FROM:<> XVERP\r\nMAIL FROM:<a@x.org> XVERP=..\r\n");
    assert_eq!(run.codes(), [501, 501]);
}

/// When the rest of something is still to come.
#[test]
fn midway_within_lines_and_bodies() {
    let mut run = Run::new();
    assert!(!run.session.is_midway());
    assert!(run.send(b"EH").session.is_midway());
    assert!(!run.send(b"LO c\r\nMAIL FROM:<a@x.org>\r\nRCPT TO:<b@y.org>\r\n").session.is_midway());
    assert!(run.send(b"DATA\r\n").session.is_midway() && run.send(b"x\r\n").session.is_midway());
    assert!(!run.send(b".\r\n").session.is_midway());
    assert!(run.send(b"MAIL FROM:<a@x.org>\r\nRCPT TO:<b@y.org>\r\nBDAT 4 LAST\r\nab").session.is_midway());
    assert!(!run.send(b"cd").session.is_midway());
    assert!(run.send(&[b'x'; 9_000]).session.is_midway(), "the rest of an overlong line");
}

#[test]
fn a_proxy_names_its_client_once() {
    let mut run = Run::with(config(), true);
    run.session.allow_xclient();
    run.take();
    run.send(b"EHLO proxy\r\n");
    assert!(run.take().contains("250-XCLIENT NAME ADDR PORT PROTO HELO LOGIN"));
    run.send(b"XCLIENT ADDR=nowhere\r\nMAIL FROM:<a@x.org>\r\nXCLIENT ADDR=192.0.2.1\r\nRSET\r\n");
    assert_eq!(run.codes(), [501, 250, 503, 250]);
    run.send(b"XCLIENT NAME=c.example PROTO=SMTP\r\n");
    assert!(run.take().starts_with("220 mx.example.org ESMTP"));
    run.send(b"MAIL FROM:<a@x.org>\r\nXCLIENT ADDR=192.0.2.1 HELO=c.example\r\n");
    assert_eq!(run.codes(), [503, 220]);
    assert_eq!((run.session.helo(), run.session.is_esmtp()), ("c.example", true));
    // The client's own words, and it is not trusted.
    run.send(b"MAIL FROM:<a@x.org> RET=HDRS\r\nXCLIENT ADDR=127.0.0.1\r\nEHLO c.example\r\n");
    let replies = run.take();
    assert!(replies.starts_with("555 5.5.4") && replies.contains("502 5.5.1"), "{replies}");
    assert!(!replies.contains("XCLIENT") && !replies.contains("DSN"), "{replies}");
    assert_eq!(run.steps.iter().filter(|step| matches!(step, Step::Client(_))).count(), 2);
}

#[test]
fn xclient_is_for_named_proxies() {
    let mut run = Run::with(config(), true);
    run.take();
    run.send(b"XCLIENT ADDR=192.0.2.1\r\nEHLO c\r\n");
    let replies = run.take();
    assert!(replies.starts_with("502 5.5.1") && !replies.contains("XCLIENT"), "{replies}");
}

#[test]
fn unknown_commands_are_handed_out_where_somebody_wants_them() {
    let mut run = Run::with(config(), false);
    run.take();
    run.send(b"FOO one\r\n");
    assert!(!run.steps.iter().any(|step| matches!(step, Step::Unknown { .. })));
    run.session.tell_unknown();
    run.send(b"FOO two \r\nEXPN a\r\nNOOP\r\n");
    assert_eq!(run.codes(), [500, 500, 502, 250]);
    let lines =
        run.steps.iter().filter_map(|step| if let Step::Unknown { line, .. } = step { Some(&**line) } else { None });
    assert_eq!(lines.collect::<Vec<_>>(), [b"FOO two"]);
    // They still count as errors.
    run.send(&b"FOO\r\n".repeat(100));
    assert!(run.take().contains("421 4.7.0 Too many"), "and it is closed");
}

#[test]
fn takes_a_message() {
    let mut run = Run::with(config(), true);
    run.take();
    run.send(b"EHLO c\r\n");
    run.send(b"MAIL FROM:<a@X.org> SIZE=20 BODY=8BITMIME RET=HDRS ENVID=q1\r\nRCPT TO:<b@y.org> NOTIFY=NEVER ORCPT=rfc822;b@z\r\nDATA\r\n");
    assert_eq!(run.take().lines().last().unwrap(), "354 End data with <CR><LF>.<CR><LF>");
    run.send(b"Subject: x\r\n\r\n..dot\r\n.\r\nNOOP\r\n");
    assert_eq!(run.take(), "250 2.0.0 Queued\r\n250 2.0.0 Ok\r\n");
    let Step::Mail(mail) = &run.steps[0] else { panic!("{:?}", run.steps) };
    assert_eq!((mail.path.as_str(), mail.size, mail.body), ("a@x.org", Some(20), Body::EightBitMime));
    assert_eq!((mail.ret, mail.envid.as_deref(), mail.smtputf8), (Some(Ret::Headers), Some("q1"), false));
    let Step::Rcpt(rcpt) = &run.steps[1] else { panic!("{:?}", run.steps) };
    assert_eq!((rcpt.notify, rcpt.orcpt.as_deref()), (Some(Notify::NEVER), Some("rfc822;b@z")));
    assert_eq!(run.bodies(), [b"Subject: x\r\n\r\n.dot\r\n"]);
    let Some(Step::EndOfData(end)) = run.steps.last() else { panic!("{:?}", run.steps) };
    assert_eq!((end.size, end.facts.fields, end.facts.header_bytes), (20, 1, 12));
    assert!(!run.session.in_transaction());
}

#[test]
fn replies_to_a_group_leave_together() {
    let mut run = Run::new();
    run.take();
    run.session.receive(b"EHLO c\r\nMAIL FROM:<a@x.org>\r\nRCPT TO:<b@y.org>\r\nRCPT TO:<no@y.org>\r\n");
    assert!(matches!(run.session.step(NOW), Step::Mail(_)));
    run.session.answer(Reply::fixed(250, Enhanced::new(2, 1, 0), "Ok"));
    for code in [250, 550] {
        assert!(matches!(run.session.step(NOW), Step::Rcpt(_)));
        run.session.answer(Reply::new(code, Enhanced::new((code / 100) as u8, 0, 0), "x"));
    }
    assert_eq!(run.session.step(NOW), Step::NeedInput);
    run.pump();
    assert_eq!(run.codes(), [250, 250, 250, 550]);
}

#[test]
fn many_transactions_in_a_session() {
    let mut run = Run::new();
    run.send(b"EHLO c\r\n");
    for index in 0..50 {
        run.send(b"MAIL FROM:<>\r\nRCPT TO:<b@y.org>\r\nDATA\r\n").send(format!("S: {index}\r\n\r\n.\r\n").as_bytes());
    }
    assert_eq!(run.bodies().len(), 50);
    assert_eq!(run.bodies()[49], b"S: 49\r\n\r\n");
    assert!(matches!(&run.steps[0], Step::Mail(mail) if mail.path == ReversePath::Null));
}

#[test]
fn order_of_commands() {
    let mut run = Run::new();
    run.take();
    run.send(b"MAIL FROM:<a@x.org>\r\nEHLO c\r\nRCPT TO:<b@y.org>\r\n");
    run.send(b"DATA\r\n");
    assert_eq!(run.codes(), [503, 250, 503, 503]);
    run.send(b"MAIL FROM:<a@x.org>\r\nMAIL FROM:<a@x.org>\r\n").send(b"DATA\r\n");
    assert_eq!(run.codes(), [250, 503, 554]);
    run.send(b"RCPT TO:<no@y.org>\r\nRCPT TO:<later@y.org>\r\n").send(b"DATA\r\n");
    assert_eq!(run.codes(), [550, 450, 554]);
    assert_eq!(run.resets(), 0);
}

#[test]
fn what_ends_a_transaction_is_a_reset() {
    for command in [&b"RSET\r\n"[..], b"EHLO c\r\n", b"HELO c\r\n"] {
        let mut run = Run::with_recipient();
        run.send(command).send(command);
        assert_eq!(run.steps, [Step::Reset], "{command:?}");
        run.take();
        run.send(b"DATA\r\n");
        assert_eq!(run.codes(), [503]);
    }
}

#[test]
fn the_caller_refuses_the_body() {
    let mut run = Run::with_recipient();
    run.take();
    run.session.receive(b"DATA\r\n");
    assert_eq!(run.session.step(NOW), Step::Data);
    run.session.answer(Reply::fixed(452, Enhanced::new(4, 3, 1), "Full"));
    assert_eq!(run.session.step(NOW), Step::Reset);
    run.pump();
    assert_eq!(run.codes(), [452]);
    run.send(b"MAIL FROM:<a@x.org>\r\n");
    assert_eq!(run.codes(), [250]);
}

#[test]
fn a_refused_mail_opens_nothing() {
    let mut run = Run::new();
    run.send(b"EHLO c\r\n").take();
    run.session.receive(b"MAIL FROM:<a@x.org>\r\nRCPT TO:<b@y.org>\r\n");
    assert!(matches!(run.session.step(NOW), Step::Mail(_)));
    run.session.answer(Reply::fixed(451, Enhanced::new(4, 3, 0), "Later"));
    run.pump();
    assert_eq!(run.codes(), [451, 503]);
}

#[test]
fn a_421_from_the_caller_closes() {
    let mut run = Run::with_recipient();
    run.take();
    run.send(b"RCPT TO:<closing@y.org>\r\nNOOP\r\n");
    assert_eq!(run.codes(), [421]);
    assert!(run.closed);
}

#[test]
fn postmaster_needs_no_domain() {
    let mut run = Run::with_recipient();
    run.send(b"RCPT TO:<Postmaster>\r\n");
    assert!(matches!(&run.steps[0], Step::Rcpt(rcpt) if rcpt.address.as_str() == "postmaster@mx.example.org"));
}
