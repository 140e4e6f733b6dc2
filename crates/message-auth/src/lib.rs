//! Authentication of messages from untrusted clients: reverse DNS, SPF (RFC 7208), DKIM (RFC 6376), DMARC (RFC 9989)
//! and ARC (RFC 8617), and the results' header field (RFC 8601).
//!
//! Promise: pure. A [`MessageScan`] reads the message while it arrives; a [`Verification`] asks DNS questions and takes
//! answers until it has a [`Report`]. Work is bounded for any message and any DNS: signatures
//! ([`SIGNATURES_MAX`]), questions ([`QUESTIONS_MAX`]), look-ups of SPF, authors. The caller bounds the time.
//!
//! Failure: a DNS failure is `temperror`, on which nobody's policy is applied.
//!
//! Why no library does this: docs/design/decisions/0005-message-authentication.md.

mod arc;
mod author;
mod bodies;
mod dkim;
mod dmarc;
mod dns;
mod keys;
mod method;
mod results;
mod reverse;
mod scan;
pub mod spf;
#[cfg(test)]
mod tests;
mod verification;

pub use arc::ArcResult;
pub use author::AUTHOR_DOMAINS_MAX;
pub use dkim::{DkimResult, SignatureFacts};
pub use dmarc::{
    DestinationChoice, DestinationSearch, DestinationStep, DmarcPolicy, DmarcRecord, DmarcResult, PublishedRecord,
    ReportAddress, TreeWalk, WalkStep, report_domain,
};
pub use dns::{DnsQuestion, QUESTIONS_MAX, RecordAnswer, RecordKind};
pub use method::MethodResult;
pub use results::{AuthResults, Disposition, FIELD, SpfIdentity, SpfResult};
pub use scan::{MessageScan, SIGNATURES_MAX, ScannedMessage};
pub use verification::{SessionIdentity, Step, Verification};
