//! A pattern being translated into the engine's dialect, with the origin of each octet.
//!
//! Literal octets are written as letters, digits or `\xHH`, so that no pattern can produce the engine's own syntax by
//! accident.

use crate::diagnostic::TableProblem;

/// Octet of the pattern, and problem.
pub(super) type Fault = (usize, TableProblem);

pub(super) fn unsupported(at: usize, what: &'static str) -> Fault {
    (at, TableProblem::UnsupportedPattern(what))
}

pub(super) fn bad(at: usize, what: &str) -> Fault {
    (at, TableProblem::BadPattern(what.to_owned()))
}

#[derive(Debug, Default)]
pub(super) struct Translation {
    pub text: String,
    /// For each octet of the text: the octet of the pattern that it came from.
    from: Vec<u32>,
    pub groups: u16,
    /// Positions in the text where open groups began.
    open: Vec<usize>,
    /// Position of the last piece that can be repeated.
    piece: Option<usize>,
    /// Whether the last piece is a repetition.
    is_repeated: bool,
}

impl Translation {
    /// `flags` apply to the whole pattern.
    pub fn new(flags: &str) -> Self {
        let mut new = Self::default();
        new.push(0, flags);
        new
    }

    pub fn push(&mut self, at: usize, text: &str) {
        self.text.push_str(text);
        self.from.resize(self.text.len(), at as u32);
    }

    pub fn push_octet(&mut self, at: usize, octet: u8) {
        if octet.is_ascii_alphanumeric() {
            self.push(at, char::from(octet).encode_utf8(&mut [0; 4]));
        } else {
            const DIGITS: &[u8; 16] = b"0123456789abcdef";
            let digit = |half: u8| char::from(DIGITS[usize::from(half & 15)]);
            self.push(at, &String::from_iter(['\\', 'x', digit(octet >> 4), digit(octet)]));
        }
    }

    /// Marks the start of a piece that can be repeated.
    pub fn begin_piece(&mut self) {
        self.piece = Some(self.text.len());
        self.is_repeated = false;
    }

    pub fn literal(&mut self, at: usize, octet: u8) {
        self.begin_piece();
        self.push_octet(at, octet);
    }

    pub fn piece(&mut self, at: usize, text: &str) {
        self.begin_piece();
        self.push(at, text);
    }

    /// Adds a piece that cannot be repeated: an anchor or `|`.
    pub fn mark(&mut self, at: usize, text: &str) {
        self.push(at, text);
        self.piece = None;
    }

    pub fn can_repeat(&self) -> bool {
        self.piece.is_some()
    }

    pub fn is_repeated(&self) -> bool {
        self.is_repeated
    }

    /// Repeats the last piece. A repetition that is repeated becomes a group, because `a+?` has another meaning.
    pub fn repeat(&mut self, at: usize, operator: &str) -> Result<(), Fault> {
        let Some(begin) = self.piece else { return Err(bad(at, "nothing to repeat")) };
        if self.is_repeated {
            const GROUP: &str = "(?:";
            self.text.insert_str(begin, GROUP);
            let from = self.from[begin];
            self.from.splice(begin..begin, std::iter::repeat_n(from, GROUP.len()));
            self.push(at, ")");
        }
        self.push(at, operator);
        self.is_repeated = true;
        Ok(())
    }

    /// Opens a group; `text` is its opening.
    pub fn open(&mut self, at: usize, text: &str, is_captured: bool) {
        self.open.push(self.text.len());
        self.push(at, text);
        self.piece = None;
        self.groups += u16::from(is_captured);
    }

    /// Closes a group; returns false if none is open.
    pub fn close(&mut self, at: usize) -> bool {
        let Some(begin) = self.open.pop() else { return false };
        self.push(at, ")");
        self.piece = Some(begin);
        self.is_repeated = false;
        true
    }

    pub fn depth(&self) -> usize {
        self.open.len()
    }

    /// Parses the result; returns the text and the number of its capture groups.
    pub fn finish(self, end: usize) -> Result<(String, u16), Fault> {
        if self.depth() > 0 {
            return Err(bad(end, "'(' without ')'"));
        }
        let parsed =
            regex_syntax::ParserBuilder::new().unicode(false).utf8(false).nest_limit(250).build().parse(&self.text);
        let (offset, why) = match parsed {
            Ok(_) => return Ok((self.text, self.groups)),
            Err(regex_syntax::Error::Parse(error)) => (error.span().start.offset, error.kind().to_string()),
            Err(regex_syntax::Error::Translate(error)) => (error.span().start.offset, error.kind().to_string()),
            Err(error) => (0, error.to_string()),
        };
        Err((self.from.get(offset).map_or(end, |&at| at as usize), TableProblem::BadPattern(why)))
    }
}

/// Parses `{2}`, `{2,}` or `{2,5}` at the start of the text; returns the part inside the braces.
pub(super) fn interval(text: &[u8]) -> Option<&str> {
    let inside = text.strip_prefix(b"{")?;
    let end = inside.iter().position(|&octet| octet == b'}')?;
    let inside = std::str::from_utf8(&inside[..end]).ok()?;
    let is_number = |text: &str| !text.is_empty() && text.len() < 6 && text.bytes().all(|octet| octet.is_ascii_digit());
    let is_interval = match inside.split_once(',') {
        None => is_number(inside),
        Some((least, most)) => is_number(least) && (most.is_empty() || is_number(most)),
    };
    is_interval.then_some(inside)
}

/// The engine's name of a POSIX class.
pub(super) fn class_name(name: &[u8]) -> Option<&'static str> {
    const NAMES: [&str; 12] =
        ["alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "xdigit"];
    NAMES.into_iter().find(|known| known.as_bytes() == name)
}
