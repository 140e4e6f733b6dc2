//! The engine of the mail server: the queue behind one lock, the committer, deliveries. Sessions of clients are in `stentor-sessions`.
//!
//! Promise: whatever is answered 250 is on the disk; whatever is on the disk is tried until each recipient has a fate.
//! It has no command line, no HTTP and no control socket: those call it, and an [`core::observer::Observer`] is
//! notified of events. ARCHITECTURE.md says where everything is.

pub mod clock;
pub mod core;
pub mod delivery;
pub mod files;
pub mod replay;
pub mod ticker;
