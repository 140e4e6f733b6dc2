//! DMARC: whether a message is from the domain of its author, and what that domain asks otherwise (RFC 9989).
//!
//! Failure: a DNS failure, in a walk or in a method that could have passed, is `temperror`; then nothing is applied.

mod destinations;
mod record;
#[cfg(test)]
mod tests;
mod walk;

use stentor_domain_reports::dmarc::PublishedPolicy;
use stentor_mail::domain::is_at_or_below;

pub use self::destinations::{DestinationChoice, DestinationSearch, DestinationStep};
pub use self::record::{DmarcPolicy, DmarcRecord, ReportAddress, report_domain};
pub use self::walk::{TreeWalk, WalkStep};
use crate::dkim::DkimResult;
use crate::dns::{Inquiry, Pending, RecordAnswer, RecordKind};
use crate::method::MethodResult;

/// Domains that a message has been authenticated for, in lower case.
#[derive(Debug, Clone, Default)]
pub struct AuthenticatedDomains {
    /// The sender's, if SPF passed.
    pub spf: Option<String>,
    /// `d=` of signatures that passed.
    pub dkim: Vec<String>,
    /// Domains whose result is unknown because the DNS failed.
    pub unknown: Vec<String>,
}

impl AuthenticatedDomains {
    pub fn add_signatures<'a>(&mut self, all: impl Iterator<Item = &'a DkimResult>) {
        for one in all {
            let Some(signature) = &one.signature else { continue };
            match one.result {
                MethodResult::Pass if !self.dkim.contains(&signature.domain) => {
                    self.dkim.push(signature.domain.clone());
                }
                MethodResult::TempError => self.unknown.push(signature.domain.clone()),
                _ => {}
            }
        }
    }
}

/// Result for one author's domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DmarcResult {
    /// The author's domain.
    pub domain: String,
    pub result: MethodResult,
    /// The policy published for it, if there is a record.
    pub policy: Option<DmarcPolicy>,
    /// The domain asks that the policy is not applied (`t=y`).
    pub is_test: bool,
    pub is_spf_aligned: bool,
    pub is_dkim_aligned: bool,
    /// The record with the policy.
    pub record: Option<PublishedRecord>,
}

/// The record that gave the policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedRecord {
    pub policy: PublishedPolicy,
    /// Whether it requests aggregate reports.
    pub requests_reports: bool,
}

impl PublishedRecord {
    fn of(domain: &str, record: &DmarcRecord) -> PublishedRecord {
        let word = |policy: DmarcPolicy| policy.word().to_owned();
        let policy = PublishedPolicy {
            domain: domain.to_owned(),
            policy: word(record.policy),
            subdomains: record.subdomains.map(word),
            missing_subdomains: record.missing_subdomains.map(word),
            is_dkim_strict: record.is_dkim_strict,
            is_spf_strict: record.is_spf_strict,
            is_test: record.is_test,
        };
        PublishedRecord { policy, requests_reports: !record.report_uris.is_empty() }
    }
}

impl DmarcResult {
    fn without_policy(domain: &str, result: MethodResult) -> DmarcResult {
        DmarcResult {
            domain: domain.to_owned(),
            result,
            policy: None,
            is_test: false,
            is_spf_aligned: false,
            is_dkim_aligned: false,
            record: None,
        }
    }

    /// What the domain asks for this message.
    pub fn disposition(&self) -> DmarcPolicy {
        let is_applied = self.result == MethodResult::Fail && !self.is_test;
        self.policy.filter(|_| is_applied).unwrap_or(DmarcPolicy::None)
    }
}

/// Why there is no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WalkStop {
    Pending,
    /// A question failed.
    Failed,
}

impl From<Pending> for WalkStop {
    fn from(_: Pending) -> WalkStop {
        WalkStop::Pending
    }
}

/// Evaluates DMARC for an author's domain.
///
/// # Errors
/// More answers are needed.
pub fn dmarc(
    inquiry: &Inquiry<'_>,
    author: &str,
    authenticated: &AuthenticatedDomains,
) -> Result<DmarcResult, Pending> {
    match evaluate(inquiry, author, authenticated) {
        Ok(result) => Ok(result),
        Err(WalkStop::Pending) => Err(Pending),
        Err(WalkStop::Failed) => Ok(DmarcResult::without_policy(author, MethodResult::TempError)),
    }
}

