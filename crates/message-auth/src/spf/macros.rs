//! Domains with macros in SPF records (RFC 7208 section 7).
//!
//! Promise: an expansion has at most 253 octets. Failure: a malformed macro makes the record invalid.

use std::fmt::Write as _;
use std::net::IpAddr;

use crate::dns::NAME_BYTES_MAX;

/// Why a record is not valid, a permanent error (section 4.6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpfSyntaxError(pub String);

/// Characters that may divide a value into parts.
const DELIMITERS: &[u8] = b".-+,/_=";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Letter {
    Sender,
    LocalPart,
    SenderDomain,
    Domain,
    Client,
    ClientName,
    Family,
    Helo,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Macro {
    letter: Letter,
    is_escaped: bool,
    /// Rightmost parts that are kept; `None`: all.
    parts: Option<usize>,
    is_reversed: bool,
    /// Delimiters of parts; empty: a dot.
    delimiters: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Macro(Macro),
}

/// A domain in a record, which may have macros.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainSpec<'r> {
    /// As written.
    pub text: &'r str,
    pieces: Vec<Piece>,
}

/// Values of the macros.
#[derive(Debug, Clone, Copy)]
pub struct MacroValues<'a> {
    /// Local part and domain of the sender.
    pub local: &'a str,
    pub sender_domain: &'a str,
    /// The domain whose record is evaluated.
    pub domain: &'a str,
    pub client: IpAddr,
    pub client_name: &'a str,
    pub helo: &'a str,
}

impl<'r> DomainSpec<'r> {
    pub(super) fn parse(text: &'r str) -> Result<DomainSpec<'r>, SpfSyntaxError> {
        let pieces = pieces(text)?;
        let is_domain = match pieces.last() {
            Some(Piece::Macro(_)) => true,
            Some(Piece::Text(end)) => ends_in_top_level(end),
            None => false,
        };
        let bad = || SpfSyntaxError("its domain is not valid".to_owned());
        is_domain.then_some(DomainSpec { text, pieces }).ok_or_else(bad)
    }

    /// Checks the text of an unknown modifier.
    pub(super) fn check_macros(text: &str) -> Result<(), SpfSyntaxError> {
        pieces(text).map(drop)
    }

    /// Whether the client's name is needed.
    pub fn needs_client_name(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Macro(one) if one.letter == Letter::ClientName))
    }

    /// Returns the domain; of a name that is too long, labels on the left are cut (section 7.3).
    pub fn expand(&self, values: &MacroValues<'_>) -> String {
        let mut name = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => name.push_str(text),
                Piece::Macro(one) => one.expand(values, &mut name),
            }
        }
        let mut name = name.strip_suffix('.').unwrap_or(&name);
        while name.len() > NAME_BYTES_MAX {
            let Some((_, rest)) = name.split_once('.') else { break };
            name = rest;
        }
        name.to_owned()
    }
}

/// Whether the text ends in a top-level domain, with a dot before it: one that is not all digits.
fn ends_in_top_level(text: &str) -> bool {
    let text = text.strip_suffix('.').unwrap_or(text);
    let Some((_, label)) = text.rsplit_once('.') else { return false };
    let bytes = label.as_bytes();
    let is_edge = |octet: Option<&u8>| octet.is_some_and(u8::is_ascii_alphanumeric);
    is_edge(bytes.first())
        && is_edge(bytes.last())
        && bytes.iter().all(|octet| octet.is_ascii_alphanumeric() || *octet == b'-')
        && bytes.iter().any(|octet| !octet.is_ascii_digit())
}

fn pieces(text: &str) -> Result<Vec<Piece>, SpfSyntaxError> {
    let bad = |what: String| SpfSyntaxError(format!("{what} is not valid"));
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if !c.is_ascii_graphic() {
            return Err(bad("its domain".to_owned()));
        }
        if c != '%' {
            literal.push(c);
            rest = &rest[1..];
            continue;
        }
        match rest.as_bytes().get(1) {
            Some(b'%') => literal.push('%'),
            Some(b'_') => literal.push(' '),
            Some(b'-') => literal.push_str("%20"),
            Some(b'{') => {
                let (inner, behind) = rest[2..].split_once('}').ok_or_else(|| bad("its last macro".to_owned()))?;
                if !literal.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut literal)));
                }
                let parsed = Macro::parse(inner).ok_or_else(|| bad(format!("the macro {{{inner}}}")))?;
                pieces.push(Piece::Macro(parsed));
                rest = behind;
                continue;
            }
            _ => return Err(bad("a macro".to_owned())),
        }
        rest = &rest[2..];
    }
    if !literal.is_empty() {
        pieces.push(Piece::Text(literal));
    }
    Ok(pieces)
}

