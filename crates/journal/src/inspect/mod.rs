//! Reads everything readable in a stopped or damaged store, without changing it: for `stentor journal verify`, `dump`,
//! `salvage`.
//!
//! Promise: every batch with a valid checksum that was not refused is shown, in log order, whatever is wrong before or
//! after it; every irregularity is a [`Irregularity`] with file and offset. Recovery stops at the first one; this
//! continues. A torn tail is not damage. It fails only if the directory cannot be listed.
//!
//! Recovery decides whether the log is sound ([`examine`], the code of a start). If a start would succeed, there is no
//! finding in the segments that it reads, nor about files that it skips; if not, there is at least one. Beyond that,
//! only segments before the checkpoint that may hold content are judged: a batch is missing there if a later one of its
//! segment, or the segment's direct successor, shows that it was durable. For content, [`StoredContents::flaws`]
//! compares the readable bytes with the table.
//!
//! To get past damage: a segment whose header is lost is identified by the generation in its first readable batch (if
//! any other segment gives the store's id); after an invalid batch the next valid one of the same generation is
//! searched block by block.

mod contents;
mod survey;

use crate::Ms;
use crate::disk::Disk;
use crate::error::JournalError;
use crate::format::{
    BLOCK_BYTES, BadHeader, BatchHeader, Checkpoint, PIECE_HEADER_BYTES, Position, Records, Slice,
    decode_checkpoint_end, decode_piece, decode_slice, kind,
};
use crate::recovery::examine;
pub use contents::{MissingPart, StoredContents};
use survey::{Source, lenient_survey};

/// The kind of a segment file, according to its header and its successors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SegmentState {
    /// Empty: never used, or an activation that was interrupted or abandoned.
    Free,
    /// Before the newest checkpoint: holds content at most.
    Old,
    /// Needed for replay.
    Log,
    /// Needed for replay or content; abandoned after an I/O error.
    Abandoned,
    /// Where the next batch would go.
    Head,
    /// Its header is not valid, but it holds batches.
    HeaderLost,
}

impl SegmentState {
    pub fn name(self) -> &'static str {
        match self {
            SegmentState::Free => "free",
            SegmentState::Old => "old",
            SegmentState::Log => "log",
            SegmentState::Abandoned => "abandoned",
            SegmentState::Head => "head",
            SegmentState::HeaderLost => "header lost",
        }
    }
}

/// Summary of one segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentSummary {
    /// Name of the file.
    pub file: String,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Its generation; 0: none.
    pub generation: u32,
    pub state: SegmentState,
    /// Batches whose checksum holds.
    pub batches: u64,
    /// First sequence number that it may hold.
    pub first_seq: u64,
    /// Last sequence number that is readable (`first_seq - 1`: none).
    pub last_seq: u64,
    /// Offset after the last readable batch.
    pub end: u64,
    /// Time of activation; 0 if the header is lost.
    pub time: Ms,
}

/// An irregularity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Irregularity {
    /// Name of the file.
    pub file: String,
    /// Byte offset in it.
    pub offset: u64,
    /// What is wrong.
    pub what: String,
}

/// A record and its place.
#[derive(Debug, Clone, Copy)]
pub struct InspectedItem<'a> {
    /// Name of the file.
    pub file: &'a str,
    pub generation: u32,
    /// Offset of the batch in the file.
    pub batch_offset: u64,
    /// Offset of the item's bytes in the file.
    pub offset: u64,
    pub batch_seq: u64,
    /// Time of the commit.
    pub time: Ms,
    pub item: Item<'a>,
}

/// A record of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<'a> {
    Owner(&'a [u8]),
    /// A piece of content `id` at `start`.
    Piece {
        id: u64,
        start: u64,
        bytes: &'a [u8],
        last: bool,
        moved: bool,
    },
    CheckpointBegin,
    ContentSlice(&'a [u8]),
    /// The checkpoint whose begin is in batch `begin_seq` is complete.
    CheckpointEnd {
        number: u64,
        begin_seq: u64,
        begin_generation: u32,
        begin_offset: u64,
    },
    /// The checkpoint of this number has a slice that is a content.
    Slice {
        number: u64,
        slice: Slice,
    },
    Void,
    /// A record of a kind that this version does not know.
    Unknown {
        kind: u8,
        bytes: usize,
    },
}

/// Result of an inspection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Free segments first, then by generation.
    pub segments: Vec<SegmentSummary>,
    pub findings: Vec<Irregularity>,
    /// Replay starts with the batch of this sequence number: the newest checkpoint's begin, or 0.
    pub replay_from: u64,
    /// That checkpoint's number, or 0.
    pub checkpoint: u64,
    /// Last readable sequence number.
    pub last_seq: u64,
    /// Where a batch was cut off at the end of the log: normal after a crash.
    pub torn: Option<(String, u64)>,
}

