//! Numbers of the configuration: counts, durations and sizes, each within a range.
//!
//! A plain number is in the unit at the end of the key's name; a string names its units ([`super::units`]). Errors
//! are reported with their position, and the default is used.

use std::ops::RangeInclusive;

use toml::de::{DeInteger, DeValue};

use super::raw::{Entry, Section};
use super::settings::{self, Origin};
use super::units::{self, Unit};

impl Section<'_> {
    /// Reads a whole number within a range. If the key has a unit, a string with units is accepted, too.
    pub fn number(&self, key: &'static str, default: u64, range: RangeInclusive<u64>) -> u64 {
        let value = self.read_number(key, default, range);
        self.keep(key, Origin::Default, Some(value.to_string()), Some(default.to_string()));
        value
    }

    fn read_number(&self, key: &'static str, default: u64, range: RangeInclusive<u64>) -> u64 {
        debug_assert!(range.contains(&default), "{key}");
        let unit = Unit::of(key);
        #[cfg(test)]
        self.note(key, super::reference::range(unit, &range), Some(super::reference::number(unit, default)));
        let Some(entry) = self.entry(key) else { return default };
        let (value, shown) = match (entry.value, unit) {
            (DeValue::Integer(number), _) => (integer(number), number.as_str().to_owned()),
            (DeValue::String(text), Some(unit)) => {
                let Some(base) = self.with_units(&entry, unit, text) else { return default };
                if !base.is_multiple_of(unit.size()) {
                    let message =
                        format!("`{key}`{} is {text}; it must be a whole number of {}", self.place(), unit.name());
                    self.context.error(entry.span, message);
                    return default;
                }
                (i128::try_from(base / unit.size()).ok(), text.to_string())
            }
            (_, unit) => {
                self.wrong_type(&entry, &unit.map_or_else(|| "a whole number".to_owned(), Unit::wanted));
                return default;
            }
        };
        let value = value.and_then(|value| u64::try_from(value).ok()).filter(|value| range.contains(value));
        value.unwrap_or_else(|| {
            let is_plain = matches!(entry.value, DeValue::Integer(_));
            match unit {
                // If the number has no unit, the limits are shown without one, too.
                Some(unit @ (Unit::Hours | Unit::Days)) if is_plain => {
                    let max = format!("{} {}", range.end(), unit.name());
                    self.out_of_range(&entry, &shown, &range.start().to_string(), &max);
                }
                _ => {
                    let bound = |value: u64| units::number(unit, value.into());
                    self.out_of_range(&entry, &shown, &bound(*range.start()), &bound(*range.end()));
                }
            }
            default
        })
    }

    /// Reads a whole number within a range that may include negative ones.
    pub fn signed(&self, key: &'static str, default: i64, range: RangeInclusive<i64>) -> i64 {
        #[cfg(test)]
        self.note(key, format!("{} to {}", range.start(), range.end()), Some(default.to_string()));
        let value = match self.entry(key) {
            None => default,
            Some(Entry { value: DeValue::Integer(number), ref span, .. }) => {
                let found = integer(number).and_then(|value| i64::try_from(value).ok());
                found.filter(|value| range.contains(value)).unwrap_or_else(|| {
                    let (min, max) = (range.start(), range.end());
                    let message =
                        format!("`{key}`{} is {}; it must be from {min} to {max}", self.place(), number.as_str());
                    self.context.error(span.clone(), message);
                    default
                })
            }
            Some(entry) => {
                self.wrong_type(&entry, "a whole number");
                default
            }
        };
        self.keep(key, Origin::Default, Some(value.to_string()), Some(default.to_string()));
        value
    }

    /// Reads seconds, as a number with or without a fraction or a string with units; returns milliseconds. Default
    /// and range are in seconds.
    pub fn seconds(&self, key: &'static str, default: u64, range: RangeInclusive<f64>) -> u64 {
        let ms = self.read_seconds(key, default, range);
        self.keep(key, Origin::Default, Some(settings::seconds(ms)), Some(default.to_string()));
        ms
    }

    fn read_seconds(&self, key: &'static str, default: u64, range: RangeInclusive<f64>) -> u64 {
        let bound = |seconds: f64| Unit::Seconds.show((seconds * 1_000_000.0).round() as u128);
        #[cfg(test)]
        self.note(
            key,
            format!("{} to {}", bound(*range.start()), bound(*range.end())),
            Some(super::reference::number(Some(Unit::Seconds), default)),
        );
        let Some(entry) = self.entry(key) else { return default * 1_000 };
        let (shown, value) = match entry.value {
            DeValue::Integer(number) => (number.as_str().to_owned(), integer(number).map(|value| value as f64)),
            DeValue::Float(number) => (number.as_str().to_owned(), number.as_str().parse().ok()),
            DeValue::String(text) => {
                let Some(us) = self.with_units(&entry, Unit::Seconds, text) else { return default * 1_000 };
                (text.to_string(), Some(us as f64 / 1_000_000.0))
            }
            _ => {
                self.wrong_type(&entry, &Unit::Seconds.wanted());
                return default * 1_000;
            }
        };
        let value = value.filter(|value| range.contains(value)).map(|value| (value * 1_000.0).round() as u64);
        value.unwrap_or_else(|| {
            self.out_of_range(&entry, &shown, &bound(*range.start()), &bound(*range.end()));
            default * 1_000
        })
    }

    /// Parses a string with units into microseconds or octets. `None`: an error was reported.
    fn with_units(&self, entry: &Entry<'_>, unit: Unit, text: &str) -> Option<u128> {
        let parsed = unit.parse(text);
        parsed
            .map_err(|why| {
                let message = format!("`{}`{} is {text:?}: {why}", entry.key, self.place());
                self.context.error(entry.span.clone(), message);
            })
            .ok()
    }

    /// Reads a whole number within a range, if the key is set.
    pub fn maybe_number(&self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        #[cfg(test)]
        self.note(key, super::reference::range(Unit::of(key), &range), None);
        let default = *range.start();
        let found = self.read_number(key, default, range);
        let found = self.has(key).then_some(found);
        self.keep(key, Origin::Default, found.map(|found| found.to_string()), None);
        found
    }

    /// As [`Self::seconds`], if the key is set.
    pub fn maybe_seconds(&self, key: &'static str, range: RangeInclusive<f64>) -> Option<u64> {
        #[cfg(test)]
        {
            let bound = |seconds: f64| Unit::Seconds.show((seconds * 1_000_000.0).round() as u128);
            self.note(key, format!("{} to {}", bound(*range.start()), bound(*range.end())), None);
        }
        let found = self.read_seconds(key, 0, range);
        let found = self.has(key).then_some(found);
        self.keep(key, Origin::Default, found.map(settings::seconds), None);
        found
    }

    /// Reads an array of at most `count_max` whole numbers, each within a range; empty if the key is not set.
    pub fn numbers(&self, key: &'static str, range: RangeInclusive<u64>, count_max: usize) -> Vec<u64> {
        #[cfg(test)]
        self.note(key, format!("array of {} to {}", range.start(), range.end()), None);
        let entry = self.entry(key);
        self.keep(key, Origin::Default, entry.as_ref().map(|entry| settings::value(entry.value)), None);
        let Some(entry) = entry else { return Vec::new() };
        let Some(items) = entry.value.as_array().filter(|items| items.len() <= count_max) else {
            self.wrong_type(&entry, &format!("an array of at most {count_max} whole numbers"));
            return Vec::new();
        };
        let number = |item: &DeValue<'_>| match item {
            DeValue::Integer(number) => integer(number),
            _ => None,
        };
        let mut numbers = Vec::with_capacity(items.len());
        for item in items {
            let found = number(item.get_ref()).and_then(|value| u64::try_from(value).ok());
            match found.filter(|value| range.contains(value)) {
                Some(value) => numbers.push(value),
                None => self.context.error(
                    item.span(),
                    format!(
                        "`{}`{} must hold whole numbers from {} to {}",
                        entry.key,
                        self.place(),
                        range.start(),
                        range.end()
                    ),
                ),
            }
        }
        numbers
    }

    fn out_of_range(&self, entry: &Entry<'_>, value: &str, min: &str, max: &str) {
        let message = format!("`{}`{} is {value}; it must be from {min} to {max}", entry.key, self.place());
        self.context.error(entry.span.clone(), message);
    }
}

/// Checks that one value of a section does not exceed another.
pub(super) fn at_most(section: &Section<'_>, low_key: &str, low: u64, high_key: &str, high: u64) {
    if low > high {
        let span = if section.has(low_key) { section.span_of(low_key) } else { section.span_of(high_key) };
        section.context.error(span, format!("`{low_key}`{} must not be greater than `{high_key}`", section.place()));
    }
}

fn integer(number: &DeInteger<'_>) -> Option<i128> {
    i128::from_str_radix(number.as_str(), number.radix()).ok()
}
