//! A TLS session without a socket: octets of the network in and out on one side, plain octets on the other.
//!
//! States: handshake, open, closed by the peer, failed. In each call the caller hands in what it has; nothing here waits.
//! [`Secured::receive`] takes ciphertext; [`Secured::read`] gives plain octets; [`Secured::write`] takes plain octets until
//! [`WRITE_BYTES_MAX`] of them wait encrypted; [`Secured::send`] hands those to a socket. After an error only `send` is of use: the
//! alert for the peer.

use std::io::{self, IoSlice, Read as _, Write as _};
use std::sync::Arc;

use rustls::{Connection, HandshakeKind, ProtocolVersion};

use crate::cause::{Cause, TlsError};
use crate::certificate::Certificate;
use crate::verify::{How, Proof};

/// Plain octets that are encrypted before the socket has taken them: four records.
pub const WRITE_BYTES_MAX: usize = 64 * 1024;

/// Begins a TLS record: change cipher spec, alert, handshake, application data, heartbeat.
const RECORD_TYPES: std::ops::RangeInclusive<u8> = 0x14..=0x18;

/// What is known of a session once its handshake is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// `TLSv1.3` or `TLSv1.2`.
    pub version: &'static str,
    /// As IANA names it: `TLS_AES_256_GCM_SHA384`.
    pub cipher: &'static str,
    /// Length of the cipher's key, as `Received` fields have it.
    pub bits: u16,
    /// The group of the key exchange, as `X25519`.
    pub group: &'static str,
    pub resumed: bool,
    /// What the client asked for; known to a server only.
    pub server_name: Option<Box<str>>,
    /// The peer's certificate, if it showed one.
    pub peer: Option<Certificate>,
    /// How the peer is proven.
    pub proven: How,
    /// The protocol that both chose (ALPN).
    pub alpn: Option<Box<[u8]>>,
}

/// What plain octets there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain {
    /// So many were written into the buffer.
    Octets(usize),
    /// None yet.
    Nothing,
    /// The peer has closed TLS as it should.
    Closed,
}

#[derive(Debug)]
pub struct Secured {
    connection: Box<Connection>,
    proof: Arc<dyn Proof>,
    /// Whether an octet has come, from which it is seen whether the peer speaks TLS.
    has_begun: bool,
    has_peer_closed: bool,
    /// Plain octets that can be read.
    readable: usize,
    facts: Option<Box<Facts>>,
    failed: Option<Box<TlsError>>,
}

impl Secured {
    pub(crate) fn new(mut connection: Connection, proof: Arc<dyn Proof>) -> Secured {
        connection.set_buffer_limit(Some(WRITE_BYTES_MAX));
        Secured {
            connection: Box::new(connection),
            proof,
            has_begun: false,
            has_peer_closed: false,
            readable: 0,
            facts: None,
            failed: None,
        }
    }

