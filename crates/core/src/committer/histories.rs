//! Writes histories of addresses and domains once a minute and at shutdown, as records in each batch that has space.
//!
//! Promise: a kill loses at most the last minute, a clean shutdown nothing. A record holds the hub's lock for well
//! under a millisecond. A refused batch loses nothing: the next turn writes its histories again.

use std::time::Duration;

use stentor_journal::Log;
use stentor_queue::ids::Ms;
use stentor_queue::store::{HISTORIES_MAX, Histories};

use super::{Committer, SLICE_OVERHEAD_BYTES};
use crate::hub::Hub;

/// Interval between turns.
const EVERY_MS: Ms = 60_000;
/// Upper bound of a record: histories with their ids, or domains with their ids and names.
const RECORD_BYTES_MAX: usize = 20 * HISTORIES_MAX;
/// Records per batch: bounds how long the hub's lock is held.
const RECORDS_MAX: usize = 16;

/// State of the current turn, and when the next one begins.
pub(super) struct HistorySaver {
    due: Ms,
    is_under_way: bool,
    /// Histories in the batch being built.
    taken: Histories,
    record: Vec<u8>,
}

impl HistorySaver {
    pub fn new(steady: Ms) -> HistorySaver {
        HistorySaver { due: steady + EVERY_MS, is_under_way: false, taken: Histories::default(), record: Vec::new() }
    }

    pub fn is_under_way(&self) -> bool {
        self.is_under_way
    }

    pub fn written(&mut self) {
        self.taken = Histories::default();
    }

    pub fn refused(&mut self, hub: &mut Hub) {
        hub.store.not_saved(&mut self.taken);
    }
}

impl<L: Log> Committer<L> {
    /// Time until the next turn begins.
    pub(super) fn saving_pause(&self) -> Duration {
        Duration::from_millis(self.saving.due.saturating_sub(self.core.clock.steady()))
    }

    /// Adds the turn's next records, if they are due, as far as the batch has space.
    pub(super) fn save_histories(&mut self, hub: &mut Hub, jobs_bytes: usize) {
        let now = self.core.clock.steady();
        let saving = &mut self.saving;
        if now >= saving.due {
            (saving.due, saving.is_under_way) = (now + EVERY_MS, true);
            hub.store.begin_saving();
        }
        for _ in 0..RECORDS_MAX {
            let bytes = self.batch.bytes() + jobs_bytes + RECORD_BYTES_MAX + SLICE_OVERHEAD_BYTES;
            if !saving.is_under_way || bytes > self.log.batch_bytes_max() {
                return;
            }
            saving.record.clear();
            if hub.store.save(&mut saving.record, &mut saving.taken) && !saving.record.is_empty() {
                self.batch.record(&saving.record);
            }
            saving.is_under_way = hub.store.is_saving();
        }
    }

    /// Writes all remaining histories at shutdown, as far as the disk permits.
    pub(super) fn save_all(&mut self) {
        // First the rest of a running turn, then the changes since it began.
        for _ in 0..2 {
            self.saving.due = 0;
            while self.turn(Vec::new()) && self.saving.is_under_way {}
        }
    }
}
