//! Limits on connections, errors and time.

use stentor_harness::{Server, Smtp, TestLab, wait_until};

use crate::http_metrics::samples;
use crate::kit::builder;
use crate::virtual_users::with;

#[test]
fn connections_in_all() {
    let server =
        Server::builder().set("listen.connections_max", "3").set("listen.connections_per_client_max", "3").start();
    let mut kept: Vec<Smtp> = (0..3).map(|_| server.smtp()).collect();
    for _ in 0..3 {
        let mut refused = server.connect();
        refused.reply().expect_text("421 4.3.2");
        assert_eq!(refused.rest(), "");
    }
    kept.pop().expect("three are there").quit();
    wait_until("its place is free", || {
        let mut client = server.connect();
        let code = client.reply().code;
        assert!(code == 220 || code == 421);
        code == 220
    });
    for client in &mut kept {
        client.cmd("NOOP").expect(250);
    }
}

#[test]
fn connections_of_one_client() {
    let server = Server::builder().set("listen.connections_per_client_max", "2").start();
    let stranger = |n: u8| server.connect_from(&format!("127.0.0.{n}"));
    let mut kept: Vec<Smtp> = (0..2).map(|_| stranger(2).greeted()).collect();
    stranger(2).reply().expect_text("421 4.7.0");
    // Others have their own, and a trusted client has no such limit.
    stranger(3).reply().expect(220);
    let trusted: Vec<Smtp> = (0..10).map(|_| server.smtp()).collect();
    drop(trusted);
    kept.pop().expect("two are there").quit();
    wait_until("its place is free", || stranger(2).reply().code == 220);
}

/// A server for users too, where places are few.
fn house() -> Server {
    let tables = "[{ address = \"127.0.0.1:0\", tls = \"none\", auth = \"none\" }]";
    let server = Server::builder().set("listen.submission", tables).set("listen.connections_max", "8");
    server.set("listen.submission_connections_max", "8").set("listen.connections_per_client_max", "8").start()
}

#[test]
fn what_fills_one_role_leaves_the_other() {
    let server = house();
    let users = |n: u8| Smtp::connect_from(server.address_of("submission"), [127, 0, 0, n].into());
    // Three quarters are for strangers.
    let at_smtp: Vec<Smtp> = (0..6).map(|_| server.connect_from("127.0.0.2").greeted()).collect();
    server.connect_from("127.0.0.2").reply().expect_text("421 4.3.2");
    let mut at_submission: Vec<Smtp> = (0..6).map(|_| users(5).greeted()).collect();
    users(5).reply().expect_text("421 4.3.2");
    server.smtp().quit();
    for client in &mut at_submission {
        client.cmd("NOOP").expect(250);
    }
    drop(at_smtp);
}

#[test]
fn who_has_most_places_gives_one_to_who_has_none() {
    let server = house();
    let mut greedy: Vec<Smtp> = (0..6).map(|_| server.connect_from("127.0.0.2").greeted()).collect();
    // The oldest has a transaction, and keeps its place.
    greedy[0].cmd("EHLO a.example").expect(250);
    greedy[0].cmd("MAIL FROM:<a@b.example>").expect(250);
    let mut other = server.connect_from("127.0.0.3").greeted();
    greedy[1].reply().expect_text("421 4.3.2");
    assert_eq!(greedy[1].rest(), "");
    greedy[0].cmd("NOOP").expect(250);
    greedy[2].cmd("NOOP").expect(250);
    other.cmd("NOOP").expect(250);
    // One that has as many has no claim.
    server.connect_from("127.0.0.2").reply().expect_text("421 4.3.2");
}

#[test]
fn errors() {
    let server = Server::builder().set("listen.errors_max", "5").start();
    let mut client = server.connect_from("127.0.0.2").greeted();
    let mut codes = Vec::new();
    while let Some(reply) = {
        client.try_raw(b"FOO\r\n");
        client.try_reply()
    } {
        codes.push(reply.code);
        assert!(codes.len() <= 6, "{codes:?}");
    }
    assert_eq!(codes.pop(), Some(421));
    assert!(codes.iter().all(|code| *code == 500), "{codes:?}");
    server.smtp().quit();
}

