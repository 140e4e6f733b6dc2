//! Answers of one kind, bounded: the oldest goes first.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;
use stentor_queue::ids::Ms;

use super::Answer;

pub(super) struct Entry {
    pub answer: Answer,
    pub until: Ms,
    /// When it is to be asked for again.
    pub refresh_at: Ms,
}

#[derive(Default)]
pub(super) struct Shelf {
    entries: HashMap<Arc<str>, (u64, Entry), foldhash::fast::RandomState>,
    /// Keys in the order in which they came, with the number of their entry; those of entries that were replaced too.
    order: VecDeque<(u64, Arc<str>)>,
    last: u64,
}

impl Shelf {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// One that is still good.
    pub fn get(&self, key: &str, now: Ms) -> Option<&Entry> {
        self.entries.get(key).map(|(_, entry)| entry).filter(|entry| now < entry.until)
    }

    pub fn remove(&mut self, key: &str) {
        self.entries.remove(key);
    }

    /// It is asked for again later.
    pub fn put_off(&mut self, key: &str, until: Ms) {
        if let Some((_, entry)) = self.entries.get_mut(key) {
            entry.refresh_at = until;
        }
    }

    pub fn put(&mut self, key: Arc<str>, entry: Entry, max: usize) {
        self.last += 1;
        self.order.push_back((self.last, key.clone()));
        self.entries.insert(key, (self.last, entry));
        while self.order.len() > max {
            let Some((no, oldest)) = self.order.pop_front() else { return };
            if self.entries.get(&oldest).is_some_and(|(current, _)| *current == no) {
                self.entries.remove(&oldest);
            }
        }
    }
}
