//! Syntax errors of SPF records.

/// Why a record cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError(pub String);
