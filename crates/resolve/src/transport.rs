//! One query to one name server: over UDP from its own port, over TCP if the reply is truncated (RFC 7766 5).
//!
//! Promise: only a reply from that server, with the ID and question of this query, is accepted (RFC 5452 9); others
//! are skipped, at most [`STRAYS_MAX`] of them. An unreachable server is detected immediately if ICMP reports it. The
//! caller limits the time.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use hickory_resolver::net::NetError;
use hickory_resolver::proto::op::{DnsResponse, Message, MessageType, Query};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use super::expansion::check;
use super::worth::is_about;

/// Maximum size of a reply over UDP; some servers send more than requested.
const UDP_BYTES_MAX: usize = 4096;
/// Maximum datagrams that are not the reply to this query.
const STRAYS_MAX: usize = 64;

/// Sends a query and reads its reply. A truncated reply is dropped even if there is none over TCP: a partial record
/// set would be taken for the complete one.
pub async fn exchange(server: SocketAddr, query: &Message) -> Result<DnsResponse, NetError> {
    let sent = Sent::new(query)?;
    let reply = sent.over_udp(server).await?;
    if !reply.metadata.truncation {
        return Ok(reply);
    }
    let reply = sent.over_tcp(server).await?;
    if reply.metadata.truncation { Err("truncated over TCP".into()) } else { Ok(reply) }
}

/// Sends a query over UDP only, and accepts any reply, even a truncated one.
pub async fn over_udp(server: SocketAddr, query: &Message) -> Result<DnsResponse, NetError> {
    Sent::new(query)?.over_udp(server).await
}

/// Parses the reply to a question; `None`: the octets are about something else.
///
/// # Errors
/// They cannot be parsed, or it would take too long.
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

    /// Parses the reply to this query; `None`: the octets are something else.
    ///
    /// # Errors
    /// They have the ID of the query, but cannot be parsed.
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
        // The kernel only passes on this server's datagrams and errors.
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
