//! Rules that name the cause of a reply, compiled from a file (`file.rs` has its format).
//!
//! The first rule whose conditions all hold decides. All texts of all rules are one automaton, so a reply is read once,
//! whatever the number of rules. Promise: time linear in the reply (at most
//! [`TEXT_BYTES_MAX`](crate::reply::TEXT_BYTES_MAX) octets) plus the number of rules; no state, so one value serves all
//! threads. Failure: a reply without a rule has the cause `unknown` and confidence 0; `crate::cluster` groups those.

mod file;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use regex::{RegexSet, RegexSetBuilder, SetMatches};
use stentor_mail::domain::is_at_or_below;

pub use self::file::{BounceRuleError, FILE_BYTES_MAX};
use self::file::{EnhancedPattern, EntryPlace, RulesFile};
use crate::blocklists;
use crate::cause::BounceCause;
use crate::reply::{BounceReply, ReplyWords};

/// The rules that are used unless a file replaces them; a file with `extends = true` goes before them.
pub const DEFAULT_RULES: &str = include_str!("../rules.toml");
/// Maximum size of the automaton, and of its states while it runs.
const COMPILED_BYTES_MAX: usize = 32 * 1024 * 1024;
const STATES_BYTES_MAX: usize = 8 * 1024 * 1024;

/// What a reply means.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Classification<'r> {
    pub cause: BounceCause,
    /// Percent; 0 without a rule.
    pub confidence: u8,
    /// The rule that decided; empty without one.
    pub rule: &'r str,
    /// Names of the block lists that the reply names.
    pub block_lists: Vec<String>,
}

/// Compiled rules; immutable.
#[derive(Debug)]
pub struct BounceRules {
    rules: Vec<CompiledRule>,
    /// Patterns of all rules and block lists.
    patterns: RegexSet,
    /// Index of each block list's patterns.
    block_lists: Vec<CompiledBlockList>,
}

#[derive(Debug)]
struct CompiledRule {
    name: Box<str>,
    providers: Vec<String>,
    codes: Vec<u16>,
    enhanced: Vec<EnhancedPattern>,
    texts: Vec<usize>,
    not: Vec<usize>,
    cause: BounceCause,
    confidence: u8,
}

#[derive(Debug)]
struct CompiledBlockList {
    name: Box<str>,
    texts: Vec<usize>,
}

/// Expressions without duplicates.
#[derive(Default)]
struct Expressions {
    all: Vec<String>,
    places: std::collections::HashMap<String, usize>,
}

impl Expressions {
    fn place(&mut self, owner: EntryPlace<'_>, patterns: &[String]) -> Result<Vec<usize>, BounceRuleError> {
        let mut places = Vec::with_capacity(patterns.len());
        for pattern in patterns {
            let expression = file::expression(owner, pattern)?;
            let place = *self.places.entry(expression).or_insert_with_key(|expression| {
                self.all.push(expression.clone());
                self.all.len() - 1
            });
            places.push(place);
        }
        Ok(places)
    }
}

/// Entries of one or two files, before their patterns are compiled.
#[derive(Default)]
struct CompiledEntries {
    expressions: Expressions,
    rules: Vec<CompiledRule>,
    block_lists: Vec<CompiledBlockList>,
}

impl CompiledEntries {
    fn add(&mut self, text: &str, file: RulesFile) -> Result<(), BounceRuleError> {
        for rule in file.rule {
            self.rules.push(CompiledRule {
                texts: self.expressions.place(EntryPlace::of(text, &rule.name), &rule.text)?,
                not: self.expressions.place(EntryPlace::of(text, &rule.name), &rule.not)?,
                cause: rule.cause().unwrap_or_default(),
                confidence: u8::try_from(*rule.confidence.get_ref()).unwrap_or_default(),
                name: rule.name.into_inner().into(),
                providers: rule.provider.into_iter().map(toml::Spanned::into_inner).collect(),
                codes: rule.code,
                enhanced: rule.enhanced.iter().filter_map(|text| EnhancedPattern::parse(text)).collect(),
            });
        }
        for list in file.block_list {
            let texts = self.expressions.place(EntryPlace::of(text, &list.name), &list.text)?;
            self.block_lists.push(CompiledBlockList { name: list.name.into_inner().into(), texts });
        }
        Ok(())
    }
}

