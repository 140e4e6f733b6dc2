//! Why the lab cannot start or rejects a scenario.

use std::{io, net::SocketAddr, path::PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The scenario file cannot be read.
    #[error("{path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    /// The scenario is not valid; the text names line and key, or the site.
    #[error("scenario: {0}")]
    Scenario(String),
    /// An address of the lab cannot be listened on.
    #[error("listening on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    /// No port is free on all the scenario's host addresses at once.
    #[error("no port is free on all {hosts} host addresses: {source}")]
    NoCommonPort { hosts: usize, source: io::Error },
    /// More host addresses than file descriptors.
    #[error("{needed} listening addresses need more file descriptors than the limit of {limit}; raise it (ulimit -n)")]
    Descriptors { needed: u64, limit: u64 },
    /// The folder of `--keep` has files.
    #[error("{0}: folder not empty; name a new folder for the copies, or remove its files")]
    FolderNotEmpty(PathBuf),
    /// The sink's store cannot be opened.
    #[error("the store: {0}")]
    Store(io::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
}
