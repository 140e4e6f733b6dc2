//! What was asked, with its answers, in words: written by the evaluation itself.

use std::fmt::{self, Write as _};

use stentor_mail::Class;

use crate::action::{Action, Verdict};
use crate::book::Rulebook;
use crate::decision::{AUTHENTICATED, Why};
use crate::routes::Who;
use crate::rule::Rule;

/// One thing that was asked, with its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// `rule 3 "sales"`, `[routes] example.org`, `table access`
    pub asked: String,
    /// `file:line`, if it has one.
    pub place: String,
    pub answer: String,
}

impl Rulebook {
    /// What decided, for people: with its place, if it has one.
    pub fn shown(&self, why: &Why) -> String {
        match why {
            Why::Rule(at) => {
                let place = self.rules.get(*at).map_or("", |rule| &rule.place);
                format!("{} ({place})", self.rule_name(*at))
            }
            Why::Stranger(at, by) => format!("{}; {by}", self.shown(&Why::Rule(*at))),
            Why::Entry(entry) => {
                let rule = self.shown(&Why::Rule(entry.rule));
                // No commas: they divide the log's fields.
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
            Why::Route(who, entry) => {
                let section = if *who == Who::Sender { "[sender_routes]" } else { "[routes]" };
                format!("{section} {} ({})", entry.pattern, entry.place)
            }
            Why::Table(table, _, key, place) => {
                let name = self.table_name(*table);
                if place.is_empty() { format!("table {name}, {key}") } else { format!("table {name}, {key} ({place})") }
            }
            Why::RelayDomain => "a domain that is relayed for".to_owned(),
            Why::Authenticated => AUTHENTICATED.to_owned(),
            Why::Base(base) => base.to_string(),
            Why::Address(by) => by.to_string(),
            Why::Mx => "no route".to_owned(),
        }
    }
}

/// That a rule holds, and what it does, for people.
pub(crate) fn yes(rule: &Rule, action: &Action) -> String {
    if rule.is_warning {
        format!("yes: {}, but only warns", would(action, ""))
    } else {
        format!("yes: {}", in_words(action))
    }
}

/// What a rule that only warns would do, for people.
pub(crate) fn would(action: &Action, met: &str) -> String {
    let met = if met.is_empty() { String::new() } else { format!(" ({met})") };
    format!("would {}{met}", in_words(action))
}

/// Notes a step, if somebody wants to know.
pub(crate) fn note(steps: &mut Option<&mut Vec<Step>>, step: impl FnOnce() -> (String, String, String)) {
    if let Some(steps) = steps {
        let (asked, place, answer) = step();
        steps.push(Step { asked, place, answer });
    }
}

/// An action for people.
pub(crate) fn in_words(action: &Action) -> String {
    match action {
        Action::End(Verdict::Ok) => "ok".to_owned(),
        Action::End(Verdict::Relay) => "relay".to_owned(),
        Action::MayRelay => "the client may relay".to_owned(),
        Action::End(Verdict::Refuse(reply)) => format!("refuse with {reply}"),
        Action::End(Verdict::Discard(text)) => with("discard", text),
        Action::Dunno => "nothing".to_owned(),
        Action::Hold(text) => with("hold", text),
        Action::Quarantine(text) => with("quarantine", text),
        Action::Redirect(to) => format!("redirect to {to}"),
        Action::Bcc(to) => format!("copy to {to}"),
        Action::Prepend(field) => format!("prepend {field}"),
        Action::RemoveHeader(removal) => format!("remove header {removal}"),
        Action::Warn(text) => with("warn", text),
        Action::Class(Class::Bulk) => "class bulk".to_owned(),
        Action::Class(Class::Ordinary) => "class ordinary".to_owned(),
        Action::Route(hop) => format!("route {hop}"),
        Action::Copy(hop) => format!("copy to {hop}"),
    }
}

fn with(word: &str, text: &str) -> String {
    if text.is_empty() { word.to_owned() } else { format!("{word}: {text}") }
}

impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let space = if self.place.is_empty() { "" } else { " " };
        write!(out, "{}{space}{}: {}", self.place, self.asked, self.answer)
    }
}
