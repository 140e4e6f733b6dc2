//! Passes the records to the owner, in one pass over the log.
//!
//! Promise: records come in log order, and a slice's bytes come where the checkpoint names it. A slice may be named
//! before the log says where it is stored (the part of the content table with its place, or the copy made by cleaning,
//! comes later); from there on records wait in memory until it is found. That rarely takes longer than the checkpoint
//! did: its end follows all parts of the table.
//!
//! A place is accepted as soon as its bytes have the checksum in the name: an older place of a moved slice has the same
//! bytes, as long as its segment has not been reused. A slice not found by the end of the log is damage.

use std::collections::VecDeque;
use std::error::Error;

use crate::Ms;
use crate::error::JournalError;
use crate::format::{BatchHeader, Slice};
use crate::pool::segment_name;
use crate::scan::{HeadedSegment, Image, Survey};
use crate::table::{Extent, Table};

/// An owner's record, read back.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// The bytes that the owner appended.
    pub payload: &'a [u8],
    /// Sequence number of the record's batch.
    pub batch_seq: u64,
    /// Time passed to the commit.
    pub time: Ms,
    /// Set if the payload is a slice that the checkpoint names: it may be kept in the next one.
    pub slice: Option<Slice>,
}

/// Receives the replayed records. Its error stops the start.
pub type Replay<'a> = dyn FnMut(Record<'_>) -> Result<(), Box<dyn Error + Send + Sync>> + 'a;

/// Position of a record.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub slot: u32,
    /// Offset of the batch.
    pub offset: u64,
    pub seq: u64,
    pub time: u64,
}

impl Place {
    pub fn of(found: &HeadedSegment, offset: u64, header: &BatchHeader) -> Place {
        Place { slot: found.slot, offset, seq: header.seq, time: header.time }
    }
}

/// The part of the log in memory: bytes found here are not read again.
pub(crate) struct MemoryLog<'a> {
    /// The current batch, its generation and its offset.
    pub batch: (&'a [u8], u32, u64),
    pub head: (&'a Image, u32),
}

impl MemoryLog<'_> {
    fn get(&self, extent: Extent) -> Option<&[u8]> {
        let (batch, generation, start) = self.batch;
        let within = |bytes: &'_ [u8], start: u64| {
            let at = usize::try_from(u64::from(extent.offset).checked_sub(start)?).ok()?;
            let end = at.checked_add(extent.len as usize)?;
            (end <= bytes.len()).then_some(at..end)
        };
        if generation == extent.generation
            && let Some(range) = within(batch, start)
        {
            return Some(&batch[range]);
        }
        let (head, generation) = self.head;
        let range = within(&head.0, 0).filter(|_| generation == extent.generation)?;
        Some(&head.0[range])
    }
}

enum WaitingItem {
    Record(Place, Vec<u8>),
    Slice(Place, Slice),
}

/// Replay in progress; see the module's head.
pub(crate) struct ReplayProgress<'a, 'r> {
    survey: &'a Survey,
    replay: &'a mut Replay<'r>,
    waiting: VecDeque<WaitingItem>,
    /// Where the slice that everything waits for was last searched for in vain.
    tried: Vec<Extent>,
    pub records: u64,
    /// Contents that were slices of the checkpoint, and their bytes.
    pub slices: Vec<u64>,
    pub slices_bytes: u64,
}

impl<'a, 'r> ReplayProgress<'a, 'r> {
    pub fn new(survey: &'a Survey, replay: &'a mut Replay<'r>) -> ReplayProgress<'a, 'r> {
        ReplayProgress {
            survey,
            replay,
            waiting: VecDeque::new(),
            tried: Vec::new(),
            records: 0,
            slices: Vec::new(),
            slices_bytes: 0,
        }
    }

    pub fn record(&mut self, place: Place, payload: &[u8]) -> Result<(), JournalError> {
        if self.waiting.is_empty() {
            return self.deliver(place, payload, None);
        }
        self.waiting.push_back(WaitingItem::Record(place, payload.to_vec()));
        Ok(())
    }

    pub fn slice(
        &mut self,
        place: Place,
        slice: Slice,
        table: &Table,
        memory: &MemoryLog<'_>,
    ) -> Result<(), JournalError> {
        self.waiting.push_back(WaitingItem::Slice(place, slice));
        if self.waiting.len() == 1 { self.advance(table, memory) } else { Ok(()) }
    }

