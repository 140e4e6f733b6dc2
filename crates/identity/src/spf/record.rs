//! SPF records (RFC 7208 sections 4.5, 5, 6 and 12).

use std::net::{IpAddr, Ipv4Addr};

use super::macros::{MacroValues, expand};
use super::syntax::SyntaxError;

/// Longest record examined; real ones are below 2 KiB.
const RECORD_BYTES_MAX: usize = 16 * 1024;
const VERSION: &[u8] = b"v=spf1";

/// Meaning of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Qualifier {
    Pass,
    Fail,
    SoftFail,
    Neutral,
}

impl Qualifier {
    pub fn name(self) -> &'static str {
        match self {
            Qualifier::Pass => "pass",
            Qualifier::Fail => "fail",
            Qualifier::SoftFail => "softfail",
            Qualifier::Neutral => "neutral",
        }
    }
}

/// A network of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    pub address: IpAddr,
    pub length: u8,
}

impl Network {
    pub fn has(self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.length)).unwrap_or(0);
                (own.to_bits() ^ other.to_bits()) & mask == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.length)).unwrap_or(0);
                (own.to_bits() ^ other.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}

/// Domain and prefix lengths of an `a` or `mx` term.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostTerm {
    /// `None`: the record's own domain.
    pub domain: Option<String>,
    pub v4: u8,
    pub v6: u8,
}

