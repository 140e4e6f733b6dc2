//! The limits of the server, by name: hits are counted and logged.
//!
//! Promise: a hit costs an atomic addition; the first is logged at once, then at most one line in ten seconds
//! ([`LogLimiter`]) says how many there were, and which key of the configuration raises the limit or what else helps.
//! `/metrics` has them as `stentor_limit_hits_total`.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use stentor_records::log_limiter::LogLimiter;
use stentor_records::record::Ms;

/// What an operator can do about a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remedy {
    /// The configuration key or system limit to raise.
    Raise(&'static str),
    /// Advice where raising it is impossible or useless.
    Advice(&'static str),
}

use Remedy::{Advice, Raise};

impl Remedy {
    /// What to raise.
    fn key(self) -> Option<&'static str> {
        match self {
            Raise(key) => Some(key),
            Advice(_) => None,
        }
    }

    /// What to do instead.
    fn advice(self) -> Option<&'static str> {
        match self {
            Raise(_) => None,
            Advice(advice) => Some(advice),
        }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Raise(key) => write!(out, "raise {key}"),
            Advice(advice) => out.write_str(advice),
        }
    }
}

macro_rules! limits {
    ($($(#[$doc:meta])* $limit:ident: $name:literal, $remedy:expr, $what:literal;)*) => {
        /// A limit that was hit.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Limit { $($(#[$doc])* $limit,)* }

        impl Limit {
            pub const ALL: &'static [Limit] = &[$(Limit::$limit,)*];

            /// The limit's name in metrics and the log.
            pub fn name(self) -> &'static str {
                match self { $(Limit::$limit => $name,)* }
            }

            pub fn remedy(self) -> Remedy {
                match self { $(Limit::$limit => $remedy,)* }
            }

            /// The event, in words.
            fn what(self) -> &'static str {
                match self { $(Limit::$limit => $what,)* }
            }
        }
    };
}

limits! {
    Connections: "connections", Raise("[listen] connections_max"), "a client was refused with 421";
    SubmissionConnections: "submission_connections", Raise("[listen] submission_connections_max"),
        "a client of `submission` or `smtps` was refused with 421";
    Displaced: "connections_displaced", Raise("[listen] connections_max and submission_connections_max"),
        "an idle session of the client with the most sessions was closed with 421, for another client";
    ConnectionsPerClient: "connections_per_client", Raise("[listen] connections_per_client_max"),
        "a client with too many connections was refused with 421";
    ProxyHeader: "proxy_header", Advice("enable send-proxy on this proxy, or remove it from [listen] proxy_clients"),
        "a proxy's connection did not begin with a PROXY header and was closed";
    RecipientsPerMessage: "recipients_per_message", Raise("[listen] recipients_per_message_max"),
        "RCPT was refused with 452";
    Errors: "errors", Raise("[listen] errors_max"),
        "a session was closed after too many errors, or commands without a message";
    MessageSize: "message_size", Raise("message_size_bytes_max"), "a message was refused with 552";
    Received: "received", Raise("received_max"), "a message with too many Received fields was refused with 554";
    BodyMemory: "body_memory", Raise("[listen] body_bytes_max"),
        "a message was refused with 452: incoming bodies use all their memory";
    StreamedBytes: "streamed_bytes", Raise("[listen] streamed_bytes_max"), "a large body was refused with 452";
    DiskReserve: "disk_reserve", Advice("free disk space, or lower [journal] reserve_bytes"),
        "mail was refused with 452: the disk is full";
    AddressBook: "address_book", Raise("[journal] addresses_max"),
        "mail was refused with 452: the address book is full";
    MemoryGroup: "memory_group", Raise("the control group's memory limit"),
        "mail was refused with 452: memory is nearly full";
    Completions: "completions", Advice("use a faster disk, outcomes wait to be synced"),
        "deliveries paused: too many outcomes are not yet durable, and a crash would repeat them";
    DeliveryConnections: "delivery_connections", Raise("[delivery] connections_max"),
        "mail waits for a free connection";
    SiteConnections: "site_connections", Raise("[delivery] connections_per_site_max, or [sites]"),
        "mail waits for a free connection to its site";
    Resolves: "resolves", Raise("[delivery] resolves_max"), "domain lookups wait for earlier ones";
    CallAheadQuestions: "call_ahead_questions",
        Raise("[call_ahead] questions_per_second_max and connections_per_site_max"),
        "recipients of a relay domain were not verified: too many questions";
    Reports: "reports", Advice("at most 32 are built at a time; wait"), "DSNs wait to be built";
    Suspensions: "suspensions", Advice("end some with `stentor resume`"), "a suspension was refused";
    LogBuffer: "log_buffer", Advice("use a faster target for [log] attempts, or turn it off"), "log lines were lost";
    History: "history", Advice("the log shows the error of the history's directory or disk"),
        "history records were lost";
    ControlConnections: "control_connections", Advice("at most 16 are open at a time; close some"),
        "an operator's connection was refused";
    HttpConnections: "http_connections", Raise("[http] connections_max"), "HTTP clients wait for a free connection";
    HttpBody: "http_body", Raise("message_size_bytes_max"), "a request body was too large (413)";
    IdempotencyKeys: "idempotency_keys", Advice("retry sooner: the oldest key is dropped"),
        "an idempotency key was dropped early";
    WebhookBacklog: "webhook_backlog", Raise("[history] keep_days"),
        "a webhook fell behind, and its next history records had expired";
    TraceQueue: "trace_queue", Raise("[telemetry] sample_one_in"), "spans were dropped: the collector is too slow";
}

