//! TLS of a sink: certificates of a CA of the lab's own, good and bad ones, and what a broken server does in place of a
//! handshake. Made of rustls and not of `stentor-tls`, so that the two cannot share a mistake.
//!
//! The CA is made once in a process; [`ca_pem`] is what a client must trust to find a good sink proven.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::{SystemTime, UNIX_EPOCH};

use base64ct::{Base64, Encoding as _};
use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose, PublicKeyData as _,
};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;

const DAY_S: i64 = 86_400;

/// What comes of STARTTLS at a host that offers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tls {
    /// A certificate of the lab's CA for the host's name.
    Good,
    SelfSigned,
    Expired,
    NotYetValid,
    /// Of the CA, for another name.
    WrongName,
    /// The handshake is good; then the connection is closed without a word.
    CloseAfter,
    /// Good, with octets in clear behind the 220 (CVE-2021-38371).
    Inject,
    /// The client's hello is answered by an alert: no version in common.
    OldVersion,
    /// By an alert: no cipher in common.
    NoCipher,
    /// By text.
    Plain,
    /// By octets that are no TLS.
    Garbage,
    /// By the end of the connection.
    Eof,
    Reset,
    /// By nothing.
    Silent,
}

impl Tls {
    /// The certificate of those that make a handshake.
    fn certificate(self) -> Option<Tls> {
        match self {
            Tls::Good | Tls::CloseAfter | Tls::Inject => Some(Tls::Good),
            Tls::SelfSigned | Tls::Expired | Tls::NotYetValid | Tls::WrongName => Some(self),
            _ => None,
        }
    }

    /// What answers the client's hello where there is no handshake; nothing: silence, or the end of the connection.
    pub(crate) fn answer(self) -> &'static [u8] {
        match self {
            // Alerts, fatal: protocol_version, handshake_failure (RFC 8446 section 6.2).
            Tls::OldVersion => b"\x15\x03\x01\x00\x02\x02\x46",
            Tls::NoCipher => b"\x15\x03\x01\x00\x02\x02\x28",
            Tls::Plain => b"500 5.5.1 what was that?\r\n",
            Tls::Garbage => b"\x00\xff\x80garbage\x00",
            _ => b"",
        }
    }
}

/// Settings, and the SHA-256 of the key.
type ServerIdentity = (Arc<ServerConfig>, String);

struct Ca {
    issuer: CertifiedIssuer<'static, KeyPair>,
    configs: Mutex<HashMap<(Tls, String), ServerIdentity>>,
}

static CA: LazyLock<Ca> = LazyLock::new(|| {
    let mut params = params(&[], "Lab CA", (-10, 100));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let issuer = CertifiedIssuer::self_signed(params, key()).expect("a CA can be made");
    Ca { issuer, configs: Mutex::default() }
});

/// The certificate of the lab's CA.
pub fn ca_pem() -> String {
    pem("CERTIFICATE", CA.issuer.der())
}

/// A certificate and key in PEM for a name, of the lab's CA: for other people's servers.
pub fn certificate_pem(name: &str) -> (String, String) {
    let key = key();
    let signed = params(&[name], name, (-1, 90)).signed_by(&key, &CA.issuer).expect("a certificate can be made");
    (pem("CERTIFICATE", signed.der()) + &ca_pem(), pem("PRIVATE KEY", key.serialized_der()))
}

fn pem(label: &str, der: &[u8]) -> String {
    const COLUMNS: usize = 64;
    let text = Base64::encode_string(der);
    let lines: String =
        text.as_bytes().chunks(COLUMNS).map(|line| String::from_utf8_lossy(line).into_owned() + "\n").collect();
    format!("-----BEGIN {label}-----\n{lines}-----END {label}-----\n")
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key can be made")
}

/// `days`: from when until when, from now.
fn params(names: &[&str], common_name: &str, days: (i64, i64)) -> CertificateParams {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed());
    let moment = |days: i64| OffsetDateTime::from_unix_timestamp(now + days * DAY_S).expect("a date of our time");
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("names of hosts");
    params.distinguished_name.push(DnType::CommonName, common_name);
    (params.not_before, params.not_after) = (moment(days.0), moment(days.1));
    params
}

/// The `3 1 1` TLSA data of a host: the SHA-256 of its key; nothing if it makes no handshake.
pub fn key_sha256(kind: Tls, host: &str) -> Option<String> {
    made(kind, host).map(|(_, hash)| hash)
}

/// The settings of a host of this name; nothing if it makes no handshake.
pub(crate) fn config(kind: Tls, host: &str) -> Option<Arc<ServerConfig>> {
    made(kind, host).map(|(config, _)| config)
}

fn made(kind: Tls, host: &str) -> Option<ServerIdentity> {
    let kind = kind.certificate()?;
    let mut configs = CA.configs.lock();
    let config = configs.entry((kind, host.to_owned())).or_insert_with(|| {
        let key = key();
        let name = if kind == Tls::WrongName { "other.example" } else { host };
        let days = match kind {
            Tls::Expired => (-90, -1),
            Tls::NotYetValid => (1, 90),
            _ => (-1, 90),
        };
        let params = params(&[name], name, days);
        let certificate =
            if kind == Tls::SelfSigned { params.self_signed(&key) } else { params.signed_by(&key, &CA.issuer) };
        let chain: Vec<CertificateDer<'static>> = vec![certificate.expect("a certificate can be made").der().clone()];
        let hash = Sha256::digest(key.subject_public_key_info());
        let hash = hash.iter().fold(String::new(), |text, octet| text + &format!("{octet:02x}"));
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key of PKCS 8");
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("a certificate with its key");
        (Arc::new(config), hash)
    });
    Some(config.clone())
}
