//! Deadlines of a session: for the expected command or body octets, and for the session as a whole.
//!
//! A deadline starts when we begin to wait, and a trickle of octets does not extend it: a command has a fixed time from
//! our last reply to its line end. For a trusted client any octet of a body is progress, and the session's deadline
//! waits for the end of the transaction.
//!
//! An untrusted client's body has an allowance, initially the data timeout (RFC 5321 section 4.5.3.2.5). Waiting uses
//! it up, also between chunks of BDAT; each octet restores the time it takes at [`BODY_BYTES_PER_S_MIN`], up to the
//! timeout. So a client below that rate is soon disconnected, whatever the size of the message; our own processing time
//! does not count.

use stentor_mail::Ms;

use super::ServerConfig;

/// Rate below which an untrusted client is disconnected (the default of Postfix's `smtpd_min_data_rate`).
const BODY_BYTES_PER_S_MIN: u64 = 500;
/// Time that an untrusted client has for a command, and a body's allowance, while connections or memory are short.
const HURRIED_MS: Ms = 10_000;
/// Time in which an untrusted client must read our replies.
const WRITE_TIMEOUT_MS: Ms = 60_000;

#[derive(Debug)]
pub(super) struct Timer {
    trusted: bool,
    /// When the session must end.
    session: Ms,
    /// When the input is due, and since when we have waited for it.
    phase: Ms,
    phase_since: Ms,
    /// Waiting restarts at the next step: the caller was working, and the client had nothing to do.
    restart: bool,
    /// While a body is received: when we began to wait for more of it.
    waits_since: Option<Ms>,
    /// How much longer the body may make us wait.
    allowance: Ms,
}

impl Timer {
    pub(super) fn new(config: &ServerConfig, trusted: bool, now: Ms) -> Self {
        let session = now.saturating_add(config.session_timeout_ms);
        let phase = now.saturating_add(config.command_timeout_ms);
        Self { trusted, session, phase, phase_since: now, restart: false, waits_since: None, allowance: 0 }
    }

    /// Gives the next command its full time, after a command was received or answered.
    pub(super) fn restart(&mut self) {
        self.restart = true;
    }

    /// Whether the next command has its full time.
    pub(super) fn restarts(&self) -> bool {
        self.restart
    }

    /// Restores whether the next command has its full time, after a command without effect.
    pub(super) fn keep(&mut self, restarts: bool) {
        self.restart = restarts;
    }

    /// Restarts the timer for a session that begins anew at `now`, on the same connection.
    pub(super) fn restart_at(&mut self, config: &ServerConfig, now: Ms) {
        (self.phase, self.phase_since) = (now.saturating_add(config.command_timeout_ms), now);
        self.waits_since = None;
    }

    /// Sets whether the client is trusted.
    pub(super) fn trust(&mut self, trusted: bool) {
        self.trusted = trusted;
    }

    /// Begins a body.
    pub(super) fn body(&mut self, config: &ServerConfig) {
        self.restart = true;
        self.waits_since = None;
        self.allowance = config.data_timeout_ms;
    }

    /// Notes octets of a body.
    pub(super) fn progress(&mut self, config: &ServerConfig, bytes: usize) {
        if self.trusted {
            self.restart = true;
        } else {
            let earned = (bytes as Ms).saturating_mul(1_000) / BODY_BYTES_PER_S_MIN;
            self.allowance = self.allowance.saturating_add(earned).min(config.data_timeout_ms);
        }
    }

    /// Continues the session at `now`: waiting is over.
    pub(super) fn resume(&mut self, now: Ms) {
        if let Some(since) = self.waits_since.take() {
            self.allowance = self.allowance.saturating_sub(now.saturating_sub(since));
        }
    }

    /// Called when the session starts waiting for input: octets of a body (`in_body`), or a command while a body is
    /// unfinished (`has_body`) or not.
    pub(super) fn wait(&mut self, config: &ServerConfig, in_body: bool, has_body: bool, now: Ms) {
        if std::mem::take(&mut self.restart) {
            let timeout_ms = if in_body { config.data_timeout_ms } else { config.command_timeout_ms };
            (self.phase, self.phase_since) = (now.saturating_add(timeout_ms), now);
        }
        if in_body && !self.trusted {
            (self.phase, self.phase_since) = (now.saturating_add(self.allowance), now);
        }
        self.waits_since = (has_body && !self.trusted).then_some(now);
    }

    /// Shortens an untrusted client's deadline.
    pub(super) fn hurry(&mut self) {
        if !self.trusted {
            self.allowance = self.allowance.min(HURRIED_MS);
            self.phase = self.phase.min(self.phase_since.saturating_add(HURRIED_MS));
        }
    }

    pub(super) fn deadline(&self, in_transaction: bool) -> Ms {
        if self.trusted && in_transaction {
            return self.phase;
        }
        let body = self.waits_since.map_or(Ms::MAX, |since| since.saturating_add(self.allowance));
        self.phase.min(body).min(self.session)
    }

    /// Returns when the client must have read output written from `now` on.
    pub(super) fn write_deadline(&self, config: &ServerConfig, in_transaction: bool, now: Ms) -> Ms {
        let timeout_ms = if self.trusted { config.command_timeout_ms } else { WRITE_TIMEOUT_MS };
        let until = now.saturating_add(timeout_ms);
        if self.trusted && in_transaction { until } else { until.min(self.session.max(now)) }
    }
}
