//! Reports on TLS (RFC 8460): what is counted, and that it is sent once a day to who asks for it, by mail and by HTTPS.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use serde_json::Value;
use stentor_harness::{Builder, Server, TestLab, wait_until};

use crate::kit::{builder, drained, post, report_to};
use crate::preload::{command, preload, set_clock, start};
use crate::tls_in::{codes, session};
use stentor_server_tests::web::Web;

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
    assert_eq!(
        (&failure["result-type"], &failure["sending-mta-ip"]),
        (&"starttls-not-supported".into(), &"127.0.0.1".into()),
        "{clear}"
    );
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

/// That nothing proves the hosts of a domain which publishes nothing is no failure of its TLS: a sender has demanded
/// it.
#[test]
fn what_requiretls_demands_is_counted_for_nobody() {
    let lab = TestLab::start(
        "[[site]]\nname = 'unnamed.example'\nbehaviour = { tls = 'good', requiretls = true }\n\
         [[site]]\nname = 'sender.example'\nbehaviour = { tls = 'good' }\n",
    );
    let mut server = reporting(&lab).start();
    let steps = [
        "EHLO c.example",
        "@starttls",
        "EHLO c.example",
        "MAIL FROM:<ann@sender.example> REQUIRETLS",
        "RCPT TO:<bob@unnamed.example>",
        "@message:Subject: x\\r\\n\\r\\nx",
        "QUIT",
    ];
    let said = session(server.address().port(), &steps);
    assert!(codes(&said).ends_with(&["250", "354", "250", "221"]), "{said:?}");
    report_to(&lab, "ann@sender.example").assert_failed("bob@unnamed.example", "5.7.10");
    drained(&server);
    server.stop();
    let kept = std::fs::read_to_string(server.path("data/tls_reports")).expect("the way back was counted");
    assert!(kept.contains("sender.example") && !kept.contains("unnamed.example"), "{kept}");
}

/// A domain whose reports go to a web server of its own.
fn with_web(domain: &str, port: u16) -> String {
    let host = format!("reports.{domain}");
    format!(
        "[[site]]\nname = '{domain}'\nbehaviour = {{ tls = 'good' }}\n\
         [[record]]\nname = '{host}'\ntype = 'A'\nvalue = '127.0.0.1'\n\
         [[record]]\nname = '_smtp._tls.{domain}'\ntype = 'TXT'\nvalue = 'v=TLSRPTv1; rua=https://{host}:{port}/in'\n"
    )
}

/// Web servers' certificates are judged by the system's CAs, whose file this takes the place of.
fn start_with_ca(server: &mut Server) {
    let mut command = command(server);
    command.env("SSL_CERT_FILE", server.path("ca.pem")).env_remove("SSL_CERT_DIR");
    server.start_as(command);
}

/// Each web server gets a report once; one that is down is tried again every hour for two days, and one that refuses it
/// is not.
#[test]
fn reports_are_posted_until_they_are_taken_refused_or_given_up() {
    let web = Web::start();
    let domains = ["good.example", "gone.example", "down.example"];
    let lab = TestLab::start(&domains.map(|domain| with_web(domain, web.port)).concat());
    let hosts = domains.map(|domain| format!("reports.{domain}"));
    for (host, answers) in hosts.iter().zip(["503 201", "404", "503"]) {
        web.take_posts(host, answers);
    }
    let counts = || [0, 1, 2].map(|at| web.posts(&hosts[at]).len());
    let mut server = reporting(&lab).prepare();
    preload(&server);
    set_clock(&server, 0);
    start_with_ca(&mut server);
    let to = domains.map(|domain| format!("ann@{domain}"));
    let to = to.each_ref().map(String::as_str);
    post(&server, &lab, &to, "web@test");
    lab.wait_clean("web@test", &to);
    // An attempt ends when the server notices: the next one is an hour after that.
    let failures = |server: &Server| {
        let is_one = |line: &&String| line.contains("could not be sent; will retry") && line.contains("down.example");
        server.log().lines().iter().filter(is_one).count()
    };
    let (due, hour) = (DAY_S + SPREAD_S, 3_660);
    for (after, wanted) in [(0, [1, 1, 1]), (1, [2, 1, 2]), (2, [2, 1, 3])] {
        set_clock(&server, due + after * hour);
        wait_until("reports are posted", || counts() == wanted && failures(&server) == wanted[2]);
    }
    let posts = web.posts(&hosts[0]);
    assert_eq!((&posts[0]["path"], &posts[0]["type"]), (&"/in".into(), &"application/tlsrpt+gzip".into()));
    assert_eq!(posts[0]["report"], posts[1]["report"], "the same report, by its id too");
    let report = &posts[1]["report"];
    assert_eq!(
        (&report["organization-name"], &report["contact-info"]),
        (&"Test Mail".into(), &"postmaster@mx.test".into())
    );
    assert_eq!(report["policies"][0]["policy"]["policy-domain"], "good.example");
    let summary = &report["policies"][0]["summary"];
    assert!(summary["total-successful-session-count"].as_u64().is_some_and(|count| count > 0), "{report}");
    assert!(report["report-id"].as_str().is_some_and(|id| id.contains('@')), "{report}");
    let ends = |name: &str| report["date-range"][name].as_str().expect("a time").split_once('T').expect("two parts");
    let (begin, end) = (ends("start-datetime"), ends("end-datetime"));
    assert_eq!((begin.0, begin.1, end.1), (end.0, "00:00:00Z", "23:59:59Z"), "a day, in UTC");

    // Two days after the day that it is about.
    set_clock(&server, 3 * DAY_S);
    wait_until("it is given up", || {
        server.stop();
        let left = std::fs::read_to_string(server.path("data/tls_reports")).expect("the file is there");
        start_with_ca(&mut server);
        !domains.iter().any(|domain| left.contains(domain))
    });
    assert_eq!(counts()[..2], [2, 1], "nothing is posted twice, over a restart too");
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
