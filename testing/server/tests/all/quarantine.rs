//! Mail that rules and milters keep from its recipients: it stays until somebody releases or deletes it, over kills
//! too, and every view counts it.

use std::process::Command;

use serde_json::Value;
use stentor_harness::{Server, TestLab, message, stentor, wait_until};

use crate::kit::{Fates, SENDER, builder, data, fates, wait_fates};
use crate::virtual_users::with;

const RULES: &str = "[[rules]]\nname = \"odd\"\nrecipient = \"kept@one.example\"\ndo = \"quarantine looks odd\"\n\
    [[rules]]\nname = \"words\"\nsubject = \"/win big/\"\ndo = [\"quarantine\", \"prepend X-Judged: yes\"]\n\
    [[rules]]\nrecipient = \"moved@one.example\"\ndo = [\"quarantine asked\", \"redirect other@one.example\"]\n";

fn lab() -> TestLab {
    TestLab::start("[[site]]\nname = 'one.example'\nrelay = true\n[[site.host]]\nname = 'mx.one.example'\n")
}

fn send(server: &Server, lab: &TestLab, to: &[&str], id: &str, subject: &str) -> String {
    let wire = message(id, subject);
    lab.recorder().expect_message(wire.clone().into());
    server.smtp().send(SENDER, to, &wire).expect(250).queue_id()
}

/// What is listed, with what narrows the list.
pub fn listed(server: &Server, arguments: &[&str]) -> Vec<Value> {
    let mut rows = Vec::new();
    for line in server.operator_json(&[&["quarantine", "list"], arguments].concat()) {
        let data = data(line);
        rows.extend(data.as_array().cloned().unwrap_or_default());
    }
    rows
}

/// By recipient.
pub fn id_of(server: &Server, recipient: &str) -> String {
    let rows = listed(server, &["--recipient", recipient]);
    assert_eq!(rows.len(), 1, "{rows:?}");
    rows[0]["id"].as_str().expect("an id").to_owned()
}

pub fn text(server: &Server, command: &[&str]) -> String {
    let output = server.operator(command);
    String::from_utf8([output.stdout, output.stderr].concat()).expect("text")
}

#[track_caller]
fn traced(server: &Server, what: &str, parts: &[&str]) {
    let mut shown = String::new();
    wait_until(&format!("trace {what} has {parts:?}"), || {
        shown = text(server, &["trace", what]);
        parts.iter().all(|part| shown.contains(part))
    });
}

fn quarantined(server: &Server) -> u64 {
    let recipients = data(server.operator_json(&["status"]).remove(0))["recipients"].clone();
    recipients["quarantined"].as_u64().expect("a number")
}

#[test]
fn an_access_files_entry_is_named_with_its_line() {
    let access = "# sendmail's\nFrom:q.example QUARANTINE:looks odd\nFrom:h.example RELAY\nConnect:127.0.0.2 RELAY\n";
    let rules = "[tables.access]\nsource = \"makemap:{}/access\"\nas = \"sendmail-access\"\n\
                 [[rules]]\nclient = \"table:access\"\n[[rules]]\nsender = \"table:access\"\n";
    let lab = lab();
    let server = with(builder(&lab), &[("access", access)], rules);
    let wire = message("q@test", "Hello");
    lab.recorder().expect_message(wire.clone().into());
    let id = server.smtp().send("bob@q.example", &["ann@one.example"], &wire).expect(250).queue_id();
    expect(&server, [1, 0, 0, 1]);
    let entry = |text: &str, key: &str, line: u32| {
        let begin = format!("; table access has {key} (");
        text.contains(&begin) && text.contains(&format!("/access:{line})"))
    };
    let rows = listed(&server, &[]);
    let by = rows[0]["by"].as_str().expect("who keeps it");
    assert!(entry(by, "From:q.example", 2) && by.ends_with(": looks odd"), "{by}");
    traced(&server, &id, &["; table access has From:q.example (", "/access:2): looks odd"]);
    let explained = text(&server, &["explain", "--from", "bob@q.example", "--to", "ann@one.example"]);
    let last =
        explained.lines().find(|line| line.contains("   quarantined: looks odd, by rule 2 (")).unwrap_or_default();
    assert!(entry(last, "From:q.example", 2), "{explained}");
    let relayed = ["explain", "--from", "bob@x.example", "--to", "ann@one.example", "--client", "127.0.0.2"];
    let explained = text(&server, &relayed);
    let because = explained.lines().find(|line| line.contains("   because of rule 1 (")).unwrap_or_default();
    assert!(entry(because, "Connect:127.0.0.2", 4), "{explained}");
}

