//! The full suite of hostile receivers, for `make bench`: its results as one JSON object.
//!
//! `stentor-hostile` runs all of it; `--smoke` a part, in seconds; `page FILE` prints that page of docs/design;
//! `only TEXT [N]` runs the cases whose name holds the text, with one message or N, and says what happened.

use std::time::Duration;

use serde_json::json;
use stentor_server_tests::hostile::{self, Case, Cpu, Options, Paired, Verdict};

/// Messages of the larger half of the cases.
const MANY: usize = 50;
const ROUNDS: usize = 15;
const HEALTHY_MESSAGES: usize = 200;
/// Of the smoke size: every so many-th receiver.
const SMOKE_STEP: usize = 12;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["page", name] => page(name),
        ["only", text] => only(text, 1),
        ["only", text, messages] => only(text, messages.parse().expect("a number of messages")),
        ["--smoke"] => smoke(),
        [] => full(),
        _ => {
            eprintln!("usage: stentor-hostile [--smoke | page FILE | only TEXT [MESSAGES]]");
            std::process::exit(2);
        }
    }
}

fn page(name: &str) {
    let pages = hostile::pages();
    let Some((_, text)) = pages.iter().find(|(of, _)| *of == name) else {
        eprintln!("no page {name:?}; pages: {}", pages.map(|(name, _)| name).join(", "));
        std::process::exit(2);
    };
    print!("{text}");
}

fn only(text: &str, messages: usize) {
    let receivers = hostile::receivers();
    let all = [(1, false), (2, false), (1, true), (2, true)]
        .map(|(hosts, lmtp)| hostile::cases(&receivers, messages, hosts, lmtp));
    let cases: Vec<Case> = all.into_iter().flatten().filter(|case| case.name().contains(text)).collect();
    for verdict in hostile::run(&cases, Options::default()) {
        println!("{verdict:?}");
    }
}

fn smoke() {
    let receivers: Vec<_> = hostile::receivers().into_iter().step_by(SMOKE_STEP).collect();
    let options = Options { watched: Duration::from_secs(4), reply_timeout_s: 1 };
    let mut verdicts = hostile::run(&hostile::cases(&receivers, 1, 2, false), options);
    verdicts.extend(hostile::run(&hostile::cases(&receivers, 2, 1, true), options));
    let alone = hostile::cases(&receivers[..2], 1, 1, false);
    let cpu = hostile::cpu_of_each(&alone, Options { watched: Duration::from_secs(1), ..options });
    tell(&verdicts, &cpu, &[hostile::paired(&alone, options, 20)]);
}

fn full() {
    let receivers = hostile::receivers();
    let options = Options::default();
    let mut verdicts = Vec::new();
    for messages in [1, MANY] {
        for hosts in [1, 2] {
            for lmtp in [false, true] {
                verdicts.extend(hostile::run(&hostile::cases(&receivers, messages, hosts, lmtp), options));
            }
        }
    }
    let alone = hostile::cases(&receivers, 1, 1, false);
    let cpu = hostile::cpu_of_each(&alone, Options { watched: Duration::from_secs(10), ..options });
    let rounds: Vec<Paired> = (0..ROUNDS).map(|_| hostile::paired(&alone, options, HEALTHY_MESSAGES)).collect();
    tell(&verdicts, &cpu, &rounds);
}

fn tell(verdicts: &[Verdict], cpu: &[Cpu], rounds: &[Paired]) {
    let failed: Vec<_> = verdicts.iter().filter(|verdict| !verdict.problems.is_empty()).collect();
    let single =
        |of: fn(&Verdict) -> usize| verdicts.iter().filter(|v| v.messages == 1).map(of).max().unwrap_or_default();
    let log_bytes = verdicts.iter().map(|v| v.log_bytes.div_ceil(v.messages)).max().unwrap_or_default();
    let worst = cpu.iter().max_by(|a, b| a.ms_max.total_cmp(&b.ms_max));
    println!(
        "{}",
        json!({
            "receivers": hostile::receivers().len(),
            "cases": verdicts.len(),
            "failed": failed.len(),
            "failures": failed.iter().take(40).map(|v| json!({"case": v.case, "why": v.problems})).collect::<Vec<_>>(),
            "connections_first_10_s": single(|v| v.first),
            "connections_later_10_s": single(|v| v.later),
            "log_bytes_per_message": log_bytes,
            "cpu_ms_max": worst.map_or(0.0, |cpu| cpu.ms_max),
            "cpu_worst": worst.map(|cpu| &cpu.case),
            "healthy_ms": rounds.iter().map(|r| [r.beside_ms, r.without_ms]).collect::<Vec<_>>(),
        })
    );
}
