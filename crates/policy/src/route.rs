//! One host of a route: `10.0.0.5:25`, `relay.example.org`, `mx:example.org`, `smtps:relay.example.org:4650`,
//! `lmtp:127.0.0.1:8024`.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use stentor_mail::SUBMISSIONS_PORT;
use stentor_mail::address::normalise_domain;

/// Default port of LMTP (RFC 2033 does not assign one; 24 is the registered `lmtp`).
const LMTP_PORT: u16 = 24;

/// TLS from the first octet, by default at port 465.
const SMTPS: &str = "smtps:";
/// TLS by STARTTLS, even at port 465.
const STARTTLS: &str = "starttls:";

/// Keywords for which a host of that name with its port would be mistaken: `mx:25`. Such a host is written with a
/// final dot, as an absolute name (RFC 1034 section 3.1): `mx.:25`.
const WORDS: [&str; 6] = ["mx", "lmtp", "unix", "pipe", "hop", "error"];

/// Directory of the sockets of `stentor-deliver`, one for each of its services.
pub const DELIVER_SOCKETS: &str = "/run/stentor-deliver";
/// The service that `local:` selects.
const LOCAL: &str = "local";
/// Longest path of a Unix socket (`sun_path` without its NUL).
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Destination of a connection: an address, a name that the resolver turns into addresses (A and AAAA only), a domain
/// with MX hosts, or the path of a Unix socket.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostSpec {
    Addr(IpAddr),
    Name(Box<str>),
    Unix(Box<str>),
    /// The MX hosts of this domain.
    Mx(Box<str>),
}

/// One host of a route, with its port and protocol.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RouteHost {
    pub host: HostSpec,
    /// Port; 0 for a Unix socket.
    pub port: u16,
    pub lmtp: bool,
    /// TLS from the first octet; otherwise by STARTTLS, if at all.
    pub implicit_tls: bool,
}

/// Why a route host is malformed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RouteHostError {
    #[error("the host is missing")]
    Empty,
    #[error("`{0}` is not a valid host name or address")]
    Host(String),
    #[error("`{0}` is not a valid port (1 to 65535)")]
    Port(String),
    #[error("`{0}` is not a valid socket path: it must begin with / and have at most {max} octets and no spaces", max = SOCKET_PATH_BYTES_MAX)]
    Path(String),
    #[error("Unix sockets need LMTP: write `lmtp:unix:{0}`")]
    UnixSmtp(String),
    #[error("`{0}` is only for SMTP hosts: put it before a name, an address or `mx:DOMAIN`")]
    Tls(&'static str),
    #[error("`{0}` is not a valid service name: use up to 32 of a-z, 0-9, - and _")]
    Service(String),
    #[error("`[` has no matching `]` around an IPv6 address")]
    Bracket,
    #[error("this is transport table syntax; write a host as `{0}`, and the MX hosts of a domain as `mx:DOMAIN`")]
    Transport(String),
    #[error(
        "brackets are only for addresses; write a host without them, or `mx:NAME` for the MX hosts of a domain: `{0}`"
    )]
    BracketedName(String),
}

impl RouteHost {
    /// Parses `host`, `host:port`, `10.0.0.5:25`, `[2001:db8::1]:25` or a bare IPv6 address, each optionally after
    /// `lmtp:`, or `mx:domain`. `smtp_port` is the default port (24 after `lmtp:`). TLS starts with the first octet
    /// at port 465, and after `smtps:` at any port (default 465); after `starttls:` it does not. Also parses
    /// `lmtp:unix:/path`, and the short forms for sockets of `stentor-deliver`: `local:` and `pipe:NAME`.
    pub fn parse(text: &str, smtp_port: u16) -> Result<Self, RouteHostError> {
        let Some((word, rest)) = Self::tls_word(text) else { return Self::usual(text, smtp_port) };
        let implicit_tls = word == SMTPS;
        let port_default = if implicit_tls { SUBMISSIONS_PORT } else { smtp_port };
        let host = Self::usual(rest, port_default).map_err(|error| match error {
            RouteHostError::BracketedName(host) => RouteHostError::BracketedName(format!("{word}{host}")),
            error => error,
        })?;
        if host.lmtp { Err(RouteHostError::Tls(word)) } else { Ok(Self { implicit_tls, ..host }) }
    }

