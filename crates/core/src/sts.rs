//! MTA-STS policies of domains: keeps them, and fetches them when mail is to be delivered (RFC 8461).
//!
//! Promise: mail waits for a policy at most [`FETCH_MS_MAX`], including its turn, plus the look-up of the record; for a
//! domain whose web server does not answer, once in five minutes. At most [`FETCHES_MAX`] policies are fetched at a
//! time. A failure never removes a kept policy before it expires ([`stentor_tls_policy::sts::Cache`] decides). A domain
//! without a policy gets its mail as if it published none. Mail with REQUIRETLS waits instead if nothing else proves a
//! host ([`StsLookup::NotNow`]). This holds only if the domain's own server was asked: if other domains took all turns,
//! the policy is unknown ([`StsLookup::NotKnown`]), and mail waits. Domains whose last fetch failed have turns of their
//! own, so that slow servers delay other domains only once.
//!
//! The caller owns the file: [`StsPolicies::save`] returns its text when something changed, [`StsPolicies::restore`]
//! reads it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use stentor_http_client::{Destination, HttpClient};
use stentor_queue::ids::Ms;
use stentor_resolve::Resolver;
use stentor_tls_policy::sts::{
    self, Cache, CacheError, CachedPolicy, FetchFailure, FetchFailureKind, PolicyFetch, PolicyLookup, Record,
    StsPolicy, policy_host, record_name,
};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::{Core, Settings};
use crate::clock::Clock;
use crate::sts_fetch::fetch;

/// How long a domain's web server may delay its mail.
pub const FETCH_MS_MAX: u64 = 10_000;
/// Web servers asked at a time.
const FETCHES_MAX: usize = 64;
/// Web servers asked at a time whose domain's last fetch failed.
const FAILING_MAX: usize = 16;
/// Interval between searches for policies to refresh.
const REFRESH_EVERY: Duration = Duration::from_mins(1);
/// Policies refreshed per search: at one search a minute this covers all kept policies once a day.
const REFRESHED_MAX: usize = 128;
/// Policies refreshed at a time.
const REFRESHES_MAX: usize = 16;

/// All policies.
pub struct StsPolicies {
    cache: Mutex<Cache>,
    fetches: Semaphore,
    failing: Semaphore,
    fetched: AtomicU64,
    failed: AtomicU64,
}

impl Default for StsPolicies {
    fn default() -> StsPolicies {
        StsPolicies {
            cache: Mutex::default(),
            fetches: Semaphore::new(FETCHES_MAX - FAILING_MAX),
            failing: Semaphore::new(FAILING_MAX),
            fetched: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }
}

/// Services needed to look up and fetch policies.
#[derive(Clone, Copy)]
pub struct LookupServices<'a> {
    pub resolver: &'a Resolver,
    pub settings: &'a Settings,
    pub clock: &'a Clock,
}

/// The state of a domain's policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StsLookup {
    Policy(Arc<StsPolicy>),
    /// The domain publishes none, or an invalid one.
    Nothing,
    /// The record cannot be looked up, or the policy cannot be fetched now. Treated as [`StsLookup::Nothing`], except
    /// that mail with REQUIRETLS waits.
    NotNow(String),
    /// The domain publishes a policy, but its server was not asked, or not for long enough.
    NotKnown(String),
}

impl StsLookup {
    /// Combines a valid policy with the last failure to fetch it.
    fn of(policy: Option<Arc<StsPolicy>>, failure: Option<&FetchFailure>) -> StsLookup {
        match (policy, failure) {
            (Some(policy), _) => StsLookup::Policy(policy),
            (None, Some(failure)) if failure.kind != FetchFailureKind::Invalid => {
                StsLookup::NotNow(failure.why.clone())
            }
            (None, _) => StsLookup::Nothing,
        }
    }
}

