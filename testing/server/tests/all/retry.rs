//! Temporary conditions: greylisting, full mailboxes, limits, outages that end. Everything arrives once.

use stentor_harness::{TestLab, wait_until};

use crate::kit::{SENDER, SENDER_SITE, builder, drained, post};

#[test]
fn greylisted_mail_comes_through() {
    let lab = TestLab::start("[[site]]\nname = 'grey.example'\nbehaviour = { greylist_ms = 300 }\n");
    let server = builder(&lab).start();
    let people = ["ann@grey.example", "bob@grey.example"];
    post(&server, &lab, &people, "grey@test");
    lab.wait_clean("grey@test", &people);
    assert!(lab.stats().sinks.rcpt_4xx >= 2, "both were refused at first");
    assert_eq!(drained(&server).bounced, 0);
    server.wait_log(&["dsn=4.7.1", "stat=Deferred: 451"]);
}

#[test]
fn a_full_mailbox_holds_up_nobody_else_and_is_served_later() {
    let lab = TestLab::start(
        "[[site]]\nname = 'box.example'\n[[site.window]]\nfrom_s = 0\nto_s = 3\nbehaviour = { full_users = ['full'] }\n",
    );
    let server = builder(&lab).start();
    post(&server, &lab, &["ann@box.example", "full@box.example", "bob@box.example"], "box@test");
    lab.wait("the others have theirs", |recorder| recorder.copies_of("box@test") >= 2);
    lab.wait_clean("box@test", &["ann@box.example", "full@box.example", "bob@box.example"]);
    assert_eq!(drained(&server).bounced, 0);
}

#[test]
fn outages_end_and_everything_arrives_once() {
    let faults = [
        ("refuse", "connect = 'refuse'"),
        ("reset", "connect = 'reset'"),
        ("busy", "at_greeting = '421 4.3.2 busy'"),
        ("mute", "at_greeting = 'hang'"),
        ("rude", "at_ehlo = 'drop'"),
        ("mail", "at_mail = '451 4.3.0 later'"),
        ("mail-hang", "at_mail = 'hang'"),
        ("rcpt", "at_rcpt = '450 4.7.1 later'"),
        ("data", "at_data = '451 4.3.0 later'"),
        ("body", "at_body = 'drop'"),
        ("body-reset", "at_body = 'reset'"),
        ("dot", "at_dot = '451 4.3.0 later'"),
        ("closing", "at_dot = '421 4.3.2 shutting down'"),
    ];
    let mut scenario = SENDER_SITE.to_owned();
    for (name, fault) in faults {
        let fault = format!("{{ {fault}, body_bytes = 10 }}");
        scenario.push_str(&format!(
            "[[site]]\nname = '{name}.example'\n[[site.window]]\nfrom_s = 0\nto_s = 3\nbehaviour = {fault}\n"
        ));
    }
    let lab = TestLab::start(&scenario);
    let stages = ["greeting", "ehlo", "mail", "rcpt", "data_init", "data_block", "data_done"];
    // A host whose 250 is late gets the message twice.
    let seconds = |stage: &str| if stage == "data_done" { "10" } else { "2" };
    let quick =
        stages.iter().fold(builder(&lab), |b, stage| b.set(&format!("delivery.{stage}_timeout_s"), seconds(stage)));
    let server = quick.start();
    let people: Vec<String> =
        faults.iter().flat_map(|(name, _)| ["ann", "bob"].map(|user| format!("{user}@{name}.example"))).collect();
    let people: Vec<&str> = people.iter().map(String::as_str).collect();
    post(&server, &lab, &people, "outage@test");
    lab.wait_clean("outage@test", &people);
    assert_eq!(drained(&server).bounced, 0);
    assert!(lab.recorder().copies_to(SENDER).is_empty());
}

#[test]
fn a_host_that_closes_after_a_few_messages_gets_them_all() {
    let lab = TestLab::start("[[site]]\nname = 'three.example'\nbehaviour = { messages_per_connection_max = 3 }\n");
    let server = builder(&lab).set("delivery.connections_per_site_max", "2").start();
    for n in 0..20 {
        post(&server, &lab, &["ann@three.example"], &format!("{n}@test"));
    }
    lab.wait_copies(20);
    let fates = drained(&server);
    assert_eq!((fates.delivered, fates.bounced), (20, 0));
    assert_eq!(lab.stats().sinks.recipients, 20, "{:?}", lab.recorder().duplicates());
    lab.assert_no_violations();
}

/// Nothing else is recorded of such a session, and the host has a clock for it.
#[test]
fn a_session_that_ends_between_ehlo_and_mail_is_in_the_log() {
    let lab = TestLab::start(
        "[[site]]\nname = 'leaves.example'\nbehaviour = { script = ['ehlo: ok; say 421 4.3.2 going away; close'] }\n",
    );
    let server = builder(&lab).start();
    post(&server, &lab, &["ann@leaves.example"], "leaves@test");
    let line = server.wait_log(&["connect: relay=", "mx1.leaves.example", "stat=Deferred"]);
    assert!(line.contains("dsn=4.4.2") && line.contains("session ended before MAIL"), "{line}");
    assert!(line.contains("421 4.3.2 going away"), "{line}");
}

#[test]
fn a_site_that_takes_one_connection_gets_everything_over_it() {
    let lab = TestLab::start("[[site]]\nname = 'single.example'\nbehaviour = { connections_max = 1, rtt_ms = 20 }\n");
    let server = builder(&lab).set("delivery.connections_per_site_max", "10").start();
    for n in 0..30 {
        post(&server, &lab, &["ann@single.example", "bob@single.example"], &format!("{n}@test"));
    }
    lab.wait_copies(60);
    assert_eq!(drained(&server).delivered, 60);
    assert_eq!(lab.stats().sinks.recipients, 60);
}

#[test]
fn one_bad_message_does_not_hold_up_the_site() {
    // A host that takes messages up to a size refuses the large one for good, after its data.
    let lab = TestLab::start(&format!(
        "{SENDER_SITE}[[site]]\nname = 'small.example'\nbehaviour = {{ size_bytes_max = 2000, no_size = true }}\n"
    ));
    let server = builder(&lab).set("delivery.connections_per_site_max", "1").start();
    let large = stentor_harness::message_with("large@test", "", &"far too much\r\n".repeat(1000));
    server.smtp().send(SENDER, &["ann@small.example"], &large).expect(250);
    for n in 0..5 {
        post(&server, &lab, &["ann@small.example"], &format!("{n}@test"));
    }
    for n in 0..5 {
        lab.wait_clean(&format!("{n}@test"), &["ann@small.example"]);
    }
    crate::kit::report_to(&lab, SENDER).assert_failed("ann@small.example", "5.3.4");
}

#[test]
fn the_operator_can_have_everything_tried_now() {
    let lab = TestLab::start(
        "[[site]]\nname = 'back.example'\n[[site.window]]\nfrom_s = 0\nto_s = 2\nbehaviour = { connect = 'refuse' }\n",
    );
    let server = ["host", "site", "mailbox", "recipient"]
        .iter()
        .fold(builder(&lab), |builder, clock| {
            builder.set(&format!("retry.{clock}_min_s"), "3600").set(&format!("retry.{clock}_max_s"), "3600")
        })
        .start();
    post(&server, &lab, &["ann@back.example"], "back@test");
    wait_until("the outage is over", || lab.recorder().now_us() > 2_200_000);
    assert!(server.operator(&["flush"]).status.success());
    lab.wait_clean("back@test", &["ann@back.example"]);
}
