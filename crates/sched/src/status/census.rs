//! Counts the pending recipients by cause of waiting: by site (or domain without one), by list, by large message and in
//! total.
//!
//! Promise: the count runs in slices, so that nothing stalls meanwhile. Every pending recipient is counted once, under
//! the cause that [`Scheduler::recipient_status`] names for it. Mail that comes or goes between two slices may or may
//! not be counted. Memory: some 200 bytes for each site with mail, and for each domain with mail that has no site.

use std::sync::Arc;

use smallvec::SmallVec;
use stentor_queue::age::{BUCKETS, bucket};
use stentor_queue::cause::Cause;
use stentor_queue::ids::{AddressId, DomainId, MessageNo, Ms, SiteId};
use stentor_queue::message::Message;
use stentor_queue::store::Store;

use super::attempt::{Attempts, ConnectionAttempt};
use super::place::SiteConditions;
use crate::Scheduler;
use crate::effects::SessionStep;
use crate::keeper::Keeper;
use crate::reasons::{HostReply, Reason};
use crate::tables::Map;

/// Messages with fewer pending recipients have no row of their own: they are counted on demand.
pub const LARGE_RECIPIENTS_MIN: usize = 256;
/// Cost of beginning a message, and of visiting a site, in recipients.
const MESSAGE_STEPS: usize = 4;
const SITE_STEPS: usize = 8;

/// Recipients with one cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CauseCount {
    pub cause: Cause,
    pub recipients: u64,
    /// The earliest next try among them, wall time; `None`: some do not wait for a clock.
    pub next_try: Option<Ms>,
    /// The connection attempt that all of them wait for, or the one that has been silent longest.
    pub attempt: Option<ConnectionAttempt>,
    /// Who keeps them, if they are held, suspended or queue-only.
    pub keeper: Keeper,
    reason: Reason,
}

impl CauseCount {
    /// The cause of the last failure of these recipients.
    pub fn failed_with(&self) -> Option<Cause> {
        Some(self.reason.cause).filter(|_| !self.reason.is_none())
    }

    /// Adds recipients with the same cause.
    pub fn add(&mut self, more: CauseCount) {
        self.recipients += more.recipients;
        self.keeper = self.keeper.and(more.keeper);
        self.next_try = self.next_try.zip(more.next_try).map(|(a, b)| a.min(b));
        self.attempt = match (self.attempt, more.attempt) {
            // Of silent hosts, the one that has been silent longest.
            (Some(one), Some(other)) if [one.reach, other.reach] == [SessionStep::Reply; 2] => {
                Some(if other.since < one.since { other } else { one })
            }
            (one, other) => one.filter(|one| other == Some(*one)),
        };
        self.reason = more.reason;
    }
}

/// Waiting recipients at one place, by cause.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CauseCounts {
    /// Counts in the order of [`Cause::ALL`].
    pub causes: SmallVec<[CauseCount; 1]>,
    pub messages: u64,
    /// The oldest message among them.
    pub oldest: Option<MessageNo>,
    /// Recipients by age of the message; counted for sites and domains only, zero elsewhere.
    pub by_age: [u64; BUCKETS],
    /// The message counted last: messages come one after the other.
    last: Option<u32>,
}

impl CauseCounts {
    pub fn recipients(&self) -> u64 {
        self.causes.iter().map(|count| count.recipients).sum()
    }

    pub fn of(&self, cause: Cause) -> u64 {
        self.causes.iter().find(|count| count.cause == cause).map_or(0, |count| count.recipients)
    }

    /// The cause of most recipients; among equal ones, a failure before a normal state.
    pub fn main(&self) -> Option<&CauseCount> {
        self.causes.iter().max_by_key(|count| (count.recipients, !count.cause.is_moving()))
    }

    /// The earliest next try of recipients that no operator keeps and that are in no transaction; `None`: some may go
    /// now, or there are none.
    pub fn next_try(&self) -> Option<Ms> {
        let tried = self.causes.iter().filter(|count| count.cause.is_tried_next());
        tried.map(|count| count.next_try.unwrap_or(0)).min().filter(|at| *at > 0)
    }

