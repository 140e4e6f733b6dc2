//! Text of others within our own: a host's reply, an address, an operator's reason.
//!
//! Promise: commands in such text are never mistaken for hints, which are recognised by their backticks. Others'
//! backticks are marked until the hints have been completed (`hints.rs` in `stentor`); [`restored`] restores them.

use super::format;

/// Stands for a backtick that is not ours. From the private use area: if somebody sends it, only a backtick is
/// displayed.
const MARK: char = '\u{f860}';

/// Cuts text as [`format::cut`] does, and marks its backticks.
pub fn cut(text: &str, columns: usize) -> String {
    marked(&format::cut(text, columns))
}

pub fn marked(text: &str) -> String {
    text.replace('`', MARK.encode_utf8(&mut [0; 4]))
}

/// Restores marked backticks.
pub fn restored(text: &str) -> String {
    text.replace(MARK, "`")
}
