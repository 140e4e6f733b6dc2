//! The committer: the one thread that writes the journal, and the only place where a ticket resolves.
//!
//! A turn: take what waits; under the hub's lock intern its addresses and encode everything into one batch; write and
//! sync without the lock; under the lock apply what is now durable; resolve the tickets. When the write fails nothing
//! of the batch has happened: new addresses are forgotten, tickets say why, outcomes wait for the next batch.
//! Checkpoints ride along, a slice of at most 256 KiB with each batch, and drive themselves while nothing else happens;
//! behind each the addresses that nobody needs any more are forgotten ([`Forgetting`]).
//!
//! No batch is ever too large: outcomes take a quarter of it at most, the jobs what upper bounds of them say
//! ([`Job::bytes_max`]), and whatever else goes in looks at what is left. Jobs that do not fit wait for the next batch; one
//! that no batch holds is refused for good.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use stentor_journal::{BATCH_OVERHEAD_BYTES, Batch, CheckpointStep, CommitError, Journal, Slice};
use stentor_queue::event::{
    Accept, Event, Fate, RcptParams, encode_accept, encode_clock_moved, encode_intern, encode_list, encode_outcome,
};
use stentor_queue::ids::{AddressId, ContentId, MessageId, Ms};
use stentor_queue::idset::IdSet;
use stentor_queue::slices::{SliceRef, Slices};
use stentor_queue::store::{Applied, Checkpoint, SLICE_BYTES_MAX};
use tokio::sync::oneshot;

use super::Core;
use super::envelope::{Body, NewEnvelope, Recipients, Taken};
use super::forget::Forgetting;
use super::hub::{Hub, Outcomes};
use super::intake::{Interned, Job, Refused, Settled, Submission, Turn};
use super::verb::VerbJob;
use crate::attempt_log::push_rfc3339;

/// Pause between the batches of a checkpoint, or of cleaning, while nothing else is to be written.
const CHECKPOINT_PAUSE: Duration = Duration::from_millis(5);
/// How often it is looked at whether there is room, while the disk or the address book is full; and how often, at most, it is
/// tried to write what waits.
const FULL_POLL: Duration = Duration::from_millis(250);
/// Addresses beyond `addresses_max` that senders of reports may take.
const REPORT_ADDRESSES: usize = 100_000;
/// Pause after a failed write: the next one goes to a fresh segment, and a broken disk must not be hammered.
const FAILURE_PAUSE: Duration = Duration::from_millis(20);
/// How often the counters of `stentor status` ask what the journal occupies.
const SPACE_PAUSE: Duration = Duration::from_secs(1);
/// Of a batch, the part that outcomes take at most, and that a slice of the journal's takes, and the owner's where what it
/// shows is not larger by itself.
const PART: usize = 4;
/// What a slice takes in a batch beside its octets: the begin's mark, its name, the overhead of its pieces.
const SLICE_OVERHEAD_BYTES: usize = 1024;
/// How long a stop goes on trying to write to a disk that refuses.
const STOP_WRITES_MAX: Duration = Duration::from_secs(10);
/// Slices that a batch names at most, so that the hub's lock is not held for long.
const SLICES_NAMED_MAX: usize = 1024;
/// Jobs of a durable batch that happen in one hold of the hub's lock: some microseconds each.
const APPLIED_AT_ONCE: usize = 128;
/// Octets of live content moved with one batch, at most.
const CLEAN_BYTES_MAX: usize = 512 * 1024;
/// With a small batch less is moved, so that its commit stays short.
const CLEAN_BYTES_MIN: usize = 64 * 1024;
/// As many times the batch: a segment that is 80 % live gives one octet for four that are moved.
const CLEAN_FACTOR: usize = 4;

/// Reports up to this size are written while the disk is low.
const REPORT_BYTES_MAX: u64 = 64 * 1024;

type Answer<T> = oneshot::Sender<Result<T, Refused>>;

/// What a batch will have done once it is durable.
enum Planned {
    Message {
        accepts: Vec<Accept>,
        /// Of each of them.
        taken: Vec<Taken>,
        content: ContentId,
        body: Option<Body>,
        settles: Vec<Settled>,
        answer: Answer<()>,
    },
    Piece {
        answer: Answer<()>,
    },
    Intern {
        interned: Interned,
        answer: Answer<Interned>,
    },
    List {
        name: String,
        version: u64,
        stamp: String,
        ids: IdSet,
        answer: Answer<()>,
    },
    Unlist {
        name: String,
    },
    Verb {
        job: Box<VerbJob>,
        answer: Answer<()>,
    },
}

