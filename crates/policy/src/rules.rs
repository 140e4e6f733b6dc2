//! The rules of the policy: from a configuration's tables to the class of each address.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::hash_map::Entry as MapEntry;
use hashbrown::{HashMap, HashSet};
use ipnet::IpNet;
use stentor_lists::commands::{JoinPolicy, ListCommand};
use stentor_mail::address::{Address, DETAIL, normalise_domain};
use stentor_mail::reply::{Enhanced, Reply};

use crate::error::{PolicyError, Subject};
use crate::expand::{Expander, Expansion, Node, Nodes, key_of};

const ROUTE_SYNTAX: Reply = Reply::fixed(550, Enhanced::new(5, 7, 1), "Relay forms in the local part are not accepted");
const UNKNOWN_LOCAL: Reply = Reply::fixed(550, Enhanced::new(5, 1, 1), "No such list or address here");
const CLOSED_LIST: Reply = Reply::fixed(550, Enhanced::new(5, 7, 1), "This list is closed; ask its owner to add you");
const RELAY_DENIED: Reply = Reply::fixed(550, Enhanced::new(5, 7, 1), "Relaying denied");

/// Maximum errors reported for one input.
const ERRORS_MAX: usize = 1_000;

/// The policy's view of a list.
#[derive(Debug, Clone)]
pub struct ListInput {
    pub name: Arc<str>,
    /// Address of the list; its domain becomes local.
    pub address: Address,
    /// Envelope sender of posts. If it is in a local domain and not an alias, it accepts and counts reports.
    pub bounces: Address,
    /// Recipient of mail to `LOCAL-owner@` and `owner-LOCAL@`; default: the postmaster.
    pub owner: Option<Address>,
    /// Set if the list takes commands: at `LOCAL-join@`, `LOCAL+join@` and the addresses of other [`ListCommand`]s.
    pub commands: Option<JoinPolicy>,
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
    /// This server's name: local as well, unless there is a route for it.
    pub hostname: String,
    pub client_networks: Vec<IpNet>,
    pub local_domains: Vec<String>,
    /// Target of `postmaster@` in every local domain without a list or alias of that name (RFC 5321 section 4.5.1);
    /// the default is the first owner of a list.
    pub postmaster: Option<Address>,
    pub lists: Vec<ListInput>,
    pub aliases: Vec<AliasInput>,
    /// Domains that have a route of their own.
    pub routed: Vec<String>,
    /// Whether there are address tables, so that an alias's target need not be known here.
    pub has_tables: bool,
}

/// Class of a recipient's address, as in Postfix: where its mail goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressClass {
    /// A post to this list.
    List(Arc<str>),
    /// Delivered to the alias's targets.
    Alias(Arc<Expansion>),
    /// A bounce of a post of this list; accepted and counted.
    Bounces(Arc<str>),
    /// A command to this list; carried out when its data ends.
    Command { list: Arc<str>, command: ListCommand },
    /// Relayed to the address unchanged.
    Relay,
    /// Refused in the session with this reply.
    Refuse(Reply),
}

/// Reason of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyReason {
    RouteSyntax,
    ListAddress,
    AliasAddress,
    BouncesAddress,
    CommandAddress,
    /// Its list is closed.
    ClosedList,
    UnknownLocal,
    /// The client is in this network.
    ClientNetwork(IpNet),
    ClientOutside,
}

impl fmt::Display for PolicyReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RouteSyntax => out
                .write_str("the local part contains a relay form (`%`, `!` or a quoted `@`), which is always refused"),
            Self::ListAddress => out.write_str("it is a list's address"),
            Self::AliasAddress => out.write_str("it is an alias"),
            Self::BouncesAddress => out.write_str("it receives the delivery reports about a list's posts"),
            Self::CommandAddress => out.write_str("it takes commands to a list"),
            Self::ClosedList => out.write_str("the list is closed (`join = \"closed\"`)"),
            Self::UnknownLocal => out.write_str("its domain is local, but no list or alias has this address"),
            Self::ClientNetwork(network) => {
                write!(out, "its domain is not local, and the client is in client network {network}")
            }
            Self::ClientOutside => {
                out.write_str("its domain is not local, and the client is not in any client network")
            }
        }
    }
}

/// The class of an address, and the reason; displays as one sentence for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressDecision {
    pub class: AddressClass,
    pub why: PolicyReason,
}

impl fmt::Display for AddressDecision {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.class {
            AddressClass::List(name) => write!(out, "post to list {name}")?,
            AddressClass::Alias(to) => {
                write!(out, "alias of {} addresses and {} lists", to.everyone().count(), to.lists.len())?;
            }
            AddressClass::Bounces(name) => write!(out, "report to list {name}")?,
            AddressClass::Command { list, command } => write!(out, "command to list {list}: {}", command.word())?,
            AddressClass::Relay => out.write_str("relay")?,
            AddressClass::Refuse(reply) => write!(out, "refuse with {reply}")?,
        }
        write!(out, ": {}", self.why)
    }
}

/// The meaning of a local address.
#[derive(Debug)]
enum LocalMeaning {
    List(Arc<str>),
    Bounces(Arc<str>),
    Command { list: Arc<str>, command: ListCommand, is_closed: bool },
    Alias { to: Arc<Expansion>, is_implied: bool },
}

/// The form of an address under which an entry was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AddressForm {
    Whole,
    /// The address without the detail.
    Base,
}

