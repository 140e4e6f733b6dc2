//! Queue and scheduler together, with the outcomes not yet synced.
//!
//! An outcome changes the store at once, and its record is written with the next batch. If that batch fails, the
//! records are kept for the next one. So an outcome is never lost, at worst a delivery is repeated after a crash. The
//! number of repeats is limited: at [`COMPLETIONS_MAX`] no new transaction starts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashMap;
use smallvec::SmallVec;
use stentor_queue::book::SiteAttempt;
use stentor_queue::event::{Event, Fate};
use stentor_queue::ids::{AddressId, ConnId, DomainId, MessageId, MessageNo, Ms};
use stentor_queue::idset::IdSet;
use stentor_queue::site::Target;
use stentor_queue::store::{EventEffect, Store};
use stentor_sched::verdict::{HistorySubject, Judge, Verdict};
use stentor_sched::{Effect, FailedRcpt, RcptOutcome, Scheduler, SessionSoFar, SourceNo, Work};
use tokio::sync::Notify;

use super::bodies::Bodies;
use super::pins::Pins;
use crate::live::posts::RunningPosts;

/// Maximum of recipients handed out plus outcomes not yet synced, which a crash can repeat.
pub const COMPLETIONS_MAX: usize = 50_000;

/// Recipients counted per tick, some 50 us.
const COUNTED_PER_TICK: usize = 4_096;

/// Signals work to a connection's task.
#[derive(Default)]
pub struct Signal {
    notify: Notify,
    close: AtomicBool,
    give_way: AtomicBool,
}

impl Signal {
    pub fn wake(&self) {
        self.notify.notify_one();
    }

    pub fn close(&self) {
        self.close.store(true, Ordering::Release);
        self.notify.notify_one();
    }

    /// Asks this silent connection to give its slot to others.
    pub fn give_way(&self) {
        self.give_way.store(true, Ordering::Release);
        self.notify.notify_one();
    }

    pub fn must_give_way(&self) -> bool {
        self.give_way.load(Ordering::Acquire)
    }

    /// Keeps the connection open: the end of some data has been sent.
    pub fn stays(&self) {
        self.give_way.store(false, Ordering::Release);
    }

    pub async fn signalled(&self) {
        self.notify.notified().await;
    }

    pub fn must_close(&self) -> bool {
        self.close.load(Ordering::Acquire)
    }
}

/// An effect of the scheduler, with everything needed to perform it.
pub enum Act {
    Resolve {
        domain: DomainId,
        name: String,
    },
    ForgetLookUp {
        domain: DomainId,
    },
    Connect {
        conn: ConnId,
        source: SourceNo,
        target: Target,
        signal: Arc<Signal>,
    },
    Wake(Arc<Signal>),
    Close(Arc<Signal>),
    GiveWay(Arc<Signal>),
    Delayed {
        no: MessageNo,
    },
    /// The fast lane has finished a post, except for `pending` recipients.
    FastDone {
        id: MessageId,
        list: String,
        total: u64,
        pending: u32,
    },
    /// A subscriber has bounced several posts in a row.
    Suspend {
        list: Arc<str>,
        address: String,
        posts: u32,
        since: Ms,
        text: Arc<str>,
    },
    Coalesce {
        list: Arc<str>,
        posts: Vec<MessageNo>,
        ids: Vec<AddressId>,
    },
    Bounce {
        no: MessageNo,
        failures: Vec<FailedRcpt>,
    },
}

/// Work for the lock's holder after its release.
pub struct FollowUp {
    pub tick: bool,
    /// Outcomes are waiting to be synced, the oldest since this time.
    pub completions: Option<Ms>,
}

/// Encoded outcomes, concatenated so that the committer can copy them, and contents to drop once these are durable.
/// Both are taken in order. A content is dropped with the newest outcome at the time its last message ended, since any
/// earlier outcome may belong to a message with that content.
#[derive(Default)]
pub struct Outcomes {
    pub bytes: Vec<u8>,
    /// For each record, its end in `bytes` and the number of recipients in it.
    ends: Vec<(usize, usize)>,
    /// Contents to drop, each with the number of records before it.
    unreferenced: Vec<(usize, u64)>,
    pub recipients: usize,
    /// When the oldest outcome was decided, or earlier.
    pub since: Option<Ms>,
}

