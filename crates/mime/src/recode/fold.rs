//! Folds header fields with lines over [`LINE_BYTES_MAX`] octets (RFC 5322 section 2.2.3).
//!
//! Where, in this order: at white space that is there, which changes nothing for readers; in the octets of a signature,
//! where it is ignored; where white space may be added without a change of meaning, as the syntax of the field has it:
//! behind the colon, between identifiers, beside comments, behind separators; at white space within quotes, comments
//! and angle brackets; and where there is none of all that, after 998 octets, as Postfix's `smtp_line_length_limit`
//! does. Long words of `Subject` and its kin, and long encoded words, have become short encoded words before
//! ([`super::text`]), long parameters several ([`super::params`]), so that the last is left to what no line can hold
//! and no reader decodes: identifiers, addresses, keys, URLs.
//!
//! Promises: no line is longer, and none consists of white space only. Unfolding gives the original field, except for
//! spaces added as above, and white space at the end of overlong lines.

use super::{LINE_BYTES_MAX, longest_line, without_end};

/// What the value of a field is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Syntax {
    /// Any white space is equivalent.
    Text,
    /// Quoted strings, comments and semicolons: `Received`, `Authentication-Results`, the fields of a status.
    Structured,
    /// Addresses, phrases, groups, and URLs in angle brackets.
    Addresses,
    /// A value and parameters.
    Parameters,
    /// Identifiers in angle brackets: within them a comma or semicolon is like any other octet.
    Ids,
    /// Tags of a signature (RFC 6376 section 3.2). The field is signed itself but for its `b=`, so that white space
    /// added anywhere else breaks the signature.
    Tags,
}

/// Maximum run of white space in a folded line: a longer one would form a line of white space only. It is equivalent
/// to one space.
pub(super) const SPACES_MAX: usize = 512;

/// Appends a field with its folds and its line end.
pub(super) fn write(raw: &[u8], syntax: Syntax, out: &mut Vec<u8>) {
    if longest_line(raw) <= LINE_BYTES_MAX {
        return out.extend_from_slice(raw);
    }
    let mut folder = Folder {
        syntax,
        place: Place::Name,
        tag: Tag::default(),
        line: Vec::new(),
        spots: [None; RANKS],
        content: None,
        out,
    };
    for line in raw.split_inclusive(|&b| b == b'\n') {
        let text = without_end(line);
        let end = &line[text.len()..];
        if text.len() <= LINE_BYTES_MAX {
            folder.see(text, false);
        } else {
            let behind = text.iter().rposition(|b| !matches!(b, b' ' | b'\t')).map_or(0, |last| last + 1);
            folder.see(&text[..behind], true);
        }
        folder.end(end);
    }
}

/// Appends groups of fields with empty lines between them, as in delivery status notifications (RFC 3464 section
/// 2.1).
pub(super) fn write_groups(body: &[u8], out: &mut Vec<u8>) {
    let mut field = Vec::new();
    for line in body.split_inclusive(|&b| b == b'\n') {
        if !line.starts_with(b" ") && !line.starts_with(b"\t") {
            write(&field, Syntax::Structured, out);
            field.clear();
        }
        field.extend_from_slice(line);
    }
    write(&field, Syntax::Structured, out);
}

/// Context of an octet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Name,
    Value,
    Quotes { is_escaped: bool },
    Comment { depth: u32, is_escaped: bool },
    Angle,
}

/// How good a place is to fold: where white space is, where it is ignored, where it may be added, and within quotes,
/// comments and angle brackets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rank {
    Space,
    Ignored,
    Added,
    Within,
}

const RANKS: usize = 4;

/// The tag at hand.
#[derive(Debug, Default)]
struct Tag {
    /// The begin of its name, in lower case.
    name: Vec<u8>,
    in_value: bool,
}

