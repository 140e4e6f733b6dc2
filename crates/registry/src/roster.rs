//! Members in memory, as posts need them: each list's stamp, its latest changes, and members who get no posts.
//!
//! The members who get posts are in the queue's store, as a version of the list with the stamp. The changes since a
//! stamp bring an older version up to date; if they are no longer known, all members are read again.

use std::collections::{HashMap, HashSet, VecDeque};

use parking_lot::RwLock;

use crate::members::{ListMember, MemberDelivery, RosterChange, RosterState, RosterUpdate};
use crate::suppression::Subject;

/// Changes of one list that are remembered; after more, all its members are read again.
const CHANGES_MAX: usize = 20_000;

#[derive(Default)]
pub(crate) struct RosterIndex {
    lists: RwLock<HashMap<String, Roster>>,
}

#[derive(Default)]
struct Roster {
    stamp: String,
    members: u64,
    recent: VecDeque<RecentUpdate>,
    changes: usize,
    /// Members who get no posts, as canonical subjects.
    silent: HashSet<Box<str>>,
}

struct RecentUpdate {
    /// The stamp before.
    from: String,
    changes: Vec<RosterChange>,
}

/// What brings a version of a list up to date.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RosterDelta {
    /// The stamp after the changes.
    pub stamp: String,
    /// In their order. `None`: they are no longer known.
    pub changes: Option<Vec<RosterChange>>,
}

impl RosterIndex {
    pub fn load(&self, state: RosterState) {
        let mut lists = self.lists.write();
        let roster = lists.entry(state.list).or_default();
        (roster.stamp, roster.members) = (state.stamp, state.members);
    }

    pub fn load_silent(&self, row: &ListMember) {
        let mut lists = self.lists.write();
        lists.entry(row.list.clone()).or_default().silent.insert(row.member.subject().text().into());
    }

    /// Shows a durable update.
    pub fn update(&self, update: RosterUpdate) {
        let mut lists = self.lists.write();
        let roster = lists.entry(update.state.list).or_default();
        for change in &update.changes {
            let subject: Box<str> = change.address.as_str().to_ascii_lowercase().into();
            match change.delivery {
                Some(MemberDelivery::None) => drop(roster.silent.insert(subject)),
                Some(MemberDelivery::Mail) | None => drop(roster.silent.remove(&subject)),
            }
        }
        let from = std::mem::replace(&mut roster.stamp, update.state.stamp);
        roster.members = update.state.members;
        if update.changes.is_empty() {
            // Members were deleted: posts must read all.
            roster.recent.clear();
            roster.changes = 0;
            return;
        }
        roster.changes += update.changes.len();
        roster.recent.push_back(RecentUpdate { from, changes: update.changes });
        while roster.changes > CHANGES_MAX {
            let Some(oldest) = roster.recent.pop_front() else { break };
            roster.changes -= oldest.changes.len();
        }
    }

    pub fn remove(&self, list: &str) {
        self.lists.write().remove(list);
    }

    /// Returns the changes of a list since the stamp `from`; `None` if it has that stamp now.
    pub fn since(&self, list: &str, from: Option<&str>) -> Option<RosterDelta> {
        let lists = self.lists.read();
        let empty = Roster::default();
        let roster = lists.get(list).unwrap_or(&empty);
        if from == Some(&*roster.stamp) {
            return None;
        }
        let begin = from.and_then(|from| roster.recent.iter().position(|update| update.from == from));
        let changes = begin.map(|begin| {
            let updates = roster.recent.iter().skip(begin);
            updates.flat_map(|update| update.changes.iter().cloned()).collect()
        });
        Some(RosterDelta { stamp: roster.stamp.clone(), changes })
    }

    /// Whether an address is a member of the list who gets no posts.
    pub fn is_silent(&self, list: &str, subject: &Subject) -> bool {
        self.lists.read().get(list).is_some_and(|roster| roster.silent.contains(subject.text().as_str()))
    }

    pub fn members(&self, list: &str) -> u64 {
        self.lists.read().get(list).map_or(0, |roster| roster.members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(stamp: &str, address: &str, delivery: Option<MemberDelivery>) -> RosterUpdate {
        let state = RosterState { list: "news".to_owned(), stamp: stamp.to_owned(), members: 1 };
        RosterUpdate { state, changes: vec![RosterChange { address: address.parse().unwrap(), delivery }] }
    }

    #[test]
    fn an_older_version_gets_the_changes_since() {
        let index = RosterIndex::default();
        assert_eq!(index.since("news", Some("")), None, "no members yet");
        index.update(update("1", "ann@x.example", Some(MemberDelivery::Mail)));
        index.update(update("2", "bob@x.example", Some(MemberDelivery::None)));
        assert_eq!(index.since("news", Some("2")), None);
        let changes = |from: Option<&str>| {
            let delta = index.since("news", from).unwrap();
            assert_eq!(delta.stamp, "2");
            delta.changes.map(|changes| changes.len())
        };
        assert_eq!((changes(Some("")), changes(Some("1"))), (Some(2), Some(1)));
        assert_eq!((changes(Some("other")), changes(None)), (None, None), "all members are read");
        assert!(index.is_silent("news", &Subject::parse("Bob@x.example").unwrap()));
        index.update(update("3", "bob@x.example", None));
        assert!(!index.is_silent("news", &Subject::parse("bob@x.example").unwrap()));
    }

    #[test]
    fn only_the_latest_changes_are_remembered() {
        let index = RosterIndex::default();
        for n in 0..=CHANGES_MAX {
            index.update(update(&n.to_string(), "ann@x.example", Some(MemberDelivery::Mail)));
        }
        assert_eq!(index.since("news", Some("")).unwrap().changes, None);
        assert_eq!(index.since("news", Some("0")).unwrap().changes.unwrap().len(), CHANGES_MAX);
    }
}
