//! Mail out: the client side of an ESMTP or LMTP session (RFC 5321, RFC 2033), without sockets and without a clock.
//!
//! The caller moves bytes: what came from the socket goes to [`ClientSession::receive`], what is in
//! [`ClientSession::output`] goes to the socket, and `now` comes with every call. It must go on reading while it
//! writes: a server that answers a thousand pipelined recipients stops reading once its answers are not taken.
//!
//! ```text
//! Greeting -> Ehlo (-> Helo) -> Ready <-> transactions -> Quitting -> Closed
//!
//! transaction:  MAIL, RCPT... --+-- BDAT n LAST + content          small content, CHUNKING and PIPELINING offered
//!                               +-- (replies) BDAT n LAST + content  CHUNKING, large content or no PIPELINING
//!                               +-- DATA, 354, content, "."        otherwise (DATA pipelined if it may be)
//! ```
//!
//! Promises:
//! - One [`ClientEvent::Done`] for every transaction begun, with one result per recipient in the order given; and one
//!   [`ClientEvent::Closed`] at the end of the session, after all of them.
//! - A recipient counts as delivered only if it was accepted at RCPT and the reply to the content was 2xx. If the
//!   content had gone out whole when the connection was lost, its results are [`Stage::AfterDot`]: perhaps delivered.
//! - No byte goes out that could be read as another command or line end: addresses and parameters are checked, content
//!   with a bare CR or LF ends the session instead of the message (RFC 5321 2.3.8), dots are stuffed (4.5.2).
//!
//! Failure answers: 421 at any point, a reply over the limits, a reply to nothing, or a code that has no meaning where
//! it came: all open transactions get results, then `Closed` with the error. The socket is then closed by the caller.

mod body;
mod caps;
mod command;
mod reply_parser;
mod session;
#[cfg(test)]
mod tests;
mod transaction;
mod types;

pub use caps::Caps;
pub use reply_parser::{LINE_BYTES_MAX, LINES_MAX, REPLY_BYTES_MAX, TEXT_BYTES_MAX};
pub use reply_parser::{ParsedReply, ReplyError, ReplyParser, ReplyView};
pub use session::ClientSession;
pub use types::{ClientConfig, ClientError, ClientEvent, RcptResult, Ret, Stage, TxRcpt, TxSpec};
