//! The observing commands: rates, waiting mail, outcomes of posts; from the server's history or other MTAs' logs.

pub mod batchstat;
pub mod bounces;
pub mod cat;
pub mod dmarc;
mod from;
pub mod hosts;
pub mod input;
pub mod latedudes;
pub mod mailqq;
pub mod mailstat;
pub mod queue;
pub mod realstat;
pub mod report;
pub mod times;
pub mod trace;
pub mod watch;
