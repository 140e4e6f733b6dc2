//! The committer: the only thread that writes the journal, and the only place where a ticket resolves.
//!
//! A turn takes the waiting jobs; under the hub's lock it interns their addresses and encodes everything into one
//! batch. It writes and syncs without the lock, applies the durable batch under the lock, and resolves the tickets.
//! When the write fails, nothing of the batch has happened: new addresses are forgotten, tickets get the reason,
//! outcomes wait for the next batch. Checkpoints are written along with batches, in slices of at most 256 KiB, and
//! proceed on their own while the committer is idle. After each one, unused addresses are forgotten ([`Forgetter`]).
//!
//! No batch is ever too large: outcomes take at most a quarter of it, jobs are limited by upper bounds of their size
//! ([`Job::bytes_max`]), and everything else is checked against the remaining space. Jobs that do not fit wait for the
//! next batch; a job that fits no batch is refused permanently.
//!
//! Changed histories of addresses and domains are written once a minute and at shutdown (`histories.rs`).
//!
//! `admit.rs` selects the contents of a batch, `plan.rs` and `slices.rs` encode it, `durable.rs` applies or undoes it.

mod admit;
mod durable;
mod histories;
mod plan;
mod slices;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use stentor_journal::{Batch, Journal, Log, Space};
use stentor_queue::event::encode_clock_moved;
use stentor_queue::ids::{AddressId, MessageId};
use stentor_queue::store::Checkpoint;
use stentor_records::time::push_rfc3339;
use tokio::sync::oneshot;

pub use self::plan::MergedRecipients;

use self::admit::list_ids_bytes;
use self::histories::HistorySaver;
use self::plan::BatchEffect;
use super::forget::Forgetter;
use super::hub::Outcomes;
use super::intake::{IntakeRefusal, Job, Turn};
use super::{Core, JournalFigures};

/// Pause between batches of a checkpoint or of cleaning while nothing else needs writing.
const CHECKPOINT_PAUSE: Duration = Duration::from_millis(5);
/// How often free space is checked while the disk or the address book is full, and the minimum interval between retried
/// writes.
const FULL_POLL: Duration = Duration::from_millis(250);
/// Pause after a failed write: the next one goes to a fresh segment, and a failing disk must not be hammered.
const FAILURE_PAUSE: Duration = Duration::from_millis(20);
/// How often the journal's size is read for the counters of `stentor status`.
const SPACE_PAUSE: Duration = Duration::from_secs(1);
/// Outcomes take at most a quarter of a batch. So does a slice of the journal, and a slice of the owner unless a single
/// record is larger.
const PART: usize = 4;
/// Overhead of a slice in a batch: the begin mark, its name, and its pieces' headers.
const SLICE_OVERHEAD_BYTES: usize = 1024;
/// How long shutdown retries writes to a failing disk.
const STOP_WRITES_MAX: Duration = Duration::from_secs(10);
/// Maximum octets of live content moved with one batch.
const CLEAN_BYTES_MAX: usize = 512 * 1024;
/// Maximum octets moved with a small batch, so that its commit stays short.
const CLEAN_BYTES_MIN: usize = 64 * 1024;
/// Octets moved for each octet of the batch: cleaning a segment that is 80 % live frees one octet for four moved.
const CLEAN_FACTOR: usize = 4;

type Answer<T> = oneshot::Sender<Result<T, IntakeRefusal>>;

pub struct Committer<L: Log = Journal> {
    core: Arc<Core>,
    log: L,
    batch: Batch,
    outcomes: Outcomes,
    checkpoint: Option<Checkpoint>,
    /// The first queue id that this process may assign.
    first_id: MessageId,
    /// Total clock change not yet durable: one record, however often the clock was set.
    clock_moved: i64,
    /// Contents of abandoned bodies that the batch being built drops; kept if it fails.
    dropping: Vec<u64>,
    /// Addresses that the batch being built interns; forgotten if it fails.
    interned: Vec<AddressId>,
    addresses_max: usize,
    forgetting: Forgetter,
    saving: HistorySaver,
    /// When the journal's size was last read.
    space_at: Option<Instant>,
    space: Space,
}

