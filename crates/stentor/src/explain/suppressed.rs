//! Suppressions of the recipient, as the running server has them: only it can read the registry.
//!
//! Promise: a recipient whom the server would refuse at RCPT as suppressed is refused here too. Without a running
//! server nothing is said about suppressions.

use stentor_admin::suppression_forms;
use stentor_control::suppression_view::ROWS_MAX;
use stentor_control::{Client, ControlReply, Request, SuppressionOptions, SuppressionRequest};
use stentor_core::clock::Clock;
use stentor_core::{Settings, suppression};
use stentor_registry::{MatchedScope, Scope, Suppression, SuppressionIndex};
use stentor_rules::{Outcome, Step};

use super::Explanation;

/// The client and the message, as far as suppressions apply to it.
pub(super) struct SuppressionFacts {
    pub is_trusted: bool,
    /// The entries that cover the recipient.
    pub entries: Vec<Suppression>,
}

/// Asks the running server for entries that cover an address. Without one there are none.
pub(super) fn entries(settings: &Settings, address: &str) -> Vec<Suppression> {
    let options =
        SuppressionOptions { subject: Some(address.to_owned()), rows_max: ROWS_MAX, ..SuppressionOptions::default() };
    let request = Request::Suppression(SuppressionRequest::List(options));
    let reply = Client::connect(&settings.config.control.socket).and_then(|mut client| client.ask(&request));
    let Ok(ControlReply::Suppressions(list)) = reply else { return Vec::new() };
    list.rows.iter().filter_map(|row| suppression_forms::entry(row).ok()).collect()
}

/// Refuses the recipient, or says which of its entries have no effect on this mail.
pub(super) fn judge(settings: &Settings, facts: SuppressionFacts, explanation: &mut Explanation) {
    let SuppressionFacts { is_trusted, entries } = facts;
    let marks = &explanation.decision.marks;
    let is_settled = marks.open.is_empty() && marks.redirect.is_none();
    if entries.is_empty() || !is_settled || !matches!(explanation.decision.outcome, Outcome::Relay(_)) {
        return;
    }
    let index = SuppressionIndex::default();
    for entry in &entries {
        index.insert(&entry.key.subject, &entry.key.scope, entry.reason, entry.expires);
    }
    let (address, from, now) = (explanation.to.as_str().to_owned(), explanation.from.clone(), Clock::start().now());
    let asked = format!("suppressions of {address}");
    let Some(found) = index.find(&address, None, &from, now) else {
        let lists = entries.iter().filter_map(|entry| match &entry.key.scope {
            Scope::List(name) => Some(&**name),
            Scope::Everything | Scope::Sender(_) => None,
        });
        let lists: Vec<&str> = lists.collect();
        if !lists.is_empty() {
            let words = format!("suppressed only for posts to {}", lists.join(", "));
            explanation.steps.push(Step::new(asked, "", words));
        }
        return;
    };
    let is_transactional = settings.is_transactional(false, &from, is_trusted);
    if is_transactional && found.scope != MatchedScope::Everything {
        explanation.steps.push(Step::new(asked, "", format!("{found}, which transactional mail bypasses")));
        return;
    }
    explanation.steps.push(Step::new(asked, "", found.to_string()));
    explanation.refuse(suppression::refusal(found));
}
