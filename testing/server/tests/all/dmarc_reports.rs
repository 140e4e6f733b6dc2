//! DMARC aggregate reports (docs/operate/dmarc-reports.md): daily reports to domains that request them; reports
//! received about our domains.

use std::io::{Read as _, Write as _};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use stentor_harness::{Builder, Server, TestLab, dot_stuff, stentor, wait_until};

use crate::kit::builder;
use crate::preload::{preload, set_clock, start};

const DAY_S: i64 = 86_400;
/// Reports are spread over four hours after midnight.
const SPREAD_S: i64 = 5 * 3_600;
const TO: &str = "ann@one.example";

const WORLD: &str = "\
    [[site]]\nname = 'one.example'\nrelay = true\n\
    [[site]]\nname = 'author.example'\n\
    [[site]]\nname = 'agency.example'\n\
    [[site]]\nname = 'permit.example'\n\
    [[record]]\nname = '_dmarc.author.example'\ntype = 'TXT'\nvalue = 'v=DMARC1; p=quarantine; \
    rua=mailto:rua@author.example,mailto:dmarc@agency.example,mailto:small@author.example!100'\n\
    [[record]]\nname = 'passing.example'\ntype = 'TXT'\nvalue = 'v=spf1 ip4:127.0.0.2 -all'\n\
    [[record]]\nname = '_dmarc.passing.example'\ntype = 'TXT'\nvalue = 'v=DMARC1; p=reject; \
    rua=mailto:dmarc@permit.example'\n\
    [[record]]\nname = 'passing.example._report._dmarc.permit.example'\ntype = 'TXT'\nvalue = 'v=DMARC1'\n\
    [[record]]\nname = '_dmarc.silent.example'\ntype = 'TXT'\nvalue = 'v=DMARC1; p=none'\n";

/// A report as others write it, with the mail of one source.
const REPORT: &str = "<?xml version=\"1.0\"?><feedback><report_metadata><org_name>Big Receiver</org_name>\
    <email>dmarc@big.example</email><report_id>1</report_id><date_range><begin>1700000000</begin><end>1700086399</end>\
    </date_range></report_metadata><policy_published><domain>one.example</domain><p>none</p></policy_published><record>\
    <row><source_ip>192.0.2.9</source_ip><count>40</count><policy_evaluated><disposition>none</disposition>\
    <dkim>fail</dkim><spf>fail</spf></policy_evaluated></row><identifiers><header_from>one.example</header_from>\
    <envelope_from>other.example</envelope_from></identifiers><auth_results/></record></feedback>";

fn reporting(lab: &TestLab) -> Builder {
    builder(lab)
        .set("domains.relay", "[\"one.example\"]")
        .set("message_authentication.check", "true")
        .set("message_authentication.dmarc", "\"reject\"")
        .set("dmarc_reports.organization", "\"Test Mail\"")
        .set("dmarc_reports.from", "\"dmarc-reports@mx.test\"")
        .set("dmarc_reports.contact", "\"postmaster@mx.test\"")
        .set("dmarc_reports.address", "\"dmarc@one.example\"")
}

/// What the server answers to a message of `joe@domain` from this client.
fn answered(server: &Server, client: &str, domain: &str, to: &str, content: &str) -> u16 {
    let mut client = server.connect_from(client).greeted();
    client.cmd(&format!("MAIL FROM:<joe@{domain}>")).expect(250);
    client.cmd(&format!("RCPT TO:<{to}>")).expect(250);
    client.cmd("DATA").expect(354);
    client.raw(&dot_stuff(format!("From: <joe@{domain}>\r\n{content}").as_bytes()));
    client.reply().code
}

