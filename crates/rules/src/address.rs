//! Envelope addresses in the form that rules and routes compare, and patterns of addresses.
//!
//! An address is folded to lower case once ([`Key`]); the texts that can match it are then a few of its slices, the
//! most specific first. A set of patterns is a hash set of such texts, so a thousand addresses cost no more than one.

use std::fmt;
use std::hash::BuildHasher as _;

use foldhash::fast::FixedState;
use hashbrown::HashSet;
use regex::bytes::{Regex, RegexBuilder};
use stentor_mail::address::{Address, is_quoted_for_dots, normalise_domain};

/// Memory limit of one compiled regular expression.
const REGEX_BYTES_MAX: usize = 1024 * 1024;
/// Pattern for the null sender.
pub const NULL: &str = "<>";
/// Separator of user and detail (RFC 5233 section 1).
const DETAIL: char = '+';
/// Hash function of pattern sets and their lookups.
const HASH: FixedState = FixedState::with_seed(0);

/// One of 64 bits for a text. Most sets share no bit with a key, so most rules cost one comparison of two numbers.
fn bit(text: &str) -> u64 {
    1 << (HASH.hash_one(text) >> 58)
}

/// An envelope address in lower case, and the positions where it can be cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    text: String,
    /// Address without its detail, if it has one.
    plain: Option<String>,
    /// Position of the `@` in `text` and in `plain`.
    at: usize,
    at_plain: usize,
    /// Key of the unquoted address, if only dots made the quotes necessary.
    unquoted: Option<Box<Key>>,
    /// Bits of all texts that can match the address.
    bits: u64,
    /// Whether the domain is known to be ours: see [`crate::Rulebook::key_of`].
    pub(crate) is_local: bool,
}

impl Key {
    /// Makes the key of an address as [`stentor_mail::address::Address`] formats it; an empty text is the null
    /// sender.
    pub fn new(address: &str) -> Key {
        if address.is_empty() {
            let (text, at) = (NULL.to_owned(), NULL.len());
            return Key { text, plain: None, at, at_plain: 0, unquoted: None, bits: bit(NULL), is_local: false };
        }
        let text = if address.is_ascii() { address.to_ascii_lowercase() } else { address.to_lowercase() };
        let mut key = if is_quoted_for_dots(&text[..text.rfind('@').unwrap_or(text.len())]) {
            Key::of_quoted(text)
        } else {
            Key::of_plain(text)
        };
        key.bits = key.all().map(bit).fold(0, |bits, bit| bits | bit);
        key
    }

    fn of_plain(text: String) -> Key {
        let at = text.rfind('@').unwrap_or(text.len());
        // A detail after an empty user does not count; other quoted local parts are kept whole.
        let plus = text[..at].find(DETAIL).filter(|plus| *plus > 0 && !text.starts_with('"'));
        let plain = plus.map(|plus| format!("{}{}", &text[..plus], &text[at..]));
        Key { plain, at_plain: plus.unwrap_or(0), at, text, unquoted: None, bits: 0, is_local: false }
    }

    /// Makes the key of an address whose local part is quoted for its dots.
    fn of_quoted(text: String) -> Key {
        let at = text.rfind('@').unwrap_or(text.len());
        let address = text.parse::<Address>().ok();
        let plain = address.as_ref().and_then(Address::without_detail);
        let at_plain = plain.as_ref().map_or(0, |plain| plain.local().len());
        // An empty local part would make it a key for the whole domain.
        let unquoted = address.map(|address| address.unquoted().into_owned()).filter(|bare| !bare.starts_with('@'));
        let unquoted = unquoted.map(|bare| Box::new(Key::of_plain(bare)));
        Key { plain: plain.map(|plain| plain.to_string()), at_plain, at, text, unquoted, bits: 0, is_local: false }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn is_null(&self) -> bool {
        self.text == NULL
    }

    /// `user+detail@` and `user@`.
    fn users(&self) -> impl Iterator<Item = &str> {
        let whole = self.text.get(..=self.at).filter(|_| !self.is_null());
        whole.into_iter().chain(self.plain.as_deref().and_then(|plain| plain.get(..=self.at_plain)))
    }

    /// Whether the local part is quoted only for dots, so that the address has two spellings.
    pub(crate) fn has_quotes(&self) -> bool {
        self.unquoted.is_some()
    }

    /// The domain; empty for the null sender.
    pub fn domain(&self) -> &str {
        self.text.get(self.at + 1..).unwrap_or("")
    }

    /// The address with and without its detail, quoted where addresses require it.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.text.as_str()).chain(self.plain.as_deref())
    }

