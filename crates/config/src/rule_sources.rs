//! Where rules look things up: tables, and policy services beside them.

use stentor_milter::Place;
use stentor_rules::Dialect;

/// A table of `[tables]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableConfig {
    pub name: String,
    pub dialect: Dialect,
    pub source: TableSource,
}

/// Where a table's entries are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableSource {
    /// In the configuration: key, value, `file:line`.
    Inline(Vec<(String, String, String)>),
    /// `TYPE:NAME`, as Postfix names tables.
    Named(String),
    /// A policy service of `[policy_services]`.
    Service(PolicyService),
}

/// Another program that says what is done with a recipient (Postfix's `SMTPD_POLICY_README`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyService {
    pub place: Place,
    pub timeout_ms: u64,
    /// What it says if it does not answer, in Postfix's words; `None`: the recipient is deferred.
    pub default_action: Option<String>,
}
