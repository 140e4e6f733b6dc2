//! One file of the history: a header, then block after block.
//!
//! A walk finds the blocks even after damage: if there is no valid header, it searches for the next one and counts the
//! gap. Octets after the last valid block are the tail: torn, or just being written.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use stentor_records::record::Ms;
use xxhash_rust::xxh3::xxh3_64;

use crate::block::{BlockHeader, HEADER_BYTES, MAGIC};

/// Size of a file's header in octets.
pub const FILE_HEADER_BYTES: usize = 64;
const FILE_MAGIC: [u8; 8] = *b"STNHIST\x01";
const EXTENSION: &str = "history";
/// Minimum size of a read, since a filter follows its header.
const WINDOW_BYTES: usize = 16 * 1024;

/// The header of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileHeader {
    /// The file's number, as in its name.
    pub file: u64,
    /// Number of the file's first record, counted over all files.
    pub first: u64,
    pub created_ms: Ms,
}

impl FileHeader {
    pub fn bytes(&self) -> [u8; FILE_HEADER_BYTES] {
        let mut bytes = [0; FILE_HEADER_BYTES];
        bytes[..8].copy_from_slice(&FILE_MAGIC);
        for (at, number) in [self.file, self.first, self.created_ms].into_iter().enumerate() {
            bytes[8 + 8 * at..16 + 8 * at].copy_from_slice(&number.to_le_bytes());
        }
        let hash = xxh3_64(&bytes[..56]);
        bytes[56..].copy_from_slice(&hash.to_le_bytes());
        bytes
    }

    pub fn parse(bytes: &[u8]) -> Option<FileHeader> {
        let bytes: &[u8; FILE_HEADER_BYTES] = bytes.get(..FILE_HEADER_BYTES)?.try_into().ok()?;
        let number = |at: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(number)
        };
        let is_sound = bytes[..8] == FILE_MAGIC && xxh3_64(&bytes[..56]) == number(56);
        is_sound.then(|| FileHeader { file: number(8), first: number(16), created_ms: number(24) })
    }
}

/// Path of the file with this number.
pub fn path_of(dir: &Path, file: u64) -> PathBuf {
    dir.join(format!("{file:010}.{EXTENSION}"))
}

