//! What a watcher is told: the state of the server, and what came since it was told last.
//!
//! Bounded: as many rows as asked for and at most [`ROWS_MAX`] of a kind, at most [`rings::SECONDS`] points of history and
//! those in the first snapshot alone; some 30 KiB at most.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stentor_queue::ids::{Ms, SiteId};

use super::counts::Counts;
use super::filters::Filter;
use super::histogram::{Counted, Percentiles};
use super::machine::MachineNow;
use super::posts::POSTS_MAX;
use super::rings::{self, Point};
use super::sites::{self, Depth, ROWS_MAX, SiteNow};
use super::verdict;
use crate::core::Core;
use crate::site;

/// Time between two snapshots.
pub const INTERVAL_MS_MIN: u64 = 100;
pub const INTERVAL_MS_MAX: u64 = 3_600_000;
pub const INTERVAL_MS_DEFAULT: u64 = 1_000;

/// What is wanted.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(default, deny_unknown_fields)]
pub struct WatchOptions {
    pub interval_ms: u64,
    /// Snapshots until it is over; 0: until the watcher goes.
    pub count: u64,
    /// Rates of this list's posts alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list: Option<String>,
    /// Rates at this site alone: its name, or a domain that is at it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Sites of each kind to be named.
    pub sites_max: usize,
    /// Seconds of the past in the first snapshot.
    pub history_s: usize,
}

impl Default for WatchOptions {
    fn default() -> WatchOptions {
        WatchOptions { interval_ms: INTERVAL_MS_DEFAULT, count: 0, list: None, site: None, sites_max: 20, history_s: 0 }
    }
}

/// The server now.
#[derive(Clone, PartialEq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct Snapshot {
    pub hostname: String,
    pub version: String,
    pub pid: u32,
    pub now: Ms,
    pub stopping: bool,
    /// What `since` covers.
    pub interval_ms: u64,
    /// What came since the snapshot before, of what is asked for.
    pub since: Counts,
    /// Since the start of the server (of the watching, if it is filtered).
    pub totals: Counts,
    /// The last seconds, oldest first; in the first snapshot.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Point>,
    pub queue: QueueNow,
    pub connections: ConnectionsNow,
    pub journal: JournalNow,
    pub machine: MachineNow,
    /// What holds the server back, in words.
    pub verdict: String,
    /// All sites with pending recipients.
    pub sites_total: u64,
    /// The sites with most pending recipients; the one that is asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_pending: Vec<SiteNow>,
    /// The sites that took longest for their last answers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_latency: Vec<SiteNow>,
    /// When these were gathered, and how long that took.
    pub sites_at: Ms,
    pub sites_took_us: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct QueueNow {
    pub messages: u64,
    pub held: u64,
    /// Pending, by class.
    pub ordinary: u64,
    pub bulk: u64,
    /// In transactions, in the fast and in the slow lane.
    pub in_flight_fast: u64,
    pub in_flight_slow: u64,
    pub octets: u64,
    /// Acceptance of the oldest.
    pub oldest: Option<Ms>,
    /// By lane; as old as `sites_at`.
    pub depth: Depth,
    /// Pending recipients of the list that is asked for, as far as its posts are known.
    pub of_list: Option<u64>,
}

impl QueueNow {
    pub fn pending(&self) -> u64 {
        self.ordinary + self.bulk
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct ConnectionsNow {
    /// To hosts, in each lane, and how many there may be.
    pub fast: u64,
    pub fast_max: u64,
    pub slow: u64,
    pub slow_max: u64,
    /// Of the fast ones, kept for ordinary mail.
    pub ordinary_reserve: u64,
    /// Sites in line for one.
    pub wanting: u64,
    /// Of clients.
    pub clients: u64,
    pub clients_max: u64,
}

/// The committer in the interval.
#[derive(Clone, Copy, PartialEq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct JournalNow {
    /// Microseconds of write and sync, per batch.
    pub sync_us: Percentiles,
    /// Messages and octets of all batches.
    pub messages: u64,
    pub bytes: u64,
}

impl JournalNow {
    pub fn messages_per_batch(&self) -> f64 {
        self.messages as f64 / self.sync_us.count.max(1) as f64
    }

