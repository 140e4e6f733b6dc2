//! A TLS session without a socket, which converts between network octets and plain octets.
//!
//! States: handshake, open, closed by the peer, failed. No call blocks. [`SecuredSession::receive`] accepts ciphertext;
//! [`SecuredSession::read`] returns plain octets; [`SecuredSession::write`] accepts plain octets until
//! [`WRITE_BYTES_MAX`] of them are pending in encrypted form; [`SecuredSession::send`] writes those to a socket. After
//! an error only `send` is useful, for the alert to the peer.

use std::io::{self, IoSlice, Read as _, Write as _};
use std::sync::Arc;

use rustls::{Connection, HandshakeKind, ProtocolVersion};

use crate::cause::{TlsError, TlsErrorCause};
use crate::certificate::Certificate;
use crate::verify::{PeerProof, Proof};

/// Maximum plain octets encrypted before the socket accepts them: four records.
pub const WRITE_BYTES_MAX: usize = 64 * 1024;

/// First octets of TLS records: change cipher spec, alert, handshake, application data, heartbeat.
const RECORD_TYPES: std::ops::RangeInclusive<u8> = 0x14..=0x18;

/// Facts about a session whose handshake is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandshakeFacts {
    /// `TLSv1.3` or `TLSv1.2`.
    pub version: &'static str,
    /// Cipher suite with its IANA name: `TLS_AES_256_GCM_SHA384`.
    pub cipher: &'static str,
    /// Key length of the cipher, for `Received` fields.
    pub bits: u16,
    /// Group of the key exchange, as `X25519`.
    pub group: &'static str,
    pub resumed: bool,
    /// Name requested by the client; only known to a server.
    pub server_name: Option<Box<str>>,
    /// The peer's certificate, if it sent one.
    pub peer: Option<Certificate>,
    /// How the peer is proven.
    pub proven: PeerProof,
    /// The protocol that both chose (ALPN).
    pub alpn: Option<Box<[u8]>>,
}

/// Result of reading plain octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlainRead {
    /// Number of octets written to the buffer.
    Octets(usize),
    /// There are none yet.
    Nothing,
    /// The peer has closed TLS properly.
    Closed,
}

#[derive(Debug)]
pub struct SecuredSession {
    connection: Box<Connection>,
    proof: Arc<dyn Proof>,
    /// Whether the first octet, which shows whether the peer uses TLS, has arrived.
    has_begun: bool,
    has_peer_closed: bool,
    /// Number of plain octets that can be read.
    readable: usize,
    facts: Option<Box<HandshakeFacts>>,
    failed: Option<Box<TlsError>>,
}

impl SecuredSession {
    pub(crate) fn new(mut connection: Connection, proof: Arc<dyn Proof>) -> SecuredSession {
        connection.set_buffer_limit(Some(WRITE_BYTES_MAX));
        SecuredSession {
            connection: Box::new(connection),
            proof,
            has_begun: false,
            has_peer_closed: false,
            readable: 0,
            facts: None,
            failed: None,
        }
    }

    /// Processes ciphertext, in pieces of any size; returns how much was accepted: less than all while plain octets
    /// must be read.
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
                // Plain octets must be read first.
                Err(_) if self.readable > 0 => return Ok(bytes.len() - rest.len()),
                Err(error) => return Err(self.fail(TlsError::new(TlsErrorCause::Protocol, error.to_string()))),
            }
        }
        // Data after a close is ignored.
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

    /// Checks whether the first octets are those of TLS.
    fn look(&mut self, bytes: &[u8]) -> Result<(), TlsError> {
        if RECORD_TYPES.contains(&bytes[0]) {
            return Ok(());
        }
        // A hello of SSL 2: a length of 15 bits, then the type 1.
        let error = if bytes[0] & 0x80 != 0 && bytes.get(2) == Some(&1) {
            TlsError::new(TlsErrorCause::NoSharedVersion, "no TLS version in common: the peer started with SSL 2")
        } else {
            TlsError::not_tls(bytes)
        };
        Err(self.fail(error))
    }

    fn fail(&mut self, error: TlsError) -> TlsError {
        self.failed = Some(Box::new(error.clone()));
        error
    }

    /// Reports the end of the socket, which is an error unless the peer has closed TLS before.
    pub fn receive_end(&mut self) -> Result<(), TlsError> {
        if self.has_peer_closed {
            return Ok(());
        }
        if let Some(error) = &self.failed {
            return Err((**error).clone());
        }
        Err(self.fail(TlsError::eof(self.is_handshaking())))
    }

    /// Reads plain octets.
    pub fn read(&mut self, into: &mut [u8]) -> PlainRead {
        if self.readable == 0 || into.is_empty() {
            return if self.has_peer_closed && self.readable == 0 { PlainRead::Closed } else { PlainRead::Nothing };
        }
        match self.connection.reader().read(into) {
            Ok(octets) if octets > 0 => {
                self.readable = self.readable.saturating_sub(octets);
                PlainRead::Octets(octets)
            }
            _ => {
                self.readable = 0;
                PlainRead::Nothing
            }
        }
    }

    /// Number of plain octets that can be read.
    pub fn readable(&self) -> usize {
        self.readable
    }

    /// Encrypts octets; returns how many were accepted: none during the handshake, after an error, and while too much
    /// is pending.
    pub fn write(&mut self, plain: &[u8]) -> usize {
        if self.failed.is_some() || self.is_handshaking() {
            return 0;
        }
        self.connection.writer().write(plain).unwrap_or(0)
    }

    pub fn wants_send(&self) -> bool {
        self.connection.wants_write()
    }

    /// Writes encrypted octets to a socket, until all are accepted (true) or the socket would block (false).
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

    /// Queues the notice that nothing more will be written.
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

    /// `None` before the handshake is complete.
    pub fn facts(&self) -> Option<&HandshakeFacts> {
        self.facts.as_deref()
    }

    /// Frees memory that a burst needed, while a session is idle.
    pub fn rest(&mut self) {
        if self.facts.is_some() && self.failed.is_none() && self.readable == 0 && !self.has_peer_closed {
            // The buffer shrinks before this read, which reads nothing.
            let _ = self.connection.read_tls(&mut EmptyReader);
        }
    }

    /// The channel binding `tls-exporter` (RFC 9266) for SASL. Only with TLS 1.3: a TLS 1.2 session without an
    /// extended master secret provides no binding, and whether it has one is unknown here.
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

    fn look_up_facts(&self) -> HandshakeFacts {
        let chain = self.connection.peer_certificates().unwrap_or_default();
        let server_name = match &*self.connection {
            Connection::Server(connection) => connection.server_name().map(Into::into),
            Connection::Client(_) => None,
        };
        let suite = self.connection.negotiated_cipher_suite();
        let cipher = suite.and_then(|suite| suite.suite().as_str()).unwrap_or("unknown");
        HandshakeFacts {
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

/// Adapts a write function to rustls.
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

/// A reader that never has data.
struct EmptyReader;

impl io::Read for EmptyReader {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}
