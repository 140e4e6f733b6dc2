//! State shared by an authenticator and its exchanges.

use parking_lot::Mutex;
use stentor_mail::Ms;

use crate::brakes::Brakes;
use crate::checks::Checks;
use crate::dovecot;
use crate::refusals::Refusals;
use crate::source::{OwnUsers, WatchedFile};
use crate::usage::Counts;

/// The opened source of users.
pub(crate) enum Source {
    Own(OwnUsers),
    /// Dovecot, and the local settings for its users.
    Dovecot(dovecot::Link, WatchedFile),
}

impl Source {
    /// The users file, or the local settings.
    pub fn file(&self) -> &WatchedFile {
        match self {
            Source::Own(users) => &users.file,
            Source::Dovecot(_, overrides) => overrides,
        }
    }
}

pub(crate) struct AuthenticatorState {
    pub source: Source,
    pub brakes: Mutex<Brakes>,
    pub checks: Checks,
    pub usage: Counts,
    pub now: Box<dyn Fn() -> Ms + Send + Sync>,
    pub refusals: Refusals,
}

impl AuthenticatorState {
    /// The steady time.
    pub fn now(&self) -> Ms {
        (self.now)()
    }
}
