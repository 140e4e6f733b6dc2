//! Displays the DNS records of DKIM keys on a terminal. All text is escaped.

use std::fmt::Write as _;

use stentor_queue::ids::Ms;
use stentor_records::escape::printable;

use super::dkim_view::{DkimRecordView, DkimRecords};
use super::format::span;

const TEXT_BYTES_MAX: usize = 1_000;
const NAME_BYTES_MAX: usize = 260;

/// One line for each record, below its domain.
pub fn records(all: &DkimRecords) -> String {
    let (mut out, mut domain) = (String::new(), None);
    for row in &all.rows {
        if domain != Some(&row.domain) {
            domain = Some(&row.domain);
            let _ = writeln!(out, "{}", printable(&row.domain, NAME_BYTES_MAX));
        }
        let name = printable(&row.name, NAME_BYTES_MAX);
        let _ = writeln!(out, "  {:<7}  {name}  {}", printable(&row.action, 20), state(row, all.now));
    }
    if out.is_empty() {
        out.push_str("the server makes no DKIM keys: no section [[dkim]] has `rotate_days`\n");
    }
    out
}

fn state(row: &DkimRecordView, now: Ms) -> String {
    let since = row.since.map(|since| span(now.saturating_sub(since))).unwrap_or_default();
    let seen = if row.seen.is_empty() { String::new() } else { format!("; {}", printable(&row.seen, TEXT_BYTES_MAX)) };
    match row.state.as_str() {
        "created" => format!("waits for its record for {since}{seen}"),
        "published" => format!("seen for {since}; it signs once no cache still reports it missing{seen}"),
        "in_use" => format!("in use for {since}{seen}"),
        "retired" => format!("retired for {since}; mail signed with it is on its way{seen}"),
        "removable" => format!("not needed for {since}; may be removed{seen}"),
        other => format!("{}{seen}", printable(other, 20)),
    }
}
