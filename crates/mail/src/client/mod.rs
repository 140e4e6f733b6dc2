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
//!   with a bare CR or LF ends the session instead of the message (RFC 5321 2.3.8), as does a NUL where it goes by DATA
//!   (RFC 3030 section 3: that is binary, and some receivers drop them), dots are stuffed (4.5.2). So whatever a receiver
//!   takes for a line end, DATA's content has no end but ours.
//! - What cannot be said to this server is left out (DSN parameters where DSN is not offered), converted (an ORCPT with
//!   UTF-8), or fails that recipient alone (an address with UTF-8 where SMTPUTF8 is not offered).
//!
//! A server may refuse what it offers: a parameter (501, 504, 555; RFC 5321 4.1.1.11), or BDAT (500 to 504). Such
//! results name what they blame, and the caller may try again without it: over the same connection, or, where content may
//! have been taken for commands, over another.
//!
//! - No reply to one transaction is taken for one to another of a host that drops commands: the first goes alone.
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

pub use caps::{Caps, Extensions};
pub use reply_parser::{LINE_BYTES_MAX, LINES_MAX, REPLY_BYTES_MAX, TEXT_BYTES_MAX};
pub use reply_parser::{ParsedReply, ReplyError, ReplyParser, ReplyView};
pub use session::ClientSession;
pub use types::{ClientConfig, ClientError, ClientEvent, RcptResult, Ret, Stage, TxRcpt, TxSpec};
