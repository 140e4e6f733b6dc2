//! TLS on the way out, at hosts of the lab that do it well or badly: what goes encrypted, what goes in clear and why,
//! what waits, and that none of it delays others.

use rustix::process::Signal;
use stentor_harness::{Builder, Server, TestLab, message, wait_until};

use crate::kit::{SENDER, bare, builder, fates, post, wait_fates};

/// What a host does about TLS, and the words of the records: where nothing is demanded, and why it is not enough for
/// `verify`.
const BROKEN: [(&str, &str, &str, &str); 19] = [
    ("selfsigned", "tls = 'self_signed'", ":unproven(self-signed)", ""),
    ("expired", "tls = 'expired'", ":unproven(expired)", ""),
    ("future", "tls = 'not_yet_valid'", ":unproven(not-yet-valid)", ""),
    ("wrongname", "tls = 'wrong_name'", ":unproven(wrong-name)", ""),
    ("oldversion", "tls = 'old_version'", "clear:", "TLS failed"),
    ("nocipher", "tls = 'no_cipher'", "clear:", "TLS failed"),
    ("plain", "tls = 'plain'", "clear:not-tls", "TLS failed"),
    ("garbage", "tls = 'garbage'", "clear:not-tls", "TLS failed"),
    ("eof", "tls = 'eof'", "clear:unexpected-eof", "TLS failed"),
    ("reset", "tls = 'reset'", "clear:io", "TLS failed"),
    ("silent", "tls = 'silent'", "clear:timeout", "TLS failed"),
    ("inject", "tls = 'inject'", "clear:injected", "unencrypted octets"),
    ("closeafter", "tls = 'close_after'", "clear:", ""),
    (
        "refuses",
        "tls = 'good', at_starttls = '454 4.7.0 TLS not available'",
        "clear:refused",
        "STARTTLS was refused: 454",
    ),
    ("unknown", "tls = 'good', at_starttls = '502 5.5.1 what'", "clear:refused", "STARTTLS was refused: 502"),
    ("drops", "tls = 'good', at_starttls = 'drop'", "clear:lost", "lost connection while sending STARTTLS"),
    ("resets", "tls = 'good', at_starttls = 'reset'", "clear:", "STARTTLS"),
    ("odd", "tls = 'good', script = ['starttls: say 250 fine']", "clear:protocol", "unexpected reply to STARTTLS"),
    ("none", "", "clear:not-offered", "STARTTLS is not offered"),
];

/// The broken sites, and a good one.
fn world() -> String {
    let site = |name: &str, keys: &str| format!("[[site]]\nname = '{name}.example'\nbehaviour = {{ {keys} }}\n");
    let broken: String = BROKEN.iter().map(|(name, keys, ..)| site(name, keys)).collect();
    broken + &site("good", "tls = 'good'") + "[[site]]\nname = 'sender.example'\n"
}

/// Trusts the lab's CA; a handshake has so long that only those that never end run out of it.
fn trusting(builder: Builder) -> Builder {
    builder
        .file("ca.pem", stentor_lab::tls::ca_pem().as_bytes())
        .set("delivery.tls_ca_file", "\"ca.pem\"")
        .set("delivery.tls_timeout_s", "5")
}

fn address(name: &str) -> String {
    format!("ann@{name}.example")
}

/// The line of the last attempt for this recipient.
fn wait_sent(server: &Server, to: &str) -> String {
    server.wait_log(&[&format!("to=<{to}>"), "stat=Sent"])
}

#[test]
fn mail_is_encrypted_where_the_host_can_and_the_next_session_is_resumed() {
    let lab = TestLab::start("[[site]]\nname = 'good.example'\nbehaviour = { tls = 'good', tls_required = true }\n");
    let server = trusting(builder(&lab)).set("delivery.idle_ms", "0").start();
    for n in 0..3 {
        let id = format!("{n}@test");
        let queue_id = post(&server, &lab, &["ann@good.example"], &id);
        lab.wait_clean(&id, &["ann@good.example"]);
        let line = server.wait_log(&[&queue_id, "stat=Sent"]);
        assert!(line.contains(", tls=TLSv1.3:TLS_") && line.contains(":verified, dsn=2.0.0"), "{line}");
    }
    let mut trace = String::new();
    wait_until("the trace has it", || {
        let output = server.operator(&["trace", "ann@good.example"]);
        trace = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        trace.contains("TLSv1.3:TLS_")
    });
    assert_eq!(fates(&server).delivered, 3);
}

