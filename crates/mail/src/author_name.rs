//! Finds addresses in the display name of a message's author, which a reader may take for the author.
//!
//! Mail programs show the name, and often nothing else: `"boss@example.org" <ann@example.org>` looks like a message
//! from the boss. Promise: an address is found in a name, in quotes, in a comment and in encoded words (RFC 2047), also
//! around invisible characters, or around spaces before a domain with a dot. Time is linear. A name with an at sign
//! that is not an address, as in `Ann @ Work`, is not reported.

use stentor_mime::charset::Charset;
use stentor_mime::words;

/// The at sign, and characters displayed as one.
const AT: [char; 3] = ['@', '\u{ff20}', '\u{fe6b}'];
/// Characters besides letters and digits that may be in a local part (RFC 5322 section 3.2.3), and in a domain.
const OF_LOCAL: &str = "!#$%&'*+-/=?^_`{|}~.";
const OF_DOMAIN: &str = "-_.";

/// Returns the distinct addresses in a From value besides the mailbox's own, as a reader sees them: any text around an
/// at sign. At most `max` + 1 are returned.
pub(crate) fn others_shown(value: &str, own: Option<&str>, max: usize) -> Vec<String> {
    let decoded = words::decode(value.as_bytes(), Charset::UNDECLARED).text;
    let own = own.map(visible).unwrap_or_default();
    let mut others = Vec::new();
    // Most names have no at sign; looking at each character costs more than all else.
    for text in [value, &decoded].into_iter().filter(|text| text.contains(AT)) {
        add_others(&visible(text), &own, max, &mut others);
    }
    others
}

/// Removes quotes, escapes and invisible characters.
fn visible(text: &str) -> String {
    let is_shown = |c: &char| c.is_ascii_graphic() || c.is_whitespace() || AT.contains(c) || c.is_alphanumeric();
    text.chars().filter(|c| !matches!(c, '"' | '\\') && is_shown(c)).collect()
}

fn add_others(text: &str, own: &str, max: usize, others: &mut Vec<String>) {
    for (at, sign) in text.match_indices(AT) {
        if others.len() > max {
            return;
        }
        let (before, behind) = (&text[..at], &text[at + sign.len()..]);
        let (close_before, close_behind) = (before.trim_end(), behind.trim_start());
        let has_spaces = close_before.len() < before.len() || close_behind.len() < behind.len();
        let is_local = |c: char| c.is_alphanumeric() || OF_LOCAL.contains(c);
        let is_domain = |c: char| c.is_alphanumeric() || OF_DOMAIN.contains(c);
        let local = &close_before[close_before.trim_end_matches(is_local).len()..];
        let domain = &close_behind[..close_behind.len() - close_behind.trim_start_matches(is_domain).len()];
        let domain = domain.trim_end_matches('.');
        if local.is_empty() || domain.is_empty() || has_spaces && !domain.contains('.') {
            continue;
        }
        let shown = format!("{local}@{domain}");
        // The end of a quoted local part with spaces.
        let is_own = own.eq_ignore_ascii_case(&shown) || own.contains(' ') && own.ends_with(&shown);
        if !is_own && !others.contains(&shown) {
            others.push(shown);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shows_another(value: &str, own: Option<&str>) -> bool {
        !others_shown(value, own, 8).is_empty()
    }

    #[test]
    fn each_other_address_is_told_once() {
        let others = |value, max| others_shown(value, Some("ann@x"), max);
        assert_eq!(others("\"ann@y bob \u{ff20} z.example\" <ann@x> (ann@y)", 8), ["ann@y", "bob@z.example"]);
        assert_eq!(others("=?utf-8?q?ann=40y?= <ann@x>", 8), ["ann@y"]);
        assert_eq!(others("\"a@y b@y c@y d@y\" <ann@x>", 2), ["a@y", "b@y", "c@y"]);
        // Text that only matches a part of the own address is reported.
        assert_eq!(others("\"ann@y@boss.example\" <ann@x>", 8), ["ann@y", "y@boss.example"]);
    }

    #[test]
    fn names_that_show_another_address() {
        for value in [
            "\"bob@x\" <ann@x>",
            "bob@x.example <ann@x>",
            "\"Bob (bob@x.example)\" <ann@x>",
            "Bob via <bob@y> <ann@x>",
            "ann@x (bob@x)",
            "(bob@x) ann@x",
            "(Bob (bob@x)) <ann@x>",
            "=?utf-8?q?bob=40x?= <ann@x>",
            "=?utf-8?B?Ym9iQHg=?= <ann@x>",
            "\"=?utf-8?q?bob=40x?=\" <ann@x>",
            "=?utf-8?q?bob?= =?utf-8?q?=40x?= <ann@x>",
            "\"bob\\@x\" <ann@x>",
            "\"bob\u{200b}@\u{200b}x\" <ann@x>",
            "\"bob\u{ff20}x\" <ann@x>",
            "\"bob @ x.example\" <ann@x>",
            "\"bob@x.\" <ann@x>",
            "\"ann@x bob@x\" <ann@x>",
            "\"ann@x.example\" <ann@x>",
            "\"bob@bücher.example\" <ann@x>",
        ] {
            assert!(shows_another(value, Some("ann@x")), "{value}");
        }
    }

    #[test]
    fn names_that_show_none_or_the_same() {
        for value in [
            "ann@x",
            "Ann <ann@x>",
            "\"Ann\" < ann @ x > (at work)",
            "\"ANN@X\" <ann@x>",
            "ann@x (ann@x)",
            "=?utf-8?q?ann=40x?= <ann@x>",
            "\"Ann @ Work\" <ann@x>",
            "\"Ann @work\" <ann@x>",
            "\"@ann\" <ann@x>",
            "\"Ann@\" <ann@x>",
            "\"Doe, J. <j>\" <ann@x>",
            "=?utf-8?q?Gr=C3=BC=C3=9Fe?= <ann@x>",
        ] {
            assert!(!shows_another(value, Some("ann@x")), "{value}");
        }
        assert!(!shows_another("\"a b\"@x", Some("\"a b\"@x")));
        assert!(!shows_another("nobody", None) && shows_another("bob@x", None));
    }

    proptest! {
        #[test]
        fn any_text_is_read(value in "[ -~@\u{ff20}é\u{200b}=?]{0,60}", own in "[a-z\" @.]{0,12}") {
            prop_assert!(others_shown(&value, Some(&own), 2).len() <= 3);
        }
    }
}
