//! MIME fields: a value and its parameters (RFC 2045 section 5.1), including continued and encoded ones (RFC 2231).
//!
//! Promise: any octets are accepted, in linear time; at most [`PARAMS_MAX`] parameters are examined, and only those
//! in [`ParamName`] are kept.

use std::borrow::Cow;
use std::ops::Range;

use crate::charset::Charset;
use crate::transfer::hex;
use crate::words;

/// Maximum charsets recorded from parameters that are not kept.
const OTHER_CHARSETS_MAX: usize = 16;
/// Maximum parameters of a field that are examined; each section of a continued one counts.
pub const PARAMS_MAX: usize = 200;

/// Parameters that are kept: they name a part or affect its decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ParamName {
    Boundary,
    Charset,
    Name,
    FileName,
}

impl ParamName {
    /// `None`: another parameter.
    fn of(text: &[u8]) -> Option<ParamName> {
        let (name, wanted): (_, &[u8]) = match text.len() {
            4 => (ParamName::Name, b"name"),
            7 => (ParamName::Charset, b"charset"),
            8 if matches!(text[0], b'b' | b'B') => (ParamName::Boundary, b"boundary"),
            8 => (ParamName::FileName, b"filename"),
            _ => return None,
        };
        text.eq_ignore_ascii_case(wanted).then_some(name)
    }
}

/// A parsed field such as `text/plain; charset=utf-8`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MimeField {
    /// Main value such as `text/plain`, in lower case, without white space and comments.
    pub value: String,
    /// Parameters. If programs read a boundary or file name in two ways, both are included, in sequence.
    pub params: Vec<Param>,
    /// Charsets named by other parameters (RFC 2231 section 4), in lower case.
    pub other_charsets: Vec<String>,
    /// Whether programs may read the field differently: repeated parameters, text after a value, an unclosed quote or
    /// comment, missing sections, a quoted main value, or more parameters than are examined.
    pub is_ambiguous: bool,
}

/// A parameter, joined from its sections.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Param {
    pub name: ParamName,
    /// Its octets, with percent signs decoded.
    pub octets: Vec<u8>,
    /// The charset that it names (RFC 2231 section 4); empty: it has that form but names none.
    pub charset: Option<String>,
}

impl MimeField {
    /// Parses a field's value, with or without its folds.
    pub fn parse(value: &[u8]) -> MimeField {
        MimeField::counted(value).0
    }

    /// Also returns the number of parameters that were examined.
    pub(crate) fn counted(value: &[u8]) -> (MimeField, usize) {
        let mut tokens = Tokens::of(value);
        let text = tokens.main_value();
        let (mut sections, mut others) = (Vec::new(), Vec::new());
        let (mut count, mut is_ambiguous) = (0, false);
        let mut other_charsets = Vec::new();
        while let Some((name, (value, other))) = tokens.parameter() {
            if count == PARAMS_MAX {
                is_ambiguous = true;
                break;
            }
            count += 1;
            let section = match Section::new(name, value) {
                Ok(section) => section,
                Err(charset) => {
                    other_charsets.extend(charset.filter(|_| other_charsets.len() < OTHER_CHARSETS_MAX));
                    continue;
                }
            };
            if let Some(octets) = other.filter(|_| section.is_plain()) {
                others.push(Param { name: section.name, octets: octets.into_owned(), charset: None });
            }
            sections.push(section);
        }
        is_ambiguous |= has_contradiction(&sections);
        let (mut params, has_gap) = joined(&sections);
        let is_twofold = [ParamName::Boundary, ParamName::Charset].into_iter().any(|name| {
            let mut all = params.iter().filter(|param| param.name == name);
            all.next().is_some_and(|first| all.any(|param| param.octets != first.octets))
        });
        params.append(&mut others);
        let is_ambiguous = is_ambiguous || has_gap || is_twofold || tokens.is_odd;
        let value = String::from_utf8_lossy(&text).into_owned();
        (MimeField { value, params, other_charsets, is_ambiguous }, count)
    }

