//! Parses times at the start of lines. The part that lines of one minute share is computed once.

use crate::civil::{DAY_S, Zone, date, days, is_leap};
use crate::record::Ms;

/// Half a year in days, with 32 days to a month: if two lines are further apart than this, the year has changed.
const HALF_YEAR: u32 = 6 * 32;

pub struct Stamps {
    zone: Zone,
    /// When the file was last written, or the current time.
    reference: Ms,
    /// The text `Nov 22 03:00:` and the time of its first second.
    syslog: ([u8; 13], Ms),
    /// The text `2026-11-22T03:00:` (any separator) and its first second, in UTC and in the zone.
    iso: ([u8; 17], i64, i64),
    /// Year and position within it (32 times month, plus day) of the last line without a year.
    last: Option<(i64, u32)>,
}

impl Stamps {
    pub fn new(zone: Zone, reference: Ms) -> Stamps {
        Stamps { zone, reference, syslog: ([0; 13], 0), iso: ([0; 17], 0, 0), last: None }
    }

    pub fn file(&mut self, reference: Ms) {
        self.reference = reference;
        self.last = None;
        self.syslog.0 = [0; 13];
    }

    /// Reads `Nov 22 03:00:00 rest`: RFC 3164 4.1.2, without a year or zone.
    pub fn rfc3164<'a>(&mut self, line: &'a str) -> Option<(Ms, &'a str)> {
        let bytes = line.as_bytes();
        if bytes.len() < 16 || bytes[15] != b' ' {
            return None;
        }
        let second = two(bytes, 13).filter(|second| *second <= 60)?;
        if bytes[..13] != self.syslog.0 {
            let minute = self.minute(bytes)?;
            self.syslog = (bytes[..13].try_into().ok()?, minute);
        }
        Some((self.syslog.1 + u64::from(second) * 1000, &line[16..]))
    }

    fn minute(&mut self, bytes: &[u8]) -> Option<Ms> {
        let month = match &bytes[..3] {
            b"Jan" => 1,
            b"Feb" => 2,
            b"Mar" => 3,
            b"Apr" => 4,
            b"May" => 5,
            b"Jun" => 6,
            b"Jul" => 7,
            b"Aug" => 8,
            b"Sep" => 9,
            b"Oct" => 10,
            b"Nov" => 11,
            b"Dec" => 12,
            _ => return None,
        };
        let day = match bytes[4] {
            b' ' => two(&[b'0', bytes[5]], 0)?,
            _ => two(bytes, 4)?,
        };
        let (hour, minute) = (two(bytes, 7)?, two(bytes, 10)?);
        let separated = bytes[3] == b' ' && bytes[6] == b' ' && bytes[9] == b':' && bytes[12] == b':';
        if !separated || !(1..=31).contains(&day) || hour > 23 || minute > 59 {
            return None;
        }
        let year = self.year(month, day);
        let of_day = i64::from(hour) * 3600 + i64::from(minute) * 60;
        let unix_s = self.zone.unix_s(days(year, month, day) * DAY_S + of_day);
        u64::try_from(unix_s).ok().map(|s| s * 1000)
    }

    /// The missing year. For a file's first line: the latest that is not in the future. After that: the next year when
    /// the date falls back by months (December, January); for a single line that leaps ahead as far, the previous year.
    fn year(&mut self, month: u32, day: u32) -> i64 {
        let place = month * 32 + day;
        let year = match self.last {
            None => {
                let latest = (self.reference / 1000).cast_signed() + DAY_S;
                let (year, now_month, now_day) = date(self.zone.local_s(latest).div_euclid(DAY_S));
                let mut year = if place > now_month * 32 + now_day { year - 1 } else { year };
                while (month, day) == (2, 29) && !is_leap(year) {
                    year -= 1;
                }
                year
            }
            Some((year, before)) if before > place + HALF_YEAR => year + 1,
            Some((year, before)) if place > before + HALF_YEAR => return year - 1,
            Some((year, _)) => year,
        };
        self.last = Some((year, place));
        year
    }

    /// Reads `2026-11-22T03:00:00.123456+01:00 rest`, also without fraction or zone.
    pub fn rfc3339<'a>(&mut self, line: &'a str) -> Option<(Ms, &'a str)> {
        if *line.as_bytes().get(10)? != b'T' {
            return None;
        }
        let (at, rest) = self.iso(line)?;
        let (at, rest) = match offset(rest) {
            Some((offset_s, rest)) => (at.utc(offset_s)?, rest),
            None => (at.zoned()?, rest),
        };
        Some((at, rest.strip_prefix(' ')?))
    }

    /// Reads `2026-11-22 03:00:00.123 +0100 rest`, Exim's form, also without fraction or zone.
    pub fn exim<'a>(&mut self, line: &'a str) -> Option<(Ms, &'a str)> {
        if *line.as_bytes().get(10)? != b' ' {
            return None;
        }
        let (at, rest) = self.iso(line)?;
        let rest = rest.strip_prefix(' ')?;
        match offset(rest).and_then(|(offset_s, rest)| Some((offset_s, rest.strip_prefix(' ')?))) {
            Some((offset_s, rest)) => Some((at.utc(offset_s)?, rest)),
            None => Some((at.zoned()?, rest)),
        }
    }

    fn iso<'a>(&mut self, line: &'a str) -> Option<(Iso, &'a str)> {
        let bytes = line.as_bytes();
        if bytes.len() < 19 {
            return None;
        }
        if bytes[..17] != self.iso.0 {
            let year = i64::from(two(bytes, 0)?) * 100 + i64::from(two(bytes, 2)?);
            let (month, day) = (two(bytes, 5)?, two(bytes, 8)?);
            let (hour, minute) = (two(bytes, 11)?, two(bytes, 14)?);
            let separated = bytes[4] == b'-' && bytes[7] == b'-' && bytes[13] == b':' && bytes[16] == b':';
            let sound = (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60;
            if !separated || !sound || year < 1970 {
                return None;
            }
            let local_s = days(year, month, day) * DAY_S + i64::from(hour) * 3600 + i64::from(minute) * 60;
            self.iso = (bytes[..17].try_into().ok()?, local_s, self.zone.unix_s(local_s));
        }
        let second = two(bytes, 17).filter(|second| *second <= 60)?;
        let mut end = 19;
        let mut ms = 0;
        // The fraction begins at a character boundary: all bytes so far are ASCII.
        if bytes.get(19) == Some(&b'.') {
            end = 20;
            let mut unit = 100;
            while let Some(digit) = bytes.get(end).filter(|byte| byte.is_ascii_digit()) {
                ms += u64::from(digit - b'0') * unit;
                unit /= 10;
                end += 1;
            }
        }
        let of_minute = u64::from(second) * 1000 + ms;
        Some((Iso { local_s: self.iso.1, unix_s: self.iso.2, of_minute }, line.get(end..)?))
    }
}

