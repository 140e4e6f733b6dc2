//! One copy as it streams in: its length, digest, Message-ID, and whether it is the original plus whole header fields.
//!
//! Promise: constant memory beyond the header section (and the kept part of the body), linear time. The header section
//! is buffered up to its blank line; there the originals registered under its Message-ID are matched from the END of
//! the header section backwards, so that fields which the server put in front are told from the original; from then on
//! the body is compared as it comes. A header section over [`HEADER_BYTES_MAX`] cannot be checked and counts as damaged
//! when an original was expected.

use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

use super::Recorder;

/// Header sections up to this size are checked.
pub const HEADER_BYTES_MAX: usize = 8 << 20;
/// Of a copy that turns out damaged this much is kept for diagnosis, unless whole bodies are kept anyway.
const DIAGNOSIS_BYTES_MAX: usize = 64 << 10;

/// A registered original, as its client put it on the wire (unstuffed, CRLF lines).
#[derive(Debug)]
pub struct Original {
    pub(super) bytes: Arc<[u8]>,
    /// Up to and including the blank line; all of it when there is none.
    header_len: usize,
    has_blank: bool,
}

impl Original {
    pub(super) fn new(bytes: Arc<[u8]>) -> Self {
        let end = header_end(&bytes, 0);
        Self { header_len: end.unwrap_or(bytes.len()), has_blank: end.is_some(), bytes }
    }
}

/// Whether a copy is what its sender handed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// No original is registered under its Message-ID.
    Unchecked,
    /// It ends with the original's bytes and what precedes is whole header fields.
    Intact,
    /// Neither.
    Damaged,
}

/// The streaming check; one per connection, reused from message to message.
pub struct CopyMeter {
    digest: Xxh3,
    len: u64,
    header: Vec<u8>,
    header_done: bool,
    header_overflow: bool,
    candidates: Vec<(Arc<Original>, usize)>,
    expected: bool,
    pub(super) message_id: String,
    pub(super) kept: Vec<u8>,
    keep_bytes_max: usize,
    /// Of this message only the length is wanted.
    counts_only: bool,
}

impl Default for CopyMeter {
    fn default() -> Self {
        Self {
            digest: Xxh3::new(),
            len: 0,
            header: Vec::new(),
            header_done: false,
            header_overflow: false,
            candidates: Vec::new(),
            expected: false,
            message_id: String::new(),
            kept: Vec::new(),
            keep_bytes_max: 0,
            counts_only: false,
        }
    }
}

/// Buffers larger than this are given back after a message, since thousands of connections each have them.
const BUFFER_KEEP_BYTES_MAX: usize = 16 << 10;

impl CopyMeter {
    /// Ready for the next message.
    pub fn begin(&mut self, recorder: &Recorder) {
        self.len = 0;
        let counted_only_before = std::mem::replace(&mut self.counts_only, recorder.counts_only());
        if self.counts_only && counted_only_before {
            return;
        }
        self.digest.reset();
        for buffer in [&mut self.header, &mut self.kept] {
            buffer.clear();
            if buffer.capacity() > BUFFER_KEEP_BYTES_MAX {
                *buffer = Vec::new();
            }
        }
        self.header_done = false;
        self.header_overflow = false;
        self.candidates.clear();
        self.expected = false;
        self.message_id.clear();
        self.keep_bytes_max = 0;
    }

    /// The next octets of the message, unstuffed.
    pub fn push(&mut self, recorder: &Recorder, bytes: &[u8]) {
        self.len += bytes.len() as u64;
        if self.counts_only {
            return;
        }
        self.digest.update(bytes);
        if self.header_done {
            self.body(bytes);
            return;
        }
        if self.header_overflow {
            return;
        }
        let from = self.header.len().saturating_sub(3);
        self.header.extend_from_slice(bytes);
        if let Some(end) = header_end(&self.header, from) {
            let header = std::mem::take(&mut self.header);
            self.header_complete(recorder, &header[..end], true);
            self.body(&header[end..]);
            self.header = header;
        } else if self.header.len() > HEADER_BYTES_MAX {
            self.header_overflow = true;
            message_id_into(&self.header, &mut self.message_id);
            self.expected = recorder.is_expected(&self.message_id);
            self.header = Vec::new();
        }
    }

