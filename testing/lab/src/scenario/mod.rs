//! Scenarios: the sites of the simulated Internet, their behaviour, and where subscribers are. File plus seed determine
//! everything.
//!
//! Promise: the same file and seed give the same sites, addresses, subscribers and fates, on every machine. Generated
//! and explicit sites form one list; a site's number is its index. Host addresses are assigned from 127.16.0.1 on,
//! unless given.

mod file;
mod generate;
mod people;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

pub use file::{Dns, Record};

use hashbrown::{HashMap, HashSet};
use toml::Table;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::behaviour::{Behaviour, Fate, Window};
use crate::error::LabError;
use file::{File, lay};

pub(crate) const US_PER_S: f64 = 1e6;
/// More sites than this are refused.
pub const SITES_MAX: usize = 100_000;
/// More listening addresses than this are refused.
pub const HOSTS_MAX: usize = 10_000;

/// One destination.
#[derive(Debug, Clone)]
pub struct Site {
    pub name: String,
    /// Lower case.
    pub domains: Vec<String>,
    pub hosts: Vec<Host>,
    pub weight: f64,
    /// Its hosts take mail for every domain.
    pub relay: bool,
    pub dns: Dns,
    pub dns_delay_ms: u32,
    pub(crate) dns_windows: Vec<(u64, u64, Dns)>,
    /// Of the decisions about this site's recipients.
    pub seed: u64,
}

#[derive(Debug, Clone)]
pub struct Host {
    pub name: String,
    pub address: Ipv4Addr,
    pub preference: u16,
    pub behaviour: Arc<Behaviour>,
    pub(crate) windows: Vec<Window>,
}

/// A checked scenario.
#[derive(Debug, Clone)]
pub struct Scenario {
    pub seed: u64,
    pub smtp_port: u16,
    pub dns_port: u16,
    pub foreign_domains: bool,
    pub dns_validates: bool,
    pub self_name: String,
    pub self_address: Ipv4Addr,
    sites: Vec<Site>,
    by_domain: HashMap<String, u32>,
    by_host: HashMap<String, (u32, u32)>,
    records: BTreeMap<String, Vec<Record>>,
}

/// Where a user's own address ends up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapped {
    /// The address as given; its domain is served by the lab's DNS.
    pub address: String,
    /// The site's number.
    pub site: usize,
}

impl Scenario {
    /// Reads and checks a scenario file.
    pub fn load(path: &Path) -> Result<Self, LabError> {
        let text = std::fs::read_to_string(path).map_err(|source| LabError::Read { path: path.to_owned(), source })?;
        Self::parse(&text).map_err(|error| match error {
            LabError::Scenario(text) => LabError::Scenario(format!("{}: {text}", path.display())),
            other => other,
        })
    }

    /// Checks a scenario given as TOML.
    pub fn parse(text: &str) -> Result<Self, LabError> {
        let file: File = toml::from_str(text).map_err(|e| LabError::Scenario(e.to_string()))?;
        Self::build(file).map_err(LabError::Scenario)
    }

    fn build(file: File) -> Result<Self, String> {
        let mut allocator =
            Allocator { taken: file.site.iter().flat_map(|s| &s.host).filter_map(|h| h.address).collect(), next: 0 };
        let mut sites = Vec::new();
        let generated = file.generate.iter().map(|g| g.sites as usize).sum::<usize>();
        if file.site.len() + generated > SITES_MAX {
            return Err(format!("more than {SITES_MAX} sites"));
        }
        for (group, generate) in file.generate.iter().enumerate() {
            for site in generate::sites(generate, file.seed.wrapping_add(group as u64))? {
                let no = sites.len();
                sites.push(check_site(site, no, &file, &mut allocator)?);
            }
        }
        for raw in &file.site {
            let no = sites.len();
            sites.push(check_site(raw.clone(), no, &file, &mut allocator)?);
        }
        let hosts: usize = sites.iter().map(|s| s.hosts.len()).sum();
        if hosts > HOSTS_MAX {
            return Err(format!("{hosts} hosts, more than {HOSTS_MAX}"));
        }
        let (by_domain, by_host) = index(&sites)?;
        Ok(Self {
            seed: file.seed,
            smtp_port: file.smtp_port,
            dns_port: file.dns_port,
            foreign_domains: file.foreign_domains,
            dns_validates: file.dns_validates,
            self_name: file.self_name.unwrap_or_else(|| "localhost.lab".to_owned()).to_ascii_lowercase(),
            self_address: file.self_address.unwrap_or(Ipv4Addr::LOCALHOST),
            sites,
            by_domain,
            by_host,
            records: file::records_by_name(file.record),
        })
    }

