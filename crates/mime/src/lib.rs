//! What a message says: its structure (MIME), header fields and texts, decoded as people see them.
//!
//! Nothing here does I/O: octets go in, text and parts come out. Any octets are taken; time is linear and memory bounded by the
//! limits that the modules name. Charsets are those of `encoding_rs`. The crate mail-parser, which tests use, holds whole messages
//! and all their parts in memory and decodes each encoded word for itself, so it cannot be used where strangers send.

pub mod charset;
mod entities;
pub mod field;
pub mod guess;
mod header;
pub mod html;
mod meta;
pub mod params;
mod part;
pub mod quoted;
pub mod scripts;
mod shifted;
#[cfg(test)]
mod tests;
pub mod transfer;
mod uu;
pub mod walk;
pub mod words;
