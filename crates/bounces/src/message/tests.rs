use super::*;
use crate::cause::BounceCause::{Content, Full, NoHost, NoMailbox, Unknown};
use proptest::prelude::*;
use std::sync::LazyLock;

static RULES: LazyLock<BounceRules> = LazyLock::new(BounceRules::built_in);

fn read_text(text: &str) -> ParsedBounce {
    parse(text.replace('\n', "\r\n").as_bytes(), &RULES)
}

fn dsn(groups: &str) -> String {
    format!(
        "From: MAILER-DAEMON@mx.example.org\nTo: news-bounces@lists.example\nSubject: Undelivered Mail\nMIME-Version: 1.0\n\
         Content-Type: multipart/report; report-type=delivery-status; boundary=\"b\"\n\n--b\n\nSorry.\n\n--b\n\
         Content-Type: message/delivery-status\n\nReporting-MTA: dns; mx.example.org\nOriginal-Envelope-Id: e17\n\n{groups}\n--b\n\
         Content-Type: message/rfc822\n\nMessage-ID: <post@lists.example>\nList-Id: News <news.lists.example>\nTo: news@lists.example\n\n\
         Hello <not-a-recipient@example.org>: user unknown\n--b--\n"
    )
}

#[test]
fn a_dsn_has_several_recipients() {
    let parsed = read_text(&dsn(
        "Original-Recipient: rfc822; a@example.org\nFinal-Recipient: rfc822; A.B@inner.example\nAction: failed\nStatus: 5.1.1\n\
         Remote-MTA: dns; mx.inner.example\nDiagnostic-Code: smtp; 550 5.1.1 <A.B@inner.example>:\n    no such user\n\n\
         Final-Recipient: RFC822;c@example.org\nAction: delayed\nStatus: 4.2.2\n\n\
         Final-Recipient: utf-8; j\\x{F6}rg@example.org\nAction: delivered\nStatus: 2.0.0\n",
    ));
    assert_eq!(parsed.kind, BounceKind::Bounce);
    assert_eq!(parsed.original_message_id.as_deref(), Some("<post@lists.example>"));
    assert_eq!(parsed.original_list_id.as_deref(), Some("news.lists.example"));
    assert_eq!((parsed.envelope_id.as_deref(), &*parsed.reporter), (Some("e17"), "mx.example.org"));
    let [first, second, third] = &parsed.reports[..] else { panic!("{parsed:?}") };
    assert_eq!((&*first.recipient, first.final_recipient.as_deref()), ("a@example.org", Some("A.B@inner.example")));
    assert_eq!((first.action, first.cause, first.code), (ReportAction::Failed, NoMailbox, Some(550)));
    assert_eq!((&*first.host, &*first.reply), ("mx.inner.example", "550 5.1.1 <A.B@inner.example>: no such user"));
    assert_eq!((&*second.recipient, second.action, second.cause), ("c@example.org", ReportAction::Delayed, Full));
    assert_eq!((&*third.recipient, third.action, third.cause), ("jörg@example.org", ReportAction::Delivered, Unknown));
}

#[test]
fn a_recipient_has_its_own_reply_and_not_the_cause_of_another() {
    let one = |name: &str, reply: &str| {
        format!(
            "Final-Recipient: rfc822; {name}@example.org\nAction: failed\nStatus: 5.0.0\nDiagnostic-Code: smtp; {reply}\n\n"
        )
    };
    let groups = one("a", "550 5.2.2 mailbox full") + &one("b", "550 flurble");
    let words = "<a@example.org>: 550 5.2.2 mailbox full\n\n<b@example.org>: 550 flurble\n";
    let parsed = read_text(&dsn(&groups).replace("\nSorry.\n", &format!("\n{words}")));
    let read: Vec<_> = parsed.reports.iter().map(|r| (&*r.recipient, r.cause)).collect();
    assert_eq!(read, [("a@example.org", Full), ("b@example.org", Unknown)]);
}

#[test]
fn recipients_without_empty_lines_between_them_are_read() {
    let one = |n: u32| {
        format!(
            "Original-Recipient: rfc822;a{n}@example.org\nFinal-Recipient: rfc822;b{n}@example.org\nAction: failed\nStatus: 5.1.{n}\n"
        )
    };
    let parsed = read_text(&dsn(&(one(1) + &one(2))));
    let read: Vec<String> =
        parsed.reports.iter().map(|r| format!("{} {:?} {:?}", r.recipient, r.final_recipient, r.status)).collect();
    assert_eq!(read.len(), 2, "{read:?}");
    assert!(
        read[0].starts_with("a1@example.org Some(\"b1@example.org\")") && read[1].starts_with("a2@example.org"),
        "{read:?}"
    );
}

