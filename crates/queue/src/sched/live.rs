//! Which messages are live, and what is going on with the few that something is going on with.
//!
//! Promise: a message that merely waits costs one bit. Its age and sender are the store's to tell; an [`Active`] is made
//! when a recipient of it goes out, fails or is reserved, and goes when that is over and nothing is to be remembered.

use super::Active;
use super::sites::CLASSES;
use super::tables::Parts;
use crate::ids::MessageNo;
use crate::idset::IdSet;

#[derive(Default)]
pub(super) struct Messages {
    /// Numbers, per class.
    live: [IdSet; CLASSES],
    active: Parts<MessageNo, Active>,
}

impl Messages {
    /// Whether it is new.
    pub fn insert(&mut self, no: MessageNo, class: usize) -> bool {
        !self.is_live(no) && self.live[class].insert(no.0)
    }

    /// What was going on with it.
    pub fn remove(&mut self, no: MessageNo) -> Option<Active> {
        for live in &mut self.live {
            live.remove(no.0);
        }
        self.active.remove(&no)
    }

    pub fn is_live(&self, no: MessageNo) -> bool {
        self.class(no).is_some()
    }

    pub fn class(&self, no: MessageNo) -> Option<usize> {
        self.live.iter().position(|live| live.contains(no.0))
    }

    pub fn len(&self) -> usize {
        self.live.iter().map(IdSet::len).sum()
    }

    /// What is going on with it, if anything is.
    pub fn get(&self, no: MessageNo) -> Option<&Active> {
        self.active.get(&no)
    }

    pub fn get_mut(&mut self, no: MessageNo) -> Option<&mut Active> {
        self.active.get_mut(&no)
    }

    /// The same for something that is to go on with it; `None` if it is not live.
    pub fn begin(&mut self, no: MessageNo) -> Option<&mut Active> {
        self.is_live(no).then(|| self.active.get_or_insert_with(no, Active::default))
    }

    /// Whether an operator holds it.
    pub fn is_parked(&self, no: MessageNo) -> bool {
        self.get(no).is_some_and(Active::is_parked)
    }

    /// Something is over: what is known of it may be needless now.
    pub fn rest(&mut self, no: MessageNo) {
        if self.active.get(&no).is_some_and(Active::is_idle) {
            self.active.remove(&no);
        }
    }

    /// The lowest live number greater than `after`.
    pub fn next(&self, after: Option<u32>) -> Option<u32> {
        let first = |live: &IdSet| after.map_or_else(|| live.min(), |after| live.iter_from(after).next());
        self.live.iter().filter_map(first).min()
    }
}