/// Passes every readable record to `visit`, oldest batch first.
pub fn inspect(disk: &dyn Disk, visit: &mut dyn FnMut(&InspectedItem<'_>)) -> Result<Inspection, JournalError> {
    let verdict = examine(disk);
    let (sources, mut found) = lenient_survey(disk)?;
    if verdict.is_ok() {
        // Findings about files that a start skips.
        found.findings.clear();
    }
    let mut newest: Option<Checkpoint> = sources.last().and_then(|source| source.checkpoint);
    let mut image = Vec::new();
    for (index, source) in sources.iter().enumerate() {
        // Only its direct successor shows where a segment ended: there may have been others between it and the next one
        // here.
        let until =
            sources.get(index + 1).filter(|next| next.follows(source)).and_then(|next| next.predecessor_last_seq);
        let is_head = index + 1 == sources.len();
        let summary = read(source, until, is_head, &mut image, &mut found, &mut |seen| {
            if let Item::CheckpointEnd { number, begin_seq: seq, begin_generation: generation, begin_offset: offset } =
                seen.item
            {
                let checkpoint = Checkpoint { number, begin: Position { generation, offset, seq } };
                newest = newest.filter(|newest| newest.number > number).or(Some(checkpoint));
            }
            visit(seen);
        });
        found.last_seq = found.last_seq.max(summary.last_seq);
        found.segments.push(summary);
    }
    if let Some(Checkpoint { begin, number }) = newest {
        (found.replay_from, found.checkpoint) = (begin.seq, number);
        for segment in &mut found.segments {
            if segment.state == SegmentState::Log && segment.generation < begin.generation {
                segment.state = SegmentState::Old;
            }
        }
        if !found.segments.iter().any(|segment| segment.generation == begin.generation) {
            found.findings.push(Irregularity {
                file: "(missing segment)".to_owned(),
                offset: begin.offset,
                what: format!("the newest checkpoint begins in generation {}, which is missing", begin.generation),
            });
        }
    }
    if let Err(refusal) = verdict {
        tell_refusal(refusal, &mut found.findings);
    }
    Ok(found)
}

/// Adds the reason why a start is refused, if it is not among the findings yet.
fn tell_refusal(refusal: JournalError, findings: &mut Vec<Irregularity>) {
    match refusal {
        JournalError::Damaged { file, offset, what } => {
            if !findings.iter().any(|finding| finding.file == file && finding.offset == offset) {
                findings.push(Irregularity { file, offset, what });
            }
        }
        _ if !findings.is_empty() => {}
        JournalError::Io { file, source } => {
            findings.push(Irregularity { file, offset: 0, what: format!("cannot be read: {source}") });
        }
        other => findings.push(Irregularity { file: "(journal)".to_owned(), offset: 0, what: other.to_string() }),
    }
}

/// Names of the segments in use that were abandoned after an I/O error. Reads only headers, so it may run on a store in
/// use.
pub fn abandoned(disk: &dyn Disk) -> Result<Vec<String>, JournalError> {
    let (sources, _) = lenient_survey(disk)?;
    let abandoned = sources.iter().filter(|source| source.state(false) == SegmentState::Abandoned);
    Ok(abandoned.map(|source| source.name.clone()).collect())
}

/// Checks all segments. Fails only if the directory cannot be read at all; everything else is a finding.
pub fn verify(disk: &dyn Disk) -> Result<(Vec<SegmentSummary>, Vec<Irregularity>), JournalError> {
    let found = inspect(disk, &mut |_| ())?;
    Ok((found.segments, found.findings))
}

/// Reads one segment as far as possible.
fn read(
    source: &Source,
    until: Option<u64>,
    is_head: bool,
    image: &mut Vec<u8>,
    found: &mut Inspection,
    visit: &mut dyn FnMut(&InspectedItem<'_>),
) -> SegmentSummary {
    source.load(image, &mut found.findings);
    let first_seq = source.predecessor_last_seq.map_or(0, |seq| seq + 1);
    let mut summary = SegmentSummary {
        file: source.name.clone(),
        bytes: source.bytes,
        generation: source.generation,
        state: source.state(is_head),
        batches: 0,
        first_seq,
        last_seq: first_seq.saturating_sub(1),
        end: BLOCK_BYTES as u64,
        time: source.time,
    };
    let (mut offset, mut gap) = (BLOCK_BYTES, None);
    let mut expected = source.predecessor_last_seq.map(|seq| seq + 1);
    while offset < image.len() && until.is_none_or(|until| expected.is_none_or(|seq| seq <= until)) {
        let batch = &image[offset..];
        let header = match BatchHeader::check(batch, source.store_id) {
            Ok(header) if header.generation == source.generation && expected.is_none_or(|seq| header.seq >= seq) => {
                header
            }
            Err(BadHeader::Version(version)) if gap.is_none() => {
                let what = format!("a batch of unknown format version {version}");
                found.findings.push(Irregularity { file: source.name.clone(), offset: offset as u64, what });
                gap.get_or_insert(offset);
                offset += BLOCK_BYTES;
                continue;
            }
            _ => {
                gap.get_or_insert(offset);
                offset += BLOCK_BYTES;
                continue;
            }
        };
        if until.is_some_and(|until| header.seq > until) {
            break;
        }
        let wanted = expected.unwrap_or(header.seq);
        if gap.is_some() || header.seq != wanted {
            let from = gap.take().unwrap_or(offset);
            found.findings.push(lost(source, from, wanted, header.seq - 1));
        }
        let place = Place { source, batch_offset: offset as u64 };
        show(&place, &header, batch, &mut found.findings, visit);
        if summary.batches == 0 && expected.is_none() {
            summary.first_seq = header.seq;
        }
        summary.batches += 1;
        summary.last_seq = header.seq;
        offset += header.padded_bytes();
        summary.end = offset as u64;
        expected = Some(header.seq + 1);
    }
    match until {
        Some(until) if expected.is_some_and(|seq| seq <= until) => {
            found.findings.push(lost(source, summary.end as usize, summary.last_seq + 1, until));
        }
        None if is_head => found.torn = torn_at(source, image, &summary),
        _ => {}
    }
    summary
}

fn lost(source: &Source, offset: usize, from: u64, to: u64) -> Irregularity {
    let what = if from >= to {
        format!("batch {from} is damaged; it had been synced")
    } else {
        format!("batches {from} to {to} are damaged; they had been synced")
    };
    Irregularity { file: source.name.clone(), offset: offset as u64, what }
}

/// Where the head ends with part of a batch that was never acknowledged.
fn torn_at(source: &Source, image: &[u8], summary: &SegmentSummary) -> Option<(String, u64)> {
    let cut = image.get(summary.end as usize..).and_then(BatchHeader::peek)?;
    let next = cut.generation == source.generation && cut.seq == summary.last_seq + 1;
    next.then(|| (source.name.clone(), summary.end))
}

struct Place<'a> {
    source: &'a Source,
    batch_offset: u64,
}

fn show(
    place: &Place<'_>,
    header: &BatchHeader,
    batch: &[u8],
    findings: &mut Vec<Irregularity>,
    visit: &mut dyn FnMut(&InspectedItem<'_>),
) {
    let file = &place.source.name;
    for record in Records::of(batch, header) {
        let record = match record {
            Ok(record) => record,
            Err(what) => {
                findings.push(Irregularity { file: file.clone(), offset: place.batch_offset, what: what.to_owned() });
                return;
            }
        };
        let payload = record.payload;
        let unknown = Item::Unknown { kind: record.kind, bytes: payload.len() };
        let mut head_bytes = 0;
        let item = match record.kind {
            kind::OWNER => Item::Owner(payload),
            kind::PIECE | kind::LAST_PIECE | kind::MOVED_PIECE => match decode_piece(payload) {
                Some((id, start, len)) if start.checked_add(len as u64).is_some() => {
                    head_bytes = PIECE_HEADER_BYTES;
                    let (last, moved) = (record.kind == kind::LAST_PIECE, record.kind == kind::MOVED_PIECE);
                    Item::Piece { id, start, bytes: &payload[PIECE_HEADER_BYTES..], last, moved }
                }
                _ => unknown,
            },
            kind::CHECKPOINT_BEGIN => Item::CheckpointBegin,
            kind::CONTENT_SLICE => Item::ContentSlice(payload),
            kind::CHECKPOINT_END => decode_checkpoint_end(payload).map_or(unknown, |(checkpoint, _)| {
                let Checkpoint { number, begin } = checkpoint;
                let Position { generation: begin_generation, offset: begin_offset, seq: begin_seq } = begin;
                Item::CheckpointEnd { number, begin_seq, begin_generation, begin_offset }
            }),
            kind::SLICE => decode_slice(payload).map_or(unknown, |(number, slice)| Item::Slice { number, slice }),
            kind::VOID => Item::Void,
            _ => unknown,
        };
        let offset = place.batch_offset + (record.at + head_bytes) as u64;
        if let Item::Unknown { kind, .. } = item {
            let what = format!("a record of unknown kind {kind}");
            findings.push(Irregularity { file: file.clone(), offset, what });
        }
        let (generation, batch_offset) = (place.source.generation, place.batch_offset);
        visit(&InspectedItem {
            file,
            generation,
            batch_offset,
            offset,
            batch_seq: header.seq,
            time: header.time,
            item,
        });
    }
}

#[cfg(test)]
mod tests;
