//! `stentor-kit lab sink` and `lab hold`: every model accepts the same mail, stores hold whatever got a 250, counts are
//! exact.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use stentor_harness::{Smtp, message_with, stentor_kit, wait_until};

/// The sender of the messages.
const SENDER: &str = "ann@sender.example";

const MODELS: [&[&str]; 4] =
    [&["--model", "event"], &["--model", "event", "--threads", "2"], &["--model", "pool"], &["--model", "thread"]];

/// A running `stentor-kit lab sink`.
struct Sink {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
    addresses: Vec<SocketAddr>,
}

impl Sink {
    fn start(arguments: &[&str]) -> Sink {
        Sink::spawn(Command::new(stentor_kit()), "127.0.0.1:0", arguments)
    }

    fn spawn(mut command: Command, address: &str, arguments: &[&str]) -> Sink {
        command.args(["lab", "sink", address]).args(arguments).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it can be run");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut first = String::new();
        lines.read_line(&mut first).expect("it says where it listens");
        let addresses = if arguments.contains(&"--json") {
            let said: Value = serde_json::from_str(&first).unwrap_or_else(|error| panic!("{first:?}: {error}"));
            serde_json::from_value(said["smtp_at"].clone()).expect("addresses")
        } else {
            let addresses = first.trim().strip_prefix("SMTP at ").unwrap_or_else(|| panic!("{first:?}"));
            addresses.split(", ").map(|address| address.parse().expect("an address")).collect()
        };
        Sink { child, lines, addresses }
    }

    fn smtp(&self) -> Smtp {
        Smtp::connect(self.addresses[0]).greeted()
    }

    /// The next line of counters (with `--json --every`).
    fn counters(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("a line of counters");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    /// Ctrl-C; what it says from then on.
    fn end(mut self) -> String {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).expect("its output is text");
        assert!(self.child.wait().expect("it ends").success(), "{rest}");
        rest
    }