impl Outcomes {
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn records(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |(end, _)| {
            let record = &self.bytes[start..*end];
            start = *end;
            record
        })
    }

    /// Returns the contents to drop with these outcomes.
    pub fn unreferenced(&self) -> impl Iterator<Item = u64> {
        self.unreferenced.iter().map(|(_, content)| *content)
    }

    /// Whether a batch is wanted, for records or for contents to drop.
    pub fn is_waiting(&self) -> bool {
        !self.ends.is_empty() || !self.unreferenced.is_empty()
    }

    /// Moves the first records, at least one and up to `bytes_max` octets, to `into`.
    fn split_front(&mut self, bytes_max: usize, into: &mut Outcomes) {
        if self.bytes.len() <= bytes_max {
            std::mem::swap(self, into);
            return;
        }
        let records = self.ends.iter().take_while(|(end, _)| *end <= bytes_max).count().max(1);
        let Some((cut, _)) = self.ends.get(records - 1).copied() else { return };
        into.since = self.since;
        into.bytes.extend_from_slice(&self.bytes[..cut]);
        into.ends.extend(self.ends.drain(..records));
        into.recipients = into.ends.iter().map(|(_, recipients)| recipients).sum();
        let freed = self.unreferenced.partition_point(|(before, _)| *before <= records);
        into.unreferenced.extend(self.unreferenced.drain(..freed));
        self.unreferenced.iter_mut().for_each(|(before, _)| *before -= records);
        self.bytes.drain(..cut);
        self.ends.iter_mut().for_each(|(end, _)| *end -= cut);
        self.recipients -= into.recipients;
    }

    /// Appends the outcomes of `more`.
    fn append(&mut self, more: &Outcomes) {
        let (offset, before) = (self.bytes.len(), self.ends.len());
        self.bytes.extend_from_slice(&more.bytes);
        self.ends.extend(more.ends.iter().map(|(end, recipients)| (end + offset, *recipients)));
        self.unreferenced.extend(more.unreferenced.iter().map(|(records, content)| (records + before, *content)));
        self.recipients += more.recipients;
        self.since = self.since.or(more.since);
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.unreferenced.clear();
        self.recipients = 0;
        self.since = None;
    }
}

pub struct Hub {
    pub store: Store,
    pub sched: Scheduler,
    pub bodies: Bodies,
    /// Outcomes waiting for a batch.
    pub outcomes: Outcomes,
    /// Recipients with outcomes in the batch being written; they count as unsynced.
    pub syncing_recipients: usize,
    /// Recipients with a fate in the batch being written. No other outcome may be recorded for them, since replay would
    /// find both.
    pub in_batch: HashMap<MessageNo, IdSet, foldhash::fast::FixedState>,
    /// Recipients that leave the quarantine, or no longer miss a post, in the batch being written. A post that ends
    /// with it has an entry, too.
    leaving: HashMap<MessageId, IdSet, foldhash::fast::FixedState>,
    handed_out: usize,
    starved: Vec<ConnId>,
    /// How often a connection got no work because of [`COMPLETIONS_MAX`].
    pub starvings: u64,
    signals: HashMap<ConnId, Arc<Signal>, foldhash::fast::FixedState>,
    /// When the ticker will wake.
    tick_at: Option<Ms>,
    completions_announced: bool,
    /// Messages that ended during this hold of the lock.
    finished: Vec<MessageNo>,
    /// Ids in use outside the store.
    pub pins: Pins,
    /// Posts whose progress is tracked.
    pub posts: RunningPosts,
    is_stopping: bool,
}

