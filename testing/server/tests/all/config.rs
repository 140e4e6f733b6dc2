//! `stentor check`, a start with errors, and reading the configuration again.

use std::process::{Command, Output};

use rustix::process::Signal;
use stentor_harness::{Server, TestLab, message, stentor, wait_until};

fn check(server: &Server) -> (i32, String, String) {
    let output: Output = server.operator(&["check"]);
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).replace(&format!("{}/", server.folder().display()), "");
    (output.status.code().expect("no signal"), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_sound_file() {
    let lab = TestLab::sites(&["one.example"]);
    let server = Server::builder()
        .lab(&lab)
        .list("news", &["ann@one.example"])
        .set("domains.postmaster", "\"root@one.example\"")
        .set_in("lists.news", "post", "\"members\"")
        .set_in("lists.news", "owner", "\"root@one.example\"")
        .prepare();
    let (code, out, err) = check(&server);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.starts_with("stentor.toml: ok; 1 list, 0 aliases") && out.lines().count() == 1, "{out}");
    assert!(out.ends_with("; subscribers: news 1\n"), "{out}");
}

#[test]
fn what_the_file_names_is_tried_too() {
    let server = Server::builder()
        .list("news", &["ann@one.example", "no address"])
        .set("sources.out.address", "\"192.0.2.77\"")
        .prepare();
    let (code, out, err) = check(&server);
    assert_eq!((code, out.as_str()), (78, ""));
    for expected in [
        "news.subscribers:2:4: warning: unexpected text after the address",
        "this machine does not have the address 192.0.2.77",
    ] {
        assert!(err.contains(expected), "{err}");
    }
    assert!(err.contains("name server 127.0.0.1:9 does not answer"), "{err}");
    // For another machine's file.
    assert!(server.operator(&["check", "--file-only"]).status.success());
}

#[test]
fn show_has_every_value_and_its_origin() {
    let server = Server::builder().set("retry.lifetime_s", "\"3d\"").prepare();
    let output = server.operator(&["config", "show", "--changed"]);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && shown.contains("\n[retry]\nlifetime_s = 259200 "), "{output:?}");
    let output = server.operator(&["config", "show", "--json"]);
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = rows.as_array().expect("rows");
    assert!(rows.len() > 80 && rows.iter().any(|row| row["key"] == "idle_ms" && row["origin"] == "default"));
}

#[test]
fn every_error_at_once_with_its_place() {
    let server = Server::builder().prepare();
    server.write(
        "stentor.toml",
        b"hostnam = \"a.example\"\n[listen]\nconection_max = 5\nerrors_max = -1\n[lists.news]\naddress = \
          \"news\"\nsubscribers = \"x\"\n",
    );
    let (code, out, err) = check(&server);
    assert_eq!((code, out.as_str()), (78, ""));
    for expected in [
        "stentor.toml:1:1: unknown key `hostnam`; did you mean `hostname`?",
        "stentor.toml:3:1: unknown key `conection_max` in [listen]; did you mean `connections_max`?",
        "stentor.toml:4:14: ",
        "stentor.toml:6:11: ",
    ] {
        assert!(err.lines().any(|line| line.starts_with(expected)), "{expected} is not in\n{err}");
    }
    // It does not start either, and leaves nothing behind.
    let output = server.command().output().expect("the binary can be run");
    assert_eq!(output.status.code(), Some(78));
    assert!(!server.path("data").exists());
}

#[test]
fn a_file_that_is_not_toml_or_not_there() {
    let server = Server::builder().prepare();
    server.write("stentor.toml", b"[listen\n");
    let (code, _, err) = check(&server);
    assert!(code == 78 && err.starts_with("stentor.toml:1:"), "{err}");
    std::fs::remove_file(server.config()).expect("it is there");
    let (code, _, err) = check(&server);
    assert!(code == 78 && err.contains("stentor.toml"), "{err}");
}

#[test]
fn a_running_server_is_reached_whatever_else_is_wrong() {
    let server = Server::builder().list("news", &["ann@one.example"]).start();
    server.edit_config(|text| text.replace("hostname", "hostnam"));
    for command in [&["status"][..], &["queue"], &["suspend", "--list", "news"]] {
        let output = server.operator(command);
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {output:?}");
        assert!(err.contains("unknown key `hostnam`; did you mean `hostname`?"), "{err}");
    }
    let output = server.operator(&["reload"]);
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr).matches("unknown key `hostnam`").count(), 1, "{output:?}");
}

