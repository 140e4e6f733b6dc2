//! Flows: mail that shares a turn. A flow is a list, the copies for its archives, a sender's domain among other bulk
//! mail, or all ordinary mail with the same rules. Each flow has its sources, weight, lifetimes, and its own line of
//! sites that need a connection, so that a large list cannot starve a small one.
//!
//! Promise: mail of a list or sender with a setting (rules, suspension, queue-only) is in a flow of its own, however
//! many flows there are. Ordinary senders without a setting share one flow, and so do further bulk senders and lists
//! without one after [`FLOWS_MAX`] flows. A setting for mail that waits in a shared flow makes [`Flows::regroups`]
//! true, and the mail is moved (`operator::regroup`).
//!
//! The line for the budget serves ordinary flows before bulk ones, `ordinary_per_bulk`:1. Within a class, flows take
//! turns with `weight` connections each. Within a flow, sites are ordered by arrival, shifted by their history.

pub mod lines;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use stentor_queue::ids::{Ms, SiteId};
use stentor_queue::message::Message;

use crate::tables::Map;

/// Index of a class in per-class tables: ordinary, bulk.
pub const ORDINARY: usize = 0;
pub const CLASSES: usize = 2;

pub type FlowNo = u32;

/// Number of flows from which on lists and senders without a setting share one per class.
const FLOWS_MAX: usize = 20_000;

/// A set of sources, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourceSet(pub u64);

impl SourceSet {
    pub const ALL: SourceSet = SourceSet(u64::MAX);

    pub fn has(self, source: u8) -> bool {
        self.0 >> source & 1 == 1
    }

    /// The first `sources` sources.
    pub fn first(sources: usize) -> SourceSet {
        if sources < 64 { SourceSet((1 << sources) - 1) } else { SourceSet::ALL }
    }
}

/// Whole flows that are queue-only (`crate::queue_only`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueOnlyFlows {
    pub classes: [bool; CLASSES],
    pub lists: Vec<Arc<str>>,
    /// Sources from which nothing is sent, and all sources.
    pub sources: SourceSet,
    pub sources_all: SourceSet,
}

impl Default for QueueOnlyFlows {
    fn default() -> QueueOnlyFlows {
        QueueOnlyFlows {
            classes: [false; CLASSES],
            lists: Vec::new(),
            sources: SourceSet(0),
            sources_all: SourceSet::ALL,
        }
    }
}

impl QueueOnlyFlows {
    fn is_empty(&self) -> bool {
        !self.classes.contains(&true) && self.lists.is_empty() && self.sources.0 == 0
    }

    /// Whether a flow is queue-only, and the sources for its mail: those that are not queue-only, if any.
    fn of(&self, class: usize, key: Option<&FlowKey>, sources: SourceSet) -> (bool, SourceSet) {
        let is_list = matches!(key, Some(FlowKey::List(name) | FlowKey::Archive(name)) if self.lists.contains(name));
        let open = sources.0 & self.sources_all.0 & !self.sources.0;
        let is_shut = self.sources.0 != 0 && open == 0;
        let sources = if self.sources.0 == 0 || is_shut { sources } else { SourceSet(open) };
        (self.classes[class] || is_list || is_shut, sources)
    }
}

/// The operator's rules for a list's posts, or for mail of a sender's domain. `None`: the class's value from the
/// configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowRules {
    /// Local addresses that the flow is sent from.
    pub sources: SourceSet,
    /// The flow's share among others of its class, at least 1.
    pub weight: u8,
    pub lifetime_ms: Option<Ms>,
    /// Age at which a notice about the delay is requested.
    pub warn_ms: Option<Ms>,
    /// Posts waiting for one recipient above which they go as one digest.
    pub coalesce_over: Option<u32>,
    /// Posts refused permanently in a row before a subscriber is suspended.
    pub suspend_posts: Option<u32>,
    /// Duration of permanent refusals before a subscriber is suspended.
    pub suspend_ms: Option<Ms>,
    /// Most recipients of a transaction; `None`: as many as the site takes.
    pub recipients_max: Option<usize>,
}

impl Default for FlowRules {
    fn default() -> Self {
        FlowRules {
            sources: SourceSet::ALL,
            weight: 1,
            lifetime_ms: None,
            warn_ms: None,
            coalesce_over: None,
            suspend_posts: None,
            suspend_ms: None,
            recipients_max: None,
        }
    }
}

/// A list or sender that has rules or can be suspended.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum FlowKey {
    List(Arc<str>),
    /// Copies of a list's posts for its archives: digests, suspensions of subscribers and the list's lifetime do not
    /// concern them.
    Archive(Arc<str>),
    /// A sender's domain.
    Sender(Arc<str>),
}

impl FlowKey {
    /// The key, and that of its archives if it is a list.
    fn with_archive(&self) -> impl Iterator<Item = FlowKey> + use<> {
        let archive = match self {
            FlowKey::List(list) => Some(FlowKey::Archive(list.clone())),
            FlowKey::Archive(_) | FlowKey::Sender(_) => None,
        };
        std::iter::once(self.clone()).chain(archive)
    }
}

