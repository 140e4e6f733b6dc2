//! Expands aliases to flat lists of targets when the policy is built.
//!
//! The table's entries form a graph: an alias names addresses, and those in a local domain are lists (leaves) or
//! further aliases. Each alias is visited once, depth first, and its result is kept. A cycle, an unknown local
//! target, nesting deeper than [`ALIAS_DEPTH_MAX`] and an expansion larger than [`ALIAS_TARGETS_MAX`] are errors that
//! name the alias; the walk continues, so that all errors are reported at once.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use stentor_lists::commands::ListCommand;
use stentor_mail::address::Address;

use crate::error::{PolicyError, Subject};

/// Maximum nesting of aliases.
pub const ALIAS_DEPTH_MAX: usize = 50;
/// Maximum targets of one alias after expansion.
pub const ALIAS_TARGETS_MAX: usize = 100_000;
/// Maximum targets of all aliases after expansion (they are kept in memory).
pub const TARGETS_TOTAL_MAX: usize = 1_000_000;

/// An alias's targets, fully expanded, without duplicates, in the order of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Expansion {
    /// Addresses outside the local domains, to which mail is relayed. If there are address tables, local addresses
    /// that are neither lists nor aliases stay here, too.
    pub addresses: Vec<Address>,
    /// Local lists: the message is a post to each of them.
    pub lists: Vec<Arc<str>>,
    /// Addresses whose copies have this envelope sender, which receives their bounces (`owner-NAME` of an alias
    /// file).
    pub owned: Vec<(Address, Vec<Address>)>,
    /// Programs and files in alias files.
    pub programs: Vec<LocalTarget>,
    /// Whether `/dev/null` is among the targets.
    pub has_null: bool,
}

/// A program or file in an alias file, to which a delivery agent of this machine delivers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalTarget {
    /// Recipient address for the agent, by which it finds the target in the alias file.
    pub address: Address,
    /// Target as in the alias file: `|command` or `/file`.
    pub text: String,
    /// Envelope sender of its copy, as in [`Expansion::owned`].
    pub owner: Option<Address>,
}

impl Expansion {
    /// All addresses that get mail, with any sender; programs and files are excluded.
    pub fn people(&self) -> impl Iterator<Item = &Address> {
        self.addresses.iter().chain(self.owned.iter().flat_map(|(_, addresses)| addresses))
    }

    /// All addresses that get mail, including programs and files.
    pub fn everyone(&self) -> impl Iterator<Item = &Address> {
        self.people().chain(self.programs.iter().map(|program| &program.address))
    }

    /// Number of addresses and lists.
    pub fn len(&self) -> usize {
        self.everyone().count() + self.lists.len()
    }

    /// Whether there are no targets at all, not even `/dev/null`.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && !self.has_null
    }
}

/// The meaning of a local address before expansion.
#[derive(Debug, Clone)]
pub(crate) enum Node {
    List(Arc<str>),
    Bounces(Arc<str>),
    /// A command to a list. It only applies if tables have no entry.
    Command {
        list: Arc<str>,
        command: ListCommand,
        is_closed: bool,
    },
    /// An alias. An implied one only applies if tables have no entry.
    Alias {
        targets: Vec<Address>,
        subject: Subject,
        is_implied: bool,
    },
}

pub(crate) type Nodes = HashMap<Box<str>, Node, FixedState>;
pub(crate) type Expansions = HashMap<Box<str>, Arc<Expansion>, FixedState>;

/// The key for lookups of local addresses: local parts in local domains ignore case.
pub(crate) fn key_of(address: &Address) -> String {
    if address.is_ascii() { address.as_str().to_ascii_lowercase() } else { address.as_str().to_lowercase() }
}

/// Whether two addresses are the same, as addresses of this server: their local parts ignore case.
pub fn is_same_local(one: &Address, other: &Address) -> bool {
    key_of(one) == key_of(other)
}

pub(crate) struct Expander<'a> {
    nodes: &'a Nodes,
    is_local: &'a dyn Fn(&str) -> bool,
    /// Whether unknown addresses may be in tables, which are looked up later.
    has_tables: bool,
    done: HashMap<&'a str, (Arc<Expansion>, usize), FixedState>,
    /// The aliases being expanded, outermost first.
    path: Vec<&'a str>,
    total: usize,
    errors: Vec<PolicyError>,
}

impl<'a> Expander<'a> {
    pub(crate) fn new(nodes: &'a Nodes, is_local: &'a dyn Fn(&str) -> bool, has_tables: bool) -> Self {
        Self { nodes, is_local, has_tables, done: HashMap::default(), path: Vec::new(), total: 0, errors: Vec::new() }
    }

