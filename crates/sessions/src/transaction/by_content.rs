//! At the end of the data: applies the rules that waited for the content, and after the milters, those that waited for
//! them.

use std::sync::Arc;

use stentor_core::Settings;
use stentor_core::next_hops::own_hop_by_rule;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_rules::{ActionRemark, ContentResults, DecisionReason, WholeMessage, decided_by};
use stentor_ruletables::REMOTE_DECISION_MAX;
use stentor_ruletables::remote::For;
use tokio::time::Instant;

use super::super::judge::AcceptedRcpt;
use super::rcpt::unasked;
use super::{Transaction, address_of};

/// Rules would not see all parts.
const TOO_MANY_PARTS: Reply =
    Reply::fixed(552, Enhanced::new(5, 3, 4), "Message refused: too many MIME parts or header fields");

impl Transaction {
    /// Applies the rules on content. `last` are the last octets of the data, `size` all of them.
    ///
    /// # Errors
    /// A rule refuses the message.
    pub(super) async fn by_content(&mut self, settings: &Settings, last: &[u8], size: u64) -> Result<(), Reply> {
        self.search(last).await;
        if self.waiting.has_too_many_parts() {
            return Err(TOO_MANY_PARTS);
        }
        self.waiting.close(&settings.rules);
        self.ask_services(settings, size, false).await;
        self.apply_content_rules(settings)
    }

    /// Asks the policy services that the waiting rules use; with `has_auth`, also those of rules on authentication.
    pub(super) async fn ask_services(&mut self, settings: &Settings, size: u64, has_auth: bool) {
        let Some(question) = &self.question else { return };
        let stranger = (!self.is_of_trusted()).then_some(self.client);
        let whom = stranger.map_or(For::Trusted(self.client), For::Stranger);
        let recipients = self.rcpts.named();
        let named = self.names.all(&self.rcpts, |list| address_of(settings, list));
        let recipient = named.first().filter(|_| recipients == 1).map_or("", |one| &**one);
        let text = question.about(WholeMessage { recipient, recipients, size });
        let limit = Instant::now() + REMOTE_DECISION_MAX;
        while let Some(service) = self.waiting.service(&settings.rules, has_auth) {
            let answer = settings.tables.ask_at_end_of_data(service, &text, whom, limit).await;
            self.waiting.answer(service, answer);
        }
    }

    /// Applies the rules on content, or their effects on recipients added since.
    pub(super) fn apply_content_rules(&mut self, settings: &Settings) -> Result<(), Reply> {
        match self.waiting.finish(&settings.rules) {
            Some(said) => self.take_said(settings, said),
            None => Ok(()),
        }
    }

    /// Performs the actions of the waiting rules.
    pub(super) fn take_said(&mut self, settings: &Settings, mut said: ContentResults) -> Result<(), Reply> {
        let (rules, client) = (&settings.rules, self.client);
        for text in said.kinds.iter_mut().flat_map(|(results, _)| results.marks.warnings(rules)) {
            tracing::warn!(%client, message = %self.id, from = self.mail.path.as_str(), "a rule warns: {text}");
        }
        if let Some((reply, by)) = said.refusal() {
            self.why_refused = rules.shown(by);
            return Err(reply.clone());
        }
        for (results, named) in &said.kinds {
            if let Some(by) = results.discard().map(|(text, by)| Self::discarded_by(settings, text, by)) {
                self.wishes.discard(ActionRemark::Discarded { by }, named);
            }
        }
        for (to, asked) in self.rcpts.named_mut() {
            let by = said.marks_of(to).and_then(|marks| marks.quarantine.as_ref());
            asked.quarantine =
                asked.quarantine.take().or_else(|| by.map(|(text, by)| decided_by(rules, text, by).into()));
        }
        for (to, asked) in self.rcpts.relayed_mut() {
            if let Some(hop) = said.route(to) {
                asked.hop = own_hop_by_rule(settings, to.domain(), hop);
            }
        }
        for (to, asked) in self.rcpts.standing_mut() {
            if let Some(hop) = said.route(to) {
                asked.hop = Some(Arc::new(hop.clone()));
            }
        }
        self.take_said_of_lists(&said);
        for (results, named) in said.kinds {
            self.wishes.add(rules, results.marks, &named);
        }
        self.wishes.write_late_fields(&mut self.added);
        Ok(())
    }

    /// Applies their next hops for posts, and copies for other servers.
    fn take_said_of_lists(&mut self, said: &ContentResults) {
        for (to, lists) in std::mem::take(&mut self.open) {
            if let Some(results) = said.of(&to) {
                if let Some((hop, _)) = &results.route {
                    self.route_lists(&lists, hop);
                }
                for (hop, _) in &results.marks.copies {
                    self.rcpts.add_copy(to.clone(), AcceptedRcpt { hop: Some(Arc::new(hop.clone())), ..unasked() });
                }
            }
            if self.waiting.waits_for_auth() {
                self.open.push((to, lists));
            }
        }
    }

    fn discarded_by(settings: &Settings, text: &str, by: &DecisionReason) -> String {
        let by = settings.rules.shown(by);
        if text.is_empty() { by } else { format!("{by}: {text}") }
    }
}
