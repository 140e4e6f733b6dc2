//! Reads the history of a running or stopped server; never changes a file.
//!
//! Promise: flushed records are found. A file deleted meanwhile counts as deleted before. Damage is skipped and
//! counted. A reader has no state: each call lists the directory again, and holds one open file and one block in
//! memory. `find` decompresses only blocks whose filter holds the key.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use stentor_records::record::{Ms, Record};

use crate::block::BlockHeader;
use crate::codec::Decoder;
use crate::file::{BlockLocation, FILE_HEADER_BYTES, FileHeader, Source, Walk, list, path_of};
use crate::filter;
use crate::position::Position;

/// How much older than its file a record may be: it is written when it becomes known, not when it happened.
const LATE_MS: Ms = 3_600_000;

/// Reads a history's directory. Cheap to make and to clone.
#[derive(Clone, Debug)]
pub struct Reader {
    dir: PathBuf,
}

/// Counts of a reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScanCounts {
    /// Records passed to the caller.
    pub records: u64,
    /// Blocks decompressed, and blocks skipped because of their times or filter.
    pub blocks_read: u64,
    pub blocks_skipped: u64,
    /// Places where records are missing because octets are damaged.
    pub damaged: u64,
    /// Whether the caller stopped the reading.
    pub is_cut: bool,
}

/// Progress of a consumer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConsumerProgress {
    /// Where to continue next time.
    pub next: Position,
    /// Records deleted before this consumer reached them.
    pub lost: u64,
    /// Damaged places, as in [`ScanCounts`].
    pub damaged: u64,
    pub records: u64,
}

/// The caller's answer to a record: continue, or stop (the record counts as taken).
pub type ScanControl = ControlFlow<()>;

impl Reader {
    /// Opens a history's directory, `data_dir/history` of a server.
    ///
    /// # Errors
    /// Fails if the directory does not exist or cannot be read.
    pub fn open(dir: &Path) -> io::Result<Reader> {
        dir.read_dir()?;
        Ok(Reader { dir: dir.to_owned() })
    }

