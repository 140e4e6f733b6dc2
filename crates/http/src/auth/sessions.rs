//! Login sessions: in memory alone, so that a restart ends all of them.

use std::sync::Arc;

use hashbrown::HashMap;
use stentor_config::HttpConfig;
use stentor_config::keys::{hex, random, random_text, sha256};
use stentor_queue::ids::Ms;

/// People logged in at a time; one more ends the oldest session.
pub const SESSIONS_MAX: usize = 100;

/// A person's login.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    pub user: Arc<str>,
    /// What forms must hold.
    pub csrf: Arc<str>,
    /// By the steady clock.
    opened: Ms,
    /// What the password's hash was: with another, or without the user, the session has ended.
    password: Arc<str>,
}

impl Session {
    fn holds(&self, config: &HttpConfig, now: Ms) -> bool {
        let is_user = config.users.iter().any(|(name, hash)| **name == *self.user && **hash == *self.password);
        is_user && now.saturating_sub(self.opened) < config.session_ms
    }
}

/// A session just opened: what the browser is to keep.
#[derive(Debug)]
pub struct Opened {
    /// The cookie's value.
    pub id: String,
    pub session: Session,
    pub lifetime_ms: u64,
}

#[derive(Default)]
pub(super) struct Sessions {
    /// By the hash of the id: whoever reads our memory's dump cannot use it.
    all: HashMap<[u8; 32], Session>,
}

impl Sessions {
    /// For a user and the hash that the password has been checked against.
    pub fn open(&mut self, config: &HttpConfig, user: &str, password: &str, now: Ms) -> Opened {
        self.all.retain(|_, session| session.holds(config, now));
        if self.all.len() >= SESSIONS_MAX
            && let Some(oldest) = self.all.iter().min_by_key(|(_, session)| session.opened).map(|(id, _)| *id)
        {
            self.all.remove(&oldest);
        }
        let csrf = hex(&random::<16>()).into();
        let session = Session { user: user.into(), csrf, opened: now, password: password.into() };
        let id = random_text();
        self.all.insert(sha256(id.as_bytes()), session.clone());
        Opened { id, session, lifetime_ms: config.session_ms }
    }

    pub fn get(&self, config: &HttpConfig, id: &str, now: Ms) -> Option<Session> {
        self.all.get(&sha256(id.as_bytes())).filter(|session| session.holds(config, now)).cloned()
    }

    pub fn close(&mut self, id: &str) {
        self.all.remove(&sha256(id.as_bytes()));
    }
}
