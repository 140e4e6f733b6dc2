//! A verb does what its dry run said, to the mail that it said; and what is shown after it is counted after it.

use serde_json::{Value, json};
use stentor_harness::{Server, TestLab, message, message_with, wait_until};

use crate::http_auth::{token, with_token};
use crate::kit::builder;
use crate::live::{Running, lab, patient};
use crate::preload::{let_syncs_end, preload, start, stop_syncs, wait_sync};

const FROM: &str = "me@home.example";

fn send(server: &Server, to: &str, id: &str) -> String {
    server.smtp().send(FROM, &[to], &message(id, "x")).expect(250).queue_id()
}

/// What a command prints, on both streams.
fn text(server: &Server, arguments: &[&str]) -> String {
    let output = server.operator(arguments);
    String::from_utf8([output.stdout, output.stderr].concat()).expect("text")
}

/// Recipients that wait for this.
fn recipients_of(queue: &Value, cause: &str) -> u64 {
    let rows = queue["causes"].as_array().map_or(&[][..], Vec::as_slice);
    rows.iter().filter(|row| row["cause"] == cause).filter_map(|row| row["recipients"].as_u64()).sum()
}

#[test]
fn a_suspension_stops_what_its_dry_run_counts() {
    let lab = lab();
    let server = patient(&lab).list("news", &["cid@down.example"]).start();
    send(&server, "dan@down.example", "ordinary@test");
    send(&server, "news@lists.test", "post@test");
    let bulk = message_with("bulk@test", "Precedence: bulk\r\n", "x\r\n");
    server.smtp().send(FROM, &["eve@down.example"], &bulk).expect(250);
    wait_until("all have been tried", || recipients_of(&server.queue(), "refused") == 3);
    let one = |subject: &str| format!("would suspend {subject}: 1 recipient of 1 message waiting");
    for (what, expected, stopped) in [
        // Posts are their list's.
        (
            &["--sender", "home.example"][..],
            "would suspend sender home.example: 2 recipients of 2 messages waiting".to_owned(),
            2,
        ),
        (&["--list", "news"], one("list news"), 1),
        (
            &["--list", "news", "--subscriber", "cid@down.example"],
            "would suspend subscriber cid@down.example of list news: only new posts; waiting posts are still sent"
                .to_owned(),
            0,
        ),
    ] {
        let with = |verb: &[&'static str]| server.ask(&[verb, what].concat()).unwrap_or_else(|why| panic!("{why}"));
        let counted = with(&["suspend", "--dry-run"]);
        assert_eq!((&counted["text"], &counted["count"]), (&expected.into(), &stopped.into()), "{what:?}");
        assert_eq!(server.status()["suspended_total"], 0);
        with(&["suspend"]);
        assert_eq!(recipients_of(&server.queue(), "suspended"), stopped, "{what:?}");
        with(&["resume"]);
    }
}

/// A variable of a script that is empty must not mean all mail.
#[test]
fn an_empty_selector_selects_nothing() {
    let lab = lab();
    let server = patient(&lab).list("news", &["cid@down.example"]).start();
    send(&server, "dan@down.example", "ordinary@test");
    send(&server, "news@lists.test", "post@test");
    wait_until("all have been tried", || recipients_of(&server.queue(), "refused") == 2);
    for verb in ["hold", "remove", "bounce"] {
        for selector in ["--subject", "--recipient", "--site", "--list"] {
            for empty in ["", "  "] {
                let done = server.ask(&[verb, selector, empty]);
                let count = done.as_ref().map_or(0, |done| done["count"].as_u64().expect("a number"));
                assert_eq!(count, 0, "{verb} {selector} {empty:?}: {done:?}");
            }
        }
        assert!(server.ask(&[verb, "--subject", ""]).is_err(), "{verb}");
    }
    assert_eq!(server.fates()["pending"], 2);
}

#[test]
fn what_is_kept_is_neither_counted_nor_tried() {
    let lab = TestLab::start(
        "[[site]]\nname = 'one.example'\n[[site]]\nname = 'two.example'\n\
         [[site]]\nname = 'full.example'\nbehaviour = { at_rcpt = '452 4.2.2 Mailbox full' }\n",
    );
    let server = patient(&lab).list("news", &["bob@one.example"]).start();
    let run = |arguments: &[&str]| server.ask(arguments).unwrap_or_else(|why| panic!("{arguments:?}: {why}"));
    run(&["queue-only", "--all"]);
    let held = send(&server, "ann@one.example", "held@test");
    send(&server, "news@lists.test", "suspended@test");
    send(&server, "cid@two.example", "kept@test");
    send(&server, "dan@full.example", "free@test");
    run(&["hold", "--id", &held]);
    run(&["suspend", "--list", "news"]);
    run(&["queue-only", "--domain", "two.example"]);
    run(&["queue-only", "--end", "--all"]);
    let causes = ["held", "suspended", "queue_only", "mailbox_full"];
    wait_until("each waits for its own", || {
        let queue = server.queue();
        causes.iter().all(|cause| recipients_of(&queue, cause) == 1)
    });
    server.wait_log(&["stat=Deferred", "dan@full.example"]);
    let tries = || server.log().matching(&["stat=Deferred", "dan@full.example"]).len();

    let not = "not tried: 3 held, suspended or queue-only";
    let counted = run(&["requeue", "--all", "--dry-run"]);
    assert_eq!(counted["text"], format!("would requeue: 1 recipient of 1 message; {not}"));
    assert_eq!(tries(), 1, "a dry run tries nothing");
    for (arguments, expected) in [
        (&["flush", "--dry-run"][..], format!("would try 1 recipient; {not}")),
        (&["flush", "full.example", "--dry-run"], "would try 1 recipient at mx1.full.example".to_owned()),
        (
            &["flush", "--list", "news", "--dry-run"],
            "would requeue: 0 recipients of 0 messages; not tried: 1 held, \
          suspended or queue-only"
                .to_owned(),
        ),
        (&["post", "cancel", &held, "--dry-run"], "would remove: 1 recipient of 1 message".to_owned()),
        // Its mail stays where it is.
        (
            &["flush", "two.example"],
            "trying 0 recipients at mx1.two.example now; not tried: 1 held, suspended or \
          queue-only"
                .to_owned(),
        ),
    ] {
        assert_eq!(run(arguments)["text"], expected);
    }
    assert_eq!((tries(), &server.fates()["pending"]), (1, &4.into()), "a dry run changes nothing");
    // Nothing is done, and that is not for want of mail.
    let only_kept = server.operator(&["requeue", "--site", "one.example"]);
    let said = String::from_utf8_lossy(&only_kept.stdout).into_owned();
    let expected = "requeue: 0 recipients of 0 messages; not tried: 2 held, suspended or queue-only\n";
    assert_eq!((only_kept.status.code(), &*said), (Some(0), expected));
    let done = run(&["requeue", "--all"]);
    assert_eq!(done["text"], format!("requeue: 1 recipient of 1 message; {not}"));
    server.log().wait_nth(&["stat=Deferred", "dan@full.example"], 2).expect("it is tried");
    assert_eq!(lab.recorder().stats().recipients, 0, "what is kept has stayed");

    // A run of the queue has what is queue-only too.
    let counted = run(&["queue", "run", "--dry-run"]);
    assert_eq!(
        (&counted["text"], &counted["count"], &counted["messages"]),
        (&"would try 2 recipients once; not tried: 1 held, 1 suspended".into(), &2.into(), &2.into())
    );
    assert_eq!(lab.recorder().stats().recipients, 0, "a dry run tries nothing");
    assert_eq!(run(&["queue", "run"])["text"], "trying 2 recipients once; not tried: 1 held, 1 suspended");
    lab.wait_clean("kept@test", &["cid@two.example"]);
    server.log().wait_nth(&["stat=Deferred", "dan@full.example"], 3).expect("it is tried");
    let queue = server.queue();
    assert_eq!((recipients_of(&queue, "held"), recipients_of(&queue, "suspended")), (1, 1), "{queue}");
    assert_eq!(lab.recorder().stats().recipients, 1, "what is kept has stayed");
}

#[test]
fn a_suspended_site_is_not_flushed() {
    let lab = TestLab::sites(&["one.example"]);
    let server = builder(&lab).start();
    server.ask(&["suspend", "--site", "one.example"]).expect("it is suspended");
    send(&server, "ann@one.example", "mail@test");
    wait_until("it waits there", || recipients_of(&server.queue(), "suspended") == 1);
    let flushed = server.operator(&["flush", "one.example"]);
    let why = String::from_utf8_lossy(&flushed.stderr).into_owned();
    let expected =
        "stentor: not tried: site mx1.one.example is suspended; `stentor resume --site mx1.one.example --config ";
    assert!(flushed.status.code() == Some(1) && why.starts_with(expected), "{flushed:?}");
    assert_eq!(lab.recorder().copies_of("mail@test"), 0);
    // It can be done as it is said.
    server.ask(&["resume", "--site", "mx1.one.example"]).expect("it is resumed");
    lab.wait_clean("mail@test", &["ann@one.example"]);
}

#[test]
fn each_row_of_stuck_has_the_advice_for_its_own_cause() {
    let lab = TestLab::start(
        "[[site]]\nname = 'one.example'\nbehaviour = { greylist_ms = 3600000 }\n\
         [[site]]\nname = 'two.example'\nbehaviour = { greylist_ms = 3600000 }\n\
         [[site]]\nname = 'full.example'\nbehaviour = { at_rcpt = '452 4.2.2 Mailbox full' }\n",
    );
    let server = patient(&lab).list("news", &["bob@full.example", "eve@full.example"]).start();
    // The oldest message that waits for bob is no list's: suspending him there would not help it.
    send(&server, "bob@full.example", "mail@test");
    send(&server, "ann@one.example", "grey1@test");
    send(&server, "cid@two.example", "grey2@test");
    send(&server, "news@lists.test", "post@test");
    wait_until("all have been tried", || {
        let queue = server.queue();
        recipients_of(&queue, "mailbox_full") == 3 && recipients_of(&queue, "greylisted") == 2
    });
    let mut stuck = Value::Null;
    wait_until("recipients are counted", || {
        stuck = server.ask(&["stuck"]).expect("an answer");
        stuck["stuck_recipients"].as_array().is_some_and(|rows| rows.len() == 4)
    });
    let advice = |address: &str| {
        let rows = stuck["stuck_recipients"].as_array().expect("rows");
        let row = rows.iter().find(|row| row["address"] == address).unwrap_or_else(|| panic!("{address}: {stuck}"));
        row["action"].as_str().expect("text").to_owned()
    };
    assert_eq!(advice("bob@full.example"), "mailbox full: wait");
    let eve = "mailbox full: stop the list's mail with `stentor suspend --list news --subscriber eve@full.example`";
    assert!(advice("eve@full.example").starts_with(eve), "{stuck}");
    assert_eq!(advice("ann@one.example"), "greylisted: wait for the next try");
    // Rows of sites have theirs even where it is that of the row before.
    let shown = text(&server, &["stuck", "--by", "site"]);
    assert_eq!(shown.matches("-> greylists: wait for the next try\n").count(), 2, "{shown}");
    assert_eq!(shown.matches("-> full or unavailable mailboxes: see the recipients; the site is healthy\n").count(), 1);
}

/// A count of so many takes long enough to be shared by those who ask within a moment.
#[test]
fn an_answer_after_an_action_is_counted_after_it() {
    const SUBSCRIBERS: u64 = 15_000;
    let lab = lab();
    let all: Vec<String> = (0..SUBSCRIBERS).map(|n| format!("u{n}@down.example")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let (server, token) = with_token(patient(&lab).list("news", &all));
    let id = send(&server, "news@lists.test", "post@test");
    wait_until("all wait for the host", || recipients_of(&server.queue(), "refused") == SUBSCRIBERS);
    let asked = |path: &str| server.http_get(path).expect(200).json();
    for _ in 0..5 {
        for (verb, cause) in [("pause", "held"), ("resume", "refused")] {
            for path in ["/api/v1/queue", "/api/v1/queue?list=news"] {
                asked(path);
            }
            server
                .http("POST", &format!("/api/v1/posts/{id}/{verb}"))
                .token(&token)
                .json(&json!({}))
                .send()
                .expect(200);
            for path in ["/api/v1/queue", "/api/v1/queue?list=news"] {
                let queue = asked(path);
                assert_eq!(recipients_of(&queue, cause), SUBSCRIBERS, "{verb}, {path}: {}", queue["causes"]);
            }
        }
    }
}

#[test]
fn a_dry_run_does_not_wait_for_a_verb_that_takes_long() {
    let lab = lab();
    let (token, table) = token(&["robot"]);
    let mut server = patient(&lab).set("http.listen", "[\"127.0.0.1:0\"]").set("http.tokens", &table).prepare();
    preload(&server);
    start(&mut server);
    send(&server, "dan@down.example", "mail@test");
    wait_until("it has been tried", || recipients_of(&server.queue(), "refused") == 1);
    stop_syncs(&server);
    // Its batch is not durable until the disk says so.
    let removal = Running::start(&server, &["remove", "--recipient", "@down.example"]);
    wait_sync(&server);
    let counted = |path: &str, fields: Value| {
        let mut fields = fields;
        fields["dry_run"] = true.into();
        server.http("POST", path).token(&token).json(&fields).send().expect(200).json()["count"].clone()
    };
    // Reserved by the removal: there is nothing left to bounce, or to be stopped.
    assert_eq!(counted("/api/v1/bounce", json!({"recipient": "@down.example"})), 0);
    assert_eq!(counted("/api/v1/suspend", json!({"site": "down.example"})), 0);
    assert_eq!(counted("/api/v1/hold", json!({"recipient": "@down.example"})), 1);
    assert_eq!(counted("/api/v1/queue/run", json!({})), 1);
    assert_eq!(counted("/api/v1/queue-only", json!({"domain": "down.example"})), 1);
    assert_eq!(server.fates()["pending"], 1, "it is not removed before it is durable");
    let_syncs_end(&server);
    wait_until("it is removed", || server.fates()["removed"] == 1);
    drop(removal);
}
