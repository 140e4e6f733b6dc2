//! What the journal remembers of a checkpoint while it is being written; `checkpoint.rs` has its states.

use std::collections::BTreeSet;

use crate::format::Position;

/// A checkpoint that is not durable yet.
#[derive(Debug)]
pub(crate) struct Building {
    pub number: u64,
    /// Known once the marker is durable.
    pub begin: Option<Position>,
    /// Next content to put into a slice, below `end`; `None` = all are in.
    pub cursor: Option<u64>,
    pub end: u64,
    pub slices_issued: u64,
    pub slices_durable: u64,
    /// Octets of all slices so far, the owner's included.
    pub slices_bytes: u64,
    /// Of these, what it has written itself.
    pub written_bytes: u64,
    /// Contents that are its slices.
    pub named: BTreeSet<u64>,
    /// Log bytes since the begin.
    pub bytes: u64,
}
