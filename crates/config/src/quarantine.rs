//! `[quarantine]`: how long mail is kept that rules and milters keep from its recipients.

use super::raw::Section;

const DAY_MS: u64 = 86_400_000;

/// `[quarantine]`
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QuarantineConfig {
    /// What is older goes, and nobody is told.
    pub expire_ms: u64,
}

pub(super) fn read(section: &Section<'_>) -> QuarantineConfig {
    QuarantineConfig { expire_ms: section.number("expire_days", 30, 1..=3_650) * DAY_MS }
}
