//! Text for people: words with octets that are not allowed, or longer than a line may be, as encoded words (RFC 2047).
//!
//! Promise: who reads encoded words, as [`crate::words`] does, reads the same text before and after. What
//! follows from it:
//! - White space between an encoded word and a neighbour is none of the text (section 6.2): where one of two neighbours
//!   has just been encoded, the space between them is within it.
//! - A word that is an encoded word already is never encoded again: one that is too long is decoded and divided, those
//!   that stand together without spaces get folds between them.

use crate::quoted::escaped;
use crate::words::{self, Label};

use super::fold::SPACES_MAX;
use super::{LINE_BYTES_MAX, Octets};

/// Longest word that a line of its own can have, with room for what stands around it.
const WORD_BYTES_MAX: usize = 960;
/// Longest encoded word (RFC 2047 section 2).
const ENCODED_WORD_BYTES_MAX: usize = 75;
/// Column beyond which nothing encoded is begun.
const FOLD_COLUMN: usize = 300;

/// What has to be encoded.
#[derive(Clone, Copy)]
pub(super) struct Needs {
    octets: Octets,
    word_bytes_max: usize,
}

impl Needs {
    pub(super) fn of(octets: Octets) -> Needs {
        Needs { octets, word_bytes_max: WORD_BYTES_MAX }
    }

    /// Words are not encoded for their length.
    pub(super) fn of_any_length(octets: Octets) -> Needs {
        Needs { octets, word_bytes_max: usize::MAX }
    }

    pub(super) fn encoding(self, text: &[u8]) -> bool {
        !self.octets.allow(text) || text.len() > self.word_bytes_max
    }

    /// The same for what may have white space in it that must stay: folding cuts what fills lines.
    pub(super) fn encoding_quoted(self, text: &[u8]) -> bool {
        self.encoding(text) || self.word_bytes_max < usize::MAX && has_wide_space(text)
    }
}

fn has_wide_space(text: &[u8]) -> bool {
    text.split(|b| !is_space(*b)).any(|spaces| spaces.len() > SPACES_MAX)
}

pub(super) fn is_space(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\r' | b'\n')
}

/// Without the backslashes of quoted pairs.
pub(super) fn unquoted(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(&b) = bytes.next() {
        out.extend(if b == b'\\' { bytes.next() } else { Some(&b) });
    }
    out
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind<'a> {
    /// Stays as it is.
    Kept,
    Encoded,
    /// An encoded word.
    Word(Label<'a>),
}

/// A word of a text.
pub(super) struct Atom<'a> {
    /// The white space before it.
    gap: &'a [u8],
    raw: &'a [u8],
    /// What it says, if that is something else.
    text: Option<Vec<u8>>,
    kind: Kind<'a>,
    /// It gets white space before it which is none of the text.
    is_apart: bool,
}

impl<'a> Atom<'a> {
    pub(super) fn plain(gap: &'a [u8], raw: &'a [u8], needs: Needs) -> Atom<'a> {
        let kind = if needs.encoding(raw) { Kind::Encoded } else { Kind::Kept };
        Atom { gap, raw, text: None, kind, is_apart: false }
    }

    /// A quoted string, without its quotes in `text`.
    pub(super) fn quoted(gap: &'a [u8], raw: &'a [u8], text: Vec<u8>, needs: Needs) -> Atom<'a> {
        let kind = if needs.encoding_quoted(raw) { Kind::Encoded } else { Kind::Kept };
        Atom { gap, raw, text: Some(text), kind, is_apart: false }
    }

    pub(super) fn word(gap: &'a [u8], raw: &'a [u8], label: Label<'a>) -> Atom<'a> {
        Atom { gap, raw, text: None, kind: Kind::Word(label), is_apart: false }
    }

    fn is_word(&self) -> bool {
        matches!(self.kind, Kind::Word(_))
    }

    fn said(&self) -> &[u8] {
        self.text.as_deref().unwrap_or(self.raw)
    }
}

/// What the text belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TextContext {
    Value,
    /// A backslash quotes what follows it.
    Comment,
    /// A quoted string that has to be encoded, its quotes and backslashes taken off: all of it is text, spaces
    /// included.
    Quotes,
}

/// Appends a text.
pub(super) fn write(value: &[u8], needs: Needs, context: TextContext, out: &mut Vec<u8>) {
    let (mut atoms, behind) = atoms(value, needs, context);
    write_atoms(&mut atoms, needs, out);
    out.extend_from_slice(behind);
}

