//! Formats numbers, times and columns for display.

use std::fmt::Write;

use stentor_queue::book::SLOT_MS;
use stentor_queue::ids::Ms;
use stentor_records::civil::{Civil, DAY_S, Zone, days};
use stentor_records::escape::printable;

/// The age of older counts is shown.
const COUNTED_AGE_MS: Ms = 2_000;

pub fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
    out.truncate(out.trim_end_matches(' ').len());
    out.push('\n');
}

/// Adds the age of a count, if it is old enough to mention.
pub fn counted(out: &mut String, at: Option<Ms>, now: Ms) {
    match at {
        None => line(out, format_args!("causes are still being counted; retry in a few seconds")),
        Some(at) if at + COUNTED_AGE_MS < now => line(out, format_args!("counted {} ago", span(now - at))),
        Some(_) => {}
    }
}

/// The maximum width of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Width(usize);

impl Width {
    /// The width that tables are designed for.
    pub const LEAST: Width = Width(100);
    /// For a file or a pipe: names and replies are complete up to a sensible length.
    pub const UNCUT: Width = Width(2_000);

    pub fn of_terminal(columns: usize) -> Width {
        Width(columns.clamp(Width::LEAST.0, Width::UNCUT.0))
    }

    pub fn columns(self) -> usize {
        self.0
    }

    /// The width left for the last column.
    pub(crate) fn rest(self, used: usize) -> usize {
        self.0.saturating_sub(used).max(1)
    }

    /// The width of a column of names with others after it: the longest name if nothing is cut.
    pub(crate) fn fit<'a>(self, least: usize, names: impl Iterator<Item = &'a str>) -> usize {
        let longest = |columns: usize, name: &str| columns.max(cut(name, self.0).chars().count());
        if self == Width::UNCUT { names.fold(least, longest) } else { least }
    }

    /// The width of a column with others after it.
    pub(crate) fn column(self, columns: usize) -> usize {
        if self == Width::UNCUT { self.0 } else { columns }
    }
}

/// Escapes text and cuts it to `columns` characters; an ellipsis marks a cut.
pub fn cut(text: &str, columns: usize) -> String {
    let text = printable(text, columns * 4);
    if text.chars().count() <= columns {
        return text;
    }
    text.chars().take(columns - 1).chain(['\u{2026}']).collect()
}

pub fn next_try(at: Option<Ms>, now: Ms) -> String {
    match at {
        Some(at) if at > now => span(ahead_ms(at - now)),
        _ => "now".to_owned(),
    }
}

/// A time ahead for [`span`], rounded up so that it never looks shorter than it is.
pub fn ahead_ms(ms: u64) -> u64 {
    let s = ms.div_ceil(1_000);
    let unit = match s {
        0..60 => 1,
        60..86_400 => 60,
        _ => 3_600,
    };
    s.next_multiple_of(unit) * 1_000
}

/// Formats an elapsed time: `850 ms`, `1.8 s`, `4 min 10 s`, `3 h 05 min`, `2 d 4 h`.
pub fn duration(ms: u64) -> String {
    let s = ms / 1_000;
    match s {
        0 => format!("{ms} ms"),
        1..60 => format!("{}.{} s", s, ms % 1_000 / 100),
        60..3_600 => format!("{} min {:02} s", s / 60, s % 60),
        3_600..86_400 => format!("{} h {:02} min", s / 3_600, s / 60 % 60),
        _ => format!("{} d {} h", s / 86_400, s / 3_600 % 24),
    }
}

/// Formats `0s`, `59s`, `12m`, `3h05m`, `2d04h`: at most 6 characters below 1,000 days.
pub fn span(ms: u64) -> String {
    let s = ms / 1000;
    match s {
        0..60 => format!("{s}s"),
        60..3_600 => format!("{}m", s / 60),
        3_600..86_400 => format!("{}h{:02}m", s / 3_600, s / 60 % 60),
        _ => format!("{}d{:02}h", s / 86_400, s / 3_600 % 24),
    }
}

