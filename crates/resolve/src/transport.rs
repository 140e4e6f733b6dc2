//! One query to one name server: over UDP from its own port, over TCP if the reply is truncated (RFC 7766 5).
//!
//! Promise: only a reply from that server, with the id and the question of this query, is taken (RFC 5452 9); others
//! are passed over, at most [`STRAYS_MAX`] of them. Of a truncated reply only the header and the question are read: a
//! server may cut it anywhere, in the middle of a record too, and what is in it is not used in any case (RFC 2181 9). A
//! server that is not there is known at once where ICMP says so. The caller bounds the time.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use hickory_resolver::net::NetError;
use hickory_resolver::proto::op::{DnsResponse, Message, MessageType, Query};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use super::expansion::check;
use super::rating::is_about;

/// Octets of a header (RFC 1035 4.1.1), and its flags in the third and fourth.
const HEADER_BYTES: usize = 12;
const QR_AND_TC: u8 = 0x82;

/// Octets of a reply over UDP; some servers send more than they are asked for.
const UDP_BYTES_MAX: usize = 4096;
/// Maximum datagrams that are not the reply to this query.
const STRAYS_MAX: usize = 64;

/// Sends a query and reads its reply. A truncated reply is dropped even if there is none over TCP: a partial record
/// set would be taken for the complete one.
pub async fn exchange(server: SocketAddr, query: &Message) -> Result<DnsResponse, NetError> {
    let sent = SentQuery::new(query)?;
    match sent.over_udp(server).await? {
        Reply::Whole(reply) => Ok(*reply),
        Reply::Truncated => sent.over_tcp(server).await,
    }
}

/// The same over UDP alone, where any reply will do, a truncated one too.
pub async fn any_over_udp(server: SocketAddr, query: &Message) -> Result<(), NetError> {
    SentQuery::new(query)?.over_udp(server).await.map(drop)
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

enum Reply {
    Whole(Box<DnsResponse>),
    Truncated,
}

struct SentQuery<'q> {
    octets: Vec<u8>,
    id: u16,
    question: &'q Query,
}

