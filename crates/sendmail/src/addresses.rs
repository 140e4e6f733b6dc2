//! Parses lists of addresses on the command line and in the fields To, Cc, Bcc and so on.
//!
//! Promise: linear time; in any text each address is found with its position, by the syntax of RFC 5322 section 3.4
//! only: comments, quoted strings, groups, `<...>` with obsolete routes. As in sendmail and Postfix, bare words
//! separated only by white space are several addresses (`mail ann bob`). `stentor_mail::address` decides whether they
//! are valid.

use std::ops::Range;

use stentor_mime::field::{comment_end, quoted_end};

/// An address in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedAddress {
    /// Text without comments, white space, brackets and route; empty for `<>`.
    pub text: String,
    /// Position in the list; a missing domain is inserted at its end.
    pub place: Range<usize>,
}

impl ListedAddress {
    /// Whether a domain must be added.
    pub fn is_bare(&self) -> bool {
        !self.text.is_empty() && unquoted_at(&self.text).is_none()
    }
}

/// Position of the `@` before the domain.
fn unquoted_at(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped, mut at) = (false, false, None);
    for (i, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            b'@' if !quoted => at = Some(i),
            _ => {}
        }
    }
    at
}

/// Adds a domain to the address if it has none.
pub fn qualified(text: &str, domain: &str) -> String {
    let is_bare = !text.is_empty() && unquoted_at(text).is_none();
    if is_bare { format!("{text}@{domain}") } else { text.to_owned() }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// An atom or a quoted string.
    Word,
    /// `@` or `.`, which join the words beside them.
    Joint,
    Open,
    Close,
    Comma,
    Colon,
    Semicolon,
}

struct Token {
    kind: Kind,
    place: Range<usize>,
}

/// Parses a list.
pub fn parse(list: &[u8]) -> Vec<ListedAddress> {
    let tokens = tokens(list);
    let text = |place: &Range<usize>| String::from_utf8_lossy(&list[place.clone()]);
    let mut found = Vec::new();
    // Words since the last separator: addresses unless a `<` or a group's colon follows.
    let mut words: Vec<ListedAddress> = Vec::new();
    let mut joined = false;
    let mut i = 0;
    while let Some(token) = tokens.get(i) {
        i += 1;
        match token.kind {
            Kind::Word | Kind::Joint => {
                let is_joint = token.kind == Kind::Joint;
                match words.last_mut().filter(|_| is_joint || joined) {
                    Some(last) => {
                        last.text.push_str(&text(&token.place));
                        last.place.end = token.place.end;
                    }
                    None => {
                        words.push(ListedAddress { text: text(&token.place).into_owned(), place: token.place.clone() });
                    }
                }
                joined = is_joint;
                continue;
            }
            Kind::Open => {
                words.clear();
                let close = tokens[i..].iter().position(|token| matches!(token.kind, Kind::Close));
                let end = close.map_or(tokens.len(), |at| i + at);
                found.push(angle(list, &tokens[i..end], token.place.end));
                i = end + usize::from(close.is_some());
            }
            // The name of a group has no domain.
            Kind::Colon => {
                words.retain(|word| !word.is_bare());
                found.append(&mut words);
            }
            Kind::Comma | Kind::Semicolon => found.append(&mut words),
            Kind::Close => {}
        }
        joined = false;
    }
    found.append(&mut words);
    found
}

/// Parses the text between angle brackets, without a route (RFC 5322 section 4.4).
fn angle(list: &[u8], tokens: &[Token], at: usize) -> ListedAddress {
    let text = |token: &Token| String::from_utf8_lossy(&list[token.place.clone()]);
    let route = tokens.first().is_some_and(|token| text(token) == "@");
    let after = tokens.iter().position(|token| token.kind == Kind::Colon).filter(|_| route);
    let tokens = after.map_or(tokens, |colon| &tokens[colon + 1..]);
    let text = tokens.iter().map(text).collect();
    let place = match (tokens.first(), tokens.last()) {
        (Some(first), Some(last)) => first.place.start..last.place.end,
        _ => at..at,
    };
    ListedAddress { text, place }
}

