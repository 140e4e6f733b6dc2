//! Jobs waiting for the committer, from all sessions, with the gathering rule of group commit.
//!
//! Promise: a job pushed here is either made durable or refused, and its ticket says which; none is dropped. The
//! committer sleeps while there is nothing to do. Once there is a job, it waits at most `commit_delay` for sessions
//! between 354 and their final dot. If a sync takes longer than that, it also waits for as many jobs as recent batches
//! had, as long as jobs keep arriving (`stentor_journal::Pace`). So a lone client never waits, and many clients share
//! one sync.
//!
//! Pieces of large bodies have their own queue. A batch takes at most [`PIECES_BYTES_PER_BATCH_MAX`] of them, so they
//! delay other commits by a bounded time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use stentor_journal::{PIECE_OVERHEAD_BYTES, Pace, RECORD_OVERHEAD_BYTES};
use stentor_mail::reply::{Enhanced, Reply};
use stentor_queue::event::{hold_bytes_max, intern_bytes_max, list_bytes_max, outcome_bytes_max, suspend_bytes_max};
use stentor_queue::ids::{AddressId, ContentId, MessageId};
use stentor_queue::idset::IdSet;
use tokio::sync::oneshot;

use super::audit::Audit;
use super::envelope::{ContentBytes, EnvelopeRecipients, NewEnvelope};
use super::pins::Pin;
use super::verb::{QueueChange, VerbJob};

/// Maximum octets of pieces of large bodies in one batch.
pub const PIECES_BYTES_PER_BATCH_MAX: usize = 1024 * 1024;

/// Why nothing was stored; the client still has its message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IntakeRefusal {
    /// 452 4.3.1
    #[error("the disk is full")]
    Full,
    /// 452 4.3.1
    #[error("too many large messages in progress (streamed_bytes_max)")]
    Crowded,
    /// 451 4.3.0
    #[error("the journal could not be written")]
    Io,
    /// 452 4.3.1
    #[error("the address book is full (addresses_max)")]
    AddressesFull,
    /// 552 5.3.4: no batch can hold it, now or later
    #[error("it exceeds the journal's batch size (segment_bytes, batch_bytes_max)")]
    TooLarge,
    /// 451 4.3.0
    #[error("the list was removed by a reload")]
    ListGone,
    /// 451 4.3.0
    #[error("a table that resolves an address cannot be queried")]
    Table,
    /// 451 4.3.2
    #[error("the server is stopping")]
    Stopping,
}

impl IntakeRefusal {
    pub fn reply(self) -> Reply {
        match self {
            IntakeRefusal::Full => Reply::fixed(452, Enhanced::new(4, 3, 1), "Not enough disk space, try again later"),
            IntakeRefusal::Crowded => {
                Reply::fixed(452, Enhanced::new(4, 3, 1), "Too many large messages are being received, try again later")
            }
            IntakeRefusal::Io => {
                Reply::fixed(451, Enhanced::new(4, 3, 0), "The message could not be stored, try again later")
            }
            IntakeRefusal::AddressesFull => {
                Reply::fixed(452, Enhanced::new(4, 3, 1), "The queue is full, try again later")
            }
            IntakeRefusal::TooLarge => Reply::fixed(
                552,
                Enhanced::new(5, 3, 4),
                "Too large to be stored, send it to fewer recipients per message",
            ),
            IntakeRefusal::ListGone => {
                Reply::fixed(451, Enhanced::new(4, 3, 0), "The list is being changed, try again later")
            }
            IntakeRefusal::Table => Reply::fixed(451, Enhanced::new(4, 3, 0), "Table lookup failed, try again later"),
            IntakeRefusal::Stopping => {
                Reply::fixed(451, Enhanced::new(4, 3, 2), "The server is stopping, try again later")
            }
        }
    }
}

/// Resolved only by the committer, after the sync.
pub type Ticket<T> = oneshot::Receiver<Result<T, IntakeRefusal>>;
type Answer<T> = oneshot::Sender<Result<T, IntakeRefusal>>;

/// Recipients of an earlier message whose fate is recorded in the same batch, so that an outcome and the bounce it
/// causes are atomic.
#[derive(Debug)]
pub struct FateRecord {
    pub message: MessageId,
    pub fate: stentor_queue::event::Fate,
    pub ids: IdSet,
    /// Audit record of an operator's action; its recipients are reserved.
    pub audit: Option<Audit>,
}

