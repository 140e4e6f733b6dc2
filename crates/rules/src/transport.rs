//! Parses the right sides of Postfix's transport(5) and of sendmail's mailertable into next hops.
//!
//! Names without brackets are resolved by MX, names in brackets are not. Next hops in our own syntax (`local:`,
//! `pipe:NAME`, `hop:NAME`) are tried next ([`or_own`]); other transports that deliver to programs and mailboxes are
//! errors.

use stentor_mail::reply::Enhanced;
use stentor_policy::{HostSpec, RouteHost};

use crate::hop::{HopError, NOT_SERVED, NextHop};
use crate::refusal::{RefusalCodes, refusal, sendmail_error};

/// Codes of `error:` without codes of its own.
const ERROR: RefusalCodes = RefusalCodes::new(550, Enhanced::new(5, 0, 0));
/// Codes of `retry:` without codes of its own.
const RETRY: RefusalCodes = RefusalCodes::new(450, Enhanced::new(4, 0, 0));
const DEFERRED: &str = "Mail for this address is deferred";

/// Parses `transport:nexthop`; either part may be missing.
///
/// # Errors
/// The transport is not supported, or a host is malformed.
pub(crate) fn next_hop(value: &str, smtp_port: u16) -> Result<NextHop, HopError> {
    let (transport, next) = split(value);
    match transport.to_ascii_lowercase().as_str() {
        "error" => Ok(NextHop::Refuse(refusal(next, ERROR, NOT_SERVED))),
        "retry" => Ok(NextHop::Refuse(refusal(next, RETRY, DEFERRED))),
        "" | "smtp" | "relay" | "esmtp" if next.is_empty() => Ok(NextHop::Mx),
        "" | "smtp" | "relay" | "esmtp" => parsed(listed(next), smtp_host, smtp_port),
        // The usual name in master.cf for smtp_tls_wrappermode=yes.
        "smtps" | "submissions" if !next.is_empty() => parsed(listed(next), smtps_host, smtp_port),
        "lmtp" => parsed(listed(next), |host| Ok(lmtp_host(host)), smtp_port),
        _ => Err(HopError::Transport(transport.to_owned())),
    }
}

/// Parses a value of `default_transport`: SMTP without a next hop means the default route (`None`), for which a relay
/// host is used.
///
/// # Errors
/// As [`next_hop`], and the value is not a next hop in our syntax.
pub(crate) fn default_transport(value: &str, smtp_port: u16) -> Result<Option<NextHop>, HopError> {
    let (transport, next) = split(value);
    let is_smtp = matches!(transport.to_ascii_lowercase().as_str(), "" | "smtp" | "relay" | "esmtp");
    if is_smtp && next.is_empty() { Ok(None) } else { or_own(next_hop, value, smtp_port).map(Some) }
}

fn split(value: &str) -> (&str, &str) {
    let (transport, next) = value.trim().split_once(':').unwrap_or((value.trim(), ""));
    (transport, next.trim())
}

/// Parses a value in the table's dialect, or else in our syntax.
///
/// # Errors
/// The error of the dialect.
pub(crate) fn or_own(
    read: fn(&str, u16) -> Result<NextHop, HopError>,
    value: &str,
    smtp_port: u16,
) -> Result<NextHop, HopError> {
    read(value, smtp_port).or_else(|error| NextHop::parse(value, smtp_port).map_err(|_| error))
}

/// Parses hosts without a transport, as in `relayhost` and `sender_dependent_relayhost_maps`.
///
/// # Errors
/// A host is malformed.
pub(crate) fn relayhost(value: &str, smtp_port: u16) -> Result<NextHop, HopError> {
    parsed(listed(value), relay_host, smtp_port)
}

/// Parses the mailertable's `mailer:host`, with `error:` as in sendmail. Several hosts are separated by colons.
///
/// # Errors
/// The mailer is not supported, or a host is malformed.
pub(crate) fn mailer(value: &str, smtp_port: u16) -> Result<NextHop, HopError> {
    let (mailer, next) = value.trim().split_once(':').ok_or_else(|| HopError::Transport(value.trim().to_owned()))?;
    match mailer.to_ascii_lowercase().as_str() {
        "error" => Ok(NextHop::Refuse(sendmail_error(next))),
        "smtp" | "esmtp" | "smtp8" | "dsmtp" | "relay" => parsed(hosts(next), mailer_host, smtp_port),
        "lmtp" => NextHop::hosts(std::iter::once(format!("lmtp:{}", unbracketed(next)).as_str()), smtp_port),
        _ => Err(HopError::Transport(mailer.to_owned())),
    }
}

