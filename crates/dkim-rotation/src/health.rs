//! Conditions of health about a domain's records: which are missing, and what follows for its mail.
//!
//! Promise: a name server that did not answer is no condition. The texts name the records and the effect.

use stentor_control::format::span;
use stentor_core::live::health::ConditionTexts;
use stentor_dkim::record_name;
use stentor_dkim::rotation::{KeyObservation, KeyPair, KeyPhase, KeyRotation, PAIRS_MAX, Sighting};
use stentor_records::record::Ms;

/// How long `publish_command` may take until its records are seen.
const PUBLISHED_MS_MAX: Ms = 10 * 60_000;

/// The state of a domain.
#[derive(Clone, Copy)]
pub struct DomainView<'d> {
    pub domain: &'d str,
    pub rotation: &'d KeyRotation,
    pub observed: &'d [KeyObservation],
    /// `publish_command` publishes its records.
    pub is_published: bool,
}

/// Returns what is wrong with a domain's records, if anything is.
pub fn record_trouble(view: DomainView<'_>, now: Ms) -> Option<ConditionTexts> {
    let what = missing(view).or_else(|| unpublished(view, now)).or_else(|| too_many(view))?;
    let next = if view.is_published {
        "check what `publish_command` does with the records that `stentor dkim show` prints"
    } else {
        "change the zone to what `stentor dkim show` prints"
    };
    Some(ConditionTexts::new(what, next))
}

/// A record of a key that signs, or has signed mail that is on its way, is not in DNS.
fn missing(view: DomainView<'_>) -> Option<String> {
    let needed = |pair: &&KeyPair| matches!(pair.phase, KeyPhase::InUse | KeyPhase::Retired);
    view.rotation.pairs.iter().filter(needed).find_map(|pair| {
        let name = record_name(&pair.selector, view.domain);
        let why = match sighting(view, pair)? {
            Sighting::Missing(what) => what.as_str(),
            Sighting::Nowhere => "no name server has it",
            Sighting::Everywhere | Sighting::Unknown(_) => return None,
        };
        Some(format!("DKIM record missing: {name} ({why}); receivers cannot verify mail that is signed with its key"))
    })
}

/// A new pair waits for its records.
fn unpublished(view: DomainView<'_>, now: Ms) -> Option<String> {
    let pair = view.rotation.successor().filter(|pair| pair.phase == KeyPhase::Created)?;
    let waits_ms = now.saturating_sub(pair.since);
    if view.is_published && waits_ms < PUBLISHED_MS_MAX {
        return None;
    }
    let why = match sighting(view, pair) {
        None => "not looked up yet".to_owned(),
        Some(Sighting::Everywhere) => return None,
        Some(Sighting::Missing(what)) => what.clone(),
        Some(Sighting::Nowhere) => "no name server has it".to_owned(),
        Some(Sighting::Unknown(why)) => format!("the name servers cannot be asked: {why}"),
    };
    let (name, waits) = (record_name(&pair.selector, view.domain), span(waits_ms));
    let then = match view.rotation.in_use() {
        Some(used) => format!("mail is still signed with {}", used.selector),
        None => format!("mail of {} is not signed with it until then", view.domain),
    };
    Some(format!("DKIM record not published: {name} ({why}); waits for {waits}; {then}"))
}

fn too_many(view: DomainView<'_>) -> Option<String> {
    let is_full = view.rotation.pairs.len() >= PAIRS_MAX;
    is_full.then(|| {
        format!("DKIM keys of {} are no longer replaced: the zone has the records of {PAIRS_MAX} pairs", view.domain)
    })
}

fn sighting<'v>(view: DomainView<'v>, pair: &KeyPair) -> Option<&'v Sighting> {
    view.observed.iter().find(|one| one.selector == pair.selector).map(|one| &one.sighting)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::pair;

    fn what(pairs: &[(&str, KeyPhase)], seen: &[(&str, Sighting)], is_published: bool) -> String {
        let rotation = KeyRotation { pairs: pairs.iter().map(|(selector, phase)| pair(selector, *phase)).collect() };
        let observe = |(selector, sighting): &(&str, Sighting)| KeyObservation {
            selector: (*selector).to_owned(),
            sighting: sighting.clone(),
            cache_ms: 0,
        };
        let observed: Vec<KeyObservation> = seen.iter().map(observe).collect();
        let view = DomainView { domain: "x.example", rotation: &rotation, observed: &observed, is_published };
        record_trouble(view, 3 * 86_400_000).map(|texts| texts.what).unwrap_or_default()
    }

    #[test]
    fn missing_records_are_named_with_their_effect() {
        use KeyPhase::{Created, InUse, Published, Removable, Retired};
        let first = what(&[("a", Created)], &[("a", Sighting::Nowhere)], false);
        assert_eq!(
            first,
            "DKIM record not published: a._domainkey.x.example (no name server has it); waits for 3d00h; mail of x.example \
             is not signed with it until then"
        );
        let missing = Sighting::Missing("ns2 has no record for the RSA key".to_owned());
        let next = what(&[("a", InUse), ("b", Created)], &[("b", missing.clone())], true);
        assert!(
            next.contains("(ns2 has no record for the RSA key); waits for 3d00h; mail is still signed with a"),
            "{next}"
        );
        let lost = what(&[("a", InUse)], &[("a", Sighting::Nowhere)], false);
        assert!(lost.starts_with("DKIM record missing: a._domainkey.x.example (no name server has it)"), "{lost}");
        assert!(what(&[("a", Retired)], &[("a", missing.clone())], false).starts_with("DKIM record missing"));
        for fine in [
            what(&[("a", Published)], &[("a", Sighting::Everywhere)], false),
            what(&[("a", InUse)], &[("a", Sighting::Unknown("no answer".to_owned()))], false),
            what(&[("a", Removable)], &[("a", missing)], false),
        ] {
            assert_eq!(fine, "");
        }
        let many: Vec<(&str, KeyPhase)> = std::iter::repeat_n(("a", Removable), PAIRS_MAX).collect();
        assert!(what(&many, &[], false).contains("no longer replaced"));
    }
}