#[test]
fn the_example_is_sound() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../stentor.example.toml");
    // All three ways to name it.
    for arguments in [&["check", "--config", example][..], &["check", example], &["check"]] {
        let mut command = Command::new(stentor());
        command.args(arguments).env_remove("STENTOR_CONFIG");
        if arguments.len() == 1 {
            command.env("STENTOR_CONFIG", example);
        }
        let output = command.output().expect("the binary can be run");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_second_server_on_the_same_data_is_refused() {
    let server = Server::builder().start();
    let output = server.command().output().expect("the binary can be run");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("data"), "{output:?}");
    server.smtp().quit();
}

#[test]
fn hangup_takes_the_new_file() {
    let lab = TestLab::sites(&["one.example"]);
    let server = Server::builder().lab(&lab).list("news", &["ann@one.example"]).start();
    let mut old = server.smtp();
    server.smtp().cmd("MAIL FROM:<me@home.example>").expect(250);
    server.write("more", b"bob@one.example\n");
    server.edit_config(|text| format!("{text}\n[lists.more]\naddress = \"more@lists.test\"\nsubscribers = \"more\"\n"));
    server.signal(Signal::HUP);
    server.wait_log(&["configuration reloaded"]);
    let wire = message("new@test", "x");
    lab.recorder().expect_message(wire.clone().into());
    server.smtp().send("me@home.example", &["more@lists.test"], &wire).expect(250);
    lab.wait_clean("new@test", &["bob@one.example"]);
    // Whoever was connected is still.
    old.cmd("NOOP").expect(250);
}

#[test]
fn hangup_with_errors_changes_nothing() {
    let lab = TestLab::sites(&["one.example"]);
    let server = Server::builder().lab(&lab).list("news", &["ann@one.example"]).start();
    server.edit_config(|text| text.replace("hostname", "hostnam"));
    for n in 1..=2 {
        if n == 1 {
            server.signal(Signal::HUP);
        } else {
            assert!(server.operator(&["reload", "--socket", "data/control.sock"]).status.code() != Some(0));
            let socket = server.path("data/control.sock");
            let output = Command::new(stentor()).arg("reload").arg("--socket").arg(socket).output();
            let output = output.expect("the binary can be run");
            let err = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.code() == Some(78) && err.contains("unknown key `hostnam`"), "{err}");
        }
        server.log().wait_nth(&["the old one stays in force"], n).expect("it runs");
    }
    server.wait_log(&["ERROR", "unknown key `hostnam`; did you mean `hostname`?"]);
    // The socket is enough, whatever the file has.
    server.edit_config(|text| format!("[[[\n{text}"));
    let socket = server.path("data/control.sock").display().to_string();
    for arguments in [
        &["status"][..],
        &["queue"],
        &["hosts"],
        &["trace", "nobody@one.example"],
        &["realstat", "--plain", "--interval", "0.1", "--count", "1"],
    ] {
        let output = server.operator(&[arguments, &["--socket", &socket]].concat());
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(!err.contains("not TOML") && matches!(output.status.code(), Some(0 | 3)), "{arguments:?}: {err}");
    }
    server.edit_config(|text| text.replace("[[[\n", ""));
    // What the file has does not hide the server that runs.
    let output = server.operator(&["doctor"]);
    let found = String::from_utf8_lossy(&output.stdout);
    assert!(found.starts_with("PROBLEM: ") && found.contains("unknown key `hostnam`"), "{found}");
    assert!(
        found.contains("until then a restart fails")
            && found.contains("a server is running with an earlier version of "),
        "{found}"
    );
    assert_eq!(output.status.code(), Some(78), "{found}");
    let explained = server.operator_text(&["explain", "--from", "me@home.example", "--to", "news@lists.test"]);
    let file = server.config().display().to_string();
    assert!(explained.contains(&format!("cannot explain {file}, which has errors")), "{explained}");
    assert!(explained.contains("the running server still uses the previous version"), "{explained}");
    let wire = message("old@test", "x");
    lab.recorder().expect_message(wire.clone().into());
    server.smtp().send("me@home.example", &["news@lists.test"], &wire).expect(250);
    lab.wait_clean("old@test", &["ann@one.example"]);
}