    /// All texts that can match the address, most specific first.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        self.mailboxes().chain(self.domains())
    }

    /// Those of [`Self::all`] that contain an `@`; a quoted one is followed by its unquoted form.
    pub fn mailboxes(&self) -> impl Iterator<Item = &str> {
        let bare = self.unquoted.as_deref();
        let whole = std::iter::once(self.text.as_str()).chain(bare.map(Key::as_str));
        let plain = self.plain.as_deref().into_iter().chain(bare.and_then(|bare| bare.plain.as_deref()));
        whole.chain(plain).chain(self.users()).chain(bare.into_iter().flat_map(Key::users))
    }

    /// The domain, then `.suffix`, longest first. A domain in brackets has no suffixes.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        let domain = self.domain();
        let suffixes = if domain.starts_with('[') { "" } else { domain };
        let suffixes = suffixes.match_indices('.').map(|(dot, _)| &suffixes[dot..]);
        Some(domain).filter(|domain| !domain.is_empty()).into_iter().chain(suffixes)
    }
}

/// Why a text is not a valid pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error(
        "{0:?} is not a valid address pattern: write user@example.org, user@, example.org or @example.org (without \
         subdomains), .example.org (only subdomains), <>, * or /expression/"
    )]
    Address(String),
    #[error("the regular expression {expression:?} is invalid: {why}")]
    Regex { expression: String, why: String },
    #[error("{0:?} is neither an address nor a network, such as 192.0.2.0/24")]
    Client(String),
    #[error("{network} has host bits set: write {meant}")]
    HostBits { network: String, meant: String },
    #[error("{0:?} is not a valid host name pattern: write mx.example.org, .example.org or *")]
    Name(String),
}

/// One pattern of addresses.
#[derive(Debug, Clone)]
pub enum AddressPattern {
    Any,
    /// A text as [`Key`] produces it: an address, `user@`, a domain, `.suffix` or [`NULL`].
    Text(Box<str>),
    Regex(Regex),
}

impl AddressPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// The text is not a pattern, or a regular expression that has no linear-time form (look-around, back-references)
    /// or is too large.
    pub fn parse(text: &str) -> Result<AddressPattern, PatternError> {
        if text == "*" {
            return Ok(AddressPattern::Any);
        }
        if text == NULL {
            return Ok(AddressPattern::Text(NULL.into()));
        }
        if let Some(expression) = text.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')) {
            return regex(expression).map(AddressPattern::Regex);
        }
        let wrong = || PatternError::Address(text.to_owned());
        // Normalised like addresses: unneeded quotes are removed and literals are in lower case.
        let domain = |text: &str| normalise_domain(text).map(|name| name.to_ascii_lowercase()).map_err(|_| wrong());
        let address = |text: &str| text.parse::<Address>().map(|address| Key::new(address.as_str()).text);
        let folded = match text.rsplit_once('@') {
            Some(("", name)) => dotted(name, &domain)?,
            Some((_, "")) => address(&format!("{text}x")).map_err(|_| wrong())?.trim_end_matches('x').into(),
            Some(_) => address(text).map_err(|_| wrong())?,
            None => dotted(text, &domain)?,
        };
        Ok(AddressPattern::Text(folded.into()))
    }
}

/// Parses `example.org` or `.example.org`.
fn dotted(text: &str, domain: &dyn Fn(&str) -> Result<String, PatternError>) -> Result<String, PatternError> {
    match text.strip_prefix('.') {
        Some(rest) => domain(rest).map(|name| format!(".{name}")),
        None => domain(text),
    }
}

fn regex(expression: &str) -> Result<Regex, PatternError> {
    // Case folding of letters beyond ASCII needs tables, which are loaded only if there are such letters.
    let built = RegexBuilder::new(expression)
        .unicode(!expression.is_ascii())
        .case_insensitive(true)
        .size_limit(REGEX_BYTES_MAX)
        .build();
    built.map_err(|error| {
        // The library marks the position below the expression; the last line is the message.
        let text = error.to_string();
        let why = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        PatternError::Regex { expression: expression.to_owned(), why }
    })
}

impl fmt::Display for AddressPattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddressPattern::Any => out.write_str("*"),
            AddressPattern::Text(text) => out.write_str(text),
            AddressPattern::Regex(regex) => write!(out, "/{}/", regex.as_str()),
        }
    }
}

/// A set of patterns, of which one must match.
#[derive(Debug, Clone, Default)]
pub(crate) struct AddressSet {
    any: bool,
    texts: HashSet<Box<str>, FixedState>,
    /// Bits of the texts.
    bits: u64,
    regexes: Vec<Regex>,
}

impl AddressSet {
    pub fn len(&self) -> usize {
        usize::from(self.any) + self.texts.len() + self.regexes.len()
    }

    pub fn add(&mut self, pattern: AddressPattern) {
        match pattern {
            AddressPattern::Any => self.any = true,
            AddressPattern::Text(text) => {
                self.bits |= bit(&text);
                self.texts.insert(text);
            }
            AddressPattern::Regex(regex) => self.regexes.push(regex),
        }
    }