impl StsPolicies {
    /// Returns the policy for mail to this domain: asks the DNS whether there is one, and fetches a new one.
    pub async fn policy(&self, services: LookupServices<'_>, domain: &str) -> StsLookup {
        let record = record(services.resolver, domain).await;
        let consulted = self.cache.lock().consult(domain, record.as_ref().ok(), services.clock.now());
        match (consulted, record) {
            (PolicyLookup::Fetch(wanted), _) => {
                self.fetch(services.clock, wanted, |until| fetched(services, domain, until)).await
            }
            (PolicyLookup::Use(None), Err(why)) => StsLookup::NotNow(why),
            // A failed fetch is not repeated at once.
            (PolicyLookup::Use(None), Ok(Record::Id(_))) => StsLookup::of(None, self.about(domain).1.as_ref()),
            (PolicyLookup::Use(policy), _) => StsLookup::of(policy, None),
        }
    }

    /// Returns the kept policy if it has not expired, without asking anyone.
    pub fn live(&self, domain: &str, now: Ms) -> Option<Arc<StsPolicy>> {
        self.cache.lock().live(domain, now)
    }

    /// Returns what is kept for a domain, and why the last fetch failed.
    pub fn about(&self, domain: &str) -> (Option<CachedPolicy>, Option<FetchFailure>) {
        let cache = self.cache.lock();
        let (kept, failure) = cache.about(domain);
        (kept.cloned(), failure.cloned())
    }

    /// Returns the policies fetched and the failed fetches since the server started.
    pub fn counts(&self) -> (u64, u64) {
        (self.fetched.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }

    async fn refresh_one(&self, services: LookupServices<'_>, mut wanted: PolicyFetch) {
        let domain = wanted.domain.clone();
        // The current id; a missing record removes nothing.
        if let Ok(Record::Id(id)) = record(services.resolver, &domain).await {
            wanted.id = id;
        }
        self.fetch(services.clock, wanted, |until| fetched(services, &domain, until)).await;
    }

    async fn fetch<F: Future<Output = Result<StsPolicy, FetchFailure>>>(
        &self,
        clock: &Clock,
        wanted: PolicyFetch,
        fetching: impl FnOnce(Instant) -> F,
    ) -> StsLookup {
        let PolicyFetch { domain, id, has_failed } = wanted;
        let until = fetch_until();
        let turns = if has_failed { &self.failing } else { &self.fetches };
        let (turn, has_waited) = match turns.try_acquire() {
            Ok(turn) => (Some(turn), false),
            Err(_) => (timeout_at(until, turns.acquire()).await.ok().and_then(Result::ok), true),
        };
        // Turns taken by other domains say nothing about this one.
        let Some(_turn) = turn else { return self.not_known(&domain, clock.now()) };
        let result = fetching(until).await;
        if result.is_err() && has_waited && Instant::now() >= until {
            return self.not_known(&domain, clock.now());
        }
        match &result {
            Ok(policy) => {
                self.fetched.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(domain, id, mode = policy.mode.name(), "MTA-STS policy fetched");
            }
            Err(failure) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                tracing::info!(domain, id, "the MTA-STS policy could not be fetched: {}", failure.why);
            }
        }
        let failure = result.as_ref().err().cloned();
        StsLookup::of(self.cache.lock().fetched(&domain, id, result, clock.now()), failure.as_ref())
    }

    fn not_known(&self, domain: &str, now: Ms) -> StsLookup {
        if let Some(policy) = self.live(domain, now) {
            return StsLookup::Policy(policy);
        }
        tracing::info!(domain, "the MTA-STS policy is not fetched yet: slow servers of other domains delay the fetch");
        StsLookup::NotKnown(format!(
            "{domain} publishes an MTA-STS policy, which could not be fetched in time because servers of other \
             domains are slow"
        ))
    }

    /// Returns the text of the file, if it changed since the last call.
    pub fn save(&self) -> Option<String> {
        let policies = {
            let mut cache = self.cache.lock();
            cache.take_changed().then(|| cache.policies())
        };
        // Mail does not wait for this.
        policies.map(|policies| sts::write(&policies))
    }

