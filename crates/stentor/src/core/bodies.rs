//! Small contents that were accepted a moment ago, kept in memory so that the first attempt need not read them back.
//! A cache: whatever does not fit is read from the journal.

use hashbrown::HashMap;
use stentor_queue::ids::ContentId;

use super::envelope::Body;

pub struct Bodies {
    kept: HashMap<ContentId, Body, foldhash::fast::FixedState>,
    bytes: usize,
    bytes_max: usize,
}

/// Larger contents are read from the journal: the cache is for the many small ones.
const BODY_BYTES_MAX: usize = 64 * 1024;

impl Bodies {
    pub fn new(bytes_max: usize) -> Bodies {
        Bodies { kept: HashMap::default(), bytes: 0, bytes_max }
    }

    /// Keeps a complete content if there is room. Those that wait longest are delivered first, so nothing is evicted.
    pub fn keep(&mut self, id: ContentId, body: &Body) {
        let bytes = body.capacity();
        if bytes <= BODY_BYTES_MAX
            && self.bytes + bytes <= self.bytes_max
            && self.kept.insert(id, body.clone()).is_none()
        {
            self.bytes += bytes;
        }
    }

    pub fn get(&self, id: ContentId) -> Option<Body> {
        self.kept.get(&id).cloned()
    }

    /// The content is unreferenced, or its first attempt failed and it will wait.
    pub fn forget(&mut self, id: ContentId) {
        if let Some(body) = self.kept.remove(&id) {
            self.bytes -= body.capacity();
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
        bodies.keep(ContentId(1), &body);
        bodies.keep(ContentId(2), &body);
        assert!(bodies.get(ContentId(1)).is_some());
        assert!(bodies.get(ContentId(2)).is_none());
        bodies.forget(ContentId(1));
        bodies.keep(ContentId(2), &body);
        assert!(bodies.get(ContentId(2)).is_some());
    }
}
