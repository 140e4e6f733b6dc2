//! Clusters of texts that no rule knows: the same words with other addresses, hosts, ids and numbers have one key.
//!
//! Promise: linear time; a key has at most [`KEY_BYTES_MAX`] octets, so a table of keys is bounded.

use stentor_records::tops;

/// Maximum length of a key in octets.
pub const KEY_BYTES_MAX: usize = 200;
/// Words of this length with a digit are ids, unless they are codes.
const ID_CHARS_MIN: usize = 6;

/// The key of a text's cluster: the reason that statistics show, also without hosts, short ids and case.
pub fn key(text: &str) -> String {
    let reason = tops::reason(text);
    let mut key = String::with_capacity(reason.len());
    for word in reason.split_whitespace() {
        let core = word.trim_matches(|c: char| c.is_ascii_punctuation() && !matches!(c, '<' | '>' | '#'));
        if !key.is_empty() {
            key.push(' ');
        }
        match core {
            core if is_host(core) => key.push_str("<host>"),
            core if is_id(core) => key.push_str("<id>"),
            core => key.extend(core.chars().flat_map(char::to_lowercase)),
        }
    }
    key.truncate(key.floor_char_boundary(KEY_BYTES_MAX));
    key
}

fn is_id(word: &str) -> bool {
    let is_code = word.bytes().all(|octet| octet.is_ascii_digit() || matches!(octet, b'.' | b'-' | b'#'));
    word.len() >= ID_CHARS_MIN && !is_code && word.bytes().any(|octet| octet.is_ascii_digit())
}

/// A name of several labels, the last of letters; an address in brackets may follow.
fn is_host(word: &str) -> bool {
    let name = word.split(['[', '(', '/']).next().unwrap_or_default();
    let Some((rest, top)) = name.rsplit_once('.') else { return false };
    let is_label =
        |label: &str| !label.is_empty() && label.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'-');
    (2..=24).contains(&top.len())
        && top.bytes().all(|octet| octet.is_ascii_alphabetic())
        && rest.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_differs_is_replaced() {
        let first = key("550 5.9.9 <a@example.org>: weird refusal by mx1.example.org[192.0.2.1], id 4XyZ12-abc");
        let second = key("550 5.9.9 <b@example.net>: Weird refusal by mx2.example.net[192.0.2.9], id 9KkQ77-def");
        assert_eq!(first, second);
        assert_eq!(first, "550 5.9.9 <address> weird refusal by <id> id <id>");
        assert_ne!(key("550 weird"), key("551 weird"), "codes stay");
        assert_eq!(key("see https://x.example/a?b=1 now"), "see <link> now");
    }

    proptest! {
        #[test]
        fn keys_are_bounded(text in any::<String>()) {
            prop_assert!(key(&text).len() <= KEY_BYTES_MAX);
        }
    }
}
