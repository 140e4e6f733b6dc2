//! `[bounces]`: the file of rules that name causes of bounces, which `bounce_rules` reads, and the limits of the alarms
//! about our reputation.

use std::path::PathBuf;

use super::diagnose::FilePosition;
use super::raw::Section;

/// Complaints per 10,000 delivered copies above which Gmail and Yahoo limit a sender, and which they ask to stay below
/// (support.google.com/a/answer/81126, senders.yahooinc.com/best-practices).
const COMPLAINTS_PER_10000_ALARM: u64 = 30;
const COMPLAINTS_PER_10000_WARN: u64 = 10;
/// Deliveries below which a rate says nothing.
const COMPLAINTS_DELIVERIES_MIN: u64 = 1_000;
const BLOCKED_HOURS: u64 = 24;
const HOUR_MS: u64 = 3_600_000;

/// Settings of `[bounces]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BouncesConfig {
    /// The file that replaces the built-in rules, with the position of the key that names it.
    pub rules_file: Option<(PathBuf, FilePosition)>,
    pub complaints_per_10000_warn: u64,
    pub complaints_per_10000_alarm: u64,
    pub complaints_deliveries_min: u64,
    /// How long after the last reply about our reputation its alarm ends.
    pub blocked_ms: u64,
}

pub(super) fn read(section: Section<'_>) -> BouncesConfig {
    let context = section.context;
    let rules_file = section.text("rules_file").map(|text| (context.path(text.value), context.position(&text.span)));
    let config = BouncesConfig {
        rules_file,
        complaints_per_10000_warn: section.number("complaints_per_10000_warn", COMPLAINTS_PER_10000_WARN, 1..=10_000),
        complaints_per_10000_alarm: section.number(
            "complaints_per_10000_alarm",
            COMPLAINTS_PER_10000_ALARM,
            1..=10_000,
        ),
        complaints_deliveries_min: section.number(
            "complaints_deliveries_min",
            COMPLAINTS_DELIVERIES_MIN,
            1..=100_000_000,
        ),
        blocked_ms: section.number("blocked_hours", BLOCKED_HOURS, 1..=720) * HOUR_MS,
    };
    if config.complaints_per_10000_warn > config.complaints_per_10000_alarm {
        let message = "`complaints_per_10000_warn` is above `complaints_per_10000_alarm`, so the alarm comes without a \
                       warning; swap them";
        context.warn(section.span_of("complaints_per_10000_warn"), message);
    }
    section.finish();
    config
}