impl Hub {
    /// Creates the hub, and restores suspensions, standing bounces and the operator's queue-only settings.
    pub fn new(store: Store, mut sched: Scheduler, bodies_bytes_max: usize) -> Hub {
        store.suspended().for_each(|what| sched.set_suspended(what, true, 0, ""));
        let others = store.standing_bounces().chain(store.queue_only());
        others.for_each(|(what, until, reason)| sched.set_suspended(what, true, until, reason));
        Hub {
            store,
            sched,
            bodies: Bodies::new(bodies_bytes_max),
            outcomes: Outcomes::default(),
            syncing_recipients: 0,
            in_batch: HashMap::default(),
            leaving: HashMap::default(),
            handed_out: 0,
            starved: Vec::new(),
            starvings: 0,
            signals: HashMap::default(),
            tick_at: None,
            completions_announced: false,
            finished: Vec::new(),
            pins: Pins::default(),
            posts: RunningPosts::default(),
            is_stopping: false,
        }
    }

    /// Converts the scheduler's effects to acts, and returns other work that is due.
    pub fn collect_acts(&mut self, acts: &mut SmallVec<[Act; 8]>) -> FollowUp {
        for no in self.finished.drain(..) {
            self.sched.finished(no);
        }
        for effect in self.sched.effects() {
            match effect {
                Effect::Resolve { domain } => {
                    acts.push(Act::Resolve { domain, name: self.store.book.domain_name(domain).to_owned() });
                }
                Effect::ForgetLookUp { domain } => acts.push(Act::ForgetLookUp { domain }),
                Effect::Connect { conn, source, target, .. } => {
                    let signal = Arc::new(Signal::default());
                    self.signals.insert(conn, signal.clone());
                    acts.push(Act::Connect { conn, source, target, signal });
                }
                Effect::Work { conn } => acts.extend(self.signals.get(&conn).cloned().map(Act::Wake)),
                Effect::Close { conn } => acts.extend(self.signals.get(&conn).cloned().map(Act::Close)),
                Effect::GiveWay { conn } => acts.extend(self.signals.get(&conn).cloned().map(Act::GiveWay)),
                Effect::Delayed { no } => acts.push(Act::Delayed { no }),
                Effect::FastDone { no, pending } => acts.extend(self.store.message(no).map(|post| Act::FastDone {
                    id: post.id(),
                    list: post.list().unwrap_or_default().to_owned(),
                    total: post.total(),
                    pending,
                })),
                Effect::Suspend { list, id, posts, since, text } => {
                    let address = self.store.book.text(id).to_owned();
                    acts.push(Act::Suspend { list, address, posts, since, text });
                }
                Effect::Coalesce { list, posts, ids } => acts.push(Act::Coalesce { list, posts, ids }),
                Effect::Bounce { no, failures } => acts.push(Act::Bounce { no, failures }),
            }
        }
        let next = self.next_due();
        let tick = next.is_some_and(|next| self.tick_at.is_none_or(|at| next < at));
        if tick {
            self.tick_at = next;
        }
        let announce = !self.outcomes.is_empty() && !std::mem::replace(&mut self.completions_announced, true);
        let completions = self.outcomes.since.filter(|_| announce);
        FollowUp { tick, completions }
    }

    /// Returns when the hub needs its next tick. The time is remembered, so that [`Hub::collect_acts`] wakes the ticker
    /// only for an earlier one.
    pub fn next_tick(&mut self) -> Option<Ms> {
        self.tick_at = self.next_due();
        self.tick_at
    }

    fn next_due(&self) -> Option<Ms> {
        if self.store.is_counting() {
            return Some(0);
        }
        [self.sched.next_tick(), self.bodies.next_tick()].into_iter().flatten().min()
    }

    /// Runs one slice of clocks and counting.
    pub fn tick(&mut self, now: Ms) {
        self.sched.tick(&self.store, now);
        self.store.count_on(COUNTED_PER_TICK);
        self.bodies.tick(now);
    }

    /// Shifts all times after the system clock was set; `now` is the new time. Messages of this run, which began with
    /// the id `since`, were accepted by the old clock.
    pub fn clock_moved(&mut self, since: MessageId, by: i64, now: Ms) {
        self.store.apply(Event::ClockMoved { since, by });
        self.sched.clock_moved(by, now);
        self.bodies.clock_moved(by);
        // The ticker sleeps until a time of the old clock.
        self.tick_at = None;
    }

