//! The audit record of an operator's action.

use stentor_journal::{Batch, RECORD_OVERHEAD_BYTES};
use stentor_queue::event::{encode_verb, verb_bytes_max};
use stentor_queue::ids::Ms;

/// The audit record: who did what.
#[derive(Clone, Debug)]
pub struct Audit {
    pub at: Ms,
    pub who: String,
    pub verb: &'static str,
    /// Selectors, reason and counts, as JSON.
    pub detail: String,
}

impl Audit {
    pub fn record(&self, batch: &mut Batch) {
        batch.record_with(|buffer| encode_verb(buffer, self.at, &self.who, self.verb, &self.detail));
    }

    /// Returns who acted and the reason given, for logs, the history and `trace`.
    pub fn who_and_why(&self) -> String {
        let detail: serde_json::Value = serde_json::from_str(&self.detail).unwrap_or_default();
        match detail["reason"].as_str() {
            Some(reason) if !reason.is_empty() => format!("{}: {reason}", self.who),
            _ => self.who.clone(),
        }
    }

    /// Returns an upper bound of the octets that its record takes in a batch.
    pub fn bytes_max(&self) -> usize {
        RECORD_OVERHEAD_BYTES + verb_bytes_max(&self.who, self.verb, &self.detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_stands_behind_who_gave_it() {
        let audit =
            |detail: &str| Audit { at: 0, who: "uid 0 (root)".to_owned(), verb: "remove", detail: detail.to_owned() };
        assert_eq!(audit("{\"reason\":\"spam: run 7\",\"messages\":1}").who_and_why(), "uid 0 (root): spam: run 7");
        for without in ["{}", "{\"reason\":\"\"}", ""] {
            assert_eq!(audit(without).who_and_why(), "uid 0 (root)", "{without}");
        }
    }
}
