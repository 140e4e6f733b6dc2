//! A watcher's snapshot: the server's state, and the changes since the previous one.
//!
//! Bounded: the requested number of rows, at most [`ROWS_MAX`] of a kind; at most [`rings::SECONDS`] points of history,
//! only in the first snapshot; about 30 KiB at most.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use stentor_control::problem::Problem;
use stentor_control::snapshot::{
    ConnectionsNow, INTERVAL_MS_MAX, INTERVAL_MS_MIN, JournalNow, QueueNow, SiteNow, Snapshot, WatchOptions,
};
use stentor_core::Core;
use stentor_core::live::filters::Filter;
use stentor_core::live::histogram::Distribution;
use stentor_core::live::rings;
use stentor_queue::ids::Ms;
use stentor_queue::site::Endpoint;
use stentor_records::now::{Counts, Point};
use stentor_sched::{QueuePart, WaitingPlace};

use super::sites::{self, Overviews, ROWS_MAX};
use super::verdict;
use crate::{find, lists, suggestions};

/// A watcher. The machine is sampled more often while there is one.
pub struct Watch {
    core: Arc<Core>,
    overviews: Arc<Overviews>,
    options: WatchOptions,
    filter: Option<Arc<Filter>>,
    /// The requested site or domain.
    place: Option<ResolvedName>,
    before: PreviousState,
    is_first: bool,
}

struct PreviousState {
    at: Ms,
    counts: Counts,
    sync_us: Distribution,
    messages: u64,
    bytes: u64,
}

impl PreviousState {
    fn now(core: &Core, filter: Option<&Filter>) -> PreviousState {
        let live = &core.live;
        PreviousState {
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
        if self.core.live.watchers.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.core.live.events.clear();
        }
    }
}

impl Watch {
    /// Starts watching.
    ///
    /// # Errors
    /// There is no such site or list.
    pub fn begin(core: Arc<Core>, overviews: Arc<Overviews>, mut options: WatchOptions) -> Result<Watch, Problem> {
        options.interval_ms = options.interval_ms.clamp(INTERVAL_MS_MIN, INTERVAL_MS_MAX);
        options.sites_max = options.sites_max.min(ROWS_MAX);
        options.history_s = options.history_s.min(rings::SECONDS);
        let found = match &options.site {
            Some(name) => Some(place(&core, name).ok_or_else(|| suggestions::unknown_site(&core, name))?),
            None => None,
        };
        // A list removed from the configuration may still have mail.
        let has_mail =
            || core.with(|hub, _| options.list.as_deref().is_some_and(|list| hub.store.list(list).is_some()));
        if let Some(problem) = lists::unknown(&core, options.list.as_deref()).filter(|_| !has_mail()) {
            return Err(problem);
        }
        let filter = (options.list.is_some() || found.is_some())
            .then(|| core.live.filters.add(filter(options.list.clone(), found.as_ref())));
        core.live.watchers.fetch_add(1, Ordering::Relaxed);
        let before = PreviousState::now(&core, filter.as_deref());
        Ok(Watch { place: found, core, overviews, options, filter, before, is_first: true })
    }

    /// Looks up the site again: the domain may have got one, or the site other hosts. From now on these are counted.
    fn look_again(&mut self) {
        let Some(now) = self.options.site.as_deref().and_then(|name| place(&self.core, name)) else { return };
        if let Some(filter) = &self.filter {
            filter.set_hosts(&now.hosts);
        }
        self.place = Some(now);
    }

    pub fn options(&self) -> &WatchOptions {
        &self.options
    }

    /// Waits for the next multiple of the interval; the first returns at once if history is requested.
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
        self.look_again();
        let part = QueuePart {
            list: self.options.list.as_deref().map(Into::into),
            at: self.place.as_ref().map(|place| place.at),
        };
        let all = self.overviews.get(&core).await;
        let overview = self.overviews.of(&core, &part).await;
        let next = PreviousState::now(&core, self.filter.as_deref());
        let history =
            if std::mem::take(&mut self.is_first) && self.options.history_s > 0 { self.history() } else { Vec::new() };
        let before = std::mem::replace(&mut self.before, next);
        let after = &self.before;
        let (mut queue, connections, stopping) = state(&core);
        queue.depth = all.depth;
        queue.part = overview.part.filter(|_| !part.is_all());
        let journal = JournalNow {
            sync_us: after.sync_us.since(&before.sync_us).percentiles(),
            messages: after.messages - before.messages,
            bytes: after.bytes - before.bytes,
        };
        let rows = |rows: &[SiteNow]| rows.iter().take(self.options.sites_max).cloned().collect::<Vec<_>>();
        let (by_pending, by_latency) = if part.at.is_some() {
            (sites::one(&core, &self.overviews.causes, &part).await.into_iter().collect(), Vec::new())
        } else {
            (rows(&overview.by_pending), rows(&overview.by_latency))
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
            health: core.live.health.conditions(),
            causes: overview.causes.clone(),
            sites_total: overview.sites_total,
            domains_total: overview.domains_total,
            by_pending,
            by_latency,
            sites_at: overview.at,
            sites_took_us: overview.took_us,
            events: core.live.events.newest(),
        };
        snapshot.verdict = verdict::of(&snapshot);
        snapshot
    }

    /// The history covers all mail.
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

/// A resolved name: a site, or a domain without one, and the addresses of its hosts.
pub struct ResolvedName {
    pub at: WaitingPlace,
    pub hosts: Vec<Endpoint>,
}

/// The place with this name.
pub fn place(core: &Arc<Core>, name: &str) -> Option<ResolvedName> {
    core.with(|hub, now| {
        let (at, _) = find::find_at(hub, name)?;
        let hosts = match at {
            WaitingPlace::Site(site) => hub.sched.explain_site(site, now)?.hosts,
            WaitingPlace::Domain(_) => Vec::new(),
        };
        Some(ResolvedName { at, hosts: hosts.into_iter().map(|host| host.addr).collect() })
    })
}

fn filter(list: Option<String>, place: Option<&ResolvedName>) -> Filter {
    Filter::new(list, place.map(|place| place.hosts.clone()))
}

/// Reads the state under one hold of the lock.
fn state(core: &Arc<Core>) -> (QueueNow, ConnectionsNow, bool) {
    let clients = core.live.connections_in() as u64;
    let clients_max = core.settings().config.listen.sessions_max();
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
