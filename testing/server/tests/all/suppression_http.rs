//! Suppressions over HTTP, and mail that passes some of them.

use serde_json::{Value, json};
use stentor_harness::{Builder, Server, TestLab, message, wait_until};

use crate::http_auth::with_token;
use crate::kit::{SENDER, bare, builder};

/// A suppression in JSON.
fn entry(subject: &str, scope: &str) -> Value {
    json!({"entries": [{"subject": subject, "scope": scope, "reason": "complaint"}]})
}

fn subjects(list: &Value) -> Vec<&str> {
    list["rows"].as_array().expect("rows").iter().map(|row| row["subject"].as_str().expect("text")).collect()
}

#[test]
fn entries_are_added_listed_and_removed_with_a_token() {
    let (server, token) = with_token(bare());
    assert_eq!(server.http_get("/api/v1/suppressions").expect(200).json()["rows"], json!([]));
    let ann = entry("Ann@x.example", "list:news");
    server.http("POST", "/api/v1/suppress").json(&ann).send().expect(401);
    let added = server.http("POST", "/api/v1/suppress").token(&token).json(&ann).send().expect(200).json();
    assert_eq!(added["count"], 1, "{added}");
    assert!(added["text"].as_str().expect("text").contains("there is no list news"), "{added}");
    server.wait_log(&["audit: verb=suppress", "who=token=robot"]);
    for n in 0..3 {
        let other = entry(&format!("{n}@x.example"), "everything");
        server.http("POST", "/api/v1/suppress").token(&token).json(&other).send().expect(200);
    }
    let shown = server.http_get("/api/v1/suppressions/ann@x.example").expect(200).json();
    assert_eq!((subjects(&shown), &shown["rows"][0]["reason"]), (vec!["ann@x.example"], &"complaint".into()));
    let first = server.http_get("/api/v1/suppressions?rows_max=2&scope=everything").expect(200).json();
    assert_eq!((subjects(&first), &first["entries"]), (vec!["0@x.example", "1@x.example"], &4.into()));
    let next = "after_subject=1@x.example&after_scope=everything";
    let rest = server.http_get(&format!("/api/v1/suppressions?reason=complaint&{next}")).expect(200).json();
    assert_eq!(subjects(&rest), ["2@x.example", "ann@x.example"]);
    assert_eq!(rest["next"], Value::Null);
    for wrong in ["scope=all", "reason=spam", "rows_max=0", "rows_max=1001", "after_scope=everything", "colour=red"] {
        server.http_get(&format!("/api/v1/suppressions?{wrong}")).expect(400);
    }
    let unsuppress = |body: &Value| server.http("POST", "/api/v1/unsuppress").token(&token).json(body).send();
    let missing = unsuppress(&json!({"entries": [{"subject": "ann@x.example", "scope": "everything"}]})).expect(404);
    assert!(missing.text().contains("but has entries: --list news"), "{}", missing.text());
    let gone = unsuppress(&json!({"entries": [{"subject": "ann@x.example", "scope": "list:news"}]})).expect(200);
    assert_eq!(gone.json()["count"], 1);
    server.wait_log(&["audit: verb=unsuppress", "who=token=robot"]);
    let past = json!({"entries": [{"subject": "a@x.example", "expires": 1}]});
    server.http("POST", "/api/v1/suppress").token(&token).json(&past).send().expect(400);
}

#[test]
fn a_file_is_imported_as_it_comes_and_its_errors_have_lines() {
    let (mut server, token) = with_token(bare());
    let import = |server: &Server, query: &str, text: &str| {
        let request = server.http("POST", &format!("/api/v1/suppressions/import{query}")).token(&token);
        request.body("text/csv", text.as_bytes()).send()
    };
    let mut text = "email,reason,expires\n".to_owned();
    for n in 0..3_000 {
        text += &format!("{n:04}@x.example,bounce,\n");
    }
    text += &format!("nobody,bounce,\na@x.example,spam,\n{},\nb@x.example,bounce,2020-01-01\n", "x".repeat(5_000));
    let dry = import(&server, "?dry_run=true", &text).expect(200).json();
    assert_eq!((&dry["entries"], &dry["changed"], &dry["errors_total"]), (&3_001.into(), &0.into(), &3.into()));
    assert_eq!(server.http_get("/api/v1/suppressions").expect(200).json()["entries"], 0, "nothing was imported");
    let done = import(&server, "?scope=list:nws&source=old.csv", &text).expect(200).json();
    assert_eq!((&done["entries"], &done["changed"], &done["ended"]), (&3_001.into(), &3_000.into(), &1.into()));
    assert_eq!(done["errors"][0], json!({"line": 3_002, "text": "\"nobody\": address has no domain"}));
    assert_eq!(done["errors"][2]["line"], 3_004);
    assert!(done["remarks"][0].as_str().expect("text").contains("there is no list nws"), "{done}");
    assert_eq!(import(&server, "?scope=list:nws&source=old.csv", &text).expect(200).json()["changed"], 0);
    server.kill();
    server.start_again();
    let export = server.http_get("/api/v1/suppressions/export").expect(200);
    assert_eq!(export.header("content-type"), Some("text/csv; charset=utf-8"));
    let export = export.text();
    assert_eq!(export.lines().count(), 3_001);
    assert!(export.contains("\n0007@x.example,list:nws,bounce,old.csv,,"), "{}", &export[..200]);
    assert_eq!(export, server.operator_text(&["suppress", "export"]));
    for wrong in ["?scope=all", "?reason=spam", "?dry=true"] {
        import(&server, wrong, &text).expect(400);
    }
    let unnamed = import(&server, "", "x@x.example\n").expect(200).json();
    assert_eq!((&unnamed["entries"], &unnamed["errors"][0]["line"]), (&0.into(), &1.into()), "{unnamed}");
    let request = server.http("POST", "/api/v1/suppressions/import").body("text/csv", b"email\na@x.example\n");
    request.send().expect(401);
}

