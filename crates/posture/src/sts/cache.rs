//! Policies that were fetched, for as long as they hold (RFC 8461 3.3, 5.1, 10.2).
//!
//! | the DNS record says | a policy that is kept and not over | what is done |
//! |---|---|---|
//! | an id, the same | yes | it is used; refreshed in the background once a day |
//! | an id, another one | yes | fetched; if that fails, the kept one is used on |
//! | an id | no | fetched; if that fails, the domain has no policy |
//! | no record, an invalid one, or the look-up failed | yes | the kept one is used: an attacker can take a record away, not a policy |
//! | the same | no | the domain has no policy |
//!
//! A fetch that failed is repeated for the same id after [`RETRY_MS`] at the earliest, whoever asks. A policy is over `max_age`
//! after it was last fetched. What is over is forgotten; of too many those that are over first go first.

use std::sync::Arc;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use super::policy::Policy;
use super::record::Record;

/// Between two fetches of a policy that is used, if nothing has changed.
pub const REFRESH_MS: u64 = 24 * 3600 * 1000;
/// After a fetch that failed (RFC 8461 3.3: five minutes or longer).
pub const RETRY_MS: u64 = 5 * 60 * 1000;
/// A policy that mail has not asked for in this time is not refreshed.
const UNUSED_MS: u64 = 7 * REFRESH_MS;
/// Between a refresh that failed and the next: the policy that is kept still holds.
const REFRESH_RETRY_MS: u64 = 12 * RETRY_MS;
/// Domains that are kept.
pub const DOMAINS_MAX: usize = 65_536;
/// The first line of the file.
const HEAD: &str = "stentor mta-sts 1";

/// Why a policy could not be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchFailure {
    pub kind: FetchFailureKind,
    pub why: String,
}

/// In the kinds that reports about it have (RFC 8460 4.3.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchFailureKind {
    /// The certificate of the web server is not good for its name, or TLS failed otherwise.
    Certificate,
    /// The file is no policy.
    Invalid,
    /// Anything else: no address, no answer, another status than 200.
    Fetch,
}

/// A policy as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// That of the record when it was fetched.
    pub id: String,
    pub policy: Arc<Policy>,
    pub fetched_ms: u64,
}

impl Kept {
    pub fn over_ms(&self) -> u64 {
        self.fetched_ms.saturating_add(self.policy.max_age_s.saturating_mul(1000))
    }

    /// A clock that was set back keeps nothing alive for longer than `max_age` from now.
    fn is_live(&self, now: u64) -> bool {
        now < self.over_ms() && self.fetched_ms <= now.saturating_add(REFRESH_MS)
    }
}

#[derive(Debug, Default, Clone)]
struct Entry {
    kept: Option<Kept>,
    /// The last fetch that failed: for which id, when, and why.
    failed: Option<(String, u64, FetchFailure)>,
    /// When mail asked last; what nobody asks for is not refreshed.
    used_ms: u64,
}

/// What to do for a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Consulted {
    /// Use this policy, or none.
    Use(Option<Arc<Policy>>),
    /// Fetch it, then [`Cache::fetched`] and [`Cache::live`].
    Fetch { id: String },
}

/// All domains. The caller writes [`Cache::write`] to a file when [`Cache::take_changed`] says so.
#[derive(Debug, Default)]
pub struct Cache {
    domains: HashMap<String, Entry, foldhash::fast::RandomState>,
    is_changed: bool,
}

/// Why a file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CacheError {
    #[error("the file is not one of MTA-STS policies of this version")]
    Head,
    #[error("line {0} cannot be read")]
    Line(usize),
}

impl Cache {
    /// What holds for mail to `domain`, of which the DNS says `record` (`None`: the look-up failed).
    pub fn consult(&mut self, domain: &str, record: Option<&Record>, now: u64) -> Consulted {
        let entry = self.domains.get_mut(domain);
        let live = entry.as_ref().and_then(|entry| entry.kept.as_ref()).filter(|kept| kept.is_live(now));
        let live_policy = live.map(|kept| kept.policy.clone());
        let is_tried = |id: &str| {
            let just_now = |at: u64| at <= now && now < at.saturating_add(RETRY_MS);
            let failed = entry.as_ref().and_then(|entry| entry.failed.as_ref());
            let kept = entry.as_ref().and_then(|entry| entry.kept.as_ref());
            // A policy may be over as soon as it is there (`max_age: 0`).
            failed.is_some_and(|(of, at, _)| of == id && just_now(*at))
                || kept.is_some_and(|kept| kept.id == id && just_now(kept.fetched_ms))
        };
        let answer = match record {
            Some(Record::Id(id)) if live.is_none_or(|kept| kept.id != *id) && !is_tried(id) => {
                Consulted::Fetch { id: id.clone() }
            }
            _ => Consulted::Use(live_policy),
        };
        if let Some(entry) = entry {
            entry.used_ms = now;
        }
        answer
    }

