//! The mechanisms of AUTH that a server offers (RFC 4954 section 3): the known ones, and whether there are others. A
//! set of bits, since each session keeps two of them.

use std::fmt;

/// A set of SASL mechanisms.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct OfferedMechanisms(u16);

impl OfferedMechanisms {
    pub const NONE: Self = Self(0);
    /// Mechanisms that are unknown here.
    pub const OTHERS: Self = Self(1 << 7);

    /// Names as in the registry of SASL mechanisms; each one's index is its bit.
    const NAMES: [&str; 7] =
        ["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256", "PLAIN", "LOGIN", "CRAM-MD5", "OAUTHBEARER", "XOAUTH2"];

    /// Returns the set of one mechanism; [`Self::OTHERS`] if it is unknown. The case of names is ignored.
    pub fn of(name: &str) -> Self {
        let at = Self::NAMES.iter().position(|known| known.eq_ignore_ascii_case(name));
        at.map_or(Self::OTHERS, |bit| Self(1 << bit))
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether any of `other` is in this set.
    pub fn any_of(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the names of the known mechanisms.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().enumerate().filter(move |(bit, _)| self.0 & (1 << bit) != 0).map(|(_, name)| name)
    }

    pub(super) fn bits(self) -> u16 {
        self.0
    }

    pub(super) fn of_bits(bits: u16) -> Self {
        Self(bits & ((1 << 8) - 1))
    }
}

/// `PLAIN LOGIN`
impl fmt::Display for OfferedMechanisms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let others = self.any_of(Self::OTHERS).then_some("others");
        for (index, name) in self.names().chain(others).enumerate() {
            write!(f, "{}{name}", if index > 0 { " " } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for OfferedMechanisms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_ones_have_names_and_others_are_one() {
        for name in OfferedMechanisms::NAMES {
            let set = OfferedMechanisms::of(&name.to_ascii_lowercase());
            assert_eq!((set.names().collect::<Vec<_>>(), set.to_string()), (vec![name], name.to_owned()));
            assert_eq!(OfferedMechanisms::of_bits(set.bits()), set);
        }
        let both =
            OfferedMechanisms::of("NTLM").and(OfferedMechanisms::of("GSSAPI")).and(OfferedMechanisms::of("plain"));
        assert_eq!(both.to_string(), "PLAIN others");
        assert!(both.any_of(OfferedMechanisms::OTHERS) && !both.any_of(OfferedMechanisms::of("LOGIN")));
        assert!(OfferedMechanisms::NONE.is_empty() && OfferedMechanisms::of_bits(!0xff).is_empty());
    }
}