pub struct Committer {
    core: Arc<Core>,
    journal: Journal,
    batch: Batch,
    outcomes: Outcomes,
    checkpoint: Option<Checkpoint>,
    /// The first queue id that this process may give out.
    first_id: MessageId,
    /// What the clock was moved by and is not durable yet: one record, however often it was set.
    clock_moved: i64,
    /// Contents of bodies that were given up, which the batch being built drops: kept if it fails.
    dropping: Vec<u64>,
    /// Addresses that the batch being built interns: forgotten if it fails.
    interned: Vec<AddressId>,
    addresses_max: usize,
    forgetting: Forgetting,
    /// When the journal was last asked what it occupies.
    space_at: Option<Instant>,
}

impl Committer {
    pub fn new(core: Arc<Core>, journal: Journal) -> Committer {
        let config = &core.settings().config.journal;
        let first_id = core.with(|hub, _| MessageId(hub.store.last_id().0 + 1));
        Committer {
            addresses_max: config.addresses_max as usize,
            forgetting: Forgetting::new(config.address_unseen_ms, config.addresses_max as usize),
            space_at: None,
            core,
            journal,
            batch: Batch::new(),
            outcomes: Outcomes::default(),
            checkpoint: None,
            first_id,
            clock_moved: 0,
            dropping: Vec::new(),
            interned: Vec::new(),
        }
    }

    /// Runs until the intake stops and everything in it is durable or refused.
    pub fn run(mut self) -> Journal {
        let mut stopping_since = None;
        loop {
            if self.core.intake.is_stopping() {
                let since = *stopping_since.get_or_insert_with(Instant::now);
                if since.elapsed() > STOP_WRITES_MAX {
                    tracing::error!("the journal cannot be written: what was not synced may be delivered again");
                    self.core.intake.close();
                    return self.journal;
                }
            }
            match self.core.intake.next(self.pause()) {
                Turn::Commit(jobs) => {
                    let jobs = self.admit(jobs);
                    if !self.turn(jobs) {
                        std::thread::sleep(if self.core.disk_full.load(Ordering::Relaxed) {
                            FULL_POLL
                        } else {
                            FAILURE_PAUSE
                        });
                    }
                }
                Turn::Stop => return self.journal,
            }
        }
    }

    /// When a turn is wanted although nothing waits in the intake.
    pub fn pause(&self) -> Option<Duration> {
        let is_due = self.journal.checkpoint_running() || self.journal.checkpoint_due() || self.journal.clean_due();
        if is_due || self.forgetting.has_work(self.core.clock.now()) {
            Some(CHECKPOINT_PAUSE)
        } else if self.core.disk_full.load(Ordering::Relaxed) || self.forgetting.is_pressed() {
            Some(FULL_POLL)
        } else {
            None
        }
    }

    /// The journal between two turns, for figures and for tests that do to it what no turn does.
    pub fn journal(&mut self) -> &mut Journal {
        &mut self.journal
    }

