//! Addresses in answers of DNS lists: their general meaning, and patterns of those that count here.

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

/// Pattern of addresses that count as a listing: `127.0.0.2`, `127.0.0.4-11`, `127.0.*.2`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerPattern([RangeInclusive<u8>; 4]);

/// The text is not a valid pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadAnswer(pub String);

impl std::fmt::Display for BadAnswer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            out,
            "{:?} is not a valid answer of a DNS list; use for example \"127.0.0.2\" or \"127.0.0.4-11\"",
            self.0
        )
    }
}

impl std::error::Error for BadAnswer {}

impl AnswerPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// It is not a pattern, or not within 127.0.0.0/8.
    pub fn parse(text: &str) -> Result<AnswerPattern, BadAnswer> {
        let octet = |part: &str| {
            if part == "*" {
                return Some(0..=u8::MAX);
            }
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let (from, to) = (from.parse::<u8>().ok()?, to.parse::<u8>().ok()?);
            (from <= to).then_some(from..=to)
        };
        let octets: Option<Vec<_>> = text.split('.').map(octet).collect();
        let octets = octets.and_then(|octets| <[RangeInclusive<u8>; 4]>::try_from(octets).ok());
        match octets {
            Some(octets) if octets[0] == (127..=127) => Ok(AnswerPattern(octets)),
            _ => Err(BadAnswer(text.to_owned())),
        }
    }

    pub fn is_match(&self, address: Ipv4Addr) -> bool {
        self.0.iter().zip(address.octets()).all(|(range, octet)| range.contains(&octet))
    }
}

/// The addresses in a list's answer that can be listings.
///
/// # Errors
/// The answer has another meaning, which the error states: lists refuse with 127.255.255.x (Spamhaus) or 127.0.0.1
/// (RFC 5782 section 5: never listed), and a name server that redirects to its own web page answers with an address
/// outside 127.0.0.0/8.
pub(crate) fn listings(addresses: &[Ipv4Addr]) -> Result<Vec<Ipv4Addr>, String> {
    for address in addresses {
        match address.octets() {
            [127, 255, 255, _] | [127, 0, 0, 1] => {
                return Err(format!("the list refuses queries from this server ({address})"));
            }
            [127, ..] => {}
            _ => return Err(format!("{address} is not a valid answer of a DNS list")),
        }
    }
    Ok(addresses.to_vec())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ip(text: &str) -> Ipv4Addr {
        text.parse().unwrap()
    }

    #[test]
    fn patterns_are_addresses_with_ranges() {
        let is = |pattern: &str, address: &str| AnswerPattern::parse(pattern).unwrap().is_match(ip(address));
        assert!(is("127.0.0.2", "127.0.0.2") && is("127.0.0.4-11", "127.0.0.11") && is("127.0.*.2", "127.0.9.2"));
        assert!(!is("127.0.0.2", "127.0.0.3") && !is("127.0.0.4-11", "127.0.0.12") && !is("127.0.0.4-11", "127.0.1.5"));
        for wrong in ["", "127.0.0", "127.0.0.2.3", "127.0.0.11-4", "10.0.0.1", "127.0.0.256", "*.0.0.2", "127.0.0.-2"]
        {
            assert!(AnswerPattern::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn refusals_and_pages_of_others_are_no_listings() {
        assert_eq!(listings(&[ip("127.0.0.2"), ip("127.0.0.4")]), Ok(vec![ip("127.0.0.2"), ip("127.0.0.4")]));
        for refusal in ["127.255.255.254", "127.0.0.1", "192.0.2.1"] {
            assert!(listings(&[ip("127.0.0.2"), ip(refusal)]).is_err(), "{refusal}");
        }
    }

    proptest! {
        #[test]
        fn a_pattern_of_one_address_matches_that_alone(a: [u8; 3], b: [u8; 3]) {
            let text = |[x, y, z]: [u8; 3]| format!("127.{x}.{y}.{z}");
            let pattern = AnswerPattern::parse(&text(a)).unwrap();
            prop_assert!(pattern.is_match(ip(&text(a))));
            prop_assert_eq!(pattern.is_match(ip(&text(b))), a == b);
        }
    }
}