    /// The same with `--json`: the report, what the model met, the last counters.
    fn end_json(self) -> (Value, Value, Value) {
        let text = self.end();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
        let [.., report, counters] = lines.as_slice() else { panic!("{text}") };
        (report["report"].clone(), report["met"].clone(), counters.clone())
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // It has ended where the test has passed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn dump(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("the dump is there");
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// Messages of many sizes, with dots and long ones, each with an id of its own.
fn messages() -> Vec<Vec<u8>> {
    let make = |n: usize| {
        let lines = [0, 1, 3, 60, 900, 4000][n % 6];
        let body: String =
            (0..lines).map(|line| format!("{}line {line} of {n}\r\n", if line % 7 == 3 { "." } else { "" })).collect();
        message_with(&format!("{n}@sink.test"), "Subject: x\r\n", &body)
    };
    (0..24).map(make).collect()
}

#[test]
fn each_model_takes_the_same_messages() {
    let mut first: Option<BTreeSet<String>> = None;
    for model in MODELS {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("dump");
        let path_text = path.to_str().expect("a plain path");
        let sink = Sink::start(&[model, &["--json", "--record", "full", "--dump", path_text]].concat());
        let mut clients: Vec<Smtp> = (0..4).map(|_| sink.smtp()).collect();
        for (n, message) in messages().iter().enumerate() {
            clients[n % 4].send(SENDER, &["ann@one.example", "bob@two.example"], message).expect(250);
        }
        drop(clients);
        let (report, _, counters) = sink.end_json();
        assert_eq!((&counters["transactions"], &counters["recipients"]), (&24.into(), &48.into()), "{model:?}");
        assert_eq!(counters["violations"], 0, "{model:?}");
        assert_eq!(report["tables"]["load"][0]["messages"], 24);
        let copies: Vec<Value> = dump(&path).into_iter().filter(|line| line["digest"].is_string()).collect();
        for (n, message) in messages().iter().enumerate() {
            let id = format!("{n}@sink.test");
            let mut found = copies.iter().filter(|copy| copy["message_id"] == *id);
            assert!(found.all(|copy| copy["len"] == message.len()), "{model:?} {n}");
        }
        let digests: BTreeSet<String> = copies
            .iter()
            .map(|copy| format!("{} {} {}", copy["message_id"], copy["recipient"], copy["digest"]))
            .collect();
        assert_eq!(digests.len(), 48);
        assert_eq!(*first.get_or_insert_with(|| digests.clone()), digests, "{model:?}");
    }
}

#[test]
fn a_pool_lets_further_connections_wait() {
    let mut sink = Sink::start(&["--model", "pool", "--threads", "2", "--json", "--every", "0.02"]);
    let (mut one, mut two) = (sink.smtp(), sink.smtp());
    let mut third = Smtp::connect(sink.addresses[0]);
    wait_until("two connections are served", || sink.counters()["open"] == 2);
    // Both go on while the third waits.
    for client in [&mut one, &mut two] {
        client.send(SENDER, &["ann@one.example"], &messages()[0]).expect(250);
    }
    one.cmd("QUIT").expect(221);
    third = third.greeted();
    third.send(SENDER, &["ann@one.example"], &messages()[1]).expect(250);
    let (_, met, counters) = sink.end_json();
    assert_eq!(
        (&counters["open_max"], &met["waiting_max"], &counters["connections"]),
        (&2.into(), &1.into(), &3.into())
    );
}

#[test]
fn a_behaviour_and_delays_are_those_asked_for() {
    for model in MODELS {
        let options = ["--behaviour", "reject_users = ['bob']", "--delay-ms", "1", "--delay-ms", "rcpt=2", "--json"];
        let sink = Sink::start(&[model, &options].concat());
        let mut smtp = sink.smtp();
        smtp.cmd("MAIL FROM:<me@home.example>").expect(250);
        smtp.cmd("RCPT TO:<bob@x.example>").expect_text("550 5.1.1");
        smtp.cmd("RCPT TO:<ann@x.example>").expect(250);
        assert_eq!(sink.end_json().2["rcpt_5xx"], 1, "{model:?}");
    }
}

/// All files below.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

fn stored(folder: &Path, as_: &str) -> BTreeSet<Vec<u8>> {
    let mut all = BTreeSet::new();
    if as_ == "journal" {
        stentor_lab::read_journal(folder, |envelope, body| {
            assert_eq!(envelope, format!("{SENDER}\nann@one.example\nbob@two.example\n").as_bytes());
            assert!(all.insert(body));
        })
        .expect("the journal can be read");
    } else {
        let mut paths = Vec::new();
        files(folder, &mut paths);
        for path in paths {
            let depth = path.strip_prefix(folder).expect("it is below").components().count();
            assert_eq!(depth, if as_ == "hashed" { 3 } else { 1 }, "{}", path.display());
            assert!(all.insert(std::fs::read(path).expect("it can be read")));
        }
    }
    all
}

#[test]
fn stores_have_the_exact_octets() {
    let expected: BTreeSet<Vec<u8>> = messages().into_iter().collect();
    for (as_, sync, model) in [
        ("flat", "none", MODELS[0]),
        ("flat", "file", MODELS[2]),
        ("flat", "file+dir", MODELS[0]),
        ("hashed", "file", MODELS[1]),
        ("hashed", "file+dir", MODELS[3]),
        ("journal", "none", MODELS[0]),
        ("journal", "file", MODELS[0]),
        ("journal", "file", MODELS[3]),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store");
        let path_text = path.to_str().expect("a plain path");
        let options = ["--json", "--store", path_text, "--store-as", as_, "--sync", sync];
        let sink = Sink::start(&[model, &options].concat());
        let mut clients: Vec<Smtp> = (0..4).map(|_| sink.smtp()).collect();
        for (n, message) in messages().iter().enumerate() {
            clients[n % 4].send(SENDER, &["ann@one.example", "bob@two.example"], message).expect(250);
        }
        let (report, met, _) = sink.end_json();
        assert_eq!((&met["stored"], &met["store_failures"]), (&24.into(), &0.into()), "{as_} {sync}");
        let syncs = met["store_syncs"].as_u64().expect("a number");
        match (as_, sync) {
            ("flat" | "hashed", "file") => assert_eq!(syncs, 24),
            ("flat" | "hashed", "file+dir") => assert_eq!(syncs, 48),
            ("journal", _) => assert!((1..=24).contains(&met["store_batches"].as_u64().expect("a number"))),
            _ => assert_eq!(syncs, 0),
        }
        assert_eq!(report["tables"]["store"][0]["stored"], 24);
        assert!(!report["places"][0]["file_system"].as_str().expect("where it is stored").is_empty());
        assert_eq!(stored(&path, as_), expected, "{as_} {sync} {model:?}");
    }
}

/// The sink behind strace; the trace's path.
fn traced(folder: &Path, inject: Option<&str>, arguments: &[&str]) -> (Sink, PathBuf) {
    let trace = folder.join("trace");
    let mut command = Command::new("strace");
    command
        .args(["-D", "-f", "-qq", "--seccomp-bpf", "-s", "32", "-e", "trace=fsync,fdatasync,sendto", "-o"])
        .arg(&trace);
    if let Some(inject) = inject {
        command.args(["-e", &format!("inject={inject}")]);
    }
    command.arg(stentor_kit());
    (Sink::spawn(command, "127.0.0.1:0", arguments), trace)
}

#[test]
fn nothing_is_answered_250_before_it_is_synced() {
    for (as_, sync, call, each) in [
        ("flat", "file", "fsync", 1),
        ("flat", "file+dir", "fsync", 2),
        ("hashed", "file+dir", "fsync", 2),
        ("journal", "file", "fdatasync", 1),
    ] {
        for model in [MODELS[0], MODELS[2], MODELS[3]] {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("store");
            let options = ["--store", path.to_str().expect("a plain path"), "--store-as", as_, "--sync", sync];
            let (sink, trace) = traced(folder.path(), None, &[model, &options].concat());
            let mut smtp = sink.smtp();
            for message in &messages()[..5] {
                smtp.send(SENDER, &["ann@one.example"], message).expect(250);
            }
            drop(smtp);
            sink.end();
            let trace = std::fs::read_to_string(trace).expect("strace wrote a trace");
            let (mut synced, mut answered) = (0, 0);
            // From the greeting on: opening a store syncs too.
            for line in trace.lines().skip_while(|line| !line.contains("sendto(") || !line.contains("220 ")) {
                if line.contains(call) && line.ends_with("= 0") {
                    synced += 1;
                } else if line.contains("sendto(") && line.contains("250 2.0.0 taken") {
                    answered += 1;
                    assert!(synced >= answered * each, "{as_} {sync} {model:?}: {line}\n{trace}");
                }
            }
            assert_eq!(answered, 5, "{as_} {sync} {model:?}\n{trace}");
        }
    }
}

#[test]
fn a_failed_sync_is_answered_451_and_leaves_no_file() {
    for model in [MODELS[0], MODELS[3]] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store");
        let options = ["--json", "--store", path.to_str().expect("a plain path"), "--store-threads", "1"];
        // strace counts the calls of each thread: one thread, one session.
        let (sink, _) = traced(folder.path(), Some("fsync:error=EIO:when=2"), &[model, &options].concat());
        let mut smtp = sink.smtp();
        let all = messages();
        smtp.send(SENDER, &["ann@one.example"], &all[1]).expect(250);
        smtp.send(SENDER, &["ann@one.example"], &all[2]).expect_text("451 4.3.0");
        smtp.send(SENDER, &["ann@one.example"], &all[3]).expect(250);
        drop(smtp);
        let (report, met, counters) = sink.end_json();
        assert_eq!((&met["store_failures"], &counters["mail_4xx"]), (&1.into(), &1.into()));
        assert!(report["warnings"][0].as_str().expect("it is told").contains("Input/output error"), "{report}");
        assert_eq!(stored(&path, "flat"), BTreeSet::from([all[1].clone(), all[3].clone()]));
    }
}

#[test]
fn copies_are_counted_by_recipient_and_domain() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("dump");
    let sink = Sink::start(&["--json", "--top", "2", "--dump", path.to_str().expect("a plain path")]);
    let mut smtp = sink.smtp();
    let message = &messages()[1];
    smtp.send(SENDER, &["ann@one.example", "bob@ONE.example", "cid@two.example"], message).expect(250);
    smtp.send(SENDER, &["ann@One.example"], message).expect(250);
    let (report, ..) = sink.end_json();
    let counts = |kind: &str| -> BTreeMap<String, u64> {
        let lines = dump(&path).into_iter().filter(|line| line[kind].is_string());
        lines
            .map(|line| (line[kind].as_str().expect("a name").to_owned(), line["copies"].as_u64().expect("a number")))
            .collect()
    };
    let expected =
        |list: &[(&str, u64)]| list.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect::<BTreeMap<_, _>>();
    assert_eq!(
        counts("by_recipient"),
        expected(&[("ann@one.example", 2), ("bob@one.example", 1), ("cid@two.example", 1)])
    );
    assert_eq!(counts("by_domain"), expected(&[("one.example", 3), ("two.example", 1)]));
    let top = report["tables"]["recipients"].as_array().expect("a table");
    assert_eq!((top.len(), &top[0]["name"], &top[0]["copies"]), (2, &"ann@one.example".into(), &2.into()));
}

