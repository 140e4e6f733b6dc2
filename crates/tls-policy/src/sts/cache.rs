//! Fetched policies, kept until they expire (RFC 8461 3.3, 5.1, 10.2).
//!
//! | DNS record | unexpired policy in the cache | action |
//! |---|---|---|
//! | the same id | yes | it is used, and refreshed in the background once a day |
//! | another id | yes | fetched; if that fails, the cached one remains in use |
//! | any id | no | fetched; if that fails, the domain has no policy |
//! | none, invalid, or the lookup failed | yes | the cached one is used: an attacker can remove a record, but not a policy |
//! | none, invalid, or the lookup failed | no | the domain has no policy |
//!
//! A failed fetch is not repeated before [`RETRY_MS`], even if the id has changed, since the domain controls the
//! record. A policy expires `max_age` after it was last fetched, and is then removed. If there are too many domains,
//! those that expire first are removed; if there are too many octets, the longest policies. A failure never replaces
//! a policy.

use std::sync::Arc;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use super::policy::StsPolicy;
use super::record::Record;

/// Interval between fetches of a policy in use, if nothing has changed.
pub const REFRESH_MS: u64 = 24 * 3600 * 1000;
/// Minimum interval after a failed fetch (RFC 8461 3.3: five minutes or longer).
pub const RETRY_MS: u64 = 5 * 60 * 1000;
/// A policy that no mail has used for this time is not refreshed.
const UNUSED_MS: u64 = 7 * REFRESH_MS;
/// Interval after a failed refresh, during which the cached policy remains valid.
const REFRESH_RETRY_MS: u64 = 12 * RETRY_MS;
/// How long a domain's failed fetch is remembered.
const FAILURE_KEPT_MS: u64 = 24 * 3600 * 1000;
/// Maximum domains in the cache.
pub const DOMAINS_MAX: usize = 65_536;
/// Maximum octets of all policies: 512 for each of these domains.
pub const OCTETS_MAX: usize = 32 * 1024 * 1024;
/// First line of the file.
const HEAD: &str = "stentor mta-sts 1";

/// Why a policy could not be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchFailure {
    pub kind: FetchFailureKind,
    pub why: String,
}

/// Kind of failure, as in reports (RFC 8460 4.3.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchFailureKind {
    /// The web server's certificate is not valid for its name, or TLS failed otherwise.
    Certificate,
    /// The file is not a policy.
    Invalid,
    /// Any other failure: no address, no answer, a status other than 200.
    Fetch,
}

/// A cached policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachedPolicy {
    /// ID in the record at the time of the fetch.
    pub id: String,
    pub policy: Arc<StsPolicy>,
    pub fetched_ms: u64,
}

impl CachedPolicy {
    pub fn over_ms(&self) -> u64 {
        self.fetched_ms.saturating_add(self.policy.max_age_s.saturating_mul(1000))
    }

    /// Size of its text and metadata.
    fn octets(&self, domain: &str) -> usize {
        let patterns = self.policy.mx.iter().map(|pattern| pattern.len() + size_of::<String>());
        domain.len() + self.id.len() + size_of::<CachedPolicy>() + patterns.sum::<usize>()
    }

    /// Whether it is valid. If the clock was set back, it is not kept longer than `max_age` from now.
    fn is_live(&self, now: u64) -> bool {
        now < self.over_ms() && self.fetched_ms <= now.saturating_add(REFRESH_MS)
    }
}

#[derive(Debug, Default, Clone)]
struct Entry {
    kept: Option<CachedPolicy>,
    /// Time and reason of the last failed fetch.
    failed: Option<(u64, FetchFailure)>,
    /// Last use by mail; unused policies are not refreshed.
    used_ms: u64,
}

impl Entry {
    /// Order of removal: failures first, then policies that expire first.
    fn rank(&self) -> (bool, u64) {
        let failed_ms = self.failed.as_ref().map_or(0, |(at, _)| *at);
        (self.kept.is_some(), self.kept.as_ref().map_or(failed_ms, CachedPolicy::over_ms))
    }

    fn octets(&self, domain: &str) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.octets(domain))
    }
}

/// A policy to fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyFetch {
    pub domain: String,
    pub id: String,
    /// Whether the last fetch failed.
    pub has_failed: bool,
}

/// Result for a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyLookup {
    /// Use this policy, or none.
    Use(Option<Arc<StsPolicy>>),
    /// Fetch it, then call [`Cache::fetched`].
    Fetch(PolicyFetch),
}

/// All domains. The caller writes [`Cache::policies`] to a file when [`Cache::take_changed`] returns true.
#[derive(Debug, Default)]
pub struct Cache {
    domains: HashMap<String, Entry, foldhash::fast::RandomState>,
    /// Octets of all policies.
    octets: usize,
    is_changed: bool,
}

/// Why a file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CacheError {
    #[error("not an MTA-STS policy file of this version")]
    Head,
    #[error("line {0} is malformed")]
    Line(usize),
}

