//! What must be on the disk: an independent, naive model of the queue in addresses and Message-IDs, not in ids.
//!
//! It is advanced from the jobs given to the committer and the outcomes that the campaign invented, never from the
//! store; then it is compared with the store, live and replayed.

use std::collections::{BTreeMap, BTreeSet};

use stentor_core::audit::Audit;
use stentor_queue::book::split_hop;
use stentor_queue::event::{Event, Fate};
use stentor_queue::ids::{AddressId, Ms};
use stentor_queue::idset::IdSet;
use stentor_queue::message::Message;
use stentor_queue::store::Store;

pub const FATES: [Fate; 6] =
    [Fate::Delivered, Fate::Bounced, Fate::Expired, Fate::Removed, Fate::Quarantined, Fate::Coalesced];

/// Of the fates.
const QUARANTINED: usize = 4;
/// How the Message-ID begins of what comes into the quarantine.
pub const QUARANTINED_KEY: &str = "<q.";

/// How the Message-ID of a post begins that is kept.
pub const POST_KEY: &str = "<p.";

/// A kept post.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PostEntry {
    /// The post as it was accepted; pending: nobody.
    pub entry: Entry,
    /// Who missed it, with the number of the fate.
    pub missed: BTreeMap<String, usize>,
    pub delivered: u64,
    pub resends: u64,
}

/// One queued message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub pending: BTreeSet<String>,
    pub total: u64,
    pub sender: String,
    pub list: Option<String>,
    pub size: u64,
    /// By the operator.
    pub held: bool,
}

/// The state after some batch.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// By the Message-ID that the envelope has.
    pub messages: BTreeMap<String, Entry>,
    /// Likewise, with who is in the quarantine.
    pub quarantine: BTreeMap<String, Entry>,
    pub posts: BTreeMap<String, PostEntry>,
    pub lists: BTreeMap<String, (u64, BTreeSet<String>)>,
    /// Standing bounces by name: when each ends.
    pub bounces: BTreeMap<String, Ms>,
    /// What the operator made queue-only, by its name.
    pub queue_only: BTreeSet<String>,
    pub accepted: u64,
    pub acknowledged: u64,
    pub fates: [u64; 6],
    /// What operators did, in order. A start hears what the checkpoint left of it.
    pub audit: Vec<String>,
}

impl Model {
    /// The same account of a store. An error if its sum is wrong.
    pub fn of(store: &Store) -> Result<Model, String> {
        let text = |id: u32| store.book.entry(AddressId(id)).to_owned();
        let entry_of = |message: &Message| Entry {
            pending: message.pending().iter().map(text).collect(),
            total: message.total(),
            sender: message.sender().to_owned(),
            list: message.list().map(str::to_owned),
            size: message.size(),
            held: message.is_held(),
        };
        let mut model = Model::default();
        for (_, message) in store.messages() {
            let (key, entry) = (message.message_id(), entry_of(message));
            for (key, entry) in apart(key, entry) {
                if model.messages.insert(key, entry).is_some() {
                    return Err(format!("{} is queued twice", message.message_id()));
                }
            }
        }
        for message in store.quarantined(None) {
            let known = model.quarantine.insert(message.message_id().to_owned(), entry_of(message));
            if known.is_some() {
                return Err(format!("{} is in the quarantine twice", message.message_id()));
            }
        }
        for post in store.posts(None) {
            let missed = post.missed().iter().map(|id| (text(id), post.fate_of(id) as usize)).collect();
            let entry = Entry { total: post.facts().total, ..entry_of(post.message()) };
            let post_entry = PostEntry {
                entry: Entry { pending: BTreeSet::new(), ..entry },
                missed,
                delivered: store.delivered_of_post(post),
                resends: post.facts().resends.len() as u64,
            };
            if model.posts.insert(post.message().message_id().to_owned(), post_entry).is_some() {
                return Err(format!("{} is kept twice", post.message().message_id()));
            }
        }
        for (name, list) in store.lists() {
            model.lists.insert(name.to_owned(), (list.version, list.ids.iter().map(text).collect()));
        }
        model.bounces = store.standing_bounces().map(|(name, until, _)| (name.to_owned(), until)).collect();
        model.queue_only = store.queue_only().map(|(name, ..)| name.to_owned()).collect();
        let totals = store.totals();
        model.accepted = totals.messages_accepted;
        model.acknowledged = totals.acknowledged;
        model.fates = FATES.map(|fate| {
            let mut tally = totals.fates;
            *tally.of_mut(fate)
        });
        let pending: u64 = model.messages.values().map(|entry| entry.pending.len() as u64).sum();
        if model.acknowledged != pending + model.fates.iter().sum::<u64>() {
            return Err(format!(
                "acknowledged {} is not pending {pending} plus the fates {:?}",
                model.acknowledged, model.fates
            ));
        }
        Ok(model)
    }

