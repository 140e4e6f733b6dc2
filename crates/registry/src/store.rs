//! The seam between the registry and its database. SQLite implements it; another database, such as PostgreSQL, can.
//!
//! Contract: [`RegistryStore::commit`] is one transaction, durable when it returns. After an error nothing of it has
//! happened, or the store returns [`RegistryStoreError::Failed`] from then on. Each change has the same effect however
//! often it is repeated, so nothing of the journal's position is stored here.

use crate::Ms;
use crate::dkim::DkimState;
use crate::suppression::{Suppression, SuppressionKey, SuppressionReason};

/// A change of the registry. Each has at most [`crate::ENTRIES_PER_CHANGE_MAX`] entries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RegistryChange {
    /// Adds entries. Of two entries for the same key, the one that lasts longer stays; of equal ones the first. A
    /// complaint changes the reason and source of the one that stays.
    Add(Vec<Suppression>),
    Remove(Vec<SuppressionKey>),
    /// Deletes up to `max` entries that ended before `before`.
    DeleteExpired {
        before: Ms,
        max: usize,
    },
    /// Replaces the state of a domain's DKIM keys.
    SetDkimState(DkimState),
}

/// What became of an entry to add.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryEffect {
    Added,
    /// It replaced one that would have ended earlier.
    Extended,
    /// There is one that lasts as long or longer. Its reason has become `complaint`, its end is as before.
    ReasonChanged {
        expires: Option<Ms>,
    },
    /// There is one that lasts as long or longer.
    Unchanged,
}

/// The effect of a committed change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RegistryEffect {
    /// One effect per entry, in order.
    Added(Vec<EntryEffect>),
    /// Whether each entry was there, in order.
    Removed(Vec<bool>),
    Expired(Vec<SuppressionKey>),
    DkimStateSet,
}

/// Which entries to list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SuppressionQuery {
    /// Only entries that cover this subject as [`crate::Subject::text`] writes it. For an address, those of its domain
    /// are included.
    pub subjects: Vec<String>,
    /// Only entries of this scope.
    pub scope: Option<String>,
    /// Only entries with this reason.
    pub reason: Option<SuppressionReason>,
    /// Only entries after this one.
    pub after: Option<SuppressionKey>,
    pub rows_max: usize,
}

/// Entries in the order of subject and scope.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ListedSuppressions {
    pub rows: Vec<Suppression>,
    /// Where to continue; `None` at the end.
    pub next: Option<SuppressionKey>,
}

/// Why the database cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RegistryStoreError {
    /// The transaction was undone. A later one may succeed.
    #[error("no space left for the registry")]
    Full,
    /// Nothing that the database says is trusted before the next start.
    #[error("{0}")]
    Failed(String),
}

pub trait RegistryStore: Send + 'static {
    /// Returns the states of DKIM keys.
    fn dkim_states(&mut self) -> Result<Vec<DkimState>, RegistryStoreError>;

    /// Passes every entry to `entry`.
    fn load(&mut self, entry: &mut dyn FnMut(&Suppression)) -> Result<(), RegistryStoreError>;

    /// Makes all changes durable in one transaction. Returns their effects in order.
    fn commit(&mut self, changes: &[RegistryChange]) -> Result<Vec<RegistryEffect>, RegistryStoreError>;

    fn list(&mut self, query: &SuppressionQuery) -> Result<ListedSuppressions, RegistryStoreError>;
}
