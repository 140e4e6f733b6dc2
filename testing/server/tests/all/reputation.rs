//! What operators see of complaints, block lists and bounces (docs/operate/bounces.md).

use serde_json::Value;
use stentor_harness::{Builder, Server, wait_until};

use crate::copies::{POST, host, path, post};
use crate::kit::{bare, drained};
use crate::scribe::Scribe;

const LISTED: &str = "Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org";

fn newsletter(host: &Scribe) -> Builder {
    bare()
        .route("host.example", &[&host.host()])
        .list("news", &["ann@host.example", "bob@host.example", "cid@host.example"])
        .set("lists.news.verp", "\"tagged\"")
        .set("lists.news.owner", "\"chief@host.example\"")
        .set("bounces.complaints_deliveries_min", "3")
        .set("http.listen", "[\"127.0.0.1:0\"]")
}

fn conditions(server: &Server) -> Vec<Value> {
    let output = server.operator(&["status", "--json"]);
    let status: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    status["data"]["health"].as_array().cloned().unwrap_or_default()
}

fn has(server: &Server, name: &str, subject: &str) -> bool {
    conditions(server).iter().any(|condition| condition["name"] == name && condition["subject"] == subject)
}

fn report(server: &Server) -> Vec<Value> {
    let report = server.operator_json(&["report"]).remove(0);
    report["data"]["complaints"].as_array().cloned().unwrap_or_default()
}

fn complaint(path: &str) -> String {
    format!(
        "From: fbl@host.example\r\nSubject: complaint\r\nContent-Type: multipart/report; report-type=feedback-report; boundary=r\r\n\r\n\
         --r\r\n\r\nA complaint.\r\n--r\r\nContent-Type: message/feedback-report\r\n\r\nFeedback-Type: abuse\r\nUser-Agent: x/1\r\n\
         Version: 1\r\nOriginal-Mail-From: <{path}>\r\n\r\n--r\r\nContent-Type: message/rfc822\r\n\r\n{POST}--r--\r\n"
    )
}

fn bounce(reply: &str) -> String {
    format!(
        "From: MAILER-DAEMON@host.example\r\nSubject: failed\r\nContent-Type: multipart/report;\r\n \
         report-type=delivery-status; boundary=r\r\n\r\n--r\r\n\r\nSorry.\r\n--r\r\nContent-Type: message/delivery-status\r\n\r\n\
         Reporting-MTA: dns; host.example\r\n\r\nFinal-Recipient: rfc822; x@host.example\r\nAction: failed\r\n\
         Status: 5.0.0\r\nDiagnostic-Code: smtp; {reply}\r\n--r--\r\n"
    )
}

/// The rate of proven complaints raises an alarm, and neither a kill nor a repetition changes it.
#[test]
fn complaints_raise_an_alarm_and_survive_a_kill() {
    let host = host();
    let mut server = newsletter(&host).start();
    post(&server, 3);
    let send = |server: &Server, path: &str| {
        server.smtp().send("fbl@host.example", &["news-bounces@lists.test"], complaint(path).as_bytes()).expect(250);
    };
    let paths = ["ann", "bob", "cid"].map(|name| path(&host, name));
    send(&server, &paths[0]);
    send(&server, &paths[0]);
    send(&server, &paths[0].replace("-ann=", "-eve="));
    server.wait_log(&["to=<ann@host.example>, repeated, action=complained"]);
    let of_list = |server: &Server| {
        let rows = report(server);
        let row = rows.iter().find(|row| row["subject"] == "list" && row["window"] == "24h").cloned();
        row.map(|row| [row["complaints"].as_u64(), row["unproven"].as_u64()].map(Option::unwrap_or_default))
    };
    wait_until("the first complaint", || of_list(&server) == Some([1, 1]));
    assert!(!has(&server, "complaints", "list news"), "one complaint may be chance");
    paths[1..].iter().for_each(|path| send(&server, path));
    for subject in ["list news", "sender lists.test", "provider 127.0.0.1"] {
        wait_until(subject, || has(&server, "complaints", subject));
    }
    let metrics = server.http("GET", "/metrics").send().expect(200).text();
    let series = "stentor_complaints{subject=\"list\",name=\"news\",window=\"30d\"} 3";
    assert!(metrics.contains(series), "{metrics}");
    let health = server.http("GET", "/health").send().expect(200).text();
    assert!(health.contains("list news") && health.contains("Complaint rates"), "{health}");
    let text = server.operator(&["report"]);
    let text = String::from_utf8(text.stdout).expect("UTF-8");
    assert!(text.contains("\nComplaints\n") && text.contains("24h     list news"), "{text}");
    server.kill();
    server.start_again();
    wait_until("the rates again", || of_list(&server) == Some([3, 1]));
    wait_until("the alarm again", || has(&server, "complaints", "list news"));
}

