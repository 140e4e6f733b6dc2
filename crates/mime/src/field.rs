//! The fields of a header section, and where it ends: the one definition that all readers of messages share.
//!
//! A header section is a sequence of fields. A field is a line that begins with a name (printable ASCII), perhaps with spaces and tabs
//! behind it (RFC 5322 section 4.5), and a colon among its first [`LINE_BYTES_MAX`] octets; then lines that begin with a space or tab. The
//! section ends with an empty line, or before the first line that is none of these, which is the body's: such mail exists. Before the
//! first field there may be the line with which mbox files begin a message, of at most [`MBOX_BYTES_MAX`] octets and without folds.
//!
//! [`line()`] is the definition; [`Section`] reads a message in pieces by it.

/// Longest line (RFC 5322 section 2.1.1), without its end: what has no colon until then is no field.
pub const LINE_BYTES_MAX: usize = 998;
/// Longest line of an mbox, so that a field can be made of it.
pub const MBOX_BYTES_MAX: usize = 980;

/// What is before a line of a header section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Place {
    /// Nothing: it may be the line of an mbox.
    #[default]
    Start,
    /// Nothing that it could continue, in content that begins with no line of an mbox, or behind such a line.
    Bare,
    /// A field.
    Field,
}

impl Place {
    /// The place behind a line.
    pub fn behind(line: Line) -> Place {
        match line {
            Line::Field { .. } | Line::Fold => Place::Field,
            Line::Mbox | Line::Empty | Line::Body => Place::Bare,
        }
    }
}

/// What a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// The octets of its name, and those before its colon.
    Field { name: usize, colon: usize },
    /// It continues the field before it.
    Fold,
    /// `From ` or `>From `, as mbox files have it.
    Mbox,
    /// It ends the section.
    Empty,
    /// No line of a header section: the body begins with it.
    Body,
}

/// What the line is that `text` begins with, its end included if it is there. `is_all`: no more of the line comes. `None`: more of it must be
/// known; of one with over [`LINE_BYTES_MAX`] octets and two for its end everything is.
pub fn line(place: Place, text: &[u8], is_all: bool) -> Option<Line> {
    if let Some(b' ' | b'\t') = text.first() {
        return Some(if place == Place::Field { Line::Fold } else { Line::Body });
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
    if place == Place::Start && [&b"From "[..], b">From "].iter().any(|begin| whole.starts_with(begin)) {
        // Of a CR that may be half of the line's end nothing is known.
        let is_long = whole.len() > MBOX_BYTES_MAX + usize::from(!is_all);
        return (is_all || is_long).then_some(if is_long { Line::Body } else { Line::Mbox });
    }
    let has_colon = memchr::memchr(b':', whole).is_some();
    (is_all || has_colon || whole.len() > LINE_BYTES_MAX).then_some(Line::Body)
}

/// The octets of the name that a line begins with, and those before its colon.
fn name(line: &[u8]) -> Option<(usize, usize)> {
    let colon = memchr::memchr(b':', &line[..line.len().min(LINE_BYTES_MAX)])?;
    let name = line[..colon].iter().rposition(|octet| !matches!(octet, b' ' | b'\t'))? + 1;
    line[..name].iter().all(|octet| matches!(octet, b'!'..=b'~')).then_some((name, colon))
}

/// Name and value of a field, this without the last line end.
pub fn split(field: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = field.strip_suffix(b"\n").unwrap_or(field);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let (name, colon) = name(line)?;
    Some((&line[..name], &line[colon + 1..]))
}

/// Octets of a header section, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token<'a> {
    /// A field begins: the octets before its value, and how many of these are its name.
    Name { octets: &'a [u8], name: usize },
    /// More of its value, with line ends and folds.
    Value(&'a [u8]),
    /// A line of an mbox, with its end.
    Mbox(&'a [u8]),
    /// The section is over, by this empty line.
    Empty(&'a [u8]),
    /// The section is over: the body begins with these octets, of which those stood in pieces before.
    Body(&'a [u8]),
}

/// What becomes of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    None,
    Remove,
    /// Its value is another one, which may have folds.
    Replace(Vec<u8>),
}

/// A header section that comes in pieces. Its tokens do not depend on where these are cut, but for the cuts within values; of a line at
/// most some [`LINE_BYTES_MAX`] octets are held.
#[derive(Debug, Clone, Default)]
pub struct Section {
    place: Place,
    /// The beginning of a line of which nothing is known yet.
    begun: Vec<u8>,
    in_value: bool,
    is_over: bool,
}

impl Section {
    /// One that begins with no line of an mbox, as what is stored.
    pub fn bare() -> Section {
        Section { place: Place::Bare, ..Section::default() }
    }

    /// Nothing of it is left to come.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// What is held of a line.
    pub fn held(&self) -> &[u8] {
        &self.begun
    }

    /// Takes the next octets, and returns those that are behind the section.
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

    /// Nothing more comes.
    pub fn finish(&mut self, see: &mut impl FnMut(Token<'_>)) {
        let begun = std::mem::take(&mut self.begun);
        if let Some(line) = line(self.place, &begun, true).filter(|_| !begun.is_empty()) {
            self.take(line, (&begun, begun.len()), see);
        }
        self.is_over = true;
    }

    /// A line begins.
    fn begin<'a>(&mut self, rest: &'a [u8], see: &mut impl FnMut(Token<'_>)) -> &'a [u8] {
        if let Some(line) = line(self.place, rest, false) {
            return &rest[self.take(line, (rest, 0), see)..];
        }
        self.begun.extend_from_slice(rest);
        &[]
    }

    /// Takes more of a line of which something is held, up to what may decide.
    fn go_on<'a>(&mut self, rest: &'a [u8], see: &mut impl FnMut(Token<'_>)) -> &'a [u8] {
        let more = &rest[..rest.len().min(LINE_BYTES_MAX + 2 - self.begun.len())];
        let end = memchr::memchr2(b':', b'\n', more).map_or(more.len(), |at| at + 1);
        self.begun.extend_from_slice(&more[..end]);
        if let Some(line) = line(self.place, &self.begun, false) {
            // Its last octet has decided: nothing that is held is behind the token.
            let begun = std::mem::take(&mut self.begun);
            self.take(line, (&begun, begun.len()), see);
        }
        &rest[end..]
    }

    /// A line is known, whose octets begin here, `held` of them before this piece. Returns how many of them are the token's.
    fn take(&mut self, line: Line, (text, held): (&[u8], usize), see: &mut impl FnMut(Token<'_>)) -> usize {
        self.place = Place::behind(line);
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

/// Names and values, these with their folds.
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

/// Behind the octet that closes what `text` begins with: a quoted string (`"`) or a domain in brackets (`]`). `None`: nothing does.
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

/// Behind the comment that `text` begins with, and those within it. `None`: it is not closed.
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

    /// What tokens say, each kind of octets as a whole.
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

    /// Whatever comes, no more than a line is held, and nothing is looked at again and again.
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
