//! An incoming body: splits octets into pieces, counts them and scans for header facts, both for DATA and BDAT.
//!
//! Promise: at most one piece is in memory. A body over a limit is dropped where it exceeds the limit, and the rest is
//! only scanned for its end. Where pieces are cut and limits exceeded depends only on the octets.

use stentor_mail::headers::HeaderScan;
use stentor_mail::reply::{Enhanced, Reply};

use super::dots::{Dots, ScanResult};
use super::{EndOfData, ServerConfig, replies};

#[derive(Debug)]
pub(super) struct IncomingBody {
    piece: Vec<u8>,
    /// Octets of the message so far.
    size: u64,
    scan: HeaderScan,
    dots: Dots,
    /// Why the message was dropped: the reply once the body has ended.
    dropped: Option<Reply>,
}

/// The effect of some octets of a chunk.
pub(super) struct ChunkEffect {
    pub(super) count: usize,
    /// The message was dropped just now.
    pub(super) dropped: bool,
}

impl IncomingBody {
    /// Creates a body. `prefix` is the start of the first piece and is not counted.
    pub(super) fn new(prefix: Vec<u8>, dots: Dots) -> Self {
        Self { piece: prefix, size: 0, scan: HeaderScan::new(), dots, dropped: None }
    }

    /// Returns the octets of the message so far.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the memory used for it.
    pub(super) fn held_bytes(&self) -> usize {
        self.piece.capacity() + self.scan.kept_bytes()
    }

    /// Returns the piece, if it is full.
    pub(super) fn full_piece(&mut self, config: &ServerConfig) -> Option<Vec<u8>> {
        let is_full = self.piece.len() >= config.piece_bytes_max;
        is_full.then(|| std::mem::take(&mut self.piece))
    }

    /// Makes room in the current piece. A piece after the first is allocated at full size, but not before the previous
    /// one has been taken.
    fn room(&mut self, config: &ServerConfig) -> usize {
        if self.piece.capacity() == 0 && self.size > 0 {
            self.piece.reserve_exact(config.piece_bytes_max);
        }
        config.piece_bytes_max.saturating_sub(self.piece.len()).max(1)
    }

    /// Takes octets of DATA; `dropped` is set when a limit was exceeded.
    pub(super) fn data(&mut self, config: &ServerConfig, input: &[u8]) -> (ChunkEffect, ScanResult) {
        if self.dropped.is_some() {
            let (count, found) = self.dots.scan(input, None);
            return (ChunkEffect { count, dropped: false }, found);
        }
        let room = self.room(config);
        let before = self.piece.len();
        let (count, found) = self.dots.scan(&input[..input.len().min(room)], Some(&mut self.piece));
        let dropped = self.account(config, before);
        (ChunkEffect { count, dropped }, found)
    }

    /// Takes octets of a BDAT chunk. Content that DATA refuses as a violation cannot confuse us here, but could not be
    /// sent on safely (RFC 5321 section 2.3.8; BINARYMIME is not offered).
    pub(super) fn chunk(&mut self, config: &ServerConfig, input: &[u8]) -> ChunkEffect {
        let room = self.room(config);
        let part = &input[..input.len().min(room)];
        let before = self.piece.len();
        let (_, found) = self.dots.scan(part, Some(&mut self.piece));
        let mut dropped = self.account(config, before);
        if found != ScanResult::More && !dropped {
            self.drop_for(replies::BARE_IN_CHUNK);
            dropped = true;
        }
        ChunkEffect { count: part.len(), dropped }
    }

    /// Ends DATA, or the last chunk. The error is the reply that refuses the message.
    pub(super) fn end(mut self) -> Result<EndOfData, Reply> {
        if let Some(reply) = self.dropped {
            return Err(reply);
        }
        if self.dots.is_behind_cr() {
            return Err(replies::BARE_IN_CHUNK);
        }
        let facts = std::mem::take(&mut self.scan).finish();
        match facts.overflow {
            Some(why) => Err(header_too_large(why)),
            None => Ok(EndOfData { last: self.piece, size: self.size, facts }),
        }
    }

    /// Returns why the message was dropped.
    pub(super) fn dropped(&self) -> Option<&Reply> {
        self.dropped.as_ref()
    }

    /// Counts and scans octets appended to the piece; returns whether they exceeded a limit.
    fn account(&mut self, config: &ServerConfig, before: usize) -> bool {
        let added = &self.piece[before..];
        let left = config.size_max - self.size;
        self.size = self.size.saturating_add(added.len() as u64);
        // Content beyond the size limit must not decide why the message is refused.
        self.scan.push(&added[..added.len().min(usize::try_from(left).unwrap_or(usize::MAX))]);
        if let Some(why) = self.scan.overflow() {
            self.drop_for(header_too_large(why));
        } else if self.size > config.size_max {
            self.drop_for(replies::TOO_BIG);
        }
        self.dropped.is_some()
    }

    /// Drops the body for a reason given by the session or the caller.
    pub(super) fn drop_for(&mut self, reply: Reply) {
        self.dropped = Some(reply);
        self.piece = Vec::new();
    }
}

fn header_too_large(why: &'static str) -> Reply {
    Reply::new(552, Enhanced::new(5, 3, 4), format!("Message refused: {why}"))
}
