//! Subscribers who are addresses of this server: lists within lists, aliases, virtual users, the postmaster. Each is
//! what it would be if a client had named it, nobody has two copies, and what is wrong with one is told the owner of
//! the list.

use std::process::Command;
use std::time::{Duration, Instant};

use stentor_harness::{Builder, Server, TestLab, message, message_with, stentor, wait_until};

use crate::bounces::{refusing, reports};
use crate::client_forms::{fields, header_for};
use crate::kit::{builder, drained, report_to};
use crate::preload::{command, hang, let_return, preload, start};
use crate::virtual_users::with;

const USERS: &str = "[domains]\npostmaster = \"boss@one.example\"\nlocal = [\"home.test\"]\n\
                     [tables.users]\nas = \"virtual\"\n\
                     inline = { \"vic@lists.test\" = \"vic@one.example\", \"joe@home.test\" = \"joe@two.example\" }\n\
                     [addresses]\nvirtual = [\"users\"]\n";

fn lab() -> TestLab {
    TestLab::sites(&["one.example", "two.example", "three.example", "sender.example"])
}

/// Posts to the list `all` and asserts that exactly these get it, once each.
#[track_caller]
fn post(lab: &TestLab, server: &Server, id: &str, expected: &[&str]) {
    let wire = message(id, "A post");
    lab.recorder().expect_message(wire.clone().into());
    server.smtp().send("me@home.example", &["all@lists.test"], &wire).expect(250);
    lab.wait_clean(id, expected);
    drained(server);
    lab.wait_clean(id, expected);
}

fn owned(builder: Builder, list: &str) -> Builder {
    builder.set(&format!("lists.{list}.owner"), &format!("\"{list}-chief@sender.example\""))
}

#[test]
fn every_kind_of_local_subscriber_gets_the_post_once() {
    let lab = lab();
    let all = [
        "out@one.example",
        "team@lists.test",
        "TWO@lists.test",
        "vic+x@lists.test",
        "joe@home.test",
        "postmaster@lists.test",
        "sub-owner@lists.test",
        "sub@lists.test",
        // Subscribed, behind two aliases and in the list below: one copy.
        "ann@one.example",
    ];
    let builder = builder(&lab)
        .list("all", &all)
        .list("sub", &["eve@two.example", "ann@one.example", "bob@two.example", "deep+x@lists.test"])
        .list("deep", &["fay@three.example", "out@one.example"])
        .alias("team@lists.test", &["ann@one.example", "bob@two.example"])
        .alias("two@lists.test", &["ann@one.example", "cid@two.example"]);
    let server = with(owned(builder, "sub"), &[], USERS);
    let expected = [
        "out@one.example",
        "ann@one.example",
        "bob@two.example",
        "cid@two.example",
        "vic+x@one.example",
        "joe@two.example",
        "boss@one.example",
        "sub-chief@sender.example",
        "eve@two.example",
        "fay@three.example",
    ];
    post(&lab, &server, "all@test", &expected);
    let sender = |to: &str| lab.recorder().copies_to(to)[0].sender.to_string();
    assert_eq!(sender("bob@two.example"), "all-bounces@lists.test");
    assert_eq!(sender("eve@two.example"), "sub-bounces@lists.test");
    assert_eq!(sender("fay@three.example"), "deep-bounces@lists.test");
    let text = |to: &str| String::from_utf8(lab.body_for(to)).unwrap();
    assert!(text("cid@two.example").contains("List-Id: <all.lists.test>\r\n"), "{}", text("cid@two.example"));
    let fay = text("fay@three.example");
    let ids: Vec<&str> = fay.lines().filter(|line| line.starts_with("List-Id:")).collect();
    assert_eq!(ids, ["List-Id: <deep.lists.test>"], "{fay}");
    assert!(
        fay.contains("Delivered-To: all@lists.test\r\n") && fay.contains("Delivered-To: sub@lists.test\r\n"),
        "{fay}"
    );
    // The next version of the file is in force at once.
    server.write("all.subscribers", b"sub@lists.test\n");
    server.write("sub.subscribers", b"new@one.example\n");
    post(&lab, &server, "next@test", &["new@one.example"]);
}

