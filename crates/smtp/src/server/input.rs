//! Octets received but not yet consumed. Consuming moves an offset, so many commands in one segment cost no moves.

use std::fmt;

use zeroize::Zeroize;

/// Consumed octets are dropped from the front once there are this many of them.
const COMPACT_BYTES: usize = 64 * 1024;
/// A larger buffer is freed or shrunk when the session waits, so that idle sessions hold little.
const IDLE_BYTES_MAX: usize = 4 * 1024;

#[derive(Default)]
pub(super) struct Input {
    bytes: Vec<u8>,
    at: usize,
}

/// Hides the octets, which may be a password.
impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} octets)", self.rest().len())
    }
}

impl Input {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.at == self.bytes.len() {
            self.bytes.clear();
            self.at = 0;
        } else if self.at >= COMPACT_BYTES && self.at * 2 >= self.bytes.len() {
            // Moves no more octets than were consumed since the last time: linear in total.
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    pub(super) fn consume(&mut self, count: usize) {
        debug_assert!(self.at + count <= self.bytes.len());
        self.at += count;
    }

    /// Consumes octets that may be a password, and overwrites them.
    pub(super) fn consume_secret(&mut self, count: usize) {
        self.bytes[self.at..self.at + count].zeroize();
        self.consume(count);
    }

    /// Drops everything unread.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Frees memory while the session waits; the rest of a command line stays.
    pub(super) fn rest_now(&mut self) {
        if self.bytes.capacity() > IDLE_BYTES_MAX && self.rest().len() <= IDLE_BYTES_MAX / 2 {
            // So small that a line which trickles in is not copied with each octet.
            *self = Self { bytes: self.rest().to_vec(), at: 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consumes_by_offset_and_compacts() {
        let mut input = Input::default();
        let mut sent = Vec::new();
        let mut got = Vec::new();
        for index in 0..50_000_u32 {
            let part = index.to_le_bytes();
            sent.extend_from_slice(&part);
            input.push(&part);
            input.push(&part[..1]);
            sent.push(part[0]);
            got.extend_from_slice(&input.rest()[..4]);
            input.consume(4);
        }
        got.extend_from_slice(input.rest());
        assert_eq!(got, sent);
        assert!(input.at < COMPACT_BYTES + 4 || input.at * 2 < input.bytes.len());
        input.consume(input.rest().len());
        input.rest_now();
        assert_eq!(input.bytes.capacity(), 0);
    }

    #[test]
    fn the_begin_of_a_line_does_not_keep_the_buffer() {
        let mut input = Input::default();
        input.push(&vec![b'x'; 64 * 1024]);
        input.consume(64 * 1024 - 3);
        input.rest_now();
        assert_eq!(input.rest(), b"xxx");
        assert!(input.bytes.capacity() <= IDLE_BYTES_MAX);
    }
}
