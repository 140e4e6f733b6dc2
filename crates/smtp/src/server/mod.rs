//! The server side of an ESMTP or LMTP session, without I/O and without a clock.
//!
//! The caller passes bytes to [`ServerSession::receive`], asks for the next [`Step`], performs it, and writes
//! [`ServerSession::output`] whenever the step is [`Step::NeedInput`], [`Step::Flush`] or [`Step::Close`]. So replies
//! to pipelined commands leave in one segment (RFC 2920), or in several of [`OUTPUT_BYTES_MAX`]. Further input stays
//! unread until then, so a client that does not read its replies blocks itself.
//!
//! Promise: steps (except `Flush`) and replies depend only on the bytes, not on how they were split into segments. The
//! exceptions are body data sent before our 354, and octets sent after STARTTLS, which are noticed only if they have
//! already arrived. Memory per session is bounded by the configured limits and by the size of the caller's input,
//! whatever the client sends, and is released while the session waits; time is linear. Nothing after a framing error is
//! ever read as a command. An untrusted client may send [`ServerConfig::unproductive_max`] commands that do not lead to
//! a message. Octets of an AUTH exchange are in no text of ours, and are overwritten where they were held.
//!
//! Offered: PIPELINING, SIZE (RFC 1870), 8BITMIME (RFC 6152), ENHANCEDSTATUSCODES (RFC 2034), SMTPUTF8 (RFC 6531),
//! CHUNKING (RFC 3030). DSN (RFC 3461) is only offered to trusted clients: others could use it to make us send mail of
//! their choice to anyone (docs/design/decisions/0004-strangers.md). XVERP of Postfix is only offered to them, too, if
//! [`ServerConfig::xverp`] is set. XCLIENT is only offered to configured proxies. If
//! [`Offers`] include them: STARTTLS (RFC 3207), AUTH (RFC 4954), REQUIRETLS (RFC 8689); the caller performs the
//! handshake and checks logins. Absent on purpose: BINARYMIME.
//!
//! An LMTP session (RFC 2033, [`ServerConfig::lmtp`]) begins with LHLO, and after a body the caller answers once for
//! each recipient. It offers neither CHUNKING nor DSN: a delivery agent sends no reports.
//!
//! Modules: `input` (received octets), `command` and `params` (parse one line), `dots` (where DATA ends), `body`
//! (octets to pieces, sizes, facts), `timer` (deadlines), `offers` and `sasl` (TLS and AUTH), `text` (a body from other
//! sources), `session` (the states; its documentation lists them).

mod body;
mod command;
mod dots;
mod ehlo;
mod input;
mod offers;
mod params;
mod replies;
mod sasl;
mod session;
mod text;
mod timer;
mod xclient;

#[cfg(test)]
mod tests;

pub use command::{MailFrom, RcptTo, fuzz_command};
pub use dots::ContentRule;
pub use offers::Offers;
pub use params::{Body, Notify, VerpDelimiters, xtext_decode};
pub use replies::NOT_OFFERED;
pub use sasl::{AUTH_LINE_BYTES_MAX, SecretBytes};
pub use session::{OUTPUT_BYTES_MAX, SentRefusal, ServerSession};
pub use text::TextBody;
pub use xclient::{Xclient, XclientName};

use stentor_mail::headers::HeaderFacts;
use stentor_mail::reply::Reply;

