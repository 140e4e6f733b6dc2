//! One turn of the committer, with its expected effects, and the mutations of a turn.

use std::sync::atomic::Ordering;
use std::time::Duration;

use stentor_core::envelope::EnvelopeRecipients;
use stentor_core::hub::Hub;
use stentor_core::intake::{FateRecord, Job, Submission, Turn};
use stentor_core::verb::QueueChange;
use stentor_journal::Batch;
use stentor_queue::event::{Accept, Event, Fate, encode_accept, encode_intern};
use stentor_queue::ids::{AddressId, MessageId};
use stentor_queue::idset::IdSet;
use stentor_queue::store::EventEffect;

use super::Life;
use crate::ledger::Ledger;
use crate::model::{Entry, Expanded, Model, audit_line, texts};
use crate::scenario::Mutation;

impl Life<'_> {
    /// Whether the batch was written.
    pub(crate) fn turn(&mut self) -> Result<bool, String> {
        let Turn::Commit(mut jobs) = self.core.intake.next(Some(Duration::ZERO)) else { return Ok(true) };
        if self.mutation == Mutation::VerbEarly {
            jobs = self.tell_early(jobs)?;
        }
        // As the committer's own loop: while the disk is low, what is new is refused before it is written.
        let is_low = self.core.disk_full.load(Ordering::Relaxed);
        jobs = self.committer.admit(jobs);
        let runs = |job: &Job| matches!(job, Job::Verb { job, .. } if matches!(job.change, QueueChange::RunQueue));
        let runs_queue = jobs.iter().any(runs);
        let (candidate, expanded) = self.expect(&jobs);
        if self.mutation == Mutation::CopyLost {
            lose_copies(&mut jobs);
        }
        let (errors, batches) = (self.disk.errors(), self.committer.log().statistics().batches);
        if self.mutation == Mutation::OutcomeLost && self.rng.u8(0..4) == 0 {
            self.core.with(|hub, _| hub.outcomes.clear());
        }
        let new: Vec<String> = expanded.values().flatten().cloned().collect();
        let written = if self.mutation == Mutation::RecordFirst && is_simple(&jobs) && self.ledger.unsynced.is_empty() {
            self.ledger.open.push(candidate.clone());
            self.record_first(jobs)
        } else {
            self.committer.turn(jobs)
        };
        if self.mutation == Mutation::ReusedEarly {
            self.core.with(|hub, _| {
                hub.store.book.begin_releasing();
                hub.store.book.release();
            });
        }
        if self.mutation == Mutation::SliceDropped {
            // The oldest: it keeps a segment that may be wanted again at once.
            let log = self.committer.log();
            let oldest = log.slices().next();
            if let Some(oldest) = oldest {
                log.drop_content(oldest);
            }
        }
        let failed = self.disk.errors() - errors;
        let log = self.committer.log();
        self.ledger.had_checkpoint |= log.checkpoint_running() || log.statistics().checkpoints > 0;
        if written {
            self.ledger.durable = candidate;
            self.ledger.unsynced.clear();
            if runs_queue {
                self.in_run = self.ledger.durable.pairs().collect();
            }
            if self.committer.log().statistics().batches > batches {
                // Whoever had nothing to write changes nothing.
                self.ledger.open.clear();
            }
            let live = self.core.with(|hub, _| Model::of(&hub.store))?;
            if !live.is_like(&self.ledger.durable) && self.mutation == Mutation::None {
                return Err(format!(
                    "the live state is not the durable one: {}",
                    self.ledger.durable.difference(&live)
                ));
            }
        } else if self.disk.is_cut() || failed > 1 {
            // One error is followed by a new segment, which rules the refused batch out; a second one leaves it open.
            self.ledger.open.push(candidate);
        }
        if !written && self.mutation == Mutation::InternKept {
            self.core.with(|hub, _| new.iter().filter_map(|address| hub.store.book.intern(address)).count());
        }
        self.hear(&expanded, written, is_low || failed > 0 || self.disk.is_cut())?;
        Ok(written)
    }

    /// What the disk must say if this batch becomes durable.
    fn expect(&mut self, jobs: &[Job]) -> (Model, Expanded) {
        let mut model = self.ledger.durable.clone();
        let mut expanded = Expanded::new();
        for (key, fate, who) in &self.ledger.unsynced {
            model.outcome(key, *fate, who);
        }
        let ledger = &mut *self.ledger;
        self.core.with(|hub, _| {
            for job in jobs {
                match job {
                    Job::Accept { submission, .. } => {
                        expanded.extend(expect_messages(ledger, hub, &mut model, submission));
                    }
                    Job::List { name, ids, .. } => {
                        let version = model.lists.get(name).map_or(1, |list| list.0 + 1);
                        model.lists.insert(name.clone(), (version, texts(&hub.store, ids)));
                    }
                    Job::Verb { job, .. } => {
                        model.audit.push(audit_line(&job.audit));
                        expect_change(ledger, hub, &mut model, &job.change);
                    }
                    Job::Piece { .. } | Job::Intern { .. } | Job::Unlist { .. } | Job::Drop { .. } => {}
                }
            }
        });
        (model, expanded)
    }

    /// The mutation: the record in one batch, its content in the next; 250 after both.
    fn record_first(&mut self, mut jobs: Vec<Job>) -> bool {
        let Some(Job::Accept { submission, answer }) = jobs.pop() else { return true };
        let mut batch = Batch::new();
        let now = self.now;
        let envelope = &submission.envelopes[0];
        let EnvelopeRecipients::Addresses(addresses) = &envelope.recipients else { return true };
        let accept = self.core.with(|hub: &mut Hub, _| {
            let mut recipients = IdSet::new();
            let mut new: Vec<AddressId> = Vec::new();
            for to in addresses {
                if let Some((id, is_new)) = hub.store.book.intern(&to.entry()) {
                    recipients.insert(id.0);
                    new.extend(is_new.then_some(id));
                }
            }
            let mut record = Vec::new();
            if !new.is_empty() {
                encode_intern(&mut record, new.iter().map(|id| (*id, hub.store.book.entry(*id))));
                batch.record(&record);
            }
            let accept = Accept {
                content: submission.content,
                size: submission.size,
                sender: envelope.sender.clone(),
                class: envelope.class,
                recipients,
                origin: envelope.origin.clone(),
                message_id: envelope.message_id.clone(),
                ..Accept::bare(submission.first, now)
            };
            record.clear();
            encode_accept(&mut record, &accept);
            batch.record(&record);
            accept
        });
        if self.committer.log().commit(&mut batch, now).is_err() {
            return false;
        }
        batch.clear();
        batch.content(submission.content.0, true, &submission.last);
        if self.committer.log().commit(&mut batch, now).is_err() {
            return false;
        }
        self.core.with(|hub, now| {
            if let EventEffect::New(no) = hub.apply(Event::Accept(Box::new(accept))) {
                hub.sched.accepted(&hub.store, no, now);
            }
        });
        let _ = answer.send(Ok(()));
        true
    }
}

