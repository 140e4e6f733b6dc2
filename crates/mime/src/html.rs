//! The text of HTML as people see it, roughly: without tags, comments, scripts and styles, its character references decoded.
//!
//! It streams, in constant memory and linear time, and any text is taken, broken as it may be: tags, comments and references end where
//! the HTML Standard has them end (section 13.2.5). Layout is not followed: what a style hides is text all the same. White space is one
//! blank, or a line end where a tag parts words, whatever line ends the source has; what shows nothing ([`is_invisible`]) is left out.

use crate::charset::Charset;
use html_escape::NAMED_ENTITIES;

/// Longest name of a tag that matters, and of a reference.
const TAG_BYTES_MAX: usize = 12;
const REFERENCE_BYTES_MAX: usize = 32;
/// Tags that do not part words.
const INLINE: [&str; 17] = [
    "a", "abbr", "b", "big", "code", "del", "em", "font", "i", "ins", "s", "small", "span", "strong", "sub", "sup", "u",
];
/// References that may stand without a semicolon.
const WITHOUT_SEMICOLON: &str = "amp lt gt quot AMP LT GT QUOT COPY REG nbsp iexcl cent pound curren yen brvbar sect uml copy ordf laquo \
    not shy reg macr deg plusmn sup2 sup3 acute micro para middot cedil sup1 ordm raquo frac14 frac12 frac34 iquest Agrave Aacute Acirc \
    Atilde Auml Aring AElig Ccedil Egrave Eacute Ecirc Euml Igrave Iacute Icirc Iuml ETH Ntilde Ograve Oacute Ocirc Otilde Ouml times \
    Oslash Ugrave Uacute Ucirc Uuml Yacute THORN szlig agrave aacute acirc atilde auml aring aelig ccedil egrave eacute ecirc euml igrave \
    iacute icirc iuml eth ntilde ograve oacute ocirc otilde ouml divide oslash ugrave uacute ucirc uuml yacute thorn yuml";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Text,
    /// Behind `&`.
    Reference,
    /// The name of a tag, a slash before it included.
    Name,
    Tag(Tag),
    /// `<!x`, `<?x` or `</ x`: up to the next `>`.
    Bogus,
    /// Behind `<!`, and behind `<!-`.
    Bang,
    Hyphen,
    Comment(Comment),
}

/// Where in a tag, behind its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tag {
    BeforeName,
    Name,
    AfterName,
    BeforeValue,
    Value,
    Quoted(char),
}

/// Where in a comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comment {
    Begin,
    BeginHyphen,
    Inside,
    Hyphen,
    /// Behind two hyphens.
    End,
    /// Behind `--!`.
    Bang,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Html {
    state: State,
    /// Of the tag or the reference at hand.
    name: String,
    /// `script` or `style`, until it ends.
    hidden: Option<&'static str>,
    /// `svg` or `math`, until it ends: scripts and styles hide no tags there.
    foreign: Option<&'static str>,
    /// White space that the next character has before it.
    gap: Option<char>,
}

/// Whether a character shows nothing within a word: a soft hyphen, or a space without a width.
pub fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}')
}

impl Html {
    /// Appends what the next piece shows.
    pub fn push(&mut self, html: &str, text: &mut String) {
        for c in html.chars() {
            self.char(c, text);
        }
    }

    /// The part is over.
    pub fn finish(&mut self, text: &mut String) {
        if self.state == State::Reference {
            self.reference(text);
        }
        // A blank at the end would keep `$` from a match.
        text.extend(self.gap.filter(|gap| *gap == '\n'));
        *self = Html::default();
    }

    fn show(&mut self, c: char, text: &mut String) {
        if c.is_ascii_whitespace() || c == '\u{a0}' {
            self.gap = self.gap.or(Some(' '));
        } else if !is_invisible(c) {
            text.extend(self.gap.take());
            text.push(c);
        }
    }

    fn show_all(&mut self, referred: &str, text: &mut String) {
        referred.chars().for_each(|c| self.show(c, text));
    }