    pub fn sites(&self) -> &[Site] {
        &self.sites
    }

    pub(crate) fn records(&self, name: &str) -> Option<&Vec<Record>> {
        self.records.get(name)
    }

    pub(crate) fn all_records(&self) -> impl Iterator<Item = &Record> {
        self.records.values().flatten()
    }

    /// Site and host number of an MX host's name (lower case).
    pub(crate) fn host(&self, name: &str) -> Option<&Host> {
        self.by_host.get(name).map(|&(site, host)| &self.sites[site as usize].hosts[host as usize])
    }

    /// The number of the site that serves the domain; foreign domains only if the scenario says so.
    pub fn site_of_domain(&self, domain: &str) -> Option<usize> {
        let domain = domain.trim_end_matches('.');
        let lowered;
        let domain = if domain.bytes().any(|b| b.is_ascii_uppercase()) {
            lowered = domain.to_ascii_lowercase();
            lowered.as_str()
        } else {
            domain
        };
        if let Some(&site) = self.by_domain.get(domain) {
            return Some(site as usize);
        }
        self.foreign_domains.then(|| self.foreign_site(domain)).flatten()
    }

    fn foreign_site(&self, domain: &str) -> Option<usize> {
        let foreign = domain.contains('.') && domain.rsplit('.').next() != Some("arpa") && self.host(domain).is_none();
        if !foreign || self.sites.is_empty() {
            return None;
        }
        Some((xxh3_64_with_seed(domain.as_bytes(), self.seed) % self.sites.len() as u64) as usize)
    }

    /// A user's own address within the lab. None if it is no address or, without `foreign_domains`, nobody serves it.
    pub fn map_address(&self, address: &str) -> Option<Mapped> {
        let (local, domain) = address.rsplit_once('@')?;
        if local.is_empty() {
            return None;
        }
        self.site_of_domain(domain).map(|site| Mapped { address: address.to_owned(), site })
    }

    /// `n` different subscribers, spread over the sites by weight, in shuffled order.
    pub fn subscribers(&self, n: usize) -> Vec<String> {
        people::subscribers(&self.sites, self.seed, n)
    }

    /// What becomes of mail to this address if the client is patient (windows of time are expected to pass): a host
    /// that refuses decides, else one host that takes it suffices.
    pub fn fate(&self, address: &str) -> Fate {
        let Some(site) = address.rsplit_once('@').and_then(|(_, domain)| self.site_of_domain(domain)) else {
            return Fate::Refused;
        };
        let site = &self.sites[site];
        match site.dns {
            Dns::NullMx | Dns::Nxdomain | Dns::Empty | Dns::MxNxdomain => return Fate::Refused,
            dns if !dns.leads_to_hosts() => return Fate::Silent,
            _ => {}
        }
        let hosts = if matches!(site.dns, Dns::NoMx | Dns::ManyMx) { &site.hosts[..1] } else { &site.hosts[..] };
        let fates = hosts.iter().map(|host| host.behaviour.recipient_fate(site.seed, address));
        let all: Vec<Fate> = fates.collect();
        for fate in [Fate::Refused, Fate::Delivered, Fate::Deferred] {
            if all.contains(&fate) {
                return fate;
            }
        }
        Fate::Silent
    }

    /// Whether the address must get a copy.
    pub fn is_reachable(&self, address: &str) -> bool {
        self.fate(address) == Fate::Delivered
    }
}

struct Allocator {
    taken: HashSet<Ipv4Addr>,
    next: u32,
}

impl Allocator {
    /// The next free address, 250 to each 127.x.y block.
    fn next(&mut self) -> Ipv4Addr {
        loop {
            let n = self.next;
            self.next += 1;
            let address = Ipv4Addr::new(127, 16 + (n / 62_500) as u8, (n / 250 % 250) as u8, (n % 250 + 1) as u8);
            if self.taken.insert(address) {
                return address;
            }
        }
    }
}

