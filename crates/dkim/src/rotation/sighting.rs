//! What name servers have of a key pair.

use stentor_records::record::Ms;

use super::KeyPair;
use crate::is_published_by;

/// What DNS has of a pair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sighting {
    /// Each name server has exactly our records.
    Everywhere,
    /// A name server has not: which one, and what it has.
    Missing(String),
    /// No name server has a record at either name.
    Nowhere,
    /// A name server could not be asked, and none that was lacks a record.
    Unknown(String),
}

/// The sighting of one pair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyObservation {
    /// Selector of the pair.
    pub selector: String,
    pub sighting: Sighting,
    /// How long caches may keep something else than our records.
    pub cache_ms: Ms,
}

/// A TXT record with its strings joined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TextRecord {
    pub text: Vec<u8>,
    pub ttl_s: u32,
}

/// The answers of one name server: the records at the name of each key, or why they are not known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerTexts {
    pub server: String,
    pub rsa: Result<Vec<TextRecord>, String>,
    pub ed25519: Result<Vec<TextRecord>, String>,
}

/// Compares what the name servers have with a pair. `negative_ttl_s`: how long caches keep the absence of a record.
pub fn sight(pair: &KeyPair, servers: &[ServerTexts], negative_ttl_s: u32) -> KeyObservation {
    let (mut missing, mut unknown, mut other_ttl_s) = (None, None, 0);
    let mut is_nowhere = !servers.is_empty();
    for ServerTexts { server, rsa, ed25519 } in servers {
        for (answer, record, kind) in [(rsa, &pair.rsa_record, "RSA"), (ed25519, &pair.ed25519_record, "Ed25519")] {
            let texts = match answer {
                Ok(texts) => texts,
                Err(why) => {
                    unknown.get_or_insert_with(|| format!("{server}: {why}"));
                    is_nowhere = false;
                    continue;
                }
            };
            is_nowhere &= texts.is_empty();
            // Several records at one name: a verifier may use any (RFC 6376 section 3.6.2.2).
            let is_ours = matches!(texts.as_slice(), [only] if is_published_by(record, &only.text));
            if !is_ours {
                let what = match texts.len() {
                    0 => "no record",
                    1 => "another record",
                    _ => "several records",
                };
                missing.get_or_insert_with(|| format!("{server} has {what} for the {kind} key"));
                other_ttl_s = texts.iter().map(|text| text.ttl_s).fold(other_ttl_s, u32::max);
            }
        }
    }
    let sighting = match (missing, unknown) {
        _ if servers.is_empty() => Sighting::Unknown("there is no name server to ask".to_owned()),
        _ if is_nowhere => Sighting::Nowhere,
        (Some(what), _) => Sighting::Missing(what),
        (None, Some(why)) => Sighting::Unknown(why),
        (None, None) => Sighting::Everywhere,
    };
    let cache_ms = Ms::from(negative_ttl_s.max(other_ttl_s)) * 1_000;
    KeyObservation { selector: pair.selector.clone(), sighting, cache_ms }
}
