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

use stentor_mail::domain::is_at_or_below;

pub use self::macros::{DomainSpec, MacroValues, SpfSyntaxError};
pub use self::record::{HostTerm, SpfDirective, SpfMechanism, SpfNetwork, SpfRecord, is_spf};
use crate::dns::{Inquiry, Pending, RecordAnswer, RecordKind, is_domain};
use crate::method::MethodResult;
use crate::reverse::{address_kind, spf_names};

/// Maximum terms that need the DNS, in all records together (section 4.6.4).
pub const LOOKUPS_MAX: usize = 10;
/// Maximum such terms whose name has no records.
pub const VOIDS_MAX: usize = 2;
/// Maximum hosts of one MX term.
pub const MX_HOSTS_MAX: usize = 10;

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

impl From<SpfSyntaxError> for Stop {
    fn from(_: SpfSyntaxError) -> Stop {
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
        let mut records = answer.texts().iter().filter(|text| is_spf(text));
        let Some(text) = records.next() else { return Ok(MethodResult::None) };
        if records.next().is_some() {
            return Err(Stop::PermError);
        }
        let record = SpfRecord::parse(text)?;
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

    fn matches(&mut self, mechanism: &SpfMechanism<'_>, domain: &str) -> Result<bool, Stop> {
        if mechanism.needs_lookup() {
            self.count_lookup()?;
        }
        let client = self.request.client;
        match mechanism {
            SpfMechanism::All => Ok(true),
            SpfMechanism::Ip(network) => Ok(network.has(client)),
            SpfMechanism::Include(spec) => {
                let target = self.expand(Some(spec), domain)?;
                match self.domain(&target)? {
                    MethodResult::None => Err(Stop::PermError),
                    result => Ok(result == MethodResult::Pass),
                }
            }
            SpfMechanism::A(term) => {
                let target = self.expand(term.domain.as_ref(), domain)?;
                Ok(term.has(self.ask(&target, address_kind(client))?.addresses(), client))
            }
            SpfMechanism::Mx(term) => {
                let target = self.expand(term.domain.as_ref(), domain)?;
                self.matches_mx(&target, term)
            }
            SpfMechanism::Ptr(spec) => {
                let target = self.expand(spec.as_ref(), domain)?;
                let names = spf_names(self.inquiry, client)?;
                Ok(names.iter().any(|name| is_at_or_below(name, &target)))
            }
            SpfMechanism::Exists(spec) => {
                let target = self.expand(Some(spec), domain)?;
                Ok(!self.ask(&target, RecordKind::A)?.addresses().is_empty())
            }
        }
    }

    fn matches_mx(&mut self, target: &str, term: &HostTerm<'_>) -> Result<bool, Stop> {
        let hosts = self.ask(target, RecordKind::Mx)?.hosts();
        if hosts.len() > MX_HOSTS_MAX {
            return Err(Stop::PermError);
        }
        // All hosts are looked up at the same time.
        let client = self.request.client;
        let kind = address_kind(client);
        let answers: Vec<_> = hosts.iter().map(|host| self.inquiry.ask(host, kind)).collect();
        for answer in answers {
            let answer = answer?;
            if *answer == RecordAnswer::Failed {
                return Err(Stop::TempError);
            }
            if term.has(answer.addresses(), client) {
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

    fn count_lookup(&mut self) -> Result<(), Stop> {
        self.lookups += 1;
        if self.lookups > LOOKUPS_MAX { Err(Stop::PermError) } else { Ok(()) }
    }

    /// Returns the domain of a term; without one, the domain itself.
    fn expand(&self, spec: Option<&DomainSpec<'_>>, domain: &str) -> Result<String, Stop> {
        let Some(spec) = spec else { return Ok(domain.to_owned()) };
        let name = if spec.needs_client_name() { self.client_name(domain)? } else { String::new() };
        let SpfRequest { client, helo, local, domain: sender_domain } = self.request;
        let local = if local.is_empty() { "postmaster" } else { local };
        Ok(spec.expand(&MacroValues { local, sender_domain, domain, client, client_name: &name, helo }))
    }

    /// The client's name for macros: the domain itself, one below it, or any other.
    fn client_name(&self, domain: &str) -> Result<String, Stop> {
        let names = spf_names(self.inquiry, self.request.client)?;
        let same = names.iter().find(|name| name.eq_ignore_ascii_case(domain));
        let below = || names.iter().find(|name| is_at_or_below(name, domain));
        let name = same.or_else(below).or_else(|| names.first());
        Ok(name.map_or_else(|| "unknown".to_owned(), ToString::to_string))
    }
}
