//! Several name servers that are believed, of which some validate: what the others say is never a reason to take DANE
//! for absent.

use std::time::Duration;

use hickory_proto::op::Query;
use stentor_tls_policy::dane::{DaneDecision, DaneRefusal, NotApplicable};

use super::servers::{Fake, Manner, away, fake, fake_by};
use super::*;
use crate::servers::{Asking, Servers};

const REFUSED: Manner = Manner::Code(ResponseCode::Refused);
const SERVFAIL: Manner = Manner::Code(ResponseCode::ServFail);

/// Validates, but for names with this in them: then this manner, after as many milliseconds.
pub(super) async fn validating_but(part: &'static str, manner: Manner, wait_ms: u64) -> Fake {
    let has = move |question: &Query| question.name().to_ascii().contains(part);
    fake_by(manner, move |question| if has(question) { (manner, wait_ms) } else { (Manner::Validating, 0) }).await
}

pub(super) fn resolver(servers: &[SocketAddr], dane_required: bool) -> Resolver {
    let config =
        ResolverConfig { name_servers: servers.to_vec(), timeout_ms: 600, dane_required, ..config(servers[0]) };
    Resolver::new(ResolverConfig { listeners: Vec::new(), ..config }).unwrap()
}

/// What DANE makes of the host of d.x, and why it is refused.
pub(super) async fn decided(resolver: &Resolver) -> (&'static str, String) {
    let (resolution, facts) = resolver.resolve_with_facts("d.x").await;
    // Where nobody asks for DANE mail goes on.
    assert_eq!(plan(resolution).targets[0].addr.to_string(), "192.0.2.7:2525");
    match resolver.decisions(false, &facts).await.remove(0).decision {
        DaneDecision::Match(_) => ("match", String::new()),
        DaneDecision::Refuse(DaneRefusal::LookUp { why, .. }) => ("waits", why),
        DaneDecision::NotApplicable(NotApplicable::NoDnssec) => ("no-dnssec", String::new()),
        DaneDecision::NotApplicable(_) => ("not-applicable", String::new()),
        other => panic!("{other:?}"),
    }
}

pub(super) async fn word(servers: &[SocketAddr]) -> &'static str {
    decided(&resolver(servers, false)).await.0
}

#[tokio::test]
async fn a_slow_zone_is_waited_for_whoever_else_answers() {
    let plain = fake(Manner::Good).await;
    // Slower than the hedge of 300 ms, for MX, addresses or TLSA records.
    for part in ["d.x", "mx.d.x", "_tcp"] {
        let slow = validating_but(part, Manner::Validating, 450).await;
        assert_eq!(word(&[slow.address, plain.address]).await, "match", "{part}");
        assert_eq!(word(&[plain.address, slow.address]).await, "match", "{part}, and it is the second");
    }
}

#[tokio::test]
async fn what_a_validating_server_leaves_out_keeps_mail_waiting() {
    let plain = fake(Manner::Good).await;
    // The last: the other says that there are no records.
    let none = fake_by(Manner::Good, |question| {
        (if question.query_type() == RecordType::TLSA { Manner::NoData } else { Manner::Good }, 0)
    });
    let none = none.await;
    let not_implemented = Manner::Code(ResponseCode::NotImp);
    for manner in [Manner::Silent, REFUSED, not_implemented, Manner::Upward, Manner::Lame, Manner::Garbage] {
        for (part, what) in [("d.x", "MX records of d.x: "), ("mx.d.x", "addresses of mx.d.x: "), ("_tcp", "")] {
            let broken = validating_but(part, manner, 0).await;
            for other in [&plain, &none] {
                let (word, why) = decided(&resolver(&[broken.address, other.address], false)).await;
                let begin = format!("{what}no validated answer: ");
                // Names of the zone are parts of all three.
                let is_named = part != "d.x" && part != "mx.d.x" || why.starts_with(&begin);
                let says = why.contains(&format!("name server {}", broken.address));
                assert!(word == "waits" && is_named && says, "{manner:?} {part}: {word} {why}");
            }
        }
    }
}

#[tokio::test]
async fn bogus_data_are_nobodys_answer() {
    let (bogus, plain) = (validating_but("d.x", SERVFAIL, 0).await, fake(Manner::Good).await);
    let resolution = resolver(&[plain.address, bogus.address], false).resolve("d.x").await;
    assert!(matches!(&resolution, Resolution::Temporary { .. }), "{resolution:?}");
    let bogus = validating_but("_tcp", SERVFAIL, 0).await;
    assert_eq!(word(&[bogus.address, plain.address]).await, "waits");
    let second = fake(Manner::Validating).await;
    assert_eq!(word(&[bogus.address, plain.address, second.address]).await, "match", "another validates too");
}

#[tokio::test]
async fn of_two_that_validate_one_is_enough_and_says_what_is_insecure() {
    let (plain, good) = (fake(Manner::Good).await, fake(Manner::Validating).await);
    for manner in [Manner::Silent, REFUSED, SERVFAIL] {
        let broken = validating_but("d.x", manner, 0).await;
        assert_eq!(word(&[broken.address, good.address]).await, "match", "{manner:?}");
    }
    // It validates, and these zones are not signed.
    let insecure = validating_but("d.x", Manner::Good, 0).await;
    let silent = validating_but("d.x", Manner::Silent, 0).await;
    assert_eq!(word(&[insecure.address, plain.address]).await, "not-applicable");
    assert_eq!(word(&[silent.address, insecure.address]).await, "not-applicable");
}

