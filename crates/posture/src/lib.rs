//! How well a message must be protected on its way to a host, and what a host's domain publishes about it.
//!
//! What it does: [`Policies`] holds the operator's rules and finds the one in force for a recipient's domain, a site, a list and a
//! sender ([`Policies::posture`]). The answer is a [`Posture`]: the way in which a host is to be proven ([`Requirement`]), and the
//! least that is acceptable ([`Floor`]).
//!
//! What it promises: nothing here does I/O, reads a clock or panics; `now` is an argument. All rules can only make each other
//! stricter, except that a more specific rule of the same kind takes the place of a wider one. Every answer has its reason.
//!
//! How it fails: parsers give typed errors that name what is wrong; what a domain publishes and we cannot read never counts as
//! protection, and never as a permission to send in clear where something forbids it.

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
pub use host_posture::{HostPosture, Published, site_suffix};
pub use hosts::{Applied, HostQuestion, HostRefusal, HostUse, Level, Proof, host_use};
pub use names::{HostPattern, Peer, PeerName};
pub use reason::{Held, Reason, Rule};
pub use require_tls::Wish;
pub use requirement::{Floor, Posture, Requirement, RequirementError, Strength};
pub use table::{Policies, Question, RuleError, RuleInput};
