//! Standing bounces in force: recipients that one covers are not handed out but fail with the operator's reason.
//!
//! Promise: one judgement decides whether a standing bounce covers a message's recipients at a domain. The choice of
//! work, the placing of new mail, recipient status and the refusal of new mail all use it. A bounce whose end has
//! passed covers nothing, whether or not that end is recorded. A standing bounce takes precedence over a hold. Cost:
//! none while the list is empty; otherwise one text comparison per bounce for each message at a domain, which the
//! caller's steps pay for. The caller bounds the number of bounces.

use std::sync::Arc;

use stentor_queue::cause::Cause;
use stentor_queue::ids::{DomainId, Ms};
use stentor_queue::message::Message;
use stentor_queue::sender::Senders;
use stentor_queue::standing_bounces::StandingBounce;
use stentor_queue::store::Store;

use crate::reasons::HostReply;

/// The standing bounces in force; see the module's head.
#[derive(Default)]
pub struct Bounces {
    list: Vec<Entry>,
    /// Recipients that were bounced when their turn came.
    pub recipients: u64,
}

struct Entry {
    bounce: StandingBounce,
    /// When the bounce ends, by the system's clock.
    until: Ms,
    reason: Arc<str>,
}

impl Bounces {
    /// Adds a bounce, or replaces its end and reason.
    pub fn set(&mut self, bounce: StandingBounce, until: Ms, reason: &str) {
        self.end(&bounce);
        self.list.push(Entry { bounce, until, reason: reason.into() });
    }

    pub fn end(&mut self, bounce: &StandingBounce) {
        self.list.retain(|known| known.bounce != *bounce);
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether some bounce may apply to mail like this message.
    pub fn are_of(&self, message: &Message) -> bool {
        self.list.iter().any(|entry| entry.bounce.is_of(message.senders(), message.list()))
    }

    /// Reason of the first bounce in force that applies to mail from these senders and this list and satisfies `holds`.
    fn find(
        &self,
        senders: Senders<'_>,
        list: Option<&str>,
        now: Ms,
        holds: impl Fn(&StandingBounce) -> bool,
    ) -> Option<&Arc<str>> {
        let is_it = |entry: &&Entry| entry.until > now && entry.bounce.is_of(senders, list) && holds(&entry.bounce);
        self.list.iter().find(is_it).map(|entry| &entry.reason)
    }

    /// Reason of the first bounce that covers mail from these senders and this list to a domain, at this site if it is
    /// known.
    pub fn reason(
        &self,
        senders: Senders<'_>,
        list: Option<&str>,
        domain: &str,
        site: Option<&str>,
        now: Ms,
    ) -> Option<&Arc<str>> {
        self.find(senders, list, now, |bounce| bounce.is_to(domain, site))
    }

    /// Reason of the first bounce that covers all posts of a list, wherever they go.
    pub fn reason_of_list(&self, senders: Senders<'_>, list: &str, now: Ms) -> Option<&Arc<str>> {
        self.find(senders, Some(list), now, |bounce| bounce.site.is_none() && bounce.domain.is_none())
    }

    /// Reply of the first bounce that covers a message's recipients at a domain.
    pub fn reply(
        &self,
        store: &Store,
        message: &Message,
        domain: DomainId,
        site: Option<&str>,
        now: Ms,
    ) -> Option<HostReply> {
        let name = store.book.domain_name_alone(domain);
        let reason = self.reason(message.senders(), message.list(), name, site, now)?;
        Some(HostReply { code: 0, dsn: None, text: reason.clone(), cause: Cause::Reporting, host: None })
    }
}
