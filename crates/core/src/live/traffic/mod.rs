//! The live trace of SMTP sessions: commands and replies for watchers of a site's hosts or of a client.
//!
//! Promise: without watchers a session only looks at one number now and then. Data of messages and credentials are
//! blanked ([`stentor_smtp::wire`]). A slow watcher loses the oldest lines, which are counted; the sessions never wait.
//! Bounded: [`TAPS_MAX`] watchers, [`LINES_MAX`] lines each.
//!
//! A session is followed from its beginning or, with a host, from a point without an open transaction: within one, data
//! could not be distinguished from commands. A busy connection to a watched host begins no transaction until that
//! point. This happens once, and takes as long as the replies to the open transactions.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use stentor_queue::ids::Ms;
use stentor_queue::site::Endpoint;
use stentor_records::now::TrafficLine;
use stentor_smtp::wire::{Wire, WireEvent};
use tokio::sync::Notify;

/// Number of watchers at a time.
pub const TAPS_MAX: usize = 4;
/// Number of lines that wait for a watcher.
const LINES_MAX: usize = 4_096;

/// The sessions that a watcher follows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WatchTarget {
    /// Sessions with these hosts.
    Hosts(Vec<Endpoint>),
    /// Sessions of this client.
    Client(IpAddr),
}

/// One watcher's ring.
pub struct Tap {
    wanted: Mutex<WatchTarget>,
    /// The lines, and how many were lost since the last read.
    lines: Mutex<(VecDeque<TrafficLine>, u64)>,
    notify: Notify,
}

impl Tap {
    fn push(&self, line: TrafficLine) {
        let mut lines = self.lines.lock();
        if lines.0.len() == LINES_MAX {
            lines.0.pop_front();
            lines.1 += 1;
        }
        lines.0.push_back(line);
        drop(lines);
        self.notify.notify_one();
    }

    /// Waits for lines. Returns all of them, and how many were lost before them.
    pub async fn next(&self) -> (Vec<TrafficLine>, u64) {
        loop {
            {
                let mut lines = self.lines.lock();
                if !lines.0.is_empty() {
                    return (lines.0.drain(..).collect(), std::mem::take(&mut lines.1));
                }
            }
            self.notify.notified().await;
        }
    }
}

/// All watchers.
#[derive(Default)]
pub struct Traffic {
    /// Grows with each watcher that comes or goes; 0: there has never been one.
    generation: AtomicU64,
    sessions: AtomicU64,
    taps: Mutex<Vec<Weak<Tap>>>,
}

impl Traffic {
    /// Adds a watcher, which watches for as long as it is kept; `None`: there are already [`TAPS_MAX`].
    pub fn watch(&self, wanted: WatchTarget) -> Option<Arc<Tap>> {
        let mut taps = self.taps.lock();
        taps.retain(|tap| tap.strong_count() > 0);
        if taps.len() >= TAPS_MAX {
            return None;
        }
        let tap = Arc::new(Tap { wanted: Mutex::new(wanted), lines: Mutex::default(), notify: Notify::new() });
        taps.push(Arc::downgrade(&tap));
        self.generation.fetch_add(1, Ordering::Relaxed);
        Some(tap)
    }

