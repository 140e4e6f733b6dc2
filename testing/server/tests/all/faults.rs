//! Hostile servers and failing machines: each is handled, without affecting anyone else (bad-input.md, "Faults").

use std::net::TcpStream;

use stentor_harness::{TestLab, message};

use crate::kit::{SENDER, builder, fates, post, wait_fates};

#[test]
fn hostile_hosts_take_nothing_from_the_others() {
    let faults = [
        ("endless-greeting", "at_greeting = 'endless'"),
        ("endless-ehlo", "at_ehlo = 'endless'"),
        ("endless-rcpt", "at_rcpt = 'endless'"),
        ("endless-dot", "at_dot = 'endless'"),
        ("hang-greeting", "at_greeting = 'hang'"),
        ("hang-ehlo", "at_ehlo = 'hang'"),
        ("hang-mail", "at_mail = 'hang'"),
        ("hang-rcpt", "at_rcpt = 'hang'"),
        ("hang-data", "at_data = 'hang'"),
        ("hang-body", "at_body = 'hang', body_bytes = 10"),
        ("hang-dot", "at_dot = 'hang'"),
        ("drop-body", "at_body = 'drop', body_bytes = 10"),
        ("reset-body", "at_body = 'reset', body_bytes = 10"),
        ("drop-dot", "at_dot = 'drop'"),
        ("reset-mail", "at_mail = 'reset'"),
        ("never-accept", "connect = 'never_accept'"),
        ("refuse", "connect = 'refuse'"),
        ("reset-connect", "connect = 'reset'"),
        ("busy", "at_greeting = '421 4.3.2 busy'"),
        ("trickle", "trickle_ms = 400"),
    ];
    let mut scenario = "[[site]]\nname = 'good.example'\n[[site]]\nname = 'fine.example'\n".to_owned();
    for (name, fault) in faults {
        scenario.push_str(&format!("[[site]]\nname = '{name}.example'\nbehaviour = {{ {fault} }}\n"));
    }
    let lab = TestLab::start(&scenario);
    let stages = ["connect", "greeting", "ehlo", "mail", "rcpt", "data_init", "data_block", "data_done"];
    // A good host that is late with its 250 would get the message twice.
    let seconds = |stage: &str| if stage == "data_done" { "10" } else { "3" };
    let quick =
        stages.iter().fold(builder(&lab), |b, stage| b.set(&format!("delivery.{stage}_timeout_s"), seconds(stage)));
    let server = quick.start();
    let good: Vec<String> = (0..50).flat_map(|n| ["good", "fine"].map(|site| format!("u{n}@{site}.example"))).collect();
    let good: Vec<&str> = good.iter().map(String::as_str).collect();
    let bad: Vec<String> = faults.iter().map(|(name, _)| format!("ann@{name}.example")).collect();
    let all: Vec<&str> = bad.iter().map(String::as_str).chain(good.iter().copied()).collect();
    let wire = message("first@test", "all");
    lab.recorder().expect_message(wire.clone().into());
    server.smtp().send(SENDER, &all, &wire).expect(250);
    lab.wait("the good ones have theirs", |r| r.audit("first@test", good.iter().copied()).missing.is_empty());
    // Each of the others has failed at least once, and nobody is given up.
    for (name, _) in faults {
        server.wait_log(&[&format!("relay=mx1.{name}.example"), "stat=Deferred"]);
    }
    // But for two: who is lost twice within a chunk gets the message by DATA, where so small a one comes as a whole.
    let by_data = ["drop-body", "reset-body"];
    for name in by_data {
        server.wait_log(&[&format!("relay=mx1.{name}.example"), "stat=Sent"]);
    }
    let pending = (faults.len() - by_data.len()) as u64;
    wait_fates(&server, "who fails waits", |now| now.pending == pending);
    assert_eq!(fates(&server).bounced, 0);
    // While all that goes on, the next message gets through as well.
    post(&server, &lab, &good, "second@test");
    lab.wait_clean("second@test", &good);
    let audit = lab.recorder().audit("first@test", good.iter().copied());
    assert!(audit.duplicates.is_empty() && audit.damaged == 0, "{audit:?}");
}