impl FateRecord {
    /// Returns an upper bound of the octets that its records take in a batch.
    pub fn bytes_max(&self) -> usize {
        let by = self.audit.as_ref().map(|audit| audit.who.as_str());
        let audit = self.audit.as_ref().map_or(0, Audit::bytes_max);
        RECORD_OVERHEAD_BYTES + outcome_bytes_max(&self.ids, by) + audit
    }
}

/// A message to make durable. Its envelopes share one content.
pub struct Submission {
    /// Id of the first envelope with recipients; each further one gets its own.
    pub first: MessageId,
    pub content: ContentId,
    /// The last (usually the only) piece of the content.
    pub last: ContentBytes,
    /// Octets of all pieces.
    pub size: u64,
    /// The last of these are the recipients' merge values ([`stentor_copies::MergeTable`]), not part of the message.
    pub merge_bytes: u64,
    pub envelopes: Vec<NewEnvelope>,
    pub fate_records: Vec<FateRecord>,
    /// Receives the assigned ids, if the caller wants them.
    pub assigned: Option<AssignedIds>,
}

/// Queue ids and recipient counts of the envelopes that had recipients, without copies for archives; set before the
/// ticket resolves.
pub type AssignedIds = Arc<OnceLock<Vec<AssignedId>>>;

/// The queue id of a message that came from a submission.
pub struct AssignedId {
    pub id: MessageId,
    /// Number of its recipients.
    pub recipients: u64,
    /// The list, if it is a post.
    pub list: Option<Box<str>>,
    pub is_held: bool,
}

/// Addresses as ids, which stay valid while the pin or another pin of the same ids exists.
#[derive(Debug)]
pub struct InternedAddresses {
    pub ids: Vec<AddressId>,
    pub pin: Pin,
}

pub enum Job {
    Accept {
        submission: Submission,
        answer: Answer<()>,
    },
    /// A piece of a large body whose end is not yet known.
    Piece {
        content: ContentId,
        bytes: Vec<u8>,
        answer: Answer<()>,
    },
    /// Addresses of a subscribers file; their ids become durable before a list refers to them.
    Intern {
        addresses: Vec<String>,
        answer: Answer<InternedAddresses>,
    },
    List {
        name: String,
        stamp: String,
        ids: IdSet,
        /// `None` if there are no ids.
        pin: Option<Pin>,
        answer: Answer<()>,
    },
    /// The list is no longer configured.
    Unlist {
        name: String,
    },
    /// An operator's action.
    Verb {
        job: Box<VerbJob>,
        answer: Answer<()>,
    },
    /// An abandoned large body: drop its pieces.
    Drop {
        content: ContentId,
    },
}

impl Job {
    /// Returns an upper bound of its octets in a batch without a list's subscribers ([`Job::bytes_max`]): good enough
    /// to decide whether the waiting jobs fill a batch.
    pub fn bytes(&self) -> usize {
        self.bytes_max(|_| 0)
    }

    /// Returns an upper bound of its octets in a batch; `list_ids` returns the octets of a list's subscribers.
    pub fn bytes_max(&self, list_ids: impl Fn(&str) -> usize) -> usize {
        match self {
            Job::Accept { submission, .. } => {
                let envelopes: usize = submission.envelopes.iter().map(|envelope| envelope.bytes_max(&list_ids)).sum();
                let fate_records: usize = submission.fate_records.iter().map(FateRecord::bytes_max).sum();
                let held = submission.envelopes.iter().filter(|envelope| envelope.is_held()).count();
                let hold = if held > 0 { RECORD_OVERHEAD_BYTES + hold_bytes_max(held) } else { 0 };
                PIECE_OVERHEAD_BYTES + submission.last.len() + envelopes + fate_records + hold
            }
            Job::Piece { bytes, .. } => PIECE_OVERHEAD_BYTES + bytes.len(),
            Job::Intern { addresses, .. } => {
                RECORD_OVERHEAD_BYTES + intern_bytes_max(addresses.iter().map(String::len))
            }
            // As large as a post to the list, which must fit as well.
            Job::List { name, stamp, ids, .. } => {
                RECORD_OVERHEAD_BYTES + list_bytes_max(name, stamp, ids).max(ids.part_bytes_max())
            }
            Job::Verb { job, .. } => job.bytes_max(),
            Job::Unlist { name } => RECORD_OVERHEAD_BYTES + suspend_bytes_max(name, ""),
            Job::Drop { .. } => 0,
        }
    }

