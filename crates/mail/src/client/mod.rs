//! Mail out: the client side of an ESMTP or LMTP session (RFC 5321, RFC 2033), without sockets and without a clock.

mod reply_parser;

pub use reply_parser::{ParsedReply, ReplyError, ReplyParser, ReplyView};
