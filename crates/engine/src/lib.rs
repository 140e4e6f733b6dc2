//! The engine of the mail server: the queue behind one lock, the committer, deliveries. Client sessions are in
//! `stentor-sessions`.
//!
//! Promise: mail answered with 250 is on disk, and mail on disk is tried until each recipient has a fate. The engine
//! has no command line, no HTTP and no control socket: those call it, and an [`core::observer::Observer`] is notified
//! of events. ARCHITECTURE.md says where everything is.

pub mod clock;
pub mod core;
pub mod delivery;
pub mod files;
pub mod replay;
pub mod ticker;
