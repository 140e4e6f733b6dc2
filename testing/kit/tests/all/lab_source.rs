//! `stentor-kit lab source`: it sends what was asked for, and its report is correct.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use stentor_harness::stentor_kit;
use stentor_lab::{Behaviour, Mode, Recorder, SinkOnly};

/// A sink on a runtime of its own.
pub struct Sink {
    pub address: SocketAddr,
    pub recorder: Arc<Recorder>,
    _runtime: tokio::runtime::Runtime,
    _host: SinkOnly,
}

pub fn sink(behaviour: &str) -> Sink {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("starts");
    let behaviour = Behaviour::parse(behaviour).expect("is one");
    let guard = runtime.enter();
    let sink = SinkOnly::start(([127, 0, 0, 1], 0).into(), behaviour, Mode::Full).expect("listens");
    drop(guard);
    Sink { address: sink.address(), recorder: Arc::clone(sink.recorder()), _runtime: runtime, _host: sink }
}

pub fn lab(arguments: &[&str]) -> Output {
    Command::new(stentor_kit()).arg("lab").args(arguments).stdin(Stdio::null()).output().expect("runs")
}

fn source(address: SocketAddr, arguments: &str) -> Value {
    let address = address.to_string();
    let mut all = vec!["source", &address, "--json", "--quiet"];
    all.extend(arguments.split_ascii_whitespace());
    let output = lab(&all);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("is JSON")
}

fn total(report: &Value, name: &str) -> u64 {
    report["tables"]["load"][0][name]["median"].as_f64().unwrap_or_else(|| panic!("{name}: {report}")) as u64
}

fn step<'a>(report: &'a Value, name: &str) -> &'a Value {
    let steps = report["tables"]["steps"].as_array().expect("a table");
    steps.iter().find(|row| row["step"] == name).unwrap_or_else(|| panic!("{name}: {steps:?}"))
}

#[test]
fn everything_arrives_once_as_it_was_asked_for() {
    let ways =
        ["", "--session-each --no-pipelining", "--pipelining ahead --threads 2", "--bdat --per-session 7 --rset"];
    let mut first = None;
    for way in ways {
        let sink = sink("");
        let work = "--messages 60 --connections 5 --size uniform:1K-8K --seed 3 --recipients 500 --domains 10 \
                    --recipients-per-message 1-4";
        let report = source(sink.address, &format!("{work} {way}"));
        let stats = sink.recorder.stats();
        assert_eq!((stats.transactions, stats.violations, stats.duplicates), (60, 0, 0), "{way}");
        let mut ids = sink.recorder.message_ids();
        ids.sort();
        let mut expected: Vec<String> = (0..60).map(|number| format!("run.{number}@source.lab")).collect();
        expected.sort();
        assert_eq!(ids, expected, "{way}");
        assert_eq!((total(&report, "accepted"), total(&report, "failed")), (60, 0));
        assert_eq!(total(&report, "recipients"), stats.recipients);
        // Envelopes and sizes follow from the seed alone, however they are sent.
        let mut domains: Vec<String> = Vec::new();
        for id in &expected {
            assert!((1..=4).contains(&sink.recorder.recipients_of(id)), "{id}");
        }
        for copy in sink.recorder.copies() {
            domains.push(copy.recipient.split_once('@').expect("has a domain").1.to_owned());
            assert!((1024..=8192).contains(&copy.len), "{}", copy.len);
        }
        domains.sort();
        domains.dedup();
        assert_eq!(domains.len(), 10);
        assert_eq!(stats.bytes, total(&report, "octets"));
        let sum = (stats.bytes, stats.recipients);
        assert_eq!(*first.get_or_insert(sum), sum, "{way}");
        let sessions = if way.contains("each") { 60 } else { total(&report, "sessions") };
        assert_eq!(stats.connections, sessions);
        assert_eq!(step(&report, "end of data")["count"]["median"], 60.0);
    }
}

#[test]
fn a_seed_gives_the_same_load_again() {
    let sink = sink("");
    let octets = |seed: u32, connections: u32| {
        let more = format!("--messages 40 --size lognormal:4K,1 --seed {seed} --connections {connections}");
        total(&source(sink.address, &more), "octets")
    };
    let first = octets(1, 3);
    assert_eq!(first, octets(1, 8));
    assert_ne!(first, octets(2, 3));
}

