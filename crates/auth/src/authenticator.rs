//! What a server has one of: the source of users, who has to wait, what was used of limits.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use stentor_mail::Ms;
use stentor_sasl::{Mechanism, Mechanisms};
use stentor_users::{FileError, FileKind, Limits, Users};

use crate::brakes::Brakes;
use crate::channel::Channel;
use crate::checks::Checks;
use crate::dovecot;
use crate::exchange::Exchange;
use crate::login::Login;
use crate::random::random;
use crate::refusal::Refusal;
use crate::refusals::Refusals;
use crate::shared::{Shared, Source};
use crate::source::{OwnUsers, WatchedFile};
use crate::usage::{Amounts, CountedUser, Counts, OverLimit};

/// Where users come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settings {
    /// A users file; `secret` is [`crate::load_secret`]'s.
    Users { path: PathBuf, secret: [u8; 32] },
    /// The socket of Dovecot's auth service, and the file with local settings for its users, which need not exist.
    Dovecot { socket: PathBuf, overrides: PathBuf },
}

/// Why there is no authenticator.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{0}")]
    Users(#[from] FileError),
}

/// Who may log in; one for the server, shared by its sessions.
#[derive(Clone)]
pub struct Authenticator {
    shared: Arc<Shared>,
}

impl Authenticator {
    /// Opens the source; a users file that cannot be used is an error, a Dovecot that is not there yet is none. Blocks for a moment;
    /// needs a runtime, which Dovecot's connection lives in until the last clone is dropped. `checks_at_once`: passwords that are
    /// checked at a time, each on a thread of its own; half of the processors is a good number. `now`: the steady time, by which guesses and
    /// limits are counted; `counts`: what was submitted before, by the same time.
    pub fn open(
        settings: &Settings,
        counts: Counts,
        checks_at_once: usize,
        now: impl Fn() -> Ms + Send + Sync + 'static,
    ) -> Result<Authenticator, OpenError> {
        let source = match settings {
            Settings::Users { path, secret } => Source::Own(OwnUsers::open(path, *secret)?),
            Settings::Dovecot { socket, overrides } => {
                let overrides = WatchedFile::open(FileKind::DovecotOverrides, overrides)?;
                Source::Dovecot(dovecot::Link::open(socket), overrides)
            }
        };
        let shared = Shared {
            source,
            brakes: Mutex::new(Brakes::new(u64::from_ne_bytes(random()))),
            checks: Checks::new(checks_at_once),
            usage: counts,
            now: Box::new(now),
            refusals: Refusals::default(),
        };
        Ok(Authenticator { shared: Arc::new(shared) })
    }

    /// What EHLO offers on a channel. Empty while Dovecot was never there. Whether AUTH is offered at all without TLS is the caller's to
    /// know; PLUS needs TLS, and ends at us: never through Dovecot.
    pub fn mechanisms(&self, channel: &Channel) -> Mechanisms {
        let scram_plus =
            |all: Mechanisms| if channel.bindings.is_empty() { all } else { all.with(Mechanism::ScramSha256Plus) };
        match &self.shared.source {
            Source::Own(_) => {
                scram_plus([Mechanism::ScramSha256, Mechanism::Plain, Mechanism::Login].into_iter().collect())
            }
            Source::Dovecot(link, _) => link.mechanisms(),
        }
    }

    /// Begins an exchange; one whose mechanism is not there is refused at its first step. `offered`: what EHLO said, which may be less
    /// than there is.
    pub fn begin(&self, mechanism: Mechanism, channel: Channel, offered: Mechanisms) -> Exchange {
        let known = self.mechanisms(&channel);
        let offered = offered.shared(known);
        if !offered.has(mechanism) {
            let is_gone = matches!(self.shared.source, Source::Dovecot(..)) && known.is_empty();
            let refusal = if is_gone { Refusal::Unavailable } else { Refusal::Mechanism };
            return Exchange::refused(self.shared.clone(), mechanism, channel, refusal);
        }
        let offers_plus = offered.has(Mechanism::ScramSha256Plus);
        Exchange::new(self.shared.clone(), mechanism, channel, offers_plus)
    }

    /// Reads the users file again if it has changed, and logs refusals that were not: to be called every second or so. Logins whose user
    /// is gone or locked end.
    pub async fn refresh(&self) {
        self.shared.refusals.log_all(self.shared.now());
        self.shared.source.file().refresh().await;
    }

    /// Why the users file as it is now is not in force; the version before is.
    pub fn file_trouble(&self) -> Option<String> {
        self.shared.source.file().trouble()
    }

    /// Why Dovecot's auth service cannot be asked; `None`: it can, or there is none.
    pub fn dovecot_trouble(&self) -> Option<String> {
        match &self.shared.source {
            Source::Own(_) => None,
            Source::Dovecot(link, _) => link.trouble(),
        }
    }

    /// Whether both are one, with the same users and counts.
    pub fn is(&self, other: &Authenticator) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Another has taken its place. Sessions that began with this one end their logins, and make none: who is locked, removed or unknown
    /// to the other one would go on by a file that nobody reads any more.
    pub fn retire(&self) {
        self.shared.source.file().retire();
    }

    /// Counts a message of the login's user, at MAIL, or says which limit is reached (452 4.5.3 or 450 4.7.1). `all`: the limits of
    /// users without limits of their own.
    pub fn take_message(&self, login: &Login, all: &Limits) -> Result<(), OverLimit> {
        self.shared.usage.lock().take_message(login.user(), &login.limits(all), self.shared.now())
    }

    /// The same of a recipient, at RCPT; when it was counted, for [`Authenticator::give_back`] if it is refused.
    pub fn take_recipient(&self, login: &Login, all: &Limits) -> Result<Ms, OverLimit> {
        let now = self.shared.now();
        self.shared.usage.lock().take_recipient(login.user(), &login.limits(all), now)?;
        Ok(now)
    }

    /// What was counted for a transaction that began at a time of the same clock and came to nothing counts no more.
    pub fn give_back(&self, login: &Login, (messages, recipients): (u32, u32), begun: Ms) {
        self.shared.usage.lock().give_back(login.user(), (messages, recipients), begun, self.shared.now());
    }

    /// Logins that were refused, by the reason in one word.
    pub fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.shared.refusals.counts()
    }

    /// Whose users they are, and those of the file as it is in force: all there are, or of Dovecot's those with local settings.
    pub fn users(&self) -> (FileKind, Arc<Users>) {
        let kind = match &self.shared.source {
            Source::Own(_) => FileKind::Own,
            Source::Dovecot(..) => FileKind::DovecotOverrides,
        };
        (kind, self.shared.source.file().users())
    }

    /// Users who have submitted something lately, or logged in by Dovecot; in no order.
    pub fn counted(&self) -> Vec<CountedUser> {
        self.shared.usage.lock().all(self.shared.now())
    }

    /// What a user has submitted in the last hour and day.
    pub fn amounts(&self, user: &Arc<str>) -> Amounts {
        self.shared.usage.lock().amounts(user, self.shared.now())
    }
}
