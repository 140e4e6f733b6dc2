//! Octets that came and are not consumed. Consuming moves an offset, so that many commands in one segment cost no moves.

/// Consumed octets are dropped from the front once there are this many of them.
const COMPACT_BYTES: usize = 64 * 1024;
/// An empty buffer over this size is given back, so that idle sessions hold none.
const IDLE_BYTES_MAX: usize = 4 * 1024;

#[derive(Debug, Default)]
pub(super) struct Input {
    bytes: Vec<u8>,
    at: usize,
}

impl Input {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.at == self.bytes.len() {
            self.bytes.clear();
            self.at = 0;
        } else if self.at >= COMPACT_BYTES && self.at * 2 >= self.bytes.len() {
            // Moves no more octets than were consumed since the last time: linear in all.
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

    /// Drops everything: nothing of it will be read.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Gives memory back while the session waits for a command.
    pub(super) fn rest_now(&mut self) {
        if self.is_empty() && self.bytes.capacity() > IDLE_BYTES_MAX {
            self.clear();
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
}
