//! The queue: messages with bitmaps of recipients over an address book, and the events from which this state is folded.
//!
//! A pure state machine: events and `now` go in, effects come out. No sockets, files, threads or clocks.

pub mod age;
pub mod book;
pub mod cause;
pub mod codec;
pub mod event;
pub mod ids;
pub mod idset;
mod index;
pub mod message;
pub mod queue_only;
pub mod sender;
pub mod site;
pub mod slices;
pub mod standing_bounces;
pub mod store;
