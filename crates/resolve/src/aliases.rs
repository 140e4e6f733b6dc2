//! Follows the CNAMEs of one reply in linear time: each name is visited once, however many there are.

use std::collections::{HashMap, HashSet};

use hickory_resolver::proto::rr::{Name, RData, Record};

/// Maximum CNAMEs followed within one reply, as in hickory.
pub const CNAMES_MAX: usize = 16;

/// Maximum CNAME records considered per reply; a longer chain is not followed.
const CNAMES_SEEN_MAX: usize = 256;

/// A name, followed by the names that its CNAMEs lead to: at most [`CNAMES_MAX`], without duplicates.
pub struct CnameChain<'r> {
    names: Vec<&'r Name>,
    /// Set of the names, if there are several; a name may have 127 labels.
    set: HashSet<&'r Name>,
}

impl<'r> CnameChain<'r> {
    pub fn of(name: &'r Name, records: &'r [Record]) -> CnameChain<'r> {
        let mut targets: HashMap<&Name, &Name> = HashMap::new();
        let cnames = records.iter().filter_map(|record| match &record.data {
            RData::CNAME(target) => Some((&record.name, &target.0)),
            _ => None,
        });
        for (owner, target) in cnames.take(CNAMES_SEEN_MAX) {
            targets.entry(owner).or_insert(target);
        }
        let (mut names, mut set) = (vec![name], HashSet::new());
        if !targets.is_empty() {
            set.insert(name);
            while let Some(next) = targets.get(names[names.len() - 1]).copied().filter(|_| names.len() <= CNAMES_MAX) {
                if !set.insert(next) {
                    break;
                }
                names.push(next);
            }
        }
        CnameChain { names, set }
    }

    /// Whether the name has a CNAME.
    pub fn has_aliases(&self) -> bool {
        self.names.len() > 1
    }

    /// The end of the chain.
    pub fn last(&self) -> &'r Name {
        self.names[self.names.len() - 1]
    }

    pub fn contains(&self, name: &Name) -> bool {
        match self.names.as_slice() {
            [only] => *only == name,
            _ => self.set.contains(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use hickory_resolver::proto::rr::rdata::{A, CNAME};

    use super::*;

    fn name(text: &str) -> Name {
        Name::from_ascii(text).unwrap()
    }

    fn alias(owner: &str, target: &str) -> Record {
        Record::from_rdata(name(owner), 60, RData::CNAME(CNAME(name(target))))
    }

    #[test]
    fn a_chain_ends_where_it_ends_loops_or_is_too_long() {
        let address = Record::from_rdata(name("c.x."), 60, RData::A(A::new(192, 0, 2, 1)));
        let records = [alias("b.x.", "C.x."), alias("a.x.", "B.X."), alias("a.x.", "other."), address];
        let from = name("A.x.");
        let chain = CnameChain::of(&from, &records);
        assert!(chain.has_aliases() && *chain.last() == name("c.x."));
        assert!(
            ["a.x.", "b.x.", "c.X."].iter().all(|one| chain.contains(&name(one))) && !chain.contains(&name("other."))
        );
        let looped = [alias("a.x.", "b.x."), alias("b.x.", "a.x.")];
        assert_eq!(CnameChain::of(&from, &looped).names.len(), 2);
        let to_itself = [alias("a.x.", "a.x.")];
        assert!(!CnameChain::of(&from, &to_itself).has_aliases());
        let long: Vec<Record> = (0..100).map(|n| alias(&format!("n{n}.x."), &format!("n{}.x.", n + 1))).collect();
        assert_eq!(CnameChain::of(&name("n0.x."), &long).names.len(), CNAMES_MAX + 1);
        assert!(CnameChain::of(&from, &[]).contains(&from));
    }
}
