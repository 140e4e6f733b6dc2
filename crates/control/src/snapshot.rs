//! The stream of `watch`: the server at one instant, and how it is requested.

use serde::{Deserialize, Serialize};
use stentor_queue::ids::Ms;
use stentor_stats::health::Condition;
pub use stentor_stats::now::EventNow;
use stentor_stats::now::{Counts, MachineNow, Percentiles, Point};

use crate::causes::CauseRow;

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
    /// The bottleneck, in words; the worst problem, if there is one.
    pub verdict: String,
    /// What is wrong now, the worst first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub health: Vec<Condition>,
    /// Why recipients wait, of what is asked for; as old as `sites_at`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<CauseRow>,
    /// All sites, and domains without one, with pending recipients.
    pub sites_total: u64,
    /// Of these, domains that are not looked up yet, or whose look-up failed.
    pub domains_total: u64,
    /// The sites with most pending recipients; the one that is asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_pending: Vec<SiteNow>,
    /// The sites that took longest for their last answers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_latency: Vec<SiteNow>,
    /// When these were gathered, and how long that took.
    pub sites_at: Ms,
    pub sites_took_us: u64,
    /// Failures and operators' actions since somebody watches, the newest last; the last time of those that are alike.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventNow>,
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
    /// What of it is of the list and at the site that are asked for; as old as `sites_at`.
    pub part: Option<PartNow>,
}

/// A part of the queue.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct PartNow {
    /// Pending.
    pub recipients: u64,
    pub messages: u64,
    /// Acceptance of the oldest.
    pub oldest: Option<Ms>,
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
}

/// Pending recipients by what they wait for, and messages in line at sites by class.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct Depth {
    pub fast: Lane,
    /// At sites where no connection has a session yet.
    pub connecting: Lane,
    pub slow: Lane,
    /// At sites none of whose hosts may be tried before a clock runs out.
    pub clock: Lane,
    pub suspended: Lane,
    /// Recipients at domains that are not looked up yet.
    pub unresolved: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct Lane {
    pub sites: u64,
    /// Pending recipients, those behind clocks of their own and in transactions included.
    pub recipients: u64,
    /// Messages that stand in line at these sites: once for each site.
    pub ordinary: u64,
    pub bulk: u64,
}

/// A site as a watcher sees it.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct SiteNow {
    pub site: String,
    /// Pending recipients.
    pub waiting: u64,
    /// Why they wait; the rows add up to `waiting`. Empty while a large queue is counted for the first time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<CauseRow>,
    /// Messages with recipients here.
    pub messages: u64,
    pub connections: u64,
    pub silent: u64,
    /// `fast`, `connecting`, `slow`, `clock`, `suspended`; of a domain without a site `unknown`.
    pub lane: String,
    pub latency_ms: u64,
    pub next_try: Option<Ms>,
    pub last_reply: String,
    /// Why mail waits, in words; empty if nothing is in its way.
    pub waits_for: String,
    /// Acceptance of the oldest message there.
    pub oldest: Option<Ms>,
}

/// `850 us`, `12 ms`, `1.5 s`
pub fn time_us(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..10_000 => format!("{:.1} ms", us as f64 / 1e3),
        10_000..1_000_000 => format!("{} ms", us / 1_000),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}
