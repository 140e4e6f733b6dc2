//! The extensions that a server offers: its reply to EHLO or LHLO (RFC 5321 4.1.1.1).

use std::fmt;

use super::mechanisms::OfferedMechanisms;
use super::reply_parser::ReplyView;

/// A set of service extensions that a server offers and then refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Extensions(u8);

impl Extensions {
    pub const NONE: Self = Self(0);
    pub const PIPELINING: Self = Self(1);
    pub const SIZE: Self = Self(2);
    pub const EIGHT_BIT_MIME: Self = Self(4);
    pub const SMTPUTF8: Self = Self(8);
    pub const CHUNKING: Self = Self(16);
    pub const DSN: Self = Self(32);

    const NAMES: [&str; 6] = ["PIPELINING", "SIZE", "8BITMIME", "SMTPUTF8", "CHUNKING", "DSN"];

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether any of `other` is in this set.
    pub fn any_of(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// `SIZE, DSN`
impl fmt::Display for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Self::NAMES.iter().enumerate().filter(|(bit, _)| self.0 & (1 << bit) != 0);
        for (index, (_, name)) in names.enumerate() {
            write!(f, "{}{name}", if index > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

/// The service extensions of a server. After HELO there are none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Caps {
    /// The server's own name in its reply to EHLO (printable ASCII, at most 255 octets; may be empty).
    pub peer_name: Box<str>,
    /// RFC 2920.
    pub pipelining: bool,
    /// RFC 1870: `Some(0)` means no fixed limit.
    pub size: Option<u64>,
    /// RFC 6152.
    pub eight_bit_mime: bool,
    /// RFC 6531.
    pub smtputf8: bool,
    /// RFC 3030.
    pub chunking: bool,
    /// RFC 3461.
    pub dsn: bool,
    /// RFC 2034.
    pub enhanced: bool,
    /// RFC 9422 RCPTMAX: maximum number of recipients per transaction.
    pub rcpts_max: Option<u32>,
    /// RFC 9422 MAILMAX: maximum number of transactions per session.
    pub transactions_max: Option<u32>,
    /// RFC 9422 RCPTDOMAINMAX: maximum number of different recipient domains per transaction.
    pub domains_max: Option<u32>,
    /// STARTTLS, REQUIRETLS and the mechanisms of AUTH as bits, to save space: each session has two of these.
    pub(super) protection: u16,
}

/// Returns the server's own name at the start of its greeting or its reply to EHLO (RFC 5321 4.2, 4.1.1.1).
pub(super) fn own_name(reply: ReplyView<'_>) -> Box<str> {
    let first = reply.lines().next().unwrap_or_default();
    let name = first.split(|&b| b == b' ').next().unwrap_or_default();
    name.iter().take(PEER_NAME_BYTES_MAX).filter(|b| b.is_ascii_graphic()).map(|&b| char::from(b)).collect()
}

/// Bits of [`Caps::protection`] after those of [`OfferedMechanisms`].
const STARTTLS: u16 = 1 << 14;
const REQUIRETLS: u16 = 1 << 15;

/// Octets of the peer's name that are kept.
const PEER_NAME_BYTES_MAX: usize = 255;
/// RFC 5321 4.5.3.1.7: every server accepts messages of this size. A lower limit is a mistake and is ignored.
const SIZE_BYTES_MIN: u64 = 64 * 1024;
/// Maximum number of digits of a limit (RFC 9422 section 4).
const LIMIT_DIGITS_MAX: usize = 6;

impl Caps {
    /// Parses the keywords. Unknown or malformed ones count as not offered.
    pub(super) fn parse(reply: ReplyView<'_>, extended: bool) -> Self {
        let mut caps = Self { peer_name: own_name(reply), ..Self::default() };
        if extended {
            for line in reply.lines().skip(1) {
                caps.keyword(line);
            }
        }
        caps
    }

    /// RFC 3207.
    pub fn starttls(&self) -> bool {
        self.protection & STARTTLS != 0
    }

    /// RFC 8689. Only valid within TLS.
    pub fn require_tls(&self) -> bool {
        self.protection & REQUIRETLS != 0
    }

    /// RFC 4954.
    pub fn mechanisms(&self) -> OfferedMechanisms {
        OfferedMechanisms::of_bits(self.protection)
    }

    /// Returns the capabilities without these extensions.
    #[must_use]
    pub(super) fn without(&self, withheld: Extensions) -> Self {
        let has = |extension| !withheld.any_of(extension);
        Self {
            pipelining: self.pipelining && has(Extensions::PIPELINING),
            size: self.size.filter(|_| has(Extensions::SIZE)),
            eight_bit_mime: self.eight_bit_mime && has(Extensions::EIGHT_BIT_MIME),
            smtputf8: self.smtputf8 && has(Extensions::SMTPUTF8),
            chunking: self.chunking && has(Extensions::CHUNKING),
            dsn: self.dsn && has(Extensions::DSN),
            ..self.clone()
        }
    }

    fn keyword(&mut self, line: &[u8]) {
        let mut words = line.split(|&b| b == b' ').filter(|word| !word.is_empty());
        let Some(keyword) = words.next() else { return };
        match keyword.to_ascii_uppercase().as_slice() {
            b"PIPELINING" => self.pipelining = true,
            b"SIZE" => {
                let size = words.next().and_then(number).filter(|size| *size >= SIZE_BYTES_MIN);
                self.size = Some(size.unwrap_or(0));
            }
            b"8BITMIME" => self.eight_bit_mime = true,
            b"SMTPUTF8" => self.smtputf8 = true,
            b"CHUNKING" => self.chunking = true,
            b"DSN" => self.dsn = true,
            b"ENHANCEDSTATUSCODES" => self.enhanced = true,
            b"STARTTLS" => self.protection |= STARTTLS,
            b"REQUIRETLS" => self.protection |= REQUIRETLS,
            b"AUTH" => {
                for word in words {
                    self.mechanism(word);
                }
            }
            // "250 AUTH=LOGIN PLAIN": from before RFC 2554, and still sent with the other form for old clients.
            [b'A', b'U', b'T', b'H', b'=', ..] => {
                for word in std::iter::once(&keyword[5..]).chain(words) {
                    self.mechanism(word);
                }
            }
            b"LIMITS" => {
                for word in words {
                    self.limit(word);
                }
            }
            _ => {}
        }
    }

    fn mechanism(&mut self, word: &[u8]) {
        if let Some(name) = std::str::from_utf8(word).ok().filter(|name| !name.is_empty()) {
            self.protection |= OfferedMechanisms::of(name).bits();
        }
    }

    /// Parses one `name=value` of RFC 9422. If a name occurs twice, or in two LIMITS lines, the lower value applies.
    fn limit(&mut self, word: &[u8]) {
        let Some(at) = memchr::memchr(b'=', word) else { return };
        // Sections 4.1 to 4.3: %x31-39 0*5DIGIT, so no leading zero.
        let digits = &word[at + 1..];
        if digits.len() > LIMIT_DIGITS_MAX || digits.first() == Some(&b'0') {
            return;
        }
        let Some(value) = number(digits) else { return };
        let limit = match word[..at].to_ascii_uppercase().as_slice() {
            b"MAILMAX" => &mut self.transactions_max,
            b"RCPTMAX" => &mut self.rcpts_max,
            b"RCPTDOMAINMAX" => &mut self.domains_max,
            _ => return,
        };
        *limit = Some(limit.map_or(value as u32, |known| known.min(value as u32)));
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::reply_parser::ReplyParser;
    use super::*;

    fn caps(text: &str, extended: bool) -> Caps {
        let mut parser = ReplyParser::new();
        parser.push(text.as_bytes());
        Caps::parse(parser.next_reply().unwrap().unwrap(), extended)
    }

    #[test]
    fn keywords_are_read_in_any_case() {
        let caps = caps(
            "250-mx.a.org hi\r\n250-pipelining\r\n250-SIZE 100000\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250-Chunking\r\n\
             250-DSN\r\n250-LIMITS RCPTMAX=20 MAILMAX=5 X=1\r\n250 ENHANCEDSTATUSCODES\r\n",
            true,
        );
        assert_eq!(&*caps.peer_name, "mx.a.org");
        assert!(caps.pipelining && caps.eight_bit_mime && caps.smtputf8 && caps.chunking && caps.dsn && caps.enhanced);
        assert_eq!((caps.size, caps.rcpts_max, caps.transactions_max), (Some(100_000), Some(20), Some(5)));
        let left = caps.without(Extensions::SIZE.and(Extensions::CHUNKING));
        assert_eq!((left.size, left.chunking, left.pipelining, left.rcpts_max), (None, false, true, Some(20)));
        assert_eq!(Extensions::SIZE.and(Extensions::DSN).to_string(), "SIZE, DSN");
    }

    #[test]
    fn odd_values_are_not_believed() {
        assert_eq!(caps("250-a\r\n250 SIZE\r\n", true).size, Some(0));
        for size in ["-5", "0", "10", "65535"] {
            assert_eq!(caps(&format!("250-a\r\n250 SIZE {size}\r\n"), true).size, Some(0), "{size}");
        }
        assert_eq!(caps("250-a\r\n250 SIZE 99999999999999999999999\r\n", true).size, Some(0));
        assert_eq!(caps("250-a\r\n250 LIMITS RCPTMAX=0 MAILMAX=+3\r\n", true), caps("250 a\r\n", true));
        assert_eq!(caps("250-a\r\n250 PIPELINING\r\n", false), caps("250 a\r\n", false));
        // The first line is a greeting, never a keyword.
        assert!(!caps("250 PIPELINING\r\n", true).pipelining);
        for odd in
            ["MAILMAX", "MAILMAX=", "MAILMAX=1000000", "MAILMAX=05", "MAILMAX=5=6", "=5", "MAILMAX =5", "MAILMAX=5x"]
        {
            assert_eq!(caps(&format!("250-a\r\n250 LIMITS {odd}\r\n"), true), caps("250 a\r\n", true), "{odd}");
        }
    }

    #[test]
    fn what_protects_a_session_is_read_in_both_forms_and_takes_no_space() {
        let found = caps("250-a\r\n250-starttls\r\n250-AUTH PLAIN login NTLM\r\n250 REQUIRETLS\r\n", true);
        assert!(found.starttls() && found.require_tls());
        assert_eq!(found.mechanisms().to_string(), "PLAIN LOGIN others");
        for old in ["AUTH=LOGIN PLAIN", "auth=PLAIN LOGIN", "AUTH= LOGIN PLAIN"] {
            let found = caps(&format!("250-a\r\n250-AUTH SCRAM-SHA-256\r\n250 {old}\r\n"), true);
            assert_eq!(found.mechanisms().to_string(), "SCRAM-SHA-256 PLAIN LOGIN", "{old}");
            assert!(!found.starttls());
        }
        for none in ["AUTH", "AUTH=", "XAUTH PLAIN", "STARTTLSX", "AUTHPLAIN"] {
            assert_eq!(caps(&format!("250-a\r\n250 {none}\r\n"), true), caps("250 a\r\n", true), "{none}");
        }
        assert!(!caps("250-a\r\n250 STARTTLS\r\n", false).starttls(), "HELO offers nothing");
        assert_eq!(size_of::<Caps>(), 64);
    }

    proptest! {
        /// RFC 9422 section 3: names in any case, in any order, among unknown names, in one line or several.
        #[test]
        fn limits_are_found_among_others(
            mails in 1u32..1_000_000, rcpts in 1u32..1_000_000, domains in 1u32..1_000_000,
            order in Just(vec![0, 1, 2, 3, 4]).prop_shuffle(), upper in any::<bool>(), lines in any::<bool>(),
        ) {
            let words = [
                format!("mailmax={mails}"), format!("rcptmax={rcpts}"), format!("rcptdomainmax={domains}"),
                "x-limit=:%41".to_owned(), "mailmaxx=1".to_owned(),
            ];
            let words: Vec<String> = order.iter().map(|at: &usize| words[*at].clone()).collect();
            let separator = if lines { "\r\n250-LIMITS " } else { " " };
            let text = words.join(separator);
            let text = if upper { text.to_ascii_uppercase() } else { text };
            let found = caps(&format!("250-a\r\n250-LIMITS {text}\r\n250 DSN\r\n"), true);
            prop_assert_eq!(
                (found.transactions_max, found.rcpts_max, found.domains_max), (Some(mails), Some(rcpts), Some(domains))
            );
        }

        /// Whatever a host sends, an accepted limit has the form that the RFC requires.
        #[test]
        fn no_limit_is_zero_or_beyond_the_rfc(words in "[ =0-9+a-zA-Z-]{0,40}( (MAIL|RCPT|RCPTDOMAIN)MAX=[0-9]{0,9}){0,4}") {
            let found = caps(&format!("250-a\r\n250 LIMITS {words}\r\n"), true);
            for limit in [found.transactions_max, found.rcpts_max, found.domains_max].into_iter().flatten() {
                let text = format!("={limit}");
                prop_assert!((1..1_000_000).contains(&limit) && words.contains(&text));
            }
        }
    }
}
