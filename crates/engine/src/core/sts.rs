//! MTA-STS policies of domains: what is kept, and what is fetched when mail is to go there (RFC 8461).
//!
//! Promise: mail waits for a policy at most [`FETCH_MS_MAX`], its turn included, and the look-up of its record, once in five minutes for a domain whose web server
//! does not answer; at most [`FETCHES_MAX`] are fetched at a time. A failure never takes away a policy that is kept and not over
//! ([`stentor_posture::sts::Cache`] decides), and a domain without one gets its mail as if it published none.
//!
//! The file is the caller's: [`StsPolicies::take`] gives its text when there is something new, [`StsPolicies::restore`] takes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use stentor_posture::sts::{
    Cache, CacheError, Consulted, FetchFailure, FetchFailureKind, Kept, Policy, Record, policy_host, record_name,
};
use stentor_queue::ids::Ms;
use stentor_resolve::Resolver;
use stentor_sts::{Fetcher, Place};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::Settings;
use crate::clock::Clock;

/// Mail for a domain is not held up for longer by its web server.
pub const FETCH_MS_MAX: u64 = 10_000;
/// Web servers that are asked at a time.
const FETCHES_MAX: usize = 64;
/// Policies that are refreshed in one go.
const REFRESHED_MAX: usize = 32;

/// All policies.
pub struct StsPolicies {
    cache: Mutex<Cache>,
    fetches: Semaphore,
    fetched: AtomicU64,
    failed: AtomicU64,
}

impl Default for StsPolicies {
    fn default() -> StsPolicies {
        let (fetches, zero) = (Semaphore::new(FETCHES_MAX), || AtomicU64::new(0));
        StsPolicies { cache: Mutex::default(), fetches, fetched: zero(), failed: zero() }
    }
}

/// With what policies are looked up and fetched.
#[derive(Clone, Copy)]
pub struct Means<'a> {
    pub resolver: &'a Resolver,
    pub settings: &'a Settings,
    pub clock: &'a Clock,
}

impl StsPolicies {
    /// What holds for mail to this domain: asks the DNS whether there is a policy, and fetches one that is new.
    pub async fn policy(&self, means: Means<'_>, domain: &str) -> Option<Arc<Policy>> {
        let record = record(means.resolver, domain).await;
        let consulted = self.cache.lock().consult(domain, record.as_ref().ok(), means.clock.now());
        match consulted {
            Consulted::Use(policy) => policy,
            Consulted::Fetch { id } => {
                self.fetch(means, domain, id).await;
                self.live(domain, means.clock.now())
            }
        }
    }

    /// The policy that is kept and not over, without a question to anybody.
    pub fn live(&self, domain: &str, now: Ms) -> Option<Arc<Policy>> {
        self.cache.lock().live(domain, now)
    }

    /// What is kept for a domain, and why the last fetch failed.
    pub fn about(&self, domain: &str) -> (Option<Kept>, Option<FetchFailure>) {
        let cache = self.cache.lock();
        let (kept, failure) = cache.about(domain);
        (kept.cloned(), failure.cloned())
    }

    /// Policies fetched, and fetches that failed, since the start.
    pub fn counts(&self) -> (u64, u64) {
        (self.fetched.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }

    /// Fetches what is used and will be over, or may have changed.
    pub async fn refresh(&self, means: Means<'_>) {
        let due = self.cache.lock().due(means.clock.now(), REFRESHED_MAX);
        for (domain, kept) in due {
            // The id of today; a record that is gone takes nothing away.
            let id = match record(means.resolver, &domain).await {
                Ok(Record::Id(id)) => id,
                _ => kept,
            };
            self.fetch(means, &domain, id).await;
        }
    }

    async fn fetch(&self, means: Means<'_>, domain: &str, id: String) {
        let until = fetch_until();
        // The turn of a fetch that has not begun says nothing of the domain.
        let Ok(Ok(_turn)) = timeout_at(until, self.fetches.acquire()).await else { return };
        let result = fetched(means, domain, until).await;
        match &result {
            Ok(policy) => {
                self.fetched.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(domain, id, mode = policy.mode.name(), "MTA-STS policy fetched");
            }
            Err(failure) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                tracing::info!(domain, id, "the MTA-STS policy cannot be fetched: {}", failure.why);
            }
        }
        self.cache.lock().fetched(domain, id, result, means.clock.now());
    }

    /// The text of the file, if there is something new in it.
    pub fn take(&self) -> Option<String> {
        let mut cache = self.cache.lock();
        cache.take_changed().then(|| cache.write())
    }

    /// What [`StsPolicies::take`] gave could not be written.
    pub fn not_written(&self) {
        self.cache.lock().set_changed();
    }

    /// Takes what the file has.
    ///
    /// # Errors
    /// It is not ours, or damaged.
    pub fn restore(&self, text: &str) -> Result<(), CacheError> {
        *self.cache.lock() = Cache::read(text)?;
        Ok(())
    }
}

/// What the DNS says of a domain's policy.
///
/// # Errors
/// The look-up failed.
pub async fn record(resolver: &Resolver, domain: &str) -> Result<Record, String> {
    let texts = resolver.texts(&record_name(domain)).await?;
    Ok(Record::of(texts.iter().map(Vec::as_slice)))
}

/// The end of a fetch that begins now.
pub fn fetch_until() -> Instant {
    Instant::now() + Duration::from_millis(FETCH_MS_MAX)
}

/// Looks up the policy's host and fetches it, with nothing kept; both end at `until`.
///
/// # Errors
/// Why there is no policy.
pub async fn fetched(means: Means<'_>, domain: &str, until: Instant) -> Result<Policy, FetchFailure> {
    let host = policy_host(domain);
    let addresses = timeout_at(until, means.resolver.ips(&host)).await;
    let addresses = addresses.unwrap_or_else(|_| Err("no answer in time".to_owned()));
    let addresses = addresses.map_err(|why| failure(FetchFailureKind::Fetch, format!("{host}: {why}")))?;
    let protection = &means.settings.config.protection;
    let place = Place {
        host: &host,
        addresses: &addresses,
        port: protection.sts_port,
        allows_private: protection.sts_allows_private,
    };
    let fetcher = Fetcher::new(means.settings.roots());
    let fetcher = fetcher.map_err(|error| failure(FetchFailureKind::Fetch, format!("TLS: {error}")))?;
    fetcher.fetch(&place, until).await
}

fn failure(kind: FetchFailureKind, why: String) -> FetchFailure {
    FetchFailure { kind, why }
}
