//! Holds mail that large receivers would refuse by their published rules, for lists and senders with `hold_unfit`.
//!
//! Promise: the message is accepted and durable like any other; it only waits for `stentor release`. Without the key
//! the header is not kept and no look-up is made.
//!
//! Failure: a question that the DNS does not answer within `timeout_s` of `[message_authentication]` never holds a
//! message.

use std::sync::Arc;
use std::time::Duration;

use stentor_config::{FlowConfig, ListConfig};
use stentor_core::sts::LookupServices;
use stentor_core::{Core, Settings};
use stentor_dkim::MessageHash;
use stentor_examination::{OutgoingPost, refusals};
use tokio::time::Instant;

use super::Transaction;

/// Recipients from which the rules for large senders apply: Gmail and Outlook.com count 5,000 messages a day.
const BULK_RECIPIENTS: usize = 5_000;
/// Maximum lists of one message that are examined.
const LISTS_MAX: usize = 10;

impl Transaction {
    /// Begins to keep the header, if a list or the sender wants unfit mail to be held.
    pub(super) fn begin_examination(&mut self, settings: &Settings) {
        if self.holds_for_sender(settings) || self.holding_lists(settings).next().is_some() {
            self.examined_header = Some(Box::new(MessageHash::of_header()));
        }
    }

    /// Reads the next octets of the data, as the client sent them.
    pub(super) fn push_examined(&mut self, octets: &[u8]) {
        if let Some(header) = self.examined_header.as_mut().filter(|header| !header.has_header()) {
            header.push(octets);
        }
    }

    /// Holds the complete message of `size` octets if large receivers would refuse it.
    pub(super) async fn hold_unfit(&mut self, core: &Arc<Core>, settings: &Settings, size: u64) {
        let Some(header) = self.examined_header.take().filter(|_| self.wishes.hold.is_none()) else { return };
        let (header, _) = header.finish();
        let until = Instant::now() + Duration::from_millis(settings.config.message_auth.timeout_ms);
        let resolver = core.resolver();
        let services = LookupServices { resolver: &resolver, settings, clock: &core.clock };
        let now_ms = core.clock.now();
        let without_keys = core.dkim.domains_without_keys(settings.dkim());
        let post = OutgoingPost {
            list: None,
            return_path: "",
            header: &header,
            bytes: size,
            is_bulk: false,
            without_keys: &without_keys,
            now_ms,
        };
        let mut posts = Vec::new();
        for list in self.holding_lists(settings).take(LISTS_MAX) {
            let recipients = core.with(|hub, _| hub.store.receiving_subscribers(list.list.name()).map(|ids| ids.len()));
            let is_bulk = recipients.unwrap_or_default() >= BULK_RECIPIENTS;
            let return_path = list.list.settings().bounces.domain();
            posts.push(OutgoingPost { list: Some(&list.list), return_path, is_bulk, ..post });
        }
        let sender = self.mail.path.as_str().rsplit_once('@').map(|(_, domain)| domain.to_owned());
        if let Some(return_path) = sender.as_deref().filter(|_| self.holds_for_sender(settings)) {
            let is_bulk = self.rcpts.named() >= BULK_RECIPIENTS as u64;
            posts.push(OutgoingPost { return_path, is_bulk, ..post });
        }
        let mut hold = None;
        for post in posts {
            let found = refusals(services, post, until).await;
            for one in &found {
                tracing::warn!(message = %self.id, "held, since large receivers would refuse it: {}: {}; next: {}",
                    one.subject, one.what, one.next);
            }
            if let Some(first) = found.first() {
                let by = format!("hold_unfit: {}: {} ({})", first.subject, first.what, first.check.key());
                hold.get_or_insert(by);
            }
        }
        self.wishes.hold = hold.map(Into::into);
    }

    fn holding_lists<'a>(&'a self, settings: &'a Settings) -> impl Iterator<Item = &'a ListConfig> {
        let named = self.rcpts.lists();
        let lists = if named.is_empty() { &[] } else { &*settings.config.lists };
        lists.iter().filter(|list| list.flow.hold_unfit && named.contains(list.list.name()))
    }

    /// Only mail of trusted clients is the sender's.
    fn holds_for_sender(&self, settings: &Settings) -> bool {
        let sending = &settings.config.sending;
        let Some((_, domain)) = self.mail.path.as_str().rsplit_once('@') else { return false };
        let is_held = |(of, flow): &(String, FlowConfig)| flow.hold_unfit && of == domain;
        sending.holds_unfit && self.is_of_trusted() && sending.senders.iter().any(is_held)
    }
}
