//! The operator's policies: finds those for a recipient's domain, a site, a list and a sender.
//!
//! A rule has one of four keys. Two are about the destination of mail, two about its origin:
//!
//! | key | value | order of precedence |
//! |---|---|---|
//! | `domain` | recipient domain: `example.com`, or `.example.com` for all below | exact, then the longest suffix |
//! | `site` | suffix of MX host names, including that host, as in `[sites]` | first host with a rule, longest suffix |
//! | `list` | name of a list | |
//! | `sender` | envelope sender: `ann@example.com`, `example.com`, `.example.com` | address, domain, longest suffix |
//!
//! For the destination, a rule for the domain applies, or else one for the site, or else the default. For the origin,
//! the rules of the list and of the sender are joined. Then both sides are joined ([`crate::Posture::join`]): a rule
//! for a domain can lower the default requirement, but not that of a list or sender.

use hashbrown::HashMap;
use stentor_mail::address::{AddressError, normalise_domain};

use crate::names::HostPattern;
use crate::reason::{AppliedRule, ReasonedPosture, RequirementSource};
use crate::requirement::{Posture, Requirement};

type Map<V> = HashMap<String, V, foldhash::fast::RandomState>;

/// A rule as configured; exactly one of the keys is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleInput {
    pub domain: Option<String>,
    pub site: Option<String>,
    pub list: Option<String>,
    pub sender: Option<String>,
    pub requirement: Requirement,
}

/// Why a rule is not valid; `rule` is its index, from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error("a rule needs exactly one of `domain`, `site`, `list` and `sender`")]
    Keys { rule: usize },
    #[error("`{value}` is not a valid {key}: {error}")]
    Value { rule: usize, key: &'static str, value: String, error: AddressError },
    #[error("there is already a rule for {key} `{value}`")]
    Twice { rule: usize, key: &'static str, value: String },
}

/// The mail that a decision is about. All in the form of `stentor_mail::Address`: domains in lower case as A-labels.
#[derive(Debug, Clone, Copy)]
pub struct PostureQuery<'a> {
    /// Domain of the recipients.
    pub domain: &'a str,
    /// The MX hosts, or those of a route, the most preferred first; empty: not known yet.
    pub hosts: &'a [&'a str],
    pub list: Option<&'a str>,
    /// Sender; empty for the null sender.
    pub sender: &'a str,
}

/// A rule that applies.
struct ApplicableRule<'a> {
    rule: fn(String) -> RequirementSource,
    /// Prefix of the value as written: a dot for all names below it, or nothing.
    dot: &'static str,
    value: &'a str,
    requirement: &'a Requirement,
}

impl<'a> ApplicableRule<'a> {
    fn new(rule: fn(String) -> RequirementSource, value: &'a str, requirement: &'a Requirement) -> ApplicableRule<'a> {
        ApplicableRule { rule, dot: "", value, requirement }
    }

    fn posture(&self) -> Posture {
        self.requirement.clone().into()
    }

    fn reason(&self) -> AppliedRule {
        AppliedRule {
            source: (self.rule)(format!("{}{}", self.dot, self.value)),
            requirement: self.requirement.clone(),
        }
    }
}

/// Rules for names, exact and by suffix.
#[derive(Debug, Clone, Default, PartialEq)]
struct ByName {
    exact: Map<Requirement>,
    /// Rules by suffix, without the leading dot.
    below: Map<Requirement>,
}

impl ByName {
    fn insert(&mut self, pattern: HostPattern, requirement: Requirement) -> bool {
        match pattern {
            HostPattern::Exact(name) => self.exact.insert(name, requirement).is_none(),
            HostPattern::Below(suffix) => self.below.insert(suffix, requirement).is_none(),
        }
    }

    /// The rule for exactly this name, or else for the longest suffix.
    fn find(&self, rule: fn(String) -> RequirementSource, name: &str) -> Option<ApplicableRule<'_>> {
        if let Some((value, requirement)) = self.exact.get_key_value(name) {
            return Some(ApplicableRule::new(rule, value, requirement));
        }
        if self.below.is_empty() {
            return None;
        }
        let (value, requirement) = suffixes(name).skip(1).find_map(|suffix| self.below.get_key_value(suffix))?;
        Some(ApplicableRule { dot: ".", ..ApplicableRule::new(rule, value, requirement) })
    }
}

