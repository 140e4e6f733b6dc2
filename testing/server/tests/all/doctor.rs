//! `stentor doctor` of a running server, by a clock that is set.

use stentor_harness::{Server, TestLab, message, message_with, skipped, wait_until};

use crate::http_auth::token;
use crate::kit::{bare, builder, install};
use crate::live::patient;
use crate::preload::{preload, set_clock, start};
use crate::tls_in::certificate;

const MINUTE_S: i64 = 60;

fn doctor(server: &Server) -> String {
    String::from_utf8(server.operator(&["doctor"]).stdout).expect("text")
}

/// Sets the clock forward, and waits until the server has seen it.
fn forward(server: &Server, by_s: i64) {
    let before = server.log().matching(&["clock was set from"]).len();
    set_clock(server, by_s);
    server.log().wait_nth(&["clock was set from"], before + 1).expect("it is seen");
}

#[test]
fn what_check_finds_has_the_advice_that_fits() {
    let server = Server::builder().file("news", b"no address\n").file("table", b"key\n").prepare();
    let table = server.path("table").display().to_string();
    let text = "[listen]\nsmtp = \"198.51.100.9:25\"\n[http]\nlisten = []\n[log]\nattempts = \"logs/mail\"\n[dns]\n\
                servers = [\"127.0.0.1:9\"]\n[sources.out]\naddress = \"192.0.2.77\"\n[routes]\n\
                \"a.example\" = \"lmtp:unix:/nowhere/lmtp\"\n[domains]\nrelay = [\"a.example\"]\n[auth]\nusers = \"users\"\n\
                [lists.news]\naddress = \"news@lists.example\"\nsubscribers = \"news\"\n[[milters]]\nname = \"judge\"\n\
                address = \"unix:/nowhere/judge\"\n[policy_services.grey]\naddress = \"unix:/nowhere/grey\"\n[tables.t]\n\
                source = \"hash:TABLE\"\nas = \"access\"\n[dns_lists.bl]\nzone = \"bl.example\"\n";
    server.write("stentor.toml", text.replace("TABLE", &table).as_bytes());
    let said = doctor(&server);
    for (finding, next) in [
        ("logs does not exist", "create or correct the directory"),
        ("the server will not start without it", "correct the file or its owner and mode"),
        ("news:1:", "correct the file; the next post reads it"),
        ("does not have the address 192.0.2.77", "add the address to this machine"),
        ("does not have the address 198.51.100.9", "change the key, or stop the other program"),
        ("name server 127.0.0.1:9", "check that it runs and can be reached"),
        ("DNS list bl: ", "check that the list still exists"),
        ("milter judge", "start the milter"),
        ("policy service grey", "start the service"),
        ("/table:1:", "correct the table"),
        ("/nowhere/lmtp does not accept connections", "start the program that listens there"),
        ("`[call_ahead] domains", "change it, then run `stentor check"),
    ] {
        let lines: Vec<&str> = said.lines().collect();
        let at = lines.iter().position(|line| line.contains(finding)).unwrap_or_else(|| panic!("{finding}\n{said}"));
        assert!(lines[at + 1].starts_with(&format!("    next: {next}")), "{finding}\n{said}");
    }
}

#[test]
fn a_dead_site_is_named_however_many_others_have_more_waiting() {
    const OTHERS: usize = 210;
    let sites = (0..OTHERS).map(|n| format!("[[site]]\nname = 's{n}.example'\nbehaviour = {{ full_share = 1.0 }}\n"));
    let sites: String = sites.collect();
    let lab =
        TestLab::start(&format!("{sites}[[site]]\nname = 'dead.example'\nbehaviour = {{ connect = 'refuse' }}\n"));
    let mut server = patient(&lab).prepare();
    preload(&server);
    set_clock(&server, -11 * MINUTE_S);
    start(&mut server);
    let to: Vec<String> = (0..2 * OTHERS).map(|n| format!("u{n}@s{}.example", n / 2)).collect();
    let mut to: Vec<&str> = to.iter().map(String::as_str).collect();
    to.push("ann@dead.example");
    server.smtp().send("me@home.example", &to, &message("mail@test", "x")).expect(250);
    // A clock that is set makes no mail older; a start by another clock does.
    server.kill();
    set_clock(&server, 0);
    start(&mut server);
    wait_until("all have been tried", || {
        let queue = server.queue();
        let cause = |name: &str| {
            let rows = queue["causes"].as_array().cloned().unwrap_or_default();
            rows.iter().find(|row| row["cause"] == name).and_then(|row| row["recipients"].as_u64()).unwrap_or(0)
        };
        (cause("mailbox_full"), cause("refused")) == (2 * OTHERS as u64, 1)
    });
    let said = doctor(&server);
    assert!(said.contains("warning: mx1.dead.example: 1 recipient stuck, connection refused, the oldest "), "{said}");
    // A full mailbox is nothing unusual of a site.
    assert!(!said.contains("mx1.s0.example"), "{said}");
}