    /// Returns the lists that it addresses: only the committer knows how many subscribers they have.
    pub fn lists(&self) -> impl Iterator<Item = &str> {
        let envelopes = if let Job::Accept { submission, .. } = self { &submission.envelopes[..] } else { &[] };
        let posts = envelopes.iter().filter(|envelope| matches!(envelope.recipients, EnvelopeRecipients::List));
        posts.filter_map(|envelope| envelope.list.as_deref())
    }

    /// Refuses the job, so that nothing of it is stored. Pieces stored in earlier batches are dropped.
    pub fn refuse(self, why: IntakeRefusal) -> Option<Job> {
        match self {
            Job::Accept { submission, answer } => {
                let _ = answer.send(Err(why));
                let is_streamed = submission.last.len() as u64 != submission.size;
                is_streamed.then_some(Job::Drop { content: submission.content })
            }
            Job::Piece { answer, .. } | Job::List { answer, .. } | Job::Verb { answer, .. } => {
                let _ = answer.send(Err(why));
                None
            }
            Job::Intern { answer, .. } => {
                let _ = answer.send(Err(why));
                None
            }
            Job::Unlist { .. } | Job::Drop { .. } => None,
        }
    }
}

#[derive(PartialEq, Eq)]
enum Committer {
    /// Nothing to do: every push wakes it.
    Idle,
    /// Waiting for more jobs: the push that completes the group wakes it.
    Gathering,
    Busy,
}

struct State {
    jobs: Vec<Job>,
    bytes: usize,
    /// Pieces of large bodies, and jobs that drop them. They are kept apart since a batch takes few of them.
    pieces: VecDeque<Job>,
    /// When the first and the latest waiting job arrived.
    first_at: Option<Instant>,
    latest_at: Instant,
    /// When outcomes that no batch has carried must be synced on their own.
    completions_due: Option<Instant>,
    stopping: bool,
    /// The committer has ended: further jobs are refused by dropping them.
    closed: bool,
    /// Sessions still in progress after a whole delay without arrivals; the committer does not wait for them.
    stalled: usize,
    committer: Committer,
    pace: Pace,
    /// The gathering committer waits for as many jobs as recent batches had.
    is_missing: bool,
}

/// The committer's next step.
pub enum Turn {
    Commit(Vec<Job>),
    /// Stop: the intake is stopping and nothing is waiting.
    Stop,
}

pub struct Intake {
    state: Mutex<State>,
    wake: Condvar,
    /// Sessions between 354 and the push of their job.
    receiving: AtomicUsize,
    /// The committer is waiting for these sessions.
    gathering: AtomicBool,
    commit_delay: Duration,
    batch_bytes_max: usize,
}

impl Intake {
    pub fn new(commit_delay: Duration, batch_bytes_max: usize) -> Intake {
        Intake {
            state: Mutex::new(State {
                jobs: Vec::new(),
                bytes: 0,
                pieces: VecDeque::new(),
                first_at: None,
                latest_at: Instant::now(),
                completions_due: None,
                stopping: false,
                closed: false,
                stalled: 0,
                committer: Committer::Busy,
                pace: Pace::default(),
                is_missing: false,
            }),
            wake: Condvar::new(),
            receiving: AtomicUsize::new(0),
            gathering: AtomicBool::new(false),
            commit_delay,
            batch_bytes_max,
        }
    }

    /// Returns how many octets of waiting jobs fill a batch.
    pub fn batch_bytes_max(&self) -> usize {
        self.batch_bytes_max
    }