    fn char(&mut self, c: char, text: &mut String) {
        match self.state {
            State::Text => self.text(c, text),
            State::Reference => self.refers(c, text),
            State::Name => self.name(c, text),
            State::Tag(tag) => self.state = tag.next(c).map_or(State::Text, State::Tag),
            State::Bogus if c == '>' => self.state = State::Text,
            State::Bogus => {}
            State::Bang | State::Hyphen => {
                self.state = match (self.state, c) {
                    (_, '>') => State::Text,
                    (State::Bang, '-') => State::Hyphen,
                    (_, '-') => State::Comment(Comment::Begin),
                    _ => State::Bogus,
                };
            }
            State::Comment(comment) => self.state = comment.next(c).map_or(State::Text, State::Comment),
        }
    }

    fn text(&mut self, c: char, text: &mut String) {
        match c {
            '<' => self.state = State::Name,
            '&' if self.hidden.is_none() => self.state = State::Reference,
            _ if self.hidden.is_none() => self.show(c, text),
            _ => {}
        }
    }

    /// A character of a tag's name, or the first behind it.
    fn name(&mut self, c: char, text: &mut String) {
        if let Some(hidden) = self.hidden {
            return self.name_in(hidden, c);
        }
        let is_end = c == '>' || c == '/' || c.is_ascii_whitespace();
        if !self.name.is_empty() && self.name != "/" {
            if is_end {
                self.state = if c == '>' { State::Text } else { State::Tag(Tag::BeforeName) };
                self.tag();
            } else {
                self.push_name(c);
            }
            return;
        }
        if c.is_ascii_alphabetic() || c == '/' && self.name.is_empty() {
            return self.push_name(c);
        }
        let is_end_tag = !std::mem::take(&mut self.name).is_empty();
        self.state = match c {
            '!' if !is_end_tag => State::Bang,
            '?' if !is_end_tag => State::Bogus,
            '>' if is_end_tag => State::Text,
            _ if is_end_tag => State::Bogus,
            _ => {
                // No tag: `a < b`.
                self.show('<', text);
                self.state = State::Text;
                return self.text(c, text);
            }
        };
    }

    /// The same within a script or style: only its own end is a tag.
    fn name_in(&mut self, hidden: &str, c: char) {
        let is_end = self.name.strip_prefix('/') == Some(hidden) && (c == '>' || c == '/' || c.is_ascii_whitespace());
        if c == '/' && self.name.is_empty() || c.is_ascii_alphabetic() && self.name.starts_with('/') {
            return self.push_name(c);
        }
        self.name.clear();
        if is_end {
            self.hidden = None;
        }
        self.state = match c {
            '<' => State::Name,
            '/' | ' ' | '\t' | '\n' | '\r' | '\x0c' if is_end => State::Tag(Tag::BeforeName),
            _ => State::Text,
        };
    }

    fn push_name(&mut self, c: char) {
        // What is cut is none of the names that matter.
        if self.name.len() <= TAG_BYTES_MAX {
            self.name.push(c.to_ascii_lowercase());
        }
    }

