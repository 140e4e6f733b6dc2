//! The rules: from the tables of a configuration to a verdict on each recipient.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::hash_map::Entry as MapEntry;
use hashbrown::{HashMap, HashSet};
use ipnet::IpNet;
use stentor_mail::address::{Address, normalise_domain};
use stentor_mail::reply::Reply;

use crate::error::{PolicyError, Subject};
use crate::expand::{Expander, Expansion, Node, Nodes, key_of};

const ROUTE_SYNTAX: Reply = Reply::fixed(550, (5, 7, 1), "Relay forms in the local part are not accepted");
const UNKNOWN_LOCAL: Reply = Reply::fixed(550, (5, 1, 1), "No such list or address here");
const RELAY_DENIED: Reply = Reply::fixed(550, (5, 7, 1), "Relaying denied");

/// Errors reported of one input.
const ERRORS_MAX: usize = 1_000;

/// The policy's view of a list.
#[derive(Debug, Clone)]
pub struct ListInput {
    pub name: Arc<str>,
    /// Its domain is local from then on.
    pub address: Address,
    /// Envelope sender of posts. In a local domain and not an alias it becomes a sink for reports.
    pub bounces: Address,
    /// Gets the mail to `LOCAL-owner@` and `owner-LOCAL@`; without one, the postmaster does.
    pub owner: Option<Address>,
}

/// An alias and its targets.
#[derive(Debug, Clone)]
pub struct AliasInput {
    pub address: Address,
    pub targets: Vec<Address>,
}

/// The input of a policy. Domains may be in any case; they are normalised here.
#[derive(Debug, Clone, Default)]
pub struct PolicyInput {
    /// This server's own name: local as well, unless a route of that very name exists.
    pub hostname: String,
    pub client_networks: Vec<IpNet>,
    pub local_domains: Vec<String>,
    /// Target of `postmaster@` every local domain that has no list or alias of that name (RFC 5321 section 4.5.1); without one the
    /// first owner of a list is.
    pub postmaster: Option<Address>,
    pub lists: Vec<ListInput>,
    pub aliases: Vec<AliasInput>,
    /// Domains that have a route of their own.
    pub routed: Vec<String>,
    /// Tables say what addresses stand for: an alias's target need not be known here.
    pub has_tables: bool,
}

/// The verdict on a recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// A post to the list of this name.
    List(Arc<str>),
    /// Delivered to the alias's targets.
    Alias(Arc<Expansion>),
    /// A bounce of a post of this list; accepted and counted.
    Bounces(Arc<str>),
    /// Relayed to the address unchanged.
    Relay,
    /// Refused in the session with this reply.
    Refuse(Reply),
}

/// The rule that decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    RouteSyntax,
    ListAddress,
    AliasAddress,
    BouncesAddress,
    UnknownLocal,
    /// The client is in this network.
    ClientNetwork(IpNet),
    ClientOutside,
}

impl fmt::Display for Why {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RouteSyntax => {
                out.write_str("the local part holds a relay form (`%`, `!` or a quoted `@`), refused to everyone")
            }
            Self::ListAddress => out.write_str("it is a list's address"),
            Self::AliasAddress => out.write_str("it is an alias"),
            Self::BouncesAddress => out.write_str("it takes the reports about a list's posts"),
            Self::UnknownLocal => out.write_str("its domain is local, and no list or alias has this address"),
            Self::ClientNetwork(network) => {
                write!(out, "its domain is not local, and the client is in client network {network}")
            }
            Self::ClientOutside => out.write_str("its domain is not local, and the client is in no client network"),
        }
    }
}

/// A verdict and the rule behind it; displays as one sentence for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub verdict: Verdict,
    pub why: Why,
}

impl fmt::Display for Decision {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.verdict {
            Verdict::List(name) => write!(out, "post to list {name}")?,
            Verdict::Alias(to) => {
                write!(out, "alias of {} addresses and {} lists", to.everyone().count(), to.lists.len())?;
            }
            Verdict::Bounces(name) => write!(out, "report to list {name}")?,
            Verdict::Relay => out.write_str("relay")?,
            Verdict::Refuse(reply) => write!(out, "refuse with {reply}")?,
        }
        write!(out, ": {}", self.why)
    }
}

/// What an address in a local domain is.
#[derive(Debug)]
enum Local {
    List(Arc<str>),
    Bounces(Arc<str>),
    Alias { to: Arc<Expansion>, is_implied: bool },
}

/// Under which form of an address something was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Whole,
    /// Without the detail.
    Base,
}

/// The checked rules; immutable, shared by all sessions.
#[derive(Debug)]
pub struct Policy {
    networks: Vec<IpNet>,
    domains: HashSet<Box<str>, FixedState>,
    /// By [`key_of`] the address.
    local: HashMap<Box<str>, Local, FixedState>,
    postmaster: Option<Address>,
}