fn behaviour(table: Table, site: &str) -> Result<Arc<Behaviour>, String> {
    let behaviour: Behaviour = table.try_into().map_err(|e| format!("site {site}: behaviour: {e}"))?;
    behaviour.check().map_err(|e| format!("site {site}: behaviour: {e}"))?;
    Ok(Arc::new(behaviour))
}

fn check_site(raw: file::Site, no: usize, file: &File, allocator: &mut Allocator) -> Result<Site, String> {
    let name = raw.name.to_ascii_lowercase();
    if !(raw.weight >= 0.0 && raw.weight.is_finite()) {
        return Err(format!("site {name}: weight = {} is not a share", raw.weight));
    }
    let base = lay(&file.behaviour, &raw.behaviour);
    let mut dns_windows = Vec::new();
    for window in &raw.window {
        if !(window.from_s >= 0.0 && window.from_s < window.to_s && window.to_s < 1e9) {
            return Err(format!("site {name}: window from_s = {} to_s = {} is empty", window.from_s, window.to_s));
        }
        if let Some(dns) = window.dns {
            dns_windows.push(((window.from_s * US_PER_S) as u64, (window.to_s * US_PER_S) as u64, dns));
        }
    }
    let count = if raw.host.is_empty() { raw.hosts.max(1) as usize } else { raw.host.len() };
    let mut hosts = Vec::with_capacity(count);
    for host in 0..count {
        let given = raw.host.get(host);
        let own = given.map_or_else(|| base.clone(), |h| lay(&base, &h.behaviour));
        let windows = raw.window.iter().filter(|w| !w.behaviour.is_empty()).map(|w| {
            Ok::<_, String>(Window {
                from_us: (w.from_s * US_PER_S) as u64,
                to_us: (w.to_s * US_PER_S) as u64,
                behaviour: behaviour(lay(&own, &w.behaviour), &name)?,
            })
        });
        let windows = windows.collect::<Result<_, _>>()?;
        let address = match given.and_then(|h| h.address) {
            Some(address) if !address.is_loopback() => {
                return Err(format!("site {name}: {address} is not within 127.0.0.0/8"));
            }
            Some(address) => address,
            None => allocator.next(),
        };
        hosts.push(Host {
            name: given
                .and_then(|h| h.name.clone())
                .unwrap_or_else(|| format!("mx{}.{name}", host + 1))
                .to_ascii_lowercase(),
            address,
            preference: given.map_or(10, |h| h.preference),
            behaviour: behaviour(own, &name)?,
            windows,
        });
    }
    let domains = if raw.domains.is_empty() { vec![name.clone()] } else { raw.domains };
    Ok(Site {
        seed: xxh3_64_with_seed(name.as_bytes(), file.seed.wrapping_add(no as u64)),
        domains: domains.iter().map(|d| d.trim_end_matches('.').to_ascii_lowercase()).collect(),
        name,
        hosts,
        weight: raw.weight,
        relay: raw.relay,
        dns: raw.dns,
        dns_delay_ms: raw.dns_delay_ms,
        dns_windows,
    })
}

type Indices = (HashMap<String, u32>, HashMap<String, (u32, u32)>);

fn index(sites: &[Site]) -> Result<Indices, String> {
    let (mut by_domain, mut by_host, mut addresses) = (HashMap::new(), HashMap::new(), HashSet::new());
    for (no, site) in sites.iter().enumerate() {
        for domain in &site.domains {
            if domain.is_empty() || by_domain.insert(domain.clone(), no as u32).is_some() {
                return Err(format!("site {}: the domain {domain:?} is empty or of two sites", site.name));
            }
        }
        for (host_no, host) in site.hosts.iter().enumerate() {
            if by_host.insert(host.name.clone(), (no as u32, host_no as u32)).is_some() {
                return Err(format!("site {}: there are two hosts {}", site.name, host.name));
            }
            if !addresses.insert(host.address) {
                return Err(format!("site {}: the address {} is used twice", site.name, host.address));
            }
        }
    }
    Ok((by_domain, by_host))
}

#[cfg(test)]
mod tests;
