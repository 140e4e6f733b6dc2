//! Alias files: `name: value, ...` with continuation lines, as in aliases(5) of Postfix and of sendmail. Names are
//! stored without quotes; values are stored as written, including `:include:` and `|program`.

use super::lines::{Lines, trim_end, trim_start};
use crate::diagnostic::{FileReport, LoadReport, TableProblem};
use crate::fold::Fold;
use crate::keyed::Keyed;

pub(crate) fn read(text: &[u8], report: &mut FileReport<'_>) -> Keyed {
    let (mut keyed, mut folded) = (Keyed::new(Fold::Unicode, text.len()), Vec::new());
    each(text, report, |name, value, number, report| match keyed.add(name, value, number, &mut folded) {
        Ok(()) => true,
        Err(why) => why.report(report, number, name),
    });
    keyed.finish()
}

/// Finds the first of these names that exists in an alias file; returns its index and the value. If a name is
/// repeated, its first entry counts.
pub fn find(text: &[u8], names: &[&[u8]]) -> Option<(usize, Vec<u8>)> {
    let fold = |name: &[u8]| {
        let mut folded = Vec::new();
        Fold::Unicode.fold(name, &mut folded).ok().map(|()| folded)
    };
    let wanted: Vec<Option<Vec<u8>>> = names.iter().map(|name| fold(name)).collect();
    let (mut found, mut folded) = (None, Vec::new());
    let mut skipped = LoadReport::default();
    each(text, &mut FileReport { file: "", report: &mut skipped }, |name, value, _, _| {
        if Fold::Unicode.fold(name, &mut folded).is_err() {
            return true;
        }
        let before = found.as_ref().map_or(wanted.len(), |(place, _)| *place);
        if let Some(place) = wanted[..before].iter().position(|name| name.as_deref() == Some(&folded[..])) {
            found = Some((place, value.to_vec()));
        }
        // No other name precedes the first.
        !matches!(found, Some((0, _)))
    });
    found
}

/// Calls `take` with each alias: name, value and line number.
pub fn all(text: &[u8], mut take: impl FnMut(&[u8], &[u8], u32)) {
    let mut skipped = LoadReport::default();
    each(text, &mut FileReport { file: "", report: &mut skipped }, |name, value, number, _| {
        take(name, value, number);
        true
    });
}

/// Calls a function with each entry, name, value and line number, until it returns that it has enough.
fn each(
    text: &[u8],
    report: &mut FileReport<'_>,
    mut take: impl FnMut(&[u8], &[u8], u32, &mut FileReport<'_>) -> bool,
) {
    let (mut lines, mut name) = (Lines::new(text), Vec::new());
    while let Some((number, line)) = lines.next(report) {
        let rest = match unquoted(line, &mut name) {
            Ok(rest) => trim_start(rest),
            Err(problem) => {
                report.add(number, problem);
                continue;
            }
        };
        let Some(value) = rest.strip_prefix(b":") else {
            report.add(number, TableProblem::NoColon);
            continue;
        };
        let value = trim_end(trim_start(value));
        if name.is_empty() || value.is_empty() {
            report.add(number, TableProblem::NoValue);
            continue;
        }
        if !take(&name, value, number, report) {
            break;
        }
    }
}

/// Stores the name at the start of the line in `name`, without quotes; returns the rest.
fn unquoted<'a>(line: &'a [u8], name: &mut Vec<u8>) -> Result<&'a [u8], TableProblem> {
    name.clear();
    let mut is_quoted = false;
    let mut at = 0;
    while let Some(&byte) = line.get(at) {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b'\\' if at + 1 < line.len() => {
                at += 1;
                name.push(line[at]);
            }
            b':' if !is_quoted => break,
            _ => name.push(byte),
        }
        at += 1;
    }
    if is_quoted {
        return Err(TableProblem::UnbalancedQuote);
    }
    name.truncate(trim_end(name).len());
    Ok(&line[at..])
}
