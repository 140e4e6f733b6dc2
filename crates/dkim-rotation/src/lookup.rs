//! Asks name servers for the records of a domain's key pairs.
//!
//! Promise: all pairs are asked at the same time. Failure: no answer is an observation of its own, after which nothing
//! changes.

use stentor_dkim::record_name;
use stentor_dkim::rotation::{KeyObservation, KeyPair, ServerTexts, Sighting, TextRecord, sight};
use stentor_resolve::{PublishedText, PublishedTexts, Resolver, ServerAnswers};

use crate::key_files::ALGORITHMS;

/// Negative TTL of a zone that does not say it: what resolvers keep at most (RFC 2308 section 5).
const NEGATIVE_TTL_S: u32 = 3 * 3_600;

/// Looks up all pairs, one after the other.
pub async fn observe(resolver: &Resolver, domain: &str, pairs: &[KeyPair]) -> Vec<KeyObservation> {
    let mut all = Vec::with_capacity(pairs.len());
    for pair in pairs {
        let names = ALGORITHMS.map(|algorithm| record_name(&pair.selector_of(algorithm), domain));
        all.push(match resolver.published_texts(&names).await {
            Ok(published) => compared(pair, published),
            Err(why) => {
                let selector = pair.selector.clone();
                KeyObservation { selector, sighting: Sighting::Unknown(why), cache_ms: 0 }
            }
        });
    }
    all
}

fn compared(pair: &KeyPair, published: PublishedTexts) -> KeyObservation {
    let PublishedTexts { servers, negative_ttl_s, .. } = published;
    let records = |texts: Result<Vec<PublishedText>, String>| {
        texts.map(|all| all.into_iter().map(|PublishedText { text, ttl_s }| TextRecord { text, ttl_s }).collect())
    };
    let servers: Vec<ServerTexts> = servers
        .into_iter()
        .map(|ServerAnswers { server, texts }| {
            let mut texts = texts.into_iter().map(records);
            let mut next = || texts.next().unwrap_or_else(|| Err("not asked".to_owned()));
            // In the order of the algorithms.
            let (rsa, ed25519) = (next(), next());
            ServerTexts { server, rsa, ed25519 }
        })
        .collect();
    sight(pair, &servers, negative_ttl_s.unwrap_or(NEGATIVE_TTL_S))
}

#[cfg(test)]
mod tests {
    use stentor_dkim::rotation::KeyPhase;

    use super::*;

    #[test]
    fn answers_are_compared_by_algorithm() {
        let pair = KeyPair {
            selector: "a".to_owned(),
            rsa_record: "v=DKIM1; k=rsa; p=RRRR".to_owned(),
            ed25519_record: "v=DKIM1; k=ed25519; p=EEEE".to_owned(),
            phase: KeyPhase::Created,
            since: 0,
            cache_ms: 0,
            is_urgent: false,
            has_files: true,
        };
        let text = |text: &str| Ok(vec![PublishedText { text: text.as_bytes().to_vec(), ttl_s: 60 }]);
        let published = |texts, negative_ttl_s| PublishedTexts {
            servers: vec![ServerAnswers { server: "ns".to_owned(), texts }],
            negative_ttl_s,
            is_indirect: false,
        };
        let right = vec![text(&pair.rsa_record), text(&pair.ed25519_record)];
        let seen = compared(&pair, published(right, Some(60)));
        assert_eq!((seen.sighting, seen.cache_ms), (Sighting::Everywhere, 60_000));
        let swapped = vec![text(&pair.ed25519_record), text(&pair.rsa_record)];
        let seen = compared(&pair, published(swapped, None));
        assert_eq!(seen.sighting, Sighting::Missing("ns has another record for the RSA key".to_owned()));
        assert_eq!(seen.cache_ms, u64::from(NEGATIVE_TTL_S) * 1_000);
        assert!(matches!(compared(&pair, published(Vec::new(), None)).sighting, Sighting::Unknown(_)));
    }
}