    /// Marks the policies as changed again, since the last text could not be written.
    pub fn set_changed(&self) {
        self.cache.lock().set_changed();
    }

    /// Restores policies from the file. Returns the first unreadable line, if there is one; the others are still used.
    ///
    /// # Errors
    /// The file has another format, or is damaged as a whole.
    pub fn restore(&self, file: &[u8]) -> Result<Option<CacheError>, CacheError> {
        let (cache, damaged) = Cache::read(file)?;
        *self.cache.lock() = cache;
        Ok(damaged)
    }
}

/// Refreshes policies until the process ends.
pub async fn keep_fresh(core: Arc<Core>) {
    loop {
        tokio::time::sleep(REFRESH_EVERY).await;
        refresh(&core).await;
    }
}

/// Refetches policies in use that will expire or may have changed, some concurrently, so that a slow server delays few
/// others.
async fn refresh(core: &Arc<Core>) {
    let due = core.policies.cache.lock().due(core.clock.now(), REFRESHED_MAX);
    side_by_side(REFRESHES_MAX, due, |wanted| {
        let core = core.clone();
        async move {
            let (settings, resolver) = (core.settings(), core.resolver());
            let services = LookupServices { resolver: &resolver, settings: &settings, clock: &core.clock };
            core.policies.refresh_one(services, wanted).await;
        }
    })
    .await;
}

/// Runs `work` for all items in order, at most `limit` at a time.
async fn side_by_side<T, F>(limit: usize, all: Vec<T>, work: impl Fn(T) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut running = JoinSet::new();
    for one in all {
        if running.len() >= limit {
            running.join_next().await;
        }
        running.spawn(work(one));
    }
    while running.join_next().await.is_some() {}
}

/// Looks up a domain's policy record in the DNS.
///
/// # Errors
/// The look-up failed.
pub async fn record(resolver: &Resolver, domain: &str) -> Result<Record, String> {
    let texts = resolver.texts(&record_name(domain)).await?;
    Ok(Record::of(texts.iter().map(Vec::as_slice)))
}

/// Returns the deadline of a fetch that begins now.
pub fn fetch_until() -> Instant {
    Instant::now() + Duration::from_millis(FETCH_MS_MAX)
}

/// Looks up the policy's host and fetches the policy, without the cache; both end at `until`.
///
/// # Errors
/// Why there is no policy.
pub async fn fetched(services: LookupServices<'_>, domain: &str, until: Instant) -> Result<StsPolicy, FetchFailure> {
    let host = policy_host(domain);
    let addresses = timeout_at(until, services.resolver.ips(&host)).await;
    let addresses = addresses.unwrap_or_else(|_| Err("no answer in time".to_owned()));
    let addresses = addresses.map_err(|why| failure(FetchFailureKind::Fetch, format!("{host}: {why}")))?;
    let protection = &services.settings.config.protection;
    let destination = Destination {
        host: &host,
        port: protection.sts_port,
        addresses: Some(&addresses),
        allows_private: protection.sts_allows_private,
        is_tls: true,
    };
    let client = HttpClient::new(&services.settings.roots());
    let client = client.map_err(|error| failure(FetchFailureKind::Fetch, format!("TLS: {error}")))?;
    fetch(&client, &destination, until).await
}

fn failure(kind: FetchFailureKind, why: String) -> FetchFailure {
    FetchFailure { kind, why }
}

impl StsPolicies {
    /// Takes all turns of domains whose last fetch did not fail, as other domains' slow servers would: for tests.
    ///
    /// # Panics
    /// Never: the semaphore is not closed.
    #[doc(hidden)]
    pub async fn hold_turns(&self) -> tokio::sync::SemaphorePermit<'_> {
        self.fetches.acquire_many((FETCHES_MAX - FAILING_MAX) as u32).await.expect("it is never closed")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use stentor_tls_policy::sts::StsMode;

