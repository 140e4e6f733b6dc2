//! Proof by TLSA records: RFC 6698, with RFC 7671 and RFC 7672 for mail.
//!
//! Usage 3 (DANE-EE): the certificate itself; its names and dates do not matter (RFC 7671 section 5.1). Usage 2
//! (DANE-TA): a certificate above it, or a key that signed one of them; names and dates matter (section 5.2). Usages
//! 0 and 1 are not for mail (RFC 7672 section 3.1.3), and unknown values are ignored (RFC 7671 section 10.1 defines
//! them as unusable).

use std::fmt;

use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime};
use sha2::{Digest as _, Sha256, Sha512};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use super::chain::{in_time, named};
use crate::cause::{TlsError, TlsErrorCause};
use crate::certificate::{Certificate, common_name, name_covers, public_key};
use crate::der::{Elements, tag};
use crate::provider;

/// Maximum paths tried in one handshake. Each may take as many signatures as webpki allows, on a thread that also
/// handles mail, and the peer chooses the number of records and certificates.
const PATHS_MAX: u32 = 16;

/// A TLSA record as in the DNS.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TlsaRecord {
    pub usage: u8,
    pub selector: u8,
    pub matching: u8,
    pub data: Box<[u8]>,
}

impl fmt::Display for TlsaRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} ", self.usage, self.selector, self.matching)?;
        self.data.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

/// Usage of the record that matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TlsaUse {
    TrustAnchor,
    EndEntity,
}

impl TlsaRecord {
    /// Whether it can be used for mail: its values are known, and the length fits its hash.
    pub fn is_usable(&self) -> bool {
        let is_length_right = match self.matching {
            0 => !self.data.is_empty(),
            1 => self.data.len() == 32,
            2 => self.data.len() == 64,
            _ => false,
        };
        matches!(self.usage, 2 | 3) && self.selector <= 1 && is_length_right
    }

    /// The record `3 1 1`: the hash of a key (`SubjectPublicKeyInfo`, DER).
    pub fn of_key(key: &[u8]) -> TlsaRecord {
        TlsaRecord { usage: 3, selector: 1, matching: 1, data: Sha256::digest(key).as_slice().into() }
    }

    /// Whether the record matches exactly the certificates with this key (`SubjectPublicKeyInfo`, DER).
    pub fn is_of_key(&self, key: &[u8]) -> bool {
        (self.usage, self.selector) == (3, 1) && self.has(key)
    }

    fn is_of(&self, certificate: &CertificateDer<'_>) -> bool {
        let selected: Option<&[u8]> = match self.selector {
            0 => Some(certificate.as_ref()),
            1 => public_key(certificate),
            _ => None,
        };
        selected.is_some_and(|selected| self.has(selected))
    }

    fn has(&self, selected: &[u8]) -> bool {
        match self.matching {
            0 => selected == &*self.data,
            1 => Sha256::digest(selected).as_slice() == &*self.data,
            2 => Sha512::digest(selected).as_slice() == &*self.data,
            _ => false,
        }
    }
}

pub(crate) fn verify(
    leaf: &CertificateDer<'_>,
    others: &[CertificateDer<'_>],
    records: &[TlsaRecord],
    names: &[Box<str>],
    now: UnixTime,
) -> Result<TlsaUse, TlsError> {
    let usable = || records.iter().filter(|record| record.is_usable());
    if usable().any(|record| record.usage == 3 && record.is_of(leaf)) {
        return Ok(TlsaUse::EndEntity);
    }
    // The error if no record matches; if one matches and its chain then fails, that error is more specific.
    let mut why =
        TlsError::new(TlsErrorCause::NoTlsaMatch, "no TLSA record matches the certificate or one of its issuers");
    let mut chain = Chain { leaf, others, paths_left: PATHS_MAX };
    for record in usable().filter(|record| record.usage == 2) {
        for anchor in others.iter().filter(|other| record.is_of(other)) {
            match by_anchor(&mut chain, anchor, names, now) {
                Ok(()) => return Ok(TlsaUse::TrustAnchor),
                Err(error) => why = error,
            }
        }
        if record.matching == 0 {
            match by_data(&mut chain, record, names, now) {
                Some(Ok(())) => return Ok(TlsaUse::TrustAnchor),
                Some(Err(error)) => why = error,
                None => {}
            }
        }
    }
    Err(why)
}

/// The certificates of a host in one handshake.
struct Chain<'a> {
    leaf: &'a CertificateDer<'a>,
    /// The other certificates that the host sent.
    others: &'a [CertificateDer<'a>],
    /// Number of paths that may still be tried.
    paths_left: u32,
}

