//! Local delivery: a process of its own, which alone has the right to act as other users (docs/design/local-delivery.md).
//!
//! Promise: a recipient is delivered once and durably before the reply is 250; otherwise the reply is 4xx or 5xx, and nothing
//! is left in the mailbox. Whom the mail is delivered as, where and by which command is read from a file that only root can
//! write; a client chooses an envelope, a content and one of the services, nothing else.
//!
//! Processes: the supervisor ([`supervisor`]) listens on a Unix socket per service and starts a worker for each connection, at
//! most `connections_max` at a time. A worker ([`worker`]) speaks LMTP and has one delivery at a time, so that its own process
//! is a delivery's boundary: it changes its effective user for a mailbox, and every process below it belongs to the one program
//! that it runs ([`agent::program`]).
//!
//! Failures: a worker that dies closes its connection, so that the server tries again what was not answered; at most the
//! recipient in delivery is delivered twice. What a dead worker's program left behind is killed by the supervisor. A file system
//! without space is 452, everything else about a mailbox or this machine is 451: a recipient is refused for good only if it
//! does not exist, mail for it loops, or its program says so.

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
