//! The socket of a sink's connection, in clear or within TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::line::LINGER;
use crate::tls::{self, Tls};

/// A handshake that lasts longer is the client's fault.
const HANDSHAKE: Duration = Duration::from_secs(30);

pub(super) enum Wire {
    Clear(TcpStream),
    Secured(Box<TlsStream<TcpStream>>),
    /// Lost in a handshake.
    Gone,
}

impl Wire {
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Wire::Clear(stream) => stream.try_write(bytes),
            Wire::Secured(stream) => {
                let mut context = Context::from_waker(Waker::noop());
                let written = Pin::new(&mut *stream).poll_write(&mut context, bytes);
                let _ = Pin::new(stream).poll_flush(&mut context)?;
                match written {
                    Poll::Ready(written) => written,
                    Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
                }
            }
            Wire::Gone => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Until more can be written.
    pub async fn writable(&mut self) -> io::Result<()> {
        match self {
            Wire::Clear(stream) => stream.writable().await,
            Wire::Secured(stream) => stream.flush().await,
            Wire::Gone => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    pub fn poll_read(&mut self, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Wire::Clear(stream) => Pin::new(stream).poll_read(context, into),
            Wire::Secured(stream) => {
                // What the socket did not take before.
                let _ = Pin::new(&mut *stream).poll_flush(context)?;
                Pin::new(stream).poll_read(context, into)
            }
            Wire::Gone => Poll::Ready(Ok(())),
        }
    }

    pub async fn shutdown(&mut self) -> io::Result<()> {
        match self {
            Wire::Clear(stream) => stream.shutdown().await,
            Wire::Secured(stream) => stream.shutdown().await,
            Wire::Gone => Ok(()),
        }
    }

    /// To be closed with RST.
    pub fn reset(&self) -> io::Result<()> {
        let stream = match self {
            Wire::Clear(stream) => stream,
            Wire::Secured(stream) => stream.get_ref().0,
            Wire::Gone => return Ok(()),
        };
        socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO))
    }

    /// Does what a host of this kind does when a client begins a handshake. Whether the session goes on.
    pub async fn secure(&mut self, kind: Tls, host: &str) -> io::Result<bool> {
        let Wire::Clear(mut stream) = std::mem::replace(self, Wire::Gone) else { return Ok(false) };
        if let Some(config) = tls::config(kind, host) {
            let accepted = timeout(HANDSHAKE, TlsAcceptor::from(config).accept(stream)).await;
            let stream = accepted.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
            *self = Wire::Secured(Box::new(stream));
            return Ok(kind != Tls::CloseAfter);
        }
        let mut hello = [0; 4096];
        if stream.read(&mut hello).await? == 0 {
            return Ok(false);
        }
        match kind {
            Tls::Silent => while stream.read(&mut hello).await? > 0 {},
            Tls::Reset => socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))?,
            _ => {
                stream.write_all(kind.answer()).await?;
                stream.shutdown().await?;
                let drained = async { while stream.read(&mut hello).await.is_ok_and(|count| count > 0) {} };
                let _ = timeout(LINGER, drained).await;
            }
        }
        Ok(false)
    }
}
