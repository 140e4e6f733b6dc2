//! Splits a stored message into fields and body as it streams by. Memory: the part of a line that a [`Section`] holds.

use stentor_mime::field::{Section, Token};

/// A piece of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// A field begins: its name and colon.
    Name(&'a [u8]),
    /// Part of its value, including line ends and continuation lines.
    Value(&'a [u8]),
    /// The header section has ended; reported once, unless the message ends before.
    BodyBegins,
    Body(&'a [u8]),
}

/// Incremental splitter; see the module documentation.
#[derive(Debug)]
pub(crate) struct Splitter(Section);

impl Default for Splitter {
    fn default() -> Splitter {
        Splitter(Section::bare())
    }
}

impl Splitter {
    /// Takes the next octets.
    pub(crate) fn push(&mut self, bytes: &[u8], sink: &mut impl FnMut(Piece<'_>)) {
        let body = self.0.push(bytes, &mut |token| see(token, sink));
        if !body.is_empty() {
            sink(Piece::Body(body));
        }
    }

    /// Ends the message. An unfinished line that might have become a field was body.
    pub(crate) fn finish(&mut self, sink: &mut impl FnMut(Piece<'_>)) {
        self.0.finish(&mut |token| see(token, sink));
    }
}

fn see(token: Token<'_>, sink: &mut impl FnMut(Piece<'_>)) {
    match token {
        Token::Name { octets, .. } => sink(Piece::Name(octets)),
        Token::Value(value) | Token::Mbox(value) => sink(Piece::Value(value)),
        Token::Empty(_) => sink(Piece::BodyBegins),
        Token::Body(begun) => {
            sink(Piece::BodyBegins);
            if !begun.is_empty() {
                sink(Piece::Body(begun));
            }
        }
    }
}
