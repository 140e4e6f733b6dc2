//! Mail as bytes: addresses, replies, headers, reports and digests.
//!
//! Nothing here opens a socket or a file, and nothing reads a clock: bytes and `now` go in, events and bytes come out.

pub mod address;
mod author_name;
pub mod copy_request;
pub mod digest;
pub mod domain;
pub mod dsn;
pub mod edited;
mod fields;
pub mod headers;
pub mod heading;
pub mod received;
pub mod reply;
pub mod stored_form;

/// SMTP with TLS from the first octet (RFC 8314 section 3.3).
pub const SUBMISSIONS_PORT: u16 = 465;

/// The class of mail. Ordinary mail and bulk have separate shares, so that neither waits for the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Class {
    #[default]
    Ordinary,
    Bulk,
}

impl Class {
    /// Name in options, logs and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Class::Ordinary => "ordinary",
            Class::Bulk => "bulk",
        }
    }
}

/// Milliseconds since the Unix epoch, from the caller's clock (which never runs backwards within a process).
pub type Ms = u64;
