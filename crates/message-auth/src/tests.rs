//! All methods together, over messages with signatures made here.

use std::sync::Arc;

use stentor_dkim::{Algorithm, BodyHash, Signer, SigningKey, Times, sign};

use super::*;

const NOW: u64 = 1_800_000_000;
const HEADER: &str = "From: Ann <ann@author.test>\r\nSubject: a post\r\n";
const BODY: &str = "text\r\n\r\n";

/// A DNS with these records; TXT unless the data is an address or `FAIL`.
struct Zone(Vec<(String, String)>);

impl Zone {
    fn of(records: &[(&str, &str)]) -> Zone {
        Zone(records.iter().map(|(name, data)| ((*name).to_owned(), (*data).to_owned())).collect())
    }

    fn answer(&self, question: &DnsQuestion) -> RecordAnswer {
        let all: Vec<&str> =
            self.0.iter().filter(|(name, _)| **name == *question.name).map(|(_, data)| &**data).collect();
        let address = all.first().and_then(|data| data.parse().ok());
        match (question.kind, all.first(), address) {
            (_, Some(&"FAIL"), _) => RecordAnswer::Failed,
            (RecordKind::A, _, Some(address)) => RecordAnswer::Addresses(vec![address]),
            (RecordKind::Txt, Some(_), None) => {
                RecordAnswer::Texts(all.iter().map(|text| text.as_bytes().into()).collect())
            }
            (RecordKind::Ptr, Some(name), None) => RecordAnswer::Hosts(vec![(*name).into()]),
            _ => RecordAnswer::Empty,
        }
    }
}

fn identity() -> SessionIdentity {
    let client = "192.0.2.1".parse().unwrap();
    SessionIdentity { client, helo: "mail.author.test".to_owned(), sender: "bounce@author.test".to_owned() }
}

fn scanned(message: &[u8], piece: usize) -> ScannedMessage {
    let mut scan = MessageScan::new(5);
    for piece in [b"OURS:", message].concat().chunks(piece) {
        scan.push(piece);
    }
    scan.finish()
}

/// The results, and the number of questions.
fn verified(zone: &Zone, identity: SessionIdentity, message: &[u8]) -> (AuthResults, usize) {
    finished(zone, Verification::new(identity, scanned(message, 1_000), true, NOW))
}

fn finished(zone: &Zone, mut verification: Verification) -> (AuthResults, usize) {
    let mut count = 0;
    while let Step::Ask(questions) = verification.step() {
        assert!(!questions.is_empty() && count <= QUESTIONS_MAX);
        count += questions.len();
        for question in questions {
            let answer = zone.answer(&question);
            verification.answer(question, answer);
        }
    }
    (verification.into_results(), count)
}

fn signer() -> Signer {
    let key = Arc::new(SigningKey::generate(Algorithm::Ed25519Sha256).unwrap().key);
    Signer { domain: "author.test".into(), selector: "s1".into(), key }
}

fn signed(signer: &Signer) -> Vec<u8> {
    let mut hash = BodyHash::default();
    hash.push(BODY.as_bytes());
    let times = Times { signed: NOW, expires: None };
    let field = sign(HEADER.as_bytes(), hash.finish(), std::slice::from_ref(signer), times).unwrap();
    [&field[..], HEADER.as_bytes(), b"\r\n", BODY.as_bytes()].concat()
}

fn zone(signer: &Signer) -> Zone {
    Zone::of(&[
        ("author.test", "v=spf1 ip4:192.0.2.0/24 -all"),
        ("mail.author.test", "v=spf1 a -all"),
        ("_dmarc.author.test", "v=DMARC1; p=reject"),
        ("s1._domainkey.author.test", &signer.key.record()),
        ("1.2.0.192.in-addr.arpa", "mail.author.test"),
    ])
}

