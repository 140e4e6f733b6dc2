//! Append-only storage: texts in chunks of 64 KiB, fixed-size entries in chunks.
//!
//! Promise: growing allocates one chunk and copies nothing; a position is 32 bits (4 GiB in all). Each chunk counts how
//! much of it is in use. An unused chunk is freed, and the owner empties chunks that are half empty, a slice at a time
//! ([`Arena::sparse`], [`Arena::next_in`]), so that texts take at most about twice their bytes.

use crate::codec::{Reader, put_varint};

const TEXT_CHUNK_BYTES: usize = 1 << 16;
const CHUNK_SHIFT: u32 = 16;
/// A length prefix of at most two bytes: texts are shorter than 16 KiB (RFC 5321 paths have 256 octets).
const TEXT_BYTES_MAX: usize = (1 << 14) - 1;
const ENTRIES_PER_CHUNK: usize = 1 << 12;

#[derive(Debug, Default)]
struct Chunk {
    bytes: Vec<u8>,
    /// Octets of texts still in use, with their prefixes.
    live: usize,
}

/// Texts, each preceded by its length as a varint, never across chunks.
#[derive(Debug, Default)]
pub(super) struct Arena {
    chunks: Vec<Chunk>,
    /// The chunk that is being filled.
    current: usize,
    /// Freed chunks, to be filled again.
    free: Vec<u16>,
}

fn space(len: usize) -> usize {
    len + if len < 0x80 { 1 } else { 2 }
}

impl Arena {
    /// Stores `text` and returns its position; `None` if it is too long or 4 GiB are used up.
    pub fn push(&mut self, text: &str) -> Option<u32> {
        let need = space(text.len());
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        if self.chunks.get(self.current).is_none_or(|chunk| chunk.bytes.len() + need > TEXT_CHUNK_BYTES) {
            self.current = self.new_chunk()?;
        }
        let chunk = self.chunks.get_mut(self.current)?;
        let at = (self.current as u32) << CHUNK_SHIFT | chunk.bytes.len() as u32;
        put_varint(&mut chunk.bytes, text.len() as u64);
        chunk.bytes.extend_from_slice(text.as_bytes());
        chunk.live += need;
        Some(at)
    }

    fn new_chunk(&mut self) -> Option<usize> {
        let index = match self.free.pop() {
            Some(index) => usize::from(index),
            None if self.chunks.len() > u16::MAX.into() => return None,
            None => {
                self.chunks.push(Chunk::default());
                self.chunks.len() - 1
            }
        };
        self.chunks[index].bytes = Vec::with_capacity(TEXT_CHUNK_BYTES);
        Some(index)
    }

    /// The bytes at a position that `push` returned.
    #[inline]
    pub fn bytes(&self, at: u32) -> &[u8] {
        let chunk = self.chunks.get((at >> CHUNK_SHIFT) as usize);
        let tail = chunk.and_then(|c| c.bytes.get(at as usize % TEXT_CHUNK_BYTES..)).unwrap_or_default();
        Reader::new(tail).bytes().unwrap_or_default()
    }

    #[inline]
    pub fn text(&self, at: u32) -> &str {
        // Only whole strings are pushed.
        std::str::from_utf8(self.bytes(at)).unwrap_or_default()
    }

    /// Releases the text at `at`. The last text pushed gives its space back at once.
    pub fn release(&mut self, at: u32) {
        let need = space(self.bytes(at).len());
        let (index, offset) = ((at >> CHUNK_SHIFT) as usize, at as usize % TEXT_CHUNK_BYTES);
        let Some(chunk) = self.chunks.get_mut(index) else { return };
        chunk.live -= need;
        if index == self.current && chunk.bytes.len() == offset + need {
            chunk.bytes.truncate(offset);
        } else if index != self.current && chunk.live == 0 {
            self.give_back(index);
        }
    }

    fn give_back(&mut self, index: usize) {
        self.chunks[index] = Chunk::default();
        // There are at most 2^16 of them.
        self.free.push(index as u16);
    }

    /// The first chunk from `from` on that is worth emptying: half of it or less is in use.
    pub fn sparse(&self, from: usize) -> Option<usize> {
        let sparse = |(i, chunk): &(usize, &Chunk)| *i != self.current && 2 * chunk.live <= chunk.bytes.len();
        self.chunks.iter().enumerate().skip(from).filter(|(_, c)| !c.bytes.is_empty()).find(sparse).map(|(i, _)| i)
    }

    /// The text at an offset of a chunk, in use or not, its position, and the next offset.
    pub fn next_in(&self, chunk: usize, offset: usize) -> Option<(&str, u32, usize)> {
        if chunk == self.current || offset >= self.chunks.get(chunk)?.bytes.len() {
            return None;
        }
        let at = (chunk as u32) << CHUNK_SHIFT | offset as u32;
        let text = self.text(at);
        Some((text, at, offset + space(text.len())))
    }

    /// Number of bytes allocated.
    pub fn heap_bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.bytes.capacity()).sum()
    }
}

/// A vector that grows without moving its items.
#[derive(Debug)]
pub(super) struct Chunked<T> {
    chunks: Vec<Vec<T>>,
}

impl<T> Default for Chunked<T> {
    fn default() -> Self {
        Chunked { chunks: Vec::new() }
    }
}

impl<T> Chunked<T> {
    pub fn len(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * ENTRIES_PER_CHUNK + last.len())
    }

    pub fn push(&mut self, value: T) {
        if self.chunks.last().is_none_or(|chunk| chunk.len() == ENTRIES_PER_CHUNK) {
            self.chunks.push(Vec::with_capacity(ENTRIES_PER_CHUNK));
        }
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.push(value);
        }
    }

    #[inline]
    pub fn get(&self, i: usize) -> Option<&T> {
        self.chunks.get(i / ENTRIES_PER_CHUNK)?.get(i % ENTRIES_PER_CHUNK)
    }

    pub fn get_mut(&mut self, i: usize) -> Option<&mut T> {
        self.chunks.get_mut(i / ENTRIES_PER_CHUNK)?.get_mut(i % ENTRIES_PER_CHUNK)
    }

    /// Number of bytes allocated.
    pub fn heap_bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.capacity() * size_of::<T>()).sum()
    }
}
