//! Dovecot's auth service as the one who knows the users: SQL, LDAP, PAM and whatever else it has.
//!
//! One connection for all sessions, with requests in any order ([`link`]); what is said on it is in [`protocol`]. States of the link:
//! connecting -> (handshake) -> connected -> (end, nonsense or silence) -> waiting -> connecting. While it is not connected, and for
//! all that were under way when it was lost, the answer is a temporary refusal.

mod link;
pub mod protocol;

pub(crate) use link::{Answer, Link, Request};
pub use protocol::{FIELD_PREFIX, GivenLimits};