    /// One batch: `jobs`, what outcomes wait, a checkpoint's next slice, moved content. Whether it was written; if not,
    /// the caller pauses before the next one.
    pub fn turn(&mut self, jobs: Vec<Job>) -> bool {
        let core = self.core.clone();
        self.follow_clock();
        let is_loaded = !jobs.is_empty();
        let jobs_bytes = jobs.iter().map(Job::bytes).sum::<usize>();
        let mut planned = Vec::with_capacity(jobs.len());
        core.with(|hub, now| {
            if self.clock_moved != 0 {
                self.batch.record_with(|buffer| encode_clock_moved(buffer, self.first_id, self.clock_moved));
            }
            let posts = jobs.iter().flat_map(Job::lists).map(|list| list_ids_bytes(hub, list));
            let jobs_bytes = jobs_bytes + posts.sum::<usize>();
            // The order within a batch is the order of replay: outcomes are in the store already; checkpoint slices show
            // the store as it is now; what the jobs will change comes behind both.
            hub.take_outcomes(self.outcomes_bytes_max(), &mut self.outcomes);
            for record in self.outcomes.records() {
                self.batch.record(record);
            }
            self.checkpoint_slice(hub, jobs_bytes, now);
            for job in jobs {
                self.plan(hub, job, &mut planned);
            }
            self.forgetting.plan(hub, &mut self.batch, self.journal.batch_bytes_max(), now);
            for content in self.outcomes.unreferenced().chain(self.dropping.iter().copied()) {
                self.batch.drop_content(content);
            }
            let is_full = hub.store.book.len() >= self.addresses_max;
            core.addresses_full.store(is_full, Ordering::Relaxed);
        });
        if self.journal.clean_due() {
            // Takes what room the batch has left, at most this.
            let bytes_max = (CLEAN_FACTOR * self.batch.bytes()).clamp(CLEAN_BYTES_MIN, CLEAN_BYTES_MAX);
            self.journal.clean(&mut self.batch, if is_loaded { bytes_max } else { CLEAN_BYTES_MAX });
        }
        let bytes = self.batch.bytes();
        let begun = Instant::now();
        let result = self.journal.commit(&mut self.batch, core.clock.now());
        let messages = planned.iter().filter(|planned| matches!(planned, Planned::Message { .. })).count();
        let took = begun.elapsed();
        core.intake.synced(messages, took);
        core.measures.sync.observe(took);
        if messages > 0 {
            core.measures.batch_messages.observe_value(messages as u64);
        }
        match &result {
            Ok(_) => {
                self.clock_moved = 0;
                core.live.synced(messages, bytes, took);
                self.durable(planned);
            }
            Err(error) => {
                self.refused(planned, error);
                self.batch.clear();
            }
        }
        self.watch_space(is_loaded || result.is_err());
        self.count(is_loaded);
        result.is_ok()
    }

    /// Follows the system's clock if it was set. Between two batches all that is accepted is in the store, so that the
    /// record of it, in the next batch that is taken, is about just that.
    fn follow_clock(&mut self) {
        let core = self.core.clone();
        let Some(by) = core.clock.jump() else { return };
        let since = self.first_id;
        let (before, now) = core.with(|hub, before| {
            core.clock.follow(by);
            let now = core.clock.now();
            hub.clock_moved(since, by, now);
            (before, now)
        });
        core.ticker.notify_one();
        self.clock_moved = self.clock_moved.saturating_add(by);
        let text = |ms| {
            let mut text = Vec::new();
            push_rfc3339(&mut text, ms);
            String::from_utf8_lossy(&text).into_owned()
        };
        let (before, now) = (text(before), text(now));
        tracing::warn!(
            "the system's clock was set from {before} to {now}: dates follow, retry clocks and the age of mail do not jump"
        );
    }

    /// What of `jobs` goes into the next batch.
    pub fn admit(&self, jobs: Vec<Job>) -> Vec<Job> {
        let jobs = if self.core.disk_full.load(Ordering::Relaxed) { Self::refuse_new(jobs) } else { jobs };
        self.fitting(jobs)
    }

    /// Octets of a batch for outcomes.
    fn outcomes_bytes_max(&self) -> usize {
        self.journal.batch_bytes_max() / PART
    }

    /// Octets of a batch for jobs: one of them is never larger.
    fn jobs_bytes_max(&self) -> usize {
        self.journal.batch_bytes_max() - self.outcomes_bytes_max() - BATCH_OVERHEAD_BYTES - SLICE_OVERHEAD_BYTES
    }

    /// The first of the jobs, as many as a batch holds; the others wait for the next one. What no batch holds is refused.
    fn fitting(&self, jobs: Vec<Job>) -> Vec<Job> {
        let jobs_max = self.jobs_bytes_max();
        // A message or list that is larger than a slice has its turn when the checkpoint comes to it.
        let large = if self.checkpoint.is_some() { self.core.with(|hub, _| self.large_slice_bytes(hub)) } else { 0 };
        let room = jobs_max.saturating_sub(large);
        let sum = jobs.iter().map(Job::bytes).sum::<usize>() + SLICE_OVERHEAD_BYTES;
        if room == jobs_max && sum <= jobs_max && jobs.iter().flat_map(Job::lists).next().is_none() {
            return jobs;
        }
        let bytes: Vec<usize> =
            self.core.with(|hub, _| jobs.iter().map(|job| job.bytes_max(|list| list_ids_bytes(hub, list))).collect());
        let (mut kept, mut later, mut sum) = (Vec::with_capacity(jobs.len()), Vec::new(), 0);
        for (job, bytes) in jobs.into_iter().zip(bytes) {
            // With some room to spare, so that its slice in a checkpoint fits as well.
            if bytes + SLICE_OVERHEAD_BYTES > jobs_max {
                tracing::error!(bytes, bytes_max = jobs_max, "refused: no batch of the journal holds it");
                kept.extend(job.refuse(Refused::TooLarge));
            } else if !later.is_empty() || sum + bytes > room {
                later.push(job);
            } else {
                sum += bytes;
                kept.push(job);
            }
        }
        self.core.intake.put_back(later);
        kept
    }

