//! Tests of the resolver with a small name server on loopback, which can lie, fail and be silent.

mod asker;
mod authority;
mod message_auth;
mod published;
mod select;
mod servers;
mod untold;
mod validators;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hickory_proto::op::{Message, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, MX, SOA};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use stentor_policy::RouteHost;
use stentor_queue::site::{Enhanced, Resolution, SitePlan};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};

use super::{Resolver, ResolverConfig};

/// The server's reaction to a query.
#[derive(Clone)]
enum Zone {
    Records(Vec<RData>),
    /// Records, authenticated for clients that request it.
    Signed(Vec<RData>),
    /// An alias and the records at its end, in one answer, and whether all of it is authentic.
    Alias(&'static str, Vec<RData>, bool),
    Code(ResponseCode),
    Silent,
    /// No records of the queried name, but of others.
    WrongName(Vec<RData>),
    /// As `WrongName` for MX; a proper "no data" for addresses.
    WrongMx(Vec<RData>),
}

type Zones = Arc<HashMap<String, Zone>>;

fn name(text: &str) -> Name {
    Name::from_ascii(format!("{text}.")).unwrap()
}

fn mx(preference: u16, host: &str) -> RData {
    RData::MX(MX::new(preference, if host.is_empty() { Name::root() } else { name(host) }))
}

fn ip(text: &str) -> RData {
    match text.parse().unwrap() {
        IpAddr::V4(v4) => RData::A(A(v4)),
        IpAddr::V6(v6) => RData::AAAA(AAAA(v6)),
    }
}

fn soa() -> Record {
    let soa = SOA::new(name("ns.x"), name("h.x"), 1, 60, 60, 60, 60);
    Record::from_rdata(name("x"), 60, RData::SOA(soa))
}

/// Whether the client requests authentication (RFC 6840 5.8), as a validating server checks it.
fn asks_for_truth(request: &Message) -> bool {
    request.metadata.authentic_data && request.edns.as_ref().is_some_and(|edns| edns.flags().dnssec_ok)
}

fn answer(zones: &Zones, request: &[u8], over_udp: bool) -> Option<Vec<u8>> {
    let request = Message::from_vec(request).ok()?;
    let question = request.queries.first()?.clone();
    let mut reply = Message::response(request.metadata.id, OpCode::Query);
    reply.metadata.recursion_available = true;
    reply.add_query(question.clone());
    let owner = question.name().to_lowercase();
    let key = owner.to_ascii();
    match zones.get(key.trim_end_matches('.')) {
        None => {
            reply.metadata.response_code = ResponseCode::NXDomain;
            reply.add_authority(soa());
        }
        Some(Zone::Silent) => return None,
        Some(Zone::Code(code)) => reply.metadata.response_code = *code,
        Some(Zone::WrongMx(_)) if question.query_type() != RecordType::MX => drop(reply.add_authority(soa())),
        Some(Zone::WrongName(records) | Zone::WrongMx(records)) => {
            for data in records {
                reply.add_answer(Record::from_rdata(name("wrong.x"), 300, data.clone()));
            }
        }
        Some(Zone::Alias(target, records, is_signed)) => {
            let target = name(target);
            let alias = RData::CNAME(CNAME(target.clone()));
            reply.add_answer(Record::from_rdata(question.name().clone(), 300, alias));
            let asked = |data: &&RData| data.record_type() == question.query_type();
            for data in records.iter().filter(asked) {
                reply.add_answer(Record::from_rdata(target.clone(), 300, data.clone()));
            }
            reply.metadata.authentic_data = *is_signed && asks_for_truth(&request);
        }
        Some(zone @ (Zone::Records(records) | Zone::Signed(records))) => {
            reply.metadata.authentic_data = matches!(zone, Zone::Signed(_)) && asks_for_truth(&request);
            for data in records {
                let kind = data.record_type();
                if kind == question.query_type() || kind == RecordType::CNAME {
                    reply.add_answer(Record::from_rdata(question.name().clone(), 300, data.clone()));
                }
            }
            if reply.answers.is_empty() {
                reply.add_authority(soa());
            }
        }
    }
    let bytes = reply.to_vec().ok()?;
    if over_udp && bytes.len() > 1232 { reply.truncate().to_vec().ok() } else { Some(bytes) }
}

/// Serves UDP and TCP on one port until the runtime ends.
async fn serve(zones: HashMap<String, Zone>) -> (SocketAddr, Arc<AtomicU64>) {
    let zones: Zones = Arc::new(zones);
    let questions = Arc::new(AtomicU64::new(0));
    let (udp, tcp) = loop {
        let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()).await {
            break (udp, tcp);
        }
    };
    let addr = udp.local_addr().unwrap();
    let (z, q) = (zones.clone(), questions.clone());
    tokio::spawn(async move {
        let mut buf = vec![0; 65_536];
        while let Ok((n, peer)) = udp.recv_from(&mut buf).await {
            q.fetch_add(1, Ordering::Relaxed);
            if let Some(reply) = answer(&z, &buf[..n], true) {
                let _ = udp.send_to(&reply, peer).await;
            }
        }
    });
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = tcp.accept().await {
            let zones = zones.clone();
            tokio::spawn(async move {
                while let Ok(n) = stream.read_u16().await {
                    let mut buf = vec![0; n.into()];
                    let _ = stream.read_exact(&mut buf).await;
                    if let Some(reply) = answer(&zones, &buf, false) {
                        let _ = stream.write_u16(reply.len() as u16).await;
                        let _ = stream.write_all(&reply).await;
                    }
                }
            });
        }
    });
    (addr, questions)
}

