//! Endpoints that mail events are posted to.

use std::path::PathBuf;

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
    /// A bounce or complaint about a post came back by mail.
    Report,
    /// A health condition began or ended.
    Health,
}

impl Kind {
    pub const ALL: [(&'static str, Kind); 12] = [
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
        ("report", Kind::Report),
        ("health", Kind::Health),
    ];
    /// Final outcomes: the default selection.
    pub const FINAL: [Kind; 5] = [Kind::Delivered, Kind::Bounced, Kind::Expired, Kind::Removed, Kind::Coalesced];
    /// What listmonk records: all of its events, and the default selection.
    pub const OF_LISTMONK: [Kind; 3] = [Kind::Bounced, Kind::Expired, Kind::Report];
}

/// Form of the requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WebhookFormat {
    /// Events in batches, signed.
    Events,
    /// listmonk's bounce API: one recipient in each request.
    Listmonk,
}

impl WebhookFormat {
    /// Value of `format`.
    pub fn name(self) -> &'static str {
        match self {
            WebhookFormat::Events => "events",
            WebhookFormat::Listmonk => "listmonk",
        }
    }
}

/// Settings of `[webhooks.NAME]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WebhookConfig {
    pub name: String,
    pub url: Url,
    /// Key of the signature; empty: none.
    pub secret: String,
    pub format: WebhookFormat,
    /// File with the value of `Authorization`.
    pub authorization_file: Option<PathBuf>,
    pub enabled: bool,
    pub events: Vec<Kind>,
    /// Lists and domains of envelope senders whose events are posted; both empty: events of all mail.
    pub lists: Vec<String>,
    pub senders: Vec<String>,
    pub batch_max: usize,
    pub batch_wait_ms: u64,
    pub timeout_ms: u64,
}
