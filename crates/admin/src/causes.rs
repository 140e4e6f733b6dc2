//! Why mail waits, counted once for all views: every command, page and metric shows sums of the same census.
//!
//! Promise: a queue of up to [`SMALL_RECIPIENTS`] is counted for each answer, or shared for up to [`SHARED_MAX`]. No
//! view waits for the count of a larger one: the last count is shown with its time, and renewed in the background when
//! it is older than [`PAUSE_TIMES`] times its own duration, so it uses at most 1/[`PAUSE_TIMES`] of one processor. If
//! the queue has changed much since, [`OFF_PAUSE_TIMES`] applies instead. Slices of well under a millisecond under the
//! hub's lock.
//!
//! Failure answer: answers lack causes while a large queue is counted for the first time, or after its size has more
//! than doubled or halved since the count.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use stentor_control::CauseRow;
use stentor_core::Core;
use stentor_core::hub::Hub;
use stentor_queue::cause::Cause;
use stentor_queue::ids::{DomainId, MessageNo, Ms, SiteId};
use stentor_queue::message::Message;
use stentor_sched::{CauseCount, CauseCounts, Census, QueuePart, WaitingPlace};

use crate::views::{kept, listed, reply, words};

/// Largest queue in pending recipients that is counted again for each answer.
const SMALL_RECIPIENTS: u64 = 20_000;
/// Recipients examined per hold of the lock.
const STEP: usize = 4_096;
/// Domains examined per hold of the lock.
const DOMAINS_STEP: u32 = 8_192;
const AGE_MIN: Duration = Duration::from_secs(1);
/// A count stays valid for this multiple of its own duration.
const PAUSE_TIMES: u32 = 100;
/// As [`PAUSE_TIMES`], for a count that no longer matches the queue.
const OFF_PAUSE_TIMES: u32 = 10;
/// Time for which the count of a small queue is shared.
const SHARED_MAX: Duration = Duration::from_millis(200);
/// A count is stale once the queue differs from it by more than one part in this many.
const OFF_PART: u64 = 5;
/// An older count is not shown: its site ids may have been reassigned.
const STALE_MAX: Duration = Duration::from_mins(30);
const PAST_EVERY_MS: Ms = 60_000;
/// Maximum counts of parts of the queue kept.
const PARTS_MAX: usize = 16;
/// Number of counts kept: one hour.
const PAST_MAX: usize = 60;
/// Growth is measured against a count at least this old.
const GROWTH_MS_MIN: Ms = 10 * 60_000;

/// A count, and when it began.
pub struct DatedCensus {
    pub at: Ms,
    pub census: Census,
    begun: Instant,
    took: Duration,
}

impl DatedCensus {
    /// Whether a large queue does not need a new count yet.
    fn is_current(&self, pending: u64) -> bool {
        self.begun.elapsed() < good_for(self.took, self.census.total.recipients(), pending)
    }

    /// Whether the count is for a queue of similar size: more than half, less than twice.
    fn is_alike(&self, pending: u64) -> bool {
        are_alike(self.census.total.recipients(), pending)
    }
}

/// How long a count is valid, from its duration and the numbers of recipients counted and now pending.
fn good_for(took: Duration, counted: u64, pending: u64) -> Duration {
    let times = if counted.abs_diff(pending) <= pending / OFF_PART { PAUSE_TIMES } else { OFF_PAUSE_TIMES };
    AGE_MIN.max(took * times)
}

fn are_alike(counted: u64, pending: u64) -> bool {
    counted <= pending.saturating_mul(2) && pending <= counted.saturating_mul(2)
}

/// The last counts, shared by all views.
#[derive(Default)]
pub struct Censuses {
    state: Mutex<State>,
    /// Allows one count of a part at a time.
    counting_part: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct State {
    last: Option<Arc<DatedCensus>>,
    is_counting: bool,
    /// When an operator changed something: older counts of a small queue are no longer shown.
    changed: Option<Instant>,
    /// Counts of the last hour, one per minute.
    past: VecDeque<PastCounts>,
    /// Counts of parts of the queue, the newest last.
    parts: VecDeque<(QueuePart, Arc<DatedCensus>)>,
}

/// The time, and recipients by cause.
pub type PastCounts = (Ms, [u64; Cause::ALL.len()]);

impl State {
    fn counted(&mut self, counted: Arc<DatedCensus>) {
        // The clock was set back.
        self.past.retain(|past| past.0 <= counted.at);
        if self.past.back().is_none_or(|last| last.0 + PAST_EVERY_MS <= counted.at) {
            self.past.push_back((counted.at, Cause::ALL.map(|cause| counted.census.total.of(cause))));
            if self.past.len() > PAST_MAX {
                self.past.pop_front();
            }
        }
        // A large count may end after a newer small one.
        if self.last.as_ref().is_none_or(|last| last.begun <= counted.begun) {
            self.last = Some(counted);
        }
    }