    /// All pending recipients, with their message.
    pub fn pairs(&self) -> impl Iterator<Item = (String, String)> {
        let pairs = |(key, entry): (&String, &Entry)| {
            let key = key.split(' ').next().unwrap_or_default().to_owned();
            entry.pending.clone().into_iter().map(move |address| (key.clone(), address))
        };
        self.messages.iter().flat_map(pairs)
    }

    pub fn accept(&mut self, key: &str, entry: Entry) {
        if entry.pending.is_empty() {
            return;
        }
        self.accepted += 1;
        self.acknowledged += entry.total;
        if key.starts_with(POST_KEY) {
            let entry = Entry { pending: BTreeSet::new(), ..entry.clone() };
            let post = PostEntry { entry, missed: BTreeMap::new(), delivered: 0, resends: 0 };
            self.posts.insert(key.to_owned(), post);
        }
        self.messages.extend(apart(key, entry));
    }

    /// Those of `who` that missed a post get it in a message of their own.
    pub fn resend(&mut self, key: &str, who: &BTreeSet<String>) {
        let Some(post) = self.posts.get_mut(key) else { return };
        let pending: BTreeSet<String> =
            who.iter().filter(|address| post.missed.contains_key(*address)).cloned().collect();
        if pending.is_empty() {
            return;
        }
        post.missed.retain(|address, _| !pending.contains(address));
        post.resends += 1;
        let total = pending.len() as u64;
        self.accepted += 1;
        self.acknowledged += total;
        let resent = Entry { pending, total, ..post.entry.clone() };
        self.messages.extend(apart(key, resent));
    }

    /// Into the quarantine.
    pub fn quarantine(&mut self, key: &str, entry: Entry) {
        if entry.pending.is_empty() {
            return;
        }
        self.accepted += 1;
        self.acknowledged += entry.total;
        self.fates[QUARANTINED] += entry.total;
        self.quarantine.insert(key.to_owned(), entry);
    }

    /// Those of `who` that are in the quarantine get another fate, or are pending.
    pub fn leave_quarantine(&mut self, key: &str, fate: Option<Fate>, who: &BTreeSet<String>) {
        let Some(entry) = self.quarantine.get_mut(key) else { return };
        let leaving: BTreeSet<String> = entry.pending.intersection(who).cloned().collect();
        entry.pending.retain(|address| !leaving.contains(address));
        entry.total = entry.pending.len() as u64;
        let left = leaving.len() as u64;
        self.fates[QUARANTINED] -= left;
        if let Some(fate) = fate {
            self.fates[fate as usize] += left;
        } else {
            let released = Entry { pending: leaving, total: left, ..entry.clone() };
            self.messages.extend(apart(key, released));
        }
        if entry.pending.is_empty() {
            self.quarantine.remove(key);
        }
    }

    pub fn is_quarantined(&self, key: &str, address: &str) -> bool {
        self.quarantine.get(key).is_some_and(|entry| entry.pending.contains(address))
    }

    /// A recipient's message in the queue.
    pub fn entry(&self, key: &str, address: &str) -> Option<&Entry> {
        self.messages.get(&key_of(key, address))
    }

    /// An operator's hold or release of the message that these are the recipients of.
    pub fn hold(&mut self, key: &str, held: bool, who: &BTreeSet<String>) {
        for address in who {
            if let Some(entry) = self.messages.get_mut(&key_of(key, address)) {
                entry.held = held;
            }
        }
    }

    /// A standing bounce begins, perhaps with another end, or is ended.
    pub fn bounce(&mut self, name: &str, until: Option<Ms>) {
        match until {
            Some(until) => self.bounces.insert(name.to_owned(), until),
            None => self.bounces.remove(name),
        };
    }

    /// Whether a message's recipient is queue-only.
    pub fn is_queue_only(&self, key: &str, address: &str) -> bool {
        let Some(entry) = self.entry(key, address) else { return false };
        let is_about = |name: &String| match name.splitn(3, ':').collect::<Vec<_>>()[..] {
            ["queue_only", "all"] => true,
            ["queue_only", "list", list] => entry.list.as_deref() == Some(list),
            ["queue_only", "sender", sender] => entry.sender == sender,
            ["queue_only", "domain", domain] => {
                address.rsplit_once('@').is_some_and(|(_, of)| split_hop(of).0 == domain)
            }
            _ => false,
        };
        self.queue_only.iter().any(is_about)
    }

    /// Whether a start may find `found` where this is on the disk; `whole`: no checkpoint has cut its audit short.
    pub fn may_replay_as(&self, found: &Model, whole: bool) -> bool {
        let is_heard = if whole { self.audit == found.audit } else { self.audit.ends_with(&found.audit) };
        is_heard && self.is_like(found)
    }

