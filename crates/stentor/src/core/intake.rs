//! What waits for the committer: jobs of all sessions, with the gathering rule of group commit.
//!
//! Promise: a job pushed here is either made durable or refused, and its ticket says which; none is dropped. The
//! committer sleeps while there is nothing to do; once a job is there it waits at most `commit_delay` for the sessions
//! that are between 354 and their final dot, so that a lone client never waits and a crowd shares one sync.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use stentor_mail::reply::Reply;
use stentor_queue::ids::{AddressId, ContentId, MessageId};
use stentor_queue::idset::IdSet;
use tokio::sync::oneshot;

use super::envelope::{Body, NewEnvelope};
use super::forget::Pin;
use super::verb::{Audit, VerbJob};

/// Why nothing was stored; what was handed in is still the client's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// 452 4.3.1
    #[error("the disk is full")]
    Full,
    /// 451 4.3.0
    #[error("the journal could not be written")]
    Io,
    /// 452 4.3.1
    #[error("the address book is full (addresses_max)")]
    AddressesFull,
    /// 451 4.3.2
    #[error("the server is stopping")]
    Stopping,
}

impl Refused {
    pub fn reply(self) -> Reply {
        match self {
            Refused::Full => Reply::fixed(452, (4, 3, 1), "Not enough disk space, try again later"),
            Refused::Io => Reply::fixed(451, (4, 3, 0), "The message could not be stored, try again later"),
            Refused::AddressesFull => Reply::fixed(452, (4, 3, 1), "The queue is full, try again later"),
            Refused::Stopping => Reply::fixed(451, (4, 3, 2), "The server is stopping, try again later"),
        }
    }
}

/// Resolved by the committer alone, after the sync.
pub type Ticket<T> = oneshot::Receiver<Result<T, Refused>>;
type Answer<T> = oneshot::Sender<Result<T, Refused>>;

/// Recipients of an earlier message whose fate the same batch records: an outcome and the bounce that it causes are one.
#[derive(Debug)]
pub struct Settled {
    pub message: MessageId,
    pub fate: stentor_queue::event::Fate,
    pub ids: IdSet,
    /// An operator did it; the recipients are reserved.
    pub audit: Option<Audit>,
}

impl Settled {
    /// About what it adds to a batch, octets.
    pub fn bytes(&self) -> usize {
        let audit = self.audit.as_ref().map_or(0, Audit::bytes);
        64 + self.ids.encoded_bytes_max() + audit
    }
}

/// A message to make durable: its envelopes share one content.
pub struct Submission {
    /// The id of the first envelope; further ones get their own.
    pub first: MessageId,
    pub content: ContentId,
    /// The last (mostly the only) piece of the content.
    pub last: Body,
    /// Octets of all pieces.
    pub size: u64,
    pub envelopes: Vec<NewEnvelope>,
    pub settles: Vec<Settled>,
}

/// Addresses as ids, which stay theirs while the pin, or another of these, is there.
#[derive(Debug)]
pub struct Interned {
    pub ids: Vec<AddressId>,
    pub pin: Pin,
}

pub enum Job {
    Accept {
        submission: Submission,
        answer: Answer<()>,
    },
    /// A piece of a large body, before its end is known.
    Piece {
        content: ContentId,
        bytes: Vec<u8>,
        answer: Answer<()>,
    },
    /// Addresses of a subscribers file; the ids become durable before a list refers to them.
    Intern {
        addresses: Vec<String>,
        answer: Answer<Interned>,
    },
    List {
        name: String,
        stamp: String,
        ids: IdSet,
        /// `None` if there are none.
        pin: Option<Pin>,
        answer: Answer<()>,
    },
    /// The list is not configured any more.
    Unlist {
        name: String,
    },
    /// An operator's verb.
    Verb {
        job: Box<VerbJob>,
        answer: Answer<()>,
    },
    /// A large body that was given up: forget its pieces.
    Drop {
        content: ContentId,
    },
}

impl Job {
    /// Octets that it will take in a batch, about.
    pub fn bytes(&self) -> usize {
        match self {
            Job::Accept { submission, .. } => {
                let envelopes: usize = submission.envelopes.iter().map(NewEnvelope::bytes).sum();
                submission.last.len() + envelopes + submission.settles.iter().map(Settled::bytes).sum::<usize>()
            }
            Job::Piece { bytes, .. } => bytes.len(),
            Job::Intern { addresses, .. } => addresses.iter().map(|a| a.len() + 8).sum(),
            Job::List { ids, .. } => ids.len() / 4,
            Job::Verb { job, .. } => job.bytes(),
            Job::Unlist { name } => name.len() + 8,
            Job::Drop { .. } => 0,
        }
    }
}

#[derive(PartialEq, Eq)]
enum Committer {
    /// Nothing to do: every push wakes it.
    Idle,
    /// Waits for company: the push after which no session is on its way wakes it.
    Gathering,
    Busy,
}

struct State {
    jobs: Vec<Job>,
    bytes: usize,
    first_at: Option<Instant>,
    /// When completions that rode with no batch must be synced by themselves.
    completions_due: Option<Instant>,
    stopping: bool,
    /// The committer has gone: what comes now is refused by dropping it.
    closed: bool,
    /// Sessions that were on their way during a whole delay in which nothing came: nobody waits for them.
    stalled: usize,
    committer: Committer,
}

/// What the committer is to do next.
pub enum Turn {
    Commit(Vec<Job>),
    /// Stopping, and nothing waits any more.
    Stop,
}