#[test]
fn our_own_dsns_are_read() {
    use stentor_mail::dsn::{self, Dsn, DsnAction, ReportRcpt, Ret};
    let rcpt = ReportRcpt {
        address: "inner@example.org",
        orcpt: Some("rfc822;A@example.org"),
        action: DsnAction::Failed,
        status: Enhanced::new(5, 2, 2),
        remote_mta: Some("mx.example.org"),
        diagnostic: Some("552 5.2.2 Mailbox full"),
        reason: None,
        last_attempt: None,
        will_retry_until: None,
    };
    let octets = dsn::build(&Dsn {
        hostname: "mx.us.example",
        to: "news-bounces@lists.example",
        date: "Sat, 21 Nov 2026 21:20:00 +0000",
        message_id: "1.2@mx.us.example",
        queue_id: "abc1",
        arrival: None,
        envid: Some("e17"),
        received_from: None,
        rcpts: &[rcpt],
        original: b"Message-ID: <post@lists.example>\r\nTo: x@example.org\r\n\r\nHello\r\n",
        original_whole: true,
        ret: Ret::Headers,
        archive: None,
        smtputf8: false,
    });
    let parsed = parse(&octets, &RULES);
    let [report] = &parsed.reports[..] else { panic!("{parsed:?}") };
    assert_eq!((&*report.recipient, report.final_recipient.as_deref()), ("A@example.org", Some("inner@example.org")));
    assert_eq!((report.cause, &*report.host, parsed.envelope_id.as_deref()), (Full, "mx.example.org", Some("e17")));
    assert_eq!(parsed.original_message_id.as_deref(), Some("<post@lists.example>"));
}

#[test]
fn forms_without_a_status_are_read() {
    let qmail = "From: MAILER-DAEMON@mx.example.net\nTo: news-bounces@lists.example\nSubject: failure notice\n\n\
        Hi. This is the qmail-send program at mx.example.net.\nI'm afraid I wasn't able to deliver your message to the following addresses.\n\n\
        <a@example.net>:\nSorry, no mailbox here by that name. (#5.1.1)\n\n<b@example.net>:\nThe user's mailbox is full.\n\n\
        --- Below this line is a copy of the message.\n\nReturn-Path: <news-bounces@lists.example>\nMessage-ID: <post@lists.example>\nTo: <c@example.net>\n";
    let parsed = read_text(qmail);
    let told: Vec<String> = parsed.reports.iter().map(|r| format!("{} {}", r.recipient, r.cause)).collect();
    assert_eq!(told, ["a@example.net no_mailbox", "b@example.net full"]);
    assert_eq!(parsed.original_message_id.as_deref(), Some("<post@lists.example>"));
    let exim = "From: Mail Delivery System <Mailer-Daemon@mx.example.net>\nTo: news-bounces@lists.example\nX-Failed-Recipients: a@gone.example\n\
        Auto-Submitted: auto-replied\nSubject: Mail delivery failed: returning message to sender\n\nThis message was created automatically.\n\n\
        A message that you sent could not be delivered. The following address(es) failed:\n\n  a@gone.example\n    all relevant MX records point to non-existent hosts\n";
    let parsed = read_text(exim);
    assert_eq!(
        (parsed.kind, &*parsed.reports[0].recipient, parsed.reports[0].cause),
        (BounceKind::Bounce, "a@gone.example", NoHost)
    );
}

#[test]
fn the_address_that_we_sent_to_is_the_recipient() {
    let parsed = read_text(
        "From: Mail Delivery Subsystem <MAILER-DAEMON@mx.example.net>\nTo: news-bounces@lists.example\nSubject: Returned mail: User unknown\n\n\
         ----- The following addresses had permanent fatal errors -----\n<inner@example.net>\n    (expanded from: <ann@example.net>)\n\n\
         ----- Transcript of session follows -----\n550 5.1.1 <inner@example.net>... User unknown\n",
    );
    let report = &parsed.reports[0];
    assert_eq!((&*report.recipient, report.final_recipient.as_deref()), ("ann@example.net", Some("inner@example.net")));
    assert_eq!(report.cause, NoMailbox);
}

#[test]
fn a_report_within_an_attached_message_is_read() {
    let status = "Final-Recipient: rfc822; a@example.org\nAction: failed\nStatus: 5.1.1\n";
    let outer = |from: &str, subject: &str| {
        let head = format!(
            "From: {from}\nTo: x@lists.example\nSubject: {subject}\nContent-Type: multipart/mixed; boundary=o\n\n--o\n"
        );
        read_text(&format!("{head}Content-Type: message/rfc822\n\n{}\n--o--\n", dsn(status)))
    };
    let parsed = outer("postmaster@gateway.example", "Delivery Status Notification (Failure)");
    assert_eq!(parsed.reports.iter().map(|report| &*report.recipient).collect::<Vec<_>>(), ["a@example.org"]);
    let forwarded = outer("Ann <ann@example.org>", "look at this");
    assert_eq!((forwarded.kind, forwarded.reports.len()), (BounceKind::Other, 0));
}

