//! Outcomes reach their subscribers despite failures on either side.

use std::collections::{BTreeMap, BTreeSet};

use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;
use stentor_harness::{Builder, Received, Receiver, Server, TestLab, message, wait_until};

use crate::kit::builder;

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// An endpoint in the configuration.
fn with_hook(builder: Builder, name: &str, receiver: &Receiver) -> Builder {
    let section = format!("webhooks.{name}");
    builder
        .set_in(&section, "url", &format!("{:?}", receiver.url("/hook?x=1")))
        .set_in(&section, "secret", &format!("{SECRET:?}"))
        .set_in(&section, "batch_wait_ms", "50")
}

/// The receiver's side of docs/operate/webhooks.md.
fn assert_signed(request: &Received) {
    let signature = request.header("stentor-signature").expect("it is signed");
    let (time, sent) = signature.split_once(",v1=").expect("two parts");
    let time = time.strip_prefix("t=").expect("a time");
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).expect("any length");
    mac.update(time.as_bytes());
    mac.update(b".");
    mac.update(&request.body);
    let octets: Vec<u8> =
        (0..sent.len()).step_by(2).map(|at| u8::from_str_radix(&sent[at..at + 2], 16).expect("hex")).collect();
    mac.verify_slice(&octets).expect("the signature is ours");
}

/// Events in the order in which they were taken, those of a repeated batch once.
fn events(requests: &[Received]) -> Vec<Value> {
    let mut seen = BTreeSet::new();
    let all = requests.iter().flat_map(|request| request.json()["events"].as_array().cloned().unwrap_or_default());
    all.filter(|event| seen.insert(event["id"].as_str().expect("an id").to_owned())).collect()
}

fn fates(receiver: &Receiver) -> BTreeMap<String, String> {
    let mut fates = BTreeMap::new();
    for event in events(&receiver.taken()) {
        for to in event["recipients"].as_array().into_iter().flatten() {
            fates.insert(
                to.as_str().expect("an address").to_owned(),
                event["type"].as_str().expect("a type").to_owned(),
            );
        }
    }
    fates
}

fn send(server: &Server, to: &[&str], id: &str) -> String {
    server.smtp().send("me@home.example", to, &message(id, "x")).expect(250).queue_id()
}

/// However few of them a batch takes: what an endpoint that takes nothing has before it is counted while it goes on
/// failing.
#[test]
fn the_backlog_of_a_failing_endpoint_is_counted() {
    let lab = TestLab::start("[[site]]\nname = 'one.example'\n[[site]]\nname = 'home.example'\n");
    let dead = Receiver::start(|_| 503);
    let server = with_hook(builder(&lab), "dead", &dead)
        .set_in("webhooks.dead", "batch_max", "4")
        .set_in("webhooks.dead", "senders", "[\"home.example\"]")
        .set("http.listen", "[\"127.0.0.1:0\"]")
        .start();
    wait_until("it has begun", || server.path("data/webhooks/dead.position").exists());
    let lag = || {
        let view = server.http_get("/api/v1/webhooks").expect(200).json();
        let rows = view["webhooks"].as_array().or(view["rows"].as_array()).or(view.as_array()).expect("rows").clone();
        rows[0]["lag_records"].as_u64().expect("a number")
    };
    let page = server.http_get("/webhooks").expect(200).text();
    assert!(page.contains("Senders") && !page.contains("Lists</dt>"), "{page}");
    let view = &server.http_get("/api/v1/webhooks").expect(200).json()["webhooks"][0];
    assert_eq!((&view["senders"][0], &view["format"]), (&"home.example".into(), &"events".into()), "{view}");
    for n in 0..30 {
        send(&server, &["ann@one.example"], &format!("{n}@test"));
    }
    server.wait_empty();
    // An acceptance and a delivery each, at least.
    wait_until("all are counted", || lag() >= 60);
    let metrics = server.http_get("/metrics").expect(200).text();
    let line =
        metrics.lines().find(|line| line.starts_with("stentor_webhook_lag_records{")).expect("a sample").to_owned();
    let value: f64 = line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number");
    assert!(value >= 60.0, "{line}");
}

