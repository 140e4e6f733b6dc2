//! A bounded map of answers of one kind; the least recently used entry is evicted first.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;
use stentor_queue::ids::Ms;

use super::CallAheadResult;

pub(super) struct Entry {
    pub answer: CallAheadResult,
    pub until: Ms,
    /// When the answer is due for a refresh.
    pub refresh_at: Ms,
}

#[derive(Default)]
pub(super) struct Shelf {
    entries: HashMap<Arc<str>, (u64, Entry), foldhash::fast::RandomState>,
    /// Keys by the number of each entry's last use.
    order: BTreeMap<u64, Arc<str>>,
    last: u64,
}

impl Shelf {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns an entry that is still valid, and marks it as used.
    pub fn get(&mut self, key: &str, now: Ms) -> Option<&Entry> {
        let (no, entry) = self.entries.get_mut(key)?;
        if now >= entry.until {
            return None;
        }
        if let Some(key) = self.order.remove(no) {
            self.last += 1;
            *no = self.last;
            self.order.insert(self.last, key);
        }
        Some(entry)
    }

    pub fn remove(&mut self, key: &str) {
        if let Some((no, _)) = self.entries.remove(key) {
            self.order.remove(&no);
        }
    }

    /// Postpones an entry's refresh.
    pub fn put_off(&mut self, key: &str, until: Ms) {
        if let Some((_, entry)) = self.entries.get_mut(key) {
            entry.refresh_at = until;
        }
    }

    pub fn put(&mut self, key: Arc<str>, entry: Entry, max: usize) {
        self.remove(&key);
        self.last += 1;
        self.order.insert(self.last, key.clone());
        self.entries.insert(key, (self.last, entry));
        while self.entries.len() > max {
            let Some((_, oldest)) = self.order.pop_first() else { return };
            self.entries.remove(&oldest);
        }
    }
}
