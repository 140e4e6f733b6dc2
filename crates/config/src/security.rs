//! `[auth]`: who may log in, and how.

use std::path::PathBuf;

use ipnet::IpNet;

use super::raw::Section;

/// Longest path of a Unix socket (`sun_path` without its NUL).
const SOCKET_PATH_BYTES_MAX: usize = 107;
/// As [`AuthConfig::mechanisms`] has them, best first; those that take tokens are Dovecot's to check.
const MECHANISMS: [&str; 6] = ["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256", "OAUTHBEARER", "XOAUTH2", "PLAIN", "LOGIN"];
const OF_DOVECOT: [&str; 2] = ["OAUTHBEARER", "XOAUTH2"];

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
