//! Archives of lists (`archive_to`) and permalinks (`archived_at`): what each archive gets, what subscribers, owners
//! and reports see of it, and what a kill or a failing archive changes.

use std::collections::HashSet;
use std::fs;

use serde_json::Value;
use stentor_harness::{Builder, Server, TestLab, message, message_with, wait_until};

use crate::alias_programs::PROGRAM;
use crate::kit::{SENDER, SENDER_SITE, bare, builder, closed_port, drained, fates, install, report_to};
use crate::local_delivery::{Helper, mails};
use crate::virtual_users::with;

const OWNER: &str = "owner@sender.example";
const LIST: &str = "news@lists.test";
const BOUNCES: &str = "news-bounces@lists.test";
const TEMPLATE: &str = "\"https://lists.test/news/{message_id}/\"";
const SUBSCRIBERS: [&str; 2] = ["ann@one.example", "bob@one.example"];
const INBOX: &str = "[services.inbox]\nkind = \"maildir\"\npath = \"$DIR/${user}\"\nuser = \"games\"\n";
const OTHERS: &str = "[services.mbox]\nkind = \"mbox\"\npath = \"$DIR/${user}.mbox\"\nuser = \"games\"\n\
    [services.program]\nkind = \"program\"\ncommand = [\"$DIR/program\", \"$DIR/out\"]\nuser = \"games\"\n";

fn lab(more: &str) -> TestLab {
    TestLab::start(&format!("{SENDER_SITE}[[site]]\nname = 'one.example'\n{more}"))
}

fn list(builder: Builder, archives: &[String]) -> Builder {
    builder
        .list("news", &SUBSCRIBERS)
        .set("lists.news.owner", &format!("{OWNER:?}"))
        .set("lists.news.archived_at", TEMPLATE)
        .set("lists.news.archive_to", &format!("{archives:?}"))
}

fn service(helper: &Helper, name: &str) -> String {
    format!("lmtp:unix:{}", helper.socket(name).display())
}

fn send(server: &Server, id: &str) -> String {
    server.smtp().send(SENDER, &[LIST], &message(id, &format!("post {id}"))).expect(250).queue_id()
}

/// The texts of all copies for an address.
fn copies(lab: &TestLab, to: &str) -> Vec<String> {
    let bodies = lab.recorder().copies_to(to).into_iter().filter_map(|copy| copy.body);
    bodies.map(|body| String::from_utf8_lossy(&body).into_owned()).collect()
}