#[test]
fn a_message_of_its_author_passes_all_methods() {
    let signer = signer();
    let (results, _) = verified(&zone(&signer), identity(), &signed(&signer));
    let value = results.value("mx.test");
    let lines: Vec<&str> = value.split(";\r\n\t").collect();
    assert_eq!(lines[..2], ["mx.test", "iprev=fail policy.iprev=192.0.2.1"], "{value}");
    assert_eq!(lines[2], "spf=pass smtp.mailfrom=bounce@author.test");
    assert!(lines[3].starts_with("spf=fail smtp.helo=mail.author.test"), "{value}");
    let dkim = "dkim=pass header.d=author.test header.s=s1 header.a=ed25519-sha256 header.b=";
    assert!(lines[4].starts_with(dkim), "{value}");
    assert_eq!(lines[5..], ["dmarc=pass header.from=author.test policy.dmarc=reject", "arc=none"]);
    assert_eq!(results.dispositions(), []);
    for piece in [1, 7, 100] {
        let message = scanned(&signed(&signer), piece);
        assert_eq!(message.header, scanned(&signed(&signer), 1_000).header, "{piece}");
    }
}

#[test]
fn a_changed_body_from_elsewhere_fails() {
    let signer = signer();
    let changed = [&signed(&signer)[..], b"more\r\n"].concat();
    let elsewhere = SessionIdentity { client: "198.51.100.1".parse().unwrap(), ..identity() };
    let (results, _) = verified(&zone(&signer), elsewhere, &changed);
    assert_eq!((results.dkim[0].result, results.spf[0].result), (MethodResult::Fail, MethodResult::Fail));
    assert_eq!(results.dkim[0].reason.as_deref(), Some("body was changed"));
    let reject = Disposition { policy: DmarcPolicy::Reject, domain: "author.test".to_owned() };
    assert_eq!(results.dispositions(), [reject]);
}

/// What receivers would do with a list's copies, and the number of questions.
fn of_copies(zone: &Zone, message: &[u8], replaced: &str) -> (Option<Disposition>, usize) {
    let fields = replaced.split(' ').map(str::to_owned).collect();
    let (results, count) = finished(zone, Verification::of_copies(scanned(message, 1_000), fields, NOW));
    (results.refusal_of_copies(), count)
}

#[test]
fn copies_of_a_list_pass_only_by_a_signature_that_lasts() {
    let signer = signer();
    let (message, plain) = (signed(&signer), [HEADER.as_bytes(), b"\r\n", BODY.as_bytes()].concat());
    let refused = |policy| Some(Disposition { policy, domain: "author.test".to_owned() });
    let with_policy = |record: &str| {
        let mut zone = zone(&signer);
        zone.0.retain(|(name, _)| name != "_dmarc.author.test");
        zone.0.push(("_dmarc.author.test".to_owned(), record.to_owned()));
        zone
    };
    let strict = zone(&signer);
    assert_eq!(of_copies(&strict, &message, "list-id precedence").0, None);
    // The author's signature has the subject.
    assert_eq!(of_copies(&strict, &message, "list-id subject").0, refused(DmarcPolicy::Reject));
    assert_eq!(of_copies(&strict, &[&message[..], b"x\r\n"].concat(), "list-id").0, refused(DmarcPolicy::Reject));
    assert_eq!(of_copies(&strict, &plain, "list-id").0, refused(DmarcPolicy::Reject));
    for (record, wanted) in [
        ("v=DMARC1; p=none", None),
        ("v=DMARC1; p=quarantine", refused(DmarcPolicy::Quarantine)),
        ("v=DMARC1; p=reject; t=y", refused(DmarcPolicy::Reject)),
        ("FAIL", None),
        ("v=spf1 -all", None),
    ] {
        assert_eq!(of_copies(&with_policy(record), &plain, "list-id").0, wanted, "{record}");
    }
    // Receivers would examine all of them, and the strictest policy counts.
    let many = "From: a@n1.test, b@n2.test, c@n3.test, d@n4.test, e@author.test\r\n\r\nx\r\n";
    assert!(of_copies(&strict, many.as_bytes(), "list-id").0.is_some());
    // A key that the DNS does not answer for could be right.
    let mut silent = zone(&signer);
    silent.0.retain(|(name, _)| !name.starts_with("s1."));
    silent.0.push(("s1._domainkey.author.test".to_owned(), "FAIL".to_owned()));
    assert_eq!(of_copies(&silent, &message, "list-id").0, None);
    let (_, questions) = of_copies(&strict, &plain, "list-id");
    assert!(questions <= 3, "neither SPF nor reverse DNS is asked for: {questions}");
}