/// Numbers of the existing files, oldest first.
pub fn list(dir: &Path) -> io::Result<Vec<u64>> {
    let mut files = Vec::new();
    for entry in dir.read_dir()? {
        let path = PathBuf::from(entry?.file_name());
        if path.extension().is_some_and(|extension| extension == EXTENSION)
            && let Some(number) = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok())
        {
            files.push(number);
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// A source that can be read at any offset.
pub trait Source {
    fn size(&self) -> io::Result<u64>;
    /// Reads octets; fewer than requested only at the end.
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<usize>;
}

impl Source for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match self.read_at(&mut into[done..], at + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

impl Source for &[u8] {
    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let from = usize::try_from(at).unwrap_or(usize::MAX).min(self.len());
        let taken = into.len().min(self.len() - from);
        into[..taken].copy_from_slice(&self[from..from + taken]);
        Ok(taken)
    }
}

/// Walks from block to block.
pub struct Walk<S> {
    source: S,
    size: u64,
    /// Where the next header should be.
    at: u64,
    window: Vec<u8>,
    window_at: u64,
    filter: Vec<u8>,
    stored: Vec<u8>,
    /// Number of gaps with blocks after them, and of blocks with damaged records.
    pub damaged: u64,
}

/// A sound header and its position.
#[derive(Clone, Copy, Debug)]
pub struct BlockLocation {
    pub header: BlockHeader,
    pub at: u64,
}

impl<S: Source> Walk<S> {
    /// Starts a walk at `at`, which is a block's position or [`FILE_HEADER_BYTES`].
    pub fn new(source: S, at: u64) -> io::Result<Walk<S>> {
        let size = source.size()?;
        let (window, filter, stored) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Walk { source, size, at: at.min(size), window, window_at: 0, filter, stored, damaged: 0 })
    }

    /// Restarts at a position, with the counts cleared.
    pub fn rewind(&mut self, at: u64) {
        self.at = at;
        self.damaged = 0;
    }

    /// End of the last sound block found; after the last one the tail begins.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Octets after the last sound block, once [`Walk::next`] has found no more.
    pub fn tail_bytes(&self) -> u64 {
        self.size.saturating_sub(self.at)
    }

    /// The next block; its filter is in [`Walk::filter`].
    pub fn next(&mut self) -> io::Result<Option<BlockLocation>> {
        if let Some(header) = self.header_at(self.at)? {
            return Ok(Some(self.step(header)));
        }
        let mut from = self.at + 1;
        while let Some(candidate) = self.search(from)? {
            if let Some(header) = self.header_at(candidate)? {
                self.damaged += 1;
                self.at = candidate;
                return Ok(Some(self.step(header)));
            }
            from = candidate + 1;
        }
        Ok(None)
    }

    fn step(&mut self, header: BlockHeader) -> BlockLocation {
        let at = self.at;
        self.at += header.bytes();
        BlockLocation { header, at }
    }

    pub fn filter(&self) -> &[u8] {
        &self.filter
    }

    /// Reads the block's encoded records. Returns false if they are damaged, which is counted.
    pub fn records(&mut self, found: &BlockLocation, raw: &mut Vec<u8>) -> io::Result<bool> {
        let header = &found.header;
        self.stored.resize(header.stored_bytes as usize, 0);
        let at = found.at + HEADER_BYTES as u64 + u64::from(header.filter_bytes);
        let read = self.source.read(at, &mut self.stored)?;
        let is_sound = read == self.stored.len() && header.unpack(&self.stored, raw);
        self.damaged += u64::from(!is_sound);
        Ok(is_sound)
    }

    /// A sound header at `at` whose block is complete.
    fn header_at(&mut self, at: u64) -> io::Result<Option<BlockHeader>> {
        let Some(bytes) = self.bytes(at, HEADER_BYTES)? else { return Ok(None) };
        let mut head = [0; HEADER_BYTES];
        head.copy_from_slice(bytes);
        let Some(header) = BlockHeader::parse(&head) else { return Ok(None) };
        if at.checked_add(header.bytes()).is_none_or(|end| end > self.size) {
            return Ok(None);
        }
        let mut filter = std::mem::take(&mut self.filter);
        filter.clear();
        if let Some(bytes) = self.bytes(at + HEADER_BYTES as u64, header.filter_bytes as usize)? {
            filter.extend_from_slice(bytes);
        }
        self.filter = filter;
        Ok(header.check(&head, &self.filter).then_some(header))
    }

    /// Position of the next octets that could begin a block.
    fn search(&mut self, mut from: u64) -> io::Result<Option<u64>> {
        while from + HEADER_BYTES as u64 <= self.size {
            let len = (self.size - from).min(WINDOW_BYTES as u64) as usize;
            let Some(bytes) = self.bytes(from, len)? else { return Ok(None) };
            if let Some(found) = bytes.windows(MAGIC.len()).position(|four| four == MAGIC) {
                return Ok(Some(from + found as u64));
            }
            // The last three octets may begin a header.
            from += (len - (MAGIC.len() - 1)) as u64;
        }
        Ok(None)
    }

    /// Octets of the file; `None` if it ends before that.
    fn bytes(&mut self, at: u64, len: usize) -> io::Result<Option<&[u8]>> {
        let end = at.saturating_add(len as u64);
        if end > self.size {
            return Ok(None);
        }
        if at < self.window_at || end > self.window_at + self.window.len() as u64 {
            self.window.resize(len.max(WINDOW_BYTES), 0);
            let read = self.source.read(at, &mut self.window)?;
            self.window.truncate(read);
            self.window_at = at;
        }
        let from = (at - self.window_at) as usize;
        Ok(self.window.get(from..from + len))
    }
}
