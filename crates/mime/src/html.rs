//! Extracts the approximate visible text of HTML: without tags, comments, scripts and styles, with character
//! references decoded.
//!
//! It streams, in constant memory and linear time, and accepts any text, even malformed: tags, comments and
//! references end as the HTML Standard defines (section 13.2.5). Layout is ignored, so text hidden by a style is
//! included. White space becomes one blank, or a line end where a tag separates words, independent of the source's
//! line ends; invisible characters ([`is_invisible`]) are removed.
//!
//! Texts, quoted values and comments are processed in runs, everything else octet by octet, each examined at most
//! twice. All syntax is ASCII, so characters are only examined in visible text.

use crate::charset::HIGH_CONTROLS;
use crate::entities;

/// Maximum length of the tag names that matter; that of references follows.
const TAG_BYTES_MAX: usize = 12;
const REFERENCE_BYTES_MAX: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Text,
    /// After `&`.
    Reference,
    /// In the name of a tag, including a slash before it.
    Name,
    Tag(Tag),
    /// `<!x`, `<?x` or `</ x`: up to the next `>`.
    Bogus,
    /// After `<!` or `<!-`.
    Bang,
    Hyphen,
    Comment(Comment),
}

/// Position in a tag, after its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tag {
    BeforeName,
    Name,
    AfterName,
    BeforeValue,
    Value,
    Quoted(u8),
}

/// Position in a comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comment {
    Begin,
    BeginHyphen,
    Inside,
    Hyphen,
    /// After two hyphens.
    End,
    /// After `--!`.
    Bang,
}

/// Tags whose text is hidden until they end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hidden {
    Script,
    Style,
}

impl Hidden {
    /// Name of the end tag.
    fn end(self) -> &'static [u8] {
        match self {
            Hidden::Script => b"/script",
            Hidden::Style => b"/style",
        }
    }
}

/// Tags inside which scripts and styles do not hide tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Foreign {
    Svg,
    Math,
}

/// Name of the current tag or reference.
#[derive(Debug)]
struct Name {
    octets: [u8; REFERENCE_BYTES_MAX + 1],
    len: usize,
}

impl Default for Name {
    fn default() -> Name {
        Name { octets: [0; REFERENCE_BYTES_MAX + 1], len: 0 }
    }
}

impl Name {
    fn as_bytes(&self) -> &[u8] {
        &self.octets[..self.len]
    }

    /// Adds an octet, if there is room.
    fn push(&mut self, octet: u8) {
        if let Some(place) = self.octets.get_mut(self.len) {
            *place = octet;
            self.len += 1;
        }
    }

    fn take(&mut self) -> Name {
        std::mem::take(self)
    }
}

/// Extractor of visible text; see the module documentation.
#[derive(Debug, Default)]
pub struct Html {
    state: State,
    name: Name,
    hidden: Option<Hidden>,
    foreign: Option<Foreign>,
    /// White space to insert before the next character.
    gap: Option<char>,
}

/// Whether a character is invisible within a word: a soft hyphen, or a space without width.
pub fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}')
}

/// Whether a text has an invisible character. Their last octets are rare, so these are searched first.
pub fn has_invisible(text: &str) -> bool {
    let octets = text.as_bytes();
    memchr::memchr2_iter(0xad, 0x8b, octets).any(|at| {
        let begin = &octets[..=at];
        begin.ends_with(b"\xc2\xad") || begin.ends_with(b"\xe2\x80\x8b")
    })
}

/// For each octet of visible text: whether it is neither white space nor the first of a tag, a reference, or a
/// character that may be white space or invisible.
const PLAIN: [bool; 256] = {
    let (mut plain, mut octet) = ([true; 256], 0);
    while octet < 256 {
        plain[octet] = !matches!(octet as u8, b'<' | b'&' | b'\t' | b'\n' | b'\x0c' | b'\r' | b' ' | 0xc2 | 0xe2);
        octet += 1;
    }
    plain
};

