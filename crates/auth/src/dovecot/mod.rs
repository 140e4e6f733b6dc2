//! Dovecot's auth service as the source of users: SQL, LDAP, PAM and all others that it supports.
//!
//! One connection serves all sessions, with requests in any order ([`link`]); [`protocol`] defines the messages. States
//! of the link: connecting -> (handshake) -> connected -> (end, protocol error or silence) -> waiting -> connecting.
//! While it is not connected, and for all requests in progress when it was lost, the result is a temporary refusal.

mod link;
pub mod protocol;

pub(crate) use link::{Answer, Link, Request};
pub use protocol::{FIELD_PREFIX, GivenLimits};