#[test]
fn each_archive_gets_the_post_and_reports_count_subscribers_alone() {
    let Some(mut helper) = Helper::prepare(&format!("{INBOX}{OTHERS}")) else { return };
    install(&helper.path("program"), PROGRAM);
    helper.run();
    let lab = lab("[[site]]\nname = 'inbox.example'\nrelay = true\nbehaviour = { lmtp = true }\n[[site.host]]\n\
        name = 'mx.inbox.example'\n[[site]]\nname = 'keep.example'\n");
    let archives = ["inbox", "mbox", "program"].map(|name| service(&helper, name));
    let archives =
        [&archives[..], &[format!("lmtp:mx.inbox.example:{}", lab.smtp_port()), "all@keep.example".to_owned()]];
    let server = list(builder(&lab), &archives.concat())
        .set("lists.news.rewrite_from", "\"always\"")
        .set("lists.news.verp", "\"tagged\"")
        .set("lists.news.copy_fields", "[\"X-Copy: {recipient}\"]")
        .start();
    let explained = server.operator_text(&["explain", "--from", SENDER, "--to", LIST]);
    assert!(explained.contains("archive of list news: all@keep.example ("), "{explained}");
    let id = send(&server, "a/b@test");
    assert_eq!(drained(&server).delivered, 7);
    let archived_at = "Archived-At: <https://lists.test/news/a%2Fb@test/>";
    let maildir = mails(&helper.path("news"));
    assert_eq!(maildir.len(), 1, "{maildir:?}");
    let mbox = fs::read_to_string(helper.path("news.mbox")).expect("an mbox");
    let program = fs::read_to_string(helper.path("out")).expect("the program has run");
    let [lmtp, smtp, ann] = [LIST, "all@keep.example", SUBSCRIBERS[0]].map(|to| copies(&lab, to));
    assert_eq!([&lmtp, &smtp, &ann].map(Vec::len), [1, 1, 1]);
    for text in [&maildir[0], &mbox, &program, &lmtp[0], &smtp[0], &ann[0]] {
        for part in ["Message-ID: <a/b@test>", "List-Id: <news.lists.test>", "Subject: post a/b@test", archived_at] {
            assert_eq!(text.matches(part).count(), 1, "{part}\n{text}");
        }
    }
    for text in [&maildir[0], &mbox, &program, &lmtp[0]] {
        assert!(!text.contains("X-Copy:") && !text.contains("via news"), "{text}");
    }
    assert!(smtp[0].contains("From: \"Me via news\" <news@lists.test>") && !smtp[0].contains("X-Copy:"), "{}", smtp[0]);
    assert!(ann[0].contains("X-Copy: ann@one.example"), "{}", ann[0]);
    assert!(maildir[0].starts_with(&format!("Return-Path: <{BOUNCES}>\nDelivered-To: {LIST}\n")), "{}", maildir[0]);
    for to in [LIST, "all@keep.example"] {
        assert_eq!(&*lab.recorder().copies_to(to)[0].sender, BOUNCES);
    }
    // Neither the post's numbers nor the list's posts count the archives.
    let rows = server.ask(&["report", "--list", "news"]).expect("it is known")["post_rows"].clone();
    assert_eq!(rows.as_array().map(Vec::len), Some(1), "{rows}");
    assert_eq!((rows[0]["id"].as_str(), rows[0]["total"].as_u64()), (Some(id.as_str()), Some(2)), "{rows}");
    wait_until("the history has the archive", || {
        server.operator_text(&["trace", "all@keep.example"]).contains("archive of list news")
    });
    lab.assert_no_violations();
}

#[test]
fn kill_nine_between_posts_loses_none_of_them() {
    let Some(helper) = Helper::start(INBOX) else { return };
    let lab = lab("");
    let mut server = list(builder(&lab), &[service(&helper, "inbox")]).start();
    let ids: Vec<String> = (0..12).map(|n| format!("{n}@test")).collect();
    for (n, id) in ids.iter().enumerate() {
        send(&server, id);
        if n % 3 == 0 {
            server.kill();
            server.start_again();
        }
    }
    drained(&server);
    let archived = mails(&helper.path("news"));
    for id in &ids {
        assert!(archived.iter().any(|text| text.contains(&format!("\nMessage-ID: <{id}>\n"))), "{id}");
    }
}

#[test]
fn a_failing_archive_delays_nobody_and_is_reported_to_the_owner() {
    let lab = lab(
        "[[site]]\nname = 'gone.example'\nrelay = true\nbehaviour = { lmtp = true, at_rcpt = '550 5.1.1 no such mailbox' }\n\
        [[site.host]]\nname = 'mx.gone.example'\n",
    );
    let archives = [format!("lmtp:127.0.0.1:{}", closed_port()), format!("lmtp:mx.gone.example:{}", lab.smtp_port())];
    let server = list(builder(&lab), &archives)
        .set("lists.news.suspend_posts", "1")
        .set("lists.news.coalesce_over", "1")
        .set("lists.news.expire_s", "1")
        .start();
    for n in 0..4 {
        send(&server, &format!("{n}@test"));
    }
    for to in SUBSCRIBERS {
        lab.wait(to, |recorder| recorder.copies_to(to).len() == 4);
    }
    let report = report_to(&lab, OWNER);
    report.assert_failed(LIST, "5.1.1");
    assert!(report.text.contains("this is the copy for an archive of the list"), "{}", report.text);
    assert!(!report.text.contains("You can read it"), "it is not there: {}", report.text);
    wait_until("the refused copies have ended", || fates(&server).bounced == 4);
    // The other archive is away for longer than the list's lifetime: its copies wait, and nobody is suspended.
    assert_eq!((fates(&server).pending, fates(&server).expired), (4, 0));
    assert_eq!(server.status()["suspended_total"], 0);
}

/// The held messages of the queue.
fn held(server: &Server) -> Vec<Value> {
    let listed = server.ask(&["mailqq"]).unwrap_or_default();
    let rows = listed["mailqq_rows"].as_array().cloned().unwrap_or_default();
    rows.into_iter().filter(|row| row["held"] == true).collect()
}

