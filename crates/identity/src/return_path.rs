//! Mail to a domain: its MX hosts, which get replies and bounces, MTA-STS (RFC 8461) and TLS reports (RFC 8460).
//!
//! Promise: at most [`HOSTS_MAX`] hosts are examined. Failure: a policy that cannot be fetched is a fault of the
//! domain, a name server that does not answer is none.

use stentor_tls_policy::sts::{self, StsMode};
use stentor_tls_policy::tlsrpt;

use crate::check::{Check, Findings};
use crate::lookups::{Lookup, Lookups};

/// Maximum MX hosts examined, the best first.
const HOSTS_MAX: usize = 32;

/// Judges whether mail can be sent to a domain.
pub(crate) fn examine(lookups: &Lookups, domain: &str, out: &mut Findings) -> Lookup<()> {
    let hosts = lookups.mx(domain)?;
    if hosts.is_empty() {
        if lookups.addresses(domain)?.is_empty() {
            let next = format!("publish `{domain}. IN MX 10 HOST.` with a host that accepts mail for it");
            out.add(Check::MxMissing, domain, format!("{domain} receives no mail: no MX record and no address"), next);
        }
        return Ok(());
    }
    if hosts.iter().any(String::is_empty) {
        let next = format!("replace it by `{domain}. IN MX 10 HOST.` with a host that accepts mail for it");
        out.add(Check::MxNull, domain, format!("{domain} receives no mail: it has a null MX record"), next);
        return Ok(());
    }
    let answers: Vec<_> = hosts.iter().take(HOSTS_MAX).map(|host| (host, lookups.addresses(host))).collect();
    for (host, answer) in answers {
        if answer?.is_empty() {
            let next = format!("publish an address of {host}, or remove the MX record");
            out.add(Check::MxHost, domain, format!("the MX host {host} of {domain} has no address"), next);
        }
    }
    Ok(())
}

/// Judges the records about TLS of a domain's MX hosts.
pub(crate) fn examine_tls(lookups: &Lookups, domain: &str, out: &mut Findings) {
    let end = sts(lookups, domain, out);
    out.end(domain, "MTA-STS", end);
    let end = tls_reports(lookups, domain, out);
    out.end(domain, "TLS-RPT", end);
}

fn sts(lookups: &Lookups, domain: &str, out: &mut Findings) -> Lookup<()> {
    let name = sts::record_name(domain);
    let record = format!("`{name}. IN TXT \"v=STSv1; id=1\"`");
    match sts::Record::of(lookups.texts(&name)?.iter().map(Vec::as_slice)) {
        sts::Record::Absent => {
            let host = sts::policy_host(domain);
            let next = format!("publish {record} and a policy at https://{host}{}", sts::POLICY_PATH);
            let what = format!("{domain} has no MTA-STS policy: TLS to its MX hosts can be removed on the way");
            out.add(Check::StsMissing, domain, what, next);
            return Ok(());
        }
        sts::Record::Invalid(error) => {
            let what = format!("the MTA-STS record at {name} is not valid: {error}");
            out.add(Check::StsRecord, domain, what, format!("publish {record}"));
            return Ok(());
        }
        sts::Record::Id(_) => {}
    }
    let policy = match lookups.policy(domain)? {
        Ok(policy) => policy,
        Err(why) => {
            let next = format!("correct the policy at https://{}{}", sts::policy_host(domain), sts::POLICY_PATH);
            out.add(Check::StsPolicy, domain, format!("the MTA-STS policy of {domain} cannot be used: {why}"), next);
            return Ok(());
        }
    };
    if policy.mode != StsMode::Enforce {
        let what = format!("the MTA-STS policy of {domain} has mode {}", policy.mode.name());
        out.add(Check::StsMode, domain, what, "set `mode: enforce` when the TLS reports show no failures");
    }
    let hosts = lookups.mx(domain)?;
    let unlisted = hosts.iter().filter(|host| !host.is_empty() && !policy.allows(host));
    for host in unlisted.take(HOSTS_MAX) {
        let what = format!("the MTA-STS policy of {domain} does not list its MX host {host}");
        out.add(Check::StsMx, domain, what, format!("add `mx: {host}` to the policy, and change the record's id"));
    }
    Ok(())
}

fn tls_reports(lookups: &Lookups, domain: &str, out: &mut Findings) -> Lookup<()> {
    let name = tlsrpt::record_name(domain);
    let record = format!("`{name}. IN TXT \"v=TLSRPTv1; rua=mailto:postmaster@{domain}\"`");
    match tlsrpt::Record::of(lookups.texts(&name)?.iter().map(Vec::as_slice)) {
        tlsrpt::Record::Destinations(_) => {}
        tlsrpt::Record::Absent => {
            let what = format!("{domain} requests no reports on TLS failures");
            out.add(Check::TlsrptMissing, domain, what, format!("publish {record}"));
        }
        tlsrpt::Record::Invalid(error) => {
            let what = format!("the TLS-RPT record at {name} is not valid: {error}");
            out.add(Check::TlsrptRecord, domain, what, format!("publish {record}"));
        }
    }
    Ok(())
}
