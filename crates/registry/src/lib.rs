//! The registry: facts that outlive the queue. It holds suppressions: addresses and domains to which nothing is sent,
//! or nothing of a list or a sender; members of lists, and what people are to confirm; and the states of DKIM keys that
//! the server makes ([`DkimState`]).
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

mod confirmations;
pub mod csv;
pub mod csv_reader;
mod dkim;
mod error;
mod index;
mod members;
mod registry;
mod roster;
mod sqlite;
mod store;
mod suppression;
mod table;
mod writer;

pub use confirmations::{Confirmation, ConfirmedAction, NOTIFY_PAUSE_MS, OfferEffect, OfferPause};
pub use dkim::{DkimState, STATE_BYTES_MAX};
pub use error::{OpenRegistryError, RegistryError, RegistryTrouble};
pub use index::{MatchedScope, SuppressionIndex, SuppressionMatch};
pub use members::{
    DeliveryChange, Departure, JoinEffect, JoinedBy, ListMember, Member, MemberAddition, MemberDelivery, MemberQuery,
    NAME_BYTES_MAX, RosterChange, RosterState, RosterUpdate,
};
pub use registry::{AddressRegistry, MEMBER_ROWS_MAX};
pub use roster::RosterDelta;
pub use sqlite::{Durability, SqliteStore};
pub use store::{
    Committed, EntryEffect, ListedSuppressions, RegistryChange, RegistryEffect, RegistryStore, RegistryStoreError,
    SuppressionQuery,
};
pub use suppression::{Scope, Subject, Suppression, SuppressionError, SuppressionKey, SuppressionReason};

/// Unix time in milliseconds.
pub use stentor_mail::Ms;

/// Name of the database in the data folder.
pub const FILE: &str = "registry.sqlite";
/// Entries of one change at most.
pub const ENTRIES_PER_CHANGE_MAX: usize = 1_000;

/// SQLite's integers are signed; times and counts are far below the limit.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
