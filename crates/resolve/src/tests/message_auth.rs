//! Tests of the questions of SPF, DKIM and DMARC.

use std::time::Duration;

use hickory_proto::rr::rdata::{MX, PTR, TXT};
use stentor_message_auth::{DnsQuestion, RecordAnswer, RecordKind};
use tokio::time::Instant;

use super::*;

fn texts(all: &[&[&str]]) -> Vec<RData> {
    all.iter().map(|one| RData::TXT(TXT::new(one.iter().map(|text| (*text).to_owned()).collect()))).collect()
}

/// An MX record whose host has these labels.
fn odd(labels: &[&[u8]]) -> RData {
    RData::MX(MX::new(10, Name::from_labels(labels.iter().copied()).unwrap()))
}

#[tokio::test]
async fn each_type_has_its_answer_and_failures_are_no_answers() {
    let zones = vec![
        ("txt.test", Zone::Records(texts(&[&["v=spf1 ", "-all"], &["other"]]))),
        ("mx.test", Zone::Records(vec![mx(20, "B.test"), mx(10, "a.test")])),
        ("odd.test", Zone::Records(vec![odd(&[b"Foo:bar/baz", b"test"]), odd(&[b"a.b", b"test"])])),
        ("a.test", Zone::Records(vec![ip("192.0.2.1"), ip("2001:db8::1")])),
        ("1.2.0.192.in-addr.arpa", Zone::Records(vec![RData::PTR(PTR(name("Host.test")))])),
        ("alias.test", Zone::Alias("end.test", texts(&[&["p=AAAA"]]), false)),
        ("wrong.test", Zone::WrongName(texts(&[&["v=spf1 +all"]]))),
        ("silent.test", Zone::Silent),
    ];
    let zones = zones.into_iter().map(|(owner, zone)| (owner.to_owned(), zone)).collect();
    // Only the caller's limit ends a question.
    let resolver =
        Resolver::new(ResolverConfig { timeout_ms: 60_000, ..config(serve(zones).await.0) }).expect("a resolver");
    let text = |text: &str| Box::<[u8]>::from(text.as_bytes());
    let wanted = [
        ("txt.test", RecordKind::Txt, RecordAnswer::Texts(vec![text("v=spf1 -all"), text("other")])),
        ("mx.test", RecordKind::Mx, RecordAnswer::Hosts(vec!["a.test".into(), "b.test".into()])),
        ("odd.test", RecordKind::Mx, RecordAnswer::Hosts(vec!["a\\.b.test".into(), "foo:bar/baz.test".into()])),
        ("a.test", RecordKind::A, RecordAnswer::Addresses(vec!["192.0.2.1".parse().unwrap()])),
        ("a.test", RecordKind::Aaaa, RecordAnswer::Addresses(vec!["2001:db8::1".parse().unwrap()])),
        ("1.2.0.192.in-addr.arpa", RecordKind::Ptr, RecordAnswer::Hosts(vec!["host.test".into()])),
        ("alias.test", RecordKind::Txt, RecordAnswer::Texts(vec![text("p=AAAA")])),
        ("mx.test", RecordKind::Txt, RecordAnswer::Empty),
        ("gone.test", RecordKind::Txt, RecordAnswer::Empty),
        ("odd name,+.test", RecordKind::A, RecordAnswer::Empty),
        ("wrong.test", RecordKind::Txt, RecordAnswer::Empty),
    ];
    let questions = wanted.iter().map(|(name, kind, _)| DnsQuestion { name: (*name).into(), kind: *kind }).collect();
    let answered = resolver.answer_all(questions, Instant::now() + Duration::from_mins(1)).await;
    for (answered, (name, kind, answer)) in answered.into_iter().zip(wanted) {
        assert_eq!(answered.answer, answer, "{name} {kind:?}");
        assert_eq!((&*answered.question.name, answered.question.kind), (name, kind));
    }
    let broken = self::resolver(vec![("broken.test", Zone::Code(ResponseCode::ServFail))]).await;
    for (resolver, name, limit_ms) in [(resolver, "silent.test", 50), (broken, "broken.test", 60_000)] {
        let question = DnsQuestion { name: name.into(), kind: RecordKind::Txt };
        let answered = resolver.answer_all(vec![question], Instant::now() + Duration::from_millis(limit_ms)).await;
        assert_eq!(answered[0].answer, RecordAnswer::Failed, "{name}");
    }
}
