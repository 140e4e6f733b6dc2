//! Durations and sizes. A key's name ends in the unit of plain numbers (`lifetime_s`, `segment_bytes`, optionally
//! followed by `_max` or `_min`); a string names its units: `"5d"`, `"1h30m"`, `"0.5s"`, `"10MiB"`.
//!
//! Promise: integer arithmetic, no rounding; a value that the key cannot hold exactly is an error.

/// The unit of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Microseconds,
    Milliseconds,
    Seconds,
    Hours,
    Days,
    Octets,
}

/// Units of durations in microseconds, largest first. Weeks are parsed but never printed.
const DURATIONS: [(&str, u128); 7] = [
    ("w", 604_800_000_000),
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];
/// Units of sizes in octets; the decimal ones are parsed but never printed.
const SIZES: [(&str, u128); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
];
/// Maximum digits of a number in a string.
const DIGITS_MAX: usize = 18;

impl Unit {
    /// The unit of a key; `None`: it is a count.
    pub fn of(key: &str) -> Option<Unit> {
        let last = key.rsplit('_').find(|word| !["max", "min"].contains(word))?;
        Some(match last {
            "us" => Unit::Microseconds,
            "ms" => Unit::Milliseconds,
            "s" => Unit::Seconds,
            "hours" => Unit::Hours,
            "days" => Unit::Days,
            "bytes" => Unit::Octets,
            _ => return None,
        })
    }

    /// Size of the unit in microseconds or octets.
    pub fn size(self) -> u128 {
        match self {
            Unit::Microseconds | Unit::Octets => 1,
            Unit::Milliseconds => 1_000,
            Unit::Seconds => 1_000_000,
            Unit::Hours => 3_600_000_000,
            Unit::Days => 86_400_000_000,
        }
    }

    /// Name of the unit of plain numbers.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Microseconds => "microseconds",
            Unit::Milliseconds => "milliseconds",
            Unit::Seconds => "seconds",
            Unit::Hours => "hours",
            Unit::Days => "days",
            Unit::Octets => "octets",
        }
    }

    /// Description of accepted values, for messages.
    pub fn wanted(self) -> String {
        let example = if self == Unit::Octets { "10MiB" } else { "1h30m" };
        format!("a number of {}, or a string with units such as \"{example}\"", self.name())
    }

    fn units(self) -> &'static [(&'static str, u128)] {
        if self == Unit::Octets { &SIZES } else { &DURATIONS }
    }

    /// Parses a string into microseconds or octets.
    ///
    /// # Errors
    /// The reason why the string is not valid.
    pub fn parse(self, text: &str) -> Result<u128, String> {
        let (mut rest, mut sum) = (text.trim(), 0_u128);
        let units: Vec<&str> = self.units().iter().map(|(name, _)| *name).collect();
        if rest.is_empty() {
            return Err(format!("must not be empty; write {}", self.wanted()));
        }
        while !rest.is_empty() {
            let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            let (number, behind) = rest.split_at(number_end);
            let behind = behind.trim_start();
            let unit_end = behind.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(behind.len());
            let (name, behind) = behind.split_at(unit_end);
            let unit = self.units().iter().find(|(unit, _)| *unit == name).map(|(_, size)| *size);
            let unit = unit.ok_or_else(|| match name {
                "" if !number.is_empty() => format!("{number} has no unit; valid units: {}", units.join(", ")),
                _ => format!("{name:?} is not a valid unit; valid units: {}", units.join(", ")),
            })?;
            sum = sum.saturating_add(times(number, unit)?);
            rest = behind.trim_start();
        }
        Ok(sum)
    }

    /// Formats a value in the largest unit of which it is a whole multiple.
    pub fn show(self, base: u128) -> String {
        let is_written = |name: &str| !["w", "TB", "GB", "MB", "kB"].contains(&name);
        let fits = |(name, size): &&(&str, u128)| is_written(name) && base > 0 && base.is_multiple_of(*size);
        match self.units().iter().find(fits) {
            Some((name, size)) => format!("{}{name}", base / size),
            None => "0".to_owned(),
        }
    }
}

/// Parses a duration with units (`90m`, `1d12h`) into whole seconds.
///
/// # Errors
/// The reason why the text is not valid.
pub fn duration_s(text: &str) -> Result<u64, String> {
    let seconds = Unit::Seconds.parse(text)? / Unit::Seconds.size();
    u64::try_from(seconds).map_err(|_| format!("{text} is too long"))
}

