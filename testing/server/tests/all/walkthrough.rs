//! The lines of docs/operate/first-hour.md and of README.md's first configuration, run as they stand: only the ports
//! are others, so that tests run side by side.

use std::fmt::Write as _;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process_group};
use stentor_harness::{PATIENCE, stentor, stentor_kit};

use crate::kit::closed_port;

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    std::fs::read_to_string(path).expect("the page is there")
}

/// The fenced blocks in this language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    page.split(&*fence).skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect()
}

/// Other ports in place of those in a text.
fn with_free_ports(mut text: String, ports: &[&str]) -> String {
    for port in ports {
        assert!(text.contains(port), "{port} is not in the page");
        text = text.replace(port, &closed_port().to_string());
    }
    text
}

/// Runs a script as a user would paste it, until the first line that fails; standard output with the script's trace
/// behind it.
fn run(script: &str) -> (String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let folders = [stentor(), stentor_kit()].map(|program| program.parent().expect("a folder").display().to_string());
    let path = format!("{}:{}", folders.join(":"), std::env::var("PATH").unwrap_or_default());
    let mut text = "set -euxo pipefail\n".to_owned();
    text += script;
    let (out, err) = (folder.path().join("out.txt"), folder.path().join("err.txt"));
    let file = |path: &Path| Stdio::from(std::fs::File::create(path).expect("the folder can be written"));
    let mut child = Command::new("bash")
        .args(["-c", &text])
        .current_dir(&folder)
        .env("PATH", path)
        .env_remove("STENTOR_CONFIG")
        .stdin(Stdio::null())
        .stdout(file(&out))
        .stderr(file(&err))
        .process_group(0)
        .spawn()
        .expect("bash can be run");
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().expect("a child can be waited for") {
            Some(status) => break Some(status),
            None if begun.elapsed() > 3 * PATIENCE => break None,
            None => std::thread::sleep(std::time::Duration::from_millis(50)),
        }
    };
    // What the script started and did not end.
    let group = Pid::from_raw(child.id().cast_signed()).expect("a child's id is not 0");
    let _ = kill_process_group(group, Signal::KILL);
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let (out, mut err) = (read(&out), read(&err));
    for log in ["stentor.log", "lab.log", "receiver.log"] {
        let _ = write!(err, "--- {log}\n{}", read(&folder.path().join(log)));
    }
    assert!(status.is_some_and(|status| status.success()), "{status:?}\n{out}\n{err}");
    (out, err)
}

#[test]
fn the_first_hour() {
    let page = page("docs/operate/first-hour.md");
    let script = with_free_ports(blocks(&page, "sh").concat(), &["2700", "2753", "2527", "8027"]);
    let (out, err) = run(&script);
    for expected in [
        "stentor.toml: ok; 1 list",
        "5 recipients",
        "down.example",
        "onnection refused",
        "452 4.2.2 mailbox full",
        "5.1.2",
        "the queue is empty",
        "stopping once open transactions have ended",
    ] {
        assert!(out.contains(expected), "{expected}\n{out}\n{err}");
    }
}

#[test]
fn the_first_configuration_of_the_readme() {
    let page = page("README.md");
    let [lines] = blocks(&page, "sh")[..] else { panic!("one script") };
    // Both recipients have a copy at the receiver, and the report says so.
    let delivered = "until grep -qs '\"recipients\":2,' receiver.log; do sleep 0.1; done\n\
        until stentor report | grep '100 % delivered'; do sleep 0.1; done\n";
    let script = format!("{lines}{delivered}stentor queue\nstentor stop\n");
    let (out, err) = run(&with_free_ports(script, &["2626", "2525", "8025"]));
    for expected in [
        "stentor.toml: ok; 1 list, 1 alias, 1 route",
        "sent       ann@example.com",
        "250 2.0.0 taken",
        "the queue is empty",
        "stopping once open transactions have ended",
    ] {
        assert!(out.contains(expected), "{expected}\n{out}\n{err}");
    }
}
