//! Progress of posts, as `report` returns it.

use serde::{Deserialize, Serialize};
use stentor_queue::ids::Ms;

/// What became of a post.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct PostReport {
    pub id: String,
    /// Empty if it is no list's.
    pub list: String,
    pub sender: String,
    /// Decoded; empty where there is none, `None` where the message is no longer stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Octets at the wire.
    pub size: u64,
    pub accepted: Ms,
    pub now: Ms,
    /// Recipients; the sum of what follows.
    pub total: u64,
    pub delivered: u64,
    pub bounced: u64,
    pub expired: u64,
    pub removed: u64,
    pub quarantined: u64,
    pub coalesced: u64,
    pub pending: u64,
    /// Its pending recipients are held.
    pub held: bool,
    /// When only stragglers were left, and when the last recipient had its fate.
    pub fast_done: Option<Ms>,
    pub finished: Option<Ms>,
    /// It ran when the server started: recipients that had their fate by then; the times are of the others.
    pub before_start: Option<u64>,
    /// How soon after acceptance parts of those delivered were, ms.
    pub timeline: Timeline,
    /// Where the rest waits, most recipients first; only of a report of one post.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingAt>,
    /// Sites behind the first of these rows, and behind those left out.
    pub sites_more: u64,
    /// "99.2 % delivered in 1.8 s, 14 waiting at example.net (connection refused, next try 10:42 UTC), 3 failed"
    pub text: String,
}

/// Percentiles of the time from acceptance to delivery.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct Timeline {
    /// Deliveries that they are of.
    pub count: u64,
    pub p50_ms: u64,
    pub p90_ms: u64,
    pub p95_ms: u64,
    pub p99_ms: u64,
    pub p100_ms: u64,
}

/// Recipients of a post that wait at one site, or a domain that is at none yet, for one reason.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct WaitingAt {
    pub site: String,
    /// All with the same cause: [`stentor_queue::cause::Cause::name`], and its words.
    pub recipients: u64,
    pub cause: String,
    pub words: String,
    /// Since when the connection that is being made there has been where `words` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Ms>,
    /// In a transaction now.
    pub in_flight: bool,
    pub last_reply: String,
    /// The earliest.
    pub next_try: Option<Ms>,
}

impl PostReport {
    /// Recipients that have their fate.
    pub fn decided(&self) -> u64 {
        self.delivered + self.bounced + self.expired + self.removed + self.quarantined + self.coalesced
    }
}
