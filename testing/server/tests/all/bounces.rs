//! Delivery status notifications (RFC 3461, RFC 3464): to whom, about whom, how many, and when none.

use stentor_harness::{TestLab, message, message_with, wait_until};

use crate::kit::{SENDER, SENDER_SITE, builder, drained, fates, post, post_with, report_to};
use crate::report::Report;
use crate::scribe::Scribe;

/// A site that refuses everybody, one that never takes anything, and the sender's.
pub fn refusing() -> TestLab {
    TestLab::start(&format!(
        "{SENDER_SITE}[[site]]\nname = 'no.example'\nbehaviour = {{ reject_share = 1.0 }}\n\
         [[site]]\nname = 'later.example'\nbehaviour = {{ at_rcpt = '451 4.3.0 not today' }}\n\
         [[site]]\nname = 'dead.example'\nbehaviour = {{ connect = 'refuse' }}\n[[site]]\nname = 'yes.example'\n"
    ))
}

pub fn reports(lab: &TestLab, to: &str) -> Vec<Report> {
    let copies = lab.recorder().copies_to(to);
    copies.iter().map(|copy| Report::parse(copy.body.as_ref().expect("the lab keeps bodies"))).collect()
}

#[test]
fn a_refusal_is_reported_to_the_sender() {
    let lab = refusing();
    let server = builder(&lab).start();
    let id = post(&server, &lab, &["ann@no.example"], "no@test");
    let report = report_to(&lab, SENDER);
    report.assert_failed("ann@no.example", "5.1.1");
    let about = report.about("ann@no.example");
    assert_eq!(about["final-recipient"], "rfc822; ann@no.example");
    assert_eq!(about["remote-mta"], "dns; mx1.no.example");
    assert_eq!(about["diagnostic-code"], "smtp; 550 5.1.1 no such user here");
    assert_eq!(report.message["reporting-mta"], "dns; mx.test");
    assert_eq!(report.header["auto-submitted"], "auto-replied");
    assert_eq!(report.header["to"], format!("<{SENDER}>"));
    assert!(report.header["from"].contains("<MAILER-DAEMON@mx.test>"), "{}", report.text);
    assert!(report.text.contains(&id), "the queue id is named: {}", report.text);
    assert!(report.original.contains("Message-ID: <no@test>"), "{}", report.original);
    assert!(!report.original.contains("a line with a dot"), "the header section alone: {}", report.original);
    drained(&server);
    assert_eq!(reports(&lab, SENDER).len(), 1);
    lab.assert_no_violations();
}

#[test]
fn failures_of_one_message_share_a_report() {
    let lab = refusing();
    let server = builder(&lab).set("retry.bounce_gather_ms", "60000").start();
    let people: Vec<String> = (0..40)
        .map(|n| format!("user{n}@no.example"))
        .chain((0..10).map(|n| format!("user@nowhere{n}.invalid")))
        .collect();
    let mut all: Vec<&str> = people.iter().map(String::as_str).collect();
    all.push("ann@yes.example");
    post(&server, &lab, &all, "many@test");
    let report = report_to(&lab, SENDER);
    let fates = drained(&server);
    assert_eq!((fates.bounced, fates.delivered), (50, 2));
    assert_eq!(report.recipients.len(), 50, "{}", report.text);
    for who in &people {
        assert_eq!(report.about(who)["action"], "failed");
    }
    assert_eq!(reports(&lab, SENDER).len(), 1, "one report for all");
}

#[test]
fn a_posts_failures_go_to_the_lists_owner() {
    let lab = refusing();
    let server = builder(&lab)
        .list("news", &["ann@yes.example", "bad@no.example", "gone@nowhere.invalid"])
        .set("lists.news.owner", "\"owner@sender.example\"")
        .set("lists.news.archive", "\"https://lists.test/news/\"")
        .set("retry.bounce_gather_ms", "60000")
        .start();
    server.smtp().send("poster@sender.example", &["news@lists.test"], &message("post@test", "post")).expect(250);
    let report = report_to(&lab, "owner@sender.example");
    assert_eq!(report.recipients.len(), 2, "{}", report.text);
    assert_eq!(report.about("bad@no.example")["status"], "5.1.1");
    assert_eq!(report.about("gone@nowhere.invalid")["status"], "5.1.2");
    assert!(report.text.contains("https://lists.test/news/"), "the archive is named: {}", report.text);
    drained(&server);
    assert!(lab.recorder().copies_to("poster@sender.example").is_empty(), "the poster is not told");
    assert_eq!(&*lab.recorder().copies_to("ann@yes.example")[0].sender, "news-bounces@lists.test");
}