/// The checked rules; immutable, shared by all sessions.
#[derive(Debug)]
pub struct Policy {
    networks: Vec<IpNet>,
    domains: HashSet<Box<str>, FixedState>,
    /// Local addresses by [`key_of`].
    local: HashMap<Box<str>, LocalMeaning, FixedState>,
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
            let mut seen = Vec::new(); // implied aliases of one owner fail alike; one report is enough
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
                Node::List(name) => LocalMeaning::List(name),
                Node::Bounces(name) => LocalMeaning::Bounces(name),
                Node::Command { list, command, is_closed } => LocalMeaning::Command { list, command, is_closed },
                Node::Alias { is_implied, .. } => {
                    LocalMeaning::Alias { to: expansions.get(&key).cloned().unwrap_or_default(), is_implied }
                }
            };
            (key, local)
        };
        let local = nodes.into_iter().map(resolve).collect();
        Ok(Self { networks: input.client_networks, domains, local, postmaster })
    }

    /// Whether this client may relay. An IPv4-mapped address (`::ffff:a.b.c.d`) counts as the IPv4 address.
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

    /// Whether a local address exists here only by implication: the postmaster, the owner of a list without one, and
    /// commands to lists. Entries in tables take precedence.
    pub fn is_implied(&self, address: &Address) -> bool {
        let is_implied = |local: &LocalMeaning| {
            matches!(local, LocalMeaning::Alias { is_implied: true, .. } | LocalMeaning::Command { .. })
        };
        self.find(address).is_some_and(|(local, _)| is_implied(local))
    }

    /// Whether a local address is known only without its detail.
    pub fn is_by_base(&self, address: &Address) -> bool {
        matches!(self.find(address), Some((_, AddressForm::Base)))
    }

    /// Finds a local address as named, or else without its detail (`news+x@` is `news@`).
    fn find(&self, address: &Address) -> Option<(&LocalMeaning, AddressForm)> {
        let get = |address: &Address| self.local.get(key_of(address).as_str());
        get(address)
            .map(|local| (local, AddressForm::Whole))
            .or_else(|| Some((get(&address.without_detail()?)?, AddressForm::Base)))
    }

    /// The recipient of the postmaster's mail, if one is configured.
    pub fn postmaster(&self) -> Option<&Address> {
        self.postmaster.as_ref()
    }

    /// Returns the class of a recipient that `client` names at RCPT.
    pub fn rcpt(&self, client: IpAddr, recipient: &Address) -> AddressClass {
        self.decide(client, recipient).class
    }

    /// Returns the class and its reason. Does not allocate for a recipient outside the local domains.
    pub fn decide(&self, client: IpAddr, recipient: &Address) -> AddressDecision {
        if recipient.has_route_syntax() {
            return AddressDecision { class: AddressClass::Refuse(ROUTE_SYNTAX), why: PolicyReason::RouteSyntax };
        }
        if self.domains.contains(recipient.domain()) {
            return match self.find(recipient).map(|(local, _)| local) {
                Some(LocalMeaning::List(name)) => {
                    AddressDecision { class: AddressClass::List(name.clone()), why: PolicyReason::ListAddress }
                }
                Some(LocalMeaning::Alias { to, .. }) => {
                    AddressDecision { class: AddressClass::Alias(to.clone()), why: PolicyReason::AliasAddress }
                }
                Some(LocalMeaning::Bounces(name)) => {
                    AddressDecision { class: AddressClass::Bounces(name.clone()), why: PolicyReason::BouncesAddress }
                }
                Some(LocalMeaning::Command { command: ListCommand::Join, is_closed: true, .. }) => {
                    AddressDecision { class: AddressClass::Refuse(CLOSED_LIST), why: PolicyReason::ClosedList }
                }
                Some(LocalMeaning::Command { list, command, .. }) => AddressDecision {
                    class: AddressClass::Command { list: list.clone(), command: *command },
                    why: PolicyReason::CommandAddress,
                },
                None => AddressDecision { class: AddressClass::Refuse(UNKNOWN_LOCAL), why: PolicyReason::UnknownLocal },
            };
        }
        match self.network_of(client) {
            Some(network) => AddressDecision { class: AddressClass::Relay, why: PolicyReason::ClientNetwork(*network) },
            None => AddressDecision { class: AddressClass::Refuse(RELAY_DENIED), why: PolicyReason::ClientOutside },
        }
    }
}

/// Collects the tables and their errors before aliases are expanded.
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

    /// Adds explicit addresses first; implied ones (owner, bounces, commands, postmaster) only fill gaps.
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
                // A quoted or overlong local part has no such address; the list works without it.
                let Ok(address) = Address::parse(name.as_bytes(), true) else { continue };
                let (targets, subject, is_implied) = (vec![owner.clone()], subject.clone(), list.owner.is_none());
                self.implied(&address, Node::Alias { targets, subject, is_implied });
            }
        }
        for list in &input.lists {
            self.commands(list);
        }
    }

    /// Adds the addresses of commands to a list that takes them.
    fn commands(&mut self, list: &ListInput) {
        let Some(join) = list.commands else { return };
        let (local, domain) = (list.address.local(), list.address.domain());
        for (word, command) in ListCommand::WORDS {
            for name in [format!("{local}-{word}@{domain}"), format!("{local}{DETAIL}{word}@{domain}")] {
                let Ok(address) = Address::parse(name.as_bytes(), true) else { continue };
                let (list, is_closed) = (list.name.clone(), join == JoinPolicy::Closed);
                self.implied(&address, Node::Command { list, command, is_closed });
            }
        }
    }

    /// Adds a postmaster to each local domain if one can be determined; returns it.
    fn postmasters(&mut self, input: &PolicyInput) -> Option<Address> {
        // Without a configured postmaster, the owner of a list is used.
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

    /// Sends mail for `root@` the host name to the postmaster, unless it is configured otherwise: cron and other
    /// programs use it as recipient and as sender.
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
                    Node::Command { list, .. } => format!("a command address of list `{list}`"),
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
