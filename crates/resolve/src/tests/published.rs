//! Tests of DANE: the queries made, and that only answers authenticated by a name server on this machine count.

use hickory_proto::rr::rdata::{TLSA, TXT};
use stentor_tls_policy::dane::{DaneDecision, DaneRefusal, NotApplicable};

use super::*;

fn tlsa(usage: u8) -> RData {
    RData::TLSA(TLSA::new(usage.into(), 1.into(), 1.into(), vec![7; 32]))
}

/// `_2525._tcp.` and the host.
fn at(host: &str) -> String {
    format!("_2525._tcp.{host}")
}

async fn with(zones: Vec<(String, Zone)>) -> Resolver {
    Resolver::new(config(serve(zones.into_iter().collect()).await.0)).unwrap()
}

/// The result for each host, in order.
async fn decided(resolver: &Resolver, domain: &str, only: bool) -> Vec<(String, &'static str, u32)> {
    let (resolution, facts) = resolver.resolve_with_facts(domain).await;
    assert!(matches!(resolution, Resolution::Site(_)), "{resolution:?}");
    let word = |decision: &DaneDecision| match decision {
        DaneDecision::NotApplicable(NotApplicable::NoDnssec) => "no-dnssec",
        DaneDecision::NotApplicable(NotApplicable::InsecureHost) => "insecure-host",
        DaneDecision::NotApplicable(NotApplicable::NoRecords) => "no-records",
        DaneDecision::NotApplicable(NotApplicable::InsecureMx)
        | DaneDecision::Refuse(DaneRefusal::NotApplicable(_)) => "not-applicable",
        DaneDecision::Encrypt { .. } => "encrypt",
        DaneDecision::Match(_) => "match",
        DaneDecision::Refuse(DaneRefusal::LookUp { .. }) => "defer",
        DaneDecision::Refuse(DaneRefusal::Unusable { .. }) => "unusable",
    };
    let all = resolver.decisions(only, &facts).await;
    all.into_iter().map(|decided| (decided.host, word(&decided.decision), decided.ttl_s)).collect()
}

