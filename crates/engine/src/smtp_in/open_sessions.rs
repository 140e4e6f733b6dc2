//! Open connections: in total, untrusted, and by client.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

/// Open sessions: in total, of clients that are not trusted, and by client (a /64 of IPv6 is one).
#[derive(Default)]
pub struct OpenSessions {
    pub total: usize,
    pub strangers: usize,
    pub clients: HashMap<IpAddr, usize>,
}

/// One admitted connection; no longer counted when dropped.
pub struct Admitted {
    pub sessions: Arc<Mutex<OpenSessions>>,
    pub client: IpAddr,
    pub trusted: bool,
    pub sessions_max: usize,
}

impl Admitted {
    /// Whether untrusted clients have more than half of their share of `connections_max`.
    pub fn is_crowded(&self, connections_max: usize) -> bool {
        self.sessions.lock().strangers > strangers_max(connections_max, self.sessions_max) / 2
    }
}

/// The last quarter is the trusted clients': of the limit, and of the sessions that there are descriptors for, beyond which
/// nobody is accepted.
pub fn strangers_max(connections_max: usize, sessions_max: usize) -> usize {
    let all = connections_max.min(sessions_max);
    all - all / 4
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut sessions = self.sessions.lock();
        sessions.total -= 1;
        sessions.strangers -= usize::from(!self.trusted);
        if let Some(count) = sessions.clients.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                sessions.clients.remove(&self.client);
            }
        }
    }
}
