//! When name servers are asked and records published. Pure: times are arguments.

use stentor_config::DkimRotation;
use stentor_dkim::rotation::{KeyObservation, KeyPair, KeyPhase, KeyRotation, RotationTimes, Sighting};
use stentor_records::record::Ms;

const HOUR_MS: Ms = 3_600_000;
/// How long unused key files are kept if their records stay in DNS.
const FILE_MS: Ms = 90 * 24 * HOUR_MS;
/// Least and greatest interval between look-ups while a new pair waits.
const LOOKUP_MS_MIN: Ms = 1_000;
const LOOKUP_MS_MAX: Ms = 5 * 60_000;
/// Interval between runs of `publish_command` with the same records.
const PUBLISH_AGAIN_MS: Ms = 10 * 60_000;
/// Part of a wait after which its end is looked for again.
const PART: Ms = 10;

/// Returns the waits of a domain. `lifetime_ms_max`: the longest lifetime of mail.
pub fn times(config: &DkimRotation, lifetime_ms_max: Ms) -> RotationTimes {
    RotationTimes {
        rotate_ms: config.rotate_ms,
        publish_wait_ms: config.publish_wait_ms,
        keep_ms: lifetime_ms_max.saturating_add(config.retire_wait_ms),
        file_ms: FILE_MS,
    }
}

/// Returns the time between two look-ups.
pub fn lookup_interval_ms(rotation: &KeyRotation, config: &DkimRotation) -> Ms {
    let of_pair = |pair: &KeyPair| match pair.phase {
        KeyPhase::Created | KeyPhase::Published => (config.publish_wait_ms / PART).clamp(LOOKUP_MS_MIN, LOOKUP_MS_MAX),
        KeyPhase::Retired | KeyPhase::Removable => (config.retire_wait_ms / PART).clamp(LOOKUP_MS_MIN, HOUR_MS),
        KeyPhase::InUse => HOUR_MS,
    };
    rotation.pairs.iter().map(of_pair).min().unwrap_or(HOUR_MS)
}

/// The runs of `publish_command`.
#[derive(Default, Debug)]
pub struct Publication {
    /// The records of the last run.
    zone: String,
    at: Ms,
    /// Why it failed.
    pub error: Option<String>,
}

impl Publication {
    /// Whether the command must run: at once for other records, and now and then while it fails or DNS differs.
    /// `steady`: a clock that does not jump.
    pub fn is_due(&self, zone: &str, is_different: bool, steady: Ms) -> bool {
        let is_again = (is_different || self.error.is_some()) && steady.saturating_sub(self.at) >= PUBLISH_AGAIN_MS;
        !zone.is_empty() && (zone != self.zone || is_again)
    }

    pub fn ran(&mut self, zone: String, error: Option<String>, steady: Ms) {
        *self = Publication { zone, at: steady, error };
    }
}

/// Whether a name server has too few records or too many.
pub fn is_different(rotation: &KeyRotation, observed: &[KeyObservation]) -> bool {
    rotation.pairs.iter().any(|pair| {
        let sighting = observed.iter().find(|one| one.selector == pair.selector).map(|one| &one.sighting);
        match (pair.phase, sighting) {
            (_, None | Some(Sighting::Unknown(_))) => false,
            (KeyPhase::Removable, Some(sighting)) => *sighting != Sighting::Nowhere,
            (_, Some(sighting)) => *sighting != Sighting::Everywhere,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::pair;

    #[test]
    fn new_pairs_are_looked_for_often() {
        let config = DkimRotation {
            rotate_ms: 1,
            publish_wait_ms: HOUR_MS,
            retire_wait_ms: 7 * 24 * HOUR_MS,
            publish_command: Vec::new(),
        };
        let of = |phases: &[KeyPhase]| {
            let rotation = KeyRotation { pairs: phases.iter().map(|phase| pair("a", *phase)).collect() };
            lookup_interval_ms(&rotation, &config)
        };
        assert_eq!(of(&[]), HOUR_MS);
        assert_eq!(of(&[KeyPhase::InUse, KeyPhase::Created]), LOOKUP_MS_MAX);
        assert_eq!(of(&[KeyPhase::Removable]), HOUR_MS);
        assert_eq!(times(&config, 5).keep_ms, 7 * 24 * HOUR_MS + 5);
    }

    #[test]
    fn records_are_published_once_and_again_while_dns_differs() {
        let mut publication = Publication::default();
        assert!(!publication.is_due("", true, 0));
        assert!(publication.is_due("a", false, 0));
        publication.ran("a".to_owned(), None, 5);
        assert!(!publication.is_due("a", true, 5 + PUBLISH_AGAIN_MS - 1));
        assert!(publication.is_due("a", true, 5 + PUBLISH_AGAIN_MS) && !publication.is_due("a", false, Ms::MAX));
        assert!(publication.is_due("b", false, 6));
        publication.ran("a".to_owned(), Some("no access".to_owned()), 5);
        assert!(publication.is_due("a", false, 5 + PUBLISH_AGAIN_MS) && !publication.is_due("a", false, 6));
    }

    #[test]
    fn dns_differs_if_a_record_is_missing_or_left_over() {
        let of = |phase, sighting| {
            let rotation = KeyRotation { pairs: vec![pair("a", phase)] };
            is_different(&rotation, &[KeyObservation { selector: "a".to_owned(), sighting, cache_ms: 0 }])
        };
        let missing = || Sighting::Missing("ns".to_owned());
        assert!(of(KeyPhase::Created, Sighting::Nowhere) && of(KeyPhase::Retired, missing()));
        assert!(!of(KeyPhase::InUse, Sighting::Everywhere));
        assert!(of(KeyPhase::Removable, Sighting::Everywhere) && of(KeyPhase::Removable, missing()));
        assert!(!of(KeyPhase::Removable, Sighting::Nowhere));
        assert!(!of(KeyPhase::Created, Sighting::Unknown("ns".to_owned())));
        assert!(!is_different(&KeyRotation { pairs: vec![pair("a", KeyPhase::Created)] }, &[]));
    }
}