    /// Returns the next transaction for a connection, unless the limit of unsynced outcomes is reached.
    pub fn take_work(&mut self, conn: ConnId, now: Ms) -> Option<Work> {
        if self.unsynced() >= COMPLETIONS_MAX {
            self.starved.push(conn);
            self.starvings += 1;
            return None;
        }
        let work = self.sched.take_work(&self.store, conn, now)?;
        self.handed_out += work.ids.len();
        Some(work)
    }

    /// Takes recipients out of a transaction that was just handed out: they are removed, `by` says why. Returns whether
    /// others are left.
    pub fn remove_from_work(&mut self, conn: ConnId, work: &mut Work, ids: &IdSet, by: &str, now: Ms) -> bool {
        self.outcome_by(work.no, Fate::Removed, ids, Some(by), now);
        let before = work.ids.len();
        let are_left = self.sched.withdraw(&self.store, conn, work, ids, now);
        self.handed_back(before - work.ids.len());
        are_left
    }

    /// Wakes a connection that was told that there is no work, to ask again.
    pub fn wake(&self, conn: ConnId) {
        if let Some(signal) = self.signals.get(&conn) {
            signal.wake();
        }
    }

    /// Subtracts the recipients of a transaction from those handed out.
    pub fn handed_back(&mut self, recipients: usize) {
        self.handed_out -= recipients;
        self.wake_starved();
    }

    /// Resumes connections that waited because of the limit, if it permits.
    fn wake_starved(&mut self) {
        if self.unsynced() >= COMPLETIONS_MAX {
            return;
        }
        for conn in self.starved.drain(..) {
            if let Some(signal) = self.signals.get(&conn) {
                signal.wake();
            }
        }
    }

    /// Returns the number of recipients that a crash could now repeat.
    fn unsynced(&self) -> usize {
        self.handed_out + self.outcomes.recipients + self.syncing_recipients
    }

    /// Stops giving out work, and wakes waiting connections so that they notice.
    pub fn stop(&mut self) {
        self.is_stopping = true;
        self.sched.stop();
        for signal in self.signals.values() {
            signal.wake();
        }
    }

    /// Records outcomes, in the store now and in the journal with the next batch.
    pub fn outcome(&mut self, no: MessageNo, fate: Fate, ids: &IdSet, now: Ms) {
        self.outcome_by(no, fate, ids, None, now);
    }

    /// As [`Hub::outcome`]; `by` is recorded with the fate.
    pub fn outcome_by(&mut self, no: MessageNo, fate: Fate, ids: &IdSet, by: Option<&str>, now: Ms) {
        let rest = self.in_batch.get(&no).map(|taken| ids.difference(taken));
        let ids = rest.as_ref().unwrap_or(ids);
        let before = self.outcomes.bytes.len();
        let applied = self.store.record_fate(no, fate, ids, by, now, &mut self.outcomes.bytes);
        let (EventEffect::Recorded { recipients, .. } | EventEffect::Finished { recipients, .. }) = applied else {
            debug_assert_eq!(before, self.outcomes.bytes.len(), "what changes nothing is not written");
            return;
        };
        self.outcomes.ends.push((self.outcomes.bytes.len(), recipients as usize));
        self.outcomes.recipients += recipients as usize;
        self.outcomes.since.get_or_insert(now);
        self.fate_recorded(applied, fate, now);
        self.ended(applied);
    }

    /// Records mailbox and host history of a transaction, which orders later ones. Outcomes of one domain must be
    /// adjacent.
    pub fn remember(&mut self, begun: Ms, outcomes: &[RcptOutcome], session: SessionSoFar, now: Ms) {
        let judge = Judge::of(outcomes, session);
        let xdelay_ms = now.saturating_sub(begun);
        let mut at = 0;
        while let Some(first) = outcomes.get(at) {
            let domain = self.store.book.try_domain(first.id);
            let (mut answered, mut tried) = (false, false);
            while let Some(outcome) = outcomes.get(at).filter(|o| self.store.book.try_domain(o.id) == domain) {
                at += 1;
                let verdict = judge.verdict(outcome);
                match (verdict, verdict.about()) {
                    (Verdict::Delivered, _) => self.store.book.delivered(outcome.id, now, xdelay_ms),
                    (_, HistorySubject::Mailbox) => self.store.book.refused(outcome.id, now, verdict.is_failure()),
                    (_, HistorySubject::Hosts | HistorySubject::Nothing) => {}
                }
                answered |= verdict.about() == HistorySubject::Mailbox;
                tried |= verdict.about() != HistorySubject::Nothing;
            }
            let Some(domain) = domain.filter(|_| tried) else { continue };
            let connections = self.sched.connections_at(domain) as u16;
            let attempt = if answered { SiteAttempt::Answered { xdelay_ms, connections } } else { SiteAttempt::Failed };
            self.store.book.site_attempt(domain, now, attempt);
        }
    }

