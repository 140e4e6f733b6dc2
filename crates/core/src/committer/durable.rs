//! Applies a batch once it is durable, or undoes its preparations if it was refused.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stentor_journal::{CommitError, Log};
use stentor_queue::event::{Event, Fate};
use stentor_queue::ids::{AddressId, Ms};
use stentor_queue::store::EventEffect;

use super::plan::{AcceptedEnvelope, BatchEffect};
use super::{Answer, Committer};
use crate::Core;
use crate::hub::Hub;
use crate::intake::{FateRecord, IntakeRefusal};

/// Jobs of a durable batch applied under one hold of the hub's lock, a few microseconds each.
const APPLIED_AT_ONCE: usize = 128;

impl<L: Log> Committer<L> {
    /// Applies a durable batch.
    pub(super) fn durable(&mut self, planned: Vec<BatchEffect>) {
        let core = self.core.clone();
        self.interned.clear();
        if let Some(since) = self.outcomes.since {
            let waited = core.clock.now().saturating_sub(since);
            core.counters.outcome_sync_ms_max.fetch_max(waited, Ordering::Relaxed);
        }
        self.outcomes.clear();
        self.dropping.clear();
        let mut answers = Vec::with_capacity(planned.len());
        // Logged before the lock is taken: no delivery can have tried these messages yet.
        for planned in &planned {
            if let BatchEffect::Message { accepts, .. } = planned {
                for accepted in accepts {
                    let AcceptedEnvelope { accept, taken, .. } = accepted;
                    crate::log::accepted(&core, accept, taken);
                    if let Some(by) = accepted.held_by() {
                        crate::log::held_by_rule(&core, accept, by);
                    }
                }
            }
        }
        let mut planned = planned.into_iter();
        core.with(|hub, _| hub.outcomes_synced());
        loop {
            // Other tasks get the lock in between. They see a partly applied batch, just as they see states between two
            // batches. Recipients whose fate is in this batch stay reserved until its end.
            let is_through = core.with(|hub, now| {
                for planned in planned.by_ref().take(APPLIED_AT_ONCE) {
                    answers.extend(self.apply(&core, hub, planned, now));
                }
                let is_through = planned.len() == 0;
                if is_through {
                    hub.batch_over();
                }
                is_through
            });
            if is_through {
                break;
            }
        }
        self.forgetting.durable(&core, self.log.statistics().checkpoints);
        for answer in answers {
            // A closed session gets no answer; the message is queued anyway.
            let _ = answer.send(Ok(()));
        }
    }

    /// Applies one part of a durable batch. Returns the answer to send.
    fn apply(&mut self, core: &Arc<Core>, hub: &mut Hub, planned: BatchEffect, now: Ms) -> Option<Answer<()>> {
        match planned {
            BatchEffect::Message { accepts, content, body, fate_records, answer, .. } => {
                if accepts.is_empty() {
                    self.log.drop_content(content.0);
                } else if let Some(body) = &body {
                    hub.bodies.keep(content, body, now);
                }
                for accepted in accepts {
                    let is_held = accepted.held_by().is_some();
                    let AcceptedEnvelope { accept, is_quarantined, keep_until, .. } = accepted;
                    let id = accept.id;
                    if is_quarantined {
                        hub.apply(Event::Quarantined(Box::new(accept)));
                        crate::log::quarantined(core, hub, id, now);
                        continue;
                    }
                    if let EventEffect::New(no) = hub.apply(Event::Accept(Box::new(accept))) {
                        if let Some(until) = keep_until {
                            hub.apply(Event::Post { message: id, until });
                        }
                        hub.follow(no, true);
                        if is_held {
                            hub.apply(Event::Hold { held: true, messages: vec![id] });
                        }
                        hub.sched.accepted(&hub.store, no, now);
                    }
                }
                record_fates(core, hub, fate_records, now);
                Some(answer)
            }
            BatchEffect::Piece { answer } => Some(answer),
            BatchEffect::Intern { interned, answer } => {
                let _ = answer.send(Ok(interned));
                None
            }
            BatchEffect::Unlist { name } => {
                hub.apply(Event::ListRemoved { name: &name });
                None
            }
            BatchEffect::List { name, version, stamp, ids, answer } => {
                hub.apply(Event::ListVersion { name: &name, version, stamp: &stamp, ids });
                Some(answer)
            }
            BatchEffect::Verb { job, answer } => {
                job.apply(core, hub, now);
                Some(answer)
            }
        }
    }

    /// Undoes everything prepared for a batch that was not written.
    pub(super) fn refused(&mut self, planned: Vec<BatchEffect>, error: &CommitError) {
        let why = match error {
            CommitError::TooLarge { .. } => IntakeRefusal::TooLarge,
            error if error.is_full() => IntakeRefusal::Full,
            _ => IntakeRefusal::Io,
        };
        // A full disk is logged once; until there is space, new mail is refused earlier.
        if !planned.is_empty() || !error.is_full() || !self.core.disk_full.load(Ordering::Relaxed) {
            tracing::error!(%error, messages = planned.len(), "a batch was refused; reply to clients: {why}");
        }
        // A running checkpoint starts over: its slices may be in the refused batch.
        self.checkpoint = None;
        self.log.abort_checkpoint();
        let core = self.core.clone();
        core.with(|hub, _| {
            self.forget_interned(hub, 0);
            hub.batch_over();
            hub.outcomes_refused(&mut self.outcomes);
            self.forgetting.refused(hub);
            self.saving.refused(hub);
        });
        self.outcomes.clear();
        for planned in planned {
            match planned {
                BatchEffect::Message { content, answer, .. } => {
                    self.log.drop_content(content.0);
                    let _ = answer.send(Err(why));
                }
                BatchEffect::Piece { answer } | BatchEffect::List { answer, .. } => drop(answer.send(Err(why))),
                BatchEffect::Intern { answer, .. } => drop(answer.send(Err(why))),
                // The next start or reload finds it again.
                BatchEffect::Unlist { name } => {
                    tracing::warn!(
                        list = name,
                        "the list could not be removed; will retry at the next reload or start"
                    );
                }
                BatchEffect::Verb { job, answer } => {
                    core.with(|hub, now| job.give_up(hub, now));
                    let _ = answer.send(Err(why));
                }
            }
        }
    }
}

/// Finishes the recipients whose DSN is now queued.
fn record_fates(core: &Core, hub: &mut Hub, fate_records: Vec<FateRecord>, now: u64) {
    for FateRecord { message, fate, ids, audit } in fate_records {
        if let Some(audit) = audit {
            if fate == Fate::Coalesced {
                crate::log::taken_out(core, hub, message, fate, &ids, &audit.who, now);
            } else {
                crate::log::audited(core, &audit);
            }
            hub.taken_out(message, fate, &ids, &audit.who, now);
            continue;
        }
        if let Some(no) = hub.store.no_of(message) {
            let finished: Vec<AddressId> = ids.iter().map(AddressId).collect();
            hub.sched.bounced(no, &finished);
            hub.apply(Event::Outcome { message, fate, ids, by: None, at: now });
        }
    }
}