#[derive(Default)]
struct Row {
    hits: LogLimiter,
    /// Time of the last hit.
    hit_at: AtomicU64,
    /// The client that hit it last, for limits whose remedy concerns one client.
    by: Mutex<Option<IpAddr>>,
}

/// Hits of each limit.
pub struct LimitHits {
    rows: Vec<Row>,
}

impl Default for LimitHits {
    fn default() -> LimitHits {
        LimitHits { rows: Limit::ALL.iter().map(|_| Row::default()).collect() }
    }
}

impl Row {
    fn by(&self) -> MutexGuard<'_, Option<IpAddr>> {
        self.by.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LimitHits {
    pub fn hit(&self, limit: Limit, now: Ms) {
        self.hit_times(limit, 1, now);
    }

    pub fn hit_times(&self, limit: Limit, times: u64, now: Ms) {
        if times > 0 {
            let row = &self.rows[limit as usize];
            row.hits.count(times);
            row.hit_at.store(now, Ordering::Relaxed);
            self.log(limit, now);
        }
    }

    /// Counts a hit by a client that has to be named.
    pub fn hit_by(&self, limit: Limit, by: IpAddr, now: Ms) {
        *self.rows[limit as usize].by() = Some(by);
        self.hit(limit, now);
    }

    /// The client that hit the limit last, if known.
    pub fn last_by(&self, limit: Limit) -> Option<IpAddr> {
        *self.rows[limit as usize].by()
    }

    /// When the limit was hit last; 0: never.
    pub fn hit_at(&self, limit: Limit) -> Ms {
        self.rows[limit as usize].hit_at.load(Ordering::Relaxed)
    }

    pub fn hits(&self, limit: Limit) -> u64 {
        self.rows[limit as usize].hits.times()
    }

    /// Logs the hits since the last line, if that was long enough ago.
    pub fn log_all(&self, now: Ms) {
        for limit in Limit::ALL {
            self.log(*limit, now);
        }
    }

    fn log(&self, limit: Limit, now: Ms) {
        if let Some(times) = self.rows[limit as usize].hits.due(now) {
            let (by, remedy) = (self.last_by(limit).map(tracing::field::display), limit.remedy());
            tracing::warn!(
                limit = limit.name(),
                times,
                by,
                raised_by = remedy.key(),
                advice = remedy.advice(),
                "limit hit: {}",
                limit.what()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_hit_it_last_is_known_where_it_matters() {
        let limits = LimitHits::default();
        limits.hit_by(Limit::ProxyHeader, [192, 0, 2, 7].into(), 0);
        limits.hit(Limit::Errors, 0);
        assert_eq!(limits.last_by(Limit::ProxyHeader), Some([192, 0, 2, 7].into()));
        assert_eq!((limits.hits(Limit::ProxyHeader), limits.last_by(Limit::Errors)), (1, None));
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = Limit::ALL.iter().map(|limit| limit.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Limit::ALL.len());
    }
}