    /// Reserves those of `ids` that are pending and have no fate in the batch being built. Their fate is applied when
    /// the batch is durable.
    pub fn claim_for_batch(&mut self, message: MessageId, ids: &IdSet) -> Option<IdSet> {
        let no = self.store.no_of(message)?;
        let mut ids = self.store.message(no)?.pending().intersection(ids);
        if let Some(taken) = self.in_batch.get(&no) {
            ids.subtract(taken);
        }
        if ids.is_empty() {
            return None;
        }
        self.in_batch.entry(no).or_default().union_with(&ids);
        Some(ids)
    }

    /// Reserves those of `ids` that are in the quarantine and do not yet leave it with the batch being built.
    pub fn claim_from_quarantine(&mut self, message: MessageId, ids: &IdSet) -> Option<IdSet> {
        let mut ids = self.store.in_quarantine(message)?.pending().intersection(ids);
        if let Some(taken) = self.leaving.get(&message) {
            ids.subtract(taken);
        }
        if ids.is_empty() {
            return None;
        }
        self.leaving.entry(message).or_default().union_with(&ids);
        Some(ids)
    }

    /// Reserves those of `ids` that missed a post and are not yet sent it again by the batch being built. `None` also
    /// while outcomes are applied that this batch does not have: their records would follow the resend, and count its
    /// recipients as missing the post again.
    pub fn claim_missed(&mut self, post: MessageId, ids: &IdSet) -> Option<IdSet> {
        let mut ids = self.store.post(post)?.missed().intersection(ids);
        match self.leaving.get(&post) {
            // Another resend, or the end of the post.
            Some(taken) if taken.is_empty() => return None,
            Some(taken) => drop(ids.subtract(taken)),
            None => {}
        }
        if ids.is_empty() || !self.outcomes.is_empty() {
            return None;
        }
        self.leaving.entry(post).or_default().union_with(&ids);
        Some(ids)
    }

    /// Reserves a post for its end, unless one of its messages is queued, or the batch being built sends it again or
    /// ends it already. A resend may have been accepted since the end was decided.
    pub fn claim_post_end(&mut self, post: MessageId) -> bool {
        let is_over = self.store.post(post).is_some_and(|kept| self.store.waiting_for_post(kept) == 0);
        if !is_over || self.leaving.contains_key(&post) {
            return false;
        }
        self.leaving.insert(post, IdSet::new());
        true
    }

    /// Ends all reservations: the batch is durable and applied, or refused.
    pub fn batch_over(&mut self) {
        self.in_batch.clear();
        self.leaving.clear();
    }

    /// Applies an event to the store, and forgets messages that it ended.
    pub fn apply(&mut self, event: Event<'_>) -> EventEffect {
        let outcome = if let Event::Outcome { fate, at, .. } = &event { Some((*fate, *at)) } else { None };
        let applied = self.store.apply(event);
        if let Some((fate, at)) = outcome {
            self.fate_recorded(applied, fate, at);
        }
        self.ended(applied);
        applied
    }

    /// Starts tracking a post. `is_new`: it just became durable; otherwise it was live at startup.
    pub fn follow(&mut self, no: MessageNo, is_new: bool) {
        if let Some(message) = self.store.message(no) {
            self.posts.follow(no, message, is_new);
        }
    }

