//! The matches of a rule's conditions on an untrusted client, and the actions whose texts mention them.

use std::net::IpAddr;
use std::sync::Arc;

use stentor_mail::reply::Reply;

use crate::action::{Action, Verdict};
use crate::facts::Facts;

/// Placeholders in texts: the client's address, and the lists that contain it.
const CLIENT: &str = "{client}";
const LISTS: &str = "{lists}";

/// The client, and the matches of a rule's conditions on untrusted clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientMatch {
    pub(crate) client: IpAddr,
    pub(crate) words: String,
    /// The lists that contain the client; for a score, only those with a positive weight.
    pub(crate) lists: Vec<Arc<str>>,
}

impl ClientMatch {
    pub(crate) fn of(facts: &Facts<'_>) -> ClientMatch {
        ClientMatch { client: facts.client, words: String::new(), lists: Vec::new() }
    }

    /// Fills in `{client}` and `{lists}` in the action's text, so that a sender's postmaster sees where to request
    /// delisting.
    pub(crate) fn filled(&self, action: Action) -> Action {
        match action {
            Action::End(Verdict::Refuse(reply)) if reply.text.contains('{') => {
                Action::End(Verdict::Refuse(Reply { text: self.text(&reply.text).into(), ..reply }))
            }
            Action::End(Verdict::Discard(text)) => Action::End(Verdict::Discard(self.boxed(text))),
            Action::Hold(text) => Action::Hold(self.boxed(text)),
            Action::Quarantine(text) => Action::Quarantine(self.boxed(text)),
            Action::Warn(text) => Action::Warn(self.boxed(text)),
            Action::Prepend(field) => Action::Prepend(self.boxed(field)),
            other => other,
        }
    }

    /// Whether an action's text contains `{lists}`.
    pub fn has_lists(action: &Action) -> bool {
        match action {
            Action::End(Verdict::Refuse(reply)) => reply.text.contains(LISTS),
            Action::End(Verdict::Discard(text))
            | Action::Hold(text)
            | Action::Quarantine(text)
            | Action::Warn(text)
            | Action::Prepend(text) => text.contains(LISTS),
            _ => false,
        }
    }

    fn boxed(&self, text: Box<str>) -> Box<str> {
        if text.contains('{') { self.text(&text).into() } else { text }
    }

    fn text(&self, text: &str) -> String {
        let text = text.replace(CLIENT, &self.client.to_string());
        if self.lists.is_empty() { text } else { text.replace(LISTS, &self.lists.join(", ")) }
    }
}
