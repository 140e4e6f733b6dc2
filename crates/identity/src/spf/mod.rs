//! SPF (RFC 7208): one valid record for each return path and HELO name, within the limits, which permits our addresses.
//!
//! A record that receivers cannot evaluate is reported as that, and not also as one that permits no address.

mod walk;

use std::net::IpAddr;

use stentor_message_auth::MethodResult;
use stentor_message_auth::spf::{LOOKUPS_MAX, MX_HOSTS_MAX, SpfMechanism, SpfRecord, VOIDS_MAX};
use walk::{Sender, SpfProblem, Walk, WalkEnd, records, walk};

use crate::check::{Check, Findings};
use crate::lookups::{Lookup, Lookups};
use crate::source::Source;

/// A name whose record counts.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SpfIdentity<'a> {
    /// Domain of a return path; all sources send for it.
    ReturnPath(&'a str),
    /// HELO name of one source.
    Helo(&'a Source),
}

/// Judges the record of a name for the addresses that send for it.
pub(crate) fn examine(
    lookups: &Lookups,
    identity: SpfIdentity<'_>,
    sources: &[Source],
    out: &mut Findings,
) -> Lookup<()> {
    let domain = match identity {
        SpfIdentity::ReturnPath(domain) => domain,
        SpfIdentity::Helo(source) => &source.helo,
    };
    let published = records(lookups, domain)?;
    let [text] = published.as_slice() else {
        if published.is_empty() {
            missing(identity, domain, sources, out);
        } else {
            several(domain, out);
        }
        return Ok(());
    };
    let own = match identity {
        SpfIdentity::Helo(source) => std::slice::from_ref(source),
        SpfIdentity::ReturnPath(_) => sources,
    };
    let mut ends = Vec::new();
    for source in own {
        // Every source is walked, so that all questions are asked together.
        ends.push(walk(lookups, Sender { client: source.address, helo: &source.helo, domain }));
    }
    for (source, end) in own.iter().zip(ends) {
        judge(&end?, source.address, &Published { domain, text }, out);
    }
    Ok(())
}

/// A record under examination.
struct Published<'a> {
    domain: &'a str,
    text: &'a [u8],
}

impl Published<'_> {
    /// The record with another term at its start.
    fn with_term(&self, term: &str) -> String {
        let text = String::from_utf8_lossy(self.text);
        let rest = text.get("v=spf1".len()..).unwrap_or_default().trim_start();
        line(self.domain, &format!("v=spf1 {term} {rest}"))
    }
}

fn missing(identity: SpfIdentity<'_>, domain: &str, sources: &[Source], out: &mut Findings) {
    match identity {
        SpfIdentity::ReturnPath(_) => {
            let terms: Vec<String> = sources.iter().map(|source| network(source.address)).collect();
            let terms = if terms.is_empty() { "mx".to_owned() } else { terms.join(" ") };
            let next = format!("publish {}", line(domain, &format!("v=spf1 {terms} -all")));
            out.add(Check::SpfMissing, domain, "the return path's domain has no SPF record", next);
        }
        SpfIdentity::Helo(_) => {
            let next = format!("publish {}", line(domain, "v=spf1 a -all"));
            out.add(Check::SpfHelo, domain, "the HELO name has no SPF record, which counts for bounces", next);
        }
    }
}

fn several(domain: &str, out: &mut Findings) {
    let next = format!("merge them into one TXT record of {domain} that begins with v=spf1");
    out.add(Check::SpfSeveral, domain, "several SPF records: receivers use none of them", next);
}

fn judge(end: &WalkEnd, address: IpAddr, published: &Published<'_>, out: &mut Findings) {
    let (domain, walk) = (published.domain, &end.walk);
    for problem in &walk.problems {
        report(problem, out);
    }
    limits(walk, domain, out);
    let is_broken = walk.is_broken() || walk.lookups > LOOKUPS_MAX || walk.voids.len() > VOIDS_MAX;
    if !is_broken && end.result != MethodResult::Pass {
        let what = format!("SPF gives {} for the source address {address}", end.result.word());
        out.add(Check::SpfSource, domain, what, format!("publish {}", published.with_term(&network(address))));
    }
    let Ok(record) = SpfRecord::parse(published.text) else { return };
    let last = record.directives.iter().find(|term| term.mechanism == SpfMechanism::All);
    let is_open = match last {
        Some(term) => term.result == MethodResult::Neutral,
        None => record.redirect.is_none(),
    };
    if is_open {
        let next = format!("end the SPF record of {domain} with `-all`, or `~all` while you are not sure");
        out.add(Check::SpfOpen, domain, "the SPF record refuses nobody", next);
    }
}

fn limits(walk: &Walk, domain: &str, out: &mut Findings) {
    let is_loop = walk.problems.iter().any(|problem| matches!(problem, SpfProblem::Loop { .. }));
    if walk.lookups > LOOKUPS_MAX && !is_loop {
        let what = format!("the SPF record needs {} look-ups; receivers stop at {LOOKUPS_MAX}", walk.lookups);
        let next = "replace `include`, `a` and `mx` terms by `ip4` and `ip6`, and remove those of former providers";
        out.add(Check::SpfLookups, domain, what, next);
    }
    if walk.voids.len() > VOIDS_MAX {
        let names = walk.voids.join(", ");
        let what = format!("look-ups of the SPF record find nothing: {names}; receivers stop at {VOIDS_MAX} of them");
        out.add(Check::SpfVoid, domain, what, format!("remove the terms with these names from the record of {domain}"));
    }
}

fn report(problem: &SpfProblem, out: &mut Findings) {
    match problem {
        SpfProblem::Several { domain } => several(domain, out),
        SpfProblem::Syntax { domain, why } => {
            let next = format!("correct the SPF record of {domain}");
            out.add(Check::SpfSyntax, domain, format!("the SPF record is not valid: {why}"), next);
        }
        SpfProblem::NoRecord { domain, term } => {
            let what = format!("the SPF record has `{term}`, but {domain} has no SPF record");
            out.add(Check::SpfInclude, domain, what, format!("remove `{term}`, or ask for the right name"));
        }
        SpfProblem::Loop { domain } => {
            let next = format!("remove the `include` or `redirect` that leads back to {domain}");
            out.add(Check::SpfLoop, domain, format!("the SPF record of {domain} includes itself"), next);
        }
        SpfProblem::ManyMx { domain } => {
            let what = format!("the SPF record has an `mx` term for {domain}, which has too many MX hosts");
            let next = format!("name their networks with `ip4` and `ip6` instead; at most {MX_HOSTS_MAX} hosts");
            out.add(Check::SpfMx, domain, what, next);
        }
        SpfProblem::Ptr { domain, term } => {
            let next = format!("replace `{term}` in the SPF record of {domain} by `ip4` and `ip6` terms");
            out.add(Check::SpfPtr, domain, format!("the SPF record has `{term}`, which receivers may ignore"), next);
        }
        SpfProblem::PassAll { domain, term } => {
            let next = format!("replace `{term}` in the SPF record of {domain} by the addresses that send, and `-all`");
            out.add(Check::SpfPassAll, domain, format!("the SPF record permits everybody: `{term}`"), next);
        }
    }
}

/// The term for an address.
fn network(address: IpAddr) -> String {
    format!("{}:{address}", if address.is_ipv4() { "ip4" } else { "ip6" })
}

/// A TXT record as zone text.
fn line(domain: &str, text: &str) -> String {
    format!("`{domain}. IN TXT \"{text}\"`")
}