    /// Whether an operator keeps all of them.
    pub fn are_kept(&self) -> bool {
        !self.causes.is_empty() && self.causes.iter().all(|count| count.cause.is_kept())
    }

    /// Adds recipients that wait at the same place.
    pub fn add(&mut self, more: CauseCount) {
        match self.causes.binary_search_by_key(&more.cause, |count| count.cause) {
            Err(at) => self.causes.insert(at, more),
            Ok(at) => self.causes[at].add(more),
        }
    }

    fn note_oldest(&mut self, no: MessageNo, newest: u32) {
        let age = |no: MessageNo| newest.wrapping_sub(no.0);
        self.oldest = Some(self.oldest.filter(|oldest| age(*oldest) >= age(no)).unwrap_or(no));
    }

    fn add_all(&mut self, more: &CauseCounts) {
        more.causes.iter().for_each(|count| self.add(*count));
    }
}

/// The part of the queue that is counted; by default all of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QueuePart {
    /// Only mail of this list.
    pub list: Option<Box<str>>,
    /// Only recipients at this place.
    pub at: Option<WaitingPlace>,
}

/// A place where recipients wait.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum WaitingPlace {
    Site(SiteId),
    /// A domain without a site.
    Domain(DomainId),
}

impl QueuePart {
    pub fn is_all(&self) -> bool {
        *self == QueuePart::default()
    }

    pub fn has_message(&self, message: &Message) -> bool {
        self.list.is_none() || message.list() == self.list.as_deref()
    }

    fn has(&self, store: &Store, id: AddressId, site: Option<SiteId>) -> bool {
        match self.at {
            None => true,
            Some(WaitingPlace::Site(wanted)) => site == Some(wanted),
            Some(WaitingPlace::Domain(wanted)) => store.book.try_domain(id) == Some(wanted),
        }
    }
}

/// Counts by the number of a site or domain.
#[derive(Default)]
struct Places(Vec<Option<Box<CauseCounts>>>);

impl Places {
    fn get(&mut self, no: u32) -> &mut CauseCounts {
        let at = no as usize;
        if at >= self.0.len() {
            self.0.resize_with(at + 1, || None);
        }
        self.0[at].get_or_insert_default()
    }

    fn iter(&self) -> impl Iterator<Item = (u32, &CauseCounts)> {
        self.0.iter().enumerate().filter_map(|(no, counts)| Some((no as u32, counts.as_deref()?)))
    }
}

/// A census; see the module's head.
#[derive(Default)]
pub struct Census {
    part: QueuePart,
    message: Option<u32>,
    id: Option<u32>,
    /// Counts of the current message.
    current: CauseCounts,
    /// Reused between slices to save allocations.
    seen: Map<(SiteId, u64), SiteConditions>,
    /// State of the connections when the count began.
    open: Option<ConnectionStates>,
    /// The number given last; message numbers wrap around.
    newest: u32,
    /// The age bucket of the current message.
    age: usize,
    sites: Places,
    /// Domains without a site: not looked up yet, or failed.
    domains: Places,
    /// Counts by list; mail of no list is under the empty name.
    pub lists: Map<Arc<str>, CauseCounts>,
    /// Counts of messages with at least [`LARGE_RECIPIENTS_MIN`] pending recipients.
    pub large: Map<MessageNo, CauseCounts>,
    pub total: CauseCounts,
    /// Octets of the counted messages, the number of held messages, and the number whose recipients are all held or
    /// suspended.
    pub octets: u64,
    pub held: u64,
    pub stopped: u64,
}

impl Census {
    /// A census of this part alone.
    pub fn of(part: QueuePart) -> Census {
        Census { part, ..Census::default() }
    }

    pub fn at(&self, at: WaitingPlace) -> Option<&CauseCounts> {
        let (places, no) = match at {
            WaitingPlace::Site(site) => (&self.sites, site.0),
            WaitingPlace::Domain(domain) => (&self.domains, domain.0),
        };
        places.0.get(no as usize)?.as_deref()
    }

