//! Words of others within our own: what a host replies, an address, an operator's reason.
//!
//! Promise: no command in them is taken for one of our hints, which are told by their backticks. Until the hints are completed
//! (`stentor`'s `hints.rs`) others' backticks are marked; [`restored`] makes them what they were.

use super::format;

/// Stands for a backtick that is not ours. Of the private use area: whoever sends it as it is sees a backtick, and no more.
const MARK: char = '\u{f860}';

/// Cut as [`format::cut`] does, and marked.
pub fn cut(text: &str, columns: usize) -> String {
    marked(&format::cut(text, columns))
}

pub fn marked(text: &str) -> String {
    text.replace('`', MARK.encode_utf8(&mut [0; 4]))
}

/// With its backticks.
pub fn restored(text: &str) -> String {
    text.replace(MARK, "`")
}
