//! Readable facts about a certificate: names, issuer, dates, and the hashes used in TLSA records and fingerprints.

use std::net::IpAddr;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};

use crate::der::{Element, Elements, date, tag};

/// Object identifiers in DER.
mod oid {
    pub const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
    pub const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
    pub const UNIT: &[u8] = &[0x55, 0x04, 0x0b];
    pub const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
    pub const AUTHORITY_KEY: &[u8] = &[0x55, 0x1d, 0x23];
    /// 1.2.840.113549.1.1: RSA signatures.
    pub const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
    /// 1.2.840.10045.4.3: ECDSA signatures with a hash of the SHA-2 family.
    pub const ECDSA_SHA2: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03];
    pub const ECDSA_SHA1: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01];
    /// 2.16.840.1.101.3.4.2: hashes.
    pub const HASHES: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02];
}

/// Maximum names kept of a certificate.
const NAMES_MAX: usize = 100;

/// Tag `[0]` of an authority key identifier, primitive.
const KEY_IDENTIFIER: u8 = 0x80;

/// Facts about one certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Domains and addresses of subjectAltName, in order.
    pub names: Vec<Arc<str>>,
    /// Common name of the subject, or else its other parts.
    pub subject: Arc<str>,
    pub issuer: Arc<str>,
    /// Whether issuer and subject are the same.
    pub is_self_issued: bool,
    /// Start of validity, in seconds since 1970.
    pub not_before: i64,
    pub not_after: i64,
    /// SHA-256 of the whole certificate, as printed by `openssl x509 -fingerprint -sha256` and used in a TLSA record
    /// `x 0 1`.
    pub sha256: [u8; 32],
    /// SHA-256 of the public key, as used in a TLSA record `x 1 1`.
    pub key_sha256: [u8; 32],
}

impl Certificate {
    /// Parses a certificate; `None` if it is not one.
    pub fn read(der: &CertificateDer<'_>) -> Option<Certificate> {
        let parts = Parts::of(der)?;
        let mut names = Vec::new();
        if let Some(value) = parts.extension(oid::SUBJECT_ALT_NAME) {
            let mut list = Elements(value).take(tag::SEQUENCE)?.inside();
            while let Some(name) = list.next().filter(|_| names.len() < NAMES_MAX) {
                match name.tag {
                    0x82 => names.push(Arc::from(String::from_utf8_lossy(name.value).to_ascii_lowercase())),
                    0x87 => names.extend(address(name.value).map(|address| Arc::from(address.to_string()))),
                    _ => {}
                }
            }
        }
        Some(Certificate {
            names,
            subject: distinguished(&parts.subject).into(),
            issuer: distinguished(&parts.issuer).into(),
            is_self_issued: parts.issuer.whole == parts.subject.whole,
            not_before: parts.not_before,
            not_after: parts.not_after,
            sha256: Sha256::digest(der).into(),
            key_sha256: Sha256::digest(parts.key.whole).into(),
        })
    }

    /// Whether it is valid for this name: exactly, or by a wildcard for one label (RFC 6125 section 6.4.3).
    pub fn is_for(&self, host: &str) -> bool {
        self.names.iter().any(|name| name_covers(name, host))
    }

    /// The first name below a domain, which is given in lower case with a leading dot.
    pub fn name_below(&self, suffix: &str) -> Option<&str> {
        let is_below =
            |name: &&Arc<str>| suffix.starts_with('.') && name.len() > suffix.len() && name.ends_with(suffix);
        self.names.iter().find(is_below).map(|name| &**name)
    }

    /// Date of expiry, as `2027-01-31`.
    pub fn ends_on(&self) -> String {
        day(self.not_after)
    }
}

/// Formats a day in UTC, as `2027-01-31`.
pub fn day(seconds: i64) -> String {
    let (year, month, day) = date(seconds);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Whether a name in a certificate, which may begin with `*.`, covers this host.
pub(crate) fn name_covers(name: &str, host: &str) -> bool {
    let host = host.trim_end_matches('.');
    match name.strip_prefix("*.") {
        Some(parent) => host.split_once('.').is_some_and(|(label, rest)| {
            !label.is_empty() && parent.contains('.') && rest.eq_ignore_ascii_case(parent)
        }),
        None => host.eq_ignore_ascii_case(name),
    }
}

/// The common name of the subject.
pub(crate) fn common_name(der: &CertificateDer<'_>) -> Option<String> {
    let parts = Parts::of(der)?;
    named_parts(&parts.subject).0
}

/// The public key with its algorithm, which selector 1 of TLSA refers to.
pub(crate) fn public_key<'a>(der: &'a CertificateDer<'_>) -> Option<&'a [u8]> {
    Parts::of(der).map(|parts| parts.key.whole)
}

/// The issuer's name, in encoded form.
pub(crate) fn issuer_name<'a>(der: &'a CertificateDer<'_>) -> Option<&'a [u8]> {
    Parts::of(der).map(|parts| parts.issuer.whole)
}

/// The identifier of the issuer's key (RFC 5280 section 4.2.1.1), and the serial number in encoded form.
pub(crate) fn issuer_key_and_serial<'a>(der: &'a CertificateDer<'_>) -> Option<(&'a [u8], &'a [u8])> {
    let parts = Parts::of(der)?;
    let extension = parts.extension(oid::AUTHORITY_KEY)?;
    let key = Elements(extension).take(tag::SEQUENCE)?.inside().take(KEY_IDENTIFIER)?;
    Some((key.value, parts.serial.value))
}

