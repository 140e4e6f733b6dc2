//! Expands aliases to flat lists of targets when the policy is built.
//!
//! The table's entries form a graph: an alias names addresses, and those in a local domain are lists (leaves) or further
//! aliases. Each alias is walked once, depth first, and its result kept. A cycle, an unknown local target, a nesting
//! deeper than [`ALIAS_DEPTH_MAX`] and an expansion larger than [`ALIAS_TARGETS_MAX`] are errors that name the alias;
//! the walk goes on, so that all errors are reported at once.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use stentor_mail::address::Address;

use crate::error::{PolicyError, Subject};

/// How deep aliases may nest.
pub const ALIAS_DEPTH_MAX: usize = 50;
/// Targets of one alias after expansion.
pub const ALIAS_TARGETS_MAX: usize = 100_000;
/// Targets of all aliases after expansion (they are held in memory).
pub const TARGETS_TOTAL_MAX: usize = 1_000_000;

/// An alias's targets, fully expanded, each once, in the order of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Expansion {
    /// Addresses outside the local domains: they are relayed. Where tables say what addresses stand for, local ones that are in
    /// no list or alias stay here too.
    pub addresses: Vec<Address>,
    /// Names of local lists: the message is a post to each of them.
    pub lists: Vec<Arc<str>>,
    /// Addresses whose copies have this envelope sender, who reads what comes back (`owner-NAME` of an alias file).
    pub owned: Vec<(Address, Vec<Address>)>,
    /// Programs and files of alias files.
    pub programs: Vec<Program>,
    /// It stands for `/dev/null`, whoever else gets it.
    pub has_null: bool,
}

/// A program or file of an alias file, which a delivery agent of this machine delivers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// What the agent is given, by which it finds the target in the alias file again.
    pub address: Address,
    /// As the alias file has it: `|command` or `/file`.
    pub text: String,
    /// The envelope sender of its copy, as in [`Expansion::owned`].
    pub owner: Option<Address>,
}

impl Expansion {
    /// All who get mail, whoever its sender is; without programs and files.
    pub fn people(&self) -> impl Iterator<Item = &Address> {
        self.addresses.iter().chain(self.owned.iter().flat_map(|(_, addresses)| addresses))
    }

    /// The same with programs and files.
    pub fn everyone(&self) -> impl Iterator<Item = &Address> {
        self.people().chain(self.programs.iter().map(|program| &program.address))
    }

    /// How many addresses and lists there are.
    pub fn len(&self) -> usize {
        self.everyone().count() + self.lists.len()
    }

    /// Whether it stands for nobody and nothing at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && !self.has_null
    }
}

/// What an address in a local domain is before expansion.
#[derive(Debug, Clone)]
pub(crate) enum Node {
    List(Arc<str>),
    Bounces(Arc<str>),
    /// Implied: it fills a gap, which tables may fill before.
    Alias {
        targets: Vec<Address>,
        subject: Subject,
        is_implied: bool,
    },
}

pub(crate) type Nodes = HashMap<Box<str>, Node, FixedState>;
pub(crate) type Expansions = HashMap<Box<str>, Arc<Expansion>, FixedState>;

/// The form under which local addresses are looked up: local parts in local domains ignore case.
pub(crate) fn key_of(address: &Address) -> String {
    if address.is_ascii() { address.as_str().to_ascii_lowercase() } else { address.as_str().to_lowercase() }
}

pub(crate) struct Expander<'a> {
    nodes: &'a Nodes,
    is_local: &'a dyn Fn(&str) -> bool,
    /// Addresses that are not here may be in tables, which are asked later.
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

    /// Expands every alias. The expansions are whole only if there are no errors.
    pub(crate) fn run(mut self) -> (Expansions, Vec<PolicyError>) {
        let mut keys: Vec<&'a str> = self.nodes.keys().map(AsRef::as_ref).collect();
        keys.sort_unstable(); // the same errors in the same order in every run
        for key in keys {
            if let Some(Node::Alias { targets, subject, .. }) = self.nodes.get(key) {
                self.alias(key, targets, subject);
            }
        }
        let whole = self.done.into_iter().map(|(key, (expansion, _))| (key.into(), expansion)).collect();
        (whole, self.errors)
    }

    /// The expansion of one alias and how deep it nests. After an error the faulty targets are missing.
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

    /// A target in a local domain: a list goes to the collector, an alias is returned expanded.
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
            let message = format!("no list or alias has the address `{target}`, and its domain is local");
            self.errors.push(PolicyError { subject: subject.clone(), message, may_follow: true });
            return None;
        };
        match node {
            Node::List(name) => collector.list(name),
            Node::Bounces(name) => {
                self.fail(subject, format!("`{target}` takes the bounces of list `{name}` and cannot be a target"));
            }
            Node::Alias { is_implied: true, .. } if self.has_tables => collector.address(target),
            Node::Alias { targets, subject: inner, .. } => {
                if let Some(start) = self.path.iter().position(|step| **step == **key) {
                    let way = format!("`{}` -> `{key}`", self.path[start..].join("` -> `"));
                    let message = match subject {
                        Subject::Postmaster => {
                            format!("`postmaster` leads back to itself ({way}): name who reads its mail")
                        }
                        _ => format!("alias loop: {way}"),
                    };
                    self.fail(subject, message);
                } else if self.path.len() >= ALIAS_DEPTH_MAX {
                    self.fail(subject, format!("aliases nest deeper than {ALIAS_DEPTH_MAX} at `{key}`"));
                } else {
                    let (expansion, depth) = self.alias(key, targets, inner);
                    if depth >= ALIAS_DEPTH_MAX {
                        self.fail(subject, format!("aliases nest deeper than {ALIAS_DEPTH_MAX} at `{key}`"));
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

/// Gathers targets, each once.
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
