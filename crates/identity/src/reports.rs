//! What this server knows of a domain's DMARC reports: the address that keeps them, and what those that came say about
//! our own addresses and about the policy.
//!
//! Promise: reports are claims of receivers. Findings have their numbers and are warnings, never problems.

use std::collections::BTreeSet;
use std::net::IpAddr;

use stentor_domain_reports::dmarc::MessageSums;
use stentor_message_auth::{DmarcRecord, ReportAddress};

use crate::check::{Check, Findings};
use crate::domain_identity::{DomainIdentity, RECENT_DAYS, ReceivedReports};
use crate::lookups::{Lookup, Lookups};

/// Failed messages from our addresses, and their percentage of ours, from which something is wrong: some look-ups of
/// receivers fail.
const OWN_FAILED_MIN: u64 = 10;
const OWN_FAILED_PERCENT: u64 = 2;
/// What is needed to raise the policy: days with reports, messages in them, and the thousandths that pass.
const PASSING_DAYS_MIN: usize = 30;
const PASSING_MESSAGES_MIN: u64 = 100;
const PASSING_MIN: u64 = 995;
/// Maximum destinations of reports that are examined.
pub(crate) const DESTINATIONS_MAX: usize = 10;
/// Maximum MX hosts, and names of this server, that are looked up.
const HOSTS_MAX: usize = 10;

/// The record that applies to a domain in From, and where it is.
pub(crate) struct KnownRecord<'a> {
    pub domain: &'a str,
    pub record: &'a DmarcRecord,
    pub identity: &'a DomainIdentity<'a>,
}

/// Checks that reports go where this server keeps them.
pub(crate) fn examine_destinations(lookups: &Lookups, known: &KnownRecord<'_>, out: &mut Findings) -> Lookup<()> {
    let (KnownRecord { domain: at, record, identity }, Some(reports)) = (known, known.identity.reports) else {
        return Ok(());
    };
    let mail = |uri: &'_ String| Some((uri.clone(), ReportAddress::parse(uri)?.address));
    let addresses: Vec<_> = record.report_uris.iter().take(DESTINATIONS_MAX).filter_map(mail).collect();
    let mut has_unknown = false;
    for (uri, address) in &addresses {
        let domain = address.rsplit_once('@').map_or("", |(_, domain)| domain);
        // Another server may have the mail of a domain whose lists are here.
        if !(reports.is_unknown_here)(address) || !is_received_here(lookups, domain, reports, identity)? {
            continue;
        }
        has_unknown = true;
        let next = match reports.address {
            Some(own) => publish(lookups, at, Some(uri), own)?,
            None => format!("make {address} an alias, and set it as `address` in [dmarc_reports] to see the reports"),
        };
        out.add(Check::DmarcRuaUnknown, at, format!("DMARC reports go to {address}, which does not exist here"), next);
    }
    let Some(own) = reports.address.filter(|_| !has_unknown && !addresses.is_empty()) else { return Ok(()) };
    if !addresses.iter().any(|(_, address)| address.eq_ignore_ascii_case(own)) {
        let what = format!("no DMARC reports go to {own}, so `stentor dmarc` does not show them");
        out.add(Check::DmarcRuaOther, at, what, publish(lookups, at, None, own)?);
    }
    Ok(())
}

