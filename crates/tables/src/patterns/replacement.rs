//! Values with `$1`, `${1}` and `$(1)`; `$$` is a dollar sign.

use regex::bytes::Regex;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Replacement {
    pieces: Vec<Piece>,
}

#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    Group(u16),
}

impl Replacement {
    /// Parses a value; the error is the reason why it is not valid.
    pub fn parse(text: &[u8]) -> Result<Self, &'static str> {
        let mut pieces = Vec::new();
        let mut literal = Vec::new();
        let mut at = 0;
        while let Some(&octet) = text.get(at) {
            at += 1;
            if octet != b'$' {
                literal.push(octet);
                continue;
            }
            if text.get(at) == Some(&b'$') {
                literal.push(b'$');
                at += 1;
                continue;
            }
            let name = name(&text[at..])?;
            at += name.octets;
            let group = std::str::from_utf8(name.text).ok().and_then(|digits| digits.parse().ok());
            let group = match group {
                Some(0) | None => return Err("'$' without a group number; write $$ for a dollar sign"),
                Some(group) => group,
            };
            if !literal.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut literal)));
            }
            pieces.push(Piece::Group(group));
        }
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal));
        }
        Ok(Self { pieces })
    }

    /// The value, if it contains no part of the match.
    pub fn literal(&self) -> Option<&[u8]> {
        match self.pieces.as_slice() {
            [] => Some(&[]),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The greatest group number.
    pub fn groups(&self) -> u16 {
        let number = |piece: &Piece| if let Piece::Group(group) = piece { *group } else { 0 };
        self.pieces.iter().map(number).max().unwrap_or(0)
    }

    /// Replaces `out` by the value for a key that matches. A group without a match is empty.
    pub fn expand(&self, pattern: &Regex, key: &[u8], out: &mut Vec<u8>) {
        out.clear();
        let captures = pattern.captures(key);
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text),
                Piece::Group(group) => {
                    let found = captures.as_ref().and_then(|captures| captures.get(usize::from(*group)));
                    out.extend_from_slice(found.map_or(&[], |found| found.as_bytes()));
                }
            }
        }
    }
}

struct Name<'a> {
    text: &'a [u8],
    /// Length including brackets.
    octets: usize,
}

/// Parses the text after `$`.
fn name(text: &[u8]) -> Result<Name<'_>, &'static str> {
    let close = match text.first() {
        Some(b'{') => b'}',
        Some(b'(') => b')',
        _ => {
            let is_name = |octet: &&u8| octet.is_ascii_alphanumeric() || **octet == b'_';
            let octets = text.iter().take_while(is_name).count();
            return Ok(Name { text: &text[..octets], octets });
        }
    };
    match text.iter().position(|&octet| octet == close) {
        Some(end) => Ok(Name { text: &text[1..end], octets: end + 1 }),
        None => Err("'$' with an unclosed bracket"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces() {
        let parsed = |text: &str| Replacement::parse(text.as_bytes());
        assert_eq!(parsed("a $$1 b").unwrap().literal(), Some(&b"a $1 b"[..]));
        assert_eq!(parsed("").unwrap().literal(), Some(&b""[..]));
        let value = parsed("$1a").unwrap_err();
        assert!(value.contains("$$"), "{value}");
        for wrong in ["$", "$0", "$name", "${1", "$(1}", "$-1", "$ 1", "$99999"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
        let (value, mut out) = (parsed("<$2-${1}$(12)>").unwrap(), b"old".to_vec());
        assert_eq!((value.groups(), value.literal()), (12, None));
        value.expand(&Regex::new("(a)|(b)").unwrap(), b"xa", &mut out);
        assert_eq!(out, b"<-a>");
    }
}