/// The words of a text, and the white space behind the last.
pub(super) fn atoms(value: &[u8], needs: Needs, context: TextContext) -> (Vec<Atom<'_>>, &[u8]) {
    let (mut atoms, mut gap) = (Vec::new(), &value[..0]);
    for piece in words::pieces(value) {
        let mut rest = piece.octets;
        if let Some(label) = piece.word {
            let is_apart = context == TextContext::Quotes && gap.is_empty() && !atoms.is_empty();
            atoms.push(Atom { is_apart, ..Atom::word(std::mem::take(&mut gap), rest, label) });
            continue;
        }
        if context == TextContext::Quotes {
            let is_between = !atoms.is_empty() && rest.as_ptr_range().end < value.as_ptr_range().end;
            if is_between && rest.iter().all(|b| is_space(*b)) {
                gap = rest;
            } else {
                atoms.push(Atom { kind: Kind::Encoded, ..Atom::plain(&rest[..0], rest, needs) });
            }
            continue;
        }
        while !rest.is_empty() {
            let spaces = rest.iter().position(|b| !is_space(*b)).unwrap_or(rest.len());
            (gap, rest) = rest.split_at(spaces);
            let (raw, behind) = rest.split_at(rest.iter().position(|b| is_space(*b)).unwrap_or(rest.len()));
            rest = behind;
            if !raw.is_empty() {
                let text = (context == TextContext::Comment && raw.contains(&b'\\')).then(|| unquoted(raw));
                atoms.push(Atom { text, ..Atom::plain(std::mem::take(&mut gap), raw, needs) });
            }
        }
    }
    (atoms, gap)
}