/// Who has left a list, or is suppressed by an operator, can complain about an earlier post: once.
#[test]
fn complaints_of_suppressed_people_count() {
    let host = host();
    let server = newsletter(&host).start();
    post(&server, 3);
    for (name, reason) in [("ann", "unsubscribe"), ("bob", "operator")] {
        let address = format!("{name}@host.example");
        server.ask(&["suppress", "add", &address, "--list", "news", "--reason", reason]).expect("it is added");
        let complaint = complaint(&path(&host, name));
        for proof in ["proven", "repeated"] {
            server.smtp().send("fbl@host.example", &["news-bounces@lists.test"], complaint.as_bytes()).expect(250);
            server.wait_log(&[&format!("to=<{address}>, {proof}, action=complained")]);
        }
    }
    let listed = server.operator(&["suppress", "list", "--reason", "complaint"]);
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(text.contains("ann@host.example") && text.contains("bob@host.example"), "{text}");
    wait_until("both count", || report(&server).iter().any(|row| row["subject"] == "list" && row["complaints"] == 2));
}

/// Whoever reads a list's bounces sees for whom they are.
#[test]
fn owners_see_whom_a_report_is_about() {
    let host = host();
    let server = newsletter(&host).start();
    post(&server, 3);
    let to = path(&host, "ann");
    let id = server.smtp().send("", &[&to], bounce("550 5.1.1 User unknown").as_bytes()).expect(250).queue_id();
    server.wait_log(&[
        &format!("{id}: report: list=news, to=<ann@host.example>, proven"),
        "from=lists.test, ",
        "dsn=<5.1.1>: 550 5.1.1",
    ]);
    assert_eq!(drained(&server).delivered, 4);
    let reports = host.contents();
    let report = String::from_utf8(reports.last().expect("the owner's copy").clone()).expect("UTF-8");
    assert!(report.contains(&format!("X-Original-To: {to}\r\n")), "{report}");
    let said =
        "X-Stentor-Report: subscriber=<ann@host.example>; list=news;\r\n\tproven; action=failed; cause=no_mailbox";
    assert!(report.contains(said), "{report}");
    // A person who gets the same message does not learn who subscribes.
    server.smtp().send("", &[&to, "dan@host.example"], bounce("550 5.1.1 User unknown").as_bytes()).expect(250);
    assert_eq!(drained(&server).delivered, 6);
    let others = host.contents().into_iter().skip(reports.len());
    let others: Vec<String> = others.map(|content| String::from_utf8(content).expect("UTF-8")).collect();
    assert!(!others.is_empty() && others.iter().all(|text| !text.contains("X-Stentor-Report")), "{others:?}");
}

/// A host that names a block list raises an alarm, until it takes mail again.
#[test]
fn a_block_list_raises_an_alarm_until_mail_is_taken_again() {
    let host = Scribe::start(&["PIPELINING"], &[("RCPT TO:<bad@", &format!("554 5.7.1 {LISTED}"))]);
    let server = bare().route("host.example", &[&host.host()]).set("http.listen", "[\"127.0.0.1:0\"]").start();
    server.smtp().send("me@lists.test", &["bad@host.example"], POST.as_bytes()).expect(250);
    wait_until("the alarm", || has(&server, "blocked", "Spamhaus"));
    let alarm = conditions(&server).into_iter().find(|condition| condition["name"] == "blocked").expect("the alarm");
    let what = alarm["what"].as_str().expect("text");
    assert!(what.contains("blocked by Spamhaus") && what.contains("1 reply") && what.contains(LISTED), "{what}");
    let metrics = server.http("GET", "/metrics").send().expect(200).text();
    assert!(metrics.contains("stentor_blocked_replies{list=\"Spamhaus\",source=\"\"} 1"), "{metrics}");
    assert!(metrics.contains("stentor_block_list_replies_total{list=\"Spamhaus\"} 1"), "{metrics}");
    let doctor = server.operator(&["doctor"]);
    assert!(String::from_utf8_lossy(&doctor.stdout).contains("blocked by Spamhaus"));
    server.smtp().send("me@lists.test", &["good@host.example"], POST.as_bytes()).expect(250);
    wait_until("the end", || !has(&server, "blocked", "Spamhaus"));
}

