//! The journal's part in tests of replay: slices that checkpoints refer to.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::ContentId;
use crate::slices::{SliceRef, Slices};

/// A record, or a reference to a slice.
#[derive(Debug, Clone)]
pub enum LogEntry {
    Record(Vec<u8>),
    Slice { checkpoint: u64, slice: SliceRef },
}

/// The journal's part: slices exist as long as a complete checkpoint, or the current one, refers to them.
#[derive(Debug, Default)]
pub struct KeptJournal {
    pub contents: BTreeMap<u64, Vec<u8>>,
    durable: BTreeSet<u64>,
    named: BTreeSet<u64>,
    /// Number of the current checkpoint, and of the last complete one.
    pub number: u64,
    pub complete: u64,
    pub last_content: u64,
    /// How often a slice was kept again, and how often it could not be.
    pub again: u64,
    pub gone: u64,
}

impl KeptJournal {
    pub fn give_up(&mut self) {
        self.named.clear();
        self.contents.retain(|id, _| self.durable.contains(id));
    }

    pub fn complete(&mut self) {
        self.complete = self.number;
        self.durable = std::mem::take(&mut self.named);
        self.contents.retain(|id, _| self.durable.contains(id));
    }
}

/// One part of a checkpoint step.
pub struct Part<'a> {
    pub batch: &'a mut Vec<LogEntry>,
    pub kept: &'a mut KeptJournal,
    pub is_full: bool,
}

impl Part<'_> {
    fn name(&mut self, slice: SliceRef) {
        self.kept.named.insert(slice.content.0);
        self.batch.push(LogEntry::Slice { checkpoint: self.kept.number, slice });
        self.is_full = true;
    }
}

impl Slices for Part<'_> {
    fn record(&mut self, record: &[u8]) {
        self.batch.push(LogEntry::Record(record.to_vec()));
        self.is_full = true;
    }

    fn write(&mut self, record: &[u8]) -> Option<SliceRef> {
        self.kept.last_content += 1;
        let slice = SliceRef { content: ContentId(self.kept.last_content), checksum: record.len() as u64 };
        self.kept.contents.insert(slice.content.0, record.to_vec());
        self.name(slice);
        Some(slice)
    }

    fn keep(&mut self, slice: SliceRef) -> bool {
        let is_there = self.kept.contents.contains_key(&slice.content.0);
        if is_there {
            self.name(slice);
        }
        *(if is_there { &mut self.kept.again } else { &mut self.kept.gone }) += 1;
        is_there
    }

    fn is_full(&self, _: usize) -> bool {
        self.is_full
    }
}
