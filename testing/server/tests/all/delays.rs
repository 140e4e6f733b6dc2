//! Delay notices: who gets one, what it says, and that there is only one.

use stentor_harness::{TestLab, message, message_with, wait_until};

use crate::kit::{SENDER, SENDER_SITE, builder, post, post_with, report_to};

fn deferring() -> TestLab {
    TestLab::start(&format!(
        "{SENDER_SITE}[[site]]\nname = 'later.example'\nbehaviour = {{ at_rcpt = '451 4.3.0 not today' }}\n\
         [[site]]\nname = 'dead.example'\nbehaviour = {{ connect = 'refuse' }}\n[[site]]\nname = 'yes.example'\n"
    ))
}

#[test]
fn the_sender_is_told_once_and_why() {
    let lab = deferring();
    let mut server = builder(&lab).set("retry.delay_warning_s", "80000").start();
    let id = post(&server, &lab, &["ann@later.example", "bob@dead.example", "cid@yes.example"], "delay@test");
    // There is a reason to tell when all have been tried; then a shorter time takes hold at once.
    wait_until("two were deferred, one has it", || {
        server.ask(&["queue", "show", &id]).is_ok_and(|shown| {
            let rows = shown["recipients"].as_array().expect("rows");
            rows.len() == 2 && rows.iter().all(|row| row["last_reply"] != "")
        })
    });
    server.edit_config(|text| text.replace("80000", "0.5"));
    assert!(server.operator(&["reload"]).status.success());
    let report = report_to(&lab, SENDER);
    assert_eq!(report.header["subject"], "Delayed Mail (still being retried)");
    assert_eq!(report.recipients.len(), 2, "{}", report.text);
    let about = report.about("ann@later.example");
    assert_eq!((about["action"].as_str(), about["status"].as_str()), ("delayed", "4.3.0"));
    assert!(about["diagnostic-code"].contains("451") && about.contains_key("will-retry-until"), "{about:?}");
    assert!(report.about("bob@dead.example")["status"].starts_with("4."));
    assert!(report.text.contains(&id) && !report.original.contains("a line with a dot"), "{}", report.text);
    // The next message's warning comes, and none about the first beside it; nor after a restart.
    post(&server, &lab, &["dan@later.example"], "second@test");
    lab.wait("the second warning", |recorder| recorder.copies_to(SENDER).len() == 2);
    server.stop();
    server.start_again();
    post(&server, &lab, &["eve@later.example"], "third@test");
    lab.wait("the third warning", |recorder| recorder.copies_to(SENDER).len() == 3);
    post(&server, &lab, &["fay@later.example"], "fourth@test");
    lab.wait("the fourth warning", |recorder| recorder.copies_to(SENDER).len() == 4);
    wait_until("the warnings are done with", || server.fates()["pending"] == 5);
}

#[test]
fn those_who_do_not_want_one_get_none() {
    let lab = deferring();
    let server = builder(&lab)
        .set("retry.delay_warning_s", "1")
        .list("news", &["ann@later.example"])
        .set("lists.news.owner", &format!("{SENDER:?}"))
        .set("lists.news.bounces", &format!("{SENDER:?}"))
        .start();
    let from = format!("<{SENDER}>");
    post_with(&server, &from, &["<ann@later.example> NOTIFY=FAILURE"], &message("failure@test", "x"));
    post_with(&server, &from, &["<ann@later.example> NOTIFY=NEVER"], &message("never@test", "x"));
    post_with(&server, &from, &["<ann@later.example>"], &message_with("bulk@test", "Precedence: bulk\r\n", "x\r\n"));
    post_with(&server, "<>", &["<ann@later.example>"], &message("null@test", "x"));
    post_with(&server, &from, &["<news@lists.test>"], &message("post@test", "x"));
    let wire = message("asked@test", "x");
    let to = ["<ann@later.example> NOTIFY=DELAY ORCPT=rfc822;old@later.example", "<bob@later.example> NOTIFY=FAILURE"];
    post_with(&server, &format!("{from} ENVID=QQ1 RET=FULL"), &to, &wire);
    let report = report_to(&lab, SENDER);
    assert!(report.original.contains("Message-ID: <asked@test>"), "{}", report.original);
    assert!(!report.original.contains("a line with a dot"), "RET is about failures: {}", report.original);
    assert_eq!(report.recipients.len(), 1);
    assert_eq!(report.about("ann@later.example")["original-recipient"], "rfc822; old@later.example");
    assert_eq!(report.message["original-envelope-id"], "QQ1");
    // The last in line has been looked at, and with it all before.
    assert_eq!(lab.recorder().copies_to(SENDER).len(), 1);
}

#[test]
fn only_those_who_ask_if_so_configured() {
    let lab = deferring();
    let server = builder(&lab).set("retry.delay_warning_s", "1").set("retry.delay_warning_to", "\"asked\"").start();
    post(&server, &lab, &["ann@later.example"], "plain@test");
    let to = ["<ann@later.example> NOTIFY=FAILURE,DELAY"];
    post_with(&server, &format!("<{SENDER}>"), &to, &message("asked@test", "x"));
    let report = report_to(&lab, SENDER);
    assert!(report.original.contains("Message-ID: <asked@test>"), "{}", report.original);
    wait_until("both wait", || server.fates()["pending"] == 2);
    assert_eq!(lab.recorder().copies_to(SENDER).len(), 1);
}
