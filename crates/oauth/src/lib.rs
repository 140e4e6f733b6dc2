//! Access tokens of OAuth 2.0 (RFC 6749) as a client that logs in by itself needs them: the request of a token endpoint, its answer,
//! when to ask for the next token, and those of all smart hosts.
//!
//! Promise: what an endpoint sends is bounded and judged: a token that comes out of [`Answer::parse`] is printable ASCII without
//! spaces, so that it can be no more than a token in a command or a file. Secrets are wiped when dropped, and in no error and no `Debug`.
//!
//! The parts: [`Request`] and [`Answer`], [`Keeper`] (the states of a token), all without I/O and a clock; and [`Tokens`], which has the files
//! and asks.

mod answer;
mod keeper;
mod request;
mod tokens;

pub use self::answer::{ANSWER_BYTES_MAX, Answer, Fault, Refusal};
pub use self::keeper::{Keeper, Token, Wanted};
pub use self::request::{Request, is_token};
pub use self::tokens::{RequestContext, Steady, Tokens};
