//! SPF: whether a client may send mail for a domain (RFC 7208).
//!
//! [`check_host`] evaluates the records with the answers known so far. Promise: it ends for any records: at most
//! [`LOOKUPS_MAX`] terms that need the DNS, [`VOIDS_MAX`] of them without records, ten hosts of an MX term and ten
//! names of a PTR term.
//!
//! Failure: more than that, or a record with syntax errors, is `permerror`; a DNS failure is `temperror`.

mod macros;
mod record;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use self::macros::{DomainSpec, MacroValues, SyntaxError};
use self::record::{Mechanism, PrefixLengths, Record};
use crate::dns::{Inquiry, Pending, RecordAnswer, RecordKind, is_domain};
use crate::method::MethodResult;
use crate::reverse::{address_kind, spf_names};

/// Maximum terms that need the DNS, in all records together (section 4.6.4).
const LOOKUPS_MAX: usize = 10;
/// Maximum such terms whose name has no records.
const VOIDS_MAX: usize = 2;
/// Maximum hosts of one MX term.
const MX_HOSTS_MAX: usize = 10;

/// Who sends mail.
#[derive(Debug, Clone, Copy)]
pub struct SpfRequest<'a> {
    /// Canonical: no IPv4-mapped address.
    pub client: IpAddr,
    /// Name in HELO or EHLO.
    pub helo: &'a str,
    /// Local part of the sender; empty: `postmaster`.
    pub local: &'a str,
    /// Domain of the sender.
    pub domain: &'a str,
}

/// Why the evaluation stops before a term matches.
enum Stop {
    Pending,
    TempError,
    PermError,
}

impl From<Pending> for Stop {
    fn from(_: Pending) -> Stop {
        Stop::Pending
    }
}

impl From<SyntaxError> for Stop {
    fn from(_: SyntaxError) -> Stop {
        Stop::PermError
    }
}

struct Evaluation<'a> {
    inquiry: &'a Inquiry<'a>,
    request: SpfRequest<'a>,
    lookups: usize,
    voids: usize,
}

/// Evaluates the records of the request's domain.
///
/// # Errors
/// More answers are needed.
pub fn check_host(inquiry: &Inquiry<'_>, request: SpfRequest<'_>) -> Result<MethodResult, Pending> {
    if !is_domain(request.domain) {
        return Ok(MethodResult::None);
    }
    let mut evaluation = Evaluation { inquiry, request, lookups: 0, voids: 0 };
    match evaluation.domain(request.domain) {
        Ok(result) => Ok(result),
        Err(Stop::Pending) => Err(Pending),
        Err(Stop::TempError) => Ok(MethodResult::TempError),
        Err(Stop::PermError) => Ok(MethodResult::PermError),
    }
}

impl<'a> Evaluation<'a> {
    /// Evaluates one domain; `None` if it has no record.
    fn domain(&mut self, domain: &str) -> Result<MethodResult, Stop> {
        let answer = self.inquiry.ask(domain, RecordKind::Txt)?;
        if *answer == RecordAnswer::Failed {
            return Err(Stop::TempError);
        }
        let mut records = answer.texts().iter().filter(|text| record::is_spf(text));
        let Some(text) = records.next() else { return Ok(MethodResult::None) };
        if records.next().is_some() {
            return Err(Stop::PermError);
        }
        let record = Record::parse(text)?;
        for directive in &record.directives {
            if self.matches(&directive.mechanism, domain)? {
                return Ok(directive.result);
            }
        }
        let Some(redirect) = &record.redirect else { return Ok(MethodResult::Neutral) };
        self.count_lookup()?;
        let target = self.expand(Some(redirect), domain)?;
        match self.domain(&target)? {
            MethodResult::None => Err(Stop::PermError),
            result => Ok(result),
        }
    }

