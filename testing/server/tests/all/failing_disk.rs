//! Failing writes and syncs, by strace: 451 (452 if the disk is full), never 250 for anything not on disk; the failed
//! file is never written or synced again; service continues in a new one, and a restart finds what was acknowledged and
//! nothing else.

use std::collections::BTreeSet;
use std::path::Path;

use stentor_harness::{Load, Mail, Server, TestLab, wait_until};

use crate::account::{CLIENTS, judge, six_sites, under_load};
use crate::kit::SENDER;

/// Enough to go through several segments of 1 MiB.
const MESSAGES_MIN: usize = 120;
const MAIL: Mail = Mail { sender: SENDER, sites: 6, large_one_in: 5, large_lines: 3000 };
/// One in fifteen is larger than several segments, so that new ones must be made however quickly mail leaves.
const LARGE: Mail = Mail { sender: SENDER, sites: 6, large_one_in: 15, large_lines: 250_000 };

/// Starts the server with a fault (`fdatasync:error=EIO:when=6+7`; strace counts the calls of each thread).
fn start_failing(server: &mut Server, fault: &str, paths: &[String]) {
    let trace = server.path("strace.log");
    let trace = trace.to_str().expect("a plain path");
    let inject = format!("inject={fault}");
    let calls = "trace=fdatasync,fsync,pwrite64,openat,rename,fallocate,chmod,fchmodat";
    let mut strace = vec!["strace", "-D", "-f", "-y", "-qq", "-s", "0", "-o", trace, "-e", calls, "-e", &inject];
    for path in paths {
        strace.extend(["-P", path]);
    }
    let command = server.behind(&strace);
    server.start_as(command);
}

/// A write or sync of a segment in the trace: the call, the file, and whether it failed.
fn touch(line: &str) -> Option<(&str, &str, bool)> {
    let call = ["fdatasync(", "pwrite64("].into_iter().find(|call| line.contains(call))?;
    let file = line.split_once('<')?.1.split_once('>')?.0;
    let file = file.strip_suffix(" (deleted)").unwrap_or(file).rsplit('/').next()?;
    file.starts_with("seg-").then_some((call, file, line.contains("(INJECTED)") && line.contains("EIO")))
}

/// No file is written or synced again after a failure.
fn assert_left_alone(trace: &Path) {
    let trace = std::fs::read_to_string(trace).expect("strace wrote a trace");
    let mut failed = BTreeSet::new();
    for line in trace.lines() {
        // A call that another thread interrupted is on two lines; the first one names the file.
        let Some((call, file, fails)) = touch(line) else { continue };
        assert!(!failed.contains(file), "{call} of {file} after it had failed: {line}");
        if fails {
            failed.insert(file.to_owned());
        }
    }
}

fn injected(trace: &Path) -> usize {
    let trace = std::fs::read_to_string(trace).unwrap_or_default();
    trace.lines().filter(|line| line.contains("(INJECTED)")).count()
}

/// Puts an empty registry in place, so that the calls that are counted are the journal's.
fn place_registry(server: &Server) {
    let mut other = Server::builder().start();
    let made = other.path("data").join("registry.sqlite");
    std::fs::create_dir_all(server.path("data")).expect("a folder");
    assert!(other.stop().success());
    std::fs::copy(made, server.path("data").join("registry.sqlite")).expect("the registry is there");
}

/// Load through a fault that is met, a stop, and a start without it. Returns what was refused, by text.
fn survives(fault: &str, paths: &[&str], mail: Mail, refused_min: usize) -> Vec<String> {
    let lab = six_sites();
    let mut server = under_load(&lab).prepare();
    let journal = server.path("data").join("journal");
    place_registry(&server);
    let paths: Vec<String> = paths.iter().map(|name| journal.join(name).display().to_string()).collect();
    start_failing(&mut server, fault, &paths);
    let trace = server.path("strace.log");
    let load = Load::start(&server, lab.recorder(), CLIENTS / 2, mail);
    wait_until(&format!("faults ({fault}) and mail between them"), || {
        load.taken() >= MESSAGES_MIN && load.refused().values().sum::<usize>() >= refused_min && injected(&trace) > 0
    });
    let (refused, refused_ids) = (load.refused(), load.refused_ids());
    let taken = load.end();
    judge(&lab, &server, &taken, &[]).unwrap_or_else(|what| panic!("{fault}: {what}"));
    assert!(server.stop().success(), "{:?}", server.log().lines());
    assert_left_alone(&trace);
    server.start_again();
    judge(&lab, &server, &taken, &[]).unwrap_or_else(|what| panic!("{fault}, after a start: {what}"));
    let again = refused_ids.iter().find(|id| lab.recorder().copies_of(id) > 0);
    assert_eq!(again, None, "{fault}: refused, and sent all the same");
    refused.into_keys().collect()
}