impl HostTerm {
    /// Whether one of the addresses is in one network with the client's.
    pub fn has(&self, addresses: &[IpAddr], client: IpAddr) -> bool {
        let length = if client.is_ipv4() { self.v4 } else { self.v6 };
        addresses.iter().any(|address| Network { address: *address, length }.has(client))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpfMechanism {
    All,
    Include(String),
    A(HostTerm),
    Mx(HostTerm),
    Ptr(Option<String>),
    Ip(Network),
    Exists(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    pub qualifier: Qualifier,
    pub mechanism: SpfMechanism,
    /// As written.
    pub text: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    pub terms: Vec<Term>,
    pub redirect: Option<String>,
}

/// Whether a TXT record is an SPF record.
pub fn is_spf(text: &[u8]) -> bool {
    let is_version = text.len() >= VERSION.len() && text[..VERSION.len()].eq_ignore_ascii_case(VERSION);
    is_version && matches!(text.get(VERSION.len()), None | Some(b' '))
}

impl Record {
    /// Parses a record that [`is_spf`].
    ///
    /// # Errors
    /// The first term that is not valid.
    pub fn parse(text: &[u8]) -> Result<Record, SyntaxError> {
        if text.len() > RECORD_BYTES_MAX {
            return Err(SyntaxError(format!("longer than {RECORD_BYTES_MAX} octets")));
        }
        let text = std::str::from_utf8(text).ok().filter(|text| text.is_ascii());
        let text = text.ok_or_else(|| SyntaxError("it is not ASCII".to_owned()))?;
        let (mut record, mut has_exp) = (Record::default(), false);
        for term in text.get(VERSION.len()..).unwrap_or_default().split(' ').filter(|term| !term.is_empty()) {
            let bad = |why: &str| SyntaxError(format!("{term}: {why}"));
            let name_end = term.find(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c)).unwrap_or(term.len());
            let (name, rest) = term.split_at(name_end);
            let Some(value) = rest.strip_prefix('=') else {
                record.terms.push(directive(term)?);
                continue;
            };
            match name.to_ascii_lowercase().as_str() {
                "" => return Err(bad("it has no name")),
                "redirect" if record.redirect.is_some() => return Err(bad("it is repeated")),
                "redirect" => record.redirect = Some(domain(value, term)?),
                "exp" if has_exp => return Err(bad("it is repeated")),
                "exp" => {
                    domain(value, term)?;
                    has_exp = true;
                }
                // Unknown modifiers are ignored (section 6).
                _ => {}
            }
        }
        Ok(record)
    }
}

fn directive(term: &str) -> Result<Term, SyntaxError> {
    let (qualifier, rest) = match term.as_bytes().first() {
        Some(b'+') => (Qualifier::Pass, &term[1..]),
        Some(b'-') => (Qualifier::Fail, &term[1..]),
        Some(b'~') => (Qualifier::SoftFail, &term[1..]),
        Some(b'?') => (Qualifier::Neutral, &term[1..]),
        _ => (Qualifier::Pass, term),
    };
    let bad = |why: &str| SyntaxError(format!("{term}: {why}"));
    let (name, value) = rest.split_at(rest.find([':', '/']).unwrap_or(rest.len()));
    let argument = || domain(value.strip_prefix(':').ok_or_else(|| bad("its domain is missing"))?, term);
    let mechanism = match name.to_ascii_lowercase().as_str() {
        "all" if value.is_empty() => SpfMechanism::All,
        "all" => return Err(bad("it takes no value")),
        "include" => SpfMechanism::Include(argument()?),
        "exists" => SpfMechanism::Exists(argument()?),
        "ptr" if value.is_empty() => SpfMechanism::Ptr(None),
        "ptr" => SpfMechanism::Ptr(Some(argument()?)),
        "a" => SpfMechanism::A(host_term(value, term)?),
        "mx" => SpfMechanism::Mx(host_term(value, term)?),
        "ip4" | "ip6" => {
            let network =
                network(value).filter(|network| network.address.is_ipv4() == name.eq_ignore_ascii_case("ip4"));
            SpfMechanism::Ip(network.ok_or_else(|| bad("its network is not valid"))?)
        }
        _ => return Err(bad("there is no such mechanism")),
    };
    Ok(Term { qualifier, mechanism, text: term.to_owned() })
}

/// A domain with macros, checked with sample values.
fn domain(text: &str, term: &str) -> Result<String, SyntaxError> {
    let sample = MacroValues {
        local: "local",
        sender_domain: "example.org",
        domain: "example.org",
        client: Ipv4Addr::LOCALHOST.into(),
        helo: "example.org",
    };
    let expanded = expand(text, &sample).map_err(|SyntaxError(why)| SyntaxError(format!("{term}: {why}")))?;
    let last = expanded.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    let is_top = last.bytes().any(|octet| octet.is_ascii_alphabetic());
    let is_name = is_top && !expanded.contains(['/', ':', ' ']) && expanded.contains('.');
    if is_name { Ok(text.to_owned()) } else { Err(SyntaxError(format!("{term}: its domain is not valid"))) }
}

/// Parses `:domain/24//64`, of which each part is optional.
fn host_term(value: &str, term: &str) -> Result<HostTerm, SyntaxError> {
    let bad = || SyntaxError(format!("{term}: its prefix length is not valid"));
    let (mut rest, mut found) = (value, HostTerm { domain: None, v4: 32, v6: 128 });
    if let Some((before, digits)) = rest.rsplit_once("//") {
        found.v6 = length(digits, 128).ok_or_else(bad)?;
        rest = before;
    }
    if let Some((before, digits)) = rest.rsplit_once('/').filter(|(_, digits)| !digits.contains('}')) {
        found.v4 = length(digits, 32).ok_or_else(bad)?;
        rest = before;
    }
    if let Some(name) = rest.strip_prefix(':') {
        found.domain = Some(domain(name, term)?);
    }
    Ok(found)
}

fn network(value: &str) -> Option<Network> {
    let value = value.strip_prefix(':')?;
    let (address, digits) = value.split_once('/').map_or((value, None), |(address, digits)| (address, Some(digits)));
    let address: IpAddr = address.parse().ok()?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let length = digits.map_or(Some(bits), |digits| length(digits, bits))?;
    Some(Network { address, length })
}

fn length(digits: &str, bits: u8) -> Option<u8> {
    let is_number = !digits.is_empty() && digits.bytes().all(|octet| octet.is_ascii_digit());
    let has_zero = digits.len() > 1 && digits.starts_with('0');
    digits.parse().ok().filter(|length| is_number && !has_zero && *length <= bits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error(text: &str) -> String {
        Record::parse(text.as_bytes()).map_or_else(|error| error.0, |record| format!("{record:?}"))
    }

    #[test]
    fn records_are_parsed() {
        let text = b"v=spf1 ip4:192.0.2.0/24 IP6:2001:db8::/32 a mx:mail.example/24//64 include:%{d2}.example ~all x=y";
        let record = Record::parse(text).unwrap();
        assert_eq!(record.terms.len(), 6);
        assert_eq!(
            record.terms[3].mechanism,
            SpfMechanism::Mx(HostTerm { domain: Some("mail.example".to_owned()), v4: 24, v6: 64 })
        );
        assert_eq!(record.terms[5].qualifier, Qualifier::SoftFail);
        assert!(is_spf(b"V=SPF1") && is_spf(b"v=spf1 a") && !is_spf(b"v=spf10 a") && !is_spf(b"v=spf"));
        assert_eq!(Record::parse(b"v=spf1 redirect=_spf.example.org").unwrap().redirect.unwrap(), "_spf.example.org");
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
            ("v=spf1 exists:%{x}.example", "is not valid"),
            ("v=spf1 \u{fc}", "it is not ASCII"),
        ] {
            assert!(error(text).contains(wanted), "{text}: {}", error(text));
        }
    }

    #[test]
    fn networks_have_their_addresses() {
        let has = |value, address: &str| network(value).unwrap().has(address.parse().unwrap());
        assert!(has(":192.0.2.0/24", "192.0.2.255") && !has(":192.0.2.0/24", "192.0.3.0"));
        assert!(has(":0.0.0.0/0", "1.2.3.4") && !has(":0.0.0.0/0", "::1"));
        assert!(has(":2001:db8::/32", "2001:db8:ffff::1") && !has(":2001:db8::1", "2001:db8::2"));
    }

    proptest! {
        #[test]
        fn any_record_is_taken(text in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = Record::parse(&[&b"v=spf1 "[..], &text].concat());
        }
    }
}
