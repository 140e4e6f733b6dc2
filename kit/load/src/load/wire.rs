//! A connection's octets, in clear or by TLS (rustls itself and not `stentor-tls`, so that the two cannot share a
//! mistake).
//!
//! States: clear → handshake → secured. [`Wire::secure`] begins the handshake; [`Wire::take_secured`] is true once,
//! when it is over. Certificates are not judged, but the signature of each handshake is verified, as every client does.
//! Without `resumes` each session has a full handshake. Failure: what the peer does wrong is an I/O error with rustls'
//! words.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, ClientConnection, Resumption};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

/// Whether and how a session is encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum Tls {
    #[default]
    Off,
    /// By STARTTLS (RFC 3207); where it is not offered the session fails.
    Starttls,
    /// From the first octet (RFC 8314).
    Implicit,
}

pub(super) enum Wire {
    Clear(TcpStream),
    Secured(Box<Secured>),
}

pub(super) struct Secured {
    stream: TcpStream,
    session: ClientConnection,
    is_announced: bool,
}

impl Wire {
    pub fn stream(&self) -> &TcpStream {
        match self {
            Wire::Clear(stream) => stream,
            Wire::Secured(secured) => &secured.stream,
        }
    }

    /// A read that fills less than the buffer has taken all that the socket had.
    pub fn is_clear(&self) -> bool {
        matches!(self, Wire::Clear(_))
    }

    /// Begins the handshake.
    pub fn secure(self, config: &Arc<ClientConfig>, host: IpAddr) -> io::Result<Wire> {
        let Wire::Clear(stream) = self else { return Ok(self) };
        let name = ServerName::IpAddress(host.into());
        let session = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
        let mut secured = Secured { stream, session, is_announced: false };
        secured.push()?;
        Ok(Wire::Secured(Box::new(secured)))
    }

    /// Whether the handshake has ended since this was last asked.
    pub fn take_secured(&mut self) -> bool {
        let Wire::Secured(secured) = self else { return false };
        let is_new = !secured.is_announced && !secured.session.is_handshaking();
        secured.is_announced |= is_new;
        is_new
    }

    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Wire::Clear(stream) => stream.read(buffer),
            Wire::Secured(secured) => secured.read(buffer),
        }
    }

    pub fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Wire::Clear(stream) => stream.write_vectored(slices),
            Wire::Secured(secured) => {
                secured.push()?;
                if secured.session.wants_write() {
                    return Err(ErrorKind::WouldBlock.into());
                }
                let taken = secured.session.writer().write_vectored(slices)?;
                secured.push()?;
                Ok(taken)
            }
        }
    }

    /// What could not be written before, once the socket takes more.
    pub fn push(&mut self) -> io::Result<()> {
        match self {
            Wire::Clear(_) => Ok(()),
            Wire::Secured(secured) => secured.push(),
        }
    }
}

impl Secured {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.session.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                other => return other,
            }
            if self.session.read_tls(&mut self.stream)? == 0 {
                return Ok(0);
            }
            let processed = self.session.process_new_packets();
            // The rest of the handshake, or the alert that says what is wrong.
            self.push()?;
            processed.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        }
    }

    /// As much as the socket takes.
    fn push(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut self.stream) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// For all sessions of a worker.
pub(super) fn config(resumes: bool) -> io::Result<Arc<ClientConfig>> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = Arc::new(SignatureOnly(provider.clone()));
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    if !resumes {
        config.resumption = Resumption::disabled();
    }
    Ok(Arc::new(config))
}

/// Whoever has the certificate's key is let in.
#[derive(Debug)]
struct SignatureOnly(Arc<CryptoProvider>);

impl ServerCertVerifier for SignatureOnly {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
