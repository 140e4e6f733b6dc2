//! Mail addresses: the `Mailbox` of RFC 5321 section 4.1.2, with the UTF-8 forms of RFC 6531.
//!
//! Promise: an [`Address`] is safe to put between `<` and `>` on the wire and into a log field. It holds no CR, LF, NUL
//! or other control character, its local part is a dot-string or a properly quoted string, its domain is a DNS name in
//! lower-case A-labels or an address literal in canonical form. Two addresses are equal exactly if their canonical
//! texts are. The local part keeps its case (RFC 5321 section 2.4), and unnecessary quotes are removed. A local part
//! with dots that a dot-string does not allow (`a..b@x`, `.a@x`, `a.@x`) gets the missing quotes.
//!
//! Nothing in an address is ever expanded or interpreted: `$(id)@example.org` is six characters of data before a
//! domain.
//!
//! Failures are [`AddressError`]s; the session turns them into replies (`server::command`).

use std::borrow::Cow;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Longest domain in octets (RFC 5321 section 4.5.3.1.2).
pub const DOMAIN_BYTES_MAX: usize = 255;
/// Longest path in octets, including the two angle brackets (RFC 5321 section 4.5.3.1.3). A local part has no limit of
/// its own: the 64 octets of section 4.5.3.1.1 are a minimum that all must accept, and VERP and SRS senders are longer.
pub const PATH_BYTES_MAX: usize = 256;
/// Separates the detail of a local part, `ann+detail@`: Postfix's `recipient_delimiter`.
pub const DETAIL: char = '+';
/// Longest label of a domain in octets (RFC 1035 section 2.3.4).
const LABEL_BYTES_MAX: usize = 63;

/// A mail address in canonical form; 24 bytes and one allocation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    text: Box<str>,
    /// Position of the `@` between local part and domain.
    at: u16,
}

/// Why some bytes are not an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("empty address")]
    Empty,
    #[error("control character in address")]
    Control,
    #[error("non-ASCII address without SMTPUTF8")]
    NonAscii,
    #[error("address is not valid UTF-8")]
    NotUtf8,
    #[error("source routes are not accepted")]
    SourceRoute,
    #[error("address has no domain")]
    NoDomain,
    #[error("malformed local part")]
    Local,
    #[error("malformed domain")]
    Domain,
    #[error("address is too long")]
    TooLong,
}

impl Address {
    /// Parses a mailbox without angle brackets. `smtputf8` permits non-ASCII characters (RFC 6531).
    pub fn parse(input: &[u8], smtputf8: bool) -> Result<Self, AddressError> {
        let text = admit(input, smtputf8)?;
        if text.starts_with('@') {
            return Err(AddressError::SourceRoute);
        }
        let at = end_of_local(text)?;
        let local = canonical_local(&text[..at])?;
        let Some(domain) = text[at..].strip_prefix('@') else {
            return Err(if at == text.len() { AddressError::NoDomain } else { AddressError::Local });
        };
        let domain = canonical_domain(domain)?;
        if local.len() + 1 + domain.len() + 2 > PATH_BYTES_MAX {
            return Err(AddressError::TooLong);
        }
        let mut canonical = String::with_capacity(local.len() + 1 + domain.len());
        canonical.push_str(&local);
        canonical.push('@');
        canonical.push_str(&domain);
        Ok(Self { text: canonical.into_boxed_str(), at: local.len() as u16 })
    }

    /// Returns the local part as on the wire, quoted if necessary.
    pub fn local(&self) -> &str {
        &self.text[..usize::from(self.at)]
    }

    /// Returns the domain in lower-case A-labels, or an address literal with its brackets.
    pub fn domain(&self) -> &str {
        &self.text[usize::from(self.at) + 1..]
    }