    /// Splits off `smtps:` or `starttls:`; `None` if it is the name of a host (`smtps:25`).
    pub fn tls_word(text: &str) -> Option<(&'static str, &str)> {
        let split = |word| Some((word, behind(text, word)?));
        [SMTPS, STARTTLS].into_iter().find_map(split).filter(|(_, rest)| parse_port(rest).is_err())
    }

    /// A dot if the name would otherwise be mistaken for a keyword.
    pub fn dot_behind(name: &str) -> &'static str {
        if WORDS.iter().any(|word| word.eq_ignore_ascii_case(name)) { "." } else { "" }
    }

    /// Parses a host whose TLS is the default for its port.
    fn usual(text: &str, smtp_port: u16) -> Result<Self, RouteHostError> {
        if text.eq_ignore_ascii_case("local:") {
            return Self::service(LOCAL);
        }
        if let Some(name) = behind(text, "pipe:") {
            return Self::service(name);
        }
        if let Some(domain) = behind(text, "mx:") {
            return match Self::usual(domain, smtp_port)? {
                Self { host: HostSpec::Name(name), port, lmtp: false, .. } => {
                    Ok(Self::new(HostSpec::Mx(name), port, false))
                }
                _ => Err(RouteHostError::Host(domain.to_owned())),
            };
        }
        let (lmtp, rest) = behind(text, "lmtp:").map_or((false, text), |rest| (true, rest));
        if let Some(path) = behind(rest, "unix:") {
            return if lmtp { Self::unix(path) } else { Err(RouteHostError::UnixSmtp(path.to_owned())) };
        }
        let transport = ["smtp:", "esmtp:", "relay:"].iter().find_map(|transport| behind(rest, transport));
        if let Some(host) = transport.filter(|host| parse_port(host).is_err()) {
            return Err(RouteHostError::Transport(host.replace(['[', ']'], "")));
        }
        let port_default = if lmtp { LMTP_PORT } else { smtp_port };
        if rest.is_empty() {
            return Err(RouteHostError::Empty);
        }
        if let Ok(address) = rest.parse::<Ipv6Addr>() {
            return Ok(Self::new(HostSpec::Addr(address.into()), port_default, lmtp));
        }
        if let Some(inner) = rest.strip_prefix('[') {
            let (address, behind) = inner.split_once(']').ok_or(RouteHostError::Bracket)?;
            let host = address.parse::<IpAddr>().map_err(|_| match parse_name(address) {
                Ok(name) => RouteHostError::BracketedName(format!("{name}{behind}")),
                Err(error) => error,
            })?;
            let port = match behind.strip_prefix(':') {
                Some(port) => parse_port(port)?,
                None if behind.is_empty() => port_default,
                None => return Err(RouteHostError::Host(rest.to_owned())),
            };
            return Ok(Self::new(HostSpec::Addr(host), port, lmtp));
        }
        let (name, port) = match rest.rsplit_once(':') {
            Some((name, port)) => (name, parse_port(port)?),
            None => (rest, port_default),
        };
        if name.is_empty() {
            return Err(RouteHostError::Empty);
        }
        let host = match name.parse::<IpAddr>() {
            Ok(address) => HostSpec::Addr(address),
            Err(_) => HostSpec::Name(parse_name(name)?),
        };
        Ok(Self::new(host, port, lmtp))
    }

    /// A host with the default TLS of its port.
    fn new(host: HostSpec, port: u16, lmtp: bool) -> Self {
        Self { host, port, lmtp, implicit_tls: port == SUBMISSIONS_PORT && !lmtp }
    }

    /// The prefix of the host if its TLS is not the default for its port; otherwise empty.
    pub fn tls_prefix(&self) -> &'static str {
        match (self.implicit_tls, self.port == SUBMISSIONS_PORT && !self.lmtp) {
            (true, false) => SMTPS,
            (false, true) => STARTTLS,
            _ => "",
        }
    }

    /// A socket of `stentor-deliver`.
    fn service(name: &str) -> Result<Self, RouteHostError> {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
        if (1..=32).contains(&name.len()) && name.bytes().all(is_plain) {
            return Self::unix(&format!("{DELIVER_SOCKETS}/{name}.sock"));
        }
        Err(RouteHostError::Service(name.to_owned()))
    }

    fn unix(path: &str) -> Result<Self, RouteHostError> {
        // A comma separates hosts, and `>` an address from its hop.
        let is_printable = path.chars().all(|c| !c.is_control() && !c.is_whitespace() && c != ',' && c != '>');
        if path.starts_with('/') && path.len() <= SOCKET_PATH_BYTES_MAX && is_printable {
            return Ok(Self::new(HostSpec::Unix(path.into()), 0, true));
        }
        Err(RouteHostError::Path(path.to_owned()))
    }
}