    /// Sites with pending recipients.
    pub fn sites(&self) -> impl Iterator<Item = (SiteId, &CauseCounts)> {
        self.sites.iter().map(|(no, counts)| (SiteId(no), counts))
    }

    /// Domains without a site that have pending recipients.
    pub fn unresolved(&self) -> impl Iterator<Item = (DomainId, &CauseCounts)> {
        self.domains.iter().map(|(no, counts)| (DomainId(no), counts))
    }

    /// Looks at up to `ids_max` recipients. Returns whether all have been counted.
    pub fn step(&mut self, sched: &Scheduler, store: &Store, mut ids_max: usize, now: Ms) -> bool {
        let open = self
            .open
            .take()
            .unwrap_or_else(|| ConnectionStates { silent: sched.silent(), attempts: sched.attempts(None) });
        let mut seen = VisitedSites { now: sched.steady(now), sites: std::mem::take(&mut self.seen), open };
        seen.sites.clear();
        self.newest = sched.state.newest;
        let is_done = loop {
            // Checked before the next message is begun, or that one would count as begun.
            if ids_max == 0 {
                break false;
            }
            let no = match (self.id, self.message) {
                (Some(_), no) => no,
                (None, after) => sched.state.messages.next(after),
            };
            let Some(no) = no else { break true };
            self.message = Some(no);
            let no = MessageNo(no);
            let message = store.message(no);
            if message.is_some_and(|message| !self.part.has_message(message)) {
                ids_max -= 1;
                continue;
            }
            let age_ms = message.map_or(0, |message| now.saturating_sub(message.accepted()));
            self.age = bucket(age_ms);
            let mut after = self.id;
            let all = sched.walk(store, no, &mut after, &mut ids_max, &mut seen, |id, site, count| {
                if self.part.has(store, id, site) {
                    let at =
                        site.map(WaitingPlace::Site).or_else(|| store.book.try_domain(id).map(WaitingPlace::Domain));
                    self.count(no, at, count);
                }
            });
            if !all {
                self.id = after;
                break false;
            }
            self.id = None;
            self.end_of(no, message);
        };
        (self.seen, self.open) = (seen.sites, Some(seen.open));
        is_done
    }

    fn count(&mut self, no: MessageNo, at: Option<WaitingPlace>, count: CauseCount) {
        self.current.add(count);
        let counts = match at {
            None => return,
            Some(WaitingPlace::Site(site)) => self.sites.get(site.0),
            Some(WaitingPlace::Domain(domain)) => self.domains.get(domain.0),
        };
        counts.add(count);
        counts.by_age[self.age] += 1;
        counts.note_oldest(no, self.newest);
        counts.messages += u64::from(counts.last.replace(no.0) != Some(no.0));
    }

    /// Finishes the count of a message; `None`: the message has ended meanwhile.
    fn end_of(&mut self, no: MessageNo, message: Option<&Message>) {
        let mut counts = std::mem::take(&mut self.current);
        let Some(message) = message.filter(|_| !counts.causes.is_empty()) else { return };
        counts.messages = 1;
        self.total.add_all(&counts);
        self.total.messages += 1;
        self.octets += message.size();
        self.held += u64::from(message.is_held());
        let is_stopped = |count: &CauseCount| matches!(count.cause, Cause::Held | Cause::Suspended);
        self.stopped += u64::from(counts.causes.iter().all(is_stopped));
        let list = message.list().unwrap_or_default();
        if !self.lists.contains_key(list) {
            self.lists.insert(list.into(), CauseCounts::default());
        }
        if let Some(of_list) = self.lists.get_mut(list) {
            of_list.add_all(&counts);
            of_list.messages += 1;
            of_list.note_oldest(no, self.newest);
        }
        if counts.recipients() >= LARGE_RECIPIENTS_MIN as u64 {
            self.large.insert(no, counts);
        }
    }
}

/// Recipients in transactions on silent connections, and since when.
type SilentRecipients = Map<(MessageNo, AddressId), Ms>;

/// State of the connections.
struct ConnectionStates {
    silent: SilentRecipients,
    attempts: Attempts,
}

