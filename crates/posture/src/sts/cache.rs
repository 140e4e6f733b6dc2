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
//! A fetch that failed is repeated after [`RETRY_MS`] at the earliest, whoever asks and whatever the id is by then: the record is the
//! domain's to change. A policy is over `max_age` after it was last fetched. What is over is forgotten; of too many domains those go
//! first that are over first, and of too many octets the longest policies. A failure never takes the place of a policy.

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
/// So long it is remembered that a domain's last fetch failed.
const FAILURE_KEPT_MS: u64 = 24 * 3600 * 1000;
/// Domains that are kept.
pub const DOMAINS_MAX: usize = 65_536;
/// Octets of all policies that are kept: 512 for each of so many domains.
pub const OCTETS_MAX: usize = 32 * 1024 * 1024;
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

    /// Of its text, with what belongs to it.
    fn octets(&self, domain: &str) -> usize {
        let patterns = self.policy.mx.iter().map(|pattern| pattern.len() + size_of::<String>());
        domain.len() + self.id.len() + size_of::<Kept>() + patterns.sum::<usize>()
    }

    /// A clock that was set back keeps nothing alive for longer than `max_age` from now.
    fn is_live(&self, now: u64) -> bool {
        now < self.over_ms() && self.fetched_ms <= now.saturating_add(REFRESH_MS)
    }
}

#[derive(Debug, Default, Clone)]
struct Entry {
    kept: Option<Kept>,
    /// When the last fetch failed, and why.
    failed: Option<(u64, FetchFailure)>,
    /// When mail asked last; what nobody asks for is not refreshed.
    used_ms: u64,
}

impl Entry {
    /// What goes first if there are too many: failures, then what is over first.
    fn rank(&self) -> (bool, u64) {
        let failed_ms = self.failed.as_ref().map_or(0, |(at, _)| *at);
        (self.kept.is_some(), self.kept.as_ref().map_or(failed_ms, Kept::over_ms))
    }

    fn octets(&self, domain: &str) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.octets(domain))
    }
}

/// A policy that is to be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub domain: String,
    pub id: String,
    /// The last fetch failed.
    pub has_failed: bool,
}

/// What to do for a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Consulted {
    /// Use this policy, or none.
    Use(Option<Arc<Policy>>),
    /// Fetch it, then [`Cache::fetched`].
    Fetch(Wanted),
}

