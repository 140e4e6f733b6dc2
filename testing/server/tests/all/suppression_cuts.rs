//! Power cuts on xfs while suppressions are added over the control socket: each that was acknowledged is there after
//! the next start. `eatmydata`, which makes every sync do nothing, shows that this test can fail. The registry alone is
//! cut too, with `synchronous = OFF` as the control.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::process::Signal;
use stentor_harness::{Kind, LoopFs, Server, wait_until};
use stentor_registry::{
    AddressRegistry, Durability, FILE, Scope, SqliteStore, Subject, Suppression, SuppressionReason,
};

use crate::kit::bare;

const CUTS: usize = 3;
/// How often a missing sync may go unseen before the checker counts as blind.
const BLIND_ROUNDS_MAX: usize = 4;
const WRITERS: u64 = 4;

/// Entries that the server has acknowledged.
type Acknowledged = Arc<Mutex<BTreeSet<u64>>>;

fn on(fs: &LoopFs) -> Server {
    bare().set("data_dir", &format!("\"{}\"", fs.path().join("data").display())).prepare()
}

/// Adds every `WRITERS`th entry from `first` on until the server is gone.
fn write(socket: PathBuf, first: u64, acknowledged: Acknowledged) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let Ok(stream) = UnixStream::connect(&socket) else { return };
        let mut replies = BufReader::new(stream.try_clone().expect("a socket"));
        let mut requests = stream;
        for number in (first..).step_by(WRITERS as usize) {
            let entry = format!("{{\"subject\":\"{number}@x.example\"}}");
            let line = format!("{{\"v\":1,\"verb\":\"suppress\",\"entries\":[{entry}]}}\n");
            let mut reply = String::new();
            if requests.write_all(line.as_bytes()).is_err() || !matches!(replies.read_line(&mut reply), Ok(1..)) {
                return;
            }
            if reply.contains("\"ok\":true") {
                acknowledged.lock().expect("a lock").insert(number);
            }
        }
    })
}

/// The entries that the server has.
fn stored(server: &Server) -> BTreeSet<u64> {
    let text = server.operator_text(&["suppress", "export"]);
    text.lines().skip(1).filter_map(|line| line.split('@').next()?.parse().ok()).collect()
}

/// Cuts the power so often while entries are added. `None`: not possible here.
fn cut(rounds: usize, program: &[&str]) -> Option<Result<(), String>> {
    let mut fs = LoopFs::make(Kind::Xfs)?;
    let mut server = on(&fs);
    let acknowledged = Acknowledged::default();
    for round in 0..=rounds {
        let command = if program.is_empty() { server.command() } else { server.behind(program) };
        if let Err(log) = server.try_start_as(command) {
            return Some(Err(format!("the start after a power cut: {log}")));
        }
        let (all, before) = (stored(&server), acknowledged.lock().expect("a lock").clone());
        let lost = before.difference(&all).count();
        println!("round {round}: {} entries acknowledged, {} stored, {lost} lost", before.len(), all.len());
        if lost > 0 {
            return Some(Err(format!("{lost} entries lost")));
        }
        if round == rounds {
            return Some(Ok(()));
        }
        let first = all.last().map_or(0, |last| last + 1);
        let socket = fs.path().join("data/control.sock");
        let writers: Vec<_> = (0..WRITERS).map(|n| write(socket.clone(), first + n, acknowledged.clone())).collect();
        wait_until("entries are added", || acknowledged.lock().expect("a lock").len() > before.len() + 200);
        server.signal(Signal::STOP);
        fs.power_cut();
        server.kill();
        for writer in writers {
            writer.join().expect("a writer");
        }
        fs.reboot();
    }
    None
}

#[test]
fn a_power_cut_loses_no_suppression() {
    if let Some(Err(what)) = cut(CUTS, &[]) {
        panic!("{what}");
    }
}

#[test]
fn without_syncs_suppressions_are_lost() {
    for _ in 0..BLIND_ROUNDS_MAX {
        match cut(1, &["eatmydata"]) {
            None => return,
            Some(Err(what)) => return println!("found: {what}"),
            Some(Ok(())) => {}
        }
    }
    panic!("{BLIND_ROUNDS_MAX} power cuts without any sync, and nothing is found missing");
}

/// Adds entries to a registry on xfs, and cuts the power. Returns how many are lost of those that were answered.
/// `None`: not possible here.
fn lost_entries(durability: Durability) -> Option<usize> {
    const ENTRIES: u64 = 300;
    let mut fs = LoopFs::make(Kind::Xfs)?;
    let path = fs.path().join(FILE);
    let address = |number: u64| format!("{number}@x.example");
    let open = || {
        let store = SqliteStore::open_with(&path, durability).expect("a registry");
        AddressRegistry::start(Box::new(store), &path).expect("a registry")
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let registry = open();
    for number in 0..ENTRIES {
        let subject = Subject::parse(&address(number)).expect("an address");
        let entry = Suppression::new(subject, Scope::Everything, SuppressionReason::Complaint, "test", number);
        runtime.block_on(registry.suppress(entry)).expect("it is added");
    }
    fs.power_cut();
    registry.close();
    drop(registry);
    fs.reboot();
    let registry = open();
    let lost = (0..ENTRIES).filter(|number| registry.is_suppressed(&address(*number), None, "", 0).is_none()).count();
    registry.close();
    println!("{durability:?}: {lost} of {ENTRIES} lost");
    Some(lost)
}

#[test]
fn full_syncs_keep_what_is_lost_without_them() {
    assert_eq!(lost_entries(Durability::Full).unwrap_or(0), 0);
    assert_ne!(lost_entries(Durability::Off).unwrap_or(1), 0, "the checker is blind");
}
