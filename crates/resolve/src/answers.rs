//! Converts hickory's lookups and errors to [`MxAnswer`] and [`AddressAnswer`].
//!
//! Only records of the queried name, directly or through CNAMEs, count: a stray record under another name is not an
//! answer. Anything but an authoritative "no such name" or "no such data" is a failure, and a failure is temporary.
//!
//! [`Origin`] records whether the name server authenticated the answer (AD, RFC 4035 3.2.3). That applies to a whole
//! answer, so it is lost if hickory combines several answers, as it does for CNAMEs that the name server does not
//! follow.

use std::net::IpAddr;
use std::time::Instant;

use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, RecordType};

use super::aliases::CnameChain;
use super::select::{AddressAnswer, MX_HOSTS_MAX, MxAnswer, MxRecord};
use super::truth::why_unchecked;

/// Maximum MX records examined: as many as fit into a DNS message of 64 KiB, so that the best are included.
const MX_RECORDS_MAX: usize = 200 * MX_HOSTS_MAX;

/// Why a query has no records.
pub enum Empty {
    NoData,
    /// An answer without data for the name and without the SOA that makes this authoritative (RFC 2308 2): either
    /// there are only records of another name, or the name server omits the SOA. The cases cannot be distinguished
    /// here.
    Unproven,
    NoDomain,
    Failed(String),
}

/// Origin of an answer.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Origin {
    /// Whether the name server says that the whole answer is authentic.
    pub is_authentic: bool,
    /// The name at the end of the CNAMEs; empty if nothing was found.
    pub canonical: String,
    /// Why it is not known whether the answer is authentic, if it is not.
    pub unchecked: Option<String>,
}

impl Origin {
    fn of(name: &Name, lookup: &Lookup, owners: &CnameChain<'_>) -> Origin {
        // A chain that hickory has followed ends with the answer to another query.
        let is_whole = lookup.message().queries.first().is_some_and(|query| query.name() == name);
        let canonical = text(owners.last());
        let is_authentic = is_whole && lookup.message().metadata.authentic_data;
        Origin { is_authentic, canonical, unchecked: None }
    }

    /// Combines the origins of two answers about one name.
    fn and(self, other: &Origin) -> Origin {
        let is_one = self.canonical == other.canonical;
        let unchecked = self.unchecked.or_else(|| other.unchecked.clone());
        Origin { is_authentic: is_one && self.is_authentic && other.is_authentic, canonical: self.canonical, unchecked }
    }
}

/// Addresses of one family.
pub struct Family {
    pub ips: Vec<IpAddr>,
    pub ttl_s: u32,
    pub origin: Origin,
}

pub fn mx_answer(name: &Name, result: Result<Lookup, NetError>) -> (MxAnswer, Origin) {
    let unchecked = why_unchecked(&result);
    let mut origin = Origin::default();
    let answer = match result.map_err(|error| empty(&error)) {
        Ok(lookup) => {
            let owners = owners(name, RecordType::MX, &lookup);
            origin = Origin::of(name, &lookup, &owners);
            let records: Vec<_> = lookup
                .answers()
                .iter()
                .filter_map(|r| if let RData::MX(mx) = &r.data { Some((&r.name, mx)) } else { None })
                .filter_map(|(owner, mx)| owners.contains(owner).then_some(mx))
                .take(MX_RECORDS_MAX)
                .map(|mx| MxRecord { preference: mx.preference, host: text(&mx.exchange) })
                .collect();
            if records.is_empty() { MxAnswer::NoData } else { MxAnswer::Records { records, ttl_s: ttl_s(&lookup) } }
        }
        Err(Empty::NoData) => MxAnswer::NoData,
        Err(Empty::Unproven) => MxAnswer::Unproven,
        Err(Empty::NoDomain) => MxAnswer::NoDomain,
        Err(Empty::Failed(why)) => MxAnswer::Failed(why),
    };
    origin.unchecked = unchecked;
    (answer, origin)
}

/// The addresses of one family and their TTL.
pub fn addresses(name: &Name, kind: RecordType, result: Result<Lookup, NetError>) -> Result<Family, Empty> {
    let unchecked = why_unchecked(&result);
    let lookup = result.map_err(|error| empty(&error))?;
    let owners = owners(name, kind, &lookup);
    let ips: Vec<IpAddr> = lookup
        .answers()
        .iter()
        .filter_map(|r| match &r.data {
            RData::A(a) => Some((&r.name, IpAddr::V4(a.0))),
            RData::AAAA(aaaa) => Some((&r.name, IpAddr::V6(aaaa.0))),
            _ => None,
        })
        .filter_map(|(owner, ip)| owners.contains(owner).then_some(ip))
        .collect();
    if ips.is_empty() {
        return Err(Empty::NoData);
    }
    let origin = Origin { unchecked, ..Origin::of(name, &lookup, &owners) };
    Ok(Family { ips, ttl_s: ttl_s(&lookup), origin })
}

