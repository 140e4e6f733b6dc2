//! Who missed a post, and sending it to exactly these: over kills too, and nobody who has it gets it again.

use std::collections::BTreeSet;

use serde_json::Value;
use stentor_harness::{Builder, Kind, LoopFs, Server, TestLab, message, wait_until};

use crate::kit::{SENDER, SENDER_SITE, builder, wait_fates};

const GOOD: usize = 200;
const REFUSED: usize = 40;
const FULL: usize = 20;
const LIST: &str = "news@lists.test";

fn addresses(prefix: &str, count: usize, domain: &str) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}{n}@{domain}")).collect()
}

fn refused() -> Vec<String> {
    addresses("refused", REFUSED, "bad.example")
}

fn full() -> Vec<String> {
    addresses("full", FULL, "bad.example")
}

fn everybody() -> Vec<String> {
    [addresses("good", GOOD, "good.example"), refused(), full()].concat()
}

/// The hosts of bad.example refuse some and are full for others; those of good.example take everything.
fn lab() -> TestLab {
    let users = |all: Vec<String>| {
        let users: Vec<String> = all.iter().map(|a| format!("'{}'", a.split('@').next().expect("a user"))).collect();
        users.join(", ")
    };
    TestLab::start_with(
        &format!(
            "[[site]]\nname = 'good.example'\nrelay = true\nbehaviour = {{ dot_delay_ms = 20, \
             recipients_per_transaction_max = 5 }}\n[[site.host]]\nname = 'mx.good.example'\n\
             [[site]]\nname = 'bad.example'\nbehaviour = {{ reject_users = [{}], full_users = [{}] }}\n{SENDER_SITE}",
            users(refused()),
            users(full())
        ),
        stentor_lab::Mode::Full,
    )
}

fn server(lab: &TestLab) -> Builder {
    let everybody = everybody();
    builder(lab).list("news", &everybody.iter().map(String::as_str).collect::<Vec<_>>())
}

fn send(server: &Server, lab: &TestLab, id: &str) -> String {
    let wire = message(id, "A post");
    lab.recorder().expect_message(wire.clone().into());
    server.smtp().send(SENDER, &[LIST], &wire).expect(250).queue_id()
}

fn shown(server: &Server, id: &str) -> Value {
    server.ask(&["post", "show", id]).expect("it is kept")
}

fn count(server: &Server, id: &str, name: &str) -> u64 {
    shown(server, id)["counts"][name].as_u64().expect("a number")
}

/// The addresses of those that missed the post, over all pages, and the reply to one.
fn missed(server: &Server, id: &str) -> BTreeSet<String> {
    let (mut all, mut offset) = (BTreeSet::new(), "0".to_owned());
    loop {
        let page = server.ask(&["post", "show", id, "--state", "missed", "-n", "7", "--offset", &offset]);
        let page = page.expect("it is kept");
        let rows = page["post_recipients"].as_array().cloned().unwrap_or_default();
        all.extend(rows.iter().map(|row| row["address"].as_str().expect("an address").to_owned()));
        match page["next"].as_u64() {
            Some(next) => offset = next.to_string(),
            None => return all,
        }
    }
}

fn set(all: Vec<String>) -> BTreeSet<String> {
    all.into_iter().collect()
}

/// From now on bad.example's mail goes to the hosts that take everything.
fn mend(server: &Server) {
    server.edit_config(|text| format!("{text}\n[routes]\n\"bad.example\" = [\"mx.good.example\"]\n"));
    assert!(server.operator(&["reload"]).status.success());
}

fn people(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}

/// Waits until those that can have the post have it, and stops the attempts for full mailboxes.
fn settle(server: &Server, id: &str) {
    wait_until("the others have it", || {
        let counts = &shown(server, id)["counts"];
        (counts["delivered"].as_u64(), counts["bounced"].as_u64()) == (Some(GOOD as u64), Some(REFUSED as u64))
    });
    wait_until("nothing waits", || {
        // Recipients in a transaction are left out.
        server.operator(&["post", "cancel", id]);
        count(server, id, "waiting") == 0
    });
}

