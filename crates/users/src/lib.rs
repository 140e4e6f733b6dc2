//! The users file: who may log in, what is stored of the password, as whom they may send, how much, and whether they are locked.
//!
//! Promise: what is read is checked whole; an error says line, reason and what to do, and leaves the version before in force
//! ([`UsersFile`]). What is changed is changed atomically and durably, with comments and the order of lines kept ([`change`]).
//! Passwords are not in it: an argon2id hash for PLAIN and LOGIN, and the keys of SCRAM-SHA-256, neither of which lets anybody log in
//! who does not guess the password.
//!
//! Local settings for users of Dovecot are a file of the same form without passwords: locks, and what overrides Dovecot's fields.
//!
//! The parts: [`text`] (the format), [`User`] and [`SendAs`] (what it means), [`Document`] (changes to the text), [`password`] (hashes), all
//! without I/O; and `file.rs`, the only one that touches files. Random salts are arguments.

mod changes;
mod document;
mod file;
mod limits;
pub mod password;
mod send_as;
pub mod text;
mod user;

pub use changes::Changes;
pub use document::{Document, DocumentError};
pub use file::{FileError, Refreshed, UsersFile, change, replace};
pub use limits::{LIMIT_KEYS, Limit, LimitError, Limits, OwnLimits};
pub use send_as::{SendAs, SendAsError};
pub use text::{Fault, FileKind};
pub use user::{User, Users, canonical_name};
