//! Hostile servers and failing machines: each gets its answer, and everybody else full service (bad-input.md, "Faults").

use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use stentor_tests::{TestLab, message, message_with, wait_until};

use crate::kit::{SENDER, builder, drained, fates, post, wait_fates};

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
    let quick = stages.iter().fold(builder(&lab), |b, stage| b.set(&format!("delivery.{stage}_timeout_s"), "1"));
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
    let now = fates(&server);
    assert_eq!((now.pending, now.bounced), (faults.len() as u64, 0), "{now:?}");
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
    assert_eq!(fates(&server).pending, 12);
}

#[test]
fn when_descriptors_run_out_accepting_pauses_and_deliveries_go_on() {
    let lab = TestLab::sites(&["a.example", "b.example", "c.example"]);
    let mut server = builder(&lab).prepare();
    let command = server.behind(&["prlimit", "--nofile=256:256"]);
    server.start_as(command);
    let mut early = server.smtp();
    let crowd: Vec<TcpStream> =
        (0..400).map(|_| TcpStream::connect(server.address()).expect("the kernel takes it")).collect();
    server.wait_log(&["accepting pauses"]);
    let people = ["ann@a.example", "bob@b.example", "cid@c.example"];
    let wire = message("crowd@test", "crowd");
    lab.recorder().expect_message(wire.clone().into());
    early.send(SENDER, &people, &wire).expect(250);
    lab.wait_clean("crowd@test", &people);
    drop(crowd);
    // Afterwards new sessions are greeted again.
    post(&server, &lab, &people, "after@test");
    lab.wait_clean("after@test", &people);
}

#[test]
fn a_failed_sync_is_answered_451_and_the_server_goes_on() {
    let lab = TestLab::sites(&["eio.example"]);
    let mut server = builder(&lab).prepare();
    let trace = server.path("strace.log");
    let trace = trace.to_str().expect("a plain path");
    let strace = [
        "strace",
        "-D",
        "-f",
        "-qq",
        "-o",
        trace,
        "-e",
        "trace=fdatasync",
        "-e",
        "inject=fdatasync:error=EIO:when=6+7",
    ];
    let command = server.behind(&strace);
    server.start_as(command);
    let mut smtp = server.smtp();
    let (mut taken, mut refused) = (Vec::new(), Vec::new());
    for n in 0..200 {
        let id = format!("eio{n}@test");
        let wire = message(&id, "eio");
        lab.recorder().expect_message(wire.clone().into());
        match smtp.send(SENDER, &["ann@eio.example"], &wire) {
            reply if reply.code == 250 => taken.push(id),
            reply => {
                reply.expect_text("451 4.3.0");
                refused.push(id);
            }
        }
        if refused.len() >= 3 && taken.len() >= 20 {
            break;
        }
    }
    assert!(!refused.is_empty(), "no sync failed: {}", std::fs::read_to_string(trace).unwrap_or_default());
    server.wait_log(&["I/O error", "batch was refused"]);
    for id in &taken {
        lab.wait_clean(id, &["ann@eio.example"]);
    }
    assert_eq!(drained(&server).acknowledged, taken.len() as u64);
    // What was refused is not there after a restart either, and what was taken is not sent again.
    assert!(server.stop().success());
    server.start_again();
    post(&server, &lab, &["ann@eio.example"], "after@test");
    lab.wait_clean("after@test", &["ann@eio.example"]);
    let fates = drained(&server);
    assert_eq!((fates.acknowledged, fates.delivered), (taken.len() as u64 + 1, taken.len() as u64 + 1));
    assert!(refused.iter().all(|id| lab.recorder().copies_of(id) == 0));
    assert_eq!(lab.stats().sinks.duplicates, 0);
}

/// A small file system of our own; unmounted when dropped.
struct Mount(PathBuf);

impl Mount {
    fn tmpfs(path: &Path, size: &str) -> Mount {
        std::fs::create_dir_all(path).expect("a folder");
        let options = format!("size={size},mode=700");
        let done = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(path).status();
        assert!(done.is_ok_and(|status| status.success()), "this test mounts a small file system and must run as root");
        Mount(path.to_owned())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily: the server may just be ending.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_is_answered_452_and_recovers() {
    let lab = TestLab::start("[[site]]\nname = 'full.example'\nbehaviour = { dot_delay_ms = 5 }\n");
    let place = tempfile::tempdir().expect("a temporary folder");
    let mount = Mount::tmpfs(&place.path().join("disk"), "64m");
    let server = builder(&lab)
        .set("data_dir", &format!("{:?}", mount.0.join("data")))
        .set("journal.segment_bytes", "1048576")
        .set("journal.batch_bytes_max", "524288")
        .set("journal.reserve_bytes", "8388608")
        .start();
    // Somebody else fills the disk.
    let ballast = mount.0.join("ballast");
    let mut file = std::fs::File::create(&ballast).expect("room for a file");
    let block = vec![b'x'; 1 << 20];
    let mut blocks = 0;
    while file.write_all(&block).is_ok() {
        blocks += 1;
        assert!(blocks < 100, "the file system is small");
    }
    let body = "a line of a message that takes room\r\n".repeat(2000);
    let (mut taken, mut refusal) = (Vec::new(), None);
    let mut smtp = server.smtp();
    for n in 0..400 {
        let id = format!("full{n}@test");
        let wire = message_with(&id, "", &body);
        let mail = smtp.cmd(&format!("MAIL FROM:<{SENDER}>"));
        if mail.code != 250 {
            refusal = Some(mail);
            break;
        }
        smtp.cmd("RCPT TO:<ann@full.example>").expect(250);
        smtp.cmd("DATA").expect(354);
        lab.recorder().expect_message(wire.clone().into());
        smtp.raw(&stentor_tests::dot_stuff(&wire));
        let reply = smtp.reply();
        if reply.code != 250 {
            refusal = Some(reply);
            break;
        }
        taken.push(id);
    }
    refusal.expect("400 messages of 70 KiB do not fit").expect_text("452 4.3.1");
    // What was taken is delivered meanwhile.
    for id in &taken {
        lab.wait_clean(id, &["ann@full.example"]);
    }
    wait_fates(&server, "deliveries drain", |fates| fates.pending == 0 && fates.delivered == taken.len() as u64);
    // There is room again, and nobody needs to do anything.
    std::fs::remove_file(&ballast).expect("the file is there");
    drop(file);
    wait_until("mail is taken again", || {
        let taken = smtp.cmd(&format!("MAIL FROM:<{SENDER}>")).code == 250;
        smtp.cmd("RSET").expect(250);
        taken
    });
    post(&server, &lab, &["ann@full.example"], "room@test");
    lab.wait_clean("room@test", &["ann@full.example"]);
    drop(server);
}
