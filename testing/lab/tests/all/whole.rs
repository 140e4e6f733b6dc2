//! The lab as a whole: many hosts, the recorder's answers.

use std::sync::Arc;
use std::time::Duration;

use stentor_lab::cli::write_copies;
use stentor_lab::{Behaviour, Lab, Mode, Scenario, SinkOnly};

use crate::raw::Raw;

const MESSAGE: &str = "From: a@x\r\nMessage-ID: <m@x>\r\n\r\nbody\r\n";

#[tokio::test]
async fn two_thousand_hosts_listen_on_one_port() {
    let scenario = Scenario::parse("[[generate]]\nsites = 2000").expect("valid");
    let lab = Lab::start_with(scenario, Mode::Compact).await.expect("starts");
    for site in [0, 777, 1999] {
        let site = &lab.scenario().sites()[site];
        let mut raw = Raw::open((site.hosts[0].address, lab.smtp_port()).into()).await;
        assert!(raw.deliver(&format!("u@{}", site.name), MESSAGE).await.starts_with("250"));
    }
    assert_eq!(lab.recorder().recipients_of("<m@x>"), 3);
    assert_eq!(lab.stats().sinks.violations, 0);
    lab.stop().await;
}

#[tokio::test]
async fn copies_are_written_to_files_of_their_recipients() {
    let folder = tempfile::tempdir().expect("a folder");
    let sink = SinkOnly::start(([127, 0, 0, 1], 0).into(), Behaviour::default(), Mode::Bodies).expect("starts");
    let mut raw = Raw::open(sink.address()).await;
    for who in ["ann@x", "../b@x"] {
        assert!(raw.deliver(who, MESSAGE).await.starts_with("250"));
    }
    let recorder = sink.recorder();
    assert!(recorder.wait_for_copies(2, Duration::from_secs(10)).await);
    assert_eq!(write_copies(recorder, folder.path(), 0).expect("written"), 2);
    assert_eq!(write_copies(recorder, folder.path(), 2).expect("written"), 2);
    let mut names: Vec<_> =
        std::fs::read_dir(folder.path()).expect("read").map(|file| file.expect("read").file_name()).collect();
    names.sort();
    assert_eq!(names, ["00001-ann@x.eml", "00002-.._b@x.eml"]);
    let kept = std::fs::read_to_string(folder.path().join("00001-ann@x.eml")).expect("read");
    let (envelope, message) = kept.split_once("Delivered-To: ann@x\r\n").expect("an envelope");
    assert!(envelope.starts_with("Return-Path: <") && envelope.ends_with(">\r\n"), "{envelope:?}");
    assert_eq!(message, MESSAGE);
}

#[tokio::test]
async fn the_audit_names_missing_repeated_damaged_and_strange() {
    for mode in [Mode::Compact, Mode::Full, Mode::Bodies] {
        let sink = SinkOnly::start(([127, 0, 0, 1], 0).into(), Behaviour::default(), mode).expect("starts");
        let recorder = Arc::clone(sink.recorder());
        assert_eq!(recorder.expect_message(MESSAGE.as_bytes().into()), "m@x");
        let mut raw = Raw::open(sink.address()).await;
        let received = format!("Received: by x;\r\n\tnow\r\n{MESSAGE}");
        for (who, message) in
            [("a@X", MESSAGE), ("b@x", &received), ("b@x", MESSAGE), ("c@x", &MESSAGE.replace("body", "boby"))]
        {
            assert!(raw.deliver(who, message).await.starts_with("250"));
        }
        assert!(recorder.wait_for_copies(4, Duration::from_secs(10)).await);
        let audit = recorder.audit("<m@x>", ["a@x", "b@x", "d@x"]);
        assert_eq!((audit.expected, audit.copies), (3, 4));
        assert_eq!(audit.missing, ["d@x"]);
        assert_eq!(audit.duplicates, [("b@x".to_owned(), 2)]);
        assert_eq!((audit.unexpected, audit.damaged), (1, 1));
        assert!(!audit.is_clean());
        let damaged = recorder.damaged();
        assert_eq!(damaged.len(), 1);
        assert!(damaged[0].recipients.contains("c@x") && damaged[0].bytes.ends_with(b"boby\r\n"));
        assert_eq!(recorder.duplicates(), [("m@x".to_owned(), "b@x".to_owned())]);
        assert_eq!(recorder.stats().intact, 3);
        assert_eq!(recorder.arrivals_us("m@x").expect("known").count(), 4);
        assert_eq!(recorder.copies().len(), if mode >= Mode::Full { 4 } else { 0 });
        let mut dump = Vec::new();
        recorder.dump(&mut dump).expect("written");
        let lines: Vec<serde_json::Value> = dump
            .split(|&b| b == b'\n')
            .filter(|l| !l.is_empty())
            .map(|l| serde_json::from_slice(l).expect("JSON"))
            .collect();
        assert_eq!(lines.len(), if mode >= Mode::Full { 4 } else { 1 });
        assert!(lines.iter().all(|line| line["message_id"] == "m@x"));
        assert!(recorder.audit("other@x", ["a@x"]).missing == ["a@x"]);
    }
}

