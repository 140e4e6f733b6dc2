//! Local delivery: a separate process, the only one that may act as other users (docs/design/local-delivery.md).
//!
//! Promise: a recipient is delivered once and durably before the reply is 250; otherwise the reply is 4xx or 5xx, and
//! nothing is left in the mailbox. The user, destination and command of deliveries are read from a file that only
//! root can write; a client only chooses an envelope, a content and one of the services.
//!
//! Processes: the supervisor ([`supervisor`]) listens on a Unix socket per service and starts a worker for each
//! connection, at most `connections_max` at a time. A worker ([`worker`]) speaks LMTP and handles one delivery at a
//! time, so its process isolates the delivery: it changes its effective user for a mailbox, and all its descendants
//! belong to the one program that it runs ([`agent::program`]).
//!
//! Failures: a worker that dies closes its connection, so the server retries unanswered recipients; at most the
//! current recipient is delivered twice. The supervisor kills processes left behind by a dead worker's program. A
//! full file system is 452, any other problem of a mailbox or this machine is 451: a recipient is permanently refused
//! only if it does not exist, its mail loops, or its program refuses.

pub mod account;
pub mod agent;
pub mod config;
pub mod descendants;
pub mod guarded;
mod lock_name;
pub mod log;
pub mod recipient;
pub mod spool;
pub mod supervisor;
pub mod template;
pub mod worker;

pub use config::{CONFIG, Config, ConfigError};
