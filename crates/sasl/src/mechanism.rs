//! The names of mechanisms, and sets of them.

use std::fmt;
use std::str::FromStr;

/// A mechanism supported on at least one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mechanism {
    ScramSha256Plus,
    ScramSha256,
    OauthBearer,
    Xoauth2,
    Plain,
    Login,
    CramMd5,
}

impl Mechanism {
    pub const ALL: [Mechanism; 7] = [
        Mechanism::ScramSha256Plus,
        Mechanism::ScramSha256,
        Mechanism::OauthBearer,
        Mechanism::Xoauth2,
        Mechanism::Plain,
        Mechanism::Login,
        Mechanism::CramMd5,
    ];

    /// The name, as registered with IANA except for LOGIN and XOAUTH2.
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::ScramSha256Plus => "SCRAM-SHA-256-PLUS",
            Mechanism::ScramSha256 => "SCRAM-SHA-256",
            Mechanism::OauthBearer => "OAUTHBEARER",
            Mechanism::Xoauth2 => "XOAUTH2",
            Mechanism::Plain => "PLAIN",
            Mechanism::Login => "LOGIN",
            Mechanism::CramMd5 => "CRAM-MD5",
        }
    }

    /// Whether it uses a token instead of a password.
    pub fn takes_token(self) -> bool {
        matches!(self, Mechanism::OauthBearer | Mechanism::Xoauth2)
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// The name is not in [`Mechanism::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a supported SASL mechanism")]
pub struct UnknownMechanism;

impl FromStr for Mechanism {
    type Err = UnknownMechanism;

    /// Parses a name, ignoring case (as RFC 4954 section 4 compares keywords).
    fn from_str(text: &str) -> Result<Mechanism, UnknownMechanism> {
        Mechanism::ALL.into_iter().find(|one| one.name().eq_ignore_ascii_case(text)).ok_or(UnknownMechanism)
    }
}

/// A set of mechanisms, iterated in the order of [`Mechanism::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mechanisms(u8);

impl Mechanisms {
    pub const NONE: Mechanisms = Mechanisms(0);

    pub fn all() -> Mechanisms {
        Mechanism::ALL.into_iter().collect()
    }

    /// The mechanisms for servers: not CRAM-MD5, which needs passwords stored in clear.
    pub fn served() -> Mechanisms {
        Mechanisms::all().without(Mechanism::CramMd5)
    }

    pub fn has(self, mechanism: Mechanism) -> bool {
        self.0 & (1 << mechanism as u8) != 0
    }

    #[must_use]
    pub fn with(self, mechanism: Mechanism) -> Mechanisms {
        Mechanisms(self.0 | 1 << mechanism as u8)
    }

    #[must_use]
    pub fn without(self, mechanism: Mechanism) -> Mechanisms {
        Mechanisms(self.0 & !(1 << mechanism as u8))
    }

    /// The mechanisms in both sets.
    #[must_use]
    pub fn shared(self, other: Mechanisms) -> Mechanisms {
        Mechanisms(self.0 & other.0)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = Mechanism> {
        Mechanism::ALL.into_iter().filter(move |one| self.has(*one))
    }

    /// Parses the value of AUTH in EHLO; unknown names are skipped.
    pub fn parse(text: &str) -> Mechanisms {
        text.split_ascii_whitespace().filter_map(|name| name.parse().ok()).collect()
    }
}

impl FromIterator<Mechanism> for Mechanisms {
    fn from_iter<T: IntoIterator<Item = Mechanism>>(mechanisms: T) -> Mechanisms {
        mechanisms.into_iter().fold(Mechanisms::NONE, Mechanisms::with)
    }
}

/// Formats the set as in EHLO: names separated by spaces; `{:#}` adds commas, for people.
impl fmt::Display for Mechanisms {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, mechanism) in self.iter().enumerate() {
            if place > 0 {
                out.write_str(if out.alternate() { ", " } else { " " })?;
            }
            out.write_str(mechanism.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_whatever_their_case() {
        for mechanism in Mechanism::ALL {
            assert_eq!(mechanism.name().parse(), Ok(mechanism));
            assert_eq!(mechanism.name().to_lowercase().parse(), Ok(mechanism));
        }
        assert_eq!("SCRAM-SHA-1".parse::<Mechanism>(), Err(UnknownMechanism));
    }

    #[test]
    fn a_set_is_what_ehlo_says() {
        let offered = Mechanisms::parse("login PLAIN GSSAPI plain SCRAM-SHA-256");
        assert_eq!(offered.to_string(), "SCRAM-SHA-256 PLAIN LOGIN");
        assert_eq!(format!("{offered:#}"), "SCRAM-SHA-256, PLAIN, LOGIN");
        assert!(offered.has(Mechanism::Login) && !offered.has(Mechanism::CramMd5));
        assert_eq!(offered.without(Mechanism::Plain).to_string(), "SCRAM-SHA-256 LOGIN");
        assert_eq!(offered.shared(Mechanisms::parse("XOAUTH2 LOGIN")).to_string(), "LOGIN");
        assert_eq!(Mechanisms::all().iter().count(), 7);
        assert!(Mechanisms::parse("GSSAPI").is_empty());
    }
}