    /// Takes ciphertext, in pieces of any size; how much of it was taken: less than all while plain octets wait to be read.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<usize, TlsError> {
        if let Some(error) = &self.failed {
            return Err((**error).clone());
        }
        if !self.has_begun && !bytes.is_empty() {
            self.has_begun = true;
            self.look(bytes)?;
        }
        let mut rest = bytes;
        while !rest.is_empty() && !self.has_peer_closed {
            match self.connection.read_tls(&mut rest) {
                Ok(_) => self.process()?,
                // There are plain octets that must be read first.
                Err(_) if self.readable > 0 => return Ok(bytes.len() - rest.len()),
                Err(error) => return Err(self.fail(TlsError::new(Cause::Protocol, error.to_string()))),
            }
        }
        // What follows a close is of no interest.
        Ok(bytes.len())
    }

    fn process(&mut self) -> Result<(), TlsError> {
        let state = match self.connection.process_new_packets() {
            Ok(state) => state,
            Err(error) => return Err(self.fail(TlsError::from(&error))),
        };
        self.readable = state.plaintext_bytes_to_read();
        self.has_peer_closed = state.peer_has_closed();
        if self.facts.is_none() && !self.connection.is_handshaking() {
            self.facts = Some(Box::new(self.look_up_facts()));
        }
        if self.has_peer_closed && self.facts.is_none() {
            return Err(self.fail(TlsError::eof(true)));
        }
        Ok(())
    }

    /// Whether the first octets are those of TLS.
    fn look(&mut self, bytes: &[u8]) -> Result<(), TlsError> {
        if RECORD_TYPES.contains(&bytes[0]) {
            return Ok(());
        }
        // The hello of SSL 2: a length of 15 bits, then the type 1.
        let error = if bytes[0] & 0x80 != 0 && bytes.get(2) == Some(&1) {
            TlsError::new(Cause::NoSharedVersion, "no version of TLS in common: the peer begins with SSL 2")
        } else {
            TlsError::not_tls(bytes)
        };
        Err(self.fail(error))
    }

    fn fail(&mut self, error: TlsError) -> TlsError {
        self.failed = Some(Box::new(error.clone()));
        error
    }

    /// The socket has ended. An error if the peer has not closed TLS before.
    pub fn receive_end(&mut self) -> Result<(), TlsError> {
        if self.has_peer_closed {
            return Ok(());
        }
        if let Some(error) = &self.failed {
            return Err((**error).clone());
        }
        Err(self.fail(TlsError::eof(self.is_handshaking())))
    }

    /// Plain octets that have come.
    pub fn read(&mut self, into: &mut [u8]) -> Plain {
        if self.readable == 0 || into.is_empty() {
            return if self.has_peer_closed && self.readable == 0 { Plain::Closed } else { Plain::Nothing };
        }
        match self.connection.reader().read(into) {
            Ok(octets) if octets > 0 => {
                self.readable = self.readable.saturating_sub(octets);
                Plain::Octets(octets)
            }
            _ => {
                self.readable = 0;
                Plain::Nothing
            }
        }
    }

    /// Plain octets that wait to be read.
    pub fn readable(&self) -> usize {
        self.readable
    }

    /// Encrypts octets; how many were taken. None in the handshake, after an error, and while too much waits to be sent.
    pub fn write(&mut self, plain: &[u8]) -> usize {
        if self.failed.is_some() || self.is_handshaking() {
            return 0;
        }
        self.connection.writer().write(plain).unwrap_or(0)
    }

    pub fn wants_send(&self) -> bool {
        self.connection.wants_write()
    }

    /// Hands what is encrypted to a socket, until all of it is taken (true) or the socket would block (false).
    pub fn send(&mut self, write: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>) -> io::Result<bool> {
        let mut sink = Sink(write);
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut sink) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Announces that nothing more will be written; it is to be sent.
    pub fn close(&mut self) {
        self.connection.send_close_notify();
    }

    pub fn is_handshaking(&self) -> bool {
        self.facts.is_none()
    }

    pub fn has_peer_closed(&self) -> bool {
        self.has_peer_closed
    }

    pub fn failed(&self) -> Option<&TlsError> {
        self.failed.as_deref()
    }

    /// Nothing before the handshake is complete.
    pub fn facts(&self) -> Option<&Facts> {
        self.facts.as_deref()
    }

    /// Gives back memory that a burst needed: for sessions that wait.
    pub fn rest(&mut self) {
        if self.facts.is_some() && self.failed.is_none() && self.readable == 0 && !self.has_peer_closed {
            // The buffer is made small again before the read, which reads nothing.
            let _ = self.connection.read_tls(&mut Blocked);
        }
    }

    /// The channel binding `tls-exporter` (RFC 9266) for SASL. With TLS 1.3 only: whether a session of TLS 1.2 has an extended
    /// master secret, without which it binds nothing, is not known here.
    pub fn exporter(&self) -> Option<[u8; 32]> {
        let is_new = self.connection.protocol_version() == Some(ProtocolVersion::TLSv1_3);
        let value =
            is_new.then(|| self.connection.export_keying_material([0; 32], b"EXPORTER-Channel-Binding", Some(&[])));
        value.and_then(Result::ok)
    }

    /// The channel binding `tls-server-end-point` (RFC 5929 section 4): a hash of the server's certificate.
    pub fn server_end_point(&self) -> Option<Box<[u8]>> {
        self.proof.server_end_point(self.connection.peer_certificates().unwrap_or_default())
    }

    fn look_up_facts(&self) -> Facts {
        let chain = self.connection.peer_certificates().unwrap_or_default();
        let server_name = match &*self.connection {
            Connection::Server(connection) => connection.server_name().map(Into::into),
            Connection::Client(_) => None,
        };
        let suite = self.connection.negotiated_cipher_suite();
        let cipher = suite.and_then(|suite| suite.suite().as_str()).unwrap_or("unknown");
        Facts {
            version: match self.connection.protocol_version() {
                Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
                Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
                _ => "unknown",
            },
            cipher: cipher.strip_prefix("TLS13_").map_or(cipher, tls13_name),
            bits: if cipher.contains("AES_128") { 128 } else { 256 },
            group: self
                .connection
                .negotiated_key_exchange_group()
                .and_then(|group| group.name().as_str())
                .unwrap_or(""),
            resumed: self.connection.handshake_kind() == Some(HandshakeKind::Resumed),
            server_name,
            peer: chain.first().and_then(Certificate::read),
            proven: self.proof.proven(chain),
            alpn: self.connection.alpn_protocol().map(Into::into),
        }
    }
}

/// rustls has names of its own for the suites of TLS 1.3.
fn tls13_name(name: &'static str) -> &'static str {
    match name {
        "AES_128_GCM_SHA256" => "TLS_AES_128_GCM_SHA256",
        "AES_256_GCM_SHA384" => "TLS_AES_256_GCM_SHA384",
        "CHACHA20_POLY1305_SHA256" => "TLS_CHACHA20_POLY1305_SHA256",
        other => other,
    }
}

/// A socket as rustls wants it.
struct Sink<F>(F);

impl<F: FnMut(&[IoSlice<'_>]) -> io::Result<usize>> io::Write for Sink<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.0)(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        (self.0)(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Has nothing to read.
struct Blocked;

impl io::Read for Blocked {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}