impl Html {
    /// Appends the visible text of the next piece.
    pub fn push(&mut self, html: &str, text: &mut String) {
        let octets = html.as_bytes();
        let mut at = 0;
        while let Some(&octet) = octets.get(at) {
            let rest = &octets[at..];
            at += match self.state {
                State::Text if self.hidden.is_some() => self.hidden_text(rest),
                State::Text => self.visible_text(&html[at..], text),
                State::Bogus => behind(rest, b'>').inspect(|_| self.state = State::Text).unwrap_or(rest.len()),
                State::Tag(Tag::Quoted(quote)) => {
                    let end = behind(rest, quote);
                    end.inspect(|_| self.state = State::Tag(Tag::BeforeName)).unwrap_or(rest.len())
                }
                State::Comment(Comment::Inside) => {
                    let end = behind(rest, b'-');
                    end.inspect(|_| self.state = State::Comment(Comment::Hyphen)).unwrap_or(rest.len())
                }
                _ => usize::from(self.octet(octet, text)),
            };
        }
    }

    /// Ends the part.
    pub fn finish(&mut self, text: &mut String) {
        if self.state == State::Reference {
            self.reference(text);
        }
        // A blank at the end would prevent a match of `$`.
        text.extend(self.gap.filter(|gap| *gap == '\n'));
        *self = Html::default();
    }

    fn show(&mut self, c: char, text: &mut String) {
        if c.is_ascii_whitespace() || c == '\u{a0}' {
            self.gap = self.gap.or(Some(' '));
        } else if !is_invisible(c) {
            self.show_gap(text);
            text.push(c);
        }
    }

    fn show_all(&mut self, referred: &str, text: &mut String) {
        referred.chars().for_each(|c| self.show(c, text));
    }

    /// Appends a run without white space and invisible characters.
    fn show_run(&mut self, run: &str, text: &mut String) {
        if !run.is_empty() {
            self.show_gap(text);
            text.push_str(run);
        }
    }

    fn show_gap(&mut self, text: &mut String) {
        if let Some(gap) = self.gap.take() {
            text.push(gap);
        }
    }

    /// Skips text in a script or style. Returns the number of octets consumed.
    fn hidden_text(&mut self, rest: &[u8]) -> usize {
        behind(rest, b'<').inspect(|_| self.state = State::Name).unwrap_or(rest.len())
    }

    /// Appends text up to a tag or reference. Returns the number of octets consumed.
    fn visible_text(&mut self, html: &str, text: &mut String) -> usize {
        let octets = html.as_bytes();
        let mut at = 0;
        loop {
            let end = run_end(octets, at);
            self.show_run(&html[at..end], text);
            let Some(&octet) = octets.get(end) else { return end };
            at = end + 1;
            match octet {
                b'<' => {
                    self.state = State::Name;
                    return at;
                }
                b'&' => {
                    let Some(behind) = self.whole_reference(octets, at, text) else {
                        self.state = State::Reference;
                        return at;
                    };
                    at = behind;
                }
                0xc2 | 0xe2 => {
                    let c = html[end..].chars().next();
                    if let Some(c) = c {
                        self.show(c, text);
                    }
                    at = end + c.map_or(1, char::len_utf8);
                }
                _ => self.gap = self.gap.or(Some(' ')),
            }
        }
    }

    /// Appends a named reference that is all in the piece, from behind its `&`. Returns where it ends; `None`: it is
    /// read octet by octet.
    fn whole_reference(&mut self, octets: &[u8], begin: usize, text: &mut String) -> Option<usize> {
        let is_of_name = |octet: &&u8| octet.is_ascii_alphanumeric();
        let bytes = octets[begin..].iter().take(REFERENCE_BYTES_MAX + 1).take_while(is_of_name).count();
        let (name, end) = (&octets[begin..begin + bytes], begin + bytes);
        let next = octets.get(end).filter(|_| (1..=REFERENCE_BYTES_MAX).contains(&bytes))?;
        if *next == b';'
            && let Some(referred) = entities::named(name)
        {
            self.show_all(referred, text);
            return Some(end + 1);
        }
        let (known, referred) = entities::bare(name).unwrap_or((0, "&"));
        self.show_all(referred, text);
        self.show_run(std::str::from_utf8(&name[known..]).unwrap_or_default(), text);
        Some(end)
    }

