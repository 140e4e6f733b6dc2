//! The commands that observe, over our own history or the logs of others.

pub mod trace;
