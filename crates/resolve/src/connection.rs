//! Hickory's connection to its single name server, which represents all configured ones ([`super::servers`]).
//!
//! Hickory provides the cache and follows aliases. By itself it would accept the first reply of any server as final,
//! and it cannot request authentication: our queries set AD and DO (RFC 6840 5.7, RFC 4035 3.2.1), and the name
//! server sets AD if the whole answer is authentic. Answers in hickory's cache keep the flag.
//!
//! Only name servers on loopback are trusted. Answers from a network could be modified in transit, including the
//! flag; so it is not requested (RFC 7672 2.1.1, RFC 4035 4.9.3) if any of the servers is elsewhere.

use std::future::{Future, ready};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::{Stream, once};
use hickory_resolver::config::ConnectionConfig;
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::xfer::DnsHandle;
use hickory_resolver::proto::op::{DnsRequest, DnsResponse};
use hickory_resolver::{ConnectionProvider, PoolContext};

use super::servers::Servers;

type Connecting<C> = Pin<Box<dyn Future<Output = Result<C, NetError>> + Send + 'static>>;

/// Whether all of these are on this machine.
pub fn are_trusted(name_servers: &[SocketAddr]) -> bool {
    !name_servers.is_empty() && name_servers.iter().all(|server| server.ip().to_canonical().is_loopback())
}

/// Makes connections.
#[derive(Clone)]
pub struct Provider {
    runtime: TokioRuntimeProvider,
    servers: Arc<Servers>,
}

impl Provider {
    pub fn new(servers: Arc<Servers>) -> Provider {
        Provider { runtime: TokioRuntimeProvider::default(), servers }
    }
}

impl ConnectionProvider for Provider {
    type Conn = Connection;
    type FutureConn = Connecting<Connection>;
    type RuntimeProvider = TokioRuntimeProvider;

    fn new_connection(
        &self,
        _: IpAddr,
        _: &ConnectionConfig,
        _: &PoolContext,
    ) -> Result<Connecting<Connection>, NetError> {
        Ok(Box::pin(ready(Ok(Connection { servers: self.servers.clone() }))))
    }

    fn runtime_provider(&self) -> &TokioRuntimeProvider {
        &self.runtime
    }
}

/// One connection.
#[derive(Clone)]
pub struct Connection {
    servers: Arc<Servers>,
}

impl DnsHandle for Connection {
    type Response = Pin<Box<dyn Stream<Item = Result<DnsResponse, NetError>> + Send>>;
    type Runtime = TokioRuntimeProvider;

    fn send(&self, request: DnsRequest) -> Self::Response {
        let servers = self.servers.clone();
        Box::pin(once(async move {
            let question = request.queries.first().ok_or("no question")?;
            servers.ask(question).await
        }))
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
