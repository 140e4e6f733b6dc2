//! The registry: facts that outlive the queue. It holds suppressions: addresses and domains to which nothing is sent,
//! or nothing of a list or a sender; and the states of DKIM keys that the server makes ([`DkimState`]).
//!
//! Promise: a change is durable when its future resolves, or it is an error. Look-ups are answered from memory, without
//! I/O and without waiting for a change. The registry holds addresses and never ids of the queue, so either can be
//! restored without the other.
//!
//! One thread owns the database (`writer.rs`). It commits all waiting changes in one transaction, updates the index
//! ([`SuppressionIndex`]), then answers. The database is behind a seam ([`RegistryStore`]); [`SqliteStore`] is SQLite
//! with WAL and full syncs.
//!
//! Failures: a database that cannot be opened or read prevents the start. A full disk refuses the changes of that
//! transaction; later ones are tried again. After any other error the database is not used until the next start:
//! look-ups go on, changes are refused, and health says so.

pub mod csv;
pub mod csv_reader;
mod dkim;
mod error;
mod index;
mod registry;
mod sqlite;
mod store;
mod suppression;
mod table;
mod writer;

pub use dkim::{DkimState, STATE_BYTES_MAX};
pub use error::{OpenRegistryError, RegistryError, RegistryTrouble};
pub use index::{MatchedScope, SuppressionIndex, SuppressionMatch};
pub use registry::AddressRegistry;
pub use sqlite::{Durability, SqliteStore};
pub use store::{
    EntryEffect, ListedSuppressions, RegistryChange, RegistryEffect, RegistryStore, RegistryStoreError,
    SuppressionQuery,
};
pub use suppression::{Scope, Subject, Suppression, SuppressionError, SuppressionKey, SuppressionReason};

/// Unix time in milliseconds.
pub use stentor_mail::Ms;

/// Name of the database in the data folder.
pub const FILE: &str = "registry.sqlite";
/// Entries of one change at most.
pub const ENTRIES_PER_CHANGE_MAX: usize = 1_000;
