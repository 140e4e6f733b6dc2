//! REQUIRETLS (RFC 8689): who is offered it, where such mail goes, and how it comes back where it goes nowhere.

use stentor_harness::{Builder, Server, TestLab, dot_stuff, message, wait_until};

use crate::kit::{builder, closed_port, drained, fates, report_to};
use crate::quarantine::listed;
use crate::tls_in::{codes, session};
use crate::virtual_users::with;

/// Hosts that are proven (or not), and offer REQUIRETLS (or not). The sender's host takes nothing without it.
const WORLD: &str = "\
    [[site]]\nname = 'ready.example'\nbehaviour = { tls = 'good', requiretls = true, requiretls_only = true }\n\
    [[site]]\nname = 'old.example'\nbehaviour = { tls = 'good' }\n\
    [[site]]\nname = 'clear.example'\n\
    [[site]]\nname = 'self.example'\nbehaviour = { tls = 'self_signed', requiretls = true }\n\
    [[site]]\nname = 'unnamed.example'\nbehaviour = { tls = 'good', requiretls = true }\n\
    [[site]]\nname = 'both.example'\n\
    [[site.host]]\nbehaviour = { tls = 'good' }\n\
    [[site.host]]\nbehaviour = { tls = 'good', requiretls = true, requiretls_only = true }\n\
    [[site]]\nname = 'lost.example'\nbehaviour = { tls = 'eof', requiretls = true }\n\
    [[site]]\nname = 'plain.example'\n\
    [[site]]\nname = 'sender.example'\nbehaviour = { tls = 'good', requiretls = true, requiretls_only = true }\n";

/// All but `unnamed.example` are proven by the lab's CA, as far as they can be.
fn demanding(lab: &TestLab) -> Builder {
    let names = ["ready", "old", "clear", "self", "both", "lost"];
    let rules: Vec<String> =
        names.iter().map(|name| format!("{{ domain = '{name}.example', require = 'verify' }}")).collect();
    builder(lab)
        .file("ca.pem", stentor_lab::tls::ca_pem().as_bytes())
        .set("delivery.tls_ca_file", "\"ca.pem\"")
        .set("delivery.tls_timeout_s", "10")
        .set("tls_policy", &format!("[{}]", rules.join(", ")))
}

/// Hands in a message with REQUIRETLS over TLS.
#[track_caller]
fn require(server: &Server, from: &str, to: &[&str], id: &str) {
    let text = String::from_utf8(dot_stuff(&message(id, "A secret"))).expect("text");
    let text = text.strip_suffix("\r\n.\r\n").expect("an end of data").replace('\r', "\\r").replace('\n', "\\n");
    let (mail, body) = (format!("MAIL FROM:<{from}> REQUIRETLS"), format!("@message:{text}"));
    let rcpts: Vec<String> = to.iter().map(|to| format!("RCPT TO:<{to}>")).collect();
    let mut steps = vec!["EHLO c.example", "@starttls", "EHLO c.example", &mail];
    steps.extend(rcpts.iter().map(String::as_str));
    steps.extend([&*body, "QUIT"]);
    let said = session(server.address().port(), &steps);
    assert!(codes(&said).ends_with(&["250", "354", "250", "221"]), "{said:?}");
}

#[test]
fn it_is_offered_within_tls_only() {
    let lab = TestLab::start(WORLD);
    let server = demanding(&lab).start();
    let mail = "MAIL FROM:<ann@sender.example> REQUIRETLS";
    let said = session(server.address().port(), &["EHLO c", mail, "@starttls", "EHLO c", mail, "QUIT"]);
    assert_eq!(codes(&said), ["220", "250", "555", "220", "250", "250", "221"], "{said:?}");
    assert_eq!(said.iter().filter(|line| line.contains("REQUIRETLS")).count(), 1, "{said:?}");
}

/// The next hop hears of it, and a host without it is passed over for one that has it.
#[test]
fn it_goes_to_hosts_that_are_proven_and_promise_the_same() {
    let lab = TestLab::start(WORLD);
    let server = demanding(&lab).start();
    require(&server, "ann@sender.example", &["ann@ready.example", "bob@both.example"], "good@test");
    let sent = server.wait_log(&["to=<ann@ready.example>", "stat=Sent"]);
    assert!(sent.contains(":verified"), "{sent}");
    server.wait_log(&["to=<bob@both.example>", "stat=Sent"]);
    assert!(server.wait_log(&["from=<ann@sender.example>"]).contains("REQUIRETLS"));
    assert_eq!(drained(&server).delivered, 2);
    lab.assert_no_violations();
}

