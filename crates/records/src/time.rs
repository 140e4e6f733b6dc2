//! Formats instants and durations for the log. All times are UTC: a log that is read across machines and across clock
//! changes must not jump.

use crate::civil::date;

const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
const DAY_S: u64 = 86_400;

fn civil(days: u64) -> (u64, usize, u64) {
    let (year, month, day) = date(days.cast_signed());
    (year.cast_unsigned(), month as usize, u64::from(day))
}

/// Appends `Nov 21 10:54:25` (RFC 3164 4.1.2: a day below 10 has a space before it).
pub fn push_syslog(out: &mut Vec<u8>, ms: u64) {
    let s = ms / 1000;
    let (_, month, day) = civil(s / DAY_S);
    out.extend_from_slice(MONTHS[month - 1]);
    out.push(b' ');
    out.push(if day < 10 { b' ' } else { b'0' + (day / 10) as u8 });
    out.push(b'0' + (day % 10) as u8);
    out.push(b' ');
    push_clock(out, s % DAY_S);
}

/// Appends `2026-11-21T10:54:25.123Z` (RFC 3339).
pub fn push_rfc3339(out: &mut Vec<u8>, ms: u64) {
    let s = ms / 1000;
    let (year, month, day) = civil(s / DAY_S);
    push_number(out, year, 4);
    out.push(b'-');
    push_number(out, month as u64, 2);
    out.push(b'-');
    push_number(out, day, 2);
    out.push(b'T');
    push_clock(out, s % DAY_S);
    out.push(b'.');
    push_number(out, ms % 1000, 3);
    out.push(b'Z');
}

/// Appends `00:00:07`, from one day on `2+03:04:05`, as in sendmail's `delay=`; fractions of a second are dropped.
pub fn push_delay(out: &mut Vec<u8>, ms: u64) {
    let s = ms / 1000;
    if s >= DAY_S {
        push_number(out, s / DAY_S, 1);
        out.push(b'+');
    }
    push_clock(out, s % DAY_S);
}

fn push_clock(out: &mut Vec<u8>, s: u64) {
    push_number(out, s / 3600, 2);
    out.push(b':');
    push_number(out, s / 60 % 60, 2);
    out.push(b':');
    push_number(out, s % 60, 2);
}

/// Appends `n` with at least `width` digits.
pub fn push_number(out: &mut Vec<u8>, n: u64, width: usize) {
    let mut digits = [b'0'; 20];
    let mut rest = n;
    let mut start = digits.len();
    while rest > 0 || digits.len() - start < width {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.extend_from_slice(&digits[start..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(push: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        push(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn instants() {
        let table = [
            (0, "Jan  1 00:00:00", "1970-01-01T00:00:00.000Z"),
            (951_782_400_007, "Feb 29 00:00:00", "2000-02-29T00:00:00.007Z"),
            (951_868_799_999, "Feb 29 23:59:59", "2000-02-29T23:59:59.999Z"),
            (1_795_258_465_123, "Nov 21 10:54:25", "2026-11-21T10:54:25.123Z"),
            (4_107_542_400_000, "Mar  1 00:00:00", "2100-03-01T00:00:00.000Z"),
        ];
        for (ms, syslog, rfc3339) in table {
            assert_eq!(text(|o| push_syslog(o, ms)), syslog);
            assert_eq!(text(|o| push_rfc3339(o, ms)), rfc3339);
        }
        // No clock is that wrong, but the log must survive it.
        assert!(text(|o| push_rfc3339(o, u64::MAX)).ends_with('Z'));
    }

    #[test]
    fn delays() {
        let table = [(0, "00:00:00"), (6_999, "00:00:06"), (86_399_000, "23:59:59"), (183_845_000, "2+03:04:05")];
        for (ms, expected) in table {
            assert_eq!(text(|o| push_delay(o, ms)), expected);
        }
    }
}
