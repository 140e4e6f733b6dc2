//! `[auth]`: who may log in, and how.

use std::path::PathBuf;

use ipnet::IpNet;
use stentor_sasl::{Mechanism, Mechanisms};
use stentor_users::{LIMIT_KEYS, Limits};

use super::raw::Section;

/// Longest path of a Unix socket (`sun_path` without its NUL).
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Sender addresses that a login may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnSenders {
    /// Its own addresses, in the envelope and in From.
    Both,
    Envelope,
    /// Any address.
    Any,
}

/// Service that checks logins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthSource {
    /// Our own file of users.
    Users(PathBuf),
    /// Client socket of Dovecot's auth service.
    Dovecot(PathBuf),
}

/// Settings of `[auth]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthConfig {
    /// `None`: nobody can log in.
    pub source: Option<AuthSource>,
    /// Clients that may log in without TLS.
    pub clear_networks: Vec<IpNet>,
    /// Mechanisms offered, if the session permits them.
    pub mechanisms: Mechanisms,
    pub own_senders: OwnSenders,
    /// `Received` of users' mail contains the user name.
    pub user_in_received: bool,
    /// `Received` of users' mail contains the client's HELO name and address.
    pub client_in_received: bool,
    /// Default limits of users.
    pub limits: Limits,
}

pub(super) fn auth(section: Section<'_>, networks: impl Fn(&Section<'_>, &'static str) -> Vec<IpNet>) -> AuthConfig {
    let path = |key| section.text(key).filter(|path| !path.value.is_empty());
    let source = match (path("users"), path("dovecot")) {
        (Some(users), Some(_)) => {
            section.context.error(users.span, "`users` and `dovecot` are both set: only one may decide who can log in");
            Some(AuthSource::Users(section.context.path(users.value)))
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
        clear_networks: networks(&section, "clear_networks"),
        mechanisms: mechanisms(&section, source.as_ref()),
        own_senders: section.choice(
            "own_senders",
            OwnSenders::Both,
            &[("both", OwnSenders::Both), ("envelope", OwnSenders::Envelope), ("any", OwnSenders::Any)],
        ),
        user_in_received: section.flag("user_in_received", false),
        client_in_received: section.flag("client_in_received", true),
        limits: Limits::new(
            LIMIT_KEYS.map(|key| section.maybe_number(key, 0..=u32::MAX.into()).map(|number| number as u32)),
        ),
        source,
    };
    section.finish();
    config
}

/// Reads the mechanisms; the default is all that the source can check. Only Dovecot can check tokens.
fn mechanisms(section: &Section<'_>, source: Option<&AuthSource>) -> Mechanisms {
    let is_own = !matches!(source, Some(AuthSource::Dovecot(_)));
    let served = Mechanisms::served();
    let Some(named) = section.some_texts("mechanisms") else {
        return served.iter().filter(|mechanism| !is_own || !mechanism.takes_token()).collect();
    };
    let mut mechanisms = Mechanisms::NONE;
    for text in named {
        match text.value.parse::<Mechanism>().ok().filter(|mechanism| served.has(*mechanism)) {
            Some(mechanism) if is_own && mechanism.takes_token() => {
                section.context.error(text.span, format!("{mechanism} needs `dovecot`, which checks the tokens"));
            }
            Some(mechanism) if mechanisms.has(mechanism) => {
                section.context.error(text.span, format!("{mechanism} appears twice"));
            }
            Some(mechanism) => mechanisms = mechanisms.with(mechanism),
            None => {
                let message = format!("{:?} is not a supported mechanism; supported: {served:#}", text.value);
                section.context.error(text.span, message);
            }
        }
    }
    mechanisms
}
