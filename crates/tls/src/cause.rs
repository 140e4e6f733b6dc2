//! Why TLS failed, or why a peer is not proven: a cause for machines, and a sentence for people.

use std::fmt;
use std::io;

use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible, PeerMisbehaved};

use crate::certificate::day;

/// A fixed set of causes, for counters and decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TlsErrorCause {
    /// The certificate expired.
    Expired,
    NotYetValid,
    /// The certificate is for other names.
    WrongName,
    /// The certificate is self-signed and unknown.
    SelfSigned,
    UnknownIssuer,
    Revoked,
    /// A signature, in the chain or of the handshake, is wrong or uses an unacceptable algorithm.
    BadSignature,
    /// The certificate cannot be parsed, or is for another purpose.
    BadCertificate,
    /// The peer sent no certificate.
    NoCertificate,
    /// None of the fingerprints matches this certificate.
    WrongFingerprint,
    /// No TLSA record matches this certificate.
    NoTlsaMatch,
    /// The domain's published policy forbids the use of the host now.
    Policy,
    NoSharedVersion,
    NoSharedCipher,
    /// The peer answered in plain text.
    NotTls,
    /// The peer violated the protocol.
    Protocol,
    /// The peer ended the session with this alert.
    Alert(u8),
    /// The connection ended unexpectedly: during the handshake, or without closing TLS.
    UnexpectedEof,
    Timeout,
    /// The socket failed.
    Io(io::ErrorKind),
    /// No proof was requested.
    NotAsked,
    /// Our own settings, random numbers or clock failed.
    Ours,
}

impl TlsErrorCause {
    /// Name in records, metrics and JSON.
    pub fn key(self) -> &'static str {
        match self {
            TlsErrorCause::Expired => "expired",
            TlsErrorCause::NotYetValid => "not-yet-valid",
            TlsErrorCause::WrongName => "wrong-name",
            TlsErrorCause::SelfSigned => "self-signed",
            TlsErrorCause::UnknownIssuer => "unknown-issuer",
            TlsErrorCause::Revoked => "revoked",
            TlsErrorCause::BadSignature => "bad-signature",
            TlsErrorCause::BadCertificate => "bad-certificate",
            TlsErrorCause::NoCertificate => "no-certificate",
            TlsErrorCause::WrongFingerprint => "wrong-fingerprint",
            TlsErrorCause::NoTlsaMatch => "no-tlsa-match",
            TlsErrorCause::Policy => "policy",
            TlsErrorCause::NoSharedVersion => "no-shared-version",
            TlsErrorCause::NoSharedCipher => "no-shared-cipher",
            TlsErrorCause::NotTls => "not-tls",
            TlsErrorCause::Protocol => "protocol",
            TlsErrorCause::Alert(_) => "alert",
            TlsErrorCause::UnexpectedEof => "unexpected-eof",
            TlsErrorCause::Timeout => "timeout",
            TlsErrorCause::Io(_) => "io",
            TlsErrorCause::NotAsked => "not-asked",
            TlsErrorCause::Ours => "ours",
        }
    }
}

/// Maximum length of the text: parts of it come from the peer, such as names in its certificate, which are unlimited.
const TEXT_BYTES_MAX: usize = 1_024;

/// A failure: its cause, and a description for people, on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsError {
    pub cause: TlsErrorCause,
    pub text: Box<str>,
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for TlsError {}

impl TlsError {
    pub fn new(cause: TlsErrorCause, text: impl Into<Box<str>>) -> TlsError {
        let text = text.into();
        if text.len() <= TEXT_BYTES_MAX && !text.chars().any(char::is_control) {
            return TlsError { cause, text };
        }
        let (kept, more) = match text.floor_char_boundary(TEXT_BYTES_MAX) {
            all if all == text.len() => (all, ""),
            cut => (cut, "..."),
        };
        let text: String = text[..kept].chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        TlsError { cause, text: (text + more).into() }
    }

    pub(crate) fn eof(in_handshake: bool) -> TlsError {
        let text = if in_handshake {
            "the peer closed the connection during the TLS handshake"
        } else {
            "the connection ended without a TLS close; the last data may be truncated"
        };
        TlsError::new(TlsErrorCause::UnexpectedEof, text)
    }

    /// Text arrived where a TLS record was expected; the beginning of it is shown.
    pub(crate) fn not_tls(bytes: &[u8]) -> TlsError {
        const SHOWN_BYTES: usize = 60;
        let line = bytes.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
        let shown = line[..line.len().min(SHOWN_BYTES)].escape_ascii();
        TlsError::new(TlsErrorCause::NotTls, format!("the peer does not speak TLS: it sent \"{shown}\""))
    }

    pub(crate) fn timeout() -> TlsError {
        TlsError::new(TlsErrorCause::Timeout, "the TLS handshake was not completed in time")
    }
}