#[tokio::test]
async fn strangers_zones_demote_nobody() {
    let (slow, plain) = (validating_but("slow", Manner::Validating, 450).await, fake(Manner::Good).await);
    let resolver = resolver(&[slow.address, plain.address], false);
    for n in 0..6 {
        let _ = resolver.resolve(&format!("slow{n}.test")).await;
    }
    assert_eq!(decided(&resolver).await.0, "match");
    // Those too of which nothing comes, from a server that is not asked for truth.
    let silent = validating_but("slow", Manner::Silent, 0).await;
    let asking = asking(false, false);
    let servers = Servers::new(&[silent.address, plain.address], asking);
    let ask = async |name: &str| servers.ask(&Query::query(super::name(name), RecordType::TXT)).await.unwrap();
    for n in 0..6 {
        ask(&format!("slow{n}.test")).await;
    }
    let before = silent.asked().0;
    ask("other.test").await;
    assert_eq!(silent.asked().0, before + 1, "it is still asked first");
    // So many unrelated names in a row are no chance.
    for n in 0..8 {
        ask(&format!("slow.z{n}")).await;
    }
    tokio::time::sleep(Duration::from_millis(700)).await;
    let before = silent.asked().0;
    ask("other.test").await;
    assert_eq!(silent.asked().0, before);
}

#[tokio::test]
async fn one_that_validated_and_is_gone_keeps_mail_waiting_and_is_named() {
    let is_gone = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let gone = is_gone.clone();
    let by = move |_: &Query| (if gone.load(Ordering::SeqCst) { Manner::Silent } else { Manner::Validating }, 0);
    let (first, plain) = (fake_by(Manner::Validating, by).await, fake(Manner::Good).await);
    let resolver = resolver(&[first.address, plain.address], false);
    assert_eq!(decided(&resolver).await.0, "match");
    is_gone.store(true, Ordering::SeqCst);
    for _ in 0..3 {
        resolver.clear_cache();
        let begun = std::time::Instant::now();
        let (word, why) = decided(&resolver).await;
        let named = format!("MX records of d.x: no validated answer: name server {} does not answer", first.address);
        assert_eq!((word, why), ("waits", named));
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    }
    is_gone.store(false, Ordering::SeqCst);
    resolver.clear_cache();
    assert_eq!(decided(&resolver).await.0, "match");
}

#[tokio::test]
async fn one_that_has_shown_nothing_counts_where_dane_is_demanded() {
    let (plain, silent) = (fake(Manner::Good).await, fake(Manner::Silent).await);
    for first in [silent.address, away().await] {
        let servers = [first, plain.address];
        assert_eq!(word(&servers).await, "not-applicable", "it may be no name server at all");
        let (word, why) = decided(&resolver(&servers, true)).await;
        assert!(word == "waits" && why.contains(&first.to_string()), "{word} {why}");
    }
    // Nobody validates, as `stentor check` reports.
    let other = fake(Manner::Good).await;
    assert_eq!(decided(&resolver(&[other.address, plain.address], true)).await.0, "not-applicable");
}

#[tokio::test]
async fn one_server_alone_is_the_only_witness() {
    let good = fake(Manner::Validating).await;
    assert_eq!(word(&[good.address]).await, "match");
    let insecure = fake(Manner::Good).await;
    assert_eq!(word(&[insecure.address]).await, "not-applicable");
    let silent = validating_but("_tcp", Manner::Silent, 0).await;
    assert_eq!(word(&[silent.address]).await, "waits");
    // It validates, and for this name takes no question with EDNS.
    let picky = fake_by(Manner::Picky, |question| {
        (if question.query_type() == RecordType::A { Manner::Picky } else { Manner::Validating }, 0)
    });
    let picky = picky.await;
    let (word, why) = decided(&resolver(&[picky.address], false)).await;
    assert!(word == "waits" && why.contains("without EDNS"), "{word} {why}");
}

#[tokio::test]
async fn marks_are_read_and_not_kept() {
    let (gap, plain) = (validating_but("_tcp", REFUSED, 0).await, fake(Manner::NoData).await);
    let resolver = resolver(&[gap.address, plain.address], false);
    for n in 1..=2 {
        let answer = resolver.tlsa_of("mx.d.x", 25).await;
        assert!(matches!(answer, stentor_tls_policy::dane::Answer::Failed(_)), "{answer:?}");
        assert_eq!(gap.asked().0, n, "asked again each time");
    }
    assert_eq!(resolver.texts("_tcp.d.x").await, Ok(Vec::new()), "what needs no truth is taken");
}

pub(super) fn asking(asks_for_truth: bool, unknown_may_validate: bool) -> Asking {
    Asking { timeout: Duration::from_millis(600), retries: 0, asks_for_truth, unknown_may_validate }
}

#[tokio::test]
async fn who_validates_is_found_out_by_the_root() {
    let all = [Manner::Validating, Manner::Good, Manner::Silent, SERVFAIL, Manner::NoEdns(Some(ResponseCode::FormErr))];
    let mut addresses = Vec::new();
    for manner in all {
        addresses.push(fake(manner).await.address);
    }
    let servers = Servers::new(&addresses, asking(true, false));
    servers.ask(&Query::query(name("d.x"), RecordType::MX)).await.unwrap();
    let found: Vec<_> = (0..all.len()).map(|at| servers.validates(at)).collect();
    // An error without EDNS is that of a server without DNSSEC.
    assert_eq!(found, [Some(true), Some(false), None, Some(false), Some(false)]);
    assert_eq!(servers.order(tokio::time::Instant::now()), [0, 1, 2, 3, 4]);
}
