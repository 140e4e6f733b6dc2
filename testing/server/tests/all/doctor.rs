//! `stentor doctor` of a running server, by a clock that is set.

use stentor_harness::{Server, TestLab, message, message_with, skipped, wait_until};

use crate::http_auth::token;
use crate::kit::builder;
use crate::live::patient;
use crate::preload::{preload, set_clock, start};

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