/// Sites already visited in a slice, by the sources that may send there: a message's recipients are often at the same
/// few.
struct VisitedSites {
    now: Ms,
    sites: Map<(SiteId, u64), SiteConditions>,
    open: ConnectionStates,
}

impl Scheduler {
    /// The last reply behind a count, if still known.
    pub fn reply_behind(&self, count: &CauseCount) -> Option<&HostReply> {
        self.state.reasons.get(count.reason)
    }

    /// Calls `each` for one message's pending recipients after `after`, at most `ids_max` of them, with the site of
    /// each and a count of one. Returns whether that was all.
    pub fn causes_of(
        &self,
        store: &Store,
        no: MessageNo,
        after: &mut Option<u32>,
        mut ids_max: usize,
        now: Ms,
        each: impl FnMut(AddressId, Option<SiteId>, CauseCount),
    ) -> bool {
        let is_sending = self.state.messages.get(no).is_some_and(|active| !active.in_flight.is_empty());
        let silent = if is_sending { self.silent() } else { SilentRecipients::default() };
        let open = ConnectionStates { silent, attempts: self.attempts(None) };
        let mut seen = VisitedSites { now: self.steady(now), sites: Map::default(), open };
        self.walk(store, no, after, &mut ids_max, &mut seen, each)
    }

    fn silent(&self) -> SilentRecipients {
        self.pool.silent_txs().flat_map(|(tx, since)| tx.ids.iter().map(move |id| ((tx.no, *id), since))).collect()
    }

    fn walk(
        &self,
        store: &Store,
        no: MessageNo,
        after: &mut Option<u32>,
        ids_max: &mut usize,
        seen: &mut VisitedSites,
        mut each: impl FnMut(AddressId, Option<SiteId>, CauseCount),
    ) -> bool {
        let Some(message) = store.message(no).filter(|_| self.state.messages.is_live(no)) else { return true };
        let (of_message, pending) = (self.of_message(store, no, message), message.pending());
        let sources = of_message.sources;
        *ids_max = ids_max.saturating_sub(MESSAGE_STEPS).max(1);
        for id in after.map_or_else(|| pending.iter(), |after| pending.iter_from(after)) {
            if *ids_max == 0 {
                return false;
            }
            *ids_max -= 1;
            *after = Some(id);
            let domain = store.book.try_domain(AddressId(id)).and_then(|domain| self.domains.peek(domain));
            let site = domain.and_then(|domain| domain.site);
            let at = site.map(|site| {
                *seen.sites.entry((site, sources.0)).or_insert_with(|| {
                    *ids_max = ids_max.saturating_sub(SITE_STEPS);
                    self.at_site(site, sources, &seen.open.attempts, seen.now)
                })
            });
            let silent_since = |no, id| seen.open.silent.get(&(no, id)).copied();
            let place = self.place(&of_message, AddressId(id), domain, at.as_ref(), silent_since, seen.now);
            let next_try = place.until.filter(|until| *until > seen.now).map(|until| self.state.time.wall(until));
            let attempt = place.attempt.map(|attempt| self.dated(attempt));
            let (cause, reason, keeper) = (place.cause, place.reason, place.keeper);
            each(AddressId(id), site, CauseCount { cause, recipients: 1, next_try, attempt, keeper, reason });
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_try_is_of_what_no_operator_keeps() {
        let counts = |all: &[(Cause, Option<Ms>)]| {
            let mut counts = CauseCounts::default();
            for (cause, next_try) in all {
                let (cause, next_try) = (*cause, *next_try);
                let (attempt, keeper, reason) = (None, Keeper::None, Reason::NONE);
                counts.add(CauseCount { cause, recipients: 1, next_try, attempt, keeper, reason });
            }
            counts.next_try()
        };
        let refused = (Cause::Refused, Some(9));
        assert_eq!(counts(&[refused, (Cause::Greylisted, Some(5)), (Cause::Suspended, None)]), Some(5));
        assert_eq!(counts(&[refused, (Cause::Ready, None), (Cause::Held, None)]), None, "some may go now");
        assert_eq!(counts(&[(Cause::Held, None)]), None);
    }
}
