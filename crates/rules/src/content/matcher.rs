//! All tests of all rules, compiled: one automaton for each kind of text.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use hashbrown::HashMap as QuickMap;
use regex::{Regex, RegexSet, RegexSetBuilder};
use stentor_mime::scripts::ScriptName;
use stentor_mime::walk::Defect;

use super::auth::{AuthFieldResults, AuthTest};
use super::conditions::{ContentConditions, Test};
use super::hits::Hits;
use super::pattern::{ContentConditionError, Pattern};

/// Maximum size of one automaton's compiled patterns, and of its states while it runs.
const COMPILED_BYTES_MAX: usize = 32 * 1024 * 1024;
const STATES_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Maximum characters shown of a match.
const SHOWN_CHARS_MAX: usize = 60;

/// The tests of all rules, without duplicates.
#[derive(Default)]
pub(super) struct Tests {
    all: Vec<Test>,
    places: HashMap<Test, usize>,
}

impl Tests {
    pub(super) fn place(&mut self, test: &Test) -> usize {
        if let Some(at) = self.places.get(test) {
            return *at;
        }
        self.places.insert(test.clone(), self.all.len());
        self.all.push(test.clone());
        self.all.len() - 1
    }
}

/// All compiled tests; immutable.
#[derive(Debug, Default)]
pub struct Matcher {
    pub(crate) tests: usize,
    /// Patterns for decoded fields.
    pub(super) headers: FieldSets,
    pub(super) raw_headers: FieldSets,
    pub(super) body: Set,
    pub(super) charsets: Set,
    /// Test, script, minimum share in percent.
    pub(super) scripts: Vec<(usize, ScriptName, u8)>,
    pub(super) files: Vec<Files>,
    /// Test, and its defect; `None`: any.
    pub(super) defects: Vec<(usize, Option<Defect>)>,
    /// Test, and the compiled expressions of its properties.
    auth: Vec<(usize, AuthTest, Vec<Regex>)>,
}

/// Patterns that are matched against the same text.
#[derive(Debug, Default)]
pub(super) struct Set {
    regexes: Option<RegexSet>,
    patterns: Vec<(usize, Pattern)>,
}

/// Patterns by field name.
#[derive(Debug, Default)]
pub(super) struct FieldSets {
    by_name: QuickMap<Box<str>, Set, FixedState>,
    /// Patterns for every field.
    any: Option<Set>,
    /// Bit set of name lengths (63 and over share one): rejects most fields without a lookup.
    lengths: u64,
}

impl FieldSets {
    fn add(&mut self, name: Box<str>, at: usize, pattern: Pattern) {
        self.lengths |= length_bit(&name);
        let set =
            if name.is_empty() { self.any.get_or_insert_default() } else { self.by_name.entry(name).or_default() };
        set.patterns.push((at, pattern));
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Set> {
        self.by_name.values_mut().chain(&mut self.any)
    }

    /// Patterns for a field of this name, in lower case.
    pub(super) fn of<'s>(&'s self, name: &str) -> impl Iterator<Item = &'s Set> + Clone + use<'s> {
        let own = if self.lengths & length_bit(name) == 0 { None } else { self.by_name.get(name) };
        own.into_iter().chain(&self.any)
    }
}

fn length_bit(name: &str) -> u64 {
    1 << name.len().min(63)
}

/// A test of attachments.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) test: usize,
    names: Option<RegexSet>,
    types: Option<RegexSet>,
    over: Option<u64>,
}

