//! MIME fields: a value and its parameters (RFC 2045 section 5.1), continued and encoded ones (RFC 2231) included.
//!
//! Promise: any octets are taken, in linear time; at most [`PARAMS_MAX`] parameters are kept.

use crate::charset::Charset;
use crate::transfer::hex;
use crate::words;

/// Parameters of a field that are looked at, each section of a continued one for itself.
pub const PARAMS_MAX: usize = 200;

/// `text/plain; charset=utf-8`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MimeField {
    /// `text/plain`, in lower case, without white space and comments.
    pub value: String,
    pub params: Vec<Param>,
}

/// A parameter, put together from its sections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Param {
    /// In lower case, without asterisks and numbers.
    pub name: String,
    /// Its octets, percent signs decoded.
    pub octets: Vec<u8>,
    /// The charset that it names (RFC 2231 section 4); empty: it has the form, and names none.
    pub charset: Option<String>,
}

impl MimeField {
    /// Reads a field's value, with or without its folds.
    pub fn parse(value: &[u8]) -> MimeField {
        let mut tokens = Tokens(value);
        let mut text = tokens.word().to_ascii_lowercase();
        if tokens.next_is(b'/') {
            text.push(b'/');
            text.extend_from_slice(&tokens.word().to_ascii_lowercase());
        }
        let mut sections = Vec::new();
        while sections.len() < PARAMS_MAX
            && let Some((name, value)) = tokens.parameter()
        {
            sections.push(Section::new(name, value));
        }
        MimeField { value: String::from_utf8_lossy(&text).into_owned(), params: joined(&sections) }
    }

    /// The first parameter of this name, encoded ones before others (RFC 2231 leaves the choice open, RFC 6266 section 4.3
    /// makes it).
    pub fn param(&self, name: &str) -> Option<&Param> {
        let mut all = self.params.iter().filter(|param| param.name == name);
        all.clone().find(|param| param.charset.is_some()).or_else(|| all.next())
    }

    /// `text` of `text/plain`.
    pub fn main(&self) -> &str {
        self.value.split('/').next().unwrap_or_default()
    }

    /// `plain` of `text/plain`.
    pub fn sub(&self) -> &str {
        self.value.split_once('/').map_or("", |(_, sub)| sub)
    }
}

impl Param {
    /// As people read it. Encoded words do not belong into parameters (RFC 2047 section 5), and many programs put them there.
    pub fn text(&self, fallback: Charset) -> String {
        match &self.charset {
            Some(label) => match Charset::named(label.as_bytes()) {
                Some(charset) => charset.decode(&self.octets),
                None => String::from_utf8_lossy(&self.octets).into_owned(),
            },
            None => words::decode(&self.octets, fallback).text,
        }
    }
}

/// `filename*1*="..."`.
struct Section {
    name: String,
    /// `None`: the whole parameter.
    number: Option<u32>,
    is_encoded: bool,
    value: Vec<u8>,
}

impl Section {
    fn new(name: &[u8], value: Vec<u8>) -> Section {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        let (base, is_encoded) = name.strip_suffix('*').map_or((name.as_str(), false), |base| (base, true));
        match base.rsplit_once('*').map(|(base, number)| (base, number.parse())) {
            Some((base, Ok(number))) => Section { name: base.to_owned(), number: Some(number), is_encoded, value },
            _ => Section { name: base.to_owned(), number: None, is_encoded, value },
        }
    }
}

fn joined(sections: &[Section]) -> Vec<Param> {
    let mut params = Vec::new();
    let mut continued: Vec<&Section> = Vec::new();
    for section in sections {
        match section.number {
            None => params.push(param(&[section])),
            Some(_) => continued.push(section),
        }
    }
    // Sections may come in any order (section 3); those of one name are neighbours now. The first of each number counts.
    continued.sort_by(|a, b| (&a.name, a.number).cmp(&(&b.name, b.number)));
    continued.dedup_by(|b, a| (&a.name, a.number) == (&b.name, b.number));
    for all in continued.chunk_by(|a, b| a.name == b.name) {
        // Without the first there is no telling; behind a gap there is no more.
        let known = all.iter().zip(0..).take_while(|(section, number)| section.number == Some(*number)).count();
        if known > 0 {
            params.push(param(&all[..known]));
        }
    }
    params
}

