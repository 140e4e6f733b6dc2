//! SPF, DKIM, DMARC and ARC of mail from untrusted clients (docs/operate/message-authentication.md).

use std::sync::Arc;

use stentor_dkim::{Algorithm, MessageHash, Signer, SigningKey, Times, sign};
use stentor_harness::{Server, TestLab, dot_stuff};

use crate::kit::builder;
use crate::quarantine::listed;
use crate::virtual_users::with;

const TO: &str = "ann@one.example";
const CHECK: &str = "[domains]\nrelay = [\"one.example\"]\n[message_authentication]\ncheck = true\ntimeout_s = 2\n";
/// SPF permits 127.0.0.2 alone. The DNS says nothing about silent.example, and fails for broken.example.
const RECORDS: [[&str; 3]; 12] = [
    ["signed.example", "TXT", "v=spf1 ip4:127.0.0.2 -all"],
    ["_dmarc.signed.example", "TXT", "v=DMARC1; p=reject"],
    ["held.example", "TXT", "v=spf1 ip4:127.0.0.2 -all"],
    ["_dmarc.held.example", "TXT", "v=DMARC1; p=quarantine"],
    ["broken.example", "FAIL", ""],
    ["_dmarc.broken.example", "TXT", "v=DMARC1; p=reject"],
    ["s1._domainkey.broken.example", "FAIL", ""],
    ["failing.example", "TXT", "v=spf1 ip4:127.0.0.2 -all"],
    ["_dmarc.failing.example", "FAIL", ""],
    ["looped.example", "TXT", "v=spf1 include:looped.example -all"],
    ["_dmarc.looped.example", "TXT", "v=DMARC1; p=none"],
    ["mail.signed.example", "A", "127.0.0.2"],
];

fn signer() -> Signer {
    let key = Arc::new(SigningKey::generate(Algorithm::Ed25519Sha256).expect("a key").key);
    Signer { domain: "signed.example".into(), selector: "s1".into(), key }
}

fn lab(signer: &Signer) -> TestLab {
    let mut world = "[[site]]\nname = 'one.example'\nrelay = true\n[[site]]\nname = 'silent'\ndns = 'timeout'\n\
                     domains = ['silent.example', '_dmarc.silent.example', 's1._domainkey.silent.example']\n"
        .to_owned();
    let key = signer.key.record();
    let mut record = |[name, kind, value]: [&str; 3]| {
        world += &format!("[[record]]\nname = '{name}'\ntype = '{kind}'\nvalue = '{value}'\n");
    };
    RECORDS.into_iter().for_each(&mut record);
    record(["s1._domainkey.signed.example", "TXT", &key]);
    TestLab::start(&world)
}

fn message(domain: &str, id: &str, body: &str) -> Vec<u8> {
    format!("From: Joe <joe@{domain}>\r\nSubject: x\r\nMessage-ID: <{id}>\r\n\r\n{body}").into_bytes()
}

fn signed(signer: &Signer, message: &[u8]) -> Vec<u8> {
    let mut hash = MessageHash::default();
    hash.push(message);
    let (header, body) = hash.finish();
    let times = Times { signed: 1_700_000_000, expires: None };
    let field = sign(&header, body, std::slice::from_ref(signer), times).expect("it can be signed");
    [&field[..], message].concat()
}

/// What the server answers to a message of `joe@domain`.
fn answered(server: &Server, client: &str, domain: &str, wire: &[u8]) -> String {
    let mut client = server.connect_from(client).greeted();
    client.cmd(&format!("MAIL FROM:<joe@{domain}>")).expect(250);
    client.cmd(&format!("RCPT TO:<{TO}>")).expect(250);
    client.cmd("DATA").expect(354);
    client.raw(&dot_stuff(wire));
    let reply = client.reply();
    format!("{} {}", reply.code, reply.lines.join(" "))
}

/// Sends a message that is accepted, and returns the copy that arrives.
#[track_caller]
fn delivered(lab: &TestLab, server: &Server, client: &str, domain: &str, wire: &[u8]) -> String {
    let before = lab.recorder().copies_to(TO).len();
    let answer = answered(server, client, domain, wire);
    assert!(answer.starts_with("250 "), "{answer}");
    lab.wait("a copy", |recorder| recorder.copies_to(TO).len() > before);
    let copies = lab.recorder().copies_to(TO);
    let body = copies[before].body.as_ref().expect("the lab keeps bodies");
    String::from_utf8_lossy(body).into_owned()
}