impl Ledger {
    /// A fate that rides with the batch.
    fn ends(&mut self, hub: &Hub, model: &mut Model, message: MessageId, fate: Fate, ids: &IdSet) {
        let Some(message) = hub.store.no_of(message).and_then(|no| hub.store.message(no)) else { return };
        let (key, who) = (message.envelope().message_id, texts(&hub.store, ids));
        self.ended.extend(who.iter().map(|address| (key.to_owned(), address.clone())));
        model.outcome(key, fate, &who);
    }

    /// The same of recipients in the quarantine, which may be released.
    fn leaves(&mut self, hub: &Hub, model: &mut Model, message: MessageId, fate: Option<Fate>, ids: &IdSet) {
        let Some(message) = hub.store.in_quarantine(message) else { return };
        let (key, who) = (message.message_id(), texts(&hub.store, ids));
        if fate.is_some() {
            self.ended.extend(who.iter().map(|address| (key.to_owned(), address.clone())));
        }
        model.leave_quarantine(key, fate, &who);
    }
}

/// The mutation: a copy to another server is taken for the recipient that it is a copy of.
fn lose_copies(jobs: &mut [Job]) {
    for job in jobs {
        let Job::Accept { submission, .. } = job else { continue };
        for envelope in &mut submission.envelopes {
            if let EnvelopeRecipients::Addresses(all) = &mut envelope.recipients {
                all.retain(|to| to.route.is_plain());
            }
        }
    }
}

