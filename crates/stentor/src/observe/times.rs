//! Parses times as operators type them.

use stentor_records::civil::{Civil, DAY_S, Zone, days};
use stentor_records::record::Ms;

/// Parses `2026-11-22`, `2026-11-22 10:00[:00]` (or with a `T`), `10:00` (today), `today`, `yesterday`, `90m` (ago;
/// `s`, `m`, `h`, `d`, `w`).
pub fn parse(text: &str, now: Ms, zone: &Zone) -> Result<Ms, String> {
    let today = zone.local_s((now / 1000).cast_signed()).div_euclid(DAY_S) * DAY_S;
    let text = text.trim();
    let local_s = match text {
        "now" => return Ok(now),
        "today" => Some(today),
        "yesterday" => Some(today - DAY_S),
        _ => {
            if let Some(ms) = ago(text) {
                return Ok(now.saturating_sub(ms));
            }
            match text.split_once([' ', 'T']) {
                Some((date, time)) => day(date).zip(clock(time)).map(|(day, time)| day + time),
                None => day(text).or_else(|| clock(text).map(|time| today + time)),
            }
        }
    };
    let unix_s = local_s.and_then(|local_s| u64::try_from(zone.unix_s(local_s)).ok());
    unix_s.map(|unix_s| unix_s * 1000).ok_or_else(|| {
        format!("{text}: not a time; write 2026-11-22, \"2026-11-22 10:00\", 10:00, today, yesterday or 90m (ago)")
    })
}

/// Checks a time on the command line and returns it unchanged; it is valid if it is a time in some zone.
pub fn written(text: &str) -> Result<String, String> {
    parse(text, DAY_S.cast_unsigned() * 1000, &Zone::utc()).map(|_| text.to_owned())
}

/// The seconds from 1970 to this date in UTC.
pub fn day(text: &str) -> Option<i64> {
    let mut parts = text.splitn(3, '-');
    let year: i64 = parts.next()?.parse().ok()?;
    let month: u32 = parts.next()?.parse().ok()?;
    let of_month: u32 = parts.next()?.parse().ok()?;
    let since = days(year, month.clamp(1, 12), of_month);
    let back = Civil::of_local(since * DAY_S);
    let exists = (back.year, back.month, back.day) == (year, month, of_month);
    (exists && (1970..10_000).contains(&year)).then_some(since * DAY_S)
}

fn clock(text: &str) -> Option<i64> {
    let mut parts = text.splitn(3, ':');
    let hour: u32 = parts.next()?.parse().ok()?;
    let minute: u32 = parts.next()?.parse().ok()?;
    let second: u32 = parts.next().map_or(Some(0), |second| second.parse().ok())?;
    (hour < 24 && minute < 60 && second < 60).then_some(i64::from(hour * 3600 + minute * 60 + second))
}

fn ago(text: &str) -> Option<u64> {
    let unit = match text.bytes().last()? {
        b's' => 1,
        b'm' => 60,
        b'h' => 3600,
        b'd' => 86_400,
        b'w' => 604_800,
        _ => return None,
    };
    text[..text.len() - 1].parse::<u32>().ok().map(|count| u64::from(count) * unit * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_are_read_in_the_zone() {
        // 2026-11-22 03:00 UTC.
        let now = 1_795_316_400_000;
        let zone = Zone::fixed(-4 * 3600);
        let at = |text| parse(text, now, &zone).map(|ms| (ms / 1000).cast_signed() - 1_795_305_600);
        // In that zone it is still the 21st.
        assert_eq!(at("today"), Ok(-DAY_S + 14_400));
        assert_eq!(at("yesterday"), Ok(-2 * DAY_S + 14_400));
        assert_eq!(at("2026-11-22"), Ok(14_400));
        assert_eq!(at("2026-11-22 10:30"), Ok(14_400 + 37_800));
        assert_eq!(at("2026-11-22T10:30:05"), Ok(14_400 + 37_805));
        assert_eq!(at("10:30"), Ok(-DAY_S + 14_400 + 37_800));
        assert_eq!(at("90m"), Ok(10_800 - 5_400));
        assert_eq!(at("now"), Ok(10_800));
        for wrong in ["", "2026-02-30", "2026-13-01", "24:00", "5 o'clock", "-5m", "é"] {
            assert!(parse(wrong, now, &zone).is_err(), "{wrong}");
        }
    }
}
