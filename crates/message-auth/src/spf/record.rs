//! SPF records (RFC 7208 sections 4.5, 5, 6 and 12).
//!
//! Promise: a record is read in linear time, and borrowed. Failure: the first term that is not valid, with the reason.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::macros::{DomainSpec, SpfSyntaxError};
use crate::method::MethodResult;

/// Longest record; real ones stay below 2 KiB. A longer one would only cost time.
const RECORD_BYTES_MAX: usize = 16 * 1024;
const VERSION: &[u8] = b"v=spf1";

/// A network of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpfNetwork {
    pub address: IpAddr,
    pub prefix_bits: u8,
}

impl SpfNetwork {
    pub fn has(self, client: IpAddr) -> bool {
        match (client, self.address) {
            (IpAddr::V4(client), IpAddr::V4(own)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix_bits)).unwrap_or(0);
                (client.to_bits() ^ own.to_bits()) & mask == 0
            }
            (IpAddr::V6(client), IpAddr::V6(own)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix_bits)).unwrap_or(0);
                (client.to_bits() ^ own.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}

/// Domain and prefix lengths of an `a` or `mx` term.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostTerm<'r> {
    /// `None`: the record's own domain.
    pub domain: Option<DomainSpec<'r>>,
    v4_bits: u8,
    v6_bits: u8,
}

