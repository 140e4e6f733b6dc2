//! The name in HELO or EHLO: what can be wrong with it.
//!
//! The four that are told by the name alone are Postfix's: `reject_invalid_helo_hostname`, `reject_non_fqdn_helo_hostname`, and what
//! its users write into tables for address literals and their own names.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::names::{is_fqdn, is_host_name};
use crate::question::{Kind, Question};

/// What `helo_is` may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeloFault {
    /// Neither a host name nor an address in brackets; an address without brackets is invalid, too.
    Invalid,
    /// A host name without a dot, or [`HeloFault::Invalid`].
    NotFqdn,
    /// An address in brackets (RFC 5321 section 4.1.3), which real mail servers seldom use.
    Literal,
    /// The name of this server or a domain of ours, which only we have.
    Ours,
    /// The DNS has neither addresses nor MX hosts of this name.
    Unknown,
}

impl HeloFault {
    /// All of them, as `helo_is` names them.
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

    /// Whether a name has this fault. `helo` is in lower case, without a final dot; nothing is wrong with an empty one, which
    /// is not known. `None`: [`HeloFault::Unknown`], and the DNS has to be asked.
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

    /// Whether the DNS knows a name.
    pub fn question(helo: &str) -> Question {
        Question { name: helo.into(), kind: Kind::Exists }
    }
}

/// Whether the domain of a sender takes mail: nothing is asked about the null sender, and about addresses in brackets.
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
