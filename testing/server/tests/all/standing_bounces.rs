//! Bounces that last: what waits is returned with the operator's reason, what arrives is refused with it, for a time,
//! also after a restart.

use stentor_harness::{Server, TestLab, message, wait_until};

use crate::kit::builder;
use crate::virtual_users::with;

const FROM: &str = "me@home.example";
const REASON: &str = "no such department any more";

fn send(server: &Server, from: &str, to: &str, id: &str) -> String {
    server.smtp().send(from, &[to], &message(id, "x")).expect(250).queue_id()
}

/// New mail to somebody is refused with the reason: nobody gets a bounce.
fn refused(server: &Server, from: &str, to: &str) {
    let mut client = server.smtp();
    client.cmd(&format!("MAIL FROM:<{from}>")).expect(250);
    client.cmd(&format!("RCPT TO:<{to}>")).expect_text(&format!("550 5.7.1 {REASON}"));
}

fn text(server: &Server, command: &[&str]) -> String {
    String::from_utf8(server.operator(command).stdout).expect("text")
}

/// Of the host that refuses connections, in a row.
fn failures(server: &Server) -> u64 {
    let site = server.ask(&["site", "down.example"]).ok();
    site.and_then(|site| site["paths"][0]["hosts"][0]["failures"].as_u64()).unwrap_or(0)
}

#[test]
fn what_waits_and_what_arrives_is_bounced_until_the_time_is_over() {
    let lab = TestLab::start(
        "[[site]]\nname = 'home.example'\n[[site]]\nname = 'one.example'\n[[site]]\nname = 'two.example'\n\
         [[site]]\nname = 'down.example'\nbehaviour = { connect = 'refuse' }\n",
    );
    let mut server = builder(&lab).list("news", &["sub@two.example", "bob@down.example"]).start();
    for id in ["a@test", "b@test"] {
        send(&server, FROM, "ann@down.example", id);
    }
    wait_until("both wait", || server.ask(&["site", "down.example"]).is_ok_and(|site| site["waiting"] == 2));
    let bounce = |server: &Server, more: &[&str]| {
        let command: Vec<&str> =
            ["bounce", "--site", "down.example", "--reason", REASON].into_iter().chain(more.iter().copied()).collect();
        server.ask(&command)
    };
    // Only counted.
    assert_eq!(bounce(&server, &["--for", "2h", "--dry-run"]).expect("counted")["count"], 2);
    assert!(server.status()["standing_bounces"].as_array().is_some_and(Vec::is_empty));
    // What waits.
    assert_eq!(bounce(&server, &["--for", "2h"]).expect("it is set")["count"], 2);
    server.wait_log(&["audit: verb=bounce", "\"until\":", REASON]);
    let status = server.status();
    assert_eq!(status["standing_bounced"], 2);
    let [standing] = &status["standing_bounces"].as_array().expect("an array")[..] else { panic!("{status}") };
    assert_eq!((&standing["site"], &standing["reason"]), (&"mx1.down.example".into(), &REASON.into()));
    assert!(standing["until"].as_u64() > status["now"].as_u64(), "{status}");
    // What arrives: refused where that is certain, else bounced without that a host is tried.
    refused(&server, FROM, "bob@down.example");
    let before = failures(&server);
    assert!(before > 0);
    send(&server, FROM, "news@lists.test", "c@test");
    wait_until("bob's copy is bounced", || server.fates()["pending"] == 0);
    assert_eq!(failures(&server), before, "no host was tried");
    assert_eq!(server.status()["standing_bounced"], 3);
    server.kill();
    server.start_again();
    send(&server, FROM, "bob@down.example", "d@test");
    wait_until("it is bounced", || server.fates()["pending"] == 0);
    assert!(server.log().matching(&["stat=Deferred", "bob@down.example"]).is_empty(), "no host was tried");
    server.kill();
    server.start_again();
    let shown = text(&server, &["bounce", "--show"]);
    let ends = ["mail to site mx1.down.example, ends in 2h00m", "mail to site mx1.down.example, ends in 1h59m"];
    assert!(ends.iter().any(|end| shown.contains(end)) && shown.contains(REASON), "{shown}");
    assert!(shown.contains("`stentor bounce --end --site mx1.down.example"), "{shown}");
    assert!(text(&server, &["doctor"]).contains("mail to site mx1.down.example is bounced for another"));
    // No mail has gone to it since the start: whether a domain is there is not known yet.
    assert!(!text(&server, &["doctor"]).contains("matches no mail"));
    // Its site has to be looked up again first: it waits no longer than that.
    send(&server, FROM, "bob@down.example", "e@test");
    wait_until("it is bounced", || server.fates()["pending"] == 0);
    // By itself.
    assert!(server.ask(&["bounce", "--site", "mx1.down.example", "--for", "2s", "--reason", REASON]).is_ok());
    wait_until("it is over", || server.status()["standing_bounces"].as_array().is_some_and(Vec::is_empty));
    server.wait_log(&["audit: verb=bounce, who=stentor", "expired"]);
    send(&server, FROM, "ann@down.example", "f@test");
    server.wait_log(&["f@test"]);
    wait_until("it is tried", || server.ask(&["site", "down.example"]).is_ok_and(|site| site["waiting"] == 1));
}

