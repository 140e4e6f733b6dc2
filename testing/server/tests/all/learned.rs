//! What a server has learned outlives its stop, and a kill but for the last minute.

use std::fs;

use serde_json::Value;
use stentor_harness::{Builder, Server, TestLab, message, wait_until};

use crate::kit::{SENDER_SITE, builder};

/// Hosts that defer in each way that has a clock of its own, and one that takes mail.
fn lab() -> TestLab {
    let site =
        |name: &str, behaviour: &str| format!("[[site]]\nname = '{name}.example'\nbehaviour = {{ {behaviour} }}\n");
    TestLab::start(
        &[
            SENDER_SITE.to_owned(),
            "[[site]]\nname = 'good.example'\n".to_owned(),
            site("dead", "connect = 'refuse'"),
            site("full", "at_rcpt = '452 4.2.2 mailbox full'"),
            site("later", "at_rcpt = '451 4.3.0 not today'"),
            site("gone", "at_rcpt = '550 5.1.1 no such user'"),
        ]
        .concat(),
    )
}

/// Clocks far longer than the test.
fn patient(lab: &TestLab) -> Builder {
    let all = ["host", "site", "mailbox", "recipient"];
    let long = |builder: Builder, clock: &str| {
        builder.set(&format!("retry.{clock}_min_s"), "1800").set(&format!("retry.{clock}_max_s"), "3600")
    };
    all.into_iter().fold(builder(lab), long)
}

fn send(server: &Server, to: &str, id: &str) {
    server.smtp().send("ann@sender.example", &[to], &message(id, "x")).expect(250);
}

/// Why the oldest message for an address waits, and until when.
fn pending(server: &Server, address: &str) -> Value {
    server.ask(&["address", address]).expect("it is known")["pending"].clone()
}

fn mailbox(server: &Server, address: &str) -> Value {
    server.ask(&["address", address]).expect("it is known")["mailbox"].clone()
}

const WAITING: [&str; 3] = ["ann@full.example", "ann@later.example", "ann@dead.example"];

/// Mail that waits behind each clock, one that was delivered and one that was refused.
fn teach(server: &Server) {
    for (n, to) in WAITING.into_iter().chain(["ann@good.example", "ann@gone.example"]).enumerate() {
        send(server, to, &format!("{n}@test"));
    }
    // Of a host the first pauses are shorter than its ladder: it is in it once it says so.
    wait_until("all have clocks", || {
        let has_clock = |to: &&str| pending(server, to)["next_try"].is_u64();
        WAITING.iter().filter(|to| has_clock(to)).count() == WAITING.len()
    });
    wait_until("the others have their fate", || {
        mailbox(server, "ann@good.example")["last"] == "delivered"
            && mailbox(server, "ann@gone.example")["last"] == "refused"
    });
}

#[test]
fn a_stop_forgets_nothing() {
    let lab = lab();
    let mut server = patient(&lab).start();
    teach(&server);
    let of_clock = ["ann@full.example", "ann@later.example"];
    let before: Vec<Value> = of_clock.iter().map(|to| pending(&server, to)).collect();
    let known: Vec<Value> = ["ann@good.example", "ann@gone.example"].iter().map(|to| mailbox(&server, to)).collect();
    assert!(server.stop().success());
    server.start_again();
    // Mail goes at once, whatever waits.
    send(&server, "bob@good.example", "again@test");
    lab.wait_clean("again@test", &["bob@good.example"]);
    for (to, before) in of_clock.iter().zip(&before) {
        let after = pending(&server, to);
        assert_eq!((&after["next_try"], &after["last_reply"]), (&before["next_try"], &before["last_reply"]), "{to}");
    }
    let again: Vec<Value> = ["ann@good.example", "ann@gone.example"].iter().map(|to| mailbox(&server, to)).collect();
    assert_eq!(again, known);
    assert!(server.log().matching(&["stat=Deferred", "@full.example"]).is_empty(), "nothing is tried before its time");
    assert!(server.log().matching(&["cannot read"]).is_empty());
}

#[test]
fn a_file_that_is_not_ours_stops_no_start() {
    let lab = lab();
    let mut server = patient(&lab).start();
    teach(&server);
    assert!(server.stop().success());
    let path = server.path("data/learned");
    let good = fs::read(&path).expect("a stop writes it");
    let text = String::from_utf8(good.clone()).expect("text");
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 1;
    let bad: [(&str, Vec<u8>); 6] = [
        ("damaged", flipped),
        ("damaged", good[..good.len() / 2].to_vec()),
        ("damaged", [&good[..], b"more\n"].concat()),
        ("version 9", text.replacen("learned 1 ", "learned 9 ", 1).into_bytes()),
        ("not such a file", b"#!/bin/sh\n".to_vec()),
        ("not such a file", Vec::new()),
    ];
    for (why, octets) in bad {
        fs::write(&path, octets).expect("it can be written");
        server.start_again();
        server.wait_log(&["cannot read the state of hosts and mailboxes", why]);
        send(&server, "ann@good.example", "again@test");
        server.kill();
        assert!(server.path("data/learned.bad").exists(), "{why}");
    }
}

/// A weekly list on a server that is stopped in between, or killed after the minute: its third refused post suspends.
#[test]
fn refused_posts_are_counted_over_stops() {
    let lab = lab();
    let mut server = builder(&lab)
        .list("news", &["ann@gone.example", "bob@good.example"])
        .set("lists.news.suspend_posts", "3")
        .start();
    let is_suspended = |server: &Server| server.ask(&["status"]).expect("an answer")["suspended_total"] == 1;
    for post in 1..=3 {
        assert!(!is_suspended(&server), "before post {post}");
        send(&server, "news@lists.test", &format!("post{post}@test"));
        server.wait_empty();
        if post < 3 {
            assert!(server.stop().success());
            server.start_again();
        }
    }
    wait_until("the subscriber is suspended", || is_suspended(&server));
}
