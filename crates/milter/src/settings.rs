//! A milter as the configuration has it.

use std::fmt;
use std::path::PathBuf;

/// Where a milter listens: `inet:HOST:PORT` and `unix:PATH`, as Postfix writes them; `inet:PORT@HOST` and `local:PATH` as sendmail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Inet { host: String, port: u16 },
    Unix(PathBuf),
}

impl Place {
    /// `None`: it is none of these forms.
    pub fn parse(text: &str) -> Option<Place> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "unix" | "local" => rest.starts_with('/').then(|| Place::Unix(rest.into())),
            "inet" | "inet6" => {
                let (host, port) = match rest.split_once('@') {
                    Some((port, host)) => (host, port),
                    None => rest.rsplit_once(':')?,
                };
                let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
                let port = port.parse().ok().filter(|port| *port > 0)?;
                let is_host = |octet: u8| octet.is_ascii_alphanumeric() || b".-_:".contains(&octet);
                (!host.is_empty() && host.bytes().all(is_host)).then(|| Place::Inet { host: host.to_owned(), port })
            }
            _ => None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Inet { host, port } if host.contains(':') => write!(f, "inet:[{host}]:{port}"),
            Place::Inet { host, port } => write!(f, "inet:{host}:{port}"),
            Place::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// What becomes of a message whose milter fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// As if there were no such milter.
    Accept,
    /// 451 4.7.1
    Tempfail,
    /// 550 5.7.1
    Reject,
}

/// How a milter fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// No connection, or none was tried since the last ones failed.
    Unreachable,
    /// No answer in time.
    Timeout,
    /// It closed the connection, or does not keep to the protocol.
    Broken,
}

/// Whose mail a milter is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// Of SMTP clients; of those that connect to one of these addresses, if there are any.
    pub smtp: bool,
    pub listeners: Vec<std::net::SocketAddr>,
    /// From local programs (sendmail) and over HTTP.
    pub local: bool,
}

/// One of `[[milters]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MilterSettings {
    pub name: String,
    pub place: Place,
    pub scope: Scope,
    pub on_unreachable: OnFailure,
    pub on_timeout: OnFailure,
    pub on_error: OnFailure,
    pub connect_timeout_ms: u64,
    /// For an answer to the negotiation and to what comes before the message's content.
    pub command_timeout_ms: u64,
    /// For an answer to each part of the content and to its end.
    pub content_timeout_ms: u64,
    /// Whether a connection serves one client's session after another.
    pub reuse: bool,
    /// Whether header and body are sent without waiting for each answer.
    pub pipelining: bool,
    /// The macro `{daemon_name}`.
    pub daemon_name: String,
}

impl MilterSettings {
    pub fn action(&self, failure: Failure) -> OnFailure {
        match failure {
            Failure::Unreachable => self.on_unreachable,
            Failure::Timeout => self.on_timeout,
            Failure::Broken => self.on_error,
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
            assert_eq!(Place::parse(text).unwrap().to_string(), shown);
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
            assert_eq!(Place::parse(bad), None, "{bad}");
        }
    }
}
