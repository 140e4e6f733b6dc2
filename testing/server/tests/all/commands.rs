//! Commands as scripts and terminals see them: exit codes, a reader that has gone, hints that can be pasted.

use std::process::{Command, Output, Stdio};

use serde_json::Value;
use stentor_harness::{Server, TestLab, message, message_with, stentor, wait_until};

/// A server with a list and a held message.
fn with_a_message() -> (Server, String) {
    let server = crate::kit::bare().list("news", &["ann@one.example"]).start();
    let id =
        server.smtp().send("me@home.example", &["bob@one.example"], &message("c@test", "x")).expect(250).queue_id();
    assert!(server.operator(&["hold", "--id", &id]).status.success());
    (server, id)
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_matches_nothing_has_an_exit_code_of_its_own() {
    let (server, id) = with_a_message();
    for verb in ["hold", "release", "remove", "bounce", "requeue"] {
        let output = server.operator(&[verb, "--sender", "nobody@home.example"]);
        assert_eq!((output.status.code(), err(&output)), (Some(3), "stentor: nothing matches\n".to_owned()), "{verb}");
        assert_eq!(server.operator(&[verb, "--sender", "@home.test", "--dry-run"]).status.code(), Some(3), "{verb}");
    }
    for arguments in [
        &["hold", "--list", "nws"][..],
        &["flush", "--list", "nws"],
        &["report", "--list", "nws"],
        &["mailqq", "--list", "nws"],
    ] {
        let output = server.operator(arguments);
        let expected = "stentor: there is no list nws; did you mean news?\n";
        assert_eq!((output.status.code(), err(&output).as_str()), (Some(3), expected), "{arguments:?}");
    }
    assert_eq!(server.operator(&["flush", "mx.nowhere.example"]).status.code(), Some(3));
    assert_eq!(server.operator(&["queue", "export", "--recipient", "@two.example"]).status.code(), Some(3));
    // So it is for views of a part of the queue; of all of it, nothing is an answer.
    for arguments in [
        &["queue", "--site", "one.example", "--list", "news"][..],
        &["queue", "--by", "age", "--list", "news"],
        &["stuck", "--list", "news"],
        &["hosts", "nowhere"],
        &["mailqq", "--sender", "@home.test"],
        &["report", "--list", "news"],
        &["realstat", "--list", "nws", "--count", "1"],
        &["flush", "nowhere.example"],
    ] {
        let output = server.operator(arguments);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {output:?}");
    }
    assert_eq!(
        String::from_utf8_lossy(&server.operator(&["mailqq", "--sender", "@home.test"]).stdout),
        "no messages match\n"
    );
    for arguments in [&["hosts", "--failing"][..], &["report"]] {
        assert!(server.operator(arguments).status.success(), "{arguments:?}");
    }
    // What is as it should be is no failure.
    let output = server.operator(&["hold", "--id", &id]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, b"hold: 0 recipients of 0 messages; 1 message already held\n");
    // A command line that cannot be understood is another code.
    for arguments in [
        &["hold"][..],
        &["bounce", "--end"],
        &["suspend", "--for", "2h"],
        &["suspend", "--site", "one.example", "--for", "0s"],
        &["queue-only", "--domain", "one.example", "--for", "0s"],
        &["suspend", "--sender", "joe@home.example"],
        &["bounce", "--sender", "<>", "--for", "2h"],
        &["hold", "--sender", ""],
        &["queue-only", "--sender", " "],
        &["mailqq", "--sender", ""],
        &["queue", "show", "x"],
        &["report", "x"],
        &["report", "--limit", "0"],
        &["stuck", "--limit", "0"],
        &["mailqq", "--limit", "0"],
    ] {
        assert_eq!(server.operator(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_reader_that_has_gone_ends_a_command_quietly() {
    let (server, id) = with_a_message();
    let config = server.config();
    let config = config.to_str().expect("text");
    for command in [
        &["status"][..],
        &["queue"],
        &["queue", "--json"],
        &["queue", "show", &id],
        &["queue", "export"],
        &["mailqq"],
        &["latedudes"],
        &["hosts"],
        &["report"],
        &["realstat", "--count", "1", "--interval", "0.2"],
        &["mailstat"],
        &["bounces"],
        &["trace", "bob@one.example"],
        &["check"],
        &["doctor"],
        &["help"],
        &["help", "queue"],
        &["man"],
        &["completions", "bash"],
        &["http-token", "ci"],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut child = Command::new(stentor());
        child.args(command).stdin(Stdio::null()).stdout(writer);
        if !["help", "man", "completions", "http-token"].contains(&command[0]) {
            child.args(["--config", config]);
        }
        let output = child.stderr(Stdio::piped()).output().expect("the binary can be run");
        assert!(output.status.success(), "{command:?}: {output:?}");
        assert!(!err(&output).contains("roken pipe") && !err(&output).contains("panic"), "{command:?}: {output:?}");
    }
}

#[test]
fn a_file_that_is_no_log_and_a_folder_that_is_no_history_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("passwd");
    std::fs::write(&file, "root:x:0:0:root:/root:/bin/bash\nann:x:1:1::/:/bin/sh\n")
        .expect("the folder can be written");
    let run = |arguments: &[&str]| Command::new(stentor()).args(arguments).output().expect("the binary can be run");
    let (folder, file) = (folder.path().to_str().expect("text"), file.to_str().expect("text"));
    for command in ["mailstat", "latedudes", "batchstat", "bounces"] {
        let output = run(&[command, "--from", file]);
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]), "{command}");
        let expected = format!("{file}: not a log of sendmail, Postfix, Exim or Stentor: none of 2 lines understood");
        assert!(err(&output).contains(&expected), "{}", err(&output));
    }
    let output = run(&["mailstat", "--dir", folder]);
    assert!(output.status.code() == Some(1) && err(&output).contains("not a history"), "{output:?}");
}

#[test]
fn hints_hold_the_configuration_that_was_given() {
    let server = crate::kit::bare().start();
    let config = server.config();
    for arguments in [&["flush", "mx.nowhere.example"][..], &["site", "mx.nowhere.example"]] {
        let expected = format!("`stentor hosts --config {}`", config.display());
        let output = server.operator(arguments);
        assert!(err(&output).contains(&expected), "{}", err(&output));
    }
    // By its socket, or by the environment.
    let socket = server.path("data/control.sock");
    let mut command = Command::new(stentor());
    let output = command.args(["flush", "mx", "--socket"]).arg(&socket).output().expect("the binary can be run");
    assert!(err(&output).contains(&format!("`stentor hosts --socket {}`", socket.display())), "{output:?}");
    let mut command = Command::new(stentor());
    let output = command.args(["flush", "mx"]).env("STENTOR_CONFIG", &config).output().expect("the binary can be run");
    assert!(err(&output).contains("`stentor hosts` lists all sites"), "{output:?}");
}

#[test]
fn a_port_of_another_program_is_named_while_we_run_on_others() {
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = other.local_addr().expect("an address").to_string();
    let server = crate::kit::bare().start();
    server.edit_config(|text| text.replace("127.0.0.1:0", &address));
    let expected = format!("another program listens on {address}");
    let output = server.operator(&["check"]);
    assert!(err(&output).contains(&format!("warning: {expected}")), "{output:?}");
    // doctor finds what check does.
    let output = server.operator(&["doctor"]);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.lines().any(|line| line.starts_with("warning: ") && line.ends_with(&expected)), "{shown}");
}