    /// The same queue; what operators did is not compared.
    pub fn is_like(&self, other: &Model) -> bool {
        (&self.messages, &self.quarantine, &self.lists) == (&other.messages, &other.quarantine, &other.lists)
            && self.posts == other.posts
            && (&self.bounces, &self.queue_only) == (&other.bounces, &other.queue_only)
            && (self.accepted, self.acknowledged, self.fates) == (other.accepted, other.acknowledged, other.fates)
    }

    /// Those of `who` that are pending get their fate.
    pub fn outcome(&mut self, key: &str, fate: Fate, who: &BTreeSet<String>) {
        if is_apart(key) && !key.contains(' ') {
            return who.iter().for_each(|address| self.outcome(&key_of(key, address), fate, who));
        }
        let Some(entry) = self.messages.get_mut(key) else { return };
        let ended: Vec<String> = entry.pending.intersection(who).cloned().collect();
        entry.pending.retain(|address| !who.contains(address));
        if let Some(at) = FATES.iter().position(|known| *known == fate) {
            self.fates[at] += ended.len() as u64;
        }
        match self.posts.get_mut(key.split(' ').next().unwrap_or_default()) {
            Some(post) if fate == Fate::Delivered => post.delivered += ended.len() as u64,
            Some(post) => post.missed.extend(ended.into_iter().map(|address| (address, fate as usize))),
            None => {}
        }
        if entry.pending.is_empty() {
            self.messages.remove(key);
        }
    }

    /// Where two accounts differ, in a line.
    pub fn difference(&self, other: &Model) -> String {
        let mut found = Vec::new();
        for (key, entry) in &self.messages {
            match other.messages.get(key) {
                None => found.push(format!("{key} is missing")),
                Some(known) if known != entry => found.push(format!("{key}: {entry:?} became {known:?}")),
                Some(_) => {}
            }
        }
        let extra = other.messages.keys().filter(|key| !self.messages.contains_key(*key));
        found.extend(extra.map(|key| format!("{key} is there and should not be")));
        if self.quarantine != other.quarantine {
            found.push(format!("the quarantine {:?} became {:?}", self.quarantine, other.quarantine));
        }
        if self.posts != other.posts {
            found.push(format!("posts {:?} became {:?}", self.posts, other.posts));
        }
        if self.lists != other.lists {
            found.push(format!("lists {:?} became {:?}", self.lists, other.lists));
        }
        if self.bounces != other.bounces {
            found.push(format!("standing bounces {:?} became {:?}", self.bounces, other.bounces));
        }
        if self.queue_only != other.queue_only {
            found.push(format!("queue-only {:?} became {:?}", self.queue_only, other.queue_only));
        }
        if (self.accepted, self.acknowledged, self.fates) != (other.accepted, other.acknowledged, other.fates) {
            found.push(format!(
                "totals {:?} became {:?}",
                (self.accepted, self.acknowledged, self.fates),
                (other.accepted, other.acknowledged, other.fates)
            ));
        }
        if found.is_empty() && self.audit != other.audit {
            found.push(format!("audit {:?} became {:?}", self.audit, other.audit));
        }
        found.truncate(6);
        found.join("; ")
    }
}

/// Whether several messages may have this Message-ID: what is released from the quarantine or sent again, perhaps at
/// several times, is told apart by its recipients.
fn is_apart(key: &str) -> bool {
    key.starts_with(QUARANTINED_KEY) || key.starts_with(POST_KEY)
}

fn key_of(key: &str, address: &str) -> String {
    if is_apart(key) { format!("{key} {address}") } else { key.to_owned() }
}

/// A message of the queue as the model has it.
fn apart(key: &str, entry: Entry) -> Vec<(String, Entry)> {
    if !is_apart(key) {
        return vec![(key.to_owned(), entry)];
    }
    let one = |address: &String| {
        let pending = BTreeSet::from([address.clone()]);
        (key_of(key, address), Entry { pending, total: 1, ..entry.clone() })
    };
    entry.pending.iter().map(one).collect()
}

/// Recipients by Message-ID of what a turn accepts.
pub(crate) type Expanded = BTreeMap<String, BTreeSet<String>>;

/// The recipients of a set, as texts: a copy to another server is one of its own, `address>hop`.
pub(crate) fn texts(store: &Store, ids: &IdSet) -> BTreeSet<String> {
    ids.iter().map(|id| store.book.entry(AddressId(id)).to_owned()).collect()
}

/// One line of the account, from an audit.
pub(crate) fn audit_line(audit: &Audit) -> String {
    format!("{} {} {} {}", audit.at, audit.who, audit.verb, audit.detail)
}

/// The same from a record of the journal, if it is one.
pub(crate) fn audit_of(record: &[u8]) -> Option<String> {
    match Event::decode(record) {
        Ok(Event::Verb { at, who, verb, detail }) => Some(format!("{at} {who} {verb} {detail}")),
        _ => None,
    }
}
