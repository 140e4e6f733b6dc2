//! What is wrong is the headline everywhere within 15 seconds, and nowhere while all is well.

use std::net::TcpListener;

use serde_json::Value;
use stentor_harness::{Builder, Receiver, Server, Smtp, TestLab, message, wait_until};

use crate::kit::{bare, builder};

fn with_http(builder: Builder) -> Builder {
    builder.set("http.listen", "[\"127.0.0.1:0\"]")
}

/// The conditions of `stentor status --json`.
fn conditions(server: &Server) -> Vec<Value> {
    let output = server.operator(&["status", "--json"]);
    let status: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    status["data"]["health"].as_array().cloned().unwrap_or_default()
}

fn has(server: &Server, name: &str) -> bool {
    conditions(server).iter().any(|condition| condition["name"] == name)
}

fn text(server: &Server, words: &[&str]) -> (String, Option<i32>) {
    let output = server.operator(words);
    let text = [output.stdout, output.stderr].concat();
    (String::from_utf8(text).expect("UTF-8"), output.status.code())
}

/// Every view has the condition, with the same words.
fn assert_everywhere(server: &Server, name: &str, what: &str, refuses_mail: bool) {
    wait_until(&format!("{name} is a condition"), || has(server, name));
    let start = if refuses_mail { "refusing mail: " } else { "" };
    let (status, _) = text(server, &["status"]);
    let line = status.lines().nth(1).unwrap_or_default();
    assert!(line.starts_with(&format!("  PROBLEM      {start}")) && line.contains(what), "{status}");
    let (doctor, code) = text(server, &["doctor"]);
    assert!(doctor.starts_with("PROBLEM: ") && doctor.contains(&format!("PROBLEM: {start}")), "{doctor}");
    assert!(doctor.contains(what) && code == Some(1), "{doctor}");
    let output = server.operator(&["doctor", "--json"]);
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let findings = found["findings"].as_array().expect("findings");
    let is_found = |finding: &&Value| finding["condition"] == name && finding["severity"] == "problem";
    assert!(findings.iter().any(|finding| is_found(&finding)) && found["ok"] == false, "{found}");
    assert_eq!(output.status.code(), Some(1));
    let ready = server.http_get("/readyz").expect(if refuses_mail { 503 } else { 200 }).text();
    assert!(ready.contains(&format!("PROBLEM {name}")) && ready.contains(what), "{ready}");
    assert_eq!(ready.starts_with("ready\n"), !refuses_mail, "{ready}");
    assert_eq!(server.http_get("/healthz").expect(200).text(), "ok\n");
    let metrics = server.http_get("/metrics").expect(200).text();
    assert!(metrics.contains(&format!("stentor_health_problem{{name=\"{name}\"}} 1")), "{metrics}");
    assert!(metrics.contains(&format!("stentor_ready {}", u8::from(!refuses_mail))), "{metrics}");
    let now = server.http_get("/").expect(200).text();
    assert!(now.contains("badge-bad") && now.contains(&format!("PROBLEM: {start}")), "{now}");
    let page = server.http_get("/health").expect(200).text();
    assert!(page.contains("badge-bad") && !page.contains("No problems."), "{page}");
    let (watched, _) = text(server, &["realstat", "--json", "--count", "1", "--interval", "0.2"]);
    assert!(watched.contains(&format!("\"verdict\":\"PROBLEM: {start}")), "{watched}");
    let (rows, _) = text(server, &["realstat", "--count", "1", "--interval", "0.2"]);
    assert!(rows.lines().any(|row| row.starts_with(&format!("# PROBLEM: {start}")) && row.contains(what)), "{rows}");
    server.wait_log(&["health: PROBLEM: ", what]);
}

#[test]
fn a_server_that_is_well_says_nothing() {
    let lab = TestLab::sites(&["one.example"]);
    let server = with_http(builder(&lab).list("news", &["ann@one.example"])).start();
    for n in 0..20 {
        server.smtp().send("me@home.example", &["ann@one.example"], &message(&format!("{n}@test"), "x")).expect(250);
    }
    wait_until("all are delivered", || server.http_get("/metrics").text().contains("outcome=\"delivered\"} 20"));
    assert_eq!(conditions(&server), Vec::<Value>::new());
    assert_eq!(server.http_get("/readyz").expect(200).text(), "ready\n");
    let page = server.http_get("/health").expect(200).text();
    assert!(page.contains("No problems.") && !page.contains("badge-bad"), "{page}");
}

