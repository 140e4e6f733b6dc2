//! Deadlines of a session: for the command or block of data that is awaited, and for the session as a whole.
//!
//! A deadline starts when we begin to wait, and octets that trickle in do not move it: a command has its whole time from
//! our last reply to its line end. A block of data is [`BLOCK_BYTES_MIN`] octets: whoever sends fewer within the data
//! time-out is cut. For a trusted client any octet is progress, and the session's deadline waits for the end of the
//! transaction.

use super::ServerConfig;
use crate::Ms;

/// Octets of body that a client that is not trusted must send within the data time-out.
const BLOCK_BYTES_MIN: usize = 1024;

#[derive(Debug)]
pub(super) struct Timer {
    trusted: bool,
    /// When the session must end.
    session: Ms,
    /// When what we wait for must have come.
    phase: Ms,
    /// The wait begins anew at the next step: the shell was working, the client had nothing to do.
    restart: bool,
    block_bytes: usize,
}

impl Timer {
    pub(super) fn new(config: &ServerConfig, trusted: bool, now: Ms) -> Self {
        let session = now.saturating_add(config.session_timeout_ms);
        let phase = now.saturating_add(config.command_timeout_ms);
        Self { trusted, session, phase, restart: false, block_bytes: 0 }
    }

    /// A command was taken or answered: what comes next has its whole time.
    pub(super) fn restart(&mut self) {
        self.restart = true;
        self.block_bytes = 0;
    }

    /// Octets of a body came.
    pub(super) fn progress(&mut self, bytes: usize) {
        self.block_bytes += bytes;
        let wanted = if self.trusted { 1 } else { BLOCK_BYTES_MIN };
        if self.block_bytes >= wanted {
            self.restart();
        }
    }

    /// Called when the session begins to wait for input, `in_body` if that is a body's.
    pub(super) fn wait(&mut self, config: &ServerConfig, in_body: bool, now: Ms) {
        if std::mem::take(&mut self.restart) {
            let timeout_ms = if in_body { config.data_timeout_ms } else { config.command_timeout_ms };
            self.phase = now.saturating_add(timeout_ms);
        }
    }

    pub(super) fn deadline(&self, in_transaction: bool) -> Ms {
        if self.trusted && in_transaction { self.phase } else { self.phase.min(self.session) }
    }
}
