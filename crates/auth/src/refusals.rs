//! Refused logins: counts by reason, and log lines for reasons that anyone can cause at will.
//!
//! Promise: each wrong guess is logged, since guesses are slowed, and so is each refusal that needs the right password
//! (locked user, other identity). Any other reason is logged at most once in ten seconds ([`LogLimiter`]), with the
//! number of refusals and the last client. Memory is one row per reason.

use std::net::IpAddr;

use parking_lot::Mutex;
use stentor_mail::Ms;
use stentor_records::log_limiter::LogLimiter;
use stentor_sasl::Mechanism;

use crate::refusal::{LoginRefusal, REASONS};

/// The refused login.
pub(crate) struct RefusedLogin {
    /// One word, as in log lines.
    pub user: String,
    pub client: IpAddr,
    pub mechanism: Mechanism,
    pub refusal: LoginRefusal,
}

impl RefusedLogin {
    fn log(&self, times: Option<u64>) {
        let RefusedLogin { user, client, mechanism, refusal } = self;
        tracing::warn!(%user, %client, %mechanism, times, "login refused: {refusal}");
    }
}

#[derive(Default)]
struct Row {
    seldom: LogLimiter,
    last: Mutex<Option<RefusedLogin>>,
}

impl Row {
    fn log(&self, now: Ms) {
        if let Some(last) = &*self.last.lock()
            && let Some(times) = self.seldom.due(now)
        {
            last.log(Some(times));
        }
    }
}

/// In the order of [`REASONS`].
#[derive(Default)]
pub(crate) struct Refusals([Row; REASONS.len()]);

impl Refusals {
    pub fn refused(&self, refused: RefusedLogin, now: Ms) {
        let row = &self.0[refused.refusal.reason()];
        row.seldom.count(1);
        if refused.refusal.is_logged_each_time() {
            return refused.log(None);
        }
        *row.last.lock() = Some(refused);
        row.log(now);
    }

    /// Logs pending refusals whose last line is old enough.
    pub fn log_all(&self, now: Ms) {
        for row in &self.0 {
            row.log(now);
        }
    }

    /// Counts by reason, since this source of users was opened.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        REASONS.iter().zip(&self.0).map(|(reason, row)| (*reason, row.seldom.times()))
    }
}