    /// All parameters of this name.
    pub fn all(&self, name: ParamName) -> impl Iterator<Item = &Param> {
        self.params.iter().filter(move |param| param.name == name)
    }

    /// The first parameter of this name; encoded ones take precedence (RFC 2231 leaves this open, RFC 6266 section
    /// 4.3 requires it).
    pub fn param(&self, name: ParamName) -> Option<&Param> {
        let mut all = self.params.iter().filter(|param| param.name == name);
        all.clone().find(|param| param.charset.is_some()).or_else(|| all.next())
    }

    /// The main type, `text` in `text/plain`.
    pub fn main(&self) -> &str {
        self.value.split('/').next().unwrap_or_default()
    }

    /// The subtype, `plain` in `text/plain`.
    pub fn sub(&self) -> &str {
        self.value.split_once('/').map_or("", |(_, sub)| sub)
    }
}

impl Param {
    /// The value as text. Encoded words do not belong in parameters (RFC 2047 section 5), but many programs use them
    /// there.
    pub fn text(&self, fallback: Charset) -> String {
        match &self.charset {
            Some(label) => match Charset::named(label.as_bytes()) {
                Some(charset) => charset.decode(&self.octets),
                None => String::from_utf8_lossy(&self.octets).into_owned(),
            },
            None => match words::as_text(&self.octets) {
                Some(text) => text.to_owned(),
                None => words::decode(&self.octets, fallback).text,
            },
        }
    }
}

/// What the name of a parameter says (RFC 2231).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name<'a> {
    /// Without signs of continuation and encoding.
    pub base: &'a [u8],
    /// `None`: the whole parameter.
    pub number: Option<u32>,
    pub is_encoded: bool,
}

impl Name<'_> {
    fn of(name: &[u8]) -> Name<'_> {
        let (base, is_encoded) = name.strip_suffix(b"*").map_or((name, false), |base| (base, true));
        let sign = memchr::memrchr(b'*', base);
        let number = |at: usize| std::str::from_utf8(&base[at + 1..]).ok()?.parse().ok();
        match sign.and_then(|at| Some((&base[..at], number(at)?))) {
            Some((base, number)) => Name { base, number: Some(number), is_encoded },
            None => Name { base, number: None, is_encoded },
        }
    }
}

/// A parameter as it stands in a field, for those who write it in another way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawParameter<'a> {
    pub name: Name<'a>,
    /// Without quotes and folds; encoded as it is.
    pub value: Cow<'a, [u8]>,
    /// Where the semicolon before it is.
    pub separator: usize,
    /// From its name to what follows its value, comments behind it included.
    pub place: Range<usize>,
    /// Something stands behind it that belongs to no parameter.
    pub is_odd: bool,
}

/// All parameters of a field's value, however many.
pub fn written(value: &[u8]) -> Vec<RawParameter<'_>> {
    let mut tokens = Tokens::of(value);
    tokens.main_value();
    let mut all = Vec::new();
    while let Some((name, (text, _))) = tokens.parameter() {
        let at = |left: usize| value.len() - left;
        let place = at(tokens.from_name)..at(tokens.behind_value);
        let is_odd = !matches!(value.get(place.end), None | Some(b';'));
        let (name, separator) = (Name::of(name), at(tokens.from_separator));
        all.push(RawParameter { name, value: text, separator, place, is_odd });
    }
    all
}

/// What sections say together, in the order of their numbers; each with its value and whether this is encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinedValue {
    /// Percent signs decoded.
    pub octets: Vec<u8>,
    /// The charset and the language that the first names (RFC 2231 section 4), perhaps empty.
    pub charset: Option<(Vec<u8>, Vec<u8>)>,
}

impl JoinedValue {
    pub fn of<'a>(sections: impl Iterator<Item = (&'a [u8], bool)>) -> JoinedValue {
        let (mut octets, mut charset) = (Vec::new(), None);
        for (n, (mut value, is_encoded)) in sections.enumerate() {
            if !is_encoded {
                octets.extend_from_slice(value);
                continue;
            }
            if n == 0
                && let Some((label, language, text)) = charset_of(value)
            {
                (charset, value) = (Some((label.to_vec(), language.to_vec())), text);
            }
            percent(value, &mut octets);
        }
        JoinedValue { octets, charset }
    }
}