/// In one attempt, over at most two connections, with the reason; and the next message does not fail first.
#[test]
fn broken_tls_stops_no_mail_where_nothing_is_demanded() {
    let lab = TestLab::start(&world());
    let server = trusting(builder(&lab)).set("delivery.idle_ms", "0").start();
    for round in 0..2 {
        let people: Vec<String> = BROKEN.iter().map(|(name, ..)| address(name)).collect();
        let people: Vec<&str> = people.iter().map(String::as_str).collect();
        let id = format!("{round}@test");
        let queue_id = post(&server, &lab, &people, &id);
        lab.wait(&id, |recorder| recorder.audit(&id, people.iter().copied()).missing.is_empty());
        for (name, _, word, _) in BROKEN {
            let line = server.wait_log(&[&queue_id, &format!("<{}>", address(name)), "stat=Sent"]);
            assert!(line.contains(", tls=") && line.contains(word), "{name}: {line}");
        }
    }
    assert_eq!((fates(&server).pending, fates(&server).bounced), (0, 0));
    let failed = server.log().matching(&["stat=Deferred"]);
    assert!(failed.is_empty(), "it was one attempt each: {failed:?}");
    let falls_back = |word: &str| word.starts_with("clear:") && !matches!(word, "clear:refused" | "clear:not-offered");
    let count = BROKEN.iter().filter(|(_, _, word, _)| falls_back(word)).count();
    let remembered = server.log().matching(&["temporarily sent unencrypted"]);
    assert_eq!(remembered.len(), count, "each broken host fails once: {remembered:?}");
    let connections = lab.stats().sinks.connections;
    assert!(connections <= (2 * BROKEN.len() + count) as u64, "{connections}");
}

/// Ways in which a host is busy, or refuses, within TLS or on the way to it.
const BUSY: [(&str, &str); 17] = [
    ("ehlo421", "tls-ehlo: say 421 4.3.2 busy; close"),
    ("ehlo421stays", "tls-ehlo: say 421 4.3.2 busy"),
    ("ehlo421lines", "tls-ehlo: say 421-4.3.2 we are\\r\\n421 4.3.2 busy; close"),
    ("ehlo450", "tls-ehlo: say 450 4.3.0 later"),
    ("ehlo451", "tls-ehlo: say 451 4.3.0 later; close"),
    ("ehlo452", "tls-ehlo: say 452 4.3.1 no room"),
    ("ehlo354", "tls-ehlo: say 354 go on"),
    ("ehlo554", "tls-ehlo: say 554 5.7.1 go away; close"),
    ("ehlo554reset", "tls-ehlo: say 554 5.7.1 go away; reset"),
    ("garbage", "tls-ehlo: say hello; close"),
    ("closes", "tls-ehlo: close"),
    ("mail421", "mail: say 421 4.3.2 busy; close"),
    ("mail451", "mail: say 451 4.3.0 later"),
    ("rcpt421", "rcpt: say 421 4.3.2 busy; close"),
    ("rcpt451", "rcpt: say 451 4.3.0 later"),
    ("bdat451", "bdat: say 451 4.3.0 later"),
    ("starttls421", "starttls: say 421 4.3.2 busy; close"),
];

/// A reply that was read within TLS is a reply: it defers, and costs one connection, as the same reply does in clear.
#[test]
fn a_host_that_is_busy_within_tls_gets_no_mail_in_clear() {
    let site = |name: &str, rule: &str| {
        format!("[[site]]\nname = '{name}.example'\nbehaviour = {{ tls = 'good', script = ['{rule}'] }}\n")
    };
    let scenario: String = BUSY.iter().map(|(name, rule)| site(name, rule)).collect();
    let lab = TestLab::start(&scenario);
    let server = trusting(builder(&lab))
        .set("delivery.idle_ms", "0")
        .set("retry.host_min_s", "600")
        .set("retry.host_max_s", "600")
        .set("retry.site_min_s", "600")
        .set("retry.site_max_s", "600")
        .set("retry.recipient_min_s", "600")
        .set("retry.recipient_max_s", "600")
        .start();
    let people: Vec<String> = BUSY.iter().map(|(name, _)| address(name)).collect();
    let people: Vec<&str> = people.iter().map(String::as_str).collect();
    post(&server, &lab, &people, "busy@test");
    for (name, _) in BUSY {
        server.wait_log(&["stat=Deferred", &format!("mx1.{name}.example")]);
    }
    let clear = server.log().matching(&["clear:"]);
    assert!(clear.is_empty() && server.log().matching(&["temporarily sent unencrypted"]).is_empty(), "{clear:?}");
    assert_eq!((fates(&server).pending, fates(&server).delivered), (BUSY.len() as u64, 0));
    assert_eq!(lab.stats().sinks.connections, BUSY.len() as u64, "one each");
}

