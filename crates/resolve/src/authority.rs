//! TXT records as a zone's own name servers have them, past every cache: whether a change has reached all of them.
//!
//! Promise: each server of the zone is asked; only what it says as an authority counts (AA, RFC 1035 4.1.1). If none of
//! them can be asked (a firewall permits only our own resolvers), or a name is an alias into another zone, the
//! configured name servers are asked instead, directly: what they say may come from their caches, so an absence may be
//! old and a presence is known for one of the zone's servers only. It ends within [`SERVER_MS_MAX`] a server, all
//! servers in parallel, and makes a bounded number of queries.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::net::NetError;
use hickory_resolver::proto::op::{DnsResponse, Query, ResponseCode};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::servers::query;
use super::transport::exchange;
use super::{Resolver, answers, dns_name};

/// Port of the name servers of zones.
pub const ZONE_PORT: u16 = 53;
/// Time limit of all queries to one server.
const SERVER_MS_MAX: u64 = 20_000;
/// Timeout of one query, and how often it is made.
const QUERY: Duration = Duration::from_millis(2_500);
const TRIES: usize = 2;
/// Maximum name servers asked, and addresses of each.
const SERVERS_MAX: usize = 16;
const ADDRESSES_MAX: usize = 4;
/// Maximum names above the record's that may be the zone's.
const ZONE_STEPS_MAX: usize = 16;

/// A TXT record, its strings joined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublishedText {
    pub text: Vec<u8>,
    pub ttl_s: u32,
}

/// What one name server has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerAnswers {
    pub server: String,
    /// The TXT records of each name that was asked for, or why they are not known.
    pub texts: Vec<Result<Vec<PublishedText>, String>>,
}

/// What all name servers have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublishedTexts {
    pub servers: Vec<ServerAnswers>,
    /// How long caches keep the absence of a record (RFC 2308 5); `None`: no server has said so.
    pub negative_ttl_s: Option<u32>,
    /// Our own resolvers were asked.
    pub is_indirect: bool,
}

/// A name server, and how it is asked.
#[derive(Clone)]
struct AskedServer {
    label: String,
    addresses: Result<Vec<SocketAddr>, String>,
    /// It is one of the zone's.
    is_authority: bool,
}

/// Why a server's answer does not count.
enum NoTexts {
    /// The name is an alias, and its end may be in another zone.
    Alias,
    Failed(String),
}

/// A zone and the names of its servers.
struct Zone {
    name: Name,
    hosts: Vec<String>,
}

impl Resolver {
    /// Returns the TXT records of `names`, which are in one zone, at each of its name servers.
    ///
    /// # Errors
    /// The reason why there is no server to ask.
    pub async fn published_texts(&self, names: &[String]) -> Result<PublishedTexts, String> {
        let parsed: Option<Vec<Name>> = names.iter().map(|name| dns_name(name)).collect();
        let (Some(parsed), [first, ..]) = (parsed, names) else {
            return Err("no name that DNS can have".to_owned());
        };
        let zone = self.zone_of(&parsed[0]).await?;
        if let Some(zone) = &zone {
            let published = ask_all(self.authorities(&zone.hosts).await, &parsed, &zone.name).await;
            if let Some(servers) = published {
                return Ok(servers);
            }
        }
        let configured = self.name_servers().iter().take(SERVERS_MAX).map(|address| AskedServer {
            label: format!("name server {address}"),
            addresses: Ok(vec![*address]),
            is_authority: false,
        });
        let above = zone.map_or_else(|| parsed[0].base_name(), |zone| zone.name);
        let asked = ask_all(configured.collect(), &parsed, &above).await;
        asked.ok_or_else(|| format!("no name server can be asked about {first}"))
    }

    /// The nearest name above a record that has name servers; `None`: none has.
    async fn zone_of(&self, name: &Name) -> Result<Option<Zone>, String> {
        let (mut at, mut failure) = (name.base_name(), None);
        for _ in 0..ZONE_STEPS_MAX {
            // The servers of a top-level domain do not have the record.
            if at.num_labels() < 2 {
                break;
            }
            let found = answers::data(&at, RecordType::NS, self.uncounted(&at, RecordType::NS).await, |data| {
                let RData::NS(host) = data else { return None };
                Some(answers::text(&host.0))
            });
            match found {
                Ok(Some((hosts, _, origin))) if origin.canonical == answers::text(&at) => {
                    return Ok(Some(Zone { name: at, hosts }));
                }
                Ok(_) => {}
                Err(why) => {
                    failure.get_or_insert_with(|| format!("name servers of {}: {why}", answers::text(&at)));
                }
            }
            at = at.base_name();
        }
        failure.map_or(Ok(None), Err)
    }

    /// The servers of a zone with their addresses.
    async fn authorities(&self, hosts: &[String]) -> Vec<AskedServer> {
        let mut tasks = JoinSet::new();
        for host in hosts.iter().take(SERVERS_MAX).cloned() {
            let resolver = self.clone();
            tasks.spawn(async move {
                let port = resolver.0.config.zone_port;
                let usable = |ip: &IpAddr| resolver.0.config.loopback_allowed || !ip.to_canonical().is_loopback();
                let found = resolver.ips(&host).await;
                let addresses = found.map(|ips| {
                    let usable = ips.into_iter().filter(usable).take(ADDRESSES_MAX);
                    usable.map(|ip| SocketAddr::new(ip, port)).collect()
                });
                AskedServer { label: host, addresses, is_authority: true }
            });
        }
        let mut servers = tasks.join_all().await;
        servers.sort_by(|a, b| a.label.cmp(&b.label));
        servers
    }
}

