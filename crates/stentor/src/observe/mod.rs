//! The commands that observe, over our own history or the logs of others.

pub mod batchstat;
pub mod input;
pub mod mailstat;
pub mod when;