/// It comes back at once with the code that says why, without its content, and the report is as protected.
#[test]
fn it_is_returned_where_no_host_has_what_it_needs() {
    for (to, status) in [
        ("ann@old.example", "5.7.30"),
        ("ann@clear.example", "5.7.10"),
        ("ann@self.example", "5.7.10"),
        // Its certificate is good, but nothing says that it is this domain's.
        ("ann@unnamed.example", "5.7.10"),
    ] {
        let lab = TestLab::start(WORLD);
        let server = demanding(&lab).start();
        require(&server, "ann@sender.example", &[to], "back@test");
        let report = report_to(&lab, "ann@sender.example");
        report.assert_failed(to, status);
        assert!(report.original.contains("text/rfc822-headers"), "{}", report.original);
        assert!(report.original.contains("back@test") && !report.text.contains("Hello"), "{}", report.text);
        assert_eq!((drained(&server).bounced, lab.recorder().copies_to(to).len()), (1, 0));
        lab.assert_no_violations();
    }
}

/// What is only lost, or cannot be found out now, returns nothing: a handshake that broke, and a policy whose web
/// server is down.
#[test]
fn it_waits_where_nothing_is_known_of_the_host() {
    let published = "[[site]]\nname = 'unknown.example'\nbehaviour = { tls = 'good', requiretls = true }\n\
        [[record]]\nname = '_mta-sts.unknown.example'\ntype = 'TXT'\nvalue = 'v=STSv1; id=1;'\n\
        [[record]]\nname = 'mta-sts.unknown.example'\ntype = 'A'\nvalue = '127.0.0.1'\n";
    let lab = TestLab::start(&[WORLD, published].concat());
    let server = demanding(&lab)
        .set("delivery.sts_port", &closed_port().to_string())
        .set("delivery.sts_private_allowed", "true")
        .start();
    require(&server, "ann@sender.example", &["ann@lost.example", "bob@unknown.example"], "waits@test");
    let line = server.wait_log(&["connect: relay=", "mx1.lost.example", "stat=Deferred"]);
    assert!(line.contains("dsn=4.7.5"), "{line}");
    let line = server.wait_log(&["stat=Deferred", "MTA-STS policy of unknown.example"]);
    assert!(line.contains("dsn=4.7.5") && line.contains("could not check whether"), "{line}");
    let fates = fates(&server);
    assert_eq!((fates.pending, fates.bounced), (2, 0));
    lab.assert_no_violations();
}

/// A report that a host cannot take so is sent all the same (RFC 8689 section 5).
#[test]
fn a_report_is_not_lost_for_it() {
    let lab = TestLab::start(WORLD);
    let server = demanding(&lab).start();
    require(&server, "ann@plain.example", &["bob@old.example"], "lost@test");
    report_to(&lab, "ann@plain.example").assert_failed("bob@old.example", "5.7.30");
    lab.assert_no_violations();
}

/// The copies of a list are held to it as the post is, each subscriber by themself; other posts are not.
#[test]
fn a_list_passes_it_on() {
    let lab = TestLab::start(WORLD);
    let server = demanding(&lab)
        .list("news", &["ann@ready.example", "bob@old.example"])
        .set("lists.news.owner", "\"chief@plain.example\"")
        .start();
    require(&server, "ann@sender.example", &["news@lists.test"], "list@test");
    server.wait_log(&["to=<ann@ready.example>", "stat=Sent"]);
    report_to(&lab, "chief@plain.example").assert_failed("bob@old.example", "5.7.30");
    // Before a MAIL that is refused with RCPT and BDAT behind it, which the lab takes for out of order.
    lab.assert_no_violations();
    let wire = message("other@test", "x");
    lab.recorder().expect_message(wire.clone().into());
    server.smtp().send("ann@sender.example", &["news@lists.test"], &wire).expect(250);
    // The host of the other takes nothing without it.
    wait_until("the post is there", || !lab.recorder().copies_to("bob@old.example").is_empty());
    wait_until("and refused elsewhere", || fates(&server).bounced == 2);
}

