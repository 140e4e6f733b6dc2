//! Access tokens of OAuth 2.0 (RFC 6749) for an unattended client: requests to a token endpoint, responses, the time of
//! the next request, and the tokens of all smart hosts, with their settings.
//!
//! Promise: data from an endpoint is bounded and validated: a token returned by [`TokenResponse::parse`] is printable
//! ASCII without spaces, so it cannot inject anything into a command or a file. Secrets are wiped when dropped, and
//! appear in no error and no `Debug`.
//!
//! The parts: [`TokenRequest`] and [`TokenResponse`], [`TokenKeeper`] (the states of a token), all without I/O and a
//! clock; and [`Tokens`], which accesses files and endpoints.

mod answer;
mod keeper;
mod request;
mod settings;
mod tokens;

pub use self::answer::{ANSWER_BYTES_MAX, Fault, TokenError, TokenResponse};
pub use self::keeper::{AccessToken, TokenDecision, TokenKeeper};
pub use self::request::{TokenRequest, is_token};
pub use self::settings::{Credential, OauthGrant, SecretSource, SmartHost};
pub use self::tokens::{RequestContext, Steady, Tokens};
