//! The test suite of RFC 7208 (tests/rfc7208.json says where it comes from).

use std::net::IpAddr;

use serde_json::Value;

use super::*;
use crate::dns::{DnsQuestion, KnownAnswers};

const SUITE: &str = include_str!("../../tests/rfc7208.json");

/// Answers from the zone data of a group of tests.
struct Zone<'z>(&'z Value);

impl Zone<'_> {
    fn records(&self, name: &str) -> Option<&Vec<Value>> {
        let zone = self.0.as_object().unwrap();
        zone.iter().find(|(owner, _)| owner.eq_ignore_ascii_case(name)).map(|(_, records)| records.as_array().unwrap())
    }

    /// The record's type, and its data; SPF records of the suite stand for TXT records unless the name has those.
    fn data<'r>(records: &'r [Value], kind: &str) -> Vec<&'r Value> {
        let of = |kind: &str| -> Vec<&Value> {
            records.iter().filter(|record| record[0] == kind).map(|record| &record[1]).collect()
        };
        let found = of(kind);
        if kind == "TXT" && found.is_empty() { of("SPF") } else { found }
    }

    fn answer(&self, question: &DnsQuestion, aliases: u32) -> RecordAnswer {
        let Some(records) = self.records(&question.name) else {
            return if question.name.starts_with("error.") { RecordAnswer::Failed } else { RecordAnswer::Empty };
        };
        let kind = match question.kind {
            RecordKind::A => "A",
            RecordKind::Aaaa => "AAAA",
            RecordKind::Mx => "MX",
            RecordKind::Ptr => "PTR",
            RecordKind::Txt => "TXT",
        };
        let mut found = Zone::data(records, kind);
        found.retain(|data| **data != "NONE");
        if found.is_empty() {
            if let Some(alias) = Zone::data(records, "CNAME").first().filter(|_| aliases < 8) {
                let name = alias.as_str().unwrap().trim_end_matches('.').to_ascii_lowercase().into();
                return self.answer(&DnsQuestion { name, kind: question.kind }, aliases + 1);
            }
            let fails = records.iter().any(|record| record[0] == "TIMEOUT");
            return if fails { RecordAnswer::Failed } else { RecordAnswer::Empty };
        }
        let text = |value: &Value| match value {
            Value::Array(strings) => strings.iter().map(|one| one.as_str().unwrap()).collect::<String>(),
            one => one.as_str().unwrap().to_owned(),
        };
        match question.kind {
            RecordKind::A | RecordKind::Aaaa => {
                RecordAnswer::Addresses(found.iter().map(|one| text(one).parse().unwrap()).collect())
            }
            RecordKind::Mx => RecordAnswer::Hosts(found.iter().map(|one| one[1].as_str().unwrap().into()).collect()),
            RecordKind::Ptr => RecordAnswer::Hosts(found.iter().map(|one| text(one).into()).collect()),
            RecordKind::Txt => RecordAnswer::Texts(found.iter().map(|one| text(one).into_bytes().into()).collect()),
        }
    }
}

/// Asks until nothing is asked any more; returns the result and the number of questions.
fn checked(zone: &Zone<'_>, request: SpfRequest<'_>) -> (MethodResult, usize) {
    let (mut answers, mut count) = (KnownAnswers::default(), 0);
    for _ in 0..100 {
        let inquiry = Inquiry::new(&answers);
        let result = check_host(&inquiry, request);
        let questions = inquiry.into_questions();
        if let Ok(result) = result {
            return (result, count);
        }
        assert!(!questions.is_empty());
        count += questions.len();
        for question in questions {
            let answer = zone.answer(&question, 0);
            answers.add(question, answer);
        }
    }
    panic!("no end");
}

#[test]
fn the_suite_of_rfc_7208_passes() {
    let groups: Value = serde_json::from_str(SUITE).unwrap();
    let (mut count, mut wrong) = (0, Vec::new());
    for group in groups.as_array().unwrap() {
        let zone = Zone(&group["zonedata"]);
        for test in group["tests"].as_array().unwrap() {
            let text = |key: &str| test[key].as_str().unwrap();
            let client: IpAddr = text("host").parse::<IpAddr>().unwrap().to_canonical();
            let helo = text("helo");
            let (local, domain) = text("mailfrom").rsplit_once('@').unwrap_or(("postmaster", helo));
            let (result, _) = checked(&zone, SpfRequest { client, helo, local, domain });
            count += 1;
            if !test["result"].as_array().unwrap().iter().any(|one| one == result.word()) {
                wrong.push(format!(
                    "{} / {}: {} instead of {}",
                    group["description"],
                    test["name"],
                    result.word(),
                    test["result"]
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(count, 203);
}

#[test]
fn records_that_never_end_are_cut_off() {
    let zone = serde_json::json!({
        "a.test": [["TXT", "v=spf1 include:a.test a:%{l}.a.test -all"]],
        "b.test": [["TXT", "v=spf1 redirect=b.test"]],
        "c.test": [["TXT", "v=spf1 mx mx:d.test mx:e.test mx:f.test mx:g.test -all"]],
    });
    let client = "192.0.2.1".parse().unwrap();
    for (domain, most) in [("a.test", 1), ("b.test", 1), ("c.test", 4)] {
        let (result, questions) = checked(&Zone(&zone), SpfRequest { client, helo: "x.test", local: "a", domain });
        assert_eq!(result, MethodResult::PermError, "{domain}");
        assert!(questions <= most, "{domain}: {questions}");
    }
}