    fn counted_part(&mut self, part: QueuePart, counted: Arc<DatedCensus>) {
        self.parts.retain(|(known, _)| *known != part);
        self.parts.push_back((part, counted));
        if self.parts.len() > PARTS_MAX {
            self.parts.pop_front();
        }
    }
}

impl Censuses {
    /// The newest count; `None` if a large queue is being counted and no count of similar size exists.
    pub async fn get(self: &Arc<Self>, core: &Arc<Core>) -> Option<Arc<DatedCensus>> {
        let pending = core.with(|hub, _| hub.store.pending());
        if pending <= SMALL_RECIPIENTS {
            if let Some(last) =
                self.last_within(|last| (last.took * PAUSE_TIMES).min(SHARED_MAX)).filter(|last| self.is_newer(last))
            {
                return Some(last);
            }
            let counted = Arc::new(count(core, QueuePart::default()).await);
            self.state().counted(counted.clone());
            return Some(counted);
        }
        let last = self.last_within(|_| STALE_MAX);
        if !last.as_ref().is_some_and(|last| last.is_current(pending)) {
            self.renew(core);
        }
        last.filter(|last| last.is_alike(pending))
    }

    /// Counts a large queue, unless that is already running.
    fn renew(self: &Arc<Self>, core: &Arc<Core>) {
        if std::mem::replace(&mut self.state().is_counting, true) {
            return;
        }
        let (this, core) = (self.clone(), core.clone());
        tokio::spawn(async move {
            let counted = Arc::new(count(&core, QueuePart::default()).await);
            let mut state = this.state();
            state.is_counting = false;
            state.counted(counted);
        });
    }

    /// A count of a part, or of all. Only the first count of a part is awaited; later calls return the last one, by the
    /// same rules as for all.
    pub async fn of(self: &Arc<Self>, core: &Arc<Core>, part: &QueuePart) -> Option<Arc<DatedCensus>> {
        if part.is_all() {
            return self.get(core).await;
        }
        let is_small = core.with(|hub, _| hub.store.pending()) <= SMALL_RECIPIENTS;
        let last = self.last_of(part).filter(|last| last.begun.elapsed() < STALE_MAX);
        let is_fit = |counted: &DatedCensus| {
            let age_max = counted.took * PAUSE_TIMES;
            let age_max = if is_small { age_max.min(SHARED_MAX) } else { age_max.max(AGE_MIN) };
            counted.begun.elapsed() < age_max && (!is_small || self.is_newer(counted))
        };
        match last {
            Some(last) if is_fit(&last) => Some(last),
            Some(last) if !is_small => {
                self.renew_part(core, part);
                Some(last)
            }
            _ => Some(self.count_part(core, part, is_fit).await),
        }
    }

    fn last_of(&self, part: &QueuePart) -> Option<Arc<DatedCensus>> {
        self.state().parts.iter().find(|(known, _)| known == part).map(|(_, counted)| counted.clone())
    }

    /// Counts a part in the background, unless another part is being counted: the next answer tries again.
    fn renew_part(self: &Arc<Self>, core: &Arc<Core>, part: &QueuePart) {
        let Ok(turn) = self.counting_part.clone().try_lock_owned() else { return };
        let (this, core, part) = (self.clone(), core.clone(), part.clone());
        tokio::spawn(async move {
            let counted = Arc::new(count(&core, part.clone()).await);
            this.state().counted_part(part, counted);
            drop(turn);
        });
    }

    async fn count_part(
        &self,
        core: &Arc<Core>,
        part: &QueuePart,
        is_fit: impl Fn(&DatedCensus) -> bool,
    ) -> Arc<DatedCensus> {
        let _turn = self.counting_part.lock().await;
        // The previous holder of the lock may have counted this part.
        if let Some(counted) = self.last_of(part).filter(|counted| is_fit(counted)) {
            return counted;
        }
        let counted = Arc::new(count(core, part.clone()).await);
        self.state().counted_part(part.clone(), counted.clone());
        counted
    }

