//! The DNS answers of the lab: a pure function of scenario, question and time.
//!
//! Promise: the answer is a recursive resolver's (it follows CNAME chains), except where the scenario asks for
//! misbehaviour. Explicit `[[record]]` entries come first, then hosts, then the domains of the sites.

use std::net::Ipv4Addr;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::rdata::{A, AAAA, CNAME, MX, PTR, SOA, TLSA, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};

use crate::scenario::{Dns, Host, Record as FileRecord, Scenario, Site};

/// Seconds that records and refusals may be cached.
const TTL_S: u32 = 60;
const NEGATIVE_TTL_S: u32 = 30;
/// Aliases before the records of `cname_chain`.
const CHAIN_LENGTH: u32 = 4;
const MANY_MX: u32 = 1000;
const CNAME_DEPTH_MAX: u32 = 10;
/// The kind of record that is none.
pub const FAIL: &str = "FAIL";

/// How the server sends (or does not send) what it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    Proper,
    Silent,
    /// By UDP only the truncation bit.
    Truncated,
    WrongId,
    Garbage,
}

#[derive(Debug)]
pub struct Answer {
    pub code: ResponseCode,
    pub records: Vec<Record>,
    pub soa: Option<Record>,
    pub manner: Manner,
    pub delay_ms: u32,
    /// A part of it is not signed.
    pub is_insecure: bool,
}

impl Answer {
    fn new(code: ResponseCode) -> Self {
        Self { code, records: Vec::new(), soa: None, manner: Manner::Proper, delay_ms: 0, is_insecure: false }
    }
}

/// Answers for `name` (lower case, no final dot).
pub fn answer(scenario: &Scenario, name: &str, kind: RecordType, now_us: u64) -> Answer {
    let mut answer = Answer::new(ResponseCode::NoError);
    look_up(scenario, name, kind, now_us, 0, &mut answer);
    if answer.records.is_empty() && matches!(answer.code, ResponseCode::NoError | ResponseCode::NXDomain) {
        answer.soa = soa(name);
    }
    answer
}

fn look_up(scenario: &Scenario, name: &str, kind: RecordType, now_us: u64, depth: u32, answer: &mut Answer) {
    if depth > CNAME_DEPTH_MAX {
        return;
    }
    if let Some(records) = scenario.records(name) {
        for record in records {
            if record.kind.eq_ignore_ascii_case(FAIL) {
                answer.code = ResponseCode::ServFail;
            }
            let Some(data) = parse_record(record) else { continue };
            let alias = if let RData::CNAME(target) = &data { Some(text(&target.0)) } else { None };
            if data.record_type() == kind || alias.is_some() {
                answer.is_insecure |= record.insecure;
                push(answer, name, data);
            }
            if let Some(target) = alias
                && kind != RecordType::CNAME
            {
                look_up(scenario, &target, kind, now_us, depth + 1, answer);
            }
        }
    } else if let Some(host) = scenario.host(name) {
        if kind == RecordType::A {
            push(answer, name, RData::A(A(host.address)));
        }
    } else if name == scenario.self_name {
        if kind == RecordType::A {
            push(answer, name, RData::A(A(scenario.self_address)));
        }
    } else if let Some(helper) = helper(name)
        && let Some(site) = scenario.site_of_domain(helper.domain)
    {
        let site = &scenario.sites()[site];
        helper_name(scenario, site, &helper, name, kind, answer);
    } else if let Some(site) = scenario.site_of_domain(name) {
        let site = &scenario.sites()[site];
        answer.delay_ms = site.dns_delay_ms;
        domain(scenario, site, name, kind, now_us, answer);
    } else {
        answer.code = ResponseCode::NXDomain;
    }
}

/// A name that a misbehaviour needs below a domain: `alias2.DOMAIN`, `loopback0.DOMAIN`.
struct HelperName<'n> {
    label: &'static str,
    number: u32,
    domain: &'n str,
}

fn helper(name: &str) -> Option<HelperName<'_>> {
    let (first, domain) = name.split_once('.')?;
    let number = |label| first.strip_prefix(label)?.parse().ok();
    ["alias", "loopback"].into_iter().find_map(|label| Some(HelperName { label, number: number(label)?, domain }))
}

fn helper_name(
    scenario: &Scenario,
    site: &Site,
    helper: &HelperName<'_>,
    name: &str,
    kind: RecordType,
    answer: &mut Answer,
) {
    match (helper.label, site.dns) {
        ("alias", Dns::CnameChain) => chain(site, helper.domain, helper.number, kind, answer),
        ("alias", Dns::CnameLoop) => loop_records(helper.domain, answer),
        ("loopback", Dns::LoopbackMx) if kind == RecordType::A => push(answer, name, RData::A(A(Ipv4Addr::LOCALHOST))),
        ("loopback", Dns::LoopbackMx) => {}
        _ if scenario.site_of_domain(name).is_some() => proper(site, name, kind, answer),
        _ => answer.code = ResponseCode::NXDomain,
    }
}