    use super::*;

    fn wanted(domain: &str, has_failed: bool) -> PolicyFetch {
        PolicyFetch { domain: domain.to_owned(), id: "1".to_owned(), has_failed }
    }

    fn policy() -> StsPolicy {
        StsPolicy { mode: StsMode::Enforce, max_age_s: 86_400, mx: vec!["mx.a.test".to_owned()] }
    }

    async fn slow(until: Instant) -> Result<StsPolicy, FetchFailure> {
        tokio::time::sleep_until(until).await;
        Err(failure(FetchFailureKind::Fetch, "fetching the policy timed out".to_owned()))
    }

    async fn good(_: Instant) -> Result<StsPolicy, FetchFailure> {
        Ok(policy())
    }

    /// Makes other domains' servers take all turns and finish last.
    async fn with_slow_strangers(policies: &Arc<StsPolicies>, count: usize, has_failed: bool) -> JoinSet<()> {
        let mut strangers = JoinSet::new();
        for n in 0..count {
            let policies = policies.clone();
            strangers.spawn(async move {
                let clock = Clock::start();
                let stranger = wanted(&format!("{n}.evil.test"), has_failed);
                policies.fetch(&clock, stranger, |_| std::future::pending()).await;
            });
        }
        tokio::task::yield_now().await;
        strangers
    }

    #[tokio::test(start_paused = true)]
    async fn what_strangers_hold_up_is_not_known_and_no_failure() {
        let (policies, clock) = (Arc::new(StsPolicies::default()), Clock::start());
        let _strangers = with_slow_strangers(&policies, 400, false).await;
        let found = policies.fetch(&clock, wanted("a.test", false), good).await;
        assert!(matches!(found, StsLookup::NotKnown(_)), "{found:?}");
        assert_eq!(policies.about("a.test"), (None, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_slow_itself_is_as_one_without_a_policy() {
        let (policies, clock) = (StsPolicies::default(), Clock::start());
        let found = policies.fetch(&clock, wanted("a.test", false), slow).await;
        assert!(matches!(found, StsLookup::NotNow(_)), "{found:?}");
        assert!(policies.about("a.test").1.is_some());
        // The server's answer is known to be no policy.
        let invalid = async |_| Err(failure(FetchFailureKind::Invalid, "text/html".to_owned()));
        assert_eq!(policies.fetch(&clock, wanted("c.test", false), invalid).await, StsLookup::Nothing);
        // A server that waited for its turn and had it only for a moment is not known to be slow.
        let turns = policies.hold_turns().await;
        let waiting = policies.fetch(&clock, wanted("b.test", false), slow);
        let release = async {
            tokio::time::sleep(Duration::from_secs(9)).await;
            drop(turns);
        };
        let (found, ()) = tokio::join!(waiting, release);
        assert!(matches!(found, StsLookup::NotKnown(_)), "{found:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn domains_that_fail_take_no_turns_of_others() {
        let (policies, clock) = (Arc::new(StsPolicies::default()), Clock::start());
        let _strangers = with_slow_strangers(&policies, 400, true).await;
        let found = policies.fetch(&clock, wanted("a.test", false), good).await;
        assert_eq!(found, StsLookup::Policy(Arc::new(policy())));
        // A kept policy is used whatever other domains do.
        assert_eq!(policies.fetch(&clock, wanted("a.test", true), good).await, found);
    }

    #[tokio::test(start_paused = true)]
    async fn refreshes_run_side_by_side() {
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        side_by_side(16, (0..100).collect(), |_: i32| {
            let (running, most) = (running.clone(), most.clone());
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_secs(10)).await;
                running.fetch_sub(1, Ordering::Relaxed);
            }
        })
        .await;
        assert_eq!((running.load(Ordering::Relaxed), most.load(Ordering::Relaxed)), (0, 16));
    }
}
