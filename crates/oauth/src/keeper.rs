//! One access token: when it is used, when the next is asked for, and what a refusal of it leads to.
//!
//! | state | [`Keeper::wanted`] | left by |
//! |---|---|---|
//! | none | refresh | an answer, a failure |
//! | good | use | its life less a margin; a refusal by the server that it is for |
//! | due: within the margin | refresh; use while that fails | an answer; its end |
//! | refused or over | refresh | an answer, a failure |
//! | failing | wait, with the reason (use, where the token is good all the same) | time, [`Keeper::retry`] |
//!
//! A refusal asks for one new token, and no other refusal does so within [`REPLACED_EVERY_MS`]: a server that refuses whatever it gets does not
//! make us ask again and again, and logs in with what there is, at the pace of its own retry clock.
//!
//! Times are milliseconds of any clock that does not go back.

use stentor_sasl::Secret;

use crate::answer::{Fault, Refusal};

/// Assumed where the endpoint names no lifetime; Google and Microsoft use an hour.
const LIFE_S_DEFAULT: u64 = 3_600;
/// Shorter lifetimes would mean a request per login; a token that has ended before is refused, and replaced.
const LIFE_S_MIN: u64 = 60;
/// Longer ones are cut: that costs one request a day.
const LIFE_S_MAX: u64 = 86_400;
/// Before its end a token is replaced this long, or a tenth of its life if that is shorter.
const MARGIN_MS_MAX: u64 = 300_000;
/// At most one replacement of a refused token in this time.
const REPLACED_EVERY_MS: u64 = 300_000;
/// First pause after a failure of the endpoint; after one that somebody has to fix: [`BACK_OFF_OURS_MS`]. Each further failure doubles it.
const BACK_OFF_MS: u64 = 10_000;
const BACK_OFF_OURS_MS: u64 = 60_000;
const BACK_OFF_MS_MAX: u64 = 1_800_000;
/// What is believed of `Retry-After`.
const RETRY_AFTER_S_MAX: u64 = 3_600;

/// A token, and which of those of its keeper it is, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub secret: Secret,
    pub generation: u64,
}

/// What is to be done for a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    Use(Token),
    Refresh,
    /// Not now, and why.
    Wait(String),
}

/// The state of one access token.
#[derive(Debug, Default)]
pub struct Keeper {
    kept: Option<Kept>,
    /// Tokens so far.
    count: u64,
    forced_at: Option<u64>,
    failing: Option<Failing>,
}

#[derive(Debug)]
struct Kept {
    token: Token,
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

impl Keeper {
    pub fn wanted(&self, now: u64) -> Wanted {
        let good = self.kept.as_ref().filter(|kept| !kept.is_refused && now < kept.ends_at);
        if let Some(kept) = good.filter(|kept| now < kept.renew_at) {
            return Wanted::Use(kept.token.clone());
        }
        match (&self.failing, good) {
            (Some(failing), Some(kept)) if now < failing.until => Wanted::Use(kept.token.clone()),
            (Some(failing), None) if now < failing.until => Wanted::Wait(failing.why.clone()),
            _ => Wanted::Refresh,
        }
    }

    /// The endpoint has issued a token; it was asked at `asked_at`, from when on its life counts.
    pub fn issued(&mut self, secret: Secret, expires_in_s: Option<u64>, asked_at: u64) -> Token {
        self.count += 1;
        let token = Token { secret, generation: self.count };
        let life_ms = expires_in_s.unwrap_or(LIFE_S_DEFAULT).clamp(LIFE_S_MIN, LIFE_S_MAX) * 1_000;
        let ends_at = asked_at.saturating_add(life_ms);
        let renew_at = ends_at - MARGIN_MS_MAX.min(life_ms / 10);
        self.kept = Some(Kept { token: token.clone(), renew_at, ends_at, is_refused: false });
        self.failing = None;
        token
    }

    /// The endpoint gave no token. `chance` (0 to 1) spreads hosts that fail together.
    pub fn failed(&mut self, refusal: &Refusal, retry_after_s: Option<u64>, now: u64, chance: f64) {
        let times = self.failing.as_ref().map_or(0, |failing| failing.times);
        let first = if refusal.fault == Fault::Endpoint { BACK_OFF_MS } else { BACK_OFF_OURS_MS };
        let full = (first << times.min(16)).min(BACK_OFF_MS_MAX);
        let pause = full / 2 + (full as f64 / 2.0 * chance.clamp(0.0, 1.0)) as u64;
        let asked = retry_after_s.unwrap_or(0).min(RETRY_AFTER_S_MAX) * 1_000;
        let until = now.saturating_add(pause.max(asked));
        self.failing = Some(Failing { times: times.saturating_add(1), until, why: refusal.text.clone() });
    }

    /// The grant is another: nothing of what was is good.
    pub fn forget(&mut self) {
        *self = Keeper { count: self.count, ..Keeper::default() };
    }

    /// What failed may have been mended: the next login asks.
    pub fn retry(&mut self) {
        if let Some(failing) = &mut self.failing {
            (failing.times, failing.until) = (0, 0);
        }
    }

    /// The server that the token is for refuses this one. Whether another login is worth it: there is another token by now, or there
    /// will be.
    pub fn refused(&mut self, generation: u64, now: u64) -> bool {
        let Some(kept) = &mut self.kept else { return false };
        if kept.token.generation != generation || kept.is_refused {
            return true;
        }
        if self.forced_at.is_some_and(|at| now < at.saturating_add(REPLACED_EVERY_MS)) {
            return false;
        }
        self.forced_at = Some(now);
        kept.is_refused = true;
        true
    }
}

#[cfg(test)]
mod tests;
