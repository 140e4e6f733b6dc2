//! The program `stentor`: its command line; building, starting and stopping a server; and the commands that read logs,
//! the history and a stopped journal. ARCHITECTURE.md says where everything else is.

mod acme;
mod asking;
mod certificates;
mod check_cmd;
pub mod cli;
mod cli_verbs;
mod config_cmd;
mod dkim_cmd;
mod dkim_show;
mod doctor_mail;
mod explain;
mod findings;
pub mod help;
mod hints;
pub mod journal_cmd;
mod list_cmd;
mod logging;
mod mime_cmd;
pub mod observe;
mod output;
mod paint;
pub mod process;
mod progress;
mod secrets;
pub mod serve;
mod state_files;
mod suppress_cmd;
mod table_cmd;
mod tls_check;
mod tls_cmd;
mod trial;
mod user_cmd;
