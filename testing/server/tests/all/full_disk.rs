//! No space and no inodes, on a real file system of 64 MB: 452 4.3.1 at MAIL before anything is lost, deliveries drain,
//! and mail is accepted again without intervention.

use std::fs::{self, File};
use std::io::Write;

use stentor_harness::{Builder, Kind, LoopFs, Reply, Server, Smtp, TestLab, dot_stuff, message_with, wait_until};

use crate::kit::{SENDER, builder, closed_port, fates, post, wait_fates};

const MIB: u64 = 1 << 20;

/// A site that is slow, so that mail piles up.
fn slow_site() -> TestLab {
    TestLab::start("[[site]]\nname = 'full.example'\nbehaviour = { dot_delay_ms = 5 }\n")
}

fn configured(fs: &LoopFs, lab: &TestLab) -> Builder {
    builder(lab)
        .set("data_dir", &format!("\"{}\"", fs.path().join("data").display()))
        .set("journal.segment_bytes", "1048576")
        .set("journal.batch_bytes_max", "524288")
        .set("journal.reserve_bytes", "8388608")
}

/// Hands in messages of 70 KiB until one is refused; Message-IDs of those that were taken.
fn fill(lab: &TestLab, smtp: &mut Smtp, name: &str, most: usize) -> (Vec<String>, Option<Reply>) {
    let body = "a line of a message that takes room\r\n".repeat(2000);
    let mut taken = Vec::new();
    for n in 0..most {
        let id = format!("{name}{n}@test");
        let wire = message_with(&id, "", &body);
        let mail = smtp.cmd(&format!("MAIL FROM:<{SENDER}>"));
        if mail.code != 250 {
            return (taken, Some(mail));
        }
        smtp.cmd("RCPT TO:<ann@full.example>").expect(250);
        smtp.cmd("DATA").expect(354);
        lab.recorder().expect_message(wire.clone().into());
        smtp.raw(&dot_stuff(&wire));
        let reply = smtp.reply();
        if reply.code != 250 {
            return (taken, Some(reply));
        }
        taken.push(id);
    }
    (taken, None)
}

fn wait_room(smtp: &mut Smtp) {
    wait_until("mail is taken again", || {
        let taken = smtp.cmd(&format!("MAIL FROM:<{SENDER}>")).code == 250;
        smtp.cmd("RSET").expect(250);
        taken
    });
}

#[track_caller]
fn delivered(lab: &TestLab, server: &Server, taken: &[String]) {
    for id in taken {
        lab.wait_clean(id, &["ann@full.example"]);
    }
    wait_fates(server, "deliveries drain", |fates| fates.pending == 0);
    assert_eq!(lab.stats().sinks.duplicates, 0);
}

#[test]
fn a_disk_that_somebody_else_fills_is_answered_452_and_recovers() {
    let Some(fs) = LoopFs::make_with(Kind::Ext4, 64 * MIB, &["-m", "0"]) else { return };
    let lab = slow_site();
    let mut server = configured(&fs, &lab).start();
    let ballast = fs.path().join("ballast");
    let mut file = File::create(&ballast).expect("room for a file");
    let block = vec![b'x'; MIB as usize];
    while file.write_all(&block).is_ok() {}
    file.sync_all().expect("what fitted is written");
    let mut smtp = server.smtp();
    let (taken, refusal) = fill(&lab, &mut smtp, "full", 400);
    refusal.expect("400 messages of 70 KiB do not fit").expect_text("452 4.3.1");
    server.wait_log(&["the disk is nearly full"]);
    // Full as it is: a crash loses nothing of it.
    server.kill();
    server.start_again();
    for id in &taken {
        // A kill may repeat the last ones.
        lab.wait(id, |recorder| recorder.audit(id, ["ann@full.example"]).missing.is_empty());
    }
    wait_fates(&server, "deliveries drain", |fates| fates.pending == 0);
    assert_eq!(fates(&server).delivered, taken.len() as u64);
    drop(file);
    fs::remove_file(&ballast).expect("the file is there");
    let mut smtp = server.smtp();
    wait_room(&mut smtp);
    post(&server, &lab, &["ann@full.example"], "room@test");
    lab.wait_clean("room@test", &["ann@full.example"]);
}

#[test]
fn a_disk_that_the_queue_fills_keeps_its_reserve_and_drains() {
    let Some(fs) = LoopFs::make_with(Kind::Ext4, 64 * MIB, &["-m", "0"]) else { return };
    let lab = slow_site();
    // Nothing is delivered until the route is taken away, so nothing is freed.
    let host = format!("127.0.0.1:{}", closed_port());
    let server = configured(&fs, &lab).route("full.example", &[&host]).start();
    let mut smtp = server.smtp();
    let (taken, refusal) = fill(&lab, &mut smtp, "own", 2_000);
    refusal.expect("the queue fills 64 MB").expect_text("452 4.3.1");
    let free = rustix_free(&fs);
    assert!(free >= 4 * MIB, "only {free} octets of the reserve are left");
    assert!(taken.len() > 100, "only {} messages fitted", taken.len());
    server.edit_config(|text| text.lines().filter(|line| !line.contains(&host)).collect::<Vec<_>>().join("\n"));
    assert!(server.operator(&["reload"]).status.success());
    delivered(&lab, &server, &taken);
    assert_eq!(fates(&server).delivered, taken.len() as u64);
    // The space of what was delivered is used again: as much fits as before, three times over.
    for round in 0..3 {
        wait_room(&mut smtp);
        let (taken, _) = fill(&lab, &mut smtp, &format!("again{round}."), 300);
        delivered(&lab, &server, &taken);
    }
    server.wait_log(&["disk space is free again"]);
}

fn rustix_free(fs: &LoopFs) -> u64 {
    let figures = rustix::fs::statvfs(fs.path()).expect("the file system is mounted");
    figures.f_bavail * figures.f_frsize
}

#[test]
fn a_disk_without_inodes_is_answered_452_and_recovers() {
    let Some(fs) = LoopFs::make_with(Kind::Ext4, 64 * MIB, &["-m", "0", "-N", "64"]) else { return };
    let lab = slow_site();
    // Nothing is delivered until the route is taken away: what is freed would be room for mail.
    let host = format!("127.0.0.1:{}", closed_port());
    let server = configured(&fs, &lab).route("full.example", &[&host]).start();
    // Somebody else's files, empty ones: there is room for octets all the time.
    let crumbs = fs.path().join("crumbs");
    fs::create_dir(&crumbs).expect("an inode for a folder");
    let mut n = 0;
    while File::create(crumbs.join(n.to_string())).is_ok() {
        n += 1;
        assert!(n < 100, "the file system has 64 inodes");
    }
    let mut smtp = server.smtp();
    let (taken, refusal) = fill(&lab, &mut smtp, "inode", 400);
    refusal.expect("no segment can be made").expect_text("452 4.3.1");
    assert!(rustix_free(&fs) > 16 * MIB);
    // At MAIL from now on, not after the data.
    assert_eq!(smtp.cmd(&format!("MAIL FROM:<{SENDER}>")).code, 452);
    server.edit_config(|text| text.lines().filter(|line| !line.contains(&host)).collect::<Vec<_>>().join("\n"));
    assert!(server.operator(&["reload"]).status.success());
    delivered(&lab, &server, &taken);
    fs::remove_dir_all(&crumbs).expect("the files are there");
    wait_room(&mut smtp);
    let (more, refusal) = fill(&lab, &mut smtp, "room", 100);
    assert_eq!(refusal, None);
    delivered(&lab, &server, &more);
}
