//! What rules ask about an untrusted client: DNS lists, the name in HELO, the domain of the sender.
//!
//! What it does: makes the questions that the DNS is asked, and reads its answers. Who asks, and how long, is not known here
//! (`stentor-resolve`); which rule wants to know is not, either (`stentor-rules`).
//!
//! What it promises: no I/O and no clock. Only an answer that a list's documentation has counts as a listing.
//!
//! How it fails: whatever cannot be asked, or is answered with something else, is [`Answer::Unanswered`], which is no reason to
//! refuse mail.

mod answers;
mod helo;
mod list;
mod names;
mod question;

pub use answers::{AnswerPattern, BadAnswer};
pub use helo::{HeloFault, sender_question};
pub use list::{DnsList, Listed, Of, ZoneError};
pub use question::{About, Answer, Answered, Kind, Question};
