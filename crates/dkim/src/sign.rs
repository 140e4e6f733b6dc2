//! Makes the `DKIM-Signature` fields of one copy (RFC 6376 section 5).
//!
//! Promise: the fields are in the order of the signers, folded to 78 octets a line, and cover the header section as
//! given: the canonical form is made and hashed once for all signers. Always `c=relaxed/relaxed`, never `l=`.

use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use base64ct::{Base64, Encoding};

use crate::body::BodyDigest;
use crate::fields::{NAMES_MAX, SignedFields, relax};
use crate::fold::Folded;
use crate::key::SigningKey;

/// A domain, a selector, and the key that is published there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signer {
    /// In ASCII and lower case.
    pub domain: Arc<str>,
    pub selector: Arc<str>,
    pub key: Arc<SigningKey>,
}

/// Times of a signature in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    pub signed: u64,
    /// `None`: the signature does not expire.
    pub expires: Option<u64>,
}

/// Why a message cannot be signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// A signature must cover From (RFC 6376 section 5.4).
    #[error("the header has no From field")]
    NoFrom,
    #[error("the header has more than {NAMES_MAX} fields that a signature covers")]
    TooManyFields,
    #[error("the cryptographic library failed")]
    Library,
}

/// Returns the signature fields, each with CRLF, to be put before the header section.
///
/// # Errors
/// No signature is returned if any of them cannot be made.
pub fn sign(header: &[u8], body: BodyDigest, signers: &[Signer], times: Times) -> Result<Vec<u8>, SignError> {
    let fields = SignedFields::of(header);
    if !fields.has_from {
        return Err(SignError::NoFrom);
    }
    if fields.names.len() > NAMES_MAX {
        return Err(SignError::TooManyFields);
    }
    let mut hash = Context::new(&SHA256);
    hash.update(&fields.canonical);
    let body_hash = Base64::encode_string(&body.0);
    let (mut signed, mut canonical) = (Vec::new(), Vec::new());
    for signer in signers {
        let mut field = unsigned(&fields, &body_hash, signer, times);
        canonical.clear();
        relax(field.octets(), &mut canonical);
        let mut hash = hash.clone();
        hash.update(&canonical);
        let signature = signer.key.sign(&hash.finish()).map_err(|_| SignError::Library)?;
        field.text(&Base64::encode_string(&signature));
        signed.extend(field.finish());
    }
    Ok(signed)
}

/// Writes the field up to the value of `b=`, which is empty in the signed form (RFC 6376 section 3.7).
fn unsigned(fields: &SignedFields, body_hash: &str, signer: &Signer, times: Times) -> Folded {
    let mut field = Folded::new("DKIM-Signature:");
    field.word("v=1;");
    field.word(&format!("a={};", signer.key.algorithm().name()));
    field.word("c=relaxed/relaxed;");
    field.word(&format!("d={};", signer.domain));
    field.word(&format!("s={};", signer.selector));
    field.word(&format!("t={};", times.signed));
    if let Some(expires) = times.expires {
        field.word(&format!("x={expires};"));
    }
    for (n, name) in fields.names.iter().enumerate() {
        let end = if n + 1 == fields.names.len() { ';' } else { ':' };
        if n == 0 {
            field.word(&format!("h={name}{end}"));
        } else {
            field.part(&format!("{name}{end}"));
        }
    }
    field.word(&format!("bh={body_hash};"));
    field.word("b=");
    field
}
