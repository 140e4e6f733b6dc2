//! Conditions of rules on an untrusted client: DNS lists, the name in HELO, the domain of the sender, how often it
//! connects, and whether it retries (greylisting).
//!
//! What it does: makes DNS queries and interprets the answers. `stentor-resolve` sends the queries and limits their
//! time; `stentor-rules` decides which ones are needed.
//!
//! What it promises: no I/O and no clock. Only an answer that a list documents counts as a listing.
//!
//! How it fails: a query that cannot be made, or gets an unexpected answer, is [`DnsAnswer::Unanswered`], which never
//! refuses mail.

mod answers;
mod client_name;
mod greylist;
mod helo;
mod list;
mod names;
mod question;
mod rates;

pub use answers::{AnswerPattern, BadAnswer};
pub use client_name::ClientName;
pub use greylist::{DamagedGreylist, Greylist, GreylistSettings, Greylisted, Triplet};
pub use helo::{HeloFault, sender_question};
pub use list::{DnsList, DnsListResult, DnsListSubject, ZoneError};
pub use question::{Answered, DnsAnswer, Kind, QueriedMail, Question};
pub use rates::{Counts, Event, RateOver, RateVerdict, Rates};

/// Facts about a client's behaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientBehaviour {
    /// Whether it spoke before our greeting (RFC 5321 section 4.3.1); `None`: unknown.
    pub is_early: Option<bool>,
    /// How often it connected.
    pub counts: Counts,
    /// Whether greylisting defers its mail, if this is given and no greylist is consulted.
    pub is_greylisted: Option<bool>,
}

impl ClientBehaviour {
    /// A client that has done nothing yet.
    pub const NOTHING: ClientBehaviour =
        ClientBehaviour { is_early: Some(false), counts: Counts::NONE, is_greylisted: None };
    /// Nothing is known about the client.
    pub const UNKNOWN: ClientBehaviour =
        ClientBehaviour { is_early: None, counts: Counts::UNKNOWN, is_greylisted: None };
}