#[test]
fn a_copy_of_a_list_within_another_has_each_list_field_once_and_what_was_prepended() {
    let lab = lab();
    let rules = "[[rules]]\nbody = \"needle\"\ndo = \"prepend X-Rule: kept\"\n";
    let lists = owned(builder(&lab), "b")
        .list("all", &["b@lists.test", "c@lists.test"])
        .list("b", &["bob@two.example", "team@lists.test"])
        .set("lists.b.archive", "\"https://lists.test/b/\"")
        .list("c", &["cid@three.example"])
        .alias("team@lists.test", &["ann@one.example"])
        .alias("owner-team@lists.test", &["boss@sender.example"]);
    let server = with(lists, &[], rules);
    let parent = "List-Id: <p.example>\r\nList-Post: <mailto:p@p.example>\r\nList-Archive: <https://p.example/>\r\n\
                  List-Owner: <mailto:p-owner@p.example>\r\nPrecedence: bulk\r\n";
    let wire = message_with("p@test", parent, "needle\r\n");
    server.smtp().send("me@home.example", &["all@lists.test"], &wire).expect(250);
    lab.wait_copies(3);
    drained(&server);
    let own = [
        ("List-Id", "<b.lists.test>"),
        ("List-Post", "<mailto:b@lists.test>"),
        ("List-Owner", "<mailto:b-chief@sender.example>"),
        ("List-Archive", "<https://lists.test/b/>"),
        ("Precedence", "list"),
        ("X-Original-List-Id", "<p.example>"),
        ("X-Rule", "kept"),
    ];
    for to in ["bob@two.example", "ann@one.example"] {
        let header = header_for(&lab, to);
        for (name, value) in own {
            assert_eq!(fields(&header, name), [value], "{to} {name}\n{header}");
        }
    }
    // Of fields that a list does not have, the post's stay.
    let header = header_for(&lab, "cid@three.example");
    assert_eq!(fields(&header, "List-Id"), ["<c.lists.test>"], "{header}");
    assert_eq!(fields(&header, "List-Archive"), ["<https://p.example/>"], "{header}");
    assert_eq!(fields(&header, "List-Owner"), ["<mailto:p-owner@p.example>"], "{header}");
    assert_eq!(fields(&header, "X-Rule"), ["kept"], "{header}");
}

#[test]
fn lists_that_have_each_other_are_entered_once() {
    let lab = lab();
    let server = builder(&lab)
        .list("all", &["all@lists.test", "b@lists.test", "ann@one.example"])
        .list("b", &["c@lists.test", "all@lists.test", "bob@two.example"])
        .list("c", &["b@lists.test", "cid@three.example", "ann@one.example"])
        .start();
    post(&lab, &server, "round@test", &["ann@one.example", "bob@two.example", "cid@three.example"]);
    // One that the post has been through is left out; the others get it.
    let fields = "List-Id: <c.lists.test>\r\n";
    server.smtp().send("me@home.example", &["all@lists.test"], &message_with("been@test", fields, "x\r\n")).expect(250);
    lab.wait("bob has it", |recorder| recorder.copies_to("bob@two.example").len() == 2);
    drained(&server);
    assert_eq!(lab.recorder().copies_to("cid@three.example").len(), 1);
    // Back at a list above it: by Delivered-To.
    let fields = "Delivered-To: all@lists.test\r\n";
    let back = message_with("back@test", fields, "x\r\n");
    server.smtp().send("me@home.example", &["all@lists.test"], &back).expect_text("554 5.4.6");
}

