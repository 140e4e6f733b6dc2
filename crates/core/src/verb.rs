//! An operator's action in the committer: its changes, preceded by the audit record.
//!
//! Promise: no change takes effect before its batch is durable, and nothing else decides its recipients meanwhile. They
//! are reserved in the scheduler from their selection on. Once their record is in a batch, the hub accepts no other
//! outcome for them ([`Hub::claim_for_batch`], which all fates written with a batch pass through). A refused batch ends
//! both, as if the action had never been requested.

use std::sync::atomic::Ordering;

use stentor_journal::{Batch, RECORD_OVERHEAD_BYTES};
use stentor_queue::event::{
    Accept, Event, Fate, encode_hold, encode_outcome, encode_post, encode_post_end, encode_quarantine_ended,
    encode_quarantine_released, encode_suspend, hold_bytes_max, outcome_bytes_max, post_bytes_max, release_bytes_max,
    suspend_bytes_max,
};
use stentor_queue::ids::{MessageId, Ms};
use stentor_queue::idset::IdSet;
use stentor_queue::store::EventEffect;

use super::audit::Audit;
use super::hub::Hub;
use super::resend::ResendPart;
use super::{Core, log};

/// Recipients by message.
pub type RecipientsByMessage = Vec<(MessageId, IdSet)>;

pub enum QueueChange {
    /// Holds or releases messages.
    Hold { held: bool, messages: Vec<MessageId> },
    /// Gives reserved recipients their fate.
    Settle { fate: Fate, recipients: RecipientsByMessage },
    /// Suspends or resumes a list, a sender's domain or a site, makes mail queue-only, or bounces it
    /// ([`Event::Suspend`]); `until` limits the time.
    Suspend { suspended: bool, what: String, until: Ms, reason: String },
    /// Tries everything in the queue once; nothing durable changes.
    RunQueue,
    /// Resets retry clocks; nothing durable changes.
    TryNow { recipients: RecipientsByMessage },
    /// Removes recipients from the quarantine with another fate.
    EndQuarantine { fate: Fate, recipients: RecipientsByMessage },
    /// Releases recipients from the quarantine, each part as a message of its own.
    ReleaseQuarantined { parts: Vec<ReleasedPart> },
    /// Sends kept posts again, each to some of those that missed it.
    Resend { parts: Vec<ResendPart> },
    /// Keeps posts no longer.
    EndPosts { posts: Vec<MessageId> },
}

/// Recipients of a quarantined message that are released together.
pub struct ReleasedPart {
    pub from: MessageId,
    /// Id of the message that they become.
    pub to: MessageId,
    pub ids: IdSet,
    /// Upper bound of the message's octets in a record.
    pub bytes_max: usize,
    /// Message-ID for the log; may be empty.
    pub message_id: String,
    /// How long it is kept as a post; `None`: not at all.
    pub keep_until: Option<Ms>,
}

impl ReleasedPart {
    /// Builds the released message, as accepted except for its age: a message kept for weeks must not expire at its
    /// first deferral. `None` if no recipient is left.
    fn accept(&self, hub: &Hub, at: Ms) -> Option<Accept> {
        let message = hub.store.in_quarantine(self.from).filter(|_| !self.ids.is_empty())?;
        let accept = message.as_accepted(self.ids.clone());
        // If the position is known, the text is not stored.
        let message_id = if accept.message_id_at.is_some() { self.message_id.clone() } else { accept.message_id };
        Some(Accept { id: self.to, accepted: at, held_by: None, message_id, ..accept })
    }

    fn apply(self, core: &Core, hub: &mut Hub, audit: &Audit, now: Ms) {
        let Some(accept) = self.accept(hub, audit.at) else { return };
        log::released(core, hub, self.from, &accept, &audit.who);
        let (accept, by) = (Box::new(accept), Some(audit.who.as_str()));
        let EventEffect::New(no) = hub.apply(Event::QuarantineReleased { from: self.from, by, accept }) else { return };
        if let Some(until) = self.keep_until {
            hub.apply(Event::Post { message: self.to, until });
        }
        hub.follow(no, true);
        hub.sched.accepted(&hub.store, no, now);
    }
}

pub struct VerbJob {
    pub audit: Audit,
    pub change: QueueChange,
}

impl VerbJob {
    /// Returns an upper bound of the octets that its records take in a batch.
    pub fn bytes_max(&self) -> usize {
        let changed = match &self.change {
            QueueChange::Hold { messages, .. } => RECORD_OVERHEAD_BYTES + hold_bytes_max(messages.len()),
            QueueChange::Settle { recipients, .. } => {
                let outcome = |ids| RECORD_OVERHEAD_BYTES + outcome_bytes_max(ids, Some(&self.audit.who));
                recipients.iter().map(|(_, ids)| outcome(ids)).sum()
            }
            QueueChange::Suspend { what, reason, .. } => RECORD_OVERHEAD_BYTES + suspend_bytes_max(what, reason),
            QueueChange::TryNow { .. } | QueueChange::RunQueue => 0,
            QueueChange::EndQuarantine { recipients, .. } => {
                let ended = |ids| RECORD_OVERHEAD_BYTES + outcome_bytes_max(ids, Some(&self.audit.who));
                recipients.iter().map(|(_, ids)| ended(ids)).sum()
            }
            QueueChange::ReleaseQuarantined { parts } => {
                let released =
                    |bytes| 2 * RECORD_OVERHEAD_BYTES + release_bytes_max(bytes, &self.audit.who) + post_bytes_max();
                parts.iter().map(|part| released(part.bytes_max)).sum()
            }
            QueueChange::Resend { parts } => parts.iter().map(ResendPart::records_bytes_max).sum(),
            QueueChange::EndPosts { posts } => posts.len() * (RECORD_OVERHEAD_BYTES + post_bytes_max()),
        };
        self.audit.bytes_max() + changed
    }