    /// Returns the whole address in canonical form.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the address with its local part unquoted. The result may not be a valid address, and is only for
    /// comparisons.
    pub fn unquoted(&self) -> Cow<'_, str> {
        match unquote(self.local()) {
            Cow::Borrowed(_) => Cow::Borrowed(&self.text),
            Cow::Owned(local) => Cow::Owned(format!("{local}@{}", self.domain())),
        }
    }

    /// Returns the address without its detail, which begins at the first [`DETAIL`] of the local part. `None` if there
    /// is no detail, or nothing before it.
    pub fn without_detail(&self) -> Option<Address> {
        let whole = self.unquoted();
        let local = &whole[..whole.len() - self.domain().len() - 1];
        let base = &local[..local.find(DETAIL).filter(|at| *at > 0)?];
        let plain = format!("{base}@{}", self.domain());
        let address = Address::parse(plain.as_bytes(), true).ok().filter(|address| *address.unquoted() == *plain);
        address.or_else(|| {
            let quoted = base.replace('\\', "\\\\").replace('"', "\\\"");
            Address::parse(format!("\"{quoted}\"@{}", self.domain()).as_bytes(), true).ok()
        })
    }

    /// Whether sending to or from this address works without SMTPUTF8 (only its local part can be non-ASCII).
    pub fn is_ascii(&self) -> bool {
        self.text.is_ascii()
    }

    /// Whether the local part requests further routing: the percent hack `a%b@c`, the bang path `a!b@c`, or an address
    /// hidden in quotes `"a@b"@c`. Policy refuses these where it would relay them (550 5.7.1).
    pub fn has_route_syntax(&self) -> bool {
        self.local().bytes().any(|byte| matches!(byte, b'%' | b'!' | b'@'))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({:?})", self.text)
    }
}

impl std::str::FromStr for Address {
    type Err = AddressError;

    /// Parses like [`Address::parse`] with UTF-8 permitted, for addresses from files and configuration.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        Self::parse(text.as_bytes(), true)
    }
}

/// The argument of MAIL: an address, or the null path `<>` of bounces (RFC 5321 section 4.5.5).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ReversePath {
    Null,
    Address(Address),
}

impl ReversePath {
    /// Returns the address without brackets; empty for the null path.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Null => "",
            Self::Address(address) => address.as_str(),
        }
    }

    /// Whether this is the null path.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Whether this path works without SMTPUTF8.
    pub fn is_ascii(&self) -> bool {
        self.as_str().is_ascii()
    }
}

/// Whether a local part is quoted only because of its dots, such as `"a..b"`: even without the quotes it is
/// unambiguous.
pub fn is_quoted_for_dots(local: &str) -> bool {
    let inner = local.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inner.is_some_and(|inner| !inner.is_empty() && inner.bytes().all(|byte| byte == b'.' || is_atext(byte)))
}

/// Returns a local part without quotes and escapes.
pub fn unquote(local: &str) -> Cow<'_, str> {
    let Some(quoted) = local.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return Cow::Borrowed(local);
    };
    let mut text = String::with_capacity(quoted.len());
    let mut letters = quoted.chars();
    while let Some(letter) = letters.next() {
        text.push(if letter == '\\' { letters.next().unwrap_or(letter) } else { letter });
    }
    Cow::Owned(text)
}

/// Returns a domain name or address literal in the form of [`Address::domain`], so that the two can be compared.
pub fn normalise_domain(domain: &str) -> Result<String, AddressError> {
    admit(domain.as_bytes(), true)?;
    canonical_domain(domain).map(Cow::into_owned)
}

