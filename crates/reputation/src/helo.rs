//! Faults of the name in HELO or EHLO.
//!
//! The four that depend on the name alone correspond to Postfix's `reject_invalid_helo_hostname` and
//! `reject_non_fqdn_helo_hostname`, and to its users' tables for address literals and their own names.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::names::{is_fqdn, is_host_name};
use crate::question::{Kind, Question};

/// Faults for `helo_is`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeloFault {
    /// Neither a host name nor an address in brackets; an address without brackets is invalid, too.
    Invalid,
    /// A host name without a dot, or [`HeloFault::Invalid`].
    NotFqdn,
    /// An address in brackets (RFC 5321 section 4.1.3), which real mail servers rarely use.
    Literal,
    /// The name of this server or a domain of ours, which no other host may use.
    Ours,
    /// The name has neither addresses nor MX hosts in the DNS.
    Unknown,
}

impl HeloFault {
    /// All faults with their names in `helo_is`.
    pub const WORDS: [(&'static str, HeloFault); 5] = [
        ("invalid", HeloFault::Invalid),
        ("not-fqdn", HeloFault::NotFqdn),
        ("literal", HeloFault::Literal),
        ("ours", HeloFault::Ours),
        ("unknown", HeloFault::Unknown),
    ];

    pub fn word(self) -> &'static str {
        HeloFault::WORDS.iter().find(|(_, fault)| *fault == self).map_or("", |(word, _)| word)
    }

    /// Whether a name has this fault. `helo` is in lower case, without a final dot; an empty one is unknown and has
    /// no fault. `None`: the DNS must be queried for [`HeloFault::Unknown`].
    pub fn is_of(self, helo: &str, is_ours: impl FnOnce(&str) -> bool) -> Option<bool> {
        if helo.is_empty() {
            return Some(false);
        }
        let is_literal = is_literal(helo);
        Some(match self {
            HeloFault::Invalid => !is_literal && !is_host_name(helo),
            HeloFault::NotFqdn => !is_literal && !is_fqdn(helo),
            HeloFault::Literal => is_literal,
            HeloFault::Ours => is_ours(helo),
            HeloFault::Unknown if is_literal => false,
            HeloFault::Unknown if !is_host_name(helo) => true,
            HeloFault::Unknown => return None,
        })
    }

    /// The query whether a name exists in the DNS.
    pub fn question(helo: &str) -> Question {
        Question { name: helo.into(), kind: Kind::Exists }
    }
}

/// The query whether a sender's domain accepts mail; `None` for the null sender and for addresses in brackets.
pub fn sender_question(domain: &str) -> Option<Question> {
    let is_asked = !domain.is_empty() && !domain.starts_with('[');
    is_asked.then(|| Question { name: domain.into(), kind: Kind::TakesMail })
}

fn is_literal(name: &str) -> bool {
    let Some(inner) = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else { return false };
    match inner.strip_prefix("ipv6:") {
        Some(v6) => v6.parse::<Ipv6Addr>().is_ok(),
        None => inner.parse::<Ipv4Addr>().is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_names() {
        let faults = |helo: &str| -> Vec<&str> {
            let is = |fault: HeloFault| fault.is_of(helo, |name| name == "mx.home.test");
            HeloFault::WORDS.iter().filter(|(_, fault)| is(*fault) == Some(true)).map(|(word, _)| *word).collect()
        };
        for (helo, wanted) in [
            ("mx.a.test", &[][..]),
            ("a_b.c-d.test", &[]),
            ("", &[]),
            ("mx.home.test", &["ours"]),
            ("localhost", &["not-fqdn"]),
            ("192.0.2.1", &["invalid", "not-fqdn", "unknown"]),
            ("[192.0.2.1]", &["literal"]),
            ("[ipv6:2001:db8::1]", &["literal"]),
            ("[192.0.2.256]", &["invalid", "not-fqdn", "unknown"]),
            ("[2001:db8::1]", &["invalid", "not-fqdn", "unknown"]),
            ("-a.test", &["invalid", "not-fqdn", "unknown"]),
            ("a..test", &["invalid", "not-fqdn", "unknown"]),
            (".test", &["invalid", "not-fqdn", "unknown"]),
            ("a:b", &["invalid", "not-fqdn", "unknown"]),
        ] {
            assert_eq!(faults(helo), wanted, "{helo}");
        }
        assert_eq!(HeloFault::Unknown.is_of("mx.a.test", |_| false), None);
        assert_eq!(HeloFault::Unknown.is_of("localhost", |_| false), None);
        let long = "a".repeat(64) + ".test";
        assert_eq!(faults(&long), ["invalid", "not-fqdn", "unknown"]);
    }

    #[test]
    fn senders_without_a_domain_are_not_asked_about() {
        assert_eq!(sender_question(""), None);
        assert_eq!(sender_question("[192.0.2.1]"), None);
        assert_eq!(sender_question("a.test").map(|question| question.kind), Some(Kind::TakesMail));
    }
}
