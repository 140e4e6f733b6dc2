//! Counts messages for the reports of a day, by policy domain.
//!
//! Limits: a domain with more than [`ROWS_MAX`] different rows in a day has the rest counted without a row, which its
//! report says. The limits of all domains are those of [`DailyCounts`].

use hashbrown::HashMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::report::{PublishedPolicy, ReportRow, RowCount};
use crate::daily::{DailyCounts, DayCount};

/// Maximum different rows of one domain in one day.
pub const ROWS_MAX: usize = 1_000;
/// Maximum octets of a text from others.
const TEXT_BYTES_MAX: usize = 255;

type Rows = HashMap<ReportRow, u64, foldhash::fast::RandomState>;

/// Counts of one policy domain in a day.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DmarcCount {
    /// The policy seen last.
    pub policy: PublishedPolicy,
    #[serde(serialize_with = "write_rows", deserialize_with = "read_rows")]
    rows: Rows,
    /// Messages beyond the limit of rows.
    #[serde(default)]
    pub uncounted: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    done: Vec<String>,
}

/// Counts of all days.
pub type DmarcCounts = DailyCounts<DmarcCount>;

/// Counts messages.
pub trait MessageCounter {
    fn message(&mut self, policy: &PublishedPolicy, row: ReportRow, now: u64);
}

impl MessageCounter for DmarcCounts {
    fn message(&mut self, policy: &PublishedPolicy, row: ReportRow, now: u64) {
        self.update(&policy.domain, now, |count, has_space| count.add(policy, row, has_space));
    }
}

impl DmarcCount {
    /// Rows, those with most messages first; the order is the same each time.
    pub fn rows(&self) -> Vec<RowCount> {
        let mut rows: Vec<RowCount> = self.rows.iter().map(|(row, count)| row_count(row, *count)).collect();
        rows.sort_unstable_by(|one, other| other.messages.cmp(&one.messages).then_with(|| one.row.cmp(&other.row)));
        rows
    }

    /// Returns the octets added.
    fn add(&mut self, policy: &PublishedPolicy, row: ReportRow, has_space: bool) -> usize {
        if self.policy != *policy {
            self.policy = policy.clone();
        }
        let row = truncate_texts(row);
        if let Some(count) = self.rows.get_mut(&row) {
            *count += 1;
            return 0;
        }
        if self.rows.len() >= ROWS_MAX || !has_space {
            self.uncounted += 1;
            return 0;
        }
        let octets = octets_of(&row);
        self.rows.insert(row, 1);
        octets
    }
}

impl DayCount for DmarcCount {
    const HEAD: &'static str = "stentor dmarc 1";
    // Whoever has a domain can make up any number below it.
    const ORGANIZATION_DOMAINS_MAX: u32 = 100;

    fn octets(&self) -> usize {
        self.rows.keys().map(octets_of).sum()
    }

    fn done(&self) -> &[String] {
        &self.done
    }

    fn done_mut(&mut self) -> &mut Vec<String> {
        &mut self.done
    }
}

fn row_count(row: &ReportRow, messages: u64) -> RowCount {
    RowCount { messages, row: row.clone() }
}

/// Octets of a row in memory.
pub(super) fn octets_of(row: &ReportRow) -> usize {
    let dkim = row.dkim.iter().map(|one| size_of_val(one) + one.domain.len() + one.selector.len() + one.result.len());
    let reasons = row.reasons.iter().map(|one| size_of_val(one) + one.kind.len() + one.comment.len());
    let spf = row.spf.as_ref().map_or(0, |spf| spf.domain.len() + spf.result.len());
    let envelope_from = row.envelope_from.as_ref().map_or(0, String::len);
    size_of::<(ReportRow, u64)>()
        + row.header_from.len()
        + envelope_from
        + spf
        + dkim.sum::<usize>()
        + reasons.sum::<usize>()
}

/// Shortens texts that others choose.
fn truncate_texts(mut row: ReportRow) -> ReportRow {
    let of_dkim = row.dkim.iter_mut().flat_map(|one| [&mut one.domain, &mut one.selector]);
    let of_spf = row.spf.iter_mut().map(|spf| &mut spf.domain);
    let others = [&mut row.header_from].into_iter().chain(&mut row.envelope_from);
    for text in of_dkim.chain(of_spf).chain(others) {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
    }
    row
}

/// JSON has only texts as keys.
fn write_rows<S: Serializer>(rows: &Rows, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(rows)
}

fn read_rows<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Rows, D::Error> {
    let rows = Vec::<(ReportRow, u64)>::deserialize(deserializer)?;
    Ok(rows.into_iter().take(ROWS_MAX).collect())
}
