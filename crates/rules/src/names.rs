//! Patterns of client addresses and host names.

use std::net::IpAddr;

use ipnet::IpNet;
use stentor_mail::address::normalise_domain;

use crate::address::PatternError;

/// Name of a client without a name, as in Postfix.
pub const UNKNOWN: &str = "unknown";

/// One pattern of a client address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientPattern {
    Any,
    Network(IpNet),
}

impl ClientPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// It is neither an address nor a network, or a network with host bits set.
    pub fn parse(text: &str) -> Result<ClientPattern, PatternError> {
        if text == "*" {
            return Ok(ClientPattern::Any);
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(ClientPattern::Network(address.to_canonical().into()));
        }
        let network: IpNet = text.parse().map_err(|_| PatternError::Client(text.to_owned()))?;
        if network.trunc() != network {
            return Err(PatternError::HostBits { network: text.to_owned(), meant: network.trunc().to_string() });
        }
        Ok(ClientPattern::Network(network))
    }

    /// Whether the client matches; `client` is in canonical form (no IPv4 address in IPv6).
    pub(crate) fn is_match(&self, client: IpAddr) -> bool {
        match self {
            ClientPattern::Any => true,
            ClientPattern::Network(network) => network.contains(&client),
        }
    }
}

impl std::fmt::Display for ClientPattern {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ClientPattern::Any => out.write_str("*"),
            ClientPattern::Network(network) => write!(out, "{network}"),
        }
    }
}

/// One pattern of a host name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamePattern {
    Any,
    Exact(Box<str>),
    /// Domain suffix with its leading dot.
    Below(Box<str>),
}

impl NamePattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// It is not a host name or suffix.
    pub fn parse(text: &str) -> Result<NamePattern, PatternError> {
        let wrong = |_| PatternError::Name(text.to_owned());
        Ok(match text.strip_prefix('.') {
            None if text == "*" => NamePattern::Any,
            None => NamePattern::Exact(normalise_domain(text).map_err(wrong)?.into()),
            Some(name) => NamePattern::Below(format!(".{}", normalise_domain(name).map_err(wrong)?).into()),
        })
    }

    /// Whether the name matches; `name` is in lower case.
    pub(crate) fn is_match(&self, name: &str) -> bool {
        match self {
            NamePattern::Any => true,
            NamePattern::Exact(own) => **own == *name,
            NamePattern::Below(suffix) => name.ends_with(&**suffix),
        }
    }
}

impl std::fmt::Display for NamePattern {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            NamePattern::Any => "*",
            NamePattern::Exact(name) | NamePattern::Below(name) => name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients() {
        let is = |pattern: &str, client: &str| {
            ClientPattern::parse(pattern).unwrap().is_match(client.parse::<IpAddr>().unwrap().to_canonical())
        };
        assert!(is("192.0.2.0/24", "192.0.2.7") && is("192.0.2.7", "::ffff:192.0.2.7") && is("*", "::1"));
        assert!(!is("192.0.2.0/24", "192.0.20.7") && !is("2001:db8::/32", "192.0.2.7"));
        let host_bits = ClientPattern::parse("192.0.2.7/24").unwrap_err().to_string();
        assert_eq!(host_bits, "192.0.2.7/24 has host bits set: write 192.0.2.0/24");
        assert!(ClientPattern::parse("192.0.2").is_err() && ClientPattern::parse("").is_err());
    }

    #[test]
    fn names() {
        let is = |pattern: &str, name: &str| NamePattern::parse(pattern).unwrap().is_match(name);
        assert!(is("MX.Example.org", "mx.example.org") && is(".example.org", "a.b.example.org") && is("*", ""));
        assert!(!is(".example.org", "example.org") && !is("example.org", "a.example.org"));
        assert!(NamePattern::parse("").is_err() && NamePattern::parse(".").is_err());
    }
}