/// Proof by a certificate that a record matches. Its dates count, as in OpenSSL and so in Postfix.
fn by_anchor(
    chain: &mut Chain<'_>,
    anchor: &CertificateDer<'_>,
    names: &[Box<str>],
    now: UnixTime,
) -> Result<(), TlsError> {
    let trusted = anchor_from_trusted_cert(anchor)
        .map_err(|_| TlsError::new(TlsErrorCause::BadCertificate, "the trust anchor's certificate is malformed"))?;
    path(chain, &trusted, now)?;
    in_time(anchor, now)?;
    named_at_all(chain.leaf, names)
}

/// Proof by a complete certificate or key that is in the record but not in the chain.
fn by_data(
    chain: &mut Chain<'_>,
    record: &TlsaRecord,
    names: &[Box<str>],
    now: UnixTime,
) -> Option<Result<(), TlsError>> {
    if record.selector == 0 {
        let anchor = CertificateDer::from(&*record.data);
        return Some(by_anchor(chain, &anchor, names, now));
    }
    let key = Elements(&record.data).take(tag::SEQUENCE)?.value;
    // The key has no name, so it is tried as the issuer's key of each certificate.
    let proven = [chain.leaf].into_iter().chain(chain.others).any(|signed| {
        let Ok(signed) = EndEntityCert::try_from(signed) else { return false };
        let anchor = TrustAnchor {
            subject: signed.issuer().into(),
            subject_public_key_info: key.into(),
            name_constraints: None,
        };
        path(chain, &anchor, now).is_ok()
    });
    proven.then(|| named_at_all(chain.leaf, names))
}

fn path(chain: &mut Chain<'_>, anchor: &TrustAnchor<'_>, now: UnixTime) -> Result<(), TlsError> {
    chain.paths_left = chain.paths_left.checked_sub(1).ok_or_else(|| {
        let text = format!("more than {PATHS_MAX} combinations of TLSA record and certificate to try");
        TlsError::new(TlsErrorCause::NoTlsaMatch, text)
    })?;
    let unreadable = |_| TlsError::new(TlsErrorCause::BadCertificate, "the certificate is malformed");
    let parsed = EndEntityCert::try_from(chain.leaf).map_err(unreadable)?;
    let algorithms = provider().signature_verification_algorithms.all;
    let anchors = std::slice::from_ref(anchor);
    match parsed.verify_for_usage(algorithms, anchors, chain.others, now, KeyUsage::server_auth(), None, None) {
        Ok(_) => Ok(()),
        Err(error) => {
            in_time(chain.leaf, now)?;
            let text = format!("the certificate does not chain to the trust anchor of the TLSA record: {error}");
            Err(TlsError::new(TlsErrorCause::UnknownIssuer, text))
        }
    }
}

/// Checks the names, or without any the common name, as RFC 7672 section 3.2.3 allows and OpenSSL does.
fn named_at_all(leaf: &CertificateDer<'_>, names: &[Box<str>]) -> Result<(), TlsError> {
    let common = Certificate::read(leaf).filter(|facts| facts.names.is_empty()).and_then(|_| common_name(leaf));
    if common.is_some_and(|common| names.iter().any(|name| name_covers(&common, name))) {
        return Ok(());
    }
    named(leaf, names).map(drop)
}
