//! Somebody who has logged in.

use std::sync::Arc;

use stentor_mail::address::{Address, ReversePath};
use stentor_sasl::Mechanism;
use stentor_users::{Limits, OwnLimits, SendAs, User};
use tokio::sync::watch;

use crate::source::InForce;

/// A login of a session: who, and what they may. It goes stale when the user is locked, removed or gets another password.
#[derive(Debug, Clone)]
pub struct Login {
    pub(crate) user: Arc<str>,
    pub(crate) mechanism: Mechanism,
    pub(crate) rights: Rights,
}

#[derive(Debug, Clone)]
pub(crate) enum Rights {
    /// As of the login, and the file as it is now.
    File { user: Arc<User>, users: watch::Receiver<InForce> },
    /// As Dovecot gave them at the login, and the local settings for its users as they are now.
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

/// The user's entry in the file as it is now.
enum Entry {
    /// The login does not hold any more.
    Ended,
    /// A user of Dovecot without local settings.
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

    /// Whether the session may go on under it.
    pub fn is_valid(&self) -> bool {
        !matches!(self.entry(), Entry::Ended)
    }

    /// Returns when [`Login::is_valid`] has become false: the user is locked, removed, or has another password. What Dovecot changes
    /// of its users is not known here.
    pub async fn ended(&self) {
        let mut file = self.rights.file().clone();
        loop {
            // Seen before it is looked at: a change between the two wakes.
            file.borrow_and_update();
            if !self.is_valid() || file.changed().await.is_err() {
                return;
            }
        }
    }

    /// Whether the user may send as this address: in MAIL and in From. The file as it is now decides; a stale login owns nothing.
    pub fn owns(&self, address: &Address) -> bool {
        match (&self.rights, self.entry()) {
            (_, Entry::Ended) | (Rights::File { .. }, Entry::Absent) => false,
            (Rights::File { .. }, Entry::Present(user)) => user.owns(address),
            (Rights::Given { .. }, Entry::Present(user)) if !user.send_as.is_empty() => user.owns(address),
            (Rights::Given { send_as, .. }, _) => send_as.iter().any(|one| one.covers(address)),
        }
    }

    /// The same for MAIL: bounces and receipts, which have no sender, may be sent by everybody.
    pub fn owns_path(&self, sender: &ReversePath) -> bool {
        match sender {
            ReversePath::Null => true,
            ReversePath::Address(address) => self.owns(address),
        }
    }

    /// How much may be sent; `all`: the limits of users without limits of their own. An ended login of the users file has those of then.
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
