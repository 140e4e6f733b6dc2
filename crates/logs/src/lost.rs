//! What could not be written.

use std::io;

/// What went wrong, and how many lines it cost.
pub type Lost = (io::Error, u64);

pub fn count_lines(bytes: &[u8]) -> u64 {
    bytes.split(|byte| *byte == b'\n').skip(1).count() as u64
}
