//! Tests the decisions in tests/dane.toml, and properties that hold for all answers.

use proptest::prelude::*;
use serde::Deserialize;
use stentor_tls_policy::dane::{
    Answer, Answers, DaneDecision, DaneProof, DaneRefusal, HostFacts, MxFacts, NotApplicable, SecurityStatus, Step,
    decide,
};

#[derive(Deserialize)]
struct Cases {
    case: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    #[serde(default = "secure")]
    mx: String,
    #[serde(default)]
    mx_alias: bool,
    #[serde(default = "secure")]
    host: String,
    #[serde(default)]
    alias: String,
    end: PublishedPolicies,
    at_name: Option<PublishedPolicies>,
    dane: String,
    dane_only: String,
    #[serde(default)]
    base: String,
    #[serde(default)]
    records: usize,
    #[serde(default)]
    half: bool,
    /// Only for the lab.
    #[serde(default)]
    handshake: String,
    lab: Option<bool>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum PublishedPolicies {
    Word(String),
    Records(Vec<String>),
}

fn secure() -> String {
    "secure".to_owned()
}

const HOST: &str = "mx.host.test";
const END: &str = "real.host.test";

impl PublishedPolicies {
    fn answer(&self) -> Answer<Vec<Vec<u8>>> {
        match self {
            PublishedPolicies::Word(word) => match word.as_str() {
                "absent" => Answer::Absent,
                "insecure" => Answer::Found(SecurityStatus::Insecure, vec![rdata("3 1 1 ee-key")]),
                "failed" | "bogus" => Answer::Failed("SERVFAIL".to_owned()),
                other => panic!("{other}"),
            },
            PublishedPolicies::Records(records) => {
                Answer::Found(SecurityStatus::Secure, records.iter().map(|r| rdata(r)).collect())
            }
        }
    }
}

/// The data of a record; certificates that the lab creates are replaced by data of the same form.
fn rdata(record: &str) -> Vec<u8> {
    let fields: Vec<&str> = record.split(' ').collect();
    let numbers: Vec<u8> = fields[..3].iter().map(|n| n.parse().unwrap()).collect();
    let seed = fields[3].bytes().fold(0u8, |sum, b| sum.wrapping_mul(31).wrapping_add(b));
    let data = match (fields[3], numbers[2]) {
        ("ee-key" | "ee-cert" | "ta-key" | "ta-cert" | "other", 0) => vec![0x30, 1, seed],
        ("ee-key" | "ee-cert" | "ta-key" | "ta-cert" | "other", 2) => vec![seed; 64],
        ("ee-key" | "ee-cert" | "ta-key" | "ta-cert" | "other", _) => vec![seed; 32],
        (hex, _) => (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect(),
    };
    [numbers, data].concat()
}

/// Makes all queries until there is a decision, and counts them.
fn decided(only: bool, case: &Case) -> (DaneDecision, usize) {
    let security = |word: &str| if word == "secure" { SecurityStatus::Secure } else { SecurityStatus::Insecure };
    let mx = (case.mx != "none").then(|| MxFacts {
        security: security(&case.mx),
        domain: "host.test".to_owned(),
        canonical: if case.mx_alias { "canonical.test" } else { "host.test" }.to_owned(),
    });
    let canonical = if case.alias.is_empty() { HOST } else { END }.to_owned();
    let host = HostFacts { name: HOST.to_owned(), canonical, security: security(&case.host), port: 25 };
    let mut answers = Answers::default();
    for questions in 0..4 {
        match decide(only, mx.as_ref(), &host, &answers) {
            Step::Done(decision) => return (decision, questions),
            Step::AskAlias(name) => {
                assert_eq!(name, HOST);
                answers.alias = Some(match case.alias.as_str() {
                    "gone" => Answer::Absent,
                    "failed" => Answer::Failed("SERVFAIL".to_owned()),
                    word => Answer::Found(security(word), ()),
                });
            }
            Step::AskCanonical(owner) => {
                assert_eq!(owner, format!("_25._tcp.{}", host.canonical));
                answers.canonical = Some(case.end.answer());
            }
            Step::AskName(owner) => {
                assert_eq!(owner, format!("_25._tcp.{HOST}"));
                answers.name = Some(case.at_name.as_ref().expect("asked at the name").answer());
            }
        }
    }
    panic!("{}: it asks without end", case.name);
}

fn word(decision: &DaneDecision) -> &'static str {
    match decision {
        DaneDecision::NotApplicable(_) => "may",
        DaneDecision::Encrypt { .. } => "encrypt",
        DaneDecision::Match(_) => "match",
        DaneDecision::Refuse(_) => "defer",
    }
}

#[test]
fn every_case_is_decided_as_postfix_does() {
    let cases: Cases = toml::from_str(include_str!("dane.toml")).unwrap();
    assert!(cases.case.len() >= 30, "{}", cases.case.len());
    assert!(cases.case.iter().filter(|case| case.lab != Some(false)).count() >= 30);
    for case in &cases.case {
        // The resolver finds no host, so there is nothing to decide.
        if case.mx == "bogus" || case.host == "bogus" {
            assert_eq!((&*case.dane, &*case.dane_only), ("defer", "defer"));
            continue;
        }
        let (dane, _) = decided(false, case);
        let (only, _) = decided(true, case);
        assert_eq!((word(&dane), word(&only)), (&*case.dane, &*case.dane_only), "{}: {dane:?}", case.name);
        assert_eq!(case.handshake.is_empty(), case.dane != "match", "{}", case.name);
        if let DaneDecision::Match(proof) = dane {
            assert_eq!(proof.records.len(), case.records, "{}", case.name);
            let at_name = case.base == "name" || case.alias.is_empty();
            assert_eq!(proof.base_domain, if at_name { HOST } else { END }, "{}", case.name);
            assert_eq!(proof.mx == SecurityStatus::Insecure, case.half, "{}", case.name);
            assert_eq!(proof.names[0], proof.base_domain);
        }
    }
}

#[test]
fn names_of_a_trust_anchors_certificate() {
    let mx = MxFacts { security: SecurityStatus::Secure, domain: "a.test".into(), canonical: "b.test".into() };
    let host = HostFacts { name: HOST.into(), canonical: HOST.into(), security: SecurityStatus::Secure, port: 2525 };
    let found = Answer::Found(SecurityStatus::Secure, vec![rdata("2 1 1 ta-key")]);
    let answers = Answers { canonical: Some(found), ..Answers::default() };
    let names = |mx: Option<&MxFacts>| match decide(false, mx, &host, &answers) {
        Step::Done(DaneDecision::Match(DaneProof { names, .. })) => names.join(" "),
        other => panic!("{other:?}"),
    };
    assert_eq!(names(Some(&mx)), "mx.host.test b.test a.test");
    assert_eq!(names(Some(&MxFacts { canonical: "a.test".into(), ..mx.clone() })), "mx.host.test a.test");
    assert_eq!(names(None), "mx.host.test");
    assert_eq!(decide(false, None, &host, &Answers::default()), Step::AskCanonical("_2525._tcp.mx.host.test".into()));
}

#[test]
fn refusals_name_host_and_reason() {
    let text = DaneRefusal::LookUp { host: HOST.into(), port: 25, why: "SERVFAIL".into() }.to_string();
    assert_eq!(text, "TLSA lookup error for mx.host.test:25: SERVFAIL");
    assert!(DaneRefusal::NotApplicable(NotApplicable::InsecureMx).to_string().contains("MX records"));
}

fn security() -> impl Strategy<Value = SecurityStatus> {
    prop_oneof![Just(SecurityStatus::Secure), Just(SecurityStatus::Insecure)]
}

fn tlsa() -> impl Strategy<Value = Answer<Vec<Vec<u8>>>> {
    let records = proptest::collection::vec(proptest::collection::vec(0..4u8, 34..36), 0..4);
    prop_oneof![
        Just(Answer::Absent),
        Just(Answer::Failed("time-out".to_owned())),
        (security(), records).prop_map(|(security, records)| Answer::Found(security, records)),
    ]
}

fn alias_answer() -> impl Strategy<Value = Answer<()>> {
    let found = security().prop_map(|security| Answer::Found(security, ()));
    prop_oneof![found, Just(Answer::Absent), Just(Answer::Failed(String::new()))]
}

proptest! {
    /// Only secure records are matched; a failure never leads to mail in clear; `dane-only` never proceeds without a
    /// match.
    #[test]
    fn nothing_insecure_is_trusted_and_no_failure_opens_the_way(
        mx in proptest::option::of(security()), of_host in security(), alias: bool, canonical in tlsa(), name in tlsa(),
        of_alias in alias_answer(),
    ) {
        let mx = mx.map(|security| MxFacts { security, domain: "d.test".into(), canonical: "d.test".into() });
        let end = if alias { END } else { HOST };
        let host = HostFacts { name: HOST.into(), canonical: end.into(), security: of_host, port: 25 };
        let mut decisions = Vec::new();
        for only in [false, true] {
            let mut asked = Answers::default();
            loop {
                match decide(only, mx.as_ref(), &host, &asked) {
                    Step::AskAlias(_) => asked.alias = Some(of_alias.clone()),
                    Step::AskCanonical(_) => asked.canonical = Some(canonical.clone()),
                    Step::AskName(_) => asked.name = Some(name.clone()),
                    Step::Done(decision) => break decisions.push((decision, asked.clone())),
                }
            }
        }
        let (dane, asked_for_dane) = &decisions[0];
        let has_failed = |a: &Option<Answer<Vec<Vec<u8>>>>| matches!(a, Some(Answer::Failed(_)));
        if has_failed(&asked_for_dane.canonical) || has_failed(&asked_for_dane.name) {
            let is_refused = matches!(dane, DaneDecision::Refuse(DaneRefusal::LookUp { .. }));
            prop_assert!(is_refused);
        }
        let is_secure = |a: &Option<Answer<Vec<Vec<u8>>>>| matches!(a, Some(Answer::Found(SecurityStatus::Secure, records)) if !records.is_empty());
        if matches!(dane, DaneDecision::Match(_) | DaneDecision::Encrypt { .. }) {
            prop_assert!(is_secure(&asked_for_dane.canonical) || is_secure(&asked_for_dane.name));
        }
        let (only, _) = &decisions[1];
        prop_assert!(matches!(only, DaneDecision::Match(_) | DaneDecision::Refuse(_)));
        if let DaneDecision::Match(proof) = only {
            prop_assert_eq!(proof.mx, SecurityStatus::Secure);
            prop_assert_eq!(dane, only);
        }
    }
}
