//! Hosts that are spoken to by TLS from the first octet: `smtps:` before a next hop, at any port.

use stentor_harness::{Builder, TestLab};

use crate::kit::{builder, post};

/// One host that has TLS first, and one that has STARTTLS.
const WORLD: &str = "\
    [[site]]\nname = 'first.example'\nrelay = true\nbehaviour = { tls = 'good', tls_implicit = true }\n\
    [[site]]\nname = 'later.example'\nrelay = true\nbehaviour = { tls = 'good', tls_required = true }\n\
    [[site]]\nname = 'login.example'\nrelay = true\nbehaviour = { tls = 'good', tls_implicit = true, auth = 'ann:s3cret-here' }\n\
    [[site]]\nname = 'sender.example'\n";

fn trusting(lab: &TestLab) -> Builder {
    builder(lab)
        .file("ca.pem", stentor_lab::tls::ca_pem().as_bytes())
        .set("delivery.tls_ca_file", "\"ca.pem\"")
        .set("delivery.tls_timeout_s", "10")
        .set("delivery.greeting_timeout_s", "2")
}

fn host(lab: &TestLab, word: &str, site: &str) -> String {
    format!("{word}mx1.{site}.example:{}", lab.smtp_port())
}

#[test]
fn mail_goes_by_tls_from_the_first_octet_at_any_port() {
    let lab = TestLab::start(WORLD);
    let first = host(&lab, "smtps:", "first");
    for tls in ["sts", "none", "verify"] {
        let server = trusting(&lab).set("delivery.tls", &format!("\"{tls}\"")).route("tap.example", &[&first]).start();
        let id = format!("{tls}@test");
        let queue_id = post(&server, &lab, &["bob@tap.example"], &id);
        lab.wait_clean(&id, &["bob@tap.example"]);
        let line = server.wait_log(&[&queue_id, "stat=Sent"]);
        assert!(line.contains(", tls=TLSv1.3:TLS_"), "{tls}: {line}");
        let sites = server.operator_text(&["hosts"]);
        assert!(sites.contains(&format!("route:{first}")), "{sites}");
    }
}

/// The word is said where the host is named, wherever that is.
#[test]
fn hops_rules_and_tables_have_the_word() {
    let lab = TestLab::start(WORLD);
    let first = host(&lab, "smtps:", "first");
    let transport = format!("table.example smtps:[mx1.first.example]:{}\n", lab.smtp_port());
    let server = trusting(&lab)
        .set_in("hops", "gate", &format!("[\"{first}\"]"))
        .route("hop.example", &["hop:gate"])
        .file("transport", transport.as_bytes())
        .set("tables.ways", "{ source = \"texthash:transport\", as = \"transport\" }")
        .set("routing.tables", "[\"ways\"]")
        .set("rules", &format!("[{{ recipient = \"rule.example\", do = \"route {first}\" }}]"))
        .start();
    for domain in ["hop.example", "table.example", "rule.example"] {
        let (to, id) = (format!("bob@{domain}"), format!("{domain}@test"));
        let queue_id = post(&server, &lab, &[&to], &id);
        lab.wait_clean(&id, &[&to]);
        let line = server.wait_log(&[&queue_id, "stat=Sent"]);
        assert!(line.contains("relay=mx1.first.example") && line.contains(", tls=TLSv1.3:TLS_"), "{domain}: {line}");
        let explained = server.operator_text(&["explain", "--from", "ann@sender.example", "--to", &to]);
        assert!(explained.contains("smtps:mx1.first.example:"), "{explained}");
    }
}

/// The same host in two ways: the one that is wrong neither delays the other nor gets its connections.
#[test]
fn one_host_in_two_ways_is_two_sites() {
    let lab = TestLab::start(WORLD);
    let server = trusting(&lab)
        .route("right.example", &[&host(&lab, "smtps:", "first")])
        .route("wrong.example", &[&host(&lab, "", "first")])
        .start();
    server.smtp().send("ann@sender.example", &["bob@wrong.example"], b"Subject: x\r\n\r\nx\r\n").expect(250);
    server.wait_log(&["relay=mx1.first.example", "stat=Deferred"]);
    for n in 0..2 {
        let id = format!("{n}@test");
        post(&server, &lab, &["bob@right.example"], &id);
        lab.wait_clean(&id, &["bob@right.example"]);
    }
    assert!(lab.recorder().copies_to("bob@wrong.example").is_empty());
    // And a host with STARTTLS gets none of it: it waits, and never goes in clear.
    let server = trusting(&lab).route("tap.example", &[&host(&lab, "smtps:", "later")]).start();
    server.smtp().send("ann@sender.example", &["bob@tap.example"], b"Subject: x\r\n\r\nx\r\n").expect(250);
    let line = server.wait_log(&["relay=mx1.later.example", "stat=Deferred"]);
    assert!(line.contains("TLS failed") && line.contains("tls=failed:"), "{line}");
}

#[test]
fn checks_and_logins_know_it() {
    let lab = TestLab::start(WORLD);
    let (login, named) = (host(&lab, "smtps:", "login"), host(&lab, "", "login"));
    let section = format!("smart_hosts.\"{named}\"");
    let server = trusting(&lab)
        .route("tap.example", &[&login])
        .route("clear.example", &[&host(&lab, "", "later")])
        .file("relay.secret", b"s3cret-here\n")
        .set_in(&section, "user", "\"ann\"")
        .set_in(&section, "secret_file", "\"relay.secret\"")
        .start();
    let checked = server.operator_text(&["tls", "check", "tap.example"]);
    for wanted in [
        &format!("site         route:{login}\n")[..],
        "TLS          from the first octet\n",
        " as ann: accepted\n",
        "the host is verified",
    ] {
        assert!(checked.contains(wanted), "{wanted}: {checked}");
    }
    assert!(!checked.contains("STARTTLS"), "{checked}");
    let other = server.operator_text(&["tls", "check", "clear.example"]);
    assert!(other.contains("STARTTLS     offered\n") && !other.contains("first octet"), "{other}");
    post(&server, &lab, &["bob@tap.example"], "login@test");
    lab.wait_clean("login@test", &["bob@tap.example"]);
    assert!(!server.operator_text(&["check"]).contains("no route uses"), "the login is that of the host and port");
}

/// Recipients of a relay domain are asked for over the same kind of session.
#[test]
fn call_ahead_asks_by_tls_from_the_first_octet() {
    let lab = TestLab::start(
        "[[site]]\nname = 'first.example'\nrelay = true\n\
         behaviour = { tls = 'good', tls_implicit = true, reject_users = ['nobody'] }\n[[site]]\nname = 'sender.example'\n",
    );
    let server = trusting(&lab)
        .set("client_networks", "[\"192.0.2.1\"]")
        .set("domains.relay", "[\"tap.example\"]")
        .set("call_ahead.domains", "[\"tap.example\"]")
        .route("tap.example", &[&host(&lab, "smtps:", "first")])
        .start();
    let mut smtp = server.smtp();
    smtp.cmd("EHLO c").expect(250);
    smtp.cmd("MAIL FROM:<ann@sender.example>").expect(250);
    smtp.cmd("RCPT TO:<nobody@tap.example>").expect(550);
    smtp.cmd("RCPT TO:<bob@tap.example>").expect(250);
}
