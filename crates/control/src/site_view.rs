//! One site as shown to operators: the reply to `site`.

use serde::{Deserialize, Serialize};
use stentor_queue::ids::Ms;

use super::causes::CauseRow;
use super::format::{next_try, plural};

/// The name of a lane for people: the state of a site.
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

/// The reply to `stentor site NAME`.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct SiteView {
    pub site: String,
    pub now: Ms,
    /// The list that the view is limited to; empty for all mail.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub list: String,
    /// A domain that has not been looked up, or whose look-up failed: its hosts are unknown.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_unresolved: bool,
    /// When they were counted; `None` while a large queue is counted for the first time.
    pub counted: Option<Ms>,
    /// Messages with recipients here.
    pub messages: u64,
    /// Pending recipients.
    pub waiting: u64,
    /// Why they wait; the rows add up to `waiting`. Empty while a large queue is counted for the first time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<CauseRow>,
    /// As in `hosts`: `fast`, `connecting`, `slow`, `clock`, `suspended`, `unknown`.
    pub lane: String,
    /// An operator suspended the site.
    pub suspended: bool,
    /// When the suspension expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspended_until: Option<Ms>,
    /// The operator's reason for the suspension, if one was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspended_reason: Option<String>,
    /// Why mail waits, in words; empty if nothing prevents delivery.
    pub waits_for: String,
    pub next_try: Option<Ms>,
    pub last_reply: String,
    /// The weakest TLS of a session in thirty days.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weakest_tls: Option<WeakTlsView>,
    /// Each source's path to the site.
    pub paths: Vec<PathView>,
}

#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct PathView {
    /// Name of the source; empty if none is configured.
    pub source: String,
    pub connections: u64,
    /// Connections waiting for a silent host.
    pub silent: u64,
    /// Maximum number of connections.
    pub connections_max: u64,
    /// Transactions in progress.
    pub transactions_under_way: u64,
    /// Maximum number of transactions in a connection; null if there is none.
    pub transactions_per_connection_max: Option<u64>,
    /// Maximum number of recipients in a transaction; null if there is none.
    pub recipients_per_transaction_max: Option<u64>,
    /// Maximum number of messages in a minute; null if there is none.
    pub messages_per_minute_max: Option<u64>,
    /// Paused until then after a rate-limit reply.
    pub paused_until: Option<Ms>,
    /// Latency of the last answers; 0 if there were none.
    pub latency_ms: u64,
    /// A connection silent for longer counts towards the slow lane.
    pub silence_ms: u64,
    pub hosts: Vec<HostView>,
}

#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct HostView {
    pub host: String,
    /// IP address and port.
    pub address: String,
    /// Failures in a row.
    pub failures: u8,
    /// When it may be tried again.
    pub next_try: Option<Ms>,
    /// One connection is testing whether the host works again.
    pub probing: bool,
    /// Whether it keeps a connection waiting.
    pub silent: bool,
    pub last_reply: String,
    /// The stage of the connection being made.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub attempt: String,
    /// When it reached this stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Ms>,
    /// TLS of the last session with it, from any site; `None` if none is remembered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsView>,
}

/// The TLS of a session with a host.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct TlsView {
    /// As in the log: `TLSv1.3:TLS_AES_256_GCM_SHA384:verified`, `clear:timeout`; empty if TLS is off on purpose.
    pub session: String,
    /// When the session was opened.
    pub at: Ms,
    /// How the host was authenticated, or why not, in words; empty in clear.
    pub proven: String,
    /// The host's certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<CertificateView>,
    /// The weakest session of thirty days.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weakest: Option<WeakTlsView>,
}

#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct CertificateView {
    /// Host names that it is valid for.
    pub names: Vec<String>,
    /// Name of the issuer.
    pub issuer: String,
    /// The last day of validity.
    pub ends: String,
    /// SHA-256 of the certificate.
    pub sha256: String,
    /// SHA-256 of its public key, as in TLSA `3 1 1`.
    pub key_sha256: String,
}

#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct WeakTlsView {
    /// Its TLS, as in `session` of `tls`.
    pub session: String,
    /// When such a session was last seen.
    pub at: Ms,
    pub host: String,
}

/// A session's TLS in words.
pub fn tls_words(session: &str) -> &str {
    if session.is_empty() { "in clear, on purpose" } else { session }
}

impl CertificateView {
    /// Formats `mx.example.net by Example CA until 2027-01-31`.
    pub fn words(&self) -> String {
        format!("{} by {} until {}", self.names.join(", "), self.issuer, self.ends)
    }
}

impl HostView {
    /// Formats `ok` or `2 failures, next try 8s`.
    pub fn state(&self, now: Ms) -> String {
        let failures = (self.failures > 0).then(|| plural(self.failures.into(), "failure"));
        let state = match (&failures, self.next_try) {
            _ if !self.attempt.is_empty() => self.attempt.clone(),
            (None, _) if self.silent => "responds slowly".to_owned(),
            (None, _) => "ok".to_owned(),
            (Some(_), _) if self.probing => "being probed".to_owned(),
            // The host's own clock has run out; mail there may have a later one.
            (Some(_), None) => "may be tried again".to_owned(),
            (Some(_), at) => format!("next try {}", next_try(at, now)),
        };
        failures.into_iter().chain([state]).collect::<Vec<_>>().join(", ")
    }
}
