//! Outgoing mail: transactions, the host's extensions, routes, and the log.

use mail_parser::MessageParser;
use stentor_harness::{Server, TestLab, message, message_with};

use crate::kit::{SENDER, SENDER_SITE, builder, closed_port, drained, post, post_with, report_to};
use crate::scribe::Scribe;

#[test]
fn recipients_of_a_domain_share_transactions() {
    let lab = TestLab::sites(&["many.example"]);
    let server = builder(&lab).set("delivery.recipients_per_transaction_max", "100").start();
    let people: Vec<String> = (0..150).map(|n| format!("user{n}@many.example")).collect();
    let people: Vec<&str> = people.iter().map(String::as_str).collect();
    post(&server, &lab, &people, "many@test");
    lab.wait_clean("many@test", &people);
    assert_eq!(lab.stats().sinks.transactions, 2, "100 and 50");
}

#[test]
fn messages_share_a_connection() {
    let lab = TestLab::sites(&["one.example"]);
    let server = builder(&lab).set("delivery.connections_per_site_max", "1").set("delivery.idle_ms", "300000").start();
    let mut smtp = server.smtp();
    for n in 0..30 {
        smtp.send(SENDER, &["ann@one.example"], &message(&format!("{n}@test"), "one of many")).expect(250);
    }
    lab.wait_copies(30);
    assert_eq!(lab.stats().sinks.connections, 1);
    lab.assert_no_violations();
}

#[test]
fn domains_with_the_same_hosts_are_one_site() {
    let lab = TestLab::start("[[site]]\nname = 'host.example'\ndomains = ['a.example', 'b.example', 'c.example']\n");
    let server = builder(&lab).set("delivery.connections_per_site_max", "1").set("delivery.idle_ms", "300000").start();
    let people = ["ann@a.example", "bob@b.example", "cid@c.example"];
    post(&server, &lab, &people, "same@test");
    lab.wait_clean("same@test", &people);
    assert_eq!(lab.stats().sinks.connections, 1, "one connection serves all domains of the site");
}

#[test]
fn a_host_takes_few_recipients_at_a_time() {
    let lab = TestLab::start("[[site]]\nname = 'few.example'\nbehaviour = { recipients_per_transaction_max = 3 }\n");
    let server = builder(&lab).start();
    let people: Vec<String> = (0..20).map(|n| format!("user{n}@few.example")).collect();
    let people: Vec<&str> = people.iter().map(String::as_str).collect();
    post(&server, &lab, &people, "few@test");
    lab.wait_clean("few@test", &people);
    assert_eq!(drained(&server).bounced, 0, "452 4.5.3 is no refusal of the recipient");
}

#[test]
fn extensions_that_are_not_offered_are_not_used() {
    let lacks = [
        "no_pipelining",
        "no_chunking",
        "no_8bitmime",
        "no_smtputf8",
        "no_dsn",
        "no_size",
        "no_ehlo",
        "size_bytes_max",
    ];
    let mut scenario = String::new();
    for lack in lacks {
        let value = if lack == "size_bytes_max" { "100000" } else { "true" };
        scenario.push_str(&format!(
            "[[site]]\nname = '{}.example'\nbehaviour = {{ {lack} = {value} }}\n",
            lack.replace('_', "-")
        ));
    }
    scenario.push_str(
        "[[site]]\nname = 'bare.example'\nbehaviour = { no_pipelining = true, no_chunking = true, no_dsn = true }\n",
    );
    let lab = TestLab::start(&scenario);
    let server = builder(&lab).start();
    let mut people: Vec<String> = Vec::new();
    for lack in lacks.iter().map(|lack| lack.replace('_', "-")).chain(["bare".to_owned()]) {
        people.extend(["ann", "bob"].map(|user| format!("{user}@{lack}.example")));
    }
    let people: Vec<&str> = people.iter().map(String::as_str).collect();
    let wire = message("lacks@test", "plain");
    lab.recorder().expect_message(wire.clone().into());
    let to: Vec<String> = people.iter().map(|to| format!("<{to}> NOTIFY=FAILURE ORCPT=rfc822;{to}")).collect();
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    post_with(&server, "<ann@sender.example> RET=HDRS ENVID=abc", &to, &wire);
    lab.wait_clean("lacks@test", &people);
    // A body of many buffers goes the same ways.
    let large = message_with("large@test", "", &"a line of the large body\r\n.\r\n".repeat(20_000));
    lab.recorder().expect_message(large.clone().into());
    server.smtp().send("", &people, &large).expect(250);
    // One that says that it does not take as much is not bothered with it.
    let without_limit: Vec<&str> = people.iter().copied().filter(|who| !who.contains("size-bytes-max")).collect();
    lab.wait_clean("large@test", &without_limit);
    assert_eq!(drained(&server).bounced, 2);
}