#[test]
fn a_post_goes_again_to_exactly_those_that_missed_it() {
    let lab = lab();
    let server = server(&lab).set("lists.news.owner", "\"owner@sender.example\"").start();
    let id = send(&server, &lab, "post@test");
    settle(&server, &id);
    let counts = shown(&server, &id)["counts"].clone();
    let number = |name: &str| counts[name].as_u64().expect("a number");
    assert_eq!((number("total"), number("delivered")), ((GOOD + REFUSED + FULL) as u64, GOOD as u64), "{counts}");
    assert_eq!((number("missed"), number("dropped")), ((REFUSED + FULL) as u64, FULL as u64), "{counts}");
    assert_eq!(missed(&server, &id), set([refused(), full()].concat()));
    let text = server.operator_text(&["post", "show", &id, "--state", "missed"]);
    assert!(
        text.contains("refused0@bad.example") && text.contains("bounced") && text.contains("no such user here"),
        "{text}"
    );
    assert!(text.contains("A post") && text.contains(&format!("stentor post resend {id} --missed")), "{text}");

    // Neither who has left, nor who wants nothing more of the list.
    let left: Vec<String> = everybody().into_iter().filter(|address| address != "refused0@bad.example").collect();
    server.write("news.subscribers", (left.join("\n") + "\n").as_bytes());
    mend(&server);
    assert!(server.operator(&["suppress", "add", "refused1@bad.example", "--list", "news"]).status.success());
    assert!(server.operator(&["suspend", "--list", "news", "--subscriber", "full0@bad.example"]).status.success());
    let again = (REFUSED + FULL - 3) as u64;
    let dry = server.ask(&["post", "resend", &id, "--missed", "--dry-run"]).expect("counted");
    assert_eq!((dry["count"].as_u64(), dry["unchanged"].as_u64()), (Some(again), Some(3)), "{dry}");
    let words = dry["text"].as_str().expect("words");
    assert!(words.ends_with("left out: 1 no longer subscribed, 1 suspended, 1 suppressed"), "{words}");
    let done = server.ask(&["post", "resend", &id, "--missed", "--reason", "mended"]).expect("sent");
    assert_eq!(done["count"].as_u64(), Some(again), "{done}");
    for words in [words, done["text"].as_str().expect("words")] {
        assert!(words.contains(&format!("; {} of them were removed by an operator; left out", FULL - 1)), "{words}");
    }
    wait_until("they have it", || count(&server, &id, "delivered") == GOOD as u64 + again);
    assert_eq!(
        missed(&server, &id),
        set(["refused0@bad.example", "refused1@bad.example", "full0@bad.example"].map(String::from).to_vec())
    );
    // Who has it, by the resend too, does not get it again.
    let twice = server.ask(&["post", "resend", &id, "--missed"]).expect("counted");
    assert_eq!((twice["count"].as_u64(), twice["unchanged"].as_u64()), (Some(0), Some(3)), "{twice}");
    let all = everybody();
    let without: Vec<String> = all.iter().filter(|a| !missed(&server, &id).contains(*a)).cloned().collect();
    lab.wait_clean("post@test", &people(&without));
    lab.assert_no_violations();
}

#[test]
fn kills_change_neither_who_missed_a_post_nor_who_gets_it_again() {
    let lab = lab();
    let mut server = server(&lab).start();
    let id = send(&server, &lab, "kills@test");
    for part in [10, 80, 150] {
        wait_until("the post goes on", || lab.recorder().recipients_of("kills@test") >= part);
        server.kill();
        server.start_again();
    }
    settle(&server, &id);
    let expected = set([refused(), full()].concat());
    assert_eq!(missed(&server, &id), expected);
    server.kill();
    server.start_again();
    assert_eq!(missed(&server, &id), expected);
    mend(&server);
    let done = server.ask(&["post", "resend", &id, "--missed"]).expect("sent");
    assert_eq!(done["count"].as_u64(), Some((REFUSED + FULL) as u64), "{done}");
    // The answer means that it is durable.
    server.kill();
    server.start_again();
    assert!(missed(&server, &id).is_empty());
    assert_eq!(server.operator(&["post", "resend", &id, "--missed"]).status.code(), Some(3));
    wait_until("everybody has it", || count(&server, &id, "delivered") == (GOOD + REFUSED + FULL) as u64);
    let all = everybody();
    let audit = lab.recorder().audit("kills@test", people(&all));
    assert!(audit.missing.is_empty() && audit.unexpected == 0 && audit.damaged == 0, "{audit:?}");
    lab.assert_no_violations();
}