/// The results in the fields of this server, in one line.
fn results(copy: &str) -> String {
    let header = copy.split("\r\n\r\n").next().unwrap_or_default().replace("\r\n\t", " ");
    let ours = header.lines().filter(|line| line.starts_with("Authentication-Results: mx.test"));
    ours.collect::<Vec<_>>().join("\n")
}

fn server(lab: &TestLab, more: &str) -> Server {
    with(builder(lab).set("authserv_id", "\"mx.test\""), &[], &format!("{CHECK}{more}"))
}

#[test]
fn signed_mail_passes_and_changed_mail_meets_the_policy() {
    let signer = signer();
    let lab = lab(&signer);
    let server = server(&lab, "dmarc = \"reject\"\n");
    let wire = signed(&signer, &message("signed.example", "good@test", "text \r\n\r\n \r\n"));
    // From elsewhere the signature alone counts.
    for (client, spf) in [("127.0.0.2", "pass"), ("127.0.0.3", "fail")] {
        let copy = delivered(&lab, &server, client, "signed.example", &wire);
        let found = results(&copy);
        assert!(copy.starts_with("Authentication-Results: mx.test;"), "{copy}");
        for part in [
            &format!("spf={spf} smtp.mailfrom=joe@signed.example;"),
            "dkim=pass header.d=signed.example header.s=s1 header.a=ed25519-sha256 header.b=",
            "dmarc=pass header.from=signed.example policy.dmarc=reject;",
            "arc=none",
        ] {
            assert!(found.contains(part), "{part}: {found}");
        }
    }
    let changed = [&wire[..], b"more\r\n"].concat();
    let found = results(&delivered(&lab, &server, "127.0.0.2", "signed.example", &changed));
    assert!(found.contains("dkim=fail reason=\"body was changed\"") && found.contains("dmarc=pass"), "{found}");
    let refused = "550 5.7.26 Message refused by the DMARC policy of signed.example";
    assert_eq!(answered(&server, "127.0.0.3", "signed.example", &changed), refused);
    server.log().wait(&["DMARC: signed.example asks to reject"]);
    let held = answered(&server, "127.0.0.3", "held.example", &message("held.example", "held@test", "x\r\n"));
    assert!(held.starts_with("250 "), "{held}");
    let rows = listed(&server, &[]);
    assert_eq!(rows.len(), 1, "{rows:?}");
    let by = rows[0]["by"].as_str().expect("a reason");
    assert_eq!(by, "DMARC: held.example asks to quarantine");
    // A trusted client is not checked.
    let copy = delivered(&lab, &server, "127.0.0.1", "signed.example", &changed);
    assert_eq!(results(&copy), "");
}

#[test]
fn exceptions_and_weaker_actions_are_as_configured() {
    let signer = signer();
    let lab = lab(&signer);
    let forged = message("signed.example", "x@test", "x\r\n");
    let tagging = server(&lab, "");
    let found = results(&delivered(&lab, &tagging, "127.0.0.3", "signed.example", &forged));
    assert!(found.contains("dmarc=fail header.from=signed.example policy.dmarc=reject"), "{found}");
    drop(tagging);
    let excepted = server(&lab, "dmarc = \"reject\"\ndmarc_quarantine = [\"example\"]\n");
    let answer = answered(&excepted, "127.0.0.3", "signed.example", &forged);
    assert!(answer.starts_with("250 "), "{answer}");
    assert_eq!(listed(&excepted, &[]).len(), 1);
}