#[test]
fn configuration_errors_come_before_the_advice_to_start_a_server() {
    let server = crate::kit::bare().prepare();
    server.edit_config(|text| format!("{text}\n[nonsense]\n"));
    for command in ["status", "doctor"] {
        let said = server.operator_text(&[command]);
        let next = said.find("orrect ").unwrap_or_else(|| panic!("{command}: {said}"));
        assert!(said.find("`stentor serve").is_none_or(|start| next < start), "{command}: {said}");
    }
}

#[test]
fn hangup_says_what_takes_a_restart() {
    let server = Server::builder().start();
    server.edit_config(|text| text.replace("segment_bytes = 2097152", "segment_bytes = 4194304"));
    server.signal(Signal::HUP);
    server.wait_log(&["WARN", "[journal]", "restart"]);
    server.edit_config(|text| text.replace("127.0.0.1:0", "127.0.0.1:1"));
    server.signal(Signal::HUP);
    server.wait_log(&["WARN", "[listen] smtp", "restart"]);
    server.smtp().quit();
    // The command says so too, and what it exits with.
    let output = server.operator(&["reload"]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(4) && err.contains("[listen] smtp; [journal] segment_bytes;"), "{err}");
    // It is seen afterwards, wherever one looks, until then.
    let said = |arguments: &[&str]| String::from_utf8(server.operator(arguments).stdout).expect("text");
    let pending = said(&["status"]);
    assert!(pending.contains("RESTART      pending: [journal] segment_bytes has changed\n"), "{pending}");
    let findings = said(&["doctor"]);
    assert!(
        findings.contains("a restart is pending for changed keys: [listen] smtp, [journal] segment_bytes\n"),
        "{findings}"
    );
    let shown = said(&["config", "show"]);
    assert!(
        shown.contains("# [listen] smtp: the running server uses the old value until it is restarted\n"),
        "{shown}"
    );
    server.edit_config(|text| text.replace("127.0.0.1:1", "127.0.0.1:0").replace("4194304", "2097152"));
    let output = server.operator(&["reload"]);
    assert!(output.status.success() && output.stdout == b"configuration reloaded\n", "{output:?}");
    assert!(!said(&["status"]).contains("RESTART"));
}

#[test]
fn a_graceful_stop_waits_for_an_open_transaction() {
    let lab = TestLab::sites(&["one.example"]);
    let mut server = Server::builder().lab(&lab).start();
    let mut idle = server.smtp();
    let mut open = server.smtp();
    open.begin("me@home.example", &["ann@one.example"]);
    let wire = message("open@test", "x");
    let stuffed = stentor_harness::dot_stuff(&wire);
    open.raw(&stuffed[..50]);
    let address = server.address();
    server.signal(Signal::TERM);
    // Sessions without a transaction are told, new ones are not taken.
    idle.reply().expect(421);
    assert_eq!(idle.rest(), "");
    wait_until("the port is closed", || std::net::TcpStream::connect(address).is_err());
    assert!(server.is_running());
    open.raw(&stuffed[50..]);
    open.reply().expect(250);
    open.reply().expect(421);
    assert_eq!(open.rest(), "");
    assert!(server.wait_exit().success());
    // Delivered before the stop or after the next start: once in any case.
    lab.recorder().expect_message(wire.into());
    server.start_again();
    lab.wait("the copy", |recorder| recorder.copies_of("open@test") == 1);
    server.wait_empty();
    assert_eq!(lab.recorder().copies_of("open@test"), 1);
}

#[test]
fn a_second_signal_stops_at_once() {
    let mut server = Server::builder().start();
    let mut open = server.smtp();
    open.begin("me@home.example", &["ann@one.example"]);
    server.signal(Signal::TERM);
    server.wait_log(&["stopping"]);
    server.signal(Signal::TERM);
    assert_eq!(server.wait_exit().code(), Some(130));
    assert_eq!(open.rest(), "");
    server.start_again();
    server.smtp().quit();
}