impl From<io::Error> for TlsError {
    fn from(error: io::Error) -> TlsError {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>()) {
            Some(inner) => inner.clone(),
            None => TlsError::new(TlsErrorCause::Io(error.kind()), error.to_string()),
        }
    }
}

impl From<TlsError> for io::Error {
    fn from(error: TlsError) -> io::Error {
        let kind = match error.cause {
            TlsErrorCause::Io(kind) => kind,
            TlsErrorCause::UnexpectedEof => io::ErrorKind::UnexpectedEof,
            TlsErrorCause::Timeout => io::ErrorKind::TimedOut,
            _ => io::ErrorKind::InvalidData,
        };
        io::Error::new(kind, error)
    }
}

impl From<&Error> for TlsError {
    fn from(error: &Error) -> TlsError {
        let (cause, text) = match error {
            Error::InvalidCertificate(error) => return of_certificate(error),
            Error::AlertReceived(alert) => return of_alert(*alert),
            Error::PeerIncompatible(why) => return incompatible(why),
            Error::NoCertificatesPresented => {
                (TlsErrorCause::NoCertificate, "the peer presented no certificate".to_owned())
            }
            Error::NoApplicationProtocol => {
                (TlsErrorCause::Protocol, "no protocol (ALPN) in common with the peer".to_owned())
            }
            Error::PeerMisbehaved(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme) => (
                TlsErrorCause::BadSignature,
                "the peer signed the handshake with an algorithm that was not offered".to_owned(),
            ),
            Error::InvalidMessage(_)
            | Error::InappropriateMessage { .. }
            | Error::InappropriateHandshakeMessage { .. }
            | Error::PeerMisbehaved(_)
            | Error::DecryptError
            | Error::PeerSentOversizedRecord => (
                TlsErrorCause::Protocol,
                format!("the peer violated the TLS protocol: {}", humanize_variant(&error.to_string())),
            ),
            _ => (TlsErrorCause::Ours, format!("TLS: {}", humanize_variant(&error.to_string()))),
        };
        TlsError::new(cause, text)
    }
}

#[allow(deprecated, reason = "rustls keeps an older form of an unsupported signature")]
fn of_certificate(error: &CertificateError) -> TlsError {
    use CertificateError as Why;
    if let Why::Other(other) = error
        && let Some(own) = other.0.downcast_ref::<TlsError>()
    {
        return own.clone();
    }
    let (cause, text) = match error {
        Why::ExpiredContext { not_after, .. } => {
            (TlsErrorCause::Expired, format!("the certificate expired on {}", day(not_after.as_secs().cast_signed())))
        }
        Why::Expired => (TlsErrorCause::Expired, "the certificate has expired".to_owned()),
        Why::NotValidYetContext { not_before, .. } => {
            let from = day(not_before.as_secs().cast_signed());
            (TlsErrorCause::NotYetValid, format!("the certificate is not valid before {from}"))
        }
        Why::NotValidYet => (TlsErrorCause::NotYetValid, "the certificate is not valid yet".to_owned()),
        Why::NotValidForName | Why::NotValidForNameContext { .. } => {
            (TlsErrorCause::WrongName, "the certificate is for another name".to_owned())
        }
        Why::UnknownIssuer => (TlsErrorCause::UnknownIssuer, "the certificate's issuer is not trusted".to_owned()),
        Why::Revoked => (TlsErrorCause::Revoked, "the certificate was revoked".to_owned()),
        Why::BadSignature => {
            (TlsErrorCause::BadSignature, "a signature of the certificate or the handshake is invalid".to_owned())
        }
        Why::UnsupportedSignatureAlgorithm
        | Why::UnsupportedSignatureAlgorithmContext { .. }
        | Why::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => (
            TlsErrorCause::BadSignature,
            "a signature of the certificate or the handshake uses an unaccepted algorithm, or its key is too short"
                .to_owned(),
        ),
        Why::InvalidPurpose | Why::InvalidPurposeContext { .. } => {
            (TlsErrorCause::BadCertificate, "the certificate is for another purpose".to_owned())
        }
        Why::BadEncoding => (TlsErrorCause::BadCertificate, "the certificate is malformed".to_owned()),
        _ => (TlsErrorCause::BadCertificate, format!("the certificate was not accepted: {}", certificate_words(error))),
    };
    TlsError::new(cause, text)
}

/// Describes why a certificate is not accepted.
pub(crate) fn certificate_words(error: &CertificateError) -> String {
    let CertificateError::Other(other) = error else { return humanize_variant(&error.to_string()) };
    match other.0.downcast_ref::<webpki::Error>() {
        Some(webpki::Error::UnsupportedCertVersion) => {
            "it is not X.509 version 3; reissue it with its names in subjectAltName".to_owned()
        }
        _ => humanize_variant(&other.0.to_string()),
    }
}