    /// Behind the name of a tag.
    fn tag(&mut self) {
        let name = std::mem::take(&mut self.name);
        let (bare, is_end) = name.strip_prefix('/').map_or((name.as_str(), false), |bare| (bare, true));
        let known = |names: [&'static str; 2]| names.into_iter().find(|known| *known == bare);
        if is_end {
            self.foreign = self.foreign.filter(|foreign| *foreign != bare);
        } else {
            self.foreign = self.foreign.or(known(["svg", "math"]));
            self.hidden = known(["script", "style"]).filter(|_| self.foreign.is_none());
        }
        if !INLINE.contains(&bare) {
            self.gap = Some('\n');
        }
    }

    /// A character of a reference, or the first behind it.
    fn refers(&mut self, c: char, text: &mut String) {
        let is_of_reference = match self.name.as_bytes() {
            [] => c.is_ascii_alphanumeric() || c == '#',
            [b'#'] => c.is_ascii_digit() || matches!(c, 'x' | 'X'),
            [b'#', b'x' | b'X', ..] => c.is_ascii_hexdigit(),
            [b'#', ..] => c.is_ascii_digit(),
            _ => c.is_ascii_alphanumeric(),
        };
        if is_of_reference {
            // Zeros before a number are none of it.
            if matches!(self.name.as_str(), "#0" | "#x0" | "#X0") {
                self.name.pop();
            }
            self.name.push(c);
            if self.name.len() > REFERENCE_BYTES_MAX {
                self.reference(text);
            }
            return;
        }
        if c == ';' && !self.name.is_empty() {
            let name = std::mem::take(&mut self.name);
            self.state = State::Text;
            if let Some(referred) = number(&name).or_else(|| named(&name).map(str::to_owned)) {
                return self.show_all(&referred, text);
            }
            self.name = name;
        }
        self.reference(text);
        self.text(c, text);
    }

    /// The reference is over, without a semicolon.
    fn reference(&mut self, text: &mut String) {
        let name = std::mem::take(&mut self.name);
        self.state = State::Text;
        if let Some(referred) = number(&name) {
            return self.show_all(&referred, text);
        }
        let may_stand = |len: &usize| WITHOUT_SEMICOLON.split_ascii_whitespace().any(|known| known == &name[..*len]);
        let len = (2..=name.len().min(6)).rev().find(may_stand).unwrap_or(0);
        self.show_all(named(&name[..len]).unwrap_or("&"), text);
        self.show_all(&name[len..], text);
    }
}

impl Tag {
    /// `None`: the tag is over.
    fn next(self, c: char) -> Option<Tag> {
        let is_space = c.is_ascii_whitespace();
        Some(match (self, c) {
            (Tag::Quoted(quote), c) => {
                if c == quote {
                    Tag::BeforeName
                } else {
                    self
                }
            }
            (_, '>') => return None,
            (Tag::Value, _) => {
                if is_space {
                    Tag::BeforeName
                } else {
                    self
                }
            }
            (Tag::BeforeValue, '"' | '\'') => Tag::Quoted(c),
            (Tag::BeforeValue, _) => {
                if is_space {
                    self
                } else {
                    Tag::Value
                }
            }
            (Tag::Name | Tag::AfterName, '=') => Tag::BeforeValue,
            (Tag::BeforeName | Tag::Name | Tag::AfterName, '/') => Tag::BeforeName,
            (Tag::BeforeName, _) if is_space => Tag::BeforeName,
            (Tag::Name | Tag::AfterName, _) if is_space => Tag::AfterName,
            // An equals sign that begins a name is of it.
            (Tag::BeforeName | Tag::Name | Tag::AfterName, _) => Tag::Name,
        })
    }
}

impl Comment {
    /// `None`: the comment is over.
    fn next(self, c: char) -> Option<Comment> {
        Some(match (self, c) {
            (Comment::Begin | Comment::BeginHyphen | Comment::End | Comment::Bang, '>') => return None,
            (Comment::Begin, '-') => Comment::BeginHyphen,
            (Comment::BeginHyphen | Comment::Hyphen | Comment::End, '-') => Comment::End,
            (Comment::Inside | Comment::Bang, '-') => Comment::Hyphen,
            (Comment::End, '!') => Comment::Bang,
            _ => Comment::Inside,
        })
    }
}

/// Of `#65`, `#x41`.
fn number(name: &str) -> Option<String> {
    let number = name.strip_prefix('#')?;
    let code = match number.strip_prefix(['x', 'X']) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => number.parse().ok(),
    };
    if number.trim_start_matches(['x', 'X']).is_empty() {
        return None;
    }
    Some(match code {
        Some(code @ 0x80..=0x9f) => Charset::WINDOWS_1252.decode(&[code as u8]),
        Some(0) | None => "\u{fffd}".to_owned(),
        Some(code) => char::from_u32(code).unwrap_or('\u{fffd}').to_string(),
    })
}

fn named(name: &str) -> Option<&'static str> {
    // A space as all others, for those who search.
    if name == "nbsp" {
        return Some(" ");
    }
    let at = NAMED_ENTITIES.binary_search_by(|(known, _)| (*known).cmp(name.as_bytes())).ok()?;
    Some(NAMED_ENTITIES[at].1)
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
        for name in WITHOUT_SEMICOLON.split_ascii_whitespace() {
            assert!(name.len() <= 6 && named(name).is_some(), "{name}");
        }
    }

    /// As browsers read them, which these come from.
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