#[test]
fn a_port_in_use_fails_the_start_before_anything_is_written() {
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = other.local_addr().expect("an address");
    for key in ["listen.smtp", "http.listen"] {
        let server = crate::kit::bare().set(key, &format!("\"{address}\"")).prepare();
        let output = server.command().output().expect("the binary can be run");
        assert!(
            !output.status.success() && err(&output).contains(&format!("cannot listen on {address}")),
            "{output:?}"
        );
        let made = |path: &str| {
            let all = std::fs::read_dir(server.path(path)).expect("a folder");
            all.map(|entry| entry.expect("an entry").file_name()).collect::<Vec<_>>()
        };
        assert_eq!((made("data"), made("data/journal")), (vec!["journal".into()], vec!["lock".into()]), "{key}");
    }
}

#[test]
fn our_own_ports_are_not_taken_for_those_of_another_program() {
    use std::os::unix::fs::PermissionsExt as _;
    let ports: Vec<u16> = (0..4).map(|_| crate::kit::closed_port()).collect();
    let at = |n: usize| format!("[\"127.0.0.1:{}\"]", ports[n]);
    let server = crate::kit::bare()
        .file("users", b"")
        .set("auth.users", "\"users\"")
        .set("listen.smtps", &at(0))
        .set("listen.submission", &at(1))
        .set("acme.names", "[\"mx.acme.test\"]")
        .set("acme.agree_terms", "true")
        .set("acme.directory", &format!("\"https://127.0.0.1:{}/dir\"", ports[2]))
        .set("acme.http_listen", &at(3))
        .prepare();
    std::fs::set_permissions(server.path("users"), std::fs::Permissions::from_mode(0o600)).expect("it is ours");
    let server = server.run();
    let said = |word: &str| {
        let output = server.operator(&[word]);
        String::from_utf8_lossy(&output.stdout).into_owned() + &err(&output)
    };
    for word in ["check", "doctor"] {
        let text = said(word);
        assert!(!text.contains("another program"), "{word}: {text}");
    }
    // One that cannot be asked is recognised all the same.
    std::fs::remove_file(server.path("data/control.sock")).expect("it is there");
    let text = said("check");
    let expected = "cannot tell whether this server or another program uses the ports: process ";
    assert!(text.contains(expected) && !text.contains("listens on"), "{text}");
}

