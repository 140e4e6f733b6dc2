//! Recently accepted small contents, kept in memory so that the first attempt need not read them back. This is a cache:
//! a content that does not fit is read from the journal.
//!
//! A content kept for [`KEPT_MS`] is waiting for a host that is down, and is evicted. So a deep queue neither holds
//! this memory nor keeps new mail out of it. Nothing younger is evicted, since the oldest contents are delivered first.

use std::collections::VecDeque;

use hashbrown::HashMap;
use stentor_queue::ids::{ContentId, Ms};

use super::envelope::ContentBytes;

/// Larger contents are read from the journal: the cache is for the many small ones.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// How long a content is kept.
const KEPT_MS: Ms = 10_000;
/// Expired contents evicted for each new one: several, to make space.
const EXPIRED_MAX: usize = 4;
/// Expired contents evicted per tick.
const EXPIRED_PER_TICK: usize = 512;
const TICK_MS: Ms = 1_000;

pub struct Bodies {
    kept: HashMap<ContentId, ContentBytes, foldhash::fast::FixedState>,
    /// Contents in order of age; some of them may already be gone.
    ages: VecDeque<(Ms, ContentId)>,
    bytes: usize,
    bytes_max: usize,
}

impl Bodies {
    pub fn new(bytes_max: usize) -> Bodies {
        Bodies { kept: HashMap::default(), ages: VecDeque::new(), bytes: 0, bytes_max }
    }

    /// Keeps a complete content if there is space.
    pub fn keep(&mut self, id: ContentId, body: &ContentBytes, now: Ms) {
        self.expire(EXPIRED_MAX, now);
        let bytes = body.capacity();
        if bytes <= BODY_BYTES_MAX
            && self.bytes + bytes <= self.bytes_max
            && self.kept.insert(id, body.clone()).is_none()
        {
            self.bytes += bytes;
            self.ages.push_back((now, id));
        }
    }

    pub fn get(&self, id: ContentId) -> Option<ContentBytes> {
        self.kept.get(&id).cloned()
    }

    /// Drops a content that is unreferenced, or whose first attempt failed so that it will wait.
    pub fn forget(&mut self, id: ContentId) {
        if let Some(body) = self.kept.remove(&id) {
            self.bytes -= body.capacity();
        }
    }

    /// Shifts all ages after the clock was set.
    pub fn clock_moved(&mut self, by: i64) {
        for (since, _) in &mut self.ages {
            *since = since.saturating_add_signed(by);
        }
    }

    /// Evicts some of the expired contents; due at [`Bodies::next_tick`].
    pub fn tick(&mut self, now: Ms) {
        self.expire(EXPIRED_PER_TICK, now);
    }

    pub fn next_tick(&self) -> Option<Ms> {
        self.ages.front().map(|(since, _)| (since + KEPT_MS).next_multiple_of(TICK_MS))
    }

    fn expire(&mut self, mut left: usize, now: Ms) {
        while left > 0
            && let Some((since, id)) = self.ages.front().copied()
            && (since + KEPT_MS <= now || !self.kept.contains_key(&id))
        {
            left -= 1;
            self.ages.pop_front();
            self.forget(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn room_is_bounded_and_comes_back() {
        let mut bodies = Bodies::new(100);
        let body = Arc::new(Vec::with_capacity(60));
        bodies.keep(ContentId(1), &body, 5);
        bodies.keep(ContentId(2), &body, KEPT_MS);
        assert!(bodies.get(ContentId(1)).is_some());
        assert!(bodies.get(ContentId(2)).is_none());
        bodies.forget(ContentId(1));
        bodies.keep(ContentId(2), &body, KEPT_MS);
        assert!(bodies.get(ContentId(2)).is_some());
    }

    #[test]
    fn what_waits_too_long_makes_room() {
        let mut bodies = Bodies::new(100);
        let body = Arc::new(Vec::with_capacity(60));
        bodies.keep(ContentId(1), &body, 5);
        bodies.keep(ContentId(2), &body, 5 + KEPT_MS);
        assert!(bodies.get(ContentId(1)).is_none());
        assert!(bodies.get(ContentId(2)).is_some());
        for n in 3..100 {
            bodies.forget(ContentId(n - 1));
            bodies.keep(ContentId(n), &body, 6 + KEPT_MS);
        }
        assert!(bodies.ages.len() <= EXPIRED_MAX, "{} ages", bodies.ages.len());
    }
}