impl Cache {
    /// The policy for mail to `domain`, given the DNS `record` (`None`: the lookup failed).
    pub fn consult(&mut self, domain: &str, record: Option<&Record>, now: u64) -> PolicyLookup {
        let entry = self.domains.get_mut(domain);
        let live = entry.as_ref().and_then(|entry| entry.kept.as_ref()).filter(|kept| kept.is_live(now));
        let live_policy = live.map(|kept| kept.policy.clone());
        let failed = entry.as_ref().and_then(|entry| entry.failed.as_ref());
        let is_tried = |id: &str| {
            let just_now = |at: u64| at <= now && now < at.saturating_add(RETRY_MS);
            let kept = entry.as_ref().and_then(|entry| entry.kept.as_ref());
            // A policy may expire immediately (`max_age: 0`).
            failed.is_some_and(|(at, _)| just_now(*at))
                || kept.is_some_and(|kept| kept.id == id && just_now(kept.fetched_ms))
        };
        let answer = match record {
            Some(Record::Id(id)) if live.is_none_or(|kept| kept.id != *id) && !is_tried(id) => {
                PolicyLookup::Fetch(PolicyFetch {
                    domain: domain.to_owned(),
                    id: id.clone(),
                    has_failed: failed.is_some(),
                })
            }
            _ => PolicyLookup::Use(live_policy),
        };
        if let Some(entry) = entry {
            entry.used_ms = now;
        }
        answer
    }

    /// The cached policy, unless it has expired.
    pub fn live(&self, domain: &str, now: u64) -> Option<Arc<StsPolicy>> {
        let kept = self.domains.get(domain)?.kept.as_ref()?;
        kept.is_live(now).then(|| kept.policy.clone())
    }

    /// The cached policy of a domain, and the reason of the last failed fetch, for display.
    pub fn about(&self, domain: &str) -> (Option<&CachedPolicy>, Option<&FetchFailure>) {
        let Some(entry) = self.domains.get(domain) else { return (None, None) };
        (entry.kept.as_ref(), entry.failed.as_ref().map(|(_, why)| why))
    }

    /// Records the result of a fetch for a record with `id`. Returns the policy in force, even if there is no room to
    /// cache it.
    pub fn fetched(
        &mut self,
        domain: &str,
        id: String,
        result: Result<StsPolicy, FetchFailure>,
        now: u64,
    ) -> Option<Arc<StsPolicy>> {
        let is_policy = result.is_ok();
        if !self.domains.contains_key(domain) && !self.has_room_for_domain(is_policy, now) {
            return None;
        }
        let entry = self.domains.entry_ref(domain).or_default();
        match result {
            Ok(policy) => {
                let kept = CachedPolicy { id, policy: Arc::new(policy), fetched_ms: now };
                let live = kept.is_live(now).then(|| kept.policy.clone());
                self.octets = (self.octets + kept.octets(domain)).saturating_sub(entry.octets(domain));
                *entry = Entry { kept: Some(kept), failed: None, used_ms: entry.used_ms.max(now) };
                self.is_changed = true;
                self.fit(now);
                live
            }
            Err(why) => {
                entry.failed = Some((now, why));
                self.live(domain, now)
            }
        }
    }

    /// At most `limit` policies to fetch again, with the cached ID; the caller looks up the current ID. The first to
    /// expire come first, failed ones last. Removes expired entries.
    pub fn due(&mut self, now: u64, limit: usize) -> Vec<PolicyFetch> {
        self.forget(now);
        let is_due = |(domain, entry): (&String, &Entry)| {
            let kept = entry.kept.as_ref()?;
            // A policy is not refreshed for longer than mail uses it.
            let is_used = entry.used_ms.saturating_add(UNUSED_MS) > now || entry.used_ms == 0;
            let wait_ms = REFRESH_MS.min(kept.policy.max_age_s.saturating_mul(500));
            let is_old = now >= kept.fetched_ms.saturating_add(wait_ms);
            let has_failed = entry.failed.is_some();
            let has_failed_just_now =
                entry.failed.as_ref().is_some_and(|(at, _)| now < at.saturating_add(REFRESH_RETRY_MS));
            let wanted = || PolicyFetch { domain: domain.clone(), id: kept.id.clone(), has_failed };
            (is_used && is_old && !has_failed_just_now).then(|| (has_failed, kept.over_ms(), wanted()))
        };
        let mut due: Vec<_> = self.domains.iter().filter_map(is_due).collect();
        due.sort_unstable_by_key(|(has_failed, over_ms, _)| (*has_failed, *over_ms));
        due.truncate(limit);
        due.into_iter().map(|(_, _, wanted)| wanted).collect()
    }

    fn forget(&mut self, now: u64) {
        self.retain(|_, entry| {
            let is_kept = entry.kept.as_ref().is_some_and(|kept| kept.is_live(now));
            is_kept || entry.failed.as_ref().is_some_and(|(at, _)| now < at.saturating_add(FAILURE_KEPT_MS))
        });
    }

