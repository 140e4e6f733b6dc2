//! One question to one name server: over UDP from a port of its own, over TCP when the reply is truncated (RFC 7766 5).
//!
//! Promise: only a reply from that server, with the id and the question of this query, is taken (RFC 5452 9); others are passed over, at most
//! [`STRAYS_MAX`] of them. A server that is not there is known at once where ICMP says so. The caller bounds the time.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use hickory_resolver::net::NetError;
use hickory_resolver::proto::op::{DnsResponse, Message, MessageType, Query};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use super::expansion::check;
use super::worth::is_about;

/// Octets of a reply over UDP; some servers send more than they are asked for.
const UDP_BYTES_MAX: usize = 4096;
/// Datagrams that are no reply to this query.
const STRAYS_MAX: usize = 64;

/// Sends a query and reads its reply. The truncated reply is dropped even where nothing comes over TCP: part of a set of records would be
/// taken for all of it.
pub async fn exchange(server: SocketAddr, query: &Message) -> Result<DnsResponse, NetError> {
    let sent = Sent::new(query)?;
    let reply = sent.over_udp(server).await?;
    if !reply.metadata.truncation {
        return Ok(reply);
    }
    let reply = sent.over_tcp(server).await?;
    if reply.metadata.truncation { Err("truncated over TCP".into()) } else { Ok(reply) }
}

/// The same over UDP alone, where any reply will do, a truncated one too.
pub async fn over_udp(server: SocketAddr, query: &Message) -> Result<DnsResponse, NetError> {
    Sent::new(query)?.over_udp(server).await
}

/// The reply to a question in these octets; `None`: they are about something else.
///
/// # Errors
/// They cannot be read, or it would take too long.
pub fn parse(octets: &[u8], question: &Query) -> Result<Option<DnsResponse>, NetError> {
    check(octets)?;
    let reply = DnsResponse::from_buffer(octets.to_vec())?;
    let is_reply = reply.metadata.message_type == MessageType::Response && is_about(&reply, question);
    Ok(is_reply.then_some(reply))
}

struct Sent<'q> {
    octets: Vec<u8>,
    id: u16,
    question: &'q Query,
}

impl<'q> Sent<'q> {
    fn new(query: &'q Message) -> Result<Sent<'q>, NetError> {
        let question = query.queries.first().ok_or("no question")?;
        Ok(Sent { octets: query.to_vec()?, id: query.metadata.id, question })
    }

    /// The reply in these octets; `None`: they are something else.
    ///
    /// # Errors
    /// It has the id of the query, and cannot be read.
    fn reply(&self, octets: &[u8]) -> Result<Option<DnsResponse>, NetError> {
        if octets.first_chunk() != Some(&self.id.to_be_bytes()) {
            return Ok(None);
        }
        parse(octets, self.question)
    }

    async fn over_udp(&self, server: SocketAddr) -> Result<DnsResponse, NetError> {
        let any: SocketAddr =
            if server.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
        let socket = UdpSocket::bind(any).await?;
        // The kernel passes only this server's datagrams on, and its errors.
        socket.connect(server).await?;
        socket.send(&self.octets).await?;
        let mut buffer = vec![0; UDP_BYTES_MAX];
        for _ in 0..STRAYS_MAX {
            let len = socket.recv(&mut buffer).await?;
            if let Some(reply) = self.reply(&buffer[..len])? {
                return Ok(reply);
            }
        }
        Err("too many datagrams that are no reply".into())
    }

    async fn over_tcp(&self, server: SocketAddr) -> Result<DnsResponse, NetError> {
        let mut stream = TcpStream::connect(server).await?;
        let len = u16::try_from(self.octets.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        stream.write_all(&[&len.to_be_bytes()[..], &self.octets].concat()).await?;
        let len = stream.read_u16().await?;
        let mut buffer = vec![0; len.into()];
        stream.read_exact(&mut buffer).await?;
        self.reply(&buffer)?.ok_or_else(|| "the reply over TCP is to another question".into())
    }
}