#[test]
fn real_messages_arrive_intact() {
    let sink = sink("");
    let folder = tempfile::tempdir().expect("made");
    let mut wires = Vec::new();
    for number in 0..3 {
        let text = format!("From: <a@b>\nMessage-ID: <real{number}@x>\nSubject: {number}\n\n.\n..two\nb\u{e4}r\nend");
        std::fs::write(folder.path().join(format!("{number}.eml")), &text).expect("written");
        let wire = text.replace('\n', "\r\n") + "\r\n";
        sink.recorder.expect_message(wire.clone().into_bytes().into());
        wires.push(wire);
    }
    let path = folder.path().display().to_string();
    for way in ["", "--bdat"] {
        let report = source(sink.address, &format!("--message {path} --messages 6 --connections 2 {way}"));
        assert_eq!(total(&report, "accepted"), 6);
        let sent: usize = wires.iter().map(String::len).sum();
        assert_eq!(total(&report, "octets"), 2 * sent as u64);
    }
    let stats = sink.recorder.stats();
    assert_eq!((stats.intact, stats.damaged, stats.violations), (12, 0, 0));
}

/// Greets with 421, and says who came.
fn refusing() -> (SocketAddr, Arc<Mutex<Vec<IpAddr>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let address = listener.local_addr().expect("has one");
    let peers = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&peers);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let Ok(peer) = stream.peer_addr() else { continue };
            seen.lock().expect("no panic").push(peer.ip());
            // It may have gone.
            let _ = stream.write_all(b"421 4.3.2 not now\r\n");
        }
    });
    (address, peers)
}

#[test]
fn source_addresses_and_errors_by_code_and_step() {
    let (address, peers) = refusing();
    let target = address.to_string();
    let common = ["--messages", "40", "--connections", "8", "--json", "--quiet"];
    let output = lab(&[&["source", &target, "--bind", "127.0.0.2-127.0.0.5"], &common[..]].concat());
    // Nothing was accepted: it says so, and what was said.
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("no message was accepted"));
    let report: Value = serde_json::from_slice(&output.stdout).expect("is JSON");
    let error = &report["tables"]["errors"][0];
    assert_eq!((error["step"].as_str(), error["code"].as_str()), (Some("greeting"), Some("421")));
    assert_eq!((error["count"].as_u64(), total(&report, "failed")), (Some(40), 40));
    assert!(error["example"].as_str().is_some_and(|text| text.contains("not now")));
    let mut seen = peers.lock().expect("no panic").clone();
    seen.sort();
    seen.dedup();
    assert_eq!(seen, [2, 3, 4, 5].map(|last| IpAddr::from([127, 0, 0, last])));

    let sink = sink("reject_users = ['bad']\nat_dot = '451 4.3.0 later'\nfault_share = 0.5");
    let report = source(sink.address, "--messages 40 --to bad@x --to good@x --recipients-per-message 2");
    let errors = report["tables"]["errors"].as_array().expect("a table");
    let count = |step: &str, code: &str| {
        let row = errors.iter().find(|row| row["step"] == step && row["code"] == code);
        row.and_then(|row| row["count"].as_u64()).unwrap_or(0)
    };
    assert_eq!(count("RCPT", "550"), 40);
    assert_eq!(count("end of data", "451") + total(&report, "accepted"), 40);
    assert_eq!(sink.recorder.stats().transactions, total(&report, "accepted"));
}

#[test]
fn a_slow_server_cannot_hide_its_delay_from_an_open_loop() {
    let sink = sink("dot_delay_ms = 50");
    let p50 = |report: &Value, name: &str| step(report, name)["p50_us"]["median"].as_f64().expect("a number");
    // One connection takes 20 a second at most; 200 a second are due.
    for more in ["", "--poisson"] {
        let report = source(sink.address, &format!("--messages 20 --rate 200 --connections 1 {more}"));
        assert_eq!((total(&report, "accepted"), total(&report, "due"), total(&report, "never_begun")), (20, 20, 0));
        assert!(p50(&report, "response") >= p50(&report, "service") && p50(&report, "service") >= 50_000.0);
        let behind = step(&report, "behind")["max_us"]["median"].as_f64().expect("a number");
        assert!(behind > 0.0, "{report}");
        assert!(report["notes"].to_string().contains("200 msg/s requested"));
    }
    // What is not begun when the time is over is said, not forgotten.
    let report = source(sink.address, "--seconds 0.4 --drain 0 --rate 200 --connections 1");
    let [due, accepted, failed, never] = ["due", "accepted", "failed", "never_begun"].map(|name| total(&report, name));
    assert_eq!((due, accepted + failed + never), (80, 80));
    assert!(never > 0 && report["warnings"].to_string().contains("never begun"), "{report}");
    assert_eq!(step(&report, "response")["count"]["median"].as_f64(), Some((accepted + never) as f64), "{report}");
}