impl Matcher {
    /// Compiles all rules' conditions and assigns their tests their indexes.
    ///
    /// # Errors
    /// The patterns together are too large.
    pub fn new<'c>(all: impl Iterator<Item = &'c mut ContentConditions>) -> Result<Matcher, ContentConditionError> {
        let mut tests = Tests::default();
        all.for_each(|conditions| conditions.bind(|test| tests.place(test)));
        let mut matcher = Matcher { tests: tests.all.len(), ..Matcher::default() };
        for (at, test) in tests.all.into_iter().enumerate() {
            match test {
                Test::Header { field, pattern, is_raw } => {
                    let sets = if is_raw { &mut matcher.raw_headers } else { &mut matcher.headers };
                    sets.add(field, at, pattern);
                }
                Test::Body(pattern) => matcher.body.patterns.push((at, pattern)),
                Test::Charset(pattern) => matcher.charsets.patterns.push((at, pattern)),
                Test::Script { name, percent } => {
                    matcher.scripts.extend(ScriptName::parse(name).map(|script| (at, script, percent)));
                }
                Test::Malformed(defect) => matcher.defects.push((at, defect)),
                Test::Auth(test) => {
                    let expressions = test.compiled()?;
                    matcher.auth.push((at, test, expressions));
                }
                Test::Attachment { names, types, over } => {
                    matcher.files.push(Files { test: at, names: compiled(&names)?, types: compiled(&types)?, over });
                }
            }
        }
        let headers = matcher.headers.all().chain(matcher.raw_headers.all());
        for set in headers.chain([&mut matcher.body, &mut matcher.charsets]) {
            let patterns: Vec<Pattern> = set.patterns.iter().map(|(_, pattern)| pattern.clone()).collect();
            set.regexes = compiled(&patterns)?;
        }
        Ok(matcher)
    }

    /// Whether the message itself has to be searched.
    pub(crate) fn is_of_text(&self) -> bool {
        self.tests > self.auth.len()
    }

    /// Records the matching tests of authentication results.
    pub fn match_auth(&self, results: &AuthFieldResults, hits: &mut Hits) {
        for (at, test, expressions) in &self.auth {
            if let Some(by) = test.met(expressions, results) {
                hits.add(*at, || by);
            }
        }
    }

    /// Whether no rule has a condition on content.
    pub fn is_empty(&self) -> bool {
        self.tests == 0
    }
}

/// Compiles the patterns. `^` and `$` match at line ends of either kind.
fn compiled(patterns: &[Pattern]) -> Result<Option<RegexSet>, ContentConditionError> {
    if patterns.is_empty() {
        return Ok(None);
    }
    let mut builder = RegexSetBuilder::new(patterns.iter().map(|pattern| &*pattern.expression));
    builder.case_insensitive(true).multi_line(true).crlf(true);
    builder.size_limit(COMPILED_BYTES_MAX).dfa_size_limit(STATES_BYTES_MAX);
    builder.build().map(Some).map_err(|error| ContentConditionError::TooLarge(error.to_string()))
}

impl Set {
    pub(super) fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    pub(super) fn search(&self, text: &str, hits: &mut Hits) {
        let Some(regexes) = &self.regexes else { return };
        // Most texts match nothing, and testing that is cheaper than finding all matching patterns.
        if !regexes.is_match(text) {
            return;
        }
        for n in regexes.matches(text) {
            let Some((test, pattern)) = self.patterns.get(n) else { continue };
            hits.add(*test, || shown(pattern, text));
        }
    }

    /// Whether no further text can add a match.
    pub(super) fn is_done(&self, hits: &Hits) -> bool {
        self.patterns.iter().all(|(test, _)| hits.has(*test))
    }
}

/// The text that a pattern matches, for people.
fn shown(pattern: &Pattern, text: &str) -> String {
    let regex = pattern.regex().ok();
    let found = regex.as_ref().and_then(|regex| regex.find(text)).map_or("", |found| found.as_str());
    let short: String = found.chars().take(SHOWN_CHARS_MAX).collect();
    format!("{short:?}")
}

impl Files {
    /// Whether an attachment matches.
    pub(super) fn is_met(&self, names: &[String], content_type: &str, size: u64) -> bool {
        self.names.as_ref().is_none_or(|set| names.iter().any(|name| set.is_match(name)))
            && self.types.as_ref().is_none_or(|set| set.is_match(content_type))
            && self.over.is_none_or(|over| size > over)
    }
}
