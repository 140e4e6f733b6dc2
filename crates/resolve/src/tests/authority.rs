//! Tests of the name servers of a zone: all are asked, only authorities count, and our own resolver answers if none can
//! be asked.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};

use hickory_proto::op::{Message, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{CNAME, NS, SOA, TXT};
use hickory_proto::rr::{RData, Record, RecordType};
use tokio::net::UdpSocket;

use super::{Zone, config, name, serve};
use crate::{PublishedTexts, Resolver, ResolverConfig};

const KEY: &str = "s1._domainkey.x.example";
const OTHER: &str = "s2._domainkey.x.example";
/// Negative TTL of the zone, and of the resolver's answers.
const MINIMUM_S: u32 = 1_234;

fn txt(text: &str) -> RData {
    RData::TXT(TXT::new(vec![text.to_owned()]))
}

/// What a name server of the zone does.
#[derive(Clone)]
struct Authority {
    records: Vec<(&'static str, RData)>,
    code: ResponseCode,
    is_authoritative: bool,
}

impl Authority {
    fn with(text: &str) -> Authority {
        Authority { records: vec![(KEY, txt(text))], code: ResponseCode::NoError, is_authoritative: true }
    }
}

/// Name servers at 127.0.0.1, 127.0.0.2 and so on, on one port. `None`: nobody is there.
async fn authorities(all: &[Option<Authority>]) -> u16 {
    let (sockets, port) = loop {
        let first = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = first.local_addr().unwrap().port();
        let mut sockets = vec![first];
        for at in 1..all.len() {
            let address = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 1 + at as u8), port));
            sockets.extend(UdpSocket::bind(address).await);
        }
        if sockets.len() == all.len() {
            break (sockets, port);
        }
    };
    for (socket, authority) in sockets.into_iter().zip(all.iter().cloned()) {
        let Some(authority) = authority else { continue };
        tokio::spawn(async move {
            let mut packet = [0; 1_500];
            while let Ok((len, peer)) = socket.recv_from(&mut packet).await {
                let request = Message::from_vec(&packet[..len]).unwrap();
                assert!(!request.metadata.recursion_desired);
                let question = request.queries[0].clone();
                let mut reply = Message::response(request.metadata.id, OpCode::Query);
                reply.metadata.authoritative = authority.is_authoritative;
                reply.metadata.response_code = authority.code;
                reply.add_query(question.clone());
                if question.query_type() == RecordType::SOA {
                    let soa = SOA::new(name("ns"), name("h"), 1, 60, 60, 60, MINIMUM_S);
                    reply.add_answer(Record::from_rdata(question.name().clone(), 9_999, RData::SOA(soa)));
                }
                for (owner, data) in &authority.records {
                    let is_of_kind =
                        data.record_type() == question.query_type() || data.record_type() == RecordType::CNAME;
                    if name(owner) == *question.name() && is_of_kind {
                        reply.add_answer(Record::from_rdata(name(owner), 77, data.clone()));
                    }
                }
                socket.send_to(&reply.to_vec().unwrap(), peer).await.unwrap();
            }
        });
    }
    port
}

/// Asks about both keys in a zone with these name servers; `text`: what our own resolver has.
async fn published(all: &[Option<Authority>], text: &str) -> PublishedTexts {
    let port = authorities(all).await;
    let mut zones: HashMap<String, Zone> = HashMap::new();
    let host = |at: usize| format!("ns{at}.x.example");
    let servers = (0..all.len()).map(|at| RData::NS(NS(name(&host(at))))).collect();
    zones.insert("x.example".to_owned(), Zone::Records(servers));
    for at in 0..all.len() {
        zones.insert(host(at), Zone::Records(vec![super::ip(&format!("127.0.0.{}", at + 1))]));
    }
    zones.insert(KEY.to_owned(), Zone::Records(vec![txt(text)]));
    let resolver = ResolverConfig { zone_port: port, ..config(serve(zones).await.0) };
    Resolver::new(resolver).unwrap().published_texts(&[KEY.to_owned(), OTHER.to_owned()]).await.unwrap()
}

fn texts(published: &PublishedTexts) -> Vec<String> {
    let of = |texts: &Result<Vec<crate::PublishedText>, String>| match texts {
        Ok(texts) => {
            texts.iter().map(|one| String::from_utf8_lossy(&one.text).into_owned()).collect::<Vec<_>>().join("+")
        }
        Err(why) => format!("({why})"),
    };
    let line = |server: &crate::ServerAnswers| {
        let all: Vec<String> = server.texts.iter().map(of).collect();
        format!("{}: {}", server.server, all.join(", "))
    };
    published.servers.iter().map(line).collect()
}

#[tokio::test]
async fn each_name_server_of_the_zone_is_asked() {
    let found = published(&[Some(Authority::with("new")), Some(Authority::with("old"))], "cached").await;
    assert_eq!(texts(&found), ["ns0.x.example: new, ", "ns1.x.example: old, "]);
    assert!(!found.is_indirect);
    assert_eq!(found.negative_ttl_s, Some(MINIMUM_S));
    assert_eq!(found.servers[0].texts[0].as_ref().unwrap()[0].ttl_s, 77);
}

#[tokio::test]
async fn a_server_that_is_lame_or_broken_is_not_an_absence() {
    let good = Authority::with("new");
    let lame = Authority { is_authoritative: false, ..good.clone() };
    let broken = Authority { code: ResponseCode::ServFail, ..good.clone() };
    let found = published(&[Some(good), Some(lame), Some(broken)], "cached").await;
    let lines = texts(&found);
    assert_eq!(lines[0], "ns0.x.example: new, ");
    assert!(lines[1].contains("(it is not an authority for the zone)"), "{lines:?}");
    assert!(lines[2].contains("(it answers"), "{lines:?}");
}

#[tokio::test]
async fn our_own_resolver_answers_if_no_server_can_be_asked_or_a_name_is_an_alias() {
    let refusing = Authority { code: ResponseCode::Refused, ..Authority::with("new") };
    let found = published(&[Some(refusing)], "cached").await;
    assert!(found.is_indirect && texts(&found)[0].ends_with(": cached, "), "{found:?}");
    let alias = RData::CNAME(CNAME(name("key.elsewhere.example")));
    let alias = Authority { records: vec![(KEY, alias)], ..Authority::with("") };
    let found = published(&[Some(alias)], "followed").await;
    assert!(found.is_indirect && texts(&found)[0].ends_with(": followed, "), "{found:?}");
}
