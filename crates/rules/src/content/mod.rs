//! Conditions on what a message says: header fields, texts, charsets, scripts, files.
//!
//! A rule that has such a condition is asked at RCPT for everything else, and waits for the end of the data with what is left. All
//! tests of all rules are compiled into one [`Matcher`] when the configuration is read; a [`Scan`] runs them over one message as it
//! streams by. What authentication has found is asked later, when milters have written it down ([`AuthResults`]). Promise: linear time; memory bounded by the constants of [`scan`]; without such a rule none of this exists.

mod auth;
mod conditions;
mod hits;
mod matcher;
mod pattern;
mod scan;
#[cfg(test)]
mod tests;
mod unlikely;

pub use auth::{AuthResults, AuthTest, claims};
pub use conditions::{ContentConditions, Test};
pub use hits::Hits;
pub use matcher::Matcher;
pub use pattern::{ContentError, Pattern};
pub use scan::{SCAN_BYTES_MAX, Scan};
pub use unlikely::unlikely;
