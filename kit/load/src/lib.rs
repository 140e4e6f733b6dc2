//! Load for mail servers, and receivers for it: a source, measured sinks, held connections, the machine's limit, and
//! servers side by side: `stentor-kit lab source`, `sink`, `hold`, `limit` and `compare`.
//!
//! Sinks and recorder are those of `stentor-lab`.

mod address;
pub mod cli;
pub mod compare;
mod crew;
mod error;
mod hold;
pub mod limit;
pub mod load;
mod output;
mod procfs;
mod sink_command;
pub mod source;

pub use address::{Sources, Targets};
pub use hold::{HoldArgs, run_hold};
pub use output::OnceArgs;
pub use sink_command::{SinkArgs, run_sink};
pub use source::{Source, SourceReport};
