//! `regexp:` and `pcre:`: a list of rules `/pattern/flags value`, with blocks of `if` and `endif`. The first match
//! wins.
//!
//! Promise: a lookup takes time linear in its key, whatever the patterns. They run in sets, each as one automaton;
//! only the winner runs again, if its value contains `$1`. Each dialect is translated into the engine's (`posix.rs`,
//! `pcre.rs`). Patterns that need backtracking (back-references, look-around) are rejected at load, with their
//! column.

mod pcre;
mod posix;
mod replacement;
mod rule;
mod translation;

use regex::bytes::{Regex, RegexBuilder, RegexSet, RegexSetBuilder, SetMatches};

use self::replacement::Replacement;
use self::rule::{Pattern, Rule};
use crate::diagnostic::{FileReport, TableProblem};
use crate::rule_lines::{Blocks, Statement};
use crate::text::lines::{Lines, trim_end};

/// Patterns per automaton. With a thousand there would be too many states for its cache.
const SET_PATTERNS: usize = 32;
/// Maximum compiled size of a pattern, and of a set.
const PATTERN_BYTES_MAX: usize = 8 << 20;
const SET_BYTES_MAX: usize = 16 << 20;
/// Maximum size of the cached states of a set's automaton, per thread.
const CACHE_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// POSIX with the extensions of glibc.
    Posix,
    Pcre,
}

#[derive(Debug)]
pub(crate) struct Patterns {
    /// Sets of [`SET_PATTERNS`] each, in the order of the rules.
    sets: Vec<RegexSet>,
    steps: Vec<Step>,
    rules: usize,
}

#[derive(Debug)]
enum Step {
    Rule {
        test: Test,
        second: Option<Test>,
        value: Value,
        line: u32,
    },
    /// Continues at `end` unless the test matches.
    If {
        test: Test,
        end: usize,
    },
}

#[derive(Debug)]
enum Value {
    Literal(Box<[u8]>),
    /// A value with parts of the match, for which the pattern runs again, alone.
    Expanded(Replacement, Box<Regex>),
}

#[derive(Debug, Clone, Copy)]
struct Test {
    pattern: usize,
    is_negated: bool,
}

/// A value of the table, or one written to the buffer.
pub(crate) enum Match<'a> {
    Literal(&'a [u8]),
    InBuffer,
}

impl Patterns {
    pub fn read(text: &[u8], dialect: Dialect, report: &mut FileReport<'_>) -> Self {
        let mut reader = Reader { dialect, patterns: Vec::new(), steps: Vec::new(), rules: 0 };
        let (mut lines, mut blocks) = (Lines::new(text), Blocks::default());
        while let Some((number, line)) = lines.next(report) {
            reader.line(number, trim_end(line), &mut blocks, report);
            if reader.patterns.len() > crate::PATTERNS_MAX {
                report.add(number, TableProblem::TooManyPatterns { max: crate::PATTERNS_MAX });
                break;
            }
        }
        for line in blocks.left_open() {
            report.add(line, TableProblem::Untidy("if without endif extends to the end of the file"));
        }
        reader.finish(report)
    }

    pub fn len(&self) -> usize {
        self.rules
    }

    /// The first rule that matches, and its line.
    pub fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Option<(Match<'_>, u32)> {
        // Matches of the last set that ran; the rules use the sets in order.
        let mut matches: Option<(usize, SetMatches)> = None;
        let mut holds = |test: &Test| {
            let number = test.pattern / SET_PATTERNS;
            let of_set = match matches.take() {
                Some((last, found)) if last == number => found,
                _ => self.sets[number].matches(key),
            };
            let holds = of_set.matched(test.pattern % SET_PATTERNS) != test.is_negated;
            matches = Some((number, of_set));
            holds
        };
        let mut at = 0;
        while let Some(step) = self.steps.get(at) {
            at += 1;
            match step {
                Step::If { test, end } => {
                    if !holds(test) {
                        at = *end;
                    }
                }
                Step::Rule { test, second, value, line } => {
                    if !holds(test) || !second.as_ref().is_none_or(&mut holds) {
                        continue;
                    }
                    return Some(match value {
                        Value::Literal(value) => (Match::Literal(value), *line),
                        Value::Expanded(replacement, pattern) => {
                            replacement.expand(pattern, key, out);
                            (Match::InBuffer, *line)
                        }
                    });
                }
            }
        }
        None
    }
}