/// Asks all servers in parallel. `None`: an alias leads out of the zone, or none of its servers answers at all.
async fn ask_all(servers: Vec<AskedServer>, names: &[Name], zone: &Name) -> Option<PublishedTexts> {
    let is_indirect = servers.first().is_none_or(|server| !server.is_authority);
    let mut tasks = JoinSet::new();
    for server in servers {
        let (names, zone) = (names.to_vec(), zone.clone());
        tasks.spawn(async move { ask_server(&server, &names, &zone).await });
    }
    let (mut published, mut has_answer) =
        (PublishedTexts { servers: Vec::new(), negative_ttl_s: None, is_indirect }, false);
    for report in tasks.join_all().await {
        let mut texts = Vec::with_capacity(names.len());
        for answer in report.texts {
            has_answer |= answer.is_ok();
            match answer {
                Ok(found) => texts.push(Ok(found)),
                Err(NoTexts::Failed(why)) => texts.push(Err(why)),
                Err(NoTexts::Alias) => return None,
            }
        }
        published.negative_ttl_s = published.negative_ttl_s.max(report.negative_ttl_s);
        published.servers.push(ServerAnswers { server: report.label, texts });
    }
    published.servers.sort_by(|a, b| a.server.cmp(&b.server));
    let is_of_use = !published.servers.is_empty() && (has_answer || is_indirect);
    is_of_use.then_some(published)
}

/// The answers of one server.
struct ServerReport {
    label: String,
    texts: Vec<Result<Vec<PublishedText>, NoTexts>>,
    negative_ttl_s: Option<u32>,
}

async fn ask_server(server: &AskedServer, names: &[Name], zone: &Name) -> ServerReport {
    let limit = Duration::from_millis(SERVER_MS_MAX);
    let asked = timeout(limit, async {
        let mut texts = Vec::with_capacity(names.len());
        for name in names {
            texts.push(texts_at(server, name).await);
        }
        (texts, negative_ttl_s(server, zone).await)
    });
    let (texts, negative_ttl_s) = asked.await.unwrap_or_else(|_| {
        let late = || Err(NoTexts::Failed(format!("no answer within {} s", SERVER_MS_MAX / 1_000)));
        (names.iter().map(|_| late()).collect(), None)
    });
    ServerReport { label: server.label.clone(), texts, negative_ttl_s }
}

async fn texts_at(server: &AskedServer, name: &Name) -> Result<Vec<PublishedText>, NoTexts> {
    let reply = ask(server, name, RecordType::TXT).await.map_err(NoTexts::Failed)?;
    let is_alias = reply.answers.iter().any(|record| record.record_type() == RecordType::CNAME);
    // A resolver follows aliases itself.
    if is_alias && server.is_authority {
        return Err(NoTexts::Alias);
    }
    let text = |record: &Record| {
        let RData::TXT(text) = &record.data else { return None };
        let is_ours = is_alias || record.name == *name;
        is_ours.then(|| PublishedText { text: text.txt_data.concat(), ttl_s: record.ttl })
    };
    Ok(reply.answers.iter().filter_map(text).collect())
}

/// How long caches keep an absence in this zone: the least of the SOA's TTL and its last field.
async fn negative_ttl_s(server: &AskedServer, zone: &Name) -> Option<u32> {
    let reply = ask(server, zone, RecordType::SOA).await.ok()?;
    reply.answers.iter().chain(&reply.authorities).find_map(|record| {
        let RData::SOA(soa) = &record.data else { return None };
        // A resolver's TTL has become smaller with its answer's age.
        Some(if server.is_authority { soa.minimum.min(record.ttl) } else { soa.minimum })
    })
}

/// Asks the addresses of a server in turn until one replies.
async fn ask(server: &AskedServer, name: &Name, kind: RecordType) -> Result<DnsResponse, String> {
    let addresses = server.addresses.as_ref().map_err(|why| format!("its addresses: {why}"))?;
    let mut question = query(&Query::query(name.clone(), kind));
    question.metadata.recursion_desired = !server.is_authority;
    let mut why = "it has no usable address".to_owned();
    for _ in 0..TRIES {
        for address in addresses {
            match timeout(QUERY, exchange(*address, &question)).await.unwrap_or(Err(NetError::Timeout)) {
                Err(error) => why = error.to_string(),
                Ok(reply) => return checked(reply, server.is_authority),
            }
        }
    }
    Err(why)
}

fn checked(reply: DnsResponse, is_authority: bool) -> Result<DnsResponse, String> {
    match reply.metadata.response_code {
        ResponseCode::NoError | ResponseCode::NXDomain if !is_authority || reply.metadata.authoritative => Ok(reply),
        ResponseCode::NoError | ResponseCode::NXDomain => Err("it is not an authority for the zone".to_owned()),
        code => Err(format!("it answers {code}")),
    }
}