fn config(server: SocketAddr) -> ResolverConfig {
    ResolverConfig {
        name_servers: vec![server],
        port: 2525,
        hostname: "Us.Example.".to_owned(),
        listeners: vec!["127.0.0.1:2525".parse().unwrap(), "192.0.2.1:25".parse().unwrap()],
        loopback_allowed: true,
        timeout_ms: 200,
        retries: 0,
        ..ResolverConfig::default()
    }
}

async fn resolver(zones: Vec<(&str, Zone)>) -> Resolver {
    let zones = zones.into_iter().map(|(n, z)| (n.to_owned(), z)).collect();
    Resolver::new(config(serve(zones).await.0)).unwrap()
}

fn records(data: Vec<RData>) -> Zone {
    Zone::Records(data)
}

fn plan(resolution: Resolution) -> SitePlan {
    match resolution {
        Resolution::Site(plan) => plan,
        other => panic!("no site: {other:?}"),
    }
}

fn addrs(plan: &SitePlan) -> Vec<(u16, String)> {
    plan.targets.iter().map(|t| (t.preference, t.addr.to_string())).collect()
}

#[tokio::test]
async fn mx_by_preference_with_both_families() {
    let r = resolver(vec![
        ("d.x", records(vec![mx(20, "b.x"), mx(10, "A.x"), mx(30, "gone.x"), mx(40, "bad.x")])),
        ("a.x", records(vec![ip("127.0.0.2"), ip("2001:db8::2")])),
        ("b.x", records(vec![ip("127.0.0.3")])),
        ("bad.x", Zone::Code(ResponseCode::ServFail)),
    ])
    .await;
    let plan = plan(r.resolve("D.x").await);
    assert_eq!(&*plan.key, "a.x,b.x,bad.x,gone.x");
    let expected = [(10, "127.0.0.2:2525"), (10, "[2001:db8::2]:2525"), (20, "127.0.0.3:2525")];
    assert_eq!(addrs(&plan), expected.map(|(p, a)| (p, a.to_owned())));
    assert!((1..=300).contains(&plan.ttl_s), "{}", plan.ttl_s);
    let counters = r.counters();
    assert_eq!((counters.resolutions, counters.queries), (1, 9));
    assert!(counters.failures >= 1);
}

