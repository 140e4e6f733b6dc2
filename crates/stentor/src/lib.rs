//! The program `stentor`: its command line, building, starting and stopping a server, and the commands that read logs,
//! the history and a stopped journal. ARCHITECTURE.md says where everything else is.

mod asking;
pub mod cli;
mod cli_verbs;
pub mod foreign;
pub mod help;
pub mod journal_cmd;
mod logging;
pub mod observe;
pub mod process;
mod secrets;
pub mod serve;
