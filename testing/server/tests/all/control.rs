//! The operator's commands against the running server.

use stentor_harness::{Server, TestLab, message, wait_until};

/// A site that defers everybody.
const DEFERRING: &str = "[[site]]\nname = \"full.example\"\nbehaviour = { full_share = 1.0 }\n";

fn text(output: &std::process::Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

#[test]
fn an_empty_queue() {
    let server = Server::builder().start();
    assert_eq!(text(&server.operator(&["queue"])), "mx.test: the queue is empty\n");
    let queue = server.queue();
    assert_eq!((&queue["messages"], &queue["recipients"]), (&0.into(), &0.into()));
    let status = server.status();
    assert_eq!((&status["hostname"], &status["pid"]), (&"mx.test".into(), &server.pid().into()));
    assert_eq!(status["stopping"], false);
    assert!(status["started"].as_u64() > Some(0) && status["now"].as_u64() >= status["started"].as_u64());
}

#[test]
fn what_waits_is_shown() {
    let lab = TestLab::start(DEFERRING);
    let server = Server::builder().lab(&lab).list("news", &["a@full.example", "b@full.example"]).start();
    let id =
        server.smtp().send("me@home.example", &["news@lists.test"], &message("q@test", "x")).expect(250).queue_id();
    wait_until("both are deferred", || {
        let shown = server.ask(&["queue", "show", &id]).expect("it is queued");
        let rows = shown["recipients"].as_array().expect("rows").clone();
        rows.iter().all(|row| row["state"] == "deferred")
    });
    let shown = server.ask(&["queue", "show", &id]).expect("it is queued");
    assert_eq!((&shown["id"], &shown["list"], &shown["class"]), (&id.as_str().into(), &"news".into(), &"bulk".into()));
    assert_eq!((&shown["sender"], &shown["message_id"]), (&"news-bounces@lists.test".into(), &"<q@test>".into()));
    assert_eq!((&shown["origin"], &shown["fates"]["pending"]), (&"127.0.0.1".into(), &2.into()));
    for row in shown["recipients"].as_array().expect("rows") {
        assert!(row["last_reply"].as_str().expect("text").starts_with("452 "), "{row}");
        assert!(row["next_try"].as_u64() > shown["now"].as_u64(), "{row}");
    }
    let queue = server.queue();
    assert_eq!(
        (&queue["messages"], &queue["recipients"], &queue["oldest_id"]),
        (&1.into(), &2.into(), &id.as_str().into())
    );
    let site = &queue["sites"][0];
    assert_eq!((&site["waiting"], &site["messages"]), (&2.into(), &1.into()));
    assert!(site["site"].as_str().expect("text").contains("full.example"), "{site}");

    // The older spelling of `stuck`.
    let stuck = server.ask(&["queue", "--stuck"]).expect("a reply");
    assert_eq!((&stuck["is_counting"], &stuck["sites_total"]), (&false.into(), &1.into()));
    let mut shown = String::new();
    // Ages are in seconds, and one may begin between the two.
    wait_until("both spellings say the same", || {
        shown = text(&server.operator(&["queue", "--stuck", "1"]));
        shown == text(&server.operator(&["stuck", "-n", "1"]))
    });
    assert!(shown.contains("messages   oldest next try  recipient\n") && shown.contains("@full.example\n"), "{shown}");

    let shown = text(&server.operator(&["queue"]));
    assert!(shown.starts_with("mx.test: 1 message (") && shown.contains("2 recipients waiting\n"), "{shown}");
    assert!(shown.contains(&format!("oldest: {id}, accepted ")) && shown.contains("full.example"), "{shown}");
    let shown = text(&server.operator(&["queue", "show", &id]));
    assert!(
        shown.starts_with(&id)
            && shown
                .contains("from        <news-bounces@lists.test> (original sender <me@home.example>) by 127.0.0.1\n"),
        "{shown}"
    );
    assert!(shown.contains("deferred") && shown.contains("a@full.example") && shown.contains("452 "), "{shown}");
    // A cap on rows is said.
    let shown = text(&server.operator(&["queue", "show", &id, "--recipients-max", "1"]));
    assert!(shown.contains("... and 1 more recipient\n"), "{shown}");
}

#[test]
fn many_rows_come_in_many_lines() {
    let lab = TestLab::start(DEFERRING);
    let people: Vec<String> = (0..700).map(|n| format!("u{n}@full.example")).collect();
    let people: Vec<&str> = people.iter().map(String::as_str).collect();
    let server = Server::builder().lab(&lab).list("news", &people).start();
    let id =
        server.smtp().send("me@home.example", &["news@lists.test"], &message("q@test", "x")).expect(250).queue_id();
    assert!(server.operator_json(&["queue", "show", &id]).len() > 3);
    let shown = server.ask(&["queue", "show", &id]).expect("it is queued");
    assert_eq!(shown["recipients"].as_array().expect("rows").len(), 700);
}

#[test]
fn what_is_not_there() {
    let server = Server::builder().start();
    let problem = server.ask(&["queue", "show", "037P74WG0000"]).expect_err("no such message");
    assert_eq!(problem["code"], "not_found");
    let output = server.operator(&["queue", "show", "037P74WG0000"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("037P74WG0000"), "{output:?}");
    let output = server.operator(&["queue", "show", "not-an-id"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
}

#[test]
fn nobody_listens() {
    let server = Server::builder().prepare();
    for command in ["status", "queue", "reload", "stop", "flush"] {
        let output = server.operator(&[command]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let start = format!("`stentor serve --config {}`", server.config().display());
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(err.contains("control.sock") && err.contains(&start), "{err}");
    }
}

#[test]
fn flush_tries_at_once() {
    // Refused for 300 ms; the clocks would wait for minutes.
    let lab = TestLab::start("[[site]]\nname = \"grey.example\"\nbehaviour = { greylist_ms = 300 }\n");
    let server = Server::builder().lab(&lab).start();
    server.smtp().send("me@home.example", &["ann@grey.example"], &message("flush@test", "x")).expect(250);
    lab.wait("the first attempt", |recorder| recorder.stats().rcpt_4xx > 0);
    wait_until("it is delivered", || {
        assert!(server.operator(&["flush"]).status.success());
        lab.recorder().copies_of("flush@test") == 1
    });
    server.wait_empty();
}

#[test]
fn stop_by_command_and_start_again() {
    let lab = TestLab::start(DEFERRING);
    let mut server = Server::builder().lab(&lab).start();
    let id = server.smtp().send("me@home.example", &["a@full.example"], &message("q@test", "x")).expect(250).queue_id();
    assert!(server.operator(&["stop"]).status.success());
    assert!(server.wait_exit().success());
    assert_eq!(server.operator(&["queue"]).status.code(), Some(1));
    server.start_again();
    let shown = server.ask(&["queue", "show", &id]).expect("it is still queued");
    assert_eq!(shown["recipients"][0]["address"], "a@full.example");
}

#[test]
fn a_queued_message_is_printed_as_stored() {
    let lab = TestLab::start(DEFERRING);
    let server = crate::kit::builder(&lab).start();
    let body = "A test\r\n.dot \u{1b}[31m\r\n";
    let wire = format!("Subject: printed\r\nMessage-ID: <cat@test>\r\n\r\n{body}");
    let id = server.smtp().send("me@home.example", &["ann@full.example"], wire.as_bytes()).expect(250).queue_id();
    let header = text(&server.operator(&["queue", "cat", &id]));
    assert!(header.starts_with("Received: ") && header.contains("Subject: printed\r\n"), "{header}");
    assert!(!header.contains("A test"), "{header}");
    assert_eq!(text(&server.operator(&["queue", "cat", &id, "--body"])), body);
    assert_eq!(text(&server.operator(&["queue", "cat", &id, "--all"])), format!("{header}{body}"));
    // Each body that was read, and no header.
    server.log().wait_nth(&["audit: verb=cat", &id], 2);
    assert_eq!(server.log().matching(&["audit: verb=cat", &id]).len(), 2);
    let missing = server.operator(&["queue", "cat", "00000000002D"]);
    assert!(!missing.status.success() && missing.stdout.is_empty());
}

#[test]
fn recipients_are_counted_by_age() {
    let lab = TestLab::start(DEFERRING);
    let server = crate::kit::builder(&lab).start();
    let people = ["ann@full.example", "bob@full.example", "cid@nowhere.example"];
    server.smtp().send("me@home.example", &people, &message("ages@test", "x")).expect(250);
    wait_until("the first are at their site", || {
        let ages = server.ask(&["queue", "--by", "age"]).expect("an answer");
        let row = &ages["rows"][0];
        row["site"] == "mx1.full.example"
            && row["recipients"] == 2
            && row["by_age"][0] == 2
            && ages["counted"].as_u64() >= Some(2)
    });
    let table = text(&server.operator(&["queue", "--by", "age"]));
    assert!(table.contains("1280+") && table.lines().any(|row| row.starts_with("mx1.full.example ")), "{table}");
}
