//! Names: DNS answers, right or wrong, and where mail then goes (RFC 5321 5.1, RFC 7505, bad-input row "DNS").

use std::collections::BTreeSet;

use stentor_harness::{Builder, Server, TestLab, message};

use crate::kit::{SENDER, SENDER_SITE, builder, data, drained, fates, post, report_to, wait_fates};

/// Hosts that took something, from the log of attempts.
fn relays(server: &Server) -> BTreeSet<String> {
    server.wait_log(&["stat=Sent", "relay="]);
    let lines = server.log().matching(&["stat=Sent", "relay="]);
    let host = |line: &String| line.split("relay=").nth(1).and_then(|r| r.split(". ").next()).map(str::to_owned);
    lines.iter().filter_map(host).collect()
}

#[test]
fn the_most_preferred_host_is_used() {
    let lab = TestLab::start(
        "[[site]]\nname = 'pref.example'\n\
         [[site.host]]\nname = 'spare.pref.example'\npreference = 20\n\
         [[site.host]]\nname = 'best.pref.example'\npreference = 5\n",
    );
    let server = builder(&lab).start();
    for n in 0..10 {
        post(&server, &lab, &["ann@pref.example"], &format!("{n}@test"));
    }
    lab.wait_copies(10);
    drained(&server);
    server.log().wait_nth(&["stat=Sent"], 10);
    assert_eq!(relays(&server), BTreeSet::from(["best.pref.example".to_owned()]));
}

#[test]
fn the_next_host_is_used_when_the_best_is_away() {
    let lab = TestLab::start(
        "[[site]]\nname = 'pref.example'\n\
         [[site.host]]\nname = 'spare.pref.example'\npreference = 20\n\
         [[site.host]]\nname = 'best.pref.example'\npreference = 5\nbehaviour = { connect = 'refuse' }\n\
         [[site]]\nname = 'busy.example'\n\
         [[site.host]]\nname = 'spare.busy.example'\npreference = 20\n\
         [[site.host]]\nname = 'best.busy.example'\npreference = 5\nbehaviour = { at_greeting = '421 4.3.2 busy' }\n",
    );
    // The best host's clock is far away: the spare does not wait for it.
    let server = builder(&lab).set("retry.host_min_s", "3600").set("retry.host_max_s", "3600").start();
    post(&server, &lab, &["ann@pref.example", "bob@busy.example"], "spare@test");
    lab.wait_clean("spare@test", &["ann@pref.example", "bob@busy.example"]);
}

#[test]
fn equal_preferences_are_spread() {
    let hosts: String = (1..=4).map(|n| format!("[[site.host]]\nname = 'mx{n}.even.example'\n")).collect();
    let lab = TestLab::start(&format!("[[site]]\nname = 'even.example'\n{hosts}"));
    let server = builder(&lab)
        .set("delivery.transactions_per_connection_max", "1")
        .set("delivery.connections_per_site_max", "1")
        .start();
    for n in 0..40 {
        post(&server, &lab, &["ann@even.example"], &format!("{n}@test"));
    }
    lab.wait_copies(40);
    server.log().wait_nth(&["stat=Sent"], 40);
    assert!(relays(&server).len() > 1, "all at {:?}", relays(&server));
}

#[test]
fn odd_but_right_answers_lead_to_the_host() {
    let kinds = ["no_mx", "cname_chain", "many_mx", "truncated", "mx_is_address"];
    let site = |kind: &str| format!("[[site]]\nname = '{}.example'\ndns = '{kind}'\n", kind.replace('_', "-"));
    let lab = TestLab::start(&kinds.map(site).concat());
    let server = builder(&lab).start();
    let people: Vec<String> = kinds.iter().map(|kind| format!("ann@{}.example", kind.replace('_', "-"))).collect();
    let people: Vec<&str> = people.iter().map(String::as_str).collect();
    post(&server, &lab, &people, "odd@test");
    lab.wait_clean("odd@test", &people);
    let dns = lab.stats().dns;
    assert!(dns.tcp > 0, "truncated answers and those of 1,000 MX are asked for again over TCP: {dns:?}");
    assert!(dns.address < 200, "of 1,000 hosts a bounded number is looked up: {dns:?}");
}