/// A middlebox that was mended, or a reset by chance: nobody has to wait until it is forgotten.
#[test]
fn a_flush_of_the_site_tries_tls_again() {
    let lab = TestLab::start(&world());
    let server = trusting(builder(&lab)).set("delivery.idle_ms", "0").start();
    let send = |id: &str| {
        post(&server, &lab, &["ann@reset.example", "ann@eof.example"], id);
        lab.wait_clean(id, &["ann@reset.example", "ann@eof.example"]);
    };
    send("1@test");
    send("2@test");
    let failed = |site: &str| server.log().matching(&["temporarily sent unencrypted", site]).len();
    wait_until("both have failed", || failed("mx1.reset.example") == 1 && failed("mx1.eof.example") == 1);
    // One that is still open would take the next message, in clear.
    wait_until("the sessions are over", || server.status()["connections_out"] == 0);
    let dry = server.operator(&["flush", "mx1.reset.example", "--dry-run"]);
    assert!(!String::from_utf8_lossy(&dry.stdout).contains("TLS"), "{dry:?}");
    let flushed = server.operator(&["flush", "mx1.reset.example"]);
    let said = String::from_utf8_lossy(&flushed.stdout).into_owned();
    assert!(said.contains("; TLS is retried with 1 host, where it had failed"), "{said}");
    send("3@test");
    wait_until("it has failed again", || failed("mx1.reset.example") == 2);
    assert_eq!(failed("mx1.eof.example"), 1);
}

/// It waits with the reason, at its own site, and the same hosts serve others; nobody's mailbox is to blame.
#[test]
fn broken_tls_keeps_mail_back_where_it_is_demanded() {
    let lab = TestLab::start(&world());
    let server = trusting(builder(&lab)).set("delivery.tls", "\"verify\"").start();
    let people: Vec<String> = BROKEN.iter().map(|(name, ..)| address(name)).collect();
    let mut to: Vec<&str> = people.iter().map(String::as_str).collect();
    to.push("ann@good.example");
    post(&server, &lab, &to, "demand@test");
    lab.wait_clean("demand@test", &["ann@good.example"]);
    for (name, _, _, why) in BROKEN {
        let site = format!("mx1.{name}.example");
        let line = server.wait_log(&["connect: relay=", &site, "stat=Deferred"]);
        assert!(line.contains("dsn=4.7.5") && line.contains(why), "{name}: {line}");
        assert!(line.contains(", tls=failed:"), "{name}: {line}");
    }
    wait_until("each waits for TLS", || {
        let queue = server.queue();
        let rows = queue["causes"].as_array().cloned().unwrap_or_default();
        rows.iter().any(|row| row["cause"] == "tls" && row["recipients"] == BROKEN.len())
    });
    assert_eq!(fates(&server).bounced, 0);
    let hosts = server.operator(&["hosts"]);
    let hosts = String::from_utf8_lossy(&hosts.stdout).into_owned();
    assert!(hosts.contains("mx1.expired.example;tls=verify(hostname)"), "{hosts}");
}

#[test]
fn a_domain_that_demands_more_delays_none_at_the_same_hosts() {
    let lab = TestLab::start(
        "[[site]]\nname = 'host.example'\ndomains = ['a.example', 'b.example']\nbehaviour = { tls = 'self_signed' }\n",
    );
    let server = trusting(builder(&lab))
        .set("tls_policy", "[{ domain = 'a.example', require = 'verify' }]")
        .set("retry.host_min_s", "60")
        .set("retry.host_max_s", "60")
        .start();
    post(&server, &lab, &["ann@a.example"], "a@test");
    server.wait_log(&["connect: relay=", "stat=Deferred: TLS failed"]);
    // The host has a clock of a minute, for a.example alone.
    for n in 0..3 {
        let id = format!("b{n}@test");
        post(&server, &lab, &["bob@b.example"], &id);
        lab.wait_clean(&id, &["bob@b.example"]);
    }
    wait_fates(&server, "all of it is settled", |now| (now.pending, now.delivered) == (1, 3));
}

