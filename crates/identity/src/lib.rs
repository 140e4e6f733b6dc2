//! Checks of a sender's identity: what a large receiver examines before it accepts mail.
//!
//! [`examine_source`] judges an address that mail leaves from, [`examine_domain`] a domain in From with its return
//! paths, keys and one message. Both are functions of the answers known so far ([`Lookups`]): the caller fetches the
//! answers that they miss and calls again, until nothing is missing. The findings of that last call count.
//!
//! Promise: nothing here does I/O or reads a clock. A check makes a bounded number of questions, whatever the records
//! say. A question that gets no answer is [`Check::Unchecked`], never a fault. One fault is reported once: a check that
//! depends on something already reported is left out.

mod check;
mod dkim;
mod dmarc;
mod domain;
mod domain_identity;
mod lookups;
mod message;
mod reports;
mod return_path;
mod reverse;
mod source;
mod spf;
#[cfg(test)]
mod tests;

pub use check::{Check, IdentityFinding};
pub use domain::examine_domain;
pub use domain_identity::{DomainIdentity, POLICY_DAYS, RECENT_DAYS, ReceivedReports};
pub use lookups::{LookupAnswer, LookupQuestion, Lookups};
pub use message::Rendered;
pub use reverse::examine_source;
pub use source::Source;
