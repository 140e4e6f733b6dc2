//! Mail submitted over HTTP.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::json;
use stentor_harness::{TestLab, message, message_with, wait_until};

use crate::http_auth::with_token;
use crate::kit::{bare, builder};

#[test]
fn messages_go_to_lists_and_recipients() {
    let lab = TestLab::sites(&["one.example", "two.example"]);
    let (server, token) = with_token(builder(&lab).list("news", &["ann@one.example", "bob@two.example"]));
    let post = |path: &str| server.http("POST", path).token(&token);

    let wire = message("1@test", "raw");
    lab.recorder().expect_message(wire.clone().into());
    let taken = post("/api/v1/messages?sender=me@home.example&recipient=ann@one.example&recipient=carl@two.example")
        .body("message/rfc822", &wire)
        .send()
        .expect(201)
        .json();
    assert_eq!(taken["messages"][0]["recipients"], 2, "{taken}");
    lab.wait_clean("1@test", &["ann@one.example", "carl@two.example"]);

    // Files have bare LFs.
    let unix = String::from_utf8(message("2@test", "lines")).expect("ASCII").replace("\r\n", "\n");
    lab.recorder().expect_message(message("2@test", "lines").into());
    let order =
        json!({"sender": "me@home.example", "list": "news", "recipients": ["dora@one.example"], "message": unix});
    let taken = post("/api/v1/messages").json(&order).send().expect(201).json();
    let mut counts: Vec<u64> =
        taken["messages"].as_array().expect("two").iter().filter_map(|m| m["recipients"].as_u64()).collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 2], "{taken}");
    assert_ne!(taken["messages"][0]["id"], taken["messages"][1]["id"]);
    lab.wait("the list's copies", |recorder| recorder.copies_of("2@test") == 3);

    // Larger than a piece, in base64.
    let large = message_with("3@test", "Subject: large\r\n", &"0123456789abcdef\r\n".repeat(60_000));
    lab.recorder().expect_message(large.clone().into());
    let order = json!({"sender": "", "recipients": ["ann@one.example"], "message_base64": base64(&large)});
    post("/api/v1/messages").json(&order).send().expect(201);
    lab.wait_clean("3@test", &["ann@one.example"]);
    server.wait_empty();
    lab.assert_no_violations();
}

