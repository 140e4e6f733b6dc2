//! Pending recipients by site and age: `ages`, as qshape shows them.

use serde::{Deserialize, Serialize};
use stentor_queue::age::BUCKETS;
use stentor_queue::ids::Ms;

#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct Ages {
    pub hostname: String,
    pub now: Ms,
    /// The part of the queue in words; empty for all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub part: String,
    /// Pending recipients; the sum of `total`.
    pub recipients: u64,
    /// When they were counted; `None` while a large queue is counted for the first time.
    pub counted: Option<Ms>,
    /// Number of sites, and domains without one, with pending recipients.
    pub sites_total: u64,
    /// Ends of the age buckets, in minutes.
    pub minutes: Vec<u64>,
    /// Pending recipients in each age bucket.
    pub total: [u64; BUCKETS],
    /// Rows with most recipients first.
    pub rows: Vec<AgesRow>,
}

#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct AgesRow {
    pub site: String,
    /// Pending recipients there.
    pub recipients: u64,
    /// The same in each age bucket.
    pub by_age: [u64; BUCKETS],
}