fn tokens(bytes: &[u8]) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let kind = match bytes[at] {
            b'(' => {
                at = comment_end(&bytes[at..]).map_or(bytes.len(), |end| at + end);
                continue;
            }
            byte if is_space(byte) => {
                at += 1;
                continue;
            }
            b'"' => {
                let end = quoted_end(&bytes[at..], b'"').map_or(bytes.len(), |end| at + end);
                tokens.push(Token { kind: Kind::Word, place: at..end });
                at = end;
                continue;
            }
            b'@' | b'.' => Kind::Joint,
            b'<' => Kind::Open,
            b'>' => Kind::Close,
            b',' => Kind::Comma,
            b':' => Kind::Colon,
            b';' => Kind::Semicolon,
            // A colon within an address literal is part of it.
            b'[' => {
                let end = bytes[at..].iter().position(|byte| *byte == b']' || is_space(*byte));
                let end = end.map_or(bytes.len(), |end| at + end + usize::from(bytes[at + end] == b']'));
                tokens.push(Token { kind: Kind::Word, place: at..end });
                at = end;
                continue;
            }
            _ => {
                let special = |byte: &u8| is_space(*byte) || b"(\"@.<>,:;[".contains(byte);
                let end = bytes[at..].iter().position(special).map_or(bytes.len(), |end| at + end);
                tokens.push(Token { kind: Kind::Word, place: at..end });
                at = end;
                continue;
            }
        };
        tokens.push(Token { kind, place: at..at + 1 });
        at += 1;
    }
    tokens
}

/// Other control characters remain in the word, which is then not a valid address.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(list: &str) -> Vec<String> {
        parse(list.as_bytes()).into_iter().map(|found| found.text).collect()
    }

    #[test]
    fn lists_are_read_as_the_others_read_them() {
        for (list, expected) in [
            ("ann@one.example", &["ann@one.example"][..]),
            ("a b c", &["a", "b", "c"]),
            ("a@x.org b@x.org", &["a@x.org", "b@x.org"]),
            ("Ann Example <a@x.org>, b@x.org", &["a@x.org", "b@x.org"]),
            ("a@x, \"B, C\" <b@x> (com,ment), grp: c@x, d@x;", &["a@x", "b@x", "c@x", "d@x"]),
            ("Undisclosed recipients:;", &[]),
            ("<>", &[""]),
            ("", &[]),
            (" , ,\n ", &[]),
            ("<@hop.example,@b.example:ann@one.example>", &["ann@one.example"]),
            ("\"john doe\"@x.org", &["\"john doe\"@x.org"]),
            ("ann @ one . example", &["ann@one.example"]),
            ("ann@[IPv6:2001:db8::1], bob", &["ann@[IPv6:2001:db8::1]", "bob"]),
            ("a (a (nested\\) comment)) @x", &["a@x"]),
            ("b@x\nBcc: y@z", &["b@x", "y@z"]),
            ("ann@x.org <bob@x.org>", &["bob@x.org"]),
            ("b\u{1}c@x", &["b\u{1}c@x"]),
            ("<unclosed@x.org", &["unclosed@x.org"]),
            ("\"open quote@x.org", &["\"open quote@x.org"]),
            ("A. Nobody <n@x.org>", &["n@x.org"]),
            ("müller@x.org", &["müller@x.org"]),
        ] {
            assert_eq!(texts(list), expected, "{list:?}");
        }
    }

    #[test]
    fn a_domain_is_added_where_there_is_none() {
        let bare = |list: &str| parse(list.as_bytes()).iter().map(ListedAddress::is_bare).collect::<Vec<_>>();
        assert_eq!(bare("root, ann@x, <>, \"a@b\", \"a@b\"@x"), [true, false, false, true, false]);
        assert_eq!(qualified("root", "mx.example"), "root@mx.example");
        assert_eq!((qualified("", "mx.example").as_str(), qualified("a@b", "x").as_str()), ("", "a@b"));
    }

    proptest! {
        #[test]
        fn whatever_the_text_places_are_within_it(list in "\\PC{0,40}|[<>@.,:; ()a\"\\\\\\[\\]é]{0,40}") {
            let mut last = 0;
            for found in parse(list.as_bytes()) {
                prop_assert!(found.place.start >= last && list.get(found.place.clone()).is_some(), "{found:?}");
                last = found.place.end;
            }
        }
    }
}
