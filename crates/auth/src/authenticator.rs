//! The authenticator, one per server: source of users, delays after wrong guesses, and use of limits.

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
use crate::refusal::LoginRefusal;
use crate::refusals::Refusals;
use crate::shared::{AuthenticatorState, Source};
use crate::source::{OwnUsers, WatchedFile};
use crate::usage::{CountedUser, Counts, OverLimit, SubmissionCounts};

/// The source of users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settings {
    /// A users file; `secret` comes from [`crate::load_secret`].
    Users { path: PathBuf, secret: [u8; 32] },
    /// The socket of Dovecot's auth service, and the file with local settings for its users, which may be missing.
    Dovecot { socket: PathBuf, overrides: PathBuf },
}

/// Why the authenticator could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{0}")]
    Users(#[from] FileError),
}

/// Checks logins; one for the server, shared by its sessions.
#[derive(Clone)]
pub struct Authenticator {
    shared: Arc<AuthenticatorState>,
}

impl Authenticator {
    /// Opens the source. An unusable users file is an error; an absent Dovecot is not. Blocks for a moment; needs a
    /// runtime, in which Dovecot's connection lives until the last clone is dropped. `checks_at_once`: passwords
    /// checked at a time, each on its own thread; half of the processors is a good number. `now`: the steady time for
    /// guesses and limits. `counts`: earlier submissions, on the same clock.
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
        let shared = AuthenticatorState {
            source,
            brakes: Mutex::new(Brakes::new(u64::from_ne_bytes(random()))),
            checks: Checks::new(checks_at_once),
            usage: counts,
            now: Box::new(now),
            refusals: Refusals::default(),
        };
        Ok(Authenticator { shared: Arc::new(shared) })
    }

    /// The mechanisms to offer in EHLO on a channel. Empty until Dovecot was reached once. The caller decides whether
    /// AUTH is offered without TLS; PLUS needs TLS that ends here, so it never works through Dovecot.
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

    /// Begins an exchange; an unavailable mechanism is refused at its first step. `offered`: the mechanisms in EHLO,
    /// which may be fewer than there are.
    pub fn begin(&self, mechanism: Mechanism, channel: Channel, offered: Mechanisms) -> Exchange {
        let known = self.mechanisms(&channel);
        let offered = offered.shared(known);
        if !offered.has(mechanism) {
            let is_gone = matches!(self.shared.source, Source::Dovecot(..)) && known.is_empty();
            let refusal = if is_gone { LoginRefusal::Unavailable } else { LoginRefusal::Mechanism };
            return Exchange::refused(self.shared.clone(), mechanism, channel, refusal);
        }
        let offers_plus = offered.has(Mechanism::ScramSha256Plus);
        Exchange::new(self.shared.clone(), mechanism, channel, offers_plus)
    }

    /// Rereads the users file if it has changed, and logs pending refusals; call it about once a second. Logins whose
    /// user is gone or locked end.
    pub async fn refresh(&self) {
        self.shared.refusals.log_all(self.shared.now());
        self.shared.source.file().refresh().await;
    }

    /// Why the current users file is not in force; the previous version is.
    pub fn file_trouble(&self) -> Option<String> {
        self.shared.source.file().trouble()
    }

    /// Why Dovecot's auth service is unreachable; `None` if it works or is not used.
    pub fn dovecot_trouble(&self) -> Option<String> {
        match &self.shared.source {
            Source::Own(_) => None,
            Source::Dovecot(link, _) => link.trouble(),
        }
    }

    /// Whether both are the same, with the same users and counts.
    pub fn is(&self, other: &Authenticator) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Marks it as replaced. Sessions that began with it end their logins, and accept none: otherwise users locked,
    /// removed or unknown in the new one could continue under a file that is no longer read.
    pub fn retire(&self) {
        self.shared.source.file().retire();
    }

    /// Counts a message of the login's user, at MAIL, or returns the reached limit (452 4.5.3 or 450 4.7.1). `all`: the
    /// default limits.
    pub fn take_message(&self, login: &Login, all: &Limits) -> Result<(), OverLimit> {
        self.shared.usage.lock().take_message(login.user(), &login.limits(all), self.shared.now())
    }

    /// Counts a recipient, at RCPT, like [`Authenticator::take_message`]. Returns the time of the count, for
    /// [`Authenticator::give_back`] if the recipient is refused.
    pub fn take_recipient(&self, login: &Login, all: &Limits) -> Result<Ms, OverLimit> {
        let now = self.shared.now();
        self.shared.usage.lock().take_recipient(login.user(), &login.limits(all), now)?;
        Ok(now)
    }

    /// Removes the counts of a transaction that failed; `begun` is its start on the same clock.
    pub fn give_back(&self, login: &Login, messages: u32, recipients: u32, begun: Ms) {
        self.shared.usage.lock().give_back(login.user(), messages, recipients, begun, self.shared.now());
    }

    /// Numbers of refused logins, by the reason in one word.
    pub fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.shared.refusals.counts()
    }

    /// The source of the users, and the users of the file in force: all of ours, or Dovecot's with local settings.
    pub fn users(&self) -> (FileKind, Arc<Users>) {
        let kind = match &self.shared.source {
            Source::Own(_) => FileKind::Own,
            Source::Dovecot(..) => FileKind::DovecotOverrides,
        };
        (kind, self.shared.source.file().users())
    }

    /// Users who submitted something recently, or logged in through Dovecot; unordered.
    pub fn counted(&self) -> Vec<CountedUser> {
        self.shared.usage.lock().all(self.shared.now())
    }

    /// A user's submissions in the last hour and day.
    pub fn amounts(&self, user: &Arc<str>) -> SubmissionCounts {
        self.shared.usage.lock().amounts(user, self.shared.now())
    }
}