#[test]
fn the_archives_copy_of_a_held_post_is_released_or_removed_with_it() {
    let lab = lab("[[site]]\nname = 'keep.example'\n");
    let builder = list(builder(&lab), &["all@keep.example".to_owned()]);
    let server = with(builder, &[], "[[rules]]\nrecipient = \"news@lists.test\"\ndo = \"hold read first\"\n");
    let mut server = server;
    for (verb, archived) in [("remove", 0), ("release", 1)] {
        let id = send(&server, &format!("{verb}@test"));
        wait_until("both are held", || held(&server).len() == 2);
        server.kill();
        server.start_again();
        assert_eq!(held(&server).len(), 2);
        server.operator_text(&[verb, "--id", &id]);
        server.wait_empty();
        assert_eq!(copies(&lab, "all@keep.example").len(), archived, "{verb}");
        assert_eq!(copies(&lab, SUBSCRIBERS[0]).len(), archived, "{verb}");
    }
}

#[test]
fn a_quarantined_post_is_archived_when_it_is_released() {
    let lab = lab("[[site]]\nname = 'keep.example'\n");
    let builder = list(builder(&lab), &["all@keep.example".to_owned()]);
    let server = with(builder, &[], "[[rules]]\nrecipient = \"news@lists.test\"\ndo = \"quarantine\"\n");
    let id = send(&server, "kept@test");
    assert_eq!(fates(&server).pending, 0);
    server.ask(&["quarantine", "release", "--id", &id]).expect("released");
    server.wait_empty();
    assert_eq!((copies(&lab, "all@keep.example").len(), copies(&lab, SUBSCRIBERS[0]).len()), (1, 1));
}

#[test]
fn permalinks_are_in_reports_and_digests_and_a_post_without_message_id_gets_one() {
    let lab = TestLab::start(&format!(
        "{SENDER_SITE}[[site]]\nname = 'later.example'\nbehaviour = {{ at_rcpt = '451 4.3.0 not today' }}\n\
         [[site]]\nname = 'away.example'\n[[site.window]]\nfrom_s = 0\nto_s = 6\nbehaviour = {{ connect = 'refuse' }}\n\
         [[site]]\nname = 'keep.example'\n"
    ));
    let server = builder(&lab)
        .list("news", &["ann@later.example"])
        .set("lists.news.owner", &format!("{OWNER:?}"))
        .set("lists.news.archived_at", TEMPLATE)
        .set("lists.news.archive_to", "\"all@keep.example\"")
        .set("lists.news.expire_s", "1")
        .list("digest", &["dan@away.example"])
        .set("lists.digest.archived_at", "\"https://lists.test/digest/?id={message_id}\"")
        .set("lists.digest.coalesce_over", "2")
        .start();
    // A stranger's post, with a link that would mislead.
    let mut stranger = server.connect_from("127.0.0.2").greeted();
    let bare = b"From: Eve <eve@else.example>\r\nArchived-At: <https://evil.example/>\r\nSubject: bare\r\n\r\nx\r\n";
    stranger.send("eve@else.example", &[LIST], bare).expect(250);
    let report = report_to(&lab, OWNER);
    report.assert_failed("ann@later.example", "5.4.7");
    lab.wait("the archive", |recorder| recorder.copies_to("all@keep.example").len() == 1);
    let archived = copies(&lab, "all@keep.example").remove(0);
    let link = archived.split("Archived-At: <").nth(1).and_then(|rest| rest.split('>').next()).expect("a link");
    let id =
        link.strip_prefix("https://lists.test/news/").and_then(|rest| rest.strip_suffix('/')).expect("the template");
    assert!(id.ends_with("@mx.test") && archived.contains(&format!("Message-ID: <{id}>\r\n")), "{archived}");
    assert!(archived.contains("Archived-At: <https://evil.example/>\r\n"), "the post's own stays: {archived}");
    assert!(report.text.contains(&format!("\n    {link}")), "{}", report.text);

    for n in 0..6 {
        let post = message_with(&format!("{n}@test"), &format!("Subject: post {n}\r\n"), "x\r\n");
        server.smtp().send(SENDER, &["digest@lists.test"], &post).expect(250);
    }
    lab.wait("the digest", |recorder| {
        let texts = recorder.copies_to("dan@away.example").into_iter().filter_map(|copy| copy.body);
        texts.into_iter().any(|body| String::from_utf8_lossy(&body).contains("multipart/digest"))
    });
    let digest = copies(&lab, "dan@away.example").into_iter().find(|text| text.contains("multipart/digest"));
    let digest = digest.expect("it came");
    let links: HashSet<&str> = digest.split("\r\n      https://lists.test/digest/?id=").skip(1).collect();
    assert!(links.len() > 2, "{digest}");
    assert!(digest.contains(". post 5 (Me)\r\n      https://lists.test/digest/?id=5@test\r\n"), "{digest}");
    assert!(!digest.split("multipart/digest").next().expect("a head").contains("\r\nArchived-At:"), "{digest}");
}

