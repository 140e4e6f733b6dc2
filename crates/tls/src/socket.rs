//! A TLS session over a socket, with the methods of tokio's sockets: `try_read`, `try_write`, `ready`.
//!
//! Promise: no more is buffered than TLS requires. Octets are read into a buffer of the thread, no more at once than
//! the caller can accept. At most [`WRITE_BYTES_MAX`](crate::secured::WRITE_BYTES_MAX) of written octets are pending
//! in encrypted form, and [`TlsSocket::ready`] sends them while its caller waits for something else. All calls are
//! cancel-safe.

use std::cell::RefCell;
use std::future::Future;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout_at};

use crate::cause::TlsError;
use crate::secured::{HandshakeFacts, PlainRead, SecuredSession};

/// Maximum octets read from the socket at once.
const READ_BYTES_MAX: usize = 64 * 1024;
/// Minimum octets read from the socket, so that a record's header needs no separate call.
const MIN_READ_BYTES: usize = 4 * 1024;
/// Maximum reads in one call that yield no plain octets, after which other sessions get their turn.
const READS_MAX: usize = 16;

thread_local! {
    static CIPHERTEXT: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES_MAX]);
}

/// A non-blocking socket.
pub trait RawSocket: AsFd + Send {
    /// Reads once. A short read means that the socket is empty, so readiness is cleared immediately: the next read
    /// then waits without a system call that returns EAGAIN, as half of all reads did.
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize>;
    fn try_write_vectored(&self, bytes: &[IoSlice<'_>]) -> io::Result<usize>;
    fn ready(&self, interest: Interest) -> impl Future<Output = io::Result<Ready>> + Send;
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

macro_rules! raw_socket {
    ($socket:ty) => {
        impl RawSocket for $socket {
            fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
                let mut read = 0;
                let result = self.try_io(Interest::READABLE, || {
                    read = rustix::io::read(self, &mut *buffer)?;
                    if (1..buffer.len()).contains(&read) { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(read) }
                });
                if read > 0 { Ok(read) } else { result }
            }

            fn try_write_vectored(&self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
                <$socket>::try_write_vectored(self, bytes)
            }

            fn ready(&self, interest: Interest) -> impl Future<Output = io::Result<Ready>> + Send {
                <$socket>::ready(self, interest)
            }

            fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                <$socket>::poll_read_ready(self, cx)
            }

            fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                <$socket>::poll_write_ready(self, cx)
            }
        }
    };
}

raw_socket!(TcpStream);
raw_socket!(UnixStream);

#[derive(Debug)]
pub struct TlsSocket<S> {
    socket: S,
    secured: SecuredSession,
    /// Ciphertext read but not accepted, because plain octets must be read first.
    held: Vec<u8>,
    has_ended: bool,
}

impl<S> TlsSocket<S> {
    /// Moves the session to another form of its socket.
    ///
    /// # Errors
    /// Those of `change`; the session is then lost.
    pub fn change_socket<T>(self, change: impl FnOnce(S) -> io::Result<T>) -> io::Result<TlsSocket<T>> {
        let TlsSocket { socket, secured, held, has_ended } = self;
        Ok(TlsSocket { socket: change(socket)?, secured, held, has_ended })
    }
}

impl<S: RawSocket> TlsSocket<S> {
    /// The handshake is still to be done.
    pub fn new(socket: S, secured: SecuredSession) -> TlsSocket<S> {
        TlsSocket { socket, secured, held: Vec::new(), has_ended: false }
    }

    /// Performs the handshake. After an error the alert for the peer has been sent, if the socket accepted it.
    pub async fn handshake(&mut self, deadline: Instant) -> Result<(), TlsError> {
        match timeout_at(deadline, self.shake_hands()).await {
            Ok(result) => result,
            Err(_) => Err(TlsError::timeout()),
        }
    }