#[test]
fn by_sender_domain_and_list_and_ended_early() {
    let lab = TestLab::sites(&["home.example", "one.example", "two.example"]);
    let server = builder(&lab).list("news", &["sub@two.example"]).start();
    for selectors in [
        &["--sender", "home.example", "--recipient", "@one.example"][..],
        &["--sender", "me@home.example", "--recipient", "@one.example"],
        &["--list", "news"],
    ] {
        let command = |last: &[&str]| -> Vec<String> {
            ["bounce"].iter().chain(selectors).chain(last).map(|word| (*word).to_owned()).collect()
        };
        let ask = |last: &[&str]| server.ask(&command(last).iter().map(String::as_str).collect::<Vec<_>>());
        let is_list = selectors[0] == "--list";
        let (covered, free) =
            if is_list { ("news@lists.test", "ann@one.example") } else { ("ann@one.example", "ann@two.example") };
        ask(&["--for", "1h", "--reason", REASON]).expect("it is set");
        let name = selectors.join("").replace(['-', '@'], "");
        let (second, third) = (format!("2{name}@test"), format!("3{name}@test"));
        refused(&server, FROM, covered);
        send(&server, FROM, free, &second);
        lab.wait("what it is not about goes", |recorder| recorder.copies_of(&second) == 1);
        server.wait_empty();
        ask(&["--end"]).expect("it is ended");
        assert!(ask(&["--end"]).is_err(), "there is none");
        send(&server, FROM, covered, &third);
        lab.wait("it goes again", |recorder| recorder.copies_of(&third) == 1);
    }
    server.wait_empty();
    assert!(lab.recorder().copies_to(FROM).is_empty(), "nobody gets a bounce");
    lab.assert_no_violations();
}

/// One of a site is about its hosts: whoever an alias leads past them is none of those.
#[test]
fn an_alias_that_leads_elsewhere_is_not_refused_for_its_domain() {
    let lab = TestLab::start(
        "[[site]]\nname = 'one.example'\n[[site]]\nname = 'two.example'\nrelay = true\n[[site.host]]\nname = 'mx.two.example'\n",
    );
    let server = builder(&lab).list("news", &["x@one.example"]).prepare();
    server.edit_config(|text| {
        format!(
            "{text}\n[routes]\n\"vip@one.example\" = \"mx:two.example\"\n\
             [aliases]\n\"ceo@lists.test\" = [\"vip@one.example\"]\n"
        )
    });
    let server = server.run();
    send(&server, FROM, "ann@one.example", "known@test");
    server.wait_empty();
    server.ask(&["bounce", "--site", "one.example", "--for", "1h", "--reason", REASON]).expect("it is set");
    refused(&server, FROM, "ann@one.example");
    for to in ["vip@one.example", "ceo@lists.test"] {
        send(&server, FROM, to, &format!("{to}.test"));
    }
    server.wait_empty();
    assert_eq!(lab.recorder().copies_to("vip@one.example").len(), 2);
}

