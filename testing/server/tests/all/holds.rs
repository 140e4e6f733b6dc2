//! Held posts: which envelopes `hold_unfit` holds, who is notified of it, and what `trace` and `queue show` print about
//! holds and releases.

use serde_json::Value;
use stentor_harness::{Builder, Server, TestLab, wait_until};

use crate::kit::builder;
use crate::virtual_users::with;

const TO: &str = "ann@one.example";
const OTHER: &str = "bob@one.example";
const OWNER: &str = "owner@one.example";
const CHIEF: &str = "chief@one.example";
const SECTION: &str = "[domains]\npostmaster = \"chief@one.example\"\n[senders.\"shop.example\"]\nhold_unfit = true\n";
/// Of `hold_notices` in crates/core.
const NOTICES_MAX: usize = 5;
/// Of `examination` in crates/sessions.
const HELD_MAX: usize = 200;

/// No name has an SPF record, and nothing is signed.
fn lab() -> TestLab {
    TestLab::sites(&["one.example"])
}

/// The list `bare` holds what receivers would refuse; `open` and `all` do not.
fn lists(lab: &TestLab) -> Builder {
    builder(lab)
        .list("bare", &[TO])
        .list("open", &[OTHER])
        .list("all", &["cid@one.example", "bare@lists.test"])
        .alias("team@lists.test", &["dan@one.example", "bare@lists.test"])
        // As behind NAT: its reverse DNS is not examined.
        .set("sources.out.address", "\"127.0.0.1\"")
        .set("lists.bare.hold_unfit", "true")
        .set("lists.bare.archived_at", "\"https://lists.test/bare/{message_id}/\"")
        .set("lists.bare.owner", "\"owner@one.example\"")
}

fn message(from: &str) -> Vec<u8> {
    format!("From: {from}\r\nSubject: x\r\n\r\nx\r\n").into_bytes()
}

fn copies(lab: &TestLab, to: &str) -> usize {
    lab.recorder().copies_to(to).len()
}

/// The queued messages.
fn queued(server: &Server) -> Vec<Value> {
    let listed = server.ask(&["mailqq"]).unwrap_or_default();
    listed["mailqq_rows"].as_array().cloned().unwrap_or_default()
}

/// Queue ids of the held messages.
fn held(server: &Server) -> Vec<String> {
    let all = queued(server).into_iter().filter(|row| row["held"] == true);
    all.map(|row| row["id"].as_str().expect("an id").to_owned()).collect()
}

fn show(server: &Server, id: &str) -> Value {
    server.ask(&["queue", "show", id]).expect("it is queued")
}

#[test]
fn only_the_unfit_list_waits_also_within_another_and_behind_an_alias() {
    let lab = lab();
    let server = with(lists(&lab), &[], SECTION);
    for (n, to, others) in [
        (1, &["bare@lists.test", "open@lists.test", "eve@one.example"][..], &[OTHER, "eve@one.example"][..]),
        (2, &["all@lists.test"], &["cid@one.example"]),
        (3, &["team@lists.test"], &["dan@one.example"]),
    ] {
        server.smtp().send("ed@home.example", to, &message("ed@home.example")).expect(250);
        for other in others {
            lab.wait(other, |recorder| recorder.copies_to(other).len() == 1);
        }
        assert_eq!((held(&server).len(), copies(&lab, TO)), (n, 0), "{to:?}");
    }
    for id in held(&server) {
        let shown = show(&server, &id);
        assert_eq!(shown["held_since"], shown["accepted"], "{shown}");
        assert!(shown["held_by"].as_str().is_some_and(|by| by.starts_with("hold_unfit: ")), "{shown}");
        server.operator_text(&["release", "--id", &id]);
    }
    lab.wait("the released posts", |recorder| recorder.copies_to(TO).len() == 3);
    server.wait_empty();
    assert_eq!((copies(&lab, OTHER), copies(&lab, "eve@one.example"), copies(&lab, "cid@one.example")), (1, 1, 1));
}

