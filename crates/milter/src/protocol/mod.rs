//! The milter protocol, version 6, for mail servers, without I/O and without a clock.
//!
//! A [`MilterSession`] is one connection to a milter. The caller calls a method for each event of a client's session
//! ([`MilterSession::connect`], [`MilterSession::mail`], ...), writes [`MilterSession::output`], passes what the milter
//! sends to [`MilterSession::receive`] and asks [`MilterSession::poll`] for its answers, as long as one
//! [`MilterSession::is_owed`]. After [`MilterSession::end`], changes to the message come before the last answer.
//!
//! Promise: no octets of a milter make it panic, or hold more than one packet of [`PACKET_BYTES_MAX`]; an answer that
//! does not fit the command is an [`Error`], after which the connection cannot be used. The negotiation is respected:
//! a milter only gets the events that it wants, and a change that it did not announce is an error. No packet to a
//! milter has more than [`DATA_BYTES_MAX`] octets of data, whatever a client sends.
//!
//! The references for undocumented behaviour are sendmail 8.18 (libmilter) and Postfix 3.10. Modules: `wire`
//! (packets), `command` (commands to a milter), `options` (negotiation), `macros`, `answer` (answers of a milter),
//! `session` (the states), `header` (changes to a header, octet by octet), `settings` (a milter as configured).

mod answer;
mod command;
mod header;
mod line_ends;
mod macros;
mod options;
mod session;
mod settings;
mod wire;

pub use answer::{Change, MilterReply};
pub use header::{Editor, HEADER_BYTES_MAX, Header, HeaderError, HeaderReader};
pub use line_ends::LineEnds;
pub use macros::{MacroStage, Macros};
pub use options::{Actions, Options, Protocol};
pub use session::{ClientIdentity, Event, MilterSession};
pub use settings::{FailureKind, MilterSettings, OnFailure, Scope, ServiceAddress};
pub use wire::{CHUNK_BYTES_MAX, DATA_BYTES_MAX, Error, PACKET_BYTES_MAX};