#[tokio::test]
async fn one_family_alone_is_asked_for_where_the_other_leads_nowhere() {
    let zones = || {
        let both = records(vec![ip("127.0.0.2"), ip("2001:db8::2")]);
        HashMap::from([
            ("d.x".to_owned(), records(vec![mx(10, "a.x"), mx(20, "b.x")])),
            ("a.x".to_owned(), both),
            ("b.x".to_owned(), records(vec![ip("2001:db8::3")])),
            ("six.x".to_owned(), records(vec![ip("2001:db8::3")])),
            ("four.x".to_owned(), records(vec![ip("127.0.0.2")])),
        ])
    };
    for (ipv4, ipv6, wanted) in
        [(true, false, vec!["127.0.0.2:2525"]), (false, true, vec!["[2001:db8::2]:2525", "[2001:db8::3]:2525"])]
    {
        let (server, _) = serve(zones()).await;
        let r = Resolver::new(ResolverConfig { ipv4, ipv6, ..config(server) }).unwrap();
        let other = if ipv4 { "six.x" } else { "four.x" };
        match r.resolve(other).await {
            Resolution::Temporary { dsn, text, .. } => {
                assert!(dsn.to_string() == "4.4.4" && text.contains("inet_protocols"), "{text}");
            }
            resolved => panic!("{resolved:?}"),
        }
        let plan = plan(r.resolve("d.x").await);
        assert_eq!(plan.targets.iter().map(|target| target.addr.to_string()).collect::<Vec<_>>(), wanted);
    }
}

#[tokio::test]
async fn every_kind_of_answer_has_its_code() {
    let r = resolver(vec![
        ("null.x", records(vec![mx(0, "")])),
        ("empty.x", records(vec![])),
        ("servfail.x", Zone::Code(ResponseCode::ServFail)),
        ("refused.x", Zone::Code(ResponseCode::Refused)),
        ("strange.x", Zone::Code(ResponseCode::Unknown(11))),
        ("silent.x", Zone::Silent),
        ("self.x", records(vec![mx(10, "us.example"), mx(20, "b.x")])),
        ("selfaddr.x", records(vec![mx(10, "alias.x"), mx(20, "b.x")])),
        ("alias.x", records(vec![ip("127.0.0.1")])),
        ("b.x", records(vec![ip("127.0.0.3")])),
        ("loop.x", records(vec![RData::CNAME(CNAME(name("loop2.x")))])),
        ("loop2.x", records(vec![RData::CNAME(CNAME(name("loop.x")))])),
        ("dangling.x", records(vec![RData::CNAME(CNAME(name("nowhere.x")))])),
        ("nohost.x", records(vec![mx(10, "empty.x"), mx(20, "nowhere.x")])),
        ("slowhost.x", records(vec![mx(10, "nowhere.x"), mx(20, "silent.x")])),
        ("wrongmx.y", Zone::WrongMx(vec![mx(10, "b.x")])),
        ("wronghost.x", records(vec![mx(10, "wrong.y")])),
        ("wrong.y", Zone::WrongName(vec![mx(10, "b.x"), ip("127.0.0.9")])),
    ])
    .await;
    let table = [
        ("null.x", "5.1.10"),
        ("nowhere.x", "5.1.2"),
        ("empty.x", "5.4.4"),
        ("servfail.x", "4.4.3"),
        ("refused.x", "4.4.3"),
        ("strange.x", "4.4.3"),
        ("silent.x", "4.4.3"),
        ("self.x", "5.4.6"),
        ("selfaddr.x", "5.4.6"),
        ("us.example", "5.1.2"),
        ("loop.x", "5.4.6"),
        ("dangling.x", "5.1.2"),
        ("nohost.x", "5.4.4"),
        ("slowhost.x", "4.4.3"),
        ("wrong.y", "4.4.3"),
        ("wrongmx.y", "4.4.3"),
        ("wronghost.x", "4.4.3"),
        ("a..b", "5.1.2"),
        ("with space.x", "5.1.2"),
        ("[nonsense]", "5.1.2"),
        ("[127.0.0.1]", "5.4.6"),
    ];
    for (domain, expected) in table {
        match r.resolve(domain).await {
            Resolution::Permanent { dsn, text } => {
                assert_eq!((dsn.to_string().as_str(), dsn.class), (expected, 5), "{domain} {text}");
            }
            Resolution::Temporary { dsn, text, .. } => {
                assert_eq!((dsn.to_string().as_str(), dsn.class), (expected, 4), "{domain} {text}");
            }
            Resolution::Site(plan) => panic!("{domain}: {plan:?}"),
        }
    }
}

