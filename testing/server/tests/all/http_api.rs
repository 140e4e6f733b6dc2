//! The API agrees with the command line.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use stentor_harness::{TestLab, message, wait_until};

use crate::http_auth::with_token;
use crate::kit::{bare, builder};

#[test]
fn verbs_do_what_the_command_line_does() {
    let lab = TestLab::start(
        "[[site]]\nname = \"one.example\"\n[[site]]\nname = \"down.example\"\nbehaviour = { connect = \"refuse\" }\n",
    );
    let (server, token) = with_token(builder(&lab).list("news", &["ann@down.example"]));
    let send =
        |to: &str, id: &str| server.smtp().send("me@home.example", &[to], &message(id, "x")).expect(250).queue_id();
    let id = send("news@lists.test", "1@test");
    send("bob@down.example", "2@test");
    wait_until("both were tried", || {
        server.ask(&["queue", "show", &id]).is_ok_and(|m| m["recipients"][0]["state"] == "deferred")
    });
    let get = |path: &str| server.http_get(path).expect(200).json();
    let post = |path: &str, body: &Value| server.http("POST", path).token(&token).json(body).send();

    let ours = get(&format!("/api/v1/messages/{id}"));
    let theirs = server.ask(&["queue", "show", &id]).expect("it is there");
    for field in ["id", "sender", "list", "size", "accepted", "message_id", "fates"] {
        assert_eq!(ours[field], theirs[field], "{field}");
    }
    assert_eq!(ours["recipients"][0]["address"], "ann@down.example");
    assert_eq!(get("/api/v1/queue?sites_max=0")["recipients"], 2);
    assert_eq!(get("/api/v1/queue/stuck?rows_max=1")["recipients"][0]["messages"], 1);
    assert_eq!(get("/api/v1/addresses/ann%40down.example")["messages"], json!([id]));
    assert_eq!(get("/api/v1/sites/down.example")["site"], "mx1.down.example");
    assert_eq!(server.http_get("/api/v1/messages/0000000000FF").expect(404).json()["error"]["code"], "not_found");
    server.http_get("/api/v1/queue?sites=1").expect(400);
    server.http_get("/api/v1/nothing").expect(404);

    let lines = server.http_get("/api/v1/queue/export?list=news").expect(200);
    assert_eq!(lines.header("content-type"), Some("application/x-ndjson"));
    let lines: Vec<Value> = lines.text().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((lines.len(), &lines[0]["id"], &lines[1]["end"]["messages"]), (2, &json!(id), &json!(1)));

    let dry = post("/api/v1/remove", &json!({"list": "news", "dry_run": true})).expect(200).json();
    assert_eq!((&dry["count"], &dry["dry_run"]), (&json!(1), &json!(true)));
    assert_eq!(server.queue()["recipients"], 2);
    post("/api/v1/remove", &json!({})).expect(400);
    post("/api/v1/remove", &json!({"all": true, "force": true})).expect(400);
    post(&format!("/api/v1/posts/{id}/pause"), &json!({"reason": "a test"})).expect(200);
    assert_eq!(get(&format!("/api/v1/messages/{id}"))["held"], true);
    post(&format!("/api/v1/posts/{id}/resume"), &json!({})).expect(200);
    wait_until("it is cancelled", || {
        post(&format!("/api/v1/posts/{id}/cancel"), &json!({})).expect(200);
        server.queue()["messages"] == 1
    });
    post("/api/v1/suspend", &json!({"list": "news"})).expect(200);
    assert_eq!(get("/api/v1/status")["suspended"], json!(["list:news"]));
    post("/api/v1/resume", &json!({"list": "news"})).expect(200);
    post("/api/v1/bounce", &json!({"sender": "me@home.example", "reason": "no more"})).expect(200);
    post("/api/v1/flush", &json!({})).expect(200);
    post("/api/v1/reload", &json!({})).expect(200);
    server.wait_log(&["configuration reloaded"]);
    post("/api/v1/stop", &json!({})).expect(404);
    let document = get("/api/v1/openapi.json");
    assert_eq!(document["openapi"], "3.1.0");
}

#[test]
fn the_past_is_told() {
    let lab = TestLab::sites(&["one.example"]);
    let (server, _) = with_token(builder(&lab).list("news", &["ann@one.example", "bob@one.example"]));
    let id =
        server.smtp().send("me@home.example", &["news@lists.test"], &message("1@test", "x")).expect(250).queue_id();
    server.wait_empty();
    // What has happened is in the history's file within moments.
    wait_until("both deliveries are in the table", || {
        server.http_get("/api/v1/mailstat?by=list").expect(200).json()["total"]["delivered"]["recipients"] == 2
    });
    let table = server.http_get("/api/v1/mailstat").expect(200).json();
    assert_eq!((&table["by"], &table["total"]["posts"]), (&json!("hour"), &json!(1)));
    server.http_get("/api/v1/mailstat?by=moon").expect(400);
    server.http_get("/api/v1/mailstat?since=0").expect(400);
    for what in [id.as_str(), "ann@one.example", "%3C1@test%3E"] {
        let story = server.http_get(&format!("/api/v1/trace/{what}")).expect(200).json();
        let messages = story["messages"].as_array().expect("messages");
        assert_eq!((messages.len(), &messages[0]["id"]), (1, &json!(id)), "{what}: {story}");
        assert!(
            messages[0]["accepted"].is_object()
                && messages[0]["attempts"].as_array().is_some_and(|all| !all.is_empty()),
            "{what}: {story}"
        );
    }
    let nothing = server.http_get("/api/v1/trace/nobody@one.example").expect(200).json();
    assert_eq!(nothing["messages"], json!([]));
}

/// Messages that nobody has tried are in no record of their recipient: the queue has them.
#[test]
fn a_story_has_what_waits_and_says_what_it_leaves_out() {
    let (server, _) = with_token(bare());
    for n in 0..120 {
        let to = if n < 110 { "ann@one.example" } else { "bob@one.example" };
        server.smtp().send("me@home.example", &[to], &message(&format!("{n}@test"), "x")).expect(250);
    }
    let told = |what: &str| {
        let story = server.http_get(&format!("/api/v1/trace/{what}")).expect(200).json();
        let ids: BTreeSet<String> =
            story["messages"].as_array().expect("messages").iter().map(|one| one["id"].to_string()).collect();
        (ids.len() as u64, story["messages_left_out"].as_u64().expect("a number"))
    };
    wait_until("the acceptances are in the history's file", || told("ann@one.example").0 == 100);
    assert_eq!(told("ann@one.example"), (100, 10));
    assert_eq!(told("one.example"), (100, 20));
}