/// All domains. The caller writes [`Cache::policies`] to a file when [`Cache::take_changed`] says so.
#[derive(Debug, Default)]
pub struct Cache {
    domains: HashMap<String, Entry, foldhash::fast::RandomState>,
    /// Of all policies.
    octets: usize,
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
        let failed = entry.as_ref().and_then(|entry| entry.failed.as_ref());
        let is_tried = |id: &str| {
            let just_now = |at: u64| at <= now && now < at.saturating_add(RETRY_MS);
            let kept = entry.as_ref().and_then(|entry| entry.kept.as_ref());
            // A policy may be over as soon as it is there (`max_age: 0`).
            failed.is_some_and(|(at, _)| just_now(*at))
                || kept.is_some_and(|kept| kept.id == id && just_now(kept.fetched_ms))
        };
        let answer = match record {
            Some(Record::Id(id)) if live.is_none_or(|kept| kept.id != *id) && !is_tried(id) => {
                Consulted::Fetch(Wanted { domain: domain.to_owned(), id: id.clone(), has_failed: failed.is_some() })
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
        (entry.kept.as_ref(), entry.failed.as_ref().map(|(_, why)| why))
    }

    /// What came of a fetch for a record with `id`. The policy that holds now, whether there is room to keep it or not.
    pub fn fetched(
        &mut self,
        domain: &str,
        id: String,
        result: Result<Policy, FetchFailure>,
        now: u64,
    ) -> Option<Arc<Policy>> {
        let is_policy = result.is_ok();
        if !self.domains.contains_key(domain) && !self.has_room_for_domain(is_policy, now) {
            return None;
        }
        let entry = self.domains.entry_ref(domain).or_default();
        match result {
            Ok(policy) => {
                let kept = Kept { id, policy: Arc::new(policy), fetched_ms: now };
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

    /// Policies that are to be fetched again, at most `limit`, with the id that is kept; the caller asks the DNS for the id of today.
    /// What is over first comes first, and what has failed comes last. Forgets what is over.
    pub fn due(&mut self, now: u64, limit: usize) -> Vec<Wanted> {
        self.forget(now);
        let is_due = |(domain, entry): (&String, &Entry)| {
            let kept = entry.kept.as_ref()?;
            // A policy is not kept alive for longer than mail uses it.
            let is_used = entry.used_ms.saturating_add(UNUSED_MS) > now || entry.used_ms == 0;
            let wait_ms = REFRESH_MS.min(kept.policy.max_age_s.saturating_mul(500));
            let is_old = now >= kept.fetched_ms.saturating_add(wait_ms);
            let has_failed = entry.failed.is_some();
            let has_failed_just_now =
                entry.failed.as_ref().is_some_and(|(at, _)| now < at.saturating_add(REFRESH_RETRY_MS));
            let wanted = || Wanted { domain: domain.clone(), id: kept.id.clone(), has_failed };
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

    /// Only here entries go.
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

    /// Whether one more domain may be kept. If there are too many, a sixteenth goes, so that the next ones find room without a
    /// search; for one without a policy only others without.
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

    /// The longest policies go until a sixteenth of the octets is free: those who publish them cannot make many others go.
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
        // Those of the least size last: there may be more of them than have to go.
        for is_least in [false, true] {
            self.retain(|domain, entry| {
                let octets = entry.octets(domain);
                let goes = freed < wanted && if is_least { octets == least } else { octets > least };
                freed += if goes { octets } else { 0 };
                !goes
            });
        }
    }

    /// Marks it as changed again: the last text could not be written.
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

    /// The domains with a policy, for [`write`].
    pub fn policies(&self) -> Vec<(String, Kept)> {
        let kept = |(domain, entry): (&String, &Entry)| Some((domain.clone(), entry.kept.clone()?));
        self.domains.iter().filter_map(kept).collect()
    }

    /// What the file has, and the first line that cannot be read, if there is one: policies in other lines are used all the same.
    ///
    /// # Errors
    /// The file is not ours, or there is nothing in it that can be read; the caller moves it aside and begins anew.
    pub fn read(file: &[u8]) -> Result<(Cache, Option<CacheError>), CacheError> {
        let text = file.strip_suffix(b"\n").unwrap_or(file);
        let mut lines = text.split(|octet| *octet == b'\n').zip(1..);
        if lines.next().is_none_or(|(line, _)| line != HEAD.as_bytes()) {
            return Err(CacheError::Head);
        }
        let (mut cache, mut damaged) = (Cache::default(), None);
        for (line, number) in lines {
            match serde_json::from_slice::<(String, Kept)>(line) {
                Ok((domain, kept)) => cache.restore(domain, kept),
                Err(_) => damaged = damaged.or(Some(CacheError::Line(number))),
            }
        }
        match damaged {
            Some(damaged) if cache.is_empty() => Err(damaged),
            damaged => Ok((cache, damaged)),
        }
    }

    fn restore(&mut self, domain: String, kept: Kept) {
        let octets = kept.octets(&domain);
        if self.domains.len() < DOMAINS_MAX && self.octets + octets <= OCTETS_MAX && !self.domains.contains_key(&domain)
        {
            self.octets += octets;
            self.domains.insert(domain, Entry { kept: Some(kept), ..Entry::default() });
        }
    }
}

/// The file: a line for each domain with a policy.
pub fn write(policies: &[(String, Kept)]) -> String {
    let mut text = format!("{HEAD}\n");
    for line in policies.iter().filter_map(|policy| serde_json::to_string(policy).ok()) {
        text.push_str(&line);
        text.push('\n');
    }
    text
}
