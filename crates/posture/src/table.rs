//! The operator's policies: which one holds for a recipient's domain, a site, a list and a sender.
//!
//! A rule is for one of four keys. Two are about where mail goes, two about whose mail it is:
//!
//! | key | value | the most specific first |
//! |---|---|---|
//! | `domain` | of the recipient: `example.com`, or `.example.com` for all below | exact, then the longest suffix |
//! | `site` | suffix of the names of MX hosts, that host included, as in `[sites]` | of the first host with a rule, the longest suffix |
//! | `list` | name of a list | |
//! | `sender` | envelope sender: `ann@example.com`, `example.com`, `.example.com` | address, domain, longest suffix |
//!
//! What goes before what: where mail goes, a rule for the domain holds and else one for the site; whose mail it is, the list's and
//! the sender's are joined. Then both sides are joined ([`crate::Posture::join`]): a rule for a domain can lower what holds by
//! default, but not what a list or sender demands. The default holds where no rule about the domain or site does.

use hashbrown::HashMap;
use stentor_mail::address::{AddressError, normalise_domain};

use crate::names::HostPattern;
use crate::reason::{Held, Reason, Rule};
use crate::requirement::Requirement;

type Map<V> = HashMap<String, V, foldhash::fast::RandomState>;

/// A rule as it is written; exactly one of the keys is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleInput {
    pub domain: Option<String>,
    pub site: Option<String>,
    pub list: Option<String>,
    pub sender: Option<String>,
    pub requirement: Requirement,
}

/// Why a rule cannot be taken; `rule` is its place among all, from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error("exactly one of `domain`, `site`, `list` and `sender` belongs into a rule")]
    Keys { rule: usize },
    #[error("`{value}` is no {key}: {error}")]
    Value { rule: usize, key: &'static str, value: String, error: AddressError },
    #[error("there is a rule for {key} `{value}` already")]
    Twice { rule: usize, key: &'static str, value: String },
}

/// Whom and what a decision is about. All in the form of `stentor_mail::Address`: domains in lower case as A-labels.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// Of the recipients.
    pub domain: &'a str,
    /// The MX hosts, or those of a route, the most preferred first; empty: not known yet.
    pub hosts: &'a [&'a str],
    pub list: Option<&'a str>,
    /// Empty for the null sender.
    pub sender: &'a str,
}

/// Rules for names, exact and by suffix.
#[derive(Debug, Clone, Default, PartialEq)]
struct ByName {
    exact: Map<Requirement>,
    /// Without the dot before.
    below: Map<Requirement>,
}

impl ByName {
    fn insert(&mut self, pattern: HostPattern, requirement: Requirement) -> bool {
        match pattern {
            HostPattern::Exact(name) => self.exact.insert(name, requirement).is_none(),
            HostPattern::Below(suffix) => self.below.insert(suffix, requirement).is_none(),
        }
    }

    /// The rule for exactly this name, else that of the longest suffix, with the value as it is written.
    fn find(&self, name: &str) -> Option<(String, &Requirement)> {
        if let Some(requirement) = self.exact.get(name) {
            return Some((name.to_owned(), requirement));
        }
        if self.below.is_empty() {
            return None;
        }
        suffixes(name).skip(1).find_map(|s| self.below.get(s).map(|requirement| (format!(".{s}"), requirement)))
    }
}

/// `a.b.c`, `b.c`, `c`.
fn suffixes(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |name| name.split_once('.').map(|(_, rest)| rest))
}

/// All policies of a configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Policies {
    default: Requirement,
    domains: ByName,
    /// By suffix, which covers itself.
    sites: Map<Requirement>,
    lists: Map<Requirement>,
    addresses: Map<Requirement>,
    senders: ByName,
}

impl Policies {
    /// Only a default.
    pub fn new(default: Requirement) -> Policies {
        Policies {
            default,
            domains: ByName::default(),
            sites: Map::default(),
            lists: Map::default(),
            addresses: Map::default(),
            senders: ByName::default(),
        }
    }

    /// # Errors
    /// All rules that cannot be taken.
    pub fn with_rules(
        default: Requirement,
        rules: impl IntoIterator<Item = RuleInput>,
    ) -> Result<Policies, Vec<RuleError>> {
        let mut policies = Policies::new(default);
        let add = |(rule, input)| policies.add(rule, input).err();
        let errors: Vec<_> = rules.into_iter().enumerate().filter_map(add).collect();
        if errors.is_empty() { Ok(policies) } else { Err(errors) }
    }

