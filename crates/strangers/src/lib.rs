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
mod greylist;
mod helo;
mod list;
mod names;
mod question;
mod rates;

pub use answers::{AnswerPattern, BadAnswer};
pub use greylist::{Damaged, Greylist, GreylistSettings, Greylisted};
pub use helo::{HeloFault, sender_question};
pub use list::{DnsList, Listed, Of, ZoneError};
pub use question::{About, Answer, Answered, Kind, Question};
pub use rates::{Counts, Event, RateOver, Rates};

/// What is known of a client's behaviour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// It spoke before our greeting (RFC 5321 section 4.3.1).
    pub is_early: bool,
    /// How often it came.
    pub counts: Counts,
}

impl Seen {
    pub const NOTHING: Seen = Seen { is_early: false, counts: Counts::NONE };
}