/// Asks the questions of a walk before its result is needed.
pub fn prefetch(inquiry: &Inquiry<'_>, author: &str) {
    // Questions are noted; the result is computed again.
    let _ = walk(inquiry, author);
}

fn walk<'d>(inquiry: &Inquiry<'_>, domain: &'d str) -> Result<TreeWalk<'d>, WalkStop> {
    TreeWalk::of(domain, |name| match inquiry.ask(name, RecordKind::Txt)? {
        RecordAnswer::Failed => Err(WalkStop::Failed),
        answer => Ok(answer.texts().iter().map(AsRef::as_ref).collect()),
    })
}

fn evaluate(
    inquiry: &Inquiry<'_>,
    author: &str,
    authenticated: &AuthenticatedDomains,
) -> Result<DmarcResult, WalkStop> {
    let found = walk(inquiry, author)?;
    let organization = found.organization();
    let applied = found.applied().and_then(|step| Some((step.domain, step.record.as_ref()?)));
    let Some((at, record)) = applied.filter(|(_, record)| !record.is_ignored) else {
        return Ok(DmarcResult::without_policy(author, MethodResult::None));
    };
    let policy = if at == author { record.policy } else { policy_below(inquiry, author, record)? };
    let DmarcRecord { is_spf_strict, is_dkim_strict, is_test, .. } = *record;
    let aligns = |domain: &str, is_strict: bool| -> Result<bool, WalkStop> {
        if domain == author {
            return Ok(true);
        }
        // Only domains of the same organization have the same organizational domain.
        if is_strict || !is_at_or_below(domain, organization) {
            return Ok(false);
        }
        Ok(walk(inquiry, domain)?.organization() == organization)
    };
    let is_spf_aligned = authenticated.spf.as_deref().map_or(Ok(false), |domain| aligns(domain, is_spf_strict));
    // All questions are asked before the first answer is used.
    let of_dkim: Vec<_> = authenticated.dkim.iter().map(|domain| aligns(domain, is_dkim_strict)).collect();
    let is_dkim_aligned = of_dkim.into_iter().fold(Ok(false), is_any_aligned);
    let is_pass = is_any_aligned(is_spf_aligned, is_dkim_aligned)?;
    let is_unknown = authenticated.unknown.iter().any(|domain| is_at_or_below(domain, organization));
    let result = match () {
        () if is_pass => MethodResult::Pass,
        () if is_unknown => MethodResult::TempError,
        () => MethodResult::Fail,
    };
    Ok(DmarcResult {
        domain: author.to_owned(),
        result,
        policy: Some(policy),
        is_test,
        // An alignment whose look-up failed counts as not aligned.
        is_spf_aligned: is_spf_aligned.unwrap_or(false),
        is_dkim_aligned: is_dkim_aligned.unwrap_or(false),
        record: Some(PublishedRecord::of(at, record)),
    })
}

/// Whether one of two alignments holds. A failed look-up counts only if the other does not hold.
fn is_any_aligned(one: Result<bool, WalkStop>, other: Result<bool, WalkStop>) -> Result<bool, WalkStop> {
    match (one, other) {
        (Err(WalkStop::Pending), _) | (_, Err(WalkStop::Pending)) => Err(WalkStop::Pending),
        (Ok(true), _) | (_, Ok(true)) => Ok(true),
        (Ok(false), Ok(false)) => Ok(false),
        (Err(WalkStop::Failed), _) | (_, Err(WalkStop::Failed)) => Err(WalkStop::Failed),
    }
}

/// The policy for a subdomain of the record's domain.
fn policy_below(inquiry: &Inquiry<'_>, author: &str, record: &DmarcRecord) -> Result<DmarcPolicy, WalkStop> {
    match record.missing_subdomains {
        Some(policy) if !exists(inquiry, author)? => Ok(policy),
        _ => Ok(record.subdomains.unwrap_or(record.policy)),
    }
}

/// Whether a domain has an address or MX records.
fn exists(inquiry: &Inquiry<'_>, domain: &str) -> Result<bool, WalkStop> {
    let answers = [RecordKind::A, RecordKind::Aaaa, RecordKind::Mx].map(|kind| inquiry.ask(domain, kind));
    for answer in answers {
        match answer? {
            RecordAnswer::Empty => {}
            RecordAnswer::Failed => return Err(WalkStop::Failed),
            _ => return Ok(true),
        }
    }
    Ok(false)
}
