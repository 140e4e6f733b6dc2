//! A table that is replaced as a whole.
//!
//! Promise: a lookup sees one version or the next, never a mixture; a version lives until its last reader has
//! finished.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::table::Table;

#[derive(Debug)]
pub struct Slot {
    current: RwLock<Arc<Table>>,
}

impl Slot {
    pub fn new(table: Table) -> Self {
        Self { current: RwLock::new(Arc::new(table)) }
    }

    /// The version in force.
    pub fn get(&self) -> Arc<Table> {
        self.current.read().clone()
    }

    /// Puts the next version in force. The old one is dropped outside the lock, because that may take a while.
    pub fn replace(&self, table: Table) {
        let next = Arc::new(table);
        let before = std::mem::replace(&mut *self.current.write(), next);
        drop(before);
    }
}
