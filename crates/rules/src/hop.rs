//! Next hops: destinations of a recipient's copy.

use std::fmt;

use stentor_mail::reply::Reply;
use stentor_policy::{RouteHost, RouteHostError};

use crate::refusal::{OURS, refusal};

/// Maximum length of a hop's name.
const NAME_BYTES_MAX: usize = 64;
/// Maximum hosts of one hop.
const HOSTS_MAX: usize = 32;
pub(crate) const NOT_SERVED: &str = "Mail for this address is not accepted here";

/// Destination of a recipient's copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextHop {
    /// The MX hosts of the recipient's own domain.
    Mx,
    /// Hosts, tried in this order; never empty.
    Hosts(Vec<RouteHost>),
    /// A hop of `[hops]`; its hosts are looked up when needed.
    Named(Box<str>),
    /// No destination: refused with this reply.
    Refuse(Reply),
}

/// Why a text is not a valid next hop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HopError {
    #[error("the next hop is missing")]
    Empty,
    #[error("{text:?} is not a valid next hop: {why}")]
    Host { text: String, why: RouteHostError },
    /// A notation of another server's tables that has another form here.
    #[error("{text:?} is not a valid next hop: {how}")]
    Form { text: String, how: String },
    #[error("{0:?} is not a valid hop name: use up to {NAME_BYTES_MAX} of a-z, A-Z, 0-9, - _ .")]
    Name(String),
    #[error("more than {HOSTS_MAX} hosts")]
    Many,
    /// A transport or mailer of other servers.
    #[error("{0:?} is not a transport of this server: {instead}", instead = instead_of(.0))]
    Transport(String),
}

impl NextHop {
    /// Parses a next hop as in `[routes]` and the action `route`: `mx`, `hop:NAME`, `error: 550 5.1.1 text`, or
    /// hosts.
    ///
    /// # Errors
    /// The text is none of these.
    pub fn parse(text: &str, smtp_port: u16) -> Result<NextHop, HopError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(HopError::Empty);
        }
        if text.eq_ignore_ascii_case("mx") {
            return Ok(NextHop::Mx);
        }
        if let Some(name) = text.strip_prefix("hop:") {
            return name_of(name).map(NextHop::Named);
        }
        if let Some(words) = text.strip_prefix("error:") {
            return Ok(NextHop::Refuse(refusal(words.trim(), OURS.reject, NOT_SERVED)));
        }
        let hosts = NextHop::hosts(text.split([' ', '\t', ',']).filter(|host| !host.is_empty()), smtp_port);
        hosts.map_err(|error| foreign(text).map_or(error, HopError::Transport))
    }

    /// Parses a list of hosts.
    ///
    /// # Errors
    /// A host is not valid, or there are none or too many.
    pub fn hosts<'t>(texts: impl Iterator<Item = &'t str>, smtp_port: u16) -> Result<NextHop, HopError> {
        let host =
            |text: &str| RouteHost::parse(text, smtp_port).map_err(|why| HopError::Host { text: text.to_owned(), why });
        NextHop::of_hosts(texts.map(host).collect::<Result<Vec<_>, _>>()?)
    }

    /// Makes a next hop of hosts.
    ///
    /// # Errors
    /// There are none or too many.
    pub(crate) fn of_hosts(hosts: Vec<RouteHost>) -> Result<NextHop, HopError> {
        match hosts.len() {
            0 => Err(HopError::Empty),
            1..=HOSTS_MAX => Ok(NextHop::Hosts(hosts)),
            _ => Err(HopError::Many),
        }
    }
}

/// The transport of another server at the start of a text, such as `slow:` of master.cf.
fn foreign(text: &str) -> Option<String> {
    const OURS_TOO: [&str; 11] =
        ["smtp", "esmtp", "relay", "smtps", "starttls", "lmtp", "mx", "hop", "error", "pipe", "unix"];
    let (word, rest) = text.split_once(':')?;
    let is_word = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    let is_ours = OURS_TOO.iter().any(|own| own.eq_ignore_ascii_case(word));
    (is_word && !is_ours && rest.parse::<u16>().is_err()).then(|| word.to_owned())
}