/// Checks the parts of the input that do not depend on position: length, controls, the character set.
fn admit(input: &[u8], smtputf8: bool) -> Result<&str, AddressError> {
    if input.is_empty() {
        return Err(AddressError::Empty);
    }
    // Two octets of canonical text may need four of input (`"\a"`); longer input cannot fit. Bounds the work below.
    if input.len() > 4 * PATH_BYTES_MAX {
        return Err(AddressError::TooLong);
    }
    if input.iter().any(|&byte| byte < b' ' || byte == 0x7f) {
        return Err(AddressError::Control);
    }
    if input.is_ascii() {
        return std::str::from_utf8(input).map_err(|_| AddressError::NotUtf8);
    }
    if !smtputf8 {
        return Err(AddressError::NonAscii);
    }
    let text = std::str::from_utf8(input).map_err(|_| AddressError::NotUtf8)?;
    // The C1 controls, and the two Unicode line ends at which some software breaks lines.
    if text.chars().any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')) {
        return Err(AddressError::Control);
    }
    Ok(text)
}

/// Returns the length in bytes of the local part at the start of `text`: to the closing quote, or to the first `@`.
fn end_of_local(text: &str) -> Result<usize, AddressError> {
    let bytes = text.as_bytes();
    if bytes[0] != b'"' {
        return Ok(bytes.iter().position(|&byte| byte == b'@').unwrap_or(bytes.len()));
    }
    let mut index = 1;
    while index < bytes.len() {
        match bytes[index] {
            b'"' => return Ok(index + 1),
            b'\\' => index += 2,
            _ => index += 1,
        }
    }
    Err(AddressError::Local)
}

fn canonical_local(local: &str) -> Result<Cow<'_, str>, AddressError> {
    if is_dot_string(local) {
        return Ok(Cow::Borrowed(local));
    }
    // Addresses that some carriers have assigned, written without the quotes that they need.
    if !local.is_empty() && local.bytes().all(|byte| byte == b'.' || is_atext(byte)) {
        return Ok(Cow::Owned(format!("\"{local}\"")));
    }
    let Some(quoted) = local.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return Err(AddressError::Local);
    };
    let mut content = String::with_capacity(quoted.len());
    let mut escaped = false;
    for c in quoted.chars() {
        match c {
            '\\' if !escaped => escaped = true,
            // Quoted pairs are ASCII only (RFC 5321 `quoted-pairSMTP`; RFC 6531 widens only qtext).
            c if escaped && !c.is_ascii() => return Err(AddressError::Local),
            c => {
                content.push(c);
                escaped = false;
            }
        }
    }
    if is_dot_string(&content) {
        return Ok(Cow::Owned(content));
    }
    let mut canonical = String::with_capacity(content.len() + 2);
    canonical.push('"');
    for c in content.chars() {
        if matches!(c, '"' | '\\') {
            canonical.push('\\');
        }
        canonical.push(c);
    }
    canonical.push('"');
    Ok(Cow::Owned(canonical))
}

/// `Dot-string` of RFC 5321 section 4.1.2, with RFC 6531's non-ASCII atext (`admit` has refused that where not
/// allowed).
fn is_dot_string(text: &str) -> bool {
    let mut previous = b'.';
    for &byte in text.as_bytes() {
        if byte == b'.' {
            if previous == b'.' {
                return false;
            }
        } else if !is_atext(byte) {
            return false;
        }
        previous = byte;
    }
    previous != b'.'
}

fn is_atext(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte >= 0x80 || b"!#$%&'*+-/=?^_`{|}~".contains(&byte)
}

fn canonical_domain(domain: &str) -> Result<Cow<'_, str>, AddressError> {
    if domain.is_empty() {
        return Err(AddressError::NoDomain);
    }
    if domain.starts_with('[') {
        return canonical_literal(domain).map(Cow::Owned);
    }
    let ascii = if domain.is_ascii() {
        if domain.bytes().any(|byte| byte.is_ascii_uppercase()) {
            Cow::Owned(domain.to_ascii_lowercase())
        } else {
            Cow::Borrowed(domain)
        }
    } else {
        // Characters that IDNA maps (full-width letters, ideographic dots) are checked after the mapping, like any
        // other name.
        Cow::Owned(idna::domain_to_ascii(domain).map_err(|_| AddressError::Domain)?)
    };
    check_name(&ascii)?;
    Ok(ascii)
}