#[tokio::test]
async fn implicit_mx_cnames_and_literals() {
    let r = resolver(vec![
        ("plain.x", records(vec![ip("127.0.0.4")])),
        ("six.x", records(vec![ip("2001:db8::6")])),
        ("www.x", records(vec![RData::CNAME(CNAME(name("d.x")))])),
        ("d.x", records(vec![mx(10, "alias.x")])),
        ("alias.x", records(vec![RData::CNAME(CNAME(name("plain.x")))])),
    ])
    .await;
    let table = [
        ("plain.x", "plain.x", "127.0.0.4:2525"),
        ("six.x", "six.x", "[2001:db8::6]:2525"),
        ("www.x", "alias.x", "127.0.0.4:2525"),
        ("d.x", "alias.x", "127.0.0.4:2525"),
        ("[127.0.0.8]", "[127.0.0.8]", "127.0.0.8:2525"),
        ("[IPv6:2001:db8::9]", "[ipv6:2001:db8::9]", "[2001:db8::9]:2525"),
    ];
    // The cache answers in the second round; it stores chains only by their ends.
    for (domain, key, addr) in table.into_iter().chain(table) {
        let plan = plan(r.resolve(domain).await);
        assert_eq!((&*plan.key, addrs(&plan)), (key, vec![(plan.targets[0].preference, addr.to_owned())]), "{domain}");
    }
}

#[tokio::test]
async fn a_truncated_answer_is_fetched_over_tcp_and_capped() {
    let mut zones = vec![("d.x".to_owned(), records((0..1000).map(|i| mx(10, &format!("h{i:04}.x"))).collect()))];
    zones.extend((0..1000).map(|i| (format!("h{i:04}.x"), records(vec![ip("127.0.0.7")]))));
    let (server, questions) = serve(zones.into_iter().collect()).await;
    let r = Resolver::new(config(server)).unwrap();
    let plan = plan(r.resolve("d.x").await);
    assert_eq!(plan.targets.len(), 20);
    assert_eq!(r.counters().queries, 41, "1 MX, 20 A, 20 AAAA");
    assert!(questions.load(Ordering::Relaxed) <= 60);
}

#[tokio::test]
async fn answers_are_cached_also_negative_ones() {
    let zones = [("d.x".to_owned(), records(vec![mx(10, "a.x")])), ("a.x".to_owned(), records(vec![ip("127.0.0.2")]))];
    let (server, questions) = serve(zones.into_iter().collect()).await;
    let r = Resolver::new(config(server)).unwrap();
    for _ in 0..5 {
        plan(r.resolve("d.x").await);
        assert!(matches!(
            r.resolve("nowhere.x").await,
            Resolution::Permanent { dsn: Enhanced { class: 5, subject: 1, detail: 2 }, .. }
        ));
    }
    assert_eq!(questions.load(Ordering::Relaxed), 4, "MX, A, AAAA and one NXDOMAIN");
    r.clear_cache();
    plan(r.resolve("d.x").await);
    assert!(questions.load(Ordering::Relaxed) > 4);
}

#[tokio::test]
async fn loopback_and_wildcard_listeners_outside_the_lab() {
    let zones = [("d.x".to_owned(), records(vec![mx(10, "a.x")])), ("a.x".to_owned(), records(vec![ip("127.0.0.2")]))];
    let (server, _) = serve(zones.into_iter().collect()).await;
    let strict = Resolver::new(ResolverConfig { loopback_allowed: false, ..config(server) }).unwrap();
    let wildcard = Resolver::new(ResolverConfig { listeners: vec!["0.0.0.0:2525".parse().unwrap()], ..config(server) });
    for r in [strict, wildcard.unwrap()] {
        let resolution = r.resolve("d.x").await;
        assert!(
            matches!(resolution, Resolution::Permanent { dsn: Enhanced { class: 5, subject: 4, detail: 6 }, .. }),
            "{resolution:?}"
        );
    }
}