#[test]
fn trace_of_what_waits_says_why() {
    // No name server answers, and nothing is tried.
    let server = crate::kit::bare().start();
    let wire = message("why@test", "x");
    let id = server.smtp().send("me@home.example", &["bob@one.example"], &wire).expect(250).queue_id();
    stentor_harness::wait_until("the lookup has failed", || {
        server.ask(&["site", "one.example"]).is_ok_and(|site| site["next_try"].is_u64())
    });
    // The history is written with a short delay.
    stentor_harness::wait_until("its Message-ID is known", || {
        server.operator(&["trace", "<why@test>"]).status.success()
    });
    for what in ["one.example", "bob@one.example", &id, "<why@test>", "why@test"] {
        let shown = String::from_utf8(server.operator(&["trace", what]).stdout).expect("text");
        let line = shown.lines().find(|line| line.starts_with("now ")).unwrap_or_default();
        let is_told = line.contains("bob@one.example deferred at one.example, next try ") && line.contains(": ");
        assert!(is_told, "{what}: {shown}");
        assert!(
            !shown.contains("nothing pending") && !shown.contains("no records of its recipients"),
            "{what}: {shown}"
        );
    }
    server.ask(&["remove", "--all"]).expect("it is removed");
    let shown = String::from_utf8(server.operator(&["trace", &id]).stdout).expect("text");
    assert!(shown.contains("nothing pending"), "{shown}");
}

#[test]
fn while_no_name_server_answers_the_log_and_doctor_say_so() {
    // Nothing answers there.
    let server = crate::kit::bare().start();
    server.smtp().send("me@home.example", &["bob@one.example"], &message("d@test", "x")).expect(250);
    server.wait_log(&["WARN", "no name server has answered since the server started (1 tried; last: ", "127.0.0.1:9"]);
    let output = server.operator(&["doctor"]);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(
        shown.contains("warning: no name server has answered since the server started (1 question)\n    next: "),
        "{shown}"
    );
    wait_until("it is a problem", || {
        let output = server.operator(&["doctor"]);
        output.status.code() == Some(1) && String::from_utf8_lossy(&output.stdout).contains("PROBLEM: DNS is down")
    });
}