#[test]
fn a_budget_full_of_hanging_hosts_still_serves_the_good() {
    let hanging: String = (0..12)
        .map(|n| format!("[[site]]\nname = 'hang{n}.example'\nbehaviour = {{ at_greeting = 'hang' }}\n"))
        .collect();
    let lab = TestLab::start(&format!("{hanging}[[site]]\nname = 'good.example'\n"));
    let server =
        builder(&lab).set("delivery.connections_max", "10").set("delivery.connections_per_site_max", "5").start();
    let bad: Vec<String> = (0..12).map(|n| format!("ann@hang{n}.example")).collect();
    let bad: Vec<&str> = bad.iter().map(String::as_str).collect();
    post(&server, &lab, &bad, "hang@test");
    // Greeting time-outs are five minutes: the good one does not wait for them.
    post(&server, &lab, &["ann@good.example"], "good@test");
    lab.wait_clean("good@test", &["ann@good.example"]);
    wait_fates(&server, "the good one is done with", |now| now.pending == 12);
}

/// System calls of `accept` that failed, in a trace of strace.
fn refused_accepts(trace: &std::path::Path) -> usize {
    let trace = std::fs::read_to_string(trace).unwrap_or_default();
    trace.lines().filter(|line| line.contains("accept4(") && line.contains("EMFILE")).count()
}

#[test]
fn when_descriptors_run_out_accepting_pauses_and_deliveries_go_on() {
    const CROWD: usize = 400;
    let lab = TestLab::sites(&["a.example", "b.example", "c.example"]);
    let mut server = builder(&lab).prepare();
    let trace = server.path("strace.log");
    let limited = ["strace", "-D", "-f", "-qq", "-o", trace.to_str().expect("a plain path"), "-e", "trace=accept4"];
    let command = server.behind(&[&["prlimit", "--nofile=256:256"], &limited[..]].concat());
    server.start_as(command);
    let mut early = server.smtp();
    let crowd: Vec<TcpStream> =
        (0..CROWD).map(|_| TcpStream::connect(server.address()).expect("the kernel takes it")).collect();
    server.wait_log(&["accepting connections is paused"]);
    let people = ["ann@a.example", "bob@b.example", "cid@c.example"];
    // For as long as the crowd stands there: mail of those who are in is taken and delivered.
    for n in 0..20 {
        let id = format!("crowd{n}@test");
        let wire = message(&id, "crowd");
        lab.recorder().expect_message(wire.clone().into());
        early.send(SENDER, &people, &wire).expect(250);
        lab.wait_clean(&id, &people);
    }
    assert_eq!(server.log().matching(&["accepting connections is paused"]).len(), 1, "said once");
    // No spinning: accepting is not even tried in vain more often than there are clients.
    let vain = refused_accepts(&trace);
    assert!(vain <= CROWD, "accept failed {vain} times");
    drop(crowd);
    // Afterwards new sessions are greeted again.
    post(&server, &lab, &people, "after@test");
    lab.wait_clean("after@test", &people);
}

#[test]
fn strangers_leave_trusted_clients_a_part_of_the_descriptors() {
    let lab = TestLab::sites(&["a.example"]);
    let mut server = builder(&lab).prepare();
    // 128 sessions, of which the limit of 2,000 connections knows nothing.
    let command = server.behind(&["prlimit", "--nofile=256:256"]);
    server.start_as(command);
    let mut crowd: Vec<stentor_harness::Smtp> = Vec::new();
    for n in 0..150 {
        let mut stranger = server.connect_from(&format!("127.0.0.{}", 2 + n / 10));
        // Each is answered, by a greeting or a refusal.
        let code = stranger.reply().code;
        assert!(code == 220 || code == 421, "{code}");
        crowd.push(stranger);
    }
    server.smtp().quit();
    assert_eq!(server.log().matching(&["accepting connections is paused"]).len(), 0);
}
