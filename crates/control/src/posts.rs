//! Progress of posts, as `report` returns it.

use serde::{Deserialize, Serialize};
use stentor_queue::ids::Ms;

/// The outcome of a post.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct PostReport {
    pub id: String,
    /// Empty if it does not belong to a list.
    pub list: String,
    pub sender: String,
    /// The decoded subject; empty if there is none, `None` if the message is no longer stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Octets as transmitted.
    pub size: u64,
    pub accepted: Ms,
    pub now: Ms,
    /// Recipients; the sum of the fates.
    pub total: u64,
    pub delivered: u64,
    pub bounced: u64,
    pub expired: u64,
    pub removed: u64,
    pub quarantined: u64,
    pub coalesced: u64,
    pub pending: u64,
    /// Whether its pending recipients are held.
    pub held: bool,
    /// When only stragglers were left.
    pub fast_done: Option<Ms>,
    /// When the last recipient was finished.
    pub finished: Option<Ms>,
    /// Set if the post was running when the server started: recipients finished by then; the times are of the others.
    pub before_start: Option<u64>,
    /// Times from acceptance to delivery, in ms.
    pub timeline: Timeline,
    /// Where the rest waits, most recipients first; only in the report of one post.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingAt>,
    /// The first recipients that bounced or expired since the server started, at most 10; only in the report of one
    /// post.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<FailedRcptView>,
    /// Number of sites after the first of these rows, including those left out.
    pub sites_more: u64,
    /// The report in words: "99.2 % delivered in 1.8 s, 14 waiting at example.net (connection refused, next try 10:42
    /// UTC), 3 failed".
    pub text: String,
}

/// Percentiles of the time from acceptance to delivery.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct Timeline {
    /// Number of deliveries covered.
    pub count: u64,
    /// 50 % were delivered within this time.
    pub p50_ms: u64,
    /// 90 % were delivered within this time.
    pub p90_ms: u64,
    /// 95 % were delivered within this time.
    pub p95_ms: u64,
    /// 99 % were delivered within this time.
    pub p99_ms: u64,
    /// All were delivered within this time.
    pub p100_ms: u64,
}

/// Recipients of a post that wait for one reason at one site, or at a domain without a site.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct WaitingAt {
    pub site: String,
    /// Recipients with the same cause.
    pub recipients: u64,
    pub cause: String,
    pub words: String,
    /// When the connection being made there reached the stage that `words` names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Ms>,
    /// In a transaction now.
    pub in_flight: bool,
    pub last_reply: String,
    /// The earliest next attempt.
    pub next_try: Option<Ms>,
}

/// A recipient that bounced or expired.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct FailedRcptView {
    /// The recipient's address.
    pub address: String,
    /// `bounced` or `expired`.
    pub fate: String,
    /// When it was given up.
    pub at: Ms,
    /// The last reply of a host, or our reason.
    pub reply: String,
}

impl PostReport {
    /// Number of recipients that are finished.
    pub fn decided(&self) -> u64 {
        self.delivered + self.bounced + self.expired + self.removed + self.quarantined + self.coalesced
    }
}
