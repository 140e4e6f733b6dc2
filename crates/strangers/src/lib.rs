//! What rules ask about an untrusted client: DNS lists, the name in HELO, the domain of the sender, how often it comes, and whether
//! it comes back (greylisting).
//!
//! What it does: makes the questions that the DNS is asked, and reads its answers. Who asks, and how long, is not known here
//! (`stentor-resolve`); which rule wants to know is not, either (`stentor-rules`).
//!
//! What it promises: no I/O and no clock. Only an answer that a list's documentation has counts as a listing.
//!
//! How it fails: whatever cannot be asked, or is answered with something else, is [`Answer::Unanswered`], which is no reason to
//! refuse mail.

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
pub use greylist::{Damaged, Greylist, GreylistSettings, Greylisted};
pub use helo::{HeloFault, sender_question};
pub use list::{DnsList, Listed, Of, ZoneError};
pub use question::{About, Answer, Answered, Kind, Question};
pub use rates::{Counts, Event, Over, RateOver, Rates};

/// What is known of a client's behaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// It spoke before our greeting (RFC 5321 section 4.3.1); `None`: not known.
    pub is_early: Option<bool>,
    /// How often it came.
    pub counts: Counts,
    /// Whether its mail has to be tried again, where that is said beforehand and no greylist is asked.
    pub is_greylisted: Option<bool>,
}

impl Seen {
    /// It has done nothing yet.
    pub const NOTHING: Seen = Seen { is_early: Some(false), counts: Counts::NONE, is_greylisted: None };
    /// Nobody has seen it.
    pub const UNKNOWN: Seen = Seen { is_early: None, counts: Counts::UNKNOWN, is_greylisted: None };
}
