//! Limits the uncompressed length of a reply's names: a two-octet pointer (RFC 1035 section 4.1.4) can expand to 255
//! octets, or to a chain of thousands of others.
//!
//! A reply of 64 KiB may have 8,000 names of 127 labels, which takes tens of milliseconds to parse. No honest reply
//! is near that, so it is rejected before parsing; so is a reply with malformed names, which the parser would reject,
//! too.

/// Maximum octets of all expanded names of a reply: 1,000 records with two names of 40 octets each.
const NAMES_BYTES_MAX: usize = 80 * 1024;
/// Maximum records of a reply: each takes as long as a hundred octets of text, and no honest reply has so many.
const RECORDS_MAX: usize = 1_500;
/// Maximum octets of one name (RFC 1035 section 2.3.4).
const NAME_BYTES_MAX: usize = 255;
const HEADER_BYTES: usize = 12;
/// Size of the fields between a record's name and its data: type, class, TTL, length.
const FIXED_BYTES: usize = 10;

/// Examines all names that the parser reads.
///
/// # Errors
/// The reason why the reply must not be parsed.
pub fn check(reply: &[u8]) -> Result<(), &'static str> {
    let mut names = Names { reply, octets: 0, records: 0 };
    match names.all() {
        Some(()) => Ok(()),
        None if names.records > RECORDS_MAX => Err("reply refused: it has more than 1,500 records"),
        None if names.octets > NAMES_BYTES_MAX => Err("reply refused: its names exceed 80 KiB uncompressed"),
        None => Err("reply refused: its names are malformed"),
    }
}

struct Names<'r> {
    reply: &'r [u8],
    /// Total octets of labels and pointers so far.
    octets: usize,
    /// Number of records that the header announces.
    records: usize,
}