impl Tag {
    /// Behind an octet: whether white space may be added, and at what price.
    fn pass(&mut self, b: u8) -> Option<Rank> {
        /// Enough to know those that are asked for.
        const NAME_BYTES_MAX: usize = 4;
        match b {
            b';' => {
                *self = Tag::default();
                Some(Rank::Added)
            }
            _ if self.in_value => match (self.name.as_slice(), b) {
                (_, b' ' | b'\t') => None,
                (b"b", _) => Some(Rank::Ignored),
                // RFC 6376 section 3.5: names of fields, and copies of them.
                (b"h", b':') | (b"z", b'|') => Some(Rank::Added),
                _ => None,
            },
            b'=' => {
                self.in_value = true;
                None
            }
            b => {
                if self.name.len() < NAME_BYTES_MAX && !matches!(b, b' ' | b'\t') {
                    self.name.push(b.to_ascii_lowercase());
                }
                None
            }
        }
    }
}

/// A place for a fold: before this octet of the line.
#[derive(Debug, Clone, Copy)]
struct Spot {
    at: usize,
    /// Whether a space must be added for the next line to begin with.
    adds_space: bool,
}

struct Folder<'a> {
    syntax: Syntax,
    place: Place,
    tag: Tag,
    /// The line that is being written.
    line: Vec<u8>,
    /// The last place to fold it, of each rank.
    spots: [Option<Spot>; RANKS],
    /// The last octet that is no white space.
    content: Option<usize>,
    out: &'a mut Vec<u8>,
}