    /// The only place where entries are removed.
    fn retain(&mut self, mut stays: impl FnMut(&str, &Entry) -> bool) {
        let (octets, is_changed) = (&mut self.octets, &mut self.is_changed);
        self.domains.retain(|domain, entry| {
            let stays = stays(domain, entry);
            if !stays && let Some(kept) = &entry.kept {
                *octets = octets.saturating_sub(kept.octets(domain));
                *is_changed = true;
            }
            stays
        });
    }

    /// Whether another domain can be cached. If there are too many, a sixteenth is removed, so that the next ones
    /// need no search; a domain without a policy only displaces others without.
    fn has_room_for_domain(&mut self, has_policy: bool, now: u64) -> bool {
        if self.domains.len() < DOMAINS_MAX {
            return true;
        }
        self.forget(now);
        let mut ranks: Vec<_> = self.domains.values().map(Entry::rank).collect();
        let place = DOMAINS_MAX / 16;
        if ranks.len() >= DOMAINS_MAX - place {
            let (_, rank, _) = ranks.select_nth_unstable(place);
            let (rank, mut left) = (*rank, place);
            self.retain(|_, entry| {
                let goes = left > 0 && entry.rank() <= rank && (has_policy || entry.kept.is_none());
                left -= usize::from(goes);
                !goes
            });
        }
        self.domains.len() < DOMAINS_MAX
    }

    /// Removes the longest policies until a sixteenth of the octets is free, so that their publishers cannot displace
    /// many others.
    fn fit(&mut self, now: u64) {
        if self.octets <= OCTETS_MAX {
            return;
        }
        self.forget(now);
        let mut sizes: Vec<usize> = self.domains.iter().map(|(domain, entry)| entry.octets(domain)).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let wanted = self.octets.saturating_sub(OCTETS_MAX - OCTETS_MAX / 16);
        let mut sum = 0;
        let going = sizes.iter().find(|size| {
            sum += **size;
            sum >= wanted
        });
        let least = going.copied().unwrap_or(1).max(1);
        let mut freed = 0;
        // Those of the smallest size come last, since not all of them may have to be removed.
        for is_least in [false, true] {
            self.retain(|domain, entry| {
                let octets = entry.octets(domain);
                let goes = freed < wanted && if is_least { octets == least } else { octets > least };
                freed += if goes { octets } else { 0 };
                !goes
            });
        }
    }

    /// Marks it as changed, because the last text could not be written.
    pub fn set_changed(&mut self) {
        self.is_changed = true;
    }

    /// Whether there are changes to write since the last call.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    pub fn len(&self) -> usize {
        self.domains.len()
    }

    pub fn is_empty(&self) -> bool {
        self.domains.is_empty()
    }

    /// The domains with a policy, for [`write`].
    pub fn policies(&self) -> Vec<(String, CachedPolicy)> {
        let kept = |(domain, entry): (&String, &Entry)| Some((domain.clone(), entry.kept.clone()?));
        self.domains.iter().filter_map(kept).collect()
    }

    /// Parses the file. Also returns the error of the first unreadable line, if any: policies in other lines are
    /// still used.
    ///
    /// # Errors
    /// The file has another format, or no readable line; the caller moves it aside and starts with an empty cache.
    pub fn read(file: &[u8]) -> Result<(Cache, Option<CacheError>), CacheError> {
        let text = file.strip_suffix(b"\n").unwrap_or(file);
        let mut lines = text.split(|octet| *octet == b'\n').zip(1..);
        if lines.next().is_none_or(|(line, _)| line != HEAD.as_bytes()) {
            return Err(CacheError::Head);
        }
        let (mut cache, mut damaged) = (Cache::default(), None);
        for (line, number) in lines {
            match serde_json::from_slice::<(String, CachedPolicy)>(line) {
                Ok((domain, kept)) => cache.restore(domain, kept),
                Err(_) => damaged = damaged.or(Some(CacheError::Line(number))),
            }
        }
        match damaged {
            Some(damaged) if cache.is_empty() => Err(damaged),
            damaged => Ok((cache, damaged)),
        }
    }

    fn restore(&mut self, domain: String, kept: CachedPolicy) {
        let octets = kept.octets(&domain);
        if self.domains.len() < DOMAINS_MAX && self.octets + octets <= OCTETS_MAX && !self.domains.contains_key(&domain)
        {
            self.octets += octets;
            self.domains.insert(domain, Entry { kept: Some(kept), ..Entry::default() });
        }
    }
}

/// Formats the file: a line for each domain with a policy.
pub fn write(policies: &[(String, CachedPolicy)]) -> String {
    let mut text = format!("{HEAD}\n");
    for line in policies.iter().filter_map(|policy| serde_json::to_string(policy).ok()) {
        text.push_str(&line);
        text.push('\n');
    }
    text
}