/// Formats a key's value, with its unit if the key has one.
pub(super) fn number(unit: Option<Unit>, value: u128) -> String {
    unit.map_or_else(|| value.to_string(), |unit| unit.show(value * unit.size()))
}

/// Multiplies a decimal number by a unit, exactly.
fn times(number: &str, unit: u128) -> Result<u128, String> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.len() <= DIGITS_MAX && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return Err(format!("{number:?} is not a number"));
    }
    let parsed = |text: &str| text.parse::<u128>().map_err(|error| error.to_string());
    let scale = 10_u128.pow(fraction.len() as u32);
    let parts = parsed(fraction)? * unit;
    if !parts.is_multiple_of(scale) {
        return Err(format!("{number} has too many digits after the decimal point"));
    }
    Ok(parsed(whole)? * unit + parts / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_name_their_unit_last() {
        for (key, unit) in [
            ("lifetime_s", Some(Unit::Seconds)),
            ("host_min_s", Some(Unit::Seconds)),
            ("negative_ttl_s_max", Some(Unit::Seconds)),
            ("completion_sync_ms_max", Some(Unit::Milliseconds)),
            ("commit_delay_us", Some(Unit::Microseconds)),
            ("rotate_hours", Some(Unit::Hours)),
            ("keep_days", Some(Unit::Days)),
            ("size_bytes_max", Some(Unit::Octets)),
            ("connections_max", None),
            ("attempts", None),
            ("max", None),
        ] {
            assert_eq!(Unit::of(key), unit, "{key}");
        }
    }

    #[test]
    fn strings_have_units() {
        let s = |text| Unit::Seconds.parse(text).map(|us| us / 1_000);
        assert_eq!(s("5d"), Ok(432_000_000));
        assert_eq!(s("1h30m"), Ok(5_400_000));
        assert_eq!(s(" 1 h 30 m "), Ok(5_400_000));
        assert_eq!((s("0.5s"), s("500ms"), s("2w")), (Ok(500), Ok(500), Ok(1_209_600_000)));
        assert_eq!((duration_s("1h30m"), duration_s("90m"), duration_s("0.5s")), (Ok(5_400), Ok(5_400), Ok(0)));
        assert!(duration_s("90").is_err());
        let octets = |text| Unit::Octets.parse(text);
        assert_eq!((octets("10MiB"), octets("1.5 GiB"), octets("10 MB")), (Ok(10 << 20), Ok(3 << 29), Ok(10_000_000)));
        for (unit, wrong, why) in [
            (Unit::Seconds, "", "must not be empty"),
            (Unit::Seconds, "5", "5 has no unit; valid units: w, d, h, m, s, ms, us"),
            (Unit::Seconds, "5x", "\"x\" is not a valid unit"),
            (Unit::Seconds, "d", "\"\" is not a number"),
            (Unit::Seconds, "-5d", "\"\" is not a valid unit"),
            (Unit::Seconds, "1.2.3d", "\"1.2.3\" is not a number"),
            (Unit::Seconds, "0.0000001s", "too many digits"),
            (Unit::Seconds, "99999999999999999999d", "is not a number"),
            (Unit::Octets, "10M", "\"M\" is not a valid unit; valid units: TiB, GiB, MiB, KiB, B"),
            (Unit::Octets, "0.3B", "too many digits"),
        ] {
            let found = unit.parse(wrong).unwrap_err();
            assert!(found.contains(why), "{wrong}: {found}");
        }
    }

    #[test]
    fn values_are_shown_in_the_largest_unit_that_fits() {
        let s = |seconds: u128| Unit::Seconds.show(seconds * 1_000_000);
        assert_eq!([s(0), s(90), s(5_400), s(432_000), s(604_800)], ["0", "90s", "90m", "5d", "7d"]);
        assert_eq!(Unit::Octets.show(16 << 20), "16MiB");
        assert_eq!(Unit::Octets.show(1_000), "1000B");
    }

    proptest::proptest! {
        #[test]
        fn what_is_shown_is_read_again(base in 1_u128..100_000_000_000_000_000) {
            for unit in [Unit::Milliseconds, Unit::Octets] {
                proptest::prop_assert_eq!(unit.parse(&unit.show(base)), Ok(base));
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,40}") {
            let _ = (Unit::Days.parse(&text), Unit::Octets.parse(&text));
        }
    }
}
