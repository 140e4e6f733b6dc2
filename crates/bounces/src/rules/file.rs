//! The rules file: TOML with `[[rule]]` and `[[block_list]]`.
//!
//! ```toml
//! extends = true                  # the built-in rules follow these; else these replace them
//!
//! [[rule]]
//! name = "example-unknown"        # unique; shown with each classification
//! provider = ["example.net"]      # the host is one of these domains, or below
//! code = [550, 553]               # one of these reply codes
//! enhanced = ["5.1.1", "x.2.2"]   # one of these enhanced codes; x: any number
//! text = ["no such user", "/user .{1,40} unknown/"]   # one of these: words, or an expression between slashes
//! not = ["sender"]                # none of these
//! cause = "no_mailbox"
//! confidence = 95                 # percent
//!
//! [[block_list]]
//! name = "Spamhaus"
//! text = ["spamhaus.org"]
//! ```
//!
//! All conditions of a rule must hold. Case does not matter; a space matches any white space. Failure: the file is
//! refused as a whole, with the line, the entry's name and the reason.

use std::net::IpAddr;
use std::ops::Range;

use regex_syntax::escape;
use serde::Deserialize;
use stentor_mail::address::normalise_domain;
use stentor_mail::reply::Enhanced;
use thiserror::Error;
use toml::Spanned;

use crate::cause::BounceCause;

/// Maximum size of a rules file in octets.
pub const FILE_BYTES_MAX: usize = 1024 * 1024;
/// Maximum rules and block lists together.
const ENTRIES_MAX: usize = 5_000;
/// Maximum patterns of all entries.
const PATTERNS_MAX: usize = 20_000;
/// Edits after which another cause is not a slip.
const SLIP_EDITS_MAX: usize = 3;

/// Why a rules file is refused. The texts do not contain the line, which [`BounceRuleError::line`] returns.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum BounceRuleError {
    #[error("not a rules file: {reason}; docs/operate/bounces.md explains the keys")]
    Toml { line: usize, reason: String },
    #[error(
        "the file has more than {FILE_BYTES_MAX} octets, {ENTRIES_MAX} entries or {PATTERNS_MAX} patterns; shorten it"
    )]
    TooLarge,
    #[error("rule \"{name}\": {reason}")]
    Rule { line: usize, name: String, reason: String },
    #[error("the patterns cannot be compiled: {0}; shorten them")]
    Patterns(String),
}

impl BounceRuleError {
    /// The line of the fault, counted from 1; 0 if it is about the whole file.
    pub fn line(&self) -> usize {
        match self {
            BounceRuleError::Toml { line, .. } | BounceRuleError::Rule { line, .. } => *line,
            BounceRuleError::TooLarge | BounceRuleError::Patterns(_) => 0,
        }
    }
}

/// An entry's name and line, for errors.
#[derive(Clone, Copy)]
pub(super) struct EntryPlace<'a> {
    pub name: &'a str,
    pub line: usize,
}

impl<'a> EntryPlace<'a> {
    pub fn of(text: &str, name: &'a Spanned<String>) -> EntryPlace<'a> {
        EntryPlace { name: name.get_ref(), line: line_of(text, name.span().start) }
    }

    /// The place of one of its values.
    fn at(self, text: &str, span: Range<usize>) -> EntryPlace<'a> {
        EntryPlace { line: line_of(text, span.start), ..self }
    }

