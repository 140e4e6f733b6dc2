//! What can go wrong with the registry, in the words that operators read: what failed, where, and what to do.

use std::path::PathBuf;

use crate::ENTRIES_PER_CHANGE_MAX;
use crate::store::RegistryStoreError;
use crate::suppression::SuppressionError;

/// Why the server cannot start with this registry.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenRegistryError {
    #[error("cannot open the registry {}: {why}", path.display())]
    Open { path: PathBuf, why: String },
    #[error("the registry {} is in use by another process; stop that server first", path.display())]
    Locked { path: PathBuf },
    #[error(
        "the registry {} is damaged: {why}; restore it from a backup, or move it away to start without suppressions and \
         import an export of them",
        path.display()
    )]
    Damaged { path: PathBuf, why: String },
    #[error(
        "the registry {} has version {version}, and this program reads version {known}; run the newer program, or \
         restore a backup",
        path.display()
    )]
    Newer { path: PathBuf, version: i64, known: i64 },
    #[error("{} is a database of another program; move it away", path.display())]
    Foreign { path: PathBuf },
    #[error("cannot start the registry's thread: {0}")]
    Thread(String),
}

/// Why a change was refused. It is not in force, but after [`RegistryError::Failed`] the next start may find it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RegistryError {
    #[error(transparent)]
    Invalid(#[from] SuppressionError),
    #[error("a change of the registry has {0} entries; the limit is {ENTRIES_PER_CHANGE_MAX}")]
    TooMany(usize),
    #[error("the state of the DKIM keys of {0} is too long")]
    DkimState(String),
    #[error("no space left for the registry; free disk space and try again")]
    Full,
    #[error("the registry failed: {0}; no change is accepted before a restart of the server")]
    Failed(String),
    #[error("the server is stopping")]
    Stopping,
}

impl From<RegistryStoreError> for RegistryError {
    fn from(error: RegistryStoreError) -> RegistryError {
        match error {
            RegistryStoreError::Full => RegistryError::Full,
            RegistryStoreError::Failed(why) => RegistryError::Failed(why),
        }
    }
}

/// Why changes are refused now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegistryTrouble {
    /// The disk is full; otherwise a restart is needed.
    pub is_full: bool,
    pub why: String,
}