#[test]
fn what_a_host_cannot_take_is_told_from_what_is_under_way() {
    // Transactions are pipelined; those that the client refuses by itself are decided before those ahead of them.
    let lab = TestLab::start(&format!(
        "{SENDER_SITE}[[site]]\nname = 'plain.example'\nbehaviour = {{ no_smtputf8 = true, rtt_ms = 50 }}\n"
    ));
    let server = builder(&lab).set("delivery.connections_per_site_max", "1").start();
    let mut smtp = server.smtp();
    let (mut plain, mut utf8) = (Vec::new(), Vec::new());
    for n in 0..40 {
        let id = format!("{n}@test");
        let wire = message(&id, "one of many");
        if n % 3 == 1 {
            let to = [format!("jürgen{n}@plain.example"), format!("jörg{n}@plain.example")];
            smtp.send(SENDER, &[&to[0], &to[1]], &wire).expect(250);
            utf8.extend(to);
        } else {
            lab.recorder().expect_message(wire.clone().into());
            smtp.send(SENDER, &["ann@plain.example"], &wire).expect(250);
            plain.push(id);
        }
    }
    for id in &plain {
        lab.wait_clean(id, &["ann@plain.example"]);
    }
    assert_eq!(drained(&server).bounced, utf8.len() as u64);
    let copies = lab.recorder().copies_to(SENDER);
    let reports: Vec<String> = copies
        .iter()
        .map(|c| String::from_utf8_lossy(c.body.as_ref().expect("bodies are kept")).into_owned())
        .collect();
    for who in &utf8 {
        assert!(reports.iter().any(|text| text.contains(&format!("<{who}>\r\n"))), "{who} is not told of");
    }
    assert!(reports.iter().all(|text| !text.contains("; ann@plain.example")), "{reports:?}");
}

#[test]
fn content_goes_by_bdat_with_its_size_where_offered() {
    let lab = TestLab::sites(&["unused.example"]);
    let scribe = Scribe::start(&["PIPELINING", "SIZE 1000000", "CHUNKING", "8BITMIME"], &[]);
    let server = builder(&lab).route("tap.example", &[&scribe.host()]).start();
    server.smtp().send(SENDER, &["bob@tap.example"], &message("bdat@test", "chunk")).expect(250);
    let bdat = scribe.wait("BDAT ");
    let size: u64 = bdat
        .strip_prefix("BDAT ")
        .and_then(|rest| rest.strip_suffix(" LAST"))
        .expect("one chunk")
        .parse()
        .expect("a number");
    let mail = scribe.wait("MAIL ");
    assert!(mail.starts_with("MAIL FROM:<ann@sender.example>"), "{mail}");
    assert!(mail.split(' ').any(|word| word == format!("SIZE={size}")), "{mail} {bdat}");
    assert_eq!(drained(&server).delivered, 1);
    assert!(scribe.heard("DATA").is_empty(), "{:?}", scribe.lines());
}

#[test]
fn chunking_can_be_switched_off() {
    let lab = TestLab::sites(&["unused.example"]);
    let scribe = Scribe::start(&["PIPELINING", "CHUNKING"], &[]);
    let server = builder(&lab).route("tap.example", &[&scribe.host()]).set("delivery.chunking", "false").start();
    server.smtp().send(SENDER, &["bob@tap.example"], &message("data@test", "dot")).expect(250);
    scribe.wait(".");
    assert_eq!(drained(&server).delivered, 1);
    assert!(scribe.heard("BDAT").is_empty(), "{:?}", scribe.lines());
}

const EIGHT_BIT: &str = "MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\
                         Content-Transfer-Encoding: 8bit\r\n";

#[test]
fn eight_bit_content_is_converted_for_a_host_without_8bitmime() {
    let lab = TestLab::start(
        "[[site]]\nname = 'old.example'\nbehaviour = { no_8bitmime = true }\n[[site]]\nname = 'new.example'\n",
    );
    let server = builder(&lab).start();
    let text =
        "Grüße aus Köln = 100 %\r\n.Zeile mit Punkt\r\nein langer Satz, ".to_owned() + &"sehr ".repeat(40) + "lang\r\n";
    let wire = message_with("qp@test", EIGHT_BIT, &text);
    server.smtp().send(SENDER, &["ann@old.example", "bob@new.example"], &wire).expect(250);
    lab.wait_copies(2);
    lab.assert_no_violations();
    let old = lab.body_for("ann@old.example");
    assert!(old.is_ascii(), "{}", String::from_utf8_lossy(&old));
    assert!(old.split(|b| *b == b'\n').all(|line| line.len() <= 999), "lines of RFC 5321 4.5.3.1.6");
    let decoded = |octets: &[u8]| {
        let message = MessageParser::default().parse(octets).expect("a message");
        message.body_text(0).expect("a text").replace("\r\n", "\n")
    };
    assert_eq!(decoded(&old), text.replace("\r\n", "\n"), "{}", String::from_utf8_lossy(&old));
    let new = lab.body_for("bob@new.example");
    assert!(new.ends_with(text.as_bytes()), "untouched where 8BITMIME is offered");
}

