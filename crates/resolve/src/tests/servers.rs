//! Tests with several name servers, some of them useless, and servers that do not support EDNS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hickory_proto::op::{Edns, Message, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::tlsa::{CertUsage, Matching, Selector};
use hickory_proto::rr::rdata::{CNAME, NS, TLSA};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};

use super::{config, ip, mx, name, plan, soa};
use crate::connection::are_trusted;
use crate::servers::{Asking, Servers};
use crate::{Resolver, ResolverConfig};

/// How a server reacts to queries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Manner {
    Good,
    /// As `Good`, and it authenticates its answers.
    Validating,
    Code(ResponseCode),
    /// As the code above, with only a header.
    Bare(ResponseCode),
    Silent,
    /// NOERROR and nothing else.
    Lame,
    /// NOERROR with the name servers of the root.
    Upward,
    /// Addresses of another name.
    Stray,
    /// The right answer to another query.
    WrongId,
    WrongQuestion,
    Garbage,
    /// Truncated, and no TCP.
    Truncated,
    /// Truncated, and the whole answer over TCP.
    ByTcp,
    /// Works without EDNS; with it this code, or silence.
    NoEdns(Option<ResponseCode>),
    /// Validating, but this number of queries with EDNS get no reply at first.
    Losing(usize),
    /// Validating, but FORMERR to queries with EDNS for the host's address.
    Picky,
    NoName,
    NoData,
    /// NOERROR and nothing else, from a server that recurses, as forwarders send it.
    Empty,
    /// No such name, without SOA and from a server that neither recurses nor is authoritative; or from one that
    /// recurses, beside a record of another name.
    BareNoName,
    StrayNoName,
    /// As `Good`, with an unknown code.
    Odd,
    /// An alias, and addresses at its end in front of it; or the alias alone.
    Aliased,
    AliasAlone,
    /// As `Empty` without EDNS; with it this code, or silence.
    EmptyWithoutEdns(Option<ResponseCode>),
}

/// A name server with its count of questions, with EDNS and without; that for the root, which is asked of who is tried,
/// is not counted.
pub(super) struct Fake {
    pub(super) address: SocketAddr,
    edns: Arc<AtomicUsize>,
    plain: Arc<AtomicUsize>,
}

impl Fake {
    pub(super) fn asked(&self) -> (usize, usize) {
        (self.edns.load(Ordering::SeqCst), self.plain.load(Ordering::SeqCst))
    }
}

fn data_of(question: &Query) -> Vec<RData> {
    let owner = question.name().to_ascii().to_ascii_lowercase();
    match question.query_type() {
        RecordType::MX if owner == "d.x." => vec![mx(10, "mx.d.x")],
        RecordType::A if owner == "mx.d.x." || owner == "end.y." => vec![ip("192.0.2.7")],
        // To which no mail goes but without MX records.
        RecordType::A if owner == "d.x." => vec![ip("192.0.2.66")],
        RecordType::PTR => vec![RData::PTR(hickory_proto::rr::rdata::PTR(name("mx.d.x")))],
        RecordType::TXT => vec![RData::TXT(hickory_proto::rr::rdata::TXT::new(vec!["v=x".to_owned()]))],
        RecordType::TLSA => {
            vec![RData::TLSA(TLSA::new(CertUsage::DaneEe, Selector::Spki, Matching::Sha256, vec![7; 32]))]
        }
        _ => Vec::new(),
    }
}

