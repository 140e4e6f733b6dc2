//! Writes the posts. In the plain form (RFC 1153), unimportant fields are left out. A line of 30 or more hyphens, which
//! would read as the end of the post, gets a space before it.

use super::Form;
use crate::fields::{Piece, Splitter};

/// Separates the preamble from the first post, and posts from each other (RFC 1153 section 2).
pub(super) const TOP_SEPARATOR: &str = "----------------------------------------------------------------------";
pub(super) const SEPARATOR: &str = "------------------------------";

/// Fields that are kept: those of RFC 1153, those for threading, and those that describe the body's encoding.
const KEPT: [&[u8]; 13] = [
    b"date:",
    b"from:",
    b"to:",
    b"cc:",
    b"subject:",
    b"message-id:",
    b"keywords:",
    b"summary:",
    b"in-reply-to:",
    b"references:",
    b"mime-version:",
    b"content-type:",
    b"content-transfer-encoding:",
];

/// Streams one post. In the MIME form every octet is passed on.
#[derive(Debug)]
pub struct PostWriter {
    form: Form,
    splitter: Splitter,
    out: PlainOut,
}

#[derive(Debug, Default)]
struct PlainOut {
    keeps: bool,
    has_body: bool,
    /// Hyphens at the start of a body line that are held back; `None` after the line's first other octet.
    hyphens: Option<usize>,
    last: u8,
}

impl PostWriter {
    pub(super) fn new(form: Form) -> PostWriter {
        let out = PlainOut { hyphens: Some(0), ..PlainOut::default() };
        PostWriter { form, splitter: Splitter::default(), out }
    }

    /// Appends the output for the next octets of the post.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        match self.form {
            Form::Mime => out.extend_from_slice(bytes),
            Form::Plain => {
                let plain = &mut self.out;
                self.splitter.push(bytes, &mut |piece| plain.take(piece, out));
            }
        }
    }

    /// Ends the post.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if self.form == Form::Plain {
            let plain = &mut self.out;
            self.splitter.finish(&mut |piece| plain.take(piece, out));
            plain.finish(out);
        }
    }
}

impl PlainOut {
    fn take(&mut self, piece: Piece<'_>, out: &mut Vec<u8>) {
        match piece {
            Piece::Name(name) => {
                self.keeps = KEPT.iter().any(|kept| kept.eq_ignore_ascii_case(name));
                if self.keeps {
                    out.extend_from_slice(name);
                }
            }
            Piece::Value(value) if self.keeps => {
                out.extend_from_slice(value);
                self.last = value.last().copied().unwrap_or(self.last);
            }
            Piece::Value(_) => {}
            Piece::BodyBegins => {
                self.has_body = true;
                out.extend_from_slice(b"\r\n");
                self.last = b'\n';
            }
            Piece::Body(bytes) => self.body(bytes, out),
        }
    }

    fn body(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let mut rest = bytes;
        while let [first, behind @ ..] = rest {
            match self.hyphens {
                Some(count) if *first == b'-' && count < SEPARATOR.len() => {
                    self.hyphens = Some(count + 1);
                    rest = behind;
                }
                Some(count) => {
                    self.flush(count, out);
                    self.hyphens = None;
                }
                None => {
                    let end = memchr::memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
                    out.extend_from_slice(&rest[..end]);
                    self.last = rest[end - 1];
                    self.hyphens = (self.last == b'\n').then_some(0);
                    rest = &rest[end..];
                }
            }
        }
    }

    fn flush(&mut self, count: usize, out: &mut Vec<u8>) {
        if count == SEPARATOR.len() {
            out.push(b' ');
        }
        if count > 0 {
            out.extend_from_slice(&SEPARATOR.as_bytes()[..count]);
            self.last = b'-';
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        if let Some(count) = self.hyphens.take() {
            self.flush(count, out);
        }
        if !matches!(self.last, 0 | b'\n') {
            out.extend_from_slice(b"\r\n");
        }
        if !self.has_body {
            out.extend_from_slice(b"\r\n");
        }
    }
}