/// The data of records of one kind, converted by `data`, and their TTL; `None`: there are none.
pub fn data<T>(
    name: &Name,
    kind: RecordType,
    result: Result<Lookup, NetError>,
    data: impl Fn(&RData) -> Option<T>,
) -> Result<Option<(Vec<T>, u32, Origin)>, String> {
    match result.map_err(|error| empty(&error)) {
        Ok(lookup) => {
            let owners = owners(name, kind, &lookup);
            let own = lookup.answers().iter().filter(|record| owners.contains(&record.name));
            let found: Vec<T> = own.filter_map(|record| data(&record.data)).collect();
            let origin = Origin::of(name, &lookup, &owners);
            Ok((!found.is_empty()).then(|| (found, ttl_s(&lookup), origin)))
        }
        Err(Empty::Failed(why)) => Err(why),
        Err(_) => Ok(None),
    }
}

/// The names of an address; `Err` if they cannot be determined now.
pub fn names(result: Result<Lookup, NetError>) -> Result<Vec<String>, String> {
    match result.map_err(|error| empty(&error)) {
        Ok(lookup) => Ok(lookup
            .answers()
            .iter()
            .filter_map(|r| if let RData::PTR(name) = &r.data { Some(text(name)) } else { None })
            .collect()),
        Err(Empty::Failed(why)) => Err(why),
        Err(_) => Ok(Vec::new()),
    }
}

/// Whether no name server answered, or all refused: then the servers are probably at fault, not the name.
pub fn is_unanswered(error: &NetError) -> bool {
    match error {
        NetError::Timeout | NetError::NoConnections | NetError::Io(_) => true,
        NetError::Dns(DnsError::ResponseCode(code)) => *code == ResponseCode::Refused,
        _ => false,
    }
}

/// Combines both families: one that works is enough, and if one failed, the other's "nothing" is not final.
pub fn both(v4: Result<Family, Empty>, v6: Result<Family, Empty>) -> (AddressAnswer, Origin) {
    let none = Vec::new;
    let answer = match (v4, v6) {
        (Ok(a), Ok(b)) => {
            let found = AddressAnswer::Found { v4: a.ips, v6: b.ips, ttl_s: a.ttl_s.min(b.ttl_s) };
            return (found, a.origin.and(&b.origin));
        }
        (Ok(a), Err(_)) => return (AddressAnswer::Found { v4: a.ips, v6: none(), ttl_s: a.ttl_s }, a.origin),
        (Err(_), Ok(b)) => return (AddressAnswer::Found { v4: none(), v6: b.ips, ttl_s: b.ttl_s }, b.origin),
        (Err(Empty::Failed(why)), _) | (_, Err(Empty::Failed(why))) => AddressAnswer::Failed(why),
        (Err(Empty::NoDomain), Err(Empty::NoDomain)) => AddressAnswer::NoDomain,
        _ => AddressAnswer::NoData,
    };
    (answer, Origin::default())
}

/// Whether a family's "nothing" is not authoritative.
pub fn is_unproven(answer: &Result<Family, Empty>) -> bool {
    matches!(answer, Err(Empty::Unproven))
}

/// The target of a CNAME record of exactly `name`, if the answer has one.
pub fn cname_target(name: &Name, result: Result<Lookup, NetError>) -> Option<Name> {
    let lookup = result.ok()?;
    lookup.answers().iter().find_map(|r| match &r.data {
        RData::CNAME(target) if r.name == *name => Some(target.0.clone()),
        _ => None,
    })
}

/// `name` and the names that the answer's CNAMEs lead to.
///
/// If the end of a chain was in hickory's cache, the answer lacks the CNAMEs that led there. Hickory followed them
/// itself, so the records belong to the end of the chain, which is the owner of the first one.
fn owners<'l>(name: &'l Name, kind: RecordType, lookup: &'l Lookup) -> CnameChain<'l> {
    let answers = lookup.answers();
    let owners = CnameChain::of(name, answers);
    let mut of_kind = answers.iter().filter(|r| r.record_type() == kind).map(|r| &r.name).peekable();
    match of_kind.peek().copied() {
        Some(first) if !of_kind.any(|owner| owners.contains(owner)) => CnameChain::of(first, &[]),
        _ => owners,
    }
}

fn empty(error: &NetError) -> Empty {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) => match none.response_code {
            ResponseCode::NXDomain => Empty::NoDomain,
            // A referral instead of an answer: that server knows nothing about the name (a lame delegation).
            ResponseCode::NoError if none.soa.is_none() && none.ns.is_some() => {
                Empty::Failed("the name server answered with a referral".to_owned())
            }
            ResponseCode::NoError if none.soa.is_none() => Empty::Unproven,
            ResponseCode::NoError => Empty::NoData,
            code => Empty::Failed(format!("the name server answered {code}")),
        },
        NetError::Dns(DnsError::ResponseCode(code)) => Empty::Failed(format!("the name server answered {code}")),
        NetError::Timeout => Empty::Failed("no answer from the name servers".to_owned()),
        other => Empty::Failed(other.to_string()),
    }
}

fn ttl_s(lookup: &Lookup) -> u32 {
    let left = lookup.valid_until().saturating_duration_since(Instant::now());
    u32::try_from(left.as_secs()).unwrap_or(u32::MAX)
}

/// The name in lower case without the final dot; unusual octets stay escaped, so host name checks reject them.
pub fn text(name: &Name) -> String {
    let mut text = name.to_ascii();
    text.make_ascii_lowercase();
    if text.ends_with('.') {
        text.pop();
    }
    text
}