pub struct Intake {
    state: Mutex<State>,
    wake: Condvar,
    /// Sessions between 354 and the push of their job.
    receiving: AtomicUsize,
    /// The committer is waiting for them.
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
                first_at: None,
                completions_due: None,
                stopping: false,
                closed: false,
                stalled: 0,
                committer: Committer::Busy,
            }),
            wake: Condvar::new(),
            receiving: AtomicUsize::new(0),
            gathering: AtomicBool::new(false),
            commit_delay,
            batch_bytes_max,
        }
    }

    /// A session has said 354: a message of its is on the way. Must be followed by [`Intake::arrived`].
    pub fn receiving(&self) {
        self.receiving.fetch_add(1, Ordering::AcqRel);
    }

    /// That message was pushed or given up.
    pub fn arrived(&self) {
        // Whether it was the last one that somebody waits for is seen under the lock.
        self.receiving.fetch_sub(1, Ordering::SeqCst);
        if self.gathering.load(Ordering::SeqCst) {
            // Under the lock, so that the committer is either before its look at the count or asleep.
            let state = self.state.lock();
            if state.committer == Committer::Gathering {
                self.wake.notify_one();
            }
        }
    }

    pub fn push(&self, job: Job) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        state.bytes += job.bytes();
        state.jobs.push(job);
        state.first_at.get_or_insert_with(Instant::now);
        if state.committer == Committer::Idle || self.is_full(&state) {
            self.wake.notify_one();
        }
    }

    /// Outcomes wait to be synced: within `by` at the latest.
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

    /// Nothing is taken any more; what waits is refused.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.jobs.clear();
    }

    fn is_full(&self, state: &State) -> bool {
        state.bytes >= self.batch_bytes_max
    }

    /// Blocks the committer's thread until there is a batch to write. `background` asks for turns without jobs, at
    /// least every so often, for checkpoint slices.
    pub fn next(&self, background: Option<Duration>) -> Turn {
        let mut state = self.state.lock();
        let background = background.map(|pause| Instant::now() + pause);
        while state.jobs.is_empty() {
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
        if let Some(first) = state.first_at {
            let deadline = first + self.commit_delay;
            state.committer = Committer::Gathering;
            self.gathering.store(true, Ordering::SeqCst);
            let waiting = state.jobs.len();
            loop {
                let receiving = self.receiving.load(Ordering::SeqCst);
                state.stalled = state.stalled.min(receiving);
                if receiving <= state.stalled || self.is_full(&state) || state.stopping {
                    break;
                }
                if self.wake.wait_until(&mut state, deadline).timed_out() {
                    if state.jobs.len() == waiting {
                        state.stalled = receiving;
                    }
                    break;
                }
            }
        }
        self.gathering.store(false, Ordering::Release);
        state.committer = Committer::Busy;
        state.completions_due = None;
        Turn::Commit(self.take(&mut state))
    }

    /// As many jobs as one batch may carry, in order.
    fn take(&self, state: &mut State) -> Vec<Job> {
        state.first_at = None;
        if !self.is_full(state) {
            state.bytes = 0;
            return std::mem::take(&mut state.jobs);
        }
        let (mut sum, mut count) = (0, 0);
        while count < state.jobs.len() && (count == 0 || sum + state.jobs[count].bytes() <= self.batch_bytes_max) {
            sum += state.jobs[count].bytes();
            count += 1;
        }
        let rest = state.jobs.split_off(count);
        state.bytes -= sum;
        if !rest.is_empty() {
            state.first_at = Some(Instant::now());
        }
        std::mem::replace(&mut state.jobs, rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drop_job(id: u64) -> Job {
        Job::Drop { content: ContentId(id) }
    }

    #[test]
    fn jobs_come_in_order_and_batches_are_bounded() {
        let intake = Intake::new(Duration::ZERO, 100);
        for id in 0..3 {
            let (answer, _ticket) = oneshot::channel();
            intake.push(Job::Piece { content: ContentId(id), bytes: vec![0; 60], answer });
        }
        let sizes: Vec<usize> = (0..3)
            .map(|_| match intake.next(None) {
                Turn::Commit(jobs) => jobs.len(),
                Turn::Stop => 0,
            })
            .collect();
        assert_eq!(sizes, [1, 1, 1]);
    }

    #[test]
    fn what_a_report_settles_counts_for_its_batch() {
        let settle = |detail| Settled {
            message: MessageId(1),
            fate: stentor_queue::event::Fate::Bounced,
            ids: (1..=4).collect(),
            audit: Some(Audit { at: 0, who: String::new(), verb: "bounce", detail }),
        };
        let job = |detail: String| {
            let (last, settles) = (std::sync::Arc::default(), vec![settle(detail)]);
            let (first, content) = (MessageId(2), ContentId(2));
            let submission = Submission { first, content, last, size: 0, envelopes: Vec::new(), settles };
            Job::Accept { submission, answer: oneshot::channel().0 }
        };
        assert_eq!(job("x".repeat(1000)).bytes(), job(String::new()).bytes() + 1000);
    }

    #[test]
    fn stop_hands_out_what_waits_first() {
        let intake = Intake::new(Duration::from_secs(1000), 100);
        intake.receiving();
        intake.push(drop_job(1));
        intake.stop();
        assert!(matches!(intake.next(None), Turn::Commit(jobs) if jobs.len() == 1));
        assert!(matches!(intake.next(None), Turn::Stop));
        intake.arrived();
    }

    #[test]
    fn the_last_session_on_its_way_ends_the_gathering() {
        let intake = Intake::new(Duration::from_secs(1000), 100);
        std::thread::scope(|scope| {
            intake.receiving();
            intake.push(drop_job(1));
            let committer = scope.spawn(|| matches!(intake.next(None), Turn::Commit(jobs) if jobs.len() == 2));
            intake.push(drop_job(2));
            intake.arrived();
            assert!(committer.join().unwrap());
        });
    }
}
