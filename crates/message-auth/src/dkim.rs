//! Results of DKIM signatures (RFC 6376 section 6).
//!
//! Promise: every signature has a result, in the order of the fields. Failure: no answer of the DNS is `temperror`, a
//! signature or key that cannot be used `permerror`, each with its reason.

use stentor_dkim::{FieldIndex, Signature, SignatureError, VerifyError, verify};

use crate::bodies::HashedBodies;
use crate::dns::{Inquiry, Pending};
use crate::keys::{KeyLookup, key};
use crate::method::MethodResult;

/// Result of one signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DkimResult {
    pub result: MethodResult,
    /// Why it does not pass.
    pub reason: Option<String>,
    /// The signature, unless it is malformed.
    pub signature: Option<SignatureFacts>,
}

/// What identifies a signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignatureFacts {
    pub domain: String,
    pub selector: String,
    pub algorithm: &'static str,
    /// The value of `b=`.
    pub text: String,
    /// Names of the signed header fields (`h=`), in lower case.
    pub fields: Vec<String>,
}

impl DkimResult {
    fn of(signature: &Signature, result: MethodResult, reason: Option<String>) -> DkimResult {
        let facts = SignatureFacts {
            domain: signature.domain.clone(),
            selector: signature.selector.clone(),
            algorithm: signature.algorithm.name(),
            text: signature.text.clone(),
            fields: signature.fields().to_vec(),
        };
        DkimResult { result, reason, signature: Some(facts) }
    }
}

/// Result of a signature that does not count.
fn result_of(error: VerifyError) -> MethodResult {
    match error {
        VerifyError::Expired | VerifyError::Body | VerifyError::Signature => MethodResult::Fail,
        VerifyError::PartialBody | VerifyError::ShortKey => MethodResult::Policy,
        VerifyError::KeyAlgorithm | VerifyError::StrictKey => MethodResult::PermError,
    }
}

/// Verifies all signatures, once all their keys are known.
pub(crate) fn dkim(
    inquiry: &Inquiry<'_>,
    signatures: &[Result<Signature, SignatureError>],
    fields: &FieldIndex<'_>,
    bodies: &HashedBodies,
    now_s: u64,
) -> Result<Vec<DkimResult>, Pending> {
    let keys: Vec<_> = signatures.iter().map(|signature| signature.as_ref().map(|one| key(inquiry, one))).collect();
    let mut results = Vec::with_capacity(signatures.len());
    for (signature, key) in signatures.iter().zip(keys) {
        results.push(match (signature, key) {
            (Ok(signature), Ok(key)) => verified(signature, &key?, fields, bodies, now_s),
            (Err(error), _) | (_, Err(error)) => {
                DkimResult { result: MethodResult::PermError, reason: Some(error.to_string()), signature: None }
            }
        });
    }
    Ok(results)
}

fn verified(
    signature: &Signature,
    key: &KeyLookup,
    fields: &FieldIndex<'_>,
    bodies: &HashedBodies,
    now_s: u64,
) -> DkimResult {
    let (result, reason) = match key {
        KeyLookup::Failed => (MethodResult::TempError, Some("no answer from the DNS".to_owned())),
        KeyLookup::Missing => (MethodResult::PermError, Some("no key".to_owned())),
        KeyLookup::Unusable(why) => (MethodResult::PermError, Some(why.to_string())),
        KeyLookup::Key(key) => {
            let body = bodies.of(signature.body_form);
            match verify(fields, signature, &body, key, now_s) {
                Ok(()) => (MethodResult::Pass, None),
                Err(error) => (result_of(error), Some(error.to_string())),
            }
        }
    };
    DkimResult::of(signature, result, reason)
}
