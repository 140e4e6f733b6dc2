//! SPF records (RFC 7208 sections 4.5, 5, 6 and 12).

use std::net::{Ipv4Addr, Ipv6Addr};

use super::macros::{DomainSpec, SyntaxError};
use crate::method::MethodResult;

/// Longest record; real ones stay below 2 KiB. A longer one would only cost time.
const RECORD_BYTES_MAX: usize = 16 * 1024;
const VERSION: &[u8] = b"v=spf1";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mechanism {
    All,
    Include(DomainSpec),
    A(Option<DomainSpec>, PrefixLengths),
    Mx(Option<DomainSpec>, PrefixLengths),
    Ptr(Option<DomainSpec>),
    Ip4(Ipv4Addr, u8),
    Ip6(Ipv6Addr, u8),
    Exists(DomainSpec),
}

/// Lengths of the prefixes that must be equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PrefixLengths {
    pub v4: u8,
    pub v6: u8,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Directive {
    /// Result if the mechanism matches.
    pub result: MethodResult,
    pub mechanism: Mechanism,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub directives: Vec<Directive>,
    pub redirect: Option<DomainSpec>,
}

/// Whether a TXT record is an SPF record.
pub(super) fn is_spf(text: &[u8]) -> bool {
    let is_version = text.len() >= VERSION.len() && text[..VERSION.len()].eq_ignore_ascii_case(VERSION);
    is_version && matches!(text.get(VERSION.len()), None | Some(b' '))
}

impl Record {
    pub(super) fn parse(text: &[u8]) -> Result<Record, SyntaxError> {
        if text.len() > RECORD_BYTES_MAX || !text.is_ascii() {
            return Err(SyntaxError);
        }
        let text = std::str::from_utf8(text).map_err(|_| SyntaxError)?;
        let mut record = Record::default();
        let mut has_explanation = false;
        let terms = text.get(VERSION.len()..).ok_or(SyntaxError)?;
        for term in terms.split(' ').filter(|term| !term.is_empty()) {
            let name_end = term.find(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c)).unwrap_or(term.len());
            let (name, rest) = term.split_at(name_end);
            let Some(value) = rest.strip_prefix('=') else {
                record.directives.push(directive(term)?);
                continue;
            };
            if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
                return Err(SyntaxError);
            }
            match name.to_ascii_lowercase().as_str() {
                "redirect" if record.redirect.is_some() => return Err(SyntaxError),
                "redirect" => record.redirect = Some(DomainSpec::parse(value)?),
                "exp" if std::mem::replace(&mut has_explanation, true) => return Err(SyntaxError),
                // The explanation is never looked up: SPF alone refuses no mail.
                "exp" => drop(DomainSpec::parse(value)?),
                _ => DomainSpec::check_macros(value)?,
            }
        }
        Ok(record)
    }
}

fn directive(term: &str) -> Result<Directive, SyntaxError> {
    let (result, term) = match term.as_bytes().first() {
        Some(b'+') => (MethodResult::Pass, &term[1..]),
        Some(b'-') => (MethodResult::Fail, &term[1..]),
        Some(b'~') => (MethodResult::SoftFail, &term[1..]),
        Some(b'?') => (MethodResult::Neutral, &term[1..]),
        _ => (MethodResult::Pass, term),
    };
    let end = term.find([':', '/']).unwrap_or(term.len());
    let (name, rest) = term.split_at(end);
    let mechanism = match name.to_ascii_lowercase().as_str() {
        "all" if rest.is_empty() => Mechanism::All,
        "include" => Mechanism::Include(argument(rest)?),
        "exists" => Mechanism::Exists(argument(rest)?),
        "ptr" if rest.is_empty() => Mechanism::Ptr(None),
        "ptr" => Mechanism::Ptr(Some(argument(rest)?)),
        "a" => {
            let (domain, lengths) = domain_and_lengths(rest)?;
            Mechanism::A(domain, lengths)
        }
        "mx" => {
            let (domain, lengths) = domain_and_lengths(rest)?;
            Mechanism::Mx(domain, lengths)
        }
        "ip4" => {
            let (address, length) = network(rest, 32)?;
            Mechanism::Ip4(address.parse().map_err(|_| SyntaxError)?, length)
        }
        "ip6" => {
            let (address, length) = network(rest, 128)?;
            Mechanism::Ip6(address.parse().map_err(|_| SyntaxError)?, length)
        }
        _ => return Err(SyntaxError),
    };
    Ok(Directive { result, mechanism })
}

fn argument(rest: &str) -> Result<DomainSpec, SyntaxError> {
    DomainSpec::parse(rest.strip_prefix(':').ok_or(SyntaxError)?)
}

/// Parses `:domain/24//64`, of which each part is optional.
fn domain_and_lengths(rest: &str) -> Result<(Option<DomainSpec>, PrefixLengths), SyntaxError> {
    let mut lengths = PrefixLengths { v4: 32, v6: 128 };
    let mut rest = rest;
    if let Some((before, digits)) = rest.rsplit_once("//").filter(|(_, digits)| is_number(digits)) {
        lengths.v6 = length(digits, 128)?;
        rest = before;
    }
    if let Some((before, digits)) = rest.rsplit_once('/').filter(|(_, digits)| is_number(digits)) {
        lengths.v4 = length(digits, 32)?;
        rest = before;
    }
    let domain = if rest.is_empty() { None } else { Some(argument(rest)?) };
    Ok((domain, lengths))
}

fn network(rest: &str, bits: u8) -> Result<(&str, u8), SyntaxError> {
    let rest = rest.strip_prefix(':').ok_or(SyntaxError)?;
    match rest.split_once('/') {
        Some((address, digits)) => Ok((address, length(digits, bits)?)),
        None => Ok((rest, bits)),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|octet| octet.is_ascii_digit())
}

fn length(digits: &str, bits: u8) -> Result<u8, SyntaxError> {
    let has_zero = digits.len() > 1 && digits.starts_with('0');
    let number = if is_number(digits) && !has_zero { digits.parse::<u8>().ok() } else { None };
    number.filter(|number| *number <= bits).ok_or(SyntaxError)
}
