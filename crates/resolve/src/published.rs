//! DNS data of domains about TLS: TLSA records of hosts (DANE), and TXT records.
//!
//! Promise: [`Resolver::decisions`] makes the queries that `stentor_tls_policy::dane` needs, for all hosts in parallel,
//! at most three for each, and ends within [`DANE_MS_MAX`]. A query without an answer by then counts as failed, so
//! the host is not used: a slow or broken server must not bypass the records.
//!
//! An answer is secure if a name server that is believed ([`super::connection`]) says so. The facts about MX and
//! addresses are those of the answers from which the hosts were taken, so that nothing can change in between.
//!
//! An answer whose truth is not known ([`super::truth`]), for MX records, addresses, aliases or TLSA records, records
//! that are not there too, is a look-up that failed: what a server that does not validate says takes no records away
//! (RFC 7672 2.1).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::NetError;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use stentor_tls_policy::dane::{
    Answer, Answers, DaneDecision, DaneRefusal, HostFacts, MxFacts, NotApplicable, SecurityStatus, Step, decide, owner,
};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::answers::{self, Origin};
use super::select::{AddressAnswer, TTL_S_MAX};
use super::truth::why_unchecked;
use super::{Resolver, dns_name};

/// Time limit of all queries about the hosts of one domain.
pub const DANE_MS_MAX: u64 = 20_000;
/// Timeout of one query for TXT or MX records.
pub const TEXT_MS_MAX: u64 = 5_000;
/// TTL of a failed lookup.
const FAILED_TTL_S: u32 = 60;
/// TTL of absent records, after which new ones are noticed.
const ABSENT_TTL_S: u32 = 3_600;
/// Maximum steps for one host; [`decide`] needs no more.
const STEPS_MAX: usize = 4;

/// Authentication of the answers from which a domain's hosts were taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DnssecFacts {
    /// The MX answer for each host.
    mx: Vec<(Arc<str>, Arc<MxFacts>)>,
    hosts: Vec<HostFacts>,
    /// Hosts of which it is not known whether they are the domain's, or have these addresses, and why.
    unchecked: Vec<(Arc<str>, Arc<str>)>,
}

/// Where the hosts of a domain come from.
pub(super) enum MxOrigin {
    Records(Origin),
    /// It has no MX records, and is the host itself; why it is not known whether that is true, if it is not.
    None(Option<String>),
}

/// Result of DANE for a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaneResult {
    pub host: String,
    pub port: u16,
    pub decision: DaneDecision,
    /// TTL of the result.
    pub ttl_s: u32,
}

impl DnssecFacts {
    /// The hosts of a domain's MX records, or the domain itself.
    pub(super) fn found_mx<'a>(&mut self, domain: &str, origin: &MxOrigin, hosts: impl Iterator<Item = &'a str>) {
        let (MxOrigin::Records(Origin { unchecked, .. }) | MxOrigin::None(unchecked)) = origin;
        let hosts: Vec<Arc<str>> = hosts.map(Into::into).collect();
        if let Some(why) = unchecked {
            let why: Arc<str> = format!("MX records of {domain}: {why}").into();
            self.unchecked.extend(hosts.iter().map(|host| (host.clone(), why.clone())));
        }
        let MxOrigin::Records(origin) = origin else { return };
        let mx = Arc::new(MxFacts {
            security: security(origin),
            domain: domain.to_owned(),
            canonical: origin.canonical.clone(),
        });
        self.mx.extend(hosts.into_iter().map(|host| (host, mx.clone())));
    }

    /// Adds the address answer of a host.
    pub(super) fn add(&mut self, name: &str, port: u16, origin: &Origin) {
        let canonical = if origin.canonical.is_empty() { name } else { &origin.canonical }.to_owned();
        if let Some(why) = &origin.unchecked {
            self.unchecked.push((name.into(), format!("addresses of {name}: {why}").into()));
        }
        self.hosts.push(HostFacts { name: name.to_owned(), canonical, security: security(origin), port });
    }

    fn why_unchecked(&self, host: &str) -> Option<&Arc<str>> {
        self.unchecked.iter().find(|(name, _)| **name == *host).map(|(_, why)| why)
    }

    /// The MX answer by which a host is one of the domain's.
    pub fn mx(&self, host: &str) -> Option<&Arc<MxFacts>> {
        self.mx.iter().find(|(name, _)| **name == *host).map(|(_, mx)| mx)
    }

    pub fn hosts(&self) -> &[HostFacts] {
        &self.hosts
    }
}

impl Resolver {
    /// Whether name servers are trusted to authenticate answers.
    pub fn validates(&self) -> bool {
        self.0.is_trusted
    }

