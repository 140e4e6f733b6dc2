//! Walks through an SPF record and all records that it includes, for one client.
//!
//! Unlike a receiver it does not stop at the first match: the limits hold for any client, so all terms are counted.
//! Promise: it ends for any records; beyond [`WALK_LOOKUPS_MAX`] look-ups it follows no more.

use std::net::IpAddr;

use stentor_mail::domain::is_at_or_below;
use stentor_message_auth::MethodResult;
use stentor_message_auth::spf::{
    DomainSpec, HostTerm, MX_HOSTS_MAX, MacroValues, SpfDirective, SpfMechanism, SpfRecord, SpfSyntaxError, is_spf,
};

use crate::lookups::{Lookup, Lookups, Missing, plain};

/// Look-ups after which no more records are followed; a valid record has at most ten.
const WALK_LOOKUPS_MAX: usize = 30;
/// A network at least as large permits a good part of the Internet.
const WIDE_V4: u8 = 7;
const WIDE_V6: u8 = 15;

/// Who sends.
#[derive(Debug, Clone, Copy)]
pub struct Sender<'a> {
    pub client: IpAddr,
    pub helo: &'a str,
    pub domain: &'a str,
}

/// A mistake in the records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpfProblem {
    Several {
        domain: String,
    },
    Syntax {
        domain: String,
        why: String,
    },
    /// An included or redirected domain has no record.
    NoRecord {
        domain: String,
        term: String,
    },
    Loop {
        domain: String,
    },
    ManyMx {
        domain: String,
    },
    Ptr {
        domain: String,
        term: String,
    },
    PassAll {
        domain: String,
        term: String,
    },
}

/// What the walk found.
#[derive(Debug, Default)]
pub struct Walk {
    pub problems: Vec<SpfProblem>,
    /// Terms that need the DNS.
    pub lookups: usize,
    /// Names of such terms that have no records.
    pub voids: Vec<String>,
}

impl Walk {
    /// Whether receivers report an error for the record, at least for some clients.
    pub fn is_broken(&self) -> bool {
        self.problems.iter().any(|problem| !matches!(problem, SpfProblem::Ptr { .. } | SpfProblem::PassAll { .. }))
    }
}

/// The SPF records of a domain, as published.
pub fn records<'a>(lookups: &'a Lookups, domain: &str) -> Lookup<Vec<&'a [u8]>> {
    Ok(lookups.texts(domain)?.iter().map(Vec::as_slice).filter(|text| is_spf(text)).collect())
}

/// Walks through the record of a domain that has one. Returns the first match for the client.
pub fn walk(lookups: &Lookups, sender: Sender<'_>) -> Lookup<WalkEnd> {
    let mut walker = Walker { lookups, sender, walk: Walk::default(), path: Vec::new() };
    let result = walker.visit(&plain(sender.domain), "")?;
    Ok(WalkEnd { walk: walker.walk, result: result.unwrap_or(MethodResult::Neutral) })
}

/// Result of a walk.
#[derive(Debug)]
pub struct WalkEnd {
    pub walk: Walk,
    pub result: MethodResult,
}

struct Walker<'a> {
    lookups: &'a Lookups,
    sender: Sender<'a>,
    walk: Walk,
    /// Domains whose records are being visited.
    path: Vec<String>,
}

