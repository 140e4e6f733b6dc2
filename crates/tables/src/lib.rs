//! Lookup tables of Postfix and sendmail, behind one interface: [`Table::get`].
//!
//! Promise: a table returns what `postmap -q` returns for the same file and key (docs/operate/tables.md lists the
//! differences). The author of a key cannot make a lookup slow: regular expressions take linear time, everything else
//! uses a hash or a tree. This crate does not access files, sockets or clocks: [`Reference::parse`] parses names like
//! `hash:/etc/postfix/access`, [`load`] gets the files' bytes from its caller, [`socketmap`] encodes and decodes.
//!
//! A lookup ends as [`TableResult::Found`], [`TableResult::NotFound`] or [`TableResult::Tempfail`]. Loading ends with a
//! table and warnings, or with errors, each with file, line and remedy; a caller that already has a table then keeps it
//! ([`Slot`]). [`candidates`] makes the partial keys that each kind of table needs (access(5), mailertable, ...).
//!
//! | file | contents |
//! |---|---|
//! | `reference.rs` | parser of `type:name` |
//! | `load.rs`, `read.rs`, `table.rs`, `slot.rs` | loading from bytes; lookups; a replaceable table |
//! | `keyed.rs`, `text/` | keys and values in one arena; readers of text files |
//! | `cdb.rs`, `lmdb.rs` | databases, read as files |
//! | `patterns/` | regexp and pcre |
//! | `cidr.rs` | networks |
//! | `candidates/`, `expand.rs` | partial keys; `%1` in sendmail's values |

pub mod candidates;
mod cdb;
mod cidr;
pub mod diagnostic;
pub mod expand;
mod fold;
mod keyed;
mod lmdb;
mod load;
mod patterns;
pub mod policy_service;
mod read;
mod reference;
mod rule_lines;
mod slot;
pub mod socketmap;
mod table;
mod text;

pub use diagnostic::{Diagnostic, LoadReport, Severity, TableProblem};
pub use load::{LoadedTable, load};
pub use read::{FileContent, FileRequest, ReadError};
pub use reference::{Format, Reference, ReferenceError, SocketmapAddress};
pub use slot::Slot;
pub use table::{Scratch, Table, TableResult};
pub use text::alias_targets::{IncludeError, Included};
pub use text::aliases::{all as all_aliases, find as find_alias};

/// Maximum size of a table's file.
pub const FILE_BYTES_MAX: usize = 2 << 30;
/// Maximum size of a file included by an alias file.
pub const INCLUDE_BYTES_MAX: usize = 16 << 20;
/// Maximum total size of the files included by an alias file, each counted once per user who includes it.
pub const INCLUDES_BYTES_MAX: usize = 64 << 20;
/// Maximum targets in these files.
pub const INCLUDED_TARGETS_MAX: usize = 1_000_000;
/// Maximum length of a logical line, with all its continuations.
pub const LINE_BYTES_MAX: usize = 1 << 20;
/// Maximum entries or rules of one table.
pub const ENTRIES_MAX: usize = 50_000_000;
/// Maximum patterns of one regexp or pcre table.
pub const PATTERNS_MAX: usize = 20_000;
