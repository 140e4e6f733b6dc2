//! Recipients that are meant by several ways (two aliases, an alias and by name, a list and its alias): one copy if any
//! way lets the message through, and a report if any asked for one. And what rules ask for where a list's bounce
//! address is the way to its owner.

use stentor_harness::{Builder, Server, TestLab, message};

use crate::bounces::{refusing, reports};
use crate::kit::{SENDER, builder, drained, post_with, report_to};
use crate::quarantine::{expect, id_of, listed, text};
use crate::virtual_users::with;

const RULES: &str = "[[rules]]\nrecipient = [\"sales@x.example\", \"offers@x.example\", \"joe@one.example\"]\ndo = \"quarantine\"\n\
    [[rules]]\nrecipient = \"info@x.example\"\nsubject = \"/win big/\"\ndo = \"quarantine\"\n\
    [[rules]]\nrecipient = \"copied@one.example\"\ndo = \"bcc joe@one.example\"\n";

fn sites() -> TestLab {
    let site = |name: &str| format!("[[site]]\nname = '{name}'\nrelay = true\n[[site.host]]\nname = 'mx.{name}'\n");
    TestLab::start(&["one.example", "gate.example"].map(site).concat())
}

fn aliases(lab: &TestLab, joe: &str) -> Builder {
    let all = builder(lab).set("domains.local", "[\"x.example\"]");
    ["sales", "offers", "info"].iter().fold(all, |all, name| all.alias(&format!("{name}@x.example"), &[joe]))
}

fn send(server: &Server, to: &[&str], id: &str, subject: &str) {
    server.smtp().send(SENDER, to, &message(id, subject)).expect(250);
}

#[test]
fn whoever_two_aliases_stand_for_gets_one_copy_if_either_lets_it_through() {
    let lab = sites();
    let server = with(aliases(&lab, "joe@one.example"), &[], RULES);
    let [sales, offers, info, joe] = ["sales@x.example", "offers@x.example", "info@x.example", "joe@one.example"];
    let mut delivered = 0;
    for to in [&[sales, info][..], &[info, sales], &[joe, info], &[info, joe], &[sales, offers, info]] {
        delivered += 1;
        send(&server, to, &format!("{delivered}@test"), "Hello");
        expect(&server, [delivered, delivered, 0, 0]);
    }
    // By the way that lets it through, and it is called so.
    assert_eq!(server.log().matching(&["stat=Sent", "<joe@one.example>"]).len(), 5);
    let copies = lab.recorder().copies_to(joe);
    let body = |n: usize| String::from_utf8_lossy(copies[n].body.as_ref().expect("kept")).into_owned();
    assert_eq!(copies.len(), 5);
    assert!((0..5).all(|n| body(n).contains("Delivered-To: info@x.example")), "{}", body(0));
    // One that every way keeps is kept once; what the content decides counts as well.
    for (kept, to, subject) in
        [(1, &[sales, offers][..], "Hello"), (2, &[joe, sales], "Hello"), (3, &[sales, info], "win big")]
    {
        send(&server, to, &format!("kept{kept}@test"), subject);
        expect(&server, [5 + kept, 5, 0, kept]);
    }
    assert_eq!(listed(&server, &["--recipient", joe]).len(), 3);
}

#[test]
fn a_rules_copy_for_somebody_goes_out_where_the_named_copy_is_kept() {
    let lab = sites();
    let server = with(aliases(&lab, "joe@one.example"), &[], RULES);
    send(&server, &["copied@one.example", "sales@x.example"], "a@test", "Hello");
    expect(&server, [2, 2, 0, 0]);
    send(&server, &["joe@one.example", "copied@one.example"], "b@test", "Hello");
    expect(&server, [4, 4, 0, 0]);
    assert_eq!(lab.recorder().copies_to("joe@one.example").len(), 2);
}

#[test]
fn a_post_is_kept_from_its_list_only_if_every_way_to_it_keeps_it() {
    let lab = sites();
    let rules = "[[rules]]\nrecipient = [\"all@x.example\", \"some@x.example\"]\ndo = \"quarantine\"\n\
        [[rules]]\nrecipient = \"news@lists.test\"\nsubject = \"/win big/\"\ndo = \"quarantine\"\n";
    let builder = builder(&lab)
        .set("domains.local", "[\"x.example\"]")
        .list("news", &["s1@one.example"])
        .alias("all@x.example", &["news@lists.test"])
        .alias("some@x.example", &["news@lists.test"]);
    let server = with(builder, &[], rules);
    let [all, some, news] = ["all@x.example", "some@x.example", "news@lists.test"];
    send(&server, &[all, news], "a@test", "Hello");
    expect(&server, [1, 1, 0, 0]);
    send(&server, &[news, all], "b@test", "Hello");
    expect(&server, [2, 2, 0, 0]);
    send(&server, &[all, some], "c@test", "Hello");
    expect(&server, [3, 2, 0, 1]);
    send(&server, &[news, all], "d@test", "win big");
    expect(&server, [4, 2, 0, 2]);
    assert_eq!(listed(&server, &["--list", "news"]).len(), 2);
}