#[test]
fn outcomes_come_signed_in_order_and_again_until_they_are_taken() {
    let lab = TestLab::start(
        "[[site]]\nname = 'one.example'\nbehaviour = { reject_users = ['gone'] }\n[[site]]\nname = 'home.example'\n",
    );
    let hook = Receiver::start(|n| if n < 2 { 500 } else { 200 });
    let dead = Receiver::start(|_| 503);
    let server = with_hook(with_hook(builder(&lab), "good", &hook), "dead", &dead)
        .set("http.listen", "[\"127.0.0.1:0\"]")
        .start();
    // A new endpoint begins at the present: it must be there before the mail.
    wait_until("both have begun", || {
        ["good", "dead"].iter().all(|name| server.path(&format!("data/webhooks/{name}.position")).exists())
    });
    let id = send(&server, &["ann@one.example", "gone@one.example"], "1@test");
    wait_until("both outcomes are taken", || {
        let fates = fates(&hook);
        fates.get("ann@one.example").is_some_and(|f| f == "delivered")
            && fates.get("gone@one.example").is_some_and(|f| f == "bounced")
    });
    let all = hook.all();
    assert!(all.len() >= 3 && all[0].status == 500, "{all:?}");
    // What was not taken came again, the same.
    assert_eq!(all[0].json()["events"][0]["id"], all[2].json()["events"][0]["id"]);
    for request in &all {
        assert_signed(request);
        assert_eq!((request.path.as_str(), request.header("stentor-webhook")), ("/hook?x=1", Some("good")));
    }
    let event =
        events(&hook.taken()).into_iter().find(|event| event["recipients"][0] == "ann@one.example").expect("it came");
    assert_eq!((&event["message"], &event["sender"]), (&Value::from(id), &Value::from("me@home.example")));
    assert!(event["reply"].as_str().is_some_and(|reply| reply.starts_with("250")), "{event}");
    // The other one is told of, and held nobody up.
    dead.wait("it was tried", |all| !all.is_empty());
    wait_until("it is told of", || {
        let views = server.http_get("/api/v1/webhooks").expect(200).json();
        let dead = views["webhooks"].as_array().expect("two").iter().find(|view| view["name"] == "dead").cloned();
        dead.is_some_and(|dead| dead["last_error"] == "it answered 503" && dead["failing_since"].is_u64())
    });
    let metrics = server.http_get("/metrics").expect(200).text();
    assert!(metrics.contains("stentor_webhook_enabled{webhook=\"dead\"} 1"));
    server.wait_empty();
}

fn events_in(body: &[u8]) -> usize {
    let body: Value = serde_json::from_slice(body).expect("JSON");
    body["events"].as_array().expect("events").len()
}

#[test]
fn a_batch_that_is_too_large_for_the_endpoint_comes_in_parts() {
    let lab = TestLab::sites(&["one.example"]);
    // Refused at first, so that many events wait for one batch.
    let hook = Receiver::start_with_body(|n, body| match events_in(body) {
        _ if n == 0 => 503,
        0..=3 => 200,
        _ => 413,
    });
    let server = with_hook(builder(&lab), "hook", &hook).start();
    wait_until("it has begun", || server.path("data/webhooks/hook.position").exists());
    let sent: BTreeSet<String> = (0..40).map(|n| format!("u{n}@one.example")).collect();
    for (n, to) in sent.iter().enumerate() {
        send(&server, &[to], &format!("{n}@test"));
    }
    wait_until("all have come", || fates(&hook).into_keys().collect::<BTreeSet<_>>() == sent);
    let all = hook.all();
    assert!(all.iter().any(|request| request.status == 413), "none was too large");
    let taken = hook.taken();
    let numbers: Vec<u64> = taken
        .iter()
        .flat_map(|request| request.json()["events"].as_array().expect("events").clone())
        .map(|event| {
            event["id"].as_str().and_then(|id| id.split_once('-')).expect("an id").0.parse().expect("a number")
        })
        .collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "in order, each once: {numbers:?}");
    assert!(taken.iter().all(|request| request.json()["lost"].is_null()));
    server.wait_empty();
}

#[test]
fn a_killed_server_goes_on_where_it_was() {
    let lab = TestLab::sites(&["one.example"]);
    let hook = Receiver::start(|n| if n % 3 == 2 { 200 } else { 500 });
    let mut server = with_hook(builder(&lab), "hook", &hook).set_in("webhooks.hook", "batch_max", "2").start();
    wait_until("it has begun", || server.path("data/webhooks/hook.position").exists());
    let mut sent = BTreeSet::new();
    for round in 0..3 {
        for n in 0..5 {
            let to = format!("u{round}-{n}@one.example");
            send(&server, &[&to], &format!("{round}-{n}@test"));
            sent.insert(to);
        }
        server.wait_empty();
        // What the history has not written yet may be lost with a kill: it is in its file once one of the round came.
        let any = format!("u{round}-4@one.example");
        let before = hook.all().len();
        wait_until("something of it was tried", || hook.all().len() > before);
        if round == 1 {
            wait_until("all until here is in the history", || fates(&hook).contains_key(&any));
        }
        server.kill();
        server.start_again();
    }
    // After the last kill: mail that must come, and with it everything before it.
    send(&server, &["last@one.example"], "last@test");
    wait_until("the last one has come", || fates(&hook).contains_key("last@one.example"));
    let came: BTreeSet<String> = fates(&hook).into_keys().collect();
    let missing: Vec<&String> = sent
        .iter()
        .filter(|to| to.starts_with("u0") || to.starts_with("u1"))
        .filter(|to| !came.contains(*to))
        .collect();
    assert!(missing.is_empty(), "{missing:?} of {came:?}");
    // In order: the times of what was taken never go back by more than one batch's concurrency.
    for request in hook.all() {
        assert_signed(&request);
    }
}

#[test]
fn an_endpoint_that_is_gone_is_disabled() {
    let lab = TestLab::sites(&["one.example"]);
    let hook = Receiver::start(|_| 410);
    let server = with_hook(builder(&lab), "hook", &hook).set("http.listen", "[\"127.0.0.1:0\"]").start();
    wait_until("it has begun", || server.path("data/webhooks/hook.position").exists());
    send(&server, &["ann@one.example"], "1@test");
    server.wait_log(&["the webhook answered 410", "hook"]);
    wait_until("it is told of", || {
        server.http_get("/metrics").expect(200).text().contains("stentor_webhook_enabled{webhook=\"hook\"} 0")
    });
    assert_eq!(hook.all().len(), 1);
}
