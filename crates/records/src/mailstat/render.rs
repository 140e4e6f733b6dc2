//! Formats the table as text (like its ancestor's, with more columns), as JSON and as CSV.

use std::fmt::Write;

use serde_json::{Value, json};

use super::{By, Counts, Key, Row, Table, label};
use crate::civil::{Civil, WEEKDAYS};
use crate::escape::printable;
use crate::histogram::Histogram;
use crate::record::Ms;

/// Approximate limit for a name in octets; names come from logs, and anybody may have chosen them.
const NAME_BYTES_MAX: usize = 512;
/// Names longer than this shift the columns to the right.
const NAME_COLUMNS_MAX: usize = 40;

/// Formats the table for people:
///
/// ```text
/// mailstat: Sun 2026-11-22 09:05:40
///                  failed      deliveries
/// MMM DD HH mhosts/recipt mhosts/recipt deferred bounced ...
/// ```
pub fn text(table: &Table, now: Ms, zone_name: &str) -> String {
    let by = table.options().by;
    let rows = table.rows();
    let total = table.total();
    let head = match by {
        By::Hour => "MMM DD HH",
        By::Day => "YYYY-MM-DD",
        _ => column(by),
    };
    let labels: Vec<String> = rows.iter().map(|row| printable(&label(&row.key, by), NAME_BYTES_MAX)).collect();
    let width = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
    let width = width.min(NAME_COLUMNS_MAX).max(head.len()).max("Totals".len());
    let mut out = String::new();
    let civil = Civil::of(now, &table.options().zone);
    let _ = writeln!(
        out,
        "mailstat: {} {} {:02}:{:02}:{:02} {zone_name}",
        WEEKDAYS[civil.weekday],
        civil.date_text(),
        civil.hour,
        civil.minute,
        civil.second
    );
    let _ = writeln!(
        out,
        "{:width$} {:^15} {:^15} {:>8} {:>8} {:>8} {:>8} {:>20} {:>20}",
        "", "failed", "deliveries", "", "", "", "", "xdelay", "delay"
    );
    let _ = writeln!(
        out,
        "{head:width$} {:>7}/{:<7} {:>7}/{:<7} {:>8} {:>8} {:>8} {:>8} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6}",
        "mhosts",
        "recipt",
        "mhosts",
        "recipt",
        "deferred",
        "bounced",
        "messages",
        "bytes",
        "p50",
        "p90",
        "p99",
        "p50",
        "p90",
        "p99"
    );
    let rule = format!(
        "{} {} {} {} {} {} {} {} {}\n",
        "=".repeat(width),
        "=".repeat(15),
        "=".repeat(15),
        "=".repeat(8),
        "=".repeat(8),
        "=".repeat(8),
        "=".repeat(8),
        "=".repeat(20),
        "=".repeat(20)
    );
    out.push_str(&rule);
    for (row, label) in rows.iter().zip(&labels) {
        line(&mut out, width, label, &row.counts);
    }
    out.push_str(&rule);
    line(&mut out, width, "Totals", &total.counts);
    out
}

fn line(out: &mut String, width: usize, label: &str, counts: &Counts) {
    let _ = write!(
        out,
        "{label:width$} {:>7}/{:>7} {:>7}/{:>7} {:>8} {:>8} {:>8} {:>8}",
        counts.failed.hosts,
        counts.failed.recipients,
        counts.delivered.hosts,
        counts.delivered.recipients,
        counts.deferred,
        counts.bounced,
        counts.messages,
        bytes(counts.bytes)
    );
    for histogram in [&counts.xdelay, &counts.delay] {
        for share in [0.5, 0.9, 0.99] {
            let _ = write!(out, " {:>6}", histogram.percentile_if_any(share).map_or_else(|| "-".to_owned(), duration));
        }
    }
    while out.ends_with(' ') {
        out.pop();
    }
    out.push('\n');
}

/// Formats octets as `980`, `1.5K`, `12M`: at most three digits before a unit of 1024.
pub fn bytes(count: u64) -> String {
    let mut scaled = count as f64;
    for unit in ["", "K", "M", "G", "T"] {
        if scaled < 999.5 {
            let short = unit.is_empty() || scaled >= 9.95;
            return if short { format!("{scaled:.0}{unit}") } else { format!("{scaled:.1}{unit}") };
        }
        scaled /= 1024.0;
    }
    format!("{scaled:.0}P")
}

