//! Somebody who has logged in.

use std::sync::Arc;

use stentor_mail::address::{Address, ReversePath};
use stentor_sasl::Mechanism;
use stentor_users::{Limits, SendAs, User, Users};
use tokio::sync::watch;

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
    File { user: Arc<User>, users: watch::Receiver<Arc<Users>> },
    /// What Dovecot said.
    Given(Arc<[SendAs]>),
}

impl Rights {
    /// The user as the file has it now, if it is still the one who logged in.
    fn current(&self) -> Option<Arc<User>> {
        match self {
            Rights::File { user, users } => {
                let users = users.borrow();
                let now = users.get(&user.name)?;
                let is_same = now.hash == user.hash && now.scram == user.scram;
                (is_same && !now.is_locked).then(|| now.clone())
            }
            Rights::Given(_) => None,
        }
    }
}

impl Login {
    /// The name in canonical form: for `Received`, logs and counts.
    pub fn user(&self) -> &Arc<str> {
        &self.user
    }

    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// Whether the session may go on under it.
    pub fn is_valid(&self) -> bool {
        matches!(self.rights, Rights::Given(_)) || self.rights.current().is_some()
    }

    /// Returns when [`Login::is_valid`] has become false: the user is locked, removed, or has another password. Never, for users of Dovecot.
    pub async fn ended(&self) {
        if let Rights::File { users, .. } = &self.rights {
            let mut users = users.clone();
            loop {
                // Seen before it is looked at: a change between the two wakes.
                users.borrow_and_update();
                if !self.is_valid() || users.changed().await.is_err() {
                    return;
                }
            }
        }
        std::future::pending::<()>().await;
    }

    /// Whether the user may send as this address: in MAIL and in From. The file as it is now decides; a stale login owns nothing.
    pub fn owns(&self, address: &Address) -> bool {
        match &self.rights {
            Rights::File { .. } => self.rights.current().is_some_and(|user| user.owns(address)),
            Rights::Given(all) => all.iter().any(|one| one.covers(address)),
        }
    }

    /// The same for MAIL: bounces and receipts, which have no sender, may be sent by everybody.
    pub fn owns_path(&self, sender: &ReversePath) -> bool {
        match sender {
            ReversePath::Null => true,
            ReversePath::Address(address) => self.owns(address),
        }
    }

    /// How much may be sent. Dovecot knows of no limits.
    pub fn limits(&self) -> Limits {
        match &self.rights {
            Rights::File { user, .. } => self.rights.current().map_or(user.limits, |now| now.limits),
            Rights::Given(_) => Limits::default(),
        }
    }
}
