//! Freshly written logs of other MTAs: `--from` counts what awk counts.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use stentor_harness::{skipped, stentor, stentor_kit};

fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("foreign").join(name)
}

fn root() -> PathBuf {
    std::env::var_os("STENTOR_FOREIGN_ROOT").map_or_else(|| "/var/cache/stentor-tests/foreign".into(), PathBuf::from)
}

#[track_caller]
fn run(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().expect("the program can be run");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn read(arguments: &[&str], log: &Path) -> Output {
    run(Command::new(stentor()).args(arguments).arg("--from").arg(log).arg("--utc"))
}

/// The log of a lab run of this MTA, unless it cannot run here.
fn written(mta: &str, dir: &Path) -> Option<PathBuf> {
    if !rustix::process::getuid().is_root() {
        skipped("the MTAs want root");
        return None;
    }
    if mta != "postfix" && !root().join("complete").exists() {
        skipped("sendmail and Exim are not unpacked: testing/install.sh");
        return None;
    }
    let log = dir.join(mta);
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("python3");
    command.env("PATH", path).arg(here("run.py")).arg(mta).arg("--kit").arg(stentor_kit());
    run(command.arg("--root").arg(root()).arg("--out").arg(&log));
    Some(log)
}

/// What awk counts, knowing nothing of us.
fn counted(mta: &str, log: &Path) -> Value {
    let output = run(Command::new("awk").args(["-v", &format!("mta={mta}"), "-f"]).arg(here("count.awk")).arg(log));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn all_commands_agree_with_awk(mta: &str) {
    let dir = tempfile::tempdir().expect("a folder");
    let Some(log) = written(mta, dir.path()) else { return };
    let counted = counted(mta, &log);
    assert!(counted["delivered"].as_u64() > Some(50) && counted["bounced"].as_u64() > Some(5), "{counted}");

    // mailstat: all that awk counts. Nothing in a real log is not understood.
    let output = read(&["mailstat", "--json"], &log);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let table: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let total = &table["total"];
    let ours = serde_json::json!({
        "posts": total["messages"],
        "delivered": total["delivered"]["recipients"],
        "delivered_hosts": total["delivered"]["hosts"],
        "failed": total["failed"]["recipients"],
        "failed_hosts": total["failed"]["hosts"],
        "deferred": total["deferred"],
        "bounced": total["bounced"],
    });
    assert_eq!(ours, counted, "{mta}");

    // realstat: its rows add up to the same.
    let output = read(&["realstat", "--json"], &log);
    let rows: Vec<Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("a row is an object"))
        .collect();
    for field in ["delivered", "failed"] {
        let sum: u64 = rows.iter().map(|row| row[field].as_u64().expect("a count")).sum();
        assert_eq!(Some(sum), counted[field].as_u64(), "{mta}: {field}");
    }

    // latedudes: the queue was empty at the end; before the first was given up somebody waited for the host that is
    // down.
    let late =
        |log: &Path| -> Value { serde_json::from_slice(&read(&["latedudes", "--json"], log).stdout).expect("JSON") };
    assert_eq!(late(&log)["pending"], 0, "{mta}");
    let text = std::fs::read_to_string(&log).expect("the log");
    let until = text.lines().position(|line| line.contains("down.lab") && !line.contains("<=")).expect("it was tried");
    let begin: String = text.lines().take(until + 1).flat_map(|line| [line, "\n"]).collect();
    let cut = dir.path().join("begin");
    std::fs::write(&cut, begin).expect("written");
    let late = late(&cut);
    let sites = late["sites"].as_array().expect("sites");
    assert!(sites.iter().any(|site| site["name"] == "down.lab"), "{mta}: {late}");

    // trace: who was refused for good, with the host's words.
    let output = run(Command::new(stentor()).args(["trace", "nobody@ok.lab", "--utc", "--from"]).arg(&log));
    assert!(String::from_utf8_lossy(&output.stdout).contains("no such user here"), "{output:?}");

    // batchstat: the bins of the day have the same sums, and it is drawn.
    let output = read(&["batchstat", "--days", "2", "--json"], &log);
    let days: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let sum = |field: &str| -> u64 {
        let days = days.as_array().expect("days");
        let bins = days.iter().flat_map(|day| day["bins"].as_array().expect("bins"));
        bins.map(|bin| bin[field].as_u64().expect("a count")).sum()
    };
    for (bin, count) in
        [("delivered", "delivered"), ("failed", "failed"), ("given_up", "bounced"), ("arrivals", "posts")]
    {
        assert_eq!(Some(sum(bin)), counted[count].as_u64(), "{mta}: {bin}");
    }
    for name in ["day.svg", "day.png"] {
        let picture = dir.path().join(name);
        read(&["batchstat", "--days", "2", "--out", picture.to_str().expect("a path")], &log);
        assert!(std::fs::metadata(&picture).expect("a picture").len() > 5_000);
    }
}

#[test]
fn postfix() {
    all_commands_agree_with_awk("postfix");
}

#[test]
fn sendmail() {
    all_commands_agree_with_awk("sendmail");
}

#[test]
fn exim() {
    all_commands_agree_with_awk("exim");
}
