//! Dates as RFC 5322 3.3 writes them, from the caller's clock, in UTC.

use crate::Ms;

const DAY_NAMES: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTH_NAMES: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAY_MS: Ms = 86_400_000;
/// 9999-12-31: a year has four digits here.
const LAST_DAY: u64 = 2_932_896;

/// `Sat, 21 Nov 2026 21:16:40 +0000`. Times after the year 9999 are shown as its last day.
pub fn format_date(at: Ms) -> String {
    let days = (at / DAY_MS).min(LAST_DAY);
    let seconds = at % DAY_MS / 1000;
    let (year, month, day) = civil(days);
    format!(
        "{}, {day} {} {year:04} {:02}:{:02}:{:02} +0000",
        DAY_NAMES[(days % 7) as usize],
        MONTH_NAMES[month],
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
    )
}

/// Year, month from 0, day from 1, of a day since 1970-01-01. Counts 400-year eras from 0000-03-01, so that the leap
/// day is the last of its year.
fn civil(days: u64) -> (u64, usize, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12;
    let year = era * 400 + year_of_era + u64::from(month < 2);
    (year, month as usize, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail_parser::DateTime;
    use proptest::prelude::*;

    #[test]
    fn known_dates() {
        assert_eq!(format_date(0), "Thu, 1 Jan 1970 00:00:00 +0000");
        assert_eq!(format_date(951_827_696_000), "Tue, 29 Feb 2000 12:34:56 +0000");
        assert_eq!(format_date(1_795_295_800_000), "Sat, 21 Nov 2026 21:16:40 +0000");
        assert_eq!(format_date(Ms::MAX).get(..16), Some("Fri, 31 Dec 9999"));
    }

    proptest! {
        #[test]
        fn another_reader_agrees(seconds in 0i64..200_000_000_000) {
            let date = DateTime::from_timestamp(seconds);
            let ours = format_date(seconds as Ms * 1000);
            prop_assert!(ours.contains(&format!(" {} ", MONTH_NAMES[usize::from(date.month) - 1])), "{}", ours);
            prop_assert!(ours.contains(&format!(", {} ", date.day)), "{}", ours);
            let time = format!(" {:04} {:02}:{:02}:{:02} ", date.year, date.hour, date.minute, date.second);
            prop_assert!(ours.contains(&time), "{} {}", ours, time);
        }
    }
}