#[test]
fn a_list_or_sender_that_demands_more_waits_alone() {
    let lab = TestLab::start(
        "[[site]]\nname = 'clear.example'\n[[site]]\nname = 'good.example'\nbehaviour = { tls = 'good' }\n\
         [[site]]\nname = 'sender.example'\n",
    );
    let rules =
        "[{ sender = 'boss@sender.example', require = 'encrypt' }, { sender = 'law.example', require = 'verify' }]";
    let server = trusting(builder(&lab)).set("tls_policy", rules).start();
    let send =
        |from: &str, to: &str, id: &str| server.smtp().send(from, &[to], &message(id, "x")).expect(250).queue_id();
    let waits = send("boss@sender.example", "ann@clear.example", "boss@test");
    let line = server.wait_log(&[&waits, "stat=Deferred"]);
    assert!(line.contains("dsn=4.7.10") && line.contains("encrypt is required: clear:not-offered"), "{line}");
    send(SENDER, "ann@clear.example", "other@test");
    send("boss@sender.example", "ann@good.example", "boss2@test");
    send("eve@law.example", "ann@good.example", "law@test");
    wait_until("the others are delivered", || fates(&server).delivered == 3);
    assert_eq!(fates(&server).pending, 1);
    // It may be tried again just now.
    wait_until("the cause is shown", || {
        server.queue()["causes"].as_array().is_some_and(|rows| rows.iter().any(|row| row["cause"] == "tls"))
    });
}

#[test]
fn what_is_demanded_and_there_is_delivered() {
    let lab = TestLab::start(
        "[[site]]\nname = 'good.example'\nbehaviour = { tls = 'good', tls_required = true }\n\
         [[site]]\nname = 'self.example'\nbehaviour = { tls = 'self_signed', tls_required = true }\n\
         [[site]]\nname = 'clear.example'\nbehaviour = { tls = 'eof' }\n",
    );
    let rules = "[{ site = 'good.example', require = 'verify', names = ['.good.example'] }, \
                  { domain = 'self.example', require = 'encrypt' }, { domain = 'clear.example', require = 'none' }]";
    let server = trusting(builder(&lab)).set("tls_policy", rules).start();
    let to = ["ann@good.example", "bob@self.example", "cid@clear.example"];
    post(&server, &lab, &to, "all@test");
    lab.wait_clean("all@test", &to);
    assert!(wait_sent(&server, to[0]).contains(":verified"));
    assert!(wait_sent(&server, to[1]).contains(":unproven(self-signed)"));
    let clear = wait_sent(&server, to[2]);
    assert!(!clear.contains("tls="), "on purpose: {clear}");
    assert_eq!(lab.stats().sinks.connections, 3);
}

/// A host that hangs in the handshake holds up its own mail for as long, and no other.
#[test]
fn a_handshake_that_hangs_slows_no_other_site() {
    let lab = TestLab::start(
        "[[site]]\nname = 'silent.example'\nbehaviour = { tls = 'silent' }\n\
         [[site]]\nname = 'good.example'\nbehaviour = { tls = 'good' }\n",
    );
    let server = trusting(builder(&lab)).set("delivery.tls_timeout_s", "600").start();
    for n in 0..20 {
        server.smtp().send(SENDER, &["ann@silent.example"], &message(&format!("s{n}@test"), "x")).expect(250);
    }
    for n in 0..50 {
        server.smtp().send(SENDER, &["ann@good.example"], &message(&format!("g{n}@test"), "x")).expect(250);
    }
    wait_until("the good site has all", || fates(&server).delivered == 50);
    assert_eq!(fates(&server).pending, 20);
}

