//! State of messages between their lines. Bounded: there are two generations, and the older one is dropped when the
//! younger is full; a message seen again moves to the younger one.

use std::hash::BuildHasher;
use std::mem;
use std::net::IpAddr;

use foldhash::quality::FixedState;
use hashbrown::{HashMap, HashSet};

use crate::record::Ms;

/// Messages in a generation; each takes some 300 octets, so both take at most 600 MB, with an ordinary log a few MB.
const MESSAGES_MAX: usize = 1_000_000;
/// Deferred recipients known by name, over all messages: needed for lines about all remaining recipients of a message.
const PENDING_MAX: usize = 1_000_000;
/// Largest number of processes whose TLS session is known.
const SESSIONS_MAX: usize = 4_096;

#[derive(Default)]
pub struct LoggedMessage {
    pub from: Box<str>,
    pub size: u64,
    pub message_id: Box<str>,
    pub client_host: Box<str>,
    pub client: Option<IpAddr>,
    pub proto: &'static str,
    /// When the message was accepted; 0: not yet.
    pub accepted: Ms,
    /// Deferred recipients without a later line.
    pub pending: HashSet<Box<str>, FixedState>,
}

#[derive(Default)]
pub struct State {
    young: HashMap<u64, LoggedMessage, FixedState>,
    old: HashMap<u64, LoggedMessage, FixedState>,
    pending: usize,
    /// By process: the relay as written, and protocol with cipher.
    sessions: HashMap<u32, (Box<str>, Box<str>), FixedState>,
    hasher: FixedState,
}

impl State {
    fn key(&self, id: &str) -> u64 {
        self.hasher.hash_one(id)
    }

    /// The message, without moving it to the younger generation: only lines that change a message move it.
    pub fn known(&self, id: &str) -> Option<&LoggedMessage> {
        let key = self.key(id);
        self.young.get(&key).or_else(|| self.old.get(&key))
    }

    pub fn message(&mut self, id: &str) -> Option<&mut LoggedMessage> {
        let key = self.key(id);
        if !self.young.contains_key(&key) {
            let message = self.old.remove(&key)?;
            self.grow(key, message);
        }
        self.young.get_mut(&key)
    }

    /// The message, created if needed.
    pub fn enter(&mut self, id: &str) -> &mut LoggedMessage {
        let key = self.key(id);
        if !self.young.contains_key(&key) {
            let message = self.old.remove(&key).unwrap_or_default();
            self.grow(key, message);
        }
        self.young.entry(key).or_default()
    }

    fn grow(&mut self, key: u64, message: LoggedMessage) {
        if self.young.len() >= MESSAGES_MAX {
            for message in self.old.values() {
                self.pending -= message.pending.len();
            }
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(key, message);
    }

    pub fn forget(&mut self, id: &str) -> Option<LoggedMessage> {
        let key = self.key(id);
        let message = self.young.remove(&key).or_else(|| self.old.remove(&key))?;
        self.pending -= message.pending.len();
        Some(message)
    }

    /// Records that a recipient was deferred.
    pub fn put_off(&mut self, id: &str, to: &str) {
        if self.pending < PENDING_MAX && self.enter(id).pending.insert(to.into()) {
            self.pending += 1;
        }
    }

    /// Records that a recipient is finished.
    pub fn finish(&mut self, id: &str, to: &str) {
        if self.pending > 0 && self.message(id).is_some_and(|message| message.pending.remove(to)) {
            self.pending -= 1;
        }
    }

    /// Finishes all deferred recipients that are known by name, and returns them.
    pub fn settle_all(&mut self, id: &str) -> Vec<Box<str>> {
        let Some(message) = self.message(id) else { return Vec::new() };
        let mut to: Vec<Box<str>> = message.pending.drain().collect();
        self.pending -= to.len();
        to.sort_unstable();
        to
    }

    pub fn session(&mut self, pid: &str, relay: &str, tls: &str) {
        let Ok(pid) = pid.parse() else { return };
        if self.sessions.len() >= SESSIONS_MAX {
            self.sessions.clear();
        }
        self.sessions.insert(pid, (relay.into(), tls.into()));
    }

    /// Protocol and cipher of this process's last session, if it was with this relay.
    pub fn tls(&self, pid: &str, relay: &str) -> &str {
        if self.sessions.is_empty() {
            return "";
        }
        let session = pid.parse::<u32>().ok().and_then(|pid| self.sessions.get(&pid));
        session.filter(|(to, _)| &**to == relay).map_or("", |(_, tls)| tls)
    }
}