/// Iterates over `a.b.c`, `b.c`, `c`.
fn suffixes(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |name| name.split_once('.').map(|(_, rest)| rest))
}

/// All configured policies.
#[derive(Debug, Clone, PartialEq)]
pub struct Policies {
    default: Requirement,
    domains: ByName,
    /// Rules by suffix, which includes the name itself.
    sites: Map<Requirement>,
    lists: Map<Requirement>,
    addresses: Map<Requirement>,
    senders: ByName,
}

impl Policies {
    /// Policies with only a default.
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

    /// Adds rules.
    ///
    /// # Errors
    /// All rules that are not valid.
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

    /// The posture for this mail.
    pub fn posture(&self, about: &PostureQuery<'_>) -> Posture {
        let (goes, whose) = self.holding(about);
        whose.iter().flatten().fold(goes.posture(), |held, more| held.join(more.posture()))
    }

    /// The posture for this mail, and the reasons.
    pub fn held(&self, about: &PostureQuery<'_>) -> ReasonedPosture {
        let (goes, whose) = self.holding(about);
        whose.iter().flatten().fold(goes.reason().into(), |held: ReasonedPosture, more| held.join(more.reason().into()))
    }

    /// The rule for the destination, and those for the origin.
    fn holding(&self, about: &PostureQuery<'_>) -> (ApplicableRule<'_>, [Option<ApplicableRule<'_>>; 2]) {
        let default =
            || ApplicableRule { rule: |_| RequirementSource::Default, dot: "", value: "", requirement: &self.default };
        let list = about.list.and_then(|list| self.lists.get_key_value(list));
        let list = list.map(|(name, requirement)| ApplicableRule::new(RequirementSource::List, name, requirement));
        (self.domain_or_site(about).unwrap_or_else(default), [list, self.sender(about.sender)])
    }

    /// Whether results can differ between lists or senders; if not, one result applies to all mail to a domain.
    pub fn differs_by_mail(&self) -> bool {
        !(self.lists.is_empty()
            && self.addresses.is_empty()
            && self.senders.exact.is_empty()
            && self.senders.below.is_empty())
    }

    /// The strongest requirement of a list or sender that uses published policies, for mail to any destination.
    pub fn published_by_mail(&self) -> Option<&Requirement> {
        let by_list = self.lists.values().chain(self.addresses.values());
        let all = by_list.chain(self.senders.exact.values()).chain(self.senders.below.values());
        all.filter(|requirement| requirement.strength().asks_dane()).max_by_key(|requirement| requirement.strength())
    }

    /// The default requirement.
    pub fn default_requirement(&self) -> &Requirement {
        &self.default
    }

    /// Every requirement that can apply, which determines whether DANE or MTA-STS is looked up at all.
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

    fn domain_or_site(&self, about: &PostureQuery<'_>) -> Option<ApplicableRule<'_>> {
        let domain = self.domains.find(RequirementSource::Domain, about.domain);
        if domain.is_some() || self.sites.is_empty() {
            return domain;
        }
        let of_host = |host: &&str| suffixes(host).find_map(|suffix| self.sites.get_key_value(suffix));
        let (value, requirement) = about.hosts.iter().find_map(of_host)?;
        Some(ApplicableRule::new(RequirementSource::Site, value, requirement))
    }

    fn sender(&self, sender: &str) -> Option<ApplicableRule<'_>> {
        let (_, domain) = sender.rsplit_once('@')?;
        if !self.addresses.is_empty()
            && let Some((value, requirement)) = self.addresses.get_key_value(&sender.to_ascii_lowercase())
        {
            return Some(ApplicableRule::new(RequirementSource::Sender, value, requirement));
        }
        self.senders.find(RequirementSource::Sender, domain)
    }
}
