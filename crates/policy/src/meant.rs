//! Who is meant by the recipients of a transaction: each in one envelope, whatever ways lead there.
//!
//! Promise: whoever is meant by several ways is in the envelope of the first that lets the message through; in that of the first of all,
//! if each keeps it. What the others ask for is not lost.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use stentor_mail::address::Address;

/// The recipients of one envelope to be.
#[derive(Debug, PartialEq, Eq)]
pub struct Group<P> {
    pub of: Of,
    /// The envelope's sender, where it is not the client's.
    pub sender: Option<Address>,
    /// Empty for a list: its subscribers.
    pub to: Vec<(Address, P)>,
    /// The rules that led to it, in words.
    pub why: String,
    /// What named the next hops of those whom nobody named, in words; may be empty.
    pub hops: String,
}

/// What an envelope is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Of {
    List(Arc<str>),
    Alias(Address),
    Others,
}

/// What is kept beside a recipient: how whom it stands for is reached.
pub trait Way: Clone {
    /// Another way leads to the same place. Says whether it takes this one's place, as it does if it alone lets the message through.
    fn unite(&mut self, more: &Self) -> bool;
}

/// A group, and who of it.
type Place = (usize, usize);

/// The groups as they are filled; those that no list or alias stands for are the first one.
pub(crate) struct Meant<P> {
    groups: Vec<Group<P>>,
    places: HashMap<Address, Place>,
    /// Whose mail has another way since.
    left: HashSet<Place>,
}

impl<P> Meant<P> {
    pub fn new(why: String) -> Meant<P> {
        let others = Group { of: Of::Others, sender: None, to: Vec::new(), why, hops: String::new() };
        Meant { groups: vec![others], places: HashMap::new(), left: HashSet::new() }
    }

    /// Those who are added from now on are in this group.
    pub fn begin(&mut self, of: Of, sender: Option<Address>, why: String) {
        self.groups.push(Group { of, sender, to: Vec::new(), why, hops: String::new() });
    }

    /// The groups that have somebody, those that nothing stands for last, with these.
    pub fn finish(self, copies: Vec<(Address, P)>) -> Vec<Group<P>> {
        let Meant { mut groups, left, .. } = self;
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

    /// Where the next one is to be.
    fn next(&self) -> Place {
        let last = self.groups.len() - 1;
        (last, self.groups[last].to.len())
    }
}

impl<P: Way> Meant<P> {
    pub fn add(&mut self, to: &Address, way: &P) {
        let place = self.next();
        if let Some(known) = self.places.get_mut(to) {
            let first = &mut self.groups[known.0].to[known.1].1;
            if !first.unite(way) {
                return;
            }
            let united = first.clone();
            // Within one group nobody has to move.
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
impl Way for () {
    fn unite(&mut self, (): &()) -> bool {
        false
    }
}

/// Numbers from 100 on keep the message.
#[cfg(test)]
impl Way for u8 {
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

    /// Whether it keeps the message, and what it asks for.
    #[derive(Clone)]
    struct Asks(bool, &'static str, String);

    impl Way for Asks {
        fn unite(&mut self, more: &Asks) -> bool {
            let is_replaced = self.0 && !more.0;
            let all = format!("{}+{}", self.2, more.2);
            if is_replaced {
                *self = more.clone();
            }
            self.2 = all;
            is_replaced
        }
    }

    /// The ways to joe, one group each, and the groups that are left.
    fn joes(ways: &[(bool, &'static str)]) -> Vec<String> {
        let joe: Address = "joe@d.test".parse().unwrap();
        let mut meant = Meant::new("others".to_owned());
        for (n, (keeps, name)) in ways.iter().enumerate() {
            if n > 0 {
                meant.begin(Of::Alias(joe.clone()), None, (*name).to_owned());
            }
            meant.add(&joe, &Asks(*keeps, name, (*name).to_owned()));
        }
        let way = |Asks(keeps, name, asks): &Asks| format!("{name}{}: {asks}", if *keeps { " keeps it" } else { "" });
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
        let mut meant = Meant::new(String::new());
        for name in ["a", "joe", "b", "joe"] {
            meant.add(&to(name), &100_u8);
        }
        meant.begin(Of::Alias(to("info")), None, "info".to_owned());
        for name in ["c", "joe", "b"] {
            meant.add(&to(name), &1);
        }
        let groups = meant.finish(vec![(to("copy"), 2)]);
        let names: Vec<Vec<&str>> =
            groups.iter().map(|group| group.to.iter().map(|(to, _)| to.local()).collect()).collect();
        assert_eq!(names, [vec!["c", "joe", "b"], vec!["a", "copy"]]);
    }
}