    /// Releases records that need not wait any longer, now that the table knows more.
    pub fn advance(&mut self, table: &Table, memory: &MemoryLog<'_>) -> Result<(), JournalError> {
        while let Some(next) = self.waiting.pop_front() {
            match next {
                WaitingItem::Record(place, payload) => self.deliver(place, &payload, None)?,
                WaitingItem::Slice(place, slice) => {
                    let Some(bytes) = self.find(slice, table, memory) else {
                        self.waiting.push_front(WaitingItem::Slice(place, slice));
                        return Ok(());
                    };
                    self.deliver_slice(place, slice, &bytes)?;
                }
            }
        }
        Ok(())
    }

    /// Called at the end of the log: any slice still missing is damage.
    pub fn finish(&mut self, table: &Table, memory: &MemoryLog<'_>) -> Result<(), JournalError> {
        self.advance(table, memory)?;
        let Some(WaitingItem::Slice(place, slice)) = self.waiting.front() else { return Ok(()) };
        let what = format!("the checkpoint names content {} as a slice, which ", slice.content)
            + &self.missing(*slice, table)?;
        Err(JournalError::damaged(&segment_name(place.slot), place.offset, what))
    }

    /// The slice's bytes, if they are where the table now places them.
    fn find(&mut self, slice: Slice, table: &Table, memory: &MemoryLog<'_>) -> Option<Vec<u8>> {
        let mut parts = Vec::new();
        table.locate(slice.content, false, 0, u64::MAX, |extent| parts.push(extent))?;
        if parts == self.tried {
            return None;
        }
        let mut bytes = Vec::new();
        let is_read = parts.iter().all(|extent| self.read(*extent, memory, &mut bytes));
        if is_read && slice.is_of(&bytes) {
            self.tried.clear();
            return Some(bytes);
        }
        self.tried = parts;
        None
    }

    fn read(&self, extent: Extent, memory: &MemoryLog<'_>, bytes: &mut Vec<u8>) -> bool {
        if let Some(part) = memory.get(extent) {
            bytes.extend_from_slice(part);
            return true;
        }
        let Some(found) = self.segment(extent) else { return false };
        let start = bytes.len();
        bytes.resize(start + extent.len as usize, 0);
        found.file.read_at(extent.offset.into(), &mut bytes[start..]).is_ok_and(|count| count == extent.len as usize)
    }

    fn segment(&self, extent: Extent) -> Option<&HeadedSegment> {
        let found = self.survey.headed.get(&extent.generation)?;
        (u64::from(extent.offset) + u64::from(extent.len) <= found.bytes).then_some(found)
    }

    /// Why a slice was not found, for the operator.
    fn missing(&self, slice: Slice, table: &Table) -> Result<String, JournalError> {
        let mut parts = Vec::new();
        if table.locate(slice.content, false, 0, u64::MAX, |extent| parts.push(extent)).is_none() {
            return Ok("is missing".to_owned());
        }
        for extent in parts {
            let Some(found) = self.segment(extent) else {
                return Ok(format!("was in generation {}, which is missing", extent.generation));
            };
            let place = format!("{}, offset {}", found.name(), extent.offset);
            let mut bytes = vec![0; extent.len as usize];
            let count = found.file.read_at(extent.offset.into(), &mut bytes).map_err(JournalError::io(&place))?;
            if count < bytes.len() {
                return Ok(format!("is truncated in {place}"));
            }
        }
        Ok("does not match its checksum".to_owned())
    }

    fn deliver_slice(&mut self, place: Place, slice: Slice, bytes: &[u8]) -> Result<(), JournalError> {
        self.slices.push(slice.content);
        self.slices_bytes += bytes.len() as u64;
        self.deliver(place, bytes, Some(slice))
    }

    fn deliver(&mut self, place: Place, payload: &[u8], slice: Option<Slice>) -> Result<(), JournalError> {
        self.records += 1;
        let Place { slot, offset, seq, time } = place;
        let record = Record { payload, batch_seq: seq, time, slice };
        (self.replay)(record).map_err(|source| JournalError::Owner { file: segment_name(slot), offset, source })
    }
}
