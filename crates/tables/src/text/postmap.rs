//! Postfix's format: `key whitespace value`, as read by postmap(1) and `texthash:`. Quotes keep whitespace within a
//! key and remain part of it.

use super::lines::{Lines, is_space, trim_end, trim_start};
use crate::diagnostic::{FileReport, TableProblem};
use crate::fold::Fold;
use crate::keyed::Keyed;

pub(crate) fn read(text: &[u8], report: &mut FileReport<'_>) -> Keyed {
    let mut keyed = Keyed::new(Fold::Unicode, text.len());
    let (mut lines, mut folded) = (Lines::new(text), Vec::new());
    while let Some((number, line)) = lines.next(report) {
        if std::str::from_utf8(line).is_err() {
            report.add(number, TableProblem::NotUtf8);
            continue;
        }
        let Some(key_bytes) = key_bytes(line) else {
            report.add(number, TableProblem::UnbalancedQuote);
            continue;
        };
        let (key, value) = line.split_at(key_bytes);
        let value = trim_end(trim_start(value));
        if key.is_empty() || value.is_empty() {
            report.add(number, TableProblem::NoValue);
            continue;
        }
        if key.ends_with(b":") {
            report.add(number, TableProblem::LooksLikeAliases);
        }
        if let Err(why) = keyed.add(key, value, number, &mut folded)
            && !why.report(report, number, key)
        {
            break;
        }
    }
    keyed.finish()
}

/// Length of the key: up to the first whitespace that is neither quoted nor escaped. `None` if a quote is not closed.
fn key_bytes(line: &[u8]) -> Option<usize> {
    let mut is_quoted = false;
    let mut at = 0;
    while at < line.len() {
        match line[at] {
            b'\\' => at += 1,
            b'"' => is_quoted = !is_quoted,
            byte if is_space(byte) && !is_quoted => return Some(at),
            _ => {}
        }
        at += 1;
    }
    (!is_quoted).then_some(line.len())
}
