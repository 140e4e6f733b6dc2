//! The audit record of an operator's action.

use stentor_journal::{Batch, RECORD_OVERHEAD_BYTES};
use stentor_queue::event::{encode_verb, verb_bytes_max};
use stentor_queue::ids::Ms;

/// Who did what: the audit record.
#[derive(Clone, Debug)]
pub struct Audit {
    pub at: Ms,
    pub who: String,
    pub verb: &'static str,
    /// Selectors, reason and counts as JSON.
    pub detail: String,
}

impl Audit {
    pub fn record(&self, batch: &mut Batch) {
        batch.record_with(|buffer| encode_verb(buffer, self.at, &self.who, self.verb, &self.detail));
    }

    /// Octets that its record takes in a batch at most.
    pub fn bytes_max(&self) -> usize {
        RECORD_OVERHEAD_BYTES + verb_bytes_max(&self.who, self.verb, &self.detail)
    }
}
