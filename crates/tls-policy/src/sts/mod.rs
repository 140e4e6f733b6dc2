//! MTA-STS (RFC 8461): a domain's policy for senders, fetched by HTTPS.
//!
//! This module parses records and files ([`Record`], [`StsPolicy`]) and caches policies ([`Cache`]); the caller does
//! lookups and HTTPS. DANE takes precedence if it applies (RFC 8461 2): see `crate::host_use`.

mod cache;
mod policy;
mod record;
#[cfg(test)]
mod tests;

pub use cache::{
    Cache, CacheError, CachedPolicy, DOMAINS_MAX, FetchFailure, FetchFailureKind, OCTETS_MAX, PolicyFetch,
    PolicyLookup, REFRESH_MS, RETRY_MS, write,
};
pub use policy::{MAX_AGE_S_MAX, PATTERNS_MAX, POLICY_BYTES_MAX, StsMode, StsPolicy, StsPolicyError};
pub use record::{RECORD_BYTES_MAX, RECORDS_MAX, Record, RecordError};

/// The name of the TXT record.
pub fn record_name(domain: &str) -> String {
    format!("_mta-sts.{domain}")
}

/// The host of the policy, whose certificate must match it (RFC 8461 3.3).
pub fn policy_host(domain: &str) -> String {
    format!("mta-sts.{domain}")
}

/// The path on that host.
pub const POLICY_PATH: &str = "/.well-known/mta-sts.txt";