/// `Domain` of RFC 5321 section 4.1.2, also permitting `_`, which some mail hosts have in their names.
fn check_name(name: &str) -> Result<(), AddressError> {
    if name.len() > DOMAIN_BYTES_MAX {
        return Err(AddressError::TooLong);
    }
    let mut numeric = false;
    for label in name.split('.') {
        let bytes = label.as_bytes();
        let syntax =
            bytes.iter().all(|&byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte));
        if !syntax || bytes.is_empty() || bytes.len() > LABEL_BYTES_MAX || bytes[0] == b'-' || bytes.ends_with(b"-") {
            return Err(AddressError::Domain);
        }
        numeric = bytes.iter().all(u8::is_ascii_digit);
    }
    // `a@127.0.0.1`: no top-level domain is a number, but resolvers and connect(2) would take it for an IP address.
    if numeric { Err(AddressError::Domain) } else { Ok(()) }
}

/// `address-literal` of RFC 5321 section 4.1.3; of the general form only `IPv6` is in use.
fn canonical_literal(domain: &str) -> Result<String, AddressError> {
    let inner = domain.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).ok_or(AddressError::Domain)?;
    match inner.get(..5) {
        Some(tag) if tag.eq_ignore_ascii_case("IPv6:") => {
            let address: Ipv6Addr = inner[5..].parse().map_err(|_| AddressError::Domain)?;
            Ok(format!("[IPv6:{address}]"))
        }
        _ => {
            let address: Ipv4Addr = inner.parse().map_err(|_| AddressError::Domain)?;
            Ok(format!("[{address}]"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ok(text: &str) -> String {
        Address::parse(text.as_bytes(), true).unwrap_or_else(|error| panic!("{text}: {error}")).to_string()
    }

    fn err(bytes: &[u8]) -> AddressError {
        Address::parse(bytes, true).expect_err("must be refused")
    }

    #[test]
    fn a_detail_begins_at_the_first_plus_that_has_something_before_it() {
        let base = |text: &str| text.parse::<Address>().unwrap().without_detail().map(|base| base.to_string());
        assert_eq!(base("ann+x@X.test").as_deref(), Some("ann@x.test"));
        assert_eq!(base("ann+x+y@x.test").as_deref(), Some("ann@x.test"));
        assert_eq!(base("ann+@x.test").as_deref(), Some("ann@x.test"));
        assert_eq!(base("\"ann+a b\"@x.test").as_deref(), Some("ann@x.test"));
        assert_eq!(base("\"a b+x\"@x.test").as_deref(), Some("\"a b\"@x.test"));
        assert_eq!(base(r#""a\"b+x"@x.test"#).as_deref(), Some(r#""a\"b"@x.test"#));
        for none in ["ann@x.test", "+x@x.test", "ann@x+y.test", "ann-x@x.test"] {
            assert_eq!(none.parse::<Address>().ok().and_then(|address| address.without_detail()), None, "{none}");
        }
    }

    #[test]
    fn keeps_the_case_of_the_local_part_and_lowers_the_domain() {
        assert_eq!(ok("John.Doe@EXAMPLE.org"), "John.Doe@example.org");
        let address: Address = "a+b@Sub.Example.org".parse().unwrap();
        assert_eq!((address.local(), address.domain()), ("a+b", "sub.example.org"));
        assert_eq!(size_of::<Address>(), 24);
    }

    #[test]
    fn quotes_are_canonical() {
        assert_eq!(ok(r#""john"@x.org"#), "john@x.org");
        assert_eq!(ok(r#""j\ohn"@x.org"#), "john@x.org");
        assert_eq!(ok(r#""j ohn"@x.org"#), r#""j ohn"@x.org"#);
        assert_eq!(ok(r#""a\"b\\c"@x.org"#), r#""a\"b\\c"@x.org"#);
        assert_eq!(ok(r#""a..b"@x.org"#), r#""a..b"@x.org"#);
        assert_eq!(ok(r#"""@x.org"#), r#"""@x.org"#);
        assert_eq!(ok(r#""a@b"@x.org"#), r#""a@b"@x.org"#);
    }

    #[test]
    fn dots_anywhere_get_the_quotes_that_they_need() {
        for (written, canonical) in [
            ("a..b@x.org", r#""a..b"@x.org"#),
            (".a@x.org", r#"".a"@x.org"#),
            ("a.@x.org", r#""a."@x.org"#),
            ("A...b-.@DOCOMO.example", r#""A...b-."@docomo.example"#),
            (".@x.org", r#""."@x.org"#),
            ("j\u{f6}rg.@x.org", "\"j\u{f6}rg.\"@x.org"),
            ("a..b+c@[127.0.0.1]", r#""a..b+c"@[127.0.0.1]"#),
            ("a.@[IPv6:::1]", r#""a."@[IPv6:::1]"#),
            (r#""a..b"@x.org"#, r#""a..b"@x.org"#),
            (r#""a\..b"@x.org"#, r#""a..b"@x.org"#),
        ] {
            assert_eq!(ok(written), canonical);
        }
        let long = format!("{}.@x.org", "l".repeat(PATH_BYTES_MAX - 2 - 6 - 3));
        assert_eq!(ok(&long).len() + 2, PATH_BYTES_MAX);
        assert_eq!(err(format!("l{long}").as_bytes()), AddressError::TooLong);
    }

    #[test]
    fn quotes_can_be_left_out_for_comparisons() {
        let unquoted = |text: &str| text.parse::<Address>().unwrap().unquoted().into_owned();
        assert_eq!(unquoted("\"a b\"@x.test"), "a b@x.test");
        assert_eq!(unquoted(r#""a \" \\ b"@x.test"#), r#"a " \ b@x.test"#);
        assert_eq!(unquoted("ann+x@x.test"), "ann+x@x.test");
    }

    #[test]
    fn literals() {
        assert_eq!(ok("a@[192.0.2.1]"), "a@[192.0.2.1]");
        assert_eq!(ok("a@[ipv6:2001:DB8::0:1]"), "a@[IPv6:2001:db8::1]");
        for bad in ["a@[192.0.2]", "a@[192.0.2.1", "a@[::1]", "a@[IPv6:zz]", "a@[x:y]", "a@192.0.2.1", "a@[]", "a@[é]"]
        {
            assert_eq!(err(bad.as_bytes()), AddressError::Domain, "{bad}");
        }
    }

    #[test]
    fn utf8_needs_the_extension_and_domains_become_a_labels() {
        assert_eq!(Address::parse("jörg@x.org".as_bytes(), false), Err(AddressError::NonAscii));
        assert_eq!(Address::parse("j@bücher.example".as_bytes(), false), Err(AddressError::NonAscii));
        assert_eq!(ok("jörg@BÜCHER.example"), "jörg@xn--bcher-kva.example");
        assert!(!"jörg@x.org".parse::<Address>().unwrap().is_ascii());
        assert!("j@bücher.example".parse::<Address>().unwrap().is_ascii());
        assert_eq!(err(b"j\xff@x.org"), AddressError::NotUtf8);
        assert_eq!(normalise_domain("Bücher.example").unwrap(), "xn--bcher-kva.example");
        assert_eq!(err("j@x\u{ff20}y.org".as_bytes()), AddressError::Domain);
    }

    #[test]
    fn refuses_what_could_inject() {
        for bad in
            [&b"a\r\nRCPT TO:<b@x>@y"[..], b"a\0@x.org", b"a@x.org\n", b"a\t@x.org", b"\"a\rb\"@x.org", b"a\x7f@x.org"]
        {
            assert_eq!(err(bad), AddressError::Control, "{bad:?}");
        }
        assert_eq!(err("a\u{85}@x.org".as_bytes()), AddressError::Control);
        assert_eq!(err("a\u{2028}@x.org".as_bytes()), AddressError::Control);
    }

    #[test]
    fn shell_characters_are_only_data() {
        assert_eq!(ok("$(id)`x`@x.org".replace(['(', ')'], "").as_str()), "$id`x`@x.org");
        assert_eq!(ok(r#"";sleep 66;"@x.org"#), r#"";sleep 66;"@x.org"#);
        assert_eq!(ok("${run{x}}@x.org"), "${run{x}}@x.org");
    }

    #[test]
    fn routes() {
        assert_eq!(err(b"@a.org,@b.org:c@d.org"), AddressError::SourceRoute);
        for hack in ["a%b@c.org", "b!a@c.org", r#""a@b"@c.org"#] {
            assert!(hack.parse::<Address>().unwrap().has_route_syntax(), "{hack}");
        }
        assert!(!"a+b=c@d.org".parse::<Address>().unwrap().has_route_syntax());
    }

    #[test]
    fn syntax_errors() {
        for bad in [
            "a b@x.org",
            r#"a.".b"@x.org"#,
            "a..b c@x.org",
            "..,@x.org",
            r#""a"b@x.org"#,
            r#""a@x.org"#,
            "<a@x.org",
            "a,b@x",
            r#""a\"@x.org"#,
        ] {
            assert_eq!(err(bad.as_bytes()), AddressError::Local, "{bad}");
        }
        for bad in
            ["a@x..org", "a@.org", "a@x.org.", "a@-x.org", "a@x-.org", "a@x y", "a@b@c", "a@x.org>", "a@x/y", "a@1"]
        {
            assert_eq!(err(bad.as_bytes()), AddressError::Domain, "{bad}");
        }
        assert_eq!(err(b"postmaster"), AddressError::NoDomain);
        assert_eq!(err(b"a@"), AddressError::NoDomain);
        assert_eq!(err(b""), AddressError::Empty);
    }

    #[test]
    fn lengths() {
        let longest = format!("{}@x.org", "l".repeat(PATH_BYTES_MAX - 2 - 6));
        assert_eq!(ok(&longest).len() + 2, PATH_BYTES_MAX);
        assert_eq!(err(format!("l{longest}").as_bytes()), AddressError::TooLong);
        let local = "l".repeat(64);
        let domain = format!("{0}.{0}.{0}.org", "d".repeat(60));
        assert!(ok(&format!("{local}@{domain}")).len() <= 254);
        assert_eq!(err(format!("{local}@{domain}.{domain}").as_bytes()), AddressError::TooLong);
        assert_eq!(err(format!("a@{}.org", "d".repeat(64)).as_bytes()), AddressError::Domain);
        assert_eq!(err(&vec![b'a'; 1 << 20]), AddressError::TooLong);
    }

    proptest! {
        #[test]
        fn never_panics_and_what_parses_is_a_fixed_point(bytes in proptest::collection::vec(any::<u8>(), 0..80), utf8: bool) {
            if let Ok(address) = Address::parse(&bytes, utf8) {
                prop_assert!(!address.as_str().chars().any(char::is_control));
                prop_assert_eq!(&Address::parse(address.as_str().as_bytes(), true).unwrap(), &address);
            }
        }

        #[test]
        fn structured_input_is_a_fixed_point(text in r#"("?[a-zé"\\ .@%]{0,6}"?)@([a-zÄ0-9.\-\[\]:]{1,12})"#) {
            if let Ok(address) = text.parse::<Address>() {
                prop_assert!(address.domain().is_ascii());
                prop_assert_eq!(&address.as_str().parse::<Address>().unwrap(), &address);
            }
        }

        #[test]
        fn ordinary_addresses_parse(text in "[a-z0-9]{1,10}(\\.[a-z0-9]{1,10}){0,2}@([a-z0-9]{1,10}\\.){1,3}[a-z]{2,6}") {
            prop_assert_eq!(ok(&text), text);
        }
    }
}
