//! DMARC (RFC 9989): the record that applies to From, its reports, and the alignment of DKIM and SPF with From.
//!
//! Records and the walk are those of receivers ([`TreeWalk`]). A record that they read with defaults for malformed tags
//! is a fault here. Promise: at most [`DESTINATIONS_MAX`] destinations of reports are examined.

use stentor_mail::domain::is_at_or_below;
use stentor_message_auth::{DmarcPolicy, DmarcRecord, TreeWalk, report_domain};

use crate::check::{Check, Findings};
use crate::domain_identity::DomainIdentity;
use crate::lookups::{Lookup, Lookups};
use crate::reports::{self, DESTINATIONS_MAX, KnownRecord};

fn tree_walk<'d>(lookups: &Lookups, domain: &'d str) -> Lookup<TreeWalk<'d>> {
    TreeWalk::of(domain, |name| Ok(lookups.texts(name)?.iter().map(Vec::as_slice).collect()))
}

/// Judges the record of a domain in From, and what it needs. `signatures`: domains of signatures.
pub(crate) fn examine(
    lookups: &Lookups,
    identity: &DomainIdentity<'_>,
    signatures: &[&str],
    out: &mut Findings,
) -> Lookup<()> {
    let DomainIdentity { domain, return_paths, .. } = *identity;
    let walk = tree_walk(lookups, domain)?;
    let policy = applied(&walk, identity, out);
    if let Some(applied) = &policy {
        let end = judge(lookups, applied, identity, out);
        let ends =
            applied.record.report_uris.iter().take(DESTINATIONS_MAX).map(|uri| destination(lookups, applied, uri, out));
        let ends: Vec<Lookup<()>> = ends.collect();
        for end in ends {
            end?;
        }
        end?;
    } else {
        // Reports of the last days may be about a record that is gone or damaged now.
        reports::examine_own(lookups, domain, identity, out)?;
    }
    let record = policy.as_ref().map(|applied| applied.record);
    let strict_dkim = record.is_some_and(|record| record.is_dkim_strict);
    let strict_spf = record.is_some_and(|record| record.is_spf_strict);
    let author = Author { domain, walk: &walk };
    if !signatures.is_empty() && !any_aligned(lookups, author, signatures.iter().copied(), strict_dkim)? {
        let what = format!("no signature is aligned with From: DMARC accepts none of {}", signatures.join(", "));
        let next = format!("add a section [[dkim]] for {domain}, or publish adkim=r in its DMARC record");
        out.add(Check::DkimAlignment, domain, what, next);
    }
    if !any_aligned(lookups, author, return_paths.iter().map(String::as_str), strict_spf)? {
        let what = format!("SPF is not aligned with From: return paths have {}", return_paths.join(", "));
        let next = "set `bounces` of the list to an address of the domain, or rely on DKIM alone";
        out.add(Check::SpfAlignment, domain, what, next);
    }
    Ok(())
}

/// A domain in From.
#[derive(Clone, Copy)]
struct Author<'a> {
    domain: &'a str,
    walk: &'a TreeWalk<'a>,
}

fn any_aligned<'a>(
    lookups: &Lookups,
    author: Author<'_>,
    mut domains: impl Iterator<Item = &'a str> + Clone,
    is_strict: bool,
) -> Lookup<bool> {
    if domains.clone().any(|other| other == author.domain) {
        return Ok(true);
    }
    if is_strict {
        return Ok(false);
    }
    let organization = author.walk.organization();
    // A domain that is not below the organization's cannot have the same one.
    domains.try_fold(false, |is_any, other| {
        Ok(is_any || is_at_or_below(other, organization) && tree_walk(lookups, other)?.organization() == organization)
    })
}

/// The record that applies, and where it is.
struct AppliedPolicy<'a> {
    record: &'a DmarcRecord,
    domain: &'a str,
    policy: DmarcPolicy,
}

