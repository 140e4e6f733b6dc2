//! Look-up tables as Postfix and sendmail have them: one seam, [`Table::get`], wherever a key is looked up.
//!
//! Promise: a table gives what `postmap -q` gives for the same file and key (docs/operate/tables.md lists what differs), in
//! time that does not depend on the key's author: regular expressions are linear, everything else is a hash or a search
//! in a tree. Nothing here touches files, sockets or clocks: [`Reference::parse`] says which files a name like
//! `hash:/etc/postfix/access` stands for, [`load`] gets their bytes from its caller, [`socketmap`] encodes and decodes.
//!
//! A look-up ends as [`Answer::Found`], [`Answer::NotFound`] or [`Answer::Tempfail`]. Loading ends with a table and
//! warnings, or with errors, each with file, line and what to do; a caller that has a table already keeps it then
//! ([`Slot`]). [`candidates`] has the partial keys that each owner of a table asks for (access(5), mailertable, ...).
//!
//! | file | is |
//! |---|---|
//! | `reference.rs` | `type:name` to what it stands for |
//! | `load.rs`, `read.rs`, `table.rs`, `slot.rs` | bytes to a table; look-ups; a table that is replaced whole |
//! | `keyed.rs`, `text/` | key and value in one arena; the readers of text |
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

pub use diagnostic::{Diagnostic, Problem, Report, Severity};
pub use load::{Loaded, load};
pub use read::{Content, ReadError, Wanted};
pub use reference::{Endpoint, Format, Reference, ReferenceError};
pub use slot::Slot;
pub use table::{Answer, Scratch, Table};
pub use text::alias_targets::{Included, NotIncluded};
pub use text::aliases::{all as all_aliases, find as find_alias};

/// A table's file is not read beyond this.
pub const FILE_BYTES_MAX: usize = 2 << 30;
/// A file that an alias file includes.
pub const INCLUDE_BYTES_MAX: usize = 16 << 20;
/// All files that an alias file includes, each counted once for each user who names it.
pub const INCLUDES_BYTES_MAX: usize = 64 << 20;
/// Their targets.
pub const INCLUDED_TARGETS_MAX: usize = 1_000_000;
/// A logical line, with all its continuations.
pub const LINE_BYTES_MAX: usize = 1 << 20;
/// Entries or rules of one table.
pub const ENTRIES_MAX: usize = 50_000_000;
/// Patterns of one regexp or pcre table.
pub const PATTERNS_MAX: usize = 20_000;