#[test]
fn it_listens_on_several_addresses() {
    for model in MODELS {
        let arguments = [&["127.0.0.5:0", "--json"], model].concat();
        let sink = Sink::spawn(Command::new(stentor_kit()), "127.0.0.2-127.0.0.4:0", &arguments);
        assert_eq!(sink.addresses.len(), 4);
        for (n, address) in sink.addresses.iter().enumerate() {
            let mut smtp = Smtp::connect(*address).greeted();
            smtp.send(SENDER, &["ann@one.example"], &messages()[n]).expect(250);
        }
        assert_eq!(sink.end_json().2["transactions"], 4, "{model:?}");
    }
}

fn hold(sink: &Sink, arguments: &[&str]) -> Value {
    let mut command = Command::new(stentor_kit());
    command.args(["lab", "hold", &sink.addresses[0].to_string(), "--json", "--quiet"]).args(arguments);
    let output = command.output().expect("it can be run");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text} {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&text).expect("a report")
}

#[test]
fn very_many_connections_are_held_and_used() {
    for (model, count) in [(MODELS[0], 2500), (MODELS[1], 2500), (MODELS[3], 300)] {
        let sink = Sink::start(&[model, &["--json"]].concat());
        let pid = sink.child.id().to_string();
        let count_text = count.to_string();
        let report = hold(
            &sink,
            &["--connections", &count_text, "--from", "127.0.1.1-127.0.1.2", "--messages", "400", "--pid", &pid],
        );
        let held = &report["tables"]["held"][0];
        assert_eq!(
            (&held["opened"], &held["alive"], &held["messages"]),
            (&count.into(), &count.into(), &400.into()),
            "{report}"
        );
        let memory = report["tables"]["memory"].as_array().expect("a table");
        assert!(memory.iter().any(|row| row["what"] == "server, resident"), "{report}");
        let counters = sink.end_json().2;
        assert_eq!((&counters["open_max"], &counters["transactions"]), (&count.into(), &400.into()));
        assert_eq!((&counters["violations"], &counters["duplicates"]), (&0.into(), &0.into()));
    }
}