#[allow(clippy::too_many_lines, reason = "one short arm for each manner")]
fn respond(manner: Manner, octets: &[u8], is_tcp: bool) -> Option<Vec<u8>> {
    let query = Message::from_vec(octets).ok()?;
    let question = query.queries.first()?.clone();
    let mut reply = Message::response(query.metadata.id, OpCode::Query);
    reply.metadata.recursion_available = true;
    reply.add_query(question.clone());
    let good = |reply: &mut Message| {
        let data = data_of(&question);
        if data.is_empty() {
            reply.add_authority(soa());
        }
        for data in data {
            reply.add_answer(Record::from_rdata(question.name().clone(), 300, data));
        }
        if query.edns.is_some() {
            reply.edns = Some(Edns::new());
        }
    };
    // Each variant has its own arm.
    #[allow(clippy::match_same_arms)]
    match manner {
        Manner::Silent => return None,
        Manner::ByTcp if !is_tcp => reply.metadata.truncation = true,
        Manner::Good | Manner::ByTcp => good(&mut reply),
        Manner::Picky if query.edns.is_some() && question.query_type() == RecordType::A => {
            reply.metadata.response_code = ResponseCode::FormErr;
        }
        Manner::Validating | Manner::Losing(_) | Manner::Picky => {
            good(&mut reply);
            reply.metadata.authentic_data = true;
        }
        Manner::Code(code) => reply.metadata.response_code = code,
        Manner::Bare(code) => {
            reply.metadata.response_code = code;
            reply.queries.clear();
        }
        Manner::Lame => reply.metadata.recursion_available = false,
        Manner::Upward => {
            let root = RData::NS(NS(Name::from_ascii("a.root.").unwrap()));
            reply.add_authority(Record::from_rdata(Name::root(), 300, root));
        }
        Manner::Stray => drop(reply.add_answer(Record::from_rdata(name("other.x"), 300, ip("127.0.0.9")))),
        Manner::WrongId => {
            good(&mut reply);
            reply.metadata.id ^= 1;
        }
        Manner::WrongQuestion => {
            good(&mut reply);
            reply.queries = vec![Query::query(name("other.x"), question.query_type())];
        }
        Manner::Garbage => return Some(b"\xff\xff garbage".to_vec()),
        Manner::Truncated if is_tcp => return None,
        Manner::Truncated => reply.metadata.truncation = true,
        Manner::NoEdns(code) if query.edns.is_some() => {
            reply.metadata.response_code = code?;
            // Its high bits are in the OPT record.
            reply.edns = (code == Some(ResponseCode::BADVERS)).then(Edns::new);
        }
        Manner::NoEdns(_) => good(&mut reply),
        Manner::NoName => {
            reply.metadata.response_code = ResponseCode::NXDomain;
            reply.add_authority(soa());
        }
        Manner::NoData => drop(reply.add_authority(soa())),
        Manner::Empty => {}
        Manner::BareNoName => {
            reply.metadata.response_code = ResponseCode::NXDomain;
            reply.metadata.recursion_available = false;
        }
        Manner::StrayNoName => {
            reply.metadata.response_code = ResponseCode::NXDomain;
            reply.add_answer(Record::from_rdata(name("other.x"), 300, ip("127.0.0.9")));
        }
        Manner::Odd => {
            good(&mut reply);
            reply.metadata.response_code = ResponseCode::Unknown(11);
        }
        Manner::Aliased => {
            for (owner, target) in [("two.y", "far.y"), ("one.y", "two.y")] {
                reply.add_answer(Record::from_rdata(name(owner), 300, RData::CNAME(CNAME(name(target)))));
            }
            reply.add_answer(Record::from_rdata(name("far.y"), 300, ip("192.0.2.7")));
            reply.add_answer(Record::from_rdata(question.name().clone(), 300, RData::CNAME(CNAME(name("one.y")))));
        }
        Manner::AliasAlone => {
            reply.add_answer(Record::from_rdata(question.name().clone(), 300, RData::CNAME(CNAME(name("end.y")))));
            reply.edns = Some(Edns::new());
            reply.metadata.authentic_data = true;
        }
        Manner::EmptyWithoutEdns(code) if query.edns.is_some() => reply.metadata.response_code = code?,
        Manner::EmptyWithoutEdns(_) => {}
    }
    reply.to_vec().ok()
}

pub(super) async fn fake(manner: Manner) -> Fake {
    fake_by(manner, move |_| (manner, 0)).await
}

fn is_root(octets: &[u8]) -> bool {
    Message::from_vec(octets).is_ok_and(|query| query.queries.first().is_some_and(|question| question.name().is_root()))
}

