//! `[tls]`: certificates, the minimum version, and client certificates. The files are not read with the
//! configuration, but at the start, at a reload, by `stentor check`, and when they are replaced.

use std::path::{Path, PathBuf};

use stentor_tls::{Files, MinVersion, Part, PinnedHash};

use super::diagnose::{Diagnostic, FilePosition, Severity};
use super::raw::{Context, Section};

const CERTIFICATES_MAX: usize = 1_000;
/// Maximum trusted clients. An entry that is not a hash of 64 digits is a name.
const CLIENTS_MAX: usize = 10_000;

/// Settings of `[tls]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsConfig {
    /// Certificates; the first is the default. If empty, the server creates one.
    pub certificates: Vec<CertificateConfig>,
    pub min_version: MinVersion,
    /// The CAs that sign client certificates.
    pub client_ca_file: Option<CaFile>,
    pub client_certificates: Vec<TrustedClient>,
    pub client_unverified: UnverifiedClients,
}

/// A file of CA certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaFile {
    pub path: PathBuf,
    /// Position of the key that names it.
    pub named_at: FilePosition,
}

impl CaFile {
    pub(super) fn read(section: &Section<'_>, key: &'static str) -> Option<CaFile> {
        let (text, context) = (section.text(key)?, section.context);
        Some(CaFile { path: context.path(text.value), named_at: context.position(&text.span) })
    }
}

/// A client that is trusted by its certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedClient {
    /// A name, `.suffix` for all names below it, or a fingerprint as written; lower case.
    pub text: String,
    /// `None`: it is a name, and a CA must have signed the certificate.
    pub fingerprint: Option<PinnedHash>,
}

/// Treatment of a client whose certificate is not signed by the CAs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnverifiedClients {
    Ignore,
    Refuse,
}

/// Files of one certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateConfig {
    pub files: Files,
    pub chain_at: FilePosition,
    pub key_at: FilePosition,
}

pub(super) fn read(section: Section<'_>) -> TlsConfig {
    #[cfg(test)]
    section.note("certificates", "tables of `chain` and `key`", None);
    let context = section.context;
    let tables = section.tables("certificates");
    if tables.len() > CERTIFICATES_MAX {
        context.error(section.span_of("certificates"), format!("more than {CERTIFICATES_MAX} certificates"));
    }
    let certificates = tables.into_iter().filter_map(certificate).collect();
    let versions = [("1.2", MinVersion::Tls12), ("1.3", MinVersion::Tls13)];
    let min_version = section.choice("min_version", MinVersion::Tls12, &versions);
    let client_ca_file = CaFile::read(&section, "client_ca_file");
    let clients = section.texts("client_certificates").unwrap_or_default();
    if clients.len() > CLIENTS_MAX {
        context.error(section.span_of("client_certificates"), format!("more than {CLIENTS_MAX} names"));
    }
    let words = [("ignore", UnverifiedClients::Ignore), ("refuse", UnverifiedClients::Refuse)];
    let client_unverified = section.choice("client_unverified", UnverifiedClients::Ignore, &words);
    if client_unverified == UnverifiedClients::Refuse && client_ca_file.is_none() {
        let message = "`client_unverified` in [tls] is \"refuse\", but without `client_ca_file` no client can be \
            verified";
        context.error(section.span_of("client_unverified"), message);
    }
    let client_certificates =
        clients.iter().filter_map(|text| client(context, text, client_ca_file.is_some())).collect();
    section.finish();
    TlsConfig { certificates, min_version, client_ca_file, client_certificates, client_unverified }
}

fn certificate(table: Section<'_>) -> Option<CertificateConfig> {
    let context = table.context;
    let chain = table.required("chain", "/etc/ssl/mx.example.org/fullchain.pem");
    let key = table.required("key", "/etc/ssl/mx.example.org/privkey.pem");
    table.finish();
    let (chain, key) = (chain?, key?);
    Some(CertificateConfig {
        files: Files { chain: context.path(chain.value), key: context.path(key.value) },
        chain_at: context.position(&chain.span),
        key_at: context.position(&key.span),
    })
}

/// Parses a name, or the SHA-256 of a certificate or its key.
fn client(context: &Context<'_>, text: &super::diagnose::Spot<&str>, has_ca: bool) -> Option<TrustedClient> {
    if text.value.is_empty() {
        context.error(text.span.clone(), "a name or fingerprint of a client's certificate must not be empty");
        return None;
    }
    let lower = text.value.to_ascii_lowercase();
    let fingerprint = fingerprint(&lower);
    if let Some(parent) = lower.strip_prefix("*.") {
        let message = format!("{:?} never matches: write \".{parent}\" for all names below {parent}", text.value);
        context.error(text.span.clone(), message);
        return None;
    }
    if lower.starts_with('.')
        && let Err(error) = stentor_tls_policy::HostPattern::parse(&lower)
    {
        context.error(text.span.clone(), format!("{:?} is not a valid domain after the dot: {error}", text.value));
        return None;
    }
    if fingerprint.is_none() && !has_ca {
        let message = format!(
            "{:?} is not a fingerprint (SHA-256, 64 hexadecimal digits), and names need a CA: set `client_ca_file` in \
             [tls]",
            text.value
        );
        context.error(text.span.clone(), message);
    }
    Some(TrustedClient { text: lower, fingerprint })
}

/// Parses a fingerprint. The prefix `key:` or `cert:` states what was hashed; without one either may match.
fn fingerprint(text: &str) -> Option<PinnedHash> {
    type Kind = fn([u8; 32]) -> PinnedHash;
    let kinds: [(&str, Kind); 3] =
        [("key:", PinnedHash::PublicKey), ("cert:", PinnedHash::Certificate), ("", PinnedHash::Either)];
    let (digits, kind) = kinds.into_iter().find_map(|(prefix, kind)| Some((text.strip_prefix(prefix)?, kind)))?;
    stentor_tls_policy::Fingerprint::parse(digits).ok().map(|hash| kind(hash.0))
}

impl TlsConfig {
    pub fn files(&self) -> Vec<Files> {
        self.certificates.iter().map(|certificate| certificate.files.clone()).collect()
    }

    /// Position of the key that names a certificate's file.
    pub(super) fn position(&self, index: usize, part: Part) -> FilePosition {
        let position = |certificate: &CertificateConfig| match part {
            Part::Chain => certificate.chain_at,
            Part::Key => certificate.key_at,
        };
        self.certificates.get(index).map(position).unwrap_or_default()
    }

    pub(super) fn diagnostic(
        file: Option<&Path>,
        position: FilePosition,
        severity: Severity,
        message: String,
    ) -> Diagnostic {
        let FilePosition { line, column } = position;
        Diagnostic { file: file.unwrap_or(Path::new("")).to_owned(), line, column, severity, message }
    }
}
