//! A client's connection, in clear or secured, with the same methods.
//!
//! Promise: once a session has requested TLS, its socket is never read or written in clear again, whether the handshake
//! succeeds or not.

use std::io;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use stentor_tls::{Acceptor, HandshakeFacts, RawSocket, TlsError, TlsSocket};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// When the kernel acknowledges what the client sends (tcp(7), `TCP_QUICKACK`).
///
/// A client that writes a body in several small pieces sends the third only once the first is acknowledged (Nagle's
/// algorithm, RFC 9293 section 3.7.4), and the kernel delays that for 40 ms after each of our replies. mlmmj is such a
/// client. So a session that waits for the rest of something acknowledges what it has: one system call at most between
/// two of our replies, and none for a client whose commands and body are complete when they are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Acks {
    /// Nothing has been read since our last reply.
    #[default]
    Delayed,
    /// Something has been read.
    Owed,
    /// Sent at once until our next reply.
    AtOnce,
}

pub enum Socket {
    Clear(TcpStream),
    Secured(Box<TlsSocket<TcpStream>>),
    /// A handshake could not begin.
    Gone,
}

/// A client's connection that is not registered with a runtime.
pub enum DetachedSocket {
    Clear(std::net::TcpStream),
    Secured(Box<TlsSocket<std::net::TcpStream>>),
}

impl DetachedSocket {
    /// Registers the connection with the caller's runtime.
    pub fn attach(self) -> io::Result<Socket> {
        Ok(match self {
            DetachedSocket::Clear(socket) => Socket::Clear(TcpStream::from_std(socket)?),
            DetachedSocket::Secured(socket) => Socket::Secured(Box::new(socket.change_socket(TcpStream::from_std)?)),
        })
    }
}

impl Socket {
    /// Removes the connection from its runtime.
    pub fn detach(&mut self) -> io::Result<DetachedSocket> {
        Ok(match std::mem::replace(self, Socket::Gone) {
            Socket::Clear(socket) => DetachedSocket::Clear(socket.into_std()?),
            Socket::Secured(socket) => DetachedSocket::Secured(Box::new(socket.change_socket(TcpStream::into_std)?)),
            Socket::Gone => return Err(gone()),
        })
    }

    fn tcp(&self) -> io::Result<&TcpStream> {
        match self {
            Socket::Clear(socket) => Ok(socket),
            Socket::Secured(socket) => Ok(socket.socket()),
            Socket::Gone => Err(gone()),
        }
    }

    /// Performs the handshake; afterwards all reads and writes use TLS.
    pub async fn secure(&mut self, server: &Acceptor, deadline: Instant) -> Result<(), TlsError> {
        let Socket::Clear(socket) = std::mem::replace(self, Socket::Gone) else { return Err(gone().into()) };
        let mut socket = Box::new(TlsSocket::new(socket, server.begin()?));
        let done = socket.handshake(deadline).await;
        if done.is_ok() {
            *self = Socket::Secured(socket);
        }
        done
    }

    /// Acknowledges what was read, and until the next write whatever is read. A socket that cannot do so only costs
    /// time.
    pub fn acknowledge(&self) {
        if let Ok(socket) = self.tcp() {
            let _ = rustix::net::sockopt::set_tcp_quickack(socket, true);
        }
    }

    /// Returns the TLS facts of a secured connection.
    pub fn facts(&self) -> Option<&HandshakeFacts> {
        match self {
            Socket::Secured(socket) => socket.facts(),
            _ => None,
        }
    }

    /// Returns the TLS socket of a secured connection.
    pub fn tls(&self) -> Option<&TlsSocket<TcpStream>> {
        match self {
            Socket::Secured(socket) => Some(socket),
            _ => None,
        }
    }

    pub fn is_secured(&self) -> bool {
        matches!(self, Socket::Secured(_))
    }

    pub fn try_read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Clear(socket) => RawSocket::try_read(socket, into),
            Socket::Secured(socket) => socket.try_read(into),
            Socket::Gone => Err(gone()),
        }
    }

    /// Reads and drops raw octets from the client. Asks the socket itself: the runtime may not know yet that there are
    /// any.
    pub fn discard(&self, into: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(self.tcp()?, into)?)
    }

    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Clear(socket) => socket.try_write(bytes),
            Socket::Secured(socket) => socket.try_write(bytes),
            Socket::Gone => Err(gone()),
        }
    }

    /// Writes the last octets of the connection.
    pub fn try_write_last(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Secured(socket) => socket.try_write_last(bytes),
            _ => self.try_write(bytes),
        }
    }

    pub async fn readable(&mut self) -> io::Result<()> {
        match self {
            Socket::Clear(socket) => socket.readable().await,
            Socket::Secured(socket) => socket.readable().await,
            Socket::Gone => Err(gone()),
        }
    }

    pub async fn writable(&mut self) -> io::Result<()> {
        match self {
            Socket::Clear(socket) => socket.writable().await,
            Socket::Secured(socket) => socket.writable().await,
            Socket::Gone => Err(gone()),
        }
    }

    /// Waits until the kernel has taken all that was written.
    pub async fn flush(&mut self) -> io::Result<()> {
        match self {
            Socket::Secured(socket) => socket.flush().await,
            _ => Ok(()),
        }
    }

    /// Ends TLS, if there is any; the connection ends when this is dropped.
    pub async fn close(&mut self) -> io::Result<()> {
        match self {
            Socket::Secured(socket) => socket.close().await,
            _ => Ok(()),
        }
    }

    /// Whether the client has sent unread octets.
    pub fn has_input(&self) -> bool {
        // Asks the socket itself: the runtime may not know yet that there is something to read.
        let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
        let mut octet = [0u8; 1];
        self.tcp().is_ok_and(|socket| matches!(rustix::net::recv(socket, &mut octet, flags), Ok((1, _))))
    }

    /// Whether the client has closed its side of the connection, whatever it sent before.
    pub fn has_left(&self) -> bool {
        let Ok(socket) = self.tcp() else { return true };
        let mut polled = [PollFd::new(socket, PollFlags::RDHUP)];
        matches!(poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1..))
    }
}

fn gone() -> io::Error {
    io::ErrorKind::NotConnected.into()
}