#[test]
fn what_is_dead_is_named_as_soon_as_it_has_failed_some_times() {
    let lab = TestLab::start("[[site]]\nname = 'dead.example'\nbehaviour = { connect = 'refuse' }\n");
    let server = builder(&lab).start();
    server.smtp().send("me@home.example", &["ann@dead.example"], &message("mail@test", "x")).expect(250);
    let named = "warning: mx1.dead.example: 1 recipient stuck, connection refused, ";
    wait_until("it is named", || doctor(&server).contains(named));
}

/// What is down is a condition of the server's health, and `doctor` tries it too, as `check` does.
#[test]
fn one_fault_is_named_once() {
    let server = bare().prepare();
    server.edit_config(|text| format!("{text}\n[[milters]]\nname = \"judge\"\naddress = \"unix:/nowhere/judge\"\n"));
    let server = server.run();
    wait_until("it is a condition", || {
        doctor(&server).contains("PROBLEM: refusing mail: milter judge (unix:/nowhere/judge")
    });
    let said = doctor(&server);
    assert_eq!(said.lines().filter(|line| line.contains("judge")).count(), 1, "{said}");
    server.edit_config(|text| text.split("\n[[milters]]").next().expect("text").to_owned());
    assert!(server.operator(&["reload"]).status.success());
    server.smtp().send("me@home.example", &["bob@one.example"], &message("d@test", "x")).expect(250);
    wait_until("the name server is a condition", || doctor(&server).contains("PROBLEM: DNS is down"));
    let said = doctor(&server);
    assert_eq!(said.lines().filter(|line| line.contains("127.0.0.1:9")).count(), 1, "{said}");
}

#[test]
fn that_no_server_runs_is_a_problem() {
    let mut server = bare().start();
    assert!(!doctor(&server).contains("no server is running"));
    server.smtp().send("me@home.example", &["bob@one.example"], &message("d@test", "x")).expect(250);
    assert!(server.stop().success());
    let output = server.operator(&["doctor"]);
    let said = String::from_utf8_lossy(&output.stdout);
    let first = "PROBLEM: no server is running: no mail is accepted or delivered; 1 message waiting for 1 recipient\n    \
                 next: start it with `stentor serve";
    assert!(said.starts_with(first) && output.status.code() == Some(1), "{said}");
    let output = server.operator(&["doctor", "--json"]);
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(found["ok"] == false && found["findings"][0]["severity"] == "problem", "{found}");
    // Nor where there never was one.
    let server = bare().prepare();
    assert_eq!(server.operator(&["doctor"]).status.code(), Some(1));
}

#[test]
fn a_store_in_memory_is_named() {
    let mounts = std::fs::read_to_string("/proc/mounts").expect("Linux has it");
    if !mounts.lines().any(|line| line.starts_with("tmpfs /dev/shm ")) {
        return skipped("no tmpfs at /dev/shm");
    }
    let folder = tempfile::tempdir_in("/dev/shm").expect("it can be written");
    let server = Server::builder().folder(folder.path()).start();
    let said = doctor(&server);
    assert!(
        said.contains("/data/journal is on tmpfs, in memory: acknowledged mail is lost when the machine stops\n"),
        "{said}"
    );
    assert!(said.contains("next: put data_dir on a disk\n"), "{said}");
}