    /// Patterns that are plain texts.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(|text| &**text)
    }

    pub fn is_empty(&self) -> bool {
        !self.any && self.texts.is_empty() && self.regexes.is_empty()
    }

    /// The pattern that matches, if there is one.
    pub fn find<'s>(&'s self, key: &Key) -> Option<&'s str> {
        if self.any {
            return Some("*");
        }
        if self.bits & key.bits != 0
            && let Some(found) = key.all().find_map(|text| self.texts.get(text))
        {
            return Some(found);
        }
        self.regexes.iter().find(|regex| regex.is_match(key.as_str().as_bytes())).map(Regex::as_str)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(patterns: &[&str]) -> AddressSet {
        let mut set = AddressSet::default();
        for text in patterns {
            set.add(AddressPattern::parse(text).unwrap());
        }
        set
    }

    #[test]
    fn the_most_specific_text_is_found_first() {
        let key = Key::new("User+A@Sub.Example.ORG");
        let all: Vec<&str> = key.all().collect();
        assert_eq!(
            all,
            [
                "user+a@sub.example.org",
                "user@sub.example.org",
                "user+a@",
                "user@",
                "sub.example.org",
                ".example.org",
                ".org"
            ]
        );
        assert_eq!(Key::new("").addresses().chain(Key::new("").domains()).collect::<Vec<_>>(), [NULL]);
        assert_eq!(Key::new("a@[127.0.0.1]").domains().collect::<Vec<_>>(), ["[127.0.0.1]"]);
    }

    #[test]
    fn a_plus_is_a_detail_only_behind_a_user() {
        assert_eq!(Key::new("+a@b.test").addresses().count(), 1);
        assert_eq!(Key::new("\"+x y\"@b.test").addresses().count(), 1);
        assert_eq!(Key::new("\"a..b+y\"@b.test").addresses().last(), Some("\"a..b\"@b.test"));
        assert_eq!(Key::new("x+y+z@b.test").addresses().last(), Some("x@b.test"));
    }

    #[test]
    fn quoted_and_unquoted_spellings_stand_for_each_other() {
        let all = Key::new("\"A..b+x\"@C.test");
        let wanted = [
            "\"a..b+x\"@c.test",
            "a..b+x@c.test",
            "\"a..b\"@c.test",
            "a..b@c.test",
            "\"a..b+x\"@",
            "\"a..b\"@",
            "a..b+x@",
            "a..b@",
            "c.test",
            ".test",
        ];
        assert_eq!(all.all().collect::<Vec<_>>(), wanted);
        assert!(set(&["a..b@c.test"]).find(&all).is_some());
        // An empty local part does not mean the whole domain.
        assert_eq!(Key::new("\"\"@c.test").mailboxes().collect::<Vec<_>>(), ["\"\"@c.test", "\"\"@"]);
    }

    #[test]
    fn what_matches() {
        let set = set(&["a@b.test", "root@", "c.test", "@d.test", ".e.test", "/^x[0-9]+@/"]);
        for yes in ["a@b.test", "A+z@B.test", "root@any.test", "q@c.test", "q@d.test", "q@f.e.test", "X7@g.test"] {
            assert!(set.find(&Key::new(yes)).is_some(), "{yes}");
        }
        for no in ["b@b.test", "roots@any.test", "q@g.c.test", "q@e.test", "ax7@g.test", ""] {
            assert!(set.find(&Key::new(no)).is_none(), "{no}");
        }
    }

    /// Checks that patterns are normalised exactly as sessions normalise addresses.
    #[test]
    fn patterns_are_folded_as_addresses_are() {
        let session = |address: &str| Key::new(address.parse::<Address>().unwrap().as_str());
        let same = [
            ("evil@[IPv6:2001:db8::1]", "evil@[IPv6:2001:db8::1]"),
            ("@[IPv6:2001:DB8::2]", "a@[ipv6:2001:db8::2]"),
            ("\"evil\"@q.test", "evil@q.test"),
            ("evil@q.test", "\"e\\vil\"@q.test"),
            ("\"evil\"@", "Evil@any.test"),
            ("\"two words\"@", "\"two words\"@any.test"),
            ("a@B\u{fc}cher.test", "a@xn--bcher-kva.test"),
            ("max@", "max@x"),
            ("a..b@q.test", "\"a..b\"@q.test"),
            ("\"a.\"@q.test", "A.@q.test"),
            (".a@", "\".a\"@any.test"),
            ("/^JOS\u{c9}@/", "jos\u{e9}@x.test"),
        ];
        for (pattern, address) in same {
            assert!(set(&[pattern]).find(&session(address)).is_some(), "{pattern} {address}");
        }
    }

    #[test]
    fn what_is_no_pattern() {
        for bad in
            ["", "@", "a b@c.test", "a..b c@c.test", "a b@", "a@b@", "/(?=x)/", "/(a)\\1/", "/[/", "-.test", "a@-"]
        {
            assert!(AddressPattern::parse(bad).is_err(), "{bad}");
        }
        let why = AddressPattern::parse("/(?=x)/").unwrap_err().to_string();
        assert!(why.contains("look-around"), "{why}");
        let why = AddressPattern::parse("a b").unwrap_err().to_string();
        assert!(
            why.contains("example.org or @example.org (without subdomains), .example.org (only subdomains), "),
            "{why}"
        );
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,40}") {
            let _ = AddressPattern::parse(&text);
            let key = Key::new(&text);
            prop_assert!(key.all().count() > 0);
        }
    }
}
