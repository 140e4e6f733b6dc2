//! The error of a failed write, with its losses.

use std::io;

/// The error, and the number of lines lost.
pub type Lost = (io::Error, u64);

pub fn count_lines(bytes: &[u8]) -> u64 {
    bytes.split(|byte| *byte == b'\n').skip(1).count() as u64
}
