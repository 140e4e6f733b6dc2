//! Line ends of a body that a milter sends: CR LF, LF and a lone CR all become CR LF.
//!
//! Promise: the output contains no bare CR or LF, however the input is split.

/// Converter of line ends; see the module documentation.
#[derive(Debug, Default)]
pub struct LineEnds {
    after_cr: bool,
}

impl LineEnds {
    /// Converts the next octets.
    pub fn push(&mut self, octets: &[u8], out: &mut Vec<u8>) {
        let mut rest = octets;
        if let Some((&first, others)) = rest.split_first()
            && std::mem::take(&mut self.after_cr)
            && first == b'\n'
        {
            // The CR was written with its LF.
            rest = others;
        }
        while let Some(at) = memchr::memchr2(b'\r', b'\n', rest) {
            out.extend_from_slice(&rest[..at]);
            out.extend_from_slice(b"\r\n");
            let is_pair = rest[at] == b'\r' && rest.get(at + 1) == Some(&b'\n');
            self.after_cr = rest[at] == b'\r' && at + 1 == rest.len();
            rest = &rest[at + 1 + usize::from(is_pair)..];
        }
        out.extend_from_slice(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_end_is_made_whole_wherever_the_octets_are_cut() {
        let text = b"a\nb\r\nc\rd\r\r\ne\n\nf\r";
        for cut in 0..=text.len() {
            let (mut ends, mut out) = (LineEnds::default(), Vec::new());
            ends.push(&text[..cut], &mut out);
            ends.push(&text[cut..], &mut out);
            assert_eq!(out, b"a\r\nb\r\nc\r\nd\r\n\r\ne\r\n\r\nf\r\n", "{cut}");
        }
    }
}