#[test]
fn a_value_that_cannot_be_is_a_mistake_of_the_command_line() {
    let server = crate::kit::bare().start();
    for arguments in [
        &["mailstat", "--since", "tomorrow"][..],
        &["mailstat", "--until", "2026-02-30"],
        &["mailstat", "--zone", "Nowhere/City"],
        &["batchstat", "--day", "never"],
        &["batchstat", "--out", "chart.gif"],
        &["trace", "ann@one.example", "--since", "1y"],
        &["explain", "--from", "", "--to", "nobody", "--client", "192.0.2.1"],
        &["explain", "--from", "nobody", "--to", "ann@one.example", "--client", "192.0.2.1"],
    ] {
        let output = server.operator(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", err(&output));
    }
}

#[test]
fn what_a_host_says_is_no_hint() {
    let lab = TestLab::start(
        "[[site]]\nname = 'odd.example'\nbehaviour = { at_rcpt = '450 4.2.0 try `stentor remove --all` or `stentor ' }\n",
    );
    let server = crate::live::patient(&lab).start();
    server.smtp().send("me@home.example", &["ann@odd.example"], &message("odd@test", "x")).expect(250);
    let shown = |arguments: &[&str]| String::from_utf8(server.operator(arguments).stdout).expect("text");
    let said = "450 4.2.0 try `stentor remove --all` or `stentor";
    wait_until("it has been tried", || shown(&["queue"]).contains(said));
    wait_until("recipients are counted", || shown(&["stuck"]).contains("ann@odd.example"));
    for arguments in [&["queue"][..], &["stuck"], &["site", "odd.example"], &["hosts"], &["mailqq"], &["doctor"]] {
        let text = shown(arguments);
        assert!(!text.contains("remove --all --config") && !text.contains('\u{f860}'), "{arguments:?}: {text}");
    }
    server.ask(&["suspend", "--site", "odd.example"]).expect("it is suspended");
    let text = shown(&["stuck"]);
    assert!(text.contains("`stentor resume --site mx1.odd.example --config "), "{text}");
}

/// A name without a domain is at the origin where the server takes it: for trusted clients, by network or login.
#[test]
fn names_without_a_domain_are_explained_as_the_server_reads_them() {
    let server =
        crate::kit::bare().list("news", &["ann@one.example"]).set("addresses.origin", "\"lists.test\"").start();
    for trusted in [&["--client", "127.0.0.1"][..], &["--client", "192.0.2.1", "--login"]] {
        let output = server.operator(&[&["explain", "--from", "root", "--to", "news"], trusted].concat());
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text} {}", err(&output));
        assert!(
            text.contains("root@lists.test") && text.contains("news@lists.test") && text.contains("list news"),
            "{text}"
        );
    }
    let output = server.operator(&["explain", "--from", "root", "--to", "news", "--client", "192.0.2.1"]);
    assert!(output.status.code() == Some(2) && err(&output).contains("\"root\" has no domain; "), "{output:?}");
    // What the server does.
    let mut client = server.smtp();
    client.cmd("MAIL FROM:<root>").expect(250);
    client.cmd("RCPT TO:<news>").expect(250);
}

#[test]
fn an_address_says_what_it_stands_for() {
    let server = crate::kit::bare()
        .list("news", &["ann@one.example", "bob@one.example"])
        .set("lists.news.owner", "\"boss@one.example\"")
        .set("addresses.origin", "\"lists.test\"")
        .alias("team@lists.test", &["ann@one.example", "news@lists.test"])
        .start();
    for (address, expected) in [
        (
            "news@lists.test",
            "  here      list news: 2 subscribers, owner boss@one.example, bounces to news-bounces@lists.test\n",
        ),
        ("NEWS@Lists.Test", "  here      list news: 2 subscribers"),
        ("news", "  here      list news: 2 subscribers"),
        ("news-bounces@lists.test", "  here      reports about posts of news\n"),
        ("team@lists.test", "  here      for ann@one.example\n            list news: 2 subscribers"),
        ("nobody@lists.test", "  here      refused: 550 5.1.1"),
        ("ann@one.example", "  lists     news\n"),
    ] {
        let text = server.operator_text(&["address", address]);
        assert!(text.contains(expected), "{address}: {text}");
    }
    let unknown = server.operator(&["address", "cid@two.example"]);
    assert!(
        unknown.status.code() == Some(3) && err(&unknown).contains("is not in recent mail or any list"),
        "{unknown:?}"
    );
}