#[test]
fn two_lists_that_are_named_deliver_as_before_and_share_what_is_within_them() {
    let lab = lab();
    let server = builder(&lab)
        .list("all", &["sub@lists.test", "ann@one.example"])
        .list("other", &["sub@lists.test", "bob@two.example"])
        .list("sub", &["ann@one.example", "bob@two.example", "cid@three.example"])
        .start();
    let wire = message("both@test", "A post");
    server.smtp().send("me@home.example", &["all@lists.test", "other@lists.test"], &wire).expect(250);
    drained(&server);
    lab.wait_clean("both@test", &["ann@one.example", "bob@two.example", "cid@three.example"]);
}

#[test]
fn a_list_within_another_says_who_posts_and_its_refusal_goes_to_the_owner_above() {
    let lab = lab();
    let lists = owned(builder(&lab), "all")
        .list("all", &["closed@lists.test", "open@lists.test", "takes@lists.test"])
        .list("closed", &["ann@one.example"])
        .set("lists.closed.post", "[\"ann@one.example\"]")
        .list("open", &["bob@two.example"])
        .list("takes", &["cid@three.example"])
        .set("lists.takes.post", "[\"all@lists.test\"]");
    let server = owned(lists, "closed").start();
    post(&lab, &server, "post@test", &["bob@two.example", "cid@three.example"]);
    let report = report_to(&lab, "all-chief@sender.example");
    report.assert_failed("closed@lists.test", "5.7.2");
    assert_eq!(report.header["to"], "<all-bounces@lists.test>");
    assert!(
        lab.recorder().copies_to("me@home.example").is_empty()
            && reports(&lab, "closed-chief@sender.example").is_empty()
    );
    // Whoever may post there by himself may by the list above it.
    let wire = message("ann@test", "A post");
    server.smtp().send("ann@one.example", &["all@lists.test"], &wire).expect(250);
    lab.wait_clean("ann@test", &["ann@one.example", "bob@two.example", "cid@three.example"]);
}

#[test]
fn what_is_wrong_with_one_subscriber_is_told_the_owner_and_keeps_nobody_else_waiting() {
    let lab = lab();
    let lists = owned(builder(&lab), "all")
        .list("all", &["nobody@lists.test", "nobody+x@home.test", "loop@lists.test", "ann@one.example"])
        .set("retry.bounce_gather_ms", "2000");
    let loops = "\"loop@lists.test\" = \"pool@lists.test\", \"pool@lists.test\" = \"loop@lists.test\", ";
    let server = with(lists, &[], &USERS.replace("inline = { ", &format!("inline = {{ {loops}")));
    post(&lab, &server, "one@test", &["ann@one.example"]);
    let report = report_to(&lab, "all-chief@sender.example");
    for (who, status) in [("nobody@lists.test", "5.1.1"), ("nobody+x@home.test", "5.1.1"), ("loop@lists.test", "5.3.5")]
    {
        assert_eq!(report.about(who)["status"], status, "{}", report.text);
    }
    assert_eq!(report.recipients.len(), 3, "{}", report.text);
}

#[test]
fn whoever_fails_post_after_post_behind_an_alias_is_suspended_for_the_list() {
    let lab = refusing();
    let server = owned(builder(&lab), "all")
        .list("all", &["team@lists.test", "team@lists.test"])
        .set("lists.all.suspend_posts", "2")
        .alias("team@lists.test", &["bad@no.example", "ann@yes.example"])
        .start();
    let to_bad = |n: usize| server.log().wait_nth(&["to=<bad@no.example>", "stat=Bounced"], n);
    for n in 1..=2 {
        server.smtp().send("me@home.example", &["all@lists.test"], &message(&format!("{n}@test"), "post")).expect(250);
        assert!(to_bad(n).is_some());
    }
    server.wait_log(&["a subscriber is suspended", "bad@no.example"]);
    server.smtp().send("me@home.example", &["all@lists.test"], &message("3@test", "post")).expect(250);
    lab.wait("ann has the third", |recorder| recorder.copies_to("ann@yes.example").len() == 3);
    drained(&server);
    // No third attempt.
    assert_eq!(server.log().matching(&["to=<bad@no.example>", "mailer=esmtp"]).len(), 2);
}

