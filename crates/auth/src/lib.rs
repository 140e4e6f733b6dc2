//! Decides who may log in to send mail, as whom and how much.
//!
//! Promise: an [`Authenticator`] checks logins against the users file or has Dovecot check them. No thread of the
//! runtime ever waits for either: files and argon2 run on blocking threads with a limit, and Dovecot has timeouts.
//! Guesses use bounded memory: failures are counted by client (a /64 of IPv6) and by user in tables of a fixed size
//! ([`brakes`]), and each wrong guess beyond the first few doubles the delay of the next. Unknown users look like
//! existing ones. No octet of an exchange is logged.
//!
//! How it is used, per login:
//!
//! ```text
//! let mut exchange = authenticator.begin(mechanism, channel, offered);
//! let mut step = exchange.step(initial).await;             // AUTH's initial response, decoded, if there is one
//! while let Step::Challenge(octets) = step {               // 334 with these octets in base64
//!     step = exchange.step(Some(response)).await;          // `*` in its place: drop the exchange, 501
//! }
//! Step::Done(login)                                        // 235; keep the login with the session
//! Step::Refused(refusal)                                   // `refusal.reply()`
//! ```
//!
//! Afterwards: [`Login::owns`] before MAIL and From are accepted, [`Authenticator::take_message`] and
//! [`Authenticator::take_recipient`] for the limits, and [`Login::ended`] beside each wait of the session: it returns
//! when the user is locked, removed, or has another password. Dovecot users are locked in the file of local settings.
//!
//! Failure answers: if the users file is invalid or missing, the previous version stays in force. If Dovecot is silent
//! or gone: a temporary refusal, and a new connection as soon as possible. Too many checks at a time: a temporary
//! refusal.

mod authenticator;
pub mod brakes;
mod channel;
mod checks;
pub mod dovecot;
mod exchange;
mod idle_thread;
mod login;
mod random;
mod refusal;
mod refusals;
mod shared;
mod source;
mod thread_time;
pub mod usage;

pub use authenticator::{Authenticator, OpenError, Settings};
pub use channel::Channel;
pub use exchange::{Exchange, Step};
pub use login::Login;
pub use random::load_secret;
pub use refusal::LoginRefusal;
pub use stentor_users::Limits;
pub use usage::{CountedUser, Counts, NoCounts, OverLimit, SubmissionCounts};
