//! The limits of the server, by name: hits are counted and logged.
//!
//! Promise: a hit costs an atomic addition; the first is logged at once, then at most one line in ten seconds
//! ([`Seldom`]) says how many there were and which key of the configuration raises the limit. `/metrics` has them as
//! `stentor_limit_hits_total`.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use stentor_stats::record::Ms;
use stentor_stats::seldom::Seldom;

macro_rules! limits {
    ($($(#[$doc:meta])* $limit:ident: $name:literal, $key:literal, $what:literal;)*) => {
        /// A limit that was hit.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Limit { $($(#[$doc])* $limit,)* }

        impl Limit {
            pub const ALL: &'static [Limit] = &[$(Limit::$limit,)*];

            /// The limit's name in metrics and the log.
            pub fn name(self) -> &'static str {
                match self { $(Limit::$limit => $name,)* }
            }

            /// How to raise the limit: a key of the configuration, or something else.
            pub fn key(self) -> &'static str {
                match self { $(Limit::$limit => $key,)* }
            }

            /// The event, in words.
            fn what(self) -> &'static str {
                match self { $(Limit::$limit => $what,)* }
            }
        }
    };
}

limits! {
    Connections: "connections", "[listen] connections_max", "a client was turned away with 421";
    SubmissionConnections: "submission_connections", "[listen] submission_connections_max",
        "a client of `submission` or `smtps` was turned away with 421";
    Displaced: "connections_displaced", "[listen] connections_max and submission_connections_max",
        "an idle session of the client with most of them was closed with 421 for another client";
    ConnectionsPerClient: "connections_per_client", "[listen] connections_per_client_max",
        "a client with many connections was turned away with 421";
    ProxyHeader: "proxy_header", "nothing: turn on send-proxy at this proxy, or take it out of [listen] proxy_clients",
        "a proxy's connection did not begin with a PROXY header and was closed";
    RecipientsPerMessage: "recipients_per_message", "[listen] recipients_per_message_max", "RCPT was answered with 452";
    Errors: "errors", "[listen] errors_max", "a session was closed after too many errors, or commands without a message";
    MessageSize: "message_size", "message_size_bytes_max", "a message was refused with 552";
    Received: "received", "received_max", "a message with too many Received fields was refused with 554";
    BodyMemory: "body_memory", "[listen] body_bytes_max", "a message was answered with 452: bodies on their way in fill their memory";
    StreamedBytes: "streamed_bytes", "[listen] streamed_bytes_max", "a large body was answered with 452";
    DiskReserve: "disk_reserve", "[journal] reserve_bytes, or more disk", "mail was answered with 452: the disk is full";
    AddressBook: "address_book", "[journal] addresses_max", "mail was answered with 452: the address book is full";
    MemoryGroup: "memory_group", "the control group's memory limit", "mail was answered with 452: memory is nearly used up";
    Completions: "completions", "nothing: outcomes wait to be synced, a faster disk helps",
        "deliveries paused: as many outcomes as a crash may repeat are not durable yet";
    DeliveryConnections: "delivery_connections", "[delivery] connections_max", "mail waits for a connection's place";
    SiteConnections: "site_connections", "[delivery] connections_per_site_max, or [sites]", "mail waits for a place at its site";
    Resolves: "resolves", "[delivery] resolves_max", "lookups of domains wait for others";
    CallAheadQuestions: "call_ahead_questions", "[call_ahead] questions_per_second_max and connections_per_site_max",
        "recipients of a relay domain were not asked for: too many questions";
    Reports: "reports", "nothing: built at most 32 at a time", "DSNs wait to be built";
    Suspensions: "suspensions", "nothing: `stentor resume` some", "a suspension was refused";
    LogBuffer: "log_buffer", "nothing: give [log] attempts a faster target, or turn it off", "lines of the log were lost";
    History: "history", "nothing: the log has the error of the history's folder or disk", "entries of the history were lost";
    ControlConnections: "control_connections", "nothing: 16 at a time", "an operator's connection was turned away";
    HttpConnections: "http_connections", "[http] connections_max", "HTTP clients wait for others";
    HttpBody: "http_body", "message_size_bytes_max", "a request's body was too large (413)";
    IdempotencyKeys: "idempotency_keys", "nothing: the oldest goes", "an idempotency key was forgotten before its time";
    WebhookBacklog: "webhook_backlog", "how long [history] is kept", "a webhook was so late that the history had forgotten what was next";
    TraceQueue: "trace_queue", "[telemetry] sample_one_in", "spans were dropped: the collector does not keep up";
}

#[derive(Default)]
struct Row {
    hits: Seldom,
    /// Time of the last hit.
    hit_at: AtomicU64,
    /// The client that hit it last, for limits whose remedy concerns one client.
    by: Mutex<Option<IpAddr>>,
}

pub struct Limits {
    rows: Vec<Row>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { rows: Limit::ALL.iter().map(|_| Row::default()).collect() }
    }
}

impl Row {
    fn by(&self) -> MutexGuard<'_, Option<IpAddr>> {
        self.by.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Limits {
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
            let by = self.last_by(limit).map(tracing::field::display);
            tracing::warn!(limit = limit.name(), times, by, raised_by = limit.key(), "limit hit: {}", limit.what());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_hit_it_last_is_known_where_it_matters() {
        let limits = Limits::default();
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
