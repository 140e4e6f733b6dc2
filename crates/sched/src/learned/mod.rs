//! Saves and restores the scheduler's learned state as text for a file, so that it survives a restart.
//!
//! **Promise.** The text is never needed for correctness: whatever part of it is lost, mail still goes. It is written
//! in slices of at most [`SLICE_MAX`] facts while the scheduler continues, so a snapshot spans some time; it is read in
//! one go, before the queue is resumed and there are sessions. Ids that may be reused are never written: addresses,
//! hosts, sites and lists are identified by their texts, messages by their queue ids.
//!
//! | fact | about | restored |
//! |---|---|---|
//! | `host` | an address that has failed, or takes no more connections | when a site has it |
//! | `path` | a site's limits for one of our addresses: rate, connections, batch sizes; warm-up day | when the site is known |
//! | `domain` | a failed look-up | at once, if the book has the domain |
//! | `mailbox`, `recipient` | 4xx at RCPT | at once, if the book has the address and the queue the message |
//! | `deferral` | 4xx at MAIL or to the data | when the site is known |
//! | `subscriber` | posts in a row that were refused for good | at once, if the book has the address |
//!
//! **Clocks** are written as wall-clock times. A clock is restored with the time that was left when it was written,
//! less the time that has passed since, and never more than the maximum of its kind. So setting the system clock back
//! lengthens no clock. Setting it forward ends them, as a long stop does: each host is tried by one probe, whose
//! failure takes the next step of the ladder. A count that grows with time (`subscriber`) counts a stop as a day at
//! most.
//!
//! **Failure.** A malformed line is skipped and counted. A fact about something that no longer exists is skipped.

mod recall;
mod save;
#[cfg(test)]
mod tests;

use stentor_queue::ids::Ms;

use crate::Backoff;

pub use save::SnapshotProgress;

/// Facts written or examined at a time, well under a millisecond.
const SLICE_MAX: usize = 1_024;
/// Largest number of facts of one kind in a text.
const KIND_MAX: usize = 1_000_000;
/// Largest number of hosts, sites and deferrals of an earlier run that no mail has needed since the start.
const WAITING_MAX: usize = 200_000;
/// Unused facts are dropped after this time.
const UNUSED_MS: Ms = 7 * 24 * 3_600_000;
/// Limits of a site are learned anew after this time: they may have been a mistake of that day.
const LIMITS_MS: Ms = 24 * 3_600_000;

/// The longest that any of these clocks may last.
fn longest(all: impl IntoIterator<Item = Option<Backoff>>) -> Ms {
    all.into_iter().flatten().map(|retry| retry.max_ms).max().unwrap_or(0)
}
