//! Public keys of signatures: the questions for them, and their records.
//!
//! Promise: at most [`RECORDS_MAX`] records of a name are read, and the first usable one counts.

use stentor_dkim::{KeyRecordError, PublicKey, Signature, record_name};

use crate::dns::{Inquiry, Pending, RecordAnswer, RecordKind};

/// Maximum records of one name that are read: only one is valid.
const RECORDS_MAX: usize = 4;

/// The key of a signature.
pub(crate) enum KeyLookup {
    Key(Box<PublicKey>),
    /// There is no record.
    Missing,
    Unusable(KeyRecordError),
    /// The DNS did not answer.
    Failed,
}

/// Looks up a signature's key.
pub(crate) fn key(inquiry: &Inquiry<'_>, signature: &Signature) -> Result<KeyLookup, Pending> {
    let answer = inquiry.ask(&record_name(&signature.selector, &signature.domain), RecordKind::Txt)?;
    if *answer == RecordAnswer::Failed {
        return Ok(KeyLookup::Failed);
    }
    let mut why = None;
    for text in answer.texts().iter().take(RECORDS_MAX) {
        match PublicKey::parse(text) {
            Ok(key) => return Ok(KeyLookup::Key(Box::new(key))),
            Err(error) => why = why.or(Some(error)),
        }
    }
    Ok(why.map_or(KeyLookup::Missing, KeyLookup::Unusable))
}