impl HostTerm<'_> {
    /// Whether one of the addresses is in one network with the client's.
    pub fn has(&self, addresses: &[IpAddr], client: IpAddr) -> bool {
        let prefix_bits = if client.is_ipv4() { self.v4_bits } else { self.v6_bits };
        addresses.iter().any(|address| SpfNetwork { address: *address, prefix_bits }.has(client))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpfMechanism<'r> {
    All,
    Include(DomainSpec<'r>),
    A(HostTerm<'r>),
    Mx(HostTerm<'r>),
    Ptr(Option<DomainSpec<'r>>),
    Ip(SpfNetwork),
    Exists(DomainSpec<'r>),
}

impl SpfMechanism<'_> {
    /// Whether it counts against the limit of look-ups (section 4.6.4).
    pub fn needs_lookup(&self) -> bool {
        !matches!(self, SpfMechanism::All | SpfMechanism::Ip(_))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpfDirective<'r> {
    /// Result if the mechanism matches.
    pub result: MethodResult,
    pub mechanism: SpfMechanism<'r>,
    /// As written.
    pub text: &'r str,
}

/// A record without syntax errors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpfRecord<'r> {
    pub directives: Vec<SpfDirective<'r>>,
    pub redirect: Option<DomainSpec<'r>>,
}

/// Whether a TXT record is an SPF record.
pub fn is_spf(text: &[u8]) -> bool {
    let is_version = text.len() >= VERSION.len() && text[..VERSION.len()].eq_ignore_ascii_case(VERSION);
    is_version && matches!(text.get(VERSION.len()), None | Some(b' '))
}

impl<'r> SpfRecord<'r> {
    /// Parses a record that [`is_spf`].
    ///
    /// # Errors
    /// The first term that is not valid.
    pub fn parse(text: &'r [u8]) -> Result<SpfRecord<'r>, SpfSyntaxError> {
        if text.len() > RECORD_BYTES_MAX {
            return Err(SpfSyntaxError(format!("longer than {RECORD_BYTES_MAX} octets")));
        }
        let text = std::str::from_utf8(text).ok().filter(|text| text.is_ascii());
        let text = text.ok_or_else(|| SpfSyntaxError("it is not ASCII".to_owned()))?;
        let (mut record, mut has_explanation) = (SpfRecord::default(), false);
        for term in text.get(VERSION.len()..).unwrap_or_default().split(' ').filter(|term| !term.is_empty()) {
            let bad = |why: &str| SpfSyntaxError(format!("{term}: {why}"));
            let in_term = |SpfSyntaxError(why)| SpfSyntaxError(format!("{term}: {why}"));
            let name_end = term.find(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c)).unwrap_or(term.len());
            let (name, rest) = term.split_at(name_end);
            let Some(value) = rest.strip_prefix('=') else {
                record.directives.push(directive(term).map_err(in_term)?);
                continue;
            };
            if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
                return Err(bad("its name is not valid"));
            }
            match name.to_ascii_lowercase().as_str() {
                "redirect" if record.redirect.is_some() => return Err(bad("it is repeated")),
                "redirect" => record.redirect = Some(DomainSpec::parse(value).map_err(in_term)?),
                "exp" if std::mem::replace(&mut has_explanation, true) => return Err(bad("it is repeated")),
                // The explanation is never looked up: SPF alone refuses no mail.
                "exp" => drop(DomainSpec::parse(value).map_err(in_term)?),
                _ => DomainSpec::check_macros(value).map_err(in_term)?,
            }
        }
        Ok(record)
    }
}

fn error(why: &str) -> SpfSyntaxError {
    SpfSyntaxError(why.to_owned())
}

fn directive(text: &str) -> Result<SpfDirective<'_>, SpfSyntaxError> {
    let (result, term) = match text.as_bytes().first() {
        Some(b'+') => (MethodResult::Pass, &text[1..]),
        Some(b'-') => (MethodResult::Fail, &text[1..]),
        Some(b'~') => (MethodResult::SoftFail, &text[1..]),
        Some(b'?') => (MethodResult::Neutral, &text[1..]),
        _ => (MethodResult::Pass, text),
    };
    let end = term.find([':', '/']).unwrap_or(term.len());
    let (name, rest) = term.split_at(end);
    let mechanism = match name.to_ascii_lowercase().as_str() {
        "all" if rest.is_empty() => SpfMechanism::All,
        "all" => return Err(error("it takes no value")),
        "include" => SpfMechanism::Include(argument(rest)?),
        "exists" => SpfMechanism::Exists(argument(rest)?),
        "ptr" if rest.is_empty() => SpfMechanism::Ptr(None),
        "ptr" => SpfMechanism::Ptr(Some(argument(rest)?)),
        "a" => SpfMechanism::A(host_term(rest)?),
        "mx" => SpfMechanism::Mx(host_term(rest)?),
        "ip4" => SpfMechanism::Ip(network::<Ipv4Addr>(rest, 32)?),
        "ip6" => SpfMechanism::Ip(network::<Ipv6Addr>(rest, 128)?),
        _ => return Err(error("there is no such mechanism")),
    };
    Ok(SpfDirective { result, mechanism, text })
}

fn argument(rest: &str) -> Result<DomainSpec<'_>, SpfSyntaxError> {
    DomainSpec::parse(rest.strip_prefix(':').ok_or_else(|| error("its domain is missing"))?)
}

/// Parses `:domain/24//64`, of which each part is optional.
fn host_term(mut rest: &str) -> Result<HostTerm<'_>, SpfSyntaxError> {
    let (mut v4_bits, mut v6_bits) = (32, 128);
    let bad = || error("its prefix length is not valid");
    if let Some((before, digits)) = rest.rsplit_once("//").filter(|(_, digits)| is_number(digits)) {
        v6_bits = bits(digits, 128).ok_or_else(bad)?;
        rest = before;
    }
    if let Some((before, digits)) = rest.rsplit_once('/').filter(|(_, digits)| is_number(digits)) {
        v4_bits = bits(digits, 32).ok_or_else(bad)?;
        rest = before;
    }
    let domain = if rest.is_empty() { None } else { Some(argument(rest)?) };
    Ok(HostTerm { domain, v4_bits, v6_bits })
}

