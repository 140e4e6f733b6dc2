//! The explanation of a decision, written by the evaluation itself.

use std::fmt::{self, Write as _};

use crate::action::RuleAction;
use crate::book::Rulebook;
use crate::decision::{AUTHENTICATED, DecisionReason};
use crate::facts::TableId;
use crate::routes::HopSource;
use crate::rule::{NumberedRule, Rule};
use crate::words::in_words;

/// One lookup or test, with its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// `rule 3 "sales"`, `[routes] example.org`, `table access`
    pub asked: String,
    /// `file:line`, if known.
    pub place: String,
    pub answer: String,
    /// Missing fact that would change or complete the result.
    pub unknown: Option<UnknownFact>,
}

/// A fact known only in a client's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownFact {
    ClientName,
    Helo,
    EarlyTalker,
    Rate,
    Greylist,
    /// The answer of a policy service.
    Service(TableId),
}

impl Step {
    pub fn new(asked: impl Into<String>, place: impl Into<String>, answer: impl Into<String>) -> Step {
        Step { asked: asked.into(), place: place.into(), answer: answer.into(), unknown: None }
    }
}

impl Rulebook {
    /// Describes a reason for people, with its place if known.
    pub fn shown(&self, why: &DecisionReason) -> String {
        match why {
            DecisionReason::Rule(at) => {
                let place = self.rules.get(at.at()).map_or("", |rule| &rule.place);
                format!("{} ({place})", self.rule_name(*at))
            }
            DecisionReason::Stranger(at, by) | DecisionReason::Unavailable(at, by) => {
                format!("{}; {by}", self.shown(&DecisionReason::Rule(*at)))
            }
            DecisionReason::Entry(entry) => {
                let rule = self.shown(&DecisionReason::Rule(entry.rule));
                // No commas: they separate the log's fields.
                let name = self.table_name(entry.table);
                let mut text = if entry.key.is_empty() {
                    format!("{rule}; policy service {name}")
                } else {
                    format!("{rule}; table {name} has {}", entry.key)
                };
                if !entry.place.is_empty() {
                    let _ = write!(text, " ({})", entry.place);
                }
                if let Some(error) = &entry.error {
                    let _ = write!(text, ": {error}");
                }
                text
            }
            DecisionReason::Route(who, entry) => {
                let section = if *who == HopSource::Sender { "[sender_routes]" } else { "[routes]" };
                format!("{section} {} ({})", entry.pattern, entry.place)
            }
            DecisionReason::Table(table, _, key, place) => {
                let name = self.table_name(*table);
                if place.is_empty() { format!("table {name}, {key}") } else { format!("table {name}, {key} ({place})") }
            }
            DecisionReason::RelayDomain => "a domain that is relayed for".to_owned(),
            DecisionReason::Authenticated => AUTHENTICATED.to_owned(),
            DecisionReason::Base(base) => base.to_string(),
            DecisionReason::Address(by) | DecisionReason::Nobody(by) => by.to_string(),
            DecisionReason::Mx => "no route".to_owned(),
        }
    }

    /// Text for a rule whose condition does not hold, with the tables that may have been looked up.
    pub(crate) fn missed(&self, rule: &Rule, condition: &str) -> String {
        let asked = rule.when.tables().iter().filter(|(field, _)| field.name() == condition);
        let names: Vec<String> = asked.map(|(_, table)| format!("table {}", self.table_name(*table))).collect();
        if names.is_empty() { format!("no: {condition}") } else { format!("no: {condition} ({})", names.join(", ")) }
    }

    /// Records the result of a rule, if an explanation is wanted.
    pub(crate) fn note_rule(
        &self,
        steps: &mut Option<&mut Vec<Step>>,
        rule: NumberedRule<'_>,
        answer: impl FnOnce() -> String,
    ) {
        note(steps, || (self.rule_name(rule.id), rule.rule.place.to_string(), answer()));
    }
}

/// Text for a rule that holds, with its action.
pub(crate) fn yes(rule: &Rule, action: &RuleAction) -> String {
    if rule.is_warning {
        format!("yes: would {}, but only warns", in_words(action))
    } else {
        format!("yes: {}", in_words(action))
    }
}

/// Records a step, if an explanation is wanted.
pub(crate) fn note(steps: &mut Option<&mut Vec<Step>>, step: impl FnOnce() -> (String, String, String)) {
    if let Some(steps) = steps {
        let (asked, place, answer) = step();
        steps.push(Step { asked, place, answer, unknown: None });
    }
}

/// Records a step whose result is unknown, if an explanation is wanted.
pub(crate) fn note_unknown(steps: &mut Option<&mut Vec<Step>>, unknown: UnknownFact, step: (&str, &str, &str)) {
    if let Some(steps) = steps {
        let (asked, place, answer) = step;
        steps.push(Step { unknown: Some(unknown), ..Step::new(asked, place, answer) });
    }
}

impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let space = if self.place.is_empty() { "" } else { " " };
        write!(out, "{}{space}{}: {}", self.place, self.asked, self.answer)
    }
}