#[test]
fn replies_of_rules_are_no_hits_of_our_limits() {
    let lab = TestLab::sites(&["one.example"]);
    let rules = "[domains]\nrelay = [\"one.example\"]\n\
        [[rules]]\nrecipient = \"big@one.example\"\ndo = \"reject 552 5.3.4 Too much of you\"\n\
        [[rules]]\nrecipient = \"many@one.example\"\ndo = \"defer 452 4.5.3 Too many of you\"\n\
        [[rules]]\nrecipient = \"closed@one.example\"\ndo = \"defer 421 4.7.0 Come again\"\n\
        [[rules]]\nrecipient = \"other@one.example\"\nsubject = \"x\"\ndo = \"reject 550 5.7.1 No x\"\n";
    let server = builder(&lab).set("http.listen", "[\"127.0.0.1:0\"]").set("listen.recipients_per_message_max", "100");
    let server = with(server, &[], rules);
    let hits = |limit: &str| samples(&server)[&format!("stentor_limit_hits_total{{limit=\"{limit}\"}}")];
    let mut client = server.connect_from("127.0.0.2").greeted();
    client.cmd("MAIL FROM:<me@two.example>").expect(250);
    client.cmd("RCPT TO:<big@one.example>").expect(552);
    client.cmd("RCPT TO:<many@one.example>").expect(452);
    client.cmd("RCPT TO:<ann@one.example>").expect(250);
    client.cmd("RCPT TO:<other@one.example>").expect_text("452 4.5.3 Other rules apply to this recipient");
    client.cmd("RCPT TO:<closed@one.example>").expect(421);
    assert_eq!(["message_size", "recipients_per_message", "errors"].map(hits), [0, 0, 0]);
    let mut client = server.connect_from("127.0.0.2").greeted();
    client.cmd("MAIL FROM:<me@two.example> SIZE=99999999999").expect(552);
    client.cmd("MAIL FROM:<me@two.example>").expect(250);
    for n in 0..=100 {
        client.cmd(&format!("RCPT TO:<a{n}@one.example>")).expect(if n < 100 { 250 } else { 452 });
    }
    assert_eq!(["message_size", "recipients_per_message", "errors"].map(hits), [1, 1, 0]);
}

#[test]
fn time_for_a_command_and_for_a_session() {
    let server = Server::builder().set("listen.command_timeout_s", "3").start();
    let mut client = server.smtp();
    client.raw(b"NOO");
    client.reply().expect_text("421 4.4.2");
    assert_eq!(client.rest(), "");
    let server = Server::builder().set("listen.session_timeout_s", "3").start();
    let mut client = server.connect_from("127.0.0.2").greeted();
    // Busy all the time, and cut all the same.
    loop {
        client.try_raw(b"NOOP\r\n");
        match client.try_reply() {
            Some(reply) if reply.code == 250 => {}
            Some(reply) => {
                reply.expect(421);
                break;
            }
            None => panic!("closed without a word"),
        }
    }
}

#[test]
fn time_for_a_body() {
    let server = Server::builder().set("listen.data_timeout_s", "3").start();
    let mut client = server.smtp();
    client.begin("me@home.example", &["ann@one.example"]);
    client.raw(b"Subject: x\r\n");
    client.reply().expect_text("421 4.4.2");
    assert_eq!(client.rest(), "");
    assert_eq!(server.status()["messages"], 0);
}

#[test]
fn idle_connections_by_the_hundreds() {
    let server = Server::builder().start();
    let before = server.memory_kib("VmRSS");
    let mut idle: Vec<Smtp> = (0..1_000).map(|_| server.smtp()).collect();
    let after = server.memory_kib("VmRSS");
    assert!((after.saturating_sub(before)) < 1_000 * 16, "{before} KiB, then {after} KiB");
    for client in idle.iter_mut().step_by(100) {
        client.cmd("NOOP").expect(250);
    }
}
