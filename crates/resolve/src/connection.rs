//! Connections to name servers that ask for what is known of an answer's truth.
//!
//! Hickory's resolver has no way to ask for it: so its connections set AD and DO in each question (RFC 6840 5.7, RFC 4035 3.2.1), and
//! the name server answers with AD where all of the answer is authentic. Signatures that come along are of no use and go; what hickory keeps in
//! its cache has the flag.
//!
//! Who may be believed: a name server on loopback. What comes over a network could have been changed on its way, the flag too, so it
//! is not asked for there (RFC 7672 2.1.1, RFC 4035 4.9.3), and neither if one of several servers is elsewhere.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;

use hickory_resolver::config::ConnectionConfig;
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::xfer::{DnsExchange, DnsHandle};
use hickory_resolver::proto::op::{DnsRequest, Edns};
use hickory_resolver::{ConnectionProvider, PoolContext};

type Exchange = DnsExchange<TokioRuntimeProvider>;
type Connecting<C> = Pin<Box<dyn Future<Output = Result<C, NetError>> + Send + 'static>>;

/// Octets of an answer over UDP; longer ones are asked for over TCP (RFC 9715).
const UDP_BYTES_MAX: u16 = 1232;

/// Whether all of these are on this machine.
pub fn are_trusted(name_servers: &[SocketAddr]) -> bool {
    !name_servers.is_empty() && name_servers.iter().all(|server| server.ip().to_canonical().is_loopback())
}

/// Makes connections.
#[derive(Clone)]
pub struct Provider {
    inner: TokioRuntimeProvider,
    asks_for_truth: bool,
}

impl Provider {
    pub fn new(asks_for_truth: bool) -> Provider {
        Provider { inner: TokioRuntimeProvider::default(), asks_for_truth }
    }
}

impl ConnectionProvider for Provider {
    type Conn = Connection;
    type FutureConn = Connecting<Connection>;
    type RuntimeProvider = TokioRuntimeProvider;

    fn new_connection(
        &self,
        ip: IpAddr,
        config: &ConnectionConfig,
        context: &PoolContext,
    ) -> Result<Connecting<Connection>, NetError> {
        let connecting = self.inner.new_connection(ip, config, context)?;
        let asks_for_truth = self.asks_for_truth;
        Ok(Box::pin(async move { Ok(Connection { inner: connecting.await?, asks_for_truth }) }))
    }

    fn runtime_provider(&self) -> &TokioRuntimeProvider {
        &self.inner
    }
}

/// One connection.
#[derive(Clone)]
pub struct Connection {
    inner: Exchange,
    asks_for_truth: bool,
}

impl DnsHandle for Connection {
    type Response = <Exchange as DnsHandle>::Response;
    type Runtime = TokioRuntimeProvider;

    fn send(&self, mut request: DnsRequest) -> Self::Response {
        if self.asks_for_truth {
            request.metadata.authentic_data = true;
            request.edns.get_or_insert_with(Edns::new).set_max_payload(UDP_BYTES_MAX).set_dnssec_ok(true);
        }
        self.inner.send(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_are_believed_on_loopback_alone() {
        let trusted = |servers: &[&str]| {
            let servers: Vec<SocketAddr> = servers.iter().map(|server| server.parse().unwrap()).collect();
            are_trusted(&servers)
        };
        assert!(trusted(&["127.0.0.1:53"]) && trusted(&["127.0.0.53:53", "[::1]:5353", "[::ffff:127.0.0.1]:53"]));
        assert!(!trusted(&[]) && !trusted(&["192.0.2.1:53"]) && !trusted(&["127.0.0.1:53", "10.0.0.1:53"]));
    }
}
