//! The commands that observe: what goes on, who waits, what became of posts; over our own history or the logs of others.

pub mod batchstat;
pub mod hosts;
pub mod input;
pub mod latedudes;
pub mod mailqq;
pub mod mailstat;
pub mod realstat;
pub mod report;
pub mod when;