/// Parses `:address/24`; `bits_max` is the length of the family's addresses.
fn network<A: Into<IpAddr> + std::str::FromStr>(rest: &str, bits_max: u8) -> Result<SpfNetwork, SpfSyntaxError> {
    let parsed = || {
        let text = rest.strip_prefix(':')?;
        let (address, prefix_bits) = match text.split_once('/') {
            Some((address, digits)) => (address, bits(digits, bits_max)?),
            None => (text, bits_max),
        };
        Some(SpfNetwork { address: address.parse::<A>().ok()?.into(), prefix_bits })
    };
    parsed().ok_or_else(|| error("its network is not valid"))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|octet| octet.is_ascii_digit())
}

fn bits(digits: &str, bits_max: u8) -> Option<u8> {
    let has_zero = digits.len() > 1 && digits.starts_with('0');
    let number = if is_number(digits) && !has_zero { digits.parse::<u8>().ok() } else { None };
    number.filter(|number| *number <= bits_max)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn records_are_parsed() {
        let text = b"v=spf1 ip4:192.0.2.0/24 IP6:2001:db8::/32 a mx:mail.example/24//64 include:%{d2}.example ~all x=y";
        let record = SpfRecord::parse(text).unwrap();
        assert_eq!(record.directives.len(), 6);
        let SpfMechanism::Mx(term) = &record.directives[3].mechanism else { panic!("{record:?}") };
        assert_eq!((term.domain.as_ref().unwrap().text, term.v4_bits, term.v6_bits), ("mail.example", 24, 64));
        assert_eq!((record.directives[5].result, record.directives[5].text), (MethodResult::SoftFail, "~all"));
        assert!(is_spf(b"V=SPF1") && is_spf(b"v=spf1 a") && !is_spf(b"v=spf10 a") && !is_spf(b"v=spf"));
        assert_eq!(
            SpfRecord::parse(b"v=spf1 redirect=_spf.example.org").unwrap().redirect.unwrap().text,
            "_spf.example.org"
        );
    }

    #[test]
    fn mistakes_are_named() {
        for (text, wanted) in [
            ("v=spf1 ipv4:192.0.2.1", "ipv4:192.0.2.1: there is no such mechanism"),
            ("v=spf1 ip4:192.0.2.300", "ip4:192.0.2.300: its network is not valid"),
            ("v=spf1 ip4:2001:db8::1", "its network is not valid"),
            ("v=spf1 ip4:192.0.2.0/33", "its network is not valid"),
            ("v=spf1 include", "include: its domain is missing"),
            ("v=spf1 include:a/24", "its domain is not valid"),
            ("v=spf1 a/64", "its prefix length is not valid"),
            ("v=spf1 all:x", "all:x: it takes no value"),
            ("v=spf1 redirect=a.b redirect=a.b", "it is repeated"),
            ("v=spf1 exists:%{x}.example", "the macro {x} is not valid"),
            ("v=spf1 =x", "its name is not valid"),
            ("v=spf1 \u{fc}", "it is not ASCII"),
        ] {
            let SpfSyntaxError(why) = SpfRecord::parse(text.as_bytes()).unwrap_err();
            assert!(why.contains(wanted), "{text}: {why}");
        }
    }

    #[test]
    fn networks_have_their_addresses() {
        let has = |text: &str, address: &str| {
            let record = SpfRecord::parse(text.as_bytes()).unwrap();
            let SpfMechanism::Ip(network) = record.directives[0].mechanism else { panic!("{record:?}") };
            network.has(address.parse().unwrap())
        };
        assert!(has("v=spf1 ip4:192.0.2.0/24", "192.0.2.255") && !has("v=spf1 ip4:192.0.2.0/24", "192.0.3.0"));
        assert!(has("v=spf1 ip4:0.0.0.0/0", "1.2.3.4") && !has("v=spf1 ip4:0.0.0.0/0", "::1"));
        assert!(has("v=spf1 ip6:2001:db8::/32", "2001:db8:ffff::1") && !has("v=spf1 ip6:2001:db8::1", "2001:db8::2"));
    }

    proptest! {
        #[test]
        fn any_record_is_read(text in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = SpfRecord::parse(&[&b"v=spf1 "[..], &text].concat());
        }
    }
}
