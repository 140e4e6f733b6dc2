//! Reads segments back: which exist, and the batches in one. Changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::disk::{Disk, DiskFile};
use crate::error::JournalError;
use crate::format::{BATCH_HEADER_BYTES, BLOCK_BYTES, BadHeader, BatchHeader, FORMAT_VERSION, SegmentHeader};
use crate::pool::{NEW_PREFIX, parse_segment_name, segment_name};

/// Size of one read: reads are done in pieces, so that an I/O error can name its position.
const READ_BYTES: usize = 1024 * 1024;

/// A segment file with a valid header.
pub(crate) struct HeadedSegment {
    pub slot: u32,
    pub file: Arc<dyn DiskFile>,
    /// Size of the file, in whole blocks.
    pub bytes: u64,
    pub header: SegmentHeader,
}

impl HeadedSegment {
    pub fn name(&self) -> String {
        segment_name(self.slot)
    }
}

/// A segment file without a valid header: new, interrupted while being activated, or damaged.
pub(crate) struct HeaderlessSegment {
    pub slot: u32,
    pub file: Arc<dyn DiskFile>,
    pub bytes: u64,
    /// The generation that its first batch states.
    pub claims: Option<u32>,
}

/// The files of the directory.
#[derive(Default)]
pub(crate) struct Survey {
    pub headed: BTreeMap<u32, HeadedSegment>,
    pub unheaded: Vec<HeaderlessSegment>,
    pub unfinished: Vec<String>,
    pub next_slot: u32,
}

/// Reads all segment headers.
pub(crate) fn survey(disk: &dyn Disk) -> Result<Survey, JournalError> {
    let mut names = disk.list().map_err(JournalError::io("listing the journal's directory"))?;
    names.sort_unstable();
    let mut survey = Survey::default();
    let mut blocks = vec![0; 2 * BLOCK_BYTES];
    for name in names {
        if name.starts_with(NEW_PREFIX) {
            survey.unfinished.push(name);
            continue;
        }
        let Some(slot) = parse_segment_name(&name) else { continue };
        survey.next_slot = survey.next_slot.max(slot.saturating_add(1));
        let file = disk.open(&name).map_err(JournalError::io(&name))?;
        let bytes = file.len().map_err(JournalError::io(&name))? / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        let count = file.read_at(0, &mut blocks).map_err(JournalError::io(&name))?;
        match SegmentHeader::decode(&blocks[..count]) {
            Ok(header) => insert(&mut survey, HeadedSegment { slot, file, bytes, header })?,
            Err(BadHeader::Version(version)) => return Err(version_error(&name, version)),
            Err(BadHeader::Invalid) => {
                let first = blocks[..count].get(BLOCK_BYTES..).and_then(BatchHeader::peek);
                let claims = first.map(|batch| batch.generation);
                survey.unheaded.push(HeaderlessSegment { slot, file, bytes, claims });
            }
        }
    }
    Ok(survey)
}

fn insert(survey: &mut Survey, found: HeadedSegment) -> Result<(), JournalError> {
    let (name, generation) = (found.name(), found.header.generation);
    if let Some(other) = survey.headed.values().next()
        && other.header.store_id != found.header.store_id
    {
        return Err(JournalError::damaged(&name, 0, "it belongs to another store"));
    }
    match survey.headed.insert(generation, found) {
        None => Ok(()),
        Some(other) => {
            Err(JournalError::damaged(&name, 0, format!("{} has the same generation {generation}", other.name())))
        }
    }
}

pub(crate) fn version_error(file: &str, version: u16) -> JournalError {
    JournalError::Version { file: file.to_owned(), version, known: FORMAT_VERSION }
}

/// Bytes of a segment file, for a walk through its batches.
pub(crate) trait Bytes {
    /// The bytes from `offset` on: at least `len`, unless the file ends earlier.
    fn from(&mut self, offset: u64, len: usize) -> Result<&[u8], JournalError>;
}

/// The whole file, read once and kept: the head.
pub(crate) struct Image(pub Vec<u8>);

impl Image {
    pub fn read(found: &HeadedSegment) -> Result<Image, JournalError> {
        let mut image = vec![0; found.bytes as usize];
        read_part(found, 0, &mut image)?;
        Ok(Image(image))
    }

    /// The bytes from `offset` on.
    pub fn get(&self, offset: u64) -> &[u8] {
        usize::try_from(offset).ok().and_then(|offset| self.0.get(offset..)).unwrap_or_default()
    }
}

impl Bytes for &Image {
    fn from(&mut self, offset: u64, _: usize) -> Result<&[u8], JournalError> {
        Ok(self.get(offset))
    }
}