    /// The result of DANE for each host. `only`: `dane-only`.
    pub async fn decisions(&self, only: bool, facts: &DnssecFacts) -> Vec<DaneResult> {
        let until = Instant::now() + Duration::from_millis(DANE_MS_MAX);
        let mut tasks = JoinSet::new();
        let mut all: Vec<_> = facts.hosts.iter().map(late).collect();
        for (at, host) in facts.hosts.iter().cloned().enumerate() {
            if let Some(why) = facts.why_unchecked(&host.name).filter(|_| self.0.is_trusted) {
                all[at] = failed(&host, why.to_string());
                continue;
            }
            let (resolver, mx) = (self.clone(), facts.mx(&host.name).cloned());
            tasks.spawn(async move {
                let decided = tokio::time::timeout_at(until, resolver.decided(only, mx.as_deref(), &host)).await;
                (at, decided.unwrap_or_else(|_| late(&host)))
            });
        }
        while let Some(joined) = tasks.join_next().await {
            if let Ok((at, decided)) = joined {
                all[at] = decided;
            }
        }
        all
    }

    async fn decided(&self, only: bool, mx: Option<&MxFacts>, host: &HostFacts) -> DaneResult {
        let done = |decision, ttl_s| DaneResult { host: host.name.clone(), port: host.port, decision, ttl_s };
        if !self.0.is_trusted {
            let why = NotApplicable::NoDnssec;
            let refused = || DaneDecision::Refuse(DaneRefusal::NotApplicable(why));
            return done(if only { refused() } else { DaneDecision::NotApplicable(why) }, TTL_S_MAX);
        }
        let (mut answers, mut ttl_s) = (Answers::default(), TTL_S_MAX);
        for _ in 0..STEPS_MAX {
            let ttl = match decide(only, mx, host, &answers) {
                Step::Done(decision) => return done(decision, ttl_s),
                Step::AskAlias(name) => kept(&mut answers.alias, self.alias(&name).await),
                Step::AskCanonical(owner) => kept(&mut answers.canonical, self.tlsa(&owner).await),
                Step::AskName(owner) => kept(&mut answers.name, self.tlsa(&owner).await),
            };
            ttl_s = ttl_s.min(ttl);
        }
        late(host)
    }

    /// The data of the TLSA records of one of our hosts, following its aliases.
    pub async fn tlsa_of(&self, host: &str, port: u16) -> Answer<Vec<Vec<u8>>> {
        match self.tlsa(&owner(port, host)).await.0 {
            // An AD bit from beyond loopback can be forged.
            Answer::Found(_, data) if !self.validates() => Answer::Found(SecurityStatus::Insecure, data),
            answer => answer,
        }
    }

    /// Whether the name itself is an alias.
    async fn alias(&self, name: &str) -> (Answer<()>, u32) {
        let is_alias = |data: &RData| matches!(data, RData::CNAME(_)).then_some(());
        let (answer, ttl_s) = self.checked_records(name, RecordType::CNAME, is_alias).await;
        let answer = match answer {
            Answer::Found(security, _) => Answer::Found(security, ()),
            Answer::Absent => Answer::Absent,
            Answer::Failed(why) => Answer::Failed(why),
        };
        (answer, ttl_s)
    }

    /// The data of TLSA records in wire format.
    async fn tlsa(&self, owner: &str) -> (Answer<Vec<Vec<u8>>>, u32) {
        self.checked_records(owner, RecordType::TLSA, |data| {
            let RData::TLSA(tlsa) = data else { return None };
            let numbers = [tlsa.cert_usage.into(), tlsa.selector.into(), tlsa.matching.into()];
            Some([&numbers[..], &tlsa.cert_data].concat())
        })
        .await
    }

    async fn records<T>(
        &self,
        name: &str,
        kind: RecordType,
        data: impl Fn(&RData) -> Option<T>,
    ) -> (Answer<Vec<T>>, u32) {
        // A name that is too long has no records.
        let Some(name) = dns_name(name) else { return (Answer::Absent, ABSENT_TTL_S) };
        answer(&name, kind, self.uncounted(&name, kind).await, data)
    }

    /// The same where it matters whether the answer is authentic: failed if that is not known.
    async fn checked_records<T>(
        &self,
        name: &str,
        kind: RecordType,
        data: impl Fn(&RData) -> Option<T>,
    ) -> (Answer<Vec<T>>, u32) {
        let Some(name) = dns_name(name) else { return (Answer::Absent, ABSENT_TTL_S) };
        let result = self.uncounted(&name, kind).await;
        match why_unchecked(&result) {
            Some(why) => (Answer::Failed(why), FAILED_TTL_S),
            None => answer(&name, kind, result, data),
        }
    }

    /// The published MX records of a domain, including hosts that are this server: preference and host, the best
    /// first.
    ///
    /// # Errors
    /// The reason why they could not be looked up.
    pub async fn mx_of(&self, domain: &str) -> Result<Vec<(u16, String)>, String> {
        let records = self.records(domain, RecordType::MX, |data| {
            let RData::MX(mx) = data else { return None };
            Some((mx.preference, answers::text(&mx.exchange)))
        });
        match tokio::time::timeout(Duration::from_millis(TEXT_MS_MAX), records).await {
            Ok((Answer::Found(_, mut records), _)) => {
                records.sort_unstable();
                Ok(records)
            }
            Ok((Answer::Absent, _)) => Ok(Vec::new()),
            Ok((Answer::Failed(why), _)) => Err(why),
            Err(_) => Err(format!("no answer within {} s", TEXT_MS_MAX / 1_000)),
        }
    }