/// Parses hosts, each of which `own` converts to our syntax. Errors quote the host as written.
fn parsed<'t>(
    texts: impl Iterator<Item = &'t str>,
    own: fn(&str) -> Result<String, String>,
    smtp_port: u16,
) -> Result<NextHop, HopError> {
    let host = |text: &str| {
        let own = own(text).map_err(|how| HopError::Form { text: text.to_owned(), how })?;
        RouteHost::parse(&own, smtp_port).map_err(|why| HopError::Host { text: text.to_owned(), why })
    };
    NextHop::of_hosts(texts.map(host).collect::<Result<Vec<_>, _>>()?)
}

fn listed(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', ' ', '\t']).filter(|text| !text.is_empty())
}

/// Splits at colons outside brackets.
fn hosts(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    let parts = text.split(move |letter| {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ':' && depth == 0
    });
    parts.filter(|part| !part.is_empty())
}

/// Converts a host to our syntax: `[host]:port` becomes an address or a name without MX, `host:port` one with MX. The
/// error states our notation.
fn smtp_host(text: &str) -> Result<String, String> {
    if text.starts_with('[') {
        return Ok(unbracketed(text));
    }
    match RouteHost::parse(text, 0) {
        Ok(RouteHost { host: HostSpec::Addr(address), port, .. }) => {
            let port = if port == 0 { String::new() } else { format!(":{port}") };
            Err(format!("put an address in brackets here: [{address}]{port}"))
        }
        _ => Ok(format!("mx:{text}")),
    }
}

/// Converts a host with TLS from the first octet.
fn smtps_host(text: &str) -> Result<String, String> {
    smtp_host(text).map(|host| format!("smtps:{host}"))
}

fn relay_host(text: &str) -> Result<String, String> {
    match text.split_once(':') {
        Some(("smtp" | "esmtp" | "relay", host)) if host.parse::<u16>().is_err() => {
            Err(format!("write a relay host without a transport here: {host}"))
        }
        _ => smtp_host(text),
    }
}

fn mailer_host(text: &str) -> Result<String, String> {
    if text.parse::<u16>().is_ok() {
        let how = "colons separate hosts here, so ports are not possible; write a host with a port as in [routes], \
            without the mailer";
        return Err(format!("{how}: 192.0.2.1:{text}"));
    }
    smtp_host(text)
}

fn lmtp_host(text: &str) -> String {
    let text = text.strip_prefix("inet:").unwrap_or(text);
    let host = if text.starts_with("unix:") { text.to_owned() } else { unbracketed(text) };
    format!("lmtp:{host}")
}

