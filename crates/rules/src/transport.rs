//! The right sides of Postfix's transport(5) and of sendmail's mailertable, as next hops.
//!
//! Names without brackets have MX hosts, names in brackets do not. Next hops in our own words (`local:`, `pipe:NAME`, `hop:NAME`) are taken
//! behind them ([`or_own`]); other transports that hand mail to programs and mailboxes are errors.

use crate::hop::{HopError, NOT_SERVED, NextHop};
use crate::refusal::{refusal, sendmail_error};

const DEFERRED: &str = "Mail for this address is deferred";

/// `transport:nexthop`, where either may be missing.
///
/// # Errors
/// The transport is none of ours, or a host is malformed.
pub(crate) fn next_hop(value: &str, smtp_port: u16) -> Result<NextHop, HopError> {
    let (transport, next) = value.trim().split_once(':').unwrap_or((value.trim(), ""));
    let next = next.trim();
    match transport.to_ascii_lowercase().as_str() {
        "error" => Ok(NextHop::Refuse(refusal(next, (550, (5, 0, 0)), NOT_SERVED))),
        "retry" => Ok(NextHop::Refuse(refusal(next, (450, (4, 0, 0)), DEFERRED))),
        "" | "smtp" | "relay" | "esmtp" if next.is_empty() => Ok(NextHop::Mx),
        "" | "smtp" | "relay" | "esmtp" => relayhost(next, smtp_port),
        "lmtp" => {
            let next = next.strip_prefix("inet:").unwrap_or(next);
            let host = if next.starts_with("unix:") { next.to_owned() } else { unbracketed(next) };
            NextHop::hosts(std::iter::once(format!("lmtp:{host}").as_str()), smtp_port)
        }
        _ => Err(HopError::Transport(transport.to_owned())),
    }
}

/// A table's value that is no next hop in the words of the table's owner may be one in ours.
///
/// # Errors
/// That of the owner's words.
pub(crate) fn or_own(
    read: fn(&str, u16) -> Result<NextHop, HopError>,
    value: &str,
    smtp_port: u16,
) -> Result<NextHop, HopError> {
    read(value, smtp_port).or_else(|error| NextHop::parse(value, smtp_port).map_err(|_| error))
}

/// Hosts without a transport, as `relayhost` and `sender_dependent_relayhost_maps` have them.
///
/// # Errors
/// One is malformed.
pub(crate) fn relayhost(value: &str, smtp_port: u16) -> Result<NextHop, HopError> {
    let texts: Vec<String> = value.split([',', ' ', '\t']).filter(|text| !text.is_empty()).map(smtp_host).collect();
    NextHop::hosts(texts.iter().map(String::as_str), smtp_port)
}

/// The mailertable's `mailer:host`, with `error:` as sendmail has it. Several hosts are divided by colons.
///
/// # Errors
/// The mailer is none of ours, or a host is malformed.
pub(crate) fn mailer(value: &str, smtp_port: u16) -> Result<NextHop, HopError> {
    let (mailer, next) = value.trim().split_once(':').ok_or_else(|| HopError::Transport(value.trim().to_owned()))?;
    match mailer.to_ascii_lowercase().as_str() {
        "error" => Ok(NextHop::Refuse(sendmail_error(next))),
        "smtp" | "esmtp" | "smtp8" | "dsmtp" | "relay" => {
            let texts: Vec<String> = hosts(next).map(smtp_host).collect();
            NextHop::hosts(texts.iter().map(String::as_str), smtp_port)
        }
        "lmtp" => NextHop::hosts(std::iter::once(format!("lmtp:{}", unbracketed(next)).as_str()), smtp_port),
        _ => Err(HopError::Transport(mailer.to_owned())),
    }
}

/// Divided by colons, those in brackets apart.
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

/// `[host]:port` as we write it: an address or a name without MX; `host:port` with them.
fn smtp_host(text: &str) -> String {
    if text.starts_with('[') { unbracketed(text) } else { format!("mx:{text}") }
}

/// `[10.0.0.1]:25` -> `10.0.0.1:25`, `[mx.test]` -> `mx.test`, `[IPv6:::1]` -> `[::1]`.
fn unbracketed(text: &str) -> String {
    let Some((inner, behind)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) else {
        return text.to_owned();
    };
    let inner = match inner.get(..5) {
        Some(tag) if tag.eq_ignore_ascii_case("ipv6:") => &inner[5..],
        _ => inner,
    };
    if inner.parse::<std::net::Ipv6Addr>().is_ok() { format!("[{inner}]{behind}") } else { format!("{inner}{behind}") }
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
        assert_eq!(hop(":"), "mx");
        assert_eq!(hop("smtp:"), "mx");
        assert_eq!(hop("smtp:mx.test"), "mx:mx.test:25");
        assert_eq!(hop("smtp:mx.test:2525"), "mx:mx.test:2525");
        assert_eq!(hop("relay:[mx.test]:2525"), "mx.test:2525");
        assert_eq!(hop("smtp:[10.0.0.1], [::1]"), "10.0.0.1:25 [::1]:25");
        assert_eq!(hop(":[10.0.0.1]"), "10.0.0.1:25");
        assert_eq!(hop("lmtp:inet:10.0.0.1:2424"), "lmtp:10.0.0.1:2424");
        assert_eq!(hop("lmtp:[10.0.0.1]"), "lmtp:10.0.0.1:24");
        assert_eq!(hop("error:5.1.2 not here"), "error: 550 5.1.2 not here");
        assert_eq!(hop("error:no"), "error: 550 5.0.0 no");
        assert_eq!(hop("retry:later"), "error: 450 4.0.0 later");
        assert!(hop("procmail:").starts_with("! \"procmail\" is no transport of this server: a program"));
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
        assert!(shown(&or_own(mailer, "local:joe", 25)).starts_with("! \"local\" is no transport"));
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

    proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,60}") {
            let _ = next_hop(&text, 25);
            let _ = mailer(&text, 25);
        }
    }
}
