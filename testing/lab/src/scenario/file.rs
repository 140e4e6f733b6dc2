//! The scenario file as TOML gives it, before anything is computed. Unknown keys are refused.
//!
//! Behaviours stay tables here, since they are layered (site, then host, then window) before they become a
//! [`crate::behaviour::Behaviour`].

use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Table;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct File {
    pub seed: u64,
    /// The sinks' common port; 0 = any free one.
    pub smtp_port: u16,
    /// The DNS server's port on 127.0.0.1; 0 = any free one.
    pub dns_port: u16,
    /// Domains that are not the scenario's are served too, each by a site chosen by hash.
    pub foreign_domains: bool,
    /// The DNS says of its answers that they are authentic (AD), to those who ask, as a resolver that validates does.
    pub dns_validates: bool,
    /// The mail server under test: the target of `dns = "self_mx"`.
    pub self_name: Option<String>,
    pub self_address: Option<std::net::Ipv4Addr>,
    /// Laid under every site's behaviour.
    pub behaviour: Table,
    pub site: Vec<Site>,
    pub generate: Vec<Generate>,
    pub record: Vec<Record>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Site {
    pub name: String,
    /// Defaults to `name` alone.
    #[serde(default)]
    pub domains: Vec<String>,
    #[serde(default)]
    pub host: Vec<Host>,
    /// Without `host` entries: this many, named mx1.NAME and so on.
    #[serde(default = "one")]
    pub hosts: u32,
    /// Share of the subscribers, relative to the other sites.
    #[serde(default = "one_weight")]
    pub weight: f64,
    #[serde(default)]
    pub behaviour: Table,
    /// Its hosts take mail for every domain, as a smart host does.
    #[serde(default)]
    pub relay: bool,
    #[serde(default)]
    pub dns: Dns,
    #[serde(default)]
    pub dns_delay_ms: u32,
    #[serde(default)]
    pub window: Vec<WindowFile>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    pub name: Option<String>,
    pub address: Option<std::net::Ipv4Addr>,
    #[serde(default = "ten")]
    pub preference: u16,
    #[serde(default)]
    pub behaviour: Table,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowFile {
    pub from_s: f64,
    pub to_s: f64,
    #[serde(default)]
    pub behaviour: Table,
    pub dns: Option<Dns>,
}

/// Many sites at once, the first the biggest.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generate {
    pub sites: u32,
    /// Domains are NAME-0001.example and so on.
    #[serde(default = "generated_name")]
    pub name: String,
    /// Weight of the k-th site: k to the power of minus this.
    #[serde(default = "one_weight")]
    pub zipf: f64,
    /// All sites together weigh this much against explicit ones.
    #[serde(default = "hundred")]
    pub weight: f64,
    /// Round-trip time, log-uniform between the two.
    #[serde(default)]
    pub rtt_ms: [u32; 2],
    /// Hosts per site, uniform between the two.
    #[serde(default = "one_host")]
    pub hosts: [u32; 2],
    #[serde(default = "one")]
    pub domains_per_site: u32,
    #[serde(default)]
    pub behaviour: Table,
    /// Share of the sites that has one of `faults`; never the greatest twentieth, so that no fault takes half the list.
    #[serde(default)]
    pub faulty_share: f64,
    #[serde(default)]
    pub faults: Vec<Fault>,
    /// Further kinds of sites that still deliver (slow, greylisting, without an extension ...).
    #[serde(default)]
    pub odd_share: f64,
    #[serde(default)]
    pub odds: Vec<Fault>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    #[serde(default)]
    pub behaviour: Table,
    #[serde(default)]
    pub dns: Dns,
}

/// A DNS record beside those of the sites. It takes precedence over them.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    pub name: String,
    /// MX (`10 host`), A, AAAA, CNAME, TXT, TLSA (`3 1 1 HEX`), or FAIL: SERVFAIL to any question.
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub value: String,
    /// Its zone is not signed.
    #[serde(default)]
    pub insecure: bool,
}

/// How the DNS answers for a site's domains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dns {
    /// MX records for the hosts, A records for their names.
    #[default]
    Ok,
    /// No MX; the domain's own A record leads to the first host (RFC 5321 5.1).
    NoMx,
    /// "MX 0 ." (RFC 7505).
    NullMx,
    Nxdomain,
    /// NOERROR without any record.
    Empty,
    Servfail,
    Refused,
    /// No answer at all.
    Timeout,
    /// The domain is an alias of itself by way of another name.
    CnameLoop,
    /// The domain is an alias, over four names, of one that has the MX records.
    CnameChain,
    /// 1,000 MX records, of which only the most preferred leads to the site's first host; the names of the others do
    /// not exist.
    ManyMx,
    /// The MX points to 127.0.0.1.
    LoopbackMx,
    /// The MX points to the server under test (`self_name`, `self_address`).
    SelfMx,
    /// The MX names do not exist.
    MxNxdomain,
    /// The MX name is an address literal, as mistaken zones have it.
    MxIsAddress,
    /// Answers by UDP are truncated and empty; TCP has them.
    Truncated,
    /// The records are of another name than asked for.
    WrongName,
    /// The answer has another id.
    WrongId,
    /// Octets that are no DNS message.
    Garbage,
}

impl Dns {
    /// Whether a client that asks long enough finds the site's hosts.
    pub fn leads_to_hosts(self) -> bool {
        matches!(self, Self::Ok | Self::NoMx | Self::CnameChain | Self::ManyMx | Self::Truncated)
    }
}

fn one() -> u32 {
    1
}
fn ten() -> u16 {
    10
}
fn one_weight() -> f64 {
    1.0
}
fn hundred() -> f64 {
    100.0
}
fn one_host() -> [u32; 2] {
    [1, 1]
}
fn generated_name() -> String {
    "site".to_owned()
}

/// Lays `over` onto `under`.
pub fn lay(under: &Table, over: &Table) -> Table {
    let mut table = under.clone();
    table.extend(over.iter().map(|(k, v)| (k.clone(), v.clone())));
    table
}

/// Explicit records by lower-case name without the final dot.
pub fn records_by_name(records: Vec<Record>) -> BTreeMap<String, Vec<Record>> {
    let mut map: BTreeMap<String, Vec<Record>> = BTreeMap::new();
    for record in records {
        map.entry(record.name.trim_end_matches('.').to_ascii_lowercase()).or_default().push(record);
    }
    map
}