/// What the queue and the quarantine come to.
#[track_caller]
pub fn expect(server: &Server, [acknowledged, delivered, pending, kept]: [u64; 4]) {
    wait_fates(server, "the fates", |now| now.delivered == delivered && now.pending == pending);
    let Fates { acknowledged: all, .. } = fates(server);
    assert_eq!((all, quarantined(server)), (acknowledged, kept));
}

#[test]
fn a_rule_keeps_mail_from_one_recipient_until_it_is_released_once() {
    let lab = lab();
    let mut server = with(builder(&lab), &[], RULES);
    send(&server, &lab, &["ann@one.example", "kept@one.example"], "a@test", "Hello");
    lab.wait_clean("a@test", &["ann@one.example"]);
    expect(&server, [2, 1, 0, 1]);

    let rows = listed(&server, &[]);
    assert_eq!(rows.len(), 1, "{rows:?}");
    let id = rows[0]["id"].as_str().expect("an id").to_owned();
    assert_eq!((&rows[0]["subject"], &rows[0]["recipients"][0]), (&"Hello".into(), &"kept@one.example".into()));
    let by = rows[0]["by"].as_str().expect("who keeps it");
    assert!(by.starts_with("rule 1 \"odd\" (stentor.toml:") && by.ends_with("): looks odd"), "{by}");
    let shown = text(&server, &["quarantine", "show", &id]);
    assert!(shown.contains("Subject: Hello") && shown.contains("reason  ") && shown.contains("looks odd"), "{shown}");
    // Raw, as programs that learn from it want it.
    let raw = text(&server, &["queue", "cat", "--all", &id]);
    assert!(raw.contains("Message-ID: <a@test>\r\n") && raw.contains("\r\n\r\n"), "{raw}");
    assert!(!shown.contains("\\x09") && shown.contains("Received: from "), "{shown}");
    assert!(text(&server, &["queue", "show", &id]).contains(&format!("`stentor quarantine show {id} --config")));
    traced(&server, &id, &["quarantined", "looks odd", "state       1 quarantined"]);
    traced(&server, "kept@one.example", &["1 quarantined"]);
    assert_eq!(server.queue()["messages"], 0, "it is in no view of the queue");

    server.kill();
    server.start_again();
    expect(&server, [2, 1, 0, 1]);
    assert!(lab.recorder().copies_to("kept@one.example").is_empty());

    let dry = server.ask(&["quarantine", "release", "--recipient", "kept@one.example", "--dry-run"]).expect("counted");
    assert_eq!((&dry["count"], &dry["text"]), (&1.into(), &"would release: 1 recipient of 1 message".into()));
    assert_eq!(quarantined(&server), 1);
    let done = server.ask(&["quarantine", "release", "--id", &id, "--reason", "asked for"]).expect("released");
    assert_eq!(done["text"], "release: 1 recipient of 1 message");
    lab.wait_clean("a@test", &["ann@one.example", "kept@one.example"]);
    expect(&server, [2, 2, 0, 0]);
    traced(&server, &id, &["released from the quarantine", "as "]);
    traced(&server, "kept@one.example", &["policy", "released from the quarantine: ", &id]);
    // Both are one message for who asks by its Message-ID.
    traced(&server, "<a@test>", &[&id, "released from the quarantine: ", "1 delivered"]);
    server.log().wait(&["msgid=<a@test>", "proto=quarantine"]);
    // It is gone, and nothing is released twice.
    assert_eq!(server.operator(&["quarantine", "release", "--id", &id]).status.code(), Some(3));
    assert!(text(&server, &["quarantine", "show", &id]).contains("no message"));
    server.kill();
    server.start_again();
    expect(&server, [2, 2, 0, 0]);
    assert_eq!(lab.recorder().copies_to("kept@one.example").len(), 1);
}

