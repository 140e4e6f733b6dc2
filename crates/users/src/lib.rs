//! The users file: who may log in, the stored password, the addresses to send as, limits and locks.
//!
//! Promise: a file is checked as a whole when read; an error names line, reason and what to do, and leaves the previous
//! version in force ([`UsersFile`]). Changes are atomic and durable, and keep comments and the order of lines
//! ([`change`]). Passwords are not stored: only an argon2id hash for PLAIN and LOGIN, and the keys of SCRAM-SHA-256;
//! with either, an attacker still has to guess the password.
//!
//! Local settings of Dovecot users are a file of the same form without passwords: locks, and overrides of Dovecot's
//! fields.
//!
//! The parts: [`text`] (the format), [`User`] and [`SendAs`] (the values), [`Document`] (changes to the text),
//! [`password`] (hashes), all without I/O; and `file.rs`, the only one that accesses files. Random salts are arguments.

mod changes;
mod document;
mod file;
mod limits;
pub mod password;
mod send_as;
pub mod text;
mod user;

pub use changes::UserChanges;
pub use document::{Document, DocumentError};
pub use file::{FileError, UsersFile, UsersRefresh, change, replace};
pub use limits::{LIMIT_KEYS, Limit, LimitError, Limits, OwnLimits};
pub use send_as::{SendAs, SendAsError};
pub use text::{FileKind, UsersFileError};
pub use user::{User, Users, canonical_name};
