//! Tests whether any name server answers at all, bypassing the cache.
//!
//! One query for the root's name servers (RFC 1035 4.1) goes by UDP to all servers in parallel, and once more if
//! there is no reply, since one packet may be lost. Any reply counts, even REFUSED and SERVFAIL: an authoritative
//! server does not know the root.

use std::net::SocketAddr;
use std::time::Duration;

use hickory_resolver::net::NetError;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::servers::query;
use super::transport::any_over_udp;

/// Timeout of one answer.
const ANSWER_MAX: Duration = Duration::from_millis(1_500);
const TRIES: usize = 2;
/// Maximum servers queried at a time.
const SERVERS_MAX: usize = 8;

/// Result of the test.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProbeAnswer {
    /// At least one replied.
    Answers,
    /// None replied, with the reason.
    Silent(String),
}

pub(super) async fn ask(servers: &[SocketAddr]) -> ProbeAnswer {
    let mut asked = JoinSet::new();
    for server in servers.iter().take(SERVERS_MAX).copied() {
        asked.spawn(one(server));
    }
    let mut why = "no name server is configured".to_owned();
    while let Some(answer) = asked.join_next().await {
        match answer {
            Ok(ProbeAnswer::Answers) => return ProbeAnswer::Answers,
            Ok(ProbeAnswer::Silent(because)) => why = because,
            Err(_) => {}
        }
    }
    ProbeAnswer::Silent(why)
}

async fn one(server: SocketAddr) -> ProbeAnswer {
    let mut why = String::new();
    let question = query(&Query::query(Name::root(), RecordType::NS));
    for _ in 0..TRIES {
        match timeout(ANSWER_MAX, any_over_udp(server, &question)).await.unwrap_or(Err(NetError::Timeout)) {
            Ok(()) => return ProbeAnswer::Answers,
            Err(error) => why = error.to_string(),
        }
    }
    ProbeAnswer::Silent(why)
}

#[cfg(test)]
mod tests {
    use tokio::net::UdpSocket;

    use super::*;

    /// A name server that answers each query with a code, after ignoring the first ones.
    async fn server(code: u8, mut ignored: usize) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        tokio::spawn(async move {
            let mut packet = [0; 512];
            while let Ok((octets, from)) = socket.recv_from(&mut packet).await {
                if ignored > 0 {
                    ignored -= 1;
                    continue;
                }
                // Sets QR, and TC if the code includes it.
                packet[2] |= 0x80 | (code >> 6 & 2);
                packet[3] = code & 0x0f;
                socket.send_to(&packet[..octets], from).await.unwrap();
            }
        });
        address
    }

    /// A truncated reply; there is no answer over TCP.
    const TRUNCATED: u8 = 0x80;

    #[tokio::test]
    async fn any_reply_is_an_answer() {
        for code in [0, 1, 2, 3, 4, 5, 11, TRUNCATED] {
            assert_eq!(ask(&[server(code, 0).await]).await, ProbeAnswer::Answers, "{code}");
        }
        assert_eq!(ask(&[server(0, 1).await]).await, ProbeAnswer::Answers, "one lost packet");
    }

    #[tokio::test]
    async fn silence_is_none() {
        let (refusing, silent) = (server(5, 0).await, server(0, usize::MAX).await);
        let unused = UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        assert_eq!(ask(&[silent, unused, refusing]).await, ProbeAnswer::Answers);
        assert_eq!(ask(&[silent]).await, ProbeAnswer::Silent("request timed out".to_owned()));
        assert!(matches!(ask(&[unused]).await, ProbeAnswer::Silent(why) if why.contains("refused")));
        assert!(matches!(ask(&[]).await, ProbeAnswer::Silent(_)));
    }
}
