//! Proof by name and CA (RFC 5280, RFC 6125), using webpki.

use rustls::CertificateError;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};

use super::roots::Roots;
use crate::cause::{TlsError, TlsErrorCause};
use crate::certificate::{Certificate, day};
use crate::{provider, provider_arc};

/// Maximum names of a certificate shown in an error.
const SHOWN_MAX: usize = 5;

/// Returns the name for which the certificate is proven.
pub(super) fn verify(
    leaf: &CertificateDer<'_>,
    others: &[CertificateDer<'_>],
    roots: &Roots,
    names: &[Box<str>],
    now: UnixTime,
) -> Result<Box<str>, TlsError> {
    signed(leaf, others, roots, now)?;
    named(leaf, names)
}

/// Whether one of the CAs has signed it, possibly through the other certificates.
fn signed(
    leaf: &CertificateDer<'_>,
    others: &[CertificateDer<'_>],
    roots: &Roots,
    now: UnixTime,
) -> Result<(), TlsError> {
    if roots.has_pinned(leaf) {
        return in_time(leaf, now);
    }
    let explained = |error: rustls::Error| explain(&error, leaf, others, now);
    let parsed = ParsedCertificate::try_from(leaf).map_err(explained)?;
    let algorithms = provider().signature_verification_algorithms.all;
    verify_server_cert_signed_by_trust_anchor(&parsed, &roots.store, others, now, algorithms).map_err(explained)
}

/// Explains an error to the person who must fix it: webpki reports only the last problem that it met.
fn explain(error: &rustls::Error, leaf: &CertificateDer<'_>, others: &[CertificateDer<'_>], now: UnixTime) -> TlsError {
    let Some(facts) = Certificate::read(leaf) else { return error.into() };
    if let Err(error) = in_time(leaf, now) {
        return error;
    }
    if facts.is_self_issued {
        return TlsError::new(
            TlsErrorCause::SelfSigned,
            format!("the certificate of {} is self-signed", facts.subject),
        );
    }
    // A trusted CA has that name but another key, so there is no chain to it either.
    let is_unknown = matches!(
        error,
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature)
    );
    if !is_unknown {
        return error.into();
    }
    let last = others.last().and_then(Certificate::read).unwrap_or(facts);
    let text = if others.is_empty() {
        format!(
            "the certificate's issuer, {}, is not trusted, and the peer sent no intermediate certificate",
            last.issuer
        )
    } else {
        format!("the certificate's issuer, {}, is not trusted", last.issuer)
    };
    TlsError::new(TlsErrorCause::UnknownIssuer, text)
}

pub(super) fn in_time(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), TlsError> {
    let Some(facts) = Certificate::read(certificate) else {
        return Err(TlsError::new(TlsErrorCause::BadCertificate, "the certificate is malformed"));
    };
    let now = now.as_secs().cast_signed();
    if now > facts.not_after {
        let text = format!("the certificate of {} expired on {}", facts.subject, day(facts.not_after));
        return Err(TlsError::new(TlsErrorCause::Expired, text));
    }
    if now < facts.not_before {
        let text = format!("the certificate of {} is not valid before {}", facts.subject, day(facts.not_before));
        return Err(TlsError::new(TlsErrorCause::NotYetValid, text));
    }
    Ok(())
}

/// The first of our names that the certificate contains.
pub(super) fn named(leaf: &CertificateDer<'_>, names: &[Box<str>]) -> Result<Box<str>, TlsError> {
    let parsed = ParsedCertificate::try_from(leaf).map_err(|error| TlsError::from(&error))?;
    let facts = Certificate::read(leaf);
    let is_for = |name: &str| match name.strip_prefix('.') {
        Some(domain) => facts.as_ref().is_some_and(|facts| facts.names.iter().any(|name| is_below(name, domain))),
        None => ServerName::try_from(name).is_ok_and(|name| rustls::client::verify_server_name(&parsed, &name).is_ok()),
    };
    if let Some(name) = names.iter().find(|name| is_for(name)) {
        return Ok(name.clone());
    }
    let has = facts.map(|facts| facts.names).unwrap_or_default();
    let more = if has.len() > SHOWN_MAX { ", ..." } else { "" };
    let has = if has.is_empty() { "no name".to_owned() } else { has[..has.len().min(SHOWN_MAX)].join(", ") };
    let text = format!("the certificate is for {has}{more}, not for {}", names.join(" or "));
    Err(TlsError::new(TlsErrorCause::WrongName, text))
}

/// Whether a certificate's name is a host below the domain.
fn is_below(name: &str, domain: &str) -> bool {
    let name =
        name.strip_prefix("*.").map_or(name, |parent| if parent.eq_ignore_ascii_case(domain) { name } else { parent });
    let at = name.len().checked_sub(domain.len() + 1);
    at.is_some_and(|at| at > 0 && name.as_bytes()[at] == b'.' && name[at + 1..].eq_ignore_ascii_case(domain))
}

/// The subject of a client's certificate, or else its first name, if one of the CAs has signed it.
pub(crate) fn is_client_of(chain: &[CertificateDer<'_>], roots: &Roots, now: UnixTime) -> Result<Box<str>, TlsError> {
    let Some((leaf, others)) = chain.split_first() else {
        return Err(TlsError::new(TlsErrorCause::NoCertificate, "the client presented no certificate"));
    };
    if roots.has_pinned(leaf) {
        in_time(leaf, now)?;
    } else {
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.store.clone(), provider_arc())
            .build()
            .map_err(|error| TlsError::new(TlsErrorCause::UnknownIssuer, error.to_string()))?;
        verifier.verify_client_cert(leaf, others, now).map_err(|error| explain(&error, leaf, others, now))?;
    }
    let facts = Certificate::read(leaf)
        .ok_or_else(|| TlsError::new(TlsErrorCause::BadCertificate, "the certificate is malformed"))?;
    let name = if facts.subject.is_empty() { facts.names.first() } else { Some(&facts.subject) };
    Ok(name.map_or("", |name| name).into())
}