fn domain(scenario: &Scenario, site: &Site, name: &str, kind: RecordType, now_us: u64, answer: &mut Answer) {
    let window = site.dns_windows.iter().find(|(from, to, _)| (*from..*to).contains(&now_us));
    let is_mx = kind == RecordType::MX;
    match window.map_or(site.dns, |w| w.2) {
        Dns::Ok => proper(site, name, kind, answer),
        Dns::NoMx if kind == RecordType::A => push(answer, name, RData::A(A(site.hosts[0].address))),
        Dns::NullMx if is_mx => push(answer, name, RData::MX(MX::new(0, Name::root()))),
        Dns::Nxdomain => answer.code = ResponseCode::NXDomain,
        Dns::Servfail => answer.code = ResponseCode::ServFail,
        Dns::Refused => answer.code = ResponseCode::Refused,
        Dns::Timeout => answer.manner = Manner::Silent,
        Dns::CnameLoop => loop_records(name, answer),
        Dns::CnameChain => chain(site, name, 0, kind, answer),
        Dns::ManyMx if is_mx => {
            mx(answer, name, 5, &site.hosts[0].name);
            for n in 1..MANY_MX {
                mx(answer, name, 10, &format!("none{n}.{name}"));
            }
        }
        Dns::LoopbackMx if is_mx => mx(answer, name, 10, &format!("loopback0.{name}")),
        Dns::SelfMx if is_mx => mx(answer, name, 10, &scenario.self_name),
        Dns::MxNxdomain if is_mx => mx(answer, name, 10, "mx.does-not-exist.invalid"),
        Dns::MxIsAddress if is_mx => mx(answer, name, 10, &site.hosts[0].address.to_string()),
        Dns::Truncated => {
            answer.manner = Manner::Truncated;
            proper(site, name, kind, answer);
        }
        Dns::WrongName => proper(site, "somebody-else.example", kind, answer),
        Dns::WrongId => {
            answer.manner = Manner::WrongId;
            proper(site, name, kind, answer);
        }
        Dns::Garbage => answer.manner = Manner::Garbage,
        // The domain exists, but has nothing of this type.
        Dns::Empty
        | Dns::NoMx
        | Dns::NullMx
        | Dns::ManyMx
        | Dns::LoopbackMx
        | Dns::SelfMx
        | Dns::MxNxdomain
        | Dns::MxIsAddress => {}
    }
}

fn proper(site: &Site, name: &str, kind: RecordType, answer: &mut Answer) {
    match kind {
        RecordType::MX => site.hosts.iter().for_each(|Host { name: host, preference, .. }| {
            mx(answer, name, *preference, host);
        }),
        RecordType::TXT => push(answer, name, RData::TXT(TXT::new(vec![format!("lab site {}", site.name)]))),
        _ => {}
    }
}

fn chain(site: &Site, domain: &str, from: u32, kind: RecordType, answer: &mut Answer) {
    let link = |n: u32| if n == 0 { domain.to_owned() } else { format!("alias{n}.{domain}") };
    for n in from..CHAIN_LENGTH {
        alias(answer, &link(n), &link(n + 1));
    }
    proper(site, &link(CHAIN_LENGTH), kind, answer);
}

fn loop_records(domain: &str, answer: &mut Answer) {
    let other = format!("alias1.{domain}");
    alias(answer, domain, &other);
    alias(answer, &other, domain);
}

fn alias(answer: &mut Answer, name: &str, target: &str) {
    if let Some(target) = parse_name(target) {
        push(answer, name, RData::CNAME(CNAME(target)));
    }
}

fn mx(answer: &mut Answer, name: &str, preference: u16, host: &str) {
    if let Some(host) = parse_name(host) {
        push(answer, name, RData::MX(MX::new(preference, host)));
    }
}

fn push(answer: &mut Answer, name: &str, data: RData) {
    if let Some(name) = parse_name(name) {
        answer.records.push(Record::from_rdata(name, TTL_S, data));
    }
}

fn soa(name: &str) -> Option<Record> {
    let zone = name.rmatch_indices('.').nth(1).map_or(name, |(at, _)| &name[at + 1..]);
    let server = parse_name("ns.lab.invalid")?;
    let data = SOA::new(server.clone(), server, 1, 3600, 600, 86_400, NEGATIVE_TTL_S);
    Some(Record::from_rdata(parse_name(zone)?, NEGATIVE_TTL_S, RData::SOA(data)))
}

/// A fully qualified name; none if it is not one (overlong labels of a foreign domain).
fn parse_name(text: &str) -> Option<Name> {
    let mut name = Name::from_ascii(text).ok()?;
    name.set_fqdn(true);
    Some(name)
}

/// Lower case, without the final dot: the form that the scenario's maps have.
pub fn text(name: &Name) -> String {
    name.to_ascii().trim_end_matches('.').to_ascii_lowercase()
}

/// None if the value does not fit its type; checked when the server starts.
pub fn parse_record(record: &FileRecord) -> Option<RData> {
    let value = record.value.as_str();
    Some(match record.kind.to_ascii_uppercase().as_str() {
        "A" => RData::A(A(value.parse().ok()?)),
        "AAAA" => RData::AAAA(AAAA(value.parse().ok()?)),
        "CNAME" => RData::CNAME(CNAME(parse_name(value)?)),
        "PTR" => RData::PTR(PTR(parse_name(value)?)),
        "TXT" => {
            RData::TXT(TXT::new(value.as_bytes().chunks(255).map(|c| String::from_utf8_lossy(c).into()).collect()))
        }
        "TLSA" => {
            let fields: Vec<&str> = value.split_ascii_whitespace().collect();
            let [usage, selector, matching, data] = fields[..] else { return None };
            let number = |text: &str| text.parse::<u8>().ok();
            let octet = |at: usize| u8::from_str_radix(data.get(at..at + 2)?, 16).ok();
            let data = (0..data.len()).step_by(2).map(octet).collect::<Option<Vec<u8>>>()?;
            RData::TLSA(TLSA::new(number(usage)?.into(), number(selector)?.into(), number(matching)?.into(), data))
        }
        "MX" => {
            let (preference, host) = value.split_once(' ')?;
            RData::MX(MX::new(preference.parse().ok()?, parse_name(host.trim())?))
        }
        _ => return None,
    })
}
