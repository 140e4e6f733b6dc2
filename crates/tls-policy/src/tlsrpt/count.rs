//! Counts sessions for the reports of a day (UTC), by policy domain and policy, in bounded memory.
//!
//! Sums include everything beyond the limits: a domain with more than [`POLICIES_MAX`] policies in a day has the rest
//! counted under the last of them, and failures beyond [`DETAILS_MAX`] different ones are counted without details.
//! Domains beyond [`DOMAINS_MAX`] get no report for this day. Since others publish the data, no new texts are stored
//! beyond [`OCTETS_MAX`].

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use super::result::{AppliedPolicy, FailureDetails};

pub const DAY_MS: u64 = 86_400_000;
/// Maximum domains counted in one day.
pub const DOMAINS_MAX: usize = 16_384;
/// Maximum policies of one domain in one day: one for each host with TLSA records, and each change.
pub const POLICIES_MAX: usize = 16;
/// Maximum different failures of one policy in one day.
pub const DETAILS_MAX: usize = 64;
/// Maximum octets of all policies and details of all days.
pub const OCTETS_MAX: usize = 32 * 1024 * 1024;
/// Maximum octets of a text from others.
const TEXT_BYTES_MAX: usize = 256;
/// Maximum lines quoted of one policy, and maximum `mx` patterns.
const LINES_MAX: usize = 64;
/// Upper limit of valid days, beyond the year 4000.
const DAY_NUMBER_MAX: u64 = 750_000;
/// First line of the file.
const HEAD: &str = "stentor tlsrpt 1";

/// Counts of sessions under one policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyCount {
    pub policy: AppliedPolicy,
    pub successes: u64,
    /// Failures, including those without details.
    pub failures: u64,
    pub details: Vec<(FailureDetails, u64)>,
}

/// Counts of all sessions of a domain in a day.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DomainCount {
    pub policies: Vec<PolicyCount>,
    /// Places that have received the report of this day, or get none, in the form of [`ReportDestination::uri`].
    ///
    /// [`ReportDestination::uri`]: super::ReportDestination::uri
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub done: Vec<String>,
}

/// Days that are not reported yet, including the present one. A copy shares the domains' counts with the original
/// until either changes them, so that it is cheap and can be written while sessions are counted.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    days: BTreeMap<u64, HashMap<String, Arc<DomainCount>, foldhash::fast::RandomState>>,
    /// Octets of all texts.
    octets: usize,
    /// Sessions of domains beyond the limit, since the start.
    uncounted: u64,
    is_changed: bool,
}

/// Why a file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CountsError {
    #[error("not a TLS report file of this version")]
    Head,
    #[error("line {0} is malformed")]
    Line(usize),
}

/// Days since 1970 of a time.
pub const fn day_of(now: u64) -> u64 {
    now / DAY_MS
}

impl Counts {
    /// Counts a session whose handshake ended, with its `failure` if there was one. Each session has one result.
    pub fn session(&mut self, domain: &str, policy: &AppliedPolicy, failure: Option<&FailureDetails>, now: u64) {
        let has_space = self.octets < OCTETS_MAX;
        let day = self.days.entry(day_of(now)).or_default();
        if !day.contains_key(domain) && (day.len() >= DOMAINS_MAX || !has_space) {
            self.uncounted += 1;
            return;
        }
        self.is_changed = true;
        let (count, added) = Arc::make_mut(day.entry_ref(domain).or_default()).under(policy, has_space);
        self.octets += added;
        let Some(failure) = failure else {
            count.successes += 1;
            return;
        };
        count.failures += 1;
        let failure = cut(failure);
        if let Some((_, number)) = count.details.iter_mut().find(|(known, _)| *known == failure) {
            *number += 1;
        } else if count.details.len() < DETAILS_MAX && has_space {
            self.octets += octets_of_failure(&failure);
            count.details.push((failure, 1));
        }
    }

    /// Days before today that have something to report, the oldest first.
    pub fn finished(&self, now: u64) -> impl Iterator<Item = (u64, &str)> {
        let past = self.days.range(..day_of(now));
        past.flat_map(|(day, domains)| domains.keys().map(move |domain| (*day, &**domain)))
    }

    pub fn of(&self, day: u64, domain: &str) -> Option<&DomainCount> {
        self.days.get(&day)?.get(domain).map(|count| &**count)
    }

    /// Records that the report is not sent to this place (again), even after a restart.
    pub fn set_done(&mut self, day: u64, domain: &str, uri: &str) {
        let Some(count) = self.days.get_mut(&day).and_then(|domains| domains.get_mut(domain)) else { return };
        if !count.done.iter().any(|done| done == uri) {
            Arc::make_mut(count).done.push(uri.to_owned());
            self.is_changed = true;
        }
    }

    /// Removes a count that was reported, or whose domain wants no report.
    pub fn remove(&mut self, day: u64, domain: &str) {
        let Some(domains) = self.days.get_mut(&day) else { return };
        if let Some(count) = domains.remove(domain) {
            self.octets = self.octets.saturating_sub(count.octets());
            self.is_changed = true;
        }
        if domains.is_empty() {
            self.days.remove(&day);
        }
    }