/// The processes that a process has started.
fn children(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().map(|pid| pid.parse().expect("a number")).collect()
}

fn lives(pid: u32) -> bool {
    // What nobody has waited for yet has no memory any more.
    std::fs::read_to_string(format!("/proc/{pid}/statm")).is_ok_and(|text| !text.starts_with("0 "))
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it lives");
}

#[test]
fn several_processes_are_one_sink() {
    for model in MODELS {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("dump");
        let path_text = path.to_str().expect("a plain path");
        // Three to a process: what comes beyond would wait.
        let several = ["--processes", "3", "--connections", "9", "--json", "--record", "full", "--dump", path_text];
        let sink = Sink::spawn(Command::new(stentor_kit()), "127.0.0.2-127.0.0.3:0", &[model, &several[..]].concat());
        let members = children(sink.child.id());
        assert_eq!(members.len(), 3);
        let mut clients: Vec<Smtp> = (0..9).map(|n| Smtp::connect(sink.addresses[n % 2]).greeted()).collect();
        // All nine at once, so each process has its three; every message twice, and by different ones.
        for (n, message) in messages().iter().enumerate() {
            for client in [n % 9, (n + 4) % 9] {
                clients[client].send(SENDER, &["ann@one.example", "bob@two.example"], message).expect(250);
            }
        }
        let (report, _, counters) = sink.end_json();
        drop(clients);
        assert_eq!((&counters["transactions"], &counters["recipients"]), (&48.into(), &96.into()), "{model:?}");
        assert_eq!((&counters["duplicates"], &counters["violations"]), (&48.into(), &0.into()), "{model:?}");
        assert_eq!((&counters["connections"], &counters["open_max"]), (&9.into(), &9.into()), "{model:?}");
        assert_eq!(report["parameters"]["processes"], "3");
        assert_eq!(report["tables"]["load"][0]["messages"], 48);
        assert_eq!(report["tables"]["recipients"][0]["copies"], 48);
        let seconds = report["tables"]["seconds"].as_array().expect("a table");
        assert_eq!(seconds.iter().filter_map(|row| row["messages"].as_u64()).sum::<u64>(), 48, "{report}");
        let lines = dump(&path);
        let copies: Vec<&Value> = lines.iter().filter(|line| line["digest"].is_string()).collect();
        let by: BTreeSet<u64> = copies.iter().filter_map(|copy| copy["process"].as_u64()).collect();
        assert_eq!((copies.len(), by), (96, BTreeSet::from([1, 2, 3])), "{model:?}");
        let names: u64 = lines
            .iter()
            .filter(|line| !line["by_recipient"].is_null())
            .filter_map(|line| line["copies"].as_u64())
            .sum();
        assert_eq!(names, 96, "{model:?}");
        wait_until("all have ended", || !members.iter().any(|pid| lives(*pid)));
    }
}