    pub fn bytes_per_batch(&self) -> u64 {
        self.bytes / self.sync_us.count.max(1)
    }
}

/// Somebody who watches. The machine is sampled more often while there is one.
pub struct Watch {
    core: Arc<Core>,
    options: WatchOptions,
    filter: Option<Arc<Filter>>,
    /// The site asked for, by its id.
    site: Option<SiteId>,
    before: Before,
    is_first: bool,
}

struct Before {
    at: Ms,
    counts: Counts,
    sync_us: Counted,
    messages: u64,
    bytes: u64,
}

impl Before {
    fn now(core: &Core, filter: Option<&Filter>) -> Before {
        let live = &core.live;
        Before {
            at: core.clock.now(),
            counts: filter.map_or_else(|| live.totals(), |filter| filter.totals.read()),
            sync_us: live.syncs.us.read(),
            messages: live.syncs.messages.load(Ordering::Relaxed),
            bytes: live.syncs.bytes.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.core.live.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Watch {
    /// `None`: there is no such site.
    pub fn begin(core: Arc<Core>, mut options: WatchOptions) -> Option<Watch> {
        options.interval_ms = options.interval_ms.clamp(INTERVAL_MS_MIN, INTERVAL_MS_MAX);
        options.sites_max = options.sites_max.min(ROWS_MAX);
        options.history_s = options.history_s.min(rings::SECONDS);
        let found = match &options.site {
            Some(name) => Some(core.with(|hub, now| {
                let (site, _) = site::find(hub, name)?;
                let hosts = hub.sched.explain_site(&hub.store, site, now)?.hosts;
                Some((site, hosts.iter().map(|host| host.addr).collect::<Vec<_>>()))
            })?),
            None => None,
        };
        let filter = (options.list.is_some() || found.is_some()).then(|| {
            let hosts = found.as_ref().map(|(_, hosts)| hosts.clone());
            core.live.filters.add(Filter { list: options.list.clone(), hosts, ..Filter::default() })
        });
        core.live.watchers.fetch_add(1, Ordering::Relaxed);
        let before = Before::now(&core, filter.as_deref());
        Some(Watch { site: found.map(|(site, _)| site), core, options, filter, before, is_first: true })
    }

    pub fn options(&self) -> &WatchOptions {
        &self.options
    }

    /// Waits for the next multiple of the interval; at once for the first if the past is asked for.
    pub async fn next(&mut self) -> Snapshot {
        if !(self.is_first && self.options.history_s > 0) {
            let (now, interval) = (self.core.clock.now(), self.options.interval_ms);
            tokio::time::sleep(Duration::from_millis(interval - now % interval)).await;
        }
        self.now().await
    }

    /// Takes a snapshot now.
    pub async fn now(&mut self) -> Snapshot {
        let core = self.core.clone();
        let overview = core.live.overviews.get(&core).await;
        let next = Before::now(&core, self.filter.as_deref());
        let history =
            if std::mem::take(&mut self.is_first) && self.options.history_s > 0 { self.history() } else { Vec::new() };
        let before = std::mem::replace(&mut self.before, next);
        let after = &self.before;
        let of_list = self.options.list.as_ref().map(|list| {
            let posts = core.live.posts.newest();
            debug_assert!(posts.len() <= POSTS_MAX);
            posts.iter().filter(|post| post.list == *list).map(|post| post.pending()).sum()
        });
        let (mut queue, connections, stopping) = state(&core);
        (queue.depth, queue.of_list) = (overview.depth, of_list);
        let journal = JournalNow {
            sync_us: after.sync_us.since(&before.sync_us).percentiles(),
            messages: after.messages - before.messages,
            bytes: after.bytes - before.bytes,
        };
        let rows = |rows: &[SiteNow]| rows.iter().take(self.options.sites_max).cloned().collect::<Vec<_>>();
        let (by_pending, by_latency) = match &self.options.site {
            Some(name) => (sites::one(&core, name).into_iter().collect(), Vec::new()),
            None => (rows(&overview.by_pending), rows(&overview.by_latency)),
        };
        let mut snapshot = Snapshot {
            hostname: core.settings().config.hostname.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            now: after.at,
            stopping,
            interval_ms: after.at.saturating_sub(before.at),
            since: after.counts.since(&before.counts),
            totals: after.counts,
            history,
            queue,
            connections,
            journal,
            machine: core.live.machine(),
            verdict: String::new(),
            sites_total: overview.sites_total,
            by_pending,
            by_latency,
            sites_at: overview.at,
            sites_took_us: overview.took_us,
        };
        snapshot.verdict = verdict::of(&snapshot);
        snapshot
    }

    /// The site that is watched.
    pub fn site(&self) -> Option<SiteId> {
        self.site
    }

    /// The past is that of everything.
    fn history(&self) -> Vec<Point> {
        if self.filter.is_some() {
            return Vec::new();
        }
        let wanted = self.options.history_s;
        self.core.live.rings(|rings| {
            let skip = rings.seconds.len().saturating_sub(wanted);
            rings.seconds.iter().skip(skip).copied().collect()
        })
    }
}

/// What one look under the lock says.
fn state(core: &Arc<Core>) -> (QueueNow, ConnectionsNow, bool) {
    let clients = core.live.connections_in() as u64;
    let clients_max = core.settings().config.listen.connections_max.into();
    core.with(|hub, _| {
        let [(fast, _), (slow, _)] = hub.sched.in_transactions();
        let (pending, bulk) = (hub.store.pending(), hub.store.pending_bulk());
        let queue = QueueNow {
            messages: hub.store.len() as u64,
            held: hub.store.held() as u64,
            ordinary: pending - bulk,
            bulk,
            in_flight_fast: fast as u64,
            in_flight_slow: slow as u64,
            octets: hub.store.octets(),
            oldest: hub.store.oldest().map(|(_, message)| message.accepted()),
            ..QueueNow::default()
        };
        let (load, (fast_max, slow_max, reserve)) = (hub.sched.load(), hub.sched.budget());
        let connections = ConnectionsNow {
            fast: load.connections_fast as u64,
            fast_max: fast_max as u64,
            slow: load.connections_slow as u64,
            slow_max: slow_max as u64,
            ordinary_reserve: reserve as u64,
            wanting: load.wanting as u64,
            clients,
            clients_max,
        };
        (queue, connections, hub.is_stopping())
    })
}