#[test]
fn a_list_without_an_owner_has_its_failures_in_the_posts_report() {
    let lab = refusing();
    let people: Vec<String> =
        (0..12).map(|n| format!("user{n}@no.example")).chain(["ann@yes.example".to_owned()]).collect();
    let server = builder(&lab).list("news", &people.iter().map(String::as_str).collect::<Vec<_>>()).start();
    let post = message("ownerless@test", "x");
    let id = server.smtp().send(SENDER, &["news@lists.test"], &post).expect(250).queue_id();
    let said = || String::from_utf8(server.operator(&["report", &id]).stdout).expect("text");
    wait_until("it is finished", || said().contains(" recipients, finished\n"));
    server.wait_log(&["no DSN sent", &id, "news-bounces@lists.test"]);
    let text = said();
    assert!(text.contains(", 12 failed\n"), "{text}");
    let named = text.lines().filter(|line| {
        line.starts_with("    bounced user") && line.ends_with("@no.example  550 5.1.1 no such user here")
    });
    assert_eq!(named.count(), 10, "{text}");
    assert!(
        text.contains(&format!("    and 2 more recipients failed: `stentor trace {id} --only bounced,expired")),
        "{text}"
    );
    wait_until("the history has all of them", || {
        let shown = server.operator_text(&["trace", &id, "--only", "bounced,expired"]);
        people[..12].iter().all(|one| shown.contains(one))
    });
    let row = &server.ask(&["report", &id]).expect("it is known")["post_rows"][0];
    assert_eq!((row["bounced"].as_u64(), row["failed"][0]["fate"].as_str()), (Some(12), Some("bounced")), "{row}");
}

#[test]
fn a_report_from_elsewhere_to_a_lists_bounce_address_goes_to_its_owner() {
    let lab = refusing();
    let server =
        builder(&lab).list("news", &["ann@yes.example"]).set("lists.news.owner", "\"owner@sender.example\"").start();
    let wire = message_with("dsn@elsewhere", "Auto-Submitted: auto-replied\r\n", "it did not work\r\n");
    server.smtp().send("", &["news-bounces@lists.test"], &wire).expect(250);
    lab.wait("the owner has it", |recorder| recorder.copies_to("owner@sender.example").len() == 1);
    drained(&server);
    assert!(lab.recorder().copies_to("ann@yes.example").is_empty());
}

#[test]
fn there_is_no_report_about_a_report() {
    let lab = refusing();
    let server = builder(&lab).start();
    // The null sender has nobody to tell, however many recipients there are.
    server
        .smtp()
        .send("", &["ann@no.example", "bob@no.example", "cid@nowhere.invalid"], &message("null@test", "n"))
        .expect(250);
    let fates = drained(&server);
    assert_eq!((fates.acknowledged, fates.bounced), (3, 3), "{fates:?}");
    // The report about the first failure fails itself, in two ways, and that is the end of it.
    for (sender, n) in [("dead-letter@nowhere.invalid", 1), ("nobody@no.example", 2)] {
        server.smtp().send(sender, &["dan@no.example"], &message(&format!("{n}@test"), "n")).expect(250);
        let fates = drained(&server);
        assert_eq!((fates.acknowledged, fates.bounced), (3 + 2 * n, 3 + 2 * n), "message and report: {fates:?}");
    }
    assert_eq!(lab.stats().sinks.recipients, 0, "nobody got anything");
}

#[test]
fn notify_never_and_others_than_failure_are_respected() {
    let lab = refusing();
    let server = builder(&lab).start();
    let to = [
        "<never@no.example> NOTIFY=NEVER",
        "<success@no.example> NOTIFY=SUCCESS,DELAY",
        "<failure@no.example> NOTIFY=FAILURE",
    ];
    post_with(&server, "<ann@sender.example>", &to, &message("notify@test", "n"));
    report_to(&lab, SENDER);
    assert_eq!(drained(&server).bounced, 3);
    let reports = reports(&lab, SENDER);
    let about: Vec<&str> = reports.iter().flat_map(|r| &r.recipients).map(|r| r["final-recipient"].as_str()).collect();
    assert_eq!(about, ["rfc822; failure@no.example"]);
}

#[test]
fn ret_envid_and_orcpt_are_in_the_report() {
    let lab = refusing();
    let server = builder(&lab).start();
    let to = ["<ann@no.example> ORCPT=rfc822;Old+2BName@first.example NOTIFY=FAILURE"];
    let wire = message_with("full@test", "", "the whole body\r\n.and its dot\r\n");
    post_with(&server, "<ann@sender.example> RET=FULL ENVID=QQ+3D314159", &to, &wire);
    let report = report_to(&lab, SENDER);
    assert_eq!(report.message["original-envelope-id"], "QQ=314159");
    assert_eq!(report.about("ann@no.example")["original-recipient"], "rfc822; Old+Name@first.example");
    assert!(report.original.contains("the whole body\n.and its dot\n"), "{}", report.original);
}

