//! One line of a table of patterns: `/pattern/flags value`, in regexp also `/pattern/!/other/ value`, with any
//! delimiter.

use super::replacement::Replacement;
use super::{Dialect, pcre, posix};
use crate::diagnostic::TableProblem;
use crate::text::lines::{is_space, trim_start};

/// A pattern in the engine's dialect.
pub(super) struct Pattern {
    pub text: String,
    pub is_negated: bool,
    groups: u16,
}

pub(super) struct Rule {
    pub first: Pattern,
    /// Second pattern, which must match, too.
    pub second: Option<Pattern>,
    pub replacement: Replacement,
    pub is_empty: bool,
}

/// Column, from 1, and problem.
type Fault = (u32, TableProblem);

fn bad(column: u32, why: impl Into<String>) -> Fault {
    (column + 1, TableProblem::BadRule(why.into()))
}

pub(super) fn rule(line: &[u8], dialect: Dialect) -> Result<Rule, Fault> {
    if line.first().is_some_and(u8::is_ascii_alphanumeric) {
        return Err(bad(0, "neither a pattern nor if or endif"));
    }
    let (first, mut rest) = pattern(line, 0, dialect)?;
    let column = |rest: &[u8]| (line.len() - rest.len()) as u32;
    let mut second = None;
    if dialect == Dialect::Posix && rest.starts_with(b"!") {
        let (pattern, behind) = pattern(rest, column(rest), dialect)?;
        second = Some(pattern);
        rest = behind;
    }
    let value = trim_start(rest);
    let replacement = Replacement::parse(value).map_err(|why| bad(column(value), why))?;
    if replacement.groups() > 0 && first.is_negated {
        return Err(bad(column(value), "a pattern with '!' captures nothing for '$'"));
    }
    if replacement.groups() > first.groups {
        let text = format!("the pattern has {} for ${}", groups(first.groups), replacement.groups());
        return Err(bad(column(value), text));
    }
    Ok(Rule { first, second, replacement, is_empty: value.is_empty() })
}

fn groups(count: u16) -> String {
    match count {
        0 => "no groups".into(),
        1 => "only 1 group".into(),
        more => format!("only {more} groups"),
    }
}

/// Parses the pattern at the start of the text; returns it and the rest after its flags. `column` is the text's
/// column, from 0.
pub(super) fn pattern(text: &[u8], column: u32, dialect: Dialect) -> Result<(Pattern, &[u8]), Fault> {
    let begin = text.iter().position(|&octet| octet != b'!' && !is_space(octet)).unwrap_or(text.len());
    let is_negated = text[..begin].iter().fold(false, |is_negated, &octet| is_negated ^ (octet == b'!'));
    let Some(&delimiter) = text.get(begin) else { return Err(bad(column, "missing pattern")) };
    let inside = &text[begin + 1..];
    let mut end = 0;
    loop {
        match inside.get(end) {
            None => return Err(bad(column + begin as u32, format!("missing closing '{}'", delimiter.escape_ascii()))),
            Some(b'\\') => end += 1,
            Some(&octet) if octet == delimiter => break,
            Some(_) => {}
        }
        end += 1;
    }
    let behind = &inside[end + 1..];
    let ends_flags = |octet: &u8| is_space(*octet) || (dialect == Dialect::Posix && *octet == b'!');
    let flag_octets = behind.iter().position(ends_flags).unwrap_or(behind.len());
    let (flags, rest) = behind.split_at(flag_octets);
    let flags_column = column + (text.len() - behind.len()) as u32;
    let pattern_column = column + begin as u32 + 1;
    let unknown =
        |at: usize, flag: u8| bad(flags_column + at as u32, format!("unknown flag '{}'", flag.escape_ascii()));
    let translated = match dialect {
        Dialect::Posix => {
            let mut set = posix::Flags { is_extended: true, ignores_case: true, by_line: false };
            for (at, &flag) in flags.iter().enumerate() {
                match flag {
                    b'i' => set.ignores_case ^= true,
                    b'm' => set.by_line ^= true,
                    b'x' => set.is_extended ^= true,
                    _ => return Err(unknown(at, flag)),
                }
            }
            posix::translate(&inside[..end], set)
        }
        Dialect::Pcre => pcre::translate(&inside[..end], pcre_flags(flags).map_err(|(at, flag)| unknown(at, flag))?),
    };
    let (text, groups) = translated.map_err(|(at, problem)| (pattern_column + at as u32 + 1, problem))?;
    Ok((Pattern { text, is_negated, groups }, rest))
}

/// Each letter toggles its flag. `E` and `X` have no effect here.
fn pcre_flags(flags: &[u8]) -> Result<pcre::Flags, (usize, u8)> {
    let mut set = pcre::Flags {
        ignores_case: true,
        dot_is_any: true,
        by_line: false,
        is_extended: false,
        is_anchored: false,
        is_lazy: false,
    };
    for (at, &flag) in flags.iter().enumerate() {
        match flag {
            b'i' => set.ignores_case ^= true,
            b's' => set.dot_is_any ^= true,
            b'm' => set.by_line ^= true,
            b'x' => set.is_extended ^= true,
            b'A' => set.is_anchored ^= true,
            b'U' => set.is_lazy ^= true,
            b'E' | b'X' => {}
            _ => return Err((at, flag)),
        }
    }
    Ok(set)
}