#[test]
fn a_dns_that_fails_never_leads_to_a_policy() {
    let signer = signer();
    let elsewhere = || SessionIdentity { client: "198.51.100.1".parse().unwrap(), ..identity() };
    for name in ["author.test", "_dmarc.author.test", "s1._domainkey.author.test"] {
        let mut zone = zone(&signer);
        zone.0.retain(|(owner, _)| owner != name);
        zone.0.push((name.to_owned(), "FAIL".to_owned()));
        let changed = if name.starts_with("s1") { signed(&signer) } else { [&signed(&signer)[..], b"x\r\n"].concat() };
        let (results, _) = verified(&zone, elsewhere(), &changed);
        assert_eq!(results.dmarc[0].result, MethodResult::TempError, "{name}");
        assert_eq!(results.dispositions(), [], "{name}");
    }
    // No answer at all.
    let mut verification = Verification::new(elsewhere(), scanned(&signed(&signer), 50), true, NOW);
    assert!(matches!(verification.step(), Step::Ask(_)));
    verification.close();
    assert!(matches!(verification.step(), Step::Done));
    let results = verification.into_results();
    let unknown = MethodResult::TempError;
    assert_eq!((results.iprev, results.spf[0].result, results.dkim[0].result), (unknown, unknown, unknown));
    assert_eq!(results.dispositions(), []);
}

#[test]
fn many_signatures_cost_a_bounded_number_of_questions() {
    let one = |n: usize| format!("DKIM-Signature: v=1; a=rsa-sha256; d=d{n}.test; s=s; h=from; bh=AAAA; b=AAAA\r\n");
    let many: String = (0..500).map(one).collect();
    let message = format!("{many}{HEADER}\r\n{BODY}");
    let (results, questions) = verified(&Zone::of(&[]), identity(), message.as_bytes());
    assert_eq!((results.dkim.len(), results.skipped_signatures), (SIGNATURES_MAX, 490));
    assert!(questions < 20, "{questions}");
    assert!(results.value("x").contains("490 more signatures not verified"));
    let seals = |n: usize| format!("ARC-Seal: i={n}; a=rsa-sha256; cv=pass; d=d{n}.test; s=s; b=AAAA\r\n");
    let chain: String = (1..=500).map(seals).collect();
    let (results, _) = verified(&Zone::of(&[]), identity(), format!("{chain}{HEADER}\r\n{BODY}").as_bytes());
    assert_eq!(results.arc.result, MethodResult::Fail);
}

#[test]
fn several_authors_are_all_checked() {
    let records = [("_dmarc.a.test", "v=DMARC1; p=quarantine"), ("_dmarc.b.test", "v=DMARC1; p=reject")];
    let from = |value: &str| format!("From: {value}\r\n\r\nx\r\n");
    let (results, _) = verified(&Zone::of(&records), identity(), from("x@a.test, x@b.test").as_bytes());
    let asked: Vec<_> = results.dispositions().into_iter().map(|one| one.policy).collect();
    assert_eq!(asked, [DmarcPolicy::Quarantine, DmarcPolicy::Reject]);
    let many = from("x@c.test, x@d.test, x@e.test, x@f.test, x@g.test");
    let (results, _) = verified(&Zone::of(&records), identity(), many.as_bytes());
    assert_eq!(results.dispositions()[0].policy, DmarcPolicy::Reject);
    assert!(results.value("x").contains("dmarc=permerror"));
}

#[test]
fn nothing_that_a_client_chooses_ends_a_value() {
    let hostile = "a\"\r\n; dmarc=pass; x=\\@x(y";
    let identity = SessionIdentity { sender: format!("{hostile}@author.test"), ..identity() };
    let (results, _) = verified(&Zone::of(&[]), identity, b"From: x\r\n\r\n");
    let value = results.value("mx.test");
    let line = value.split(";\r\n\t").nth(2).unwrap();
    assert_eq!(line, "spf=none smtp.mailfrom=\"a\\\"??; dmarc=pass; x=\\\\@x(y@author.test\"");
}

mod arc {
    use base64ct::{Base64, Encoding};
    use stentor_dkim::CanonicalForm;

    use super::*;