#[test]
fn check_names_subscribers_and_owners_whom_nobody_here_has() {
    let subscribers = [
        "gone@lists.test",
        "ann@one.example",
        "team@lists.test",
        "news@lists.test",
        "postmaster@lists.test",
        "x+y@lists.test",
        "vic+x@virtual.test",
    ];
    let server = crate::kit::bare()
        .list("news", &subscribers)
        .list("all", &["news+detail@lists.test"])
        .set("lists.news.owner", "\"left@virtual.test\"")
        .set("domains.virtual", "[\"virtual.test\"]")
        .set("tables.users.as", "\"virtual\"")
        .set("tables.users.inline", "{ \"vic@virtual.test\" = \"vic@one.example\" }")
        .set("addresses.virtual", "[\"users\"]")
        .set("lists.all.owner", "\"team@lists.test\"")
        .set("domains.postmaster", "\"boss@one.example\"")
        .alias("team@lists.test", &["ann@one.example"])
        .prepare();
    let output = server.operator(&["check"]);
    let text = err(&output);
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("does not exist on this server")).collect();
    assert_eq!(lines.len(), 3, "{text}");
    let has = |file: &str, words: &str| lines.iter().any(|line| line.contains(file) && line.contains(words));
    assert!(has("news.subscribers:1:", "gone@lists.test does not exist on this server: no such list, alias"), "{text}");
    assert!(has("news.subscribers:1:", "mailbox; posts to it bounce to the list's owner, left@virtual.test"), "{text}");
    assert!(has("news.subscribers:6:", "x+y@lists.test does not exist on this server: no such list, alias"), "{text}");
    assert!(has("stentor.toml:", "list news: owner left@virtual.test does not exist on this server, "), "{text}");
    assert!(output.status.success(), "{text}");
}

