//! Holds mail that large receivers would refuse by their published rules, for lists and senders with `hold_unfit`.
//!
//! Promise: the message is accepted and durable like any other. Only the envelopes of an unfit post wait for
//! `stentor release`: those of the list, or those of the sender that are no posts. Each list that gets an envelope is
//! examined, also one within another list or behind an alias, up to [`POSTS_MAX`]. Without the key the header is not
//! kept and no look-up is made.
//!
//! Bound: held mail never expires, and anybody may post to an open list or under a member's name. While
//! [`HELD_MAX`] messages are held, an unfit post of an untrusted client gets 451.
//!
//! Failure: a question that the DNS does not answer within `timeout_s` of `[message_authentication]` never holds a
//! message.

use std::sync::Arc;
use std::time::Duration;

use stentor_config::{FlowConfig, ListConfig};
use stentor_core::envelope::{EnvelopeRecipients, NewEnvelope};
use stentor_core::sts::LookupServices;
use stentor_core::{Core, Settings};
use stentor_dkim::MessageHash;
use stentor_examination::{OutgoingPost, refusals};
use stentor_identity::IdentityFinding;
use stentor_lists::permalink_in;
use stentor_mail::reply::{Enhanced, Reply};
use tokio::time::Instant;

use super::Transaction;

/// Recipients from which the rules for large senders apply: Gmail and Outlook.com count 5,000 messages a day.
const BULK_RECIPIENTS: u64 = 5_000;
/// Maximum posts of one message that are examined: each costs a signature.
const POSTS_MAX: usize = 50;
/// Held messages from which on untrusted clients cannot add unfit posts.
const HELD_MAX: usize = 200;
const MANY_HELD: Reply = Reply::fixed(451, Enhanced::new(4, 7, 1), "Too many posts are held, try again later");

/// A held post and its findings.
pub(super) struct UnfitPost {
    /// `None`: mail of the sender to others than lists.
    pub list: Option<Arc<str>>,
    pub findings: Vec<IdentityFinding>,
    /// Where its list's archive will show it.
    pub permalink: Option<String>,
}

/// Envelopes that are examined together.
struct ExaminedPost<'a> {
    list: Option<&'a ListConfig>,
    recipients: u64,
}

impl ExaminedPost<'_> {
    fn list_name(&self) -> Option<&str> {
        self.list.map(|list| &**list.list.name())
    }
}

impl Transaction {
    /// Begins to keep the header, if unfit mail of some list or of the sender is held. Which lists the message comes to
    /// is known at its end.
    pub(super) fn begin_examination(&mut self, settings: &Settings) {
        if settings.config.lists_hold_unfit || self.holds_for_sender(settings) {
            self.examined_header = Some(Box::new(MessageHash::of_header()));
        }
    }

    /// Reads the next octets of the data, as the client sent them.
    pub(super) fn push_examined(&mut self, octets: &[u8]) {
        if let Some(header) = self.examined_header.as_mut().filter(|header| !header.has_header()) {
            header.push(octets);
        }
    }

