//! An operator's action in the committer: its changes, and the audit record before them.
//!
//! Promise: nothing of it takes effect before its batch is durable, and nothing else decides its recipients meanwhile:
//! they are reserved in the scheduler from their selection on, and from the moment their record is in a batch the hub
//! accepts no other outcome for them ([`Hub::claim_for_batch`], which all fates written with a batch go through). A
//! refused batch ends both, as if the action had never been requested.

use std::sync::atomic::Ordering;

use stentor_journal::{Batch, RECORD_OVERHEAD_BYTES};
use stentor_queue::event::{
    Event, Fate, encode_hold, encode_outcome, encode_suspend, hold_bytes_max, outcome_bytes_max, suspend_bytes_max,
};
use stentor_queue::ids::{MessageId, Ms};
use stentor_queue::idset::IdSet;

use super::audit::Audit;
use super::hub::Hub;
use super::{Core, log};

/// Recipients of messages.
pub type Recipients = Vec<(MessageId, IdSet)>;

pub enum Change {
    /// Messages are held, or released.
    Hold { held: bool, messages: Vec<MessageId> },
    /// Reserved recipients get their fate.
    Settle { fate: Fate, recipients: Recipients },
    /// A list, a sender's domain or a site is suspended, perhaps until some time, or resumed; mail is queue-only, or bounced for a time
    /// ([`Event::Suspend`]).
    Suspend { suspended: bool, what: String, until: Ms, reason: String },
    /// What is in the queue is tried once; nothing durable changes.
    RunQueue,
    /// Clocks are wound back; nothing durable changes.
    TryNow { recipients: Recipients },
}

pub struct VerbJob {
    pub audit: Audit,
    pub change: Change,
}

impl VerbJob {
    /// Octets that its records take in a batch at most.
    pub fn bytes_max(&self) -> usize {
        let changed = match &self.change {
            Change::Hold { messages, .. } => RECORD_OVERHEAD_BYTES + hold_bytes_max(messages.len()),
            Change::Settle { recipients, .. } => {
                let outcome = |ids| RECORD_OVERHEAD_BYTES + outcome_bytes_max(ids, Some(&self.audit.who));
                recipients.iter().map(|(_, ids)| outcome(ids)).sum()
            }
            Change::Suspend { what, reason, .. } => RECORD_OVERHEAD_BYTES + suspend_bytes_max(what, reason),
            Change::TryNow { .. } | Change::RunQueue => 0,
        };
        self.audit.bytes_max() + changed
    }

    /// What takes recipients out keeps any other fate off them until the batch is durable or refused.
    pub fn record(&self, hub: &mut Hub, batch: &mut Batch) {
        self.audit.record(batch);
        let Audit { at, who, .. } = &self.audit;
        match &self.change {
            Change::Hold { held, messages } => {
                batch.record_with(|buffer| encode_hold(buffer, *held, messages.iter().copied()));
            }
            Change::Settle { fate, recipients } => {
                for (message, ids) in recipients {
                    let Some(ids) = hub.claim_for_batch(*message, ids) else { continue };
                    batch.record_with(|buffer| encode_outcome(buffer, *message, *fate, &ids, Some(who), *at));
                }
            }
            Change::Suspend { suspended, what, until, reason } => {
                batch.record_with(|buffer| encode_suspend(buffer, *suspended, what, *until, reason));
            }
            Change::TryNow { .. } | Change::RunQueue => {}
        }
    }

    /// The batch is durable.
    pub fn apply(self, core: &Core, hub: &mut Hub, now: Ms) {
        log::audited(core, &self.audit);
        match self.change {
            Change::Hold { held, messages } => {
                let nos: Vec<_> = messages.iter().filter_map(|id| hub.store.no_of(*id)).collect();
                hub.apply(Event::Hold { held, messages });
                for no in nos {
                    if held {
                        hub.sched.hold_message(no);
                    } else {
                        hub.sched.release_message(&hub.store, no, now);
                    }
                }
            }
            Change::Settle { fate, recipients } => {
                for (message, ids) in recipients {
                    if fate == Fate::Removed {
                        log::taken_out(core, hub, (message, fate), &ids, &self.audit.who, now);
                    }
                    hub.taken_out(message, fate, &ids, &self.audit.who, now);
                }
            }
            Change::Suspend { suspended, what, until, reason } => {
                hub.apply(Event::Suspend { suspended, what: &what, until, reason: &reason });
                hub.sched.set_suspended(&what, suspended, (until, &reason));
                core.standing.store(hub.store.standing_bounces().next().is_some(), Ordering::Relaxed);
            }
            Change::RunQueue => hub.sched.run_queue(now),
            Change::TryNow { recipients } => {
                for (message, ids) in recipients {
                    let Some(no) = hub.store.no_of(message) else { continue };
                    let (free, _) = hub.sched.removable(no, &ids);
                    hub.sched.try_now(&hub.store, no, &free, now);
                }
            }
        }
    }

    /// The batch was refused.
    pub fn give_up(&self, hub: &mut Hub, now: Ms) {
        if let Change::Settle { recipients, .. } = &self.change {
            for (message, ids) in recipients {
                if let Some(no) = hub.store.no_of(*message) {
                    hub.sched.unreserve(&hub.store, no, ids, now);
                }
            }
        }
    }
}
