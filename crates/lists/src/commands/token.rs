//! Tokens of confirmations: 128 random bits in Crockford's base32.
//!
//! Promise: a token survives mail systems that fold the case of local parts, and people who read O for 0, or I and L
//! for 1. All spellings of a token parse to the same text.

use std::fmt;

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// Characters of 128 bits, 5 each.
const CHARS: usize = 26;

/// A token in its only spelling.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfirmationToken([u8; CHARS]);

impl ConfirmationToken {
    /// Makes a token of random octets.
    pub fn new(random: [u8; 16]) -> ConfirmationToken {
        let bits = u128::from_be_bytes(random);
        let mut text = [0; CHARS];
        for (place, octet) in text.iter_mut().rev().enumerate() {
            *octet = ALPHABET[(bits >> (5 * place)) as usize & 31];
        }
        ConfirmationToken(text)
    }

    /// Reads a token in any spelling.
    pub fn parse(text: &str) -> Option<ConfirmationToken> {
        let octets: [u8; CHARS] = text.as_bytes().try_into().ok()?;
        let mut token = [0; CHARS];
        for (octet, kept) in octets.into_iter().zip(&mut token) {
            *kept = match octet.to_ascii_lowercase() {
                b'o' => b'0',
                b'i' | b'l' => b'1',
                other => ALPHABET.iter().copied().find(|known| *known == other)?,
            };
        }
        // 26 characters have two bits more than a token.
        (token[0] < b'8').then_some(ConfirmationToken(token))
    }

    /// Finds `confirm TOKEN` in a text.
    pub fn find(text: &str) -> Option<ConfirmationToken> {
        let mut words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).peekable();
        while let Some(word) = words.next() {
            if word.eq_ignore_ascii_case("confirm")
                && let Some(token) = words.peek().and_then(|next| ConfirmationToken::parse(next))
            {
                return Some(token);
            }
        }
        None
    }

    pub fn as_str(&self) -> &str {
        // The alphabet is ASCII.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for ConfirmationToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// A token permits a change, so logs do not have it.
impl fmt::Debug for ConfirmationToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("ConfirmationToken(..)")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spellings_of_a_token_are_one() {
        let token = ConfirmationToken::new([0; 16]);
        assert_eq!(token.as_str(), "0".repeat(26));
        assert_eq!(ConfirmationToken::parse(&"O".repeat(26)), Some(token));
        let ones = ConfirmationToken::parse(&"Il1".repeat(9)[..26]).unwrap();
        assert_eq!(ones.as_str(), "1".repeat(26));
        assert_eq!(ConfirmationToken::new([255; 16]).as_str(), format!("7{}", "z".repeat(25)));
        for wrong in ["", &"0".repeat(25), &"0".repeat(27), &"u".repeat(26), &format!("8{}", "0".repeat(25))] {
            assert_eq!(ConfirmationToken::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_token_is_found_behind_its_word_alone() {
        let token = ConfirmationToken::new([7; 16]);
        for text in [
            format!("Re: confirm {token}"),
            format!("AW: Join news? [Confirm: {}]", token.as_str().to_uppercase()),
            format!("confirm confirm {token}"),
        ] {
            assert_eq!(ConfirmationToken::find(&text), Some(token.clone()), "{text}");
        }
        for text in [token.to_string(), format!("confirm it {token}"), "confirm".to_owned()] {
            assert_eq!(ConfirmationToken::find(&text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_token_is_read_as_it_was_made(random in any::<[u8; 16]>()) {
            let token = ConfirmationToken::new(random);
            prop_assert_eq!(ConfirmationToken::parse(&token.as_str().to_uppercase()), Some(token.clone()));
        }

        #[test]
        fn no_text_panics(text in any::<String>()) {
            ConfirmationToken::find(&text);
            ConfirmationToken::parse(&text);
        }
    }
}
