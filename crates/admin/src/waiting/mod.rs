//! Who waits, and for whom: the answers to `mailqq`, `hosts`, and the advice of `latedudes`.
//!
//! Promise: from memory alone, in slices of well under a millisecond under the hub's lock; rows are of slightly different
//! instants. What an index answers takes milliseconds whatever waits; what has to be looked for in the messages stops after
//! [`mailqq::WALK_MAX`] and says how far it came.

pub mod hosts;
pub mod mailqq;

pub use hosts::hosts;
pub use mailqq::mailqq;
