//! Fields of a header section, and where it ends: the single definition used by all readers of messages.
//!
//! A header section is a sequence of fields. A field starts with a line that has a name (printable ASCII), optional
//! spaces and tabs (RFC 5322 section 4.5), and a colon within the first [`LINE_BYTES_MAX`] octets; further lines
//! begin with a space or tab. The section ends with an empty line, or before the first line of any other kind, which
//! belongs to the body: such mail exists. The first field may be preceded by the line with which mbox files begin a
//! message, of at most [`MBOX_BYTES_MAX`] octets and without folds.
//!
//! [`line()`] is the definition; [`Section`] applies it to a message in pieces.

use crate::words::unfolded;

/// Maximum length of a line (RFC 5322 section 2.1.1), without its end: a line without a colon in this range is not a
/// field.
pub const LINE_BYTES_MAX: usize = 998;
/// Maximum length of an mbox line, so that it can be turned into a field.
pub const MBOX_BYTES_MAX: usize = 980;

/// Context of a line in a header section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LineContext {
    /// The beginning, where an mbox line is allowed.
    #[default]
    Start,
    /// No field to continue, in content that does not begin with an mbox line, or after that line.
    Bare,
    /// A field precedes.
    Field,
}

impl LineContext {
    /// The context after a line.
    pub fn behind(line: Line) -> LineContext {
        match line {
            Line::Field { .. } | Line::Fold => LineContext::Field,
            Line::Mbox | Line::Empty | Line::Body => LineContext::Bare,
        }
    }
}

/// Kind of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// The start of a field: lengths of its name, and of the part before its colon.
    Field { name: usize, colon: usize },
    /// A continuation of the previous field.
    Fold,
    /// `From ` or `>From `, as in mbox files.
    Mbox,
    /// An empty line, which ends the section.
    Empty,
    /// Not a header line: the body begins with it.
    Body,
}

/// Classifies the line at the start of `text`, including its end if present. `is_all`: the line has no more octets.
/// `None`: more octets are needed, which never happens beyond [`LINE_BYTES_MAX`] octets and two for the end.
pub fn line(context: LineContext, text: &[u8], is_all: bool) -> Option<Line> {
    if let Some(b' ' | b'\t') = text.first() {
        return Some(if context == LineContext::Field { Line::Fold } else { Line::Body });
    }
    let text = &text[..text.len().min(LINE_BYTES_MAX + 2)];
    let end = memchr::memchr(b'\n', text);
    let line = &text[..end.unwrap_or(text.len())];
    let is_all = is_all || end.is_some();
    let whole = line.strip_suffix(b"\r").filter(|_| end.is_some()).unwrap_or(line);
    match whole.first() {
        None | Some(b'\r') if whole.len() < 2 && !is_all => return None,
        None => return Some(Line::Empty),
        Some(_) => {}
    }
    if let Some((name, colon)) = name(whole) {
        return Some(Line::Field { name, colon });
    }
    if context == LineContext::Start && [&b"From "[..], b">From "].iter().any(|begin| whole.starts_with(begin)) {
        // A final CR may be half of the line end, so it is not counted.
        let is_long = whole.len() > MBOX_BYTES_MAX + usize::from(!is_all);
        return (is_all || is_long).then_some(if is_long { Line::Body } else { Line::Mbox });
    }
    let has_colon = memchr::memchr(b':', whole).is_some();
    (is_all || has_colon || whole.len() > LINE_BYTES_MAX).then_some(Line::Body)
}

/// Lengths of the name at the start of a line, and of the part before its colon.
fn name(line: &[u8]) -> Option<(usize, usize)> {
    let colon = memchr::memchr(b':', &line[..line.len().min(LINE_BYTES_MAX)])?;
    let name = line[..colon].iter().rposition(|octet| !matches!(octet, b' ' | b'\t'))? + 1;
    line[..name].iter().all(|octet| matches!(octet, b'!'..=b'~')).then_some((name, colon))
}

/// Name and value of a field, the latter without the last line end.
pub fn split(field: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = field.strip_suffix(b"\n").unwrap_or(field);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let (name, colon) = name(line)?;
    Some((&line[..name], &line[colon + 1..]))
}

