//! Case folding of keys.
//!
//! Postfix folds keys by Unicode (`ß` is `ss`), makemap and sendmail only fold ASCII.

/// How the keys of a table are folded, at load and at each lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fold {
    Unicode,
    Ascii,
}

/// The key is not UTF-8, so no key folded by Unicode can match it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotUtf8;

impl Fold {
    /// Replaces `out` by the folded key.
    pub fn fold(self, key: &[u8], out: &mut Vec<u8>) -> Result<(), NotUtf8> {
        out.clear();
        if self == Self::Ascii || key.is_ascii() {
            out.extend(key.iter().map(u8::to_ascii_lowercase));
            return Ok(());
        }
        for letter in std::str::from_utf8(key).map_err(|_| NotUtf8)?.chars() {
            push(letter, out);
        }
        Ok(())
    }
}

/// The value of a key in one of Postfix's databases, in which keys and values may or may not include a final NUL.
pub(crate) fn with_or_without_nul<'a>(
    key: &[u8],
    folded: &mut Vec<u8>,
    find: impl Fn(&[u8]) -> Option<&'a [u8]>,
) -> Option<&'a [u8]> {
    Fold::Unicode.fold(key, folded).ok()?;
    if folded.is_empty() {
        return None;
    }
    if let Some(value) = find(folded) {
        return Some(value);
    }
    folded.push(0);
    find(folded).map(|value| value.strip_suffix(b"\0").unwrap_or(value))
}

/// Appends the full case folding of a letter: the lower case of its upper case, with a few exceptions. This agrees
/// with ICU, which Postfix uses, for every assigned character.
fn push(letter: char, out: &mut Vec<u8>) {
    let mut utf8 = [0; 4];
    match letter {
        // Dotless i folds to itself, and Cherokee letters to their capitals.
        'ı' | '\u{13a0}'..='\u{13f5}' => out.extend_from_slice(letter.encode_utf8(&mut utf8).as_bytes()),
        '\u{13f8}'..='\u{13fd}' | '\u{ab70}'..='\u{abbf}' => {
            for upper in letter.to_uppercase() {
                out.extend_from_slice(upper.encode_utf8(&mut utf8).as_bytes());
            }
        }
        // It is its own upper case.
        'ẞ' => out.extend_from_slice(b"ss"),
        _ => {
            for lower in letter.to_uppercase().flat_map(char::to_lowercase) {
                out.extend_from_slice(lower.encode_utf8(&mut utf8).as_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(fold: Fold, text: &str) -> String {
        let mut out = b"rest".to_vec();
        fold.fold(text.as_bytes(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn unicode_is_folded_in_full() {
        assert_eq!(folded(Fold::Unicode, "User@EXAMPLE"), "user@example");
        assert_eq!(folded(Fold::Unicode, "ÄÖßẞ"), "äössss");
        assert_eq!(folded(Fold::Unicode, "ΣΑΣ"), folded(Fold::Unicode, "σας"));
        assert_eq!(folded(Fold::Unicode, "ſı"), "sı");
        assert_eq!(folded(Fold::Ascii, "ÄB"), "Äb");
    }

    #[test]
    fn what_is_not_utf8_has_no_folding_but_in_ascii() {
        let mut out = Vec::new();
        assert_eq!(Fold::Unicode.fold(b"\xff", &mut out), Err(NotUtf8));
        assert_eq!(Fold::Ascii.fold(b"\xffA", &mut out), Ok(()));
        assert_eq!(out, b"\xffa");
    }
}
