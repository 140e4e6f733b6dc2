//! `stentor tls check`, and what `hosts`, `site` and the API show of the TLS that hosts had.

use serde_json::Value;
use stentor_harness::{Builder, Server, TestLab};

use crate::http_auth::with_token;
use crate::kit::{builder, data, post};

const WORLD: &str = "\
    [[site]]\nname = 'good.example'\nbehaviour = { tls = 'good', requiretls = true }\n\
    [[site]]\nname = 'self.example'\nbehaviour = { tls = 'self_signed' }\n\
    [[site]]\nname = 'clear.example'\n\
    [[site]]\nname = 'plain.example'\nbehaviour = { tls = 'good' }\n\
    [[site]]\nname = 'eof.example'\nbehaviour = { tls = 'eof' }\n\
    [[site]]\nname = 'dead.example'\nbehaviour = { connect = 'refuse' }\n\
    [[site]]\nname = 'both.example'\n[[site.host]]\nbehaviour = { connect = 'refuse' }\n[[site.host]]\nbehaviour = { tls = 'good' }\n";

fn trusting(lab: &TestLab) -> Builder {
    builder(lab)
        .file("ca.pem", stentor_lab::tls::ca_pem().as_bytes())
        .set("delivery.tls_ca_file", "\"ca.pem\"")
        .set("delivery.tls_timeout_s", "10")
}

/// The exit code and what is printed.
fn check(server: &Server, arguments: &[&str]) -> (i32, String) {
    let output = server.operator(&[&["tls", "check"], arguments].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code().expect("it ends by itself"), text)
}

#[test]
fn each_kind_of_host_has_its_steps_and_its_verdict() {
    let lab = TestLab::start(WORLD);
    let rules = "[{ domain = 'demands.example', require = 'verify' }]";
    let server = trusting(&lab).set("tls_policy", rules).prepare();
    for (domain, code, words) in [
        (
            "good.example",
            0,
            &[
                "good.example: mail goes encrypted, and the host is verified\n",
                "required     sts by [delivery] tls\n",
                "MTA-STS      none is published\n",
                "\nmx1.good.example",
                "DANE         does not apply: the addresses of the host are not secured by DNSSEC\n",
                "STARTTLS     offered\n",
                "handshake    TLSv1.3 TLS_",
                "certificate  ",
                "as TLSA      3 1 1 ",
                "REQUIRETLS   offered\n",
            ][..],
        ),
        (
            "self.example",
            0,
            &["self.example: mail goes encrypted\n", "proof        not proven: ", "REQUIRETLS   not offered\n"],
        ),
        ("clear.example", 3, &["clear.example: mail goes in clear\n", "STARTTLS     not offered\n"]),
        ("eof.example", 3, &["STARTTLS     offered\n", "verdict      mail goes in clear: TLS failed"]),
        (
            "dead.example",
            75,
            &[
                "dead.example: mail waits: no host accepts it now\n",
                "no mail can be sent there now: Connection \
                refused",
            ],
        ),
        ("both.example", 0, &["Connection refused", "mail goes encrypted, and the host is verified\n"]),
        ("nowhere.example", 69, &["nowhere.example: mail is returned: 5.1.2 "]),
        // What is at hand is often an address.
        ("Ann@good.example", 0, &["good.example: mail goes encrypted, and the host is verified\n"]),
    ] {
        let (found, text) = check(&server, &[domain]);
        assert_eq!(found, code, "{text}");
        for wanted in words {
            assert!(text.contains(wanted), "{domain}: {wanted}: {text}");
        }
    }
    assert_eq!(check(&server, &["not a domain"]).0, 2);
    assert_eq!(lab.stats().sinks.transactions, 0);
}