#[test]
fn eight_bit_content_is_bounced_if_so_configured() {
    let lab =
        TestLab::start(&format!("{SENDER_SITE}[[site]]\nname = 'old.example'\nbehaviour = {{ no_8bitmime = true }}\n"));
    let server = builder(&lab).set("delivery.eight_bit", "\"bounce\"").start();
    server.smtp().send(SENDER, &["ann@old.example"], &message_with("b@test", EIGHT_BIT, "Grüße\r\n")).expect(250);
    report_to(&lab, SENDER).assert_failed("ann@old.example", "5.6.3");
    lab.assert_no_violations();
}

#[test]
fn a_smtputf8_message_is_returned_where_it_cannot_go() {
    let lab = TestLab::start(&format!(
        "{SENDER_SITE}[[site]]\nname = 'plain.example'\nbehaviour = {{ no_smtputf8 = true }}\n[[site]]\nname = 'utf8.example'\n"
    ));
    let server = builder(&lab).start();
    let wire = message_with("utf8@test", "Subject: Grüße\r\n", "Hallo\r\n");
    lab.recorder().expect_message(wire.clone().into());
    server.smtp().send(SENDER, &["jürgen@plain.example", "jürgen@utf8.example"], &wire).expect(250);
    let report = report_to(&lab, SENDER);
    report.assert_failed("jürgen@plain.example", "5.6.7");
    lab.wait_clean("utf8@test", &["jürgen@utf8.example"]);
}

#[test]
fn each_recipients_reply_is_kept() {
    let lab = TestLab::start(&format!(
        "{SENDER_SITE}[[site]]\nname = 'mixed.example'\nbehaviour = {{ reject_users = ['bad'] }}\n"
    ));
    let server = builder(&lab).start();
    post(&server, &lab, &["ann@mixed.example", "bad@mixed.example", "cid@mixed.example"], "mixed@test");
    lab.wait_clean("mixed@test", &["ann@mixed.example", "cid@mixed.example"]);
    let report = report_to(&lab, SENDER);
    report.assert_failed("bad@mixed.example", "5.1.1");
    assert_eq!(report.about("bad@mixed.example")["diagnostic-code"], "smtp; 550 5.1.1 no such user here");
    let fates = drained(&server);
    assert_eq!((fates.delivered, fates.bounced), (3, 1), "two copies and the report; one refusal: {fates:?}");
}

#[test]
fn all_recipients_refused_and_the_connection_goes_on() {
    let lab = TestLab::start(&format!(
        "{SENDER_SITE}[[site]]\nname = 'mixed.example'\nbehaviour = {{ reject_users = ['bad', 'worse'] }}\n"
    ));
    let server = builder(&lab).start();
    post(&server, &lab, &["bad@mixed.example", "worse@mixed.example"], "refused@test");
    post(&server, &lab, &["ann@mixed.example"], "taken@test");
    lab.wait_clean("taken@test", &["ann@mixed.example"]);
    assert_eq!(report_to(&lab, SENDER).recipients.len(), 2);
    assert_eq!(drained(&server).bounced, 2);
    assert_eq!(lab.recorder().copies_of("refused@test"), 0);
}

#[test]
fn a_routes_hosts_are_tried_in_turn() {
    let lab = TestLab::start("[[site]]\nname = 'routed.example'\ndns = 'nxdomain'\n");
    let second = format!("{}:{}", lab.scenario().sites()[0].hosts[0].address, lab.smtp_port());
    let first = format!("127.0.0.1:{}", closed_port());
    let server = builder(&lab).route("routed.example", &[&first, &second]).start();
    post(&server, &lab, &["ann@routed.example"], "route@test");
    lab.wait_clean("route@test", &["ann@routed.example"]);
    let refused = server.wait_log(&["connect: ", &first.replace("127.0.0.1:", "port="), "stat=Deferred"]);
    assert!(refused.contains("relay=[127.0.0.1]"), "{refused}");
}

