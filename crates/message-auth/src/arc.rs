//! ARC chains: results of the servers that a message has passed (RFC 8617 section 5.2).
//!
//! A chain passes if the newest signature of the message and the seals of all servers verify. Whether the servers are
//! trusted is not asked here. Failure: a malformed chain is `fail`, and asks no questions.

use stentor_dkim::{FieldIndex, Signature, SignatureKind, TagList, verify, verify_seal};
use stentor_mime::field;

use crate::bodies::HashedBodies;
use crate::dns::{Inquiry, Pending};
use crate::keys::{KeyLookup, key};
use crate::method::MethodResult;

/// Maximum servers of a chain (RFC 8617 section 4.2.1).
const SETS_MAX: usize = 50;

/// Fields of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ArcSet {
    /// The `ARC-Authentication-Results` field.
    results: Vec<u8>,
    message: Signature,
    seal: Signature,
}

/// ARC fields of a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum ArcFields {
    #[default]
    Absent,
    /// The chain is not valid, whatever its signatures.
    Broken(&'static str),
    Chain(ArcChain),
}

/// Sets of a chain, the oldest first; there is at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ArcChain(Vec<ArcSet>);

/// Result of ARC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArcResult {
    pub result: MethodResult,
    /// Why it does not pass.
    pub reason: Option<String>,
    /// Number of servers of the chain.
    pub sets: usize,
}

impl ArcFields {
    pub(crate) fn read(fields: &FieldIndex<'_>) -> ArcFields {
        let results = fields.all("arc-authentication-results");
        let messages = fields.all("arc-message-signature");
        let seals = fields.all("arc-seal");
        let count = results.len();
        if count == 0 && messages.is_empty() && seals.is_empty() {
            return ArcFields::Absent;
        }
        if count > SETS_MAX {
            return ArcFields::Broken("too many ARC sets");
        }
        if messages.len() != count || seals.len() != count {
            return ArcFields::Broken("incomplete ARC sets");
        }
        match chain(results, messages, seals) {
            Ok(chain) => ArcFields::Chain(chain),
            Err(why) => ArcFields::Broken(why),
        }
    }

    /// The signature whose body must be hashed.
    pub(crate) fn newest_message(&self) -> Option<&Signature> {
        if let ArcFields::Chain(ArcChain(sets)) = self { sets.last().map(|set| &set.message) } else { None }
    }
}

fn chain(results: &[&[u8]], messages: &[&[u8]], seals: &[&[u8]]) -> Result<ArcChain, &'static str> {
    let count = results.len();
    let signatures = |kind, all: &[&[u8]]| -> Result<Vec<Signature>, &'static str> {
        let parsed = all.iter().map(|whole| Signature::parse(kind, whole).map_err(|_| "malformed ARC signature"));
        let mut parsed = parsed.collect::<Result<Vec<_>, _>>()?;
        parsed.sort_by_key(|signature| signature.instance);
        Ok(parsed)
    };
    let mut results: Vec<_> = results.iter().map(|whole| (instance(whole), whole.to_vec())).collect();
    results.sort_by_key(|(instance, _)| *instance);
    let messages = signatures(SignatureKind::ArcMessage, messages)?;
    let seals = signatures(SignatureKind::ArcSeal, seals)?;
    let mut sets = Vec::with_capacity(count);
    for (n, ((of, results), (message, seal))) in results.into_iter().zip(messages.into_iter().zip(seals)).enumerate() {
        let wanted = u32::try_from(n + 1).ok();
        if of != wanted || message.instance != wanted || seal.instance != wanted {
            return Err("ARC instances are not consecutive");
        }
        let is_newest = n + 1 == count;
        match (validation(seal.whole()).as_deref(), n) {
            (Some("none"), 0) | (Some("pass"), 1..) => {}
            (Some("fail"), _) if is_newest => return Err("an earlier server found the chain broken"),
            _ => return Err("wrong cv= in an ARC seal"),
        }
        sets.push(ArcSet { results, message, seal });
    }
    Ok(ArcChain(sets))
}

/// The instance of an `ARC-Authentication-Results` field.
fn instance(whole: &[u8]) -> Option<u32> {
    let (_, value) = field::split(whole)?;
    let first = value.split(|octet| *octet == b';').next()?;
    let (name, number) = std::str::from_utf8(first).ok()?.split_once('=')?;
    if name.trim() == "i" { number.trim().parse().ok() } else { None }
}

/// The value of `cv=`.
fn validation(seal: &[u8]) -> Option<String> {
    let (_, value) = field::split(seal)?;
    TagList::parse(value).ok()?.compact("cv").map(|word| word.to_ascii_lowercase())
}

/// Verifies a chain, once all its keys are known.
pub(crate) fn arc(
    inquiry: &Inquiry<'_>,
    arc: &ArcFields,
    fields: &FieldIndex<'_>,
    bodies: &HashedBodies,
    now_s: u64,
) -> Result<ArcResult, Pending> {
    let ended = |result, reason: Option<String>, sets| ArcResult { result, reason, sets };
    let sets = match arc {
        ArcFields::Absent => return Ok(ended(MethodResult::None, None, 0)),
        ArcFields::Broken(why) => return Ok(ended(MethodResult::Fail, Some((*why).to_owned()), 0)),
        ArcFields::Chain(ArcChain(sets)) => sets,
    };
    let Some(newest) = sets.last() else { return Ok(ended(MethodResult::None, None, 0)) };
    let message_key = key(inquiry, &newest.message);
    let seal_keys: Vec<_> = sets.iter().map(|set| key(inquiry, &set.seal)).collect();
    let seal_keys = seal_keys.into_iter().collect::<Result<Vec<_>, Pending>>()?;
    let body = bodies.of(newest.message.body_form);
    let verified = usable(message_key?).and_then(|key| {
        let verified = verify(fields, &newest.message, &body, &key, now_s);
        verified.map_err(|error| Failure::Fail(format!("message signature: {error}")))
    });
    if let Err(failure) = verified {
        return Ok(failure.into_result(sets.len()));
    }
    let mut sealed: Vec<&[u8]> = Vec::with_capacity(3 * sets.len());
    for (set, key) in sets.iter().zip(seal_keys) {
        sealed.extend([&set.results[..], set.message.whole()]);
        let verified = usable(key).and_then(|key| {
            let verified = verify_seal(&sealed, &set.seal, &key);
            verified.map_err(|error| Failure::Fail(format!("seal of {}: {error}", set.seal.domain)))
        });
        if let Err(failure) = verified {
            return Ok(failure.into_result(sets.len()));
        }
        sealed.push(set.seal.whole());
    }
    Ok(ended(MethodResult::Pass, None, sets.len()))
}

/// Why a chain does not pass.
enum Failure {
    Fail(String),
    Temporary,
}

impl Failure {
    fn into_result(self, sets: usize) -> ArcResult {
        match self {
            Failure::Fail(why) => ArcResult { result: MethodResult::Fail, reason: Some(why), sets },
            Failure::Temporary => {
                ArcResult { result: MethodResult::TempError, reason: Some("no answer from the DNS".to_owned()), sets }
            }
        }
    }
}

fn usable(key: KeyLookup) -> Result<Box<stentor_dkim::PublicKey>, Failure> {
    match key {
        KeyLookup::Key(key) => Ok(key),
        KeyLookup::Failed => Err(Failure::Temporary),
        KeyLookup::Missing => Err(Failure::Fail("no key".to_owned())),
        KeyLookup::Unusable(why) => Err(Failure::Fail(why.to_string())),
    }
}