/// Says 250 to everything, but to the first end of data only after `stall`.
fn stalling(stall: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let address = listener.local_addr().expect("has one");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut stall = Some(stall);
        stream.write_all(b"220 hello\r\n").expect("it listens");
        let lines = BufReader::new(stream.try_clone().expect("a handle")).lines();
        let mut is_data = false;
        for line in lines.map_while(Result::ok) {
            let reply: &[u8] = match line.as_str() {
                "." => {
                    is_data = false;
                    std::thread::sleep(stall.take().unwrap_or_default());
                    b"250 taken\r\n"
                }
                _ if is_data => continue,
                "DATA" => {
                    is_data = true;
                    b"354 go on\r\n"
                }
                "QUIT" => b"221 bye\r\n",
                _ => b"250 fine\r\n",
            };
            if stream.write_all(reply).is_err() {
                return;
            }
        }
    });
    address
}

#[test]
fn a_stall_is_in_the_response_times_of_all_that_were_due_in_it() {
    let address = stalling(Duration::from_secs(1));
    let report = source(address, "--rate 100 --messages 150 --connections 1 --size 300");
    assert_eq!(total(&report, "accepted"), 150);
    // The n-th is due at n/100 s and answered at 1 s or later: 100 * (1 - x) messages take x seconds at least. Of 150,
    // the half take 0.25 s, 8 take 0.92 s, 2 take 0.98 s, and the first 1 s.
    for (name, least_us) in [("p50_us", 0.24e6), ("p95_us", 0.91e6), ("p99_us", 0.97e6), ("max_us", 1e6)] {
        let value = step(&report, "response")[name]["median"].as_f64().expect("a number");
        assert!(value >= least_us, "{name} {value}: {report}");
    }
    // Only one was sent into the stall.
    assert_eq!(step(&report, "end of data")["count"]["median"], 150.0);
}

#[test]
fn a_reply_without_an_end_and_a_server_without_an_answer_are_given_up() {
    for (behaviour, step, what) in [
        ("at_ehlo = 'endless'", "EHLO", "reply too long"),
        ("at_mail = 'endless'", "MAIL", "reply too long"),
        ("trickle_ms = 200", "greeting", "timed out"),
        ("connect = 'never_accept'", "connect", "timed out"),
        ("at_dot = 'hang'", "end of data", "timed out"),
    ] {
        let mut sink = Command::new(stentor_kit());
        sink.args(["lab", "sink", "127.0.0.1:0", "--behaviour", behaviour]).stdout(Stdio::piped());
        let mut sink = Peer(sink.spawn().expect("runs"));
        let mut first = String::new();
        BufReader::new(sink.0.stdout.take().expect("piped")).read_line(&mut first).expect("it listens");
        let address = first.trim().strip_prefix("SMTP at ").expect("an address");
        let output = lab(&["source", address, "--messages", "4", "--connections", "2", "--timeout", "0.3", "--json"]);
        assert!(!output.status.success(), "{behaviour}");
        let report: Value = serde_json::from_slice(&output.stdout).expect("is JSON");
        let errors = report["tables"]["errors"].as_array().expect("a table");
        // Each message fails once, under the step that it failed at, and nothing else is counted.
        let all: Vec<_> = errors.iter().map(|row| (row["step"].as_str(), row["code"].as_str())).collect();
        let is_expected = |(at, code): &(Option<&str>, Option<&str>)| {
            // So short a time-out may strike earlier on a busy machine.
            *at == Some(step) && (*code == Some(what) || *code == Some("timed out")) || *code == Some("timed out")
        };
        assert!(all.iter().all(is_expected) && !all.is_empty(), "{behaviour}: {all:?}");
        let count: u64 = errors.iter().filter_map(|row| row["count"].as_u64()).sum();
        assert_eq!((count, total(&report, "failed")), (4, 4), "{behaviour}: {report}");
    }
}