#[test]
fn stores_of_several_processes_hold_what_was_answered() {
    let expected: BTreeSet<Vec<u8>> = messages().into_iter().collect();
    for as_ in ["flat", "hashed", "journal"] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store");
        let path_text = path.to_str().expect("a plain path");
        let sink =
            Sink::start(&["--processes", "2", "--connections", "4", "--json", "--store", path_text, "--store-as", as_]);
        let mut clients: Vec<Smtp> = (0..4).map(|_| sink.smtp()).collect();
        for (n, message) in messages().iter().enumerate() {
            clients[n % 4].send(SENDER, &["ann@one.example", "bob@two.example"], message).expect(250);
        }
        let (_, met, _) = sink.end_json();
        assert_eq!((&met["stored"], &met["store_failures"]), (&24.into(), &0.into()), "{as_}");
        assert!(met["store_us"][2].as_u64() >= met["store_us"][0].as_u64(), "{met}");
        let all = if as_ == "journal" {
            let [one, two] = ["process-1", "process-2"].map(|name| stored(&path.join(name), as_));
            assert!(!one.is_empty() && !two.is_empty());
            one.into_iter().chain(two).collect()
        } else {
            stored(&path, as_)
        };
        assert_eq!(all, expected, "{as_}");
    }
}

#[test]
fn a_process_that_dies_is_told_and_the_others_serve_on() {
    let mut command = Command::new(stentor_kit());
    command.stderr(Stdio::piped());
    let several = ["--processes", "2", "--connections", "4", "--json", "--every", "0.02", "--record", "counters"];
    let mut sink = Sink::spawn(command, "127.0.0.1:0", &several);
    let mut clients: Vec<Smtp> = (0..4).map(|_| sink.smtp()).collect();
    for client in &mut clients {
        client.send(SENDER, &["ann@one.example"], &messages()[1]).expect(250);
    }
    wait_until("all were counted", || sink.counters()["transactions"] == 4);
    kill(children(sink.child.id())[0]);
    wait_until("its connections are gone", || sink.counters()["open"] == 2);
    // The other one is full.
    clients.clear();
    sink.smtp().cmd("QUIT").expect(221);
    let pid = rustix::process::Pid::from_child(&sink.child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let mut rest = String::new();
    sink.lines.read_to_string(&mut rest).expect("its output is text");
    let mut said = String::new();
    sink.child.stderr.take().expect("it is piped").read_to_string(&mut said).expect("text");
    assert!(!sink.child.wait().expect("it ends").success(), "{rest}");
    assert!(said.contains("SIGKILL") && said.contains("2 connections were closed"), "{said}");
    let counters: Value = serde_json::from_str(rest.lines().last().expect("counters")).expect("JSON");
    assert_eq!(
        (&counters["transactions"], &counters["connections"]),
        (&4.into(), &5.into()),
        "nothing counted is lost"
    );
    assert!(rest.contains("SIGKILL"), "the report says it: {rest}");
}

#[test]
fn no_process_outlives_a_command_that_is_killed() {
    let sink = Sink::start(&["--processes", "3"]);
    let address = sink.addresses[0];
    let mut command = Command::new(stentor_kit());
    let more = ["--connections", "6", "--processes", "2", "--seconds", "1000", "--quiet"];
    command.args(["lab", "hold", &address.to_string()]).args(more).stdout(Stdio::null());
    let mut holder = command.spawn().expect("it can be run");
    wait_until("both are started", || children(holder.id()).len() == 2);
    let mut members = [children(sink.child.id()), children(holder.id())].concat();
    assert_eq!(members.len(), 5);
    kill(holder.id());
    kill(sink.child.id());
    holder.wait().expect("it has ended");
    wait_until("all have ended", || {
        members.retain(|pid| lives(*pid));
        members.is_empty()
    });
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn several_processes_hold_connections() {
    let sink = Sink::start(&["--processes", "2", "--connections", "400", "--json"]);
    let pid = sink.child.id().to_string();
    let several = ["--connections", "400", "--processes", "3", "--messages", "90", "--runs", "2", "--pid", &pid];
    let report = hold(&sink, &[&several[..], &["--from", "127.0.1.1-127.0.1.2"]].concat());
    let held = report["tables"]["held"].as_array().expect("a table");
    assert_eq!(held.len(), 2);
    for run in held {
        assert_eq!(
            (&run["opened"], &run["alive"], &run["messages"]),
            (&400.into(), &400.into(), &90.into()),
            "{report}"
        );
    }
    assert_eq!(report["warnings"].as_array().map(Vec::len), Some(0), "{report}");
    let counters = sink.end_json().2;
    // Each run has messages of its own.
    assert_eq!((&counters["transactions"], &counters["duplicates"]), (&270.into(), &0.into()));
}

/// Takes `count` connections and greets them, in turn; at the first EHLO it closes all but the first two. Serves those.
fn closing(count: usize) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listens");
    let address = listener.local_addr().expect("has one");
    std::thread::spawn(move || {
        let mut streams = Vec::new();
        for _ in 0..count {
            let (mut stream, _) = listener.accept().expect("a client");
            stream.write_all(b"220 hello\r\n").expect("it listens");
            streams.push(stream);
        }
        let mut lines = streams[0].try_clone().map(BufReader::new).expect("a handle").lines();
        // A message over the first, one over the second, and the first again.
        let mut second = streams[1].try_clone().map(BufReader::new).expect("a handle").lines();
        assert!(lines.next().expect("EHLO").is_ok());
        streams.truncate(2);
        streams[0].write_all(b"250 hello\r\n").expect("it listens");
        message(&mut lines, &mut streams[0]);
        assert!(second.next().expect("EHLO").is_ok());
        streams[1].write_all(b"250 hello\r\n").expect("it listens");
        message(&mut second, &mut streams[1]);
        message(&mut lines, &mut streams[0]);
        // Until the client has gone.
        for _ in lines {}
    });
    address
}

fn message(lines: &mut impl Iterator<Item = std::io::Result<String>>, stream: &mut std::net::TcpStream) {
    for reply in ["250 sender", "250 recipient", "354 go on"] {
        assert!(lines.next().expect("a command").is_ok());
        stream.write_all(format!("{reply}\r\n").as_bytes()).expect("it listens");
    }
    assert!(lines.any(|line| line.is_ok_and(|line| line == ".")));
    stream.write_all(b"250 taken\r\n").expect("it listens");
}

#[test]
fn connections_that_are_lost_while_idle_cost_no_message() {
    let address = closing(4).to_string();
    let mut command = Command::new(stentor_kit());
    command.args(["lab", "hold", &address, "--connections", "4", "--opening", "1", "--messages", "3", "--active", "1"]);
    let output = command.args(["--json", "--quiet"]).output().expect("it can be run");
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    let held = &report["tables"]["held"][0];
    assert_eq!((&held["opened"], &held["messages"], &held["alive"]), (&4.into(), &3.into(), &2.into()), "{report}");
    let errors = report["tables"]["errors"].as_array().expect("a table");
    assert_eq!(
        (&errors[0]["error"], &errors[0]["connections"]),
        (&"closed by the server, while idle".into(), &2.into())
    );
}

#[test]
fn what_processes_cannot_do_together_is_refused() {
    let refused = |arguments: &[&str]| {
        let output = Command::new(stentor_kit()).arg("lab").args(arguments).output().expect("it can be run");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let greylist = ["--processes", "2", "--behaviour", "greylist_ms = 5"];
    let text = refused(&[&["sink", "127.0.0.1:0"], &greylist[..]].concat());
    assert!(text.contains("greylisting"), "{text}");
}

#[test]
fn ctrl_c_ends_it_with_a_report_and_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let sink = Sink::start(&["--every", "0.05", "--out", out.to_str().expect("a plain path"), "--plot"]);
    sink.smtp().send(SENDER, &["ann@one.example"], &messages()[0]).expect(250);
    let text = sink.end();
    for part in ["1 messages, 1 copies", "Mail accepted", "Recipients with the most copies, of 1", "ann@one.example"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for name in ["lab-sink.json", "lab-sink-load.csv", "lab-sink-seconds.csv", "lab-sink-rate.svg"] {
        assert!(out.join(name).exists(), "{name}");
    }
}

#[test]
fn bad_input_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "x").expect("written");
    let file = file.to_str().expect("a plain path");
    for (arguments, reason) in [
        (&["127.0.0.9-127.0.0.1:25"][..], "ascending"),
        (&["127.0.0.1:0", "--delay-ms", "bdat=1"], "greeting, ehlo"),
        (&["127.0.0.1:0", "--behaviour", "at_mail = '250 ok'"], "at_mail"),
        (&["127.0.0.1:0", "--sync", "file"], "--store"),
        (&["127.0.0.1:0", "--store", file], "the store"),
        (&["127.0.0.1:0", "--store", file, "--store-as", "journal"], "the store"),
        (&["192.0.2.1:25"], "192.0.2.1"),
        (&["127.0.0.1:0", "--seconds=-1"], "not a time"),
        (&["127.0.0.1:0", "--every", "0"], "more than 0"),
        (&["127.0.0.1:0", "--runs", "3"], "not valid for a sink"),
    ] {
        let output = Command::new(stentor_kit()).args(["lab", "sink"]).args(arguments).output().expect("it can be run");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(reason), "{arguments:?}: {text}");
    }
}