    fn matches(&mut self, mechanism: &Mechanism, domain: &str) -> Result<bool, Stop> {
        if !matches!(mechanism, Mechanism::All | Mechanism::Ip4(..) | Mechanism::Ip6(..)) {
            self.count_lookup()?;
        }
        let client = self.request.client;
        match mechanism {
            Mechanism::All => Ok(true),
            Mechanism::Ip4(network, length) => Ok(is_within(client, (*network).into(), *length)),
            Mechanism::Ip6(network, length) => Ok(is_within(client, (*network).into(), *length)),
            Mechanism::Include(spec) => {
                let target = self.expand(Some(spec), domain)?;
                match self.domain(&target)? {
                    MethodResult::None => Err(Stop::PermError),
                    result => Ok(result == MethodResult::Pass),
                }
            }
            Mechanism::A(spec, lengths) => {
                let target = self.expand(spec.as_ref(), domain)?;
                let answer = self.ask(&target, address_kind(client))?;
                Ok(self.has_address(answer, *lengths))
            }
            Mechanism::Mx(spec, lengths) => {
                let target = self.expand(spec.as_ref(), domain)?;
                self.matches_mx(&target, *lengths)
            }
            Mechanism::Ptr(spec) => {
                let target = self.expand(spec.as_ref(), domain)?.to_ascii_lowercase();
                let names = spf_names(self.inquiry, client)?;
                Ok(names.iter().any(|name| is_at_or_below(&name.to_ascii_lowercase(), &target)))
            }
            Mechanism::Exists(spec) => {
                let target = self.expand(Some(spec), domain)?;
                Ok(!self.ask(&target, RecordKind::A)?.addresses().is_empty())
            }
        }
    }

    fn matches_mx(&mut self, target: &str, lengths: PrefixLengths) -> Result<bool, Stop> {
        let hosts = self.ask(target, RecordKind::Mx)?.hosts();
        if hosts.len() > MX_HOSTS_MAX {
            return Err(Stop::PermError);
        }
        // All hosts are looked up at the same time.
        let kind = address_kind(self.request.client);
        let answers: Vec<_> = hosts.iter().map(|host| self.inquiry.ask(host, kind)).collect();
        for answer in answers {
            let answer = answer?;
            if *answer == RecordAnswer::Failed {
                return Err(Stop::TempError);
            }
            if self.has_address(answer, lengths) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Asks the question of a term.
    fn ask(&mut self, name: &str, kind: RecordKind) -> Result<&'a RecordAnswer, Stop> {
        match self.inquiry.ask(name, kind)? {
            RecordAnswer::Failed => Err(Stop::TempError),
            RecordAnswer::Empty if self.voids == VOIDS_MAX => Err(Stop::PermError),
            answer => {
                self.voids += usize::from(*answer == RecordAnswer::Empty);
                Ok(answer)
            }
        }
    }

    fn has_address(&self, answer: &RecordAnswer, lengths: PrefixLengths) -> bool {
        let client = self.request.client;
        let length = if client.is_ipv4() { lengths.v4 } else { lengths.v6 };
        answer.addresses().iter().any(|address| is_within(client, *address, length))
    }

    fn count_lookup(&mut self) -> Result<(), Stop> {
        self.lookups += 1;
        if self.lookups > LOOKUPS_MAX { Err(Stop::PermError) } else { Ok(()) }
    }

    /// Returns the domain of a term; without one, the domain itself.
    fn expand(&self, spec: Option<&DomainSpec>, domain: &str) -> Result<String, Stop> {
        let Some(spec) = spec else { return Ok(domain.to_owned()) };
        let name = if spec.needs_client_name() { self.client_name(domain)? } else { String::new() };
        let SpfRequest { client, helo, local, domain: sender_domain } = self.request;
        let local = if local.is_empty() { "postmaster" } else { local };
        Ok(spec.expand(&MacroValues { local, sender_domain, domain, client, client_name: &name, helo }))
    }

    /// The client's name for macros: the domain itself, one below it, or any other.
    fn client_name(&self, domain: &str) -> Result<String, Stop> {
        let names = spf_names(self.inquiry, self.request.client)?;
        let domain = domain.to_ascii_lowercase();
        let same = names.iter().find(|name| name.eq_ignore_ascii_case(&domain));
        let below = || names.iter().find(|name| is_at_or_below(&name.to_ascii_lowercase(), &domain));
        let name = same.or_else(below).or_else(|| names.first());
        Ok(name.map_or_else(|| "unknown".to_owned(), ToString::to_string))
    }
}

/// Whether a name is a domain or below it; both in lower case.
pub(crate) fn is_at_or_below(name: &str, domain: &str) -> bool {
    name == domain || name.strip_suffix(domain).is_some_and(|before| before.ends_with('.'))
}

/// Whether the first bits of two addresses of one family are the same.
fn is_within(client: IpAddr, network: IpAddr, length: u8) -> bool {
    match (client, network) {
        (IpAddr::V4(client), IpAddr::V4(network)) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            (client.to_bits() ^ network.to_bits()) & mask == 0
        }
        (IpAddr::V6(client), IpAddr::V6(network)) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            (client.to_bits() ^ network.to_bits()) & mask == 0
        }
        _ => false,
    }
}
