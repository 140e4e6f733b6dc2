//! Displays suppressions on a terminal. All text is escaped.

use std::fmt::Write as _;

use stentor_records::civil::Zone;

use super::format::{Width, cut, instant, plural};
use super::suppression_view::{SuppressionList, SuppressionView};

const COLUMNS: usize = 40;
const SCOPE_COLUMNS: usize = 30;
const REMARK_COLUMNS: usize = 300;

pub(super) fn list(all: &SuppressionList, zone: &Zone, width: Width) -> String {
    let mut out = String::new();
    if !all.rows.is_empty() {
        let subject_columns = width.fit(COLUMNS, all.rows.iter().map(|row| row.subject.as_str()));
        let scope_columns = width.fit(SCOPE_COLUMNS, all.rows.iter().map(scope));
        let rest = width.rest(subject_columns + 2 + scope_columns + 2 + 11 + 2);
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "{:<subject_columns$}  {:<scope_columns$}  {:<11}  since, source, end",
            "address", "scope", "reason"
        );
        for row in &all.rows {
            let (subject, scope) = (cut(&row.subject, subject_columns), cut(scope(row), scope_columns));
            let (reason, about) = (cut(&row.reason, 11), about(row, all.now, zone));
            let about = cut(&about, rest);
            let _ = writeln!(out, "{subject:<subject_columns$}  {scope:<scope_columns$}  {reason:<11}  {about}");
        }
    }
    let shown = all.rows.len() as u64;
    let _ = match &all.next {
        None if shown == 0 => {
            let doubt =
                all.remarks.iter().fold(String::new(), |text, remark| text + &cut(remark, REMARK_COLUMNS) + "; ");
            writeln!(out, "no entry matches; {doubt}{} in the registry", plural(all.entries, "entry"))
        }
        Some(_) => {
            writeln!(out, "{shown} shown of {}; `stentor suppress export` writes all", plural(all.entries, "entry"))
        }
        None => writeln!(out, "{shown} shown; {} in the registry", plural(all.entries, "entry")),
    };
    out
}

/// The scope in words.
pub(super) fn scope(row: &SuppressionView) -> &str {
    if row.scope == "everything" { "all mail" } else { &row.scope }
}

fn about(row: &SuppressionView, now: u64, zone: &Zone) -> String {
    let mut about = format!("{}, {}", instant(row.since, zone), row.source);
    match row.expires {
        Some(end) if end <= now => about.push_str(", expired"),
        Some(end) => {
            let _ = write!(about, ", until {}", instant(end, zone));
        }
        None => {}
    }
    if !row.note.is_empty() {
        let _ = write!(about, ": {}", row.note);
    }
    about
}