pub struct Flow {
    pub key: Option<FlowKey>,
    pub class: usize,
    pub rules: FlowRules,
    pub suspended: bool,
    pub is_queue_only: bool,
    /// Sources from which the flow may be sent now: the rules' sources that are not queue-only.
    pub sources: SourceSet,
    /// Sites that wait for a connection, ordered by time.
    wanting: BinaryHeap<Reverse<(Ms, u32, u32)>>,
    in_rotation: bool,
    /// Connections that the flow had in this turn.
    had: u8,
}

pub struct Flows {
    /// The flows; those for the classes' other mail come first, numbered like the classes.
    pub list: Vec<Flow>,
    by_key: Map<(usize, FlowKey), FlowNo>,
    /// Whether a list or bulk sender got no flow of its own.
    is_full: bool,
    /// Whether mail in a shared flow may belong in one of its own now.
    pub regroups: bool,
    rules: Map<FlowKey, FlowRules>,
    suspended_keys: Map<FlowKey, ()>,
    kept: QueueOnlyFlows,
    /// Grows when flows become queue-only: each line is checked once per generation.
    pub generation: u32,
    rotation: [VecDeque<FlowNo>; CLASSES],
    /// Sites in line, per class.
    pub wanting: [usize; CLASSES],
    /// Connections for ordinary mail since bulk last had one.
    pub turn: u8,
    seq: u32,
    /// Whether some flow may not use every source.
    pub pools: bool,
    /// Whether some flow has its own lifetime.
    pub lifetimes: bool,
    /// Whether some flow allows digests.
    pub coalesces: bool,
}

impl Flow {
    fn new(class: usize, key: Option<FlowKey>, rules: FlowRules, suspended: bool, kept: &QueueOnlyFlows) -> Flow {
        let (is_queue_only, sources) = kept.of(class, key.as_ref(), rules.sources);
        let wanting = BinaryHeap::new();
        Flow { key, class, rules, suspended, is_queue_only, sources, wanting, in_rotation: false, had: 0 }
    }

    /// Whether nothing of the flow may go, except messages that a run of the queue lets pass.
    pub fn is_kept(&self) -> bool {
        self.suspended || self.is_queue_only
    }
}

impl Default for Flows {
    fn default() -> Flows {
        let own = |class| Flow::new(class, None, FlowRules::default(), false, &QueueOnlyFlows::default());
        Flows {
            list: (0..CLASSES).map(own).collect(),
            by_key: Map::default(),
            is_full: false,
            regroups: false,
            rules: Map::default(),
            suspended_keys: Map::default(),
            kept: QueueOnlyFlows::default(),
            generation: 0,
            rotation: Default::default(),
            wanting: [0; CLASSES],
            turn: 0,
            seq: 0,
            pools: false,
            lifetimes: false,
            coalesces: false,
        }
    }
}

impl Flows {
    pub fn get(&self, flow: FlowNo) -> &Flow {
        &self.list[flow as usize]
    }

    /// Whether any flow is suspended or queue-only.
    pub fn any_kept(&self) -> bool {
        !self.suspended_keys.is_empty() || !self.kept.is_empty()
    }

    pub fn is_kept(&self, flow: FlowNo) -> bool {
        self.list[flow as usize].is_kept()
    }

    pub fn is_queue_only(&self, flow: FlowNo) -> bool {
        self.list[flow as usize].is_queue_only
    }

    /// Sets which flows are queue-only from now on.
    pub fn keep(&mut self, kept: QueueOnlyFlows) {
        for list in &kept.lists {
            self.note_setting(&FlowKey::List(list.clone()));
            self.note_setting(&FlowKey::Archive(list.clone()));
        }
        for flow in &mut self.list {
            (flow.is_queue_only, flow.sources) = kept.of(flow.class, flow.key.as_ref(), flow.rules.sources);
        }
        self.pools |= kept.sources.0 != 0;
        self.kept = kept;
        self.generation = self.generation.wrapping_add(1);
    }

    /// The flow of a message: lists and other bulk mail by name; ordinary mail only if its sender has a setting.
    pub fn of(&mut self, message: &Message, class: usize) -> FlowNo {
        let envelope = message.envelope();
        let key = match envelope.list {
            Some(list) if envelope.is_archive => FlowKey::Archive(list.into()),
            Some(list) => FlowKey::List(list.into()),
            None if class == ORDINARY && self.rules.is_empty() && self.suspended_keys.is_empty() => {
                return class as FlowNo;
            }
            None => FlowKey::Sender(envelope.sender.rsplit_once('@').map_or("", |(_, domain)| domain).into()),
        };
        if class == ORDINARY && matches!(key, FlowKey::Sender(_)) && !self.has_setting(&key) {
            return class as FlowNo;
        }
        let key = (class, key);
        if let Some(flow) = self.by_key.get(&key) {
            return *flow;
        }
        if self.list.len() >= FLOWS_MAX && !self.has_setting(&key.1) {
            self.is_full = true;
            return class as FlowNo;
        }
        let flow = self.list.len() as FlowNo;
        let rules = self.rules.get(&key.1).cloned().unwrap_or_default();
        let suspended = self.suspended_keys.contains_key(&key.1);
        self.note(&rules);
        self.list.push(Flow::new(class, Some(key.1.clone()), rules, suspended, &self.kept));
        self.by_key.insert(key, flow);
        flow
    }

