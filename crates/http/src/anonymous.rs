//! Connections without a login: every connection, until a request is authenticated.
//!
//! Promise: they get at most half of the connections. One more closes the connection that has been open longest without
//! an admitted request or, if each had one, the oldest. Users who can log in therefore always find a connection, and
//! idle ones keep nobody out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The anonymous connections of one server.
pub struct AnonymousConnections {
    max: usize,
    next: AtomicU64,
    all: Mutex<ConnectionQueues>,
}

#[derive(Default)]
struct ConnectionQueues {
    /// Connections by age: first those without an admitted request, then those admitted without a login.
    waiting: BTreeMap<u64, Arc<Notify>>,
    admitted: BTreeMap<u64, Arc<Notify>>,
}

/// A connection's place, released on drop.
pub struct AnonymousConnection {
    number: u64,
    of: Arc<AnonymousConnections>,
    over: Arc<Notify>,
}

impl AnonymousConnections {
    pub fn new(connections_max: usize) -> Arc<AnonymousConnections> {
        let max = (connections_max / 2).max(1);
        Arc::new(AnonymousConnections { max, next: AtomicU64::new(0), all: Mutex::default() })
    }

    /// Registers a new connection.
    pub fn begin(self: &Arc<Self>) -> Arc<AnonymousConnection> {
        let (number, over) = (self.next.fetch_add(1, Ordering::Relaxed), Arc::new(Notify::new()));
        let mut all = self.all.lock();
        if all.waiting.len() + all.admitted.len() >= self.max {
            let oldest = all.waiting.pop_first().or_else(|| all.admitted.pop_first());
            if let Some((_, over)) = oldest {
                over.notify_one();
            }
        }
        all.waiting.insert(number, over.clone());
        Arc::new(AnonymousConnection { number, of: self.clone(), over })
    }
}

impl AnonymousConnection {
    /// Records that a request was admitted. `is_known`: with a login.
    pub fn admitted(&self, is_known: bool) {
        let mut all = self.of.all.lock();
        let Some(over) = all.waiting.remove(&self.number).or_else(|| all.admitted.remove(&self.number)) else { return };
        if !is_known {
            all.admitted.insert(self.number, over);
        }
    }

    /// Waits until another connection takes this place.
    pub async fn over(&self) {
        self.over.notified().await;
    }
}

impl Drop for AnonymousConnection {
    fn drop(&mut self) {
        self.admitted(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_more_takes_the_place_of_who_only_holds_on() {
        let anonymous = AnonymousConnections::new(6);
        let (reader, silent, person) = (anonymous.begin(), anonymous.begin(), anonymous.begin());
        reader.admitted(false);
        person.admitted(true);
        let others = [anonymous.begin(), anonymous.begin()];
        silent.over().await;
        drop(others);
        assert_eq!(anonymous.all.lock().waiting.len(), 0);
        let _more = [anonymous.begin(), anonymous.begin()];
        reader.admitted(false);
        assert_eq!(anonymous.all.lock().admitted.len(), 1, "it was not the reader's place that was taken");
        let all = anonymous.all.lock();
        assert_eq!(all.waiting.len() + all.admitted.len(), 3);
    }

    #[tokio::test]
    async fn where_all_are_served_the_oldest_goes() {
        let anonymous = AnonymousConnections::new(4);
        let readers = [anonymous.begin(), anonymous.begin()];
        for reader in &readers {
            reader.admitted(false);
        }
        let _new = anonymous.begin();
        readers[0].over().await;
    }
}
