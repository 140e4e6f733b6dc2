//! Where rules look things up: tables, and policy services beside them.

use std::path::PathBuf;

use stentor_milter::Place;
use stentor_rules::{Dialect, Stage};
use stentor_tables::{Reference, ReferenceError};

/// A table of `[tables]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableConfig {
    pub name: String,
    pub dialect: Dialect,
    pub source: TableSource,
    /// `file:line` of the configuration.
    pub place: String,
}

impl TableConfig {
    /// For messages about what is in its file: ` (table users, stentor.toml:12)`.
    pub fn named_at(&self) -> String {
        format!(" (table {}, {})", self.name, self.place)
    }
}

/// Where a table's entries are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableSource {
    /// In the configuration: key, value, `file:line`.
    Inline(Vec<(String, String, String)>),
    Named(NamedTable),
    /// A policy service of `[policy_services]`.
    Service(PolicyService),
}

/// `TYPE:NAME`, as Postfix names tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedTable {
    pub text: String,
    /// Of the configuration: where relative paths begin.
    pub folder: PathBuf,
}

impl NamedTable {
    /// What it names.
    ///
    /// # Errors
    /// It names no table.
    pub fn reference(&self) -> Result<Reference, ReferenceError> {
        Reference::parse(&self.text).map(|reference| reference.below(&self.folder))
    }
}

/// Another program that says what is done with a recipient (Postfix's `SMTPD_POLICY_README`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyService {
    pub place: Place,
    pub timeout_ms: u64,
    /// What it says if it does not answer, in Postfix's words; `None`: the recipient is deferred.
    pub default_action: Option<String>,
    pub stage: Stage,
}
