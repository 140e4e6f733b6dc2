//! The matches of a rule's conditions on an untrusted client, and the actions whose texts mention them.

use std::net::IpAddr;
use std::sync::Arc;

use stentor_mail::reply::Reply;

use crate::action::{FinalAction, RuleAction};
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
    pub(crate) fn filled(&self, action: RuleAction) -> RuleAction {
        match action {
            RuleAction::End(FinalAction::Refuse(reply)) if reply.text.contains('{') => {
                RuleAction::End(FinalAction::Refuse(Reply { text: self.text(&reply.text).into(), ..reply }))
            }
            RuleAction::End(FinalAction::Discard(text)) => RuleAction::End(FinalAction::Discard(self.boxed(text))),
            RuleAction::Hold(text) => RuleAction::Hold(self.boxed(text)),
            RuleAction::Quarantine(text) => RuleAction::Quarantine(self.boxed(text)),
            RuleAction::Warn(text) => RuleAction::Warn(self.boxed(text)),
            RuleAction::Prepend(field) => RuleAction::Prepend(self.boxed(field)),
            other => other,
        }
    }

    /// Whether an action's text contains `{lists}`.
    pub fn has_lists(action: &RuleAction) -> bool {
        match action {
            RuleAction::End(FinalAction::Refuse(reply)) => reply.text.contains(LISTS),
            RuleAction::End(FinalAction::Discard(text))
            | RuleAction::Hold(text)
            | RuleAction::Quarantine(text)
            | RuleAction::Warn(text)
            | RuleAction::Prepend(text) => text.contains(LISTS),
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