impl Macro {
    fn parse(inner: &str) -> Option<Macro> {
        let first = inner.chars().next()?;
        let letter = match first.to_ascii_lowercase() {
            's' => Letter::Sender,
            'l' => Letter::LocalPart,
            'o' => Letter::SenderDomain,
            'd' => Letter::Domain,
            'i' => Letter::Client,
            'p' => Letter::ClientName,
            'v' => Letter::Family,
            'h' => Letter::Helo,
            _ => return None,
        };
        let rest = &inner[1..];
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (digits, rest) = rest.split_at(digits);
        let parts = match digits {
            "" => None,
            // A number beyond all parts keeps them all.
            digits => Some(digits.parse::<usize>().unwrap_or(usize::MAX)).filter(|parts| *parts > 0),
        };
        if parts.is_none() && !digits.is_empty() {
            return None;
        }
        let is_reversed = rest.starts_with(['r', 'R']);
        let delimiters = if is_reversed { &rest[1..] } else { rest };
        if !delimiters.bytes().all(|octet| DELIMITERS.contains(&octet)) {
            return None;
        }
        let is_escaped = first.is_ascii_uppercase();
        Some(Macro { letter, is_escaped, parts, is_reversed, delimiters: delimiters.to_owned() })
    }

    fn expand(&self, values: &MacroValues<'_>, out: &mut String) {
        let value = match self.letter {
            Letter::Sender => format!("{}@{}", values.local, values.sender_domain),
            Letter::LocalPart => values.local.to_owned(),
            Letter::SenderDomain => values.sender_domain.to_owned(),
            Letter::Domain => values.domain.to_owned(),
            Letter::Client => dotted(values.client),
            Letter::ClientName => values.client_name.to_owned(),
            Letter::Family => if values.client.is_ipv4() { "in-addr" } else { "ip6" }.to_owned(),
            Letter::Helo => values.helo.to_owned(),
        };
        let is_delimiter = |c: char| if self.delimiters.is_empty() { c == '.' } else { self.delimiters.contains(c) };
        let mut parts: Vec<&str> = value.split(is_delimiter).collect();
        if self.is_reversed {
            parts.reverse();
        }
        let first = parts.len().saturating_sub(self.parts.unwrap_or(usize::MAX));
        let value = parts[first..].join(".");
        if self.is_escaped { escape(&value, out) } else { out.push_str(&value) }
    }
}

/// The address as in macros: of IPv6, its half-octets.
fn dotted(client: IpAddr) -> String {
    match client {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => {
            let halves = v6.octets().into_iter().flat_map(|octet| [octet >> 4, octet & 15]);
            halves.map(|half| format!("{half:x}")).collect::<Vec<_>>().join(".")
        }
    }
}

/// Escapes all but unreserved characters (RFC 3986 section 2.3).
fn escape(value: &str, out: &mut String) {
    for octet in value.bytes() {
        if octet.is_ascii_alphanumeric() || b"-._~".contains(&octet) {
            out.push(char::from(octet));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{octet:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> String {
        let spec = DomainSpec { text, pieces: pieces(text).unwrap() };
        spec.expand(&MacroValues {
            local: "strong-bad",
            sender_domain: "email.example.com",
            domain: "email.example.com",
            client: "192.0.2.3".parse().unwrap(),
            client_name: "mx.example.org",
            helo: "mx.example.com",
        })
    }

    /// Section 7.4.
    #[test]
    fn examples_of_the_rfc() {
        for (text, wanted) in [
            ("%{s}", "strong-bad@email.example.com"),
            ("%{d4}", "email.example.com"),
            ("%{d2}", "example.com"),
            ("%{dr}", "com.example.email"),
            ("%{d2r}", "example.email"),
            ("%{l-}", "strong.bad"),
            ("%{lr-}", "bad.strong"),
            ("%{l1r-}", "strong"),
            ("%{ir}.%{v}._spf.%{d2}", "3.2.0.192.in-addr._spf.example.com"),
            ("a%%b", "a%b"),
        ] {
            assert_eq!(expanded(text), wanted, "{text}");
        }
        let long = format!("{}.%{{d}}", "a.".repeat(200));
        assert!(expanded(&long).len() <= NAME_BYTES_MAX && expanded(&long).ends_with(".example.com"));
        for bad in ["%", "%x", "%{x}", "%{d0}", "%{d", "%{d!}"] {
            assert!(DomainSpec::parse(bad).unwrap_err().0.ends_with("is not valid"), "{bad}");
        }
    }
}
