//! Standing bounces in force: what they are about is not handed out, but fails with the operator's reason.
//!
//! Promise: whether one covers a message's recipients at a domain is one judgement, which the choice of work, the way of new
//! mail to its place, and the status of a recipient share. Cost: none while there is none, a comparison of texts for each
//! otherwise; the caller bounds their number.

use std::sync::Arc;

use stentor_queue::cause::Cause;
use stentor_queue::ids::DomainId;
use stentor_queue::message::Message;
use stentor_queue::standing::StandingBounce;
use stentor_queue::store::Store;

use crate::reasons::Reply;

/// See the module's page.
#[derive(Default)]
pub struct Bounces {
    list: Vec<(StandingBounce, Arc<str>)>,
    /// Recipients that were bounced when their turn came.
    pub recipients: u64,
}

impl Bounces {
    /// Begins one, or gives it another reason.
    pub fn set(&mut self, bounce: StandingBounce, reason: &str) {
        self.end(&bounce);
        self.list.push((bounce, reason.into()));
    }

    pub fn end(&mut self, bounce: &StandingBounce) {
        self.list.retain(|(known, _)| known != bounce);
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether one is about mail like this message.
    pub fn are_of(&self, message: &Message) -> bool {
        self.list.iter().any(|(bounce, _)| bounce.is_of(message.sender(), message.list()))
    }

    /// What the first one says that is about a message's recipients at a domain.
    pub fn reply(&self, store: &Store, message: &Message, domain: DomainId, site: Option<&str>) -> Option<Reply> {
        let name = store.book.domain_name(domain);
        let is_about =
            |bounce: &StandingBounce| bounce.is_of(message.sender(), message.list()) && bounce.is_to(name, site);
        let (_, reason) = self.list.iter().find(|(bounce, _)| is_about(bounce))?;
        Some(Reply { code: 0, dsn: None, text: reason.clone(), cause: Cause::Reporting, host: None })
    }
}
