//! Open connections: in total, untrusted, and by client.
//!
//! Promise: a connection is counted for one client at a time, and for none once its [`Admitted`] is dropped.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use stentor_config::ListenConfig;
use stentor_mail::reply::Reply;
use stentor_policy::counted_as;

use stentor_engine::core::limits::Limit;

/// Open sessions: in total, of clients that are not trusted, and by client (a /64 of IPv6 is one).
#[derive(Default)]
pub struct OpenSessions {
    pub total: usize,
    pub strangers: usize,
    pub clients: HashMap<IpAddr, usize>,
}

/// Who a connection is counted for.
#[derive(Debug, Clone, Copy)]
pub struct Counted {
    pub client: IpAddr,
    pub trusted: bool,
    /// A proxy's connections are as many as its clients'.
    pub is_proxy: bool,
}

impl OpenSessions {
    fn refusal(&self, who: Counted, limits: &ListenConfig, sessions_max: usize) -> Option<(Limit, Reply)> {
        let of_client = self.clients.get(&counted_as(who.client)).copied().unwrap_or(0);
        let total_max = limits.connections_max as usize;
        let is_alone = who.trusted || who.is_proxy;
        if self.total >= if who.trusted { total_max } else { strangers_max(total_max, sessions_max) } {
            Some((Limit::Connections, Reply::fixed(421, (4, 3, 2), "Too many connections, try again later")))
        } else if !is_alone && of_client >= limits.connections_per_client_max as usize {
            Some((Limit::ConnectionsPerClient, Reply::fixed(421, (4, 7, 0), "Too many connections from your address")))
        } else {
            None
        }
    }

    fn add(&mut self, who: Counted) {
        self.total += 1;
        self.strangers += usize::from(!who.trusted);
        *self.clients.entry(counted_as(who.client)).or_default() += 1;
    }

    fn remove(&mut self, who: Counted) {
        self.total -= 1;
        self.strangers -= usize::from(!who.trusted);
        let client = counted_as(who.client);
        if let Some(count) = self.clients.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                self.clients.remove(&client);
            }
        }
    }
}

/// One admitted connection; no longer counted when dropped.
pub struct Admitted {
    sessions: Arc<Mutex<OpenSessions>>,
    who: Counted,
    sessions_max: usize,
}

impl Admitted {
    /// Counts a connection, if the limits allow one more.
    ///
    /// # Errors
    /// The limit that is reached, and what the client is told of it.
    pub fn new(
        sessions: Arc<Mutex<OpenSessions>>,
        who: Counted,
        (limits, sessions_max): (&ListenConfig, usize),
    ) -> Result<Admitted, (Limit, Reply)> {
        {
            let mut open = sessions.lock();
            if let Some(refusal) = open.refusal(who, limits, sessions_max) {
                return Err(refusal);
            }
            open.add(who);
        }
        Ok(Admitted { sessions, who, sessions_max })
    }

    /// Counts it for another client from now on, if the limits allow that.
    ///
    /// # Errors
    /// As [`Admitted::new`]; it is then counted as before.
    pub fn change(&mut self, who: Counted, limits: &ListenConfig) -> Result<(), (Limit, Reply)> {
        let mut open = self.sessions.lock();
        open.remove(self.who);
        let refusal = open.refusal(who, limits, self.sessions_max);
        if refusal.is_none() {
            self.who = who;
        }
        open.add(self.who);
        refusal.map_or(Ok(()), Err)
    }

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
        self.sessions.lock().remove(self.who);
    }
}