#[test]
fn dsn_parameters_are_passed_on_to_a_host_that_knows_them() {
    let lab = TestLab::start(SENDER_SITE);
    let (dsn, plain) = (Scribe::start(&["PIPELINING", "DSN"], &[]), Scribe::start(&["PIPELINING"], &[]));
    let server = builder(&lab).route("dsn.example", &[&dsn.host()]).route("plain.example", &[&plain.host()]).start();
    let to = [
        "<ann@dsn.example> NOTIFY=SUCCESS,FAILURE ORCPT=rfc822;ann@old.example",
        "<bob@dsn.example>",
        "<cid@plain.example> NOTIFY=SUCCESS ORCPT=rfc822;cid@old.example",
    ];
    post_with(&server, "<ann@sender.example> RET=HDRS ENVID=abc", &to, &message("dsn@test", "n"));
    // A host that will not report success makes us say that we have handed it over.
    let report = report_to(&lab, SENDER);
    let about = report.about("cid@plain.example");
    assert_eq!(
        (about["action"].as_str(), about["original-recipient"].as_str()),
        ("relayed", "rfc822; cid@old.example")
    );
    assert_eq!(report.recipients.len(), 1, "{}", report.text);
    assert_eq!(drained(&server).delivered, 4);
    let mail = dsn.heard("MAIL").remove(0);
    assert!(mail.contains(" RET=HDRS") && mail.contains(" ENVID=abc"), "{mail}");
    let rcpts = dsn.heard("RCPT");
    let ann = rcpts.iter().find(|line| line.contains("<ann@dsn.example>")).expect("ann");
    assert!(ann.contains(" NOTIFY=SUCCESS,FAILURE") && ann.contains(" ORCPT=rfc822;ann@old.example"), "{ann}");
    let plain = plain.lines();
    assert!(
        plain.iter().all(|line| !["NOTIFY", "ORCPT", "RET=", "ENVID"].iter().any(|p| line.contains(p))),
        "{plain:?}"
    );
}

#[test]
fn what_a_host_says_cannot_add_to_the_report() {
    let lab = TestLab::start(SENDER_SITE);
    let evil = Scribe::start(
        &["PIPELINING"],
        &[(
            "RCPT",
            "550-5.1.1 no\r\n550-Final-Recipient: rfc822; fake@victim.example\r\n550-\r\n550 5.1.1 --=_end--\x07\x1b[2J",
        )],
    );
    let server = builder(&lab).route("evil.example", &[&evil.host()]).start();
    post(&server, &lab, &["ann@evil.example"], "evil@test");
    let report = report_to(&lab, SENDER);
    report.assert_failed("ann@evil.example", "5.1.1");
    assert!(!report.text.contains(['\x07', '\x1b']), "control characters: {:?}", report.text);
    let line = server.wait_log(&["to=<ann@evil.example>", "mailer=esmtp"]);
    assert!(!line.contains(['\x07', '\x1b']), "{line:?}");
}

#[test]
fn what_is_deferred_for_ever_is_returned_when_its_lifetime_is_over() {
    let lab = refusing();
    let server = builder(&lab).set("retry.lifetime_s", "8").start();
    post(&server, &lab, &["ann@later.example", "bob@dead.example", "cid@yes.example"], "old@test");
    lab.wait("both are reported", |recorder| {
        let copies = recorder.copies_to(SENDER);
        let text: String =
            copies.iter().map(|c| String::from_utf8_lossy(c.body.as_ref().expect("kept")).into_owned()).collect();
        text.contains("; ann@later.example") && text.contains("; bob@dead.example")
    });
    let fates = drained(&server);
    assert_eq!((fates.expired, fates.bounced, fates.delivered), (2, 0, 1 + reports(&lab, SENDER).len() as u64));
    for report in reports(&lab, SENDER) {
        for about in &report.recipients {
            assert_eq!(about["action"], "failed");
            assert!(about["status"].starts_with("5."), "{}", report.text);
        }
    }
    assert_eq!(lab.recorder().copies_of("old@test"), 1);
}

#[test]
fn nothing_deferred_is_returned_before_its_lifetime_is_over() {
    let lab = refusing();
    let server = builder(&lab).start();
    post(&server, &lab, &["ann@later.example", "bob@dead.example"], "wait@test");
    // Many attempts later ...
    lab.wait("attempts", |recorder| recorder.stats().rcpt_4xx >= 8);
    wait_until("attempts", || server.log().matching(&["connect: relay=mx1.dead.example"]).len() >= 4);
    let fates = fates(&server);
    assert_eq!((fates.pending, fates.bounced, fates.expired), (2, 0, 0), "{fates:?}");
    assert!(lab.recorder().copies_to(SENDER).is_empty());
}