/// Limits and names of a server; shared by all its sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// Our name in the greeting and in replies.
    pub hostname: String,
    /// The domain for addresses without one, as local users write them; `None`: those are refused.
    pub origin: Option<String>,
    /// The domain for addresses without one from clients that are trusted or have logged in.
    pub trusted_origin: Option<String>,
    /// Use LMTP, not SMTP.
    pub lmtp: bool,
    /// Offer XVERP to trusted clients.
    pub xverp: bool,
    /// Largest message in octets, as declared by SIZE; fields that we add are not counted.
    pub size_max: u64,
    /// Longest command line in octets, including its CRLF.
    pub command_bytes_max: usize,
    /// Size in octets of the pieces of a body; the last one is smaller.
    pub piece_bytes_max: usize,
    /// Maximum recipients of one transaction of an untrusted client.
    pub recipients_max: u32,
    /// Consecutive errors (without an accepted message in between) that close the session.
    pub errors_max: u32,
    /// Failed attempts of AUTH that close the session, whoever the client is.
    pub auth_failures_max: u8,
    /// Commands of an untrusted client, without an accepted message in between, that close the session. Not counted:
    /// accepted recipients, up to the limit of one message, and non-empty chunks.
    pub unproductive_max: u32,
    /// Time for one command, from our reply to its line end (RFC 5321 section 4.5.3.2.7).
    pub command_timeout_ms: u64,
    /// Time for one block of a body (RFC 5321 section 4.5.3.2.5); see `timer` for what a block is.
    pub data_timeout_ms: u64,
    /// Time for the whole session. Does not interrupt a trusted client's open transaction.
    pub session_timeout_ms: u64,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            hostname: "localhost".to_owned(),
            origin: None,
            trusted_origin: None,
            lmtp: false,
            xverp: false,
            size_max: 50 * 1024 * 1024,
            command_bytes_max: 2048,
            piece_bytes_max: 256 * 1024,
            recipients_max: 1_000,
            errors_max: 20,
            auth_failures_max: 5,
            unproductive_max: 100,
            command_timeout_ms: 300_000,
            data_timeout_ms: 180_000,
            session_timeout_ms: 3_600_000,
        }
    }
}

/// What the caller must do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Write the output, then read.
    NeedInput,
    /// Write the output before more is added to it.
    Flush,
    /// A transaction begins: reserve resources, then call [`ServerSession::answer`].
    Mail(MailFrom),
    /// One recipient: call [`ServerSession::answer`].
    Rcpt(RcptTo),
    /// A proxy names its client: call [`ServerSession::become_client`], or [`ServerSession::answer`] to refuse.
    Client(Box<Xclient>),
    /// The 220 is in the output: write it, perform the handshake, then call [`ServerSession::secured`]; if it fails,
    /// close.
    StartTls,
    /// The client wants to log in, by one of the mechanisms offered (in upper case): call [`ServerSession::challenge`],
    /// or [`ServerSession::answer`], and after a 235 [`ServerSession::authenticated`].
    Auth { mechanism: Box<str>, initial: Option<SecretBytes> },
    /// The response to a challenge: answer it like [`Step::Auth`].
    AuthResponse(SecretBytes),
    /// The client has cancelled the exchange, or its line was refused: forget it. Needs no answer.
    AuthCancelled,
    /// A command unknown to SMTP, without its CRLF, after [`ServerSession::tell_unknown`]: call
    /// [`ServerSession::answer`], with this reply unless another is preferred.
    Unknown { line: Box<[u8]>, reply: Reply },
    /// The body begins: call [`ServerSession::begin_data`], or [`ServerSession::answer`] to refuse (a `Reset` follows).
    Data,
    /// A full piece of the body (the first one begins with the prefix given to `begin_data`). Needs no answer.
    Piece(Vec<u8>),
    /// The body is complete and the caller owns the transaction: call [`ServerSession::answer`] once its outcome is
    /// known; in LMTP once for each accepted recipient, in their order.
    EndOfData(EndOfData),
    /// The open transaction was dropped: forget it. Needs no answer; the client is told by another reply.
    Reset,
    /// The open transaction was dropped because its body is refused after this many octets: forget it. The client gets
    /// the reply at the end of the body.
    Refused { reply: Reply, size: u64 },
    /// Write the output and close. An open transaction is dropped with it.
    Close,
}

/// The end of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndOfData {
    /// The rest of the body, not passed out in a [`Step::Piece`]; begins with the prefix if there was no such step.
    pub last: Vec<u8>,
    /// Octets of the message as the client counts them (unstuffed), without our prefix.
    pub size: u64,
    pub facts: HeaderFacts,
}

/// A refusal, and whether the session continues after it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Refusal {
    /// The session continues.
    Continue(Reply),
    /// Framing is lost or the client does not speak SMTP: close, and read nothing after this.
    Close(Reply),
}

impl From<Reply> for Refusal {
    fn from(reply: Reply) -> Self {
        Self::Continue(reply)
    }
}
