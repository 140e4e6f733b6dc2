//! The commands that observe: what goes on, who waits, what became of posts.

pub mod hosts;
pub mod latedudes;
pub mod mailqq;
pub mod realstat;
pub mod report;