/// Converts variant names in messages of rustls to words: `UnsupportedCertVersion(..)`.
fn humanize_variant(text: &str) -> String {
    let mut words = String::with_capacity(text.len() + 16);
    let mut before = ' ';
    for c in text.chars() {
        let c = if c.is_alphanumeric() || ".,:;-'".contains(c) { c } else { ' ' };
        if c.is_uppercase() && before.is_lowercase() {
            words.push(' ');
        }
        if c != ' ' || !words.ends_with(' ') {
            words.push(c);
        }
        before = c;
    }
    words.trim().to_lowercase()
}

fn of_alert(alert: AlertDescription) -> TlsError {
    let number = u8::from(alert);
    let name = alert_name(number);
    match alert {
        AlertDescription::ProtocolVersion => TlsError::new(
            TlsErrorCause::NoSharedVersion,
            "no TLS version in common: the peer sent alert protocol_version",
        ),
        AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity => TlsError::new(
            TlsErrorCause::NoSharedCipher,
            format!("the peer sent alert {name}: most likely no cipher suite, key exchange or signature in common"),
        ),
        _ => TlsError::new(TlsErrorCause::Alert(number), format!("the peer ended TLS with alert {name} ({number})")),
    }
}

fn incompatible(why: &PeerIncompatible) -> TlsError {
    use PeerIncompatible as Why;
    match why {
        Why::ServerDoesNotSupportTls12Or13
        | Why::ServerTlsVersionIsDisabledByOurConfig
        | Why::SupportedVersionsExtensionRequired
        // A ClientHello must contain it since TLS 1.2 (RFC 5246 7.4.1.4.1), and cannot before.
        | Why::SignatureAlgorithmsExtensionRequired
        | Why::Tls12NotOffered
        | Why::Tls12NotOfferedOrEnabled => {
            TlsError::new(TlsErrorCause::NoSharedVersion, "no TLS version in common: the peer supports only older ones")
        }
        _ => {
            let why = humanize_variant(&format!("{why:?}"));
            let text = format!("no cipher suite, key exchange or signature in common with the peer: {why}");
            TlsError::new(TlsErrorCause::NoSharedCipher, text)
        }
    }
}

/// Name of an alert in RFC 8446 section 6.
fn alert_name(number: u8) -> &'static str {
    match number {
        0 => "close_notify",
        10 => "unexpected_message",
        20 => "bad_record_mac",
        21 => "decryption_failed",
        22 => "record_overflow",
        40 => "handshake_failure",
        42 => "bad_certificate",
        43 => "unsupported_certificate",
        44 => "certificate_revoked",
        45 => "certificate_expired",
        46 => "certificate_unknown",
        47 => "illegal_parameter",
        48 => "unknown_ca",
        49 => "access_denied",
        50 => "decode_error",
        51 => "decrypt_error",
        70 => "protocol_version",
        71 => "insufficient_security",
        80 => "internal_error",
        86 => "inappropriate_fallback",
        90 => "user_canceled",
        100 => "no_renegotiation",
        109 => "missing_extension",
        110 => "unsupported_extension",
        112 => "unrecognized_name",
        113 => "bad_certificate_status_response",
        115 => "unknown_psk_identity",
        116 => "certificate_required",
        120 => "no_application_protocol",
        _ => "of unknown kind",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_certificates_are_words() {
        let other = |error| CertificateError::Other(rustls::OtherError(std::sync::Arc::new(error)));
        let old = certificate_words(&other(webpki::Error::UnsupportedCertVersion));
        assert!(old.starts_with("it is not X.509 version 3; "), "{old}");
        let text = of_certificate(&other(webpki::Error::MalformedExtensions)).text;
        assert_eq!(&*text, "the certificate was not accepted: malformed extensions");
        let text = TlsError::from(&Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon)).text;
        assert!(text.ends_with("with the peer: no cipher suites in common"), "{text}");
        for error in [CertificateError::ApplicationVerificationFailure, CertificateError::UnhandledCriticalExtension] {
            let text = of_certificate(&error).text;
            assert!(!text.contains(['(', ')', '{', '}', '"']) && !text.chars().any(char::is_uppercase), "{text}");
        }
    }

    /// The text is stored with hosts and messages, and logged in lines.
    #[test]
    fn a_peers_words_are_one_line_of_some_length() {
        let text = |text: &str| TlsError::new(TlsErrorCause::WrongName, text).text;
        assert_eq!(&*text("the certificate is for a.test"), "the certificate is for a.test");
        assert_eq!(&*text("for a\r\nX: y\u{1b}[2J, not"), "for a  X: y [2J, not");
        let long = text(&"\u{e9}x".repeat(20_000));
        assert!(long.len() <= TEXT_BYTES_MAX + 3 && long.ends_with("x..."), "{long}");
    }
}
