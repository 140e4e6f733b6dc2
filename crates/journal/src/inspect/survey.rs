//! Finds the segments, using everything readable, and the chain of those that hold batches, oldest first.

use std::sync::Arc;

use super::{Inspection, Irregularity, SegmentState, SegmentSummary};
use crate::disk::{Disk, DiskFile};
use crate::error::JournalError;
use crate::format::{BLOCK_BYTES, BadHeader, BatchHeader, Checkpoint, SegmentHeader};
use crate::pool::parse_segment_name;
use crate::recovery::newest_checkpoint;

/// Size of one read; a failed one is retried block by block, so that a bad sector loses one block.
const READ_BYTES: usize = 256 * 1024;

/// A segment that holds batches, or may.
pub(super) struct Source {
    pub name: String,
    file: Arc<dyn DiskFile>,
    /// Size of the file, in whole blocks.
    pub bytes: u64,
    pub store_id: u64,
    pub generation: u32,
    /// `None`: the header is lost, or belongs to another store.
    pub predecessor_last_seq: Option<u64>,
    predecessor: Option<u32>,
    predecessor_abandoned: bool,
    abandoned: bool,
    pub checkpoint: Option<Checkpoint>,
    pub time: u64,
}

impl Source {
    /// Whether this segment directly follows `before`.
    pub fn follows(&self, before: &Source) -> bool {
        self.predecessor == Some(before.generation)
    }

    pub fn state(&self, is_head: bool) -> SegmentState {
        match (self.predecessor, self.abandoned, is_head) {
            (None, _, _) => SegmentState::HeaderLost,
            (_, true, _) => SegmentState::Abandoned,
            (_, _, true) => SegmentState::Head,
            _ => SegmentState::Log,
        }
    }

    /// Reads the file; unreadable parts become zeros and a finding.
    pub fn load(&self, image: &mut Vec<u8>, findings: &mut Vec<Irregularity>) {
        image.clear();
        image.resize(self.bytes as usize, 0);
        let mut add_finding = |offset: usize, what: String| {
            findings.push(Irregularity { file: self.name.clone(), offset: offset as u64, what });
        };
        for start in (0..image.len()).step_by(READ_BYTES) {
            let end = image.len().min(start + READ_BYTES);
            if self.file.read_at(start as u64, &mut image[start..end]).is_ok_and(|count| count == end - start) {
                continue;
            }
            for block in (start..end).step_by(BLOCK_BYTES) {
                let part = &mut image[block..block + BLOCK_BYTES];
                match self.file.read_at(block as u64, part) {
                    Ok(BLOCK_BYTES) => continue,
                    Ok(_) => add_finding(block, "the file was truncated".to_owned()),
                    Err(error) => add_finding(block, format!("cannot be read: {error}")),
                }
                part.fill(0);
            }
        }
    }
}

/// All sources in the order of the log. Free segments and findings are added to the inspection.
pub(super) fn lenient_survey(disk: &dyn Disk) -> Result<(Vec<Source>, Inspection), JournalError> {
    let mut names = disk.list().map_err(JournalError::io("listing the journal's directory"))?;
    names.retain(|name| parse_segment_name(name).is_some());
    names.sort_unstable();
    let mut found = Inspection::default();
    let (mut sources, mut headless) = (Vec::new(), Vec::new());
    for name in names {
        let opened = disk.open(&name).and_then(|file| file.len().map(|bytes| (file, bytes)));
        let (file, bytes) = match opened {
            Ok((file, bytes)) => (file, bytes / BLOCK_BYTES as u64 * BLOCK_BYTES as u64),
            Err(error) => {
                add_finding(&mut found, &name, format!("cannot be opened: {error}"));
                continue;
            }
        };
        let mut block = vec![0; BLOCK_BYTES];
        let header = match file.read_at(0, &mut block) {
            Ok(count) => SegmentHeader::decode(&block[..count]),
            Err(error) => {
                add_finding(&mut found, &name, format!("the header cannot be read: {error}"));
                Err(BadHeader::Invalid)
            }
        };
        match header {
            Ok(header) => sources.push(headed(name, file, bytes, &header)),
            Err(BadHeader::Version(version)) => {
                add_finding(&mut found, &name, format!("unknown format version {version}"));
            }
            Err(BadHeader::Invalid) => headless.push((name, file, bytes)),
        }
    }
    sources.sort_by_key(|source| source.generation);
    let store_id = sources.last().map(|source| source.store_id);
    if let Some(head) = sources.last_mut() {
        // As in recovery: the last end in the head, or the one that its header names.
        head.checkpoint = newest_in(head, &mut found).or(head.checkpoint);
    }
    for source in sources.extract_if(.., |source| Some(source.store_id) != store_id) {
        add_finding(&mut found, &source.name, "it belongs to another store".to_owned());
    }
    for (name, file, bytes) in headless {
        adopt_headless(name, file, bytes, store_id, &mut sources, &mut found);
    }
    sources.sort_by_key(|source| source.generation);
    link(&mut sources, &mut found);
    Ok((sources, found))
}