#[test]
fn a_report_is_due_if_any_way_to_a_recipient_asked_for_it() {
    let lab = refusing();
    let server = aliases(&lab, "joe@no.example").start();
    let mut expected = 0;
    for (to, is_due) in [
        (&["<sales@x.example> NOTIFY=NEVER", "<info@x.example> NOTIFY=FAILURE"][..], true),
        (&["<info@x.example> NOTIFY=FAILURE", "<sales@x.example> NOTIFY=NEVER"], true),
        (&["<sales@x.example> NOTIFY=NEVER", "<info@x.example>"], true),
        (&["<joe@no.example> NOTIFY=NEVER", "<info@x.example> NOTIFY=FAILURE"], true),
        (&["<sales@x.example> NOTIFY=NEVER", "<sales@x.example> NOTIFY=FAILURE"], true),
        (&["<info@x.example> NOTIFY=SUCCESS", "<sales@x.example>"], true),
        (&["<sales@x.example> NOTIFY=NEVER", "<info@x.example> NOTIFY=NEVER"], false),
        (&["<sales@x.example> NOTIFY=SUCCESS", "<info@x.example> NOTIFY=NEVER"], false),
    ] {
        post_with(&server, "<ann@sender.example>", to, &message("notify@test", "n"));
        if is_due {
            expected += 1;
            lab.wait("a report", |recorder| recorder.copies_to(SENDER).len() == expected);
        }
        drained(&server);
        assert_eq!(reports(&lab, SENDER).len(), expected, "{to:?}");
    }
    report_to(&lab, SENDER).about("joe@no.example");
}

#[test]
fn rules_on_a_lists_bounce_address_hold_for_its_owner() {
    let lab = sites();
    let rules = "[[rules]]\nrecipient = \"news-bounces@lists.test\"\ndo = [\"quarantine odd\", \"route mx:gate.example\"]\n\
        [[rules]]\nrecipient = \"few-bounces@lists.test\"\nsubject = \"/win big/\"\ndo = [\"quarantine late\", \"route mx:gate.example\"]\n";
    let builder = builder(&lab)
        .list("news", &["s1@one.example"])
        .set("lists.news.owner", "\"ann@one.example\"")
        .list("few", &["s2@one.example"])
        .set("lists.few.owner", "\"bob@one.example\"");
    let server = with(builder, &[], rules);
    let report = |to: &[&str], id: &str, subject: &str| {
        server.smtp().send("", to, &message(id, subject)).expect(250);
    };
    report(&["news-bounces@lists.test"], "a@test", "Hello");
    expect(&server, [1, 0, 0, 1]);
    report(&["few-bounces@lists.test"], "b@test", "win big");
    expect(&server, [2, 0, 0, 2]);
    report(&["few-bounces@lists.test"], "c@test", "Hello");
    expect(&server, [3, 1, 0, 2]);
    let sent = |to: &str| server.log().matching(&["stat=Sent", &format!("<{to}>")]);
    assert!(sent("bob@one.example")[0].contains("relay=mx.one.example"));
    for (to, why, count) in [("ann@one.example", "odd", 1), ("bob@one.example", "late", 2)] {
        let rows = listed(&server, &["--recipient", to]);
        assert!(rows[0]["by"].as_str().is_some_and(|by| by.ends_with(why)), "{rows:?}");
        let id = id_of(&server, to);
        let said = text(&server, &["quarantine", "release", "--id", &id]);
        assert!(said.contains("1 recipient of 1 message"), "{said}");
        server.log().wait_nth(&["stat=Sent", &format!("<{to}>")], count);
        assert!(sent(to)[count - 1].contains("relay=mx.gate.example"), "{:?}", sent(to));
    }
    // Who is named as well gets it by that way, once.
    report(&["news-bounces@lists.test", "ann@one.example"], "d@test", "Hello");
    expect(&server, [4, 4, 0, 0]);
}
