//! `kill -9` while entries are added and removed: nothing that was answered is lost, and nothing that was removed comes
//! back. A control that answers before the commit shows that the checker would notice.
//!
//! Twenty cuts; `REGISTRY_CUTS=500 cargo test -p stentor-registry --test crash` makes more. The child is this program
//! itself: it writes a line to its standard output before each removal (`?7`) and after each answer (`+7`, `-7`).
//! Lines written before the kill are read to their end.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

use stentor_registry::{AddressRegistry, Scope, Subject, Suppression, SuppressionKey, SuppressionReason};

const CUTS_DEFAULT: u64 = 20;
/// Writers at a time, so that transactions have several changes.
const WRITERS: u64 = 8;
/// Answers after which the child is killed at the latest.
const ANSWERS_MAX: usize = 300;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().collect();
    if let [_, mode, folder, first] = &arguments[..]
        && let ("--child" | "--early", Ok(first)) = (mode.as_str(), first.parse())
    {
        return child(Path::new(folder), first, mode == "--early");
    }
    let cuts = env::var("REGISTRY_CUTS").ok().and_then(|text| text.parse().ok()).unwrap_or(CUTS_DEFAULT);
    let lost = run("--child", cuts);
    println!("{cuts} cuts, {} entries wrong after them", lost.len());
    if !lost.is_empty() {
        println!("wrong: {lost:?}");
        return ExitCode::FAILURE;
    }
    let lost = run("--early", cuts);
    println!("control with early answers: {} entries wrong", lost.len());
    if lost.is_empty() {
        println!("the control lost nothing: the checker is blind");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn key(number: u64) -> SuppressionKey {
    SuppressionKey::parse(&format!("{number}@x.example"), "everything").expect("an address")
}

/// Adds entries from `first` on, and removes each third, until it is killed.
fn child(folder: &Path, first: u64, is_early: bool) -> ExitCode {
    let registry = Arc::new(AddressRegistry::open(folder).expect("the registry opens after a kill"));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let say = |word: char, number: u64| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{word}{number}").and_then(|()| out.flush()).is_ok()
    };
    let write = |registry: Arc<AddressRegistry>, writer: u64| async move {
        for number in (first + writer..).step_by(WRITERS as usize) {
            let subject = Subject::parse(&format!("{number}@x.example")).expect("an address");
            let entry = Suppression::new(subject, Scope::Everything, SuppressionReason::Complaint, "test", number);
            if is_early && !say('+', number) {
                return;
            }
            registry.suppress(entry).await.expect("it is added");
            if !is_early && !say('+', number) {
                return;
            }
            if number % 3 == 0 {
                if !say('?', number) {
                    return;
                }
                registry.remove(vec![key(number)]).await.expect("it is removed");
                if !say('-', number) {
                    return;
                }
            }
        }
    };
    let local = tokio::task::LocalSet::new();
    for writer in 0..WRITERS {
        local.spawn_local(write(registry.clone(), writer));
    }
    runtime.block_on(local);
    ExitCode::SUCCESS
}

/// Kills a child `cuts` times over one database. Returns the numbers whose entries are wrong after a kill.
fn run(mode: &str, cuts: u64) -> BTreeSet<u64> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut rng = fastrand::Rng::with_seed(cuts);
    // Whether an entry must be there; absent: either.
    let mut expected: BTreeMap<u64, bool> = BTreeMap::new();
    let (mut first, mut wrong) = (0, BTreeSet::new());
    for _ in 0..cuts {
        let program = env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.arg(mode).arg(folder.path()).arg(first.to_string()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the child starts");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let answers = rng.usize(1..ANSWERS_MAX);
        for line in lines.by_ref().take(answers) {
            note(&line.expect("a line"), &mut expected);
        }
        child.kill().expect("it is killed");
        // What it wrote before counts; the last line may be torn.
        for line in lines.map_while(Result::ok).filter(|line| line.len() > 1) {
            note(&line, &mut expected);
        }
        child.wait().expect("it has ended");
        let registry = AddressRegistry::open(folder.path()).expect("the registry opens after a kill");
        for (number, is_there) in &expected {
            let address = format!("{number}@x.example");
            if registry.is_suppressed(&address, None, "", 0).is_some() != *is_there {
                wrong.insert(*number);
            }
        }
        registry.close();
        first = expected.keys().next_back().map_or(0, |last| last + WRITERS * 2);
    }
    assert!(expected.len() as u64 >= cuts, "each child got somewhere");
    wrong
}

fn note(line: &str, expected: &mut BTreeMap<u64, bool>) {
    let (word, number) = line.split_at(1);
    let Ok(number) = number.parse() else { return };
    match word {
        "+" => drop(expected.insert(number, true)),
        "?" => drop(expected.remove(&number)),
        _ => drop(expected.insert(number, false)),
    }
}
