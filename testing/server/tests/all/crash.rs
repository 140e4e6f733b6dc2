//! What survives: `kill -9` at any point, restarts under load, damaged files.
//!
//! The rule: whatever got a 250 is delivered, bounced or pending afterwards. A duplicate is possible only around a
//! kill, if the outcome was not yet synced; an orderly stop repeats nothing.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

use stentor_harness::{Load, Server, TestLab, message_with, wait_until};

use crate::account::{MAIL, killed, six_sites, under_load};
use crate::kit::{SENDER, builder, drained, fates, post};

#[test]
fn kill_nine_under_load_loses_nothing_that_was_acknowledged() {
    let lab = six_sites();
    let mut server = under_load(&lab).start();
    killed(&lab, &mut server, 8);
}

#[test]
fn stops_under_load_lose_and_repeat_nothing() {
    let lab = six_sites();
    let mut server = under_load(&lab).start();
    let load = Load::start(&server, lab.recorder(), 6, MAIL);
    for _ in 0..4 {
        let before = load.taken();
        wait_until("the load goes on", || load.taken() > before + 20);
        let status = server.stop();
        assert!(status.success(), "{status}: {:?}", server.log().lines());
        server.start_again();
        load.moved(&server);
    }
    let taken = load.end();
    let fates = drained(&server);
    let acknowledged: usize = taken.iter().map(|message| message.people.len()).sum();
    assert_eq!(fates.acknowledged, acknowledged as u64, "each 250 was read, and nothing else was taken: {fates:?}");
    assert_eq!(fates.delivered, fates.acknowledged, "{fates:?}");
    for message in &taken {
        let audit = lab.recorder().audit(&message.id, message.people.iter().map(String::as_str));
        assert!(audit.is_clean(), "{}: {audit:?}", message.id);
    }
    assert_eq!(lab.stats().sinks.duplicates, 0);
    lab.assert_no_violations();
}

#[test]
fn a_second_server_on_the_same_data_is_refused() {
    let lab = TestLab::sites(&["one.example"]);
    let server = builder(&lab).start();
    let second = server.command().output().expect("the binary can be run");
    let text = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && text.contains(&format!("in use by process {}", server.pid())), "{text}");
    post(&server, &lab, &["ann@one.example"], "first@test");
    lab.wait_clean("first@test", &["ann@one.example"]);
}

/// A store with ten undelivered messages; the server was killed.
pub fn ten_waiting() -> (TestLab, Server, Vec<String>) {
    let lab = TestLab::start(
        "[[site]]\nname = 'later.example'\n[[site.window]]\nfrom_s = 0\nto_s = 100000\nbehaviour = { connect = 'refuse' }\n",
    );
    let mut server = builder(&lab).set("retry.host_min_s", "3600").set("retry.host_max_s", "3600").start();
    let ids = (0..10).map(|n| format!("waiting{n}@test")).collect::<Vec<_>>();
    for id in &ids {
        // Larger than a block, so that damage hits one batch.
        let wire = message_with(id, "", &format!("the body of {id}\r\n").repeat(500));
        server.smtp().send(SENDER, &["ann@later.example"], &wire).expect(250);
    }
    assert_eq!(fates(&server).pending, 10);
    server.kill();
    (lab, server, ids)
}

/// The journal's file that holds a text, and the offset of its last occurrence.
pub fn find(server: &Server, text: &str) -> (PathBuf, u64) {
    let folder = server.path("data").join("journal");
    let files = std::fs::read_dir(&folder).expect("the journal is there").map(|entry| entry.expect("an entry").path());
    let found = files.filter_map(|path| {
        let octets = std::fs::read(&path).ok()?;
        let at = octets.windows(text.len()).rposition(|window| window == text.as_bytes())?;
        Some((path, at as u64))
    });
    found.last().unwrap_or_else(|| panic!("{text:?} is in no file of {}", folder.display()))
}

pub fn flip(path: &PathBuf, at: u64) {
    let mut file = std::fs::OpenOptions::new().read(true).write(true).open(path).expect("the file is there");
    let mut octet = [0];
    file.seek(SeekFrom::Start(at)).and_then(|_| file.read_exact(&mut octet)).expect("it can be read");
    octet[0] ^= 0x01;
    file.seek(SeekFrom::Start(at)).and_then(|_| file.write_all(&octet)).expect("it can be written");
}

#[test]
fn damage_in_the_middle_refuses_the_start_and_says_where() {
    let (_lab, mut server, ids) = ten_waiting();
    let (path, at) = find(&server, &format!("the body of {}\r\n", ids[4]));
    flip(&path, at + 3);
    for _ in 0..2 {
        let output = server.command().output().expect("the binary can be run");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{text}");
        let file = path.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(text.contains(&file) && text.contains("damaged at offset") && text.contains("salvage"), "{text}");
        let offset = text.split("at offset ").nth(1).and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
        let offset: u64 = offset.expect("an offset").parse().expect("a number");
        assert!(offset <= at && at - offset < 1 << 20, "offset {offset} of damage at {at}: {text}");
    }
    // Nothing was changed: repaired, it starts with everything.
    flip(&path, at + 3);
    server.start_again();
    assert_eq!(fates(&server).pending, 10);
}

#[test]
fn a_torn_tail_is_cut_and_the_rest_served() {
    let (lab, mut server, ids) = ten_waiting();
    // As a power cut leaves a write that was not answered: the last batch is there in part.
    let (path, at) = find(&server, &format!("the body of {}\r\n", ids[9]));
    let mut file = std::fs::OpenOptions::new().write(true).open(&path).expect("the file is there");
    let rest = usize::try_from(file.metadata().expect("its length").len() - at).expect("a segment");
    file.seek(SeekFrom::Start(at)).and_then(|_| file.write_all(&vec![0; rest])).expect("it can be written");
    drop(file);
    server.start_again();
    assert_eq!(fates(&server).pending, 9, "those before it are there");
    drop(lab);
}

#[test]
fn waiting_mail_is_served_after_a_restart() {
    let lab = TestLab::start(
        "[[site]]\nname = 'back.example'\n[[site.window]]\nfrom_s = 0\nto_s = 6\nbehaviour = { connect = 'refuse' }\n",
    );
    let mut server = builder(&lab).set("retry.host_min_s", "3600").set("retry.host_max_s", "3600").start();
    for n in 0..5 {
        post(&server, &lab, &["ann@back.example"], &format!("{n}@test"));
    }
    server.kill();
    wait_until("the outage is over", || lab.recorder().now_us() > 6_200_000);
    server.start_again();
    for n in 0..5 {
        lab.wait_clean(&format!("{n}@test"), &["ann@back.example"]);
    }
}
