//! What a configuration has of tables that say what addresses stand for.

use foldhash::fast::FixedState;
use hashbrown::HashSet;
use stentor_addresses::Srs;

use crate::facts::TableId;

/// Tables that say what addresses stand for.
#[derive(Debug, Default)]
pub struct Addresses {
    /// In the form of virtual(5) or of the virtusertable.
    pub virtual_tables: Vec<TableId>,
    pub alias_tables: Vec<TableId>,
    /// All of their addresses are in `virtual_tables`; they are local for the policy.
    pub virtual_domains: HashSet<Box<str>, FixedState>,
    /// To whose names alias files apply, beside the local domains.
    pub alias_domains: HashSet<Box<str>, FixedState>,
    /// The domain of names without one.
    pub origin: Box<str>,
    /// How senders of forwarded mail are rewritten; its domain is local for the policy.
    pub srs: Option<Srs>,
}

impl Addresses {
    pub fn has_tables(&self) -> bool {
        !self.virtual_tables.is_empty() || !self.alias_tables.is_empty()
    }

    pub fn is_empty(&self) -> bool {
        !self.has_tables() && self.srs.is_none()
    }
}
