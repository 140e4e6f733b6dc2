//! Load: mail handed in over many connections, as fast as it is taken or at times of our own choosing.
//!
//! Promise: each message has a Message-ID of its own unless it comes from a file; accepted means answered 2xx after its
//! end of data; a failed message is counted and not repeated. What is sent follows from the seed and the message's
//! number alone, whichever connection sends it. With a rate, arrivals follow a schedule that does not wait for the
//! server, and a message's response time counts from its scheduled arrival: a server that stalls cannot make its own
//! figures better by keeping the source from sending (no coordinated omission).
//!
//! Files: [`Plan`] says what to send; `client` is one session without I/O; `worker` moves its octets, one thread with
//! an epoll each, `wire` encrypts them; `tally` counts; [`run`] starts and ends; `options`, `command` and `report` are
//! the command line.
//!
//! States of a connection: free, connecting, in a handshake, greeted, in a message or between messages, quitting.
//! Failure: whatever breaks a session is counted under the step that waited for a reply; the connection is closed and
//! its slot opens a new one with the next message, after a pause if it could not connect.

mod arrivals;
mod client;
mod command;
mod content;
mod options;
mod people;
mod plan;
mod report;
mod run;
mod shared;
mod tally;
mod wire;
mod worker;

pub use arrivals::Arrivals;
pub use command::run_source;
pub(crate) use content::octets;
pub use content::{Content, Sizes};
pub use options::SourceArgs;
pub(crate) use options::{seconds, targets};
pub use people::{Count, People};
pub use plan::{Pipelining, Plan};
pub use report::report;
pub use run::run;
pub use shared::Watch;
pub use tally::{Failed, Failure, FailureKind, Second, Step, Tally};
pub use wire::Tls;

#[cfg(test)]
mod tests;
