//! Counts sessions for the reports of a day (UTC), by policy domain and policy, in bounded memory.
//!
//! Sums include everything beyond the limits: a domain with more than [`POLICIES_MAX`] policies in a day has the rest
//! counted under the last of them, and failures beyond [`DETAILS_MAX`] different ones are counted without details. The
//! limits of all domains are those of [`DailyCounts`].

use serde::{Deserialize, Serialize};
use stentor_domain_reports::{DailyCounts, DayCount};

use super::result::{AppliedPolicy, FailureDetails};

/// Maximum policies of one domain in one day: one for each host with TLSA records, and each change.
pub const POLICIES_MAX: usize = 16;
/// Maximum different failures of one policy in one day.
pub const DETAILS_MAX: usize = 64;
/// Maximum octets of a text from others.
const TEXT_BYTES_MAX: usize = 256;
/// Maximum lines quoted of one policy, and maximum `mx` patterns.
const LINES_MAX: usize = 64;

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
    /// Destinations that have received the report of this day, or get none, in the form of [`ReportDestination::uri`].
    ///
    /// [`ReportDestination::uri`]: stentor_domain_reports::ReportDestination::uri
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub done: Vec<String>,
}

/// Counts of all days.
pub type Counts = DailyCounts<DomainCount>;

impl DayCount for DomainCount {
    const HEAD: &'static str = "stentor tlsrpt 1";
    // They are domains that our users write to.
    const ORGANIZATION_DOMAINS_MAX: u32 = u32::MAX;

    fn octets(&self) -> usize {
        let of_failures =
            |count: &PolicyCount| count.details.iter().map(|(failure, _)| octets_of_failure(failure)).sum::<usize>();
        self.policies.iter().map(|count| octets_of_policy(&count.policy) + of_failures(count)).sum()
    }

    fn done(&self) -> &[String] {
        &self.done
    }

    fn done_mut(&mut self) -> &mut Vec<String> {
        &mut self.done
    }
}

/// Counts sessions.
pub trait SessionCounter {
    /// Counts a session whose handshake ended, with its `failure` if there was one. Each session has one result.
    fn session(&mut self, domain: &str, policy: &AppliedPolicy, failure: Option<&FailureDetails>, now: u64);
}

impl SessionCounter for Counts {
    fn session(&mut self, domain: &str, policy: &AppliedPolicy, failure: Option<&FailureDetails>, now: u64) {
        self.update(domain, now, |of_domain, has_space| {
            let (count, mut added) = of_domain.under(policy, has_space);
            let Some(failure) = failure else {
                count.successes += 1;
                return added;
            };
            count.failures += 1;
            let failure = cut(failure);
            if let Some((_, number)) = count.details.iter_mut().find(|(known, _)| *known == failure) {
                *number += 1;
            } else if count.details.len() < DETAILS_MAX && has_space {
                added += octets_of_failure(&failure);
                count.details.push((failure, 1));
            }
            added
        });
    }
}

impl DomainCount {
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
