//! Where mail waits, and how sites perform, for watchers: sums by lane, the sites with most waiting, the slowest.
//!
//! Promise: slices of well under a millisecond under the hub's lock. All watchers share one overview, renewed when it
//! is older than a second and than [`PAUSE_TIMES`] its own cost, so that watching costs at most 1 % of a processor
//! whatever the queue.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stentor_control::CauseRow;
use stentor_control::snapshot::{Depth, SiteNow};
use stentor_engine::core::Core;
use stentor_engine::core::hub::Hub;
use stentor_queue::ids::{Ms, SiteId};
use stentor_queue::message::Message;
use stentor_sched::{At, CauseCounts, Glance, Standing};

use crate::causes::{Censuses, SitesNow};
use crate::views::lane_name;
use crate::{causes, site};

/// Sites looked at under one hold of the lock.
const SITES_STEP: usize = 512;
/// Rows made under one hold.
const ROWS_STEP: usize = 16;
/// Rows of each kind.
pub const ROWS_MAX: usize = 50;
const AGE_MIN: Duration = Duration::from_secs(1);
/// An overview is good for as many times as making it took.
const PAUSE_TIMES: u32 = 100;

/// The overview; see the module's documentation.
#[derive(Clone, Default)]
pub struct Overview {
    pub at: Ms,
    /// Sites with pending recipients.
    pub sites_total: u64,
    pub depth: Depth,
    pub causes: Vec<CauseRow>,
    pub by_pending: Vec<SiteNow>,
    pub by_latency: Vec<SiteNow>,
    /// How long it took to gather, waiting for the lock included.
    pub took_us: u64,
}

#[derive(Default)]
pub struct Overviews {
    /// Why mail waits: the count that all views share.
    pub causes: Arc<Censuses>,
    last: tokio::sync::Mutex<Option<(Instant, Duration, Arc<Overview>)>>,
}

impl Overviews {
    /// The newest, or a new one.
    pub async fn get(&self, core: &Arc<Core>) -> Arc<Overview> {
        let mut last = self.last.lock().await;
        if let Some((made, took, overview)) = &*last
            && made.elapsed() < AGE_MIN.max(*took * PAUSE_TIMES)
        {
            return overview.clone();
        }
        // The wait for a count that others use too is no work of this one.
        let sites = SitesNow::get(core, &self.causes).await;
        let begun = Instant::now();
        let mut overview = gather(core, &sites).await;
        let took = begun.elapsed();
        overview.took_us = took.as_micros() as u64;
        let overview = Arc::new(overview);
        *last = Some((Instant::now(), took, overview.clone()));
        overview
    }
}

async fn gather(core: &Arc<Core>, now: &SitesNow) -> Overview {
    let unresolved = now.unresolved.iter().map(|(count, _)| count).sum();
    let mut depth = Depth { unresolved, ..Depth::default() };
    let mut glances: Vec<(u64, SiteId, Glance)> = Vec::with_capacity(now.waiting.len());
    for part in now.waiting.chunks(SITES_STEP) {
        core.with(|hub, at| {
            for (count, site) in part {
                let Some(glance) = hub.sched.glance(*site, at) else { continue };
                glances.push((*count, *site, glance));
            }
        });
        tokio::task::yield_now().await;
    }
    for (count, _, glance) in &glances {
        let lane = match glance.standing {
            Standing::Fast => &mut depth.fast,
            Standing::Connecting => &mut depth.connecting,
            Standing::Slow => &mut depth.slow,
            Standing::Clock => &mut depth.clock,
            Standing::Suspended => &mut depth.suspended,
        };
        lane.sites += 1;
        lane.recipients += count;
        lane.ordinary += glance.in_line[0] as u64;
        lane.bulk += glance.in_line[1] as u64;
    }
    let sites_total = glances.len() as u64;
    first(&mut glances, |(count, site, _)| (Reverse(*count), site.0));
    let by_pending = rows(core, now, &glances[..glances.len().min(ROWS_MAX)]).await;
    first(&mut glances, |(_, site, glance)| (Reverse(glance.latency_ms), site.0));
    let slowest: Vec<_> =
        glances.iter().take(ROWS_MAX).filter(|(_, _, glance)| glance.latency_ms > 0).copied().collect();
    let by_latency = rows(core, now, &slowest).await;
    let total = now.counted.as_ref().map(|counted| &counted.census.total);
    let causes = core.with(|hub, at| causes::rows(hub, total, at));
    let at = now.counted.as_ref().map_or_else(|| core.clock.now(), |counted| counted.at);
    Overview { at, sites_total, depth, causes, by_pending, by_latency, took_us: 0 }
}

/// Brings those with the least keys to the front, in order.
fn first<K: Ord>(glances: &mut [(u64, SiteId, Glance)], key: impl Fn(&(u64, SiteId, Glance)) -> K + Copy) {
    if glances.len() > ROWS_MAX {
        glances.select_nth_unstable_by_key(ROWS_MAX - 1, key);
    }
    let rows = glances.len().min(ROWS_MAX);
    glances[..rows].sort_unstable_by_key(key);
}

async fn rows(core: &Arc<Core>, sites: &SitesNow, chosen: &[(u64, SiteId, Glance)]) -> Vec<SiteNow> {
    let mut rows = Vec::with_capacity(chosen.len());
    for part in chosen.chunks(ROWS_STEP) {
        core.with(|hub, now| {
            rows.extend(part.iter().filter_map(|(count, id, glance)| row(hub, sites, (*count, *id), glance, now)));
        });
        tokio::task::yield_now().await;
    }
    rows
}

/// One site, for a watcher of it.
pub async fn one(core: &Arc<Core>, censuses: &Arc<Censuses>, name: &str) -> Option<SiteNow> {
    let sites = SitesNow::get(core, censuses).await;
    core.with(|hub, now| {
        let (id, _) = site::find(hub, name)?;
        let glance = hub.sched.glance(id, now)?;
        row(hub, &sites, (sites.waiting_at(id), id), &glance, now)
    })
}

fn row(hub: &Hub, sites: &SitesNow, (waiting, id): (u64, SiteId), glance: &Glance, now: Ms) -> Option<SiteNow> {
    let explained = hub.sched.explain_site(id, now)?;
    let counts = sites.at(At::Site(id));
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
        oldest: counts.and_then(|counts| counts.oldest).and_then(|no| hub.store.message(no)).map(Message::accepted),
        causes: causes::rows(hub, counts, now),
    })
}