    /// The policy that is kept and not over.
    pub fn live(&self, domain: &str, now: u64) -> Option<Arc<Policy>> {
        let kept = self.domains.get(domain)?.kept.as_ref()?;
        kept.is_live(now).then(|| kept.policy.clone())
    }

    /// What is kept for a domain, and why the last fetch failed, for those who ask.
    pub fn about(&self, domain: &str) -> (Option<&Kept>, Option<&FetchFailure>) {
        let Some(entry) = self.domains.get(domain) else { return (None, None) };
        (entry.kept.as_ref(), entry.failed.as_ref().map(|(_, _, why)| why))
    }

    /// What came of a fetch for a record with `id`.
    pub fn fetched(&mut self, domain: &str, id: String, result: Result<Policy, FetchFailure>, now: u64) {
        if !self.domains.contains_key(domain) && self.domains.len() >= DOMAINS_MAX {
            self.make_room(now);
        }
        let entry = self.domains.entry_ref(domain).or_default();
        match result {
            Ok(policy) => {
                *entry = Entry {
                    kept: Some(Kept { id, policy: Arc::new(policy), fetched_ms: now }),
                    failed: None,
                    used_ms: entry.used_ms.max(now),
                };
                self.is_changed = true;
            }
            Err(why) => entry.failed = Some((id, now, why)),
        }
    }

    /// Domains whose policy is to be fetched again, at most `limit`, with the id that is kept; the caller asks the DNS for the id
    /// of today. Forgets what is over.
    pub fn due(&mut self, now: u64, limit: usize) -> Vec<(String, String)> {
        self.forget(now);
        let is_due = |(domain, entry): (&String, &Entry)| {
            let kept = entry.kept.as_ref()?;
            // A policy is not kept alive for longer than mail uses it.
            let is_used = entry.used_ms.saturating_add(UNUSED_MS) > now || entry.used_ms == 0;
            let wait_ms = REFRESH_MS.min(kept.policy.max_age_s.saturating_mul(500));
            let is_old = now >= kept.fetched_ms.saturating_add(wait_ms);
            let has_failed_just_now =
                entry.failed.as_ref().is_some_and(|(_, at, _)| now < at.saturating_add(REFRESH_RETRY_MS));
            (is_used && is_old && !has_failed_just_now).then(|| (domain.clone(), kept.id.clone()))
        };
        self.domains.iter().filter_map(is_due).take(limit).collect()
    }

    fn forget(&mut self, now: u64) {
        let before = self.domains.len();
        self.domains.retain(|_, entry| {
            let is_kept = entry.kept.as_ref().is_some_and(|kept| kept.is_live(now));
            is_kept || entry.failed.as_ref().is_some_and(|(_, at, _)| now < at.saturating_add(RETRY_MS))
        });
        self.is_changed |= self.domains.len() != before;
    }

    /// A sixteenth of all goes, so that the next ones find room without a search.
    fn make_room(&mut self, now: u64) {
        self.forget(now);
        let mut ends: Vec<u64> = self.domains.values().map(|e| e.kept.as_ref().map_or(0, Kept::over_ms)).collect();
        let place = DOMAINS_MAX / 16;
        if ends.len() < DOMAINS_MAX - place {
            return;
        }
        let (_, end, _) = ends.select_nth_unstable(place);
        let (end, mut left) = (*end, place);
        self.domains.retain(|_, entry| {
            let goes = left > 0 && entry.kept.as_ref().map_or(0, Kept::over_ms) <= end;
            left -= usize::from(goes);
            !goes
        });
        self.is_changed = true;
    }

    /// What was taken could not be written.
    pub fn set_changed(&mut self) {
        self.is_changed = true;
    }

    /// Whether there is something new to write since the last call.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    pub fn len(&self) -> usize {
        self.domains.len()
    }

    pub fn is_empty(&self) -> bool {
        self.domains.is_empty()
    }

    /// The file: a line for each domain with a policy.
    pub fn write(&self) -> String {
        let mut text = format!("{HEAD}\n");
        for (domain, entry) in &self.domains {
            if let Some(kept) = &entry.kept
                && let Ok(line) = serde_json::to_string(&(domain, kept))
            {
                text.push_str(&line);
                text.push('\n');
            }
        }
        text
    }

    /// # Errors
    /// The file is not ours or is damaged; the caller moves it aside and begins anew.
    pub fn read(text: &str) -> Result<Cache, CacheError> {
        let mut lines = text.lines().zip(1..);
        if lines.next().is_none_or(|(line, _)| line != HEAD) {
            return Err(CacheError::Head);
        }
        let mut cache = Cache::default();
        for (line, number) in lines.take(DOMAINS_MAX) {
            let (domain, kept): (String, Kept) = serde_json::from_str(line).map_err(|_| CacheError::Line(number))?;
            cache.domains.insert(domain, Entry { kept: Some(kept), ..Entry::default() });
        }
        Ok(cache)
    }
}