impl<L: Log> Committer<L> {
    pub fn new(core: Arc<Core>, log: L) -> Committer<L> {
        let config = &core.settings().config.journal;
        let first_id = core.with(|hub, _| MessageId(hub.store.last_id().0 + 1));
        Committer {
            addresses_max: config.addresses_max as usize,
            forgetting: Forgetter::new(config.address_unseen_ms, config.addresses_max as usize),
            saving: HistorySaver::new(core.clock.steady()),
            space_at: None,
            space: Space::default(),
            core,
            log,
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
    pub fn run(mut self) -> L {
        let mut stopping_since = None;
        loop {
            if self.core.intake.is_stopping() {
                let since = *stopping_since.get_or_insert_with(Instant::now);
                if since.elapsed() > STOP_WRITES_MAX {
                    tracing::error!("the journal cannot be written: unsynced deliveries may be repeated");
                    self.core.intake.close();
                    return self.log;
                }
            }
            match self.core.intake.next(self.pause().or_else(|| Some(self.saving_pause()))) {
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
                Turn::Stop => {
                    self.save_all();
                    return self.log;
                }
            }
        }
    }

    /// Returns when a turn is needed although no job is waiting.
    pub fn pause(&self) -> Option<Duration> {
        let is_due = self.log.checkpoint_running() || self.log.checkpoint_due() || self.log.clean_due();
        if is_due || self.saving.is_under_way() || self.forgetting.has_work(self.core.clock.now()) {
            Some(CHECKPOINT_PAUSE)
        } else if self.core.disk_full.load(Ordering::Relaxed) || self.forgetting.is_pressed() {
            Some(FULL_POLL)
        } else {
            None
        }
    }

    /// Returns the log between two turns, for figures, and for tests that alter it.
    pub fn log(&mut self) -> &mut L {
        &mut self.log
    }

    /// Writes one batch: `jobs`, waiting outcomes, a checkpoint's next slice, moved content. Returns whether it was
    /// written; if not, the caller pauses before the next one.
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
            // The order within a batch is the order of replay. Outcomes are already in the store, checkpoint slices
            // show its current state, and the jobs' changes follow both.
            hub.take_outcomes(self.outcomes_bytes_max(), &mut self.outcomes);
            for record in self.outcomes.records() {
                self.batch.record(record);
            }
            self.checkpoint_slice(hub, jobs_bytes, now);
            self.save_histories(hub, jobs_bytes);
            for job in jobs {
                self.plan(hub, job, &mut planned);
            }
            self.forgetting.plan(hub, &mut self.batch, self.log.batch_bytes_max(), now);
            for content in self.outcomes.unreferenced().chain(self.dropping.iter().copied()) {
                self.batch.drop_content(content);
            }
            let is_full = hub.store.book.len() >= self.addresses_max;
            core.addresses_full.store(is_full, Ordering::Relaxed);
        });
        if self.log.clean_due() {
            // Uses the remaining space of the batch, up to this limit.
            let bytes_max = (CLEAN_FACTOR * self.batch.bytes()).clamp(CLEAN_BYTES_MIN, CLEAN_BYTES_MAX);
            self.log.clean(&mut self.batch, if is_loaded { bytes_max } else { CLEAN_BYTES_MAX });
        }
        let bytes = self.batch.bytes();
        let begun = Instant::now();
        let result = self.log.commit(&mut self.batch, core.clock.now());
        let messages = planned.iter().filter(|planned| matches!(planned, BatchEffect::Message { .. })).count();
        let took = begun.elapsed();
        core.intake.synced(messages, took);
        core.measures.sync.observe(took);
        if messages > 0 {
            core.measures.batch_messages.observe_value(messages as u64);
        }
        match &result {
            Ok(_) => {
                self.clock_moved = 0;
                if is_loaded {
                    core.live.health.journal.success();
                }
                self.saving.written();
                core.live.synced(messages, bytes, took);
                self.durable(planned);
            }
            Err(error) => {
                // Before any client gets an answer, so that its next MAIL is already refused.
                self.watch_space(true);
                // A full disk is reported separately.
                if !core.disk_full.load(Ordering::Relaxed) {
                    core.live.health.journal.failure(error);
                }
                self.refused(planned, error);
                self.batch.clear();
            }
        }
        // A caller waiting for figures must see a disk that filled while no mail arrived.
        self.watch_space(is_loaded || core.counters.space_wanted.load(Ordering::Acquire));
        self.count(is_loaded);
        result.is_ok()
    }

    /// Follows the system clock if it was set. Between two batches all accepted mail is in the store, so the clock
    /// record in the next batch covers exactly that mail.
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
        self.forgetting.clock_moved(by);
        self.clock_moved = self.clock_moved.saturating_add(by);
        let text = |ms| {
            let mut text = Vec::new();
            push_rfc3339(&mut text, ms);
            String::from_utf8_lossy(&text).into_owned()
        };
        let (before, now) = (text(before), text(now));
        tracing::warn!("the system clock was set from {before} to {now}; retry clocks and message ages are unaffected");
    }

    /// Refuses mail with 452 before the disk is full, and accepts it again when the journal reports space.
    fn watch_space(&self, is_wanted: bool) {
        if !is_wanted && !self.core.disk_full.load(Ordering::Relaxed) {
            return;
        }
        let is_full = self.log.is_low();
        if self.core.disk_full.swap(is_full, Ordering::Relaxed) != is_full {
            if is_full {
                tracing::warn!("the disk is nearly full: new mail gets 452 4.3.1; deliveries continue");
            } else {
                tracing::info!("disk space is free again: accepting mail");
            }
        }
    }

    fn count(&mut self, is_loaded: bool) {
        let now = Instant::now();
        let is_wanted = self.core.counters.space_wanted.swap(false, Ordering::AcqRel);
        // The figure must also be correct after the last mail.
        if is_wanted || !is_loaded || self.space_at.is_none_or(|at| now.duration_since(at) >= SPACE_PAUSE) {
            self.space_at = Some(now);
            self.space = self.log.space();
        }
        *self.core.journal.lock() = JournalFigures {
            statistics: self.log.statistics(),
            space: self.space,
            is_checkpointing: self.log.checkpoint_running(),
        };
    }
}