#[test]
fn what_is_demanded_decides() {
    let lab = TestLab::start(WORLD);
    let rules = "[{ domain = 'self.example', require = 'verify' }, { domain = 'clear.example', require = 'encrypt' }, \
                  { domain = 'good.example', require = 'verify' }, { domain = 'plain.example', require = 'verify' }]";
    let server = trusting(&lab).set("tls_policy", rules).prepare();
    for (arguments, code, wanted) in [
        (&["self.example"][..], 75, "no mail can be sent there now: TLS failed"),
        (&["clear.example"], 75, "no mail can be sent there now: TLS is required but STARTTLS is not offered"),
        (&["good.example"], 0, "site         mx1.good.example;tls=verify(hostname)\n"),
        (&["good.example", "--require-tls"], 0, "REQUIRETLS of the sender"),
        (&["both.example", "--require-tls"], 69, "mail with REQUIRETLS is returned: 5.7.10 "),
        (&["both.example", "--require-tls"], 69, "neither DANE nor an enforced MTA-STS policy proves"),
        (&["plain.example", "--require-tls"], 69, "mail with REQUIRETLS is returned: 5.7.30 "),
    ] {
        let (found, text) = check(&server, arguments);
        assert_eq!(found, code, "{arguments:?}: {text}");
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let (code, text) = check(&server, &["good.example", "--json"]);
    let found: Value = serde_json::from_str(&text).expect("JSON");
    let host = &found["hosts"][0];
    assert_eq!((code, &found["exit_code"], &host["goes"]), (0, &0.into(), &"proven".into()), "{found}");
    assert_eq!((&host["tls"]["how"], &host["requiretls"]), (&"ca".into(), &true.into()), "{found}");
    let hash = host["tls"]["certificate"]["sha256"].as_str().expect("a fingerprint");
    assert_eq!(hash.len(), 64);
}

/// What is wrong with it is to be seen.
#[test]
fn the_certificate_of_a_host_that_is_not_proven_is_shown() {
    let lab = TestLab::start(WORLD);
    let server = trusting(&lab).set("tls_policy", "[{ domain = 'self.example', require = 'verify' }]").prepare();
    let (code, text) = check(&server, &["self.example"]);
    assert_eq!(code, 75, "{text}");
    for wanted in [
        "handshake    TLSv1.3 TLS_",
        "certificate  mx1.self.example by ",
        " from 20",
        " until 20",
        "SHA-256      ",
        "proof        not proven: the certificate of mx1.self.example is self-signed\n",
        "verdict      no mail can be sent there now: TLS failed: the certificate of mx1.self.example is self-signed\n",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let (_, text) = check(&server, &["self.example", "--json"]);
    let found: Value = serde_json::from_str(&text).expect("JSON");
    let certificate = &found["hosts"][0]["tls"]["certificate"];
    assert_eq!(certificate["sha256"].as_str().map(str::len), Some(64), "{found}");
    assert!(certificate["begins"].as_str() < certificate["ends"].as_str(), "{found}");
}

#[test]
fn what_a_list_or_sender_demands_is_asked_for() {
    let lab = TestLab::start(WORLD);
    let rules = "[{ list = 'press', require = 'encrypt' }, { sender = 'boss@home.example', require = 'verify' }, \
                  { sender = 'lists.test', require = 'encrypt' }]";
    let server = trusting(&lab).list("press", &[]).list("news", &[]).set("tls_policy", rules).prepare();
    for (arguments, code, wanted) in [
        (&["clear.example"][..], 3, "mail goes in clear"),
        (&["clear.example", "--list", "press"], 75, "encrypt by [[tls_policy]] list = \"press\""),
        (
            &["clear.example", "--list", "press"],
            75,
            "no mail can be sent there now: encrypt is required: clear:not-offered",
        ),
        (&["clear.example", "--list", "press", "--from", "<>"], 75, "encrypt is required"),
        // A list has its own sender.
        (&["clear.example", "--list", "news"], 75, "encrypt by [[tls_policy]] sender = \"lists.test\""),
        (&["clear.example", "--list", "news", "--from", "<>"], 3, "mail goes in clear"),
        (&["self.example"], 0, "mail goes encrypted"),
        (&["self.example", "--from", "Boss@Home.example"], 75, "verify (hostname) is required: the certificate of"),
        (&["good.example", "--from", "boss@home.example"], 0, "the host is verified"),
        (&["good.example", "--list", "none"], 2, "there is no list \"none\""),
        (&["good.example", "--from", "nobody"], 2, "\"nobody\" is not a valid address"),
    ] {
        let (found, text) = check(&server, arguments);
        assert!(found == code && text.contains(wanted), "{arguments:?}: {found} {wanted}: {text}");
    }
}

/// As a delivery would, and with no mail.
#[test]
fn a_login_at_a_smart_host_is_tried() {
    for (behaviour, code, wanted) in [
        ("tls = 'good', auth = 'ann:s3cret-here'", 0, " as ann: accepted\n"),
        ("tls = 'good', auth = 'ann:other'", 75, " as ann: AUTH refused: 535 5.7.8 wrong name or password\n"),
        ("tls = 'good'", 75, "login        as ann: cannot log in: the host does not offer AUTH\n"),
        ("auth = 'ann:s3cret-here', auth_in_clear = true", 75, "is not proven (the session is in clear)"),
        ("tls = 'self_signed', auth = 'ann:s3cret-here'", 75, "login        as ann: cannot log in: "),
        ("connect = 'refuse'", 75, "login        as ann: not tried"),
    ] {
        let site = format!("[[site]]\nname = 'relay.example'\nrelay = true\nbehaviour = {{ {behaviour} }}\n");
        let lab = TestLab::start(&site);
        let host = format!("mx1.relay.example:{}", lab.smtp_port());
        let section = format!("smart_hosts.\"{host}\"");
        let server = trusting(&lab)
            .route("tap.example", &[&host])
            .file("relay.secret", b"s3cret-here\n")
            .set_in(&section, "user", "\"ann\"")
            .set_in(&section, "secret_file", "\"relay.secret\"")
            .prepare();
        let (found, text) = check(&server, &["tap.example"]);
        assert!(found == code && text.contains(wanted), "{behaviour}: {found}: {text}");
        assert!(!text.contains("s3cret") && !text.contains("czNjcmV0"), "{text}");
        assert_eq!(lab.stats().sinks.transactions, 0);
    }
}

#[test]
fn of_a_domain_of_ours_what_others_find_is_shown() {
    let hash = "ab".repeat(32);
    let lab = TestLab::start(&format!(
        "dns_validates = true\n[[record]]\nname = 'own.example'\ntype = 'MX'\nvalue = '10 mx.test'\n\
         [[record]]\nname = '_25._tcp.mx.test'\ntype = 'TLSA'\nvalue = '3 1 1 {hash}'\n"
    ));
    let server = trusting(&lab).set("domains.local", "[\"own.example\"]").prepare();
    let (code, text) = check(&server, &["own.example"]);
    let expected = format!(
        "own.example: this domain is local: its mail stays here; other servers find\n  MX           10 mx.test\n  \
         TLSA         mx.test: 3 1 1 {hash}, secured by DNSSEC\n  MTA-STS      none is published\n"
    );
    assert_eq!((code, text), (0, expected));
}

/// Whoever has published records is to see why they count for nothing.
#[test]
fn what_dane_makes_of_a_host_is_said() {
    let lab = TestLab::start(&["dns_validates = true\n", WORLD].concat());
    let server = trusting(&lab).prepare();
    let (_, text) = check(&server, &["good.example"]);
    let wanted = "  DANE         does not apply: no TLSA records secured by DNSSEC\n";
    assert!(text.contains(wanted), "{text}");
}

/// The last session of each host and the weakest of them all, over a restart too.
#[test]
fn what_tls_hosts_had_is_shown_and_kept() {
    let lab = TestLab::start(WORLD);
    let (mut server, _) = with_token(trusting(&lab).set("delivery.idle_ms", "0"));
    post(&server, &lab, &["ann@good.example", "bob@eof.example"], "seen@test");
    lab.wait_clean("seen@test", &["ann@good.example", "bob@eof.example"]);
    let tls_of = |server: &Server, site: &str| {
        let view = data(server.operator_json(&["site", site]).remove(0));
        (view["paths"][0]["hosts"][0]["tls"].clone(), view["weakest_tls"].clone())
    };
    let (good, weakest) = tls_of(&server, "good.example");
    assert!(good["session"].as_str().is_some_and(|text| text.ends_with(":verified")), "{good}");
    assert_eq!(good["certificate"]["sha256"].as_str().map(str::len), Some(64), "{good}");
    assert_eq!(weakest["session"], good["session"]);
    let (clear, weakest) = tls_of(&server, "eof.example");
    assert_eq!(
        (&clear["session"], &weakest["session"]),
        (&"clear:unexpected-eof".into(), &"clear:unexpected-eof".into())
    );
    assert!(clear["certificate"].is_null(), "{clear}");
    let text = String::from_utf8(server.operator(&["hosts", "good.example"]).stdout).expect("text");
    assert!(text.contains("weakest TLS  of 30 days: TLSv1.3:TLS_") && text.contains("certificate "), "{text}");
    let page = server.http_get("/site?name=good.example").expect(200).text();
    assert!(page.contains("Weakest TLS in 30 days") && page.contains(":verified"), "{page}");
    let api = server.http_get("/api/v1/sites/eof.example").expect(200).json();
    assert_eq!(api["weakest_tls"]["session"], "clear:unexpected-eof");
    // What a host had in one life of the server is still there after another in which it had no session.
    server.stop();
    server.start_again();
    post(&server, &lab, &["cid@good.example"], "again@test");
    lab.wait_clean("again@test", &["cid@good.example"]);
    server.stop();
    let kept = std::fs::read_to_string(server.path("data/tls_seen.json")).expect("it was written at the stop");
    assert!(kept.contains("mx1.eof.example") && kept.contains("clear:unexpected-eof"), "{kept}");
}
