//! The generator's data: distinguishable blocks. Each 4096 octets begin with key, sequence number and place; the rest
//! is seeded noise, so that no layer compresses or deduplicates it.

/// Octets that carry a head of their own.
const CHUNK: usize = 4096;
/// Key, sequence number and chunk.
const HEAD: usize = 24;
/// What `O_DIRECT` wants of memory, on any device.
const ALIGN: usize = 4096;

/// Memory that is aligned for direct I/O.
#[derive(Debug)]
pub struct Block {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Block {
    pub fn new(len: usize) -> Block {
        let bytes = vec![0; len + ALIGN];
        // The vector never grows, so it stays where it is.
        let start = bytes.as_ptr().align_offset(ALIGN).min(ALIGN);
        Block { bytes, start, len }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }

    pub fn fill(&mut self, key: u64, sequence: u64) {
        for (chunk, part) in self.bytes_mut().chunks_mut(CHUNK).enumerate() {
            fill(part, key, sequence, chunk as u64);
        }
    }

    /// Whether it holds what was written with this key and number; else what it begins with.
    pub fn check(&self, key: u64, sequence: u64) -> Result<(), String> {
        let mut expected = [0; CHUNK];
        for (chunk, part) in self.bytes().chunks(CHUNK).enumerate() {
            let expected = &mut expected[..part.len()];
            fill(expected, key, sequence, chunk as u64);
            if expected != part {
                let word = |at: usize| part.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
                return Err(format!(
                    "block {sequence} of key {key:x}, chunk {chunk}: found key {:x}, block {}, chunk {}",
                    word(0).unwrap_or(0),
                    word(8).unwrap_or(0),
                    word(16).unwrap_or(0)
                ));
            }
        }
        Ok(())
    }
}

fn fill(part: &mut [u8], key: u64, sequence: u64, chunk: u64) {
    let mut head = [0; HEAD];
    for (at, number) in [key, sequence, chunk].into_iter().enumerate() {
        head[at * 8..at * 8 + 8].copy_from_slice(&number.to_le_bytes());
    }
    let head_len = HEAD.min(part.len());
    part[..head_len].copy_from_slice(&head[..head_len]);
    // Each with a noise of its own.
    let seed = key ^ sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ chunk.rotate_left(40);
    fastrand::Rng::with_seed(seed).fill(&mut part[head_len..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_told_apart_and_aligned() {
        for len in [32, 512, 4096, 10_000] {
            let mut block = Block::new(len);
            block.fill(7, 3);
            assert_eq!(block.bytes().as_ptr().align_offset(ALIGN), 0);
            assert_eq!((block.bytes().len(), block.check(7, 3)), (len, Ok(())));
            assert!(block.check(7, 4).is_err() && block.check(8, 3).is_err());
            let last = len - 1;
            block.bytes_mut()[last] ^= 1;
            assert!(block.check(7, 3).unwrap_err().contains("block 3 of key 7"));
        }
    }
}
