//! Reads the text of a reply: its code, its enhanced code, and its words.
//!
//! Replies arrive in many wrappings: `550 5.1.1 ...`, `smtp; 550-5.1.1 ...` in several lines, `host x said: 550 ...`.
//! The first code that stands where a reply begins counts; words before it are left out, as are codes repeated by
//! further lines. Each run of white space becomes one space, so that a rule matches however the reply was folded.
//!
//! Promise: linear time; at most [`TEXT_BYTES_MAX`] octets are examined. Failure: none; a text without codes has words
//! only.

use stentor_mail::reply::Enhanced;

/// Octets examined of a reply.
pub const TEXT_BYTES_MAX: usize = 4096;
/// Words before a reply code that needs no sign of a reply before it.
const LEADING_WORDS: usize = 2;

/// A reply to classify, with what is known beside its text.
#[derive(Debug, Clone, Copy, Default)]
pub struct BounceReply<'a> {
    pub text: &'a str,
    /// Reply code; used if the text has none.
    pub code: Option<u16>,
    /// Enhanced status code, such as the Status of a DSN; used if the text has none.
    pub enhanced: Option<Enhanced>,
    /// The host that replied, or the recipient's domain; may be empty.
    pub host: &'a str,
}

/// A reply's codes and words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplyWords {
    pub code: Option<u16>,
    pub enhanced: Option<Enhanced>,
    /// The text with single spaces, without repeated codes.
    pub words: String,
}

/// The start of a text, of at most `bytes_max` octets, cut between characters.
pub fn start_of(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

impl ReplyWords {
    pub fn read(text: &str) -> ReplyWords {
        let mut read = ReplyWords::default();
        let mut before = "";
        for (at, word) in start_of(text, TEXT_BYTES_MAX).split_whitespace().enumerate() {
            let code = code_at(word);
            let begins = at <= LEADING_WORDS || is_before_code(before);
            if let Some(code) = code.filter(|code| read.code == Some(*code) || read.code.is_none() && begins) {
                let is_repeated = read.code == Some(code);
                // Words before a reply are the reporter's: `host mx.example said:`.
                if !is_repeated {
                    read.words.clear();
                }
                read.code = Some(code);
                let rest = word.trim_start_matches(['"', '\'', '(', '<']).get(3..).unwrap_or_default();
                let rest = rest.trim_start_matches(['-', ':', ' ']);
                let enhanced = enhanced_at(rest);
                let is_same = is_repeated && enhanced.is_some() && enhanced == read.enhanced;
                read.push(if is_same {
                    ""
                } else if is_repeated {
                    rest
                } else {
                    word
                });
                read.enhanced = read.enhanced.or(enhanced);
            } else {
                let enhanced = enhanced_at(word);
                let is_repeated = enhanced.is_some() && enhanced == read.enhanced;
                read.enhanced = read.enhanced.or(enhanced);
                read.push(if is_repeated { "" } else { word });
            }
            before = word;
        }
        read
    }

    fn push(&mut self, word: &str) {
        if word.is_empty() {
            return;
        }
        if !self.words.is_empty() {
            self.words.push(' ');
        }
        self.words.push_str(word);
    }
}

/// A word that reply codes follow.
fn is_before_code(word: &str) -> bool {
    word.ends_with([':', ';', '"', '(', '<', '|', '='])
        || ["code", "error", "said", "was", "reply", "response", "returned"]
            .iter()
            .any(|sign| word.eq_ignore_ascii_case(sign))
}

/// A reply code of a failure at the start of a word.
fn code_at(word: &str) -> Option<u16> {
    let word = word.trim_start_matches(['"', '\'', '(', '<']);
    let digits = word.get(..3)?;
    let is_end = word[3..].starts_with(['-', ':', ',', ')', '"', '\'']) || word.len() == 3;
    let is_code = matches!(digits.as_bytes(), [b'4' | b'5', b'0'..=b'7', b'0'..=b'9']);
    (is_end && is_code).then(|| digits.parse().ok())?
}

/// An enhanced code of a failure within a word such as `(#5.1.1)`.
fn enhanced_at(word: &str) -> Option<Enhanced> {
    let word = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let word = word.split_once('-').filter(|(code, _)| code.len() == 3).map_or(word, |(_, rest)| rest);
    Enhanced::parse(word).filter(|enhanced| enhanced.class != 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> (Option<u16>, Option<String>, String) {
        let read = ReplyWords::read(text);
        (read.code, read.enhanced.map(|enhanced| enhanced.to_string()), read.words)
    }

    #[test]
    fn codes_are_found_in_their_wrappings() {
        for (text, code, enhanced) in [
            ("550 5.1.1 No such user", Some(550), Some("5.1.1")),
            ("smtp; 550-5.1.1 The account\n 550 5.1.1 does not exist", Some(550), Some("5.1.1")),
            ("host mx.example[192.0.2.1] said: 550 unknown user (in reply to RCPT TO command)", Some(550), None),
            ("Remote host said: 553 sorry, no mailbox here by that name (#5.7.1)", Some(553), Some("5.7.1")),
            ("Sorry, no mailbox here by that name. (#5.1.1)", None, Some("5.1.1")),
            ("MTA 8.8.8 at 192.0.2.5 refused 500 messages", None, None),
            ("(reply: \"421 Too many\")", Some(421), None),
        ] {
            let (found, found_enhanced, _) = read(text);
            assert_eq!((found, found_enhanced.as_deref()), (code, enhanced), "{text}");
        }
    }

    #[test]
    fn repeated_codes_are_no_words() {
        let (_, _, words) = read("550-5.1.1 The account that you tried\r\n550-5.1.1 does not\r\n550 5.1.1 exist");
        assert_eq!(words, "550-5.1.1 The account that you tried does not exist");
        let (_, _, words) = read("550-One\n550-two\n550 three");
        assert_eq!(words, "550-One two three");
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in any::<String>()) {
            let read = ReplyWords::read(&text);
            prop_assert!(read.words.len() <= TEXT_BYTES_MAX);
            prop_assert!(read.code.is_none_or(|code| (400..580).contains(&code)));
        }
    }
}