#[tokio::test]
async fn a_client_that_leaves_before_its_250_is_counted() {
    let sink = crate::raw::sink("dot_delay_ms = 60000");
    let mut raw = Raw::open(sink.address()).await;
    for line in ["MAIL FROM:<s@x>\r\n", "RCPT TO:<a@x>\r\n", "DATA\r\n"] {
        raw.ask(line).await;
    }
    raw.send(&format!("{MESSAGE}.\r\n")).await;
    assert!(sink.recorder().wait_for_copies(1, Duration::from_secs(10)).await);
    drop(raw);
    let recorder = Arc::clone(sink.recorder());
    sink.stop().await;
    assert!(recorder.wait_for(Duration::from_secs(10), |r| r.stats().unanswered == 1).await);
}

#[tokio::test]
async fn commands_of_the_binary() {
    let directory = tempfile::tempdir().expect("made");
    let path = directory.path().join("s.toml");
    std::fs::write(&path, "[[site]]\nname = 'x.example'\nbehaviour = { reject_share = 0.5 }").expect("written");
    let mut all = Vec::new();
    stentor_lab::cli::write_subscribers(&path, 100, false, &mut all).expect("written");
    let mut reachable = Vec::new();
    stentor_lab::cli::write_subscribers(&path, 100, true, &mut reachable).expect("written");
    let count = |text: &[u8]| String::from_utf8_lossy(text).lines().count();
    assert_eq!(count(&all), 100);
    assert!((20..80).contains(&count(&reachable)));
    let mut hosts = Vec::new();
    stentor_lab::cli::write_hosts(&path, &mut hosts).expect("written");
    assert_eq!(String::from_utf8_lossy(&hosts), "x.example mx1.x.example 127.16.0.1\n");
    let options = stentor_lab::cli::RunOptions {
        duration: Some(Duration::from_millis(50)),
        copies: Some(1),
        dump: Some(directory.path().join("dump")),
        ..Default::default()
    };
    stentor_lab::cli::run_scenario(&path, &options).await.expect("runs");
    assert_eq!(std::fs::read(directory.path().join("dump")).expect("written"), b"");
    let folder = directory.path().join("kept");
    let options = stentor_lab::cli::RunOptions { keep: Some(folder.clone()), ..options };
    std::fs::create_dir(&folder).expect("made");
    std::fs::write(folder.join("00001-ann@x.eml"), "of an earlier run").expect("written");
    let error = stentor_lab::cli::run_scenario(&path, &options).await.expect_err("a copy").to_string();
    assert!(error.contains("kept: folder not empty"), "{error}");
    let missing = directory.path().join("missing.toml");
    let error = stentor_lab::cli::run_scenario(&missing, &options).await.expect_err("missing").to_string();
    assert!(error.contains("missing.toml"), "{error}");
}
