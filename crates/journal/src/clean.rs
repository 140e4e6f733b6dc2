//! Cleaning: copies old live content to the head, so that it never pins a whole segment.
//!
//! A victim is a segment before the durable checkpoint with little live content; the threshold depends on all of them
//! together, so that the dead part is bounded and nothing is moved while it is small. Its batches are read in order and
//! checked, and the pieces that the table still places there are copied as moved pieces. The old place is freed when
//! the batch with the copies is durable. A call adds a bounded number of octets to the batch, and reads nothing if a
//! [`Cleaner`] does (`ahead.rs`); a victim that cannot be read is left alone until after the next checkpoint.
//!
//! Cleaning has a budget, so that waiting mail is not moved forever: each octet that the owner writes or drops allows
//! [`EARNED_PER_BYTE`] to be moved, in all at most what is live; a victim that would take more than is left stays.
//! Without traffic the budget runs out, and with traffic copies are a bounded multiple of it. A start allows all live
//! content to be moved once.

use std::sync::Arc;

use crate::ahead::{Cleaner, Item, Reading};
use crate::batch::Batch;
use crate::format::{BATCH_HEADER_BYTES, BLOCK_BYTES, PIECE_HEADER_BYTES, RECORD_HEADER_BYTES, padded};
use crate::journal::{Journal, Segment};

/// Without a [`Cleaner`], a call reads at most this many times what it may copy, and one batch.
const READ_FACTOR: usize = 4;
const READ_BYTES_MIN: usize = 1024 * 1024;
/// When no further segment may be added, segments below this share live are cleaned. One always exists: files then take at
/// least one and a half times the live content.
const PRESSED_PERCENT_MAX: u64 = 80;
/// Share of a segment that copies may fill when they share it with short-lived mail: the committer copies four octets
/// for each octet of mail. A fuller victim would be one again after the next checkpoint.
const BESIDE_MAIL_PERCENT: u64 = 80;
/// Octets that may be moved for each that is written or dropped. Where files take one and a half times the live content, the
/// average segment is two thirds live, so that two octets are moved for each that it gives back. The rest is for uneven ones.
const EARNED_PER_BYTE: u64 = 8;
/// One part in 16 of a segment is allowed for headers and padding of batches.
const BATCHES_PART: u64 = 16;
/// A piece larger than one part in 8 of a segment is large.
const LARGE_PART: usize = 8;
/// Octets of a piece besides its content: what copying cannot give back.
const PIECE_OVERHEAD_BYTES: u64 = (RECORD_HEADER_BYTES + PIECE_HEADER_BYTES) as u64;

impl Segment {
    /// The cost of copying its live content.
    fn occupied(&self) -> u64 {
        self.live + self.pieces * PIECE_OVERHEAD_BYTES
    }

    /// True if copying could not pack it more tightly: another piece of its size would not fit, with the overhead of
    /// batches.
    fn is_full(&self) -> bool {
        let piece = self.occupied() / self.pieces.max(1);
        self.occupied() + piece > self.bytes - self.bytes / BATCHES_PART
    }
}

impl Journal {
    /// Hands cleaning's reads to another thread, for as long as the [`Cleaner`] lives.
    pub fn cleaner(&self) -> Cleaner {
        Cleaner::new(Arc::clone(&self.ahead))
    }

    /// True if there is a segment worth cleaning.
    pub fn clean_due(&self) -> bool {
        self.copying.is_some() || self.ahead.is_busy() || self.victim(false).is_some()
    }

    /// Adds copies of live pieces to `batch`: at most `bytes_max` of content, or a single piece that is larger. Returns how many
    /// bytes. 0 does not mean that nothing is left: ask [`Journal::clean_due`]. Once per batch: a second call adds nothing.
    pub fn clean(&mut self, batch: &mut Batch, bytes_max: usize) -> usize {
        if batch.pieces.iter().any(|piece| piece.moved.is_some()) {
            return 0;
        }
        let is_attached = self.ahead.is_attached();
        let mut reads_left = READ_BYTES_MIN.max(READ_FACTOR * bytes_max);
        let mut copied = 0;
        while self.copy_ready(batch, bytes_max, &mut copied) == Copied::Room {
            if !self.ahead.is_busy() {
                let Some((generation, cost)) = self.victim(batch.owner_bytes() > 0) else { break };
                let Some(segment) = self.segments.get(&generation) else { break };
                self.clean_budget = self.clean_budget.min(self.occupied()).saturating_sub(cost);
                let (file, bytes) = (Arc::clone(&segment.file), segment.bytes);
                self.ahead.begin(Reading { generation, file, bytes, offset: BLOCK_BYTES as u64 });
            }
            if is_attached || reads_left == 0 {
                break;
            }
            let Some(read) = self.ahead.read() else { break };
            reads_left = reads_left.saturating_sub(read);
        }
        copied
    }

