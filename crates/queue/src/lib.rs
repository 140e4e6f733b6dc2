//! The queue: messages x a bitmap over an address book, retry clocks that hang on hosts and mailboxes, and the scheduler.
//!
//! A pure state machine: events and `now` go in, effects come out. No sockets, files, threads or clocks.

pub mod book;
pub mod codec;
pub mod event;
pub mod ids;
pub mod idset;
mod index;
pub mod message;
pub mod sched;
pub mod site;
pub mod slices;
pub mod store;