    /// Changes the sessions that a watcher follows.
    pub fn change(&self, tap: &Tap, wanted: &WatchTarget) {
        if std::mem::replace(&mut *tap.wanted.lock(), wanted.clone()) != *wanted {
            self.generation.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Called when a watcher has gone: sessions stop at their next look.
    pub fn gone(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// A number that changes when watchers come or go; cheap to read.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Whether anybody watches sessions with this host.
    pub fn is_watched(&self, addr: &Endpoint) -> bool {
        let is_wanted = |wanted: &WatchTarget| matches!(wanted, WatchTarget::Hosts(hosts) if hosts.contains(addr));
        let taps = self.taps.lock();
        taps.iter().filter_map(Weak::upgrade).any(|tap| is_wanted(&tap.wanted.lock()))
    }

    /// The tap for a session with a host, if it is watched.
    pub fn of_host(&self, addr: &Endpoint) -> Option<Box<TappedSession>> {
        self.of(|wanted| matches!(wanted, WatchTarget::Hosts(hosts) if hosts.contains(addr)))
    }

    /// The tap for a session of a client, if it is watched.
    pub fn of_client(&self, client: IpAddr) -> Option<Box<TappedSession>> {
        self.of(|wanted| *wanted == WatchTarget::Client(client.to_canonical()))
    }

    fn of(&self, is_wanted: impl Fn(&WatchTarget) -> bool) -> Option<Box<TappedSession>> {
        if self.generation() == 0 {
            return None;
        }
        let taps = self.taps.lock();
        let taps: Vec<_> =
            taps.iter().filter(|tap| tap.upgrade().is_some_and(|tap| is_wanted(&tap.wanted.lock()))).cloned().collect();
        (!taps.is_empty()).then(|| {
            let session = self.sessions.fetch_add(1, Ordering::Relaxed) + 1;
            Box::new(TappedSession { taps, session, wire: Wire::default() })
        })
    }
}

/// A session that is watched.
pub struct TappedSession {
    taps: Vec<Weak<Tap>>,
    session: u64,
    wire: Wire,
}

impl TappedSession {
    /// Begins the session anew, over another connection.
    pub fn restart(&mut self) {
        self.wire = Wire::default();
    }

    /// Reports an event that is neither command nor reply.
    pub fn event(&self, at: Ms, text: &str) {
        give(&self.taps, self.session, at, "event", text);
    }

    /// Reports bytes from the client of the session.
    pub fn client(&mut self, at: Ms, bytes: &[u8]) {
        let (taps, session) = (&self.taps, self.session);
        self.wire.client(bytes, &mut |seen| show(taps, session, at, seen));
    }

    /// Reports bytes from the server of the session.
    pub fn server(&mut self, at: Ms, bytes: &[u8]) {
        let (taps, session) = (&self.taps, self.session);
        self.wire.server(bytes, &mut |seen| show(taps, session, at, seen));
    }
}

fn show(taps: &[Weak<Tap>], session: u64, at: Ms, seen: WireEvent) {
    let (kind, text) = match seen {
        WireEvent::Command(text) => ("command", text),
        WireEvent::Reply(text) => ("reply", text),
        WireEvent::Data(octets) => ("command", format!("(message data, {octets} octets)")),
    };
    give(taps, session, at, kind, &text);
}

fn give(taps: &[Weak<Tap>], session: u64, at: Ms, kind: &str, text: &str) {
    for tap in taps.iter().filter_map(Weak::upgrade) {
        tap.push(TrafficLine { at, session, kind: kind.to_owned(), text: text.to_owned() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_seen_by_who_watches_them_and_rings_are_bounded() {
        let traffic = Traffic::default();
        let (host, client) = (Endpoint::by_port(([192, 0, 2, 1], 25)), IpAddr::from([192, 0, 2, 9]));
        assert!(traffic.of_host(&host).is_none(), "nobody watches");
        let (site, of_client) = (
            traffic.watch(WatchTarget::Hosts(vec![host.clone()])).unwrap(),
            traffic.watch(WatchTarget::Client(client)),
        );
        let mut session = traffic.of_host(&host).expect("it is watched");
        assert!(traffic.of_host(&Endpoint::by_port(([192, 0, 2, 2], 25))).is_none());
        assert!(traffic.of_client(client).is_some() && of_client.is_some());
        session.event(1, "connected");
        for _ in 0..LINES_MAX {
            session.client(2, b"NOOP\r\n");
        }
        let (lines, lost) = {
            let mut lines = site.lines.lock();
            (lines.0.drain(..).collect::<Vec<_>>(), lines.1)
        };
        assert_eq!((lines.len(), lost), (LINES_MAX, 1));
        assert!(lines.iter().all(|line| line.session == 1 && line.text == "NOOP" && line.kind == "command"));
        assert!(of_client.unwrap().lines.lock().0.is_empty(), "it is another's");
        let generation = traffic.generation();
        drop(site);
        traffic.gone();
        assert!(traffic.of_host(&host).is_none() && traffic.generation() > generation);
        session.client(3, b"QUIT\r\n");
        let kept: Vec<_> = (0..TAPS_MAX).filter_map(|_| traffic.watch(WatchTarget::Client(client))).collect();
        assert_eq!(kept.len(), TAPS_MAX);
        assert!(traffic.watch(WatchTarget::Client(client)).is_none(), "one too many");
    }
}