    /// Whether an operator or the configuration has a setting for a list's or sender's mail.
    fn has_setting(&self, key: &FlowKey) -> bool {
        let is_kept = matches!(key, FlowKey::List(name) | FlowKey::Archive(name) if self.kept.lists.contains(name));
        is_kept || self.rules.contains_key(key) || self.suspended_keys.contains_key(key)
    }

    /// Called before a list or sender gets a setting: its mail may wait in a shared flow.
    fn note_setting(&mut self, key: &FlowKey) {
        let may_share = self.is_full || matches!(key, FlowKey::Sender(_));
        self.regroups |= may_share && !self.has_setting(key);
    }

    fn note(&mut self, rules: &FlowRules) {
        self.pools |= rules.sources != SourceSet::ALL;
        self.lifetimes |= rules.lifetime_ms.is_some();
        self.coalesces |= rules.coalesce_over.is_some();
    }

    pub fn shortest_warning(&self) -> Option<Ms> {
        self.rules.values().filter_map(|rules| rules.warn_ms).min()
    }

    /// Number of sites in line, of both classes.
    pub fn in_line(&self) -> usize {
        self.wanting.iter().sum()
    }

    /// Sets the rules for a list's or sender's mail; `None`: the class's defaults.
    pub fn set_rules(&mut self, key: FlowKey, rules: Option<FlowRules>) {
        self.change(&key, |flow, kept| {
            flow.rules = rules.clone().unwrap_or_default();
            flow.rules.weight = flow.rules.weight.max(1);
            (flow.is_queue_only, flow.sources) = kept.of(flow.class, flow.key.as_ref(), flow.rules.sources);
        });
        match rules {
            Some(mut rules) => {
                rules.weight = rules.weight.max(1);
                self.note_setting(&key);
                self.note(&rules);
                self.rules.insert(key, rules);
            }
            None => drop(self.rules.remove(&key)),
        }
    }

    /// Suspends a list or sender. The copies for a list's archives wait with it.
    pub fn suspend(&mut self, key: &FlowKey) {
        for key in key.with_archive() {
            self.note_setting(&key);
            self.change(&key, |flow, _| flow.suspended = true);
            self.suspended_keys.insert(key, ());
        }
    }

    pub fn resume(&mut self, key: &FlowKey) {
        for key in key.with_archive() {
            self.suspended_keys.remove(&key);
            self.change(&key, |flow, _| flow.suspended = false);
        }
    }

    /// Changes the flows of a list or sender, one in each class.
    fn change(&mut self, key: &FlowKey, change: impl Fn(&mut Flow, &QueueOnlyFlows)) {
        for class in 0..CLASSES {
            if let Some(flow) = self.by_key.get(&(class, key.clone())) {
                change(&mut self.list[*flow as usize], &self.kept);
            }
        }
    }

    /// Puts a site in line for a connection, for mail of this flow.
    pub fn want(&mut self, flow: FlowNo, site: SiteId, at: Ms) {
        self.seq = self.seq.wrapping_add(1);
        let entry = &mut self.list[flow as usize];
        entry.wanting.push(Reverse((at, self.seq, site.0)));
        self.wanting[entry.class] += 1;
        if !entry.in_rotation {
            entry.in_rotation = true;
            self.rotation[entry.class].push_back(flow);
        }
    }

    /// The next flow and site in line. `bulk_too`: the budget has room for bulk mail.
    pub fn next_wanting(&mut self, ordinary_per_bulk: u8, bulk_too: bool) -> Option<(FlowNo, SiteId)> {
        let bulk_first = self.turn >= ordinary_per_bulk && bulk_too;
        let order = if bulk_first { [1, ORDINARY] } else { [ORDINARY, 1] };
        let class = order.into_iter().find(|class| self.wanting[*class] > 0 && (*class == ORDINARY || bulk_too))?;
        self.turn = if class == ORDINARY { self.turn.saturating_add(1) } else { 0 };
        loop {
            let flow = *self.rotation[class].front()?;
            let entry = &mut self.list[flow as usize];
            if entry.wanting.is_empty() || entry.had >= entry.rules.weight {
                self.rotation[class].pop_front();
                (entry.had, entry.in_rotation) = (0, !entry.wanting.is_empty());
                if entry.in_rotation {
                    self.rotation[class].push_back(flow);
                }
                continue;
            }
            entry.had += 1;
            self.wanting[class] -= 1;
            return entry.wanting.pop().map(|Reverse((_, _, site))| (flow, SiteId(site)));
        }
    }
}
