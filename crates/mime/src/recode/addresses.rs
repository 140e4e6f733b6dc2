//! Fields of addresses: phrases and comments encoded, addresses never changed.

use std::ops::Range;

use crate::field::{comment_end, quoted_end};
use crate::words::{self, Label};

use super::text::{self, Atom, Needs, TextContext, is_space, unquoted};
use super::{ConvertError, Octets};

/// Appends a value.
///
/// # Errors
/// An address needs octets that are not allowed.
pub(super) fn write(value: &[u8], octets: Octets, out: &mut Vec<u8>) -> Result<(), ConvertError> {
    let needs = Needs::of(octets);
    let mut writer = Writer { needs, octets, phrase: Vec::new(), was_address: false, out };
    let mut words = encoded_words(value).into_iter().peekable();
    // Where the white space before the next token begins.
    let (mut from, mut at) = (0, 0);
    while let Some(&first) = value.get(at) {
        if is_space(first) {
            at += 1;
            continue;
        }
        while words.next_if(|(place, _)| place.start < at).is_some() {}
        let word = words.next_if(|(place, _)| place.start == at);
        let next = words.peek().map_or(value.len(), |(place, _)| place.start);
        let end = match &word {
            Some((place, _)) => place.end,
            None => at + token_end(&value[at..], next - at),
        };
        let is_local_part = word.is_some() && {
            let tail = &value[end..next.max(end)];
            tail[..text_end(tail)].contains(&b'@')
        };
        let (end, word) =
            if is_local_part { (end + text_end(&value[end..]), None) } else { (end, word.map(|(_, label)| label)) };
        writer.token(&value[from..at], &value[at..end], word, value.get(end))?;
        (from, at) = (end, end);
    }
    writer.flush();
    writer.out.extend_from_slice(&value[from..]);
    Ok(())
}

/// Encoded words that can be part of a phrase: such as have no sign that some reader takes for the begin or end of
/// something else.
fn encoded_words(value: &[u8]) -> Vec<(Range<usize>, Label<'_>)> {
    let mut at = 0;
    let places = words::pieces(value).into_iter().filter_map(move |piece| {
        let place = at..at + piece.octets.len();
        at = place.end;
        let is_whole = |octets: &[u8]| !octets.iter().any(|b| is_space(*b) || b"<>\"".contains(b));
        piece.word.filter(|_| is_whole(piece.octets)).map(|label| (place, label))
    });
    places.collect()
}

/// Where the token that `rest` begins with ends; `word`: where the next encoded word begins.
fn token_end(rest: &[u8], word: usize) -> usize {
    match rest[0] {
        b'"' => quoted_end(rest, b'"').unwrap_or(rest.len()),
        b'(' => comment_end(rest).unwrap_or(rest.len()),
        b'<' => memchr::memchr(b'>', rest).map_or(rest.len(), |at| at + 1),
        b',' | b';' | b':' => 1,
        _ => text_end(&rest[..word.min(rest.len())]).max(1),
    }
}

/// Where a word without quotes ends.
fn text_end(rest: &[u8]) -> usize {
    rest.iter().position(|&b| is_space(b) || b",;:<(\"".contains(&b)).unwrap_or(rest.len())
}

struct Writer<'a, 'o> {
    needs: Needs,
    octets: Octets,
    /// Words of a phrase that are not written yet.
    phrase: Vec<Atom<'a>>,
    was_address: bool,
    out: &'o mut Vec<u8>,
}

impl<'a> Writer<'a, '_> {
    fn flush(&mut self) {
        text::write_atoms(&mut self.phrase, self.needs, self.out);
        self.phrase.clear();
    }

    /// The next token with the white space before it, what word it is, and what follows it.
    fn token(
        &mut self,
        gap: &'a [u8],
        token: &'a [u8],
        word: Option<Label<'a>>,
        next: Option<&u8>,
    ) -> Result<(), ConvertError> {
        let first = token[0];
        let is_text = !matches!(first, b'"' | b'(' | b',' | b';' | b':' | b'<');
        let is_address = first == b'<'
            || word.is_none() && is_text && token.contains(&b'@')
            || first == b'"' && matches!(next, Some(b'@' | b'.'))
            || is_text && self.was_address && gap.is_empty();
        self.was_address = is_address;
        if is_address && !self.octets.allow(token) {
            return Err(ConvertError::EightBitAddress);
        }
        match (first, word) {
            _ if is_address => self.raw(gap, token),
            (_, Some(label)) => self.phrase.push(Atom::word(gap, token, label)),
            (b'"', None) => self.quoted(gap, token),
            (b'(', None) if self.needs.encoding_quoted(token) => {
                self.raw(gap, b"(");
                let inner = &token[1..];
                let (inner, end): (_, &[u8]) = inner.strip_suffix(b")").map_or((inner, b""), |inner| (inner, b")"));
                text::write(inner, self.needs, TextContext::Comment, self.out);
                self.out.extend_from_slice(end);
            }
            _ if is_text => self.phrase.push(Atom::plain(gap, token, self.needs)),
            _ => self.raw(gap, token),
        }
        Ok(())
    }

    fn raw(&mut self, gap: &[u8], token: &[u8]) {
        self.flush();
        self.out.extend_from_slice(gap);
        self.out.extend_from_slice(token);
    }

    fn quoted(&mut self, gap: &'a [u8], token: &'a [u8]) {
        let inner = &token[1..];
        let inner = unquoted(inner.strip_suffix(b"\"").unwrap_or(inner));
        if !self.needs.encoding_quoted(token) || !words::is_encoded(&inner) {
            return self.phrase.push(Atom::quoted(gap, token, inner, self.needs));
        }
        // Many readers decode the words in quotes, against RFC 2047 section 5.
        self.raw(gap, b"");
        text::write(&inner, self.needs, TextContext::Quotes, self.out);
    }
}