/// Mail to the postmaster at such a literal is accepted from everybody: only our own addresses may count.
#[test]
fn an_address_literal_is_ours_if_a_listener_has_it() {
    let with = |listeners: &[&str]| {
        let listeners = listeners.iter().map(|listener| listener.parse().unwrap()).collect();
        Resolver::new(ResolverConfig { listeners, ..config(([127, 0, 0, 1], 1).into()) }).unwrap()
    };
    let everywhere = with(&["0.0.0.0:25", "[::]:25"]);
    for literal in ["[127.0.0.1]", "[IPv6:::1]", "[IPv6:::ffff:127.0.0.1]", "[ipv6:::1]"] {
        assert!(everywhere.is_own_literal(literal), "{literal}");
    }
    for literal in [
        "[0.0.0.0]",
        "[IPv6:::]",
        "[IPv6:::ffff:0.0.0.0]",
        "[255.255.255.255]",
        "[224.0.0.1]",
        "[IPv6:ff02::1]",
        "[192.0.2.77]",
        "[IPv6:::ffff:192.0.2.77]",
        "[IPv6:2001:db8::77]",
        "[x]",
        "127.0.0.1",
        "",
    ] {
        assert!(!everywhere.is_own_literal(literal), "{literal}");
    }
    let named = with(&["192.0.2.77:25", "[2001:db8::77]:25"]);
    for literal in ["[192.0.2.77]", "[IPv6:::ffff:192.0.2.77]", "[IPv6:2001:db8::77]"] {
        assert!(named.is_own_literal(literal), "{literal}");
    }
    for literal in ["[127.0.0.1]", "[192.0.2.78]", "[0.0.0.0]"] {
        assert!(!named.is_own_literal(literal), "{literal}");
    }
}

#[tokio::test]
async fn routes_mix_names_and_addresses() {
    let r = resolver(vec![("relay.x", records(vec![ip("127.0.0.6"), mx(10, "not.used")]))]).await;
    let route =
        |list: &[&str]| -> Vec<RouteHost> { list.iter().map(|host| RouteHost::parse(host, 25).unwrap()).collect() };
    let plan = plan(r.route(&route(&["127.0.0.5", "Relay.x:26", "gone.x"])).await);
    assert_eq!(&*plan.key, "route:127.0.0.5:25,relay.x:26,gone.x:25");
    assert_eq!(addrs(&plan), [(0, "127.0.0.5:25".to_owned()), (1, "127.0.0.6:26".to_owned())]);
    let own = r.route(&route(&["127.0.0.1:2525"])).await;
    assert!(matches!(own, Resolution::Temporary { dsn: Enhanced { class: 4, subject: 4, detail: 6 }, .. }), "{own:?}");
    let plan = self::plan(r.route(&route(&["lmtp:unix:/run/lmtp", "relay.x:26"])).await);
    assert_eq!(plan.targets.iter().map(|target| target.lmtp).collect::<Vec<_>>(), [true, false]);
    assert_eq!(&*plan.key, "route:unix:/run/lmtp,relay.x:26");
    assert_eq!(addrs(&plan), [(0, "unix:/run/lmtp".to_owned()), (1, "127.0.0.6:26".to_owned())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_domains_at_a_time() {
    let zones = (0..500).map(|i| (format!("d{i}.x"), records(vec![ip("127.0.0.7")]))).collect();
    let mut config = config(serve(zones).await.0);
    config.timeout_ms = 5_000;
    let r = Resolver::new(config).unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..500 {
        let r = r.clone();
        tasks.spawn(async move { r.resolve(&format!("d{i}.x")).await });
        if tasks.len() >= 100 {
            plan(tasks.join_next().await.unwrap().unwrap());
        }
    }
    while let Some(result) = tasks.join_next().await {
        plan(result.unwrap());
    }
    assert_eq!(r.counters().failures, 0);
}

#[test]
fn a_resolver_without_a_family_is_refused() {
    let config = ResolverConfig { ipv4: false, ipv6: false, ..ResolverConfig::default() };
    assert!(Resolver::new(config).is_err());
}
