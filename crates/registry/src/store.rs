//! The seam between the registry and its database. SQLite implements it; another database, such as PostgreSQL, can.
//!
//! Contract: [`RegistryStore::commit`] is one transaction, durable when it returns. After an error nothing of it has
//! happened, or the store returns [`RegistryStoreError::Failed`] from then on. Each change has the same effect however
//! often it is repeated, so nothing of the journal's position is stored here.

use crate::Ms;
use crate::confirmations::{Confirmation, OfferEffect, OfferPause};
use crate::dkim::DkimState;
use crate::members::{
    DeliveryChange, Departure, JoinEffect, ListMember, MemberAddition, MemberQuery, RosterState, RosterUpdate,
};
use crate::suppression::{Subject, Suppression, SuppressionKey, SuppressionReason};

/// A change of the registry. Each has at most [`crate::ENTRIES_PER_CHANGE_MAX`] entries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RegistryChange {
    /// Adds entries. Of two entries for the same key, the one that lasts longer stays; of equal ones the first. A
    /// complaint changes the reason and source of the one that stays, unless that is an operator's. An operator's entry
    /// for a list without an end replaces one of another reason. An entry for a list without an end ends the membership
    /// of that list, too.
    Add(Vec<Suppression>),
    Remove(Vec<SuppressionKey>),
    /// Deletes up to `max` entries that ended before `before`.
    DeleteExpired {
        before: Ms,
        max: usize,
    },
    /// Replaces the state of a domain's DKIM keys.
    SetDkimState(DkimState),
    /// Adds members to a list, and ends their entries for it.
    Join(MemberAddition),
    SetDelivery(DeliveryChange),
    /// Deletes up to `max` members of a list that no longer exists.
    DeleteMembers {
        list: String,
        max: usize,
    },
    /// Stores a confirmation under the digest of its token, unless there is nothing to confirm or the person was mailed
    /// lately.
    Offer {
        token: [u8; 32],
        confirmation: Confirmation,
        pause: OfferPause,
    },
    /// Uses a confirmation up: joins or leaves.
    Confirm {
        token: [u8; 32],
        now: Ms,
    },
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
    Joined {
        /// One effect per member, in order.
        effects: Vec<JoinEffect>,
        /// Entries that ended.
        ended: Vec<SuppressionKey>,
    },
    /// Whether each is a member, in order.
    DeliverySet(Vec<bool>),
    MembersDeleted(usize),
    Offer(OfferEffect),
    Confirmed {
        /// `None`: the token is unknown, used up or expired.
        confirmation: Option<Box<Confirmation>>,
        /// Entries that ended.
        ended: Vec<SuppressionKey>,
        /// The entry of a person who left.
        entry: Option<Box<Suppression>>,
    },
}

/// The result of a transaction.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Committed {
    /// One effect per change, in order.
    pub effects: Vec<RegistryEffect>,
    /// Changes of lists' members.
    pub rosters: Vec<RosterUpdate>,
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

    /// Makes all changes durable in one transaction.
    fn commit(&mut self, changes: &[RegistryChange]) -> Result<Committed, RegistryStoreError>;

    fn list(&mut self, query: &SuppressionQuery) -> Result<ListedSuppressions, RegistryStoreError>;

    /// Returns the rosters of all lists.
    fn rosters(&mut self) -> Result<Vec<RosterState>, RegistryStoreError>;

    /// Passes each member who gets no posts to `visit`.
    fn silent(&mut self, visit: &mut dyn FnMut(&ListMember)) -> Result<(), RegistryStoreError>;

    fn members(&mut self, query: &MemberQuery) -> Result<Vec<ListMember>, RegistryStoreError>;

    /// Returns the latest ends of a person's memberships.
    fn departures(&mut self, subject: &Subject, rows_max: usize) -> Result<Vec<Departure>, RegistryStoreError>;

    /// Returns a confirmation that has not expired, by the digest of its token.
    fn confirmation(&mut self, token: &[u8; 32], now: Ms) -> Result<Option<Confirmation>, RegistryStoreError>;
}
