//! One site as operators see it: the reply to `site`.

use serde::{Deserialize, Serialize};
use stentor_queue::ids::Ms;

use super::causes::CauseRow;
use super::format::{next_try, plural};

/// What a lane is called: the state of a site, for people.
pub fn site_state(lane: &str) -> Option<&'static str> {
    Some(match lane {
        "fast" => "Responding",
        "connecting" => "Connecting",
        "slow" => "Silent",
        "clock" => "Backing off",
        "suspended" => "Suspended",
        "unknown" => "Unresolved",
        _ => return None,
    })
}

/// `stentor site NAME`.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct SiteView {
    pub site: String,
    pub now: Ms,
    /// The list whose mail this is of; empty: all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub list: String,
    /// A domain that is not looked up yet, or whose lookup failed: its hosts are not known.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_unresolved: bool,
    /// When they were counted; `None`: a large queue is being counted for the first time.
    pub counted: Option<Ms>,
    /// Messages with recipients here.
    pub messages: u64,
    /// Pending recipients.
    pub waiting: u64,
    /// Why they wait; the rows add up to `waiting`. Empty while a large queue is counted for the first time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<CauseRow>,
    /// As of `hosts`: `fast`, `connecting`, `slow`, `clock`, `suspended`, `unknown`.
    pub lane: String,
    pub suspended: bool,
    /// When that ends by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspended_until: Option<Ms>,
    /// Why mail waits, in words; empty if nothing is in its way.
    pub waits_for: String,
    pub next_try: Option<Ms>,
    pub last_reply: String,
    /// The weakest TLS of a session in thirty days.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weakest_tls: Option<WeakTlsView>,
    /// Each source's way there.
    pub paths: Vec<PathView>,
}

#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct PathView {
    /// Name of the source; empty if none is configured.
    pub source: String,
    pub connections: u64,
    /// Kept waiting by the host.
    pub silent: u64,
    pub connections_max: u64,
    pub transactions_under_way: u64,
    pub transactions_per_connection_max: Option<u64>,
    pub recipients_per_transaction_max: Option<u64>,
    pub messages_per_minute_max: Option<u64>,
    /// A rate reply stopped it until then.
    pub paused_until: Option<Ms>,
    pub latency_ms: u64,
    /// A connection that is silent for longer is charged to the slow lane.
    pub silence_ms: u64,
    pub hosts: Vec<HostView>,
}

#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct HostView {
    pub host: String,
    pub address: String,
    /// In a row.
    pub failures: u8,
    pub next_try: Option<Ms>,
    /// One connection is seeing whether it is back.
    pub probing: bool,
    /// It keeps a connection waiting.
    pub silent: bool,
    pub last_reply: String,
    /// How far the connection is that is being made, and since when it has been there.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub attempt: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Ms>,
    /// Of the last session with it, by whatever site; `None`: none is remembered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsView>,
}

/// What TLS a session with a host had.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct TlsView {
    /// As the log has it: `TLSv1.3:TLS_AES_256_GCM_SHA384:verified`, `clear:timeout`; empty: TLS is not used on purpose.
    pub session: String,
    pub at: Ms,
    /// How the host was proven, or why not, in words; empty in clear.
    pub proven: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<CertificateView>,
    /// The weakest session of thirty days.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weakest: Option<WeakTlsView>,
}

#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct CertificateView {
    pub names: Vec<String>,
    pub issuer: String,
    /// Its last day.
    pub ends: String,
    /// SHA-256 of the certificate, and of its public key as TLSA `3 1 1` has it.
    pub sha256: String,
    pub key_sha256: String,
}

#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct WeakTlsView {
    pub session: String,
    /// When it was last like that.
    pub at: Ms,
    pub host: String,
}

/// A session's TLS as people read it.
pub fn tls_words(session: &str) -> &str {
    if session.is_empty() { "in clear, on purpose" } else { session }
}

impl CertificateView {
    /// `mx.example.net by Example CA until 2027-01-31`.
    pub fn words(&self) -> String {
        format!("{} by {} until {}", self.names.join(", "), self.issuer, self.ends)
    }
}

impl HostView {
    /// `ok`, `2 failures, next try 8s`.
    pub fn state(&self, now: Ms) -> String {
        let failures = (self.failures > 0).then(|| plural(self.failures.into(), "failure"));
        let state = match (&failures, self.next_try) {
            _ if !self.attempt.is_empty() => self.attempt.clone(),
            (None, _) if self.silent => "responds slowly".to_owned(),
            (None, _) => "ok".to_owned(),
            (Some(_), _) if self.probing => "being probed".to_owned(),
            // Its own clock has run out; mail there may have a later one.
            (Some(_), None) => "may be tried again".to_owned(),
            (Some(_), at) => format!("next try {}", next_try(at, now)),
        };
        failures.into_iter().chain([state]).collect::<Vec<_>>().join(", ")
    }
}
