//! The DNS records that a rotation needs now, and those that may be removed.

use std::fmt::Write as _;

use super::{KeyPair, KeyPhase, KeyRotation};
use crate::{Algorithm, record_name, zone_text};

/// What the zone must do with a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordUse {
    /// It must be in the zone; mail waits for it.
    Publish,
    /// It must stay in the zone.
    Keep,
    /// It may be removed.
    Remove,
}

/// A record of a key, and what the zone must do with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordNeed {
    /// Selector of the pair.
    pub pair: String,
    pub selector: String,
    /// The name in DNS, without the final dot.
    pub name: String,
    pub text: String,
    pub needed: RecordUse,
    pub phase: KeyPhase,
}

impl KeyRotation {
    /// Returns all records of the domain, those of older pairs first.
    pub fn records(&self, domain: &str) -> Vec<RecordNeed> {
        let both = [Algorithm::RsaSha256, Algorithm::Ed25519Sha256];
        let need = |pair: &KeyPair, algorithm| {
            let selector = pair.selector_of(algorithm);
            RecordNeed {
                pair: pair.selector.clone(),
                name: record_name(&selector, domain),
                selector,
                text: pair.record_of(algorithm).to_owned(),
                needed: match pair.phase {
                    KeyPhase::Created => RecordUse::Publish,
                    KeyPhase::Published | KeyPhase::InUse | KeyPhase::Retired => RecordUse::Keep,
                    KeyPhase::Removable => RecordUse::Remove,
                },
                phase: pair.phase,
            }
        };
        self.pairs.iter().flat_map(|pair| both.map(|algorithm| need(pair, algorithm))).collect()
    }

    /// Returns the records that must be in the zone as zone text. Those that may be removed are comments at its end:
    /// `; remove NAME TXT`.
    pub fn zone(&self, domain: &str) -> String {
        let (mut wanted, mut removable) = (String::new(), String::new());
        for need in self.records(domain) {
            match need.needed {
                // Writing to a String cannot fail.
                RecordUse::Remove => drop(writeln!(removable, "; remove {}. TXT", need.name)),
                RecordUse::Publish | RecordUse::Keep => {
                    wanted.push_str(&zone_text(&need.selector, domain, &need.text));
                }
            }
        }
        wanted + &removable
    }
}
