//! Waiting mail: the answers to `mailqq` and `hosts`, and the advice of `latedudes`.
//!
//! Promise: from memory alone, in slices of well under a millisecond under the hub's lock; rows are of slightly
//! different instants. Answers from an index take milliseconds for any queue; a search of messages stops after
//! [`mailqq::WALK_MAX`] and reports how far it got.

pub mod hosts;
pub mod mailqq;

pub use hosts::hosts;
pub use mailqq::mailqq;
