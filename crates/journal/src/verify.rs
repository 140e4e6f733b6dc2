//! Looks at every batch of every segment and changes nothing: for `stentor journal verify`.
//!
//! Other than recovery it goes on after the first finding, and it also reads segments before the checkpoint, which hold only
//! content. It needs a stopped store.

use crate::Ms;
use crate::disk::Disk;
use crate::error::JournalError;
use crate::format::BLOCK_BYTES;
use crate::scan::{Until, Walk, read_segment, survey, walk_batches};

/// One segment as found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentSummary {
    /// Name of the file.
    pub file: String,
    /// Its generation.
    pub generation: u32,
    /// First sequence number that it may hold.
    pub first_seq: u64,
    /// Last sequence number that is readable (`first_seq - 1`: none).
    pub last_seq: u64,
    /// Offset behind the last readable batch.
    pub end: u64,
    /// Time of activation.
    pub time: Ms,
}

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Name of the file.
    pub file: String,
    /// Byte offset in it.
    pub offset: u64,
    /// What is wrong.
    pub what: String,
}

/// Checks all segments, oldest first. Errors only if the directory cannot be read at all; all else is a finding.
pub fn verify(disk: &dyn Disk) -> Result<(Vec<SegmentSummary>, Vec<Finding>), JournalError> {
    let survey = survey(disk)?;
    let (mut summaries, mut findings) = (Vec::new(), Vec::new());
    let mut image = Vec::new();
    for found in survey.headed.values() {
        let header = &found.header;
        let from = Walk { offset: BLOCK_BYTES as u64, last_seq: header.predecessor_last_seq, last_time: header.time };
        let mut reached = from;
        let successor = survey.headed.values().rfind(|next| next.header.predecessor == header.generation);
        let until = successor.map_or(Until::Tail, |next| Until::Seq(next.header.predecessor_last_seq));
        let outcome = read_segment(found, &mut image).and_then(|()| {
            walk_batches(found, &image, from, until, |batch, offset, _| {
                reached.offset = offset + batch.padded_bytes() as u64;
                reached.last_seq = batch.seq;
                Ok(())
            })
        });
        match outcome {
            Ok(_) => {}
            Err(JournalError::Damaged { file, offset, what }) => findings.push(Finding { file, offset, what }),
            Err(other) => {
                findings.push(Finding { file: found.name(), offset: reached.offset, what: other.to_string() });
            }
        }
        summaries.push(SegmentSummary {
            file: found.name(),
            generation: header.generation,
            first_seq: header.predecessor_last_seq + 1,
            last_seq: reached.last_seq,
            end: reached.offset,
            time: header.time,
        });
    }
    Ok((summaries, findings))
}
