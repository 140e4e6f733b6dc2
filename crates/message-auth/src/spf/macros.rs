//! Domains with macros in SPF records (RFC 7208 section 7).

use std::fmt::Write as _;
use std::net::IpAddr;

use crate::dns::NAME_BYTES_MAX;

/// A record with syntax errors, a permanent error (section 4.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SyntaxError;

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
pub(super) struct DomainSpec(Vec<Piece>);

/// Values of the macros.
pub(super) struct MacroValues<'a> {
    /// Local part and domain of the sender.
    pub local: &'a str,
    pub sender_domain: &'a str,
    /// The domain whose record is evaluated.
    pub domain: &'a str,
    pub client: IpAddr,
    pub client_name: &'a str,
    pub helo: &'a str,
}

impl DomainSpec {
    pub(super) fn parse(text: &str) -> Result<DomainSpec, SyntaxError> {
        let pieces = pieces(text)?;
        match pieces.last() {
            Some(Piece::Macro(_)) => Ok(DomainSpec(pieces)),
            Some(Piece::Text(end)) if ends_in_top_level(end) => Ok(DomainSpec(pieces)),
            _ => Err(SyntaxError),
        }
    }

    /// Checks the text of an unknown modifier.
    pub(super) fn check_macros(text: &str) -> Result<(), SyntaxError> {
        pieces(text).map(drop)
    }

    /// Whether the client's name is needed.
    pub(super) fn needs_client_name(&self) -> bool {
        self.0.iter().any(|piece| matches!(piece, Piece::Macro(one) if one.letter == Letter::ClientName))
    }

    /// Returns the domain; of a name that is too long, labels on the left are cut (section 7.3).
    pub(super) fn expand(&self, values: &MacroValues<'_>) -> String {
        let mut name = String::new();
        for piece in &self.0 {
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

fn pieces(text: &str) -> Result<Vec<Piece>, SyntaxError> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if !c.is_ascii_graphic() {
            return Err(SyntaxError);
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
                let (inner, behind) = rest[2..].split_once('}').ok_or(SyntaxError)?;
                if !literal.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut literal)));
                }
                pieces.push(Piece::Macro(Macro::parse(inner)?));
                rest = behind;
                continue;
            }
            _ => return Err(SyntaxError),
        }
        rest = &rest[2..];
    }
    if !literal.is_empty() {
        pieces.push(Piece::Text(literal));
    }
    Ok(pieces)
}

impl Macro {
    fn parse(inner: &str) -> Result<Macro, SyntaxError> {
        let first = inner.chars().next().ok_or(SyntaxError)?;
        let letter = match first.to_ascii_lowercase() {
            's' => Letter::Sender,
            'l' => Letter::LocalPart,
            'o' => Letter::SenderDomain,
            'd' => Letter::Domain,
            'i' => Letter::Client,
            'p' => Letter::ClientName,
            'v' => Letter::Family,
            'h' => Letter::Helo,
            _ => return Err(SyntaxError),
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
            return Err(SyntaxError);
        }
        let is_reversed = rest.starts_with(['r', 'R']);
        let delimiters = if is_reversed { &rest[1..] } else { rest };
        if !delimiters.bytes().all(|octet| DELIMITERS.contains(&octet)) {
            return Err(SyntaxError);
        }
        let is_escaped = first.is_ascii_uppercase();
        Ok(Macro { letter, is_escaped, parts, is_reversed, delimiters: delimiters.to_owned() })
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