fn is_received_here(
    lookups: &Lookups,
    domain: &str,
    reports: ReceivedReports<'_>,
    identity: &DomainIdentity<'_>,
) -> Lookup<bool> {
    for host in lookups.mx(domain)?.iter().filter(|host| !host.is_empty()).take(HOSTS_MAX) {
        let is_own = |address: &IpAddr| identity.sources.iter().any(|source| source.address == *address);
        if reports.host_names.iter().any(|name| name.eq_ignore_ascii_case(host))
            || lookups.addresses(host)?.iter().any(is_own)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The advice to publish the record with another destination of reports, `replaced` or added.
pub(crate) fn publish(lookups: &Lookups, at: &str, replaced: Option<&str>, address: &str) -> Lookup<String> {
    let name = format!("_dmarc.{at}");
    let record = lookups.texts(&name)?.iter().find(|text| DmarcRecord::parse(text).is_some());
    let record = record.map_or_else(String::new, |text| String::from_utf8_lossy(text).into_owned());
    let record = with_destination(&record, replaced, &format!("mailto:{address}"));
    Ok(format!("publish `{name}. IN TXT \"{record}\"`"))
}

fn with_destination(record: &str, replaced: Option<&str>, added: &str) -> String {
    let mut tags: Vec<String> =
        record.split(';').map(str::trim).filter(|tag| !tag.is_empty()).map(str::to_owned).collect();
    let uris_of =
        |tag: &str| tag.split_once('=').filter(|(name, _)| name.trim() == "rua").map(|(_, uris)| uris.to_owned());
    let rua = tags.iter_mut().find_map(|tag| uris_of(tag).map(|uris| (tag, uris)));
    if let Some((tag, uris)) = rua {
        let left =
            uris.split(',').map(str::trim).filter(|uri| !uri.is_empty() && *uri != added && Some(*uri) != replaced);
        *tag = format!("rua={}", left.chain([added]).collect::<Vec<_>>().join(","));
    } else {
        tags.push(format!("rua={added}"));
    }
    tags.join("; ")
}

/// Checks that receivers do not report failures of our own mail. `at`: the domain whose policy they applied.
pub(crate) fn examine_own(
    lookups: &Lookups,
    at: &str,
    identity: &DomainIdentity<'_>,
    out: &mut Findings,
) -> Lookup<()> {
    let Some(reports) = identity.reports else { return Ok(()) };
    if reports.recent.of_domain(at).is_none_or(|sums| sums.sums.failed() < OWN_FAILED_MIN) {
        return Ok(());
    }
    let answers: Vec<_> = reports.host_names.iter().take(HOSTS_MAX).map(|name| lookups.addresses(name)).collect();
    let mut addresses: BTreeSet<IpAddr> = identity.sources.iter().map(|source| source.address).collect();
    for answer in answers {
        addresses.extend(answer?);
    }
    let sums_of = |address: IpAddr| Some((address, reports.recent.of_source(at, address)?));
    let own: Vec<(IpAddr, &MessageSums)> = addresses.into_iter().filter_map(sums_of).collect();
    let sum = |of: fn(&MessageSums) -> u64| own.iter().fold(0_u64, |sum, (_, sums)| sum.saturating_add(of(sums)));
    let (messages, failed) = (sum(|sums| sums.messages), sum(MessageSums::failed));
    let Some((worst, sums)) = own.iter().max_by_key(|(_, sums)| sums.failed()) else { return Ok(()) };
    if failed >= OWN_FAILED_MIN && thousandths(failed, messages) > OWN_FAILED_PERCENT * 10 {
        let what = format!(
            "reports of the last {RECENT_DAYS} days: {failed} of {messages} messages from our own addresses fail DMARC \
             for {at} ({})",
            percent(failed, messages)
        );
        let next = format!(
            "correct what is found about DKIM and SPF, and look for mail that leaves unsigned; of {} messages from \
             {worst}, DKIM passes for {} and SPF for {} (`stentor dmarc`)",
            sums.messages, sums.dkim_passed, sums.spf_passed
        );
        out.add(Check::DmarcOwnSource, at, what, next);
    }
    Ok(())
}

/// What reports say about a domain whose mail passes, so that its policy can be raised; `None`: they are too few, or
/// mail fails.
pub(crate) fn passing_evidence(known: &KnownRecord<'_>) -> Option<String> {
    let sums = known.identity.reports?.policy;
    let (of_domain, days) = (sums.of_domain(known.domain)?, sums.days(known.domain));
    let MessageSums { messages, passed, .. } = of_domain.sums;
    let is_enough = days >= PASSING_DAYS_MIN && messages >= PASSING_MESSAGES_MIN && of_domain.policy == "none";
    (is_enough && thousandths(passed, messages) >= PASSING_MIN).then(|| {
        let percent = percent(passed, messages);
        format!("the reports of {days} days say that {percent} of {messages} messages pass")
    })
}

/// Rounded down.
fn thousandths(part: u64, whole: u64) -> u64 {
    u64::try_from(u128::from(part) * 1_000 / u128::from(whole.max(1))).unwrap_or(u64::MAX)
}

fn percent(part: u64, whole: u64) -> String {
    let thousandths = thousandths(part, whole);
    format!("{}.{} %", thousandths / 10, thousandths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_added_and_replaced() {
        let with = |record, replaced| with_destination(record, replaced, "mailto:d@a.test");
        assert_eq!(with("v=DMARC1; p=none;", None), "v=DMARC1; p=none; rua=mailto:d@a.test");
        let two = "v=DMARC1;p=none; rua = mailto:x@a.test!10m , mailto:y@a.test; fo=1";
        assert_eq!(with(two, None), "v=DMARC1; p=none; rua=mailto:x@a.test!10m,mailto:y@a.test,mailto:d@a.test; fo=1");
        assert_eq!(
            with(two, Some("mailto:x@a.test!10m")),
            "v=DMARC1; p=none; rua=mailto:y@a.test,mailto:d@a.test; fo=1"
        );
    }
}