    fn fate_recorded(&mut self, applied: EventEffect, fate: Fate, at: Ms) {
        match applied {
            EventEffect::Recorded { no, recipients } => self.posts.record_fate(no, fate, recipients, false, at),
            EventEffect::Finished { no, recipients, .. } => self.posts.record_fate(no, fate, recipients, true, at),
            EventEffect::New(_) | EventEffect::Noted | EventEffect::Freed(_) | EventEffect::Nothing => {}
        }
    }

    /// Applies an operator's durable fate to recipients that were reserved until now.
    pub fn taken_out(&mut self, message: MessageId, fate: Fate, ids: &IdSet, by: &str, now: Ms) {
        let Some(no) = self.store.no_of(message) else { return };
        self.apply(Event::Outcome { message, fate, ids: ids.clone(), by: Some(by), at: now });
        self.sched.removed(&self.store, no, ids, now);
    }

    fn ended(&mut self, applied: EventEffect) {
        if let EventEffect::Freed(content) = applied {
            self.bodies.forget(content);
            self.outcomes.unreferenced.push((self.outcomes.ends.len(), content.0));
        }
        if let EventEffect::Finished { no, content, unreferenced, .. } = applied {
            // Reported to the scheduler after it has processed the transaction that ended the message.
            self.finished.push(no);
            if unreferenced {
                self.bodies.forget(content);
                self.outcomes.unreferenced.push((self.outcomes.ends.len(), content.0));
            }
        }
    }

    /// Moves as many outcomes as fit into the committer's batch; remaining and new ones are announced again.
    pub fn take_outcomes(&mut self, bytes_max: usize, into: &mut Outcomes) {
        self.outcomes.split_front(bytes_max, into);
        self.completions_announced = false;
        self.syncing_recipients = into.recipients;
    }

    /// Resumes waiting connections: the taken outcomes are durable.
    pub fn outcomes_synced(&mut self) {
        self.syncing_recipients = 0;
        self.wake_starved();
    }

    /// Puts back outcomes that could not be written, before newer ones.
    pub fn outcomes_refused(&mut self, taken: &mut Outcomes) {
        let since = std::mem::take(&mut self.outcomes);
        std::mem::swap(&mut self.outcomes, taken);
        self.outcomes.append(&since);
        self.syncing_recipients = 0;
    }

    pub fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    pub fn connection_gone(&mut self, conn: ConnId) {
        self.signals.remove(&conn);
    }