    /// Processes an octet outside texts, quoted values and comments. Returns whether it was consumed; otherwise it
    /// belongs to a text.
    fn octet(&mut self, octet: u8, text: &mut String) -> bool {
        match self.state {
            State::Reference => return self.refers(octet, text),
            State::Name => return self.name(octet, text),
            State::Tag(tag) => self.state = tag.next(octet).map_or(State::Text, State::Tag),
            State::Bang | State::Hyphen => {
                self.state = match (self.state, octet) {
                    (_, b'>') => State::Text,
                    (State::Bang, b'-') => State::Hyphen,
                    (_, b'-') => State::Comment(Comment::Begin),
                    _ => State::Bogus,
                };
            }
            State::Comment(comment) => self.state = comment.next(octet).map_or(State::Text, State::Comment),
            State::Text | State::Bogus => {}
        }
        true
    }

    /// Processes an octet of a tag's name, or the first one after it. Returns whether it was consumed.
    fn name(&mut self, octet: u8, text: &mut String) -> bool {
        if let Some(hidden) = self.hidden {
            self.name_in(hidden, octet);
            return true;
        }
        let is_end = octet == b'>' || octet == b'/' || octet.is_ascii_whitespace();
        if !matches!(self.name.as_bytes(), b"" | b"/") {
            if is_end {
                self.state = if octet == b'>' { State::Text } else { State::Tag(Tag::BeforeName) };
                self.tag();
            } else {
                self.push_name(octet);
            }
            return true;
        }
        if octet.is_ascii_alphabetic() || octet == b'/' && self.name.len == 0 {
            self.push_name(octet);
            return true;
        }
        let is_end_tag = self.name.take().len > 0;
        self.state = match octet {
            b'!' if !is_end_tag => State::Bang,
            b'?' if !is_end_tag => State::Bogus,
            b'>' if is_end_tag => State::Text,
            _ if is_end_tag => State::Bogus,
            _ => {
                // Not a tag: `a < b`.
                self.show('<', text);
                self.state = State::Text;
                return false;
            }
        };
        true
    }

    /// As `name`, within a script or style: only its own end tag counts.
    fn name_in(&mut self, hidden: Hidden, octet: u8) {
        let is_space = octet.is_ascii_whitespace();
        let is_end = self.name.as_bytes() == hidden.end() && (octet == b'>' || octet == b'/' || is_space);
        let is_of_end_tag = octet.is_ascii_alphabetic() && self.name.as_bytes().starts_with(b"/");
        if octet == b'/' && self.name.len == 0 || is_of_end_tag {
            return self.push_name(octet);
        }
        self.name.len = 0;
        if is_end {
            self.hidden = None;
        }
        self.state = match octet {
            b'<' => State::Name,
            b'/' if is_end => State::Tag(Tag::BeforeName),
            _ if is_end && is_space => State::Tag(Tag::BeforeName),
            _ => State::Text,
        };
    }

    fn push_name(&mut self, octet: u8) {
        // A truncated name is none of those that matter.
        if self.name.len <= TAG_BYTES_MAX {
            self.name.push(octet.to_ascii_lowercase());
        }
    }

    /// Processes the end of a tag's name.
    fn tag(&mut self) {
        let name = self.name.take();
        let name = name.as_bytes();
        let (bare, is_end) = name.strip_prefix(b"/").map_or((name, false), |bare| (bare, true));
        let foreign = match bare {
            b"svg" => Some(Foreign::Svg),
            b"math" => Some(Foreign::Math),
            _ => None,
        };
        if is_end {
            self.foreign = self.foreign.filter(|_| self.foreign != foreign);
        } else {
            self.foreign = self.foreign.or(foreign);
            self.hidden = match bare {
                b"script" => Some(Hidden::Script),
                b"style" => Some(Hidden::Style),
                _ => None,
            };
            self.hidden = self.hidden.filter(|_| self.foreign.is_none());
        }
        if !is_inline(bare) {
            self.gap = Some('\n');
        }
    }

