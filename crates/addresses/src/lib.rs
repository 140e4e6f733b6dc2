//! What aliases and virtual users stand for, as the tables of Postfix and sendmail write it, senders of
//! forwarded mail (SRS), where addresses stand in header fields, and names for programs and files.
//!
//! Promise: pure. Text goes in, what it names comes out; nothing is looked up, opened or run here, and the day is an argument. Time is linear in the text.
//!
//! Failure: what cannot be parsed is an error with the text that is wrong, and nothing of the line is used.

mod header;
mod srs;
mod stream;
mod tag;
mod targets;

pub use header::{HEADER_ADDRESSES_MAX, HeaderAddress, Role, addresses, header_octets, replaced};
pub use srs::{HASH_CHARS_MAX, HASH_CHARS_MIN, Srs, SrsError};
pub use stream::{HeaderStream, Split};
pub use tag::{tag, tagged, untagged};
pub use targets::{FOLLOWED_MAX, TARGETS_MAX, Target, TargetError, parse, parse_include};
