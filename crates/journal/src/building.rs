//! State of a checkpoint that is being written; `checkpoint.rs` explains its states.

use std::collections::BTreeSet;

use crate::format::Position;

/// A checkpoint that is not durable yet.
#[derive(Debug)]
pub(crate) struct Building {
    pub number: u64,
    /// Known once the marker is durable.
    pub begin: Option<Position>,
    /// Next content to put into a slice, below `end`; `None`: all are in slices.
    pub cursor: Option<u64>,
    pub end: u64,
    pub slices_issued: u64,
    pub slices_durable: u64,
    /// Octets of all slices so far, the owner's included.
    pub slices_bytes: u64,
    /// Octets of slices that this checkpoint wrote itself.
    pub written_bytes: u64,
    /// Contents that are slices of this checkpoint.
    pub named: BTreeSet<u64>,
    /// Log bytes since the begin.
    pub bytes: u64,
}