impl Policy {
    /// Builds the rules, or reports every error in the tables.
    pub fn new(input: PolicyInput) -> Result<Self, Vec<PolicyError>> {
        let mut builder = Builder::default();
        builder.domains(&input);
        builder.addresses(&input);
        let postmaster = builder.postmasters(&input);
        let Builder { domains, nodes, mut errors } = builder;
        let is_local = |domain: &str| domains.contains(domain);
        let (expansions, alias_errors) = Expander::new(&nodes, &is_local, input.has_tables).run();
        errors.extend(alias_errors);

        if !errors.is_empty() {
            let mut seen = Vec::new(); // implied aliases of one owner fail alike; said once is enough
            errors.retain(|error| {
                !seen.contains(error) && (seen.len() < ERRORS_MAX) && {
                    seen.push(error.clone());
                    true
                }
            });
            return Err(errors);
        }
        let resolve = |(key, node): (Box<str>, Node)| {
            let local = match node {
                Node::List(name) => Local::List(name),
                Node::Bounces(name) => Local::Bounces(name),
                Node::Alias { is_implied, .. } => {
                    Local::Alias { to: expansions.get(&key).cloned().unwrap_or_default(), is_implied }
                }
            };
            (key, local)
        };
        let local = nodes.into_iter().map(resolve).collect();
        Ok(Self { networks: input.client_networks, domains, local, postmaster })
    }

    /// Whether this client may relay. An IPv4 address in its IPv6 form (`::ffff:a.b.c.d`) counts as the IPv4 address.
    pub fn is_trusted(&self, client: IpAddr) -> bool {
        self.network_of(client).is_some()
    }

    fn network_of(&self, client: IpAddr) -> Option<&IpNet> {
        let client = client.to_canonical();
        self.networks.iter().find(|network| network.contains(&client))
    }

    /// Whether the domain (lower-case A-labels, as in an [`Address`]) is local.
    pub fn is_local_domain(&self, domain: &str) -> bool {
        self.domains.contains(domain)
    }

    /// The local domains.
    pub fn local_domains(&self) -> impl Iterator<Item = &str> {
        self.domains.iter().map(AsRef::as_ref)
    }

    /// Whether an address of a local domain is here only because nobody else is named for it: the postmaster, and the owner of a
    /// list without one. What tables have for it comes first.
    pub fn is_implied(&self, address: &Address) -> bool {
        matches!(self.find(address), Some((Local::Alias { is_implied: true, .. }, _)))
    }

    /// Whether an address of a local domain is here by its base alone: under the address without its detail, but not as it is.
    pub fn is_by_base(&self, address: &Address) -> bool {
        matches!(self.find(address), Some((_, Found::Base)))
    }

    /// What an address of a local domain is: as it is named, else without its detail (`news+x@` is `news@`).
    fn find(&self, address: &Address) -> Option<(&Local, Found)> {
        let get = |address: &Address| self.local.get(key_of(address).as_str());
        get(address)
            .map(|local| (local, Found::Whole))
            .or_else(|| Some((get(&address.without_detail()?)?, Found::Base)))
    }

    /// Who gets the postmaster's mail, if anybody is named for it.
    pub fn postmaster(&self) -> Option<&Address> {
        self.postmaster.as_ref()
    }

    /// The verdict on a recipient that `client` names at RCPT.
    pub fn rcpt(&self, client: IpAddr, recipient: &Address) -> Verdict {
        self.decide(client, recipient).verdict
    }

    /// The verdict with its reason. Without allocation for a recipient outside the local domains.
    pub fn decide(&self, client: IpAddr, recipient: &Address) -> Decision {
        if recipient.has_route_syntax() {
            return Decision { verdict: Verdict::Refuse(ROUTE_SYNTAX), why: Why::RouteSyntax };
        }
        if self.domains.contains(recipient.domain()) {
            return match self.find(recipient).map(|(local, _)| local) {
                Some(Local::List(name)) => Decision { verdict: Verdict::List(name.clone()), why: Why::ListAddress },
                Some(Local::Alias { to, .. }) => {
                    Decision { verdict: Verdict::Alias(to.clone()), why: Why::AliasAddress }
                }
                Some(Local::Bounces(name)) => {
                    Decision { verdict: Verdict::Bounces(name.clone()), why: Why::BouncesAddress }
                }
                None => Decision { verdict: Verdict::Refuse(UNKNOWN_LOCAL), why: Why::UnknownLocal },
            };
        }
        match self.network_of(client) {
            Some(network) => Decision { verdict: Verdict::Relay, why: Why::ClientNetwork(*network) },
            None => Decision { verdict: Verdict::Refuse(RELAY_DENIED), why: Why::ClientOutside },
        }
    }
}

/// Gathers the tables and their errors before aliases are expanded.
#[derive(Default)]
struct Builder {
    domains: HashSet<Box<str>, FixedState>,
    nodes: Nodes,
    errors: Vec<PolicyError>,
}

impl Builder {
    fn fail(&mut self, subject: Subject, message: String) {
        self.errors.push(PolicyError { subject, message, may_follow: false });
    }

