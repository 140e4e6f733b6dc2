//! Actions of rules that only warn.

use std::fmt;

use crate::action::RuleAction;
use crate::words::in_words;

/// An action that is not carried out, and the matches of the rule's conditions on untrusted clients; empty: it has
/// none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DryRunAction {
    pub action: RuleAction,
    pub met: Box<str>,
}

impl fmt::Display for DryRunAction {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "would {}", in_words(&self.action))?;
        if self.met.is_empty() { Ok(()) } else { write!(out, " ({})", self.met) }
    }
}
