//! Spans reach a collector.

use serde_json::{Value, json};
use stentor_harness::{Receiver, TestLab, message};

use crate::http_auth::with_token;
use crate::kit::builder;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// All spans, each checked for what the format asks of it.
fn spans(collector: &Receiver) -> Vec<Value> {
    let mut all = Vec::new();
    for request in collector.taken() {
        assert_eq!((request.path.as_str(), request.header("content-type")), ("/v1/traces", Some("application/json")));
        let body = request.json();
        let resource = &body["resourceSpans"][0];
        assert_eq!(
            resource["resource"]["attributes"][0],
            json!({"key": "service.name", "value": {"stringValue": "stentor"}})
        );
        all.extend(resource["scopeSpans"][0]["spans"].as_array().expect("spans").iter().cloned());
    }
    for span in &all {
        assert_eq!(
            (span["traceId"].as_str().map(str::len), span["spanId"].as_str().map(str::len)),
            (Some(32), Some(16))
        );
        let time = |field: &str| span[field].as_str().and_then(|text| text.parse::<u64>().ok()).expect("a time");
        assert!(
            time("startTimeUnixNano") > 1_500_000_000_000_000_000
                && time("startTimeUnixNano") <= time("endTimeUnixNano")
        );
    }
    all
}

fn named<'a>(all: &'a [Value], name: &str, trace: &Value) -> Option<&'a Value> {
    all.iter().find(|span| span["name"] == name && span["traceId"] == *trace)
}

#[test]
fn a_message_is_one_trace_from_its_client_to_its_host() {
    let lab = TestLab::sites(&["one.example"]);
    let collector = Receiver::start(|_| 200);
    let (server, token) = with_token(
        builder(&lab)
            .set("telemetry.otlp_endpoint", &format!("{:?}", collector.url("")))
            .set("telemetry.sample_one_in", "1"),
    );
    let id =
        server.smtp().send("me@home.example", &["ann@one.example"], &message("1@test", "x")).expect(250).queue_id();
    let of = |span: &Value| {
        span["attributes"].as_array().is_some_and(|all| all.iter().any(|a| a["value"]["stringValue"] == id.as_str()))
    };
    collector.wait("four spans", |_| {
        let all = spans(&collector);
        let root = all.iter().find(|span| span["name"] == "accept" && of(span));
        root.is_some_and(|root| {
            ["receive", "commit", "deliver"].iter().all(|name| {
                named(&all, name, &root["traceId"]).is_some_and(|span| span["parentSpanId"] == root["spanId"])
            })
        })
    });
    let order = json!({"recipients": ["bob@one.example"], "message": "Subject: x\n\nx\n"});
    server.http("POST", "/api/v1/messages").token(&token).header("traceparent", PARENT).json(&order).send().expect(201);
    let trace = json!(&PARENT[3..35]);
    collector.wait("the client's trace goes on", |_| {
        let all = spans(&collector);
        let root = named(&all, "accept", &trace).cloned();
        root.is_some_and(|root| {
            root["parentSpanId"] == PARENT[36..52]
                && named(&all, "deliver", &trace).is_some_and(|span| span["parentSpanId"] == root["spanId"])
        })
    });
}

#[test]
fn a_collector_that_is_away_holds_nobody_up() {
    let lab = TestLab::sites(&["one.example"]);
    let server = builder(&lab)
        .set("telemetry.otlp_endpoint", "\"http://127.0.0.1:9\"")
        .set("telemetry.sample_one_in", "1")
        .start();
    for n in 0..20 {
        server.smtp().send("me@home.example", &["ann@one.example"], &message(&format!("{n}@test"), "x")).expect(250);
    }
    server.wait_empty();
    server.wait_log(&["the collector does not accept spans"]);
    server.wait_log(&["limit hit", "trace_queue"]);
}