    /// The TXT records of a name, the strings of each joined; empty if there are none.
    ///
    /// # Errors
    /// The reason why they could not be looked up.
    pub async fn texts(&self, name: &str) -> Result<Vec<Vec<u8>>, String> {
        let texts = self.records(name, RecordType::TXT, |data| {
            let RData::TXT(text) = data else { return None };
            Some(text.txt_data.concat())
        });
        match tokio::time::timeout(Duration::from_millis(TEXT_MS_MAX), texts).await {
            Ok((Answer::Found(_, texts), _)) => Ok(texts),
            Ok((Answer::Absent, _)) => Ok(Vec::new()),
            Ok((Answer::Failed(why), _)) => Err(why),
            Err(_) => Err(format!("no answer within {} s", TEXT_MS_MAX / 1_000)),
        }
    }

    /// The addresses, of both families, of a host that is not a mail server.
    ///
    /// # Errors
    /// The reason why there is none.
    pub async fn ips(&self, host: &str) -> Result<Vec<IpAddr>, String> {
        match self.addresses(host).await {
            AddressAnswer::Found { v4, v6, .. } => Ok(v4.into_iter().chain(v6).collect()),
            AddressAnswer::NoData => Err("it has no address".to_owned()),
            AddressAnswer::NoDomain => Err("there is no such name".to_owned()),
            AddressAnswer::CnameLoop => Err("its CNAME records form a loop".to_owned()),
            AddressAnswer::Failed(why) => Err(why),
        }
    }

    /// The addresses of a name, of both families; empty if there are none.
    ///
    /// # Errors
    /// The reason why they could not be looked up.
    pub async fn addresses_of(&self, name: &str) -> Result<Vec<IpAddr>, String> {
        match tokio::time::timeout(Duration::from_millis(TEXT_MS_MAX), self.addresses(name)).await {
            Ok(AddressAnswer::Found { v4, v6, .. }) => Ok(v4.into_iter().chain(v6).collect()),
            Ok(AddressAnswer::NoData | AddressAnswer::NoDomain | AddressAnswer::CnameLoop) => Ok(Vec::new()),
            Ok(AddressAnswer::Failed(why)) => Err(why),
            Err(_) => Err(format!("no answer within {} s", TEXT_MS_MAX / 1_000)),
        }
    }

    /// The names in the PTR records of an address; empty if there are none.
    ///
    /// # Errors
    /// The reason why they could not be looked up.
    pub async fn names_of(&self, address: IpAddr) -> Result<Vec<String>, String> {
        let reverse = Name::from(address.to_canonical());
        let names = self.uncounted(&reverse, RecordType::PTR);
        match tokio::time::timeout(Duration::from_millis(TEXT_MS_MAX), names).await {
            Ok(result) => answers::names(result),
            Err(_) => Err(format!("no answer within {} s", TEXT_MS_MAX / 1_000)),
        }
    }

    /// Whether the name servers validate: whether they authenticate the root zone, which is signed.
    ///
    /// # Errors
    /// The reason why that cannot be determined.
    pub async fn validates_root(&self) -> Result<bool, String> {
        let root = Name::root();
        let answer = self.uncounted(&root, RecordType::NS).await;
        if let Some(why) = why_unchecked(&answer) {
            return Err(why);
        }
        let found = answers::data(&root, RecordType::NS, answer, |data| matches!(data, RData::NS(_)).then_some(()))?;
        Ok(found.is_some_and(|(_, _, origin)| origin.is_authentic))
    }
}

fn answer<T>(
    name: &Name,
    kind: RecordType,
    result: Result<Lookup, NetError>,
    data: impl Fn(&RData) -> Option<T>,
) -> (Answer<Vec<T>>, u32) {
    match answers::data(name, kind, result, data) {
        Ok(Some((found, ttl_s, origin))) => (Answer::Found(security(&origin), found), ttl_s),
        Ok(None) => (Answer::Absent, ABSENT_TTL_S),
        Err(why) => (Answer::Failed(why), FAILED_TTL_S),
    }
}

fn kept<T>(place: &mut Option<Answer<T>>, found: (Answer<T>, u32)) -> u32 {
    let (answer, ttl_s) = found;
    *place = Some(answer);
    ttl_s
}

fn security(origin: &Origin) -> SecurityStatus {
    if origin.is_authentic { SecurityStatus::Secure } else { SecurityStatus::Insecure }
}

fn late(host: &HostFacts) -> DaneResult {
    failed(host, format!("no answer within {} s", DANE_MS_MAX / 1_000))
}

fn failed(host: &HostFacts, why: String) -> DaneResult {
    let refusal = DaneRefusal::LookUp { host: host.name.clone(), port: host.port, why };
    DaneResult {
        host: host.name.clone(),
        port: host.port,
        decision: DaneDecision::Refuse(refusal),
        ttl_s: FAILED_TTL_S,
    }
}