impl BounceRules {
    /// Compiles a rules file.
    ///
    /// # Errors
    /// The file is malformed or too large.
    pub fn parse(text: &str) -> Result<BounceRules, BounceRuleError> {
        let file = file::read(text)?;
        let built_in = if file.extends { Some(file::read(DEFAULT_RULES)?) } else { None };
        let mut entries = CompiledEntries::default();
        entries.add(text, file)?;
        if let Some(built_in) = built_in {
            entries.add(DEFAULT_RULES, built_in)?;
        }
        let patterns = RegexSetBuilder::new(&entries.expressions.all)
            .case_insensitive(true)
            .size_limit(COMPILED_BYTES_MAX)
            .dfa_size_limit(STATES_BYTES_MAX)
            .build()
            .map_err(|error| BounceRuleError::Patterns(error.to_string()))?;
        Ok(BounceRules { rules: entries.rules, patterns, block_lists: entries.block_lists })
    }

    /// The built-in rules.
    pub fn built_in() -> BounceRules {
        BounceRules::parse(DEFAULT_RULES).expect("a test parses the built-in rules")
    }

    /// The built-in rules, compiled at the first use.
    pub fn shared_built_in() -> &'static BounceRules {
        static BUILT_IN: LazyLock<BounceRules> = LazyLock::new(BounceRules::built_in);
        &BUILT_IN
    }

    pub fn len(&self) -> usize {
        self.rules.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Names of all rules, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().map(|rule| &*rule.name)
    }

    /// Whether the rules file has this block list: any host can name others.
    pub fn has_block_list(&self, name: &str) -> bool {
        self.block_lists.iter().any(|list| *list.name == *name)
    }

    /// The cause of a reply.
    pub fn classify(&self, reply: &BounceReply<'_>) -> Classification<'_> {
        let read = ReplyWords::read(reply.text);
        let facts = ReplyFacts {
            code: read.code.or(reply.code),
            enhanced: read.enhanced.or(reply.enhanced),
            host: reply.host,
            matches: self.patterns.matches(&read.words),
        };
        let mut lists: Vec<String> = self
            .block_lists
            .iter()
            .filter(|list| list.texts.iter().any(|text| facts.matches.matched(*text)))
            .map(|list| list.name.clone().into())
            .collect();
        let Some(rule) = self.rules.iter().find(|rule| rule.matches(&facts)) else {
            return Classification { block_lists: lists, ..Classification::default() };
        };
        if lists.is_empty() && rule.cause == BounceCause::Reputation {
            lists.extend(blocklists::zone(&read.words));
        }
        Classification { cause: rule.cause, confidence: rule.confidence, rule: &rule.name, block_lists: lists }
    }
}

struct ReplyFacts<'a> {
    code: Option<u16>,
    enhanced: Option<stentor_mail::reply::Enhanced>,
    host: &'a str,
    matches: SetMatches,
}

impl CompiledRule {
    fn matches(&self, facts: &ReplyFacts<'_>) -> bool {
        let has = |patterns: &[usize]| patterns.iter().any(|pattern| facts.matches.matched(*pattern));
        let is_code = || facts.code.is_some_and(|code| self.codes.contains(&code));
        let is_enhanced = || facts.enhanced.is_some_and(|code| self.enhanced.iter().any(|known| known.matches(code)));
        let host = facts.host.trim_end_matches('.');
        let is_provider = || self.providers.iter().any(|domain| is_at_or_below(host, domain));
        (self.texts.is_empty() || has(&self.texts))
            && (self.codes.is_empty() || is_code())
            && (self.enhanced.is_empty() || is_enhanced())
            && (self.providers.is_empty() || is_provider())
            && !has(&self.not)
    }
}
