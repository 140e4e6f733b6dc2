//! Dates in the format of RFC 5322 3.3, from the caller's clock, in UTC.

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use jiff::tz::TimeZone;

use crate::Ms;

/// 9999-12-30 22:00:00: the last instant of jiff (its offsets reach to 26 hours).
const LAST_S: i64 = 253_402_207_200;

/// Formats a date, as `Sat, 21 Nov 2026 21:16:40 +0000`. Times later than [`LAST_S`] are shown as that.
pub fn format_date(at: Ms) -> String {
    let seconds = i64::try_from(at / 1_000).unwrap_or(LAST_S).min(LAST_S);
    let at = Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH).to_zoned(TimeZone::UTC);
    // The year is within 1970 to 9999, so the printer cannot fail.
    DateTimePrinter::new().zoned_to_string(&at).unwrap_or_default()
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
        assert_eq!(format_date(Ms::MAX).get(..16), Some("Thu, 30 Dec 9999"));
    }

    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

    proptest! {
        #[test]
        fn another_reader_agrees(seconds in 0i64..200_000_000_000) {
            let date = DateTime::from_timestamp(seconds);
            let ours = format_date(seconds as Ms * 1000);
            prop_assert!(ours.contains(&format!(" {} ", MONTHS[usize::from(date.month) - 1])), "{}", ours);
            prop_assert!(ours.contains(&format!(", {} ", date.day)), "{}", ours);
            let time = format!(" {:04} {:02}:{:02}:{:02} ", date.year, date.hour, date.minute, date.second);
            prop_assert!(ours.contains(&time), "{} {}", ours, time);
        }
    }
}
