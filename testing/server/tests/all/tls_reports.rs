//! Reports on TLS (RFC 8460): what is counted, and that it is sent once a day to who asks for it, by mail and by HTTPS.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use serde_json::Value;
use stentor_harness::{Builder, Server, TestLab, wait_until};

use crate::kit::{builder, post};
use crate::preload::{preload, set_clock, start};

const DAY_S: i64 = 86_400;
/// Reports are spread over four hours after midnight.
const SPREAD_S: i64 = 5 * 3_600;

const WORLD: &str = "\
    [[site]]\nname = 'good.example'\nbehaviour = { tls = 'good' }\n\
    [[site]]\nname = 'clear.example'\n\
    [[site]]\nname = 'silent.example'\nbehaviour = { tls = 'good' }\n\
    [[site]]\nname = 'broken.example'\nbehaviour = { tls = 'good' }\n\
    [[site]]\nname = 'half.example'\nbehaviour = { tls = 'good' }\n\
    [[site]]\nname = 'reports.example'\nbehaviour = { tls = 'eof' }\n\
    [[record]]\nname = '_mta-sts.broken.example'\ntype = 'TXT'\nvalue = 'v=STSv1; id=1;'\n\
    [[record]]\nname = '_smtp._tls.broken.example'\ntype = 'TXT'\nvalue = 'v=TLSRPTv1; rua=mailto:tls@reports.example'\n\
    [[record]]\nname = '_smtp._tls.half.example'\ntype = 'TXT'\nvalue = 'v=TLSRPTv1; rua=https://127.0.0.1:1/,mailto:tls@reports.example'\n\
    [[record]]\nname = '_smtp._tls.reports.example'\ntype = 'TXT'\nvalue = 'v=TLSRPTv1; rua=mailto:tls@good.example'\n\
    [[record]]\nname = '_smtp._tls.good.example'\ntype = 'TXT'\nvalue = 'v=TLSRPTv1; rua=mailto:tls@reports.example'\n\
    [[record]]\nname = '_smtp._tls.clear.example'\ntype = 'TXT'\nvalue = 'v=TLSRPTv1;rua=mailto:tls@reports.example'\n";

fn reporting(lab: &TestLab) -> Builder {
    builder(lab)
        .file("ca.pem", stentor_lab::tls::ca_pem().as_bytes())
        .set("delivery.tls_ca_file", "\"ca.pem\"")
        .set("delivery.tls", "\"sts\"")
        .set("tls_reports.organization", "\"Test Mail\"")
        .set("tls_reports.from", "\"tls-reports@mx.test\"")
        .set("tls_reports.contact", "\"postmaster@mx.test\"")
}

/// The report that a message carries, as a receiver's programs take it apart.
fn unpacked(message: &[u8]) -> Value {
    let script = "import sys,email,gzip;m=email.message_from_binary_file(sys.stdin.buffer);\
                  assert m.get_content_type()=='multipart/report',m.get_content_type();\
                  p=m.get_payload()[1];assert p.get_content_type()=='application/tlsrpt+gzip';\
                  sys.stdout.buffer.write(gzip.decompress(p.get_payload(decode=True)))";
    let mut child = Command::new("/usr/bin/python3")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 runs");
    child.stdin.take().expect("it is piped").write_all(message).expect("it takes input");
    let mut text = String::new();
    child.stdout.take().expect("it is piped").read_to_string(&mut text).expect("JSON");
    assert!(child.wait().expect("it ends").success());
    serde_json::from_str(&text).expect("JSON")
}

fn begun(lab: &TestLab) -> Server {
    let mut server = reporting(lab).prepare();
    preload(&server);
    set_clock(&server, 0);
    start(&mut server);
    server
}

#[test]
fn who_asks_for_reports_gets_one_for_a_day() {
    let lab = TestLab::start(WORLD);
    let mut server = begun(&lab);
    let to = ["ann@good.example", "bob@clear.example", "cid@silent.example", "dan@broken.example", "eve@half.example"];
    for n in 0..2 {
        let id = format!("{n}@test");
        post(&server, &lab, &to, &id);
        lab.wait_clean(&id, &to);
    }
    // What was counted outlives a restart.
    server.stop();
    start(&mut server);
    set_clock(&server, DAY_S + SPREAD_S);
    let copies = || lab.recorder().copies_to("tls@reports.example");
    wait_until("all reports are there", || copies().len() == 4);
    let reports: Vec<(String, Value)> = copies()
        .into_iter()
        .map(|copy| {
            assert_eq!(&*copy.sender, "tls-reports@mx.test");
            let body = copy.body.expect("the lab keeps bodies");
            (String::from_utf8_lossy(&body).into_owned(), unpacked(&body))
        })
        .collect();
    let of = |domain: &str| {
        let is_of = |(_, report): &&(String, Value)| report["policies"][0]["policy"]["policy-domain"] == domain;
        reports.iter().find(is_of).unwrap_or_else(|| panic!("no report of {domain}"))
    };
    let (text, good) = of("good.example");
    assert!(text.contains("TLS-Required: No\r\n") && text.contains("TLS-Report-Domain: good.example\r\n"), "{text}");
    assert_eq!(
        (&good["organization-name"], &good["contact-info"]),
        (&"Test Mail".into(), &"postmaster@mx.test".into())
    );
    assert_eq!(good["policies"][0]["policy"]["policy-type"], "no-policy-found");
    let summary = &good["policies"][0]["summary"];
    let count = |name: &str| summary[name].as_u64().expect("a number");
    assert!(count("total-successful-session-count") >= 1 && count("total-failure-session-count") == 0, "{good}");
    let (_, clear) = of("clear.example");
    let failure = &clear["policies"][0]["failure-details"][0];
    assert_eq!(failure["result-type"], "starttls-not-supported", "{clear}");
    assert!(failure["receiving-mx-hostname"].as_str().is_some_and(|host| host.ends_with("clear.example")), "{clear}");
    // A policy that cannot be fetched is told to who publishes it.
    let (_, broken) = of("broken.example");
    assert_eq!(broken["policies"][0]["policy"]["policy-type"], "sts", "{broken}");
    assert_eq!(broken["policies"][0]["failure-details"][0]["result-type"], "sts-policy-fetch-error", "{broken}");
    of("half.example");
    // Who asks for none is forgotten, and nothing is sent twice; the reports themselves are in none.
    wait_until("nothing is left to report", || {
        server.stop();
        let left = std::fs::read_to_string(server.path("data/tls_reports")).expect("the file is there");
        start(&mut server);
        assert!(!left.contains("\"reports.example\""), "{left}");
        // One of its places does not answer, the other has it.
        !left.contains("silent.example")
            && !left.contains("\"good.example\"")
            && left.contains("\"half.example\"")
            && left.contains("\"done\":[\"mailto:tls@reports.example\"]")
    });
    assert_eq!(copies().len(), 4);
}

#[test]
fn nothing_is_counted_unless_it_is_configured() {
    let lab = TestLab::start(WORLD);
    let mut server = builder(&lab).set("delivery.tls", "\"sts\"").start();
    post(&server, &lab, &["ann@good.example"], "none@test");
    lab.wait_clean("none@test", &["ann@good.example"]);
    server.stop();
    assert!(!server.path("data/tls_reports").exists());
}
