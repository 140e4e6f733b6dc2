//! The server's side of an ESMTP session, without I/O and without a clock.
//!
//! The shell hands in bytes ([`ServerSession::receive`]), asks for the next [`Step`], does what it says and writes what
//! is in [`ServerSession::output`] whenever the step is [`Step::NeedInput`], [`Step::Flush`] or [`Step::Close`], so that the
//! replies to pipelined commands leave in one segment (RFC 2920), or in some of [`OUTPUT_BYTES_MAX`]: what else has come
//! waits unread, so that a client which does not take its replies stops itself.
//!
//! Promise: the steps (but `Flush`) and replies depend on the bytes alone, not on how they were cut into segments; the one
//! exception is body data sent before our 354, which is seen only where it is already here. Memory per session is bounded
//! by the configured limits and by what the shell hands in at once, whatever the client sends, and is given back when the
//! session waits; time is linear. Nothing behind a framing error is ever read as a command. A client that is not trusted
//! has [`ServerConfig::unproductive_max`] commands that bring it no nearer to a message.
//!
//! Offered: PIPELINING, SIZE (RFC 1870), 8BITMIME (RFC 6152), ENHANCEDSTATUSCODES (RFC 2034), SMTPUTF8 (RFC 6531),
//! CHUNKING (RFC 3030); to trusted clients DSN (RFC 3461): whoever else could ask for reports would choose whom we
//! write to, and what (docs/design/decisions/0004-strangers.md). Absent on purpose: STARTTLS, AUTH, PROXY, XCLIENT,
//! BINARYMIME.
//!
//! Rooms: `input` (what came and is not consumed), `command` and `params` (one line to one value), `dots` (where DATA
//! ends), `body` (octets to pieces, sizes, facts), `timer` (deadlines), `session` (the states; its comment has them all).

mod body;
mod command;
mod dots;
mod ehlo;
mod input;
mod params;
mod replies;
mod session;
mod timer;

#[cfg(test)]
mod tests;

pub use command::{MailFrom, RcptTo, fuzz_command};
pub use dots::ContentRule;
pub use params::{Body, Notify, xtext_decode};
pub use session::{OUTPUT_BYTES_MAX, ServerSession};

pub use crate::client::Ret;

use crate::headers::HeaderFacts;
use crate::reply::Reply;

/// Limits and names of a server; one value is shared by all its sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// Our name in the greeting and in replies.
    pub hostname: String,
    /// Largest message in octets, as declared by SIZE; what we put before it is not counted.
    pub size_max: u64,
    /// Longest command line in octets with its CRLF.
    pub command_bytes_max: usize,
    /// Size in octets of the pieces that a body is handed out in; the last one is smaller.
    pub piece_bytes_max: usize,
    /// Most recipients of one transaction of a client that is not trusted.
    pub recipients_max: u32,
    /// Errors in a row (without a message accepted in between) after which the session is closed.
    pub errors_max: u32,
    /// Commands of a client that is not trusted, without a message accepted in between, after which the session is
    /// closed. Not counted: recipients that are taken, as far as one message may have them, and chunks with something in them.
    pub unproductive_max: u32,
    /// Time for one command, from our reply to its line end (RFC 5321 section 4.5.3.2.7).
    pub command_timeout_ms: u64,
    /// Time for one block of a body (RFC 5321 section 4.5.3.2.5); see `timer` for what a block is.
    pub data_timeout_ms: u64,
    /// Time for the whole session. Does not cut a trusted client's open transaction.
    pub session_timeout_ms: u64,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            hostname: "localhost".to_owned(),
            size_max: 50 * 1024 * 1024,
            command_bytes_max: 2048,
            piece_bytes_max: 256 * 1024,
            recipients_max: 1_000,
            errors_max: 20,
            unproductive_max: 100,
            command_timeout_ms: 300_000,
            data_timeout_ms: 180_000,
            session_timeout_ms: 3_600_000,
        }
    }
}

/// What the shell has to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Write the output, then read.
    NeedInput,
    /// Write the output before more is added to it.
    Flush,
    /// A transaction begins: reserve what it needs, then [`ServerSession::answer`].
    Mail(MailFrom),
    /// One recipient: [`ServerSession::answer`].
    Rcpt(RcptTo),
    /// The body begins: [`ServerSession::begin_data`], or [`ServerSession::answer`] with a refusal (a `Reset` follows).
    Data,
    /// A full piece of the body (the first one begins with the prefix given to `begin_data`). Needs no answer.
    Piece(Vec<u8>),
    /// The body is complete; the transaction is the shell's now: [`ServerSession::answer`] once its fate is known.
    EndOfData(EndOfData),
    /// The open transaction was dropped: forget it. Needs no answer; the client has its reply or gets it later.
    Reset,
    /// The same, since its body is refused; so many octets of it have been looked at. The reply goes to the client at the end
    /// of the body.
    Refused { reply: Reply, size: u64 },
    /// Write the output and close. An open transaction is dropped with it.
    Close,
}

/// The end of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndOfData {
    /// What was not handed out in a [`Step::Piece`]; begins with the prefix if there was no such step.
    pub last: Vec<u8>,
    /// Octets of the message as the client means them (unstuffed), without our prefix.
    pub size: u64,
    pub facts: HeaderFacts,
}

/// A reply, and whether the session goes on behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Refusal {
    /// The session goes on.
    GoOn(Reply),
    /// Framing is lost or the client is not an SMTP client: nothing behind this is read.
    Hang(Reply),
}

impl From<Reply> for Refusal {
    fn from(reply: Reply) -> Self {
        Self::GoOn(reply)
    }
}