/// A domain, and the status of the report that must come.
fn bounces(kind: &str, status: &str) {
    let lab = TestLab::start(&format!("{SENDER_SITE}[[site]]\nname = 'wrong.example'\ndns = '{kind}'\n"));
    let server = builder(&lab).start();
    post(&server, &lab, &["ann@wrong.example"], "wrong@test");
    report_to(&lab, SENDER).assert_failed("ann@wrong.example", status);
    let fates = drained(&server);
    assert_eq!((fates.bounced, fates.delivered), (1, 1), "the recipient, and its report: {fates:?}");
    assert_eq!(lab.recorder().copies_of("wrong@test"), 0);
}

#[test]
fn null_mx_bounces() {
    bounces("null_mx", "5.1.10");
}

#[test]
fn a_domain_that_does_not_exist_bounces() {
    bounces("nxdomain", "5.1.2");
}

#[test]
fn a_domain_without_any_host_bounces() {
    bounces("empty", "5.4.4");
}

#[test]
fn mx_hosts_that_do_not_exist_bounce() {
    bounces("mx_nxdomain", "5.4.4");
}

#[test]
fn a_loop_of_cnames_bounces() {
    bounces("cname_loop", "5.4.6");
}

#[test]
fn an_mx_with_our_name_is_a_loop() {
    let lab = TestLab::start(&format!(
        "self_name = 'mx.test'\nself_address = '127.0.0.1'\n{SENDER_SITE}[[site]]\nname = 'ours.example'\ndns = 'self_mx'\n"
    ));
    let server = builder(&lab).start();
    post(&server, &lab, &["ann@ours.example"], "ours@test");
    report_to(&lab, SENDER).assert_failed("ann@ours.example", "5.4.6");
}

#[test]
fn an_mx_that_leads_to_our_listener_is_a_loop() {
    let lab = TestLab::start(&format!(
        "self_name = 'other.example'\nself_address = '127.99.0.1'\n{SENDER_SITE}[[site]]\nname = 'ours.example'\ndns = 'self_mx'\n"
    ));
    let listen = format!("[\"127.99.0.1:{}\"]", lab.smtp_port());
    let server = builder(&lab).set("listen.smtp", &listen).start();
    post(&server, &lab, &["ann@ours.example"], "ours@test");
    report_to(&lab, SENDER).assert_failed("ann@ours.example", "5.4.6");
}

#[test]
fn a_loopback_address_from_the_dns_is_not_used() {
    let lab = TestLab::start(&format!(
        "{SENDER_SITE}[[site]]\nname = 'trap.example'\ndns = 'loopback_mx'\n[[site]]\nname = 'lure.example'\n"
    ));
    let home = format!("{}:{}", lab.scenario().sites()[0].hosts[0].address, lab.smtp_port());
    let server = builder(&lab).set("dns.loopback_allowed", "false").route("sender.example", &[&home]).start();
    post(&server, &lab, &["ann@trap.example", "bob@lure.example"], "trap@test");
    let report = report_to(&lab, SENDER);
    drained(&server);
    for who in ["ann@trap.example", "bob@lure.example"] {
        let reports = lab.recorder().copies_to(SENDER);
        let told = reports.iter().any(|copy| {
            String::from_utf8_lossy(copy.body.as_ref().expect("bodies are kept"))
                .contains(&format!("Final-Recipient: rfc822; {who}"))
        });
        assert!(told, "{who}: {}", report.text);
    }
    assert!(report.recipients.iter().all(|about| about["status"] == "5.4.6"), "{}", report.text);
    assert_eq!(lab.recorder().copies_of("trap@test"), 0);
}

/// Waits until the lookup of the only recipient has failed, and asserts that nothing is given up.
fn defers(builder: Builder, lab: &TestLab, kind: &str) {
    let server = builder.start();
    let id = post(&server, lab, &["ann@ill.example"], "ill@test");
    stentor_harness::wait_until(&format!("{kind}: the lookup has failed"), || {
        let lines = server.operator_json(&["queue", "show", &id]);
        let recipients = data(lines[lines.len() - 1].clone());
        recipients[0]["state"] == "deferred" && recipients[0]["last_reply"].as_str().is_some_and(|why| !why.is_empty())
    });
    let fates = fates(&server);
    assert_eq!((fates.pending, fates.bounced, fates.expired), (1, 0, 0), "{kind}: {fates:?}");
    assert_eq!(lab.stats().sinks.connections, 0, "{kind}: nobody was bothered");
}