    /// While the disk is low, what is new is refused before it is written: bodies that were on their way already must not
    /// use up the reserve, which is for completions, checkpoints and small reports.
    fn refuse_new(jobs: Vec<Job>) -> Vec<Job> {
        let mut kept = Vec::with_capacity(jobs.len());
        for job in jobs {
            let is_new = match &job {
                Job::Accept { submission, .. } => submission.settles.is_empty() || submission.size > REPORT_BYTES_MAX,
                Job::Piece { .. } | Job::List { .. } | Job::Intern { .. } => true,
                Job::Verb { .. } | Job::Drop { .. } | Job::Unlist { .. } => false,
            };
            if is_new {
                kept.extend(job.refuse(Refused::Full));
            } else {
                kept.push(job);
            }
        }
        kept
    }

    /// Encodes one job into the batch, content before what refers to it.
    fn plan(&mut self, hub: &mut Hub, job: Job, planned: &mut Vec<Planned>) {
        match job {
            Job::Piece { content, bytes, answer } => {
                self.batch.content(content.0, false, &bytes);
                planned.push(Planned::Piece { answer });
            }
            // Behind a piece that may be in this very batch.
            Job::Drop { content } => self.dropping.push(content.0),
            Job::Intern { addresses, answer } => {
                let first = self.interned.len();
                let ids: Option<Vec<_>> = addresses.iter().map(|a| self.intern(hub, a, self.addresses_max)).collect();
                let Some(ids) = ids else {
                    self.forget_interned(hub, first);
                    drop(answer.send(Err(Refused::AddressesFull)));
                    return;
                };
                self.record_interned(hub, first);
                let pin = hub.pins.pin(&ids);
                planned.push(Planned::Intern { interned: Interned { ids, pin }, answer });
            }
            Job::List { name, stamp, ids, answer, pin: _ } => {
                hub.store.refer(&ids);
                let version = next_version(hub, planned, &name);
                self.batch.record_with(|buffer| encode_list(buffer, &name, version, &stamp, &ids));
                planned.push(Planned::List { name, version, stamp, ids, answer });
            }
            Job::Unlist { name } => {
                self.batch.record_with(|buffer| Event::ListRemoved { name: &name }.encode(buffer));
                planned.push(Planned::Unlist { name });
            }
            Job::Verb { job, answer } => {
                job.record(hub, &mut self.batch);
                planned.push(Planned::Verb { job, answer });
            }
            Job::Accept { submission, answer } => self.plan_message(hub, submission, answer, planned),
        }
    }

    fn plan_message(&mut self, hub: &mut Hub, submission: Submission, answer: Answer<()>, planned: &mut Vec<Planned>) {
        let Submission { first, content, last, size, envelopes, settles, told } = submission;
        let (first_interned, mut id) = (self.interned.len(), Some(first));
        let mut accepts = Vec::with_capacity(envelopes.len());
        let mut taken = Vec::with_capacity(envelopes.len());
        for mut envelope in envelopes {
            let how = std::mem::replace(&mut envelope.taken, Taken::local(""));
            let id = id.take().unwrap_or_else(|| self.core.next_message_id());
            match self.accept(hub, id, content, size, envelope) {
                Some(accept) if accept.recipients.is_empty() => {}
                Some(accept) => {
                    accepts.push(accept);
                    taken.push(how);
                }
                None => {
                    self.forget_interned(hub, first_interned);
                    self.batch.drop_content(content.0);
                    let _ = answer.send(Err(Refused::AddressesFull));
                    return;
                }
            }
        }
        if let Some(told) = told {
            // Nobody else has it yet.
            let _ = told.set(accepts.iter().map(|accept| (accept.id, accept.recipients.len() as u64)).collect());
        }
        self.batch.content(content.0, true, &last);
        self.record_interned(hub, first_interned);
        for accept in &accepts {
            self.batch.record_with(|buffer| encode_accept(buffer, accept));
        }
        let now = self.core.clock.now();
        for Settled { message, fate, ids, audit } in &settles {
            if let Some(audit) = audit {
                audit.record(&mut self.batch);
            }
            // Only who is pending still, and whose fate no other record of this batch tells.
            let Some(ids) = hub.begin_settling(*message, ids) else { continue };
            let by = audit.as_ref().map(|audit| audit.who.as_str());
            self.batch.record_with(|buffer| encode_outcome(buffer, *message, *fate, &ids, by, now));
        }
        let is_whole = last.len() as u64 == size;
        planned.push(Planned::Message { accepts, taken, content, body: is_whole.then_some(last), settles, answer });
    }