    /// Adds a set of ARC fields for an instance; all fields are written in their canonical form.
    fn sealed(chain: &str, instance: usize, header: &str, key: &aws_lc_rs::signature::Ed25519KeyPair) -> String {
        let sign = |text: &str| {
            let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
            Base64::encode_string(key.sign(hash.as_ref()).as_ref())
        };
        let mut body = BodyHash::new(CanonicalForm::Relaxed);
        body.push(BODY.as_bytes());
        let body_hash = Base64::encode_string(&body.finish().0);
        let results = format!("arc-authentication-results:i={instance}; mx.test; spf=pass\r\n");
        let begin = format!(
            "arc-message-signature:i={instance}; a=ed25519-sha256; c=relaxed/relaxed; d=mx.test; s=k; h=from:subject; \
             bh={body_hash}; b="
        );
        let message = format!("{begin}{}\r\n", sign(&format!("{header}{begin}")));
        let cv = if instance == 1 { "none" } else { "pass" };
        let begin = format!("arc-seal:i={instance}; a=ed25519-sha256; cv={cv}; d=mx.test; s=k; b=");
        let seal = format!("{begin}{}\r\n", sign(&format!("{chain}{results}{message}{begin}")));
        format!("{chain}{results}{message}{seal}")
    }

    #[test]
    fn a_chain_passes_until_somebody_changes_it() {
        use aws_lc_rs::signature::KeyPair as _;
        let key = aws_lc_rs::signature::Ed25519KeyPair::generate().unwrap();
        let record = format!("v=DKIM1; k=ed25519; p={}", Base64::encode_string(key.public_key().as_ref()));
        let zone = Zone::of(&[("k._domainkey.mx.test", &record)]);
        let header = "from:ann@author.test\r\nsubject:a post\r\n";
        let chain = sealed(&sealed("", 1, header, &key), 2, header, &key);
        let result = |zone: &Zone, message: &str| verified(zone, identity(), message.as_bytes()).0.arc;
        let message = format!("{chain}{header}\r\n{BODY}");
        let arc = result(&zone, &message);
        assert_eq!((arc.result, arc.reason, arc.sets), (MethodResult::Pass, None, 2));
        for (from, to) in [
            ("i=1; mx.test; spf=pass", "i=1; mx.test; spf=fail"),
            ("subject:a post", "subject:another post"),
            ("text\r\n", "texts\r\n"),
            ("i=2; a=ed25519-sha256; cv=pass", "i=2; a=ed25519-sha256; cv=fail"),
            ("arc-seal:i=2", "arc-seal:i=3"),
            ("arc-seal:i=1", "x-seal:i=1"),
        ] {
            assert!(message.contains(from));
            assert_eq!(result(&zone, &message.replacen(from, to, 1)).result, MethodResult::Fail, "{from}");
        }
        let silent = Zone::of(&[("k._domainkey.mx.test", "FAIL")]);
        assert_eq!(result(&silent, &message).result, MethodResult::TempError);
    }
}

proptest::proptest! {
    #[test]
    fn any_message_and_any_dns_end(
        message in "((DKIM-Signature|From|ARC-Seal|x): [a-z=;.@,<\"( 0-9:]{0,40}\r\n){0,8}\r\n[a \r\n]{0,20}",
        text in "(v=spf1|v=DMARC1;|p=)( ?[a-z0-9:=;%{}./-]{0,12}){0,6}",
        sender in "[a-z.]{0,5}@[a-z.]{0,9}",
    ) {
        let mut verification =
            Verification::new(SessionIdentity { sender, ..identity() }, scanned(message.as_bytes(), 9), true, NOW);
        let mut count = 0;
        while let Step::Ask(questions) = verification.step() {
            proptest::prop_assert!(!questions.is_empty());
            count += questions.len();
            for question in questions {
                let answer = match question.kind {
                    RecordKind::Txt => RecordAnswer::Texts(vec![text.as_bytes().into()]),
                    RecordKind::Mx | RecordKind::Ptr => RecordAnswer::Hosts(vec!["h.test".into(); 12]),
                    _ => RecordAnswer::Empty,
                };
                verification.answer(question, answer);
            }
        }
        proptest::prop_assert!(count <= QUESTIONS_MAX);
        let value = verification.into_results().value("mx.test");
        proptest::prop_assert!(value.is_ascii() && !value.contains("\n\r") && value.starts_with("mx.test;"));
    }
}