impl Walker<'_> {
    fn problem(&mut self, problem: SpfProblem) {
        if !self.walk.problems.contains(&problem) {
            self.walk.problems.push(problem);
        }
    }

    /// Visits a domain's record, which `term` names. Returns the first match.
    fn visit(&mut self, domain: &str, term: &str) -> Lookup<Option<MethodResult>> {
        if self.path.iter().any(|other| other == domain) {
            self.problem(SpfProblem::Loop { domain: domain.to_owned() });
            return Ok(None);
        }
        let records = records(self.lookups, domain)?;
        let text = match records.as_slice() {
            [text] => *text,
            [] => {
                self.problem(SpfProblem::NoRecord { domain: domain.to_owned(), term: term.to_owned() });
                return Ok(None);
            }
            _ => {
                self.problem(SpfProblem::Several { domain: domain.to_owned() });
                return Ok(None);
            }
        };
        let record = match SpfRecord::parse(text) {
            Ok(record) => record,
            Err(SpfSyntaxError(why)) => {
                self.problem(SpfProblem::Syntax { domain: domain.to_owned(), why });
                return Ok(None);
            }
        };
        self.path.push(domain.to_owned());
        let result = self.terms(&record, domain);
        self.path.pop();
        result
    }

    /// Visits all terms, so that their questions are asked together. A failure ends the walk, but only after them.
    fn terms(&mut self, record: &SpfRecord<'_>, domain: &str) -> Lookup<Option<MethodResult>> {
        let (mut result, mut missing) = (None, None);
        for term in &record.directives {
            match self.matches(term, domain) {
                Ok(true) => result = result.or(Some(term.result)),
                Ok(false) => {}
                Err(Missing::Pending) if missing.is_some() => {}
                Err(why) => missing = Some(why),
            }
        }
        let has_all = record.directives.iter().any(|term| term.mechanism == SpfMechanism::All);
        if let Some(redirect) = record.redirect.as_ref().filter(|_| !has_all) {
            self.walk.lookups += 1;
            if self.walk.lookups <= WALK_LOOKUPS_MAX {
                let target = self.expanded(redirect, domain);
                match self.visit(&target, &format!("redirect={}", redirect.text)) {
                    Ok(found) => result = result.or(found),
                    Err(why) => missing = Some(why),
                }
            } else {
                result = None;
            }
        }
        missing.map_or(Ok(result), Err)
    }

    fn matches(&mut self, term: &SpfDirective<'_>, domain: &str) -> Lookup<bool> {
        let client = self.sender.client;
        if term.mechanism.needs_lookup() {
            self.walk.lookups += 1;
            if self.walk.lookups > WALK_LOOKUPS_MAX {
                return Ok(false);
            }
        }
        let is_pass = term.result == MethodResult::Pass;
        match &term.mechanism {
            SpfMechanism::All => {
                if is_pass {
                    self.problem(SpfProblem::PassAll { domain: domain.to_owned(), term: term.text.to_owned() });
                }
                Ok(true)
            }
            SpfMechanism::Ip(network) => {
                let wide = if network.address.is_ipv4() { WIDE_V4 } else { WIDE_V6 };
                if is_pass && network.prefix_bits <= wide {
                    self.problem(SpfProblem::PassAll { domain: domain.to_owned(), term: term.text.to_owned() });
                }
                Ok(network.has(client))
            }
            SpfMechanism::Include(spec) => {
                let target = self.expanded(spec, domain);
                Ok(self.visit(&target, term.text)? == Some(MethodResult::Pass))
            }
            SpfMechanism::A(hosts) => {
                let target = self.target(hosts.domain.as_ref(), domain);
                let addresses = self.lookups.addresses(&target)?;
                self.count_void(&target, addresses.is_empty());
                Ok(hosts.has(addresses, client))
            }
            SpfMechanism::Mx(hosts) => {
                let target = self.target(hosts.domain.as_ref(), domain);
                self.matches_mx(&target, hosts)
            }
            SpfMechanism::Ptr(spec) => {
                self.problem(SpfProblem::Ptr { domain: domain.to_owned(), term: term.text.to_owned() });
                let target = self.target(spec.as_ref(), domain);
                let names = self.lookups.names(client)?;
                self.count_void(&client.to_string(), names.is_empty());
                Ok(names.iter().any(|name| is_at_or_below(&plain(name), &target)))
            }
            SpfMechanism::Exists(spec) => {
                let target = self.expanded(spec, domain);
                let addresses = self.lookups.addresses(&target)?;
                self.count_void(&target, addresses.is_empty());
                Ok(addresses.iter().any(IpAddr::is_ipv4))
            }
        }
    }

    fn matches_mx(&mut self, target: &str, hosts: &HostTerm<'_>) -> Lookup<bool> {
        let records = self.lookups.mx(target)?;
        self.count_void(target, records.is_empty());
        if records.len() > MX_HOSTS_MAX {
            self.problem(SpfProblem::ManyMx { domain: target.to_owned() });
            return Ok(false);
        }
        let named = records.iter().filter(|host| !host.is_empty());
        // All are asked before the first one decides.
        let answers: Vec<_> = named.map(|host| self.lookups.addresses(host)).collect();
        let mut is_match = false;
        for answer in answers {
            is_match |= hosts.has(answer?, self.sender.client);
        }
        Ok(is_match)
    }

    fn count_void(&mut self, name: &str, is_void: bool) {
        if is_void {
            self.walk.voids.push(name.to_owned());
        }
    }

    fn target(&self, spec: Option<&DomainSpec<'_>>, domain: &str) -> String {
        spec.map_or_else(|| domain.to_owned(), |spec| self.expanded(spec, domain))
    }

    fn expanded(&self, spec: &DomainSpec<'_>, domain: &str) -> String {
        let Sender { client, helo, domain: sender_domain } = self.sender;
        // `p` is deprecated; no receiver needs a name for it.
        let values = MacroValues { local: "postmaster", sender_domain, domain, client, client_name: "unknown", helo };
        plain(&spec.expand(&values))
    }
}
