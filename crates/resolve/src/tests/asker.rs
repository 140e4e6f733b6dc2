//! Tests of rules' queries about an untrusted client.

use std::time::Duration;

use stentor_reputation::{DnsAnswer, Kind, Question};

use super::*;
use crate::ListCounts;

fn listed(name: &str) -> Question {
    Question { name: name.into(), kind: Kind::Listed("bl".into()) }
}

fn known(name: &str, kind: Kind) -> Question {
    Question { name: name.into(), kind }
}

/// With slow name servers: only the asker's limit ends a query.
async fn slow(zones: Vec<(&str, Zone)>) -> Resolver {
    let zones = zones.into_iter().map(|(n, z)| (n.to_owned(), z)).collect();
    let config = ResolverConfig { timeout_ms: 60_000, ..config(serve(zones).await.0) };
    Resolver::new(config).unwrap()
}

async fn asked(asker: &crate::Asker, questions: &[Question]) -> Vec<DnsAnswer> {
    assert!(questions.iter().all(|question| asker.known(question).is_none()));
    asker.fetch(asker.until()).await;
    questions.iter().map(|question| asker.known(question).expect("it was asked").answer).collect()
}

#[tokio::test]
async fn names_are_known_by_any_record_and_take_mail_without_a_null_mx() {
    let r = resolver(vec![
        ("mx.test", Zone::Records(vec![mx(10, "host.test")])),
        ("null.test", Zone::Records(vec![mx(0, "")])),
        ("host.test", Zone::Records(vec![ip("192.0.2.1")])),
        ("v6.test", Zone::Records(vec![ip("2001:db8::1")])),
        ("broken.test", Zone::Code(ResponseCode::ServFail)),
    ])
    .await;
    for (name, exists, takes_mail) in [
        ("mx.test", DnsAnswer::Is(true), DnsAnswer::Is(true)),
        ("null.test", DnsAnswer::Is(true), DnsAnswer::Is(false)),
        ("host.test", DnsAnswer::Is(true), DnsAnswer::Is(true)),
        ("v6.test", DnsAnswer::Is(true), DnsAnswer::Is(true)),
        ("gone.test", DnsAnswer::Is(false), DnsAnswer::Is(false)),
    ] {
        assert_eq!(r.answer(&known(name, Kind::Exists)).await, exists, "{name}");
        assert_eq!(r.answer(&known(name, Kind::TakesMail)).await, takes_mail, "{name}");
    }
    assert!(matches!(r.answer(&known("broken.test", Kind::TakesMail)).await, DnsAnswer::Unanswered(_)));
}

#[tokio::test]
async fn questions_go_out_together_once_and_end_in_time() {
    let r = slow(vec![
        ("2.bl.test", Zone::Records(vec![ip("127.0.0.2"), ip("127.0.0.4")])),
        ("silent.bl.test", Zone::Silent),
    ])
    .await;
    let asker = r.asker(Duration::from_secs(3));
    let answers = asked(&asker, &[listed("2.bl.test"), listed("3.bl.test"), listed("silent.bl.test")]).await;
    let DnsAnswer::Addresses(all) = &answers[0] else { panic!("{answers:?}") };
    assert_eq!(all.len(), 2);
    assert_eq!(answers[1], DnsAnswer::Addresses(Vec::new()));
    assert!(matches!(&answers[2], DnsAnswer::Unanswered(why) if !why.is_empty()), "{answers:?}");
    let before = r.counters().queries;
    assert!(asker.known(&listed("silent.bl.test")).is_some(), "a session asks once, though there was no answer");
    assert_eq!(r.counters().queries, before);
    let counts = ListCounts { found: 1, not_found: 1, unanswered: 1, skipped: 0 };
    assert_eq!(r.list_counts(), [("bl".into(), counts)]);
    // There is no time left: nothing is queried, and the list is not counted.
    let late = r.asker(Duration::ZERO);
    assert!(matches!(asked(&late, &[listed("4.bl.test")]).await[0], DnsAnswer::Unanswered(_)));
    assert_eq!(r.list_counts(), [("bl".into(), counts)]);
}

#[tokio::test]
async fn a_list_that_fails_is_left_alone_and_is_no_failure_of_our_name_servers() {
    let zones: Vec<(String, Zone)> =
        (0..20).map(|n| (format!("{n}.bl.test"), Zone::Code(ResponseCode::Refused))).collect();
    let zones: Vec<(&str, Zone)> = zones.iter().map(|(name, zone)| (name.as_str(), zone.clone())).collect();
    let r = slow(zones).await;
    for n in 0..20 {
        let asker = r.asker(Duration::from_secs(30));
        assert!(matches!(asked(&asker, &[listed(&format!("{n}.bl.test"))]).await[0], DnsAnswer::Unanswered(_)));
    }
    let counts = r.list_counts()[0].1;
    assert_eq!((counts.unanswered, counts.skipped), (5, 15));
    assert_eq!(r.counters().unanswered, 0);
}