/// A minute as written, and its time as if it were in the zone.
struct Iso {
    local_s: i64,
    unix_s: i64,
    /// Milliseconds within the minute.
    of_minute: u64,
}

impl Iso {
    fn utc(&self, offset_s: i64) -> Option<Ms> {
        Some(u64::try_from(self.local_s - offset_s).ok()? * 1000 + self.of_minute)
    }

    fn zoned(&self) -> Option<Ms> {
        Some(u64::try_from(self.unix_s).ok()? * 1000 + self.of_minute)
    }
}

/// Reads `Z`, `+01:00` or `+0100`: seconds east, and the rest.
fn offset(text: &str) -> Option<(i64, &str)> {
    let bytes = text.as_bytes();
    let sign = match bytes.first()? {
        b'Z' | b'z' => return Some((0, &text[1..])),
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let hours = two(bytes, 1)?;
    let (minutes, end) = if bytes.get(3) == Some(&b':') { (two(bytes, 4)?, 6) } else { (two(bytes, 3)?, 5) };
    Some((sign * (i64::from(hours) * 3600 + i64::from(minutes) * 60), text.get(end..)?))
}

fn two(bytes: &[u8], at: usize) -> Option<u32> {
    let (tens, ones) = (bytes.get(at)?, bytes.get(at + 1)?);
    (tens.is_ascii_digit() && ones.is_ascii_digit()).then(|| u32::from(tens - b'0') * 10 + u32::from(ones - b'0'))
}