    /// Notes that a session has sent 354, so that its message is coming. Must be followed by [`Intake::arrived`].
    pub fn receiving(&self) {
        self.receiving.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that the announced message was pushed or abandoned.
    pub fn arrived(&self) {
        let left = self.receiving.fetch_sub(1, Ordering::SeqCst) - 1;
        if self.gathering.load(Ordering::SeqCst) {
            // Under the lock, so that the committer has either not yet read the count or is asleep.
            let state = self.state.lock();
            if state.committer == Committer::Gathering && left <= state.stalled {
                self.wake.notify_one();
            }
        }
    }

    /// Submits an operator's action; it is durable when this returns `Ok`.
    pub async fn verb(&self, audit: Audit, change: QueueChange) -> Result<(), IntakeRefusal> {
        let (answer, ticket) = oneshot::channel();
        self.push(Job::Verb { job: Box::new(VerbJob { audit, change }), answer });
        ticket.await.unwrap_or(Err(IntakeRefusal::Stopping))
    }

    pub fn push(&self, job: Job) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        if matches!(job, Job::Piece { .. } | Job::Drop { .. }) {
            state.pieces.push_back(job);
            if state.committer == Committer::Idle {
                self.wake.notify_one();
            }
            return;
        }
        let now = Instant::now();
        state.bytes += job.bytes();
        state.jobs.push(job);
        state.first_at.get_or_insert(now);
        state.latest_at = now;
        let wakes = match state.committer {
            Committer::Idle => true,
            Committer::Gathering => {
                self.is_full(&state) || (state.is_missing && state.pace.is_complete(state.jobs.len()))
            }
            Committer::Busy => false,
        };
        if wakes {
            self.wake.notify_one();
        }
    }

    /// Returns jobs that did not fit into a batch to the front, in their order.
    pub fn put_back(&self, jobs: Vec<Job>) {
        let mut state = self.state.lock();
        if state.closed || jobs.is_empty() {
            return;
        }
        let is_piece = |job: &Job| matches!(job, Job::Piece { .. } | Job::Drop { .. });
        let (pieces, mut jobs): (Vec<Job>, Vec<Job>) = jobs.into_iter().partition(is_piece);
        for piece in pieces.into_iter().rev() {
            state.pieces.push_front(piece);
        }
        if !jobs.is_empty() {
            state.bytes += jobs.iter().map(Job::bytes).sum::<usize>();
            jobs.append(&mut state.jobs);
            state.jobs = jobs;
            state.first_at.get_or_insert_with(Instant::now);
        }
    }

    /// Requests a sync of outcomes within `by`.
    pub fn completions(&self, by: Duration) {
        let mut state = self.state.lock();
        if state.completions_due.is_none() {
            state.completions_due = Some(Instant::now() + by);
            if state.committer == Committer::Idle {
                self.wake.notify_one();
            }
        }
    }

    pub fn stop(&self) {
        self.state.lock().stopping = true;
        self.wake.notify_one();
    }

    pub fn is_stopping(&self) -> bool {
        self.state.lock().stopping
    }

