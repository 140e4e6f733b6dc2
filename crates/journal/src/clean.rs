//! Cleaning: copies old live content to the head, so that it never pins a whole segment.
//!
//! A victim is a segment before the durable checkpoint with little live content. The threshold depends on all such
//! segments together, so that the dead part is bounded and nothing is moved while it is small. Its batches are read in
//! order and checked, and the pieces that the table still places there are copied as moved pieces. The old place is
//! freed when the batch with the copies is durable. A call adds a bounded number of octets to the batch, and reads
//! nothing if a [`Cleaner`] does (`read_ahead.rs`); a victim that cannot be read is left alone until after the next
//! checkpoint.
//!
//! Cleaning has a budget, so that waiting mail is not moved forever. Each octet that the owner writes or drops allows
//! [`EARNED_PER_BYTE`] octets to be moved, in total at most the live content; a victim that would exceed the budget
//! stays. Without traffic the budget runs out, and with traffic copies are a bounded multiple of it. A start allows all
//! live content to be moved once.

use std::sync::Arc;

use crate::batch::Batch;
use crate::format::{BATCH_HEADER_BYTES, BLOCK_BYTES, PIECE_HEADER_BYTES, RECORD_HEADER_BYTES, padded};
use crate::journal::{Journal, Segment};
use crate::read_ahead::{Cleaner, Item, Reading};

/// Without a [`Cleaner`], a call reads at most this many times the octets that it may copy, plus one batch.
const READ_FACTOR: usize = 4;
const READ_BYTES_MIN: usize = 1024 * 1024;
/// When no further segment may be added, segments with a smaller live share than this are cleaned. There always is one,
/// because files then take at least one and a half times the live content.
const PRESSED_PERCENT_MAX: u64 = 80;
/// Share of a segment that copies may fill when they share it with short-lived mail: the committer copies four octets
/// for each octet of mail. A fuller victim would become a victim again after the next checkpoint.
const BESIDE_MAIL_PERCENT: u64 = 80;
/// Octets that may be moved for each octet written or dropped. If files take one and a half times the live content, the
/// average segment is two thirds live, so two octets are moved for each one gained. The rest is for uneven segments.
const EARNED_PER_BYTE: u64 = 8;
/// One part in 16 of a segment is reserved for headers and padding of batches.
const BATCHES_PART: u64 = 16;
/// A piece larger than one part in 8 of a segment is large.
const LARGE_PART: usize = 8;
/// Octets of a piece besides its content, which copying cannot recover.
const PIECE_OVERHEAD_BYTES: u64 = (RECORD_HEADER_BYTES + PIECE_HEADER_BYTES) as u64;

impl Segment {
    /// The cost of copying its live content.
    fn occupied(&self) -> u64 {
        self.live + self.pieces * PIECE_OVERHEAD_BYTES
    }

    /// True if copying could not pack the segment more tightly: another piece of its average size would not fit, with
    /// the overhead of batches.
    fn is_full(&self) -> bool {
        let piece = self.occupied() / self.pieces.max(1);
        self.occupied() + piece > self.bytes - self.bytes / BATCHES_PART
    }
}

impl Journal {
    /// Lets another thread do the reads of cleaning, for as long as the [`Cleaner`] lives.
    pub fn cleaner(&self) -> Cleaner {
        Cleaner::new(Arc::clone(&self.ahead))
    }

    /// True if there is a segment worth cleaning.
    pub fn clean_due(&self) -> bool {
        self.copying.is_some() || self.ahead.is_busy() || self.victim(false).is_some()
    }

    /// Adds copies of live pieces to `batch`: at most `bytes_max` of content, or a single larger piece. Returns the
    /// number of bytes. 0 does not mean that nothing is left: call [`Journal::clean_due`]. Works once per batch: a
    /// second call adds nothing.
    pub fn clean(&mut self, batch: &mut Batch, bytes_max: usize) -> usize {
        if batch.pieces.iter().any(|piece| piece.moved.is_some()) {
            return 0;
        }
        let is_attached = self.ahead.is_attached();
        let mut reads_left = READ_BYTES_MIN.max(READ_FACTOR * bytes_max);
        let mut copied = 0;
        while self.copy_ready(batch, bytes_max, &mut copied) == CopyState::Room {
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

    /// Copies the pieces that have been read, as far as they fit.
    fn copy_ready(&mut self, batch: &mut Batch, bytes_max: usize, copied: &mut usize) -> CopyState {
        let (batch_max, rest) = (self.options.batch_limit(), self.head_rest());
        // Copies of large pieces gain nothing if they leave the end of each segment empty again. So a batch ends where
        // the head does.
        let large = self.options.segment_bytes as usize / LARGE_PART;
        loop {
            if *copied >= bytes_max {
                return CopyState::Full;
            }
            let Some(mut chunk) = self.copying.take() else {
                match self.ahead.pop() {
                    Some(Item::Chunk(chunk)) => self.copying = Some(chunk),
                    Some(Item::End(generation)) => self.finish_victim(generation),
                    None => return CopyState::Room,
                }
                continue;
            };
            let contents = self.shared.read();
            while let Some((live, bytes)) = chunk.next() {
                // The piece may have been dropped since it was read.
                let need = RECORD_HEADER_BYTES + PIECE_HEADER_BYTES + bytes.len();
                // It is not moved either if no batch can hold it any more, because the options have changed.
                let can_move = BATCH_HEADER_BYTES + need <= batch_max;
                if can_move && contents.table.is_at(live.id, live.start, live.from) {
                    let after = batch.bytes() + need;
                    let is_for_next = bytes.len() > large && padded(batch.bytes()) <= rest && padded(after) > rest;
                    // The first copy may exceed `bytes_max`, but not the size of a batch.
                    if (*copied > 0 && *copied + bytes.len() > bytes_max)
                        || after > batch_max
                        || (is_for_next && !batch.is_empty())
                    {
                        drop(contents);
                        self.copying = Some(chunk);
                        return CopyState::Full;
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

    /// Allows octets to be moved in return for those that the owner wrote or dropped.
    pub(crate) fn earn(&mut self, bytes: u64) {
        self.clean_budget = self.clean_budget.saturating_add(bytes.saturating_mul(EARNED_PER_BYTE));
    }

    /// The segment with the least live content that is worth cleaning, and the octets that copying it takes. It is
    /// worth cleaning if it is nearly dead, or not full while all segments before the checkpoint hold too much dead
    /// content. Up to one segment's worth of dead content is left alone: otherwise a small backlog would be copied
    /// again and again. `beside_mail`: the batch also contains mail.
    fn victim(&self, beside_mail: bool) -> Option<(u32, u64)> {
        let (mut live, mut bytes) = (0, 0);
        let mut least: Option<(u64, u32)> = None;
        for (generation, segment) in self.segments.range(..self.chain_start()) {
            // Content left in a cleaned segment goes with the batch that contains its copies.
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
        // A checkpoint that frees segments comes first: it gains room without moving anything.
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
            // Nothing is gained by a segment that is fuller than the average of all.
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
enum CopyState {
    /// There may be more, once it is read.
    Room,
    /// The batch is full.
    Full,
}