    /// Expands every alias. The expansions are complete only if there are no errors.
    pub(crate) fn run(mut self) -> (Expansions, Vec<PolicyError>) {
        let mut keys: Vec<&'a str> = self.nodes.keys().map(AsRef::as_ref).collect();
        keys.sort_unstable(); // so that errors have the same order in every run
        for key in keys {
            if let Some(Node::Alias { targets, subject, .. }) = self.nodes.get(key) {
                self.alias(key, targets, subject);
            }
        }
        let whole = self.done.into_iter().map(|(key, (expansion, _))| (key.into(), expansion)).collect();
        (whole, self.errors)
    }

    /// The expansion of one alias, and its nesting depth. After an error the faulty targets are missing.
    fn alias(&mut self, key: &'a str, targets: &'a [Address], subject: &'a Subject) -> (Arc<Expansion>, usize) {
        if let Some((expansion, depth)) = self.done.get(key) {
            return (expansion.clone(), *depth);
        }
        let mut collector = Collector::default();
        let mut depth_below = 0;
        self.path.push(key);
        for target in targets {
            if !(self.is_local)(target.domain()) {
                collector.address(target);
                continue;
            }
            if let Some((inner, depth)) = self.local_target(target, subject, &mut collector) {
                depth_below = depth_below.max(depth);
                collector.all(&inner);
            }
            if collector.found.len() > ALIAS_TARGETS_MAX {
                break;
            }
        }
        self.path.pop();
        if collector.found.len() > ALIAS_TARGETS_MAX {
            self.fail(subject, format!("`{key}` expands to more than {ALIAS_TARGETS_MAX} targets"));
            collector = Collector::default();
        }
        let within = self.total <= TARGETS_TOTAL_MAX;
        self.total += collector.found.len();
        if within && self.total > TARGETS_TOTAL_MAX {
            self.fail(subject, format!("all aliases together expand to more than {TARGETS_TOTAL_MAX} targets"));
        }
        let result = (Arc::new(collector.found), depth_below + 1);
        self.done.insert(key, result.clone());
        result
    }

    /// Resolves a target in a local domain: a list is collected, an alias is returned expanded.
    fn local_target(
        &mut self,
        target: &Address,
        subject: &'a Subject,
        collector: &mut Collector,
    ) -> Option<(Arc<Expansion>, usize)> {
        let named = |address: &Address| self.nodes.get_key_value(key_of(address).as_str());
        let by_base = || if self.has_tables { None } else { named(&target.without_detail()?) };
        let Some((key, node)) = named(target).or_else(by_base) else {
            if self.has_tables {
                collector.address(target);
                return None;
            }
            let message = format!("no list or alias has the local address `{target}`");
            self.errors.push(PolicyError { subject: subject.clone(), message, may_follow: true });
            return None;
        };
        match node {
            Node::List(name) => collector.list(name),
            Node::Bounces(name) => {
                self.fail(subject, format!("`{target}` receives the bounces of list `{name}` and cannot be a target"));
            }
            Node::Alias { is_implied: true, .. } | Node::Command { .. } if self.has_tables => collector.address(target),
            Node::Command { list, .. } => {
                self.fail(subject, format!("`{target}` takes commands to list `{list}` and cannot be a target"));
            }
            Node::Alias { targets, subject: inner, .. } => {
                if let Some(start) = self.path.iter().position(|step| **step == **key) {
                    let way = format!("`{}` -> `{key}`", self.path[start..].join("` -> `"));
                    let message = match subject {
                        Subject::Postmaster => {
                            format!("`postmaster` is an alias loop ({way}); name its reader")
                        }
                        _ => format!("alias loop: {way}"),
                    };
                    self.fail(subject, message);
                } else if self.path.len() >= ALIAS_DEPTH_MAX {
                    self.fail(subject, format!("aliases are nested more than {ALIAS_DEPTH_MAX} deep at `{key}`"));
                } else {
                    let (expansion, depth) = self.alias(key, targets, inner);
                    if depth >= ALIAS_DEPTH_MAX {
                        self.fail(subject, format!("aliases are nested more than {ALIAS_DEPTH_MAX} deep at `{key}`"));
                    }
                    return Some((expansion, depth));
                }
            }
        }
        None
    }

    fn fail(&mut self, subject: &Subject, message: String) {
        self.errors.push(PolicyError { subject: subject.clone(), message, may_follow: false });
    }
}

/// Collects targets without duplicates.
#[derive(Default)]
struct Collector {
    found: Expansion,
    seen: HashSet<Address, FixedState>,
}

impl Collector {
    fn address(&mut self, address: &Address) {
        if self.found.len() <= ALIAS_TARGETS_MAX && self.seen.insert(address.clone()) {
            self.found.addresses.push(address.clone());
        }
    }

    fn list(&mut self, name: &Arc<str>) {
        if !self.found.lists.contains(name) {
            self.found.lists.push(name.clone());
        }
    }

    fn all(&mut self, inner: &Expansion) {
        inner.addresses.iter().for_each(|address| self.address(address));
        inner.lists.iter().for_each(|name| self.list(name));
    }
}
