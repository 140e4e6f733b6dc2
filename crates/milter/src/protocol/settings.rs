//! Configuration of a milter.

use std::fmt;
use std::path::PathBuf;

/// Address of a milter or of another service: `inet:HOST:PORT` and `unix:PATH`, as in Postfix; `inet:PORT@HOST` and
/// `local:PATH`, as in sendmail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceAddress {
    Inet { host: String, port: u16 },
    Unix(PathBuf),
}

impl ServiceAddress {
    /// Parses an address; `None`: it has none of these forms.
    pub fn parse(text: &str) -> Option<ServiceAddress> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "unix" | "local" => rest.starts_with('/').then(|| ServiceAddress::Unix(rest.into())),
            "inet" | "inet6" => {
                let (host, port) = match rest.split_once('@') {
                    Some((port, host)) => (host, port),
                    None => rest.rsplit_once(':')?,
                };
                let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
                let port = port.parse().ok().filter(|port| *port > 0)?;
                let is_host = |octet: u8| octet.is_ascii_alphanumeric() || b".-_:".contains(&octet);
                (!host.is_empty() && host.bytes().all(is_host))
                    .then(|| ServiceAddress::Inet { host: host.to_owned(), port })
            }
            _ => None,
        }
    }
}

impl fmt::Display for ServiceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServiceAddress::Inet { host, port } if host.contains(':') => write!(f, "inet:[{host}]:{port}"),
            ServiceAddress::Inet { host, port } => write!(f, "inet:{host}:{port}"),
            ServiceAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Action on a message if its milter fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// The milter is ignored.
    Accept,
    /// Reply 451 4.7.1.
    Tempfail,
    /// Reply 550 5.7.1.
    Reject,
}

/// Kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// There is no connection, or none was attempted since the last failures.
    Unreachable,
    /// There was no answer in time.
    Timeout,
    /// It closed the connection, or violates the protocol.
    Broken,
}

/// The mail that a milter sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// Mail of SMTP clients; if there are listeners, only of clients that connect to one of them.
    pub smtp: bool,
    pub listeners: Vec<std::net::SocketAddr>,
    /// Mail of local programs (sendmail) and from HTTP.
    pub local: bool,
}

/// Settings of one of `[[milters]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MilterSettings {
    pub name: String,
    pub place: ServiceAddress,
    pub scope: Scope,
    pub on_unreachable: OnFailure,
    pub on_timeout: OnFailure,
    pub on_error: OnFailure,
    pub connect_timeout_ms: u64,
    /// Timeout of answers before the message's content, including the negotiation.
    pub command_timeout_ms: u64,
    /// Timeout of answers to each part of the content and to its end.
    pub content_timeout_ms: u64,
    /// Whether a connection is reused for several clients' sessions.
    pub reuse: bool,
    /// Whether header and body are sent without waiting for each answer.
    pub pipelining: bool,
    /// Value of the macro `{daemon_name}`.
    pub daemon_name: String,
}

impl MilterSettings {
    pub fn action(&self, failure: FailureKind) -> OnFailure {
        match failure {
            FailureKind::Unreachable => self.on_unreachable,
            FailureKind::Timeout => self.on_timeout,
            FailureKind::Broken => self.on_error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        for (text, shown) in [
            ("inet:127.0.0.1:8891", "inet:127.0.0.1:8891"),
            ("inet:8891@localhost", "inet:localhost:8891"),
            ("inet:[::1]:8891", "inet:[::1]:8891"),
            ("inet6:8891@::1", "inet:[::1]:8891"),
            ("unix:/run/opendkim/opendkim.sock", "unix:/run/opendkim/opendkim.sock"),
            ("local:/run/x", "unix:/run/x"),
        ] {
            assert_eq!(ServiceAddress::parse(text).unwrap().to_string(), shown);
        }
        for bad in [
            "",
            "127.0.0.1:8891",
            "inet:8891",
            "inet:host:0",
            "inet:host:70000",
            "inet::25",
            "unix:run/x",
            "tcp:a:1",
            "inet:a b:25",
        ] {
            assert_eq!(ServiceAddress::parse(bad), None, "{bad}");
        }
    }
}
