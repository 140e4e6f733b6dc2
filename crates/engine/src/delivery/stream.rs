//! The socket of an outgoing connection: TCP, or a Unix socket of this machine.

use std::io;
use std::net::{IpAddr, SocketAddr};

use stentor_config::Source;
use stentor_queue::site::Endpoint;
use tokio::io::{Interest, Ready};
use tokio::net::{TcpSocket, TcpStream, UnixStream};

pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Connects. By TCP from the source's address of the target's family: one without such an address cannot reach it, since
    /// another, which the system would choose, is not what the operator wants to be seen with.
    pub async fn open(to: &Endpoint, source: Option<&Source>) -> io::Result<Stream> {
        let addr = match to {
            Endpoint::Tcp(addr) => *addr,
            Endpoint::Unix(path) => return UnixStream::connect(&**path).await.map(Stream::Unix),
        };
        let stream = match source {
            None => TcpStream::connect(addr).await?,
            Some(source) => from(source, addr).await?,
        };
        let _ = stream.set_nodelay(true);
        Ok(Stream::Tcp(stream))
    }

    pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        match self {
            Stream::Tcp(stream) => stream.ready(interest).await,
            Stream::Unix(stream) => stream.ready(interest).await,
        }
    }

    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.try_read(buffer),
            Stream::Unix(stream) => stream.try_read(buffer),
        }
    }

    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.try_write(bytes),
            Stream::Unix(stream) => stream.try_write(bytes),
        }
    }
}

async fn from(source: &Source, addr: SocketAddr) -> io::Result<TcpStream> {
    let local = if addr.is_ipv4() { source.v4.map(IpAddr::V4) } else { source.v6.map(IpAddr::V6) };
    let Some(local) = local else {
        let family = if addr.is_ipv4() { "IPv4" } else { "IPv6" };
        return Err(io::Error::other(format!("source {} has no {family} address", source.name)));
    };
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.bind(SocketAddr::new(local, 0))?;
    socket.connect(addr).await
}
