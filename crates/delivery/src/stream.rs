//! The socket of an outgoing connection: TCP, or a Unix socket of this machine; in clear or within TLS.

use std::io;
use std::net::{IpAddr, SocketAddr};

use stentor_config::SourceSettings;
use stentor_queue::site::Endpoint;
use stentor_tls::{HandshakeFacts, RawSocket, SecuredSession, TlsError, TlsErrorCause, TlsSocket};
use tokio::io::{Interest, Ready};
use tokio::net::{TcpSocket, TcpStream, UnixStream};
use tokio::time::Instant;

pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsSocket<TcpStream>>),
    /// A handshake is in progress, or lost the stream.
    Gone,
}

impl Stream {
    /// Connects. TCP uses the source's address of the target's family. A source without one cannot reach the target:
    /// the system would choose another address, which the operator does not want to be seen.
    pub async fn open(to: &Endpoint, source: Option<&SourceSettings>) -> io::Result<Stream> {
        let addr = match to {
            Endpoint::Tcp(addr) | Endpoint::Tls(addr) => *addr,
            Endpoint::Unix(path) => return UnixStream::connect(&**path).await.map(Stream::Unix),
        };
        let stream = match source {
            None => TcpStream::connect(addr).await?,
            Some(source) => from(source, addr).await?,
        };
        let _ = stream.set_nodelay(true);
        Ok(Stream::Tcp(stream))
    }

    /// Performs the handshake and returns its facts.
    pub async fn secure(
        self,
        secured: SecuredSession,
        deadline: Instant,
    ) -> Result<(Stream, Box<HandshakeFacts>), TlsError> {
        let Stream::Tcp(stream) = self else {
            return Err(TlsError::new(TlsErrorCause::Ours, "STARTTLS needs an unencrypted TCP connection"));
        };
        let mut socket = Box::new(TlsSocket::new(stream, secured));
        socket.handshake(deadline).await?;
        match socket.facts().cloned() {
            Some(facts) => Ok((Stream::Tls(socket), Box::new(facts))),
            None => Err(TlsError::new(TlsErrorCause::Protocol, "the handshake ended without a session")),
        }
    }

    /// Returns the TLS session, for channel bindings.
    pub fn secured(&self) -> Option<&SecuredSession> {
        match self {
            Stream::Tls(socket) => Some(socket.secured()),
            _ => None,
        }
    }

    /// Whether the host closed TLS with a close notification. A connection that is merely gone may have been cut by an
    /// attacker.
    pub fn has_host_closed_tls(&self) -> bool {
        self.secured().is_some_and(SecuredSession::has_peer_closed)
    }

    pub async fn ready(&mut self, interest: Interest) -> io::Result<Ready> {
        match self {
            Stream::Tcp(stream) => stream.ready(interest).await,
            Stream::Unix(stream) => stream.ready(interest).await,
            Stream::Tls(socket) => socket.ready(interest).await,
            Stream::Gone => Err(gone()),
        }
    }

    pub fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => RawSocket::try_read(stream, buffer),
            Stream::Unix(stream) => RawSocket::try_read(stream, buffer),
            Stream::Tls(socket) => socket.try_read(buffer),
            Stream::Gone => Err(gone()),
        }
    }

    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.try_write(bytes),
            Stream::Unix(stream) => stream.try_write(bytes),
            Stream::Tls(socket) => socket.try_write(bytes),
            Stream::Gone => Err(gone()),
        }
    }

    /// Closes TLS with a close notification, as far as the socket accepts it at once.
    pub async fn close(&mut self) {
        if let Stream::Tls(socket) = self {
            tokio::select! {
                biased;
                _ = socket.close() => {}
                () = std::future::ready(()) => {}
            }
        }
    }
}

fn gone() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

/// Returns the TLS error in an error of the socket, if there is one.
pub fn tls_error(error: &io::Error) -> Option<&TlsError> {
    error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>())
}

async fn from(source: &SourceSettings, addr: SocketAddr) -> io::Result<TcpStream> {
    let local = if addr.is_ipv4() { source.v4.map(IpAddr::V4) } else { source.v6.map(IpAddr::V6) };
    let Some(local) = local else {
        let family = if addr.is_ipv4() { "IPv4" } else { "IPv6" };
        return Err(io::Error::other(format!("source {} has no {family} address", source.name)));
    };
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.bind(SocketAddr::new(local, 0))?;
    socket.connect(addr).await
}