impl Names<'_> {
    /// Sums up the lengths of all names; `None`: malformed, or over the limit.
    fn all(&mut self) -> Option<()> {
        let count = |names: &Self, at| names.number(at).map(usize::from);
        let questions = count(self, 4)?;
        self.records = count(self, 6)? + count(self, 8)? + count(self, 10)?;
        if self.records > RECORDS_MAX {
            return None;
        }
        let mut at = HEADER_BYTES;
        for _ in 0..questions {
            at = self.name(at)? + 4;
        }
        for _ in 0..self.records {
            at = self.name(at)?;
            let (kind, bytes) = (self.number(at)?, usize::from(self.number(at + 8)?));
            at += FIXED_BYTES;
            let (first, count) = self.names_of_data(kind, at)?;
            let mut name = at + first;
            for _ in 0..count {
                if name >= at + bytes {
                    break;
                }
                name = self.name(name)?;
            }
            at += bytes;
        }
        Some(())
    }

    /// Adds a name's length; returns the offset after it.
    fn name(&mut self, begin: usize) -> Option<usize> {
        let (mut at, mut behind, mut octets) = (begin, None, 1);
        self.octets += 1;
        loop {
            let length = usize::from(*self.reply.get(at)?);
            match length {
                0 => break,
                1..=63 => {
                    octets += 1 + length;
                    self.octets += 1 + length;
                    at += 1 + length;
                    if octets > NAME_BYTES_MAX {
                        return None;
                    }
                }
                192.. => {
                    behind = behind.or(Some(at + 2));
                    let to = usize::from(self.number(at)? & 0x3fff);
                    // Pointers may only point backwards, so that the chain ends.
                    if to >= at {
                        return None;
                    }
                    at = to;
                    self.octets += 2;
                    if self.octets > NAMES_BYTES_MAX {
                        return None;
                    }
                }
                _ => return None,
            }
        }
        (self.octets <= NAMES_BYTES_MAX).then(|| behind.unwrap_or(at + 1))
    }

    fn number(&self, at: usize) -> Option<u16> {
        self.reply.get(at..at + 2)?.try_into().ok().map(u16::from_be_bytes)
    }

    /// Position of the names in a record's data, and their number, for types that hickory parses.
    fn names_of_data(&self, kind: u16, data: usize) -> Option<(usize, usize)> {
        Some(match kind {
            // NS, CNAME, PTR, TSIG, ANAME.
            2 | 5 | 12 | 250 | 65_305 => (0, 1),
            // SOA.
            6 => (0, 2),
            // MX, SVCB, HTTPS.
            15 | 64 | 65 => (2, 1),
            // SRV.
            33 => (6, 1),
            // NAPTR (RFC 3403 section 4.1): the name follows three texts.
            35 => {
                let mut first = 4;
                for _ in 0..3 {
                    first += 1 + usize::from(*self.reply.get(data + first)?);
                }
                (first, 1)
            }
            _ => (0, 0),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A reply to a query for a name with this number of labels, and MX records whose names point to it.
    fn reply(labels: usize, records: usize) -> Vec<u8> {
        let mut octets = vec![0, 7, 0x81, 0x80, 0, 1];
        octets.extend((records as u16).to_be_bytes());
        octets.extend([0; 4]);
        octets.extend(b"\x01a".repeat(labels));
        octets.extend([0, 0, 15, 0, 1]);
        for _ in 0..records {
            octets.extend([0xc0, 12, 0, 15, 0, 1, 0, 0, 0, 60, 0, 4, 0, 10, 0xc0, 12]);
        }
        octets
    }

    /// Puts a record of another type before all others.
    fn behind(kind: u16, data: &[u8], reply: &[u8]) -> Vec<u8> {
        let question = reply.len() - 16 * usize::from(u16::from_be_bytes([reply[6], reply[7]]));
        let mut octets = reply[..question].to_vec();
        octets[6..8].copy_from_slice(&(u16::from_be_bytes([reply[6], reply[7]]) + 1).to_be_bytes());
        octets.extend([0xc0, 12]);
        octets.extend(kind.to_be_bytes());
        octets.extend([0, 1, 0, 0, 0, 60]);
        octets.extend((data.len() as u16).to_be_bytes());
        octets.extend(data);
        octets.extend(&reply[question..]);
        octets
    }

    fn is_too_long(reply: &[u8]) -> bool {
        check(reply).is_err_and(|why| why.contains("exceed"))
    }

    #[test]
    fn names_that_pointers_make_long_are_refused() {
        assert!(is_too_long(&reply(127, 1_400)) && is_too_long(&reply(127, 400)));
        // Records of an ordinary name, and a few of a long one.
        assert_eq!((check(&reply(8, 1_500)), check(&reply(127, 120))), (Ok(()), Ok(())));
        assert!(check(&reply(8, 1_501)).is_err_and(|why| why.contains("records")));
        // Records before them with data that the parser does not examine, or with names after texts.
        for (kind, data) in [
            (39, &[0x80][..]),
            (46, &[0; 30]),
            (47, &[0xc0, 0xff]),
            (16, &[1, b'a']),
            (35, b"\0\x01\0\x01\x01s\0\x01r\0"),
        ] {
            assert!(is_too_long(&behind(kind, data, &reply(127, 1_400))), "{kind}");
            assert_eq!(check(&behind(kind, data, &reply(8, 1_400))), Ok(()), "{kind}");
        }
        let long = [b"\0\x01\0\x01\0\0\0".to_vec(), b"\x01a".repeat(127), vec![0]].concat();
        assert_eq!(check(&behind(35, &long, &reply(8, 1))), Ok(()));
        assert!(check(&behind(35, b"\0\x01\0\x01\0\0\0\x80", &reply(8, 1))).is_err());
    }

    /// Each of many names leads through thousands of pointers.
    #[test]
    fn chains_of_pointers_are_counted() {
        let base = reply(1, 0).len() + 12;
        let chain: Vec<u8> = (0..4_000u16)
            .flat_map(|n| (0xc000 | if n == 0 { 12 } else { base as u16 + 2 * (n - 1) }).to_be_bytes())
            .collect();
        let mut octets = behind(10, &chain, &reply(1, 0));
        let last = (0xc000 | (octets.len() as u16 - 2)).to_be_bytes();
        octets[7] += 20;
        for _ in 0..20 {
            octets.extend(last);
            octets.extend([0, 15, 0, 1, 0, 0, 0, 60, 0, 4, 0, 10]);
            octets.extend(last);
        }
        assert!(is_too_long(&octets));
    }

    #[test]
    fn what_cannot_be_followed_is_refused() {
        let whole = reply(5, 3);
        assert_eq!(check(&whole), Ok(()));
        for end in 0..whole.len() - 2 {
            assert!(check(&whole[..end]).is_err(), "{end}");
        }
        // A pointer to itself.
        let mut looped = whole;
        looped[12..14].copy_from_slice(&[0xc0, 12]);
        assert!(check(&looped).is_err());
    }

    proptest! {
        #[test]
        fn any_octets_end(octets in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = check(&octets);
        }
    }
}
