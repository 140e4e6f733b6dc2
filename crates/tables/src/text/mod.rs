//! Tables as text: Postfix's format, makemap's format and alias files.
//!
//! Each reader parses the whole file and returns a [`crate::keyed::Keyed`], with warnings for skipped lines; postmap,
//! makemap and newaliases skip the same ones. It stops at an error ([`crate::diagnostic::Severity::Error`]).

pub(crate) mod alias_targets;
pub(crate) mod aliases;
pub(crate) mod lines;
pub(crate) mod makemap;
pub(crate) mod postmap;

#[cfg(test)]
mod tests;