#[test]
fn name_servers_that_do_not_answer_are_a_problem_once_somebody_asked_them() {
    let server = with_http(bare()).start();
    assert!(!has(&server, "dns"));
    server.smtp().send("me@home.example", &["bob@one.example"], &message("d@test", "x")).expect(250);
    assert_everywhere(&server, "dns", "DNS is down: no name server answers (127.0.0.1:9)", false);
}

#[test]
fn a_milter_that_is_down_refuses_mail_and_its_return_ends_the_condition() {
    let place = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("it is bound");
    let milter = format!("\n[[milters]]\nname = \"judge\"\naddress = \"inet:{place}\"\n");
    let server = with_http(bare()).prepare();
    server.edit_config(|text| format!("{text}{milter}"));
    let server = server.run();
    // Nobody sends anything: it is probed.
    assert_everywhere(&server, "milter", "milter judge (inet:127.0.0.1:", true);
    server.edit_config(|text| text.replace(&milter, ""));
    text(&server, &["reload"]);
    wait_until("it is over", || !has(&server, "milter"));
    server.wait_log(&["health: ended: milter judge"]);
    assert_eq!(server.http_get("/readyz").expect(200).text(), "ready\n");
}

#[test]
fn a_milter_without_which_mail_is_taken_is_a_problem_that_refuses_none() {
    let server = with_http(bare()).prepare();
    server.edit_config(|text| {
        format!("{text}\n[[milters]]\nname = \"judge\"\naddress = \"unix:/nowhere/judge\"\nunreachable_action = \"accept\"\n")
    });
    let server = server.run();
    assert_everywhere(&server, "milter", "mail is accepted without it", false);
}

#[test]
fn all_recipients_deferred_is_a_problem_whatever_defers_them() {
    let server = with_http(bare()).prepare();
    server.edit_config(|text| {
        format!("{text}\n[[rules]]\nsender = \"me@home.example\"\ndo = \"defer 451 4.3.0 later\"\n")
    });
    let server = server.run();
    let refused = || {
        let mut client = server.smtp();
        client.cmd("MAIL FROM:<me@home.example>").expect(250);
        client.cmd("RCPT TO:<ann@one.example>").expect(451);
    };
    wait_until("it is said", || {
        refused();
        has(&server, "recipients_deferred")
    });
    assert_everywhere(&server, "recipients_deferred", "451 4.3.0 later", true);
    let mut other = server.smtp();
    other.cmd("MAIL FROM:<you@home.example>").expect(250);
    other.cmd("RCPT TO:<ann@one.example>").expect(250);
    wait_until("one is taken", || !has(&server, "recipients_deferred"));
}

#[test]
fn a_policy_service_and_a_table_behind_a_socket_are_probed() {
    let server = with_http(bare()).prepare();
    server.edit_config(|text| {
        format!(
            "{text}\n[policy_services.judge]\naddress = \"inet:127.0.0.1:9\"\n[[rules]]\npolicy_service = \"judge\"\n\
             [tables.people]\nsource = \"socketmap:inet:127.0.0.1:9:people\"\n"
        )
    });
    let server = server.run();
    assert_everywhere(&server, "policy_service", "policy service judge (inet:127.0.0.1:9) fails: cannot connect", true);
    wait_until("the table", || has(&server, "table_service"));
}

