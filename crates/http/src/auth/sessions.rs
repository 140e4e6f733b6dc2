//! Login sessions, kept in memory only: a restart ends all of them.

use std::sync::Arc;

use hashbrown::HashMap;
use stentor_config::HttpConfig;
use stentor_config::keys::{hex, random, random_text, sha256};
use stentor_queue::ids::Ms;

/// Maximum sessions; one more ends the oldest.
pub const SESSIONS_MAX: usize = 100;

/// A person's login.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoginSession {
    pub user: Arc<str>,
    /// The token that forms must contain.
    pub csrf: Arc<str>,
    /// Opening time on the steady clock.
    opened: Ms,
    /// The password's hash at login: if it changes or the user is removed, the session ends.
    password: Arc<str>,
}

impl LoginSession {
    fn holds(&self, config: &HttpConfig, now: Ms) -> bool {
        let is_user = config.users.iter().any(|(name, hash)| **name == *self.user && **hash == *self.password);
        is_user && now.saturating_sub(self.opened) < config.session_ms
    }
}

/// A new session: the values for the browser.
#[derive(Debug)]
pub struct NewSession {
    /// The cookie's value.
    pub id: String,
    pub session: LoginSession,
    pub lifetime_ms: u64,
}

#[derive(Default)]
pub(super) struct Sessions {
    /// Sessions by the hash of their id, so that a memory dump does not reveal ids.
    all: HashMap<[u8; 32], LoginSession>,
}

impl Sessions {
    /// Opens a session for a user; `password` is the hash that the password was checked against.
    pub fn open(&mut self, config: &HttpConfig, user: &str, password: &str, now: Ms) -> NewSession {
        self.all.retain(|_, session| session.holds(config, now));
        if self.all.len() >= SESSIONS_MAX
            && let Some(oldest) = self.all.iter().min_by_key(|(_, session)| session.opened).map(|(id, _)| *id)
        {
            self.all.remove(&oldest);
        }
        let csrf = hex(&random::<16>()).into();
        let session = LoginSession { user: user.into(), csrf, opened: now, password: password.into() };
        let id = random_text();
        self.all.insert(sha256(id.as_bytes()), session.clone());
        NewSession { id, session, lifetime_ms: config.session_ms }
    }

    pub fn get(&self, config: &HttpConfig, id: &str, now: Ms) -> Option<LoginSession> {
        self.all.get(&sha256(id.as_bytes())).filter(|session| session.holds(config, now)).cloned()
    }

    pub fn close(&mut self, id: &str) {
        self.all.remove(&sha256(id.as_bytes()));
    }
}
