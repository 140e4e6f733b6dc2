//! Alias files: `name: value, ...` with continued lines, as aliases(5) of Postfix and of sendmail. A quoted name is stored
//! without its quotes; the value stays as it is written, `:include:`, `|program` and all.

use super::lines::{Lines, trim_end, trim_start};
use crate::diagnostic::{FileReport, Problem};
use crate::fold::Fold;
use crate::keyed::Keyed;

pub(crate) fn read(text: &[u8], report: &mut FileReport<'_>) -> Keyed {
    let mut keyed = Keyed::new(Fold::Unicode, text.len());
    let (mut lines, mut folded, mut name) = (Lines::new(text), Vec::new(), Vec::new());
    while let Some((number, line)) = lines.next(report) {
        let rest = match unquoted(line, &mut name) {
            Ok(rest) => trim_start(rest),
            Err(problem) => {
                report.add(number, problem);
                continue;
            }
        };
        let Some(value) = rest.strip_prefix(b":") else {
            report.add(number, Problem::NoColon);
            continue;
        };
        let value = trim_end(trim_start(value));
        if name.is_empty() || value.is_empty() {
            report.add(number, Problem::NoValue);
            continue;
        }
        if let Err(why) = keyed.add(&name, value, number, &mut folded)
            && !why.report(report, number, &name)
        {
            break;
        }
    }
    keyed.finish()
}

/// Puts the name at the beginning of the line into `name`, without quotes; gives what follows it.
fn unquoted<'a>(line: &'a [u8], name: &mut Vec<u8>) -> Result<&'a [u8], Problem> {
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
        return Err(Problem::UnbalancedQuote);
    }
    name.truncate(trim_end(name).len());
    Ok(&line[at..])
}