/// A sender that is rewritten is meant by both of its addresses, as in what waits.
#[test]
fn a_rewritten_sender_is_refused_by_both_addresses() {
    let lab = TestLab::sites(&["one.example"]);
    let server = with(
        builder(&lab),
        &[("canonical", "joe@home.example joe.smith@firm.example\n")],
        "[tables.all]\nsource = \"hash:{}/canonical\"\nas = \"canonical\"\n[addresses]\ncanonical = \"all\"\n",
    );
    let (joe, to) = ("joe@home.example", "ann@one.example");
    for sender in [joe, "home.example", "joe.smith@firm.example", "firm.example"] {
        server.ask(&["bounce", "--sender", sender, "--for", "1h", "--reason", REASON]).expect("it is set");
        refused(&server, joe, to);
        send(&server, "me@other.example", to, &format!("{sender}.test"));
        server.wait_empty();
        server.ask(&["bounce", "--sender", sender, "--end"]).expect("it is ended");
        send(&server, joe, to, &format!("after.{sender}.test"));
        server.wait_empty();
    }
}

#[test]
fn what_is_in_flight_when_one_ends_goes_on() {
    let lab =
        TestLab::start("[[site]]\nname = 'slow.example'\nbehaviour = { at_rcpt = '451 4.3.0 later', rtt_ms = 3000 }\n");
    let server = builder(&lab).start();
    let id = server.smtp().send(FROM, &["ann@slow.example"], &message("a@test", "x")).expect(250).queue_id();
    let recipient = || server.ask(&["queue", "show", &id]).expect("it is queued")["recipients"][0].clone();
    wait_until("it is in flight", || recipient()["cause"] == "sending");
    let begun = server.ask(&["bounce", "--recipient", "@slow.example", "--for", "1h"]).expect("it is set");
    assert_eq!((&begun["count"], &begun["in_flight"]), (&0.into(), &1.into()), "{begun}");
    server.ask(&["bounce", "--recipient", "@slow.example", "--end"]).expect("it is ended");
    wait_until("it waits for its next try", || recipient()["state"] == "deferred" && recipient()["next_try"].is_u64());
    assert_eq!((&server.fates()["bounced"], &server.status()["standing_bounced"]), (&0.into(), &0.into()));
}

#[test]
fn the_copies_of_a_closed_list_are_not_reported_to_its_owner() {
    let lab = TestLab::start(
        "[[site]]\nname = 'home.example'\n[[site]]\nname = 'down.example'\nbehaviour = { connect = 'refuse' }\n",
    );
    let server = builder(&lab)
        .list("news", &["ann@down.example", "bob@down.example"])
        .set("lists.news.owner", "\"owner@home.example\"")
        .start();
    send(&server, FROM, "news@lists.test", "post@test");
    send(&server, FROM, "ann@down.example", "own@test");
    wait_until("all wait", || server.ask(&["site", "down.example"]).is_ok_and(|site| site["waiting"] == 3));
    let done = server.ask(&["bounce", "--list", "news", "--for", "1h", "--reason", REASON]).expect("it is set");
    assert_eq!(done["count"], 2, "{done}");
    // Other mail's sender hears of the same recipient, later: by then the owner would have heard too.
    server.ask(&["bounce", "--recipient", "ann@down.example", "--reason", REASON]).expect("it is bounced");
    lab.wait("the sender has a report", |recorder| recorder.copies_to(FROM).len() == 1);
    server.wait_empty();
    assert_eq!(server.fates()["bounced"], 3);
    assert!(lab.recorder().copies_to("owner@home.example").is_empty(), "nobody is told");
}