    /// Drops counts that could not be reported within two days after their day; returns their number. A report is due
    /// up to four hours after its day and must be tried for 24 hours from then (RFC 8460 5.4), which exceeds one day.
    pub fn give_up(&mut self, now: u64) -> usize {
        let kept = self.days.split_off(&day_of(now).saturating_sub(2));
        let given_up = std::mem::replace(&mut self.days, kept);
        let octets: usize = given_up.values().flat_map(HashMap::values).map(|count| count.octets()).sum();
        self.octets = self.octets.saturating_sub(octets);
        let given_up = given_up.values().map(HashMap::len).sum();
        self.is_changed |= given_up > 0;
        given_up
    }

    /// Sessions that are in no report, because there are too many domains.
    pub fn uncounted(&self) -> u64 {
        self.uncounted
    }

    /// Marks it as changed, because the last text could not be written.
    pub fn set_changed(&mut self) {
        self.is_changed = true;
    }

    /// Whether there are changes to write since the last call.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// Formats the file: a line for each domain and day.
    pub fn write(&self) -> String {
        let mut text = format!("{HEAD}\n");
        for (day, domains) in &self.days {
            for (domain, count) in domains {
                if let Ok(line) = serde_json::to_string(&(day, domain, &**count)) {
                    text.push_str(&line);
                    text.push('\n');
                }
            }
        }
        text
    }

    /// Parses the file.
    ///
    /// # Errors
    /// The file has another format or is damaged; the caller moves it aside and starts with empty counts.
    pub fn read(text: &str) -> Result<Counts, CountsError> {
        let mut lines = text.lines().zip(1..);
        if lines.next().is_none_or(|(line, _)| line != HEAD) {
            return Err(CountsError::Head);
        }
        let mut counts = Counts::default();
        for (line, number) in lines {
            let (day, domain, count): (u64, String, DomainCount) =
                serde_json::from_str(line).map_err(|_| CountsError::Line(number))?;
            if day > DAY_NUMBER_MAX {
                return Err(CountsError::Line(number));
            }
            let domains = counts.days.entry(day).or_default();
            if domains.len() < DOMAINS_MAX && counts.octets < OCTETS_MAX {
                counts.octets += count.octets();
                domains.insert(domain, Arc::new(count));
            }
        }
        Ok(counts)
    }
}

impl DomainCount {
    fn octets(&self) -> usize {
        let of_failures =
            |count: &PolicyCount| count.details.iter().map(|(failure, _)| octets_of_failure(failure)).sum::<usize>();
        self.policies.iter().map(|count| octets_of_policy(&count.policy) + of_failures(count)).sum()
    }

    /// The count of a policy, and the number of octets added for it.
    fn under(&mut self, policy: &AppliedPolicy, has_space: bool) -> (&mut PolicyCount, usize) {
        let is_same = |count: &PolicyCount| {
            count.policy.kind == policy.kind
                && count.policy.lines == shown(&policy.lines)
                && count.policy.mx == shown(&policy.mx)
        };
        let found = self.policies.iter().position(is_same);
        let mut added = 0;
        let place = found.unwrap_or_else(|| {
            if self.policies.is_empty() || self.policies.len() < POLICIES_MAX && has_space {
                let mut policy = policy.clone();
                policy.lines.truncate(LINES_MAX);
                policy.mx.truncate(LINES_MAX);
                added = octets_of_policy(&policy);
                self.policies.push(PolicyCount { policy, successes: 0, failures: 0, details: Vec::new() });
            }
            self.policies.len() - 1
        });
        (&mut self.policies[place], added)
    }
}

fn octets_of_policy(policy: &AppliedPolicy) -> usize {
    let texts = policy.lines.iter().chain(&policy.mx).map(|text| text.len() + size_of::<String>());
    size_of::<PolicyCount>() + texts.sum::<usize>()
}

fn octets_of_failure(failure: &FailureDetails) -> usize {
    let FailureDetails { sending_ip, receiving_host, receiving_ip, receiving_helo, reason, .. } = failure;
    let texts = [sending_ip, receiving_host, receiving_ip, receiving_helo, reason];
    size_of::<(FailureDetails, u64)>() + texts.into_iter().map(String::len).sum::<usize>()
}

fn shown(texts: &[String]) -> &[String] {
    &texts[..texts.len().min(LINES_MAX)]
}

fn cut(failure: &FailureDetails) -> FailureDetails {
    let short = |text: &str| text[..text.floor_char_boundary(TEXT_BYTES_MAX.min(text.len()))].to_owned();
    FailureDetails {
        result: failure.result,
        sending_ip: short(&failure.sending_ip),
        receiving_host: short(&failure.receiving_host),
        receiving_ip: short(&failure.receiving_ip),
        receiving_helo: short(&failure.receiving_helo),
        reason: short(&failure.reason),
    }
}
