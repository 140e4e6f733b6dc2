//! A resend of a kept post in the committer: a message of its own for some of those that missed the post.
//!
//! Promise: the message and the record that its recipients no longer miss the post are in one batch, so a kill leaves
//! both or neither.

use stentor_journal::{Batch, RECORD_OVERHEAD_BYTES};
use stentor_queue::event::{Accept, Event, encode_accept, encode_resend, post_bytes_max};
use stentor_queue::ids::{MessageId, Ms};
use stentor_queue::idset::IdSet;
use stentor_queue::store::EventEffect;

use super::audit::Audit;
use super::hub::Hub;
use super::{Core, log};

/// Recipients that missed a post and are sent it together.
pub struct ResendPart {
    pub post: MessageId,
    /// Id of the message that sends it.
    pub to: MessageId,
    pub ids: IdSet,
    /// How long the post is kept at least.
    pub until: Ms,
    /// Upper bound of the message's octets in a record.
    pub bytes_max: usize,
    /// Message-ID for the log; may be empty.
    pub message_id: String,
}

impl ResendPart {
    /// Builds the message: the post as accepted, except for its age. `None` if no recipient is left.
    fn accept(&self, hub: &Hub, at: Ms) -> Option<Accept> {
        let post = hub.store.post(self.post).filter(|_| !self.ids.is_empty())?;
        let accept = post.message().as_accepted(self.ids.clone());
        // If the position is known, the text is not stored.
        let message_id = if accept.message_id_at.is_some() { self.message_id.clone() } else { accept.message_id };
        Some(Accept { id: self.to, accepted: at, held_by: None, message_id, ..accept })
    }

    pub(super) fn records_bytes_max(&self) -> usize {
        2 * RECORD_OVERHEAD_BYTES + self.bytes_max + post_bytes_max()
    }

    /// Adds the records to the batch, for those of the recipients that still miss the post.
    pub(super) fn record(&mut self, hub: &mut Hub, batch: &mut Batch, at: Ms) {
        self.ids = hub.claim_missed(self.post, &self.ids).unwrap_or_default();
        let Some(accept) = self.accept(hub, at) else { return };
        hub.store.refer(&accept.recipients);
        batch.record_with(|buffer| encode_accept(buffer, &accept));
        batch.record_with(|buffer| encode_resend(buffer, self.post, accept.id, self.until));
    }

    /// Applies the records: the batch is durable.
    pub(super) fn apply(self, core: &Core, hub: &mut Hub, audit: &Audit, now: Ms) {
        let Some(accept) = self.accept(hub, audit.at) else { return };
        log::resent(core, &accept, self.post, &audit.who);
        let EventEffect::New(no) = hub.apply(Event::Accept(Box::new(accept))) else { return };
        hub.apply(Event::Resend { of: self.post, message: self.to, until: self.until });
        hub.follow(no, true);
        hub.sched.accepted(&hub.store, no, now);
    }
}