#[test]
fn a_failure_behind_an_alias_is_the_lists_and_not_the_posters() {
    let lab = refusing();
    let server = owned(builder(&lab), "all")
        .list("all", &["team@lists.test"])
        .alias("team@lists.test", &["bad@no.example", "ann@yes.example"])
        .start();
    server.smtp().send("poster@sender.example", &["all@lists.test"], &message("post@test", "post")).expect(250);
    report_to(&lab, "all-chief@sender.example").assert_failed("bad@no.example", "5.1.1");
    drained(&server);
    assert!(lab.recorder().copies_to("poster@sender.example").is_empty());
}

/// Aliases with owners: their targets have an envelope of their own.
const OWNED: &str = "[domains]\nlocal = [\"home.test\"]\n[tables.aliases]\nsource = \"aliases:{}/aliases\"\nas = \"aliases\"\n\
                     [addresses]\naliases = [\"aliases\"]\n";
const TEAM: &str = "team: Ann@ONE.example, bob@two.example\nowner-team: team-chief@sender.example\n";

#[test]
fn a_list_that_does_not_take_the_post_takes_no_copy_from_others() {
    let lab = lab();
    let lists = owned(builder(&lab), "all")
        .list("all", &["closed@lists.test", "all@lists.test", "team@home.test"])
        .list("closed", &["ann@one.example", "Ann@one.example"])
        .set("lists.closed.post", "[\"editor@nowhere.example\"]");
    let server = with(lists, &[("aliases", TEAM)], OWNED);
    post(&lab, &server, "post@test", &["Ann@one.example", "bob@two.example"]);
    report_to(&lab, "all-chief@sender.example").assert_failed("closed@lists.test", "5.7.2");
    assert_eq!(lab.recorder().copies_to("bob@two.example")[0].sender.to_string(), "owner-team@home.test");
}

#[test]
fn a_list_that_has_had_the_post_takes_no_copy_from_others() {
    let lab = lab();
    let lists = builder(&lab).list("all", &["team@home.test", "sub@lists.test"]).list("sub", &["bob@two.example"]);
    let server = with(lists, &[("aliases", TEAM)], OWNED);
    let wire = message_with("had@test", "List-Id: <sub.lists.test>\r\n", "x\r\n");
    server.smtp().send("me@home.example", &["all@lists.test"], &wire).expect(250);
    drained(&server);
    assert_eq!(lab.recorder().copies_to("Ann@one.example").len(), 1);
    assert_eq!(lab.recorder().copies_to("bob@two.example").len(), 1);
}

#[test]
fn whoever_is_behind_two_aliases_and_in_lists_below_gets_one_copy() {
    let lab = lab();
    let aliases = format!(
        "{TEAM}plain: ann@one.example, fay@three.example\n\
         second: bob@two.example, eve@two.example, cid@three.example\nowner-second: second-chief@sender.example\n\
         late: eve@two.example, Bob@two.example\n"
    );
    let all = ["plain@home.test", "team@home.test", "second@home.test", "sub@lists.test", "Fay@three.example"];
    let lists = builder(&lab)
        .list("all", &all)
        .list("sub", &["deep@lists.test", "eve@two.example"])
        .list("deep", &["cid@three.example", "team@home.test", "late@home.test"]);
    let server = with(lists, &[("aliases", &aliases)], OWNED);
    let once = ["ann@one.example", "bob@two.example", "cid@three.example", "eve@two.example", "Fay@three.example"];
    post(&lab, &server, "once@test", &once);
}

/// Alias files of a domain whose mailboxes are on other hosts: a target may be the subscriber himself.
const RELAYED: &str = "[domains]\nrelay = [\"one.example\"]\n[tables.aliases]\nsource = \"aliases:{}/aliases\"\nas = \"aliases\"\n\
                       [addresses]\naliases = [\"aliases\"]\nalias_domains = [\"one.example\"]\norigin = \"one.example\"\n";