    /// Records that an operator's action changed why mail waits: the next answer about a small queue counts again.
    pub fn changed(&self) {
        self.state().changed = Some(Instant::now());
    }

    fn is_newer(&self, counted: &DatedCensus) -> bool {
        self.state().changed.is_none_or(|changed| counted.begun > changed)
    }

    fn last_within(&self, age_max: impl Fn(&DatedCensus) -> Duration) -> Option<Arc<DatedCensus>> {
        self.state().last.clone().filter(|last| last.begun.elapsed() < age_max(last))
    }

    /// Counts every minute until the process ends, so that growth can be measured and a large queue always has a count.
    pub async fn keep(self: Arc<Self>, core: Arc<Core>) {
        loop {
            let counted = self.get(&core).await;
            let took = counted.map_or(Duration::ZERO, |counted| counted.took);
            tokio::time::sleep(Duration::from_millis(PAST_EVERY_MS).max(took * PAUSE_TIMES)).await;
        }
    }

    /// The sums from at least [`GROWTH_MS_MIN`] ago, and the newest.
    pub fn growth(&self) -> Option<(PastCounts, PastCounts)> {
        let state = self.state();
        let now = state.last.as_ref()?;
        let sums = (now.at, Cause::ALL.map(|cause| now.census.total.of(cause)));
        let then = state.past.iter().rev().find(|past| past.0 + GROWTH_MS_MIN <= now.at)?;
        Some((*then, sums))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts the whole queue now, however long that takes.
pub async fn count_all(core: &Arc<Core>) -> Census {
    count(core, QueuePart::default()).await.census
}

async fn count(core: &Arc<Core>, part: QueuePart) -> DatedCensus {
    let (begun, at) = (Instant::now(), core.clock.now());
    let mut census = Census::of(part);
    while !core.with(|hub, now| census.step(&hub.sched, &hub.store, STEP, now)) {
        tokio::task::yield_now().await;
    }
    DatedCensus { at, census, begun, took: begun.elapsed() }
}

/// Sites, and domains without one, with pending recipients, and why those wait.
pub struct SitesNow {
    /// Sites in the order of their ids.
    pub waiting: Vec<(u64, SiteId)>,
    /// Domains that have not been looked up yet, or whose look-up failed.
    pub unresolved: Vec<(u64, DomainId)>,
    /// `None`: there is no count yet.
    pub counted: Option<Arc<DatedCensus>>,
}

impl SitesNow {
    pub async fn get(core: &Arc<Core>, censuses: &Arc<Censuses>) -> SitesNow {
        SitesNow::of(core, censuses, &QueuePart::default()).await
    }

    /// The sites of a part of the queue.
    pub async fn of(core: &Arc<Core>, censuses: &Arc<Censuses>, part: &QueuePart) -> SitesNow {
        let Some(counted) = censuses.of(core, part).await else {
            let (waiting, unresolved) = per_site(core).await;
            return SitesNow { waiting, unresolved, counted: None };
        };
        let waiting = counted.census.sites().map(|(site, counts)| (counts.recipients(), site)).collect();
        let unresolved = counted.census.unresolved().map(|(domain, counts)| (counts.recipients(), domain)).collect();
        SitesNow { waiting, unresolved, counted: Some(counted) }
    }

    /// All sites and domains.
    pub fn places(&self) -> Vec<(u64, WaitingPlace)> {
        let sites = self.waiting.iter().map(|(count, site)| (*count, WaitingPlace::Site(*site)));
        sites.chain(self.unresolved.iter().map(|(count, domain)| (*count, WaitingPlace::Domain(*domain)))).collect()
    }

    /// Pending recipients at a site.
    pub fn waiting_at(&self, site: SiteId) -> u64 {
        self.waiting.binary_search_by_key(&site.0, |(_, at)| at.0).map_or(0, |at| self.waiting[at].0)
    }

    /// Pending recipients of a domain without a site.
    pub fn waiting_for(&self, hub: &Hub, domain: DomainId) -> u64 {
        match &self.counted {
            Some(counted) => counted.census.at(WaitingPlace::Domain(domain)).map_or(0, CauseCounts::recipients),
            None => hub.store.waiting_at(domain).into(),
        }
    }

    pub fn at(&self, at: WaitingPlace) -> Option<&CauseCounts> {
        self.counted.as_ref()?.census.at(at)
    }
}

/// Pending recipients of each site that has some, and of each domain without one, from the store's counts per domain.
pub async fn per_site(core: &Arc<Core>) -> (Vec<(u64, SiteId)>, Vec<(u64, DomainId)>) {
    let (mut counts, mut unresolved, mut next) = (Vec::<u64>::new(), Vec::new(), 0);
    loop {
        let is_last = core.with(|hub, _| {
            let until = hub.store.book.domains() as u32;
            counts.resize(hub.sched.sites_known() as usize, 0);
            let to = until.min(next + DOMAINS_STEP);
            for domain in (next..to).map(DomainId) {
                let waiting = u64::from(hub.store.waiting_at(domain));
                match hub.sched.site_of(domain) {
                    _ if waiting == 0 => {}
                    Some(site) => counts[site.0 as usize] += waiting,
                    None => unresolved.push((waiting, domain)),
                }
            }
            next = to;
            to == until
        });
        if is_last {
            break;
        }
        tokio::task::yield_now().await;
    }
    let counts = counts.into_iter().enumerate().filter(|(_, count)| *count > 0);
    (counts.map(|(site, count)| (count, SiteId(site as u32))).collect(), unresolved)
}

/// The rows of an answer.
pub fn rows(hub: &Hub, counts: Option<&CauseCounts>, now: Ms) -> Vec<CauseRow> {
    rows_of(hub, counts, None, now)
}

/// As [`rows`]; if `message` is given, all of its recipients.
fn rows_of(hub: &Hub, counts: Option<&CauseCounts>, message: Option<&Message>, now: Ms) -> Vec<CauseRow> {
    counts.into_iter().flat_map(|counts| &counts.causes).map(|count| row(hub, count, message, now)).collect()
}

fn row(hub: &Hub, count: &CauseCount, message: Option<&Message>, now: Ms) -> CauseRow {
    CauseRow {
        cause: count.cause.name().to_owned(),
        words: kept(hub, count.cause, count.keeper, message)
            .or_else(|| listed(count.cause, hub.sched.reply_behind(count)))
            .unwrap_or_else(|| words(count.cause, count.attempt, count.failed_with(), now)),
        since: count.attempt.map(|attempt| attempt.since),
        recipients: count.recipients,
        next_try: count.next_try,
        last_reply: reply(hub.sched.reply_behind(count).cloned()),
    }
}

/// The last reply behind most of them.
pub fn last_reply(hub: &Hub, counts: Option<&CauseCounts>) -> String {
    let main = counts.and_then(CauseCounts::main);
    reply(main.and_then(|count| hub.sched.reply_behind(count).cloned()))
}

/// One message's pending recipients, or those at the count's place, by cause; counted now if they are few.
pub fn of_message(
    hub: &Hub,
    counted: Option<&DatedCensus>,
    no: MessageNo,
    place: Option<WaitingPlace>,
    now: Ms,
) -> Vec<CauseRow> {
    let message = hub.store.message(no);
    if message.is_some_and(|message| message.pending().len() >= stentor_sched::LARGE_RECIPIENTS_MIN) {
        return rows_of(hub, counted.and_then(|counted| counted.census.large.get(&no)), message, now);
    }
    let (mut counts, mut after) = (CauseCounts::default(), None);
    // They are few, so visit all of them.
    hub.sched.causes_of(&hub.store, no, &mut after, usize::MAX, now, |id, site, count| {
        let at = || site.map_or_else(|| WaitingPlace::Domain(hub.store.book.domain(id)), WaitingPlace::Site);
        if place.is_none_or(|place| place == at()) {
            counts.add(count);
        }
    });
    rows_of(hub, Some(&counts), message, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_shown_of_a_queue_like_it_and_renewed_sooner_when_the_queue_has_changed() {
        for (counted, pending, is_alike) in
            [(100, 100, true), (100, 200, true), (100, 201, false), (201, 100, false), (0, 50_000, false), (0, 0, true)]
        {
            assert_eq!(are_alike(counted, pending), is_alike, "{counted} {pending}");
        }
        let took = Duration::from_secs(2);
        assert_eq!(good_for(took, 1_000_000, 1_100_000), took * PAUSE_TIMES);
        assert_eq!(good_for(took, 1_000_000, 1_500_000), took * OFF_PAUSE_TIMES);
        assert_eq!(good_for(Duration::from_micros(50), 30_000, 30_000), AGE_MIN);
    }
}