    /// Processes an octet of a reference, or the first one after it. Returns whether it was consumed.
    fn refers(&mut self, octet: u8, text: &mut String) -> bool {
        let is_of_reference = match self.name.as_bytes() {
            [] => octet.is_ascii_alphanumeric() || octet == b'#',
            [b'#'] => octet.is_ascii_digit() || matches!(octet, b'x' | b'X'),
            [b'#', b'x' | b'X', ..] => octet.is_ascii_hexdigit(),
            [b'#', ..] => octet.is_ascii_digit(),
            _ => octet.is_ascii_alphanumeric(),
        };
        if is_of_reference {
            // Leading zeros are dropped.
            if matches!(self.name.as_bytes(), b"#0" | b"#x0" | b"#X0") {
                self.name.len -= 1;
            }
            self.name.push(octet);
            if self.name.len > REFERENCE_BYTES_MAX {
                self.reference(text);
            }
            return true;
        }
        if octet == b';' && self.name.len > 0 {
            let name = self.name.take();
            self.state = State::Text;
            if let Some(c) = number(name.as_bytes()) {
                self.show(c, text);
                return true;
            }
            if let Some(referred) = entities::named(name.as_bytes()) {
                self.show_all(referred, text);
                return true;
            }
            self.name = name;
        }
        self.reference(text);
        false
    }

    /// Ends a reference without a semicolon.
    fn reference(&mut self, text: &mut String) {
        let name = self.name.take();
        let name = name.as_bytes();
        self.state = State::Text;
        if let Some(c) = number(name) {
            return self.show(c, text);
        }
        let (octets, referred) = entities::bare(name).unwrap_or((0, "&"));
        self.show_all(referred, text);
        // They are letters, digits and `#`.
        name[octets..].iter().for_each(|octet| self.show(char::from(*octet), text));
    }
}

/// Position after the first of these octets.
fn behind(octets: &[u8], wanted: u8) -> Option<usize> {
    memchr::memchr(wanted, octets).map(|at| at + 1)
}

/// End of the visible text without white space that begins at an octet. It includes signs that do not begin a tag or
/// reference, and visible characters whose first octet is shared with invisible ones.
fn run_end(octets: &[u8], begin: usize) -> usize {
    let mut at = begin;
    while let Some(&octet) = octets.get(at) {
        let is_text = PLAIN[usize::from(octet)]
            || match (octet, octets.get(at + 1)) {
                (b'&', Some(next)) => !(next.is_ascii_alphanumeric() || *next == b'#'),
                (b'<', Some(next)) => !(next.is_ascii_alphabetic() || matches!(next, b'/' | b'!' | b'?')),
                (0xc2, Some(next)) => !matches!(next, 0xa0 | 0xad),
                (0xe2, Some(_)) => !octets[at..].starts_with(b"\xe2\x80\x8b"),
                _ => false,
            };
        if !is_text {
            break;
        }
        at += 1;
    }
    at
}

/// Whether a tag does not separate words.
fn is_inline(tag: &[u8]) -> bool {
    matches!(
        tag,
        b"a" | b"abbr"
            | b"b"
            | b"big"
            | b"code"
            | b"del"
            | b"em"
            | b"font"
            | b"i"
            | b"ins"
            | b"s"
            | b"small"
            | b"span"
            | b"strong"
            | b"sub"
            | b"sup"
            | b"u"
    )
}

impl Tag {
    /// The next position; `None`: the tag has ended.
    fn next(self, octet: u8) -> Option<Tag> {
        let is_space = octet.is_ascii_whitespace();
        Some(match (self, octet) {
            (Tag::Quoted(quote), octet) => {
                if octet == quote {
                    Tag::BeforeName
                } else {
                    self
                }
            }
            (_, b'>') => return None,
            (Tag::Value, _) => {
                if is_space {
                    Tag::BeforeName
                } else {
                    self
                }
            }
            (Tag::BeforeValue, b'"' | b'\'') => Tag::Quoted(octet),
            (Tag::BeforeValue, _) => {
                if is_space {
                    self
                } else {
                    Tag::Value
                }
            }
            (Tag::Name | Tag::AfterName, b'=') => Tag::BeforeValue,
            (Tag::BeforeName | Tag::Name | Tag::AfterName, b'/') => Tag::BeforeName,
            (Tag::BeforeName, _) if is_space => Tag::BeforeName,
            (Tag::Name | Tag::AfterName, _) if is_space => Tag::AfterName,
            // An equals sign at the start of a name is part of it.
            (Tag::BeforeName | Tag::Name | Tag::AfterName, _) => Tag::Name,
        })
    }
}