/// The report that a message carries, as a receiver's programs take it apart.
fn unpacked(message: &[u8]) -> Value {
    let script = "import sys,email,gzip,json,xml.etree.ElementTree as E\n\
                  m=email.message_from_binary_file(sys.stdin.buffer)\n\
                  p=m.get_payload()[1];assert p.get_content_type()=='application/gzip'\n\
                  r=E.fromstring(gzip.decompress(p.get_payload(decode=True)))\n\
                  n='{urn:ietf:params:xml:ns:dmarc-2.0}';assert r.tag==n+'feedback'\n\
                  def f(e):\n\x20 c={}\n\x20 for x in e: c.setdefault(x.tag.replace(n,''),[]).append(f(x) if len(x) else x.text)\n\x20 return c\n\
                  json.dump({'subject':' '.join(m['subject'].split()),'file':p.get_filename(),'report':f(r)},sys.stdout)";
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

/// `stentor dmarc` with this input.
fn dmarc(arguments: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(stentor());
    command.arg("dmarc").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    child.stdin.take().expect("it is piped").write_all(input).expect("it takes input");
    child.wait_with_output().expect("it ends")
}

fn bodies(lab: &TestLab, to: &str) -> Vec<Vec<u8>> {
    let copies = lab.recorder().copies_to(to);
    copies.iter().map(|copy| copy.body.as_ref().expect("the lab keeps bodies").to_vec()).collect()
}

fn text(value: &Value) -> &str {
    value[0].as_str().expect("a text")
}

/// The report on author.example: two messages that were quarantined.
fn check_quarantined(found: &Value) {
    let report = &found["report"];
    let metadata = &report["report_metadata"][0];
    let (begin, end) = (text(&metadata["date_range"][0]["begin"]), text(&metadata["date_range"][0]["end"]));
    let id = text(&metadata["report_id"]);
    assert_eq!(found["file"], format!("mx.test!author.example!{begin}!{end}!{id}.xml.gz"));
    assert_eq!(found["subject"], format!("Report Domain: author.example Submitter: mx.test Report-ID: <{id}>"));
    let (begin, end): (i64, i64) = (begin.parse().expect("seconds"), end.parse().expect("seconds"));
    assert_eq!((begin % DAY_S, end - begin), (0, DAY_S - 1), "a day, in UTC");
    assert_eq!((text(&metadata["org_name"]), text(&metadata["email"])), ("Test Mail", "postmaster@mx.test"));
    assert_eq!(text(&report["policy_published"][0]["p"]), "quarantine");
    assert_eq!(report["record"].as_array().map(Vec::len), Some(1), "{report}");
    let row = &report["record"][0]["row"][0];
    assert_eq!((text(&row["source_ip"]), text(&row["count"])), ("127.0.0.3", "2"));
    let results = ["disposition", "dkim", "spf"].map(|name| text(&row["policy_evaluated"][0][name]));
    assert_eq!(results, ["quarantine", "fail", "fail"]);
}

/// The report on passing.example: a message that passed by SPF, and one that was refused.
fn check_passed_and_rejected(found: &Value) {
    let of = |record: &Value| {
        let (row, evaluated) = (&record["row"][0], &record["row"][0]["policy_evaluated"][0]);
        let spf = &record["auth_results"][0]["spf"][0];
        let texts = [&row["source_ip"], &evaluated["disposition"], &evaluated["spf"], &spf["domain"], &spf["result"]];
        texts.map(text).join(" ")
    };
    let records: Vec<String> = found["report"]["record"].as_array().expect("records").iter().map(of).collect();
    let wanted = ["127.0.0.2 pass pass passing.example pass", "127.0.0.3 reject fail passing.example fail"];
    assert_eq!(records, wanted);
}

#[test]
fn who_asks_gets_a_report_for_a_day_and_once() {
    let lab = TestLab::start(WORLD);
    let mut server = reporting(&lab).prepare();
    preload(&server);
    set_clock(&server, 0);
    start(&mut server);
    for (client, domain, to, wanted) in [
        ("127.0.0.3", "author.example", TO, 250),
        ("127.0.0.3", "author.example", TO, 250),
        ("127.0.0.2", "passing.example", TO, 250),
        ("127.0.0.3", "passing.example", TO, 550),
        ("127.0.0.3", "silent.example", TO, 250),
        // Reports of others are in no report.
        ("127.0.0.2", "passing.example", "dmarc@one.example", 250),
    ] {
        let content = "Subject: x\r\n\r\ntext\r\n";
        assert_eq!(answered(&server, client, domain, to, content), wanted, "{domain}");
    }
    // What was counted outlives a restart.
    server.stop();
    let counted = std::fs::read_to_string(server.path("data/dmarc_reports")).expect("it was written");
    assert!(!counted.contains("silent.example"), "{counted}");
    start(&mut server);
    set_clock(&server, DAY_S + SPREAD_S);
    let (own, permitted) = ("rua@author.example", "dmarc@permit.example");
    wait_until("both reports are there", || bodies(&lab, own).len() == 1 && bodies(&lab, permitted).len() == 1);
    let copies = lab.recorder().copies_to(own);
    assert_eq!(&*copies[0].sender, "dmarc-reports@mx.test");

    check_quarantined(&unpacked(&bodies(&lab, own)[0]));
    check_passed_and_rejected(&unpacked(&bodies(&lab, permitted)[0]));

    // Who has not agreed, or takes nothing so large, gets none; and nobody gets one twice.
    server.log().wait(&["does not permit reports about this domain", "dmarc@agency.example"]);
    server.log().wait(&["larger than its record permits", "small@author.example"]);
    wait_until("nothing is left to report", || {
        server.stop();
        let left = std::fs::read_to_string(server.path("data/dmarc_reports")).expect("the file is there");
        start(&mut server);
        !left.contains("author.example") && !left.contains("passing.example")
    });
    assert_eq!([own, permitted].map(|to| bodies(&lab, to).len()), [1, 1]);
    assert_eq!(["dmarc@agency.example", "small@author.example"].map(|to| bodies(&lab, to).len()), [0, 0]);

    // What we send, we read.
    let read = dmarc(&["--json", "-"], &bodies(&lab, permitted)[0]);
    let sums: Value = serde_json::from_slice(&read.stdout).expect("JSON");
    let domain = &sums["domains"][0];
    assert_eq!(
        (&domain["domain"], &domain["messages"], &domain["passed"]),
        (&"passing.example".into(), &2.into(), &1.into())
    );
    assert_eq!(sums["failed_sources"][0]["source"], "127.0.0.3");
}

#[test]
fn reports_of_others_are_kept_and_shown() {
    let lab = TestLab::start(WORLD);
    let server = reporting(&lab).start();
    let address = "dmarc@one.example";
    let content = format!(
        "Subject: Report Domain: one.example\r\nMIME-Version: 1.0\r\nContent-Type: text/xml; name=\"r.xml\"\r\n\r\n{REPORT}\r\n"
    );
    let shown = || {
        let read = server.operator(&["dmarc", "--json"]);
        let sums: Value = serde_json::from_slice(&read.stdout).expect("JSON");
        sums["domains"][0]["messages"].as_u64().unwrap_or(0)
    };
    assert_eq!(shown(), 0);
    // Its author fails DMARC: delivered or not, it is not kept.
    assert_eq!(answered(&server, "127.0.0.3", "author.example", address, &content), 250);
    server.log().wait(&["DMARC report ignored: its author does not pass DMARC"]);
    let other = content.replace("one.example</domain>", "x.example</domain>").replace("</feedback>", "");
    assert_eq!(answered(&server, "127.0.0.2", "passing.example", address, &other), 250);
    server.log().wait(&["has no usable report", "it ends within an element"]);
    assert_eq!(shown(), 0);
    // Neither is one about a domain of others, nor that of an author who publishes no policy.
    let foreign = content.replace("one.example</domain>", "x.example</domain>");
    assert_eq!(answered(&server, "127.0.0.2", "passing.example", address, &foreign), 250);
    server.log().wait(&["DMARC report ignored: it is about a domain of others", "x.example"]);
    assert_eq!(answered(&server, "127.0.0.2", "agency.example", address, &content), 250);
    assert_eq!(shown(), 0);
    // A repeated report replaces itself; a message to others is none.
    assert_eq!(answered(&server, "127.0.0.2", "passing.example", TO, &content), 250);
    for address in [address, "Dmarc@one.example"] {
        assert_eq!(answered(&server, "127.0.0.2", "passing.example", address, &content), 250);
    }
    server.log().wait(&["DMARC report received again: it is already here", "one.example"]);
    assert_eq!(shown(), 40);
    let text = server.operator_text(&["dmarc", "-n", "1"]);
    let source = "     40        40            0         0  192.0.2.9        one.example (sender other.example)";
    assert!(text.contains("one.example") && text.lines().any(|line| line.contains(source.trim())), "{text}");
    assert!(server.operator_text(&["dmarc", "--since", "2026-01-01"]).contains("no reports since then; 1 before"));
    lab.wait("the messages are delivered", |recorder| recorder.copies_to(address).len() == 5);
    // One that is larger than a piece in memory, with a part in the journal.
    let large = content.replace("<record>", &format!("<!--{}--><record>", "x\r\n".repeat(200_000)));
    let large = large.replace("<count>40", "<count>41").replace("<report_id>1<", "<report_id>2<");
    assert_eq!(answered(&server, "127.0.0.2", "passing.example", address, &large), 250);
    assert_eq!(shown(), 81);
}

/// The API and the console show the sums of the command; names that a report claims are text.
#[test]
fn the_api_and_the_console_show_what_the_command_prints() {
    let lab = TestLab::start(WORLD);
    let server = reporting(&lab).set("http.listen", "[\"127.0.0.1:0\"]").start();
    let api = |query: &str| server.http_get(&format!("/api/v1/dmarc{query}")).expect(200).json();
    let page = |query: &str| server.http_get(&format!("/dmarc{query}")).expect(200).text();
    assert_eq!(api("")["domains_total"], 0);
    assert!(page("?days=0").contains("No reports."));
    let wrong = server.http_get("/api/v1/dmarc?since=yesterday").expect(400).text();
    assert!(wrong.contains("`since` is in milliseconds since 1970"), "{wrong}");
    let claimed = "&lt;script&gt;&lt;a href=/&gt;other.example";
    let content = |report: &str| {
        format!("Subject: x\r\nMIME-Version: 1.0\r\nContent-Type: text/xml; name=\"r.xml\"\r\n\r\n{report}\r\n")
    };
    let reports = [
        REPORT.replace("other.example", claimed),
        REPORT.replace("one.example</domain>", "b.one.example</domain>").replace("<count>40", "<count>2"),
    ];
    for report in &reports {
        let to = "dmarc@one.example";
        assert_eq!(answered(&server, "127.0.0.2", "passing.example", to, &content(report)), 250);
    }
    let command: Value = serde_json::from_slice(&server.operator(&["dmarc", "--json"]).stdout).expect("JSON");
    assert_eq!(api(""), command);
    assert_eq!(command["failed_sources"][0]["envelope_from"], "<script><a href=/>other.example");
    // A folder that has settled is not read again, and one that changes is.
    let folder = server.path("data/dmarc_received");
    let settle = |ago_s| {
        let changed = std::time::SystemTime::now() - std::time::Duration::from_secs(ago_s);
        std::fs::File::open(&folder).expect("a folder").set_modified(changed).expect("its time is set");
    };
    settle(20);
    for _ in 0..2 {
        assert_eq!(api(""), command);
    }
    std::fs::write(folder.join("damaged.xml.gz"), "x").expect("written");
    settle(10);
    assert_eq!(api("")["files_unreadable"], 1);

    let of = |query: &str| {
        let sums = api(query);
        let rows = sums["domains"].as_array().expect("rows").clone();
        let names: Vec<&str> = rows.iter().filter_map(|row| row["domain"].as_str()).collect();
        (names.join(" "), sums["domains_total"].clone())
    };
    assert_eq!(of("?domain=B.one.example"), ("b.one.example".to_owned(), 1.into()));
    assert_eq!(of("?domain=one.example&rows_max=1"), ("one.example".to_owned(), 2.into()));
    assert_eq!(of("?domain=e.example"), (String::new(), 0.into()));
    assert_eq!(of("?since=1700086399000").1, 2);
    // Rounded down to a day.
    assert_eq!((of("?since=1700092799000").1, of("?since=1700092800000").1), (2.into(), 0.into()));
    for bad in ["?domain=a..b", "?rows_max=0", "?rows_max=1001", "?since=x", "?days=7"] {
        assert_eq!(server.http_get(&format!("/api/v1/dmarc{bad}")).expect(400).json()["error"]["code"], "bad_request");
    }
    let shown = page("?days=0");
    for part in ["b.<wbr>one.<wbr>example", "192.0.2.9", "1 file in data_dir", "2023-11-", "&lt;script&gt;"] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    assert!(!shown.contains("<script>") && !shown.contains("<a href=/>"), "{shown}");
    assert!(page("?days=7").contains("No reports of the last 7 days."));
    assert!(!page("?days=0&domain=b.one.example").contains("<wbr>other"));
    assert!(server.http_get("/dmarc?domain=a..b").expect(400).text().contains("is not a valid domain"));
}

/// Empty elements are small in XML and large in memory.
#[test]
fn a_report_that_would_fill_the_memory_is_refused_and_its_message_delivered() {
    let lab = TestLab::start(WORLD);
    let server = reporting(&lab).start();
    let address = "dmarc@one.example";
    let (head, record) = REPORT.split_once("<record>").expect("a record");
    let record = record.replace("<auth_results/>", &format!("<auth_results>{}</auth_results>", "<dkim/>".repeat(10)));
    let record = format!("<record>{}", record.trim_end_matches("</feedback>"));
    let content = format!(
        "Subject: x\r\nMIME-Version: 1.0\r\nContent-Type: text/xml; name=\"r.xml\"\r\n\r\n{head}{}</feedback>\r\n",
        format!("{record}\r\n").repeat(12_000)
    );
    assert_eq!(answered(&server, "127.0.0.2", "passing.example", address, &content), 250);
    server.log().wait(&["has no usable report", "its records need more than 8 MiB of memory"]);
    lab.wait("the message is delivered", |recorder| recorder.copies_to(address).len() == 1);
}

#[test]
fn files_are_read_and_bad_ones_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("good.xml"), REPORT).expect("written");
    std::fs::write(path("bad.xml"), REPORT.replace("<count>40", "<count>many")).expect("written");
    let read = dmarc(&[&path("good.xml"), &path("bad.xml")], b"");
    let (text, errors) = (String::from_utf8_lossy(&read.stdout), String::from_utf8_lossy(&read.stderr));
    assert!(!read.status.success() && text.contains("192.0.2.9"), "{text}");
    assert!(errors.contains("bad.xml: record 1: <count> has the invalid value \"many\""), "{errors}");
    let read = dmarc(&[&path("bad.xml"), &path("missing.xml")], b"");
    let text = String::from_utf8_lossy(&read.stdout);
    assert!(!read.status.success() && text == "no reports\n", "{text}");
    assert!(dmarc(&["-"], REPORT.as_bytes()).status.success());
    std::fs::write(path("sub.xml"), REPORT.replace("<domain>one.example", "<domain>news.one.example"))
        .expect("written");
    std::fs::write(path("other.xml"), REPORT.replace("<domain>one.example", "<domain>notone.example"))
        .expect("written");
    let files = ["good.xml", "sub.xml", "other.xml"].map(path);
    for (domain, expected) in [("ONE.example", &["news.one.example", "one.example"][..]), ("x.example", &[])] {
        let read = dmarc(&[&files[0], &files[1], &files[2], "--domain", domain, "--json"], b"");
        let sums: Value = serde_json::from_slice(&read.stdout).expect("JSON");
        let domains =
            sums["domains"].as_array().expect("rows").iter().map(|row| row["domain"].as_str().expect("a name"));
        let mut domains: Vec<&str> = domains.collect();
        domains.sort_unstable();
        assert_eq!(domains, expected, "{domain}");
        let read = dmarc(&[&files[0], &files[1], &files[2], "--domain", domain], b"");
        let shown = String::from_utf8_lossy(&read.stdout);
        assert!(!shown.contains("notone.example"), "{shown}");
        assert_eq!(shown == "no reports about x.example; 3 about other domains\n", expected.is_empty(), "{shown}");
    }
    assert_eq!(dmarc(&["--domain", "a b", "-"], b"").status.code(), Some(2));
    std::fs::write(path("again.xml"), REPORT).expect("written");
    let read = dmarc(&[&path("good.xml"), &path("again.xml")], b"");
    let text = String::from_utf8_lossy(&read.stdout);
    assert!(
        text.contains("1 reports ignored: another file has the same") && text.contains("     40        40"),
        "{text}"
    );
}
