//! Outgoing content: bulk dot-stuffing (RFC 5321 4.5.2) and a guard against bare CR, bare LF and, where dots are
//! stuffed, NUL. A receiver that drops NULs, or takes a bare CR or LF for a line end, would see the end of the data in
//! `\0.\r\n` or `\n.\n` and read the rest as commands.
//!
//! State is kept between pushes: a line end or a leading dot may straddle two of them.

use memchr::{memchr2, memchr3};

/// A CR without LF, an LF without CR (RFC 5321 2.3.8), or a NUL: no message that we send may hold one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UnsafeOctet;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum LinePosition {
    #[default]
    LineStart,
    Middle,
    AfterCr,
}

/// Copies content to the wire.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BodyWriter {
    at: LinePosition,
}

impl BodyWriter {
    /// Appends `bytes` to `out`; with `stuff`, doubles the dots at line starts.
    pub(super) fn push(&mut self, bytes: &[u8], stuff: bool, out: &mut Vec<u8>) -> Result<(), UnsafeOctet> {
        let Some(&first) = bytes.first() else { return Ok(()) };
        out.reserve(bytes.len() + bytes.len() / 32);
        let mut copied = 0;
        let mut at = 0;
        if self.at == LinePosition::AfterCr {
            if first != b'\n' {
                return Err(UnsafeOctet);
            }
            self.at = LinePosition::LineStart;
            at = 1;
        }
        if stuff && self.at == LinePosition::LineStart && bytes.get(at) == Some(&b'.') {
            out.extend_from_slice(&bytes[..at]);
            out.push(b'.');
            copied = at;
        }
        self.at = loop {
            let rest = &bytes[at..];
            // Without stuffing the receiver counts octets, so their values cannot confuse it.
            let found = if stuff { memchr3(b'\r', b'\n', 0, rest) } else { memchr2(b'\r', b'\n', rest) };
            let Some(found) = found else {
                break if at == bytes.len() { LinePosition::LineStart } else { LinePosition::Middle };
            };
            let cr = at + found;
            if bytes[cr] != b'\r' {
                return Err(UnsafeOctet);
            }
            match bytes.get(cr + 1) {
                None => break LinePosition::AfterCr,
                Some(b'\n') => at = cr + 2,
                Some(_) => return Err(UnsafeOctet),
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

    /// Whether the content may end here; otherwise the last byte was a CR.
    pub(super) fn check_end(self) -> Result<(), UnsafeOctet> {
        if self.at == LinePosition::AfterCr { Err(UnsafeOctet) } else { Ok(()) }
    }

    /// Whether the content so far ends with a complete line (or is empty).
    pub(super) fn at_line_start(self) -> bool {
        self.at == LinePosition::LineStart
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stuffed(pieces: &[&[u8]]) -> Result<Vec<u8>, UnsafeOctet> {
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
        for bad in
            ["a\n.\nb", "a\n.\r\nb", "a\r.\rb", "a\r\n.\nb", "a\r\n.\rb", "a\r", "\0.\r\n", ".\0\r\n", "a\r\n\0.\r\n"]
        {
            assert_eq!(stuffed(&[bad.as_bytes()]), Err(UnsafeOctet), "{bad:?}");
        }
        assert_eq!(stuffed(&[b"a\r", b"b"]), Err(UnsafeOctet));
        assert_eq!(stuffed(&[b"\n"]), Err(UnsafeOctet));
    }

    /// Finds where a kind of receiver sees the end of the data: one that accepts bare CR or LF as line ends, drops
    /// NULs, or any combination.
    fn ends(wire: &[u8], drops_nul: bool, cr_ends: bool, lf_ends: bool) -> bool {
        let mut lines = vec![Vec::new()];
        let octets: Vec<u8> = wire.iter().copied().filter(|&b| b != 0 || !drops_nul).collect();
        let mut at = 0;
        while at < octets.len() {
            let pair = octets[at] == b'\r' && octets.get(at + 1) == Some(&b'\n');
            if pair || (cr_ends && octets[at] == b'\r') || (lf_ends && octets[at] == b'\n') {
                lines.push(Vec::new());
                at += if pair { 2 } else { 1 };
            } else {
                lines.last_mut().unwrap().push(octets[at]);
                at += 1;
            }
        }
        // The last one has no line end, so it is not a line yet.
        lines.pop();
        lines.iter().any(|line| line == b".")
    }

    proptest! {
        /// However any octets are split, no receiver sees an end of data in the output, even if the content was
        /// refused.
        #[test]
        fn no_receiver_sees_an_end_of_data(pieces in proptest::collection::vec("[.\\x00\r\na]{0,9}|(\r\n|[.\\x00a]){0,9}", 0..8)) {
            let (mut writer, mut out) = (BodyWriter::default(), Vec::new());
            let safe = pieces.iter().all(|piece| writer.push(piece.as_bytes(), true, &mut out).is_ok());
            prop_assert!(!out.contains(&0));
            for kind in 0..8 {
                let seen = ends(&out, kind & 1 != 0, kind & 2 != 0, kind & 4 != 0);
                prop_assert!(!seen, "{:?} to a receiver of kind {}", String::from_utf8_lossy(&out), kind);
            }
            let canonical = !pieces.concat().replace("\r\n", "").contains(['\r', '\n', '\0']);
            prop_assert_eq!(safe && writer.check_end().is_ok(), canonical);
        }

        #[test]
        fn splits_do_not_matter_and_unstuffing_restores(lines in proptest::collection::vec("[.a]{0,4}", 0..20), cuts in proptest::collection::vec(0usize..60, 0..6)) {
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
