//! Outgoing mail: the client side of an ESMTP or LMTP session (RFC 5321, RFC 2033), without sockets and without a
//! clock.
//!
//! The caller moves bytes: input from the socket goes to [`ClientSession::receive`], [`ClientSession::output`] goes to
//! the socket, and every call is passed `now`. The caller must keep reading while it writes: a server that replies to a
//! thousand pipelined recipients stops reading if its replies are not read.
//!
//! ```text
//! Greeting -> Ehlo (-> Helo) (-> Securing -> Ehlo) (-> Authenticating) -> Ready <-> transactions -> Quitting -> Closed
//!
//! transaction:  MAIL, RCPT... --+-- BDAT n LAST + content          small content, CHUNKING and PIPELINING offered
//!                               +-- (replies) BDAT n LAST + content  CHUNKING, large content or no PIPELINING
//!                               +-- DATA, 354, content, "."        otherwise (DATA pipelined if it may be)
//! ```
//!
//! Promises:
//! - There is one [`ClientEvent::Done`] for every transaction begun, with one result per recipient in the order given;
//!   and one [`ClientEvent::Closed`] at the end of the session, after all of them.
//! - A recipient counts as delivered only if it was accepted at RCPT and the reply to the content was 2xx. If the
//!   connection was lost after all of the content was sent, its results are [`RcptStage::AfterDot`]: perhaps delivered.
//! - No byte is sent that could be read as another command or line end: addresses and parameters are checked, dots are
//!   stuffed (4.5.2), and content with a bare CR or LF ends the session instead of the message (RFC 5321 2.3.8), as
//!   does a NUL sent by DATA (RFC 3030 section 3: that is binary, and some receivers drop NULs). So whatever a receiver
//!   takes for a line end, DATA's content ends only where we end it.
//! - Replies are never matched to the wrong transaction, even if the host drops commands: the first transaction goes
//!   alone.
//! - Features that this server lacks are left out (DSN parameters without DSN), converted (an ORCPT with UTF-8), or
//!   fail only that recipient (an address with UTF-8 without SMTPUTF8).
//!
//! [`ClientSession::verify`] asks whether a recipient would be accepted: a transaction of MAIL and RCPT without
//! content.
//!
//! A server may refuse an extension that it offers: a parameter (501, 504, 555; RFC 5321 4.1.1.11), or BDAT (500 to
//! 504). Such results name the extension to blame, and the caller may retry without it: over the same connection, or
//! over another if content may have been read as commands.
//!
//! TLS (RFC 3207), as [`TlsUse`] requires it: after the 220 to STARTTLS comes [`ClientEvent::StartTls`]. The caller
//! performs the handshake, calls [`ClientSession::secured`], and moves bytes within TLS from then on. EHLO is sent
//! again, and nothing received in clear is kept. Octets after the 220 end the session (CVE-2021-38371); after a failed
//! handshake nothing more is sent. If TLS is optional and not offered or refused, the session continues in clear and
//! reports why ([`ClientEvent::Unsecured`]).
//!
//! AUTH (RFC 4954), if the caller requests it: [`ClientEvent::Authenticate`] has the offered mechanisms, and the caller
//! runs one. Its octets, in both directions, are in no error and no `Debug`; code that shows sessions must check
//! [`ClientSession::in_auth`].
//!
//! Failure: 421 at any point, a reply over the limits, an unsolicited reply, or a code without meaning at its place.
//! All open transactions then get results, followed by `Closed` with the error. The caller then closes the socket.

mod body;
mod caps;
mod command;
mod mechanisms;
mod reply_parser;
mod session;
#[cfg(test)]
mod tests;
mod transaction;
mod types;

pub use caps::{Caps, Extensions};
pub use mechanisms::OfferedMechanisms;
pub use reply_parser::{LINE_BYTES_MAX, LINES_MAX, REPLY_BYTES_MAX, TEXT_BYTES_MAX};
pub use reply_parser::{ParsedReply, ReplyError, ReplyParser, ReplyView};
pub use session::ClientSession;
pub use types::{
    AuthRefusal, ClientConfig, ClientError, ClientEvent, RcptResult, RcptStage, SaslOctets, StartTlsRefusal, TlsStage,
    TlsUse, TxRcpt, TxSpec,
};
