//! Reports a local domain's published records for `stentor tls check`: its MX hosts, their TLSA records, its MTA-STS
//! policy.
//!
//! `stentor doctor` checks whether TLSA records match our certificates ([`crate::own_tlsa`]).

use stentor_core::sts::{LookupServices, fetch_until, fetched, record};
use stentor_tls_policy::dane::{Answer, SecurityStatus, usable};
use stentor_tls_policy::sts::{Record, StsPolicy};

/// The port of MX hosts.
const PORT: u16 = 25;
/// Maximum hosts examined, the best first.
const HOSTS_MAX: usize = 32;

/// The report, in lines.
pub async fn published(services: LookupServices<'_>, domain: &str) -> Vec<String> {
    let (found, (sts, fetched)) = tokio::join!(services.resolver.mx_of(domain), sts(services, domain));
    let mut lines = Vec::new();
    let mut hosts = match found {
        Err(why) => {
            lines.push(format!("MX           cannot be looked up: {why}"));
            Vec::new()
        }
        Ok(records) if records.is_empty() => {
            lines.push("MX           none is published: senders go to the addresses of the domain itself".to_owned());
            vec![domain.to_owned()]
        }
        Ok(records) => {
            lines.extend(records.iter().map(|(preference, host)| format!("MX           {preference} {host}")));
            records.into_iter().map(|(_, host)| host).collect()
        }
    };
    hosts.truncate(HOSTS_MAX);
    for host in &hosts {
        let answer = services.resolver.tlsa_of(host, PORT).await;
        lines.extend(tlsa(&answer).into_iter().map(|text| format!("TLSA         {host}: {text}")));
    }
    lines.push(format!("MTA-STS      {sts}"));
    let unlisted = fetched.iter().flat_map(|policy| hosts.iter().filter(|host| !policy.allows(host)));
    lines.extend(unlisted.map(|host| format!("MTA-STS      the policy does not list {host}")));
    lines
}

fn tlsa(answer: &Answer<Vec<Vec<u8>>>) -> Vec<String> {
    let (security, data) = match answer {
        Answer::Absent => return vec!["none".to_owned()],
        Answer::Failed(why) => return vec![format!("cannot be looked up: {why}")],
        Answer::Found(security, data) => (security, data),
    };
    let security = match security {
        SecurityStatus::Secure => "secured by DNSSEC",
        SecurityStatus::Insecure => "not known to be secured by DNSSEC",
    };
    let (records, unusable) = usable(data.iter().map(Vec::as_slice));
    let unusable = (unusable > 0).then(|| format!("{unusable} not usable for mail, {security}"));
    records.iter().map(|record| format!("{record}, {security}")).chain(unusable).collect()
}

/// The domain's MTA-STS policy as published now: words about it, and the policy.
pub async fn sts(services: LookupServices<'_>, domain: &str) -> (String, Option<StsPolicy>) {
    let (text, policy) = match record(services.resolver, domain).await {
        Err(why) => (format!("the record cannot be looked up: {why}"), None),
        Ok(Record::Id(id)) => match fetched(services, domain, fetch_until()).await {
            Ok(policy) => {
                let mx = policy.mx.join(", ");
                let text = format!("policy {id}: {}, for {mx}, max_age {} s", policy.mode.name(), policy.max_age_s);
                (text, Some(policy))
            }
            Err(failure) => (format!("policy {id} cannot be fetched: {}", failure.why), None),
        },
        Ok(_) => ("none is published".to_owned(), None),
    };
    (text, policy)
}
