//! Standing bounces in force: what they are about is not handed out, but fails with the operator's reason.
//!
//! Promise: whether one covers a message's recipients at a domain is one judgement, which the choice of work, the way of new
//! mail to its place, the status of a recipient and the refusal of new mail share. One that is over covers nothing, whether its
//! end is recorded or not. It goes before a hold. Cost: none while there is none; otherwise a
//! comparison of texts with each for a message at a domain, which the steps of its caller pay. The caller bounds their number.

use std::sync::Arc;

use stentor_queue::cause::Cause;
use stentor_queue::ids::{DomainId, Ms};
use stentor_queue::message::Message;
use stentor_queue::sender::Senders;
use stentor_queue::standing::StandingBounce;
use stentor_queue::store::Store;

use crate::reasons::Reply;

/// See the module's page.
#[derive(Default)]
pub struct Bounces {
    list: Vec<Entry>,
    /// Recipients that were bounced when their turn came.
    pub recipients: u64,
}

struct Entry {
    bounce: StandingBounce,
    /// When it is over, by the system's clock.
    until: Ms,
    reason: Arc<str>,
}

impl Bounces {
    /// Begins one, or gives it another end or reason.
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

    /// Whether one may be about mail like this message.
    pub fn are_of(&self, message: &Message) -> bool {
        self.list.iter().any(|entry| entry.bounce.is_of(message.senders(), message.list()))
    }

    /// The reason of the first in force that is about mail of these senders and this list, and of which the rest holds.
    fn find(
        &self,
        (senders, list): (Senders<'_>, Option<&str>),
        now: Ms,
        holds: impl Fn(&StandingBounce) -> bool,
    ) -> Option<&Arc<str>> {
        let is_it = |entry: &&Entry| entry.until > now && entry.bounce.is_of(senders, list) && holds(&entry.bounce);
        self.list.iter().find(is_it).map(|entry| &entry.reason)
    }

    /// The reason of the first that covers mail of these senders and this list to a domain, at this site if it is known.
    pub fn reason(
        &self,
        of: (Senders<'_>, Option<&str>),
        (domain, site): (&str, Option<&str>),
        now: Ms,
    ) -> Option<&Arc<str>> {
        self.find(of, now, |bounce| bounce.is_to(domain, site))
    }

    /// The reason of the first that covers all posts of a list, wherever they go.
    pub fn reason_of_list(&self, senders: Senders<'_>, list: &str, now: Ms) -> Option<&Arc<str>> {
        self.find((senders, Some(list)), now, |bounce| bounce.site.is_none() && bounce.domain.is_none())
    }

    /// What the first one says that is about a message's recipients at a domain.
    pub fn reply(
        &self,
        store: &Store,
        message: &Message,
        (domain, site): (DomainId, Option<&str>),
        now: Ms,
    ) -> Option<Reply> {
        let reason =
            self.reason((message.senders(), message.list()), (store.book.domain_name_alone(domain), site), now)?;
        Some(Reply { code: 0, dsn: None, text: reason.clone(), cause: Cause::Reporting, host: None })
    }
}
