//! Where mail is sent from and what sites are asked for: sources, pools, rules by MX suffix.

use stentor_tests::{Server, TestLab, message};

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
