//! What is wrong with a policy's input, and which part of it.

use std::sync::Arc;

use stentor_mail::address::Address;

/// The subject of an error in a [`crate::PolicyInput`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    Hostname,
    LocalDomain(String),
    Postmaster,
    /// A list's name.
    List(Arc<str>),
    /// The owner of the list of this name.
    Owner(Arc<str>),
    /// An alias's address.
    Alias(Address),
}

/// One error in a [`crate::PolicyInput`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PolicyError {
    pub subject: Subject,
    pub message: String,
    /// Something is missing, perhaps because of another error: reported only if there is no other.
    pub may_follow: bool,
}