/// The certificate's hash for `tls-server-end-point` (RFC 5929 section 4.1), by the hash of its signature, with
/// SHA-256 in place of MD5 and SHA-1. `None` if the signature has no hash of its own.
pub(crate) fn end_point(der: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let algorithm = Elements(Parts::of(der)?.signature.value).take(tag::OID)?.value;
    let hash = if let Some(rest) = algorithm.strip_prefix(oid::RSA) {
        match rest {
            [4 | 5 | 11] => Hash::Sha256,
            [12] => Hash::Sha384,
            [13] => Hash::Sha512,
            [10] => pss_hash(der)?,
            _ => return None,
        }
    } else if let Some([hash]) = algorithm.strip_prefix(oid::ECDSA_SHA2) {
        Hash::from_digit(hash.checked_sub(1)?)?
    } else if algorithm == oid::ECDSA_SHA1 {
        Hash::Sha256
    } else {
        return None;
    };
    Some(match hash {
        Hash::Sha256 => Sha256::digest(der).to_vec(),
        Hash::Sha384 => sha2::Sha384::digest(der).to_vec(),
        Hash::Sha512 => sha2::Sha512::digest(der).to_vec(),
    })
}

#[derive(Clone, Copy)]
enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

impl Hash {
    /// The hash for the last digit of the identifier: 1, 2, 3 in both families, 0 or 4 for SHA-224, which is not
    /// supported.
    fn from_digit(digit: u8) -> Option<Hash> {
        match digit {
            1 => Some(Hash::Sha256),
            2 => Some(Hash::Sha384),
            3 => Some(Hash::Sha512),
            _ => None,
        }
    }
}

/// The hash in the parameters of RSASSA-PSS; the default SHA-1 is replaced by SHA-256.
fn pss_hash(der: &CertificateDer<'_>) -> Option<Hash> {
    let mut signature = Parts::of(der)?.signature.inside();
    signature.take(tag::OID)?;
    let Some(parameters) = signature.take(tag::SEQUENCE) else { return Some(Hash::Sha256) };
    let Some(hash) = parameters.inside().take(tag::CONTEXT_0) else { return Some(Hash::Sha256) };
    let name = hash.inside().take(tag::SEQUENCE)?.inside().take(tag::OID)?.value;
    match name.strip_prefix(oid::HASHES) {
        Some([digit]) => Hash::from_digit(*digit),
        _ => Some(Hash::Sha256),
    }
}

/// The parts of a certificate (RFC 5280 section 4.1).
struct Parts<'a> {
    serial: Element<'a>,
    issuer: Element<'a>,
    subject: Element<'a>,
    not_before: i64,
    not_after: i64,
    key: Element<'a>,
    extensions: Option<Element<'a>>,
    /// Signature algorithm.
    signature: Element<'a>,
}

impl<'a> Parts<'a> {
    fn of(der: &'a CertificateDer<'_>) -> Option<Parts<'a>> {
        let mut certificate = Elements(der.as_ref()).take(tag::SEQUENCE)?.inside();
        let mut body = certificate.take(tag::SEQUENCE)?.inside();
        let signature = certificate.take(tag::SEQUENCE)?;
        // Version 1 omits the version.
        body.take(tag::CONTEXT_0);
        let (serial, _algorithm) = (body.next()?, body.take(tag::SEQUENCE)?);
        let issuer = body.take(tag::SEQUENCE)?;
        let mut validity = body.take(tag::SEQUENCE)?.inside();
        let (not_before, not_after) = (validity.next()?.moment()?, validity.next()?.moment()?);
        let subject = body.take(tag::SEQUENCE)?;
        let key = body.take(tag::SEQUENCE)?;
        let mut extensions = None;
        while let Some(element) = body.next() {
            if element.tag == tag::CONTEXT_3 {
                extensions = element.inside().take(tag::SEQUENCE);
            }
        }
        Some(Parts { serial, issuer, subject, not_before, not_after, key, extensions, signature })
    }

    fn extension(&self, name: &[u8]) -> Option<&'a [u8]> {
        let mut list = self.extensions?.inside();
        while let Some(extension) = list.take(tag::SEQUENCE) {
            let mut extension = extension.inside();
            if extension.take(tag::OID)?.value == name {
                extension.take(tag::BOOLEAN);
                return Some(extension.take(tag::OCTET_STRING)?.value);
            }
        }
        None
    }
}

/// Readable form of a name: common name, or unit and organization, or empty.
fn distinguished(name: &Element<'_>) -> String {
    let (common, organization, unit) = named_parts(name);
    match (organization, common.or(unit)) {
        (Some(organization), Some(name)) if organization != name => format!("{name} ({organization})"),
        (organization, name) => name.or(organization).unwrap_or_default(),
    }
}

/// Common name, organization and unit.
fn named_parts(name: &Element<'_>) -> (Option<String>, Option<String>, Option<String>) {
    let (mut common, mut organization, mut unit) = (None, None, None);
    let mut sets = name.inside();
    while let Some(set) = sets.take(tag::SET) {
        let mut pairs = set.inside();
        while let Some(pair) = pairs.take(tag::SEQUENCE) {
            let mut pair = pair.inside();
            let (Some(kind), Some(value)) = (pair.take(tag::OID), pair.next()) else { break };
            match kind.value {
                oid::COMMON_NAME => common = value.text(),
                oid::ORGANIZATION => organization = value.text(),
                oid::UNIT => unit = value.text(),
                _ => {}
            }
        }
    }
    (common, organization, unit)
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).ok()
}
