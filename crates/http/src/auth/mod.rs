//! Authentication and authorization: tokens for programs, passwords for people.
//!
//! Promise: a change is carried out only for a caller with a known name, which goes into the audit record. Programs
//! send `Authorization: Bearer TOKEN`; people log in and get a cookie that scripts cannot read and that other sites'
//! requests do not carry. A request with the cookie must also have the session's token (form field `csrf` or
//! `X-CSRF-Token`) and come from our own pages ([`super::guard`]). Reading needs no login unless `[http] reading =
//! "login"`.
//!
//! A token is 256 random bits, so its SHA-256 in the configuration reveals nothing; a password is stored as argon2id.
//! Guessing is slowed: passwords from unknown addresses are checked one at a time ([`check_queue`]), replies to wrong
//! ones are delayed, and an address with several wrong ones has to wait ([`slow`]). A user at an address with an
//! earlier login has a separate line that ignores other guesses, so guessers cannot lock the operator out. Waits and
//! sessions use the steady clock, so setting the machine's time does not affect them.
//!
//! Failure answers: 401 for an unknown caller, 403 for a known one without permission, 429 with Retry-After after wrong
//! guesses.

mod check_queue;
mod guess_delays;
mod pages;
mod sessions;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use parking_lot::Mutex;
use stentor_config::{HttpConfig, keys};
use stentor_control::{ErrorCode, Requester};
use stentor_core::clock::Clock;

use self::check_queue::{CheckQueue, CheckResult, QueueFull};
use self::guess_delays::GuessDelays;
use self::sessions::Sessions;
use super::problem;

pub use self::pages::router;
pub use self::sessions::{LoginSession, NewSession};

/// The name of the session's cookie.
pub const COOKIE: &str = "stentor_session";
/// The header in which console scripts send the session's token.
pub const CSRF_HEADER: &str = "x-csrf-token";
/// Maximum characters of a name in the log.
const LOGGED_NAME_CHARS_MAX: usize = 64;
/// Maximum octets of a password; longer ones are rejected unchecked.
const PASSWORD_BYTES_MAX: usize = 1024;
/// Maximum logins waiting for a check: from unknown addresses, from one of them, and from users' home addresses.
const STRANGERS_WAITING_MAX: usize = 32;
const OF_ADDRESS_WAITING_MAX: usize = 4;
const AT_HOME_WAITING_MAX: usize = 16;
/// Delay of the reply to a wrong password. It delays nobody else.
const WRONG_PAUSE: Duration = Duration::from_millis(300);
/// Delay of the reply to a wrong token.
const WRONG_TOKEN_PAUSE: Duration = Duration::from_millis(500);

/// Sessions and wrong guesses. Credentials are checked against the configuration in force at each request: a reload
/// that removes or changes a token or password invalidates it and its sessions.
pub struct Auth {
    sessions: Mutex<Sessions>,
    slow: Mutex<GuessDelays>,
    strangers: CheckQueue,
    at_home: CheckQueue,
}

/// How a caller proved who they are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CallerLogin {
    Token { name: Arc<str>, read_only: bool },
    Session(LoginSession),
}

/// The caller of a request. This extractor works for every request, with or without a login.
#[derive(Clone, Debug)]
pub struct Caller {
    pub address: SocketAddr,
    pub login: Option<CallerLogin>,
    /// Whether a token was sent that is not valid.
    pub(super) is_wrong: bool,
    csrf: Option<String>,
}

/// Why a login failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LoginError {
    #[error("wrong user or password")]
    Wrong,
    #[error("too many wrong passwords; try again in {0} s")]
    Slow(u64),
    #[error("no user is configured; run `stentor http-password` to create the entry for [http]")]
    NoUsers,
}

impl From<QueueFull> for LoginError {
    fn from(QueueFull: QueueFull) -> LoginError {
        LoginError::Slow(guess_delays::CROWDED_S)
    }
}

impl Default for Auth {
    fn default() -> Self {
        Auth {
            sessions: Mutex::default(),
            slow: Mutex::default(),
            strangers: CheckQueue::new(STRANGERS_WAITING_MAX, OF_ADDRESS_WAITING_MAX),
            at_home: CheckQueue::new(AT_HOME_WAITING_MAX, OF_ADDRESS_WAITING_MAX),
        }
    }
}

impl Auth {
    /// Identifies the caller of a request.
    pub fn caller(&self, config: &HttpConfig, headers: &HeaderMap, address: SocketAddr, clock: &Clock) -> Caller {
        let csrf = headers.get(CSRF_HEADER).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let mut caller = Caller { address, login: None, is_wrong: false, csrf };
        if let Some(value) = headers.get(header::AUTHORIZATION) {
            let text = value.to_str().ok().and_then(|text| text.split_once(' '));
            let bearer = text.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
            caller.login = bearer.and_then(|(_, text)| token(config, text.trim()));
            caller.is_wrong = caller.login.is_none();
        } else if let Some(id) = cookie(headers) {
            caller.login = self.sessions.lock().get(config, id, clock.steady()).map(CallerLogin::Session);
        }
        caller
    }