#[test]
fn a_reader_that_leaves_is_no_failure_and_results_that_cannot_be_written_are_refused_first() {
    let mut command = Command::new(stentor_kit());
    command.args(["lab", "sink", "127.0.0.1:0", "--every", "0.05"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it can be run");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    let refused = Command::new(stentor_kit())
        .args(["lab", "sink", "127.0.0.1:0", "--out", "/proc/self/fdinfo"])
        .output()
        .expect("it can be run");
    assert!(!refused.status.success() && refused.stdout.is_empty(), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("/proc/self/fdinfo"), "{refused:?}");
}

/// A server that greets and closes at once: each connection is lost once, and the next ones are opened all the same.
#[test]
fn who_is_closed_after_the_greeting_is_counted_once() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("it listens");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"220 closing.example\r\n");
        }
    });
    let output = Command::new(stentor_kit())
        .args(["lab", "hold", &address, "--connections", "300", "--opening", "4", "--json", "--quiet"])
        .output()
        .expect("it can be run");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let errors = report["tables"]["errors"].as_array().expect("a table");
    let lost: u64 = errors.iter().filter_map(|row| row["connections"].as_u64()).sum();
    let alive = report["tables"]["held"][0]["alive"].as_u64().expect("a count");
    assert_eq!(lost + alive, 300, "{report:#}");
}
