//! Conditions of rules on an untrusted client: DNS lists, the name in HELO, the domain of the sender, how often it
//! connects, and whether it retries (greylisting).
//!
//! What it does: makes DNS queries and interprets the answers. `stentor-resolve` sends the queries and limits their
//! time; `stentor-rules` decides which ones are needed.
//!
//! What it promises: no I/O and no clock. Only an answer that a list documents counts as a listing.
//!
//! How it fails: a query that cannot be made, or gets an unexpected answer, is [`Answer::Unanswered`], which never
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
pub use greylist::{Damaged, Greylist, GreylistSettings, Greylisted, Triplet};
pub use helo::{HeloFault, sender_question};
pub use list::{DnsList, Listed, Of, ZoneError};
pub use question::{About, Answer, Answered, Kind, Question};
pub use rates::{Counts, Event, Over, RateOver, Rates};

/// Facts about a client's behaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Whether it spoke before our greeting (RFC 5321 section 4.3.1); `None`: unknown.
    pub is_early: Option<bool>,
    /// How often it connected.
    pub counts: Counts,
    /// Whether greylisting defers its mail, if this is given and no greylist is consulted.
    pub is_greylisted: Option<bool>,
}

impl Seen {
    /// A client that has done nothing yet.
    pub const NOTHING: Seen = Seen { is_early: Some(false), counts: Counts::NONE, is_greylisted: None };
    /// Nothing is known about the client.
    pub const UNKNOWN: Seen = Seen { is_early: None, counts: Counts::UNKNOWN, is_greylisted: None };
}