#[test]
fn the_most_specific_route_wins_and_the_star_takes_the_rest() {
    let lab = TestLab::sites(&["unused.example"]);
    let [star, below, exact] = [(); 3].map(|()| Scribe::start(&["PIPELINING"], &[]));
    let server = builder(&lab)
        .route("*", &[&star.host()])
        .route(".corp.example", &[&below.host()])
        .route("hq.corp.example", &[&exact.host()])
        .start();
    let people = ["ann@anywhere.invalid", "bob@dev.corp.example", "cid@hq.corp.example"];
    server.smtp().send(SENDER, &people, &message("routes@test", "routes")).expect(250);
    assert_eq!(drained(&server).delivered, 3);
    for (scribe, to) in [(&star, people[0]), (&below, people[1]), (&exact, people[2])] {
        assert_eq!(scribe.heard("RCPT"), [format!("RCPT TO:<{to}>")]);
    }
}

#[test]
fn a_route_may_speak_lmtp() {
    let lab = TestLab::sites(&["unused.example"]);
    let store = Scribe::start(&["PIPELINING"], &[("RCPT TO:<bad@", "550 5.1.1 nobody of that name")]);
    let server = builder(&lab).route("store.example", &[&format!("lmtp:{}", store.host())]).start();
    let people = ["ann@store.example", "bad@store.example", "cid@store.example"];
    server.smtp().send("", &people, &message("lmtp@test", "lmtp")).expect(250);
    let fates = drained(&server);
    assert_eq!((fates.delivered, fates.bounced), (2, 1), "{:?}", store.lines());
    assert!(!store.heard("LHLO mx.test").is_empty() && store.heard("EHLO").is_empty(), "{:?}", store.lines());
}

#[test]
fn attempts_are_logged_with_sendmails_fields() {
    let lab = TestLab::start("[[site]]\nname = 'log.example'\nbehaviour = { reject_users = ['bad'] }\n");
    let server = builder(&lab).start();
    let id = post(&server, &lab, &["ann@log.example", "bad@log.example"], "log@test");
    let sent = server.wait_log(&["stat=Sent", "ann@log.example"]);
    for part in [
        &format!(" {id}: to=<ann@log.example>, from=<{SENDER}>, delay=") as &str,
        ", xdelay=",
        ", mailer=esmtp, relay=mx1.log.example. [127.16.0.1], tls=clear:not-offered, dsn=2.0.0, stat=Sent (250 2.0.0 taken)",
    ] {
        assert!(sent.contains(part), "{part} in {sent}");
    }
    let bounced = server.wait_log(&["stat=", "to=<bad@log.example>", "mailer=esmtp"]);
    assert!(bounced.contains("dsn=5.1.1, stat=") && bounced.contains("550 5.1.1 no such user here"), "{bounced}");
    let accepted = server.wait_log(&[&format!("{id}: from=<{SENDER}>")]);
    assert!(accepted.contains("nrcpts=2, msgid=<log@test>, proto=ESMTP"), "{accepted}");
}

#[test]
fn attempts_are_logged_as_json() {
    let lab = TestLab::sites(&["log.example"]);
    let server = builder(&lab).set("log.format", "\"json\"").set("log.attempts", "\"attempts.json\"").start();
    let id = post(&server, &lab, &["ann@log.example"], "json@test");
    lab.wait_clean("json@test", &["ann@log.example"]);
    drained(&server);
    let path = server.path("attempts.json");
    let lines = || std::fs::read_to_string(&path).unwrap_or_default();
    stentor_harness::wait_until("the attempt is logged", || lines().contains("\"event\":\"attempt\""));
    let lines: Vec<serde_json::Value> =
        lines().lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    let attempt = lines.iter().find(|line| line["event"] == "attempt").expect("it is there");
    assert_eq!((&attempt["id"], &attempt["to"][0]), (&id.into(), &"ann@log.example".into()), "{attempt}");
    assert_eq!((&attempt["stat"], &attempt["dsn"]), (&"Sent".into(), &"2.0.0".into()), "{attempt}");
    assert_eq!(attempt["relay"]["host"], "mx1.log.example");
}

#[test]
fn what_cannot_be_reached_anywhere_waits_and_is_shown() {
    let lab = TestLab::start("[[site]]\nname = 'gone.example'\nbehaviour = { connect = 'refuse' }\n");
    let server: Server = builder(&lab).start();
    let id = post(&server, &lab, &["ann@gone.example"], "gone@test");
    server.wait_log(&["connect: relay=mx1.gone.example", "stat=Deferred"]);
    let shown = server.operator(&["queue", "show", &id]);
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(text.contains("ann@gone.example") && text.contains(SENDER), "{text}");
    let queue = String::from_utf8_lossy(&server.operator(&["queue"]).stdout).into_owned();
    assert!(queue.contains("mx1.gone.example"), "{queue}");
}