/// `filename*1*="..."`.
struct Section<'a> {
    name: ParamName,
    /// Number of the section; `None`: the whole parameter.
    number: Option<u32>,
    is_encoded: bool,
    value: Cow<'a, [u8]>,
}

impl<'a> Section<'a> {
    /// Parses a section.
    ///
    /// # Errors
    /// The parameter is not kept; the error is the charset that it names, if any.
    fn new(name: &[u8], value: Cow<'a, [u8]>) -> Result<Section<'a>, Option<String>> {
        let Name { base, number, is_encoded } = Name::of(name);
        match ParamName::of(base) {
            Some(name) => Ok(Section { name, number, is_encoded, value }),
            None if is_encoded && number.is_none_or(|number| number == 0) => {
                Err(charset_of(&value).map(|(label, ..)| lower(label)))
            }
            None => Err(None),
        }
    }

    /// Whether it is neither continued nor encoded.
    fn is_plain(&self) -> bool {
        self.number.is_none() && !self.is_encoded
    }
}

/// Whether a section is repeated with another value.
fn has_contradiction(sections: &[Section<'_>]) -> bool {
    if sections.len() < 2 {
        return false;
    }
    let key = |section: &Section<'_>| (section.name, section.number, section.is_encoded);
    let mut all: Vec<_> = sections.iter().collect();
    all.sort_by_key(|section| key(section));
    all.windows(2).any(|pair| key(pair[0]) == key(pair[1]) && pair[0].value != pair[1].value)
}

/// The parameters, and whether sections are missing.
fn joined(sections: &[Section<'_>]) -> (Vec<Param>, bool) {
    let (mut params, mut has_gap) = (Vec::new(), false);
    let mut continued: Vec<&Section<'_>> = Vec::new();
    for section in sections {
        match section.number {
            None => params.push(param(section.name, &[section])),
            Some(_) => continued.push(section),
        }
    }
    // Sections may come in any order (section 3); sorting makes those of one name adjacent. The first of each number
    // counts.
    continued.sort_by_key(|section| (section.name, section.number));
    continued.dedup_by_key(|section| (section.name, section.number));
    for all in continued.chunk_by(|a, b| a.name == b.name) {
        // Without the first section the parameter is unknown; it ends at a gap.
        let known = all.iter().zip(0..).take_while(|(section, number)| section.number == Some(*number)).count();
        has_gap |= known < all.len();
        if known > 0 {
            params.push(param(all[0].name, &all[..known]));
        }
    }
    (params, has_gap)
}

/// Joins the sections of a parameter.
fn param(name: ParamName, sections: &[&Section<'_>]) -> Param {
    let whole = JoinedValue::of(sections.iter().map(|section| (&*section.value, section.is_encoded)));
    Param { name, octets: whole.octets, charset: whole.charset.map(|(label, _)| lower(&label)) }
}

/// The charset that an encoded value names, its language, and the text behind them.
fn charset_of(value: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let mut parts = value.splitn(3, |b| *b == b'\'');
    Some((parts.next()?, parts.next()?, parts.next()?))
}

fn lower(label: &[u8]) -> String {
    String::from_utf8_lossy(label).to_ascii_lowercase()
}

/// Decodes percent escapes; a percent sign without two digits is literal.
pub(crate) fn percent(value: &[u8], out: &mut Vec<u8>) {
    let mut rest = value;
    while let Some((&b, behind)) = rest.split_first() {
        rest = behind;
        match hex(rest).filter(|_| b == b'%') {
            Some(octet) => {
                out.push(octet);
                rest = &rest[2..];
            }
            None => out.push(b),
        }
    }
}

/// Tokens of a MIME field (RFC 2045 5.1); white space and comments between them are skipped.
struct Tokens<'a> {
    rest: &'a [u8],
    /// Whether unexpected or unclosed text was found.
    is_odd: bool,
    /// Octets left from the semicolon before the last parameter on, from its name on, and behind its value.
    from_separator: usize,
    from_name: usize,
    behind_value: usize,
}

/// The value of a parameter, and the value that other programs read.
type Value<'a> = (Cow<'a, [u8]>, Option<Cow<'a, [u8]>>);

/// Whether an octet ends a word: white space, and the tspecials of RFC 2045 section 5.1.
fn is_word_end(b: u8) -> bool {
    let is_special = matches!(
        b,
        b'(' | b')' | b'<' | b'>' | b'@' | b',' | b';' | b':' | b'\\' | b'"' | b'/' | b'[' | b']' | b'?' | b'='
    );
    is_special || b.is_ascii_whitespace()
}

/// Removes folds and surrounding white space.
fn unfolded(value: &[u8]) -> Cow<'_, [u8]> {
    let value = value.trim_ascii();
    if memchr::memchr2(b'\r', b'\n', value).is_none() {
        return Cow::Borrowed(value);
    }
    Cow::Owned(value.iter().copied().filter(|b| !matches!(b, b'\r' | b'\n')).collect())
}

/// Whether an octet ends an unquoted value: a separator, white space or a comment.
fn is_behind_token(b: u8) -> bool {
    b == b';' || b == b'(' || b.is_ascii_whitespace()
}

impl<'a> Tokens<'a> {
    fn of(rest: &'a [u8]) -> Tokens<'a> {
        Tokens { rest, is_odd: false, from_separator: 0, from_name: 0, behind_value: 0 }
    }

    fn skip(&mut self) {
        loop {
            self.rest = self.rest.trim_ascii_start();
            if self.rest.first() != Some(&b'(') {
                return;
            }
            let (mut depth, mut at) = (0_usize, 0);
            while let Some(&b) = self.rest.get(at) {
                at += 1;
                match b {
                    b'\\' => at += 1,
                    b'(' => depth += 1,
                    b')' => depth -= 1,
                    _ => {}
                }
                if depth == 0 {
                    break;
                }
            }
            self.is_odd |= depth > 0;
            self.rest = self.rest.get(at..).unwrap_or_default();
        }
    }

    fn next_is(&mut self, wanted: u8) -> bool {
        self.skip();
        let found = self.rest.first() == Some(&wanted);
        if found {
            self.rest = &self.rest[1..];
        }
        found
    }

    fn take(&mut self, end: impl Fn(&u8) -> bool) -> &'a [u8] {
        let end = self.rest.iter().position(end).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn word(&mut self) -> &'a [u8] {
        self.skip();
        self.take(|b| is_word_end(*b))
    }

    /// The main value, in lower case. Quotes around it violate the grammar; some programs read their content.
    fn main_value(&mut self) -> Vec<u8> {
        if self.next_is(b'"') {
            self.is_odd = true;
            return self.quoted().trim_ascii().to_ascii_lowercase();
        }
        let mut text = self.word().to_ascii_lowercase();
        if self.next_is(b'/') {
            text.push(b'/');
            text.extend_from_slice(&self.word().to_ascii_lowercase());
        }
        text
    }

    /// The value of a parameter, and the alternative reading of other programs. Unquoted file names, which may
    /// contain spaces, extend to the next separator; other values end at white space or a comment.
    fn value(&mut self, is_file_name: bool) -> Value<'a> {
        if self.next_is(b'"') {
            let value = self.quoted();
            self.skip();
            self.behind_value = self.rest.len();
            self.is_odd |= !matches!(self.rest.first(), None | Some(b';'));
            return (value, None);
        }
        let begin = self.rest;
        let token = unfolded(self.take(|b| is_behind_token(*b)));
        self.skip();
        self.behind_value = self.rest.len();
        let is_odd = !matches!(self.rest.first(), None | Some(b';'));
        let whole = unfolded(Tokens::of(begin).take(|b| *b == b';'));
        if is_file_name {
            self.behind_value = begin.len() - memchr::memchr(b';', begin).unwrap_or(begin.len());
            let other = (token != whole && !token.is_empty()).then_some(token);
            return (whole, other);
        }
        self.is_odd |= is_odd;
        let other = (token != whole).then_some(whole);
        (token, other)
    }

    /// Reads the rest of a quoted string after the opening quote.
    fn quoted(&mut self) -> Cow<'a, [u8]> {
        let rest = self.rest;
        let is_plain = |end: &usize| rest[*end] == b'"';
        if let Some(end) = rest.iter().position(|b| matches!(b, b'"' | b'\\' | b'\r' | b'\n')).filter(is_plain) {
            self.rest = &rest[end + 1..];
            return Cow::Borrowed(&rest[..end]);
        }
        let mut value = Vec::new();
        let mut at = 0;
        let mut is_closed = false;
        while let Some(&b) = self.rest.get(at) {
            at += 1;
            match b {
                b'"' => {
                    is_closed = true;
                    break;
                }
                // Before any other octet a backslash is literal, as in the malformed `C:\TEMP\a.png` of some
                // programs.
                b'\\' if matches!(self.rest.get(at), Some(b'"' | b'\\')) => {
                    value.extend(self.rest.get(at));
                    at += 1;
                }
                b'\r' | b'\n' => {}
                b => value.push(b),
            }
        }
        self.is_odd |= !is_closed;
        self.rest = self.rest.get(at..).unwrap_or_default();
        Cow::Owned(value)
    }

