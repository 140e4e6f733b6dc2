//! Figures of a running server: counted as events happen, kept in rings, and sent to watchers.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::record::{Machine, Ms};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Sums since the start, or within a period.
        #[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
        #[serde(default)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counts {
            /// The difference from `before`.
            #[must_use]
            pub fn since(&self, before: &Counts) -> Counts {
                Counts { $($name: self.$name.saturating_sub(before.$name),)* }
            }

            #[must_use]
            pub fn plus(&self, more: &Counts) -> Counts {
                Counts { $($name: self.$name.saturating_add(more.$name),)* }
            }
        }

        /// The counters of [`Counts`] as atomics.
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
    /// Messages accepted.
    accepted,
    /// Recipients of these messages, after expansion.
    accepted_recipients,
    /// Octets of these messages.
    accepted_bytes,
    /// Recipients delivered.
    delivered,
    /// Octets of content sent in successful transactions.
    delivered_bytes,
    /// Recipients that failed attempts did not deliver, and those deferred by a failed session or look-up.
    failed,
    /// Failed recipients that will be tried again.
    deferred,
    /// Recipients given up after a permanent failure.
    bounced,
    /// Recipients given up because they were too old.
    expired,
}

/// Counts since the previous point.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct Point {
    /// End of the interval.
    pub at: Ms,
    #[serde(flatten)]
    pub counts: Counts,
}

/// One sample of the machine; octets are those of the interval.
#[derive(Clone, Copy, PartialEq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct MachineNow {
    pub at: Ms,
    /// Interval that the rates cover; 0: there was no sample yet.
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
    /// Share of the time in which the busiest disk was busy, 0 to 1.
    pub disk_busy: f32,
    pub net_in_bytes: u64,
    pub net_out_bytes: u64,
    /// The server's own share: processor time over the interval (may exceed 1).
    pub own_cpu: f32,
    pub own_memory_bytes: u64,
    pub own_read_bytes: u64,
    pub own_written_bytes: u64,
    /// SMTP traffic, on any interface.
    pub own_net_in_bytes: u64,
    pub own_net_out_bytes: u64,
    /// Recipients pending at the end of the interval.
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
    /// Number of the session in this run, the same for all of its lines.
    pub session: u64,
    /// `command` (from the client of the session), `reply` or `event`.
    pub kind: String,
    pub text: String,
}

/// An event, for a watcher.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct EventNow {
    /// When it happened last.
    pub at: Ms,
    /// `deferred`, `bounced`, `expired`, `refused`, `connect_failed`, `lookup_failed`, `audit`.
    pub kind: String,
    pub text: String,
    /// How often it happened, if several similar events came within a short time.
    pub times: u64,
}

/// Percentiles, in the unit of the counted values.
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
