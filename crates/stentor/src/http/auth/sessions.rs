//! Who is logged in: in memory alone, so that a restart ends all sessions.

use std::sync::Arc;

use hashbrown::HashMap;
use stentor_queue::ids::Ms;

use super::keys::{hex, random, random_text, sha256};

/// People logged in at a time; one more ends the oldest session.
pub const SESSIONS_MAX: usize = 100;

/// A person's login.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    pub user: Arc<str>,
    /// What forms must hold.
    pub csrf: Arc<str>,
    opened: Ms,
}

/// A session just opened: what the browser is to keep.
#[derive(Debug)]
pub struct Opened {
    /// The cookie's value.
    pub id: String,
    pub session: Session,
    pub lifetime_ms: u64,
}

pub(super) struct Sessions {
    /// By the hash of the id: whoever reads our memory's dump cannot use it.
    all: HashMap<[u8; 32], Session>,
    lifetime_ms: u64,
}

impl Sessions {
    pub fn new(lifetime_ms: u64) -> Sessions {
        Sessions { all: HashMap::new(), lifetime_ms }
    }

    pub fn open(&mut self, user: Arc<str>, now: Ms) -> Opened {
        self.all.retain(|_, session| now.saturating_sub(session.opened) < self.lifetime_ms);
        if self.all.len() >= SESSIONS_MAX
            && let Some(oldest) = self.all.iter().min_by_key(|(_, session)| session.opened).map(|(id, _)| *id)
        {
            self.all.remove(&oldest);
        }
        let session = Session { user, csrf: hex(&random::<16>()).into(), opened: now };
        let id = random_text();
        self.all.insert(sha256(id.as_bytes()), session.clone());
        Opened { id, session, lifetime_ms: self.lifetime_ms }
    }

    pub fn get(&self, id: &str, now: Ms) -> Option<Session> {
        let session = self.all.get(&sha256(id.as_bytes()))?;
        (now.saturating_sub(session.opened) < self.lifetime_ms).then(|| session.clone())
    }

    pub fn close(&mut self, id: &str) {
        self.all.remove(&sha256(id.as_bytes()));
    }
}
