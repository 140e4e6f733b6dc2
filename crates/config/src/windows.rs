//! Time windows in local time: `Sat 22:00-Sun 04:00`, `22:00-06:00` (every day), `Sun 00:00-24:00`.
//!
//! Promise: a window begins and ends when a clock in its zone shows these times, so it is an hour longer or shorter
//! on days when the clocks change. A time that occurs twice means the first occurrence; one that does not occur is
//! computed with the offset before the change (RFC 5545 section 3.3.5).

use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};

const DAY_MINUTES: u16 = 24 * 60;
/// Adjoining windows that last longer than this never end: they recur every week. A day is added for clock changes.
const FOREVER: SignedDuration = SignedDuration::from_hours(8 * 24);
/// Maximum adjoining windows that are followed to find the end.
const JOINED_MAX: usize = 1_000;

/// When the present state ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InForce {
    Always,
    /// End in Unix milliseconds.
    Until(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Moment {
    /// Day of the week; `None`: every day.
    day: Option<Weekday>,
    minute: u16,
}

/// One time window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    begin: Moment,
    end: Moment,
}

impl Window {
    /// Parses a window.
    ///
    /// # Errors
    /// The reason why the text is not valid.
    pub fn parse(text: &str) -> Result<Window, String> {
        let (begin, end) =
            text.split_once('-').ok_or("not a valid window; write \"Sat 22:00-Sun 04:00\" or \"22:00-06:00\"")?;
        let (begin, end) = (moment(begin)?, moment(end)?);
        if begin.minute == DAY_MINUTES {
            return Err("a window cannot begin at 24:00; write 00:00".to_owned());
        }
        if begin.day.is_none() && end.day.is_some() {
            return Err("a window with a weekday at its end needs one at its beginning".to_owned());
        }
        if begin.minute == end.minute && end.day.is_none_or(|day| begin.day == Some(day)) {
            return Err("a window cannot end when it begins; write 00:00-24:00 for the whole day".to_owned());
        }
        Ok(Window { begin, end })
    }

    /// End of the window that is open at this time, if it is.
    fn open_until(self, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let today = now.to_zoned(zone.clone()).date();
        // The longest window is a week, and a zone may have skipped a day.
        let days = (0..=9).filter_map(|ago: i32| today.checked_sub(ago.days()).ok());
        let open = days.filter(|day| self.begin.day.is_none_or(|wanted| day.weekday() == wanted)).filter_map(|day| {
            let begin = instant(day, self.begin.minute, zone)?;
            let end = instant(day.checked_add(self.days().days()).ok()?, self.end.minute, zone)?;
            (begin <= now && now < end).then_some(end)
        });
        open.max()
    }

    /// Days from the day on which it begins to the one on which it ends.
    fn days(self) -> i32 {
        let is_later = self.end.minute > self.begin.minute;
        match self.begin.day.zip(self.end.day) {
            Some((begin, end)) if begin == end => {
                if is_later {
                    0
                } else {
                    7
                }
            }
            Some((begin, end)) => begin.until(end).into(),
            None => i32::from(!is_later),
        }
    }
}

/// End of the windows that are open at this time, including those that begin when another ends; `None`: none is open.
pub fn open_until(windows: &[Window], now_ms: u64, zone: &TimeZone) -> Option<InForce> {
    let now = Timestamp::from_millisecond(i64::try_from(now_ms).ok()?).ok()?;
    let open = |at| windows.iter().filter_map(|window| window.open_until(at, zone)).max();
    let mut last = open(now)?;
    for _ in 0..JOINED_MAX {
        match open(last) {
            None => break,
            Some(next) => last = next,
        }
        if last.duration_since(now) > FOREVER {
            return Some(InForce::Always);
        }
    }
    u64::try_from(last.as_millisecond()).ok().map(InForce::Until)
}

/// When a clock in the zone shows this time, in minutes of the day.
pub(super) fn instant(day: Date, minute: u16, zone: &TimeZone) -> Option<Timestamp> {
    let day = if minute == DAY_MINUTES { day.tomorrow().ok()? } else { day };
    let (hour, minute) = (minute % DAY_MINUTES / 60, minute % 60);
    let shown = day.at(hour as i8, minute as i8, 0, 0);
    zone.to_ambiguous_timestamp(shown).compatible().ok()
}

fn moment(text: &str) -> Result<Moment, String> {
    let text = text.trim();
    let (day, time) = match text.split_once(' ') {
        None => (None, text),
        Some((day, time)) => (Some(weekday(day)?), time.trim_start()),
    };
    Ok(Moment { day, minute: time_of_day(time)? })
}

/// Parses a time into minutes of the day, up to 24:00.
///
/// # Errors
/// The text is not a valid time.
pub(super) fn time_of_day(time: &str) -> Result<u16, String> {
    let wrong = || format!("{time:?} is not a valid time of day; write, for instance, 22:00");
    let (hours, minutes) = time.split_once(':').ok_or_else(wrong)?;
    let number =
        |text: &str| text.parse::<u16>().ok().filter(|_| text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit()));
    let (hours, minutes) = number(hours).zip(number(minutes)).ok_or_else(wrong)?;
    let minute = hours * 60 + minutes;
    if minutes > 59 || minute > DAY_MINUTES {
        return Err(wrong());
    }
    Ok(minute)
}

