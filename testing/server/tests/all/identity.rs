//! `stentor doctor mail`: seeded faults are found, good domains have no findings; what it prints, and what it needs.

use stentor_dkim::{Algorithm, SigningKey};
use stentor_harness::{Server, TestLab};
use stentor_server_tests::identity::{self, FAULTS, GOOD};

use crate::kit::builder;
use crate::virtual_users::with;

#[test]
fn every_fault_is_found_and_no_good_domain_has_one() {
    assert!(FAULTS.len() >= 40 && GOOD.len() >= 10);
    let outcome = identity::run();
    assert!(outcome.missed.is_empty() && outcome.wrong.is_empty(), "{outcome:#?}");
}

/// A name server that fails is no fault of the domain.
#[test]
fn what_cannot_be_looked_up_is_no_fault() {
    let failing = ["example.org", "_dmarc.example.org", "mail.example.org", "7.113.0.203.in-addr.arpa"];
    let records = failing.map(|name| format!("[[record]]\nname = '{name}'\ntype = 'FAIL'\nvalue = ''\n")).concat();
    let lab = TestLab::start(&format!("[[site]]\nname = 'elsewhere.example'\n{records}"));
    let server = Server::builder()
        .lab(&lab)
        .set("hostname", "\"mail.example.org\"")
        .set("dns.timeout_ms", "1000")
        .set("dns.attempts", "1")
        .prepare();
    let output = server.operator(&["doctor", "mail", "example.org", "--address", "203.0.113.7"]);
    let text = String::from_utf8_lossy(&output.stdout);
    for topic in
        ["example.org: SPF", "example.org: DMARC", "203.0.113.7: reverse DNS", "mail.example.org: the HELO name"]
    {
        assert!(text.contains(&format!("warning: {topic} could not be checked: ")), "{topic}\n{text}");
    }
    // Nothing else needs these names.
    let problems: Vec<&str> = text.lines().filter(|line| line.starts_with("PROBLEM")).collect();
    assert!(problems.len() == 1 && problems[0].contains("is not signed"), "{text}");
}

/// Each fault comes with the record to publish.
#[test]
fn the_records_to_publish_are_printed() {
    let lab = TestLab::start("[[site]]\nname = 'elsewhere.example'\n");
    let server = Server::builder().lab(&lab).set("hostname", "\"mail.example.org\"").prepare();
    let output = server.operator(&["doctor", "mail", "--address", "203.0.113.7", "example.org"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for record in [
        "`7.113.0.203.in-addr.arpa. IN PTR mail.example.org.`",
        "`mail.example.org. IN A 203.0.113.7`",
        "`example.org. IN TXT \"v=spf1 ip4:203.0.113.7 -all\"`",
        "`_dmarc.example.org. IN TXT \"v=DMARC1; p=none; rua=mailto:postmaster@example.org\"`",
        "`example.org. IN MX 10 HOST.`",
        "`_mta-sts.example.org. IN TXT \"v=STSv1; id=1\"`",
        "`_smtp._tls.example.org. IN TXT \"v=TLSRPTv1; rua=mailto:postmaster@example.org\"`",
        "`stentor dkim new example.org` makes keys",
    ] {
        assert!(text.contains(record), "{record}\n{text}");
    }
    // An address that receivers never see says nothing about what they see.
    let output = server.operator(&["doctor", "mail", "--address", "10.0.0.1", "example.org"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("10.0.0.1 is not a public address") && !text.contains("PTR"), "{text}");
    for wrong in [&["doctor", "mail", "a b"][..], &["doctor", "mail", "--blocklist", "x y"]] {
        assert_eq!(server.operator(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

const RECORDS: [[&str; 2]; 3] = [
    ["lists.test", "v=spf1 a -all"],
    ["_dmarc.lists.test", "v=DMARC1; p=none"],
    ["_dmarc.strict.example", "v=DMARC1; p=reject"],
];
const TO: &str = "ann@one.example";

/// A list that is signed for, and one that is not; both hold what receivers would refuse.
#[test]
fn posts_that_receivers_would_refuse_are_held_with_the_reason() {
    let key = SigningKey::generate(Algorithm::Ed25519Sha256).expect("a key");
    let record = |[name, value]: [&str; 2]| format!("[[record]]\nname = '{name}'\ntype = 'TXT'\nvalue = '{value}'\n");
    let records = RECORDS.map(record).concat() + &record(["s1._domainkey.lists.test", &key.key.record()]);
    let lab = TestLab::start(&format!("[[site]]\nname = 'one.example'\n{records}"));
    let builder = builder(&lab)
        .list("news", &[TO])
        .list("bare", &[TO])
        // As behind NAT: its reverse DNS is not examined.
        .set("sources.out.address", "\"127.0.0.1\"")
        .set("lists.news.hold_unfit", "true")
        .set("lists.bare.hold_unfit", "true")
        .set("lists.bare.bounces", "\"bounces@bare.example\"")
        .file("s1.pem", key.pem.as_bytes());
    let section = "[[dkim]]\ndomain = \"lists.test\"\nselector = \"s1\"\nkey = \"s1.pem\"\n\
                   [senders.\"shop.example\"]\nhold_unfit = true\n";
    let server = with(builder, &[], section);
    let message = |from: &str| format!("From: {from}\r\nSubject: x\r\n\r\nx\r\n").into_bytes();
    // Authors at domains that we do not sign for have their own signature, or the list's address in From.
    for from in ["ed@lists.test", "joe@strict.example", "joe@other.example"] {
        server.smtp().send(from, &["news@lists.test"], &message(from)).expect(250);
    }
    lab.wait("three copies", |recorder| recorder.copies_to(TO).len() == 3);
    for (sender, to, from, finding) in [
        ("ed@lists.test", "bare@lists.test", "ed@lists.test", "spf_missing"),
        ("ed@lists.test", "news@lists.test", "ed@lists.test, joe@lists.test", "message_from"),
        ("ed@shop.example", TO, "ed@shop.example", "spf_missing"),
    ] {
        let id = server.smtp().send(sender, &[to], &message(from)).expect(250).queue_id();
        let shown = server.operator_json(&["queue", "show", &id]).remove(0).to_string();
        assert!(shown.contains("hold_unfit: ") && shown.contains(finding), "{to}: {shown}");
        server.log().wait(&["held, since large receivers would refuse it", "next: "]);
        let before = lab.recorder().copies_to(TO).len();
        server.operator(&["release", "--id", &id]);
        lab.wait("the released copy", |recorder| recorder.copies_to(TO).len() == before + 1);
    }
}