fn shop(lab: &TestLab) -> Builder {
    builder(lab)
        .list("news", &["ann@one.example", "bob@one.example"])
        .set_in("senders.\"account.example\"", "transactional", "true")
        .set("domains.relay", "[\"one.example\"]")
}

/// The reply to a recipient, from a client at this address.
fn rcpt(server: &Server, client: &str, from: &str, to: &str) -> u16 {
    let mut smtp = server.connect_from(client).greeted();
    smtp.cmd(&format!("MAIL FROM:<{from}>")).expect(250);
    smtp.cmd(&format!("RCPT TO:<{to}>")).code
}

#[test]
fn transactional_mail_of_a_sender_passes_its_entries_but_not_those_for_all_mail() {
    const TRUSTED: &str = "127.0.0.1";
    const STRANGER: &str = "127.0.0.2";
    let lab = TestLab::sites(&["one.example"]);
    let server = shop(&lab).start();
    let (account, other) = ("reset@account.example", "news@shop.example");
    for scope in ["account.example", "shop.example"] {
        server.ask(&["suppress", "add", "ann@one.example", "--sender", scope]).expect("it is added");
    }
    server.ask(&["suppress", "add", "bob@one.example", "--reason", "complaint"]).expect("it is added");
    assert_eq!(rcpt(&server, TRUSTED, account, "ann@one.example"), 250);
    assert_eq!(rcpt(&server, TRUSTED, other, "ann@one.example"), 550, "another sender");
    assert_eq!(rcpt(&server, TRUSTED, account, "bob@one.example"), 550, "suppressed for all mail");
    assert_eq!(rcpt(&server, STRANGER, account, "ann@one.example"), 550, "a stranger may write any sender");
    assert_eq!(rcpt(&server, STRANGER, account, "cid@one.example"), 250);
    // The copy, too.
    server.smtp().send(account, &["ann@one.example"], &message("reset@test", "x")).expect(250);
    lab.wait("the password reset", |recorder| recorder.copies_of("reset@test") == 1);
    // A stranger's message that waits when the entry is made.
    server.ask(&["queue-only", "--all"]).expect("nothing is sent");
    let mut smtp = server.connect_from(STRANGER).greeted();
    smtp.send(account, &["cid@one.example"], &message("forged@test", "x")).expect(250);
    server.ask(&["suppress", "add", "cid@one.example", "--sender", account]).expect("it is added");
    server.ask(&["queue-only", "--all", "--end"]).expect("it is sent");
    server.wait_log(&["to=<cid@one.example>", "suppressed for this sender (operator)"]);
    server.wait_empty();
    assert_eq!(lab.recorder().copies_of("forged@test"), 0);
    let explained = |from: &str, more: &[&str]| {
        let arguments = [&["explain", "--from", from, "--to", "ann@one.example"], more].concat();
        let output = server.operator(&arguments);
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (code, text) = explained(other, &[]);
    assert!(
        code == Some(69) && text.contains("=> refused: 550 5.7.1 Recipient is suppressed for this sender"),
        "{text}"
    );
    let (code, text) = explained(account, &[]);
    assert!(code == Some(0) && text.contains("which transactional mail bypasses"), "{text}");
    assert_eq!(explained(account, &["--client", STRANGER]).0, Some(69));
}

#[test]
fn a_transactional_message_passes_entries_of_a_list_across_a_restart() {
    let lab = TestLab::sites(&["one.example"]);
    let (mut server, token) = with_token(shop(&lab));
    server.ask(&["suppress", "add", "ann@one.example", "--list", "news"]).expect("it is added");
    server.ask(&["suppress", "add", "bob@one.example"]).expect("it is added");
    server.ask(&["suppress", "add", "cid@one.example", "--sender", SENDER]).expect("it is added");
    let submit = |server: &Server, id: &str, more: Value| {
        let mut order = json!({"sender": SENDER, "message": String::from_utf8(message(id, "x")).expect("text")});
        order.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        server.http("POST", "/api/v1/messages").token(&token).json(&order).send()
    };
    submit(&server, "1@test", json!({"recipients": ["cid@one.example"]})).expect(422);
    submit(&server, "1@test", json!({"recipients": ["bob@one.example"], "class": "transactional"})).expect(422);
    submit(&server, "1@test", json!({"recipients": ["cid@one.example"], "class": "urgent"})).expect(400);
    server.ask(&["queue-only", "--all"]).expect("nothing is sent");
    submit(&server, "mail@test", json!({"recipients": ["cid@one.example"], "class": "transactional"})).expect(201);
    submit(&server, "notice@test", json!({"list": "news", "class": "transactional"})).expect(201);
    submit(&server, "post@test", json!({"list": "news"})).expect(201);
    server.kill();
    server.start_again();
    server.ask(&["queue-only", "--all", "--end"]).expect("it is sent");
    server.wait_empty();
    wait_until("the others are removed", || server.fates()["removed"] == 3);
    for (id, copies) in [("mail@test", 1), ("notice@test", 1), ("post@test", 0)] {
        assert_eq!(lab.recorder().copies_of(id), copies, "{id}");
    }
}