/// Formats a duration as `0.12s`, `12s`, `3m20`, `2h05`, `4d03`: at most six columns.
pub fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..10 => format!("{:.2}s", ms as f64 / 1000.0),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// The table as `{"by": ..., "rows": [...], "total": {...}}`.
pub fn json(table: &Table) -> Value {
    let by = table.options().by;
    json!({
        "by": by_name(by),
        "rows": table.rows().iter().map(|row| row_json(row, table)).collect::<Vec<_>>(),
        "total": row_json(&table.total(), table),
        "pairs_forgotten": table.pairs_forgotten(),
    })
}

/// Name of the first column, the same as the option's.
fn column(by: By) -> &'static str {
    match by {
        By::Hour => "hour",
        By::Day => "day",
        By::List => "list",
        By::Site => "domain",
        By::Host => "host",
        By::Source => "source",
    }
}

/// Name for JSON, where programs know domains as `site`.
fn by_name(by: By) -> &'static str {
    if by == By::Site { "site" } else { column(by) }
}

fn row_json(row: &Row, table: &Table) -> Value {
    let counts = &row.counts;
    let percentiles = |histogram: &Histogram| serde_json::to_value(histogram.percentiles()).unwrap_or(Value::Null);
    let mut value = json!({
        "failed": counts.failed,
        "delivered": counts.delivered,
        "deferred": counts.deferred,
        "bounced": counts.bounced,
        "messages": counts.messages,
        "posts": counts.posts,
        "posted_to": counts.posted_to,
        "bytes": counts.bytes,
        "xdelay": percentiles(&counts.xdelay),
        "delay": percentiles(&counts.delay),
    });
    if let Key::Time(local_s) = row.key {
        value["time"] = json!(table.options().zone.unix_s(local_s));
        value["begins"] = json!(local_text(local_s));
    } else if row.key != Key::Total {
        value["name"] = json!(label(&row.key, table.options().by));
    }
    value
}

fn local_text(local_s: i64) -> String {
    let civil = Civil::of_local(local_s);
    format!("{}T{:02}:{:02}:{:02}", civil.date_text(), civil.hour, civil.minute, civil.second)
}

/// The table as CSV: a line of names, one for each row, one for the totals; times in seconds.
pub fn csv(table: &Table) -> String {
    let by = table.options().by;
    let mut out = format!(
        "{},failed_hosts,failed_recipients,delivered_hosts,delivered_recipients,deferred,bounced,messages,posts,posted_to,bytes,\
         xdelay_p50_s,xdelay_p90_s,xdelay_p99_s,delay_p50_s,delay_p90_s,delay_p99_s\n",
        column(by)
    );
    let total = table.total();
    for row in table.rows().into_iter().chain([&total]) {
        let name = match &row.key {
            Key::Time(local_s) => local_text(*local_s),
            Key::Total => "total".to_owned(),
            key => quoted(&printable(&label(key, by), NAME_BYTES_MAX)),
        };
        let counts = &row.counts;
        let _ = write!(
            out,
            "{name},{},{},{},{},{},{},{},{},{},{}",
            counts.failed.hosts,
            counts.failed.recipients,
            counts.delivered.hosts,
            counts.delivered.recipients,
            counts.deferred,
            counts.bounced,
            counts.messages,
            counts.posts,
            counts.posted_to,
            counts.bytes
        );
        for histogram in [&counts.xdelay, &counts.delay] {
            for share in [0.5, 0.9, 0.99] {
                out.push(',');
                if let Some(ms) = histogram.percentile_if_any(share) {
                    let _ = write!(out, "{}.{:03}", ms / 1000, ms % 1000);
                }
            }
        }
        out.push('\n');
    }
    out
}

/// Quotes a cell (RFC 4180); cells that a spreadsheet would read as formulas are escaped.
fn quoted(name: &str) -> String {
    let guard = if name.starts_with(['=', '+', '@', '\t', '\r']) { "'" } else { "" };
    if guard.is_empty() && !name.contains(['"', ',', '\n', '\r']) {
        return name.to_owned();
    }
    format!("\"{guard}{}\"", name.replace('"', "\"\""))
}
