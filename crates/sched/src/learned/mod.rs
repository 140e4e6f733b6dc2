//! What the scheduler has learned, as text for a file: it survives a restart.
//!
//! **Promise.** Never needed for correctness: whatever part of the text is lost, mail goes. Written and read in slices of at most
//! [`SLICE_MAX`] facts, while the scheduler goes on; so a snapshot is one of some moments, not of one. Nothing is named by an id that another
//! address, message or site may have later: addresses, hosts, sites and lists by their texts, messages by their queue ids.
//!
//! | fact | of | found again |
//! |---|---|---|
//! | `host` | an address that has failed, or takes no more connections | when a site has it |
//! | `path` | what a site's hosts take from one of our addresses: rate, connections, recipients and transactions at a time; a warm-up's day | when the site is known |
//! | `domain` | a failed look-up | at once, if the book has the domain |
//! | `mailbox`, `recipient` | 4xx at RCPT | at once, if the book has the address and the queue the message |
//! | `deferral` | 4xx at MAIL or to the data | when the site is known |
//! | `subscriber` | posts in a row that were refused for good | at once, if the book has the address |
//!
//! **Clocks** are written as wall-clock times. A clock is restored with the time that was left when it was written, less the time that has
//! passed since, and never more than the maximum of its kind. So setting the system clock back makes none longer, and setting it forward
//! ends them, as a long stop does: each host is tried by one probe, whose failure takes the next step of the ladder. A count that grows
//! with time (`subscriber`) counts a stop as a day at most.
//!
//! **Failure.** A line that makes no sense is left out and counted; so is what no longer exists.

mod recall;
mod save;
#[cfg(test)]
mod tests;

use stentor_queue::ids::Ms;

use crate::Backoff;

pub use save::Learning;

/// Facts written or looked at in one go, well under a millisecond.
const SLICE_MAX: usize = 1_024;
/// Facts of one kind that are written at most.
const KIND_MAX: usize = 1_000_000;
/// Hosts, sites and deferrals of an earlier run that no mail has needed since its start.
const WAITING_MAX: usize = 200_000;
/// What nobody has asked for in this time is not kept any longer.
const UNUSED_MS: Ms = 7 * 24 * 3_600_000;
/// Limits that a site has taught are learned anew after this: one may have been a mistake of that day.
const LIMITS_MS: Ms = 24 * 3_600_000;

/// The longest that a clock of these may be.
fn longest(all: impl IntoIterator<Item = Option<Backoff>>) -> Ms {
    all.into_iter().flatten().map(|retry| retry.max_ms).max().unwrap_or(0)
}