fn applied<'a>(walk: &'a TreeWalk<'a>, identity: &DomainIdentity<'_>, out: &mut Findings) -> Option<AppliedPolicy<'a>> {
    let domain = identity.domain;
    if walk.own().records > 1 {
        let next = format!("keep one TXT record at _dmarc.{domain} that begins with v=DMARC1");
        out.add(Check::DmarcSeveral, domain, "several DMARC records: receivers use none of them", next);
        return None;
    }
    let Some((at, record)) = walk.applied().and_then(|step| Some((step.domain, step.record.as_ref()?))) else {
        let own = identity.reports.and_then(|reports| reports.address);
        let address = own.map_or_else(|| format!("postmaster@{domain}"), str::to_owned);
        let text = format!("v=DMARC1; p=none; rua=mailto:{address}");
        let next = format!("publish `_dmarc.{domain}. IN TXT \"{text}\"`, later with p=quarantine or p=reject");
        out.add(Check::DmarcMissing, domain, format!("no DMARC record applies to {domain}"), next);
        return None;
    };
    if let Some(why) = &record.fault {
        let next = format!("correct the record at _dmarc.{at}");
        out.add(Check::DmarcSyntax, at, format!("the DMARC record is not valid: {why}"), next);
        return None;
    }
    let policy = if at == domain { record.policy } else { record.subdomains.unwrap_or(record.policy) };
    Some(AppliedPolicy { record, domain: at, policy })
}

fn judge(
    lookups: &Lookups,
    applied: &AppliedPolicy<'_>,
    identity: &DomainIdentity<'_>,
    out: &mut Findings,
) -> Lookup<()> {
    let AppliedPolicy { record, domain: at, policy } = *applied;
    let (domain, name) = (identity.domain, format!("_dmarc.{at}"));
    let known = KnownRecord { domain: at, record, identity };
    let evidence = reports::passing_evidence(&known).filter(|_| policy == DmarcPolicy::None);
    if let Some(evidence) = evidence {
        let what = format!("the DMARC policy for {domain} is none, and {evidence}");
        let next = format!(
            "publish p=quarantine at {name} once every sender for {at} is known: rare senders may be missing from the reports"
        );
        out.add(Check::DmarcRaise, at, what, next);
    } else if policy == DmarcPolicy::None {
        let what = format!("the DMARC policy for {domain} is none: forged mail is accepted");
        let next = format!("publish p=quarantine or p=reject at {name} when the reports show that our mail passes");
        out.add(Check::DmarcPolicy, at, what, next);
    }
    if record.is_test || record.percentage.is_some_and(|percentage| percentage < 100) {
        let what = "the DMARC record has `t=y` or `pct`: the policy is not applied to all mail";
        out.add(Check::DmarcTest, at, what, format!("remove `t` and `pct` from {name}"));
    }
    if record.report_uris.is_empty() {
        let next = match identity.reports.and_then(|reports| reports.address) {
            Some(own) => reports::publish(lookups, at, None, own)?,
            None => format!("add rua=mailto:ADDRESS to {name}"),
        };
        out.add(Check::DmarcReports, at, "the DMARC record requests no reports", next);
    }
    let ends = [reports::examine_destinations(lookups, &known, out), reports::examine_own(lookups, at, identity, out)];
    ends.into_iter().collect()
}

/// Checks a destination of reports: its syntax, and that another organization agrees (RFC 9990 section 4).
fn destination(lookups: &Lookups, applied: &AppliedPolicy<'_>, uri: &str, out: &mut Findings) -> Lookup<()> {
    let at = applied.domain;
    let Some(host) = report_domain(uri) else {
        let next = format!("write rua=mailto:ADDRESS at _dmarc.{at}, several with commas");
        out.add(Check::DmarcRua, at, format!("the destination of reports \"{uri}\" is not valid"), next);
        return Ok(());
    };
    if is_at_or_below(&host, at) {
        return Ok(());
    }
    let (own, theirs) = (tree_walk(lookups, at)?, tree_walk(lookups, &host)?);
    if own.organization() == theirs.organization() {
        return Ok(());
    }
    let name = format!("{at}._report._dmarc.{host}");
    if !lookups.texts(&name)?.iter().any(|text| DmarcRecord::parse(text).is_some()) {
        let what = format!("{host} does not agree to get reports about {at}");
        let next = format!("let {host} publish `{name}. IN TXT \"v=DMARC1\"`, or change rua at _dmarc.{at}");
        out.add(Check::DmarcExternal, at, what, next);
    }
    Ok(())
}