#[track_caller]
fn assert_all(refused: &[String], start: &str) {
    assert!(!refused.is_empty() && refused.iter().all(|text| text.starts_with(start)), "{refused:?}");
}

#[test]
fn a_failed_sync_is_answered_451_and_its_segment_left() {
    assert_all(&survives("fdatasync:error=EIO:when=6+40", &[], MAIL, 2), "451 4.3.0");
}

#[test]
fn a_failed_write_is_answered_451_and_its_segment_left() {
    assert_all(&survives("pwrite64:error=EIO:when=8+40", &[], MAIL, 2), "451 4.3.0");
}

#[test]
fn a_write_for_which_there_is_no_room_is_answered_452_and_tried_again() {
    // As copy-on-write file systems say it, even of blocks that are allocated.
    assert_all(&survives("pwrite64:error=ENOSPC:when=8+40", &[], MAIL, 2), "452 4.3.1");
}

/// Faults of making a segment: whether a client hears of it depends on how many are ready.
#[test]
fn segments_that_cannot_be_made_lose_nothing() {
    let names = ["seg-00000002", "seg-00000003", "seg-00000005", "new-00000003", "new-00000004"];
    for (fault, paths) in [
        // The first three make a new store's names durable, the next two the key of copies, two more a certificate;
        // without them there is no start.
        ("fsync:error=EIO:when=8+2", &[][..]),
        ("rename:error=EIO:when=4+2", &[]),
        ("fallocate:error=EIO:when=2+2", &[]),
        ("fallocate:error=ENOSPC:when=2+2", &[]),
        ("openat:error=EIO", &names),
    ] {
        let refused = survives(fault, paths, LARGE, 0);
        let answer = |text: &String| text.starts_with("451 4.3.0") || text.starts_with("452 4.3.1");
        assert!(refused.iter().all(answer), "{fault}: {refused:?}");
    }
}

#[test]
fn the_log_status_and_doctor_tell_of_a_failed_sync() {
    let lab = TestLab::sites(&["eio.example"]);
    let mut server = under_load(&lab).prepare();
    start_failing(&mut server, "fdatasync:error=EIO:when=6", &[]);
    let mut smtp = server.smtp();
    let mut refused = None;
    for n in 0..20 {
        let wire = stentor_harness::message(&format!("eio{n}@test"), "eio");
        lab.recorder().expect_message(wire.clone().into());
        let reply = smtp.send(SENDER, &["ann@eio.example"], &wire);
        if reply.code != 250 {
            refused = Some(reply);
            break;
        }
    }
    refused.expect("the sixth sync fails").expect_text("451 4.3.0");
    let line = server.wait_log(&["a batch was refused", "I/O error on seg-", "Input/output error"]);
    assert!(line.contains("ERROR") && line.contains("offset"), "{line}");
    assert_eq!(server.status()["journal_abandoned"], 1);
    let told = |server: &Server| {
        let output = server.operator(&["doctor"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("abandoned after a failed write or sync (EIO): seg-"), "{text}");
        assert!(text.contains("refused with 451") && text.contains("smartctl"), "{text}");
    };
    told(&server);
    server.kill();
    told(&server);
}

#[test]
fn a_control_socket_that_there_is_no_room_for_is_made_later() {
    let mut server = Server::builder().prepare();
    // The first time in each thread: at the start, and again when it is tried again.
    start_failing(&mut server, "chmod,fchmodat:error=ENOSPC:when=1", &[]);
    server.wait_log(&["WARN", "cannot create the control socket: no space"]);
    server.smtp().quit();
    server.wait_log(&["control socket created"]);
    assert_eq!(server.status()["messages"], 0);
    assert!(server.stop().success());
}

#[test]
fn the_names_of_a_new_journal_are_durable_before_mail_is_taken() {
    let lab = TestLab::sites(&["one.example"]);
    let mut server = crate::kit::builder(&lab).set("data_dir", "\"spool/mail/data\"").prepare();
    start_failing(&mut server, "fsync:error=EIO:when=65535", &[]);
    let mut client = server.smtp();
    client.send(SENDER, &["ann@one.example"], &stentor_harness::message("first@test", "x")).expect(250);
    let trace = std::fs::read_to_string(server.path("strace.log")).expect("strace wrote a trace");
    // What a power cut could take with it: each folder that was made, in the one above it.
    for above in ["", "spool", "spool/mail", "spool/mail/data"] {
        let folder = server.path(above).display().to_string();
        let folder = format!("<{}>", folder.trim_end_matches('/'));
        let is_synced = |line: &str| line.contains("fsync(") && line.contains(&folder);
        assert!(trace.lines().any(is_synced), "{folder} is not synced:\n{trace}");
    }
}