#[test]
fn a_limit_is_named_for_an_hour() {
    let lab = TestLab::sites(&["one.example"]);
    let (token, table) = token(&["robot"]);
    let mut server = patient(&lab)
        .set("http.listen", "[\"127.0.0.1:0\"]")
        .set("http.tokens", &table)
        .set("message_size_bytes_max", "20000")
        .prepare();
    preload(&server);
    set_clock(&server, 0);
    start(&mut server);
    assert!(!doctor(&server).contains("limit "), "{}", doctor(&server));
    let large = message_with("large@test", "Subject: large\r\n", &"0123456789abcdef\r\n".repeat(3_000));
    let path = "/api/v1/messages?sender=me@home.example&recipient=ann@one.example";
    server.http("POST", path).token(&token).body("message/rfc822", &large).send().expect(413);
    let named = "limit http_body hit 1 time in ";
    let said = doctor(&server);
    assert!(said.contains(named) && said.contains("next: raise message_size_bytes_max\n"), "{said}");
    forward(&server, 50 * MINUTE_S);
    assert!(doctor(&server).contains(named), "{}", doctor(&server));
    forward(&server, 61 * MINUTE_S);
    assert!(!doctor(&server).contains("limit "), "{}", doctor(&server));
}

#[test]
fn a_clock_that_nobody_keeps_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("timedatectl");
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap_or_default());
    let server = Server::builder().prepare();
    let said = |state: &str| {
        let script = format!("#!/bin/sh\n[ \"$*\" = 'show --property=NTPSynchronized --value' ] && echo {state}\n");
        install(&program, &script);
        let mut doctor = std::process::Command::new(stentor_harness::stentor());
        doctor.args(["doctor", "--config"]).arg(server.config()).env("PATH", &path);
        String::from_utf8_lossy(&doctor.output().expect("it runs").stdout).into_owned()
    };
    let words = "warning: the kernel reports an unsynchronised clock\n";
    assert!(said("no").contains(words), "{}", said("no"));
    assert!(!said("yes").contains(words) && !said("").contains(words));
}

/// Records of our own names, in a zone that is signed and in one that is not.
#[test]
fn tlsa_records_of_ours_that_do_not_match_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let names = ["mx.test", "second.test", "third.test"];
    for name in names {
        certificate(folder.path(), name, None);
    }
    let pair = |name: &str, end: &str| folder.path().join(format!("{name}{end}")).display().to_string();
    let table = |name: &str| {
        format!("[[tls.certificates]]\nchain = {:?}\nkey = {:?}\n", pair(name, ".pem"), pair(name, ".key"))
    };
    let with_certificates = |server: &Server| {
        server.edit_config(|text| format!("{text}\n{}", names.map(table).concat()));
    };
    let unstarted = Server::builder().prepare();
    with_certificates(&unstarted);
    let shown = unstarted.operator(&["tls", "show", "--json"]).stdout;
    let shown: serde_json::Value = serde_json::from_slice(&shown).expect("JSON");
    let own = shown[0]["tlsa"].as_str().expect("a record").to_owned();
    let record = |name: &str, value: &str, more: &str| {
        format!("[[record]]\nname = '_25._tcp.{name}'\ntype = 'TLSA'\nvalue = '{value}'\n{more}\n")
    };
    let other = format!("3 1 1 {}", "ab".repeat(32));
    let lab = TestLab::start(&format!(
        "dns_validates = true\n{}{}{}",
        record("mx.test", &own, ""),
        record("second.test", &other, ""),
        record("third.test", &other, "insecure = true")
    ));
    let server = builder(&lab).prepare();
    with_certificates(&server);
    let server = server.run();
    let said = doctor(&server);
    assert!(!said.contains("_25._tcp.mx.test"), "it matches: {said}");
    let problem = "PROBLEM: TLSA records of _25._tcp.second.test: none matches the certificate in use (3 1 1 ";
    assert!(said.contains(problem), "{said}");
    let second = shown[1]["tlsa"].as_str().expect("a record");
    assert!(said.contains(&format!("next: publish `_25._tcp.second.test. IN TLSA {second}`")), "{said}");
    assert!(said.contains("warning: TLSA records of _25._tcp.third.test: none matches"), "{said}");
}
