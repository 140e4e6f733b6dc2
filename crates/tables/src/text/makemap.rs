//! makemap's format: `key`, tabs or spaces, value to the end of the line; `#` in the first column starts a comment.
//! There are no continuations or quotes; ASCII letters are folded.

use super::lines::{Lines, is_space};
use crate::diagnostic::{FileReport, TableProblem};
use crate::fold::Fold;
use crate::keyed::Keyed;

pub(crate) fn read(text: &[u8], report: &mut FileReport<'_>) -> Keyed {
    let mut keyed = Keyed::new(Fold::Ascii, text.len());
    let (mut lines, mut folded) = (Lines::new(text), Vec::new());
    while let Some((number, line)) = lines.physical() {
        if line.len() > crate::LINE_BYTES_MAX {
            report.add(number, TableProblem::LineTooLong { max: crate::LINE_BYTES_MAX });
            break;
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match line.first() {
            None | Some(b'#') => continue,
            Some(&first) if is_space(first) => {
                report.add(number, TableProblem::NothingToContinue);
                continue;
            }
            Some(_) => {}
        }
        let key_bytes = line.iter().position(|&byte| is_space(byte)).unwrap_or(line.len());
        let (key, rest) = line.split_at(key_bytes);
        let value = super::lines::trim_start(rest);
        if value.is_empty() {
            report.add(number, TableProblem::NoValue);
            continue;
        }
        if let Err(why) = keyed.add(key, value, number, &mut folded)
            && !why.report(report, number, key)
        {
            break;
        }
    }
    keyed.finish()
}
