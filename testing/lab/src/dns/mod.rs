//! The lab's DNS server: UDP and TCP on one port of 127.0.0.1, hickory-proto on the wire, answers by [`zone`].
//!
//! Promise: an answer that does not fit the client's UDP size is truncated and complete over TCP; every query is
//! counted, also those that get no answer. Malformed queries are dropped.

mod zone;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use hashbrown::HashMap;
use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::RecordType;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;

use crate::error::LabError;
use crate::recorder::Recorder;
use crate::scenario::Scenario;
use zone::Manner;

/// Names whose queries are counted one by one.
const NAMES_COUNTED_MAX: usize = 200_000;
const PORT_TRIES: u32 = 20;
const TCP_IDLE: Duration = Duration::from_secs(30);

/// Queries so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct DnsStats {
    pub udp: u64,
    pub tcp: u64,
    pub mx: u64,
    pub address: u64,
    pub other: u64,
}

pub(crate) struct Server {
    scenario: Arc<Scenario>,
    recorder: Arc<Recorder>,
    udp: AtomicU64,
    tcp: AtomicU64,
    mx: AtomicU64,
    address: AtomicU64,
    other: AtomicU64,
    names: Mutex<HashMap<(String, u16), u64>>,
}

pub(crate) struct Sockets {
    udp: UdpSocket,
    tcp: TcpListener,
    pub address: SocketAddr,
}

impl Sockets {
    /// Binds both; with port 0 any that is free for both.
    pub async fn bind(port: u16) -> Result<Self, LabError> {
        let mut tries = 0;
        loop {
            let wanted = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let failed = |source| LabError::Listen { address: wanted, source };
            let udp = UdpSocket::bind(wanted).await.map_err(failed)?;
            let address = udp.local_addr().map_err(failed)?;
            match TcpListener::bind(address).await {
                Ok(tcp) => return Ok(Self { udp, tcp, address }),
                Err(_) if port == 0 && tries < PORT_TRIES => tries += 1,
                Err(source) => return Err(LabError::Listen { address, source }),
            }
        }
    }
}

impl Server {
    pub fn new(scenario: Arc<Scenario>, recorder: Arc<Recorder>) -> Self {
        let zero = AtomicU64::default;
        Self {
            scenario,
            recorder,
            udp: zero(),
            tcp: zero(),
            mx: zero(),
            address: zero(),
            other: zero(),
            names: Mutex::default(),
        }
    }

    pub fn stats(&self) -> DnsStats {
        DnsStats {
            udp: self.udp.load(Relaxed),
            tcp: self.tcp.load(Relaxed),
            mx: self.mx.load(Relaxed),
            address: self.address.load(Relaxed),
            other: self.other.load(Relaxed),
        }
    }

    /// Queries for one name and type so far.
    pub fn queries(&self, name: &str, kind: RecordType) -> u64 {
        let key = (name.trim_end_matches('.').to_ascii_lowercase(), u16::from(kind));
        self.names.lock().get(&key).copied().unwrap_or(0)
    }

    /// Serves for ever; dropping the future ends all of it.
    pub async fn run(self: Arc<Self>, sockets: Sockets) {
        let udp = Arc::new(sockets.udp);
        let mut tasks = JoinSet::new();
        let mut packet = vec![0; 4096];
        loop {
            tokio::select! {
                received = udp.recv_from(&mut packet) => {
                    let Ok((len, peer)) = received else { continue };
                    self.udp.fetch_add(1, Relaxed);
                    let Some((reply, delay)) = self.reply(&packet[..len], false) else { continue };
                    if delay.is_zero() {
                        // A reply that is lost is what UDP is.
                        let _ = udp.send_to(&reply, peer).await;
                        continue;
                    }
                    let udp = Arc::clone(&udp);
                    tasks.spawn(async move {
                        tokio::time::sleep(delay).await;
                        let _ = udp.send_to(&reply, peer).await;
                    });
                }
                accepted = sockets.tcp.accept() => match accepted {
                    Ok((stream, _)) => drop(tasks.spawn(Arc::clone(&self).serve_tcp(stream))),
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                },
                Some(_) = tasks.join_next() => {}
            }
        }
    }

