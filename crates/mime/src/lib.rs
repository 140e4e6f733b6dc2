//! Parses and decodes messages: MIME structure, header fields and texts, as people see them.
//!
//! The crate does no I/O: octets go in, text and parts come out. It accepts any octets, in linear time, with memory
//! bounded by the limits in the modules. Charsets are those of `encoding_rs`. The crate mail-parser, which tests use,
//! is unsuitable for untrusted mail: it keeps whole messages and all their parts in memory and decodes each encoded
//! word separately.

pub mod charset;
mod entities;
pub mod field;
pub mod guess;
mod header;
pub mod html;
mod line_ends;
mod lines;
mod meta;
pub mod params;
mod part;
pub mod quoted;
pub mod recode;
pub mod scripts;
mod shifted;
#[cfg(test)]
mod tests;
pub mod transfer;
mod uu;
pub mod walk;
pub mod words;

pub use line_ends::with_crlf;
