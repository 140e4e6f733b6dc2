//! Causes of undelivered mail: what a reply means, whose fault it is, and what a bounce or complaint reports.
//!
//! [`BounceRules`] names the cause of one reply; [`message::parse`] reads a whole message and classifies each
//! recipient's reply; [`sums::BounceSums`] counts causes over records,
//! [`complaints::ComplaintRates`] complaints. Pure: octets, texts and records go in; the text
//! of the rules is an argument, or the built-in file.
//!
//! Promise: linear time and bounded memory for any reply and message. A cause comes with its confidence and its rule.
//!
//! Failure: what no rule knows is `unknown` and counts against nobody. A rules file with an error is refused as a
//! whole.

pub mod blocklists;
pub mod cause;
pub mod cluster;
pub mod complaints;
pub mod message;
pub mod note;
pub mod provider;
pub mod reply;
pub mod rules;
pub mod sums;

pub use cause::{BounceCause, FaultParty};
pub use message::{BounceKind, ParsedBounce, RecipientReport, ReportAction};
pub use reply::BounceReply;
pub use rules::{BounceRules, Classification};