    /// Holds those envelopes of the complete message of `size` octets that large receivers would refuse.
    ///
    /// # Errors
    /// Too many messages are held.
    pub(super) async fn hold_unfit(
        &mut self,
        core: &Arc<Core>,
        settings: &Settings,
        envelopes: &mut [NewEnvelope],
        size: u64,
    ) -> Result<Vec<UnfitPost>, Reply> {
        let Some(header) = self.examined_header.take() else { return Ok(Vec::new()) };
        let posts = self.examined_posts(core, settings, envelopes);
        if posts.is_empty() {
            return Ok(Vec::new());
        }
        let (header, _) = header.finish();
        let until = Instant::now() + Duration::from_millis(settings.config.message_auth.timeout_ms);
        let resolver = core.resolver();
        let services = LookupServices { resolver: &resolver, settings, clock: &core.clock };
        let without_keys = core.dkim.domains_without_keys(settings.dkim());
        let sender = self.mail.path.as_str().rsplit_once('@').map_or("", |(_, domain)| domain);
        let mut unfit = Vec::new();
        for examined in posts {
            let list = examined.list.map(|list| &*list.list);
            let post = OutgoingPost {
                list,
                return_path: list.map_or(sender, |list| list.settings().bounces.domain()),
                header: &header,
                bytes: size,
                is_bulk: examined.recipients >= BULK_RECIPIENTS,
                without_keys: &without_keys,
                now_ms: core.clock.now(),
            };
            let findings = refusals(services, post, until).await;
            let Some(first) = findings.first() else { continue };
            let list = list.map(|list| list.name().clone());
            let by: Box<str> = format!("hold_unfit: {}: {} ({})", first.subject, first.what, first.check.key()).into();
            for envelope in envelopes.iter_mut().filter(|envelope| is_unheld_of_post(envelope, list.as_deref())) {
                envelope.held_by = Some(by.clone());
            }
            for one in &findings {
                tracing::warn!(message = %self.id, list = list.as_deref().unwrap_or_default(),
                    "held, since large receivers would refuse it: {}: {}; next: {}", one.subject, one.what, one.next);
            }
            let mut of_list =
                envelopes.iter().filter(|envelope| list.is_some() && envelope.list.as_deref() == list.as_deref());
            let permalink = of_list.find_map(|envelope| permalink_in(&envelope.prefix)).map(str::to_owned);
            unfit.push(UnfitPost { list, findings, permalink });
        }
        if !unfit.is_empty() && !self.is_of_trusted() && core.with(|hub, _| hub.store.held()) >= HELD_MAX {
            return Err(MANY_HELD);
        }
        Ok(unfit)
    }

    /// Returns the posts to examine: those of lists and senders with `hold_unfit` that nothing else holds.
    fn examined_posts<'a>(
        &self,
        core: &Arc<Core>,
        settings: &'a Settings,
        envelopes: &[NewEnvelope],
    ) -> Vec<ExaminedPost<'a>> {
        let holds_for_sender = self.holds_for_sender(settings);
        let mut posts: Vec<ExaminedPost<'a>> = Vec::new();
        for envelope in envelopes.iter().filter(|envelope| envelope.held_by.is_none()) {
            let name = envelope.list.as_deref();
            let holds = |list: &&ListConfig| list.flow.hold_unfit && Some(&**list.list.name()) == name;
            let list = name.and_then(|_| settings.config.lists.iter().find(holds));
            let is_examined = if name.is_some() { list.is_some() } else { holds_for_sender };
            if !is_examined {
                continue;
            }
            let recipients = recipient_count(core, envelope);
            let has_space = posts.len() < POSTS_MAX;
            match posts.iter_mut().find(|post| post.list_name() == name) {
                Some(post) => post.recipients += recipients,
                None if has_space => posts.push(ExaminedPost { list, recipients }),
                None => tracing::warn!(message = %self.id, list = name.unwrap_or_default(),
                    "post not examined: the message goes to more than {POSTS_MAX} lists with hold_unfit"),
            }
        }
        posts
    }

    /// Only mail of trusted clients is the sender's.
    fn holds_for_sender(&self, settings: &Settings) -> bool {
        let sending = &settings.config.sending;
        if !sending.holds_unfit || !self.is_of_trusted() {
            return false;
        }
        let Some((_, domain)) = self.mail.path.as_str().rsplit_once('@') else { return false };
        sending.senders.iter().any(|(of, flow): &(String, FlowConfig)| flow.hold_unfit && of == domain)
    }
}

/// Whether the envelope belongs to this post and nothing holds it yet.
fn is_unheld_of_post(envelope: &NewEnvelope, list: Option<&str>) -> bool {
    envelope.list.as_deref() == list && envelope.held_by.is_none()
}

fn recipient_count(core: &Arc<Core>, envelope: &NewEnvelope) -> u64 {
    match (&envelope.recipients, envelope.list.as_deref()) {
        (EnvelopeRecipients::List, Some(name)) => {
            core.with(|hub, _| hub.store.receiving_subscribers(name).map_or(0, |ids| ids.len() as u64))
        }
        (recipients, _) => recipients.count(),
    }
}