    /// One envelope with its recipients as ids, perhaps none (an empty list). `None` if the address book is full.
    fn accept(
        &mut self,
        hub: &mut Hub,
        id: MessageId,
        content: ContentId,
        size: u64,
        envelope: NewEnvelope,
    ) -> Option<Accept> {
        let mut params = Vec::new();
        let recipients = match envelope.recipients {
            Recipients::List => {
                let name = envelope.list.as_deref().unwrap_or_default();
                let mut ids = hub.store.list(name).map(|list| list.ids.clone()).unwrap_or_default();
                for address in hub.store.suspended_subscribers(name) {
                    if let Some(id) = hub.store.book.lookup(address) {
                        ids.remove(id.0);
                    }
                }
                ids
            }
            Recipients::Interned(ids, known, _) => {
                params = known;
                ids
            }
            Recipients::Addresses(addresses) => {
                let mut merged = Merged::default();
                // A report must find room, or what it is about would wait for ever.
                let reserve = if envelope.is_report { REPORT_ADDRESSES } else { 0 };
                for (address, param) in addresses {
                    merged.add(self.intern(hub, address.as_str(), self.addresses_max + reserve)?, param);
                }
                params = merged.params();
                merged.ids
            }
        };
        // From here on nothing in this batch may forget them.
        hub.store.refer(&recipients);
        Some(Accept {
            id,
            content,
            size: size + envelope.prefix.len() as u64,
            accepted: self.core.clock.now(),
            sender: envelope.sender,
            class: envelope.class,
            list: envelope.list,
            recipients,
            prefix: envelope.prefix,
            eight_bit: envelope.eight_bit,
            smtputf8: envelope.smtputf8,
            ret: envelope.ret,
            envid: envelope.envid,
            params,
            origin: envelope.origin,
            message_id: envelope.message_id,
            message_id_at: envelope.message_id_at,
            is_report: envelope.is_report,
        })
    }

    /// `None` if the address book is full.
    fn intern(&mut self, hub: &mut Hub, address: &str, addresses_max: usize) -> Option<AddressId> {
        let (id, is_new) = if hub.store.book.len() >= addresses_max {
            (hub.store.book.lookup(address)?, false)
        } else {
            hub.store.book.intern(address)?
        };
        hub.store.book.saw(id, self.core.clock.now());
        if is_new {
            self.interned.push(id);
        }
        Some(id)
    }

    fn forget_interned(&mut self, hub: &mut Hub, first: usize) {
        for id in self.interned.drain(first..).rev() {
            hub.store.book.forget(id);
        }
    }

    /// Records the addresses interned since `first`, before what refers to them.
    fn record_interned(&mut self, hub: &Hub, first: usize) {
        if let Some(new) = self.interned.get(first..).filter(|new| !new.is_empty()) {
            let entries = new.iter().map(|id| (*id, hub.store.book.text(*id)));
            self.batch.record_with(|buffer| encode_intern(buffer, entries));
        }
    }