    async fn serve_tcp(self: Arc<Self>, mut stream: TcpStream) {
        // Errors mean that the client is gone or silent; nothing is owed to it.
        let _ = async {
            loop {
                let len = tokio::time::timeout(TCP_IDLE, stream.read_u16()).await.map_err(io::Error::other)??;
                let mut query = vec![0; usize::from(len)];
                stream.read_exact(&mut query).await?;
                self.tcp.fetch_add(1, Relaxed);
                let Some((reply, delay)) = self.reply(&query, true) else { continue };
                tokio::time::sleep(delay).await;
                let len = u16::try_from(reply.len()).map_err(io::Error::other)?;
                stream.write_all(&[&len.to_be_bytes(), reply.as_slice()].concat()).await?;
            }
            #[allow(unreachable_code)] // Gives the block its type.
            io::Result::Ok(())
        }
        .await;
    }

    fn count(&self, name: &str, kind: RecordType) {
        let counter = match kind {
            RecordType::MX => &self.mx,
            RecordType::A | RecordType::AAAA => &self.address,
            _ => &self.other,
        };
        counter.fetch_add(1, Relaxed);
        let mut names = self.names.lock();
        let key = (name.to_owned(), u16::from(kind));
        if names.len() < NAMES_COUNTED_MAX || names.contains_key(&key) {
            *names.entry(key).or_insert(0) += 1;
        }
        drop(names);
        self.recorder.nudge();
    }

    /// The reply's octets and how long to hold them back; none for no reply.
    fn reply(&self, packet: &[u8], tcp: bool) -> Option<(Vec<u8>, Duration)> {
        let query = Message::from_vec(packet).ok()?;
        if query.metadata.message_type != MessageType::Query {
            return None;
        }
        let id = query.metadata.id;
        let [question] = query.queries.as_slice() else {
            let refusal = Message::error_msg(id, query.metadata.op_code, ResponseCode::FormErr);
            return Some((refusal.to_vec().ok()?, Duration::ZERO));
        };
        let (name, kind) = (zone::text(question.name()), question.query_type());
        self.count(&name, kind);
        let answer = zone::answer(&self.scenario, &name, kind, self.recorder.now_us());
        let delay = Duration::from_millis(u64::from(answer.delay_ms));
        let mut message = Message::response(id, OpCode::Query);
        match answer.manner {
            Manner::Silent => return None,
            Manner::Garbage => return Some((packet.iter().map(|b| b ^ 0xa5).collect(), delay)),
            Manner::WrongId => message.metadata.id = id.wrapping_add(1),
            Manner::Truncated | Manner::Proper => {}
        }
        message.metadata.recursion_desired = query.metadata.recursion_desired;
        message.metadata.recursion_available = true;
        message.metadata.response_code = answer.code;
        let asks = query.metadata.authentic_data || query.edns.as_ref().is_some_and(|edns| edns.flags().dnssec_ok);
        message.metadata.authentic_data = self.scenario.dns_validates && asks && !answer.is_insecure;
        message.add_query(question.clone());
        message.add_answers(answer.records);
        message.add_authorities(answer.soa);
        if query.edns.is_some() {
            let mut edns = hickory_proto::op::Edns::new();
            edns.set_max_payload(1232);
            message.set_edns(edns);
        }
        let bytes = message.to_vec().ok()?;
        let cut = !tcp && (answer.manner == Manner::Truncated || bytes.len() > usize::from(query.max_payload()));
        if !cut {
            return Some((bytes, delay));
        }
        message.answers.clear();
        message.authorities.clear();
        message.metadata.truncation = true;
        Some((message.to_vec().ok()?, delay))
    }
}

/// Explicit records that cannot be served.
pub(crate) fn check_records(scenario: &Scenario) -> Result<(), LabError> {
    for record in scenario.all_records() {
        if zone::parse_record(record).is_none() && !record.kind.eq_ignore_ascii_case(zone::FAIL) {
            let text = format!("record {}: {} {:?} is not one", record.name, record.kind, record.value);
            return Err(LabError::Scenario(text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
