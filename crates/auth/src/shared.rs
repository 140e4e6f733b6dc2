//! What an authenticator and its exchanges share.

use parking_lot::Mutex;
use stentor_mail::Ms;
use tokio::time::Instant;

use crate::brakes::Brakes;
use crate::checks::Checks;
use crate::dovecot;
use crate::source::OwnUsers;
use crate::usage::Usage;

/// Where users come from, opened.
pub(crate) enum Source {
    Own(OwnUsers),
    Dovecot(dovecot::Link),
}

pub(crate) struct Shared {
    pub source: Source,
    pub brakes: Mutex<Brakes>,
    pub checks: Checks,
    pub usage: Mutex<Usage>,
    pub begun: Instant,
}

impl Shared {
    /// Steady.
    pub fn now(&self) -> Ms {
        self.begun.elapsed().as_millis() as Ms
    }
}