/// Whoever got a copy can write reports about it: one domain is not enough.
#[test]
fn reports_raise_an_alarm_from_three_domains() {
    let host = host();
    let domains = ["host.example", "two.example", "three.example"];
    let people = domains.map(|domain| format!("ann@{domain}"));
    let builder = domains.iter().fold(bare(), |builder, domain| builder.route(domain, &[&host.host()]));
    let server =
        builder.list("news", &[&*people[0], &people[1], &people[2]]).set("lists.news.verp", "\"tagged\"").start();
    post(&server, 3);
    let paths: Vec<String> =
        host.heard("MAIL").iter().map(|mail| mail.split(['<', '>']).nth(1).expect("a path").to_owned()).collect();
    let path_of = |domain: &str| paths.iter().find(|path| path.contains(&format!("ann={domain}"))).expect("a copy");
    let listed = |domain: &str, n: usize| {
        let text =
            bounce(&format!("554 5.7.1 {LISTED}")).replace("dns; host.example", &format!("dns; mx.n{n}.example"));
        server.smtp().send("", &[path_of(domain)], text.as_bytes()).expect(250);
    };
    (0..5).for_each(|n| listed("host.example", n));
    listed("two.example", 6);
    server.wait_log(&["report: list=news, to=<ann@two.example>, proven", "cause=reputation"]);
    assert!(!has(&server, "blocked", "Spamhaus from (report)"));
    listed("three.example", 7);
    wait_until("the alarm", || has(&server, "blocked", "Spamhaus from (report)"));
    let alarm = conditions(&server).into_iter().find(|condition| condition["name"] == "blocked").expect("the alarm");
    assert!(alarm["what"].as_str().expect("text").contains("3 replies"), "{alarm}");
}

/// Other rules apply after a reload; a bad file is refused with its line and the old ones stay.
#[test]
fn bounce_rules_are_replaced_by_a_reload() {
    const RULE: &str = "[[rule]]\nname = \"own\"\ntext = [\"flurble\"]\ncause = \"full\"\nconfidence = 90\n";
    let host = host();
    let server = newsletter(&host).start();
    post(&server, 3);
    let to = path(&host, "ann");
    let send = |reply: &str| server.smtp().send("", &[&to], bounce(reply).as_bytes()).expect(250);
    send("550 flurble one");
    server.wait_log(&["report: list=news", "action=failed", "flurble one"]);
    let rules = server.path("bounce-rules.toml");
    std::fs::write(&rules, RULE).expect("the rules");
    let key = format!("[bounces]\nrules_file = {rules:?}");
    server.edit_config(|text| text.replace("[bounces]", &key));
    assert!(server.operator(&["reload"]).status.success());
    send("550 flurble two");
    server.wait_log(&["cause=full, rule=own", "flurble two"]);
    std::fs::write(&rules, RULE.replace("\"full\"", "\"fuller\"")).expect("the rules");
    let refused = server.operator(&["reload"]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("bounce-rules.toml:4:"), "{why}");
    let checked = server.operator(&["check"]);
    let text = format!("{}{}", String::from_utf8_lossy(&checked.stdout), String::from_utf8_lossy(&checked.stderr));
    assert!(!checked.status.success() && text.contains("bounce-rules.toml:4:"), "{text}");
    send("550 flurble three");
    server.wait_log(&["cause=full, rule=own", "flurble three"]);
    let shown = server.operator(&["bounces"]);
    let why = String::from_utf8_lossy(&shown.stderr).into_owned();
    assert!(shown.status.success() && why.contains("bounce-rules.toml:4:") && why.contains("built-in"), "{why}");
}
