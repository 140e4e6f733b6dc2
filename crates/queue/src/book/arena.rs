//! Growing storage that never moves what it holds: texts in chunks of 64 KiB, and fixed-size entries in chunks.
//!
//! Promise: growth allocates one chunk and copies nothing; a text's position is 32 bits (4 GiB in all).

use crate::event::codec::{Reader, put_varint};

const TEXT_CHUNK_BYTES: usize = 1 << 16;
const CHUNK_SHIFT: u32 = 16;
/// A length prefix of at most two bytes: texts are shorter than 16 KiB (RFC 5321 paths have 256 octets).
const TEXT_BYTES_MAX: usize = (1 << 14) - 1;
const ENTRIES_PER_CHUNK: usize = 1 << 12;

/// Texts, each behind its length as a varint, never across chunks.
#[derive(Debug, Default)]
pub(super) struct Arena {
    chunks: Vec<Vec<u8>>,
}

impl Arena {
    /// Stores `text` and answers its position; `None` when it is too long or 4 GiB are used up.
    pub fn push(&mut self, text: &str) -> Option<u32> {
        let need = text.len() + 2;
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() + need > TEXT_CHUNK_BYTES) {
            if self.chunks.len() > u16::MAX.into() {
                return None;
            }
            self.chunks.push(Vec::with_capacity(TEXT_CHUNK_BYTES));
        }
        let index = self.chunks.len() - 1;
        let chunk = self.chunks.last_mut()?;
        let at = (index as u32) << CHUNK_SHIFT | chunk.len() as u32;
        put_varint(chunk, text.len() as u64);
        chunk.extend_from_slice(text.as_bytes());
        Some(at)
    }

    /// The bytes at a position that `push` gave.
    #[inline]
    pub fn bytes(&self, at: u32) -> &[u8] {
        let chunk = self.chunks.get((at >> CHUNK_SHIFT) as usize);
        let tail = chunk.and_then(|c| c.get(at as usize % TEXT_CHUNK_BYTES..)).unwrap_or_default();
        Reader::new(tail).bytes().unwrap_or_default()
    }

    #[inline]
    pub fn text(&self, at: u32) -> &str {
        // Only whole strings are pushed.
        std::str::from_utf8(self.bytes(at)).unwrap_or_default()
    }

    /// Gives the space back if the text at `at` is the last one pushed.
    pub fn pop(&mut self, at: u32) {
        let len = self.bytes(at).len();
        let prefix = if len < 0x80 { 1 } else { 2 };
        if self.chunks.len() == (at >> CHUNK_SHIFT) as usize + 1
            && let Some(chunk) = self.chunks.last_mut()
            && chunk.len() == at as usize % TEXT_CHUNK_BYTES + prefix + len
        {
            chunk.truncate(at as usize % TEXT_CHUNK_BYTES);
        }
    }
}

/// A vector that grows without moving.
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
}