    fn add(&mut self, rule: usize, input: RuleInput) -> Result<(), RuleError> {
        let RuleInput { domain, site, list, sender, requirement } = input;
        let (key, value) = match (domain, site, list, sender) {
            (Some(domain), None, None, None) => ("domain", domain),
            (None, Some(site), None, None) => ("site", site),
            (None, None, Some(list), None) => ("list", list),
            (None, None, None, Some(sender)) => ("sender", sender),
            _ => return Err(RuleError::Keys { rule }),
        };
        let bad = |error| RuleError::Value { rule, key, value: value.clone(), error };
        let is_new = match key {
            "domain" => self.domains.insert(HostPattern::parse(&value).map_err(bad)?, requirement),
            "site" => {
                let suffix = normalise_domain(value.strip_prefix('.').unwrap_or(&value)).map_err(bad)?;
                self.sites.insert(suffix, requirement).is_none()
            }
            "list" => self.lists.insert(value.clone(), requirement).is_none(),
            _ => match value.rsplit_once('@') {
                Some((local, domain)) if !local.is_empty() => {
                    let domain = normalise_domain(domain).map_err(bad)?;
                    self.addresses.insert(format!("{}@{domain}", local.to_ascii_lowercase()), requirement).is_none()
                }
                _ => self.senders.insert(HostPattern::parse(&value).map_err(bad)?, requirement),
            },
        };
        if is_new { Ok(()) } else { Err(RuleError::Twice { rule, key, value }) }
    }

    /// What holds for this mail, and why.
    pub fn find(&self, about: &Question<'_>) -> Held {
        let goes = self.domain_or_site(about).unwrap_or_else(|| reason(Rule::Default, &self.default));
        let list = about
            .list
            .and_then(|list| self.lists.get(list).map(|requirement| reason(Rule::List(list.to_owned()), requirement)));
        [list, self.sender(about.sender)]
            .into_iter()
            .flatten()
            .fold(goes.into(), |held: Held, more| held.join(more.into()))
    }

    /// Whether the answer can differ between lists or senders; if not, one answer holds for all mail to a domain.
    pub fn differs_by_mail(&self) -> bool {
        !(self.lists.is_empty()
            && self.addresses.is_empty()
            && self.senders.exact.is_empty()
            && self.senders.below.is_empty())
    }

    /// The strongest requirement of a list or sender that asks what domains publish: of mail that may go anywhere.
    pub fn published_by_mail(&self) -> Option<&Requirement> {
        let by_list = self.lists.values().chain(self.addresses.values());
        let all = by_list.chain(self.senders.exact.values()).chain(self.senders.below.values());
        all.filter(|requirement| requirement.strength().asks_dane()).max_by_key(|requirement| requirement.strength())
    }

    /// What holds by default.
    pub fn default_requirement(&self) -> &Requirement {
        &self.default
    }

    /// Every requirement that can hold: whether DANE or MTA-STS is asked for at all follows from it.
    pub fn requirements(&self) -> impl Iterator<Item = &Requirement> {
        std::iter::once(&self.default)
            .chain(self.domains.exact.values())
            .chain(self.domains.below.values())
            .chain(self.sites.values())
            .chain(self.lists.values())
            .chain(self.addresses.values())
            .chain(self.senders.exact.values())
            .chain(self.senders.below.values())
    }

    fn domain_or_site(&self, about: &Question<'_>) -> Option<Reason> {
        if let Some((value, requirement)) = self.domains.find(about.domain) {
            return Some(reason(Rule::Domain(value), requirement));
        }
        if self.sites.is_empty() {
            return None;
        }
        let of_host = |host: &&str| suffixes(host).find_map(|suffix| self.sites.get_key_value(suffix));
        let (suffix, requirement) = about.hosts.iter().find_map(of_host)?;
        Some(reason(Rule::Site(suffix.clone()), requirement))
    }

    fn sender(&self, sender: &str) -> Option<Reason> {
        let (_, domain) = sender.rsplit_once('@')?;
        if !self.addresses.is_empty()
            && let Some((address, requirement)) = self.addresses.get_key_value(&sender.to_ascii_lowercase())
        {
            return Some(reason(Rule::Sender(address.clone()), requirement));
        }
        let (value, requirement) = self.senders.find(domain)?;
        Some(reason(Rule::Sender(value), requirement))
    }
}

fn reason(rule: Rule, requirement: &Requirement) -> Reason {
    Reason { rule, requirement: requirement.clone() }
}