#[test]
fn rules_on_the_content_keep_mail_from_all_it_concerns() {
    let lab = lab();
    let server = with(
        builder(&lab)
            .set("domains.local", "[\"x.example\"]")
            .alias("team@x.example", &["t1@one.example", "t2@one.example"])
            .list("news", &["s1@one.example", "s2@one.example"]),
        &[],
        RULES,
    );
    let to = ["ann@one.example", "team@x.example", "news@lists.test"];
    send(&server, &lab, &to, "b@test", "Now win big");
    expect(&server, [5, 0, 0, 5]);
    let rows = listed(&server, &[]);
    assert_eq!(rows.len(), 3, "of a list, an alias, and others: {rows:?}");
    assert!(rows.iter().all(|row| row["by"].as_str().is_some_and(|by| by.starts_with("rule 2 \"words\""))), "{rows:?}");
    assert_eq!(listed(&server, &["--list", "news"]).len(), 1);

    // To one of several, then to the others.
    assert!(server.operator(&["quarantine", "release", "--recipient", "t2@one.example"]).status.success());
    lab.wait("a copy", |recorder| !recorder.copies_to("t2@one.example").is_empty());
    expect(&server, [5, 1, 0, 4]);
    let body = lab.body_for("t2@one.example");
    let body = String::from_utf8_lossy(&body);
    assert!(body.contains("Delivered-To: team@x.example") && body.contains("X-Judged: yes"), "{body}");
    assert!(server.operator(&["quarantine", "delete", "--id", &id_of(&server, "t1@one.example")]).status.success());
    assert!(server.operator(&["quarantine", "release", "--list", "news"]).status.success());
    expect(&server, [5, 3, 0, 1]);
    assert!(server.operator(&["quarantine", "release", "--all"]).status.success());
    expect(&server, [5, 4, 0, 0]);
    assert!(lab.recorder().copies_to("t1@one.example").is_empty());
    let removed = data(server.operator_json(&["status"]).remove(0))["recipients"]["removed"].clone();
    assert_eq!(removed, 1);
}

#[test]
fn what_is_redirected_is_kept_from_whom_it_is_redirected_to() {
    let lab = lab();
    let server = with(builder(&lab), &[], RULES);
    send(&server, &lab, &["moved@one.example"], "c@test", "Hello");
    expect(&server, [1, 0, 0, 1]);
    let id = id_of(&server, "other@one.example");
    assert!(server.operator(&["quarantine", "release", "--id", &id]).status.success());
    expect(&server, [1, 1, 0, 0]);
}

#[test]
fn the_api_lists_shows_and_releases_for_who_has_logged_in() {
    let lab = lab();
    let (token, table) = crate::http_auth::token(&["robot"]);
    let token = token.as_str();
    let builder = builder(&lab).set("http.listen", "[\"127.0.0.1:0\"]").set("http.tokens", &table);
    let server = with(builder, &[], RULES);
    send(&server, &lab, &["kept@one.example"], "d@test", "Hello");
    let list = server.http_get("/api/v1/quarantine?recipient=kept@one.example").expect(200).json();
    let id = list["rows"][0]["id"].as_str().expect("an id").to_owned();
    assert_eq!((&list["messages"], &list["rows"][0]["subject"]), (&1.into(), &"Hello".into()));
    server.http_get(&format!("/api/v1/quarantine/{id}")).expect(401);
    let shown = server.http("GET", &format!("/api/v1/quarantine/{id}")).token(token).send().expect(200).json();
    assert!(shown["fields"].as_array().is_some_and(|fields| fields.iter().any(|field| field[0] == "Subject")));
    let copy =
        || server.http("POST", "/api/v1/quarantine/copy").json(&serde_json::json!({"id": id, "to": "b@one.example"}));
    copy().send().expect(401);
    let copied = server.http("POST", "/api/v1/quarantine/copy").token(token);
    copied.json(&serde_json::json!({"id": id, "to": "b@one.example"})).send().expect(200);
    lab.wait("a copy", |recorder| !recorder.copies_to("b@one.example").is_empty());
    assert_eq!(quarantined(&server), 1, "it stays");
    let release = || server.http("POST", "/api/v1/quarantine/release");
    release().json(&serde_json::json!({"id": id})).send().expect(401);
    assert_eq!(quarantined(&server), 1);
    let done = release().token(token).json(&serde_json::json!({"id": id})).send().expect(200).json();
    assert_eq!(done["count"], 1);
    expect(&server, [2, 2, 0, 0]);
}