    pub fn connections(&self) -> usize {
        self.signals.len()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use stentor_mail::reply::Enhanced;
    use stentor_queue::event::Accept;
    use stentor_sched::{SchedConfig, Stage};

    use super::*;

    /// Builds the acceptance of an ordinary message.
    pub fn accept(number: u64, recipients: &[u32], accepted: Ms) -> Accept {
        Accept {
            size: 1,
            recipients: recipients.iter().copied().collect(),
            ..Accept::bare(MessageId(number), accepted)
        }
    }

    #[test]
    fn a_batch_settles_nobody_twice() {
        let mut hub = Hub::new(Store::new(), Scheduler::new(SchedConfig::default(), 1), 0);
        let message = MessageId(7);
        let accept = accept(7, &[1, 2, 3, 4], 0);
        let EventEffect::New(no) = hub.apply(Event::Accept(Box::new(accept))) else { panic!("not new") };
        assert_eq!(hub.claim_for_batch(message, &(1..=2).collect()), Some((1..=2).collect()));
        assert_eq!(hub.claim_for_batch(message, &(2..=3).collect()), Some(IdSet::one(3)), "a verb beside a report");
        assert_eq!(hub.claim_for_batch(message, &(1..=3).collect()), None);
        hub.outcome(no, Fate::Delivered, &(1..=3).collect(), 5);
        assert!(hub.outcomes.is_empty(), "an outcome beside the fate in the batch");
        hub.outcome(no, Fate::Delivered, &(1..=4).collect(), 5);
        assert_eq!(hub.outcomes.recipients, 1);
        hub.in_batch.clear();
        assert_eq!(hub.claim_for_batch(message, &(1..=4).collect()), Some((1..=3).collect()), "who is pending still");
    }

    #[test]
    fn a_post_does_not_end_while_a_resend_waits() {
        let mut hub = Hub::new(Store::new(), Scheduler::new(SchedConfig::default(), 1), 0);
        let (post, resend, until) = (MessageId(7), MessageId(8), 100);
        let EventEffect::New(no) = hub.apply(Event::Accept(Box::new(accept(7, &[1, 2], 0)))) else { panic!("not new") };
        hub.apply(Event::Post { message: post, until });
        assert!(!hub.claim_post_end(post), "it is queued");
        hub.outcome(no, Fate::Bounced, &(1..=2).collect(), 5);
        assert!(hub.claim_post_end(post), "nothing waits");
        assert!(!hub.claim_post_end(post), "the batch ends it");
        hub.batch_over();
        let EventEffect::New(no) = hub.apply(Event::Accept(Box::new(accept(8, &[1], 6)))) else { panic!("not new") };
        hub.apply(Event::Resend { of: post, message: resend, until });
        assert!(!hub.claim_post_end(post), "a resend waits");
        hub.outcome(no, Fate::Delivered, &IdSet::one(1), 7);
        assert!(hub.claim_post_end(post), "the resend is over");
    }

    #[test]
    fn history_is_of_who_answered() {
        use stentor_queue::book::LastOutcome;
        const NOW: Ms = 1_800_000_000_000;
        let mut hub = Hub::new(Store::new(), Scheduler::new(SchedConfig::default(), 1), 0);
        let mut id = |text: &str| hub.store.book.intern(text).map(|(id, _)| id).expect("room");
        let (a, b, c, d) = (id("a@x.example"), id("b@x.example"), id("c@x.example"), id("d@y.example"));
        let outcome = |id, stage, code, dsn| RcptOutcome { id, stage, code, dsn, text: "".into() };
        let outcomes = [
            outcome(a, Stage::Final, 250, None),
            outcome(b, Stage::Rcpt, 550, Some(Enhanced::new(5, 1, 1))),
            outcome(c, Stage::Rcpt, 452, Some(Enhanced::new(4, 5, 3))),
            outcome(d, Stage::Rcpt, 450, Some(Enhanced::new(4, 2, 2))),
        ];
        hub.remember(NOW - 1_000, &outcomes, SessionSoFar::default(), NOW);
        let last = |hub: &Hub, id| hub.store.book.history(id).last();
        assert_eq!(
            [a, b, c, d].map(|id| last(&hub, id)),
            [LastOutcome::Delivered, LastOutcome::Refused, LastOutcome::Untried, LastOutcome::Deferred]
        );
        assert!(hub.store.book.history(a).xdelay_ms().is_some_and(|ms| (900..=1_000).contains(&ms)));
        let counts = |hub: &Hub, id| hub.store.book.site_history(hub.store.book.domain(id)).counts(NOW);
        assert_eq!((counts(&hub, a), counts(&hub, d)), ((1, 0), (1, 0)), "hosts that answer are well");
        // A reply about the hosts does not count for the mailbox, and a fault of our own counts for neither.
        hub.remember(NOW, &[outcome(a, Stage::Lost, 0, None)], SessionSoFar::default(), NOW);
        hub.remember(NOW, &[outcome(d, Stage::Content, 0, None)], SessionSoFar::default(), NOW);
        assert_eq!((last(&hub, a), counts(&hub, a), counts(&hub, d)), (LastOutcome::Delivered, (1, 1), (1, 0)));
        hub.remember(
            NOW,
            &[outcome(d, Stage::Final, 451, None), outcome(a, Stage::Rcpt, 421, None)],
            SessionSoFar::default(),
            NOW,
        );
        assert_eq!((counts(&hub, a), counts(&hub, d)), ((1, 2), (1, 1)));
    }

    /// One verdict serves log, history of mailboxes and hosts, and scheduler: a recipient to retry is deferred in all
    /// of them.
    #[test]
    fn all_views_of_a_reply_agree() {
        use stentor_queue::book::LastOutcome;
        use stentor_records::record::Stat;
        const NOW: Ms = 1_800_000_000_000;
        let mut hub = Hub::new(Store::new(), Scheduler::new(SchedConfig::default(), 1), 0);
        let d = |text| Enhanced::parse(text);
        let table = [
            // Too many recipients, as old servers report it: counts for neither mailbox nor host.
            ((Stage::Rcpt, 552, d("5.5.3"), ""), false, Stat::Deferred, "4.5.3", LastOutcome::Untried, (1, 0)),
            // An LMTP reply after the data is about the mailbox.
            ((Stage::Final, 452, d("4.2.2"), "full"), true, Stat::Deferred, "4.2.2", LastOutcome::Deferred, (1, 0)),
            ((Stage::Final, 550, d("5.1.1"), "gone"), true, Stat::Bounced, "5.1.1", LastOutcome::Refused, (1, 0)),
            // An SMTP reply after the data is about the message.
            ((Stage::Final, 452, d("4.2.2"), "full"), false, Stat::Deferred, "4.2.2", LastOutcome::Untried, (1, 0)),
            // The host limits our rate: neither the mailbox's doing nor a failure of the hosts.
            (
                (Stage::Rcpt, 450, d("4.7.1"), "rate limited"),
                false,
                Stat::Deferred,
                "4.7.1",
                LastOutcome::Untried,
                (1, 0),
            ),
            ((Stage::Mail, 421, None, "bye"), false, Stat::Deferred, "4.0.0", LastOutcome::Untried, (1, 0)),
            ((Stage::Rcpt, 550, d("4.7.1"), "no"), false, Stat::Bounced, "5.7.1", LastOutcome::Refused, (1, 0)),
        ];
        for (n, ((stage, code, dsn, text), lmtp, stat, told, last, counts)) in table.into_iter().enumerate() {
            let mut id = |text: String| hub.store.book.intern(&text).map(|(id, _)| id).expect("room");
            let (one, other) = (id(format!("a@d{n}.example")), id(format!("b@d{n}.example")));
            let outcome = |id, stage, code, dsn, text: &str| RcptOutcome { id, stage, code, dsn, text: text.into() };
            // A second, delivered recipient, so that the hosts count as answering in every case.
            let outcomes = [outcome(one, stage, code, dsn, text), outcome(other, Stage::Final, 250, None, "ok")];
            let session = SessionSoFar { is_lmtp: lmtp, has_delivered: false };
            let verdict = Judge::of(&outcomes, session).verdict(&outcomes[0]);
            assert_eq!(super::super::log::stat(verdict), stat, "{code} {text}");
            assert_eq!(verdict.dsn(dsn).to_string(), told, "{code} {text}");
            assert_eq!(verdict.is_final(), stat != Stat::Deferred, "{code} {text}");
            hub.remember(NOW, &outcomes, session, NOW);
            assert_eq!(hub.store.book.history(one).last(), last, "{code} {text}");
            assert_eq!(hub.store.book.site_history(hub.store.book.domain(one)).counts(NOW), counts, "{code} {text}");
        }
    }

    #[test]
    fn outcomes_are_taken_as_they_fit_and_in_order() {
        let mut all = Outcomes::default();
        for n in 0..10u8 {
            all.bytes.extend_from_slice(&[n; 10]);
            all.ends.push((all.bytes.len(), 2));
            all.recipients += 2;
            all.unreferenced.push((all.ends.len(), n.into()));
        }
        let mut first = Outcomes::default();
        all.split_front(35, &mut first);
        assert_eq!(
            first.unreferenced().collect::<Vec<_>>(),
            [0, 1, 2],
            "no content goes before the outcome that ended it"
        );
        assert_eq!(first.records().map(|record| record[0]).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!((first.recipients, all.recipients), (6, 14));
        // The batch was refused.
        first.append(&std::mem::take(&mut all));
        all = first;
        let (mut first, mut rest) = (Outcomes::default(), Outcomes::default());
        all.split_front(55, &mut first);
        assert_eq!(first.unreferenced().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        all.split_front(1000, &mut rest);
        assert_eq!(rest.unreferenced().collect::<Vec<_>>(), [5, 6, 7, 8, 9]);
        assert_eq!(rest.records().map(|record| (record[0], record.len())).last(), Some((9, 10)));
        assert!(all.is_empty());
    }
}