#[test]
fn a_subscriber_behind_an_alias_of_her_own_with_an_owner_gets_her_copy() {
    let lab = lab();
    let aliases = "ann: \\ann, bob@two.example\nowner-ann: chief@sender.example\n\
                   dan: \\dan\nowner-dan: chief@sender.example\n\
                   plain: \\plain, Fay@two.example\n";
    let all = ["ann@one.example", "Dan@one.example", "plain@one.example", "cid@three.example"];
    let server = with(builder(&lab).list("all", &all), &[("aliases", aliases)], RELAYED);
    let once = [
        "ann@one.example",
        "bob@two.example",
        "cid@three.example",
        "dan@one.example",
        "Fay@two.example",
        "plain@one.example",
    ];
    post(&lab, &server, "self@test", &once);
    let sender = |to: &str| lab.recorder().copies_to(to)[0].sender.to_string();
    assert_eq!(sender("ann@one.example"), "owner-ann@one.example");
    assert_eq!(sender("plain@one.example"), "all-bounces@lists.test");
}

#[test]
fn a_target_who_is_replaced_in_a_list_within_gets_one_copy() {
    let lab = lab();
    let aliases = "team: ann, Eve@two.example\nowner-team: chief@sender.example\n\
                   ann: \\ann, bob@two.example\nowner-ann: chief@sender.example\n";
    let lists = builder(&lab)
        .list("all", &["team@one.example", "sub@lists.test"])
        .list("sub", &["ann@one.example", "deep@lists.test"])
        .list("deep", &["cid@three.example", "ANN@one.example", "eve@two.example"]);
    let server = with(lists, &[("aliases", aliases)], RELAYED);
    post(&lab, &server, "within@test", &["ann@one.example", "bob@two.example", "cid@three.example", "eve@two.example"]);
    // Direct subscribers come first, also those of a list two levels below.
    assert_eq!(lab.recorder().copies_to("eve@two.example")[0].sender.to_string(), "deep-bounces@lists.test");
}

#[test]
fn a_target_who_is_replaced_in_another_named_list_gets_one_copy() {
    let lab = lab();
    let aliases = "team: \\ann, cid@three.example\nowner-team: chief@sender.example\n\
                   ann: \\ann, bob@two.example\nowner-ann: chief@sender.example\n";
    let lists = builder(&lab)
        .list("all", &["team@one.example"])
        .list("other", &["ann@one.example"])
        .list("third", &["cid@three.example"]);
    let server = with(lists, &[("aliases", aliases)], RELAYED);
    let wire = message("named@test", "A post");
    lab.recorder().expect_message(wire.clone().into());
    let named = ["all@lists.test", "other@lists.test", "third@lists.test"];
    server.smtp().send("me@home.example", &named, &wire).expect(250);
    drained(&server);
    lab.wait_clean("named@test", &["ann@one.example", "bob@two.example", "cid@three.example"]);
}

#[test]
fn a_person_who_is_written_in_two_ways_in_lists_within_gets_one_copy() {
    let lab = lab();
    let lists = builder(&lab)
        // Capitals above, below, in both, and behind an alias with a next hop of its own or without.
        .list("all", &["Ann@one.example", "bob@two.example", "EVE@two.example", "sub@lists.test", "gus@lists.test"])
        .list("sub", &["ann@one.example", "Bob@two.example", "Eve@two.example", "deep@lists.test", "new@one.example"])
        .list("deep", &["ANN@one.example", "NEW@one.example", "GUS@three.example", "fay@three.example"])
        .alias("gus@lists.test", &["Gus@three.example"]);
    let server = lists.start();
    let once = [
        "Ann@one.example",
        "bob@two.example",
        "EVE@two.example",
        "new@one.example",
        "Gus@three.example",
        "fay@three.example",
    ];
    post(&lab, &server, "spelled@test", &once);
}