    /// The next slice of a checkpoint, or the first of one that is due.
    ///
    /// A batch that is full without one has none: slices are for the quieter turns.
    fn checkpoint_slice(&mut self, hub: &mut Hub, jobs_bytes: usize, now: Ms) {
        let batch_max = self.journal.batch_bytes_max();
        let room = batch_max.saturating_sub(self.batch.bytes() + jobs_bytes + SLICE_OVERHEAD_BYTES);
        let slice_max = SLICE_BYTES_MAX.min(batch_max / PART);
        let next = self.checkpoint.as_ref().map_or(slice_max, |cursor| cursor.next_bytes_max(&hub.store));
        if next > room || (self.checkpoint.is_none() && self.journal.slice_bytes_max() > room) {
            return;
        }
        if self.checkpoint.is_none() && !self.journal.checkpoint_running() {
            let is_due = self.journal.checkpoint_due() || self.forgetting.wants_checkpoint(now);
            if !is_due || self.forgetting.is_sweeping() {
                return;
            }
            self.journal.begin_checkpoint(&mut self.batch);
            // The begin's part is small.
            self.checkpoint = Some(self.forgetting.checkpoint_begins(hub, now).limited(slice_max));
        }
        if let Some(cursor) = &mut self.checkpoint {
            let mut part = Part {
                core: &self.core,
                journal: &mut self.journal,
                batch: &mut self.batch,
                named: 0,
                bytes: 0,
                bytes_max: slice_max,
                until: batch_max - jobs_bytes - SLICE_OVERHEAD_BYTES,
            };
            let more = cursor.step(&mut hub.store, &mut part);
            // The journal's own slices go along with ours and on when ours are through.
            if self.batch.bytes() + jobs_bytes + self.journal.slice_bytes_max() <= batch_max {
                let _ = self.journal.checkpoint_slice(&mut self.batch);
            }
            if !more && let Some(cursor) = self.checkpoint.take() {
                self.forgetting.marked(cursor, now);
            }
        } else if self.journal.end_checkpoint(&mut self.batch) == CheckpointStep::Done {
            tracing::debug!("checkpoint complete");
        }
    }

    /// What the checkpoint under way writes next, if that is larger than a slice.
    fn large_slice_bytes(&self, hub: &Hub) -> usize {
        let slice_max = SLICE_BYTES_MAX.min(self.journal.batch_bytes_max() / PART);
        let next = self.checkpoint.as_ref().map_or(0, |cursor| cursor.next_bytes_max(&hub.store));
        let is_large = next > slice_max + SLICE_OVERHEAD_BYTES;
        // What could never be promised room must not keep mail waiting.
        if is_large && next <= self.jobs_bytes_max() { next } else { 0 }
    }

    /// The batch is synced: what it says is so.
    fn durable(&mut self, planned: Vec<Planned>) {
        let core = self.core.clone();
        self.interned.clear();
        if let Some(since) = self.outcomes.since {
            let waited = core.clock.now().saturating_sub(since);
            core.counters.outcome_sync_ms_max.fetch_max(waited, Ordering::Relaxed);
        }
        self.outcomes.clear();
        self.dropping.clear();
        let mut answers = Vec::with_capacity(planned.len());
        // Before the lock: nobody can have tried them yet.
        for planned in &planned {
            if let Planned::Message { accepts, taken, .. } = planned {
                accepts.iter().zip(taken).for_each(|(accept, taken)| super::log::accepted(&core, accept, taken));
            }
        }
        let mut planned = planned.into_iter();
        core.with(|hub, _| hub.outcomes_synced());
        loop {
            // Others get a turn in between. They see a batch of which a part has happened, as they do between two batches;
            // whose fate rides with it stays out of their reach up to the end.
            let is_through = core.with(|hub, now| {
                for planned in planned.by_ref().take(APPLIED_AT_ONCE) {
                    answers.extend(self.apply(&core, hub, planned, now));
                }
                let is_through = planned.len() == 0;
                if is_through {
                    hub.settling.clear();
                }
                is_through
            });
            if is_through {
                break;
            }
        }
        self.forgetting.durable(&core, self.journal.statistics().checkpoints);
        for answer in answers {
            // A session that has gone does not hear of it; the message is queued all the same.
            let _ = answer.send(Ok(()));
        }
    }

