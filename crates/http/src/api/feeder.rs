//! Feeds a message from a request to a transaction: pieces, header facts, line ends.
//!
//! A bare LF becomes CR LF, since files and JSON contain it; a bare CR is refused (RFC 5321 section 2.3.8), as is
//! everything else that SMTP would refuse in a body. At most one piece is held.

use std::net::IpAddr;
use std::sync::Arc;

use stentor_engine::core::memory::PIECE_BYTES;
use stentor_engine::core::{Core, Settings};
use stentor_engine::smtp_in::Transaction;
use stentor_mail::headers::HeaderScan;
use stentor_mail::reply::Reply;
use stentor_mail::server::{ContentRule, EndOfData};

pub(super) struct Feeder {
    piece: Vec<u8>,
    scan: HeaderScan,
    rule: ContentRule,
    size: u64,
    size_max: u64,
    after_cr: bool,
    ends_line: bool,
}

impl Feeder {
    /// `prefix` begins the first piece and is not counted.
    pub fn new(prefix: Vec<u8>, size_max: u64) -> Feeder {
        Feeder {
            piece: prefix,
            scan: HeaderScan::new(),
            rule: ContentRule::default(),
            size: 0,
            size_max,
            after_cr: false,
            ends_line: true,
        }
    }

    /// Takes the next octets; full pieces go to the transaction.
    pub async fn push(&mut self, core: &Arc<Core>, transaction: &mut Transaction, octets: &[u8]) -> Result<(), Reply> {
        for part in octets.chunks(PIECE_BYTES as usize / 4) {
            self.take(part)?;
            if self.piece.len() as u64 >= PIECE_BYTES {
                let piece = std::mem::take(&mut self.piece);
                transaction.piece(core, piece, self.size_max).await;
            }
        }
        Ok(())
    }

    fn take(&mut self, octets: &[u8]) -> Result<(), Reply> {
        let before = self.piece.len();
        let mut rest = octets;
        while !rest.is_empty() {
            if self.after_cr && rest[0] != b'\n' {
                return Err(Reply::fixed(554, (5, 6, 0), "A CR without LF"));
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
            return Err(Reply::fixed(554, (5, 6, 0), "NUL beside a dot at the start of a line"));
        }
        if self.size > self.size_max {
            return Err(Reply::fixed(552, (5, 3, 4), "Message too big"));
        }
        match self.scan.overflow() {
            Some(why) => Err(Reply::new(552, (5, 3, 4), format!("Message header too large: {why}"))),
            None => Ok(()),
        }
    }

    /// The end of the message: its last line gets its end if it has none.
    pub async fn end(
        mut self,
        core: &Arc<Core>,
        settings: &Arc<Settings>,
        client: IpAddr,
        transaction: Transaction,
    ) -> Reply {
        let whole = if self.after_cr || self.size == 0 {
            Err(Reply::fixed(554, (5, 6, 0), if self.size == 0 { "The message is empty" } else { "A CR without LF" }))
        } else if self.ends_line {
            Ok(())
        } else {
            self.take(b"\r\n")
        };
        if let Err(reply) = whole {
            transaction.abandon(core);
            return reply;
        }
        let end = EndOfData { last: self.piece, size: self.size, facts: self.scan.finish() };
        transaction.end(core, settings, client, end).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(parts: &[&[u8]]) -> Result<Vec<u8>, Reply> {
        let mut feeder = Feeder::new(Vec::new(), 40);
        for part in parts {
            feeder.take(part)?;
        }
        Ok(feeder.piece)
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
