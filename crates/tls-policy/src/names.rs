//! Names allowed in a host's certificate, and matching of host patterns.

use std::fmt;

use stentor_mail::address::{AddressError, normalise_domain};
use stentor_mail::domain::is_at_or_below;

/// A host name or a pattern: `mx.example.com`, or `.example.com` for all names below it, but not itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostPattern {
    Exact(String),
    /// Domain, without the dot.
    Below(String),
}

impl HostPattern {
    pub fn parse(text: &str) -> Result<HostPattern, AddressError> {
        match text.strip_prefix('.') {
            Some(suffix) => normalise_domain(suffix).map(HostPattern::Below),
            None => normalise_domain(text).map(HostPattern::Exact),
        }
    }

    /// Whether the pattern matches; `name` in lower case, without a final dot.
    pub fn matches(&self, name: &str) -> bool {
        match self {
            HostPattern::Exact(own) => own == name,
            HostPattern::Below(suffix) => name.len() > suffix.len() + 1 && is_at_or_below(name, suffix),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostPattern::Exact(name) => out.write_str(name),
            HostPattern::Below(suffix) => write!(out, ".{suffix}"),
        }
    }
}

/// Names that a certificate must have, as written by the operator. The three keywords are Postfix's
/// (`smtp_tls_verify_cert_match`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerName {
    /// The name of the host in the MX record or route. Without DNSSEC that name is itself unproven.
    Hostname,
    /// The domain of the recipient, or the host of a route as written.
    Nexthop,
    /// Any name below the domain.
    DotNexthop,
    /// This name, or all names below it.
    Pattern(HostPattern),
}

/// The values of [`PeerName`] for one host, in lower case, without final dots.
#[derive(Debug, Clone, Copy)]
pub struct Peer<'a> {
    pub hostname: &'a str,
    pub nexthop: &'a str,
}

impl PeerName {
    /// Parses `hostname`, `nexthop`, `dot-nexthop`, a name, or `.suffix`.
    pub fn parse(text: &str) -> Result<PeerName, AddressError> {
        Ok(match text {
            "hostname" => PeerName::Hostname,
            "nexthop" => PeerName::Nexthop,
            "dot-nexthop" => PeerName::DotNexthop,
            other => PeerName::Pattern(HostPattern::parse(other)?),
        })
    }

    /// The pattern that a certificate's name is compared with.
    pub fn pattern(&self, peer: Peer<'_>) -> HostPattern {
        match self {
            PeerName::Hostname => HostPattern::Exact(peer.hostname.to_owned()),
            PeerName::Nexthop => HostPattern::Exact(peer.nexthop.to_owned()),
            PeerName::DotNexthop => HostPattern::Below(peer.nexthop.to_owned()),
            PeerName::Pattern(pattern) => pattern.clone(),
        }
    }
}

impl fmt::Display for PeerName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerName::Hostname => out.write_str("hostname"),
            PeerName::Nexthop => out.write_str("nexthop"),
            PeerName::DotNexthop => out.write_str("dot-nexthop"),
            PeerName::Pattern(pattern) => pattern.fmt(out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suffix_is_for_what_is_below() {
        let below = HostPattern::parse(".Example.COM").unwrap();
        assert!(below.matches("mx.example.com") && below.matches("a.b.example.com"));
        assert!(!below.matches("example.com") && !below.matches(".example.com") && !below.matches("mxexample.com"));
        let exact = HostPattern::parse("MX.example.com").unwrap();
        assert!(exact.matches("mx.example.com") && !exact.matches("a.mx.example.com"));
        assert!(
            HostPattern::parse("").is_err() && HostPattern::parse(".").is_err() && HostPattern::parse("a b").is_err()
        );
    }

    #[test]
    fn words_stand_for_names_of_the_host() {
        let peer = Peer { hostname: "mx1.host.test", nexthop: "example.com" };
        let matched = |word: &str, name: &str| PeerName::parse(word).unwrap().pattern(peer).matches(name);
        assert!(matched("hostname", "mx1.host.test") && matched("nexthop", "example.com"));
        assert!(matched("dot-nexthop", "a.example.com") && !matched("dot-nexthop", "example.com"));
        assert!(matched(".host.test", "mx9.host.test") && !matched("hostname", "example.com"));
    }
}
