//! Dates of the proleptic Gregorian calendar, and time zones with offsets that the caller supplies.

use std::fmt;
use std::sync::Arc;

use crate::record::Ms;

pub const DAY_S: i64 = 86_400;
/// Zones change their offset only at multiples of this, so an offset may be cached that long.
pub const OFFSET_STEP_S: i64 = 900;

/// Days from 1970-01-01 to this date (Howard Hinnant's `days_from_civil`). `month` is 1 to 12.
pub fn days(year: i64, month: u32, day: u32) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * i64::from(if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + i64::from(day) - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month (1 to 12) and day of a number of days from 1970-01-01.
pub fn date(days: i64) -> (i64, u32, u32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = (of_year - (153 * shifted_month + 2) / 5 + 1) as u32;
    let month = (if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 }) as u32;
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

pub fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Day of the week; 0 is Sunday.
pub fn weekday(days: i64) -> usize {
    (days + 4).rem_euclid(7) as usize
}

pub const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
pub const WEEKDAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];

type Offset = dyn Fn(i64) -> i32 + Send + Sync;

/// A time zone: seconds east of Greenwich at a time. The default is UTC.
#[derive(Clone, Default)]
pub struct Zone(Option<Arc<Offset>>);

impl Zone {
    pub fn utc() -> Zone {
        Zone(None)
    }

    pub fn fixed(east_s: i32) -> Zone {
        Zone((east_s != 0).then(|| Arc::new(move |_| east_s) as Arc<Offset>))
    }

    /// Creates a zone; `offset` returns its seconds east of Greenwich at a second of the Unix epoch.
    pub fn new(offset: impl Fn(i64) -> i32 + Send + Sync + 'static) -> Zone {
        Zone(Some(Arc::new(offset)))
    }

    pub fn offset_s(&self, unix_s: i64) -> i32 {
        self.0.as_ref().map_or(0, |offset| offset(unix_s))
    }

    /// The zone's offset at a time, as written after times: `UTC`, `+0100`.
    pub fn label(&self, at: Ms) -> String {
        let east_s = self.offset_s((at / 1000).cast_signed());
        let (sign, minutes) = (if east_s < 0 { '-' } else { '+' }, east_s.unsigned_abs() / 60);
        if east_s == 0 { "UTC".to_owned() } else { format!("{sign}{:02}{:02}", minutes / 60, minutes % 60) }
    }

    /// Seconds shown by a local clock, counted as if it were UTC.
    pub fn local_s(&self, unix_s: i64) -> i64 {
        unix_s + i64::from(self.offset_s(unix_s))
    }

    /// The Unix time at which a local clock shows `local_s`: of two such times the earlier one; if there is none (the
    /// clock was put forward), as if it had not been put forward yet.
    pub fn unix_s(&self, local_s: i64) -> i64 {
        let Some(offset) = &self.0 else { return local_s };
        let before = i64::from(offset(local_s - DAY_S));
        let after = i64::from(offset(local_s + DAY_S));
        let early = local_s - before.max(after);
        let late = local_s - before.min(after);
        let shows = |unix_s: i64| unix_s + i64::from(offset(unix_s)) == local_s;
        if shows(early) {
            early
        } else if shows(late) {
            late
        } else {
            local_s - before
        }
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Zone" } else { "Zone(UTC)" })
    }
}

/// A time as shown by a clock in a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Civil {
    pub year: i64,
    pub month: u32,
    pub day: u32,
    pub hour: u32,
    pub minute: u32,
    pub second: u32,
    pub weekday: usize,
}

impl Civil {
    pub fn of(at: Ms, zone: &Zone) -> Civil {
        Civil::of_local(zone.local_s((at / 1000).cast_signed()))
    }

    pub fn of_local(local_s: i64) -> Civil {
        let days = local_s.div_euclid(DAY_S);
        let of_day = local_s.rem_euclid(DAY_S) as u32;
        let (year, month, day) = date(days);
        let weekday = weekday(days);
        Civil { year, month, day, hour: of_day / 3600, minute: of_day / 60 % 60, second: of_day % 60, weekday }
    }

    /// The date as `2026-11-22`.
    pub fn date_text(&self) -> String {
        format!("{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }

    /// The date as `Nov 22`.
    pub fn month_day(&self) -> String {
        format!("{} {:2}", MONTHS[(self.month as usize).clamp(1, 12) - 1], self.day)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_has_a_label() {
        let labels = [0, 3_600, -12_600, 45_900].map(|east_s| Zone::fixed(east_s).label(0));
        assert_eq!(labels, ["UTC", "+0100", "-0330", "+1245"]);
    }

    #[test]
    fn every_day_of_four_centuries_comes_back() {
        let mut next = days(1999, 12, 31);
        for year in 2000..2401 {
            for month in 1..=12 {
                let length = match month {
                    2 => 28 + u32::from(is_leap(year)),
                    4 | 6 | 9 | 11 => 30,
                    _ => 31,
                };
                for day in 1..=length {
                    next += 1;
                    assert_eq!((days(year, month, day), date(next)), (next, (year, month, day)));
                }
            }
        }
        assert_eq!((days(1970, 1, 1), weekday(days(2026, 11, 22))), (0, 0));
    }

    #[test]
    fn a_clock_that_was_put_back_shows_an_hour_twice() {
        // Central Europe in 2026: summer time ends on October 25 at 01:00 UTC.
        let change = days(2026, 10, 25) * DAY_S + 3600;
        let zone = Zone::new(move |unix_s| if unix_s < change { 7200 } else { 3600 });
        for unix_s in [change - 7200, change - 3601, change + 3600, change + 90_000] {
            assert_eq!(zone.unix_s(zone.local_s(unix_s)), unix_s);
        }
        assert_eq!(zone.unix_s(zone.local_s(change + 60)), change - 3540, "the earlier one");
    }

    #[test]
    fn a_clock_that_was_put_forward_leaves_an_hour_out() {
        let change = days(2026, 3, 29) * DAY_S + 3600;
        let zone = Zone::new(move |unix_s| if unix_s < change { 3600 } else { 7200 });
        assert_eq!(zone.unix_s(change + 3600 + 600), change + 600);
        assert_eq!(zone.unix_s(zone.local_s(change + 600)), change + 600);
        assert_eq!(zone.unix_s(zone.local_s(change - 1)), change - 1);
    }
}