    /// The next valid parameter, with its alternative value if it is a boundary or a file name.
    fn parameter(&mut self) -> Option<(&'a [u8], Value<'a>)> {
        loop {
            let at = memchr::memchr(b';', self.rest)?;
            self.from_separator = self.rest.len() - at;
            self.rest = &self.rest[at + 1..];
            self.skip();
            self.from_name = self.rest.len();
            let name = self.word();
            if self.next_is(b'=') {
                let begins = |with: &[u8]| name.get(..with.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(with));
                let is_file_name = begins(b"name") || begins(b"filename");
                let (value, other) = self.value(is_file_name);
                let other = other.filter(|_| is_file_name || name.eq_ignore_ascii_case(b"boundary"));
                return Some((name, (value, other)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(value: &str) -> Option<String> {
        MimeField::parse(value.as_bytes()).param(ParamName::FileName).map(|param| param.text(Charset::UNDECLARED))
    }

    #[test]
    fn values_and_parameters() {
        let field = MimeField::parse(
            b" Text / Plain (x(y\\)) ;z); Charset=us-ascii (Plain text);\r\n\tNAME = \"fl\\\"o;wed\"; format=flowed",
        );
        assert_eq!((field.value.as_str(), field.main(), field.sub()), ("text/plain", "text", "plain"));
        assert_eq!(field.param(ParamName::Charset).unwrap().octets, b"us-ascii");
        assert_eq!(field.param(ParamName::Name).unwrap().octets, b"fl\"o;wed");
        assert_eq!(field.params.len(), 2, "nobody asks for the others");
        let field = MimeField::parse(b"a/b; title*=gb2312''a; x*0*=KOI8-R''a; x*1*=utf-7''a; y=big5''a; z*=a'b");
        assert_eq!((field.other_charsets, field.params), (vec!["gb2312".to_owned(), "koi8-r".to_owned()], Vec::new()));
        assert_eq!(MimeField::parse(b"attachment").value, "attachment");
        assert_eq!(MimeField::parse(b";;;===\"\"(((").value, "");
    }

    #[test]
    fn names_of_files() {
        for (value, wanted) in [
            ("attachment; filename=\"a b.pdf\"", "a b.pdf"),
            ("attachment; filename=a b.pdf ; x=y", "a b.pdf"),
            ("attachment; filename*=utf-8''%E8%AF%B7%20%zz.pdf", "请 %zz.pdf"),
            ("a; filename*=gb2312'zh'%C7%EB; filename=\"x\"", "请"),
            ("a; filename*1*=%B7.p; filename*0*=utf-8''%E8%AF; filename*2=df", "请.pdf"),
            ("a; filename*0=\"a\"; filename*2=\"c\"", "a"),
            ("a; filename=\"=?gb2312?B?x+s=?=.pdf\"", "请.pdf"),
            ("a; filename*=''%41", "A"),
            ("a; filename=\"C:\\TEMP\\a.png\"", "C:\\TEMP\\a.png"),
        ] {
            assert_eq!(text(value).as_deref(), Some(wanted), "{value}");
        }
        assert_eq!(text("a; filename*1=b"), None);
    }

    #[test]
    fn parameters_are_found_as_they_stand() {
        let value = b"a/b (c; d=e); (x;y) Title*1*=\"q;\r\n r\" (c) ; filename=a b(1).txt ;z=1 2;end=\"no";
        let all: Vec<_> = written(value)
            .iter()
            .map(|found| {
                assert_eq!(value[found.separator], b';');
                let place = String::from_utf8_lossy(&value[found.place.clone()]).into_owned();
                (place, String::from_utf8_lossy(&found.value).into_owned(), found.is_odd)
            })
            .collect();
        let wanted = [
            ("d=e) ", "e)", true),
            ("Title*1*=\"q;\r\n r\" (c) ", "q; r", false),
            ("filename=a b(1).txt ", "a b(1).txt", false),
            ("z=1 ", "1", true),
            ("end=\"no", "no", false),
        ];
        let wanted: Vec<_> = wanted.iter().map(|(a, b, odd)| ((*a).to_owned(), (*b).to_owned(), *odd)).collect();
        assert_eq!(all[all.len() - 4..], wanted[1..]);
        let title = written(value).into_iter().find(|found| found.name.base == b"Title").unwrap();
        assert_eq!((title.name.number, title.name.is_encoded), (Some(1), true));
    }

    #[test]
    fn what_is_read_in_two_ways_is_read_in_both() {
        let all = |value: &str, name| -> Vec<String> {
            let field = MimeField::parse(value.as_bytes());
            field.all(name).map(|param| param.text(Charset::UNDECLARED)).collect()
        };
        for (value, name, wanted) in [
            ("m/x; boundary=abc(comment)", ParamName::Boundary, ["abc", "abc(comment)"].as_slice()),
            ("m/x; boundary=abc (a; b=c); charset=x", ParamName::Boundary, &["abc", "abc (a"]),
            ("m/x; charset=utf-8(comment)", ParamName::Charset, &["utf-8"]),
            ("m/x; boundary=\"abc\" (comment)", ParamName::Boundary, &["abc"]),
            ("m/x; name=setup.exe(1)", ParamName::Name, &["setup.exe(1)", "setup.exe"]),
            ("m/x; name=setup.exe more.txt", ParamName::Name, &["setup.exe more.txt", "setup.exe"]),
            ("m/x; boundary=a; boundary=b", ParamName::Boundary, &["a", "b"]),
        ] {
            assert_eq!(all(value, name), wanted, "{value}");
        }
    }

    #[test]
    fn what_programs_differ_in_is_noted() {
        for value in [
            "m/x; boundary=a; boundary=b",
            "m/x; boundary=a; boundary*=us-ascii''b",
            "m/x; name=a; name=b",
            "m/x; charset=a b",
            "m/x; charset=\"a\"b",
            "m/x; charset=\"a",
            "m/x; charset=a (open",
            "m/x; name*0=a; name*2=b",
            "\"m/x\"",
            &format!("m/x{}", "; a=b".repeat(PARAMS_MAX + 1)),
        ] {
            assert!(MimeField::parse(value.as_bytes()).is_ambiguous, "{value}");
        }
        for value in [
            "m/x; boundary=a; boundary=a",
            "m/x; name=a; name*=utf-8''b",
            "m/x (c); charset=\"a\" (c) ; name=a b.txt",
            "m/x; name*0=a; name*1=b;",
        ] {
            assert!(!MimeField::parse(value.as_bytes()).is_ambiguous, "{value}");
        }
        assert_eq!(MimeField::parse(b" \"Base64\"").value, "base64");
    }

    proptest! {
        #[test]
        fn anything_is_taken(value in "(;|=|\\*|\"|\\(|\\)|\\\\|'|%|[0-9]|name|[a-z/]|\r\n ){0,60}") {
            MimeField::parse(value.as_bytes());
        }
    }
}