#[tokio::test]
async fn only_what_is_authentic_counts() {
    let address = || vec![ip("127.0.0.2")];
    let mut zones: Vec<(String, Zone)> = vec![
        ("a.x".into(), Zone::Signed(vec![mx(1, "ee.x"), mx(2, "unsigned.x"), mx(3, "half.x"), mx(4, "none.x")])),
        ("b.x".into(), Zone::Signed(vec![mx(1, "broken.x"), mx(2, "silent.x"), mx(3, "old.x"), mx(4, "alias.x")])),
        (at("ee.x"), Zone::Signed(vec![tlsa(3)])),
        // The host's addresses are not signed, so its records are not queried.
        (at("unsigned.x"), Zone::Signed(vec![tlsa(3)])),
        // Its addresses are signed, its records are not.
        (at("half.x"), Zone::Records(vec![tlsa(3)])),
        (at("broken.x"), Zone::Code(ResponseCode::ServFail)),
        (at("silent.x"), Zone::Silent),
        (at("old.x"), Zone::Signed(vec![tlsa(1)])),
        ("alias.x".into(), Zone::Alias("end.x", address(), true)),
        (at("end.x"), Zone::Signed(vec![tlsa(3)])),
        ("unsigned.x".into(), Zone::Records(address())),
    ];
    for host in ["ee.x", "half.x", "none.x", "broken.x", "silent.x", "old.x"] {
        zones.push((host.into(), Zone::Signed(address())));
    }
    let resolver = with(zones).await;
    let words = |decided: &[(String, &'static str, u32)]| {
        decided.iter().map(|(host, word, _)| format!("{host} {word}")).collect::<Vec<_>>().join(", ")
    };
    let a = decided(&resolver, "a.x", false).await;
    assert_eq!(words(&a), "ee.x match, unsigned.x insecure-host, half.x no-records, none.x no-records");
    assert!((1..=300).contains(&a[0].2), "as long as its records: {a:?}");
    let b = decided(&resolver, "b.x", false).await;
    assert_eq!(words(&b), "broken.x defer, silent.x defer, old.x encrypt, alias.x match");
    assert!(b[0].2 <= 60, "soon again: {b:?}");
    let only = decided(&resolver, "a.x", true).await;
    assert_eq!(words(&only), "ee.x match, unsigned.x not-applicable, half.x not-applicable, none.x not-applicable");
}

#[tokio::test]
async fn the_names_where_aliases_lead_are_known() {
    let zones = vec![
        ("a.x".into(), Zone::Alias("real.y", vec![mx(1, "alias.x")], true)),
        ("alias.x".into(), Zone::Alias("end.y", vec![ip("127.0.0.2")], true)),
        (at("end.y"), Zone::Signed(vec![tlsa(2)])),
        ("half.x".into(), Zone::Records(vec![mx(1, "alias.x")])),
        // The end of an insecure alias is not queried, and the name itself only if it is certainly an alias.
        ("loose.x".into(), Zone::Signed(vec![mx(1, "lost.x")])),
        ("lost.x".into(), Zone::Alias("end.y", vec![ip("127.0.0.2")], false)),
    ];
    let resolver = with(zones).await;
    let (_, facts) = resolver.resolve_with_facts("a.x").await;
    let all = resolver.decisions(false, &facts).await;
    let [decided] = &all[..] else { panic!("{all:?}") };
    let DaneDecision::Match(proof) = &decided.decision else { panic!("{decided:?}") };
    assert_eq!(proof.names, ["end.y", "real.y", "a.x"]);
    assert!(proof.mx.is_secure());
    let (_, facts) = resolver.resolve_with_facts("half.x").await;
    let DaneDecision::Match(proof) = &resolver.decisions(false, &facts).await[0].decision else { panic!("{facts:?}") };
    assert!(!proof.mx.is_secure());
    assert_eq!(decided_word(&resolver, "loose.x").await, "insecure-host");
}

async fn decided_word(resolver: &Resolver, domain: &str) -> &'static str {
    decided(resolver, domain, false).await[0].1
}

#[tokio::test]
async fn a_name_server_elsewhere_is_not_believed() {
    let zones: Vec<(String, Zone)> = vec![
        ("a.x".into(), Zone::Signed(vec![mx(1, "ee.x")])),
        ("ee.x".into(), Zone::Signed(vec![ip("127.0.0.2")])),
        (at("ee.x"), Zone::Signed(vec![tlsa(3)])),
    ];
    let (server, _) = serve(zones.into_iter().collect()).await;
    let elsewhere: SocketAddr = "192.0.2.1:53".parse().unwrap();
    let resolver = Resolver::new(ResolverConfig { name_servers: vec![server, elsewhere], ..config(server) }).unwrap();
    assert!(!resolver.validates());
    assert_eq!(decided_word(&resolver, "a.x").await, "no-dnssec");
    let resolver = Resolver::new(config(server)).unwrap();
    assert!(resolver.validates());
    assert_eq!(decided_word(&resolver, "a.x").await, "match");
}

#[tokio::test]
async fn texts_are_joined_and_a_failure_is_none() {
    let text = |parts: &[&str]| RData::TXT(TXT::new(parts.iter().map(|part| (*part).to_owned()).collect()));
    let zones = vec![
        ("_mta-sts.a.x".into(), records(vec![text(&["v=STSv1; ", "id=1;"]), text(&["other"])])),
        ("_mta-sts.bad.x".into(), Zone::Code(ResponseCode::ServFail)),
    ];
    let resolver = with(zones).await;
    let texts = resolver.texts("_mta-sts.a.x").await.unwrap();
    assert_eq!(texts, [b"v=STSv1; id=1;".to_vec(), b"other".to_vec()]);
    assert_eq!(resolver.texts("_mta-sts.none.x").await, Ok(Vec::new()));
    assert!(resolver.texts("_mta-sts.bad.x").await.is_err());
}