    fn header_complete(&mut self, recorder: &Recorder, header: &[u8], has_blank: bool) {
        self.header_done = true;
        message_id_into(header, &mut self.message_id);
        self.keep_bytes_max = if recorder.keeps_bodies() { usize::MAX } else { 0 };
        if recorder.has_originals() {
            self.expected = recorder.candidates(&self.message_id, &mut self.candidates);
            self.candidates.retain_mut(|(original, at)| {
                let own = &original.bytes[..original.header_len];
                *at = original.header_len;
                original.has_blank == has_blank
                    && header.ends_with(own)
                    && are_whole_fields(&header[..header.len() - own.len()])
            });
            if self.expected {
                self.keep_bytes_max = self.keep_bytes_max.max(DIAGNOSIS_BYTES_MAX);
            }
        }
        let keep = header.len().min(self.keep_bytes_max);
        self.kept.extend_from_slice(&header[..keep]);
    }

    fn body(&mut self, bytes: &[u8]) {
        self.candidates.retain_mut(|(original, at)| {
            let same = original.bytes[*at..].starts_with(bytes);
            *at += if same { bytes.len() } else { 0 };
            same
        });
        let keep = bytes.len().min(self.keep_bytes_max.saturating_sub(self.kept.len()));
        self.kept.extend_from_slice(&bytes[..keep]);
    }

    /// At the end of data.
    pub fn finish(&mut self, recorder: &Recorder) {
        if !self.header_done && !self.header_overflow && !self.counts_only {
            let header = std::mem::take(&mut self.header);
            self.header_complete(recorder, &header, false);
            self.header = header;
        }
    }

    pub fn verdict(&self) -> Verdict {
        if self.candidates.iter().any(|(original, at)| *at == original.bytes.len()) {
            Verdict::Intact
        } else if self.expected {
            Verdict::Damaged
        } else {
            Verdict::Unchecked
        }
    }

    /// Octets of the message so far, without dot stuffing.
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn digest(&self) -> u64 {
        self.digest.digest()
    }
}

/// Where the header section ends (behind its blank line), searching from `from` on (which must be at most 3 bytes
/// before what is new).
fn header_end(bytes: &[u8], from: usize) -> Option<usize> {
    if bytes.starts_with(b"\r\n") {
        return Some(2);
    }
    memchr::memmem::find(&bytes[from..], b"\r\n\r\n").map(|at| from + at + 4)
}

/// Whether these are complete header fields: nothing, or lines `name: ...` with their continuations, all ended by CRLF.
fn are_whole_fields(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    let mut first = true;
    while !rest.is_empty() {
        let Some(end) = memchr::memchr(b'\n', rest) else { return false };
        let Some(line) = rest[..end].strip_suffix(b"\r") else { return false };
        let continuation = line.first().is_some_and(|b| matches!(b, b' ' | b'\t'));
        let name = memchr::memchr(b':', line).map_or(&line[..0], |colon| &line[..colon]);
        let field = !name.is_empty() && name.iter().all(u8::is_ascii_graphic);
        if !(field || continuation && !first) {
            return false;
        }
        first = false;
        rest = &rest[end + 1..];
    }
    true
}

/// The value of the first Message-ID field, without folding, blanks and angle brackets; empty if there is none.
pub fn message_id_of(message: &[u8]) -> String {
    let mut id = String::new();
    message_id_into(message, &mut id);
    id
}

fn message_id_into(message: &[u8], id: &mut String) {
    const NAME: &[u8] = b"message-id";
    id.clear();
    let mut rest = message;
    while !rest.is_empty() {
        let end = memchr::memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
        let line = &rest[..end];
        if line == b"\r\n" || line == b"\n" {
            return;
        }
        rest = &rest[end..];
        if line.len() <= NAME.len() || !line[..NAME.len()].eq_ignore_ascii_case(NAME) {
            continue;
        }
        let Some(value) = line[NAME.len()..].trim_ascii_start().strip_prefix(b":") else { continue };
        let mut value = value.to_vec();
        while matches!(rest.first(), Some(b' ' | b'\t')) && value.len() < 4096 {
            let end = memchr::memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
            value.extend_from_slice(&rest[..end]);
            rest = &rest[end..];
        }
        id.push_str(bare_id(&String::from_utf8_lossy(&value)));
        return;
    }
}

