//! Walks through an SPF record and all records that it includes, for one client.
//!
//! Unlike a receiver it does not stop at the first match: the limits hold for any client, so all terms are counted.
//! Promise: it ends for any records; beyond [`WALK_LOOKUPS_MAX`] look-ups it follows no more.

use std::net::IpAddr;

use super::macros::{MacroValues, expand};
use super::record::{HostTerm, Qualifier, Record, SpfMechanism, Term, is_spf};
use super::syntax::SyntaxError;
use crate::lookups::{Lookup, Lookups, Missing, plain};

/// Look-ups after which no more records are followed; a valid record has at most ten.
const WALK_LOOKUPS_MAX: usize = 30;
/// Maximum hosts of an `mx` term (RFC 7208 section 4.6.4).
pub const MX_HOSTS_MAX: usize = 10;
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
    Ok(WalkEnd { walk: walker.walk, result: result.unwrap_or(Qualifier::Neutral) })
}

/// Result of a walk.
#[derive(Debug)]
pub struct WalkEnd {
    pub walk: Walk,
    pub result: Qualifier,
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
    fn visit(&mut self, domain: &str, term: &str) -> Lookup<Option<Qualifier>> {
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
        let record = match Record::parse(text) {
            Ok(record) => record,
            Err(SyntaxError(why)) => {
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
    fn terms(&mut self, record: &Record, domain: &str) -> Lookup<Option<Qualifier>> {
        let (mut result, mut missing) = (None, None);
        for term in &record.terms {
            match self.matches(term, domain) {
                Ok(true) => result = result.or(Some(term.qualifier)),
                Ok(false) => {}
                Err(Missing::Pending) if missing.is_some() => {}
                Err(why) => missing = Some(why),
            }
        }
        let has_all = record.terms.iter().any(|term| term.mechanism == SpfMechanism::All);
        if let Some(redirect) = record.redirect.as_ref().filter(|_| !has_all) {
            self.walk.lookups += 1;
            let target = self.expanded(redirect, domain).filter(|_| self.walk.lookups <= WALK_LOOKUPS_MAX);
            match target {
                Some(target) => match self.visit(&target, &format!("redirect={redirect}")) {
                    Ok(found) => result = result.or(found),
                    Err(why) => missing = Some(why),
                },
                None => result = None,
            }
        }
        missing.map_or(Ok(result), Err)
    }

    fn matches(&mut self, term: &Term, domain: &str) -> Lookup<bool> {
        let client = self.sender.client;
        if !matches!(term.mechanism, SpfMechanism::All | SpfMechanism::Ip(_)) {
            self.walk.lookups += 1;
            if self.walk.lookups > WALK_LOOKUPS_MAX {
                return Ok(false);
            }
        }
        let is_pass = term.qualifier == Qualifier::Pass;
        match &term.mechanism {
            SpfMechanism::All => {
                if is_pass {
                    self.problem(SpfProblem::PassAll { domain: domain.to_owned(), term: term.text.clone() });
                }
                Ok(true)
            }
            SpfMechanism::Ip(network) => {
                let wide = if network.address.is_ipv4() { WIDE_V4 } else { WIDE_V6 };
                if is_pass && network.length <= wide {
                    self.problem(SpfProblem::PassAll { domain: domain.to_owned(), term: term.text.clone() });
                }
                Ok(network.has(client))
            }
            SpfMechanism::Include(spec) => {
                let Some(target) = self.expanded(spec, domain) else { return Ok(false) };
                Ok(self.visit(&target, &term.text)? == Some(Qualifier::Pass))
            }
            SpfMechanism::A(hosts) => {
                let Some(target) = self.target(hosts, domain) else { return Ok(false) };
                let addresses = self.lookups.addresses(&target)?;
                self.count_void(&target, addresses.is_empty());
                Ok(hosts.has(addresses, client))
            }
            SpfMechanism::Mx(hosts) => {
                let Some(target) = self.target(hosts, domain) else { return Ok(false) };
                self.matches_mx(&target, hosts)
            }
            SpfMechanism::Ptr(_) => {
                self.problem(SpfProblem::Ptr { domain: domain.to_owned(), term: term.text.clone() });
                let target = match &term.mechanism {
                    SpfMechanism::Ptr(Some(spec)) => self.expanded(spec, domain).unwrap_or_default(),
                    _ => domain.to_owned(),
                };
                let names = self.lookups.names(client)?;
                self.count_void(&client.to_string(), names.is_empty());
                let names = names.iter().map(|name| plain(name));
                Ok(names.into_iter().any(|name| name == target || name.ends_with(&format!(".{target}"))))
            }
            SpfMechanism::Exists(spec) => {
                let Some(target) = self.expanded(spec, domain) else { return Ok(false) };
                let addresses = self.lookups.addresses(&target)?;
                self.count_void(&target, addresses.is_empty());
                Ok(addresses.iter().any(IpAddr::is_ipv4))
            }
        }
    }

    fn matches_mx(&mut self, target: &str, hosts: &HostTerm) -> Lookup<bool> {
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

    fn target(&self, hosts: &HostTerm, domain: &str) -> Option<String> {
        match &hosts.domain {
            Some(spec) => self.expanded(spec, domain),
            None => Some(domain.to_owned()),
        }
    }

    /// The domain of a term; its syntax was checked with the record's.
    fn expanded(&self, spec: &str, domain: &str) -> Option<String> {
        let Sender { client, helo, domain: sender_domain } = self.sender;
        let values = MacroValues { local: "postmaster", sender_domain, domain, client, helo };
        expand(spec, &values).ok().map(|name| plain(&name))
    }
}