/// One that has a manner for each question, and the milliseconds that it takes.
pub(super) async fn fake_by(manner: Manner, by: impl Fn(&Query) -> (Manner, u64) + Send + 'static) -> Fake {
    let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = udp.local_addr().unwrap();
    let (edns, plain) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let fake = Fake { address, edns: edns.clone(), plain: plain.clone() };
    if manner == Manner::ByTcp {
        let tcp = TcpListener::bind(address).await.unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = tcp.accept().await {
                let Ok(len) = stream.read_u16().await else { continue };
                let mut octets = vec![0; len.into()];
                stream.read_exact(&mut octets).await.unwrap();
                if let Some(reply) = respond(manner, &octets, true) {
                    stream.write_all(&[&(reply.len() as u16).to_be_bytes()[..], &reply].concat()).await.unwrap();
                }
            }
        });
    }
    let udp = Arc::new(udp);
    tokio::spawn(async move {
        let mut buffer = vec![0; 4096];
        while let Ok((len, peer)) = udp.recv_from(&mut buffer).await {
            let Ok(query) = Message::from_vec(&buffer[..len]) else { continue };
            let counts = (if query.edns.is_some() { &edns } else { &plain }, usize::from(!is_root(&buffer[..len])));
            let count = counts.0.fetch_add(counts.1, Ordering::SeqCst);
            let (manner, wait_ms) = by(&query.queries[0]);
            if matches!(manner, Manner::Losing(lost) if query.edns.is_some() && count < lost) {
                continue;
            }
            let Some(reply) = respond(manner, &buffer[..len], false) else { continue };
            let udp = udp.clone();
            tokio::spawn(async move {
                tokio::time::sleep(std::time::Duration::from_millis(wait_ms)).await;
                let _ = udp.send_to(&reply, peer).await;
            });
        }
    });
    fake
}