#[test]
fn a_person_who_is_written_in_two_ways_in_a_named_list_and_within_another_gets_one_copy() {
    let lab = lab();
    let server = builder(&lab)
        .list("all", &["sub@lists.test"])
        // Without subscribers of this server.
        .list("other", &["Ann@one.example", "bob@two.example"])
        .list("sub", &["ann@one.example", "Bob@two.example", "cid@three.example"])
        .start();
    let wire = message("other@test", "A post");
    lab.recorder().expect_message(wire.clone().into());
    server.smtp().send("me@home.example", &["all@lists.test", "other@lists.test"], &wire).expect(250);
    drained(&server);
    lab.wait_clean("other@test", &["Ann@one.example", "bob@two.example", "cid@three.example"]);
}

/// What a command prints for whom the file system hangs, too.
fn told(server: &Server, words: &[&str]) -> String {
    let mut asking = Command::new(stentor());
    for (name, value) in command(server).get_envs() {
        asking.env(name, value.expect("set"));
    }
    let output = asking.args(words).arg("--config").arg(server.config()).output().expect("it runs");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// While calls with subscribers files do not return, posts use the versions in force, also those of lists within the
/// list, and the views report it.
fn assert_kept_while_it_hangs(call: &str) {
    const WITHIN: usize = 12;
    // The limit of one call is 5 s: one after the other, the lists would take a minute.
    const LIMIT: Duration = Duration::from_secs(45);
    let lab = lab();
    let within: Vec<String> = (0..WITHIN).map(|n| format!("n{n}@lists.test")).collect();
    let within: Vec<&str> = within.iter().map(String::as_str).collect();
    let lists = (0..WITHIN).fold(builder(&lab).list("all", &within), |lists, n| {
        lists.list(&format!("n{n}"), &[&*format!("r{n}@one.example")])
    });
    let mut server = lists.prepare();
    preload(&server);
    start(&mut server);
    let expected: Vec<String> = (0..WITHIN).map(|n| format!("r{n}@one.example")).collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    post(&lab, &server, "before@test", &expected);

    hang(&server, call);
    for n in 0..WITHIN {
        server.write(&format!("n{n}.subscribers"), format!("r{n}@one.example\nnew{n}@two.example\n").as_bytes());
    }
    server.write("all.subscribers", format!("{}\nnew@two.example\n", within.join("\n")).as_bytes());
    let since = Instant::now();
    post(&lab, &server, "hangs@test", &expected);
    assert!(since.elapsed() < LIMIT, "{:?}", since.elapsed());
    wait_until("the lists are a condition", || {
        told(&server, &["status"]).contains("the subscribers file cannot be used: its file system does not respond")
    });
    assert!(told(&server, &["reload"]).starts_with("configuration reloaded\n"));
    post(&lab, &server, "still@test", &expected);

    let_return(&server, call);
    wait_until("the condition ends", || !told(&server, &["status"]).contains("does not respond"));
    let mut expected: Vec<String> = expected.iter().map(|&known| known.to_owned()).collect();
    expected.extend((0..WITHIN).map(|n| format!("new{n}@two.example")));
    expected.push("new@two.example".to_owned());
    post(&lab, &server, "after@test", &expected.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn lists_whose_files_cannot_be_looked_at_keep_their_subscribers() {
    assert_kept_while_it_hangs("stat");
}

#[test]
fn lists_whose_files_cannot_be_opened_keep_their_subscribers() {
    assert_kept_while_it_hangs("open");
}

#[test]
fn lists_whose_files_cannot_be_read_keep_their_subscribers() {
    assert_kept_while_it_hangs("read");
}

#[test]
fn a_server_starts_and_stops_while_subscribers_files_cannot_be_opened() {
    let lab = lab();
    let mut server = builder(&lab).list("all", &["ann@one.example"]).list("sub", &["bob@one.example"]).prepare();
    preload(&server);
    hang(&server, "open");
    start(&mut server);
    let mut client = server.smtp();
    client.cmd("MAIL FROM:<me@home.example>").expect(250);
    client.cmd("RCPT TO:<all@lists.test>").expect_text("451 4.3.0");
    client.cmd("RCPT TO:<cid@three.example>").expect(250);
    drop(client);
    server.stop();
}