impl Comment {
    /// The next position; `None`: the comment has ended.
    fn next(self, octet: u8) -> Option<Comment> {
        Some(match (self, octet) {
            (Comment::Begin | Comment::BeginHyphen | Comment::End | Comment::Bang, b'>') => return None,
            (Comment::Begin, b'-') => Comment::BeginHyphen,
            (Comment::BeginHyphen | Comment::Hyphen | Comment::End, b'-') => Comment::End,
            (Comment::Inside | Comment::Bang, b'-') => Comment::Hyphen,
            (Comment::End, b'!') => Comment::Bang,
            _ => Comment::Inside,
        })
    }
}

/// The character of `#65` or `#x41`.
fn number(name: &[u8]) -> Option<char> {
    let (digits, radix) = match name.strip_prefix(b"#")? {
        [b'x' | b'X', digits @ ..] => (digits, 16),
        digits => (digits, 10),
    };
    if digits.is_empty() {
        return None;
    }
    let code = digits
        .iter()
        .try_fold(0_u32, |code, digit| code.checked_mul(radix)?.checked_add(char::from(*digit).to_digit(radix)?));
    Some(match code {
        Some(code @ 0x80..=0x9f) => HIGH_CONTROLS[code as usize - 0x80],
        Some(0) | None => char::REPLACEMENT_CHARACTER,
        Some(code) => char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(pieces: &[&str]) -> String {
        let (mut html, mut text) = (Html::default(), String::new());
        for piece in pieces {
            html.push(piece, &mut text);
        }
        html.finish(&mut text);
        text
    }

    #[test]
    fn what_people_see() {
        for (html, wanted) in [
            ("Vi<b>ag</b>ra<!-- x > y --> now", "Viagra now"),
            ("<p>a</p><p title=\"x>y\">b</p>", "\na\nb\n"),
            ("<style>p { color: red }</style>a<script>if (a < b) { '</p>' }</SCRIPT >b", "\na\nb"),
            ("&#35831;&#x67E5; Gr&uuml;&szlig;e &amp;amp; &nope; a&b", "请查 Grüße &amp; &nope; a&b"),
            ("a < b & c <", "a < b & c"),
            ("a&nbsp;b&lt", "a b<"),
            ("1<br>2<br/>3", "1\n2\n3"),
            ("your\r\n  bank\taccount \r\n<p>\r\n is <b>\n now</b>\n", "your bank account\nis now"),
            ("a&nbsp; &#160;\u{a0}b Vi&shy;ag\u{200b}ra&ZeroWidthSpace;", "a b Viagra"),
        ] {
            assert_eq!(text(&[html]), wanted, "{html}");
        }
    }

    /// Compares with browsers, whose results these are.
    #[test]
    fn broken_html_hides_nothing() {
        for (html, wanted) in [
            ("<p \">a", "\na"),
            ("<p x\"y'>a", "\na"),
            ("<p =\">a", "\na"),
            ("<p a/=\">a", "\na"),
            ("<p a = \"x>y\" b='>' c=d\">a", "\na"),
            ("<p a=>b", "\nb"),
            ("<!-->a", "a"),
            ("<!--->a", "a"),
            ("<!-- x --!>a", "a"),
            ("<!-- x --!-->a", "a"),
            ("<!-- x -- > y --->a", "a"),
            ("<!x \">a", "a"),
            ("<!->a", "a"),
            ("<?php \"> a", " a"),
            ("</ x>a</>b", "ab"),
            ("<style/>x</style \">a", "\na"),
            ("<style><b</style>a", "\na"),
            ("<style>x</stylex>y</style x>a", "\na"),
            ("<style><</style>a", "\na"),
            ("<svg><style>a</style></svg><style>b</style>c", "\na\nc"),
            ("&#0000000000000000000065;&#x00041&#65b&#65 ", "AAAbA"),
            ("&ampx&eacutexyz&notit;&period;&#150;&#;&#x;&#99999999999;", "&xéxyz¬it;.–&#;&#x;\u{fffd}"),
            ("<<p>a<3", "<\na<3"),
        ] {
            assert_eq!(text(&[html]), wanted, "{html}");
        }
    }

    proptest! {
        #[test]
        fn cuts_do_not_matter(html in "(<|>|/|!--|--|\"|'|&|;|#|x|[a-z]|p|script|style|amp|&#35831;| ){0,40}", cut in 0usize..40) {
            let at = html.char_indices().nth(cut).map_or(html.len(), |(at, _)| at);
            let (first, second) = html.split_at(at);
            prop_assert_eq!(text(&[first, second]), text(&[&html]));
        }
    }
}
