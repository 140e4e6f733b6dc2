//! The states of one access token: when it is used, when the next is requested, and how a refusal is handled.
//!
//! | state | [`TokenKeeper::wanted`] | ends by |
//! |---|---|---|
//! | none | refresh | a response, a failure |
//! | good | use | its lifetime less a margin; a refusal by its server |
//! | due: within the margin | refresh; use while that fails | a response; its expiry |
//! | refused or expired | refresh | a response, a failure |
//! | failing | wait, with the reason (use, if the token is still good) | time, [`TokenKeeper::retry`] |
//!
//! A refusal requests one new token, and further refusals within [`REPLACED_EVERY_MS`] do not: for a server that
//! refuses every token, logins use the present one at the pace of the server's retry clock, without repeated requests.
//!
//! Times are milliseconds of a monotonic clock.

use stentor_sasl::Secret;

use crate::answer::{Fault, TokenError};

/// Default lifetime if the endpoint gives none; Google and Microsoft use an hour.
const LIFE_S_DEFAULT: u64 = 3_600;
/// Minimum lifetime, since shorter ones would cause a request per login; a token that expires earlier is refused, and
/// replaced.
const LIFE_S_MIN: u64 = 60;
/// Maximum lifetime; longer ones are cut, at the cost of one request a day.
const LIFE_S_MAX: u64 = 86_400;
/// A token is replaced this long before it expires, or a tenth of its lifetime if that is shorter.
const MARGIN_MS_MAX: u64 = 300_000;
/// Minimum time between two replacements of refused tokens.
const REPLACED_EVERY_MS: u64 = 300_000;
/// First pause after a failure of the endpoint; if somebody must fix it, [`BACK_OFF_OURS_MS`]. Each further failure
/// doubles it.
const BACK_OFF_MS: u64 = 10_000;
const BACK_OFF_OURS_MS: u64 = 60_000;
const BACK_OFF_MS_MAX: u64 = 1_800_000;
/// Maximum accepted `Retry-After`.
const RETRY_AFTER_S_MAX: u64 = 3_600;

/// A token, and its generation within its keeper, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessToken {
    pub secret: Secret,
    pub generation: u64,
}

/// The next step for a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenDecision {
    Use(AccessToken),
    Refresh,
    /// Not now, with the reason.
    Wait(String),
}

/// The state of one access token.
#[derive(Debug, Default)]
pub struct TokenKeeper {
    cached: Option<CachedToken>,
    /// Number of tokens so far.
    count: u64,
    forced_at: Option<u64>,
    failing: Option<Failing>,
}

#[derive(Debug)]
struct CachedToken {
    token: AccessToken,
    renew_at: u64,
    ends_at: u64,
    is_refused: bool,
}

#[derive(Debug)]
struct Failing {
    times: u32,
    until: u64,
    why: String,
}

impl TokenKeeper {
    pub fn decision(&self, now: u64) -> TokenDecision {
        let good = self.cached.as_ref().filter(|cached| !cached.is_refused && now < cached.ends_at);
        if let Some(cached) = good.filter(|cached| now < cached.renew_at) {
            return TokenDecision::Use(cached.token.clone());
        }
        match (&self.failing, good) {
            (Some(failing), Some(cached)) if now < failing.until => TokenDecision::Use(cached.token.clone()),
            (Some(failing), None) if now < failing.until => TokenDecision::Wait(failing.why.clone()),
            _ => TokenDecision::Refresh,
        }
    }

    /// Records a token issued by the endpoint; its lifetime counts from the request, at `asked_at`.
    pub fn issued(&mut self, secret: Secret, expires_in_s: Option<u64>, asked_at: u64) -> AccessToken {
        self.count += 1;
        let token = AccessToken { secret, generation: self.count };
        let life_ms = expires_in_s.unwrap_or(LIFE_S_DEFAULT).clamp(LIFE_S_MIN, LIFE_S_MAX) * 1_000;
        let ends_at = asked_at.saturating_add(life_ms);
        let renew_at = ends_at - MARGIN_MS_MAX.min(life_ms / 10);
        self.cached = Some(CachedToken { token: token.clone(), renew_at, ends_at, is_refused: false });
        self.failing = None;
        token
    }

    /// Records that the endpoint gave no token. `chance` (0 to 1) spreads the retries of hosts that fail together.
    pub fn failed(&mut self, refusal: &TokenError, retry_after_s: Option<u64>, now: u64, chance: f64) {
        let times = self.failing.as_ref().map_or(0, |failing| failing.times);
        let first = if refusal.fault == Fault::Endpoint { BACK_OFF_MS } else { BACK_OFF_OURS_MS };
        let full = (first << times.min(16)).min(BACK_OFF_MS_MAX);
        let pause = full / 2 + (full as f64 / 2.0 * chance.clamp(0.0, 1.0)) as u64;
        let asked = retry_after_s.unwrap_or(0).min(RETRY_AFTER_S_MAX) * 1_000;
        let until = now.saturating_add(pause.max(asked));
        self.failing = Some(Failing { times: times.saturating_add(1), until, why: refusal.text.clone() });
    }

    /// Drops all state, since the grant was replaced.
    pub fn forget(&mut self) {
        *self = TokenKeeper { count: self.count, ..TokenKeeper::default() };
    }

    /// Ends the pause, since the cause may be fixed: the next login requests a token.
    pub fn retry(&mut self) {
        if let Some(failing) = &mut self.failing {
            (failing.times, failing.until) = (0, 0);
        }
    }

    /// Records that the token's server refused this one. Returns whether another login is worthwhile, since there is or
    /// will be a new token.
    pub fn refused(&mut self, generation: u64, now: u64) -> bool {
        let Some(cached) = &mut self.cached else { return false };
        if cached.token.generation != generation || cached.is_refused {
            return true;
        }
        if self.forced_at.is_some_and(|at| now < at.saturating_add(REPLACED_EVERY_MS)) {
            return false;
        }
        self.forced_at = Some(now);
        cached.is_refused = true;
        true
    }
}

#[cfg(test)]
mod tests;