fn base64(octets: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in octets.chunks(3) {
        let bits = three.iter().fold(0u32, |bits, octet| bits << 8 | u32::from(*octet)) << (8 * (3 - three.len()));
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at)) as usize & 63];
            text.push(if at <= three.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[test]
fn what_is_wrong_is_refused_as_over_smtp() {
    let (server, token) = with_token(
        bare()
            .set("message_size_bytes_max", "100000")
            .set("domains.local", "[\"lists.test\"]")
            .alias("team@lists.test", &["ann@one.example"]),
    );
    let post = |order: &serde_json::Value| server.http("POST", "/api/v1/messages").token(&token).json(order).send();
    let text = "Subject: x\n\nx\n";
    let order = |to: &str| json!({"sender": "me@home.example", "recipients": [to], "message": text});
    server.http("POST", "/api/v1/messages").json(&order("a@one.example")).send().expect(401);
    for (bad, status) in [
        (json!({"recipients": [], "message": text}), 400),
        (json!({"recipients": ["a@one.example"]}), 400),
        (json!({"recipients": ["a@one.example"], "message": text, "message_base64": "eA=="}), 400),
        (json!({"recipients": ["not an address"], "message": text}), 400),
        (json!({"recipients": ["a@one.example\r\nRCPT TO:<b@c>"], "message": text}), 400),
        (json!({"sender": "a b", "recipients": ["a@one.example"], "message": text}), 400),
        (json!({"list": "none", "message": text}), 400),
        (json!({"to": ["a@one.example"], "message": text}), 400),
        (json!({"recipients": ["a@one.example"], "message": "a\rb"}), 422),
        (json!({"recipients": ["a@one.example"], "message": ""}), 422),
        (json!({"recipients": ["a@one.example"], "message": "x".repeat(100_001)}), 413),
        (json!({"recipients": ["gone@lists.test"], "message": text}), 422),
        (json!({"recipients": ["a@one.example"], "message": "Received: x\n".repeat(60) + "\n"}), 422),
    ] {
        let answer = post(&bad).expect(status).json();
        assert!(answer["error"]["text"].is_string(), "{answer}");
    }
    assert_eq!(server.queue()["messages"], 0);
    let both = json!({"recipients": ["team@lists.test", "gone@lists.test"], "message": text});
    let refused = post(&both).expect(422).json();
    assert_eq!(refused["error"]["refused"][0]["address"], "gone@lists.test", "{refused}");
    let mut partial = both;
    partial["partial"] = true.into();
    let taken = post(&partial).expect(201).json();
    assert_eq!(
        (taken["messages"][0]["recipients"].as_u64(), taken["refused"].as_array().map(Vec::len)),
        (Some(1), Some(1))
    );
    assert_eq!(server.queue()["messages"], 1);
}

#[test]
fn a_request_that_comes_again_is_one_message() {
    let (server, token) = with_token(bare());
    let order = json!({"recipients": ["a@one.example"], "message": "Subject: x\n\nx\n"});
    let post = |key: &str| {
        server.http("POST", "/api/v1/messages").token(&token).header("Idempotency-Key", key).json(&order).send()
    };
    let first = post("one").expect(201).json();
    assert_eq!(post("one").expect(201).json(), first);
    assert_ne!(post("two").expect(201).json(), first);
    post("").expect(400);
    assert_eq!(server.queue()["messages"], 2);
}

#[test]
fn half_a_message_is_none() {
    let (server, token) = with_token(bare());
    let head = format!(
        "POST /api/v1/messages?recipient=a@one.example HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: message/rfc822\r\n"
    );
    for body in [
        "Content-Length: 1000\r\n\r\nSubject: x\r\n\r\nx\r\n",
        "Transfer-Encoding: chunked\r\n\r\n10\r\nSubject: x\r\n\r\nx\r\n",
    ] {
        let mut stream = TcpStream::connect(server.http_address()).expect("the server listens");
        stream.write_all(format!("{head}{body}").as_bytes()).expect("it reads");
        stream.shutdown(std::net::Shutdown::Write).expect("it is open");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert!(!answer.contains("201"), "{answer}");
    }
    // What came behind them is alone in the queue.
    let order = json!({"recipients": ["a@one.example"], "message": "Subject: x\n\nx\n"});
    server.http("POST", "/api/v1/messages").token(&token).json(&order).send().expect(201);
    assert_eq!(server.queue()["messages"], 1);
}

#[test]
fn where_smtp_says_452_the_client_is_told_to_come_back() {
    let (server, token) = with_token(bare().set("journal.reserve_bytes", "1099511627776"));
    let order = json!({"recipients": ["a@one.example"], "message": "Subject: x\n\nx\n"});
    wait_until("the disk is found full", || {
        let answer = server.http("POST", "/api/v1/messages").token(&token).json(&order).send();
        answer.status == 503 && answer.header("retry-after").is_some() && answer.text().contains("452 4.3.1")
    });
    assert!(server.http_get("/readyz").expect(503).text().contains("disk"));
}

#[test]
fn what_is_held_as_a_whole_does_not_wait_for_itself() {
    let lab = TestLab::sites(&["one.example"]);
    // JSON takes three times its length: all that there is.
    let (server, token) = with_token(builder(&lab).set("listen.body_bytes_max", "1048576"));
    let wire = message_with("whole@test", "Subject: large\r\n", &"0123456789abcdef\r\n".repeat(30_000));
    lab.recorder().expect_message(wire.clone().into());
    let text = String::from_utf8(wire).expect("ASCII");
    let order = json!({"sender": "me@home.example", "recipients": ["ann@one.example"], "message": text});
    server.http("POST", "/api/v1/messages").token(&token).json(&order).send().expect(201);
    lab.wait_clean("whole@test", &["ann@one.example"]);
}