    /// One part of a durable batch happens. Who is to be told.
    fn apply(&mut self, core: &Arc<Core>, hub: &mut Hub, planned: Planned, now: Ms) -> Option<Answer<()>> {
        match planned {
            Planned::Message { accepts, content, body, settles, answer, .. } => {
                if accepts.is_empty() {
                    self.journal.drop_content(content.0);
                } else if let Some(body) = &body {
                    hub.bodies.keep(content, body, now);
                }
                for accept in accepts {
                    if let Applied::New(no) = hub.apply(Event::Accept(Box::new(accept))) {
                        hub.follow(no, true);
                        hub.sched.accepted(&hub.store, no, now);
                    }
                }
                settle(core, hub, settles, now);
                Some(answer)
            }
            Planned::Piece { answer } => Some(answer),
            Planned::Intern { interned, answer } => {
                let _ = answer.send(Ok(interned));
                None
            }
            Planned::Unlist { name } => {
                hub.apply(Event::ListRemoved { name: &name });
                None
            }
            Planned::List { name, version, stamp, ids, answer } => {
                hub.apply(Event::ListVersion { name: &name, version, stamp: &stamp, ids });
                Some(answer)
            }
            Planned::Verb { job, answer } => {
                job.apply(core, hub, now);
                Some(answer)
            }
        }
    }

    /// The batch was not written: nothing of it has happened.
    fn refused(&mut self, planned: Vec<Planned>, error: &CommitError) {
        let why = match error {
            CommitError::TooLarge { .. } => Refused::TooLarge,
            error if error.is_full() => Refused::Full,
            _ => Refused::Io,
        };
        // That there is no room is said once; who asks while it lasts is refused before.
        if !planned.is_empty() || !error.is_full() || !self.core.disk_full.load(Ordering::Relaxed) {
            tracing::error!(%error, messages = planned.len(), "a batch was refused; its clients are told {why}");
        }
        // A checkpoint that was under way is begun anew: its slices may be in the refused batch.
        self.checkpoint = None;
        self.journal.abort_checkpoint();
        let core = self.core.clone();
        core.with(|hub, _| {
            self.forget_interned(hub, 0);
            hub.settling.clear();
            hub.outcomes_refused(&mut self.outcomes);
            self.forgetting.refused(hub);
        });
        self.outcomes.clear();
        for planned in planned {
            match planned {
                Planned::Message { content, answer, .. } => {
                    self.journal.drop_content(content.0);
                    let _ = answer.send(Err(why));
                }
                Planned::Piece { answer } | Planned::List { answer, .. } => drop(answer.send(Err(why))),
                Planned::Intern { answer, .. } => drop(answer.send(Err(why))),
                // It is found again at the next start or reload.
                Planned::Unlist { name } => tracing::warn!(list = name, "the list could not be removed yet"),
                Planned::Verb { job, answer } => {
                    core.with(|hub, now| job.give_up(hub, now));
                    let _ = answer.send(Err(why));
                }
            }
        }
    }

    /// Says 452 before the disk is full, and takes mail again when there is room: what the journal says of it, no more.
    fn watch_space(&self, is_wanted: bool) {
        if !is_wanted && !self.core.disk_full.load(Ordering::Relaxed) {
            return;
        }
        let is_full = self.journal.is_low();
        if self.core.disk_full.swap(is_full, Ordering::Relaxed) != is_full {
            if is_full {
                tracing::warn!("the disk is nearly full: new mail gets 452 4.3.1, deliveries go on");
            } else {
                tracing::info!("there is room on the disk again: mail is taken");
            }
        }
    }

    fn count(&mut self, is_loaded: bool) {
        let stats = self.journal.statistics();
        let now = Instant::now();
        let is_wanted = self.core.counters.space_wanted.swap(false, Ordering::AcqRel);
        // After the last mail it shall be right.
        if is_wanted || !is_loaded || self.space_at.is_none_or(|at| now.duration_since(at) >= SPACE_PAUSE) {
            self.space_at = Some(now);
            let space = self.journal.space();
            self.core.counters.segments.store(space.segments as u64, Ordering::Relaxed);
            self.core.counters.content_bytes.store(space.live_content_bytes, Ordering::Relaxed);
            self.core.counters.disk_free_bytes.store(space.free_disk_bytes, Ordering::Relaxed);
        }
        self.core.counters.syncs.store(stats.syncs, Ordering::Relaxed);
        self.core.counters.abandoned.store(stats.abandoned, Ordering::Relaxed);
        self.core.counters.batches.store(stats.batches, Ordering::Relaxed);
        self.core.counters.bytes_written.store(stats.bytes_written, Ordering::Relaxed);
        self.core.counters.bytes_moved.store(stats.bytes_moved, Ordering::Relaxed);
        self.core.counters.unprepared.store(stats.unprepared, Ordering::Relaxed);
        self.core.counters.checkpoints.store(stats.checkpoints, Ordering::Relaxed);
        self.core.counters.is_checkpointing.store(self.journal.checkpoint_running(), Ordering::Relaxed);
    }
}