/// Appends words, those encoded that need it.
pub(super) fn write_atoms(atoms: &mut [Atom<'_>], needs: Needs, out: &mut Vec<u8>) {
    mark_wide_gaps(atoms, needs);
    mark_stretches(atoms);
    mark_lookalikes(atoms);
    let mut at = 0;
    while let Some(atom) = atoms.get(at) {
        // Neighbours that are encoded, or decoded, together. Words that are kept are not counted: each alone, that
        // would be quadratic.
        let run = match atom.kind {
            Kind::Kept => 1,
            kind => atoms[at..].iter().take_while(|other| other.kind == kind).count(),
        };
        let (before, behind) = (at.checked_sub(1).map(|before| atoms[before].kind), atoms.get(at + run));
        let all = &atoms[at..at + run];
        at += run;
        match atom.kind {
            Kind::Kept => {
                out.extend_from_slice(atom.gap);
                out.extend_from_slice(atom.raw);
            }
            Kind::Encoded => {
                let mut text = Vec::new();
                if matches!(before, Some(Kind::Word(_))) {
                    separate(out);
                    text.extend_from_slice(atom.gap);
                } else {
                    out.extend_from_slice(atom.gap);
                }
                for (n, atom) in all.iter().enumerate() {
                    text.extend_from_slice(if n > 0 { atom.gap } else { b"" });
                    text.extend_from_slice(atom.said());
                }
                text.extend_from_slice(behind.filter(|behind| behind.is_word()).map_or(b"", |word| word.gap));
                write_encoded(&text, out);
            }
            Kind::Word(_) => write_words(all, before == Some(Kind::Encoded), needs.octets, out),
        }
    }
}

/// Encodes both neighbours of white space that fills lines, alone or with the word behind it: only within encoded words
/// it stays what it is.
fn mark_wide_gaps(atoms: &mut [Atom<'_>], needs: Needs) {
    if needs.word_bytes_max == usize::MAX {
        return;
    }
    for at in 1..atoms.len() {
        let (gap, length) = (atoms[at].gap.len(), atoms[at].raw.len());
        if gap > SPACES_MAX || !atoms[at].is_word() && gap + length > LINE_BYTES_MAX {
            for atom in &mut atoms[at - 1..=at] {
                if !atom.is_word() {
                    atom.kind = Kind::Encoded;
                }
            }
        }
    }
}

/// Takes apart encoded words and others that stand together without spaces, where all of them do not fit a line: with
/// an encoded word among them they are text for people, whatever the field.
fn mark_stretches(atoms: &mut [Atom<'_>]) {
    let mut from = 0;
    while from < atoms.len() {
        let others = atoms[from + 1..].iter().take_while(|atom| atom.gap.is_empty()).count();
        let stretch = &mut atoms[from..=from + others];
        from += stretch.len();
        if others > 0
            && stretch.iter().any(Atom::is_word)
            && longest_unbroken(stretch.iter().map(|atom| atom.raw)) > WORD_BYTES_MAX
        {
            for (n, atom) in stretch.iter_mut().enumerate() {
                atom.is_apart |= n > 0 && atom.is_word();
                if !atom.is_word() {
                    atom.kind = Kind::Encoded;
                }
            }
        }
    }
}

/// Encodes words that look like the start of an encoded word, if an encoded one may follow that would end it.
fn mark_lookalikes(atoms: &mut [Atom<'_>]) {
    if !atoms.iter().any(|atom| atom.kind == Kind::Encoded) {
        return;
    }
    for atom in atoms.iter_mut().filter(|atom| atom.kind == Kind::Kept) {
        if memchr::memmem::find(atom.raw, b"=?").is_some() {
            atom.kind = Kind::Encoded;
        }
    }
}

/// Octets of the longest word of some texts that stand together.
fn longest_unbroken<'a>(texts: impl Iterator<Item = &'a [u8]>) -> usize {
    let (mut longest, mut length) = (0, 0);
    for b in texts.flatten() {
        length = if is_space(*b) { 0 } else { length + 1 };
        longest = longest.max(length);
    }
    longest
}

/// Encoded words with one label: as they are, or divided if a line could not hold them or they have octets that are not
/// allowed.
fn write_words(all: &[Atom<'_>], is_behind_encoded: bool, octets: Octets, out: &mut Vec<u8>) {
    let begin = |n: usize, atom: &Atom<'_>, out: &mut Vec<u8>| {
        if atom.is_apart || n == 0 && is_behind_encoded {
            separate(out);
        } else {
            out.extend_from_slice(atom.gap);
        }
    };
    let is_too_much = |atom: &Atom<'_>| {
        let is_long = longest_unbroken(std::iter::once(atom.raw)) > WORD_BYTES_MAX;
        !octets.allow(atom.raw) || is_long || has_wide_space(atom.raw)
    };
    if all.iter().any(is_too_much) {
        begin(0, &all[0], out);
        fold_if_long(out);
        let words = words::divided(all.iter().map(|atom| atom.raw));
        return out.extend_from_slice(words.replace(' ', "\r\n ").as_bytes());
    }
    for (n, atom) in all.iter().enumerate() {
        begin(n, atom, out);
        out.extend_from_slice(atom.raw);
    }
}

/// White space that is none of the text.
fn separate(out: &mut Vec<u8>) {
    out.push(b' ');
    fold_if_long(out);
}

/// Appends `text` as encoded words, folded between them; line ends in it fall away, as unfolding wants it.
fn write_encoded(text: &[u8], out: &mut Vec<u8>) {
    let unfolded;
    let text = if memchr::memchr2(b'\r', b'\n', text).is_some() {
        unfolded = text.iter().copied().filter(|&b| b != b'\r' && b != b'\n').collect::<Vec<u8>>();
        &unfolded
    } else {
        text
    };
    let is_utf_8 = std::str::from_utf8(text).is_ok();
    let charset: &[u8] = if is_utf_8 { b"=?utf-8?Q?" } else { b"=?unknown-8bit?Q?" };
    fold_if_long(out);
    let (mut length, mut rest) = (0, text);
    while !rest.is_empty() {
        // A character is not divided between words (RFC 2047 section 5).
        let inner = rest[1..].iter().take_while(|b| is_utf_8 && **b & 0xc0 == 0x80).count();
        let (character, behind) = rest.split_at(1 + inner);
        rest = behind;
        let is_plain = |b: &u8| b.is_ascii_alphanumeric() || *b == b' ';
        let bytes: usize = character.iter().map(|b| if is_plain(b) { 1 } else { 3 }).sum();
        if length > 0 && length + bytes + 2 > ENCODED_WORD_BYTES_MAX {
            out.extend_from_slice(b"?=\r\n ");
            length = 0;
        }
        if length == 0 {
            out.extend_from_slice(charset);
            length = charset.len();
        }
        for &b in character {
            match b {
                b' ' => out.push(b'_'),
                b if is_plain(&b) => out.push(b),
                b => out.extend_from_slice(&escaped(b)),
            }
        }
        length += bytes;
    }
    if length > 0 {
        out.extend_from_slice(b"?=");
    }
}

/// Goes on to a new line where the one being written is long and ends with white space: what is encoded grows, lines
/// must not (RFC 5322 2.1.1).
pub(super) fn fold_if_long(out: &mut Vec<u8>) {
    // Not the whole line is searched, which grows without end where it has no white space.
    let recent = out.len().saturating_sub(FOLD_COLUMN + 1);
    if out.len() <= FOLD_COLUMN || memchr::memchr(b'\n', &out[recent..]).is_some() {
        return;
    }
    // RFC 5322 section 2.2.3: only these are white space; a line that begins with a form feed would end the header.
    let is_blank = |b: &u8| matches!(b, b' ' | b'\t' | b'\r' | b'\n');
    let text = out.iter().rposition(|b| !is_blank(b)).map_or(0, |last| last + 1);
    let has_text = text > 0 && memchr::memchr(b'\n', &out[text..]).is_none();
    if has_text && text < out.len() {
        out.splice(text..text, *b"\r\n");
    }
}
