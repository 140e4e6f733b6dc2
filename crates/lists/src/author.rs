//! Puts a list's address into From of its copies, where receivers would refuse the author's (RFC 9989 section 7.4).
//!
//! Promise: the author's From stays in the copy, in X-Original-From, and in Reply-To unless the post has its own. A
//! name in it cannot break out of the new field. Failure: of text that is not a field, nothing is written.

use stentor_mail::address::Address;
use stentor_mail::heading::Heading;
use stentor_mime::field;

use crate::fields::{append, phrase};

const FROM: &str = "From";
const REPLY_TO: &str = "Reply-To";
/// The author as the post names it. Google Groups uses the same name.
const ORIGINAL_FROM: &str = "X-Original-From";
/// Longest name taken from From.
const NAME_CHARS_MAX: usize = 100;

/// When copies have the list's address in From.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FromRewriting {
    Never,
    /// When receivers would refuse them otherwise.
    #[default]
    Dmarc,
    Always,
}

/// The author of a post whose copies may have the list's address in From.
#[derive(Debug, Clone, Copy)]
pub struct PostAuthor<'a> {
    /// The whole field From.
    pub from: &'a [u8],
    pub has_reply_to: bool,
    /// Receivers would refuse copies with this From.
    pub is_refused: bool,
}

/// A list as the author of its copies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListAuthor<'a> {
    pub name: &'a str,
    pub address: &'a Address,
}

/// Appends the new From, X-Original-From and, unless the post has one, Reply-To.
pub(crate) fn append_rewritten(author: PostAuthor<'_>, list: ListAuthor<'_>, out: &mut Vec<u8>) {
    let PostAuthor { from, has_reply_to, .. } = author;
    let Some((_, value)) = field::split(from) else { return };
    let mut tokens = phrase(&format!("{} via {}", author_name(from), list.name));
    tokens.push(format!("<{}>", list.address));
    append(out, FROM, &tokens);
    let copied: &[&str] = if has_reply_to { &[ORIGINAL_FROM] } else { &[ORIGINAL_FROM, REPLY_TO] };
    for name in copied {
        out.extend_from_slice(name.as_bytes());
        out.push(b':');
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
}

/// The name of the first author; without one, the local part of the address.
fn author_name(from: &[u8]) -> String {
    let name = Heading::of(from).author;
    let is_address = name.contains('@') && !name.contains(' ');
    let name = if is_address { name.split('@').next().unwrap_or_default() } else { &name };
    name.chars().take(NAME_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rewritten(from: &str, has_reply_to: bool) -> String {
        let mut out = Vec::new();
        let address = "news@lists.example.org".parse().unwrap();
        let list = ListAuthor { name: "news", address: &address };
        let from = format!("From:{from}\r\n");
        let author = PostAuthor { from: from.as_bytes(), has_reply_to, is_refused: true };
        append_rewritten(author, list, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_list_is_the_author_and_the_author_is_named() {
        for (from, name) in [
            (" Ann Example <ann@x.example>", "\"Ann Example via news\""),
            (" \"Example, \\\"Ann\\\"\" <ann@x.example>", "\"Example, \\\"Ann\\\" via news\""),
            (" ann@x.example", "\"ann via news\""),
            (" ann@x.example (Ann Example)", "\"Ann Example via news\""),
            (" <ann@x.example>", "\"ann via news\""),
            (" Ann\r\n Example <ann@x.example>, b@y.example", "\"Ann Example via news\""),
            (" All: Ann <ann@x.example>;", "\"Ann via news\""),
            (" =?utf-8?q?J=C3=B6rg?= <j@x.example>", "=?utf-8?B?SsO2cmcgdmlhIG5ld3M=?="),
            (" =?utf-8?q?a=0D=0ABcc:_x=40y.example?= <j@x.example>", "\"x via news\""),
        ] {
            let wanted =
                format!("From: {name} <news@lists.example.org>\r\nX-Original-From:{from}\r\nReply-To:{from}\r\n");
            assert_eq!(rewritten(from, false), wanted);
        }
        let kept = rewritten(" Ann <ann@x.example>", true);
        assert!(!kept.contains("Reply-To") && kept.contains("X-Original-From: Ann <ann@x.example>\r\n"), "{kept}");
    }

    proptest! {
        #[test]
        fn every_from_becomes_one_field_with_the_lists_address(value in "[ -~\u{e4}\\\\\"()<>,;:@=?]{0,200}") {
            let text = rewritten(&format!(" {value}"), true);
            let unfolded = text.replace("\r\n ", " ");
            let lines: Vec<&str> = unfolded.split("\r\n").collect();
            prop_assert_eq!(lines.len(), 3, "{}", text);
            prop_assert!(lines[0].starts_with("From: ") && lines[0].ends_with(" <news@lists.example.org>"), "{}", text);
            let original = format!("X-Original-From: {value}");
            prop_assert_eq!(lines[1], original.as_str());
        }
    }
}
