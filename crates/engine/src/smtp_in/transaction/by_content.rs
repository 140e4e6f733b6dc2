//! The data is over: what the rules that waited for the content say.

use std::net::IpAddr;

use stentor_mail::reply::Reply;
use stentor_rules::{NextHop, Why};

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
        let rules = &settings.rules;
        let Some(mut said) = self.waiting.finish(rules) else { return Ok(()) };
        for text in said.kinds.iter_mut().flat_map(|(marks, _)| marks.warnings(rules)) {
            tracing::warn!(%client, message = %self.id, from = self.mail.path.as_str(), "a rule warns: {text}");
        }
        if let Some((reply, by)) = said.refusal {
            self.why_refused = rules.shown(&Why::Rule(by));
            return Err(reply);
        }
        if let Some((text, by)) = said.discard.take() {
            let by = rules.shown(&Why::Rule(by));
            self.wishes
                .discard
                .get_or_insert_with(|| if text.is_empty() { by } else { format!("{by}: {text}") }.into());
        }
        let mut all = Vec::new();
        for (to, asked) in self.rcpts.relayed_mut() {
            let Some(marks) = said.of(to) else { continue };
            if let Some(hop) = &marks.route {
                asked.hop = pinned_by_rule(settings, to.domain(), hop);
            }
            let copy = |(hop, _): &(NextHop, usize)| Asked { hop: Some(hop.to_string().into()), ..unasked() };
            all.extend(marks.copies.iter().map(|hop| (to.clone(), copy(hop))));
        }
        for (to, asked) in all {
            self.rcpts.add_copy(to, asked);
        }
        self.added = said.fields();
        for (marks, first) in said.kinds {
            self.wishes.add(rules, marks, &first);
        }
        Ok(())
    }
}