impl<'q> SentQuery<'q> {
    fn new(query: &'q Message) -> Result<SentQuery<'q>, NetError> {
        let question = query.queries.first().ok_or("no question")?;
        Ok(SentQuery { octets: query.to_vec()?, id: query.metadata.id, question })
    }

    /// Parses the reply to this query; `None`: the octets are something else.
    ///
    /// # Errors
    /// It has the id of the query, and cannot be read.
    fn reply(&self, octets: &[u8]) -> Result<Option<Reply>, NetError> {
        if octets.first_chunk() != Some(&self.id.to_be_bytes()) {
            return Ok(None);
        }
        if octets.len() >= HEADER_BYTES && octets[2] & QR_AND_TC == QR_AND_TC {
            return Ok(self.repeats_question(octets).then_some(Reply::Truncated));
        }
        Ok(parse(octets, self.question)?.map(|reply| Reply::Whole(Box::new(reply))))
    }

    /// Whether the question of a truncated reply is ours, as far as it is there; a server may leave it out or cut it,
    /// too.
    fn repeats_question(&self, octets: &[u8]) -> bool {
        let has_question = octets[4..6] != [0, 0];
        let (ours, theirs) = (self.octets_of_question(), &octets[HEADER_BYTES..]);
        let len = ours.len().min(theirs.len());
        !has_question || ours[..len].eq_ignore_ascii_case(&theirs[..len])
    }

    /// Name, type and class, as they went out: behind the header, where no name is compressed yet.
    fn octets_of_question(&self) -> &[u8] {
        let name: usize = self.question.name().iter().map(|label| 1 + label.len()).sum();
        self.octets.get(HEADER_BYTES..HEADER_BYTES + name + 5).unwrap_or_default()
    }

    async fn over_udp(&self, server: SocketAddr) -> Result<Reply, NetError> {
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
        Err("too many datagrams that are not a reply".into())
    }

    async fn over_tcp(&self, server: SocketAddr) -> Result<DnsResponse, NetError> {
        let mut stream = TcpStream::connect(server).await?;
        let len = u16::try_from(self.octets.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        stream.write_all(&[&len.to_be_bytes()[..], &self.octets].concat()).await?;
        let len = stream.read_u16().await?;
        let mut buffer = vec![0; len.into()];
        stream.read_exact(&mut buffer).await?;
        match self.reply(&buffer)? {
            Some(Reply::Whole(reply)) => Ok(*reply),
            Some(Reply::Truncated) => Err("truncated over TCP".into()),
            None => Err("the TCP reply belongs to another query".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use hickory_resolver::proto::rr::{Name, RecordType};

    use super::*;

    /// A reply that is cut to so many octets, with these flags and counts of questions and answers.
    fn cut(query: &[u8], flags: u8, counts: [u8; 2], len: usize) -> Vec<u8> {
        let mut reply = query[..2].to_vec();
        reply.extend([flags, 0x80, 0, counts[0], 0, counts[1], 0, 0, 0, 0]);
        reply.extend(&query[12..12 + 20]);
        reply.extend(b"\xc0\x0c\0\x0f\0\x01\0\0\0\x3c\0\x07\0\x0a\x02mx\xc0\x0c");
        reply.truncate(len);
        reply
    }

    #[test]
    fn a_truncated_reply_is_one_wherever_it_is_cut() {
        let name = Name::from_ascii("d.example.test.").unwrap();
        let question = Query::query(name, RecordType::MX);
        let mut query = Message::query();
        query.add_query(question);
        let sent = SentQuery::new(&query).unwrap();
        assert_eq!(sent.octets_of_question().len(), 20);
        let whole = cut(&sent.octets, 0x82, [1, 1], usize::MAX);
        let is_truncated = |octets: &[u8]| matches!(sent.reply(octets), Ok(Some(Reply::Truncated)));
        // Behind the header, in the question, in a name, in the record's fixed part, in its data.
        for len in HEADER_BYTES..=whole.len() {
            assert!(is_truncated(&whole[..len]), "{len}");
        }
        assert!(is_truncated(&cut(&sent.octets, 0x86, [1, 200], 40)), "more answers than there are, from their owner");
        assert!(is_truncated(&cut(&sent.octets, 0x82, [0, 0], 12)), "without the question");
        let capitals: Vec<u8> = [&whole[..12], &whole[12..].to_ascii_uppercase()].concat();
        assert!(is_truncated(&capitals));

        let mut other = whole.clone();
        other[13] = b'e';
        assert!(matches!(sent.reply(&other), Ok(None)), "another query");
        other = whole.clone();
        other[0] ^= 1;
        assert!(matches!(sent.reply(&other), Ok(None)), "another id");
        assert!(!is_truncated(&cut(&sent.octets, 0x02, [1, 1], 40)), "no reply");
        assert!(sent.reply(&cut(&sent.octets, 0x80, [1, 1], 40)).is_err(), "cut, and TC is not set");
        assert!(sent.reply(&whole[..11]).is_err(), "not even a header");
    }

    /// The answer over UDP is cut in the middle of a record; that over TCP is whole, or truncated again.
    #[tokio::test]
    async fn a_reply_that_cannot_be_read_leads_to_tcp_all_the_same() {
        for is_whole in [true, false] {
            let (udp, tcp) = loop {
                let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
                if let Ok(tcp) = tokio::net::TcpListener::bind(udp.local_addr().unwrap()).await {
                    break (udp, tcp);
                }
            };
            let server = udp.local_addr().unwrap();
            tokio::spawn(async move {
                let mut query = [0; 512];
                let (_, peer) = udp.recv_from(&mut query).await.unwrap();
                udp.send_to(&cut(&query, 0x82, [1, 1], 45), peer).await.unwrap();
                let (mut stream, _) = tcp.accept().await.unwrap();
                let len = stream.read_u16().await.unwrap();
                stream.read_exact(&mut query[..len.into()]).await.unwrap();
                let reply = cut(&query, if is_whole { 0x80 } else { 0x82 }, [1, 1], usize::MAX);
                stream.write_all(&[&(reply.len() as u16).to_be_bytes()[..], &reply].concat()).await.unwrap();
            });
            let mut query = Message::query();
            query.add_query(Query::query(Name::from_ascii("d.example.test.").unwrap(), RecordType::MX));
            let result = exchange(server, &query).await;
            assert_eq!(result.as_ref().is_ok_and(|reply| reply.answers.len() == 1), is_whole, "{result:?}");
            assert!(is_whole || result.is_err_and(|error| error.to_string().contains("truncated over TCP")));
        }
    }
}
