//! The data is over: what the rules that waited for the content say.

use std::net::IpAddr;

use stentor_mail::reply::Reply;
use stentor_rules::{Why, keeper};

use super::super::judge::{Asked, pinned_by_rule};
use super::Transaction;
use super::rcpt::unasked;
use crate::core::Settings;

impl Transaction {
    /// With the last octets of the data.
    ///
    /// # Errors
    /// A rule refuses the message.
    pub(super) fn by_content(&mut self, settings: &Settings, client: IpAddr, last: &[u8]) -> Result<(), Reply> {
        self.waiting.push(last);
        self.apply_content_rules(settings, client)
    }

    /// The same, or what they say of recipients that have been added since: the fields that their rules prepend come too late.
    pub(super) fn apply_content_rules(&mut self, settings: &Settings, client: IpAddr) -> Result<(), Reply> {
        let is_first = !self.waiting.is_over();
        let rules = &settings.rules;
        let Some(mut said) = self.waiting.finish(rules) else { return Ok(()) };
        for text in said.kinds.iter_mut().flat_map(|(marks, _)| marks.warnings(rules)) {
            tracing::warn!(%client, message = %self.id, from = self.mail.path.as_str(), "a rule warns: {text}");
        }
        if let Some((reply, by)) = said.refusal {
            self.why_refused = rules.shown(&Why::Rule(by));
            return Err(reply);
        }
        for (text, by, first) in std::mem::take(&mut said.discards) {
            let by = rules.shown(&Why::Rule(by));
            let by = if text.is_empty() { by } else { format!("{by}: {text}") };
            self.wishes.discard(format!("discarded by {by}"), &first);
        }
        for (to, asked) in self.rcpts.named_mut() {
            let by = said.of(to).and_then(|marks| marks.quarantine.as_ref());
            asked.quarantine = asked.quarantine.take().or_else(|| by.map(|by| keeper(rules, by).into()));
        }
        for (to, asked) in self.rcpts.relayed_mut() {
            if let Some(hop) = said.route(to) {
                asked.hop = pinned_by_rule(settings, to.domain(), hop);
            }
        }
        for (alias, asked) in self.rcpts.aliases_mut() {
            if let Some(hop) = said.route(alias) {
                asked.hop = Some(hop.to_string().into());
            }
        }
        for (to, lists) in std::mem::take(&mut self.open) {
            let Some(marks) = said.of(&to) else { continue };
            for list in &lists {
                self.quarantined_lists
                    .extend(marks.quarantine.as_ref().map(|by| (list.clone(), keeper(rules, by).into())));
            }
            if let Some(hop) = &marks.route {
                self.route_lists(&lists, hop);
            }
            for (hop, _) in &marks.copies {
                self.rcpts.add_copy(to.clone(), Asked { hop: Some(hop.to_string().into()), ..unasked() });
            }
        }
        if is_first {
            self.added = said.fields();
        }
        for (marks, first) in said.kinds {
            self.wishes.add(rules, marks, &first);
        }
        Ok(())
    }
}
