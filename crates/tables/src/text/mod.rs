//! Tables as text: Postfix's form, makemap's form and alias files.
//!
//! Each reader takes the whole file and gives a [`Keyed`] with warnings for the lines that it skipped, which are those that
//! postmap, makemap or newaliases skip. It stops at an error ([`crate::diagnostic::Severity::Error`]).

pub(crate) mod alias_targets;
pub(crate) mod aliases;
pub(crate) mod lines;
pub(crate) mod makemap;
pub(crate) mod postmap;

#[cfg(test)]
mod tests;
