//! `[tls]` and `[auth]`: who we are, and who may log in.

use std::path::PathBuf;

use ipnet::IpNet;
use stentor_mail::address::normalise_domain;

use super::raw::Section;

/// Certificates of a configuration.
const CERTIFICATES_MAX: usize = 1_000;
/// Names of clients that prove themselves by a certificate.
const CLIENT_NAMES_MAX: usize = 1_000;
/// Longest path of a Unix socket (`sun_path` without its NUL).
const SOCKET_PATH_BYTES_MAX: usize = 107;
/// As [`AuthConfig::mechanisms`] has them, best first; those that take tokens are Dovecot's to check.
const MECHANISMS: [&str; 6] = ["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256", "OAUTHBEARER", "XOAUTH2", "PLAIN", "LOGIN"];
const OF_DOVECOT: [&str; 2] = ["OAUTHBEARER", "XOAUTH2"];

/// The oldest version of TLS that is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsVersion {
    Tls12,
    Tls13,
}

/// A certificate with those that lead to its CA, and its key: PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    pub chain: PathBuf,
    pub key: PathBuf,
}

/// `[tls]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsConfig {
    /// None: a self-signed one is made.
    pub certificates: Vec<CertificateFiles>,
    pub min_version: TlsVersion,
    /// Whose certificates clients may show.
    pub client_ca: Option<PathBuf>,
    /// Names in them that stand for a client network.
    pub client_certificates: Vec<String>,
}

/// What a login may have as a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnSenders {
    /// Its own addresses, in the envelope and in From.
    Both,
    Envelope,
    /// Any.
    Any,
}

/// Who says who may log in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthSource {
    /// Our own file of users.
    Users(PathBuf),
    /// Dovecot's socket for clients of its auth service.
    Dovecot(PathBuf),
}

/// `[auth]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthConfig {
    /// None: nobody can log in.
    pub source: Option<AuthSource>,
    /// Clients that may log in without TLS.
    pub allow_clear_networks: Vec<IpNet>,
    /// Names, best first.
    pub mechanisms: Vec<&'static str>,
    pub own_senders: OwnSenders,
}

pub(super) fn tls(section: Section<'_>) -> TlsConfig {
    let mut certificates: Vec<CertificateFiles> = Vec::new();
    for entry in section.tables("certificates") {
        let files = (entry.required("chain", "fullchain.pem"), entry.required("key", "privkey.pem"));
        if let (Some(chain), Some(key)) = files {
            let files = CertificateFiles { chain: entry.context.path(chain.value), key: entry.context.path(key.value) };
            if certificates.contains(&files) || certificates.len() == CERTIFICATES_MAX {
                let message = format!("this certificate is there twice, or there are more than {CERTIFICATES_MAX}");
                entry.context.error(entry.span.clone(), message);
            } else {
                certificates.push(files);
            }
        }
        entry.finish();
    }
    let min_version =
        section.choice("min_version", TlsVersion::Tls12, &[("1.2", TlsVersion::Tls12), ("1.3", TlsVersion::Tls13)]);
    let client_ca = section.text("client_ca").filter(|path| !path.value.is_empty());
    let client_ca = client_ca.map(|path| section.context.path(path.value));
    let mut client_certificates = Vec::new();
    for text in section.texts("client_certificates").unwrap_or_default() {
        match normalise_domain(text.value) {
            Ok(name) if client_certificates.len() < CLIENT_NAMES_MAX => client_certificates.push(name),
            _ => {
                let message = format!(
                    "{:?} is no name of a certificate, such as \"mx.example.org\"; at most {CLIENT_NAMES_MAX}",
                    text.value
                );
                section.context.error(text.span, message);
            }
        }
    }
    if client_ca.is_none() && !client_certificates.is_empty() {
        let span = section.span_of("client_certificates");
        section.context.error(span, "`client_certificates` prove nothing without `client_ca`, the CA that signs them");
    }
    section.finish();
    TlsConfig { certificates, min_version, client_ca, client_certificates }
}

pub(super) fn auth(section: Section<'_>, networks: impl Fn(&Section<'_>, &'static str) -> Vec<IpNet>) -> AuthConfig {
    let path = |key| section.text(key).filter(|path| !path.value.is_empty());
    let source = match (path("users"), path("dovecot")) {
        (Some(users), Some(_)) => {
            section.context.error(users.span, "`users` and `dovecot` are both there: one of them says who may log in");
            None
        }
        (Some(users), None) => Some(AuthSource::Users(section.context.path(users.value))),
        (None, Some(socket)) => {
            let path = section.context.path(socket.value);
            if path.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
                let message = format!("a path of a Unix socket has at most {SOCKET_PATH_BYTES_MAX} octets");
                section.context.error(socket.span, message);
            }
            Some(AuthSource::Dovecot(path))
        }
        (None, None) => None,
    };
    let config = AuthConfig {
        allow_clear_networks: networks(&section, "allow_clear_networks"),
        mechanisms: mechanisms(&section, source.as_ref()),
        own_senders: section.choice(
            "own_senders",
            OwnSenders::Both,
            &[("both", OwnSenders::Both), ("envelope", OwnSenders::Envelope), ("any", OwnSenders::Any)],
        ),
        source,
    };
    section.finish();
    config
}

/// All that the source can check, unless some are named.
fn mechanisms(section: &Section<'_>, source: Option<&AuthSource>) -> Vec<&'static str> {
    let is_own = !matches!(source, Some(AuthSource::Dovecot(_)));
    let named = section.some_texts("mechanisms");
    let Some(named) = named else {
        return MECHANISMS.into_iter().filter(|name| !is_own || !OF_DOVECOT.contains(name)).collect();
    };
    let mut mechanisms = Vec::new();
    for text in named {
        match MECHANISMS.into_iter().find(|name| name.eq_ignore_ascii_case(text.value)) {
            Some(name) if is_own && OF_DOVECOT.contains(&name) => {
                section.context.error(text.span, format!("{name} takes `dovecot`: tokens are checked there"));
            }
            Some(name) if mechanisms.contains(&name) => {
                section.context.error(text.span, format!("{name} is there twice"));
            }
            Some(name) => mechanisms.push(name),
            None => {
                let message = format!("{:?} is no mechanism; there are {}", text.value, MECHANISMS.join(", "));
                section.context.error(text.span, message);
            }
        }
    }
    mechanisms.sort_by_key(|name| MECHANISMS.iter().position(|other| other == name));
    mechanisms
}