#[test]
fn a_dns_that_is_silent_or_fails_defers_and_refuses_nothing() {
    let signer = signer();
    let lab = lab(&signer);
    let server = server(&lab, "dmarc = \"reject\"\n");
    for (domain, parts) in [
        ("silent.example", ["spf=temperror", "dkim=temperror", "dmarc=temperror"]),
        ("broken.example", ["spf=temperror", "dkim=temperror", "dmarc=temperror"]),
        ("failing.example", ["spf=fail", "dkim=temperror", "dmarc=temperror"]),
        ("looped.example", ["spf=permerror", "dkim=permerror", "dmarc=fail"]),
    ] {
        let other = Signer { domain: domain.into(), ..signer.clone() };
        let other = match domain {
            // Its key is at a name that the DNS fails for.
            "failing.example" => Signer { domain: "broken.example".into(), ..other },
            _ => other,
        };
        let wire = signed(&other, &message(domain, &format!("{domain}@test"), "x\r\n"));
        let found = results(&delivered(&lab, &server, "127.0.0.3", domain, &wire));
        assert!(parts.iter().all(|part| found.contains(part)), "{domain}: {found}");
    }
}

#[test]
fn rules_read_the_results_and_nobody_can_forge_them() {
    let signer = signer();
    let lab = lab(&signer);
    let rules = "[[rules]]\nname = \"unsigned\"\nauth = \"spf=fail smtp.mailfrom=*\"\n\
                 not = { auth = \"dkim=pass header.d=signed.example\" }\ndo = \"reject 550 5.7.23 SPF says no\"\n\
                 [[rules]]\nauth = \"dkim=pass\"\ndo = \"prepend X-Signed: yes\"\n";
    let server = server(&lab, rules);
    let plain = message("signed.example", "forged@test", "x\r\n");
    let forged = [b"Authentication-Results: mx.test; dkim=pass header.d=signed.example\r\n", &plain[..]].concat();
    for wire in [&plain, &forged] {
        assert_eq!(answered(&server, "127.0.0.3", "signed.example", wire), "550 5.7.23 SPF says no");
    }
    server.log().wait(&["rule 1 \"unsigned\""]);
    let others = "Authentication-Results: mx.other.example; dkim=fail\r\n";
    let wire = [others.as_bytes(), &forged].concat();
    let copy = delivered(&lab, &server, "127.0.0.2", "signed.example", &wire);
    let found = results(&copy);
    assert_eq!(found.lines().count(), 1, "{copy}");
    assert!(found.contains("dkim=none") && copy.contains(others) && !copy.contains("X-Signed"), "{copy}");
    let copy = delivered(&lab, &server, "127.0.0.3", "signed.example", &signed(&signer, &plain));
    assert!(copy.contains("X-Signed: yes"), "{copy}");
}

/// Posts a message to the list, and returns its copy.
#[track_caller]
fn copy_of_post(lab: &TestLab, server: &Server, client: &str, domain: &str, wire: &[u8]) -> String {
    let before = lab.recorder().copies_to(TO).len();
    server.connect_from(client).greeted().send(&format!("joe@{domain}"), &["news@lists.test"], wire).expect(250);
    lab.wait("a copy", |recorder| recorder.copies_to(TO).len() > before);
    let copies = lab.recorder().copies_to(TO);
    String::from_utf8_lossy(copies[before].body.as_ref().expect("the lab keeps bodies")).into_owned()
}

const AUTHOR: &str = "\r\nFrom: Joe <joe@";
const LIST: &str = "\r\nFrom: \"Joe via news\" <news@lists.test>\r\nX-Original-From: Joe <joe@";