#[test]
fn a_list_within_a_list_has_its_own_archive_and_both_permalinks() {
    let lab = lab("[[site]]\nname = 'keep.example'\n[[site]]\nname = 'two.example'\n");
    let server = list(builder(&lab), &["news@keep.example".to_owned()])
        .list("all", &["news@lists.test", "dan@two.example"])
        .set("lists.all.archived_at", "\"https://all.test/{message_id}\"")
        .set("lists.all.archive_to", "[\"all@keep.example\"]")
        .start();
    server.smtp().send(SENDER, &["all@lists.test"], &message("1@test", "x")).expect(250);
    server.wait_empty();
    let (outer, inner) = ("Archived-At: <https://all.test/1@test>", "Archived-At: <https://lists.test/news/1@test/>");
    for (to, id, links) in [
        ("dan@two.example", "all.lists.test", &[outer][..]),
        ("all@keep.example", "all.lists.test", &[outer]),
        (SUBSCRIBERS[0], "news.lists.test", &[outer, inner]),
        ("news@keep.example", "news.lists.test", &[outer, inner]),
    ] {
        let texts = copies(&lab, to);
        assert_eq!(texts.len(), 1, "{to}");
        assert!(texts[0].contains(&format!("List-Id: <{id}>")), "{to}: {}", texts[0]);
        let found: Vec<&str> = texts[0].lines().filter(|line| line.starts_with("Archived-At:")).collect();
        assert_eq!(found, links, "{to}");
    }
    assert_eq!(&*lab.recorder().copies_to("all@keep.example")[0].sender, "all-bounces@lists.test");
}

#[test]
fn archives_of_a_suspended_list_wait_with_it() {
    let lab = lab("[[site]]\nname = 'keep.example'\n");
    let server = list(builder(&lab), &["all@keep.example".to_owned()]).start();
    server.operator_text(&["suspend", "--list", "news"]);
    send(&server, "1@test");
    let other = "cid@one.example";
    server.smtp().send(SENDER, &[other], &message("2@test", "x")).expect(250);
    lab.wait(other, |recorder| recorder.copies_to(other).len() == 1);
    assert_eq!((fates(&server).pending, copies(&lab, "all@keep.example").len()), (3, 0));
    server.operator_text(&["resume", "--list", "news"]);
    server.wait_empty();
    assert_eq!((copies(&lab, "all@keep.example").len(), copies(&lab, SUBSCRIBERS[0]).len()), (1, 1));
}

#[test]
fn nobody_reaches_an_archive_by_an_address() {
    let Some(helper) = Helper::start(INBOX) else { return };
    let server = list(bare(), &[service(&helper, "inbox")]).set("lists.news.post", "\"members\"").start();
    let mut stranger = server.connect_from("127.0.0.2").greeted();
    stranger.cmd("MAIL FROM:<eve@else.example>").expect(250);
    for guess in ["news-archive@lists.test", "archive@lists.test", "inbox@lists.test", "news@archive.test"] {
        stranger.cmd(&format!("RCPT TO:<{guess}>")).expect(550);
    }
    stranger.cmd("RSET").expect(250);
    stranger.send("eve@else.example", &[LIST], &message("1@test", "x")).expect(550);
    assert_eq!(mails(&helper.path("news")).len(), 0);
}
