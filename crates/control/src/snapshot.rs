//! The stream of `watch`: the server at one instant, and how it is requested.

use serde::{Deserialize, Serialize};
use stentor_queue::ids::Ms;
use stentor_records::health::Condition;
use stentor_records::now::EventNow;
use stentor_records::now::{Counts, MachineNow, Percentiles, Point};

use crate::causes::CauseRow;

/// Minimum time between two snapshots.
pub const INTERVAL_MS_MIN: u64 = 100;
pub const INTERVAL_MS_MAX: u64 = 3_600_000;
pub const INTERVAL_MS_DEFAULT: u64 = 1_000;

/// The options of a watch.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(default, deny_unknown_fields)]
pub struct WatchOptions {
    pub interval_ms: u64,
    /// Number of snapshots; 0 for all until the watcher leaves.
    pub count: u64,
    /// Only rates of this list's posts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list: Option<String>,
    /// Only rates at this site: its name, or a domain that it serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Maximum sites named of each kind.
    pub sites_max: usize,
    /// Seconds of history in the first snapshot.
    pub history_s: usize,
}

impl Default for WatchOptions {
    fn default() -> WatchOptions {
        WatchOptions { interval_ms: INTERVAL_MS_DEFAULT, count: 0, list: None, site: None, sites_max: 20, history_s: 0 }
    }
}

/// The server at one instant.
#[derive(Clone, PartialEq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct Snapshot {
    pub hostname: String,
    pub version: String,
    pub pid: u32,
    pub now: Ms,
    pub stopping: bool,
    /// The time covered by `since`.
    pub interval_ms: u64,
    /// Counts since the previous snapshot, within the filter.
    pub since: Counts,
    /// Counts since the start of the server (or of the watch, if there is a filter).
    pub totals: Counts,
    /// The last seconds, oldest first; only in the first snapshot.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Point>,
    pub queue: QueueNow,
    pub connections: ConnectionsNow,
    pub journal: JournalNow,
    pub machine: MachineNow,
    /// The bottleneck in words, or the worst problem if there is one.
    pub verdict: String,
    /// Current problems, worst first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub health: Vec<Condition>,
    /// Why recipients wait, within the filter; as old as `sites_at`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<CauseRow>,
    /// Number of all sites, and domains without one, with pending recipients.
    pub sites_total: u64,
    /// Number of domains that have not been looked up, or whose look-up failed, included in the total.
    pub domains_total: u64,
    /// The sites with most pending recipients; with a site filter, that site.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_pending: Vec<SiteNow>,
    /// The sites with the slowest last answers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_latency: Vec<SiteNow>,
    /// When these were gathered, and how long that took.
    pub sites_at: Ms,
    pub sites_took_us: u64,
    /// Failures and operators' actions since the first watcher, newest last; similar ones are merged under the latest
    /// time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventNow>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct QueueNow {
    pub messages: u64,
    pub held: u64,
    /// Pending recipients by class.
    pub ordinary: u64,
    pub bulk: u64,
    /// Recipients in transactions, in the fast and in the slow lane.
    pub in_flight_fast: u64,
    pub in_flight_slow: u64,
    pub octets: u64,
    /// Acceptance time of the oldest.
    pub oldest: Option<Ms>,
    /// Depth by lane; as old as `sites_at`.
    pub depth: Depth,
    /// Totals for the requested list and site; as old as `sites_at`.
    pub part: Option<PartNow>,
}

/// A part of the queue.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct PartNow {
    /// Pending recipients.
    pub recipients: u64,
    pub messages: u64,
    /// Acceptance time of the oldest.
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
    /// Connections to hosts, in each lane, and their maximum.
    pub fast: u64,
    pub fast_max: u64,
    pub slow: u64,
    pub slow_max: u64,
    /// Fast connections reserved for ordinary mail.
    pub ordinary_reserve: u64,
    /// Sites waiting for a connection.
    pub wanting: u64,
    /// Connections of clients.
    pub clients: u64,
    pub clients_max: u64,
}

/// The committer during the interval.
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
    pub fast: LaneCounts,
    /// At sites where no connection has a session yet.
    pub connecting: LaneCounts,
    pub slow: LaneCounts,
    /// At sites whose hosts are all waiting for a clock.
    pub clock: LaneCounts,
    pub suspended: LaneCounts,
    /// Recipients at domains that have not been looked up yet.
    pub unresolved: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct LaneCounts {
    pub sites: u64,
    /// Pending recipients, including those in transactions and with clocks of their own.
    pub recipients: u64,
    /// Messages in line at these sites: once for each site.
    pub ordinary: u64,
    pub bulk: u64,
}

/// A site as shown to a watcher.
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
    /// `fast`, `connecting`, `slow`, `clock`, `suspended`; `unknown` for a domain without a site.
    pub lane: String,
    pub latency_ms: u64,
    pub next_try: Option<Ms>,
    pub last_reply: String,
    /// Why mail waits, in words; empty if nothing prevents delivery.
    pub waits_for: String,
    /// Acceptance time of the oldest message there.
    pub oldest: Option<Ms>,
}

/// Formats `850 us`, `12 ms`, `1.5 s`.
pub fn time_us(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..10_000 => format!("{:.1} ms", us as f64 / 1e3),
        10_000..1_000_000 => format!("{} ms", us / 1_000),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}