struct Reader {
    dialect: Dialect,
    /// Patterns in the engine's dialect.
    patterns: Vec<String>,
    steps: Vec<Step>,
    rules: usize,
}

impl Reader {
    fn line(&mut self, number: u32, line: &[u8], blocks: &mut Blocks, report: &mut FileReport<'_>) {
        let column = |rest: &[u8]| (line.len() - rest.len()) as u32;
        match Statement::parse(line) {
            Statement::If(rest) => match rule::pattern(rest, column(rest), self.dialect) {
                Ok((pattern, behind)) => {
                    if !behind.is_empty() {
                        const TEXT: &str = "unexpected text after if, ignored; do not indent the lines of a block";
                        report.add(number, TableProblem::Untidy(TEXT));
                    }
                    let test = self.test(pattern);
                    blocks.begin(self.steps.len(), number);
                    self.steps.push(Step::If { test, end: usize::MAX });
                }
                Err((column, problem)) => report.add_at(number, column, problem),
            },
            Statement::EndIf(rest) => {
                if !rest.is_empty() {
                    report.add(number, TableProblem::Untidy("unexpected text after endif, ignored"));
                }
                let behind = self.steps.len();
                match blocks.end().and_then(|step| self.steps.get_mut(step)) {
                    Some(Step::If { end, .. }) => *end = behind,
                    _ => report.add(number, TableProblem::BadRule("endif without if".into())),
                }
            }
            Statement::Other(_) => match rule::rule(line, self.dialect) {
                Ok(rule) => self.add(number, rule, report),
                Err((column, problem)) => report.add_at(number, column, problem),
            },
        }
    }

    fn add(&mut self, line: u32, rule: Rule, report: &mut FileReport<'_>) {
        if rule.is_empty {
            report.add(line, TableProblem::Untidy("no value: the result is empty"));
        }
        let value = match rule.replacement.literal() {
            Some(value) => Value::Literal(value.into()),
            None => match compile(&rule.first.text) {
                Ok(pattern) => Value::Expanded(rule.replacement, Box::new(pattern)),
                Err(problem) => return report.add(line, problem),
            },
        };
        let test = self.test(rule.first);
        let second = rule.second.map(|pattern| self.test(pattern));
        self.rules += 1;
        self.steps.push(Step::Rule { test, second, value, line });
    }

    fn test(&mut self, pattern: Pattern) -> Test {
        self.patterns.push(pattern.text);
        Test { pattern: self.patterns.len() - 1, is_negated: pattern.is_negated }
    }

    fn finish(self, report: &mut FileReport<'_>) -> Patterns {
        let set = |patterns: &[String]| {
            RegexSetBuilder::new(patterns)
                .unicode(false)
                .size_limit(SET_BYTES_MAX)
                .dfa_size_limit(CACHE_BYTES_MAX)
                .build()
        };
        // All were parsed before, so one of them, or several together, are too large when compiled.
        let sets = self.patterns.chunks(SET_PATTERNS).map(set).collect::<Result<_, _>>().unwrap_or_else(|_| {
            report.add(0, TableProblem::PatternsTooLarge);
            Vec::new()
        });
        Patterns { sets, steps: self.steps, rules: self.rules }
    }
}

fn compile(pattern: &str) -> Result<Regex, TableProblem> {
    RegexBuilder::new(pattern)
        .unicode(false)
        .size_limit(PATTERN_BYTES_MAX)
        .build()
        .map_err(|_| TableProblem::PatternTooLarge)
}

#[cfg(test)]
mod tests;
