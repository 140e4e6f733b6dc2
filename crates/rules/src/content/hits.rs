//! Which tests a message meets.

/// One test that is met, and what met it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    pub test: usize,
    pub by: String,
}

/// The tests that a message meets.
#[derive(Debug, Clone, Default)]
pub struct Hits {
    bits: Vec<u64>,
    /// What met them, if somebody wants to know.
    pub shown: Option<Vec<Hit>>,
}

impl Hits {
    pub(crate) fn new(tests: usize, is_shown: bool) -> Hits {
        Hits { bits: vec![0; tests.div_ceil(64)], shown: is_shown.then(Vec::new) }
    }

    pub(super) fn has(&self, test: usize) -> bool {
        self.bits.get(test / 64).is_some_and(|bits| bits >> (test % 64) & 1 == 1)
    }

    /// Notes a test, and by what it was met, where it was not before.
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

    /// What met a test.
    pub(super) fn by(&self, test: usize) -> Option<&str> {
        self.shown.as_ref()?.iter().find(|hit| hit.test == test).map(|hit| hit.by.as_str())
    }
}
