//! A server that validates leaves a question out, and another says that there is nothing: neither DANE nor MX records
//! are absent by that.

use std::time::Duration;

use hickory_proto::op::Query;

use super::servers::{Fake, Manner, away, fake, fake_by};
use super::validators::{asking, decided, resolver, validating_but, word};
use super::*;
use crate::servers::{Asking, Servers};

const SERVFAIL: Manner = Manner::Code(ResponseCode::ServFail);
/// How a server says that there is nothing, or nothing of use.
const NOTHING: [Manner; 8] = [
    Manner::Empty,
    Manner::Lame,
    Manner::Stray,
    Manner::NoData,
    Manner::NoName,
    Manner::BareNoName,
    Manner::StrayNoName,
    Manner::Odd,
];

/// Answers in one manner, and questions of these kinds in another.
async fn with(usual: Manner, kinds: &'static [RecordType], manner: Manner) -> Fake {
    fake_by(usual, move |question| (if kinds.contains(&question.query_type()) { manner } else { usual }, 0)).await
}

/// The reason why mail to d.x waits.
async fn waits(resolver: &Resolver, what: &str) -> String {
    match resolver.resolve("d.x").await {
        Resolution::Temporary { dsn, text, .. } => {
            assert_eq!(dsn.to_string(), "4.4.3", "{what}: {text}");
            text
        }
        other => panic!("{what}: {other:?}"),
    }
}

#[tokio::test]
async fn another_servers_nothing_is_no_absence_of_tlsa_records() {
    let left_out = [
        Manner::Silent,
        Manner::Truncated,
        Manner::Code(ResponseCode::Refused),
        SERVFAIL,
        Manner::BareNoName,
        Manner::EmptyWithoutEdns(None),
        Manner::EmptyWithoutEdns(Some(ResponseCode::FormErr)),
    ];
    for manner in left_out {
        let validating = validating_but("_tcp", manner, 0).await;
        for nothing in NOTHING {
            let other = with(Manner::Good, &[RecordType::TLSA], nothing).await;
            for servers in [[validating.address, other.address], [other.address, validating.address]] {
                assert_eq!(word(&servers).await, "waits", "{manner:?} {nothing:?}");
            }
        }
        assert_eq!(word(&[validating.address]).await, "waits", "{manner:?} alone");
    }
}

#[tokio::test]
async fn a_late_failure_beats_another_servers_nothing() {
    for (manner, wait_ms) in [(SERVFAIL, 450), (Manner::Validating, 450)] {
        let slow = validating_but("_tcp", manner, wait_ms).await;
        let other = with(Manner::Good, &[RecordType::TLSA], Manner::Empty).await;
        let expected = if manner == SERVFAIL { "waits" } else { "match" };
        assert_eq!(word(&[slow.address, other.address]).await, expected, "{manner:?}");
    }
}

#[tokio::test]
async fn what_a_validating_server_says_in_few_words_counts() {
    // It says that there is nothing, and that this is not authentic.
    let terse = validating_but("_tcp", Manner::Empty, 0).await;
    assert_eq!(word(&[terse.address]).await, "not-applicable");
    for nothing in [Manner::Empty, Manner::Lame] {
        let other = with(Manner::Good, &[RecordType::TLSA], nothing).await;
        assert_eq!(word(&[terse.address, other.address]).await, "not-applicable", "{nothing:?}");
        assert_eq!(word(&[other.address, terse.address]).await, "not-applicable", "{nothing:?}");
    }
}

#[tokio::test]
async fn without_mx_records_mail_waits_for_who_validates() {
    let silent = with(Manner::Validating, &[RecordType::MX], Manner::Silent).await;
    for nothing in NOTHING {
        let other = with(Manner::Good, &[RecordType::MX], nothing).await;
        let resolver = resolver(&[silent.address, other.address], false);
        let why = waits(&resolver, &format!("{nothing:?}")).await;
        let expected = format!("MX lookup of d.x: no validated answer: name server {} ", silent.address);
        assert!(why.starts_with(&expected), "{nothing:?}: {why}");
    }
}

#[tokio::test]
async fn without_addresses_mail_waits_for_who_validates() {
    let both = &[RecordType::A, RecordType::AAAA];
    let silent = with(Manner::Validating, both, Manner::Silent).await;
    for nothing in NOTHING {
        let other = with(Manner::Good, both, nothing).await;
        waits(&resolver(&[silent.address, other.address], false), &format!("{nothing:?}")).await;
    }
    // One family is enough, if it is authentic.
    let silent = with(Manner::Validating, &[RecordType::AAAA], Manner::Silent).await;
    let other = with(Manner::Good, &[RecordType::AAAA], Manner::Empty).await;
    assert_eq!(word(&[silent.address, other.address]).await, "match");
}

