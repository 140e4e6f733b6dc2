//! Conditions on message contents: header fields, texts, charsets, scripts, files.
//!
//! The other conditions of such a rule are evaluated at RCPT; those on content wait for the end of the data. All
//! tests of all rules are compiled into one [`Matcher`] when the configuration is read; a [`ContentScanner`] runs them
//! over one message as it streams by. Authentication results are tested later, after milters have added them
//! ([`AuthFieldResults`]). Promise: linear time, and memory bounded by the constants of [`scan`]. Without such rules
//! nothing is scanned.

mod auth;
mod conditions;
mod hits;
mod matcher;
mod pattern;
mod scan;
#[cfg(test)]
mod tests;
mod unlikely;

pub use auth::{AuthFieldResults, AuthTest, claims};
pub use conditions::{ContentConditions, Test};
pub use hits::Hits;
pub use matcher::Matcher;
pub use pattern::{ContentConditionError, Pattern};
pub use scan::{ContentScanner, SCAN_BYTES_MAX};
pub use unlikely::unlikely;