/// Nobody listens there.
pub(super) async fn away() -> SocketAddr {
    UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

fn resolver_of(name_servers: Vec<SocketAddr>) -> Resolver {
    Resolver::new(ResolverConfig { name_servers, timeout_ms: 600, ..config(([127, 0, 0, 1], 1).into()) }).unwrap()
}

const USELESS: [Manner; 17] = [
    Manner::Code(ResponseCode::Refused),
    Manner::Code(ResponseCode::ServFail),
    Manner::Code(ResponseCode::NotImp),
    Manner::Code(ResponseCode::FormErr),
    Manner::Code(ResponseCode::NotAuth),
    Manner::Code(ResponseCode::Unknown(11)),
    Manner::Bare(ResponseCode::Refused),
    Manner::Bare(ResponseCode::ServFail),
    Manner::Bare(ResponseCode::FormErr),
    Manner::Silent,
    Manner::Lame,
    Manner::Upward,
    Manner::Stray,
    Manner::WrongId,
    Manner::WrongQuestion,
    Manner::Garbage,
    Manner::Truncated,
];

#[tokio::test]
async fn a_useless_server_beside_a_good_one_keeps_nothing_from_being_found() {
    for useless in USELESS {
        let (first, good) = (fake(useless).await, fake(Manner::Good).await);
        let resolver = resolver_of(vec![first.address, good.address]);
        let found = plan(resolver.resolve("d.x").await);
        assert_eq!(found.targets[0].addr.to_string(), "192.0.2.7:2525", "{useless:?}");
        assert_eq!(resolver.client_name([192, 0, 2, 7].into()).await.as_deref(), Some("mx.d.x"), "{useless:?}");
        assert_eq!(resolver.texts("_x.d.x").await, Ok(vec![b"v=x".to_vec()]), "{useless:?}");
        assert!(good.asked().0 >= 4, "{useless:?}");
        // It is now known to be useless and queried last: it received only the first two queries.
        let (edns, plain) = first.asked();
        let before = edns + plain;
        assert_eq!(resolver.texts("_y.d.x").await, Ok(vec![b"v=x".to_vec()]), "{useless:?}");
        let (edns, plain) = first.asked();
        assert_eq!(edns + plain, before, "{useless:?}");
    }
    let good = fake(Manner::Good).await;
    let found = plan(resolver_of(vec![away().await, good.address]).resolve("d.x").await);
    assert_eq!(found.targets[0].addr.to_string(), "192.0.2.7:2525");
}

#[tokio::test]
async fn the_useless_server_may_be_any_of_several() {
    for place in 0..3 {
        let useless = [Manner::Code(ResponseCode::Refused), Manner::Silent, Manner::Lame];
        let mut all = [fake(useless[0]).await, fake(useless[1]).await, fake(useless[2]).await];
        all[place] = fake(Manner::Good).await;
        let resolver = resolver_of(all.iter().map(|fake| fake.address).collect());
        assert_eq!(resolver.texts("_x.d.x").await, Ok(vec![b"v=x".to_vec()]), "{place}");
    }
}

#[tokio::test]
async fn no_such_name_and_no_data_are_answers() {
    for manner in [Manner::NoName, Manner::NoData] {
        let (first, second) = (fake(manner).await, fake(Manner::Good).await);
        let resolver = resolver_of(vec![first.address, second.address]);
        assert_eq!(resolver.texts("_x.d.x").await, Ok(Vec::new()), "{manner:?}");
        assert_eq!(second.asked(), (0, 0), "{manner:?}");
    }
}

#[tokio::test]
async fn what_no_server_answers_is_a_failure_that_names_the_best_reply() {
    for (first, second, why) in [
        (Manner::Code(ResponseCode::Refused), Manner::Silent, "Refused"),
        (Manner::Code(ResponseCode::Refused), Manner::Code(ResponseCode::ServFail), "Server Failure"),
        (Manner::Silent, Manner::Silent, "no answer"),
    ] {
        let (first, second) = (fake(first).await, fake(second).await);
        let resolver = resolver_of(vec![first.address, second.address]);
        let error = resolver.texts("_x.d.x").await.unwrap_err();
        assert!(error.to_lowercase().contains(&why.to_lowercase()), "{error}, not {why}");
    }
}

#[tokio::test]
async fn servers_that_refuse_edns_are_asked_without_it_from_then_on() {
    for (code, is_remembered) in [
        (Some(ResponseCode::FormErr), true),
        (Some(ResponseCode::NotImp), true),
        (Some(ResponseCode::BADVERS), true),
        // These may concern the name, and silence may be a lost datagram.
        (Some(ResponseCode::ServFail), false),
        (Some(ResponseCode::Refused), false),
        (None, false),
    ] {
        let server = fake(Manner::NoEdns(code)).await;
        let resolver = resolver_of(vec![server.address]);
        let found = plan(resolver.resolve("d.x").await);
        assert_eq!(found.targets[0].addr.to_string(), "192.0.2.7:2525", "{code:?}");
        let (before, _) = server.asked();
        assert_eq!(resolver.texts("_x.d.x").await, Ok(vec![b"v=x".to_vec()]), "{code:?}");
        assert_eq!(server.asked().0 == before, is_remembered, "{code:?}");
    }
}

#[tokio::test]
async fn lost_datagrams_turn_nothing_off() {
    let tlsa = Query::query(name("_25._tcp.mx.d.x"), RecordType::TLSA);
    let other = Query::query(name("_26._tcp.mx.d.x"), RecordType::TLSA);
    // A server that has never answered with EDNS is queried without it after the first silence, and then with it
    // again.
    let server = fake(Manner::Losing(1)).await;
    let servers = servers_of(&[server.address]);
    let reply = servers.ask(&tlsa).await.unwrap();
    assert!(reply.metadata.authentic_data && reply.answers[0].ttl == 300);
    assert_eq!(server.asked(), (2, 1));
    let server = fake(Manner::Losing(2)).await;
    let servers = servers_of(&[server.address]);
    let reply = servers.ask(&tlsa).await.unwrap();
    assert!(!reply.metadata.authentic_data && reply.answers[0].ttl == 0, "for this question only");
    assert!(servers.ask(&other).await.unwrap().metadata.authentic_data);
    assert_eq!(server.asked(), (3, 1));
}

#[tokio::test]
async fn one_name_without_edns_leaves_the_others_with_it() {
    let server = fake(Manner::Picky).await;
    let servers = servers_of(&[server.address]);
    let tlsa = Query::query(name("_25._tcp.mx.d.x"), RecordType::TLSA);
    assert!(servers.ask(&tlsa).await.unwrap().metadata.authentic_data);
    for owner in ["mx.d.x", "mx.D.x"] {
        let reply = servers.ask(&Query::query(name(owner), RecordType::A)).await.unwrap();
        assert!(!reply.answers.is_empty() && !reply.metadata.authentic_data);
    }
    assert!(servers.ask(&tlsa).await.unwrap().metadata.authentic_data);
}

#[tokio::test]
async fn a_refusal_of_edns_is_remembered_a_minute_and_a_second_one_ten() {
    let server = fake(Manner::NoEdns(Some(ResponseCode::FormErr))).await;
    let servers = servers_of(&[server.address]);
    let ask = async |owner: &str| {
        let (before, _) = server.asked();
        servers.ask(&Query::query(name(owner), RecordType::TLSA)).await.unwrap();
        server.asked().0 - before
    };
    let wait = async |seconds| {
        tokio::time::pause();
        tokio::time::advance(std::time::Duration::from_secs(seconds)).await;
        tokio::time::resume();
    };
    assert_eq!((ask("a.x").await, ask("b.x").await), (1, 0));
    wait(61).await;
    assert_eq!((ask("a.x").await, ask("b.x").await), (1, 0));
    wait(61).await;
    assert_eq!((ask("b.x").await, ask("c.x").await), (1, 0));
    wait(590).await;
    assert_eq!(ask("a.x").await, 0);
    wait(11).await;
    assert_eq!(ask("a.x").await, 1);
}

#[tokio::test]
async fn a_truncated_answer_comes_over_tcp() {
    let server = fake(Manner::ByTcp).await;
    assert_eq!(resolver_of(vec![server.address]).texts("_x.d.x").await, Ok(vec![b"v=x".to_vec()]));
}

fn servers_of(addresses: &[SocketAddr]) -> Servers {
    let timeout = std::time::Duration::from_millis(600);
    Servers::new(
        addresses,
        Asking { timeout, retries: 0, asks_for_truth: are_trusted(addresses), unknown_may_validate: false },
    )
}

#[tokio::test]
async fn an_answer_without_edns_is_never_authentic() {
    let tlsa = Query::query(name("_25._tcp.mx.d.x"), RecordType::TLSA);
    let server = fake(Manner::Validating).await;
    assert!(servers_of(&[server.address]).ask(&tlsa).await.unwrap().metadata.authentic_data);
    // The same server behind one that drops or refuses EDNS authenticates plain queries, too.
    for manner in [Manner::NoEdns(None), Manner::NoEdns(Some(ResponseCode::FormErr))] {
        let server = fake(manner).await;
        let reply = servers_of(&[server.address]).ask(&tlsa).await.unwrap();
        assert!(!reply.answers.is_empty() && !reply.metadata.authentic_data, "{manner:?}");
    }
}

#[tokio::test]
async fn a_name_server_that_is_not_there_is_named_in_our_words() {
    let (gone, silent) = (away().await, fake(Manner::Silent).await);
    let resolver = resolver_of(vec![gone, silent.address]);
    let stentor_queue::site::Resolution::Temporary { text, .. } = resolver.resolve("d.x").await else {
        panic!("nobody answers")
    };
    let words = format!("connection refused by name server {gone}; name server {} does not answer", silent.address);
    assert!(text.ends_with(&words), "{text}");
}

#[tokio::test]
async fn without_servers_nothing_is_asked() {
    assert!(servers_of(&[]).ask(&Query::query(name("d.x"), RecordType::A)).await.is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whatever datagrams a server sends, the other's answer is found.
    #[test]
    fn any_octets_beside_an_answer_do_no_harm(octets in proptest::collection::vec(any::<u8>(), 0..80), keeps_id: bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let address = udp.local_addr().unwrap();
            tokio::spawn(async move {
                let mut buffer = vec![0; 4096];
                while let Ok((len, peer)) = udp.recv_from(&mut buffer).await {
                    let head = &buffer[..len.min(if keeps_id { 2 } else { 0 })];
                    udp.send_to(&[head, &octets].concat(), peer).await.unwrap();
                }
            });
            let good = fake(Manner::Good).await;
            let config = ResolverConfig { name_servers: vec![address, good.address], timeout_ms: 300, ..config(address) };
            assert_eq!(Resolver::new(config).unwrap().texts("_x.d.x").await, Ok(vec![b"v=x".to_vec()]));
        });
    }
}