    /// Accepts nothing more, and refuses waiting jobs.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.jobs.clear();
        state.pieces.clear();
    }

    fn is_full(&self, state: &State) -> bool {
        state.bytes >= self.batch_bytes_max
    }

    /// Notes that a batch of `messages` was written and synced in `took`.
    pub fn synced(&self, messages: usize, took: Duration) {
        self.state.lock().pace.synced(messages, took);
    }

    /// Blocks the committer's thread until there is a batch to write. `background` is the longest time without a turn,
    /// for checkpoint slices.
    pub fn next(&self, background: Option<Duration>) -> Turn {
        let mut state = self.state.lock();
        let background = background.map(|pause| Instant::now() + pause);
        while state.jobs.is_empty() && state.pieces.is_empty() {
            let due = [state.completions_due, background].into_iter().flatten().min();
            if state.stopping && state.completions_due.is_none() {
                state.closed = true;
                return Turn::Stop;
            }
            if state.stopping || due.is_some_and(|due| due <= Instant::now()) {
                break;
            }
            state.committer = Committer::Idle;
            match due {
                Some(due) => drop(self.wake.wait_until(&mut state, due)),
                None => self.wake.wait(&mut state),
            }
        }
        self.gather(&mut state);
        state.committer = Committer::Busy;
        state.completions_due = None;
        Turn::Commit(self.take(&mut state))
    }

    /// Waits for further jobs, by the rule in the module documentation.
    fn gather(&self, state: &mut MutexGuard<'_, State>) {
        let Some(first) = state.first_at.filter(|_| !self.commit_delay.is_zero()) else { return };
        let begun = Instant::now();
        let on_the_way_until = first + self.commit_delay;
        let patience = state.pace.patience();
        let waiting = state.jobs.len();
        state.committer = Committer::Gathering;
        self.gathering.store(true, Ordering::SeqCst);
        loop {
            let receiving = self.receiving.load(Ordering::SeqCst);
            state.stalled = state.stalled.min(receiving);
            if self.is_full(state) || state.stopping {
                break;
            }
            let now = Instant::now();
            // First sessions that are on their way, then as many jobs as last time.
            let mut until = None;
            if receiving > state.stalled {
                until = Some(on_the_way_until);
            }
            state.is_missing = !patience.is_zero() && !state.pace.is_complete(state.jobs.len());
            if state.is_missing {
                let quiet = state.latest_at.max(begun) + state.pace.quiet();
                until = until.max(Some(quiet.min(begun + patience)));
            }
            match until {
                Some(until) if until > now => drop(self.wake.wait_until(state, until)),
                Some(_) => {
                    if state.jobs.len() == waiting && on_the_way_until <= now {
                        state.stalled = receiving;
                    }
                    break;
                }
                None => break,
            }
        }
        self.gathering.store(false, Ordering::Release);
    }

    /// Takes as many jobs as one batch may carry, in order, and then some pieces.
    fn take(&self, state: &mut State) -> Vec<Job> {
        let pieces = self.take_pieces(state);
        let room = self.batch_bytes_max - pieces.iter().map(Job::bytes).sum::<usize>().min(self.batch_bytes_max);
        state.first_at = None;
        let mut taken = if state.bytes <= room {
            state.bytes = 0;
            std::mem::take(&mut state.jobs)
        } else {
            let (mut sum, mut count) = (0, 0);
            while count < state.jobs.len() && (count == 0 || sum + state.jobs[count].bytes() <= room) {
                sum += state.jobs[count].bytes();
                count += 1;
            }
            let rest = state.jobs.split_off(count);
            state.bytes -= sum;
            if !rest.is_empty() {
                state.first_at = Some(Instant::now());
            }
            std::mem::replace(&mut state.jobs, rest)
        };
        taken.extend(pieces);
        taken
    }

    /// Takes pieces for one batch: the first one, and more up to the bound.
    fn take_pieces(&self, state: &mut State) -> Vec<Job> {
        let bytes_max = PIECES_BYTES_PER_BATCH_MAX.min(self.batch_bytes_max / 2);
        let (mut sum, mut count) = (0, 0);
        for job in &state.pieces {
            if sum > 0 && sum + job.bytes() > bytes_max {
                break;
            }
            sum += job.bytes();
            count += 1;
        }
        state.pieces.drain(..count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a small job that is not a piece.
    fn job() -> Job {
        let (answer, _ticket) = oneshot::channel();
        Job::Intern { addresses: vec!["a@b".to_owned()], answer }
    }

    fn piece(bytes: usize) -> Job {
        let (answer, _ticket) = oneshot::channel();
        Job::Piece { content: ContentId(1), bytes: vec![0; bytes], answer }
    }

    fn taken(intake: &Intake) -> Vec<usize> {
        match intake.next(None) {
            Turn::Commit(jobs) => jobs.iter().map(Job::bytes).collect(),
            Turn::Stop => Vec::new(),
        }
    }

    #[test]
    fn jobs_come_in_order_and_batches_are_bounded() {
        let intake = Intake::new(Duration::ZERO, 2 * job().bytes());
        for length in [10, 11, 12, 13] {
            let (answer, _ticket) = oneshot::channel();
            intake.push(Job::Intern { addresses: vec!["a".repeat(length)], answer });
        }
        let bytes = |length| Job::Intern { addresses: vec!["a".repeat(length)], answer: oneshot::channel().0 }.bytes();
        let taken = [taken(&intake), taken(&intake), taken(&intake)];
        assert_eq!(taken, [vec![bytes(10)], vec![bytes(11)], vec![bytes(12)]]);
    }

    #[test]
    fn pieces_take_a_bounded_part_of_a_batch() {
        let large = PIECES_BYTES_PER_BATCH_MAX / 4;
        let intake = Intake::new(Duration::ZERO, 4 * PIECES_BYTES_PER_BATCH_MAX);
        for _ in 0..10 {
            intake.push(piece(large - PIECE_OVERHEAD_BYTES));
        }
        intake.push(job());
        let small = job().bytes();
        assert_eq!(
            taken(&intake),
            [small, large, large, large, large],
            "a small message does not wait for all of them"
        );
        assert_eq!(taken(&intake), [large; 4]);
        assert_eq!(taken(&intake), [large; 2]);
        intake.push(piece(2 * PIECES_BYTES_PER_BATCH_MAX));
        assert_eq!(taken(&intake).len(), 1, "one is taken, whatever its size");
    }

    #[test]
    fn what_drops_a_content_comes_behind_its_pieces() {
        let intake = Intake::new(Duration::ZERO, 1 << 22);
        intake.push(piece(PIECES_BYTES_PER_BATCH_MAX - PIECE_OVERHEAD_BYTES));
        intake.push(piece(PIECES_BYTES_PER_BATCH_MAX - PIECE_OVERHEAD_BYTES));
        intake.push(Job::Drop { content: ContentId(1) });
        assert_eq!(taken(&intake), [PIECES_BYTES_PER_BATCH_MAX]);
        assert_eq!(taken(&intake), [PIECES_BYTES_PER_BATCH_MAX, 0]);
    }

    #[test]
    fn what_is_put_back_comes_first_and_in_order() {
        let intake = Intake::new(Duration::ZERO, 1 << 22);
        let intern = |length| Job::Intern { addresses: vec!["a".repeat(length)], answer: oneshot::channel().0 };
        let bytes = |length| intern(length).bytes();
        intake.push(intern(3));
        intake.push(piece(300));
        intake.put_back(vec![intern(1), intern(2), piece(100), Job::Drop { content: ContentId(1) }]);
        let drop = 0;
        let pieces = [100, 300].map(|len| len + PIECE_OVERHEAD_BYTES);
        assert_eq!(taken(&intake), [bytes(1), bytes(2), bytes(3), pieces[0], drop, pieces[1]]);
    }

    #[test]
    fn what_a_report_settles_counts_for_its_batch() {
        let record = |detail| FateRecord {
            message: MessageId(1),
            fate: stentor_queue::event::Fate::Bounced,
            ids: (1..=4).collect(),
            audit: Some(Audit { at: 0, who: String::new(), verb: "bounce", detail }),
        };
        let job = |detail: String| {
            let (last, fate_records) = (std::sync::Arc::default(), vec![record(detail)]);
            let (first, content) = (MessageId(2), ContentId(2));
            let submission = Submission {
                first,
                content,
                last,
                size: 0,
                merge_bytes: 0,
                envelopes: Vec::new(),
                fate_records,
                assigned: None,
            };
            Job::Accept { submission, answer: oneshot::channel().0 }
        };
        assert_eq!(job("x".repeat(1000)).bytes(), job(String::new()).bytes() + 1000);
    }

    #[test]
    fn stop_hands_out_what_waits_first() {
        let intake = Intake::new(Duration::from_secs(1000), 10 * job().bytes());
        intake.receiving();
        intake.push(job());
        intake.stop();
        assert!(matches!(intake.next(None), Turn::Commit(jobs) if jobs.len() == 1));
        assert!(matches!(intake.next(None), Turn::Stop));
        intake.arrived();
    }

    #[test]
    fn the_last_session_on_its_way_ends_the_gathering() {
        let intake = Intake::new(Duration::from_secs(1000), 10 * job().bytes());
        std::thread::scope(|scope| {
            intake.receiving();
            intake.push(job());
            let committer = scope.spawn(|| matches!(intake.next(None), Turn::Commit(jobs) if jobs.len() == 2));
            intake.push(job());
            intake.arrived();
            assert!(committer.join().unwrap());
        });
    }

    #[test]
    fn on_a_slow_disk_as_many_are_waited_for_as_came_the_last_time() {
        let intake = Intake::new(Duration::from_micros(1), 10 * job().bytes());
        for _ in 0..100 {
            intake.synced(3, Duration::from_secs(1000));
        }
        std::thread::scope(|scope| {
            intake.push(job());
            let committer = scope.spawn(|| matches!(intake.next(None), Turn::Commit(jobs) if jobs.len() == 3));
            intake.push(job());
            intake.push(job());
            // The wait did not end by time-out: the pace allows tens of milliseconds or, when no job arrives, a third
            // of that.
            assert!(committer.join().unwrap());
        });
    }
}
