//! Ids used outside the store: while a [`Pin`] is alive, its ids are not forgotten.

use std::sync::Arc;

use stentor_queue::ids::AddressId;
use stentor_queue::idset::IdSet;

/// Protects ids from being forgotten.
#[derive(Clone, Debug)]
pub struct Pin {
    _alive: Arc<()>,
}

/// All ids that are pinned.
#[derive(Default)]
pub struct Pins {
    alive: Arc<()>,
    pub ids: IdSet,
}

impl Pins {
    pub fn pin(&mut self, ids: &[AddressId]) -> Pin {
        self.refresh();
        for id in ids {
            self.ids.insert(id.0);
        }
        Pin { _alive: self.alive.clone() }
    }

    /// Pins a set of ids.
    pub fn pin_all(&mut self, ids: &IdSet) -> Pin {
        self.refresh();
        self.ids.union_with(ids);
        Pin { _alive: self.alive.clone() }
    }

    /// Clears the ids once no pin exists. Pins are made only under the hub's lock, so none can appear meanwhile.
    pub fn refresh(&mut self) {
        if Arc::strong_count(&self.alive) == 1 {
            self.ids = IdSet::new();
        }
    }
}
