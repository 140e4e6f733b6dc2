//! Reading segments back: which ones there are, and the batches in one. Changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::disk::{Disk, DiskFile};
use crate::error::JournalError;
use crate::format::{BLOCK_BYTES, BadHeader, BatchHeader, FORMAT_VERSION, SegmentHeader};
use crate::pool::{NEW_PREFIX, parse_segment_name, segment_name};

/// Reads are done in pieces, so that an I/O error can name its place.
const READ_BYTES: usize = 1024 * 1024;

/// A segment file with a valid header.
pub(crate) struct Headed {
    pub slot: u32,
    pub file: Arc<dyn DiskFile>,
    /// Size of the file, in whole blocks.
    pub bytes: u64,
    pub header: SegmentHeader,
}

impl Headed {
    pub fn name(&self) -> String {
        segment_name(self.slot)
    }
}

/// A segment file without a valid header: fresh, cut while being activated, or damaged.
pub(crate) struct Unheaded {
    pub slot: u32,
    pub file: Arc<dyn DiskFile>,
    pub bytes: u64,
    /// The generation that its first batch claims.
    pub claims: Option<u32>,
}

/// What is in the directory.
#[derive(Default)]
pub(crate) struct Survey {
    pub headed: BTreeMap<u32, Headed>,
    pub unheaded: Vec<Unheaded>,
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
            Ok(header) => insert(&mut survey, Headed { slot, file, bytes, header })?,
            Err(BadHeader::Version(version)) => return Err(version_error(&name, version)),
            Err(BadHeader::Invalid) => {
                let first = blocks[..count].get(BLOCK_BYTES..).and_then(BatchHeader::peek);
                let claims = first.map(|batch| batch.generation);
                survey.unheaded.push(Unheaded { slot, file, bytes, claims });
            }
        }
    }
    Ok(survey)
}

fn insert(survey: &mut Survey, found: Headed) -> Result<(), JournalError> {
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

/// Reads a segment file into `image`.
pub(crate) fn read_segment(found: &Headed, image: &mut Vec<u8>) -> Result<(), JournalError> {
    image.resize(found.bytes as usize, 0);
    let mut offset = 0;
    while offset < image.len() {
        let end = image.len().min(offset + READ_BYTES);
        let name = || format!("{}, offset {offset}", found.name());
        let count =
            found.file.read_at(offset as u64, &mut image[offset..end]).map_err(|e| JournalError::io(&name())(e))?;
        if count < end - offset {
            return Err(JournalError::damaged(&found.name(), (offset + count) as u64, "the file became shorter"));
        }
        offset = end;
    }
    Ok(())
}

/// Where a walk through a segment's batches is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Walk {
    pub offset: u64,
    pub last_seq: u64,
    pub last_time: u64,
}

/// Where a walk has to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// All batches up to this sequence number must be valid.
    Seq(u64),
    /// The head: the first invalid batch is the torn tail, unless valid ones follow.
    Tail,
}

/// Goes through the batches of a segment from `walk` on; `visit` gets each header, its offset, and the bytes from there.
pub(crate) fn walk_batches(
    found: &Headed,
    image: &[u8],
    mut walk: Walk,
    until: Until,
    mut visit: impl FnMut(&BatchHeader, u64, &[u8]) -> Result<(), JournalError>,
) -> Result<Walk, JournalError> {
    let (store_id, generation) = (found.header.store_id, found.header.generation);
    while until != Until::Seq(walk.last_seq) {
        let rest = usize::try_from(walk.offset).ok().and_then(|offset| image.get(offset..)).unwrap_or_default();
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
            Until::Seq(seq) => format!("batch {expected} is not valid, though all up to {seq} were durable"),
            Until::Tail => match later_batch(image, walk.offset, store_id, generation, walk.last_seq) {
                Some((seq, offset)) => {
                    format!("batch {expected} is not valid, but batch {seq} at offset {offset} is")
                }
                None => break,
            },
        };
        return Err(JournalError::damaged(&found.name(), walk.offset, what));
    }
    Ok(walk)
}

/// A valid batch of this generation at or behind `from` with a sequence number over `seq`.
fn later_batch(image: &[u8], from: u64, store_id: u64, generation: u32, seq: u64) -> Option<(u64, usize)> {
    (from as usize..image.len()).step_by(BLOCK_BYTES).find_map(|offset| {
        let rest = &image[offset..];
        let claimed = BatchHeader::peek(rest)?;
        let newer = claimed.generation == generation && claimed.seq > seq;
        (newer && BatchHeader::check(rest, store_id).is_ok()).then_some((claimed.seq, offset))
    })
}
