//! Where mail is sent from, and limits per site: sources, pools, rules by MX suffix.

use stentor_harness::{Server, TestLab, message, wait_until};

use crate::scribe::Scribe;

#[test]
fn each_list_and_sender_has_its_sources() {
    let scribe = Scribe::start(&["PIPELINING"], &[]);
    let server = Server::builder()
        .route("one.example", &[&scribe.host()])
        .set("sources.first.address", "\"127.0.0.11\"")
        .set("sources.first.ehlo_name", "\"first.test\"")
        .set("sources.second.address", "[\"127.0.0.12\", \"::1\"]")
        .set("sources.second.ehlo_name", "\"second.test\"")
        .set_in("senders.\"home.example\"", "sources", "\"first\"")
        .list("news", &["list@one.example"])
        .set("lists.news.sources", "[\"second\"]")
        .start();
    server.smtp().send("me@away.example", &["news@lists.test"], &message("post@test", "x")).expect(250);
    scribe.wait("RCPT TO:<list@one.example>");
    assert_eq!(scribe.heard("EHLO"), ["EHLO second.test"]);
    server.smtp().send("me@home.example", &["ann@one.example"], &message("mail@test", "x")).expect(250);
    scribe.wait("RCPT TO:<ann@one.example>");
    assert_eq!(scribe.heard("EHLO"), ["EHLO second.test", "EHLO first.test"]);
    let peers: Vec<String> = scribe.peers().iter().map(ToString::to_string).collect();
    assert_eq!(peers, ["127.0.0.12", "127.0.0.11"]);
    server.wait_empty();
    let site = server.ask(&["site", "one.example"]).expect("it is known");
    assert_eq!((&site["paths"][0]["source"], &site["paths"][1]["source"]), (&"first".into(), &"second".into()));
}

#[test]
fn a_source_without_the_family_reaches_nobody_of_it() {
    let scribe = Scribe::start(&[], &[]);
    let server =
        Server::builder().route("one.example", &[&scribe.host()]).set("sources.six.address", "\"::1\"").start();
    server.smtp().send("me@home.example", &["ann@one.example"], &message("mail@test", "x")).expect(250);
    server.wait_log(&["source six has no IPv4 address"]);
    assert!(scribe.peers().is_empty());
}

#[test]
fn rules_hold_for_sites_by_the_names_of_their_hosts() {
    let lab = TestLab::sites(&["small.example", "free.example"]);
    let rule = "sites.\"mx1.small.example\"";
    let server = Server::builder()
        .lab(&lab)
        .set_in(rule, "recipients_per_transaction_max", "2")
        .set_in(rule, "transactions_per_connection_max", "1")
        .set_in(rule, "connections_max", "1")
        .start();
    let people = |site: &str| (0..6).map(|n| format!("u{n}@{site}.example")).collect::<Vec<_>>();
    let (small, free) = (people("small"), people("free"));
    let all: Vec<&str> = small.iter().chain(&free).map(String::as_str).collect();
    let wire = message("rules@test", "x");
    lab.recorder().expect_message(wire.clone().into());
    server.smtp().send("me@home.example", &all, &wire).expect(250);
    lab.wait_clean("rules@test", &all);
    let of = |person: &String| {
        let copy = lab.recorder().copies_to(person).remove(0);
        (copy.connection, copy.transaction)
    };
    let mut ways: Vec<_> = small.iter().map(of).collect();
    ways.sort_unstable();
    ways.dedup();
    assert_eq!(ways.len(), 3, "two recipients a transaction: {ways:?}");
    assert!(ways.iter().all(|(_, transaction)| *transaction == 1), "one transaction a connection: {ways:?}");
    let mut ways: Vec<_> = free.iter().map(of).collect();
    ways.dedup();
    assert_eq!(ways.len(), 1, "elsewhere the rule says nothing");
}

/// A list at one site whose recipients are of two domains: one transaction where the rule allows it.
#[test]
fn domains_are_mixed_where_a_rule_says_so() {
    for mixes in [false, true] {
        let lab = TestLab::start("[[site]]\nname = 'big.example'\ndomains = ['a.example', 'b.example']\n");
        let rule = "sites.\"big.example\"";
        let server = Server::builder().lab(&lab).set_in(rule, "mixes_domains", &mixes.to_string()).start();
        let people = ["ann@a.example", "bob@b.example"];
        // The first mail makes both domains known to be at the site.
        for (n, count) in [(0, 0), (1, if mixes { 1 } else { 2 })] {
            let id = format!("{n}@test");
            server.smtp().send("me@home.example", &people, &message(&id, "x")).expect(250);
            lab.wait_clean(&id, &people);
            let mut ways: Vec<_> = lab.recorder().copies().into_iter().filter(|copy| *copy.message_id == *id).collect();
            ways.dedup_by_key(|copy| (copy.connection, copy.transaction));
            assert!(n == 0 || ways.len() == count, "{mixes}: {ways:?}");
        }
    }
}

#[test]
fn rates_and_warm_up_hold_mail_back() {
    let lab = TestLab::sites(&["slow.example", "new.example"]);
    let today = std::process::Command::new("date").args(["-u", "+%F"]).output().expect("date can be run").stdout;
    let today = String::from_utf8(today).expect("text");
    let server = Server::builder()
        .lab(&lab)
        .set_in("sites.\"slow.example\"", "messages_per_hour_max", "1")
        .set("sources.out.address", "\"127.0.0.1\"")
        .set("sources.out.warm_up_per_day", "[2]")
        .set("sources.out.warm_up_since", &format!("{:?}", today.trim()))
        .start();
    for n in 0..4 {
        for to in ["ann@slow.example", "ann@new.example"] {
            server.smtp().send("me@home.example", &[to], &message(&format!("{n}.{to}@test"), "x")).expect(250);
        }
    }
    lab.wait("one and two have gone", |recorder| {
        recorder.copies_to("ann@slow.example").len() == 1 && recorder.copies_to("ann@new.example").len() == 2
    });
    wait_until("the others wait", || {
        let waiting = |domain| server.ask(&["site", domain]).expect("it is known")["messages"].clone();
        waiting("slow.example") == 3 && waiting("new.example") == 2
    });
    let site = server.ask(&["site", "slow.example"]).expect("it is known");
    assert_eq!(site["paths"][0]["messages_per_minute_max"], 0, "{site}");
    assert!(site["waits_for"].as_str().expect("text").contains("rate limit for this site"), "{site}");
    assert_eq!(lab.stats().sinks.recipients, 3);
}
