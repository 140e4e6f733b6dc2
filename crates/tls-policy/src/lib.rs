//! Required protection of messages on their way to hosts, and the policies that domains publish about it.
//!
//! What it does: [`Policies`] holds the operator's rules and finds the applicable ones for a recipient's domain, a
//! site, a list and a sender ([`Policies::posture`]). The result is a [`Posture`]: how a host must be proven
//! ([`Requirement`]), and the minimum protection ([`Floor`]).
//!
//! What it promises: nothing here does I/O, reads a clock or panics; `now` is an argument. Rules can only make each
//! other stricter, except that a more specific rule of the same kind replaces a wider one. Every result has a reason.
//!
//! How it fails: parsers return typed errors that name the problem; an unreadable policy of a domain never counts as
//! protection, and never permits sending in clear when something else forbids it.

pub mod dane;
mod fingerprint;
mod host_posture;
mod hosts;
mod names;
mod reason;
mod require_tls;
mod requirement;
pub mod sts;
mod table;
#[cfg(test)]
mod tests;
pub mod tlsrpt;

pub use fingerprint::{Fingerprint, FingerprintError};
pub use host_posture::{HostPosture, PublishedPolicies, site_suffix};
pub use hosts::{HostQuestion, HostRefusal, HostUse, Level, PolicySource, Proof, host_use};
pub use names::{HostPattern, Peer, PeerName};
pub use reason::{AppliedRule, ReasonedPosture, RequirementSource};
pub use require_tls::Wish;
pub use requirement::{Floor, Posture, Requirement, RequirementError, Strength};
pub use table::{Policies, PostureQuery, RuleError, RuleInput};
