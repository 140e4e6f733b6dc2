//! Targets of aliases and virtual users in the syntax of Postfix and sendmail, senders of forwarded mail (SRS),
//! positions of addresses in header fields, and names for programs and files.
//!
//! Promise: pure. Text goes in, its meaning comes out; nothing is looked up, opened or run here, and the day is an
//! argument. Time is linear in the text.
//!
//! Failure: unparsable text is an error that quotes it, and nothing of the line is used.

mod header;
mod srs;
mod stream;
mod tag;
mod targets;

pub use header::{AddressChange, AddressRole, HEADER_ADDRESSES_MAX, HeaderAddress, addresses, header_octets, replaced};
pub use srs::{HASH_CHARS_MAX, HASH_CHARS_MIN, Srs, SrsError};
pub use stream::{HeaderStream, Split};
pub use tag::{tag, tagged, untagged};
pub use targets::{ExpansionTarget, FOLLOWED_MAX, TARGETS_MAX, TargetError, parse, parse_include};
