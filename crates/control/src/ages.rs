//! Pending recipients by site and age: `ages`, as qshape shows them.

use serde::{Deserialize, Serialize};
use stentor_queue::age::BUCKETS;
use stentor_queue::ids::Ms;

#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct Ages {
    pub hostname: String,
    pub now: Ms,
    /// The part of the queue that this is of, in words; empty: all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub part: String,
    /// Pending recipients; the sum of `total`.
    pub recipients: u64,
    /// When they were counted; `None`: a large queue is being counted for the first time.
    pub counted: Option<Ms>,
    pub sites_total: u64,
    /// Where the buckets end, minutes.
    pub minutes: Vec<u64>,
    pub total: [u64; BUCKETS],
    /// Those with most recipients first.
    pub rows: Vec<AgesRow>,
}

#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct AgesRow {
    pub site: String,
    pub recipients: u64,
    pub by_age: [u64; BUCKETS],
}