fn param(sections: &[&Section]) -> Param {
    let (mut octets, mut charset) = (Vec::new(), None);
    for (n, section) in sections.iter().enumerate() {
        let mut value = section.value.as_slice();
        if !section.is_encoded {
            octets.extend_from_slice(value);
            continue;
        }
        if n == 0 {
            let mut parts = value.splitn(3, |b| *b == b'\'');
            if let (Some(label), Some(_), Some(text)) = (parts.next(), parts.next(), parts.next()) {
                charset = Some(String::from_utf8_lossy(label).to_ascii_lowercase());
                value = text;
            }
        }
        percent(value, &mut octets);
    }
    let name = sections.first().map(|section| section.name.clone()).unwrap_or_default();
    Param { name, octets, charset }
}

/// A percent sign without two digits stands for itself.
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

/// The tokens of a MIME field (RFC 2045 5.1); white space and comments between them are skipped.
struct Tokens<'a>(&'a [u8]);

impl<'a> Tokens<'a> {
    fn skip(&mut self) {
        loop {
            self.0 = self.0.trim_ascii_start();
            if self.0.first() != Some(&b'(') {
                return;
            }
            let (mut depth, mut at) = (0_usize, 0);
            while let Some(&b) = self.0.get(at) {
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
            self.0 = self.0.get(at..).unwrap_or_default();
        }
    }

    fn next_is(&mut self, wanted: u8) -> bool {
        self.skip();
        let found = self.0.first() == Some(&wanted);
        if found {
            self.0 = &self.0[1..];
        }
        found
    }

    fn word(&mut self) -> &'a [u8] {
        self.skip();
        let special = |b: &u8| b.is_ascii_whitespace() || b"()<>@,;:\\\"/[]?=".contains(b);
        let end = self.0.iter().position(special).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        word
    }

    /// The value of a parameter: a quoted string or what goes up to the next separator. File names without quotes have spaces.
    fn value(&mut self, is_file_name: bool) -> Vec<u8> {
        if !self.next_is(b'"') {
            let is_end = |b: &u8| *b == b';' || !is_file_name && b.is_ascii_whitespace();
            let end = self.0.iter().position(is_end).unwrap_or(self.0.len());
            let (value, rest) = self.0.split_at(end);
            self.0 = rest;
            return value.trim_ascii().iter().copied().filter(|b| !matches!(b, b'\r' | b'\n')).collect();
        }
        let mut value = Vec::new();
        let mut at = 0;
        while let Some(&b) = self.0.get(at) {
            at += 1;
            match b {
                b'"' => break,
                // Before anything else it stands for itself, in those who write `C:\TEMP\a.png` so, against the grammar.
                b'\\' if matches!(self.0.get(at), Some(b'"' | b'\\')) => {
                    value.extend(self.0.get(at));
                    at += 1;
                }
                b'\r' | b'\n' => {}
                b => value.push(b),
            }
        }
        self.0 = self.0.get(at..).unwrap_or_default();
        value
    }

    /// The next parameter that is one.
    fn parameter(&mut self) -> Option<(&'a [u8], Vec<u8>)> {
        loop {
            let at = memchr::memchr(b';', self.0)?;
            self.0 = &self.0[at + 1..];
            let name = self.word();
            if self.next_is(b'=') {
                let is_file_name = name.get(..4).is_some_and(|start| start.eq_ignore_ascii_case(b"name"))
                    || name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case(b"filename"));
                return Some((name, self.value(is_file_name)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(value: &str, name: &str) -> Option<String> {
        MimeField::parse(value.as_bytes()).param(name).map(|param| param.text(Charset::UNDECLARED))
    }

    #[test]
    fn values_and_parameters() {
        let field = MimeField::parse(
            b" Text / Plain (x(y\\)) ;z); Charset=us-ascii (Plain text);\r\n\tFORMAT = \"fl\\\"o;wed\"",
        );
        assert_eq!((field.value.as_str(), field.main(), field.sub()), ("text/plain", "text", "plain"));
        assert_eq!(field.param("charset").unwrap().octets, b"us-ascii");
        assert_eq!(field.param("format").unwrap().octets, b"fl\"o;wed");
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
            assert_eq!(text(value, "filename").as_deref(), Some(wanted), "{value}");
        }
        assert_eq!(text("a; filename*1=b", "filename"), None);
    }

    proptest! {
        #[test]
        fn anything_is_taken(value in "(;|=|\\*|\"|\\(|\\)|\\\\|'|%|[0-9]|name|[a-z/]|\r\n ){0,60}") {
            MimeField::parse(value.as_bytes());
        }
    }
}
