//! DKIM (RFC 6376, RFC 8463): keys, DNS records, canonical forms, signatures, and their verification.
//!
//! Promise: the signatures of a message depend only on its octets, the signers and the times given. Nothing here does
//! I/O or reads a clock. A body is hashed in pieces of any size, once; each copy then hashes only its header. All
//! signers of a copy share one canonical header. `l=` is never used, so that nobody can append to a signed body.
//!
//! Failure: a key that cannot be used is a [`KeyError`], a signature that cannot be made a [`SignError`].

mod body;
mod fields;
mod fold;
mod form;
mod key;
mod message;
mod own;
mod record;
pub mod rotation;
mod sign;
mod verify;

pub use body::{BodyDigest, BodyHash, HashedBody};
pub use form::CanonicalForm;
pub use key::{Algorithm, GeneratedKey, KeyError, RSA_BITS_MIN, RSA_BITS_USUAL_MAX, SigningKey};
pub use message::MessageHash;
pub use own::is_signed_by;
pub use record::{is_published_by, record_name, zone_text};
pub use sign::{SignError, Signer, Times, sign};
pub use verify::{
    FieldIndex, KeyRecord, KeyRecordError, PublicKey, Signature, SignatureError, SignatureKind, TagError, TagList,
    VerifyError, verify, verify_seal,
};