/// A Message-ID without the blanks and brackets around it.
pub(super) fn bare_id(id: &str) -> &str {
    let id = id.trim();
    id.strip_prefix('<').and_then(|id| id.strip_suffix('>')).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::super::{Mode, Recorder};
    use super::*;

    const ORIGINAL: &[u8] = b"From: a@x\r\nMessage-ID:\r\n <one@x>\r\nSubject: hi\r\n\r\nbody\r\n.dot\r\n";

    fn verdict(copy: &[u8], piece: usize) -> (Verdict, String) {
        let recorder = Recorder::new(Mode::Full);
        recorder.expect("<one@x>", ORIGINAL.into());
        let mut meter = CopyMeter::default();
        meter.begin(&recorder);
        for chunk in copy.chunks(piece) {
            meter.push(&recorder, chunk);
        }
        meter.finish(&recorder);
        assert_eq!(meter.len(), copy.len() as u64);
        assert_eq!(meter.digest(), xxhash_rust::xxh3::xxh3_64(copy));
        (meter.verdict(), meter.message_id.clone())
    }

    #[test]
    fn original_behind_whole_fields_is_intact() {
        let prefixed = [b"Received: from a\r\n\tby b; now\r\nList-Id: <l.x>\r\n".as_slice(), ORIGINAL].concat();
        for piece in [1, 2, 3, 7, 4096] {
            assert_eq!(verdict(ORIGINAL, piece), (Verdict::Intact, "one@x".to_owned()));
            assert_eq!(verdict(&prefixed, piece), (Verdict::Intact, "one@x".to_owned()));
        }
    }

    #[test]
    fn every_change_is_damage() {
        for at in (0..ORIGINAL.len()).filter(|&at| ORIGINAL[at] != b'\r' && ORIGINAL[at] != b'\n') {
            let mut copy = ORIGINAL.to_vec();
            copy[at] ^= 1;
            let (verdict, id) = verdict(&copy, 16);
            assert!(verdict == Verdict::Damaged || id != "one@x", "flip at {at} of {verdict:?}");
        }
        let cut = &ORIGINAL[..ORIGINAL.len() - 1];
        assert_eq!(verdict(cut, 9).0, Verdict::Damaged);
        assert_eq!(verdict(&[ORIGINAL, b"more\r\n"].concat(), 9).0, Verdict::Damaged);
        for prefix in ["half a field", " folded: x\r\n", "no colon\r\n", "X: y\n"] {
            assert_eq!(verdict(&[prefix.as_bytes(), ORIGINAL].concat(), 9).0, Verdict::Damaged, "{prefix:?}");
        }
        let trailing_field = b"From: a@x\r\nMessage-ID:\r\n <one@x>\r\nSubject: hi\r\nX: y\r\n\r\nbody\r\n.dot\r\n";
        assert_eq!(verdict(trailing_field, 9).0, Verdict::Damaged);
    }

    #[test]
    fn originals_without_id_blank_line_or_header() {
        for original in
            ["Subject: none\r\n\r\nx\r\n", "Subject: no blank line\r\n", "\r\nonly a body\r\n", "just text\r\n"]
        {
            let recorder = Recorder::new(Mode::Full);
            recorder.expect(&message_id_of(original.as_bytes()), original.as_bytes().into());
            for (copy, wanted) in [
                (format!("Received: by x\r\n{original}"), Verdict::Intact),
                (format!("Received: by x\r\n{original}!\r\n"), Verdict::Damaged),
            ] {
                let mut meter = CopyMeter::default();
                meter.begin(&recorder);
                meter.push(&recorder, copy.as_bytes());
                meter.finish(&recorder);
                assert_eq!(meter.verdict(), wanted, "{copy:?}");
            }
        }
    }

    #[test]
    fn message_ids() {
        for (message, id) in [
            ("Message-Id: <a@b>\r\n\r\n", "a@b"),
            ("X: y\r\nMESSAGE-ID : a@b \r\n", "a@b"),
            ("Message-Ident: x\r\nMessage-ID: <1@z>\r\nMessage-ID: <2@z>\r\n", "1@z"),
            ("X: y\r\n\r\nMessage-ID: <body@z>\r\n", ""),
            ("", ""),
        ] {
            assert_eq!(message_id_of(message.as_bytes()), id, "{message:?}");
        }
    }
}