#[test]
fn a_copy_goes_elsewhere_and_the_message_stays() {
    let lab = lab();
    let server = with(builder(&lab).set("domains.local", "[\"x.example\"]"), &[], RULES);
    // Of several pieces.
    let wire = [message("e@test", "Hello"), b"a line of some length that is repeated\r\n".repeat(15_000)].concat();
    server.smtp().send(SENDER, &["kept@one.example"], &wire).expect(250);
    let id = id_of(&server, "kept@one.example");
    let copy = |to: &str| text(&server, &["quarantine", "release", "--id", &id, "--to", to, "--reason", "a look"]);
    let done = copy("admin@one.example");
    assert!(done.contains("was queued to admin@one.example as ") && done.contains("stays"), "{done}");
    lab.wait("the copy", |recorder| !recorder.copies_to("admin@one.example").is_empty());
    let body = lab.body_for("admin@one.example");
    let at = body.windows(4).position(|four| four == b"\r\n\r\n").expect("a header");
    let head = String::from_utf8_lossy(&body[..at]).into_owned();
    assert!(head.contains("Resent-To: <admin@one.example>\r\n") && head.contains("Subject: Hello"), "{head}");
    assert!(body.ends_with(&wire), "whole, as it came");
    assert_eq!(&*lab.recorder().copies_to("admin@one.example")[0].sender, "");
    expect(&server, [2, 1, 0, 1]);
    // Nobody, no address, no message, more than one.
    for (to, says) in [
        ("who@x.example", "does not exist here"),
        ("<x>", "not a valid mail address"),
        ("a@b\r\nBcc: c@d", "not a valid mail address"),
    ] {
        let said = copy(to);
        assert!(said.contains(says), "{to}: {said}");
    }
    let all = text(&server, &["quarantine", "release", "--all", "--to", "admin@one.example"]);
    assert!(all.contains("cannot be used with") || all.contains("required"), "{all}");
    assert!(server.operator(&["quarantine", "release", "--id", &id]).status.success());
    expect(&server, [2, 2, 0, 0]);
}

#[test]
fn each_recipient_is_in_one_place_and_all_views_agree() {
    let lab = lab();
    let mut server = with(builder(&lab).set("http.listen", "[\"127.0.0.1:0\"]"), &[], RULES);
    for (id, subject) in [("f@test", "win big"), ("g@test", "win big"), ("h@test", "Hello")] {
        send(&server, &lab, &["ann@one.example", "bob@one.example", "cid@one.example"], id, subject);
    }
    assert!(server.operator(&["quarantine", "release", "--recipient", "ann@one.example"]).status.success());
    let last = listed(&server, &[]).last().expect("a message")["id"].as_str().expect("an id").to_owned();
    assert!(server.operator(&["quarantine", "delete", "--id", &last]).status.success());
    // Three as they came, two released; two deleted; two there.
    expect(&server, [9, 5, 0, 2]);
    let status = data(server.operator_json(&["status"]).remove(0))["recipients"].clone();
    let count = |name: &str| status[name].as_u64().unwrap_or_else(|| panic!("{name}: {status}"));
    let places = ["pending", "delivered", "bounced", "expired", "removed", "quarantined", "coalesced"];
    assert_eq!(places.iter().map(|place| count(place)).sum::<u64>(), count("acknowledged"), "{status}");
    let list = server.http_get("/api/v1/quarantine").expect(200).json();
    assert_eq!((&list["messages"], &list["recipients"], count("removed")), (&1.into(), &2.into(), 2));
    let metrics = server.http_get("/metrics").expect(200).text();
    for line in [
        "stentor_recipients_acknowledged_total 9",
        "stentor_recipients_total{outcome=\"delivered\"} 5",
        "stentor_recipients_total{outcome=\"removed\"} 2",
        "stentor_quarantine_messages 1",
        "stentor_quarantine_recipients 2",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
    }
    assert_eq!(server.queue()["messages"], 0);
    server.stop();
    let folder = server.path("data/journal");
    let verified = Command::new(stentor()).args(["journal", "verify"]).arg(folder).output().expect("it can be run");
    let verified = String::from_utf8(verified.stdout).expect("text");
    assert!(verified.contains("0 messages waiting for 0 recipients, 2 in the quarantine"), "{verified}");
}

#[test]
fn a_list_that_finds_nothing_ends_as_other_commands_do() {
    let lab = lab();
    let server = with(builder(&lab), &[], RULES);
    let code = |command: &[&str]| server.operator(command).status.code();
    assert_eq!(code(&["quarantine", "list"]), Some(0), "all of an empty quarantine");
    send(&server, &lab, &["kept@one.example"], "a@test", "Hello");
    expect(&server, [1, 0, 0, 1]);
    assert_eq!(code(&["quarantine", "list", "--recipient", "kept@one.example"]), Some(0));
    let nobody = ["--sender", "nobody@x.example"];
    for verb in ["list", "delete", "release"] {
        assert_eq!(code(&[&["quarantine", verb], &nobody[..]].concat()), Some(3), "{verb}");
    }
    let delete = ["quarantine", "delete", "--recipient", "kept@one.example", "--reason", "no such mail: please"];
    assert_eq!(code(&delete), Some(0));
    traced(&server, "kept@one.example", &[": no such mail: please"]);
}