#[test]
fn the_owner_gets_a_notice_of_each_held_post_and_not_too_many() {
    let lab = lab();
    let server = with(lists(&lab), &[], SECTION);
    let post = |from: &str, to: &[&str]| server.smtp().send(from, to, &message(from)).expect(250);
    post("ed@shop.example", &["open@lists.test", "bare@lists.test", TO]);
    lab.wait("two notices", |recorder| [OWNER, CHIEF].iter().all(|to| recorder.copies_to(to).len() == 1));
    let ids = held(&server);
    assert_eq!(ids.len(), 2);
    for (reader, named, of, id_of) in
        [(OWNER, OWNER, "List bare:", Some("bare")), (CHIEF, "postmaster@mx.test", "Mail from shop.example:", None)]
    {
        let copy = lab.recorder().copies_to(reader).remove(0);
        assert_eq!(&*copy.sender, "");
        let body = copy.body.expect("the lab keeps bodies");
        let text = String::from_utf8_lossy(&body);
        let is_own = |id: &&String| {
            let shown = show(&server, id);
            shown["list"].as_str() == id_of
        };
        let own: Vec<&String> = ids.iter().filter(is_own).collect();
        assert_eq!(own.len(), 1, "{ids:?}");
        for part in [
            "Auto-Submitted: auto-generated\r\n",
            &format!("To: <{named}>\r\n"),
            of,
            "(spf_missing)\r\n    next: publish `",
            &format!("stentor release --id {}\r\n", own[0]),
            &format!("stentor remove --id {}\r\n", own[0]),
        ] {
            assert!(text.contains(part), "{reader}: {part}\n{text}");
        }
        let other = ids.iter().find(|id| *id != own[0]).expect("two");
        let link = "Once released, the archive shows it at\r\n  https://lists.test/bare/";
        assert_eq!(text.contains(link), reader == OWNER, "{text}");
        // The permalink has the Message-ID that the post got here, and so a queue id.
        assert!(!text.contains(&format!("--id {other}")), "{text}");
    }
    // Notices are durable before the reply.
    for _ in 0..=NOTICES_MAX {
        post("ed@home.example", &["bare@lists.test"]);
    }
    lab.wait("the owner's notices", |recorder| recorder.copies_to(OWNER).len() == NOTICES_MAX);
    wait_until("no notice waits", || queued(&server).iter().all(|row| row["held"] == true));
    assert_eq!((held(&server).len(), copies(&lab, OWNER), copies(&lab, CHIEF)), (NOTICES_MAX + 3, NOTICES_MAX, 1));
}

/// Without an owner and a postmaster nobody can be notified; the post is held all the same.
#[test]
fn the_log_has_a_held_post_that_nobody_is_notified_of() {
    let lab = lab();
    let builder = builder(&lab).list("bare", &[TO]).set("lists.bare.hold_unfit", "true");
    let server = builder.set("sources.out.address", "\"127.0.0.1\"").start();
    server.smtp().send("ed@home.example", &["bare@lists.test"], &message("ed@home.example")).expect(250);
    server.wait_log(&["notice of a held post not sent: the address delivers to nobody", "postmaster@lists.test"]);
    assert_eq!(held(&server).len(), 1);
}

#[test]
fn trace_and_queue_show_who_held_and_released_a_message_and_when() {
    let lab = lab();
    let rule = "[[rules]]\nrecipient = \"eve@one.example\"\ndo = \"hold asked by legal\"\n";
    let server = with(builder(&lab).set("http.listen", "[\"127.0.0.1:0\"]"), &[], rule);
    let id = server.smtp().send("ed@home.example", &["eve@one.example"], &message("ed@home.example")).expect(250);
    let id = id.queue_id();
    let traced = || server.operator_text(&["trace", &id]);
    let rule = "held by rule 1 (";
    // The history is written with a short delay.
    wait_until("the hold is known", || traced().contains(rule));
    server.operator_text(&["release", "--id", &id, "--reason", "cleared"]);
    lab.wait("the released copy", |recorder| recorder.copies_to("eve@one.example").len() == 1);
    server.wait_empty();
    wait_until("the delivery is known", || traced().contains("sent  "));
    let text = traced();
    let places = ["accepted: ", rule, "released by uid=", ": cleared", "sent  "].map(|part| text.find(part));
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{text}");
    let of_recipient = server.operator_text(&["trace", "eve@one.example"]);
    assert!(of_recipient.contains(rule) && of_recipient.contains("released by uid="), "{of_recipient}");
    // An operator's hold: who and since when is in the history.
    server.ask(&["suspend", "--sender", "home.example"]).expect("it is suspended");
    let id = server.smtp().send("ed@home.example", &[TO], &message("ed@home.example")).expect(250).queue_id();
    server.operator_text(&["hold", "--id", &id, "--reason", "a complaint"]);
    let shown = show(&server, &id);
    let by = shown["held_by"].as_str().expect("a name");
    assert!(by.starts_with("uid=") && by.ends_with(": a complaint"), "{shown}");
    assert!(shown["held_since"].as_u64() >= shown["accepted"].as_u64(), "{shown}");
    let text = server.operator_text(&["queue", "show", &id]);
    assert!(text.contains("  held since  ") && text.contains(": a complaint"), "{text}");
    let page = server.http_get(&format!("/messages/{id}")).expect(200).text();
    assert!(page.contains("<dt>Held since</dt>") && page.contains(": a complaint</dd>"), "{page}");
    wait_until("the operator's hold is known", || {
        let text = server.operator_text(&["trace", &id]);
        text.contains("held by uid=") && text.contains("held by an operator")
    });
}

/// Held posts never expire, and anybody may write a subscriber's name.
#[test]
fn untrusted_clients_cannot_add_held_posts_without_end() {
    let lab = lab();
    let server = with(lists(&lab), &[], SECTION);
    let wire = message("ed@home.example");
    let stranger = |to: &str| server.connect_from("127.0.0.2").greeted().send("ed@home.example", &[to], &wire);
    stranger("bare@lists.test").expect(250);
    let mut trusted = server.smtp();
    for _ in 0..HELD_MAX {
        trusted.send("ed@home.example", &["bare@lists.test"], &wire).expect(250);
    }
    stranger("bare@lists.test").expect_text("451 4.7.1 Too many posts are held");
    stranger("open@lists.test").expect(250);
    assert_eq!(server.status()["held"], HELD_MAX + 1);
}