/// Formats the age of a time stored as a slot of some hours: `less than 4h ago`, `about 7h ago`, `about 3d ago`,
/// `never`.
pub fn slot_ago(at: Option<Ms>, now: Ms) -> String {
    const HOUR_MS: Ms = 3_600_000;
    const DAYS_FROM_MS: Ms = 48 * HOUR_MS;
    let Some(at) = at else { return "never".to_owned() };
    match now.saturating_sub(at) {
        ms if ms < SLOT_MS => format!("less than {}h ago", SLOT_MS / HOUR_MS),
        // Measured from the middle of the slot, half a slot after its beginning.
        ms if ms < DAYS_FROM_MS => format!("about {}h ago", (ms - SLOT_MS / 2) / HOUR_MS),
        ms => format!("about {}d ago", ms / (24 * HOUR_MS)),
    }
}

/// A small share in percent, with two decimals: `0.12 %`; `-` of nothing.
pub fn percent(part: u64, total: u64) -> String {
    if total == 0 { "-".to_owned() } else { format!("{:.2} %", part as f64 * 100.0 / total as f64) }
}

/// Formats `2026-11-21 10:54:25 UTC`, or in other zones `2026-11-21 11:54:25 +0100`.
pub fn instant(ms: Ms, zone: &Zone) -> String {
    format!("{} {}", date_time(ms, zone), zone.label(ms))
}

/// Converts the UTC instants in a server's text to a zone: `2026-11-21 10:54:25 UTC` and, given `now`, `10:54 UTC`.
pub fn localised(text: &str, zone: &Zone, now: Option<Ms>) -> String {
    const MARK: &str = " UTC";
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(MARK) {
        let (before, after) = rest.split_at(at);
        let found = full_instant(before).map(|(start, ms)| (start, instant(ms, zone)));
        let found = found.or_else(|| {
            let (start, ms) = time_of_day(before, now?)?;
            Some((start, format!("{} {}", &date_time(ms, zone)[11..16], zone.label(ms))))
        });
        match found {
            Some((start, words)) => out.extend([&before[..start], &words]),
            None => out.extend([before, MARK]),
        }
        rest = &after[MARK.len()..];
    }
    out + rest
}

/// A full instant at the end of a text: where it begins, and its value.
fn full_instant(text: &str) -> Option<(usize, Ms)> {
    let start = text.len().checked_sub("2026-11-21 10:54:25".len())?;
    let (date, time) = text.get(start..)?.split_once(' ')?;
    let [year, month, day] = numbers::<3>(date, '-')?;
    let [hour, minute, second] = numbers::<3>(time, ':')?;
    let at_midnight = days(i64::from(year), month, day).checked_mul(DAY_S)?;
    let s = at_midnight + i64::from(hour * 3_600 + minute * 60 + second);
    Some((start, u64::try_from(s).ok()?.checked_mul(1_000)?))
}

/// A time of day at the end of a text: where it begins, and its instant, at most half a day before `now`.
fn time_of_day(text: &str, now: Ms) -> Option<(usize, Ms)> {
    const DAY_MS: Ms = DAY_S.unsigned_abs() * 1_000;
    const AGO_MS: Ms = DAY_MS / 2;
    let start = text.len().checked_sub("10:54".len())?;
    // Not the minutes and seconds of a longer time.
    if text.get(..start)?.ends_with(|c: char| c == ':' || c.is_ascii_digit()) {
        return None;
    }
    let [hour, minute] = numbers::<2>(text.get(start..)?, ':')?;
    let at = now - now % DAY_MS + Ms::from(hour * 3_600 + minute * 60) * 1_000;
    Some((start, if at + AGO_MS < now { at + DAY_MS } else { at }))
}

/// Numbers of at most four digits, with a sign between them.
fn numbers<const N: usize>(text: &str, between: char) -> Option<[u32; N]> {
    let parts: Vec<u32> = text
        .split(between)
        .map(|part| {
            (part.len() <= 4 && part.bytes().all(|byte| byte.is_ascii_digit())).then(|| part.parse().ok()).flatten()
        })
        .collect::<Option<_>>()?;
    parts.try_into().ok()
}

/// As [`instant`], without the zone.
pub fn date_time(ms: Ms, zone: &Zone) -> String {
    let civil = Civil::of(ms, zone);
    format!("{} {:02}:{:02}:{:02}", civil.date_text(), civil.hour, civil.minute, civil.second)
}

pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// Formats `1,204,000`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats `1 message`, `2 messages`, `3 queries`, `4 addresses`.
pub fn plural(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {}", plural_of(what)) }
}

pub fn plural_of(what: &str) -> String {
    match what.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{stem}ies"),
        None if what.ends_with("ch") || what.ends_with("ss") => format!("{what}es"),
        _ => format!("{what}s"),
    }
}

/// Formats ` of list news at mx.example`; empty for the whole queue.
pub(crate) fn part(words: &str) -> String {
    if words.is_empty() { String::new() } else { format!(" {}", printable(words, 300)) }
}

/// Quotes a shell word. The only empty word is the null sender.
pub fn quoted(text: &str) -> String {
    let text = if text.is_empty() { "<>" } else { text };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "@._+-=:/,".contains(c);
    if text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The command that ends a suspension, by its name in the journal: `list:news`, `subscriber:news:ann@example.org`.
pub fn resume_command(what: &str) -> Option<String> {
    let (kind, name) = what.split_once(':')?;
    let options = match kind {
        "list" | "sender" | "site" => format!("--{kind} {}", quoted(name)),
        "subscriber" => {
            let (list, address) = name.split_once(':')?;
            format!("--list {} --subscriber {}", quoted(list), quoted(address))
        }
        _ => return None,
    };
    Some(format!("stentor resume {options}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_in_slots_is_not_shown_to_the_second() {
        let hours = |hours: u64| slot_ago(Some(1_000), 1_000 + hours * 3_600_000 + 59_000);
        assert_eq!([hours(0), hours(3)], ["less than 4h ago", "less than 4h ago"]);
        assert_eq!([hours(4), hours(9), hours(47)], ["about 2h ago", "about 7h ago", "about 45h ago"]);
        assert_eq!([hours(48), hours(100)], ["about 2d ago", "about 4d ago"]);
        assert_eq!(slot_ago(None, 5), "never");
    }

    #[test]
    fn what_is_to_come_is_rounded_up() {
        let next = |ms: u64| next_try(Some(1_000 + ms), 1_000);
        assert_eq!([next(0), next(1), next(59_000), next(59_001)], ["now", "1s", "59s", "1m"]);
        assert_eq!([next(119_900), next(3_599_000), next(3_600_001)], ["2m", "1h00m", "1h01m"]);
        assert_eq!([next(86_399_999), next(90_000_001)], ["1d00h", "1d02h"]);
    }

    #[test]
    fn instants_of_a_text_are_shown_in_the_zone() {
        let (vienna, now) = (Zone::fixed(3_600), Some(1_795_438_800_000));
        let shown = |text: &str| localised(text, &vienna, now);
        assert_eq!(
            shown("list news is suspended until 2026-11-23 23:16:40 UTC; 3 UTC"),
            "list news is suspended until 2026-11-24 00:16:40 +0100; 3 UTC"
        );
        assert_eq!(shown("14 waiting (next try 13:30 UTC), 3 failed"), "14 waiting (next try 14:30 +0100), 3 failed");
        for text in ["", " UTC", "x UTC", "2026-1x-23 23:16:40 UTC", "é UTC", "123:16 UTC", "99999999999-1 UTC"] {
            assert_eq!(shown(text), text);
        }
        assert_eq!(localised("at 13:30 UTC", &vienna, None), "at 13:30 UTC");
        let utc = "until 2026-11-23 23:16:40 UTC";
        assert_eq!(localised(utc, &Zone::utc(), now), utc);
    }

    #[test]
    fn each_suspension_has_the_command_that_ends_it() {
        let command = |what| resume_command(what).unwrap();
        assert_eq!(command("list:news"), "stentor resume --list news");
        assert_eq!(command("site:route:10.0.0.5:25"), "stentor resume --site route:10.0.0.5:25");
        assert_eq!(
            command("subscriber:news:o'x@one.example"),
            r"stentor resume --list news --subscriber 'o'\''x@one.example'"
        );
        assert_eq!(resume_command("else"), None);
    }
}