/// Part of a header section, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token<'a> {
    /// Start of a field: the octets before its value, and the length of its name.
    Name { octets: &'a [u8], name: usize },
    /// A part of its value, with line ends and folds.
    Value(&'a [u8]),
    /// An mbox line with its end.
    Mbox(&'a [u8]),
    /// The section ends with this empty line.
    Empty(&'a [u8]),
    /// The section ends: the body begins with these octets, which come from earlier pieces.
    Body(&'a [u8]),
}

/// Result of editing a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    None,
    Remove,
    /// The field gets another value, which may be folded.
    Replace(Vec<u8>),
}

impl Edit {
    /// Whether it replaces a value, which may be folded, by itself.
    pub fn is_same(&self, value: &[u8]) -> bool {
        matches!(self, Edit::Replace(new) if new == unfolded(value).trim_ascii())
    }
}

/// Parses a header section in pieces. Apart from splits within values, the tokens do not depend on how the input is
/// split; at most some [`LINE_BYTES_MAX`] octets of a line are buffered.
#[derive(Debug, Clone, Default)]
pub struct Section {
    context: LineContext,
    /// Start of a line that cannot be classified yet.
    begun: Vec<u8>,
    in_value: bool,
    is_over: bool,
}

impl Section {
    /// For content that cannot begin with an mbox line, such as stored messages.
    pub fn bare() -> Section {
        Section { context: LineContext::Bare, ..Section::default() }
    }

    /// Whether the section has ended.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The buffered part of a line.
    pub fn held(&self) -> &[u8] {
        &self.begun
    }

    /// Parses the next octets, and returns those after the section.
    pub fn push<'a>(&mut self, octets: &'a [u8], see: &mut impl FnMut(Token<'_>)) -> &'a [u8] {
        let mut rest = octets;
        while !self.is_over && !rest.is_empty() {
            rest = if self.in_value {
                let end = memchr::memchr(b'\n', rest);
                let (value, behind) = rest.split_at(end.map_or(rest.len(), |end| end + 1));
                self.in_value = end.is_none();
                see(Token::Value(value));
                behind
            } else if self.begun.is_empty() {
                self.begin(rest, see)
            } else {
                self.go_on(rest, see)
            };
        }
        rest
    }

    /// Ends the input.
    pub fn finish(&mut self, see: &mut impl FnMut(Token<'_>)) {
        let begun = std::mem::take(&mut self.begun);
        if let Some(line) = line(self.context, &begun, true).filter(|_| !begun.is_empty()) {
            self.take(line, &begun, begun.len(), see);
        }
        self.is_over = true;
    }

    /// Starts a line.
    fn begin<'a>(&mut self, rest: &'a [u8], see: &mut impl FnMut(Token<'_>)) -> &'a [u8] {
        if let Some(line) = line(self.context, rest, false) {
            return &rest[self.take(line, rest, 0, see)..];
        }
        self.begun.extend_from_slice(rest);
        &[]
    }

    /// Extends a buffered line by the octets that may classify it.
    fn go_on<'a>(&mut self, rest: &'a [u8], see: &mut impl FnMut(Token<'_>)) -> &'a [u8] {
        let more = &rest[..rest.len().min(LINE_BYTES_MAX + 2 - self.begun.len())];
        let end = memchr::memchr2(b':', b'\n', more).map_or(more.len(), |at| at + 1);
        self.begun.extend_from_slice(&more[..end]);
        if let Some(line) = line(self.context, &self.begun, false) {
            // Its last octet classified it, so all buffered octets belong to the token.
            let begun = std::mem::take(&mut self.begun);
            self.take(line, &begun, begun.len(), see);
        }
        &rest[end..]
    }

    /// Handles a classified line, of which `held` octets come from earlier pieces. Returns how many octets of the
    /// token are in this piece.
    fn take(&mut self, line: Line, text: &[u8], held: usize, see: &mut impl FnMut(Token<'_>)) -> usize {
        self.context = LineContext::behind(line);
        self.in_value = matches!(line, Line::Field { .. } | Line::Fold);
        self.is_over = matches!(line, Line::Empty | Line::Body);
        let whole = || memchr::memchr(b'\n', text).map_or(text.len(), |end| end + 1);
        let (token, taken) = match line {
            Line::Field { name, colon } => (Token::Name { octets: &text[..=colon], name }, colon + 1),
            Line::Mbox => (Token::Mbox(&text[..whole()]), whole()),
            Line::Empty => (Token::Empty(&text[..whole()]), whole()),
            Line::Body => (Token::Body(&text[..held]), 0),
            Line::Fold => return 0,
        };
        see(token);
        taken
    }
}

/// Names and values of all fields; values include their folds.
pub(crate) fn all(section: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    lines(section).filter_map(split)
}

/// The fields of a section, each with its folded lines and line ends.
pub fn lines(section: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = section;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut end = 0;
        while let Some(at) = memchr::memchr(b'\n', &rest[end..]) {
            end += at + 1;
            if !matches!(rest.get(end), Some(b' ' | b'\t')) {
                let (field, after) = rest.split_at(end);
                rest = after;
                return Some(field);
            }
        }
        Some(std::mem::take(&mut rest))
    })
}

/// Position after the octet that closes the quoted string (`"`) or domain in brackets (`]`) at the start of `text`.
/// `None`: it is not closed.
pub fn quoted_end(text: &[u8], close: u8) -> Option<usize> {
    let mut at = 1;
    loop {
        match *text.get(at)? {
            b'\\' => at += 2,
            octet if octet == close => return Some(at + 1),
            _ => at += 1,
        }
    }
}

/// Position after the comment at the start of `text`, including nested ones. `None`: it is not closed.
pub fn comment_end(text: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (0, 0_usize);
    loop {
        match *text.get(at)? {
            b'\\' => at += 1,
            b'(' => depth += 1,
            b')' if depth == 1 => return Some(at + 1),
            b')' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The tokens as text, with adjacent octets of one kind joined.
    fn read(pieces: &[&[u8]], mut section: Section) -> String {
        let (mut said, mut last) = (String::new(), ' ');
        let mut see = |token: Token<'_>| {
            let (kind, octets) = match token {
                Token::Name { octets, name } => ('N', [&octets[..name], b"|", &octets[name..]].concat()),
                Token::Value(octets) => ('V', octets.to_vec()),
                Token::Mbox(octets) => ('M', octets.to_vec()),
                Token::Empty(octets) => ('E', octets.to_vec()),
                Token::Body(octets) => ('B', octets.to_vec()),
            };
            if kind != 'V' || last != 'V' {
                said.push(kind);
            }
            last = kind;
            said.push_str(&octets.escape_ascii().to_string());
        };
        let mut body = Vec::new();
        for piece in pieces {
            body.extend_from_slice(section.push(piece, &mut see));
        }
        section.finish(&mut see);
        if last == 'E' && !body.is_empty() {
            said.push('B');
        }
        said + &body.escape_ascii().to_string()
    }

    fn whole(text: &str) -> String {
        read(&[text.as_bytes()], Section::default()).replace("\\r\\n", "$")
    }

    #[test]
    fn what_a_header_is() {
        for (text, said) in [
            ("A: b\r\n c\r\nD \t:\r\n\r\nE: f", "NA|:V b$ c$ND| \\t:V$E$BE: f"),
            (" x\r\nA: b\r\n", "B x$A: b$"),
            ("\tx\r\n", "B\\tx$"),
            ("From a:b\r\nA: b\r\n", "MFrom a:b$NA|:V b$"),
            (">From a\r\n\r\n", "M>From a$E$"),
            ("From a\r\n x\r\nA: b\r\n", "MFrom a$B x$A: b$"),
            ("From a\r\nFrom b\r\n", "MFrom a$BFrom b$"),
            ("A: b\r\nFrom a\r\n", "NA|:V b$BFrom a$"),
            ("From : a\r\n", "NFrom| :V a$"),
            ("A: b\r\nX\x0c: y\r\n", "NA|:V b$BX\\x0c: y$"),
            ("A: b\r\nX\x0b: y\r\n", "NA|:V b$BX\\x0b: y$"),
            ("A: b\r\n\x0c\r\n", "NA|:V b$B\\x0c$"),
            (": b\r\n", "B: b$"),
            ("A", "BA"),
            ("From a", "MFrom a"),
            ("\n", "E\\n"),
            ("\r\r\n", "B\\r$"),
            ("", ""),
        ] {
            assert_eq!(whole(text), said, "{}", text.escape_default());
        }
        for (octets, kind) in [(MBOX_BYTES_MAX, 'M'), (MBOX_BYTES_MAX + 1, 'B')] {
            assert!(whole(&format!("From {}\r\nA: b\r\n", "x".repeat(octets - 5))).starts_with(kind), "{octets}");
        }
        for (octets, kind) in [(LINE_BYTES_MAX - 1, 'N'), (LINE_BYTES_MAX, 'B')] {
            assert!(whole(&format!("{}: b\r\n", "x".repeat(octets))).starts_with(kind), "{octets}");
        }
    }

    /// Checks that at most one line is buffered, and no octets are examined repeatedly.
    #[test]
    fn little_is_held() {
        for text in [vec![b'x'; 4_000], [b"From ".to_vec(), vec![b':'; 4_000]].concat()] {
            let mut section = Section::default();
            for octet in text {
                section.push(&[octet], &mut |_| {});
                assert!(section.held().len() < LINE_BYTES_MAX + 2);
            }
        }
    }

    proptest! {
        #[test]
        fn cuts_do_not_matter(
            lines in proptest::collection::vec(
                "(A|From |>From |From|X\x0c|B \t| |\t|\u{e9}|a{1000})?:?[ab:\x0c]{0,3}(\r\n|\r\n|\n|\r|\r\n |\r\n\r\n)", 0..6),
            cuts in proptest::collection::vec(1usize..40, 1..9),
        ) {
            let text = lines.concat().into_bytes();
            let (mut pieces, mut rest) = (Vec::new(), text.as_slice());
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, behind) = rest.split_at((*cut).min(rest.len()));
                pieces.push(piece);
                rest = behind;
            }
            prop_assert_eq!(read(&pieces, Section::default()), read(&[&text], Section::default()));
        }
    }
}