#[tokio::test]
async fn a_server_that_was_away_too_long_is_not_awaited_and_dane_still_waits() {
    let is_gone = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let gone = is_gone.clone();
    let by = move |_: &Query| (if gone.load(Ordering::SeqCst) { Manner::Silent } else { Manner::Validating }, 0);
    let first = fake_by(Manner::Validating, by).await;
    for nothing in [Manner::Empty, Manner::NoData] {
        is_gone.store(false, Ordering::SeqCst);
        let other = with(Manner::Good, &[RecordType::MX], nothing).await;
        let resolver = resolver(&[first.address, other.address], false);
        assert_eq!(decided(&resolver).await.0, "match");
        resolver.clear_cache();
        is_gone.store(true, Ordering::SeqCst);
        waits(&resolver, "it answered a moment ago").await;
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(601)).await;
        tokio::time::resume();
        let (resolution, facts) = resolver.resolve_with_facts("d.x").await;
        assert_eq!(plan(resolution).targets[0].addr.to_string(), "192.0.2.66:2525", "{nothing:?}");
        let decided = resolver.decisions(false, &facts).await.remove(0).decision;
        assert!(matches!(decided, stentor_tls_policy::dane::DaneDecision::Refuse(_)), "{nothing:?}: {decided:?}");
    }
}

#[tokio::test]
async fn a_server_that_stopped_validating_keeps_nothing_waiting() {
    let has_stopped = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = has_stopped.clone();
    let by = move |question: &Query| match (stopped.load(Ordering::SeqCst), question.query_type()) {
        (false, _) => (Manner::Validating, 0),
        (true, RecordType::MX | RecordType::TLSA) => (Manner::Silent, 0),
        (true, _) => (Manner::Good, 0),
    };
    let first = fake_by(Manner::Validating, by).await;
    let other = with(Manner::Good, &[RecordType::MX], Manner::Empty).await;
    let resolver = resolver(&[first.address, other.address], false);
    assert_eq!(decided(&resolver).await.0, "match");
    has_stopped.store(true, Ordering::SeqCst);
    resolver.clear_cache();
    waits(&resolver, "the root has not been asked for since").await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(601)).await;
    tokio::time::resume();
    // It is asked for beside this lookup.
    let (resolution, facts) = resolver.resolve_with_facts("d.x").await;
    assert_eq!(plan(resolution).targets[0].addr.to_string(), "192.0.2.66:2525");
    let decided = resolver.decisions(false, &facts).await.remove(0).decision;
    assert!(matches!(decided, stentor_tls_policy::dane::DaneDecision::NotApplicable(_)), "{decided:?}");
}

#[tokio::test]
async fn beside_an_address_where_nobody_answers_a_forwarder_is_enough() {
    let forwarder = with(Manner::Good, &[RecordType::MX, RecordType::AAAA, RecordType::TLSA], Manner::Empty).await;
    let silent = fake(Manner::Silent).await;
    for first in [away().await, silent.address] {
        for dane_required in [false, true] {
            let resolver = resolver(&[first, forwarder.address], dane_required);
            let found = plan(resolver.resolve("d.x").await);
            assert_eq!(found.targets[0].addr.to_string(), "192.0.2.66:2525", "{dane_required}");
        }
    }
}

#[tokio::test]
async fn a_name_that_nobody_knows_keeps_mail_waiting() {
    // Whoever says so neither recurses nor is authoritative, and there is nobody else.
    let bare = fake(Manner::BareNoName).await;
    let why = waits(&resolver(&[bare.address], false), "alone").await;
    assert!(why.contains("neither recursive nor authoritative"), "{why}");
    let no_name = fake(Manner::NoName).await;
    let resolution = resolver(&[bare.address, no_name.address], false).resolve("d.x").await;
    assert!(matches!(resolution, Resolution::Permanent { .. }), "{resolution:?}");
}

#[tokio::test]
async fn no_alias_takes_the_mark_off() {
    let silent = with(Manner::Validating, &[RecordType::A], Manner::Silent).await;
    let aliased = with(Manner::Good, &[RecordType::A], Manner::Aliased).await;
    assert_eq!(word(&[silent.address, aliased.address]).await, "waits");
    // The alias comes from the one that validates, what is at its end from the other.
    let by = |question: &Query| match (question.query_type(), question.name().to_ascii().as_str()) {
        (RecordType::A, "mx.d.x.") => (Manner::AliasAlone, 0),
        (RecordType::A, _) => (Manner::Silent, 0),
        _ => (Manner::Validating, 0),
    };
    let half = fake_by(Manner::Validating, by).await;
    for manner in [Manner::Good, Manner::Aliased] {
        let other = with(Manner::Good, &[RecordType::A], manner).await;
        assert_eq!(word(&[half.address, other.address]).await, "waits", "{manner:?}");
    }
    let other = with(Manner::Good, &[RecordType::A], Manner::Empty).await;
    waits(&resolver(&[half.address, other.address], false), "nothing at the end").await;
}

/// The answer without EDNS comes while another server that validates has not replied, which then refuses.
#[tokio::test]
async fn bogus_data_are_not_replaced_by_an_answer_without_edns() {
    let but_root = |manner, wait_ms| {
        fake_by(
            manner,
            move |question| if question.name().is_root() { (Manner::Validating, 0) } else { (manner, wait_ms) },
        )
    };
    let (bogus, refusing) = (but_root(SERVFAIL, 0).await, but_root(Manner::Code(ResponseCode::Refused), 900).await);
    let plain = fake(Manner::NoEdns(None)).await;
    let asking = Asking { timeout: Duration::from_secs(1), retries: 2, ..asking(true, false) };
    let servers = Servers::new(&[bogus.address, refusing.address, plain.address], asking);
    let reply = servers.ask(&Query::query(name("d.x"), RecordType::MX)).await;
    let code = reply.as_ref().map(|reply| (reply.metadata.response_code, reply.answers.len()));
    assert!(matches!(code, Ok((ResponseCode::ServFail, 0))), "{reply:?}");
}
