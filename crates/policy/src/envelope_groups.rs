//! Merges duplicate recipients of a transaction: each ends up in one envelope, however many paths lead to it.
//!
//! Promise: a recipient reached by several paths is in the envelope of the first path that lets the message through,
//! or of the first path if all of them hold it. The requests of the other paths are kept.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use stentor_mail::address::Address;

/// The recipients of one future envelope.
#[derive(Debug, PartialEq, Eq)]
pub struct Group<P> {
    pub of: EnvelopeKind,
    /// Sender of the envelope, if it is not the client's.
    pub sender: Option<Address>,
    /// Recipients; empty for a list, which has its subscribers.
    pub to: Vec<(Address, P)>,
    /// The rules that led to it, as text.
    pub why: String,
    /// Origin of the next hops of recipients that the client did not name, as text; may be empty.
    pub hops: String,
}

/// Purpose of an envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvelopeKind {
    List(Arc<str>),
    Alias(Address),
    Others,
}

/// Data about a recipient: how it was reached.
pub trait RecipientPath: Clone {
    /// Merges another path to the same recipient. Returns whether that path replaces this one, which it does if only
    /// it lets the message through.
    fn unite(&mut self, more: &Self) -> bool;
}

/// Indexes of a group and of a recipient in it.
type Place = (usize, usize);

/// The groups being filled; the first one has recipients reached directly.
pub(crate) struct EnvelopeGroups<P> {
    groups: Vec<Group<P>>,
    places: HashMap<Address, Place>,
    /// Recipients that moved to another group.
    left: HashSet<Place>,
}

impl<P> EnvelopeGroups<P> {
    pub fn new(why: String) -> EnvelopeGroups<P> {
        let others = Group { of: EnvelopeKind::Others, sender: None, to: Vec::new(), why, hops: String::new() };
        EnvelopeGroups { groups: vec![others], places: HashMap::new(), left: HashSet::new() }
    }

    /// Begins a group for the following recipients.
    pub fn begin(&mut self, of: EnvelopeKind, sender: Option<Address>, why: String) {
        self.groups.push(Group { of, sender, to: Vec::new(), why, hops: String::new() });
    }

    /// The non-empty groups, the one of direct recipients last, including these copies.
    pub fn finish(self, copies: Vec<(Address, P)>) -> Vec<Group<P>> {
        let EnvelopeGroups { mut groups, left, .. } = self;
        if !left.is_empty() {
            for (n, group) in groups.iter_mut().enumerate() {
                let mut places = (0..).map(|at| (n, at));
                group.to.retain(|_| places.next().is_some_and(|place| !left.contains(&place)));
            }
        }
        groups[0].to.extend(copies);
        groups.rotate_left(1);
        groups.retain(|group| !group.to.is_empty());
        groups
    }

    /// Place of the next recipient.
    fn next(&self) -> Place {
        let last = self.groups.len() - 1;
        (last, self.groups[last].to.len())
    }
}

impl<P: RecipientPath> EnvelopeGroups<P> {
    pub fn add(&mut self, to: &Address, way: &P) {
        let place = self.next();
        if let Some(known) = self.places.get_mut(to) {
            let first = &mut self.groups[known.0].to[known.1].1;
            if !first.unite(way) {
                return;
            }
            let united = first.clone();
            // Within one group no recipient has to move.
            if known.0 != place.0 {
                self.left.insert(*known);
                *known = place;
                self.groups[place.0].to.push((to.clone(), united));
            }
            return;
        }
        self.places.insert(to.clone(), place);
        self.groups[place.0].to.push((to.clone(), way.clone()));
    }
}

#[cfg(test)]
impl RecipientPath for () {
    fn unite(&mut self, _more: &()) -> bool {
        false
    }
}

/// For tests: values from 100 on hold the message.
#[cfg(test)]
impl RecipientPath for u8 {
    fn unite(&mut self, more: &u8) -> bool {
        let is_replaced = *self >= 100 && *more < 100;
        if is_replaced {
            *self = *more;
        }
        is_replaced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether it holds the message, and what it requests.
    #[derive(Clone)]
    struct PathRequest(bool, &'static str, String);

    impl RecipientPath for PathRequest {
        fn unite(&mut self, more: &PathRequest) -> bool {
            let is_replaced = self.0 && !more.0;
            let all = format!("{}+{}", self.2, more.2);
            if is_replaced {
                *self = more.clone();
            }
            self.2 = all;
            is_replaced
        }
    }

    /// The paths to joe, one group each, and the remaining groups.
    fn joes(ways: &[(bool, &'static str)]) -> Vec<String> {
        let joe: Address = "joe@d.test".parse().unwrap();
        let mut meant = EnvelopeGroups::new("others".to_owned());
        for (n, (keeps, name)) in ways.iter().enumerate() {
            if n > 0 {
                meant.begin(EnvelopeKind::Alias(joe.clone()), None, (*name).to_owned());
            }
            meant.add(&joe, &PathRequest(*keeps, name, (*name).to_owned()));
        }
        let way = |PathRequest(keeps, name, asks): &PathRequest| {
            format!("{name}{}: {asks}", if *keeps { " keeps it" } else { "" })
        };
        let all = meant.finish(Vec::new());
        let shown = all.iter().map(|group| {
            assert_eq!(group.to.len(), 1);
            format!("{}: {}", group.why, way(&group.to[0].1))
        });
        shown.collect()
    }

    #[test]
    fn whoever_is_meant_twice_gets_it_by_the_first_way_that_lets_it_through() {
        for (ways, expected) in [
            (&[(false, "a"), (false, "b")][..], "others: a: a+b"),
            (&[(false, "a"), (true, "b")], "others: a: a+b"),
            (&[(true, "a"), (false, "b")], "b: b: a+b"),
            (&[(true, "a"), (true, "b")], "others: a keeps it: a+b"),
            (&[(true, "a"), (true, "b"), (false, "c"), (false, "d")], "c: c: a+b+c+d"),
            (&[(true, "a"), (false, "b"), (true, "c")], "b: b: a+b+c"),
        ] {
            assert_eq!(joes(ways), [expected]);
        }
    }

    #[test]
    fn who_leaves_a_group_takes_nobody_along() {
        let to = |name: &str| format!("{name}@d.test").parse::<Address>().unwrap();
        let mut meant = EnvelopeGroups::new(String::new());
        for name in ["a", "joe", "b", "joe"] {
            meant.add(&to(name), &100_u8);
        }
        meant.begin(EnvelopeKind::Alias(to("info")), None, "info".to_owned());
        for name in ["c", "joe", "b"] {
            meant.add(&to(name), &1);
        }
        let groups = meant.finish(vec![(to("copy"), 2)]);
        let names: Vec<Vec<&str>> =
            groups.iter().map(|group| group.to.iter().map(|(to, _)| to.local()).collect()).collect();
        assert_eq!(names, [vec!["c", "joe", "b"], vec!["a", "copy"]]);
    }
}
