//! The text of HTML as people see it, roughly: without tags, comments, scripts and styles, its character references decoded.
//!
//! It streams, in constant memory and linear time, and any text is taken. Layout is not followed: what a style hides is text all the
//! same. References are numbers and the names of Latin-1; others stay as they are.

/// Longest name of a tag or a reference that matters.
const NAME_BYTES_MAX: usize = 12;
/// Tags that do not part words.
const INLINE: [&str; 17] = [
    "a", "abbr", "b", "big", "code", "del", "em", "font", "i", "ins", "s", "small", "span", "strong", "sub", "sup", "u",
];
/// The names of U+00A0 to U+00FF.
const LATIN_1: &str = "nbsp iexcl cent pound curren yen brvbar sect uml copy ordf laquo not shy reg macr deg plusmn sup2 sup3 acute micro \
    para middot cedil sup1 ordm raquo frac14 frac12 frac34 iquest Agrave Aacute Acirc Atilde Auml Aring AElig Ccedil Egrave Eacute Ecirc \
    Euml Igrave Iacute Icirc Iuml ETH Ntilde Ograve Oacute Ocirc Otilde Ouml times Oslash Ugrave Uacute Ucirc Uuml Yacute THORN szlig \
    agrave aacute acirc atilde auml aring aelig ccedil egrave eacute ecirc euml igrave iacute icirc iuml eth ntilde ograve oacute ocirc \
    otilde ouml divide oslash ugrave uacute ucirc uuml yacute thorn yuml";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Text,
    /// Behind `&`.
    Reference,
    /// The name of a tag, a slash before it included.
    Name,
    /// Behind it, perhaps within quotes.
    Tag(Option<char>),
    /// Behind `<!--`, after so many hyphens.
    Comment(u8),
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Html {
    state: State,
    /// Of the tag or the reference at hand.
    name: String,
    /// `script` or `style`, until it ends.
    hidden: Option<&'static str>,
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
        *self = Html::default();
    }

    fn char(&mut self, c: char, text: &mut String) {
        match self.state {
            State::Text => self.text(c, text),
            State::Reference if c.is_ascii_alphanumeric() || c == '#' && self.name.is_empty() => {
                self.name.push(c);
                if self.name.len() > NAME_BYTES_MAX {
                    self.reference(text);
                }
            }
            State::Reference => {
                let is_known = self.reference(text);
                if !(is_known && c == ';') {
                    self.text(c, text);
                }
            }
            State::Name => self.name(c, text),
            State::Tag(None) | State::Comment(2..) if c == '>' => self.state = State::Text,
            State::Tag(quote) => {
                self.state = State::Tag(match (quote, c) {
                    (None, '"' | '\'') => Some(c),
                    (Some(open), _) if open == c => None,
                    _ => quote,
                });
            }
            State::Comment(hyphens) => self.state = State::Comment(if c == '-' { (hyphens + 1).min(2) } else { 0 }),
        }
    }

    fn text(&mut self, c: char, text: &mut String) {
        match c {
            '<' => self.state = State::Name,
            '&' if self.hidden.is_none() => self.state = State::Reference,
            _ if self.hidden.is_none() => text.push(c),
            _ => {}
        }
    }

    /// A character of a tag's name, or the first behind it.
    fn name(&mut self, c: char, text: &mut String) {
        let is_of_name = c.is_ascii_alphanumeric() || c == '/' && self.name.is_empty() || matches!(c, '!' | '-' | '?');
        if is_of_name && self.name.len() < NAME_BYTES_MAX && self.name != "!--" {
            self.name.push(c.to_ascii_lowercase());
            if self.name == "!--" {
                self.name.clear();
                self.state = State::Comment(0);
            }
            return;
        }
        let name = std::mem::take(&mut self.name);
        if name.is_empty() || name.starts_with('-') {
            // No tag: `a < b`.
            self.state = State::Text;
            if self.hidden.is_none() {
                text.push('<');
                text.push_str(&name);
            }
            return self.text(c, text);
        }
        self.state = if c == '>' { State::Text } else { State::Tag(None) };
        let bare = name.strip_prefix('/').unwrap_or(&name);
        if let Some(hidden) = self.hidden {
            if name.starts_with('/') && bare == hidden {
                self.hidden = None;
            } else {
                self.state = State::Text;
            }
            return;
        }
        self.hidden = ["script", "style"].into_iter().find(|hidden| *hidden == name);
        if !INLINE.contains(&bare) && !text.ends_with(char::is_whitespace) {
            text.push('\n');
        }
    }

    /// The reference is complete. Whether it is one.
    fn reference(&mut self, text: &mut String) -> bool {
        let name = std::mem::take(&mut self.name);
        self.state = State::Text;
        let referred = referred(&name);
        if let Some(c) = referred {
            text.push(c);
        } else {
            text.push('&');
            text.push_str(&name);
        }
        referred.is_some()
    }
}

fn referred(name: &str) -> Option<char> {
    if let Some(number) = name.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => number.parse(),
        };
        return char::from_u32(code.ok()?);
    }
    match name {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        "nbsp" => Some(' '),
        _ => {
            let at = LATIN_1.split_ascii_whitespace().position(|known| known == name)?;
            char::from_u32(0xa0 + at as u32)
        }
    }
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
            ("a < b & c <", "a < b & c "),
            ("a&nbsp;b&lt", "a b<"),
            ("1<br>2<br/>3", "1\n2\n3"),
        ] {
            assert_eq!(text(&[html]), wanted, "{html}");
        }
        assert_eq!(LATIN_1.split_ascii_whitespace().count(), 96);
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