    /// Copies what has been read, as far as it goes.
    fn copy_ready(&mut self, batch: &mut Batch, bytes_max: usize, copied: &mut usize) -> Copied {
        let (batch_max, rest) = (self.options.batch_limit(), self.head_rest());
        // Copies of large pieces give nothing back if they leave the end of each segment empty again. So a batch ends where the
        // head does.
        let large = self.options.segment_bytes as usize / LARGE_PART;
        loop {
            if *copied >= bytes_max {
                return Copied::Full;
            }
            let Some(mut chunk) = self.copying.take() else {
                match self.ahead.pop() {
                    Some(Item::Chunk(chunk)) => self.copying = Some(chunk),
                    Some(Item::End(generation)) => self.finish_victim(generation),
                    None => return Copied::Room,
                }
                continue;
            };
            let contents = self.shared.read();
            while let Some((live, bytes)) = chunk.next() {
                // It may have been dropped since it was read.
                let need = RECORD_HEADER_BYTES + PIECE_HEADER_BYTES + bytes.len();
                // Nor is it moved if no batch can hold it any more, since the options are others now.
                let can_move = BATCH_HEADER_BYTES + need <= batch_max;
                if can_move && contents.table.is_at(live.id, live.start, live.from) {
                    let after = batch.bytes() + need;
                    let is_for_next = bytes.len() > large && padded(batch.bytes()) <= rest && padded(after) > rest;
                    // The first copy may be over `bytes_max`, but not over what a batch holds.
                    if (*copied > 0 && *copied + bytes.len() > bytes_max)
                        || after > batch_max
                        || (is_for_next && !batch.is_empty())
                    {
                        drop(contents);
                        self.copying = Some(chunk);
                        return Copied::Full;
                    }
                    batch.moved_piece(live.id, live.start, live.from, bytes);
                    *copied += bytes.len();
                }
                chunk.done += 1;
            }
        }
    }

    /// The cost of copying everything.
    fn occupied(&self) -> u64 {
        self.segments.values().map(Segment::occupied).sum()
    }

    /// Allows octets to be moved for those that the owner wrote or dropped.
    pub(crate) fn earn(&mut self, bytes: u64) {
        self.clean_budget = self.clean_budget.saturating_add(bytes.saturating_mul(EARNED_PER_BYTE));
    }

    /// The segment with the least live content that is worth cleaning, and the octets that copying it takes. Worth it: nearly
    /// dead, or not full while all segments before the checkpoint hold too much dead content. Up to one segment's worth of
    /// dead content is left alone: otherwise a small backlog would be copied again and again. `beside_mail`: the batch also
    /// holds mail.
    fn victim(&self, beside_mail: bool) -> Option<(u32, u64)> {
        let (mut live, mut bytes) = (0, 0);
        let mut least: Option<(u64, u32)> = None;
        for (generation, segment) in self.segments.range(..self.chain_start()) {
            // What is left in a segment that was gone through goes with the batch that holds its copies.
            if segment.cleaned {
                continue;
            }
            let occupied = segment.occupied();
            live += occupied;
            bytes += segment.bytes;
            let is_candidate = segment.live > 0 && !segment.is_full();
            if is_candidate && least.is_none_or(|(least, _)| occupied < least) {
                least = Some((occupied, *generation));
            }
        }
        let (cost, generation) = least.filter(|(cost, _)| *cost <= self.clean_budget)?;
        let segment = self.segments.get(&generation)?;
        let dead = bytes - live.min(bytes);
        // A checkpoint that lets go of segments comes first: it gives room and moves nothing.
        let is_pressed = self.is_pressed() && self.building.is_none() && !self.checkpoint_due();
        if dead < self.options.segment_bytes
            && segment.bytes == self.options.segment_bytes
            && !is_pressed
            && !self.is_low()
        {
            return None;
        }
        let percent_max = if is_pressed {
            PRESSED_PERCENT_MAX
        } else if live * 100 < self.options.clean_total_percent_max * bytes {
            // One that is fuller than all together gives nothing back.
            let percent_max = self.options.clean_total_percent_max;
            if beside_mail { percent_max * BESIDE_MAIL_PERCENT / 100 } else { percent_max }
        } else {
            self.options.clean_live_percent_max
        };
        (cost * 100 < percent_max * segment.bytes).then_some((generation, cost))
    }

    /// Octets after the end of the head's data.
    fn head_rest(&self) -> usize {
        let segment = self.head.and_then(|head| Some((head, self.segments.get(&head.generation)?)));
        segment.map_or(0, |(head, segment)| segment.bytes.saturating_sub(head.offset) as usize)
    }

    fn finish_victim(&mut self, generation: u32) {
        if let Some(segment) = self.segments.get_mut(&generation) {
            segment.cleaned = true;
        }
    }
}

/// The state of a batch after copying.
#[derive(PartialEq, Eq)]
enum Copied {
    /// There may be more, if it is read.
    Room,
    /// The batch is full.
    Full,
}
