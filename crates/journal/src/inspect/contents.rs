//! Finds the readable bytes of each content.

use std::collections::BTreeMap;

use super::{InspectedItem, Inspection, Irregularity, Item, SegmentState};
use crate::disk::Disk;
use crate::table::{Extent, Table};

/// Why a content is incomplete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingPart {
    /// Offset within the content of the first byte that cannot be read.
    pub from: u64,
    /// Known minimum length of the content in bytes.
    pub len: u64,
    pub what: String,
}

/// Contents of a store as [`super::inspect`] finds them. Any readable copy of a piece is used, even at an older place.
#[derive(Default)]
pub struct StoredContents {
    table: Table,
    /// Readable copies by content and start, with an index for the file's name.
    copies: BTreeMap<(u64, u64), Vec<Copy>>,
    files: Vec<String>,
}

#[derive(Clone, Copy)]
struct Copy {
    file: u32,
    extent: Extent,
}

impl StoredContents {
    pub fn new() -> StoredContents {
        StoredContents::default()
    }

    /// Records a log record's statement about content.
    pub fn note(&mut self, seen: &InspectedItem<'_>) {
        match seen.item {
            Item::Piece { id, start, bytes, last, .. } => {
                let (offset, len) = (seen.offset as u32, bytes.len() as u32);
                let extent = Extent { generation: seen.generation, offset, len };
                self.table.merge(id, &[(start, extent)], last);
                let file = self.file(seen.file);
                self.copies.entry((id, start)).or_default().push(Copy { file, extent });
            }
            Item::ContentSlice(slice) => {
                // A malformed slice shows when a content is needed.
                let _ = self.table.merge_slice(slice);
            }
            _ => {}
        }
    }

    fn file(&mut self, name: &str) -> u32 {
        if self.files.last().is_none_or(|last| last != name) {
            self.files.push(name.to_owned());
        }
        self.files.len() as u32 - 1
    }

    /// Ids of all contents mentioned anywhere.
    pub fn ids(&self) -> Vec<u64> {
        let mut ids = Vec::new();
        self.table.for_each_id(|id| ids.push(id));
        ids
    }

    /// Length of a complete content, or why it is incomplete.
    pub fn check(&self, id: u64) -> Result<u64, MissingPart> {
        let Some(progress) = self.table.progress(id) else {
            return Err(MissingPart { from: 0, len: 0, what: "none of its pieces is readable".to_owned() });
        };
        let mut at = 0;
        while at < progress.len {
            let Some(copy) = self.copy_at(id, at) else {
                let place = self.table.place(id, at).map_or_else(
                    || "its location is unknown".to_owned(),
                    |extent| format!("it was in generation {} at offset {}", extent.generation, extent.offset),
                );
                return Err(MissingPart { from: at, len: progress.len, what: format!("not readable; {place}") });
            };
            at += u64::from(copy.extent.len);
        }
        if progress.complete {
            return Ok(at);
        }
        Err(MissingPart { from: at, len: at, what: "its last piece is missing".to_owned() })
    }

    fn copy_at(&self, id: u64, at: u64) -> Option<Copy> {
        self.copies.get(&(id, at))?.iter().rev().find(|copy| copy.extent.len > 0).copied()
    }

    /// Passes the readable bytes of a content to `each`, in order, up to the first lost one. `Err`: an error of the
    /// disk itself.
    pub fn read(
        &self,
        disk: &dyn Disk,
        id: u64,
        each: &mut dyn FnMut(&[u8]) -> std::io::Result<()>,
    ) -> std::io::Result<u64> {
        let mut at = 0;
        let mut buffer = Vec::new();
        while let Some(copy) = self.copy_at(id, at) {
            buffer.resize(copy.extent.len as usize, 0);
            let file = disk.open(&self.files[copy.file as usize])?;
            if file.read_at(copy.extent.offset.into(), &mut buffer)? < buffer.len() {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            each(&buffer)?;
            at += buffer.len() as u64;
        }
        Ok(at)
    }

    /// Errors at the places that the table gives for contents that `keep` selects. A start refuses if a segment is
    /// missing, and otherwise delivers the bytes at that place, whatever they are. A copy elsewhere is only useful to a
    /// salvage.
    pub fn flaws(&self, found: &Inspection, keep: impl Fn(u64) -> bool) -> Vec<Irregularity> {
        let in_use = |generation: u32| {
            let with = |state| !matches!(state, SegmentState::Free | SegmentState::HeaderLost);
            found.segments.iter().find(|segment| segment.generation == generation && with(segment.state))
        };
        let mut flaws = Vec::new();
        self.table.for_each_start(|id, start, extent| {
            if extent.len == 0 || !keep(id) {
                return;
            }
            let Some(segment) = in_use(extent.generation) else {
                let what = format!("content {id} is still needed but its generation {} is missing", extent.generation);
                flaws.push(Irregularity { file: "(missing segment)".to_owned(), offset: extent.offset.into(), what });
                return;
            };
            let copies = self.copies.get(&(id, start));
            if !copies.is_some_and(|copies| copies.iter().any(|copy| copy.extent == extent)) {
                let what = format!("content {id} is still needed but invalid at this place");
                flaws.push(Irregularity { file: segment.file.clone(), offset: extent.offset.into(), what });
            }
        });
        flaws
    }

    /// Bytes of the contents that `keep` selects, by the generation in which they are stored.
    pub fn live_bytes(&self, keep: impl Fn(u64) -> bool) -> BTreeMap<u32, u64> {
        let mut live = BTreeMap::new();
        self.table.for_each(|id, extent| {
            if keep(id) {
                *live.entry(extent.generation).or_default() += u64::from(extent.len);
            }
        });
        live
    }
}