/// The text after a keyword, in any case.
fn behind<'a>(text: &'a str, keyword: &str) -> Option<&'a str> {
    let head = text.get(..keyword.len())?;
    head.eq_ignore_ascii_case(keyword).then(|| &text[keyword.len()..])
}

/// Parses a host name into A-labels. All-numeric names are mistyped addresses (`10.0.0.256`).
fn parse_name(name: &str) -> Result<Box<str>, RouteHostError> {
    let wrong = || RouteHostError::Host(name.to_owned());
    // An absolute name.
    let name = name.strip_suffix('.').unwrap_or(name);
    let last = name.rsplit('.').next().unwrap_or("");
    if name.starts_with('[') || last.is_empty() || last.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    normalise_domain(name).map(Into::into).map_err(|_| wrong())
}

fn parse_port(text: &str) -> Result<u16, RouteHostError> {
    match text.parse::<u16>() {
        Ok(port) if port > 0 && text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(port),
        _ => Err(RouteHostError::Port(text.to_owned())),
    }
}

impl fmt::Display for RouteHost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = if self.lmtp { "lmtp:" } else { self.tls_prefix() };
        match &self.host {
            HostSpec::Addr(IpAddr::V6(address)) => write!(out, "{prefix}[{address}]:{}", self.port),
            HostSpec::Addr(address) => write!(out, "{prefix}{address}:{}", self.port),
            HostSpec::Name(name) => write!(out, "{prefix}{name}{}:{}", Self::dot_behind(name), self.port),
            HostSpec::Unix(path) => write!(out, "{prefix}unix:{path}"),
            HostSpec::Mx(name) => write!(out, "{prefix}mx:{name}:{}", self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn host(text: &str) -> String {
        RouteHost::parse(text, 25).map_or_else(|error| format!("! {error}"), |host| host.to_string())
    }

    #[test]
    fn what_is_written_as_elsewhere_is_told_how_it_is_written_here() {
        assert!(
            host("smtp:[mx.test]:587")
                .ends_with("write a host as `mx.test:587`, and the MX hosts of a domain as `mx:DOMAIN`")
        );
        assert!(host("RELAY:mx.test").contains("write a host as `mx.test`"));
        assert_eq!(host("smtp:25"), "smtp:25");
        assert!(host("[mx.test]:587").ends_with("the MX hosts of a domain: `mx.test:587`"));
        assert_eq!(host("[a b]"), "! `a b` is not a valid host name or address");
    }

    #[test]
    fn hosts_in_every_form() {
        assert_eq!(host("10.0.0.5:2525"), "10.0.0.5:2525");
        assert_eq!(host("10.0.0.6"), "10.0.0.6:25");
        assert_eq!(host("Relay.Example.ORG"), "relay.example.org:25");
        assert_eq!(host("[2001:db8::1]:26"), "[2001:db8::1]:26");
        assert_eq!(host("[2001:db8::1]"), "[2001:db8::1]:25");
        assert_eq!(host("2001:db8::1"), "[2001:db8::1]:25");
        assert_eq!(host("lmtp:127.0.0.1:8024"), "lmtp:127.0.0.1:8024");
        assert_eq!(host("LMTP:[::1]:8024"), "lmtp:[::1]:8024");
        assert_eq!(host("lmtp:mailman"), "lmtp:mailman:24");
        assert_eq!(host("mx:Relay.test"), "mx:relay.test:25");
        // Hosts with these names.
        assert_eq!(host("mx"), "mx.:25");
        assert_eq!(host("error.:2525"), "error.:2525");
        assert_eq!(host("lmtp:unix."), "lmtp:unix.:24");
        assert_eq!(host("mx:relay.test:26"), "mx:relay.test:26");
    }

    #[test]
    fn tls_from_the_first_octet_goes_by_the_port_or_the_word_before() {
        let is_implicit = |text| RouteHost::parse(text, 25).unwrap().implicit_tls;
        for (text, shown, implicit) in [
            ("relay.test:465", "relay.test:465", true),
            ("smtps:relay.test", "relay.test:465", true),
            ("SMTPS:relay.test:4650", "smtps:relay.test:4650", true),
            ("smtps:[::1]:4650", "smtps:[::1]:4650", true),
            ("smtps:mx:relay.test:4650", "smtps:mx:relay.test:4650", true),
            ("starttls:relay.test:465", "starttls:relay.test:465", false),
            ("starttls:relay.test", "relay.test:25", false),
            ("starttls:mx:relay.test:465", "starttls:mx:relay.test:465", false),
            ("mx:relay.test:465", "mx:relay.test:465", true),
            ("lmtp:10.0.0.1:465", "lmtp:10.0.0.1:465", false),
            // A host with this name.
            ("smtps:25", "smtps:25", false),
        ] {
            assert_eq!((host(text).as_str(), is_implicit(text)), (shown, implicit), "{text}");
        }
        for bad in ["smtps:lmtp:10.0.0.1", "starttls:lmtp:unix:/x", "smtps:local:"] {
            assert!(host(bad).contains("is only for SMTP hosts"), "{bad}: {}", host(bad));
        }
        for bad in ["smtps:", "smtps:smtps:a.test", "mx:smtps:a.test", "smtps:unix:/x", "smtps:starttls:a.test:25"] {
            assert!(host(bad).starts_with('!'), "{bad}: {}", host(bad));
        }
        assert!(host("smtps:[mx.test]:4650").ends_with("the MX hosts of a domain: `smtps:mx.test:4650`"));
    }

    #[test]
    fn sockets_of_this_machine() {
        assert_eq!(host("lmtp:unix:/run/dovecot/lmtp"), "lmtp:unix:/run/dovecot/lmtp");
        assert_eq!(host("LMTP:UNIX:/run/x:y"), "lmtp:unix:/run/x:y");
        assert_eq!(host("local:"), "lmtp:unix:/run/stentor-deliver/local.sock");
        assert_eq!(host("pipe:tickets"), "lmtp:unix:/run/stentor-deliver/tickets.sock");
        assert_eq!(host("unix:/run/x"), "! Unix sockets need LMTP: write `lmtp:unix:/run/x`");
        for bad in ["lmtp:unix:", "lmtp:unix:run/x", "lmtp:unix:/a b", &format!("lmtp:unix:/{}", "x".repeat(107))] {
            assert!(host(bad).contains("is not a valid socket path"), "{bad}: {}", host(bad));
        }
        for bad in ["pipe:", "pipe:../x", "pipe:A", "pipe:a/b"] {
            assert!(host(bad).contains("is not a valid service name"), "{bad}: {}", host(bad));
        }
    }

    #[test]
    fn hosts_that_are_none() {
        assert_eq!(host(""), "! the host is missing");
        assert_eq!(host("lmtp:"), "! the host is missing");
        assert_eq!(host(":25"), "! the host is missing");
        assert_eq!(host("a.example:0"), "! `0` is not a valid port (1 to 65535)");
        assert_eq!(host("a.example:+25"), "! `+25` is not a valid port (1 to 65535)");
        assert_eq!(host("a.example:99999"), "! `99999` is not a valid port (1 to 65535)");
        assert_eq!(host("[::1"), "! `[` has no matching `]` around an IPv6 address");
        assert!(host("[::1]25").starts_with('!'));
        assert_eq!(host("10.0.0.256"), "! `10.0.0.256` is not a valid host name or address");
        assert!(host("a b").starts_with('!'));
        assert!(host("mx:10.0.0.1").starts_with('!') && host("mx:lmtp:a.test").starts_with('!'));
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,40}") {
            let _ = RouteHost::parse(&text, 25);
        }

        #[test]
        fn what_is_printed_is_read_again(
            prefix in "(lmtp:|smtps:|starttls:)?",
            host in "([a-z]{1,8}\\.[a-z]{2,5}|(mx|lmtp|unix|pipe|hop|error|smtp|local)\\.|10\\.[1-9]{1,2}\\.0\\.1|\\[::[1-9]\\])(:[1-9][0-9]{0,3})?",
        ) {
            let text = prefix + &host;
            let first = RouteHost::parse(&text, 25).unwrap();
            prop_assert_eq!(RouteHost::parse(&first.to_string(), 99).unwrap(), first);
        }
    }
}