    async fn shake_hands(&mut self) -> Result<(), TlsError> {
        loop {
            let is_sent = self.push()?;
            if is_sent && !self.secured.is_handshaking() {
                return Ok(());
            }
            match self.take_in() {
                Ok(0) => self.secured.receive_end()?,
                Ok(_) => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    let _ = self.push();
                    return Err(error.into());
                }
            }
            let interest = if is_sent { Interest::READABLE } else { Interest::READABLE | Interest::WRITABLE };
            self.socket.ready(interest).await?;
        }
    }

    /// `None` before the handshake is complete.
    pub fn facts(&self) -> Option<&HandshakeFacts> {
        self.secured.facts()
    }

    pub fn secured(&self) -> &SecuredSession {
        &self.secured
    }

    pub fn socket(&self) -> &S {
        &self.socket
    }

    /// Whether the connection ended without closing TLS.
    pub fn was_cut(&self) -> bool {
        self.has_ended && !self.secured.has_peer_closed()
    }

    /// Reads available plain octets; none (`Ok(0)`) at the end. SMTP and HTTP mark the end of messages themselves, so
    /// a missing close of TLS is not an error: see [`TlsSocket::was_cut`].
    pub fn try_read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        let mut filled = 0;
        for _ in 0..READS_MAX {
            filled += self.drain(&mut into[filled..]);
            if filled > 0 {
                return Ok(filled);
            }
            if let Some(error) = self.secured.failed() {
                return Err(error.clone().into());
            }
            if self.has_ended || self.secured.has_peer_closed() {
                return Ok(0);
            }
            match self.take_and_drain(into) {
                Ok((0, _)) => {
                    self.has_ended = true;
                    return Ok(0);
                }
                Ok((_, octets)) => filled = octets,
                Err(error) => {
                    if error.kind() == io::ErrorKind::WouldBlock {
                        self.secured.rest();
                    }
                    return Err(error);
                }
            }
            if filled > 0 {
                return Ok(filled);
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Reads plain octets from data received earlier.
    fn drain(&mut self, into: &mut [u8]) -> usize {
        let mut filled = 0;
        loop {
            while let PlainRead::Octets(octets) = self.secured.read(&mut into[filled..]) {
                filled += octets;
            }
            if self.held.is_empty() || filled == into.len() {
                return filled;
            }
            // An error recurs at the next read.
            let taken = self.secured.receive(&self.held).unwrap_or(self.held.len());
            self.held.drain(..taken);
            if self.held.is_empty() {
                self.held = Vec::new();
            }
        }
    }

    /// Reads once from the socket; returns the octets received, and the plain ones in the buffer.
    fn take_and_drain(&mut self, into: &mut [u8]) -> io::Result<(usize, usize)> {
        CIPHERTEXT.with_borrow_mut(|buffer| {
            let max = into.len().clamp(MIN_READ_BYTES, READ_BYTES_MAX);
            let read = self.socket.try_read(&mut buffer[..max])?;
            let (mut at, mut filled) = (0, 0);
            while at < read {
                match self.secured.receive(&buffer[at..read]) {
                    Ok(taken) => at += taken,
                    // The error recurs after the valid data has been read.
                    Err(_) if filled > 0 => break,
                    Err(error) => {
                        let _ = self.push();
                        return Err(error.into());
                    }
                }
                while let PlainRead::Octets(octets) = self.secured.read(&mut into[filled..]) {
                    filled += octets;
                }
                if filled == into.len() && at < read {
                    self.held.extend_from_slice(&buffer[at..read]);
                    break;
                }
            }
            if self.secured.wants_send()
                && let Err(error) = self.push()
                && filled == 0
            {
                return Err(error);
            }
            Ok((read, filled))
        })
    }

    /// Reads once from the socket during the handshake.
    fn take_in(&mut self) -> io::Result<usize> {
        CIPHERTEXT.with_borrow_mut(|buffer| {
            let read = self.socket.try_read(&mut buffer[..READ_BYTES_MAX])?;
            let taken = self.secured.receive(&buffer[..read])?;
            self.held.extend_from_slice(&buffer[taken..read]);
            Ok(read)
        })
    }

    /// Encrypts and writes; returns how many octets were accepted. They may still be pending in encrypted form:
    /// [`TlsSocket::flush`], the next write and [`TlsSocket::ready`] send them.
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write(bytes, false)
    }

    /// Writes the last octets, together with the close of TLS.
    pub fn try_write_last(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write(bytes, true)
    }

    fn write(&mut self, bytes: &[u8], is_last: bool) -> io::Result<usize> {
        let mut at = 0;
        while self.push()? {
            if at == bytes.len() {
                return Ok(at);
            }
            match self.secured.write(&bytes[at..]) {
                0 => break,
                taken => at += taken,
            }
            if is_last && at == bytes.len() {
                self.secured.close();
            }
        }
        if at == 0 && !bytes.is_empty() {
            return match self.secured.failed() {
                Some(error) => Err(error.clone().into()),
                None => Err(io::ErrorKind::WouldBlock.into()),
            };
        }
        Ok(at)
    }

    /// Writes encrypted octets to the socket; returns whether it accepted all.
    fn push(&mut self) -> io::Result<bool> {
        let socket = &self.socket;
        self.secured.send(|bytes| socket.try_write_vectored(bytes))
    }

    /// Whether a read would succeed without the socket.
    fn has_more(&self) -> bool {
        self.secured.readable() > 0
            || !self.held.is_empty()
            || self.has_ended
            || self.secured.has_peer_closed()
            || self.secured.failed().is_some()
    }

    /// Waits until one of these operations can be tried, and sends pending octets meanwhile.
    pub async fn ready(&mut self, interest: Interest) -> io::Result<Ready> {
        loop {
            if interest.is_readable() && self.has_more() {
                return Ok(Ready::READABLE);
            }
            let is_sending = self.secured.wants_send();
            let asked = if is_sending { interest | Interest::WRITABLE } else { interest };
            let ready = self.socket.ready(asked).await?;
            if is_sending && ready.is_writable() {
                self.push()?;
                if !interest.is_writable() && !ready.is_readable() && !ready.is_read_closed() {
                    continue;
                }
            }
            return Ok(ready);
        }
    }

    pub async fn readable(&mut self) -> io::Result<()> {
        self.ready(Interest::READABLE).await.map(drop)
    }

    pub async fn writable(&mut self) -> io::Result<()> {
        self.ready(Interest::WRITABLE).await.map(drop)
    }

    /// Waits until the socket has accepted everything written.
    pub async fn flush(&mut self) -> io::Result<()> {
        while !self.push()? {
            self.socket.ready(Interest::WRITABLE).await?;
        }
        Ok(())
    }

    /// Closes our side of TLS, once; the socket's own end is separate. The peer's data may still be read.
    pub async fn close(&mut self) -> io::Result<()> {
        self.secured.close();
        self.flush().await
    }
}

impl<S: RawSocket + Unpin> AsyncRead for TlsSocket<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            match self.try_read(into.initialize_unfilled()) {
                Ok(octets) => {
                    into.advance(octets);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    while self.secured.wants_send() && self.socket.poll_write_ready(cx)?.is_ready() {
                        self.push()?;
                    }
                    ready!(self.socket.poll_read_ready(cx))?;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl<S: RawSocket + Unpin> AsyncWrite for TlsSocket<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            match self.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready!(self.socket.poll_write_ready(cx))?,
                result => return Poll::Ready(result),
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.push()? {
            ready!(self.socket.poll_write_ready(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.secured.close();
        ready!(self.as_mut().poll_flush(cx))?;
        Poll::Ready(Ok(rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write)?))
    }
}
