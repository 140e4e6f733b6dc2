//! DANE as shipped, at hosts of the lab whose DNS says what is authentic: what is proven, what waits and why, and that
//! nothing that is not authentic counts. The same cases beside Postfix, over zones that are signed:
//! `bench/scenarios/tls_dane.py`.

use stentor_harness::{Builder, Server, TestLab, wait_until};
use stentor_lab::tls::{Tls, key_sha256};

use crate::kit::{bare, builder, fates, post};

fn site(name: &str, tls: &str) -> String {
    format!("[[site]]\nname = '{name}.example'\nbehaviour = {{ {tls} }}\n")
}

/// A record of the first host of a site. The port is the lab's, which is known when it has started.
struct Record<'a> {
    site: &'a str,
    kind: &'a str,
    value: String,
    more: &'a str,
}

/// The lab with records for the port that it will have.
fn lab(sites: &[String], records: &[Record<'_>]) -> TestLab {
    let port = crate::kit::closed_port();
    let record = |record: &Record<'_>| {
        let Record { site, kind, value, more } = record;
        format!("[[record]]\nname = '_{port}._tcp.mx1.{site}.example'\ntype = '{kind}'\nvalue = '{value}'\n{more}\n")
    };
    let records: String = records.iter().map(record).collect();
    TestLab::start(&format!("smtp_port = {port}\ndns_validates = true\n{}{records}", sites.concat()))
}

/// `3 1 1` of the host's own key.
fn own_key(site: &str, kind: Tls) -> String {
    let hash = key_sha256(kind, &format!("mx1.{site}.example")).expect("it makes a handshake");
    format!("3 1 1 {hash}")
}

fn other_key() -> String {
    format!("3 1 1 {}", "ab".repeat(32))
}

fn record(site: &str, value: String) -> Record<'_> {
    Record { site, kind: "TLSA", value, more: "" }
}

fn quick(lab: &TestLab) -> Builder {
    builder(lab).set("delivery.idle_ms", "0").set("delivery.tls_timeout_s", "10")
}

fn waits(server: &Server, site: &str, why: &str) {
    let line = server.wait_log(&["connect: relay=", &format!("mx1.{site}.example"), "stat=Deferred"]);
    assert!(line.contains("dsn=4.7.5") && line.contains(why), "{site}: {line}");
}

#[test]
fn hosts_are_held_to_their_records() {
    let names = ["ee", "other", "rolls", "unusable", "noclear", "fails"];
    let self_signed = "tls = 'self_signed'";
    let mut sites: Vec<String> = names[..4].iter().map(|name| site(name, self_signed)).collect();
    sites.extend([site("noclear", ""), site("fails", "tls = 'good'"), site("nothing", "tls = 'self_signed'")]);
    let records = [
        record("ee", own_key("ee", Tls::SelfSigned)),
        record("other", other_key()),
        record("rolls", other_key()),
        record("rolls", own_key("rolls", Tls::SelfSigned)),
        record("unusable", format!("1 1 1 {}", "ab".repeat(32))),
        record("noclear", own_key("ee", Tls::SelfSigned)),
        Record { site: "fails", kind: "FAIL", value: String::new(), more: "" },
    ];
    let lab = lab(&sites, &records);
    let server = quick(&lab).start();
    let delivered = ["ann@ee.example", "ann@rolls.example", "ann@unusable.example", "ann@nothing.example"];
    let mut to = delivered.to_vec();
    to.extend(["ann@other.example", "ann@noclear.example", "ann@fails.example"]);
    let id = post(&server, &lab, &to, "dane@test");
    lab.wait_clean("dane@test", &delivered);
    let how = |to: &str, word: &str| {
        let line = server.wait_log(&[&id, to, "stat=Sent"]);
        assert!(line.contains(&format!(":{word}, dsn=2.0.0")), "{to}: {line}");
    };
    how("ann@ee.example", "dane-ee");
    how("ann@rolls.example", "dane-ee");
    how("ann@unusable.example", "unproven(self-signed)");
    how("ann@nothing.example", "unproven(self-signed)");
    waits(&server, "other", "no TLSA record matches the certificate");
    waits(&server, "noclear", "STARTTLS is not offered");
    waits(&server, "fails", "TLSA lookup error for mx1.fails.example:");
    wait_until("they wait for TLS", || {
        let queue = server.queue();
        let rows = queue["causes"].as_array().cloned().unwrap_or_default();
        rows.iter().any(|row| row["cause"] == "tls" && row["recipients"] == 3)
    });
    let hosts = String::from_utf8_lossy(&server.operator(&["hosts"]).stdout).into_owned();
    assert!(hosts.contains("mx1.ee.example;tls=sts") && !hosts.contains("mx1.nothing.example;tls"), "{hosts}");
    let mut trace = String::new();
    wait_until("the trace says how", || {
        let output = server.operator(&["trace", "ann@ee.example"]);
        trace = String::from_utf8_lossy(&output.stdout).into_owned();
        trace.contains(":dane-ee")
    });
    assert_eq!(fates(&server).bounced, 0);
}

