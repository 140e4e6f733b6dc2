//! Content on its way out: dot-stuffing (RFC 5321 4.5.2) in bulk, and the guard against bare CR and LF.
//!
//! State is carried over pushes, so that a line end or a leading dot may straddle them.

use memchr::memchr2;

/// A CR without LF, or an LF without CR: no message that we send on may hold one (RFC 5321 2.3.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BareNewline;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum At {
    #[default]
    LineStart,
    Middle,
    AfterCr,
}

/// Copies content to the wire.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BodyWriter {
    at: At,
}

impl BodyWriter {
    /// Appends `bytes` to `out`; with `stuff`, doubles the dots that lines begin with.
    pub(super) fn push(&mut self, bytes: &[u8], stuff: bool, out: &mut Vec<u8>) -> Result<(), BareNewline> {
        let Some(&first) = bytes.first() else { return Ok(()) };
        out.reserve(bytes.len() + bytes.len() / 32);
        let mut copied = 0;
        let mut at = 0;
        if self.at == At::AfterCr {
            if first != b'\n' {
                return Err(BareNewline);
            }
            self.at = At::LineStart;
            at = 1;
        }
        if stuff && self.at == At::LineStart && bytes.get(at) == Some(&b'.') {
            out.extend_from_slice(&bytes[..at]);
            out.push(b'.');
            copied = at;
        }
        self.at = loop {
            let Some(found) = memchr2(b'\r', b'\n', &bytes[at..]) else {
                break if at == bytes.len() { At::LineStart } else { At::Middle };
            };
            let cr = at + found;
            if bytes[cr] == b'\n' {
                return Err(BareNewline);
            }
            match bytes.get(cr + 1) {
                None => break At::AfterCr,
                Some(b'\n') => at = cr + 2,
                Some(_) => return Err(BareNewline),
            }
            if stuff && bytes.get(at) == Some(&b'.') {
                out.extend_from_slice(&bytes[copied..at]);
                out.push(b'.');
                copied = at;
            }
        };
        out.extend_from_slice(&bytes[copied..]);
        Ok(())
    }

    /// Whether what was pushed may end here. Otherwise the last byte was a CR.
    pub(super) fn check_end(self) -> Result<(), BareNewline> {
        if self.at == At::AfterCr { Err(BareNewline) } else { Ok(()) }
    }

    /// Whether what was pushed ends with a whole line (or is empty).
    pub(super) fn at_line_start(self) -> bool {
        self.at == At::LineStart
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stuffed(pieces: &[&[u8]]) -> Result<Vec<u8>, BareNewline> {
        let (mut writer, mut out) = (BodyWriter::default(), Vec::new());
        for piece in pieces {
            writer.push(piece, true, &mut out)?;
        }
        writer.check_end()?;
        Ok(out)
    }

    #[test]
    fn dots_at_line_starts_are_doubled() {
        assert_eq!(stuffed(&[b".\r\n..\r\na.b\r\n.c"]).unwrap(), b"..\r\n...\r\na.b\r\n..c");
        assert_eq!(stuffed(&[b"a\r", b"\n.", b".\r\n", b".\r\n"]).unwrap(), b"a\r\n...\r\n..\r\n");
        assert_eq!(stuffed(&[b"a\r", b"", b"\n.b"]).unwrap(), b"a\r\n..b");
        assert_eq!(stuffed(&[b"a", b".b"]).unwrap(), b"a.b");
    }

    #[test]
    fn end_of_data_look_alikes_are_refused() {
        for bad in ["a\n.\nb", "a\n.\r\nb", "a\r.\rb", "a\r\n.\nb", "a\r\n.\rb", "a\r"] {
            assert_eq!(stuffed(&[bad.as_bytes()]), Err(BareNewline), "{bad:?}");
        }
        assert_eq!(stuffed(&[b"a\r", b"b"]), Err(BareNewline));
        assert_eq!(stuffed(&[b"\n"]), Err(BareNewline));
    }

    proptest! {
        #[test]
        fn splits_do_not_matter_and_unstuffing_restores(lines in proptest::collection::vec("[.a\\x00]{0,4}", 0..20), cuts in proptest::collection::vec(0usize..60, 0..6)) {
            let content = lines.iter().flat_map(|line| [line.as_str(), "\r\n"]).collect::<String>().into_bytes();
            let whole = stuffed(&[&content]).unwrap();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(content.len())).collect();
            cuts.extend([0, content.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &content[pair[0]..pair[1]]).collect();
            prop_assert_eq!(&whole, &stuffed(&pieces).unwrap());
            let text = String::from_utf8(whole).unwrap();
            prop_assert!(!text.contains("\r\n.\r\n") && !text.starts_with(".\r\n"));
            let plain: String = text.split_inclusive("\r\n").map(|line| line.strip_prefix('.').unwrap_or(line)).collect();
            prop_assert_eq!(plain.into_bytes(), content);
        }
    }
}
