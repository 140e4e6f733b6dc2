//! The engine of the mail server: sessions in, the queue behind one lock, the committer, deliveries out.
//!
//! Promise: what is answered 250 is on the disk; what is on the disk is tried until each recipient has a fate. It knows no
//! command line, no HTTP and no control socket: those ask it, and an [`core::observer::Observer`] is told what happens.
//! ARCHITECTURE.md says where everything is.

pub mod attempt_log;
pub mod clock;
pub mod core;
pub mod delivery;
pub mod live;
pub mod replay;
pub mod resolve;
pub mod smtp_in;
pub mod ticker;
