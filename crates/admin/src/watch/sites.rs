//! Where mail waits, and how sites perform, for watchers: sums by lane, the sites with most waiting, the slowest.
//!
//! Promise: slices of well under a millisecond under the hub's lock. All watchers share one overview, renewed when it
//! is older than a second and than [`PAUSE_TIMES`] its own cost, so that watching costs at most 1 % of a processor
//! whatever the queue. Watchers of a list or a site have one of that part, by the same rule: [`PARTS_MAX`] are kept.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stentor_control::CauseRow;
use stentor_control::snapshot::{Depth, PartNow, SiteNow};
use stentor_core::Core;
use stentor_core::hub::Hub;
use stentor_queue::ids::{DomainId, Ms, SiteId};
use stentor_queue::message::Message;
use stentor_sched::{CauseCounts, QueuePart, SiteProgress, SiteSummary, WaitingPlace};

use crate::causes::{Censuses, SitesNow};
use crate::views::{lane_name, reply};
use crate::{causes, site};

/// Sites examined per hold of the lock.
const SITES_STEP: usize = 512;
/// Rows built per hold of the lock.
const ROWS_STEP: usize = 16;
/// Maximum rows of each kind.
pub const ROWS_MAX: usize = 50;
const AGE_MIN: Duration = Duration::from_secs(1);
/// An overview is valid for this multiple of the time that it took.
const PAUSE_TIMES: u32 = 100;
/// Maximum overviews of parts of the queue kept.
const PARTS_MAX: usize = 16;

/// The overview; see the module's documentation.
#[derive(Clone, Default)]
pub struct Overview {
    pub at: Ms,
    /// Number of sites, and domains without one, with pending recipients.
    pub sites_total: u64,
    /// Number of domains without a site, included in the total.
    pub domains_total: u64,
    pub depth: Depth,
    /// Totals of the part; `None` if there is no count yet.
    pub part: Option<PartNow>,
    pub causes: Vec<CauseRow>,
    pub by_pending: Vec<SiteNow>,
    pub by_latency: Vec<SiteNow>,
    /// Time taken to gather it, including the wait for the lock.
    pub took_us: u64,
}

#[derive(Default)]
pub struct Overviews {
    /// Why mail waits: the count shared by all views.
    pub causes: Arc<Censuses>,
    last: tokio::sync::Mutex<Option<DatedOverview>>,
    /// Overviews of parts of the queue, the newest last.
    parts: tokio::sync::Mutex<VecDeque<(QueuePart, DatedOverview)>>,
}

/// An overview, when it was made, and how long that took.
#[derive(Clone)]
struct DatedOverview {
    at: Instant,
    took: Duration,
    overview: Arc<Overview>,
}

impl DatedOverview {
    async fn now(core: &Arc<Core>, censuses: &Arc<Censuses>, part: &QueuePart) -> DatedOverview {
        // Waiting for a shared count is not part of this overview's cost.
        let sites = SitesNow::of(core, censuses, part).await;
        let begun = Instant::now();
        let mut overview = gather(core, &sites).await;
        let took = begun.elapsed();
        overview.took_us = took.as_micros() as u64;
        DatedOverview { at: Instant::now(), took, overview: Arc::new(overview) }
    }

    fn is_fresh(&self) -> bool {
        self.at.elapsed() < AGE_MIN.max(self.took * PAUSE_TIMES)
    }
}

impl Overviews {
    /// The newest overview, or a new one.
    pub async fn get(&self, core: &Arc<Core>) -> Arc<Overview> {
        let mut last = self.last.lock().await;
        if let Some(made) = last.as_ref().filter(|made| made.is_fresh()) {
            return made.overview.clone();
        }
        last.insert(DatedOverview::now(core, &self.causes, &QueuePart::default()).await).overview.clone()
    }

    /// As [`Self::get`], for a part of the queue.
    pub async fn of(&self, core: &Arc<Core>, part: &QueuePart) -> Arc<Overview> {
        if part.is_all() {
            return self.get(core).await;
        }
        let mut parts = self.parts.lock().await;
        let known = parts.iter().position(|(known, _)| known == part).and_then(|at| parts.remove(at));
        let made = match known.filter(|(_, made)| made.is_fresh()) {
            Some((_, made)) => made,
            None => DatedOverview::now(core, &self.causes, part).await,
        };
        parts.push_back((part.clone(), made.clone()));
        if parts.len() > PARTS_MAX {
            parts.pop_front();
        }
        made.overview
    }
}

/// A place with waiting mail.
#[derive(Clone, Copy)]
struct BusyPlace {
    /// Waiting recipients.
    waiting: u64,
    at: WaitingPlace,
    /// The site's performance; `None` for a domain without a site.
    glance: Option<SiteSummary>,
}

