//! MTA-STS (RFC 8461): a domain's policy for those who send to it, by HTTPS.
//!
//! Records and files are parsed here ([`Record`], [`Policy`]) and policies kept ([`Cache`]); look-ups and HTTPS are the caller's.
//! DANE goes first where it applies (RFC 8461 2): see `crate::host_use`.

mod cache;
mod policy;
mod record;
#[cfg(test)]
mod tests;

pub use cache::{
    Cache, CacheError, Consulted, DOMAINS_MAX, FetchFailure, FetchFailureKind, Kept, OCTETS_MAX, REFRESH_MS, RETRY_MS,
    Wanted, write,
};
pub use policy::{MAX_AGE_S_MAX, Mode, PATTERNS_MAX, POLICY_BYTES_MAX, Policy, PolicyError};
pub use record::{RECORD_BYTES_MAX, RECORDS_MAX, Record, RecordError};

/// The name of the TXT record.
pub fn record_name(domain: &str) -> String {
    format!("_mta-sts.{domain}")
}

/// The host that has the policy, for which its certificate must be (RFC 8461 3.3).
pub fn policy_host(domain: &str) -> String {
    format!("mta-sts.{domain}")
}

/// The path on that host.
pub const POLICY_PATH: &str = "/.well-known/mta-sts.txt";
