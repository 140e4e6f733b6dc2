//! The tests that a message matches.

/// A test that matched, and the text that it matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    pub test: usize,
    pub by: String,
}

/// The tests that a message matches.
#[derive(Debug, Clone, Default)]
pub struct Hits {
    bits: Vec<u64>,
    /// The matched texts, if they are recorded.
    pub shown: Option<Vec<Hit>>,
}

impl Hits {
    pub(crate) fn new(tests: usize, is_shown: bool) -> Hits {
        Hits { bits: vec![0; tests.div_ceil(64)], shown: is_shown.then(Vec::new) }
    }

    pub(super) fn has(&self, test: usize) -> bool {
        self.bits.get(test / 64).is_some_and(|bits| bits >> (test % 64) & 1 == 1)
    }

    /// Records a test and the text that it matched, unless it matched before.
    pub(super) fn add(&mut self, test: usize, by: impl FnOnce() -> String) {
        if self.has(test) {
            return;
        }
        if let Some(bits) = self.bits.get_mut(test / 64) {
            *bits |= 1 << (test % 64);
        }
        if let Some(shown) = &mut self.shown {
            shown.push(Hit { test, by: by() });
        }
    }

    /// The text that a test matched.
    pub(super) fn by(&self, test: usize) -> Option<&str> {
        self.shown.as_ref()?.iter().find(|hit| hit.test == test).map(|hit| hit.by.as_str())
    }
}
