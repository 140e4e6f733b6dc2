//! Operators' actions from the history: audit records, with the batches of one action merged.
//!
//! Promise: bounded; the newest are kept. A record that cannot be parsed is shown unchanged.

use std::collections::VecDeque;

use serde_json::{Map, Value};
use stentor_queue::ids::Ms;
use stentor_records::record::{Record, Topic};

/// Maximum actions kept.
const KEPT_MAX: usize = 500;
/// Batches of a large action are recorded within this time of each other.
const SAME_MS: Ms = 10_000;

/// One action.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Action {
    /// The time it ended.
    pub at: Ms,
    pub verb: String,
    pub who: String,
    /// Its subject: selectors and their values.
    pub on: Vec<(String, String)>,
    pub reason: String,
    /// Total of all batches; `None` if the action counts nothing.
    pub messages: Option<u64>,
    pub recipients: Option<u64>,
}

/// Collects the last actions from a stream of records, oldest first.
#[derive(Default)]
pub struct Actions(VecDeque<Action>);

impl Actions {
    pub fn add(&mut self, record: &Record<'_>) {
        let Record::Note(note) = record else { return };
        if note.topic != Topic::Audit {
            return;
        }
        let action = Action::of(note.at, note.text);
        if let Some(last) = self.0.back_mut().filter(|last| last.is_continued_by(&action)) {
            last.at = action.at;
            last.messages = sum(last.messages, action.messages);
            last.recipients = sum(last.recipients, action.recipients);
            return;
        }
        if self.0.len() == KEPT_MAX {
            self.0.pop_front();
        }
        self.0.push_back(action);
    }

    pub fn newest_first(self) -> Vec<Action> {
        self.0.into_iter().rev().collect()
    }
}

fn sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.zip(b).map(|(a, b)| a.saturating_add(b))
}

impl Action {
    /// Parses `audit: verb=hold, who=user=ann address=192.0.2.1, detail={...}`.
    fn of(at: Ms, text: &str) -> Action {
        let parts = text.strip_prefix("audit: verb=").and_then(|rest| {
            let (verb, rest) = rest.split_once(", who=")?;
            let (who, detail) = rest.split_once(", detail=")?;
            Some((verb, who, detail))
        });
        let Some((verb, who, detail)) = parts else {
            return Action { at, verb: text.to_owned(), ..Action::default() };
        };
        let mut action = Action { at, verb: verb.to_owned(), who: who.to_owned(), ..Action::default() };
        match serde_json::from_str::<Map<String, Value>>(detail) {
            Ok(fields) => fields.into_iter().for_each(|(name, value)| action.field(name, &value)),
            Err(_) if detail.is_empty() && verb == "flush" => action.on.push((String::new(), "all mail".to_owned())),
            Err(_) if detail.is_empty() => {}
            Err(_) => action.on.push((String::new(), detail.to_owned())),
        }
        action
    }

    fn field(&mut self, name: String, value: &Value) {
        match (name.as_str(), value) {
            (_, Value::Null) => {}
            ("reason", Value::String(text)) => text.clone_into(&mut self.reason),
            ("messages", value) => self.messages = value.as_u64(),
            ("recipients", value) => self.recipients = value.as_u64(),
            ("what", Value::String(what)) => {
                let (kind, name) = what.split_once(':').unwrap_or(("", what));
                self.on.push((kind.to_owned(), name.to_owned()));
            }
            ("all", _) => self.on.push((String::new(), "all mail".to_owned())),
            (_, value) => self.on.push((name, words(value))),
        }
    }

    fn is_continued_by(&self, next: &Action) -> bool {
        self.messages.is_some()
            && next.at.saturating_sub(self.at) <= SAME_MS
            && (&self.verb, &self.who, &self.on, &self.reason) == (&next.verb, &next.who, &next.on, &next.reason)
    }
}

/// Formats a value for people.
fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(all) => all.iter().map(words).collect::<Vec<_>>().join(", "),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use stentor_records::record::Note;

    use super::*;

    fn read(texts: &[(Ms, &str)]) -> Vec<Action> {
        let mut actions = Actions::default();
        for (at, text) in texts {
            actions.add(&Record::Note(Note { at: *at, text, topic: Topic::Audit, ..Note::default() }));
        }
        actions.newest_first()
    }

    #[test]
    fn batches_of_one_action_are_one() {
        let part = r#"audit: verb=remove, who=user=ann address=192.0.2.1, detail={"list":"news","messages":2,"reason":"spam","recipients":1000}"#;
        let all = read(&[(1_000, part), (2_000, part), (60_000, part)]);
        assert_eq!(all.len(), 2);
        let first = &all[1];
        assert_eq!((first.at, first.messages, first.recipients), (2_000, Some(4), Some(2_000)));
        assert_eq!(
            (first.verb.as_str(), first.who.as_str(), first.reason.as_str()),
            ("remove", "user=ann address=192.0.2.1", "spam")
        );
        assert_eq!(first.on, [("list".to_owned(), "news".to_owned())]);
    }

    #[test]
    fn every_record_is_shown() {
        let all = read(&[
            (1, r#"audit: verb=suspend, who=uid=0(root) pid=7, detail={"what":"site:a.example","reason":null}"#),
            (2, "audit: verb=flush, who=uid=0, detail=a.example"),
            (3, "audit: verb=reload, who=uid=0, detail="),
            (4, "something else"),
        ]);
        assert_eq!(
            all.iter().map(|action| action.verb.as_str()).collect::<Vec<_>>(),
            ["something else", "reload", "flush", "suspend"]
        );
        assert_eq!(all[3].on, [("site".to_owned(), "a.example".to_owned())]);
        assert_eq!(all[2].on[0].1, "a.example");
        assert!(all[1].on.is_empty() && all[0].who.is_empty());
    }

    #[test]
    fn the_newest_stay() {
        let mut actions = Actions::default();
        for at in 0..KEPT_MAX as Ms + 5 {
            let text = format!("audit: verb=flush, who=uid=0, detail=site{at}");
            actions.add(&Record::Note(Note { at, text: &text, topic: Topic::Audit, ..Note::default() }));
        }
        let all = actions.newest_first();
        assert_eq!((all.len(), all[0].at), (KEPT_MAX, KEPT_MAX as Ms + 4));
    }
}
