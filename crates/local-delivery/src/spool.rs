//! A message in a worker: with the line ends of mailboxes (LF), in memory up to [`MEMORY_BYTES`], then in an unnamed
//! file.
//!
//! Promise: the output is the input, however it is split, with CRLF as LF. Existing `Return-Path` fields are removed,
//! since the final delivery adds its own (RFC 5321 section 4.4). At most the length of [`FIELD_NAME`] is buffered for
//! that.

use std::io::{self, Read, Seek, SeekFrom, Write};

use tempfile::SpooledTempFile;

const MEMORY_BYTES: usize = 256 * 1024;
const FIELD_NAME: &[u8] = b"return-path:";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SpoolPosition {
    /// In the header, at the start of a line that may be the field; [`Spool::name`] has its octets.
    Name,
    /// In a line of the header that is kept or removed.
    Line {
        kept: bool,
    },
    /// After the line end of such a line: white space continues it.
    Fold {
        kept: bool,
    },
    Body,
}

/// The content of one message.
#[derive(Debug)]
pub struct Spool {
    file: SpooledTempFile,
    at: SpoolPosition,
    /// Whether the last octet was a CR that has not been written.
    has_cr: bool,
    size: u64,
    /// The start of a line that may be the field.
    name: Vec<u8>,
    /// Output of the current push.
    buffer: Vec<u8>,
}

impl Default for Spool {
    fn default() -> Self {
        Spool {
            file: SpooledTempFile::new(MEMORY_BYTES),
            at: SpoolPosition::Name,
            has_cr: false,
            size: 0,
            name: Vec::new(),
            buffer: Vec::new(),
        }
    }
}

impl Spool {
    /// Appends octets of the message.
    pub fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut out = std::mem::take(&mut self.buffer);
        out.clear();
        for &byte in bytes {
            if std::mem::take(&mut self.has_cr) && byte != b'\n' {
                self.take(b'\r', &mut out);
            }
            if byte == b'\r' {
                self.has_cr = true;
            } else {
                self.take(byte, &mut out);
            }
        }
        self.size += out.len() as u64;
        let written = self.file.write_all(&out);
        self.buffer = out;
        written
    }

    /// Ends the message.
    pub fn finish(&mut self) -> io::Result<()> {
        let mut out = Vec::new();
        if std::mem::take(&mut self.has_cr) {
            self.take(b'\r', &mut out);
        }
        out.append(&mut self.name);
        self.size += out.len() as u64;
        self.file.write_all(&out)
    }

    /// Size of the message as delivered.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Reads the message from its start.
    pub fn reader(&mut self) -> io::Result<impl Read> {
        self.file.seek(SeekFrom::Start(0))?;
        Ok(&mut self.file)
    }

    fn take(&mut self, byte: u8, out: &mut Vec<u8>) {
        if let SpoolPosition::Fold { kept } = self.at {
            self.at = if matches!(byte, b' ' | b'\t') { SpoolPosition::Line { kept } } else { SpoolPosition::Name };
        }
        match self.at {
            SpoolPosition::Name => self.take_name(byte, out),
            SpoolPosition::Line { kept } | SpoolPosition::Fold { kept } => {
                if kept {
                    out.push(byte);
                }
                if byte == b'\n' {
                    self.at = SpoolPosition::Fold { kept };
                }
            }
            SpoolPosition::Body => out.push(byte),
        }
    }

    fn take_name(&mut self, byte: u8, out: &mut Vec<u8>) {
        self.name.push(byte);
        let read = self.name.len();
        if self.name.eq_ignore_ascii_case(FIELD_NAME) {
            self.name.clear();
            self.at = SpoolPosition::Line { kept: false };
        } else if !self.name.eq_ignore_ascii_case(&FIELD_NAME[..read]) {
            out.append(&mut self.name);
            self.at = match byte {
                b'\n' if read == 1 => SpoolPosition::Body,
                b'\n' => SpoolPosition::Fold { kept: true },
                _ => SpoolPosition::Line { kept: true },
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(spool: &mut Spool) -> Vec<u8> {
        let mut all = Vec::new();
        spool.reader().unwrap().read_to_end(&mut all).unwrap();
        assert_eq!(all.len() as u64, spool.size());
        all
    }

    fn of(text: &str, part_bytes: usize) -> String {
        let mut spool = Spool::default();
        for part in text.as_bytes().chunks(part_bytes) {
            spool.push(part).unwrap();
        }
        spool.finish().unwrap();
        String::from_utf8(read(&mut spool)).unwrap()
    }

    #[test]
    fn line_ends_are_those_of_mailboxes() {
        for part in [1, 2, 3, 100] {
            assert_eq!(of("A: b\r\n\r\nx\r\ny\r\n", part), "A: b\n\nx\ny\n");
            assert_eq!(of("A: b\r\n\r\nx\ry\r\r\nz\r", part), "A: b\n\nx\ry\r\nz\r");
        }
    }

    #[test]
    fn a_return_path_of_others_is_left_out() {
        let message = "Return-Path: <a@b>\r\nA: b\r\nRETURN-path:\r\n\t<c@d>\r\n e\r\nReturn-Pathos: f\r\nReturn\r\n\r\n\
                       Return-Path: g\r\n";
        for part in [1, 7, 1000] {
            assert_eq!(of(message, part), "A: b\nReturn-Pathos: f\nReturn\n\nReturn-Path: g\n");
        }
        assert_eq!(of("Return-Pa", 4), "Return-Pa", "a message that ends in a name keeps it");
        assert_eq!(of("\r\nReturn-Path: x\r\n", 4), "\nReturn-Path: x\n", "without a header all is body");
    }

    #[test]
    fn a_large_message_is_read_twice() {
        let mut spool = Spool::default();
        let line = [&b"x".repeat(998)[..], b"\r\n"].concat();
        spool.push(b"A: b\r\n\r\n").unwrap();
        for _ in 0..2 * MEMORY_BYTES / line.len() {
            spool.push(&line).unwrap();
        }
        spool.finish().unwrap();
        let (first, second) = (read(&mut spool), read(&mut spool));
        assert_eq!(first, second);
        assert_eq!(first.len(), 6 + 2 * MEMORY_BYTES / line.len() * 999);
    }

    proptest! {
        #[test]
        fn parts_make_no_difference(text in "(Return-Path: a|A: b|\r\n|\r|x| ){0,30}", part in 1_usize..9) {
            prop_assert_eq!(of(&text, part), of(&text, 10_000));
        }
    }
}