    fn domains(&mut self, input: &PolicyInput) {
        for domain in &input.local_domains {
            match normalise_domain(domain) {
                Ok(name) => drop(self.domains.insert(name.into())),
                Err(error) => self.fail(Subject::LocalDomain(domain.clone()), format!("`{domain}`: {error}")),
            }
        }
        self.domains.extend(input.lists.iter().map(|list| list.address.domain().into()));
        match normalise_domain(&input.hostname) {
            Ok(name) => {
                if !input.routed.contains(&name) {
                    self.domains.insert(name.into());
                }
            }
            Err(error) => self.fail(Subject::Hostname, format!("`{}` is not a host name: {error}", input.hostname)),
        }
    }

    /// Explicit addresses first; those that follow from them (owner, bounces, postmaster) only fill gaps.
    fn addresses(&mut self, input: &PolicyInput) {
        for list in &input.lists {
            self.explicit(&list.address, Node::List(list.name.clone()), Subject::List(list.name.clone()));
        }
        for alias in &input.aliases {
            let subject = Subject::Alias(alias.address.clone());
            if !self.domains.contains(alias.address.domain()) {
                let domain = alias.address.domain();
                let message = format!("domain `{domain}` of alias `{}` is not local", alias.address);
                self.errors.push(PolicyError { subject, message, may_follow: true });
            } else if alias.targets.is_empty() {
                self.fail(subject, format!("alias `{}` has no targets", alias.address));
            } else {
                let (targets, subject) = (alias.targets.clone(), subject.clone());
                let node = Node::Alias { targets, subject: subject.clone(), is_implied: false };
                self.explicit(&alias.address, node, subject);
            }
        }
        for list in &input.lists {
            self.implied(&list.bounces, Node::Bounces(list.name.clone()));
        }
        for list in &input.lists {
            let (owner, subject) = match (&list.owner, &input.postmaster) {
                (Some(owner), _) => (owner, Subject::Owner(list.name.clone())),
                (None, Some(postmaster)) => (postmaster, Subject::Postmaster),
                (None, None) => continue,
            };
            let (local, domain) = (list.address.local(), list.address.domain());
            for name in [format!("{local}-owner@{domain}"), format!("owner-{local}@{domain}")] {
                // A quoted or over-long local part has no such address; the list works without.
                let Ok(address) = Address::parse(name.as_bytes(), true) else { continue };
                let (targets, subject, is_implied) = (vec![owner.clone()], subject.clone(), list.owner.is_none());
                self.implied(&address, Node::Alias { targets, subject, is_implied });
            }
        }
    }

    /// Each local domain has a postmaster, if anybody is one: who it is.
    fn postmasters(&mut self, input: &PolicyInput) -> Option<Address> {
        // A list's owner answers for its domain where nobody else is named.
        let owner = input.lists.iter().find_map(|list| Some((list.owner.as_ref()?, Subject::Owner(list.name.clone()))));
        let named = input.postmaster.as_ref().map(|postmaster| (postmaster, Subject::Postmaster));
        let (target, subject) = named.or(owner)?;
        let domains: Vec<Box<str>> = self.domains.iter().cloned().collect();
        for domain in domains {
            let Ok(address) = Address::parse(format!("postmaster@{domain}").as_bytes(), true) else { continue };
            let is_target = key_of(&address) == key_of(target);
            if is_target && (input.has_tables || self.nodes.contains_key(key_of(target).as_str())) {
                continue;
            }
            let (targets, subject) = (vec![target.clone()], subject.clone());
            self.implied(&address, Node::Alias { targets, subject, is_implied: true });
        }
        self.root(input, target, &subject);
        Some(target.clone())
    }

    /// Mail to `root@` the host's own name goes to the postmaster unless somebody is named: cron and other programs of the machine send
    /// there, and their senders are as local.
    fn root(&mut self, input: &PolicyInput, target: &Address, subject: &Subject) {
        let Ok(root) = Address::parse(format!("root@{}", input.hostname).as_bytes(), true) else { return };
        if key_of(&root) != key_of(target) {
            let (targets, subject) = (vec![target.clone()], subject.clone());
            self.implied(&root, Node::Alias { targets, subject, is_implied: true });
        }
    }

    fn explicit(&mut self, address: &Address, node: Node, subject: Subject) {
        match self.nodes.entry(key_of(address).into()) {
            MapEntry::Vacant(slot) => drop(slot.insert(node)),
            MapEntry::Occupied(there) => {
                let other = match there.get() {
                    Node::List(name) => format!("the address of list `{name}`"),
                    Node::Bounces(name) => format!("the bounce address of list `{name}`"),
                    Node::Alias { .. } => "an alias".to_owned(),
                };
                self.fail(subject, format!("`{address}` is already {other} (case does not matter)"));
            }
        }
    }

    fn implied(&mut self, address: &Address, node: Node) {
        if self.domains.contains(address.domain()) {
            self.nodes.entry(key_of(address).into()).or_insert(node);
        }
    }
}