/// What of a checkpoint goes into the batch being built.
struct Part<'a> {
    core: &'a Core,
    journal: &'a mut Journal,
    batch: &'a mut Batch,
    named: usize,
    /// Of slices that are written, and at most.
    bytes: usize,
    bytes_max: usize,
    /// How far the batch may go.
    until: usize,
}

impl Slices for Part<'_> {
    fn record(&mut self, record: &[u8]) {
        self.bytes += record.len();
        self.journal.count_slice(record.len());
        self.batch.record(record);
    }

    fn write(&mut self, record: &[u8]) -> Option<SliceRef> {
        self.bytes += record.len();
        self.named += 1;
        let slice = self.journal.write_slice(self.batch, self.core.next_content_id().0, record)?;
        Some(SliceRef { content: ContentId(slice.content), checksum: slice.checksum })
    }

    fn keep(&mut self, slice: SliceRef) -> bool {
        self.named += 1;
        self.journal.keep_slice(self.batch, Slice { content: slice.content.0, checksum: slice.checksum })
    }

    fn is_full(&self, next_bytes_max: usize) -> bool {
        self.bytes >= self.bytes_max
            || self.named >= SLICES_NAMED_MAX
            || self.batch.bytes() + next_bytes_max + SLICE_OVERHEAD_BYTES > self.until
    }
}

/// The recipients of an envelope, duplicates merged: the first ORCPT holds, NOTIFY is united (RFC 3461 section 4 says
/// nothing of duplicates; whoever asked for a notice gets it).
#[derive(Default)]
pub struct Merged {
    pub ids: IdSet,
    params: BTreeMap<AddressId, RcptParams>,
}

impl Merged {
    pub fn add(&mut self, id: AddressId, more: RcptParams) {
        self.ids.insert(id.0);
        if more == RcptParams::default() {
            return;
        }
        let known = self.params.entry(id).or_default();
        known.notify = match (known.notify, more.notify) {
            (Some(NEVER), Some(wish)) | (Some(wish), Some(NEVER)) => Some(wish),
            (Some(one), Some(other)) => Some(one | other),
            (one, other) => one.or(other),
        };
        if known.orcpt.is_none() {
            known.orcpt = more.orcpt;
        }
    }

    pub fn params(&mut self) -> Vec<(AddressId, RcptParams)> {
        std::mem::take(&mut self.params).into_iter().collect()
    }
}

/// NOTIFY=NEVER as a bit of [`RcptParams::notify`].
const NEVER: u8 = 1;

/// What the subscribers of a list take in the record of a post.
fn list_ids_bytes(hub: &Hub, name: &str) -> usize {
    hub.store.list(name).map_or(0, |list| list.ids.part_bytes_max())
}

/// The version after the newest of a list, one that is in the batch being built included.
fn next_version(hub: &Hub, planned: &[Planned], name: &str) -> u64 {
    let in_batch = planned.iter().rev().find_map(|planned| match planned {
        Planned::List { name: known, version, .. } if known == name => Some(*version),
        _ => None,
    });
    in_batch.or_else(|| hub.store.list(name).map(|list| list.version)).map_or(1, |version| version + 1)
}

/// Recipients whose report is now queued are done with.
fn settle(core: &Core, hub: &mut Hub, settles: Vec<Settled>, now: u64) {
    for Settled { message, fate, ids, audit } in settles {
        if let Some(audit) = audit {
            if fate == Fate::Coalesced {
                super::log::taken_out(core, hub, (message, fate), &ids, &audit.who, now);
            } else {
                super::log::audited(core, &audit);
            }
            hub.taken_out(message, fate, &ids, &audit.who, now);
            continue;
        }
        if let Some(no) = hub.store.no_of(message) {
            let settled: Vec<AddressId> = ids.iter().map(AddressId).collect();
            hub.sched.bounced(no, &settled);
            hub.apply(Event::Outcome { message, fate, ids, by: None, at: now });
        }
    }
}
