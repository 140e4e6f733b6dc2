//! Sums of what happened: as counters that are added to, and as numbers to be subtracted and shown.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

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

        #[derive(Default)]
        pub(super) struct Totals {
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
    /// Recipients of attempts that did not deliver them, and sessions that did not come about.
    failed,
    /// Of the former those that are tried again.
    deferred,
    /// Recipients given up after a permanent failure.
    bounced,
    /// Recipients given up since they were too old.
    expired,
}