#[test]
fn files_that_are_broken_while_the_server_runs_are_problems_until_they_are_mended() {
    let receiver = Receiver::start(|_| 200);
    let server = with_http(bare())
        .set_in("webhooks.hook", "url", &format!("{:?}", receiver.url("/")))
        .set_in("webhooks.hook", "secret", "\"0123456789abcdef0123456789abcdef\"")
        .set_in("webhooks.hook", "events", "[\"health\"]")
        .list("news", &["ann@one.example"])
        .prepare();
    let table = server.folder().join("people");
    std::fs::write(&table, "ann@one.example OK\n").expect("it is written");
    let late = server.folder().join("late");
    let source =
        |name: &str, path: &std::path::Path| format!("[tables.{name}]\nsource = \"hash:{}\"\n", path.display());
    server.edit_config(|text| format!("{text}\n{}{}", source("people", &table), source("late", &late)));
    let server = server.run();
    // One that has never been read is read when it comes.
    wait_until("it is a problem", || text(&server, &["doctor"]).0.contains("could not be read: "));
    std::fs::write(&late, "ann@one.example OK\n").expect("it is written");
    wait_until("it is over", || !has(&server, "table_file"));
    std::fs::remove_file(&table).expect("it is removed");
    assert_everywhere(&server, "table_file", "table people (stentor.toml:", false);
    std::fs::write(&table, "bob@one.example OK\n").expect("it is written");
    wait_until("it is over", || !has(&server, "table_file"));
    let subscribers = server.path("news.subscribers");
    std::fs::rename(&subscribers, server.path("away")).expect("it is there");
    assert_everywhere(&server, "subscribers_file", "list news: the subscribers file cannot be used: ", false);
    let page = server.http_get("/lists").expect(200).text();
    assert!(page.contains("file unusable") && page.contains("the subscribers file cannot be used: "), "{page}");
    let (doctor, _) = text(&server, &["doctor"]);
    assert_eq!(doctor.matches("news.subscribers").count(), 1, "said once: {doctor}");
    std::fs::rename(server.path("away"), &subscribers).expect("it is there");
    wait_until("it is over", || !has(&server, "subscribers_file"));
    assert!(!server.http_get("/lists").expect(200).text().contains("file unusable"));
    // The alert.
    wait_until("the webhook was told of both", || {
        let all: Vec<Value> = receiver
            .taken()
            .iter()
            .flat_map(|sent| sent.json()["events"].as_array().cloned().unwrap_or_default())
            .collect();
        let is_there = |severity: &str| {
            all.iter().any(|event| {
                event["type"] == "health" && event["severity"] == severity && event["condition"] == "table_file people"
            })
        };
        is_there("problem") && is_there("over")
    });
}

#[test]
fn a_full_port_for_users_refuses_nobody_at_the_other() {
    let users = "[{ address = \"127.0.0.1:0\", tls = \"none\", auth = \"none\" }]";
    let builder = bare().set("listen.submission", users).set("listen.submission_connections_max", "2");
    let server = with_http(builder.set("listen.connections_per_client_max", "2")).start();
    let address = server.address_of("submission");
    let held: Vec<Smtp> = (0..2).map(|_| Smtp::connect(address).greeted()).collect();
    let what = "clients get 421 at `submission`: 2 of 2 connections in use";
    assert_everywhere(&server, "connections_full", what, false);
    assert_eq!(conditions(&server)[0]["subject"], "submission");
    server.smtp().send("me@home.example", &["ann@one.example"], &message("f@test", "x")).expect(250);
    drop(held);
    wait_until("it is over", || !has(&server, "connections_full"));
}

#[test]
fn check_prints_one_object() {
    let server = bare().list("news", &["ann@one.example"]).prepare();
    let output = server.operator(&["check", "--json"]);
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(found["ok"] == true && output.status.success(), "{found}");
    assert!(found["summary"].as_str().expect("text").contains("ok; 1 list"), "{found}");
    server.edit_config(|text| text.replace("[listen]", "[listen]\nsmpt = 1"));
    let output = server.operator(&["check", "--json"]);
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let findings = found["findings"].as_array().expect("findings");
    let finding = findings.iter().find(|finding| finding["severity"] == "error").expect("an error");
    assert!(found["ok"] == false && found["summary"].is_null() && output.status.code() == Some(78), "{found}");
    assert!(finding["severity"] == "error" && finding["line"].as_u64() > Some(0), "{found}");
    assert!(finding["message"].as_str().expect("text").contains("smpt"), "{found}");
}