/// What fails in a resend is missed again; the end of keeping is the list's choice.
#[test]
fn a_resend_that_fails_can_be_sent_again() {
    let lab = lab();
    let few = ["good0@good.example", "refused0@bad.example"];
    let server = builder(&lab).list("news", &few).list("brief", &few).set("lists.brief.keep_posts_s", "0").start();
    let id = send(&server, &lab, "again@test");
    wait_until("it was refused", || count(&server, &id, "bounced") == 1);
    server.ask(&["post", "resend", &id, "--missed"]).expect("sent");
    wait_until("it was refused again", || {
        let post = shown(&server, &id);
        post["counts"]["bounced"] == 1 && post["lists"][0]["resends"].as_array().is_some_and(|all| all.len() == 1)
    });
    mend(&server);
    let resend = shown(&server, &id)["lists"][0]["resends"][0].as_str().expect("an id").to_owned();
    // By the id of a resend, too.
    server.ask(&["post", "resend", &resend, "--missed"]).expect("sent");
    lab.wait_clean("again@test", &few);
    wait_until("both have it", || count(&server, &id, "delivered") == 2);

    let wire = message("brief@test", "A post");
    lab.recorder().expect_message(wire.clone().into());
    let brief = server.smtp().send(SENDER, &["brief@lists.test"], &wire).expect(250).queue_id();
    let text = server.operator_text(&["post", "show", &brief]);
    assert!(text.contains("is not a kept post (`keep_posts_s`"), "{text}");
}

/// An archive is not a subscriber: neither counted nor sent its copy again.
#[test]
fn an_archive_is_neither_counted_nor_sent_a_post_again() {
    let lab = lab();
    let server = builder(&lab)
        .list("news", &["good0@good.example", "refused0@bad.example"])
        .set("lists.news.owner", "\"owner@sender.example\"")
        .set("lists.news.archive_to", "[\"refused1@bad.example\"]")
        .start();
    let id = send(&server, &lab, "archive@test");
    wait_fates(&server, "the archive refused it, too", |fates| fates.bounced == 2 && fates.pending == 0);
    let counts = shown(&server, &id)["counts"].clone();
    let number = |name: &str| counts[name].as_u64();
    assert_eq!([number("total"), number("delivered"), number("bounced")], [Some(2), Some(1), Some(1)], "{counts}");
    assert_eq!(missed(&server, &id), set(vec!["refused0@bad.example".to_owned()]));
    let dry = server.ask(&["post", "resend", &id, "--missed", "--dry-run"]).expect("counted");
    assert_eq!((dry["count"].as_u64(), dry["messages"].as_u64()), (Some(1), Some(1)), "{dry}");
    assert_eq!(dry["unchanged"].as_u64(), Some(0), "{dry}");
}

/// Posts that are not queued make room while the disk has less than twice the reserve free, and mail is still accepted.
#[test]
fn kept_posts_end_before_the_disk_is_nearly_full() {
    let Some(fs) = LoopFs::make_with(Kind::Ext4, 64 << 20, &["-m", "0"]) else { return };
    let lab = lab();
    let few = ["good0@good.example", "refused0@bad.example"];
    let mut server = builder(&lab)
        .list("news", &few)
        .set("data_dir", &format!("\"{}\"", fs.path().join("data").display()))
        .set("journal.segment_bytes", "1048576")
        .set("journal.batch_bytes_max", "524288")
        .set("journal.reserve_bytes", "8388608")
        .start();
    let id = send(&server, &lab, "room@test");
    wait_until("it was refused", || count(&server, &id, "bounced") == 1);
    // Twice this is more than the whole file system.
    server.edit_config(|text| text.replace("reserve_bytes = 8388608", "reserve_bytes = 34603008"));
    server.kill();
    server.start_again();
    wait_until("the post is no longer kept", || server.operator(&["post", "show", &id]).status.code() == Some(3));
    server.smtp().cmd(&format!("MAIL FROM:<{SENDER}>")).expect(250);
}
