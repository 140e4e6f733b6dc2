//! Lookup sources of rules: tables and policy services.

use std::path::PathBuf;

use stentor_milter::protocol::ServiceAddress;
use stentor_rules::{Dialect, ServiceStage};
use stentor_tables::{Reference, ReferenceError};

use super::diagnose::FilePosition;

/// A table of `[tables]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableConfig {
    pub name: String,
    pub dialect: Dialect,
    pub source: TableSource,
    /// `file:line` in the configuration.
    pub place: String,
}

impl TableConfig {
    /// Suffix of messages about the contents of its file: ` (table users, stentor.toml:12)`.
    pub fn named_at(&self) -> String {
        format!(" (table {}, {})", self.name, self.place)
    }
}

/// An entry in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InlineEntry {
    pub key: String,
    pub value: String,
    /// `file:line` of the key.
    pub place: String,
    pub position: FilePosition,
}

/// Where a table's entries come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableSource {
    /// Entries in the configuration.
    Inline(Vec<InlineEntry>),
    Named(NamedTable),
    /// A policy service of `[policy_services]`.
    Service(PolicyService),
}

/// `TYPE:NAME`, as Postfix names tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedTable {
    pub text: String,
    /// Folder of the configuration, to which relative paths refer.
    pub folder: PathBuf,
}

impl NamedTable {
    /// Parses the name.
    ///
    /// # Errors
    /// It does not name a table.
    pub fn reference(&self) -> Result<Reference, ReferenceError> {
        Reference::parse(&self.text).map(|reference| reference.below(&self.folder))
    }
}

/// External program that decides about a recipient (Postfix's `SMTPD_POLICY_README`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyService {
    pub place: ServiceAddress,
    pub timeout_ms: u64,
    /// Action if the service does not answer, in Postfix's words; `None`: the recipient is deferred.
    pub default_action: Option<String>,
    pub stage: ServiceStage,
}