#[test]
fn copies_of_a_list_come_from_the_list_where_the_authors_policy_demands_it() {
    let signer = signer();
    let lab = lab(&signer);
    // Nothing else is checked.
    let server = builder(&lab).list("news", &[TO]).start();
    let copy = |client, domain: &str, wire: &[u8]| copy_of_post(&lab, &server, client, domain, wire);
    let large = "A line of a large body.\r\n".repeat(100_000);
    for (client, domain, body, wanted) in [
        ("127.0.0.2", "signed.example", "x\r\n", LIST),
        ("127.0.0.1", "signed.example", "x\r\n", LIST),
        ("127.0.0.2", "held.example", "x\r\n", LIST),
        ("127.0.0.2", "signed.example", &*large, LIST),
        ("127.0.0.3", "looped.example", "x\r\n", AUTHOR),
        ("127.0.0.3", "looped.example", &*large, AUTHOR),
        ("127.0.0.3", "failing.example", "x\r\n", AUTHOR),
        ("127.0.0.3", "silent.example", "x\r\n", AUTHOR),
        ("127.0.0.3", "nothing.example", "x\r\n", AUTHOR),
    ] {
        let copy = copy(client, domain, &message(domain, "x@test", body));
        assert!(copy.contains(wanted) && copy.matches("\r\nFrom:").count() == 1, "{domain}: {}", &copy[..600]);
        assert!(copy.ends_with(body), "{domain}");
        let replies = copy.matches(&format!("\r\nReply-To: Joe <joe@{domain}>\r\n")).count();
        assert_eq!(replies, usize::from(wanted == LIST), "{domain}");
    }
    // The author's own signature stays valid, unless it covers a field of the list.
    let plain = message("signed.example", "s@test", "x\r\n");
    let with_field = [b"Precedence: bulk\r\n", &plain[..]].concat();
    for (wire, wanted) in [(&plain, AUTHOR), (&with_field, LIST)] {
        let copy = copy("127.0.0.3", "signed.example", &signed(&signer, wire));
        assert!(copy.contains(wanted), "{copy}");
    }
    server.log().wait(&["From rewritten, since DMARC of held.example asks to quarantine"]);
    // The list does not stand for an author who has not sent the post: neither SPF nor a signature says so.
    let forged = message("signed.example", "forged@test", "x\r\n");
    server.connect_from("127.0.0.3").greeted().send("joe@signed.example", &["news@lists.test"], &forged).expect(250);
    let rows = listed(&server, &[]);
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0]["by"].as_str(), Some("DMARC: signed.example asks to reject"));
}

#[test]
fn only_copies_of_the_list_are_rewritten_and_a_list_may_refuse_or_insist() {
    const OTHER: &str = "bob@one.example";
    let signer = signer();
    let lab = lab(&signer);
    let server = builder(&lab).list("news", &[TO]).start();
    let wire = message("signed.example", "both@test", "x\r\n");
    server.smtp().send("joe@signed.example", &["news@lists.test", OTHER], &wire).expect(250);
    lab.wait("two copies", |recorder| recorder.copies_to(TO).len() + recorder.copies_to(OTHER).len() == 2);
    let body =
        |to| String::from_utf8_lossy(lab.recorder().copies_to(to)[0].body.as_ref().expect("a body")).into_owned();
    assert!(body(TO).contains(LIST) && body(OTHER).contains(AUTHOR) && !body(OTHER).contains("Reply-To"));
    drop(server);
    for (mode, domain, wanted) in [("never", "signed.example", AUTHOR), ("always", "nothing.example", LIST)] {
        let server = builder(&lab).list("news", &[TO]).set("lists.news.rewrite_from", &format!("\"{mode}\"")).start();
        let copy = copy_of_post(&lab, &server, "127.0.0.3", domain, &message(domain, mode, "x\r\n"));
        assert!(copy.contains(wanted), "{mode}: {copy}");
    }
}

/// A message with many signatures and a large body, which goes to the journal in pieces.
#[test]
fn many_signatures_and_a_large_body_are_bounded() {
    const BODY_BYTES: usize = 40 * 1024 * 1024;
    let signer = signer();
    let lab = lab(&signer);
    let builder = builder(&lab).set("authserv_id", "\"mx.test\"").set("listen.streamed_bytes_max", "1073741824");
    let server = with(builder, &[], CHECK);
    let line = "0123456789 abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ  \r\n";
    let large = message("signed.example", "large@test", &line.repeat(BODY_BYTES / line.len()));
    let simple = "DKIM-Signature: v=1; a=rsa-sha256; c=simple; d=signed.example; s=none; h=from; bh=AAAA; b=AAAA\r\n";
    let wire = signed(&signer, &[simple.repeat(500).as_bytes(), &large].concat());
    let before = server.memory_kib("VmHWM");
    let copy = delivered(&lab, &server, "127.0.0.2", "signed.example", &wire);
    let found = results(&copy);
    assert!(found.contains("dkim=pass header.d=signed.example header.s=s1"), "{found}");
    assert!(found.contains("491 more signatures not verified"), "{found}");
    assert_eq!(found.matches("dkim=").count(), 11, "{found}");
    let grown = server.memory_kib("VmHWM") - before;
    assert!(grown < 32 * 1024, "{grown} KiB more");
}
