//! Rotation of a domain's DKIM keys: which key pair signs, which records must be in DNS, and when that changes.
//!
//! Promise: a pair signs only after all name servers of the domain had its records, and after every cache outside has
//! forgotten their absence. A record may be removed only when nothing signed with its key is on its way. Nothing here
//! does I/O or reads a clock: [`KeyRotation::next`] returns one [`Step`] at a time, and the caller makes it durable
//! before it takes effect. So a crash between two steps repeats a step and skips none.
//!
//! | phase | meaning | left when |
//! |---|---|---|
//! | created | waits for its records | all name servers have them |
//! | published | caches may still have their absence | the wait is over and all servers still have them; back to created if a server has not |
//! | in use | signs | its successor comes into use |
//! | retired | signs nothing; mail signed with it is on its way | the longest lifetime of mail and a margin are over; at once if the key is compromised |
//! | removable | its records may be removed | no server has them, and its key files are removed |
//!
//! A clock that is set back changes nothing: waits only become longer. After one that is set forward while the server
//! runs, they begin again ([`KeyRotation::after_jump`]). A DNS answer that is not known changes nothing.

mod need;
mod sighting;
mod step;
#[cfg(test)]
mod tests;

pub use need::{RecordNeed, RecordUse};
pub use sighting::{KeyObservation, ServerTexts, Sighting, TextRecord, sight};
pub use step::{RotationTimes, Step, TooManyPairs};

use serde::{Deserialize, Serialize};
use stentor_records::civil::{DAY_S, date};
use stentor_records::record::Ms;

use crate::{Algorithm, SigningKey};

/// Key pairs of one domain at most. More are made only if nobody removes old records.
pub const PAIRS_MAX: usize = 32;

/// Where a key pair is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyPhase {
    Created,
    Published,
    InUse,
    Retired,
    Removable,
}

/// An RSA and an Ed25519 key that are used and replaced together.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeyPair {
    /// Selector of the RSA key.
    pub selector: String,
    /// Texts of the DNS records.
    pub rsa_record: String,
    pub ed25519_record: String,
    pub phase: KeyPhase,
    /// When the phase began.
    pub since: Ms,
    /// How long a cache may keep the absence of the records, or wrong ones.
    pub cache_ms: Ms,
    /// It replaces a compromised pair: it is used as soon as it is seen, and the old records may go at once.
    pub is_urgent: bool,
    /// The key files may exist.
    pub has_files: bool,
}

impl KeyPair {
    pub fn new(selector: String, rsa: &SigningKey, ed25519: &SigningKey, is_urgent: bool, now: Ms) -> KeyPair {
        KeyPair {
            selector,
            rsa_record: rsa.record(),
            ed25519_record: ed25519.record(),
            phase: KeyPhase::Created,
            since: now,
            cache_ms: 0,
            is_urgent,
            has_files: true,
        }
    }

    /// Returns the selector of a key of the pair.
    pub fn selector_of(&self, algorithm: Algorithm) -> String {
        selector_of(&self.selector, algorithm)
    }

    /// Returns the text of a key's DNS record.
    pub fn record_of(&self, algorithm: Algorithm) -> &str {
        match algorithm {
            Algorithm::RsaSha256 => &self.rsa_record,
            Algorithm::Ed25519Sha256 => &self.ed25519_record,
        }
    }

    fn in_phase(&self, phase: KeyPhase, now: Ms) -> KeyPair {
        KeyPair { phase, since: now, ..self.clone() }
    }
}

/// Returns the selector of a key of the pair that is named after its RSA key.
pub fn selector_of(selector: &str, algorithm: Algorithm) -> String {
    match algorithm {
        Algorithm::RsaSha256 => selector.to_owned(),
        Algorithm::Ed25519Sha256 => format!("{selector}-ed25519"),
    }
}

/// The key pairs of a domain, oldest first. At most one waits to be used, and at most one is in use.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct KeyRotation {
    pub pairs: Vec<KeyPair>,
}

impl KeyRotation {
    /// The pair that signs.
    pub fn in_use(&self) -> Option<&KeyPair> {
        self.pairs.iter().find(|pair| pair.phase == KeyPhase::InUse)
    }

    /// The pair that will sign next.
    pub fn successor(&self) -> Option<&KeyPair> {
        self.pairs.iter().find(|pair| matches!(pair.phase, KeyPhase::Created | KeyPhase::Published))
    }

    pub fn pair(&self, selector: &str) -> Option<&KeyPair> {
        self.pairs.iter().find(|pair| pair.selector == selector)
    }

    /// Returns the state with one more pair.
    #[must_use]
    pub fn with(&self, pair: KeyPair) -> KeyRotation {
        let mut next = self.clone();
        next.pairs.push(pair);
        next
    }

    /// Returns a selector for a new pair: `s20261130`, or `s20261130-2` if that is taken.
    pub fn new_selector(now: Ms, is_taken: impl Fn(&str) -> bool) -> String {
        let (year, month, day) = date((now / 1_000).cast_signed().div_euclid(DAY_S));
        let base = format!("s{year:04}{month:02}{day:02}");
        let mut number = 1_u64;
        let mut selector = base.clone();
        while is_taken(&selector) {
            number += 1;
            selector = format!("{base}-{number}");
        }
        selector
    }
}