impl Folder<'_> {
    /// Processes a line of the field without its end.
    fn see(&mut self, text: &[u8], is_long: bool) {
        let is_blank = |b: &u8| matches!(b, b' ' | b'\t');
        // White space up to here, and the length of the word behind it.
        let (mut spaces, mut word) = (0, 0);
        let mut at = 0;
        while let Some(&b) = text.get(at) {
            let run = self.plain_run(&text[at..]);
            if run > 0 {
                self.line.extend_from_slice(&text[at..at + run]);
                (self.content, spaces) = (Some(self.line.len() - 1), 0);
                at += run;
                continue;
            }
            at += 1;
            let is_space = is_blank(&b);
            if is_space && spaces == 0 {
                word = text[at - 1..].iter().skip_while(|b| is_blank(b)).take_while(|b| !is_blank(b)).count();
            }
            spaces = if is_space { spaces + 1 } else { 0 };
            // What a line begins with is cut where the word behind it would not fit the line.
            let is_too_much =
                self.content.is_none() && !self.line.is_empty() && self.line.len() + word >= LINE_BYTES_MAX;
            if is_long && is_space && (spaces > SPACES_MAX || is_too_much) {
                continue;
            }
            if is_space && self.content.is_some() {
                self.offer(Spot { at: self.line.len(), adds_space: false });
            }
            self.line.push(b);
            while self.line.len() > LINE_BYTES_MAX {
                self.fold();
            }
            if !is_space {
                self.content = Some(self.line.len() - 1);
            }
            self.pass(b, text.get(at));
        }
    }

    /// Octets that only make the line longer, up to the longest: neither they nor the next one change the context or
    /// are beside a place to fold.
    fn plain_run(&self, rest: &[u8]) -> usize {
        let is_plain = match self.place {
            Place::Name => false,
            Place::Value | Place::Angle => self.syntax != Syntax::Tags,
            Place::Quotes { is_escaped } | Place::Comment { is_escaped, .. } => !is_escaped,
        };
        let room = if is_plain { LINE_BYTES_MAX.saturating_sub(self.line.len()) } else { 0 };
        let plain = rest.iter().take(room + 1).take_while(|b| !b" \t\"()<>,;:\\".contains(b)).count();
        plain.saturating_sub(1).min(room)
    }

    /// White space is before the next octet.
    fn offer(&mut self, spot: Spot) {
        match self.place {
            Place::Name => {}
            Place::Value => self.spots[Rank::Space as usize] = Some(spot),
            Place::Quotes { .. } | Place::Comment { .. } | Place::Angle => {
                self.spots[Rank::Within as usize] = Some(spot);
            }
        }
    }

    /// Updates the context after an octet.
    fn pass(&mut self, b: u8, next: Option<&u8>) {
        let before = self.place;
        self.place = self.behind(b);
        let is_space = |b: u8| matches!(b, b' ' | b'\t');
        let Some(&next) = next.filter(|next| !is_space(**next)) else {
            // A tag may end here.
            if self.syntax == Syntax::Tags && before != Place::Name {
                self.tag.pass(b);
            }
            return;
        };
        let in_value = self.place == Place::Value;
        let rank = match self.syntax {
            _ if before == Place::Name => (b == b':').then_some(Rank::Added),
            _ if is_space(b) => None,
            Syntax::Text => None,
            Syntax::Tags => self.tag.pass(b),
            Syntax::Parameters => (in_value && b == b';').then_some(Rank::Added),
            Syntax::Ids => (in_value && b == b',' || b == b'>' || next == b'<').then_some(Rank::Added),
            Syntax::Structured => {
                let is_beside = matches!(b, b';' | b')') || next == b'(';
                (in_value && is_beside).then_some(Rank::Added)
            }
            Syntax::Addresses => {
                let is_beside = matches!(b, b',' | b';' | b'>' | b')') || matches!(next, b'<' | b'(');
                (in_value && is_beside).then_some(Rank::Added)
            }
        };
        if let Some(rank) = rank {
            self.spots[rank as usize] = Some(Spot { at: self.line.len(), adds_space: true });
        }
    }

    /// The place behind an octet.
    fn behind(&self, b: u8) -> Place {
        let has_quotes = !matches!(self.syntax, Syntax::Text | Syntax::Tags);
        let has_angles = has_quotes && self.syntax != Syntax::Parameters;
        match (self.place, b) {
            (Place::Value, b'"') if has_quotes => Place::Quotes { is_escaped: false },
            (Place::Value, b'(') if has_quotes => Place::Comment { depth: 1, is_escaped: false },
            (Place::Value, b'<') if has_angles => Place::Angle,
            (Place::Name, b':')
            | (Place::Angle, b'>')
            | (Place::Quotes { is_escaped: false }, b'"')
            | (Place::Comment { depth: 1, is_escaped: false }, b')') => Place::Value,
            (Place::Quotes { is_escaped }, b) => Place::Quotes { is_escaped: b == b'\\' && !is_escaped },
            (Place::Comment { depth, is_escaped: false }, b')') => {
                Place::Comment { depth: depth - 1, is_escaped: false }
            }
            (Place::Comment { depth, is_escaped: false }, b'(') => {
                Place::Comment { depth: depth + 1, is_escaped: false }
            }
            (Place::Comment { depth, is_escaped }, b) => {
                Place::Comment { depth, is_escaped: b == b'\\' && !is_escaped }
            }
            (place, _) => place,
        }
    }

    /// Writes the part before the fold, and continues after it.
    fn fold(&mut self) {
        let best = self.spots.iter().find_map(|spot| *spot);
        let spot = best.unwrap_or_else(|| Spot { at: self.character(), adds_space: true });
        self.out.extend_from_slice(&self.line[..spot.at]);
        self.out.extend_from_slice(b"\r\n");
        let kept = usize::from(spot.adds_space);
        let behind = self.line.split_off(spot.at);
        self.line.clear();
        self.line.extend_from_slice(&b" "[..kept]);
        self.line.extend_from_slice(&behind);
        for other in &mut self.spots {
            *other =
                other.filter(|other| other.at > spot.at).map(|other| Spot { at: other.at - spot.at + kept, ..other });
        }
        self.content = self.content.filter(|content| *content >= spot.at).map(|content| content - spot.at + kept);
    }

    /// The last position that is not within a character.
    fn character(&self) -> usize {
        let inner = self.line[..=LINE_BYTES_MAX].iter().rev().take(3).take_while(|b| **b & 0xc0 == 0x80).count();
        LINE_BYTES_MAX - inner
    }

    fn end(&mut self, end: &[u8]) {
        self.out.append(&mut self.line);
        self.out.extend_from_slice(end);
        (self.spots, self.content) = ([None; RANKS], None);
    }
}
