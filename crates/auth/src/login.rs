//! The login of a session.

use std::sync::Arc;

use stentor_mail::address::{Address, ReversePath};
use stentor_sasl::Mechanism;
use stentor_users::{Limits, OwnLimits, SendAs, User};
use tokio::sync::watch;

use crate::source::InForce;

/// The login of a session: the user, and the user's rights. It becomes invalid when the user is locked, removed or gets
/// another password.
#[derive(Debug, Clone)]
pub struct Login {
    pub(crate) user: Arc<str>,
    pub(crate) mechanism: Mechanism,
    pub(crate) rights: Rights,
}

#[derive(Debug, Clone)]
pub(crate) enum Rights {
    /// The user's entry at the login, and the file in its present state.
    File { user: Arc<User>, users: watch::Receiver<InForce> },
    /// Dovecot's values at the login, and the present local settings for its users.
    Given { send_as: Arc<[SendAs]>, limits: OwnLimits, overrides: watch::Receiver<InForce> },
}

impl Rights {
    fn file(&self) -> &watch::Receiver<InForce> {
        match self {
            Rights::File { users, .. } => users,
            Rights::Given { overrides, .. } => overrides,
        }
    }
}

/// The user's present entry in the file.
enum Entry {
    /// The login is no longer valid.
    Ended,
    /// A Dovecot user without local settings.
    Absent,
    Present(Arc<User>),
}

impl Login {
    /// The name in canonical form: for `Received`, logs and counts.
    pub fn user(&self) -> &Arc<str> {
        &self.user
    }

    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    fn entry(&self) -> Entry {
        let users = self.rights.file().borrow();
        let Some(users) = users.as_ref() else { return Entry::Ended };
        match (&self.rights, users.get(&self.user)) {
            (_, Some(now)) if now.is_locked => Entry::Ended,
            (Rights::File { user, .. }, Some(now)) if now.hash == user.hash && now.scram == user.scram => {
                Entry::Present(now.clone())
            }
            (Rights::File { .. }, _) => Entry::Ended,
            (Rights::Given { .. }, Some(now)) => Entry::Present(now.clone()),
            (Rights::Given { .. }, None) => Entry::Absent,
        }
    }

    /// Whether the session may continue under it.
    pub fn is_valid(&self) -> bool {
        !matches!(self.entry(), Entry::Ended)
    }

    /// Returns when [`Login::is_valid`] becomes false: the user is locked, removed, or has another password. Changes to
    /// users inside Dovecot are not detected.
    pub async fn ended(&self) {
        let mut file = self.rights.file().clone();
        loop {
            // Mark as seen before checking: a change in between wakes the loop.
            file.borrow_and_update();
            if !self.is_valid() || file.changed().await.is_err() {
                return;
            }
        }
    }

    /// Whether the user may send as this address, in MAIL and in From. The present file decides; an ended login owns
    /// nothing.
    pub fn owns(&self, address: &Address) -> bool {
        match (&self.rights, self.entry()) {
            (_, Entry::Ended) | (Rights::File { .. }, Entry::Absent) => false,
            (Rights::File { .. }, Entry::Present(user)) => user.owns(address),
            (Rights::Given { .. }, Entry::Present(user)) if !user.send_as.is_empty() => user.owns(address),
            (Rights::Given { send_as, .. }, _) => send_as.iter().any(|one| one.covers(address)),
        }
    }

    /// As [`Login::owns`], for MAIL: every user may send without a sender, as bounces and receipts do.
    pub fn owns_path(&self, sender: &ReversePath) -> bool {
        match sender {
            ReversePath::Null => true,
            ReversePath::Address(address) => self.owns(address),
        }
    }

    /// The limits in force; `all` are the defaults. An ended login of the users file keeps its last limits.
    pub fn limits(&self, all: &Limits) -> Limits {
        let own = match (&self.rights, self.entry()) {
            (Rights::File { .. }, Entry::Present(now)) => now.limits,
            (Rights::File { user, .. }, _) => user.limits,
            (Rights::Given { limits, .. }, Entry::Present(user)) => user.limits.or(*limits),
            (Rights::Given { limits, .. }, _) => *limits,
        };
        own.over(all)
    }
}