    /// Adds the action's records to the batch. Removed recipients get no other fate until the batch is durable or
    /// refused.
    pub fn record(&mut self, hub: &mut Hub, batch: &mut Batch) {
        self.audit.record(batch);
        let Audit { at, who, .. } = &self.audit;
        match &mut self.change {
            QueueChange::Hold { held, messages } => {
                batch.record_with(|buffer| encode_hold(buffer, *held, messages.iter().copied()));
            }
            QueueChange::Settle { fate, recipients } => {
                for (message, ids) in recipients {
                    let Some(ids) = hub.claim_for_batch(*message, ids) else { continue };
                    batch.record_with(|buffer| encode_outcome(buffer, *message, *fate, &ids, Some(who), *at));
                }
            }
            QueueChange::Suspend { suspended, what, until, reason } => {
                batch.record_with(|buffer| encode_suspend(buffer, *suspended, what, *until, reason));
            }
            QueueChange::EndQuarantine { fate, recipients } => {
                for (message, ids) in recipients {
                    *ids = hub.claim_from_quarantine(*message, ids).unwrap_or_default();
                    if !ids.is_empty() {
                        batch.record_with(|buffer| {
                            encode_quarantine_ended(buffer, *message, *fate, ids, Some(who), *at);
                        });
                    }
                }
            }
            QueueChange::ReleaseQuarantined { parts } => {
                for part in parts {
                    part.ids = hub.claim_from_quarantine(part.from, &part.ids).unwrap_or_default();
                    let Some(accept) = part.accept(hub, *at) else { continue };
                    hub.store.refer(&accept.recipients);
                    batch.record_with(|buffer| encode_quarantine_released(buffer, part.from, Some(who), &accept));
                    if let Some(until) = part.keep_until {
                        batch.record_with(|buffer| encode_post(buffer, accept.id, until));
                    }
                }
            }
            QueueChange::Resend { parts } => {
                for part in parts {
                    part.record(hub, batch, *at);
                }
            }
            QueueChange::EndPosts { posts } => {
                posts.retain(|post| hub.claim_post_end(*post));
                for post in posts {
                    batch.record_with(|buffer| encode_post_end(buffer, *post));
                }
            }
            QueueChange::TryNow { .. } | QueueChange::RunQueue => {}
        }
    }

    /// Applies the action: the batch is durable.
    pub fn apply(self, core: &Core, hub: &mut Hub, now: Ms) {
        log::audited(core, &self.audit);
        match self.change {
            QueueChange::Hold { held, messages } => {
                let nos: Vec<_> = messages.iter().filter_map(|id| hub.store.no_of(*id)).collect();
                let who = self.audit.who_and_why();
                for message in nos.iter().filter_map(|no| hub.store.message(*no)) {
                    if message.is_held() != held {
                        log::hold_changed(core, message.id(), held, &who, now);
                    }
                }
                hub.apply(Event::Hold { held, messages });
                for no in nos {
                    if held {
                        hub.sched.hold_message(no);
                    } else {
                        hub.sched.release_message(&hub.store, no, now);
                    }
                }
            }
            QueueChange::Settle { fate, recipients } => {
                for (message, ids) in recipients {
                    if fate == Fate::Removed {
                        log::taken_out(core, hub, message, fate, &ids, &self.audit.who, now);
                    }
                    hub.taken_out(message, fate, &ids, &self.audit.who, now);
                }
            }
            QueueChange::Suspend { suspended, what, until, reason } => {
                hub.apply(Event::Suspend { suspended, what: &what, until, reason: &reason });
                hub.sched.set_suspended(&what, suspended, until, &reason);
                core.standing.store(hub.store.standing_bounces().next().is_some(), Ordering::Relaxed);
            }
            QueueChange::EndQuarantine { fate, recipients } => {
                let who = self.audit.who_and_why();
                for (message, ids) in recipients {
                    log::left_quarantine(core, hub, message, fate, &ids, &who, now);
                    hub.apply(Event::QuarantineEnded {
                        message,
                        fate,
                        ids,
                        by: Some(&self.audit.who),
                        at: self.audit.at,
                    });
                }
            }
            QueueChange::ReleaseQuarantined { parts } => {
                for part in parts {
                    part.apply(core, hub, &self.audit, now);
                }
            }
            QueueChange::Resend { parts } => {
                for part in parts {
                    part.apply(core, hub, &self.audit, now);
                }
            }
            QueueChange::EndPosts { posts } => {
                for message in posts {
                    hub.apply(Event::PostEnd { message });
                }
            }
            QueueChange::RunQueue => hub.sched.run_queue(now),
            QueueChange::TryNow { recipients } => {
                for (message, ids) in recipients {
                    let Some(no) = hub.store.no_of(message) else { continue };
                    let (free, _) = hub.sched.removable(no, &ids);
                    hub.sched.try_now(&hub.store, no, &free, now);
                }
            }
        }
    }

    /// Undoes the reservations: the batch was refused.
    pub fn give_up(&self, hub: &mut Hub, now: Ms) {
        if let QueueChange::Settle { recipients, .. } = &self.change {
            for (message, ids) in recipients {
                if let Some(no) = hub.store.no_of(*message) {
                    hub.sched.unreserve(&hub.store, no, ids, now);
                }
            }
        }
    }
}