    /// Passes on every record from `from_ms` (inclusive) to `to_ms` (exclusive), in roughly chronological order (a
    /// record may come some seconds after later ones).
    pub fn scan(
        &self,
        from_ms: Ms,
        to_ms: Ms,
        f: &mut dyn FnMut(&Record<'_>) -> ScanControl,
    ) -> io::Result<ScanCounts> {
        self.read(from_ms, to_ms, &[], f)
    }

    /// Passes on every record of that period about a queue id, a Message-ID (with or without angle brackets) or a
    /// recipient; case does not matter.
    pub fn find(
        &self,
        key: &str,
        from_ms: Ms,
        to_ms: Ms,
        f: &mut dyn FnMut(&Record<'_>) -> ScanControl,
    ) -> io::Result<ScanCounts> {
        self.read(from_ms, to_ms, &[key], f)
    }

    /// Passes on every record of that period about any of several keys; no keys find no records.
    pub fn find_any(
        &self,
        keys: &[&str],
        from_ms: Ms,
        to_ms: Ms,
        f: &mut dyn FnMut(&Record<'_>) -> ScanControl,
    ) -> io::Result<ScanCounts> {
        if keys.is_empty() { Ok(ScanCounts::default()) } else { self.read(from_ms, to_ms, keys, f) }
    }

    /// Passes on every record after a position, until the end or until the caller stops, each with the position after
    /// it. If the position's file has been deleted, reading continues at the oldest record left.
    pub fn follow(
        &self,
        position: Position,
        f: &mut dyn FnMut(&Record<'_>, Position) -> ScanControl,
    ) -> io::Result<ConsumerProgress> {
        let files = list(&self.dir)?;
        let mut is_oldest = true;
        // File numbers only grow: a number above all others is from an earlier directory at this place.
        let position = if files.last().is_some_and(|last| *last < position.file) { Position::OLDEST } else { position };
        let mut progress = ConsumerProgress { next: position, ..ConsumerProgress::default() };
        for (at, file) in files.iter().enumerate() {
            if *file < position.file {
                is_oldest = false;
                continue;
            }
            let Some((source, head)) = self.open_file(*file)? else { continue };
            if *file > position.file && is_oldest && position != Position::OLDEST {
                progress.lost += head.first.saturating_sub(progress.next.record);
            }
            is_oldest = false;
            let is_last = at + 1 == files.len();
            if follow_file(source, head, is_last, &mut progress, f)?.is_break() {
                break;
            }
        }
        Ok(progress)
    }

    /// The position after all flushed records.
    pub fn end(&self) -> io::Result<Position> {
        let mut end = Position::OLDEST;
        for file in list(&self.dir)?.into_iter().rev() {
            let Some((source, head)) = self.open_file(file)? else { continue };
            end = Position { file, record: head.first, offset: FILE_HEADER_BYTES as u64 };
            let mut walk = Walk::new(source, FILE_HEADER_BYTES as u64)?;
            while let Some(found) = walk.next()? {
                end = Position { file, record: found.header.end(), offset: found.at };
            }
            break;
        }
        Ok(end)
    }

    /// When the oldest file was begun.
    pub fn oldest_ms(&self) -> io::Result<Option<Ms>> {
        for file in list(&self.dir)? {
            if let Some((_, head)) = self.open_file(file)? {
                return Ok(Some(head.created_ms));
            }
        }
        Ok(None)
    }

    fn read(
        &self,
        from_ms: Ms,
        to_ms: Ms,
        keys: &[&str],
        f: &mut dyn FnMut(&Record<'_>) -> ScanControl,
    ) -> io::Result<ScanCounts> {
        let hashes: Vec<u64> = keys.iter().map(|key| filter::hash(key)).collect();
        let mut counts = ScanCounts::default();
        let files = list(&self.dir)?;
        let mut opened = Vec::with_capacity(files.len());
        for file in files {
            if let Some((_, head)) = self.open_file(file)? {
                opened.push(head);
            }
        }
        for (at, head) in opened.iter().enumerate() {
            // A file's records were written before the next file was begun.
            let ends_before = opened.get(at + 1).is_some_and(|next| next.created_ms < from_ms);
            if ends_before || head.created_ms.saturating_sub(LATE_MS) >= to_ms {
                continue;
            }
            let Some((source, _)) = self.open_file(head.file)? else { continue };
            let mut walk = Walk::new(source, FILE_HEADER_BYTES as u64)?;
            let query = RecordQuery { from_ms, to_ms, keys, hashes: &hashes };
            let answer = read_file(&mut walk, &query, &mut counts, f)?;
            counts.damaged +=
                walk.damaged + u64::from(answer.is_continue() && at + 1 < opened.len() && walk.tail_bytes() > 0);
            if answer.is_break() {
                counts.is_cut = true;
                break;
            }
        }
        Ok(counts)
    }

    /// `None` if the file is gone, or is still empty.
    fn open_file(&self, file: u64) -> io::Result<Option<(File, FileHeader)>> {
        let source = match File::open(path_of(&self.dir, file)) {
            Ok(source) => source,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = [0; FILE_HEADER_BYTES];
        let read = source.read(0, &mut bytes)?;
        Ok(FileHeader::parse(&bytes[..read]).filter(|head| head.file == file).map(|head| (source, head)))
    }
}

struct RecordQuery<'a> {
    from_ms: Ms,
    to_ms: Ms,
    /// Any of these keys; all records if there are none.
    keys: &'a [&'a str],
    hashes: &'a [u64],
}

impl RecordQuery<'_> {
    fn takes(&self, record: &Record<'_>) -> bool {
        if self.keys.is_empty() {
            return true;
        }
        let mut found = false;
        // Hashes first: one pass over the record's keys, however many keys are wanted.
        filter::keys(record, &mut |key| found |= self.hashes.contains(&filter::hash(key)));
        found && self.keys.iter().any(|key| filter::matches(record, key))
    }
}

fn read_file<S: Source>(
    walk: &mut Walk<S>,
    query: &RecordQuery<'_>,
    counts: &mut ScanCounts,
    f: &mut dyn FnMut(&Record<'_>) -> ScanControl,
) -> io::Result<ScanControl> {
    let mut raw = Vec::new();
    while let Some(found) = walk.next()? {
        let BlockHeader { min_ms, max_ms, .. } = found.header;
        let is_wanted = max_ms >= query.from_ms
            && min_ms < query.to_ms
            && (query.hashes.is_empty() || query.hashes.iter().any(|hash| filter::may_hold(walk.filter(), *hash)));
        if !is_wanted {
            counts.blocks_skipped += 1;
            continue;
        }
        if !walk.records(&found, &mut raw)? {
            continue;
        }
        counts.blocks_read += 1;
        for record in Decoder::new(&raw) {
            let Ok(record) = record else {
                counts.damaged += 1;
                break;
            };
            let Some(record) = record else { continue };
            let at = record.at();
            if at < query.from_ms || at >= query.to_ms || !query.takes(&record) {
                continue;
            }
            counts.records += 1;
            if f(&record).is_break() {
                return Ok(ScanControl::Break(()));
            }
        }
    }
    Ok(ScanControl::Continue(()))
}

fn follow_file<S: Source>(
    source: S,
    head: FileHeader,
    is_last: bool,
    progress: &mut ConsumerProgress,
    f: &mut dyn FnMut(&Record<'_>, Position) -> ScanControl,
) -> io::Result<ScanControl> {
    let begin = FILE_HEADER_BYTES as u64;
    // A record with this number in a later file is a different one: the previous one was lost in a power cut.
    let (from, wanted) = if progress.next.file == head.file {
        (progress.next.offset.max(begin), progress.next.record)
    } else {
        (begin, 0)
    };
    let mut walk = Walk::new(source, from)?;
    let mut raw = Vec::new();
    let mut is_first = true;
    while let Some(found) = next_from(&mut walk, &mut is_first, from, wanted)? {
        if found.header.end() <= wanted {
            continue;
        }
        let mut record_no = found.header.first;
        let after = |record| Position { file: head.file, record, offset: found.at };
        if walk.records(&found, &mut raw)? {
            for record in Decoder::new(&raw) {
                let Ok(record) = record else {
                    progress.damaged += 1;
                    break;
                };
                record_no += 1;
                if record_no <= wanted {
                    continue;
                }
                progress.next = after(record_no);
                let Some(record) = record else { continue };
                progress.records += 1;
                if f(&record, progress.next).is_break() {
                    progress.damaged += walk.damaged;
                    return Ok(ScanControl::Break(()));
                }
            }
        }
        progress.next = after(found.header.end());
    }
    progress.damaged += walk.damaged + u64::from(!is_last && walk.tail_bytes() > 0);
    Ok(ScanControl::Continue(()))
}

/// The next block. If the hint for the first one is wrong, the file is read from its beginning.
fn next_from<S: Source>(
    walk: &mut Walk<S>,
    is_first: &mut bool,
    from: u64,
    wanted: u64,
) -> io::Result<Option<BlockLocation>> {
    let found = walk.next()?;
    if std::mem::take(is_first) && from > FILE_HEADER_BYTES as u64 {
        let is_right = found.as_ref().is_some_and(|found| found.at == from && found.header.first <= wanted);
        if !is_right {
            walk.rewind(FILE_HEADER_BYTES as u64);
            return walk.next();
        }
    }
    Ok(found)
}