/// Removes brackets: `[10.0.0.1]:25` -> `10.0.0.1:25`, `[mx.test]` -> `mx.test`, `[IPv6:::1]` -> `[::1]`.
fn unbracketed(text: &str) -> String {
    let Some((inner, behind)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) else {
        return text.to_owned();
    };
    let inner = match inner.get(..5) {
        Some(tag) if tag.eq_ignore_ascii_case("ipv6:") => &inner[5..],
        _ => inner,
    };
    if inner.parse::<std::net::Ipv6Addr>().is_ok() {
        return format!("[{inner}]{behind}");
    }
    format!("{inner}{}{behind}", RouteHost::dot_behind(inner))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(hop: &Result<NextHop, HopError>) -> String {
        hop.as_ref().map_or_else(|error| format!("! {error}"), NextHop::to_string)
    }

    #[test]
    fn transports_of_postfix() {
        let hop = |text| shown(&next_hop(text, 25));
        assert_eq!(hop("smtp:"), "mx");
        assert_eq!(hop("smtp:mx.test"), "mx:mx.test:25");
        assert_eq!(hop("smtp:mx.test:2525"), "mx:mx.test:2525");
        assert_eq!(hop("relay:[mx.test]:2525"), "mx.test:2525");
        // A host with the name `mx`.
        assert_eq!(hop("relay:[mx]:2525"), "mx.:2525");
        assert_eq!(hop("lmtp:[unix]"), "lmtp:unix.:24");
        assert_eq!(hop("smtp:[10.0.0.1], [::1]"), "10.0.0.1:25 [::1]:25");
        assert_eq!(hop(":[10.0.0.1]"), "10.0.0.1:25");
        assert_eq!(hop("lmtp:inet:10.0.0.1:2424"), "lmtp:10.0.0.1:2424");
        assert_eq!(hop("lmtp:[10.0.0.1]"), "lmtp:10.0.0.1:24");
        let several = "lmtp:inet:10.0.0.1:2424, inet:[10.0.0.2] unix:/run/lmtp";
        assert_eq!(hop(several), "lmtp:10.0.0.1:2424 lmtp:10.0.0.2:24 lmtp:unix:/run/lmtp");
        assert_eq!(hop("smtps:[mx.test]:4650"), "smtps:mx.test:4650");
        assert_eq!(hop("smtps:[mx.test]"), "mx.test:465");
        assert_eq!(hop("submissions:mx.test:4650"), "smtps:mx:mx.test:4650");
        assert_eq!(hop("error:5.1.2 not here"), "error: 550 5.1.2 not here");
        assert_eq!(hop("error:no"), "error: 550 5.0.0 no");
        assert_eq!(hop("retry:later"), "error: 450 4.0.0 later");
        assert!(hop("procmail:").starts_with("! \"procmail\" is not a transport of this server: programs"));
    }

    #[test]
    fn next_hops_in_our_words_are_taken_too() {
        for (read, value, expected) in [
            (next_hop as fn(&str, u16) -> _, "hop:gateway", "hop:gateway"),
            (next_hop, "mx", "mx"),
            (next_hop, "pipe:archive", "lmtp:unix:/run/stentor-deliver/archive.sock"),
            (mailer, "local:", "lmtp:unix:/run/stentor-deliver/local.sock"),
            (relayhost, "hop:gateway", "hop:gateway"),
        ] {
            assert_eq!(shown(&or_own(read, value, 25)), expected);
        }
        assert!(shown(&or_own(mailer, "local:joe", 25)).starts_with("! \"local\" is not a transport"));
        assert!(shown(&or_own(next_hop, "discard:", 25)).ends_with("do = \"discard\""));
    }

    #[test]
    fn mailers_of_sendmail() {
        let hop = |text| shown(&mailer(text, 25));
        assert_eq!(hop("esmtp:[10.0.0.1]"), "10.0.0.1:25");
        assert_eq!(hop("smtp:hub.test"), "mx:hub.test:25");
        assert_eq!(hop("esmtp:[10.0.0.1]:[IPv6:::1]:c.test"), "10.0.0.1:25 [::1]:25 mx:c.test:25");
        assert_eq!(hop("error:5.7.0:550 not here"), "error: 550 5.7.0 not here");
        assert_eq!(hop("error:nouser no such user"), "error: 550 5.1.1 no such user");
        assert_eq!(hop("error:nohost"), "error: 550 5.1.2 Host unknown");
        assert_eq!(hop("error:nouser"), "error: 550 5.1.1 User unknown");
        assert_eq!(hop("error:tempfail"), "error: 451 4.3.0 Deferred");
        assert!(hop("local:joe").starts_with('!') && hop("esmtp").starts_with('!') && hop("esmtp:").starts_with('!'));
    }

    #[test]
    fn the_usual_route_is_no_next_hop_of_a_default_transport() {
        let hop = |text| default_transport(text, 25).map(|hop| hop.map(|hop| hop.to_string()));
        for usual in ["smtp:", "smtp", ":", "relay:"] {
            assert_eq!(hop(usual), Ok(None), "{usual}");
        }
        assert_eq!(hop("smtp:[gate.test]:587"), Ok(Some("gate.test:587".to_owned())));
        assert_eq!(hop("hop:gate"), Ok(Some("hop:gate".to_owned())));
        assert!(hop("slow:").is_err());
    }

    #[test]
    fn what_is_wrong_is_quoted_as_it_is_written_with_how_it_is_written() {
        for (read, value, expected) in [
            (
                next_hop as fn(&str, u16) -> _,
                "smtp:127.0.0.1:22001",
                "! \"127.0.0.1:22001\" is not a valid next hop: put an address in brackets here: [127.0.0.1]:22001",
            ),
            (next_hop, "smtp:a..b", "! \"a..b\" is not a valid next hop: `a..b` is not a valid host name or address"),
            (
                mailer,
                "esmtp:[127.0.0.1]:22001",
                "! \"22001\" is not a valid next hop: colons separate hosts here, so ports are not possible; write a \
                 host with a port as in [routes], without the mailer: 192.0.2.1:22001",
            ),
            (
                relayhost,
                "smtp:[gate.example]:587",
                "! \"smtp:[gate.example]:587\" is not a valid next hop: write a relay host without a transport here: \
                 [gate.example]:587",
            ),
        ] {
            assert_eq!(shown(&or_own(read, value, 25)), expected);
        }
        assert_eq!(shown(&or_own(mailer, "127.0.0.1:22001", 25)), "127.0.0.1:22001");
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,60}") {
            let _ = next_hop(&text, 25);
            let _ = mailer(&text, 25);
        }
    }
}
