//! Errors in a policy's input, and the part that each concerns.

use std::sync::Arc;

use stentor_mail::address::Address;

/// The subject of an error in a [`crate::PolicyInput`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    Hostname,
    LocalDomain(String),
    Postmaster,
    /// A list, by name.
    List(Arc<str>),
    /// The owner of this list.
    Owner(Arc<str>),
    /// An alias, by address.
    Alias(Address),
}

/// One error in a [`crate::PolicyInput`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PolicyError {
    pub subject: Subject,
    pub message: String,
    /// Whether it may be a consequence of another error; reported only if there is no other.
    pub may_follow: bool,
}
