//! A message that does not come over SMTP (by a request, from a local program): pieces, header facts, line ends.
//!
//! A bare LF becomes CR LF, since files and JSON contain it. A bare CR is refused (RFC 5321 section 2.3.8), as is
//! everything else that SMTP would refuse in a body. At most one piece and the current push are held.

use stentor_mail::headers::HeaderScan;
use stentor_mail::reply::{Enhanced, Reply};

use super::replies::TOO_BIG;
use super::{ContentRule, EndOfData};

pub struct TextBody {
    piece: Vec<u8>,
    piece_bytes: usize,
    scan: HeaderScan,
    rule: ContentRule,
    size: u64,
    size_max: u64,
    after_cr: bool,
    ends_line: bool,
}

impl TextBody {
    /// Creates a body. `prefix` begins the first piece and is not counted; pieces have about `piece_bytes`.
    pub fn new(prefix: Vec<u8>, size_max: u64, piece_bytes: usize) -> Self {
        Self {
            piece: prefix,
            piece_bytes,
            scan: HeaderScan::new(),
            rule: ContentRule::default(),
            size: 0,
            size_max,
            after_cr: false,
            ends_line: true,
        }
    }

    /// Takes the next octets; then call [`TextBody::full_piece`].
    ///
    /// # Errors
    /// The reply with which SMTP would refuse the message.
    pub fn push(&mut self, octets: &[u8]) -> Result<(), Reply> {
        let before = self.piece.len();
        let mut rest = octets;
        while !rest.is_empty() {
            if self.after_cr && rest[0] != b'\n' {
                return Err(Reply::fixed(554, Enhanced::new(5, 6, 0), "A CR without LF"));
            }
            let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(rest.len());
            self.piece.extend_from_slice(&rest[..end]);
            if end > 0 {
                self.ends_line = false;
            }
            match rest.get(end) {
                Some(b'\n') => {
                    if !self.after_cr {
                        self.piece.push(b'\r');
                    }
                    self.piece.push(b'\n');
                    (self.after_cr, self.ends_line) = (false, true);
                }
                Some(_) => {
                    self.piece.push(b'\r');
                    (self.after_cr, self.ends_line) = (true, false);
                }
                None => {}
            }
            rest = &rest[(end + 1).min(rest.len())..];
        }
        self.account(before)
    }

    fn account(&mut self, before: usize) -> Result<(), Reply> {
        let added = &self.piece[before..];
        self.size += added.len() as u64;
        self.scan.push(added);
        if !self.rule.allows(added) {
            return Err(Reply::fixed(554, Enhanced::new(5, 6, 0), "NUL beside a dot at the start of a line"));
        }
        if self.size > self.size_max {
            return Err(TOO_BIG);
        }
        match self.scan.overflow() {
            Some(why) => Err(Reply::new(552, Enhanced::new(5, 3, 4), format!("Message header too large: {why}"))),
            None => Ok(()),
        }
    }

    /// Returns a piece to be stored, once it is full.
    pub fn full_piece(&mut self) -> Option<Vec<u8>> {
        (self.piece.len() >= self.piece_bytes).then(|| std::mem::take(&mut self.piece))
    }

    /// Ends the message: its last line gets a line end if it has none.
    ///
    /// # Errors
    /// As for [`TextBody::push`]; an empty message is also refused.
    pub fn finish(mut self) -> Result<EndOfData, Reply> {
        if self.after_cr || self.size == 0 {
            let why = if self.size == 0 { "The message is empty" } else { "A CR without LF" };
            return Err(Reply::fixed(554, Enhanced::new(5, 6, 0), why));
        }
        if !self.ends_line {
            self.push(b"\r\n")?;
        }
        Ok(EndOfData { last: self.piece, size: self.size, facts: self.scan.finish() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(parts: &[&[u8]]) -> Result<Vec<u8>, Reply> {
        let mut body = TextBody::new(Vec::new(), 40, 1_000);
        for part in parts {
            body.push(part)?;
        }
        Ok(body.piece)
    }

    #[test]
    fn line_ends_are_made_whole_wherever_the_parts_are_cut() {
        let text: &[u8] = b"Subject: x\n\r\nBody\r\n.\n\nx";
        for cut in 0..text.len() {
            let (a, b) = text.split_at(cut);
            assert_eq!(taken(&[a, b]).unwrap(), b"Subject: x\r\n\r\nBody\r\n.\r\n\r\nx", "{cut}");
        }
        assert!(taken(&[b"a\r", b"b"]).is_err() && taken(&[b"a\r\r\n"]).is_err());
        for bad in [&b"\0.\n"[..], b"a\n.\0\n", b"a\r\n\0\0.\r\n"] {
            for cut in 0..bad.len() {
                assert!(taken(&[&bad[..cut], &bad[cut..]]).is_err(), "{bad:?}");
            }
        }
        assert!(taken(&[&[b'x'; 40]]).is_ok() && taken(&[&[b'x'; 20], &[b'x'; 21]]).is_err());
    }
}