/// The subject is decoded, in each view of a message, and selects it.
#[test]
fn messages_are_known_by_their_subjects() {
    let server = crate::kit::bare().list("news", &["ann@one.example"]).start();
    let send = |id: &str, to: &str, subject: &str| {
        let wire = message_with(id, &format!("Subject: {subject}\r\n"), "x");
        server.smtp().send("me@home.example", &[to], &wire).expect(250).queue_id()
    };
    let post = send("post@test", "news@lists.test", "=?utf-8?q?Quarterly_pl=C3=A4n?=");
    let other = send("other@test", "bob@one.example", "Lunch");
    send("none@test", "cid@one.example", "");
    let shown = server.operator_text(&["queue", "show", &post]);
    assert!(shown.contains("  subject     Quarterly plän\n"), "{shown}");
    assert!(server.operator_text(&["mailqq"]).contains("Subject: Lunch\n"));
    for report in [&["report"][..], &["report", &post]] {
        let text = server.operator_text(report);
        assert!(text.contains("    Subject: Quarterly plän\n"), "{text}");
    }
    let export = server.operator(&["queue", "export", "--subject", "QUARTERLY PLÄN"]);
    let lines: Vec<Value> =
        String::from_utf8_lossy(&export.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(lines.len() == 1 && lines[0]["id"] == *post && lines[0]["subject"] == "Quarterly plän", "{lines:?}");
    for (text, ids) in
        [("plän", vec![&post]), ("LUNCH", vec![&other]), ("l", vec![&post, &other]), ("breakfast", vec![])]
    {
        let answer = server.ask(&["mailqq", "--sort", "age", "--subject", text]).expect("an answer");
        let rows: Vec<&str> =
            answer["mailqq_rows"].as_array().into_iter().flatten().filter_map(|row| row["id"].as_str()).collect();
        assert!(rows == ids && answer["matching_messages"] == ids.len(), "{text}: {answer}");
    }
    let counted = |arguments: &[&str]| server.ask(arguments).expect("an answer")["messages"].clone();
    assert_eq!(counted(&["hold", "--subject", "l", "--dry-run"]), 2);
    assert_eq!(counted(&["hold", "--subject", "l", "--sender", "me@home.example", "--list", "news", "--dry-run"]), 1);
    for nothing in [&["remove", "--subject", "breakfast"][..], &["mailqq", "--subject", "breakfast"]] {
        assert_eq!(server.operator(nothing).status.code(), Some(3), "{nothing:?}");
    }
    assert_eq!(counted(&["remove", "--subject", "lunch"]), 1);
    assert_eq!(server.operator(&["queue", "show", &other]).status.code(), Some(3));
    assert_eq!(server.operator(&["bounce", "--subject", "x", "--for", "1h"]).status.code(), Some(2));
    assert_eq!(server.operator(&["quarantine", "delete", "--subject", "x"]).status.code(), Some(2));
}

/// On a terminal an action on many recipients shows how far it is; elsewhere, and of a few, it prints its answer alone.
#[test]
fn an_action_on_many_recipients_shows_its_progress_on_a_terminal() {
    let server = crate::kit::bare().start();
    let many: Vec<String> = (0..600).map(|n| format!("user{n}@one.example")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let send = |to: &[&str]| server.smtp().send("me@home.example", to, &message("p@test", "x")).expect(250).queue_id();
    let on_terminal = |arguments: &str| {
        let command = format!("{} {arguments} --config {}", stentor().display(), server.config().display());
        let file = server.path("typescript");
        let output = Command::new("script").args(["-qec", &command]).arg(&file).stdin(Stdio::null()).output();
        output.ok().map(|_| std::fs::read_to_string(&file).expect("a typescript"))
    };
    let id = send(&many);
    let Some(shown) = on_terminal(&format!("remove --id {id}")) else {
        return stentor_harness::skipped("script is missing (bsdutils)");
    };
    assert!(shown.contains("\r\u{1b}[Kremove: 0 of 600 recipients (0 %)"), "{shown:?}");
    let end = shown.rsplit("\r\u{1b}[K").next().unwrap_or_default();
    assert!(end.starts_with("remove: 600 recipients of 1 message"), "the line is gone: {shown:?}");
    let id = send(&["ann@one.example"]);
    let shown = on_terminal(&format!("remove --id {id}")).expect("it runs");
    assert!(shown.contains("remove: 1 recipient") && !shown.contains(" %)"), "{shown:?}");
    let id = send(&many);
    let output = server.operator(&["remove", "--id", &id]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert!(server.status()["action"].is_null());
}

/// Whatever a command does: without a usable configuration it ends with 78, and says why.
#[test]
fn a_broken_configuration_ends_all_commands_with_one_code() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stentor.toml");
    std::fs::write(&file, "hostname = \n[[[x\n").unwrap();
    let message = folder.path().join("message");
    std::fs::write(&message, "Subject: x\n\nx\n").unwrap();
    let explain = ["explain", "--from", "a@x.example", "--to", "b@x.example", "--message", message.to_str().unwrap()];
    for arguments in [
        &["check"][..],
        &["doctor"],
        &["status"],
        &["queue"],
        &["queue", "cat", "037P74WG0000"],
        &["hosts"],
        &["watch", "--site", "x.example"],
        &["realstat", "--plain", "--count", "1"],
        &["trace", "ann@x.example"],
        &["mailstat"],
        &["batchstat"],
        &["bounces"],
        &["reload"],
        &["user", "list"],
        &["table", "check", "users"],
        &["tls", "show"],
        &["tls", "check", "x.example"],
        &["journal", "verify"],
        &["config", "show"],
        &explain,
    ] {
        let output =
            Command::new(stentor()).args(arguments).arg("--config").arg(&file).output().expect("the binary can be run");
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(78), "{arguments:?}: {text}");
        assert!(text.contains("stentor.toml:1:12: "), "{arguments:?}: {text}");
    }
}