#[test]
fn complaints_name_their_recipient() {
    let parsed = read_text(
        "From: feedback@fbl.example\nSubject: complaint\nContent-Type: multipart/report; report-type=feedback-report; boundary=b\n\n\
         --b\n\nThis is a complaint.\n\n--b\nContent-Type: message/feedback-report\n\nFeedback-Type: abuse\nUser-Agent: X/1\nVersion: 1\n\
         Original-Rcpt-To: <a@example.org>\nOriginal-Mail-From: <news-bounces@lists.example>\nSource-IP: 192.0.2.1\nReported-Domain: lists.example\n\n\
         --b\nContent-Type: message/rfc822\n\nMessage-ID: <post@lists.example>\nCFBL-Feedback-ID: 111:222:333\nTo: news@lists.example\n\nBuy\n--b--\n",
    );
    assert_eq!((parsed.kind, parsed.reports.len()), (BounceKind::Complaint, 1));
    assert_eq!((&*parsed.reports[0].recipient, parsed.reports[0].action), ("a@example.org", ReportAction::Complained));
    assert_eq!(parsed.reports[0].cause, Content, "as the log says");
    let complaint = parsed.complaint.unwrap();
    assert_eq!((&*complaint.feedback_type, complaint.source_ip.as_deref()), ("abuse", Some("192.0.2.1")));
    assert_eq!(complaint.feedback_id.as_deref(), Some("111:222:333"));
    assert_eq!(complaint.mail_from.as_deref(), Some("news-bounces@lists.example"));
}

#[test]
fn answers_of_programs_are_no_bounces() {
    for header in [
        "Subject: Out of Office: Re: post\nAuto-Submitted: auto-replied",
        "Subject: I am away\nPrecedence: auto_reply",
        "Subject: Re: post\nX-Autoreply: yes",
        "Subject: Abwesenheitsnotiz: post",
    ] {
        let parsed = read_text(&format!(
            "From: Ann <ann@example.org>\nTo: news-bounces@lists.example\n{header}\n\nBack on Monday, ask bob@example.org.\n"
        ));
        assert_eq!((parsed.kind, parsed.reports.len()), (BounceKind::AutoReply, 0), "{header}");
    }
    let parsed =
        read_text("From: Ann <ann@example.org>\nTo: news@lists.example\nSubject: lunch\n\nAsk bob@example.org.\n");
    assert_eq!((parsed.kind, parsed.reports.len()), (BounceKind::Other, 0));
}

#[test]
fn a_status_that_says_little_is_explained_by_the_text() {
    let text = dsn("Final-Recipient: rfc822; a@example.org\nAction: failed\nStatus: 5.0.0\n").replace(
        "Sorry.",
        "<a@example.org>: host mx.example.org said: 554 message contains spam (in reply to end of DATA command)",
    );
    let parsed = read_text(&text);
    assert_eq!(parsed.reports[0].cause, Content, "{parsed:?}");
}

#[test]
fn junk_costs_bounded_memory() {
    let mut parser = BounceParser::new();
    parser.push(b"From: MAILER-DAEMON@x.example\r\nSubject: failure notice\r\nContent-Type: multipart/report; report-type=delivery-status; boundary=b\r\n\r\n--b\r\nContent-Type: message/delivery-status\r\n\r\n");
    let group = b"Final-Recipient: rfc822; a@example.org\r\nAction: failed\r\nStatus: 5.0.0\r\nDiagnostic-Code: smtp; 550 x\r\n\r\n".repeat(1000);
    for _ in 0..40 {
        parser.push(&group);
    }
    assert!(parser.collector.status.len() <= TEXT_BYTES_MAX);
    let parsed = parser.finish(&RULES);
    assert_eq!(parsed.reports.len(), 1, "equal groups count once");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_message_is_read_the_same_in_pieces(
        text in "(From: MAILER-DAEMON@x\\.y\n|Subject: failure notice\n|Content-Type: message/delivery-status\n|\n|--b\n|<a@b\\.example>:\n|550 user unknown\n|Final-Recipient: rfc822;a@b\\.c\n|[ -~]{0,20}\n|.){0,40}",
        cut in 0usize..400,
    ) {
        let octets = text.as_bytes();
        let cut = cut.min(octets.len());
        let mut parser = BounceParser::new();
        parser.push(&octets[..cut]);
        parser.push(&octets[cut..]);
        prop_assert_eq!(parser.finish(&RULES), parse(octets, &RULES));
    }
}
