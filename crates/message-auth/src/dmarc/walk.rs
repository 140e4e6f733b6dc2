//! The DNS tree walk: policy records of a domain and those above it (RFC 9989 section 4.10).

use super::record::{PolicyRecord, PublicSuffix};
use crate::dns::{Inquiry, Pending, RecordAnswer, RecordKind};

/// Labels of the longest domain that is asked for after the first one.
const LABELS_MAX: usize = 7;

/// A domain with a policy record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PolicyDomain {
    pub domain: String,
    pub record: PolicyRecord,
}

/// Why there is no result of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WalkStop {
    Pending,
    /// A question failed.
    Failed,
}

impl From<Pending> for WalkStop {
    fn from(_: Pending) -> WalkStop {
        WalkStop::Pending
    }
}

/// The domains that a walk asks for, the longest first: the domain itself, and at most [`LABELS_MAX`] above it.
pub(super) fn targets(domain: &str) -> Vec<&str> {
    let mut all = vec![domain];
    let labels = domain.split('.').count();
    let mut rest = domain;
    for left in (1..labels).rev() {
        let Some((_, above)) = rest.split_once('.') else { break };
        rest = above;
        if left <= LABELS_MAX {
            all.push(rest);
        }
    }
    all
}

/// Walks from a domain upwards; returns the domains with a record, the longest first. All are asked for at the same
/// time.
pub(super) fn walk(inquiry: &Inquiry<'_>, domain: &str) -> Result<Vec<PolicyDomain>, WalkStop> {
    let answers = targets(domain).into_iter().map(|at| (at, inquiry.ask(&format!("_dmarc.{at}"), RecordKind::Txt)));
    let answers: Vec<_> = answers.collect();
    let mut found = Vec::new();
    for (at, answer) in answers {
        let answer = answer?;
        if *answer == RecordAnswer::Failed {
            return Err(WalkStop::Failed);
        }
        let mut records = answer.texts().iter().filter_map(|text| PolicyRecord::parse(text));
        let Some(record) = records.next() else { continue };
        // Several records are none.
        if records.next().is_some() {
            continue;
        }
        found.push(PolicyDomain { domain: at.to_owned(), record });
        if record.public_suffix != PublicSuffix::Unknown {
            break;
        }
    }
    Ok(found)
}

/// The organizational domain of a domain from which a walk found these records.
pub(super) fn organizational<'a>(domain: &'a str, found: &'a [PolicyDomain]) -> &'a str {
    for one in found {
        match one.record.public_suffix {
            PublicSuffix::No => return &one.domain,
            PublicSuffix::Yes if one.domain != domain => return one_below(domain, &one.domain),
            PublicSuffix::Yes | PublicSuffix::Unknown => {}
        }
    }
    found.last().map_or(domain, |one| &one.domain)
}

/// The domain one label below a suffix.
fn one_below<'a>(domain: &'a str, suffix: &str) -> &'a str {
    let before = domain.strip_suffix(suffix).and_then(|before| before.strip_suffix('.')).unwrap_or_default();
    let begin = before.rfind('.').map_or(0, |dot| dot + 1);
    &domain[begin..]
}