/// One message of one ordinary envelope, whole.
fn is_simple(jobs: &[Job]) -> bool {
    let [Job::Accept { submission, .. }] = jobs else { return false };
    submission.fate_records.is_empty()
        && submission.envelopes.len() == 1
        && submission.last.len() as u64 == submission.size
        && matches!(submission.envelopes[0].recipients, EnvelopeRecipients::Addresses(_))
}

/// Adds a submission to the model; returns the recipients of each message.
fn expect_messages(ledger: &mut Ledger, hub: &Hub, model: &mut Model, submission: &Submission) -> Expanded {
    let mut expanded = Expanded::new();
    for envelope in &submission.envelopes {
        let pending = match &envelope.recipients {
            EnvelopeRecipients::List => ledger.durable.lists.get("l").map(|list| list.1.clone()).unwrap_or_default(),
            EnvelopeRecipients::Interned(ids, ..) => texts(&hub.store, ids),
            EnvelopeRecipients::Addresses(all) => all.iter().map(|to| to.entry().into_owned()).collect(),
        };
        let key = &envelope.message_id;
        if envelope.is_report {
            ledger.bodies.insert(key.clone(), submission.last.clone());
        }
        expanded.insert(key.clone(), pending.clone());
        let entry = Entry {
            total: pending.len() as u64,
            pending,
            sender: envelope.sender.clone(),
            list: envelope.list.clone(),
            size: submission.size + envelope.prefix.len() as u64,
            held: false,
        };
        if envelope.is_quarantined {
            model.quarantine(key, entry);
        } else {
            model.accept(key, entry);
        }
    }
    for FateRecord { message, fate, ids, audit } in &submission.fate_records {
        model.audit.extend(audit.as_ref().map(audit_line));
        ledger.ends(hub, model, *message, *fate, ids);
    }
    expanded
}

/// Applies an operator's change to the model.
fn expect_change(ledger: &mut Ledger, hub: &Hub, model: &mut Model, change: &QueueChange) {
    match change {
        QueueChange::Settle { fate, recipients } => {
            for (message, ids) in recipients {
                ledger.ends(hub, model, *message, *fate, ids);
            }
        }
        QueueChange::Hold { held, messages } => {
            for id in messages {
                if let Some(message) = hub.store.no_of(*id).and_then(|no| hub.store.message(no)) {
                    let who = texts(&hub.store, message.pending());
                    model.hold(message.message_id(), *held, &who);
                }
            }
        }
        QueueChange::Suspend { suspended, what, .. } if what.starts_with("queue_only:") => {
            if *suspended {
                model.queue_only.insert(what.clone());
            } else {
                model.queue_only.remove(what);
            }
        }
        // Nothing else is suspended here.
        QueueChange::Suspend { suspended, what, until, .. } => {
            model.bounce(what, suspended.then_some(*until));
        }
        QueueChange::EndQuarantine { fate, recipients } => {
            for (message, ids) in recipients {
                ledger.leaves(hub, model, *message, Some(*fate), ids);
            }
        }
        QueueChange::ReleaseQuarantined { parts } => {
            for part in parts {
                ledger.leaves(hub, model, part.from, None, &part.ids);
            }
        }
        QueueChange::Resend { parts } => {
            for part in parts {
                if let Some(post) = hub.store.post(part.post) {
                    let ids = post.missed().intersection(&part.ids);
                    model.resend(post.message().message_id(), &texts(&hub.store, &ids));
                }
            }
        }
        QueueChange::EndPosts { posts } => {
            let posts = posts.iter().filter_map(|id| hub.store.post(*id));
            for post in posts.filter(|post| hub.store.waiting_for_post(post) == 0) {
                model.posts.remove(post.message().message_id());
            }
        }
        QueueChange::TryNow { .. } | QueueChange::RunQueue => {}
    }
}