#[test]
fn files_and_text_of_a_report() {
    let sink = sink("");
    let folder = tempfile::tempdir().expect("made");
    let out = folder.path().display().to_string();
    let address = sink.address.to_string();
    let output = lab(&["source", &address, "--messages", "30", "--runs", "2", "--out", &out, "--plot", "--quiet"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    for wanted in ["elapsed ", " msg/s, peak ", "end of data", "Linux", "messages_per_session kept"] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    // A run that is dropped and two that count, each with messages of its own.
    assert_eq!(sink.recorder.stats().transactions, 90);
    assert_eq!(sink.recorder.message_ids().len(), 90);
    let seconds = std::fs::read_to_string(folder.path().join("lab-source-seconds.csv")).expect("written");
    let accepted = seconds.lines().skip(1).map(|line| line.split(',').nth(3).expect("a column").parse::<u64>());
    assert_eq!(accepted.sum::<Result<u64, _>>().expect("numbers"), 60);
    for name in ["lab-source.json", "lab-source-steps.csv", "lab-source-seconds.svg", "lab-source-steps.svg"] {
        assert!(folder.path().join(name).exists(), "{name}");
    }
}

/// A process that ends with the test.
struct Peer(std::process::Child);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn several_targets_in_turn_and_postfix_as_one() {
    let sinks = [sink(""), sink(""), sink("")];
    let names: Vec<String> = sinks.iter().map(|sink| sink.address.to_string()).collect();
    let mut arguments = vec!["source", "--session-each", "--messages", "30", "--connections", "3", "--quiet"];
    arguments.extend(names.iter().map(String::as_str));
    let output = lab(&arguments);
    assert!(output.status.success(), "{output:?}");
    for sink in &sinks {
        assert_eq!(sink.recorder.stats().transactions, 10);
    }
    // Postfix's own sink.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let folders = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin";
    let mut command = Command::new("smtp-sink");
    command.env("PATH", folders).args(["-u", "nobody", &address.to_string(), "100"]).stdin(Stdio::null());
    let Ok(peer) = command.spawn().map(Peer) else {
        return stentor_harness::skipped("smtp-sink is not installed");
    };
    stentor_harness::wait_until("smtp-sink", || std::net::TcpStream::connect(address).is_ok());
    let report = source(address, "--messages 50 --connections 4 --per-session 5 --rset");
    // Each connection's last session may have fewer messages.
    assert!(total(&report, "accepted") == 50 && (10..=13).contains(&total(&report, "sessions")), "{report}");
    drop(peer);
}

#[test]
fn a_signal_ends_it_with_what_there_is() {
    let sink = sink("");
    let mut command = Command::new(stentor_kit());
    command.args(["lab", "source", &sink.address.to_string(), "--seconds", "1000"]).stdin(Stdio::null());
    let mut running = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("runs");
    stentor_harness::wait_until("some mail", || sink.recorder.stats().transactions > 10);
    let pid = Pid::from_child(&running);
    kill_process(pid, Signal::INT).expect("it runs");
    let lines = BufReader::new(running.stdout.take().expect("piped")).lines();
    let text: Vec<String> = lines.map_while(Result::ok).collect();
    assert!(text.iter().any(|line| line.contains("WARNING: stopped by a signal")), "{text:?}");
    running.wait().expect("ends");
}

#[test]
fn mistakes_are_refused_with_what_to_do() {
    for (arguments, why) in [
        ("nowhere", "HOST:PORT"),
        ("127.0.0.1:1 --size huge", "4096, 64K"),
        ("127.0.0.1:1 --size uniform:9K-1K", "smaller one must come first"),
        ("127.0.0.1:1 --connections 0", "choose 1"),
        ("127.0.0.1:1 --rate 0", "above 0"),
        ("127.0.0.1:1 --bind 127.0.0.9-127.0.0.2", "ascending"),
        ("127.0.0.1:1 --recipients 5 --domains 2 --recipients-per-message 6", "fewer"),
        ("127.0.0.1:1 --recipients-per-message 0", "1-"),
        ("127.0.0.1:1 --message /nowhere", "/nowhere"),
        ("127.0.0.1:1 --seconds=-1", "give seconds"),
        ("127.0.0.1:1 --seconds 1 --warm-up 2", "warm-up"),
        ("127.0.0.1:1 --sessions 5", "--per-session"),
        ("127.0.0.1:1 --from a>b", "angle brackets"),
        ("127.0.0.1:1 --runs 0", "1..="),
        ("127.0.0.1:1 --poisson", "--rate"),
        ("127.0.0.1:1 --rate=-5", "above 0"),
        ("127.0.0.1:1 --rate NaN", "above 0"),
        ("127.0.0.1:1 --run a>b", "letters and digits"),
    ] {
        let words: Vec<&str> = std::iter::once("source").chain(arguments.split(' ')).collect();
        let output = lab(&words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{arguments}: {said}");
        assert!(output.stdout.is_empty(), "{arguments}");
    }
}