    fn fault(self, reason: impl Into<String>) -> BounceRuleError {
        BounceRuleError::Rule { line: self.line, name: self.name.to_owned(), reason: reason.into() }
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|octet| **octet == b'\n').count() + 1
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RulesFile {
    #[serde(default)]
    pub extends: bool,
    #[serde(default)]
    pub rule: Vec<RuleText>,
    #[serde(default)]
    pub block_list: Vec<BlockListText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleText {
    pub name: Spanned<String>,
    #[serde(default)]
    pub provider: Vec<Spanned<String>>,
    #[serde(default)]
    pub code: Vec<u16>,
    #[serde(default)]
    pub enhanced: Vec<String>,
    #[serde(default, deserialize_with = "strings")]
    pub text: Vec<String>,
    #[serde(default, deserialize_with = "strings")]
    pub not: Vec<String>,
    pub cause: Spanned<String>,
    pub confidence: Spanned<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BlockListText {
    pub name: Spanned<String>,
    #[serde(deserialize_with = "strings")]
    pub text: Vec<String>,
}

/// A list of strings, or one string.
fn strings<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a string or a list of strings")]
    enum Strings {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Strings::deserialize(deserializer)? {
        Strings::One(one) => vec![one],
        Strings::Many(many) => many,
    })
}

impl RuleText {
    pub fn cause(&self) -> Option<BounceCause> {
        BounceCause::named(self.cause.get_ref())
    }

    fn check(&self, text: &str) -> Result<(), BounceRuleError> {
        let place = EntryPlace::of(text, &self.name);
        if self.provider.is_empty() && self.code.is_empty() && self.enhanced.is_empty() && self.text.is_empty() {
            return Err(place.fault("has no condition; add `provider`, `code`, `enhanced` or `text`"));
        }
        let of_confidence = place.at(text, self.confidence.span());
        if !(1..=100).contains(self.confidence.get_ref()) {
            return Err(of_confidence.fault(format!("`confidence` {} is not from 1 to 100", self.confidence.get_ref())));
        }
        let of_cause = place.at(text, self.cause.span());
        match self.cause() {
            None => return Err(of_cause.fault(unknown_cause(self.cause.get_ref()))),
            Some(BounceCause::Unknown) => {
                let reason = "`cause` must not be \"unknown\", which is the cause of replies without a rule";
                return Err(of_cause.fault(reason));
            }
            Some(_) => {}
        }
        if let Some(bad) = self.provider.iter().find(|provider| !is_provider(provider.get_ref())) {
            let reason = format!("`provider` \"{}\" is not a domain such as \"example.net\"", bad.get_ref());
            return Err(place.at(text, bad.span()).fault(reason));
        }
        if let Some(code) = self.code.iter().find(|code| !(400..600).contains(*code)) {
            return Err(place.fault(format!("`code` {code} is not from 400 to 599")));
        }
        if let Some(bad) = self.enhanced.iter().find(|text| EnhancedPattern::parse(text).is_none()) {
            return Err(place.fault(format!("`enhanced` \"{bad}\" is not a code such as \"5.1.1\" or \"x.1.1\"")));
        }
        Ok(())
    }
}

/// A domain without a final dot, or an IP address: hosts of fixed routes have no names.
fn is_provider(text: &str) -> bool {
    let is_domain = !text.starts_with('[') && !text.ends_with('.') && normalise_domain(text).is_ok();
    is_domain || text.parse::<IpAddr>().is_ok()
}

fn unknown_cause(text: &str) -> String {
    let known = BounceCause::ALL.iter().map(|cause| cause.name()).filter(|name| *name != BounceCause::Unknown.name());
    let nearest = known.clone().map(|name| (strsim::osa_distance(text, name), name)).min();
    match nearest {
        Some((edits, name)) if edits <= SLIP_EDITS_MAX.min(name.len() / 2) => {
            format!("`cause` \"{text}\" is not a cause; did you mean \"{name}\"?")
        }
        _ => format!("`cause` \"{text}\" is not one of {}", known.collect::<Vec<_>>().join(", ")),
    }
}

/// Enhanced codes: `None` for any number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EnhancedPattern {
    class: Option<u16>,
    subject: Option<u16>,
    detail: Option<u16>,
}

impl EnhancedPattern {
    pub fn parse(text: &str) -> Option<EnhancedPattern> {
        let mut parts = text.split('.').map(|part| match part {
            "x" => Some(None),
            digits if digits.len() <= 3 => digits.parse().ok().map(Some),
            _ => None,
        });
        let mut number = || parts.next()?;
        let pattern = EnhancedPattern { class: number()?, subject: number()?, detail: number()? };
        parts.next().is_none().then_some(pattern)
    }

    pub fn matches(self, enhanced: Enhanced) -> bool {
        let is = |wanted: Option<u16>, number: u16| wanted.is_none_or(|wanted| wanted == number);
        is(self.class, u16::from(enhanced.class))
            && is(self.subject, enhanced.subject)
            && is(self.detail, enhanced.detail)
    }
}

/// Parses a file and checks everything but its patterns.
pub(super) fn read(text: &str) -> Result<RulesFile, BounceRuleError> {
    if text.len() > FILE_BYTES_MAX {
        return Err(BounceRuleError::TooLarge);
    }
    let file: RulesFile = toml::from_str(text).map_err(|error| BounceRuleError::Toml {
        line: error.span().map_or(0, |span| line_of(text, span.start)),
        reason: error.message().to_owned(),
    })?;
    let patterns: usize = file.rule.iter().map(|rule| rule.text.len() + rule.not.len()).sum::<usize>()
        + file.block_list.iter().map(|list| list.text.len()).sum::<usize>();
    if file.rule.len() + file.block_list.len() > ENTRIES_MAX || patterns > PATTERNS_MAX {
        return Err(BounceRuleError::TooLarge);
    }
    let mut names = std::collections::HashSet::new();
    for rule in &file.rule {
        let name = rule.name.get_ref().as_str();
        if name.is_empty() || !names.insert(name) {
            return Err(EntryPlace::of(text, &rule.name).fault("needs a name of its own"));
        }
        rule.check(text)?;
    }
    Ok(file)
}

/// The expression of a pattern; an error names what is wrong with it.
pub(super) fn expression(owner: EntryPlace<'_>, pattern: &str) -> Result<String, BounceRuleError> {
    let fault = |reason: String| owner.fault(reason);
    let inner = pattern.strip_prefix('/').and_then(|rest| rest.strip_suffix('/'));
    let expression = inner.map_or_else(|| escape(pattern.trim()), str::to_owned);
    if expression.is_empty() {
        return Err(fault("a pattern is empty".to_owned()));
    }
    match regex_syntax::parse(&expression) {
        Ok(hir) if hir.properties().minimum_len().unwrap_or(0) == 0 => {
            Err(fault(format!("\"{pattern}\" matches every text")))
        }
        Ok(_) => Ok(expression),
        Err(error) => Err(fault(format!("\"{pattern}\": {error}"))),
    }
}