/// A window that moves along the file, so that each byte is read once, and memory holds one batch rather than the
/// segment.
pub(crate) struct Window<'a> {
    found: &'a HeadedSegment,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    pub fn new(found: &'a HeadedSegment) -> Window<'a> {
        Window { found, start: 0, bytes: Vec::new() }
    }
}

impl Bytes for Window<'_> {
    fn from(&mut self, offset: u64, len: usize) -> Result<&[u8], JournalError> {
        let known = offset.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        match known.filter(|at| *at <= self.bytes.len()) {
            // Earlier bytes are not needed any more.
            Some(at) if at > 0 && self.bytes.len() < at + len => {
                self.bytes.drain(..at);
                self.start = offset;
            }
            Some(_) => {}
            None => {
                self.bytes.clear();
                self.start = offset;
            }
        }
        let at = (offset - self.start) as usize;
        let wanted = (at + len).min(self.found.bytes.saturating_sub(self.start) as usize);
        if self.bytes.len() < wanted {
            let known = self.bytes.len();
            let all = self.found.bytes.saturating_sub(self.start) as usize;
            self.bytes.resize(wanted.next_multiple_of(READ_BYTES).min(all), 0);
            read_part(self.found, self.start + known as u64, &mut self.bytes[known..])?;
        }
        Ok(&self.bytes[at..])
    }
}

/// Fills `bytes` from `offset` on.
fn read_part(found: &HeadedSegment, offset: u64, bytes: &mut [u8]) -> Result<(), JournalError> {
    let mut done = 0;
    while done < bytes.len() {
        let end = bytes.len().min(done + READ_BYTES);
        let at = offset + done as u64;
        let name = || format!("{}, offset {at}", found.name());
        let count = found.file.read_at(at, &mut bytes[done..end]).map_err(|e| JournalError::io(&name())(e))?;
        if count < end - done {
            return Err(JournalError::damaged(&found.name(), at + count as u64, "the file was truncated"));
        }
        done = end;
    }
    Ok(())
}

/// The position of a walk through a segment's batches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Walk {
    pub offset: u64,
    pub last_seq: u64,
    pub last_time: u64,
}

/// Where a walk must stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WalkEnd {
    /// All batches up to this sequence number must be valid.
    Seq(u64),
    /// The head: the first invalid batch is the torn tail, unless valid ones follow.
    Tail,
}

/// Walks through the batches of a segment from `walk` on; `visit` gets each header, its offset, and the bytes from
/// there.
pub(crate) fn walk_batches(
    found: &HeadedSegment,
    bytes: &mut dyn Bytes,
    mut walk: Walk,
    until: WalkEnd,
    mut visit: impl FnMut(&BatchHeader, u64, &[u8]) -> Result<(), JournalError>,
) -> Result<Walk, JournalError> {
    let (store_id, generation) = (found.header.store_id, found.header.generation);
    while until != WalkEnd::Seq(walk.last_seq) {
        let claimed = BatchHeader::peek(bytes.from(walk.offset, BATCH_HEADER_BYTES)?);
        let rest = bytes.from(walk.offset, claimed.map_or(BATCH_HEADER_BYTES, |claimed| claimed.bytes as usize))?;
        let expected = walk.last_seq.saturating_add(1);
        match BatchHeader::check(rest, store_id) {
            Ok(header) if header.generation == generation && header.seq == expected => {
                visit(&header, walk.offset, rest)?;
                walk.offset += header.padded_bytes() as u64;
                walk.last_seq = header.seq;
                walk.last_time = header.time;
                continue;
            }
            Ok(_) | Err(BadHeader::Invalid) => {}
            Err(BadHeader::Version(version)) => return Err(version_error(&found.name(), version)),
        }
        let what = match until {
            WalkEnd::Seq(seq) => format!("batch {expected} is not valid, though all up to {seq} were durable"),
            WalkEnd::Tail => {
                match later_batch(bytes.from(walk.offset, found.bytes as usize)?, store_id, generation, walk.last_seq) {
                    Some((seq, behind)) => {
                        let offset = walk.offset + behind as u64;
                        format!("batch {expected} is not valid, but batch {seq} at offset {offset} is")
                    }
                    None => break,
                }
            }
        };
        return Err(JournalError::damaged(&found.name(), walk.offset, what));
    }
    Ok(walk)
}

/// A valid batch of this generation in `bytes` with a sequence number above `seq`, and its offset.
fn later_batch(bytes: &[u8], store_id: u64, generation: u32, seq: u64) -> Option<(u64, usize)> {
    (0..bytes.len()).step_by(BLOCK_BYTES).find_map(|offset| {
        let rest = &bytes[offset..];
        let claimed = BatchHeader::peek(rest)?;
        let newer = claimed.generation == generation && claimed.seq > seq;
        (newer && BatchHeader::check(rest, store_id).is_ok()).then_some((claimed.seq, offset))
    })
}