    /// Checks a password and opens a session; the clock is read again after the check.
    pub async fn login(
        &self,
        config: &HttpConfig,
        address: IpAddr,
        user: &str,
        password: String,
        clock: &Clock,
    ) -> Result<NewSession, LoginError> {
        // An unknown user takes as long as a known one.
        let Some(first) = config.users.first() else { return Err(LoginError::NoUsers) };
        let check_wait = || match self.slow.lock().wait_ms(address, user, clock.steady()) {
            Some(wait_ms) => Err(LoginError::Slow(wait_ms.div_ceil(1000))),
            None => Ok(()),
        };
        check_wait()?;
        let known = config.users.iter().find(|(name, _)| *name == user);
        let (name, hash) = known.unwrap_or(first);
        let (is_known, tried) = (known.is_some(), hash.clone());
        let check = async || {
            let is_right = password.len() <= PASSWORD_BYTES_MAX
                && tokio::task::spawn_blocking(move || keys::verify(&password, &tried)).await.unwrap_or(false);
            let found = is_known && is_right;
            if !found {
                self.slow.lock().wrong(address, user, clock.steady());
            }
            CheckResult { found, is_wrong: !found }
        };
        let queue = if self.slow.lock().is_at_home(address, user) { &self.at_home } else { &self.strangers };
        // Others at the same address may have guessed wrong meanwhile.
        if queue.check(address, check_wait, check).await? {
            self.slow.lock().right(address, user, clock.steady());
            tracing::info!(user, %address, "logged in");
            return Ok(self.sessions.lock().open(config, name, hash, clock.steady()));
        }
        let shown: String = user.chars().take(LOGGED_NAME_CHARS_MAX).collect();
        tracing::warn!(user = shown, %address, "login refused");
        tokio::time::sleep(WRONG_PAUSE).await;
        Err(LoginError::Wrong)
    }

    /// Ends the session that a request belongs to.
    pub fn logout(&self, headers: &HeaderMap) {
        if let Some(id) = cookie(headers) {
            self.sessions.lock().close(id);
        }
    }
}

fn token(config: &HttpConfig, text: &str) -> Option<CallerLogin> {
    let hash = keys::sha256(text.as_bytes());
    // All tokens are compared, each in constant time.
    let mut found = None;
    for token in &config.tokens {
        if keys::is_same(&token.hash, &hash) {
            found = Some(CallerLogin::Token { name: token.name.clone(), read_only: token.read_only });
        }
    }
    found
}

/// The session's id in a Cookie header (RFC 6265 section 4.2.1).
fn cookie(headers: &HeaderMap) -> Option<&str> {
    let pairs = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    pairs.flat_map(|text| text.split(';')).find_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}

impl Caller {
    /// The name for display and audit.
    pub fn name(&self) -> Option<&str> {
        match &self.login {
            Some(CallerLogin::Token { name, .. }) => Some(name),
            Some(CallerLogin::Session(session)) => Some(&session.user),
            None => None,
        }
    }

    /// The value that console forms must send as `csrf`.
    pub fn csrf(&self) -> Option<&str> {
        match &self.login {
            Some(CallerLogin::Session(session)) => Some(&session.csrf),
            _ => None,
        }
    }

    /// Whether the login may change something.
    pub fn is_operator(&self) -> bool {
        !matches!(self.login, None | Some(CallerLogin::Token { read_only: true, .. }))
    }

    /// The caller, if an operator, for pages that only operators may read. No form token is needed to read.
    pub fn operator(&self) -> Option<Requester> {
        let who = match &self.login {
            Some(CallerLogin::Token { name, read_only: false }) => format!("token={name}"),
            Some(CallerLogin::Session(session)) => format!("user={}", session.user),
            None | Some(CallerLogin::Token { read_only: true, .. }) => return None,
        };
        Some(Requester::Http { who: who.into(), address: self.address.ip() })
    }

    /// The caller of a change, if permitted; `csrf` is the form's field of that name, if it is a form.
    ///
    /// # Errors
    /// The response: 401 or 403, with advice.
    // The error is the response that is sent; boxing it saves nothing.
    #[allow(clippy::result_large_err)]
    pub fn may_change(&self, csrf: Option<&str>) -> Result<Requester, Response> {
        let refuse = |status, text: &str| Err(problem(status, ErrorCode::Forbidden, text));
        let who = match &self.login {
            None if self.is_wrong => return refuse(StatusCode::UNAUTHORIZED, "unknown token"),
            None => return refuse(StatusCode::UNAUTHORIZED, "changes need a login: a bearer token or a password"),
            Some(CallerLogin::Token { read_only: true, .. }) => {
                return refuse(StatusCode::FORBIDDEN, "the token is read-only");
            }
            Some(CallerLogin::Token { name, .. }) => format!("token={name}"),
            Some(CallerLogin::Session(session)) => {
                let sent = csrf.or(self.csrf.as_deref()).unwrap_or_default();
                if !keys::is_same(sent.as_bytes(), session.csrf.as_bytes()) {
                    return refuse(
                        StatusCode::FORBIDDEN,
                        "the form has expired or is not from this server: reload the page",
                    );
                }
                format!("user={}", session.user)
            }
        };
        Ok(Requester::Http { who: who.into(), address: self.address.ip() })
    }

    /// Delays the reply to a wrong token.
    pub(super) async fn slow_down(&self) {
        tokio::time::sleep(WRONG_TOKEN_PAUSE).await;
    }
}

/// The guard inserts the caller; without a guard (tests of single routers) nobody is logged in.
impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Caller, Infallible> {
        if let Some(caller) = parts.extensions.get::<Caller>() {
            return Ok(caller.clone());
        }
        Ok(Caller { address: address(parts), login: None, is_wrong: false, csrf: None })
    }
}

/// The client's address.
pub(super) fn address(parts: &Parts) -> SocketAddr {
    let known = parts.extensions.get::<ConnectInfo<SocketAddr>>();
    known.map_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)), |info| info.0)
}