/// The equivalent here of another server's transport.
fn instead_of(transport: &str) -> &'static str {
    match transport.to_ascii_lowercase().as_str() {
        "discard" => "to discard mail, write a rule with do = \"discard\"",
        "retry" => "write error: 450 4.0.0 text",
        "local" | "virtual" | "cyrus" | "dovecot" => {
            "write local: for the mailboxes of stentor-deliver, or lmtp:unix:/path; map addresses to mailboxes in \
             [addresses]"
        }
        "pipe" | "prog" | "procmail" | "maildrop" | "uucp" => {
            "programs are services of stentor-deliver; write pipe:NAME, or local: for mailboxes"
        }
        _ => {
            "for a custom transport write smtp: (in [routes] only the hosts) and put its limits into [sites]; valid \
             in tables: smtp, esmtp, relay, smtps, lmtp, error, retry; valid everywhere: mx, local:, pipe:NAME, \
             hop:NAME"
        }
    }
}

/// Parses the name of a hop.
///
/// # Errors
/// It is not a valid name.
pub fn name_of(name: &str) -> Result<Box<str>, HopError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_name = (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain);
    if is_name { Ok(name.into()) } else { Err(HopError::Name(name.to_owned())) }
}

impl fmt::Display for NextHop {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NextHop::Mx => out.write_str("mx"),
            NextHop::Named(name) => write!(out, "hop:{name}"),
            NextHop::Refuse(reply) => write!(out, "error: {reply}"),
            NextHop::Hosts(hosts) => {
                for (n, host) in hosts.iter().enumerate() {
                    write!(out, "{}{host}", if n == 0 { "" } else { " " })?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hop(text: &str) -> String {
        NextHop::parse(text, 25).map_or_else(|error| format!("! {error}"), |hop| hop.to_string())
    }

    #[test]
    fn every_form() {
        assert_eq!(hop("MX"), "mx");
        assert_eq!(hop("hop:gateway"), "hop:gateway");
        assert_eq!(hop("error: 551 5.1.6 moved"), "error: 551 5.1.6 moved");
        assert_eq!(hop("error:"), "error: 550 5.7.1 Mail for this address is not accepted here");
        assert_eq!(hop("10.0.0.1, [::1]:2525  relay.test"), "10.0.0.1:25 [::1]:2525 relay.test:25");
        assert_eq!(hop("mx:relay.test"), "mx:relay.test:25");
        assert_eq!(hop("mx:relay.test:2525"), "mx:relay.test:2525");
        assert_eq!(hop("lmtp:127.0.0.1"), "lmtp:127.0.0.1:24");
        assert_eq!(hop("smtps:a.test:4650 starttls:b.test:465"), "smtps:a.test:4650 starttls:b.test:465");
    }

    #[test]
    fn what_is_none() {
        assert_eq!(hop(" "), "! the next hop is missing");
        assert!(hop("hop:a b").starts_with("! \"a b\" is not a valid hop name"));
        assert!(hop("10.0.0.256").starts_with("! \"10.0.0.256\" is not a valid next hop"));
        assert!(hop("mx:10.0.0.1").starts_with('!') && hop("mx:").starts_with('!'));
        assert_eq!(hop(&"a.test ".repeat(33)), "! more than 32 hosts");
        for (text, instead) in [
            ("discard:", "do = \"discard\""),
            ("slow:", "limits into [sites]"),
            ("slow:[10.0.0.1]", "limits into [sites]"),
            ("procmail:", "pipe:NAME"),
            ("virtual:", "local:"),
            ("retry:later", "error: 450"),
        ] {
            assert!(hop(text).contains(instead), "{text}: {}", hop(text));
        }
        assert!(hop("smtp:[10.0.0.1]").contains("transport table syntax") && hop("gate:0").contains("port"));
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_again(
            text in "(mx|hop:[a-z]{1,5}|((mx:)?[a-z]{1,5}\\.test|(mx|hop|error|pipe|lmtp)\\.)(:[1-9][0-9]{1,3})?( 10\\.0\\.0\\.[1-9])?)"
        ) {
            let first = NextHop::parse(&text, 25).unwrap();
            prop_assert_eq!(NextHop::parse(&first.to_string(), 99).unwrap(), first);
        }

        #[test]
        fn never_panics(text in "\\PC{0,60}") {
            let _ = NextHop::parse(&text, 25);
        }
    }
}