async fn gather(core: &Arc<Core>, now: &SitesNow) -> Overview {
    let domains_total = now.unresolved.len() as u64;
    let unresolved = now.unresolved.iter().map(|(count, _)| count).sum();
    let mut depth = Depth { unresolved, ..Depth::default() };
    let mut found: Vec<BusyPlace> = Vec::with_capacity(now.waiting.len() + now.unresolved.len());
    for part in now.waiting.chunks(SITES_STEP) {
        core.with(|hub, at| {
            for (count, site) in part {
                let Some(glance) = hub.sched.glance(*site, at) else { continue };
                found.push(BusyPlace { waiting: *count, at: WaitingPlace::Site(*site), glance: Some(glance) });
            }
        });
        tokio::task::yield_now().await;
    }
    for place in &found {
        let Some(glance) = &place.glance else { continue };
        let lane = match glance.standing {
            SiteProgress::Fast => &mut depth.fast,
            SiteProgress::Connecting => &mut depth.connecting,
            SiteProgress::Slow => &mut depth.slow,
            SiteProgress::Clock => &mut depth.clock,
            SiteProgress::Suspended => &mut depth.suspended,
        };
        lane.sites += 1;
        lane.recipients += place.waiting;
        lane.ordinary += glance.in_line[0] as u64;
        lane.bulk += glance.in_line[1] as u64;
    }
    let unresolved = now.unresolved.iter();
    found.extend(unresolved.map(|&(waiting, domain)| BusyPlace {
        waiting,
        at: WaitingPlace::Domain(domain),
        glance: None,
    }));
    let sites_total = found.len() as u64;
    first(&mut found, |place| (Reverse(place.waiting), place.at));
    let by_pending = rows(core, now, &found[..found.len().min(ROWS_MAX)]).await;
    first(&mut found, |place| (Reverse(latency(place.glance.as_ref())), place.at));
    let slowest: Vec<_> =
        found.iter().take(ROWS_MAX).filter(|place| latency(place.glance.as_ref()) > 0).copied().collect();
    let by_latency = rows(core, now, &slowest).await;
    let total = now.counted.as_ref().map(|counted| &counted.census.total);
    let (causes, part) = core.with(|hub, at| (causes::rows(hub, total, at), total.map(|total| part(hub, total))));
    let at = now.counted.as_ref().map_or_else(|| core.clock.now(), |counted| counted.at);
    Overview { at, sites_total, domains_total, depth, part, causes, by_pending, by_latency, took_us: 0 }
}

fn latency(glance: Option<&SiteSummary>) -> u32 {
    glance.map_or(0, |glance| glance.latency_ms)
}

fn part(hub: &Hub, total: &CauseCounts) -> PartNow {
    PartNow { recipients: total.recipients(), messages: total.messages, oldest: oldest(hub, Some(total)) }
}

/// When the oldest message was accepted.
fn oldest(hub: &Hub, counts: Option<&CauseCounts>) -> Option<Ms> {
    counts.and_then(|counts| counts.oldest).and_then(|no| hub.store.message(no)).map(Message::accepted)
}

/// Moves those with the least keys to the front, in order.
fn first<K: Ord>(found: &mut [BusyPlace], key: impl Fn(&BusyPlace) -> K + Copy) {
    if found.len() > ROWS_MAX {
        found.select_nth_unstable_by_key(ROWS_MAX - 1, key);
    }
    let rows = found.len().min(ROWS_MAX);
    found[..rows].sort_unstable_by_key(key);
}

async fn rows(core: &Arc<Core>, sites: &SitesNow, chosen: &[BusyPlace]) -> Vec<SiteNow> {
    let mut rows = Vec::with_capacity(chosen.len());
    for part in chosen.chunks(ROWS_STEP) {
        core.with(|hub, now| {
            rows.extend(part.iter().filter_map(|place| row(hub, sites, place.at, place.waiting, now)));
        });
        tokio::task::yield_now().await;
    }
    rows
}

/// One site or domain, for a watcher of it.
pub async fn one(core: &Arc<Core>, censuses: &Arc<Censuses>, part: &QueuePart) -> Option<SiteNow> {
    let at = part.at?;
    let sites = SitesNow::of(core, censuses, part).await;
    core.with(|hub, now| {
        let waiting = match at {
            WaitingPlace::Site(site) => sites.waiting_at(site),
            WaitingPlace::Domain(domain) => sites.waiting_for(hub, domain),
        };
        row(hub, &sites, at, waiting, now)
    })
}

fn row(hub: &Hub, sites: &SitesNow, at: WaitingPlace, waiting: u64, now: Ms) -> Option<SiteNow> {
    match at {
        WaitingPlace::Site(site) => row_of_site(hub, sites, site, waiting, now),
        WaitingPlace::Domain(domain) => Some(row_of_domain(hub, sites, domain, waiting, now)),
    }
}

fn row_of_site(hub: &Hub, sites: &SitesNow, id: SiteId, waiting: u64, now: Ms) -> Option<SiteNow> {
    let (explained, glance) = (hub.sched.explain_site(id, now)?, hub.sched.glance(id, now)?);
    let counts = sites.at(WaitingPlace::Site(id));
    Some(SiteNow {
        site: explained.status.name.to_string(),
        waiting,
        messages: counts.map_or(explained.status.messages as u64, |counts| counts.messages),
        connections: glance.connections as u64,
        silent: glance.silent as u64,
        lane: lane_name(glance.standing).to_owned(),
        latency_ms: glance.latency_ms.into(),
        next_try: counts.and_then(CauseCounts::next_try),
        last_reply: causes::last_reply(hub, counts),
        waits_for: site::waits_for(hub, counts, &explained, now),
        oldest: oldest(hub, counts),
        causes: causes::rows(hub, counts, now),
    })
}

/// The row of a domain without a site: it has not been looked up, or that failed.
fn row_of_domain(hub: &Hub, sites: &SitesNow, domain: DomainId, waiting: u64, now: Ms) -> SiteNow {
    let counts = sites.at(WaitingPlace::Domain(domain));
    let (next_try, reason) = hub.sched.look_up_of(domain).unwrap_or_default();
    let causes = causes::rows(hub, counts, now);
    SiteNow {
        site: hub.store.book.domain_name(domain).to_owned(),
        waiting,
        messages: counts.map_or(0, |counts| counts.messages),
        lane: "unknown".to_owned(),
        next_try,
        waits_for: site::lookup(&causes, waiting, reason.as_ref()),
        last_reply: reply(reason),
        oldest: oldest(hub, counts),
        causes,
        ..SiteNow::default()
    }
}