/// What a start reads out of the journal is as demanding as before.
#[test]
fn it_stays_with_the_message_over_restarts() {
    let lab = TestLab::start(WORLD);
    let mut server = demanding(&lab).start();
    server.ask(&["suspend", "--sender", "sender.example", "--reason", "a test"]).expect("it is suspended");
    require(&server, "ann@sender.example", &["ann@ready.example", "bob@old.example"], "later@test");
    server.kill();
    server.start_again();
    server.ask(&["resume", "--sender", "sender.example"]).expect("it is resumed");
    report_to(&lab, "ann@sender.example").assert_failed("bob@old.example", "5.7.30");
    assert_eq!(drained(&server).delivered, 2, "the report and the copy");
    assert_eq!(lab.recorder().copies_to("ann@ready.example").len(), 1);
    lab.assert_no_violations();
}

/// By DANE: a host that its records prove gets such mail without a rule of ours. And the other way round, a message
/// that says that TLS is not required goes to one that fails its records, beside mail that waits.
#[test]
fn what_a_domain_publishes_proves_it_and_may_be_passed_over() {
    let port = closed_port();
    let record = |site: &str, hash: &str| {
        format!("[[record]]\nname = '_{port}._tcp.mx1.{site}.example'\ntype = 'TLSA'\nvalue = '3 1 1 {hash}'\n")
    };
    let own = stentor_lab::tls::key_sha256(stentor_lab::tls::Tls::SelfSigned, "mx1.ready.example");
    let lab = TestLab::start(&format!(
        "smtp_port = {port}\ndns_validates = true\n\
         [[site]]\nname = 'ready.example'\n\
         behaviour = {{ tls = 'self_signed', requiretls = true, requiretls_only = true }}\n\
         [[site]]\nname = 'broken.example'\nbehaviour = {{ tls = 'self_signed' }}\n\
         [[site]]\nname = 'sender.example'\n{}{}",
        record("ready", &own.expect("it makes a handshake")),
        record("broken", &"ab".repeat(32)),
    ));
    let server = builder(&lab).set("delivery.tls_timeout_s", "10").start();
    require(&server, "ann@sender.example", &["ann@ready.example"], "dane@test");
    let sent = server.wait_log(&["to=<ann@ready.example>", "stat=Sent"]);
    assert!(sent.contains(":dane-ee"), "{sent}");
    let wire = message("waits@test", "x");
    server.smtp().send("ann@sender.example", &["bob@broken.example"], &wire).expect(250);
    server.wait_log(&["mx1.broken.example", "dsn=4.7.5", "stat=Deferred"]);
    let relaxed = stentor_harness::message_with("goes@test", "Subject: x\r\nTLS-Required: No\r\n", "x\r\n");
    lab.recorder().expect_message(relaxed.clone().into());
    server.smtp().send("ann@sender.example", &["cid@broken.example"], &relaxed).expect(250);
    server.wait_log(&["to=<cid@broken.example>", "stat=Sent"]);
    assert_eq!((lab.recorder().copies_to("bob@broken.example").len(), fates(&server).pending), (0, 1));
    lab.assert_no_violations();
}

/// A copy from the quarantine has no sender, but is somebody's mail: it is held to what the message came with.
#[test]
fn a_copy_from_the_quarantine_is_held_to_it() {
    let lab = TestLab::start(WORLD);
    let rules = "[[rules]]\nrecipient = \"kept@ready.example\"\ndo = \"quarantine\"\n";
    let server = with(demanding(&lab), &[], rules);
    require(&server, "ann@sender.example", &["kept@ready.example"], "kept@test");
    let mut id = String::new();
    wait_until("the message is in the quarantine", || {
        let rows = listed(&server, &[]);
        id = rows.first().and_then(|row| row["id"].as_str()).unwrap_or_default().to_owned();
        !id.is_empty()
    });
    for (to, parts) in [("bob@old.example", ["stat=", "5.7.30"]), ("bob@ready.example", ["stat=Sent", ":verified"])] {
        assert!(server.operator(&["quarantine", "release", "--id", &id, "--to", to]).status.success());
        server.wait_log(&[&format!("to=<{to}>"), parts[0], parts[1]]);
    }
    assert!(lab.recorder().copies_to("bob@old.example").is_empty());
    lab.assert_no_violations();
}
