//! Figures of a running server: counted as it happens, kept in rings, sent to whoever watches.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::record::{Machine, Ms};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Sums, since the start or within a stretch of time.
        #[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
        #[serde(default)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counts {
            /// What came since `before`.
            #[must_use]
            pub fn since(&self, before: &Counts) -> Counts {
                Counts { $($name: self.$name.saturating_sub(before.$name),)* }
            }

            #[must_use]
            pub fn plus(&self, more: &Counts) -> Counts {
                Counts { $($name: self.$name.saturating_add(more.$name),)* }
            }
        }

        /// The same as counters that are added to.
        #[derive(Default)]
        pub struct Totals {
            $(pub $name: AtomicU64,)*
        }

        impl Totals {
            pub fn read(&self) -> Counts {
                Counts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counts! {
    /// Messages taken over.
    accepted,
    /// Their recipients, after expansion.
    accepted_recipients,
    /// Their octets.
    accepted_bytes,
    /// Recipients delivered.
    delivered,
    /// Octets of content sent in transactions that delivered.
    delivered_bytes,
    /// Recipients of attempts that did not deliver them, and those deferred by a session or look-up that failed.
    failed,
    /// Of the former those that are tried again.
    deferred,
    /// Recipients given up after a permanent failure.
    bounced,
    /// Recipients given up since they were too old.
    expired,
}

/// What came since the point before.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct Point {
    /// The end of it.
    pub at: Ms,
    #[serde(flatten)]
    pub counts: Counts,
}

/// One sample; octets are those of the interval.
#[derive(Clone, Copy, PartialEq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct MachineNow {
    pub at: Ms,
    /// What the rates are over; 0: there was no sample yet.
    pub interval_ms: u64,
    pub processors: u32,
    /// Share of all processors' time that was not idle, 0 to 1.
    pub cpu: f32,
    /// Share of all processors' time that was idle with I/O outstanding.
    pub io_wait: f32,
    pub load_1m: f32,
    pub memory_bytes: u64,
    pub memory_used_bytes: u64,
    pub disk_read_bytes: u64,
    pub disk_written_bytes: u64,
    /// Share of the time in which the busiest disk had something to do, 0 to 1.
    pub disk_busy: f32,
    pub net_in_bytes: u64,
    pub net_out_bytes: u64,
    /// The server's own: processors' time over the interval (may exceed 1).
    pub own_cpu: f32,
    pub own_memory_bytes: u64,
    pub own_read_bytes: u64,
    pub own_written_bytes: u64,
    /// SMTP, on any interface.
    pub own_net_in_bytes: u64,
    pub own_net_out_bytes: u64,
    /// At the end of the interval.
    pub pending: u64,
    pub connections_in: u32,
    pub connections_out: u32,
}

impl MachineNow {
    pub fn record(&self) -> Machine {
        Machine {
            at: self.at,
            interval_ms: self.interval_ms,
            cpu: self.cpu,
            load_1m: self.load_1m,
            memory_used_bytes: self.memory_used_bytes,
            disk_read_bytes: self.disk_read_bytes,
            disk_written_bytes: self.disk_written_bytes,
            disk_busy: self.disk_busy,
            net_in_bytes: self.net_in_bytes,
            net_out_bytes: self.net_out_bytes,
            own_cpu: self.own_cpu,
            own_memory_bytes: self.own_memory_bytes,
            own_read_bytes: self.own_read_bytes,
            own_written_bytes: self.own_written_bytes,
            pending: self.pending,
            connections_in: self.connections_in,
            connections_out: self.connections_out,
        }
    }
}

/// A line of a session's traffic, for a watcher.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct TrafficLine {
    pub at: Ms,
    /// Of this run, the same for all lines of a session.
    pub session: u64,
    /// `command` (by the client of the session), `reply`, `event`.
    pub kind: String,
    pub text: String,
}

/// What happened, for a watcher.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct EventNow {
    /// The last time.
    pub at: Ms,
    /// `deferred`, `bounced`, `expired`, `refused`, `connect_failed`, `lookup_failed`, `audit`.
    pub kind: String,
    pub text: String,
    /// How often, if several alike came in a short time.
    pub times: u64,
}

/// Percentiles in the unit of what was counted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct Percentiles {
    pub count: u64,
    pub p50: u64,
    pub p90: u64,
    pub p95: u64,
    pub p99: u64,
    pub max: u64,
}