#[test]
fn what_the_dns_cannot_say_defers() {
    for kind in ["servfail", "refused", "timeout", "wrong_name", "wrong_id", "garbage"] {
        let lab = TestLab::start(&format!("{SENDER_SITE}[[site]]\nname = 'ill.example'\ndns = '{kind}'\n"));
        defers(builder(&lab).set("dns.timeout_ms", "100"), &lab, kind);
    }
}

#[test]
fn a_dead_dns_defers_and_routes_go_on() {
    let lab = TestLab::sites(&["ill.example", "routed.example"]);
    let host = format!("{}:{}", lab.scenario().sites()[1].hosts[0].address, lab.smtp_port());
    let dead = builder(&lab).set("dns.servers", "[\"127.0.0.1:9\"]").set("dns.timeout_ms", "100");
    let server = dead.route("routed.example", &[&host]).start();
    let people: Vec<String> = (0..50).map(|n| format!("user{n}@ill{n}.example")).collect();
    let people: Vec<&str> = people.iter().map(String::as_str).collect();
    post(&server, &lab, &people, "dead@test");
    post(&server, &lab, &["ann@routed.example"], "alive@test");
    lab.wait_clean("alive@test", &["ann@routed.example"]);
    let now = wait_fates(&server, "the routed one is done with", |now| now.pending == 50);
    assert_eq!((now.bounced, now.expired), (0, 0), "{now:?}");
}

#[test]
fn after_an_outage_of_the_dns_mail_goes_on() {
    let lab =
        TestLab::start("[[site]]\nname = 'back.example'\n[[site.window]]\nfrom_s = 0\nto_s = 2\ndns = 'servfail'\n");
    let server = builder(&lab).start();
    post(&server, &lab, &["ann@back.example"], "back@test");
    stentor_harness::wait_until("the outage is over", || lab.recorder().now_us() > 2_100_000);
    assert!(server.operator(&["flush"]).status.success());
    lab.wait_clean("back@test", &["ann@back.example"]);
}

#[test]
fn answers_are_kept_for_their_time_to_live() {
    let lab = TestLab::start(&format!("{SENDER_SITE}[[site]]\nname = 'none.example'\ndns = 'nxdomain'\n"));
    // One question each: a second one would be counted, too.
    let server = builder(&lab).set("dns.timeout_ms", "20000").set("dns.attempts", "1").start();
    for n in 0..5 {
        post(&server, &lab, &["ann@none.example"], &format!("{n}@test"));
        lab.wait("its report", |recorder| recorder.copies_to(SENDER).len() > n);
    }
    assert_eq!(lab.lab().mx_queries("none.example"), 1, "a negative answer is kept");
    assert_eq!(lab.lab().mx_queries("sender.example"), 1);
}

#[test]
fn address_literals_are_reached_without_the_dns() {
    let lab = TestLab::start(
        "[[site]]\nname = 'literal.example'\ndomains = ['[127.77.0.1]']\n[[site.host]]\naddress = '127.77.0.1'\n",
    );
    let server = builder(&lab).start();
    server.smtp().send(SENDER, &["ann@[127.77.0.1]"], &message("literal@test", "literal")).expect(250);
    lab.wait("a copy", |recorder| recorder.copies_of("literal@test") == 1);
    assert_eq!(lab.stats().dns.mx, 0);
}

/// A name server that answers for one of 251 domains: the mail to it does not wait for what the others' lookups come
/// to.
#[test]
fn silent_name_servers_hold_up_nobody() {
    const SILENT: usize = 250;
    let sites: String =
        (0..SILENT).map(|n| format!("[[site]]\nname = 'd{n}.silent.example'\ndns = 'timeout'\n")).collect();
    let lab = TestLab::start(&format!("{SENDER_SITE}[[site]]\nname = 'good.example'\n{sites}"));
    let server = builder(&lab)
        .set("dns.timeout_ms", "60000")
        .set("dns.attempts", "1")
        .set("delivery.resolves_max", "100")
        .start();
    let silent: Vec<String> = (0..SILENT).map(|n| format!("ann@d{n}.silent.example")).collect();
    let silent: Vec<&str> = silent.iter().map(String::as_str).collect();
    post(&server, &lab, &silent, "silent@test");
    post(&server, &lab, &["bob@good.example"], "good@test");
    lab.wait_clean("good@test", &["bob@good.example"]);
    // None of them had ended, by an answer or a time-out.
    wait_fates(&server, "the other is done with", |now| now.pending == SILENT as u64);
    let tried = server.log().matching(&["silent.example", "stat=Deferred"]);
    assert!(tried.is_empty(), "{tried:?}");
}
