//! The DKIM, ARC and DMARC cases of mail-auth (`tests/mail_auth/README.md`).

use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use stentor_dkim::{Algorithm, MessageHash, Signer, SigningKey, Times, sign};
use stentor_message_auth::{
    AuthResults, DnsQuestion, MessageScan, MethodResult, RecordAnswer, RecordKind, SessionIdentity, Step, Verification,
};

/// When mail-auth's messages are verified.
const NOW_S: u64 = 1_667_843_664;
const CLIENT: &str = "192.0.2.1";

/// Records as `[name, kind, value]`; `FAIL` for any kind, `FAILTXT` for TXT.
type Zone = Vec<[String; 3]>;

fn answer(zone: &Zone, question: &DnsQuestion) -> RecordAnswer {
    let records: Vec<_> = zone.iter().filter(|[name, ..]| **name == *question.name).collect();
    let values = |wanted: &str| -> Vec<&str> {
        records.iter().filter(|[_, kind, _]| kind == wanted).map(|[_, _, value]| value.as_str()).collect()
    };
    let is_txt = question.kind == RecordKind::Txt;
    if !values("FAIL").is_empty() || is_txt && !values("FAILTXT").is_empty() {
        return RecordAnswer::Failed;
    }
    match question.kind {
        RecordKind::Txt if !values("TXT").is_empty() => {
            RecordAnswer::Texts(values("TXT").iter().map(|text| text.as_bytes().into()).collect())
        }
        RecordKind::A if !values("A").is_empty() => {
            RecordAnswer::Addresses(values("A").iter().map(|text| text.parse().unwrap()).collect())
        }
        _ => RecordAnswer::Empty,
    }
}

fn verified(zone: &Zone, sender: &str, message: &[u8]) -> AuthResults {
    let mut scan = MessageScan::new(0);
    scan.push(message);
    let identity =
        SessionIdentity { client: CLIENT.parse().unwrap(), helo: "client".to_owned(), sender: sender.to_owned() };
    let mut verification = Verification::new(identity, scan.finish(), true, NOW_S);
    while let Step::Ask(questions) = verification.step() {
        for question in questions {
            let answer = answer(zone, &question);
            verification.answer(question, answer);
        }
    }
    verification.into_results()
}

/// The results of all messages of a folder, with the names of their files.
fn folder_results(folder: &str) -> Vec<(String, AuthResults)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mail_auth").join(folder);
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files
        .map(|file| {
            let text = fs::read_to_string(&file).unwrap();
            let (records, message) = text.split_once("\n\n").unwrap();
            let record = |line: &str| {
                let (name, text) = line.split_once(' ').unwrap();
                [name.to_owned(), "TXT".to_owned(), text.to_owned()]
            };
            let zone = records.lines().map(record).collect();
            let results = verified(&zone, "", message.replace('\n', "\r\n").as_bytes());
            (file.display().to_string(), results)
        })
        .collect()
}

#[test]
fn the_dkim_messages_pass() {
    let all = folder_results("dkim");
    assert_eq!(all.len(), 6);
    for (file, results) in all {
        assert_eq!(results.dkim.last().map(|one| one.result), Some(MethodResult::Pass), "{file}: {:?}", results.dkim);
    }
}

#[test]
fn the_arc_messages_pass() {
    let all = folder_results("arc");
    assert_eq!(all.len(), 2);
    for (file, results) in all {
        assert_eq!(results.arc.result, MethodResult::Pass, "{file}: {:?}", results.arc);
        assert!(results.dkim.iter().any(|one| one.result == MethodResult::Pass), "{file}: {:?}", results.dkim);
    }
}

fn pair<'c>(case: &'c Value, key: &str) -> Option<(&'c str, &'c str)> {
    let pair = case.get(key)?;
    Some((pair[0].as_str().unwrap(), pair[1].as_str().unwrap()))
}

/// The message of a case, signed as it wants; adds the key to the zone.
fn message(case: &Value, zone: &mut Zone) -> Vec<u8> {
    let message = format!("From: {}\r\nSubject: x\r\n\r\ntext\r\n", case["from"].as_str().unwrap());
    let Some((result, domain)) = pair(case, "dkim") else { return message.into_bytes() };
    let key = Arc::new(SigningKey::generate(Algorithm::Ed25519Sha256).unwrap().key);
    let record = key.record();
    let signer = Signer { domain: domain.into(), selector: "s".into(), key };
    let mut hash = MessageHash::default();
    hash.push(message.as_bytes());
    let (header, body) = hash.finish();
    let field = sign(&header, body, &[signer], Times { signed: NOW_S - 1, expires: None }).unwrap();
    let kind = if result == "temperror" { "FAILTXT" } else { "TXT" };
    zone.push([format!("s._domainkey.{domain}"), kind.to_owned(), record]);
    let tail: &[u8] = if result == "fail" { b"changed\r\n" } else { b"" };
    [&field, message.as_bytes(), tail].concat()
}

#[test]
fn the_dmarc_cases_have_their_results() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("mail_auth/dmarc.json")).unwrap();
    assert_eq!(cases.len(), 28);
    for case in &cases {
        let mut zone: Zone = serde_json::from_value(case["records"].clone()).unwrap();
        let message = message(case, &mut zone);
        let sender = pair(case, "spf").map_or(String::new(), |(result, domain)| {
            let (kind, record) = match result {
                "pass" => ("TXT", "v=spf1 +all"),
                "fail" => ("TXT", "v=spf1 -all"),
                _ => ("FAILTXT", ""),
            };
            zone.push([domain.to_ascii_lowercase(), kind.to_owned(), record.to_owned()]);
            format!("a@{domain}")
        });
        let results = verified(&zone, &sender, &message);
        let [found] = results.dmarc.as_slice() else { panic!("{}: {:?}", case["name"], results.dmarc) };
        assert_eq!(found.result.word(), case["result"], "{}: {results:?}", case["name"]);
        if let Some(policy) = case.get("policy").filter(|_| found.policy.is_some()) {
            assert_eq!(found.policy.unwrap().word(), policy, "{}", case["name"]);
        }
    }
}
