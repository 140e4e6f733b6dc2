//! Parses the part of DER (X.690) that certificates need: sequences of elements with checked lengths.
//!
//! Promise: never panics, never reads beyond its input, copies nothing. The results are for people to read; decisions
//! about trust are made by webpki.

/// One element: its tag, its content, and both with the header.
#[derive(Clone, Copy, Debug)]
pub struct Element<'a> {
    pub tag: u8,
    pub value: &'a [u8],
    pub whole: &'a [u8],
}

pub mod tag {
    pub const BOOLEAN: u8 = 0x01;
    pub const OCTET_STRING: u8 = 0x04;
    pub const OID: u8 = 0x06;
    pub const UTF8_STRING: u8 = 0x0c;
    pub const SEQUENCE: u8 = 0x30;
    pub const SET: u8 = 0x31;
    pub const PRINTABLE_STRING: u8 = 0x13;
    pub const TELETEX_STRING: u8 = 0x14;
    pub const IA5_STRING: u8 = 0x16;
    pub const UTC_TIME: u8 = 0x17;
    pub const GENERALIZED_TIME: u8 = 0x18;
    pub const BMP_STRING: u8 = 0x1e;
    /// Tags `[0]` and `[3]`, constructed.
    pub const CONTEXT_0: u8 = 0xa0;
    pub const CONTEXT_3: u8 = 0xa3;
}

/// A sequence of elements.
#[derive(Clone, Copy, Debug)]
pub struct Elements<'a>(pub &'a [u8]);

impl<'a> Elements<'a> {
    /// The next element of any kind. `None` at the end, and after the first error.
    pub fn next(&mut self) -> Option<Element<'a>> {
        let input = std::mem::take(&mut self.0);
        let (tag, length_byte) = (*input.first()?, *input.get(1)?);
        let (header, length) = match length_byte {
            0..=0x7f => (2, length_byte as usize),
            // Three octets of length allow 16 MiB, more than any certificate.
            0x81..=0x83 => {
                let octets = input.get(2..2 + (length_byte - 0x80) as usize)?;
                let length = octets.iter().fold(0, |length, octet| length << 8 | *octet as usize);
                (2 + octets.len(), length)
            }
            _ => return None,
        };
        let whole = input.get(..header + length)?;
        self.0 = &input[header + length..];
        Some(Element { tag, value: &whole[header..], whole })
    }

    /// The next element if it has this tag; otherwise nothing is consumed.
    pub fn take(&mut self, tag: u8) -> Option<Element<'a>> {
        let mut after = *self;
        let element = after.next().filter(|element| element.tag == tag)?;
        *self = after;
        Some(element)
    }
}

impl<'a> Element<'a> {
    pub fn inside(&self) -> Elements<'a> {
        Elements(self.value)
    }

    /// The text of a string, if its type is known.
    pub fn text(&self) -> Option<String> {
        match self.tag {
            tag::UTF8_STRING | tag::PRINTABLE_STRING | tag::IA5_STRING => {
                Some(String::from_utf8_lossy(self.value).into_owned())
            }
            // Decoded as Latin-1, as is common.
            tag::TELETEX_STRING => Some(self.value.iter().copied().map(char::from).collect()),
            tag::BMP_STRING => {
                let units = self.value.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
                Some(char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect())
            }
            _ => None,
        }
    }

    /// A time in seconds since 1970, from `UTCTime` or `GeneralizedTime` in the form of RFC 5280 section 4.1.2.5.
    pub fn moment(&self) -> Option<i64> {
        let digits = self.value.strip_suffix(b"Z")?;
        if !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let number = |range: std::ops::Range<usize>| -> Option<i64> {
            Some(digits.get(range)?.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0')))
        };
        let (year, at) = match (self.tag, digits.len()) {
            (tag::UTC_TIME, 12) => (number(0..2).map(|year| if year < 50 { 2000 + year } else { 1900 + year })?, 2),
            (tag::GENERALIZED_TIME, 14) => (number(0..4)?, 4),
            _ => return None,
        };
        let (month, day) = (number(at..at + 2)?, number(at + 2..at + 4)?);
        let (hour, minute, second) = (number(at + 4..at + 6)?, number(at + 6..at + 8)?, number(at + 8..at + 10)?);
        let is_date = (1..=12).contains(&month) && (1..=31).contains(&day);
        (is_date && hour < 24 && minute < 60 && second <= 60)
            .then(|| days_since_1970(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second)
    }
}

/// Days from 1 January 1970 to a day of the Gregorian calendar, counting years from March.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month and day of a time; the inverse of `days_since_1970`.
pub fn date(seconds: i64) -> (i64, u8, u8) {
    let days = seconds.div_euclid(86_400) + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = (of_year - (153 * from_march + 2) / 5 + 1) as u8;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 } as u8;
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    #[test]
    fn lengths_are_checked() {
        assert!(Elements(&[0x30]).next().is_none());
        assert!(Elements(&[0x30, 0x02, 0x05]).next().is_none());
        assert!(Elements(&[0x30, 0x80, 0, 0]).next().is_none());
        assert!(Elements(&[0x30, 0x84, 0, 0, 0, 0]).next().is_none());
        let mut two = Elements(&[0x05, 0x00, 0x04, 0x81, 0x01, 0x07]);
        assert!(two.take(tag::OCTET_STRING).is_none());
        assert_eq!(two.take(0x05).unwrap().value, b"");
        assert_eq!(two.next().unwrap().value, [7]);
        assert!(two.next().is_none());
    }

    #[test]
    fn moments_of_both_forms() {
        let moment = |tag, value: &str| Element { tag, value: value.as_bytes(), whole: b"" }.moment();
        assert_eq!(moment(tag::UTC_TIME, "700101000000Z"), Some(0));
        assert_eq!(moment(tag::UTC_TIME, "491231235959Z"), Some(2_524_607_999));
        assert_eq!(moment(tag::GENERALIZED_TIME, "20500101000000Z"), Some(2_524_608_000));
        assert_eq!(moment(tag::UTC_TIME, "500101000000Z"), Some(-631_152_000));
        assert_eq!(moment(tag::UTC_TIME, "701301000000Z"), None);
        assert_eq!(moment(tag::UTC_TIME, "7001010000Z"), None);
        assert_eq!(moment(tag::UTC_TIME, "700101000000+0100"), None);
    }

    proptest! {
        #[test]
        fn dates_go_there_and_back(seconds in -60_000_000_000_i64..250_000_000_000) {
            let (year, month, day) = date(seconds);
            prop_assert_eq!(days_since_1970(year, i64::from(month), i64::from(day)), seconds.div_euclid(86_400));
        }

        #[test]
        fn anything_is_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut elements = Elements(&bytes);
            while let Some(element) = elements.next() {
                let _ = (element.text(), element.moment(), element.inside().next());
            }
        }
    }
}