fn weekday(text: &str) -> Result<Weekday, String> {
    const DAYS: [(&str, Weekday); 7] = [
        ("Mon", Weekday::Monday),
        ("Tue", Weekday::Tuesday),
        ("Wed", Weekday::Wednesday),
        ("Thu", Weekday::Thursday),
        ("Fri", Weekday::Friday),
        ("Sat", Weekday::Saturday),
        ("Sun", Weekday::Sunday),
    ];
    let found = DAYS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    found
        .map(|(_, day)| *day)
        .ok_or_else(|| format!("{text:?} is not a weekday; write Mon, Tue, Wed, Thu, Fri, Sat or Sun"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Central European Time by its rule, so that the test needs no time zone database.
    fn vienna() -> TimeZone {
        TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap()
    }

    fn utc(text: &str) -> Timestamp {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// Checks the end of the window at each of these times.
    fn ends(window: &str, zone: &TimeZone, times: &[(&str, Option<&str>)]) {
        let window = Window::parse(window).unwrap_or_else(|why| panic!("{window}: {why}"));
        for (at, end) in times {
            assert_eq!(window.open_until(utc(at), zone), end.map(utc), "{window:?} at {at}");
        }
    }

    #[test]
    fn windows_are_open_by_the_clock_on_the_wall() {
        let zone = vienna();
        // 2026-07-04 is a Saturday; summer time is UTC+2.
        let end = Some("2026-07-05T02:00:00Z");
        let weekend = [
            ("2026-07-04T19:59:59Z", None),
            ("2026-07-04T20:00:00Z", end),
            ("2026-07-05T01:59:59Z", end),
            ("2026-07-05T02:00:00Z", None),
        ];
        ends("Sat 22:00-Sun 04:00", &zone, &weekend);
        let nightly = [
            ("2026-12-01T20:59:00Z", None),
            ("2026-12-01T21:00:00Z", Some("2026-12-02T05:00:00Z")),
            ("2026-12-02T04:59:00Z", Some("2026-12-02T05:00:00Z")),
        ];
        ends("22:00-06:00", &zone, &nightly);
        ends("sun 00:00-24:00", &TimeZone::UTC, &[("2026-07-05T23:59:59Z", Some("2026-07-06T00:00:00Z"))]);
        let week = [("2026-07-08T00:00:00Z", Some("2026-07-13T01:00:00Z")), ("2026-07-06T01:30:00Z", None)];
        ends("Mon 02:00-Mon 01:00", &TimeZone::UTC, &week);
        ends("Fri 20:00-Mon 06:00", &TimeZone::UTC, &[("2026-07-05T12:00:00Z", Some("2026-07-06T06:00:00Z"))]);
    }

    #[test]
    fn windows_follow_the_clock_when_it_is_changed() {
        let zone = vienna();
        // On 2026-03-29, 02:00 to 03:00 does not occur: the night has five hours.
        let spring = [
            ("2026-03-28T21:00:00Z", Some("2026-03-29T02:00:00Z")),
            ("2026-03-29T01:59:59Z", Some("2026-03-29T02:00:00Z")),
            ("2026-03-29T02:00:00Z", None),
        ];
        ends("Sat 22:00-Sun 04:00", &zone, &spring);
        // On 2026-10-25, 02:00 to 03:00 occurs twice: seven hours.
        let autumn = [
            ("2026-10-24T19:59:00Z", None),
            ("2026-10-24T20:00:00Z", Some("2026-10-25T03:00:00Z")),
            ("2026-10-25T02:59:59Z", Some("2026-10-25T03:00:00Z")),
        ];
        ends("Sat 22:00-Sun 04:00", &zone, &autumn);
        // Begins within the hour that occurs twice: only at its first occurrence.
        let twice = [
            ("2026-10-25T00:15:00Z", None),
            ("2026-10-25T00:30:00Z", Some("2026-10-25T03:30:00Z")),
            ("2026-10-25T01:15:00Z", Some("2026-10-25T03:30:00Z")),
        ];
        ends("02:30-04:30", &zone, &twice);
        // Begins within the hour that does not occur: computed with the offset before the change.
        ends(
            "02:30-05:00",
            &zone,
            &[("2026-03-29T01:15:00Z", None), ("2026-03-29T01:30:00Z", Some("2026-03-29T03:00:00Z"))],
        );
    }

    #[test]
    fn what_is_no_window_is_refused() {
        for bad in [
            "",
            "Sat",
            "22:00",
            "25:00-26:00",
            "22:60-23:00",
            "2:00-4:00",
            "Sat 22:00-22:00",
            "22:00-22:00",
            "Caturday 22:00-23:00",
            "Sat 24:00-Sun 04:00",
            "22:00-Sun 04:00",
            "24:01-24:02",
            "+2:00-04:00",
        ] {
            assert!(Window::parse(bad).is_err(), "{bad}");
        }
        let at = 1_783_195_200_000; // 2026-07-04T20:00:00Z
        let windows = ["Sat 19:00-Sat 21:00", "Sat 20:00-Sat 23:00"].map(|text| Window::parse(text).unwrap());
        let until = |hours: u64| Some(InForce::Until(at + hours * 3_600_000));
        assert_eq!(open_until(&windows, at, &TimeZone::UTC), until(3), "the later end holds");
        assert_eq!(open_until(&[], at, &TimeZone::UTC), None);
        // A window that begins when another ends extends it; if this recurs every day it never ends, whatever the
        // clocks do.
        let windows = ["Sat 19:00-24:00", "Sun 00:00-Sun 06:00"].map(|text| Window::parse(text).unwrap());
        assert_eq!(open_until(&windows, at, &TimeZone::UTC), until(10));
        let daily = [Window::parse("00:00-24:00").unwrap()];
        let halves = ["06:00-18:00", "18:00-06:00"].map(|text| Window::parse(text).unwrap());
        for zone in [TimeZone::UTC, vienna()] {
            // The same on the day before the clocks change, 2026-10-24.
            for at in [at, 1_792_800_000_000] {
                assert_eq!(open_until(&daily, at, &zone), Some(InForce::Always));
                assert_eq!(open_until(&halves, at, &zone), Some(InForce::Always));
            }
        }
    }
}
