//! Endpoints that mail events are posted to.

use serde::Serialize;
use stentor_http_client::Url;

/// Kinds of events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Accepted,
    Delivered,
    Deferred,
    Bounced,
    Expired,
    Removed,
    Coalesced,
    Quarantined,
    Released,
    Refused,
    /// A health condition began or ended.
    Health,
}

impl Kind {
    pub const ALL: [(&'static str, Kind); 11] = [
        ("accepted", Kind::Accepted),
        ("delivered", Kind::Delivered),
        ("deferred", Kind::Deferred),
        ("bounced", Kind::Bounced),
        ("expired", Kind::Expired),
        ("removed", Kind::Removed),
        ("coalesced", Kind::Coalesced),
        ("quarantined", Kind::Quarantined),
        ("released", Kind::Released),
        ("refused", Kind::Refused),
        ("health", Kind::Health),
    ];
    /// Final outcomes: the default selection.
    pub const FINAL: [Kind; 5] = [Kind::Delivered, Kind::Bounced, Kind::Expired, Kind::Removed, Kind::Coalesced];
}

/// Settings of `[webhooks.NAME]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WebhookConfig {
    pub name: String,
    pub url: Url,
    pub secret: String,
    pub enabled: bool,
    pub events: Vec<Kind>,
    /// Lists whose events are posted; empty: events of all mail.
    pub lists: Vec<String>,
    pub batch_max: usize,
    pub batch_wait_ms: u64,
    pub timeout_ms: u64,
}
