//! The program `stentor`: its command line, how a server is put together, started and stopped, and the commands that look at
//! logs, at the history and at a stopped journal. ARCHITECTURE.md says where everything else is.

mod asking;
pub mod cli;
mod cli_verbs;
pub mod foreign;
pub mod help;
pub mod journal_cmd;
pub mod observe;
pub mod process;
mod secrets;
pub mod serve;