/// Records that are not authentic, of hosts or domains that are not, or from a name server that does not say so.
#[test]
fn what_is_not_authentic_is_no_reason() {
    let sites = [site("loose", "tls = 'self_signed'")];
    let mut loose = record("loose", other_key());
    loose.more = "insecure = true";
    let lab = lab(&sites, &[loose]);
    let server = quick(&lab).start();
    post(&server, &lab, &["ann@loose.example"], "loose@test");
    lab.wait_clean("loose@test", &["ann@loose.example"]);
    let strict = quick(&lab).set("delivery.tls", "\"dane-only\"").start();
    post(&strict, &lab, &["ann@loose.example"], "strict@test");
    waits(&strict, "loose", "`dane-only`: no TLSA records secured by DNSSEC");
}

/// A host whose records cannot be looked up is left out, and the next one gets the mail.
#[test]
fn the_next_host_gets_what_the_first_may_not_have() {
    let port = crate::kit::closed_port();
    let lab = TestLab::start(&format!(
        "smtp_port = {port}\ndns_validates = true\n\
         [[site]]\nname = 'two.example'\nbehaviour = {{ tls = 'good' }}\n\
         [[site.host]]\nname = 'mx1.two.example'\npreference = 10\n[[site.host]]\nname = 'mx2.two.example'\npreference = 20\n\
         [[record]]\nname = '_{port}._tcp.mx1.two.example'\ntype = 'FAIL'\n"
    ));
    let server = quick(&lab).start();
    post(&server, &lab, &["ann@two.example"], "two@test");
    lab.wait_clean("two@test", &["ann@two.example"]);
    let line = server.wait_log(&["ann@two.example", "stat=Sent"]);
    assert!(line.contains("mx2.two.example"), "{line}");
}

/// A list that demands more gets it where it is published, and keeps back its own mail where it is not.
#[test]
fn what_a_sender_demands_is_found_out_in_the_same_session() {
    let sites = [site("ee", "tls = 'self_signed'"), site("nothing", "tls = 'self_signed'"), site("sender", "")];
    let lab = lab(&sites, &[record("ee", own_key("ee", Tls::SelfSigned))]);
    let rule = "[{ sender = 'sender.example', require = 'dane-only' }]";
    let server = quick(&lab).set("delivery.tls", "\"may\"").set("tls_policy", rule).start();
    let id = post(&server, &lab, &["ann@ee.example", "ann@nothing.example"], "demand@test");
    lab.wait_clean("demand@test", &["ann@ee.example"]);
    let line = server.wait_log(&[&id, "ann@ee.example", "stat=Sent"]);
    assert!(line.contains(":dane-ee"), "{line}");
    let line = server.wait_log(&[&id, "ann@nothing.example", "stat=Deferred"]);
    assert!(line.contains("dsn=4.7.5") && line.contains("dane-only is required: neither DANE nor"), "{line}");
}

#[test]
fn check_says_why_dane_does_nothing() {
    let checked = |builder: Builder| {
        let server = builder.set("delivery.tls", "\"dane\"").prepare();
        let output = server.operator(&["check"]);
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    let elsewhere = checked(bare().set("dns.servers", "[\"192.0.2.1\"]"));
    assert!(
        elsewhere.contains("TLSA records are ignored: not every name server in [dns] is on loopback"),
        "{elsewhere}"
    );
    let lab = TestLab::start("[[record]]\nname = '.'\ntype = 'TXT'\nvalue = 'x'\n");
    let silent = checked(builder(&lab));
    assert!(silent.contains("do not validate"), "{silent}");
}