/// The newest checkpoint whose end is in the segment, as far as its batches are consecutive.
fn newest_in(head: &Source, found: &mut Inspection) -> Option<Checkpoint> {
    let (mut image, mut newest) = (Vec::new(), None);
    // Unreadable parts are reported when the segment's turn comes.
    let before = found.findings.len();
    head.load(&mut image, &mut found.findings);
    found.findings.truncate(before);
    let mut offset = BLOCK_BYTES;
    while let Some(batch) = image.get(offset..)
        && let Ok(header) = BatchHeader::check(batch, head.store_id)
        && header.generation == head.generation
    {
        newest = newest_checkpoint(batch, &header).or(newest);
        offset += header.padded_bytes();
    }
    newest
}

fn add_finding(found: &mut Inspection, file: &str, what: String) {
    found.findings.push(Irregularity { file: file.to_owned(), offset: 0, what });
}

fn headed(name: String, file: Arc<dyn DiskFile>, bytes: u64, header: &SegmentHeader) -> Source {
    Source {
        name,
        file,
        bytes,
        store_id: header.store_id,
        generation: header.generation,
        predecessor_last_seq: Some(header.predecessor_last_seq),
        predecessor: Some(header.predecessor),
        predecessor_abandoned: header.predecessor_abandoned,
        abandoned: false,
        checkpoint: header.checkpoint,
        time: header.time,
    }
}

/// Handles a segment without a valid header: it is free if it holds no batch of a generation that no other segment has.
fn adopt_headless(
    name: String,
    file: Arc<dyn DiskFile>,
    bytes: u64,
    store_id: Option<u64>,
    sources: &mut Vec<Source>,
    found: &mut Inspection,
) {
    let mut source = Source {
        name,
        file,
        bytes,
        store_id: store_id.unwrap_or(0),
        generation: 0,
        predecessor_last_seq: None,
        predecessor: None,
        predecessor_abandoned: false,
        abandoned: false,
        checkpoint: None,
        time: 0,
    };
    let mut image = Vec::new();
    source.load(&mut image, &mut found.findings);
    let claims = |offset: &usize| {
        let batch = image.get(*offset..)?;
        let claimed = BatchHeader::peek(batch)?;
        // Without a store id no checksum can be verified.
        (store_id.is_none() || BatchHeader::check(batch, source.store_id).is_ok()).then_some(claimed.generation)
    };
    let claimed = (BLOCK_BYTES..image.len()).step_by(BLOCK_BYTES).find_map(|offset| claims(&offset));
    let name = source.name.clone();
    match claimed {
        Some(_) if store_id.is_none() => {
            let what =
                "the header is not valid, and no other segment has the store's id: its content cannot be checked";
            add_finding(found, &name, what.to_owned());
        }
        // Older batches of a segment whose reuse had begun: their data was not needed any more.
        Some(generation) if is_stale(generation, sources) => found.segments.push(free(&source)),
        Some(generation) => {
            add_finding(found, &name, format!("the header of a segment in use is not valid (generation {generation})"));
            source.generation = generation;
            sources.push(source);
        }
        None => found.segments.push(free(&source)),
    }
}

/// True if no header refers to a segment of this generation, neither as its predecessor nor as the newest of all.
fn is_stale(generation: u32, sources: &[Source]) -> bool {
    let is_newest = sources.iter().all(|source| source.generation < generation);
    let is_missed = sources.iter().any(|source| source.predecessor == Some(generation));
    let begins =
        sources.iter().filter_map(|source| source.checkpoint).map(|checkpoint| checkpoint.begin.generation).max();
    !is_newest && (!is_missed || begins.is_some_and(|begin| generation < begin))
}

fn free(source: &Source) -> SegmentSummary {
    SegmentSummary {
        file: source.name.clone(),
        bytes: source.bytes,
        generation: source.generation,
        state: SegmentState::Free,
        batches: 0,
        first_seq: 0,
        last_seq: 0,
        end: 0,
        time: source.time,
    }
}

/// Follows the predecessors back from the newest segment. Skipped segments are failed activations; missing ones are
/// damage, except before the checkpoint, where segments are freed one by one.
fn link(sources: &mut Vec<Source>, found: &mut Inspection) {
    let begin = sources.last().and_then(|head| head.checkpoint).map_or(1, |checkpoint| checkpoint.begin.generation);
    let mut chain = Vec::with_capacity(sources.len());
    while let Some(current) = sources.pop() {
        if let Some(wanted) = current.predecessor {
            while let Some(passed) = sources.pop_if(|source| source.generation > wanted) {
                found.segments.push(free(&passed));
            }
            match sources.last_mut() {
                Some(previous) if previous.generation == wanted => previous.abandoned = current.predecessor_abandoned,
                _ if wanted >= begin && current.generation > begin => {
                    add_finding(
                        found,
                        &current.name,
                        format!("the segment before it, of generation {wanted}, is missing"),
                    );
                }
                _ => {}
            }
        }
        chain.push(current);
    }
    chain.reverse();
    *sources = chain;
}