#[test]
fn a_policy_that_names_nothing_real_is_an_error_with_its_place() {
    let server = bare().set("tls_policy", "[{ domain = 'a.example', require = 'verifies' }]").prepare();
    let output = server.operator(&["check"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("`verifies` is not a valid requirement"), "{text}");
}

/// It is found before a session needs it, and those that were read before stay in force.
#[test]
fn a_broken_file_of_cas_fails_the_start_and_the_reload() {
    let lab = TestLab::start("[[site]]\nname = 'good.example'\nbehaviour = { tls = 'good' }\n");
    let server = trusting(builder(&lab)).set("delivery.tls", "\"verify\"").start();
    std::fs::write(server.folder().join("ca.pem"), "nothing").unwrap();
    server.signal(Signal::HUP);
    let line = server.wait_log(&["ca.pem"]);
    assert!(line.contains("stentor.toml:"), "{line}");
    server.wait_log(&["the old one stays in force"]);
    post(&server, &lab, &["ann@good.example"], "verified@test");
    lab.wait_clean("verified@test", &["ann@good.example"]);
    let mut prepared = trusting(bare()).file("ca.pem", b"nothing").prepare();
    let checked = prepared.operator(&["check"]);
    let text = String::from_utf8_lossy(&checked.stderr).into_owned() + &String::from_utf8_lossy(&checked.stdout);
    assert!(!checked.status.success() && text.contains("ca.pem"), "{text}");
    let command = prepared.command();
    let log = prepared.try_start_as(command).unwrap_err();
    assert!(log.contains("stentor.toml:") && log.contains("ca.pem"), "{log}");
}

/// The route, its login, and what the host wants; the last word of the log about it.
fn smart_host(lab: &TestLab, behaviour_user: &str) -> Builder {
    let host = format!("mx1.relay.example:{}", lab.smtp_port());
    let section = format!("smart_hosts.\"{host}\"");
    trusting(builder(lab))
        .route("tap.example", &[&host])
        .file("relay.secret", b"s3cret-here\n")
        .set_in(&section, "user", &format!("\"{behaviour_user}\""))
        .set_in(&section, "secret_file", "\"relay.secret\"")
}

#[test]
fn we_log_in_at_a_smart_host_that_is_proven() {
    let lab = TestLab::start(
        "[[site]]\nname = 'relay.example'\nrelay = true\n\
         behaviour = { tls = 'good', tls_required = true, auth = 'ann:s3cret-here' }\n",
    );
    let server = smart_host(&lab, "ann").start();
    post(&server, &lab, &["bob@tap.example"], "login@test");
    lab.wait_clean("login@test", &["bob@tap.example"]);
    assert!(wait_sent(&server, "bob@tap.example").contains(":verified"));
}

#[test]
fn a_login_that_is_refused_waits_and_shows_no_secret() {
    for (behaviour, user, why) in [
        ("tls = 'good', auth = 'ann:other'", "ann", "AUTH refused: 535 5.7.8 wrong name or password"),
        ("tls = 'self_signed', auth = 'ann:s3cret-here'", "ann", "is self-signed"),
        ("auth = 'ann:s3cret-here', auth_in_clear = true", "ann", "is not proven (the session is in clear)"),
        // A digest is not answered to it either: it may have chosen the challenge.
        (
            "script = ['ehlo: say 250-mx1\\r\\n250 AUTH CRAM-MD5']",
            "ann",
            "its mechanisms (CRAM-MD5) would expose the password",
        ),
        // Nor a proof of SCRAM, with salt and rounds of its choice.
        (
            "script = ['ehlo: say 250-mx1\\r\\n250 AUTH SCRAM-SHA-256 SCRAM-SHA-256-PLUS']",
            "ann",
            "its mechanisms (SCRAM-SHA-256-PLUS SCRAM-SHA-256) would expose the password",
        ),
        ("tls = 'good'", "ann", "cannot log in: the host does not offer AUTH"),
        ("tls = 'good', auth = 'ann:s3cret-here', at_auth = '454 4.7.0 later'", "ann", "AUTH refused: 454"),
        (
            "tls = 'good', auth = 'ann:s3cret-here', script = ['auth: say 535 no AGFubgBzM2NyZXQtaGVyZQ== s3cret-here']",
            "ann",
            "AUTH refused: 535 no (hidden) (hidden)",
        ),
    ] {
        let lab =
            TestLab::start(&format!("[[site]]\nname = 'relay.example'\nrelay = true\nbehaviour = {{ {behaviour} }}\n"));
        let server = smart_host(&lab, user).start();
        server.smtp().send(SENDER, &["bob@tap.example"], &message("no@test", "x")).expect(250);
        let line = server.wait_log(&["connect: relay=", "stat=Deferred"]);
        assert!(line.contains("dsn=4.7.8") && line.contains(why), "{behaviour}: {line}");
        let queue = server.queue();
        assert!(
            queue["causes"].as_array().is_some_and(|rows| rows.iter().any(|row| row["cause"] == "auth")),
            "{queue}"
        );
        let all = server.log().lines().join("\n");
        assert!(!all.contains("s3cret") && !all.contains("AGFubg"), "{all}");
    }
}
