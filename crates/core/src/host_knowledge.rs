//! Facts that deliveries have learned and soon need again: hosts that refuse extensions they offer, hosts where TLS
//! fails, contents with NULs or long lines.
//!
//! A host that offers an extension and refuses it costs each message an extra try, so the extension is not used there
//! for [`KEPT_MS`]. A host that drops the connection in its first transaction [`LOSSES_MAX`] times in a row may be
//! behind a middlebox that handles neither pipelining nor BDAT, so neither is used. If it answered a transaction with
//! them within [`KEPT_MS`], it is assumed to be restarting instead.
//!
//! A host with which TLS failed gets mail in clear for [`TLS_KEPT_MS`], unless something demands more, so that not each
//! connection fails first. A lost or stalled connection, an alert, or octets that are not TLS may be bad luck, or an
//! attacker who wants mail in clear. These count for [`TLS_PASSING_MS`], doubled each time the next attempt also fails.
//! A refusal of STARTTLS, which may be temporary (454), is treated alike. A reply within TLS ends this state, and so
//! does an operator's `flush`. It is kept per name and address: a domain owner can point a name at any address, and TLS
//! failures under that name must not affect other names.
//!
//! The cache is bounded and lost at a restart; when it is full, new entries are dropped.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use stentor_queue::ids::{ContentId, Ms};
use stentor_queue::site::Endpoint;
use stentor_smtp::client::Extensions;

/// How long a refused extension is not used with a host.
const KEPT_MS: Ms = 12 * 3_600_000;
/// How long mail that may go in clear avoids TLS after a failure: about the time it takes to repair a certificate or
/// server.
const TLS_KEPT_MS: Ms = 3_600_000;
/// Initial such time when the failure may be temporary.
const TLS_PASSING_MS: Ms = 5 * 60_000;
/// Failures that the next connection may not have, by keyword ([`stentor_tls::TlsErrorCause::key`] and those of earlier
/// stages).
const PASSING: [&str; 9] =
    ["io", "timeout", "unexpected-eof", "lost", "refused", "injected", "not-tls", "protocol", "alert"];
const HOSTS_MAX: usize = 4_096;
const CONTENTS_MAX: usize = 1_024;
/// First transactions lost in a row before pipelining and BDAT are withheld.
const LOSSES_MAX: u8 = 2;

#[derive(Clone, Copy, Default)]
struct Host {
    refused: Extensions,
    losses: u8,
    /// The host has answered a transaction with no extension withheld.
    has_answered: bool,
    until: Ms,
}

/// A host with which TLS has failed.
struct TlsFailure {
    why: Arc<str>,
    wait: Ms,
    until: Ms,
}

/// Properties of a content that decide the form in which it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traits {
    pub holds_nul: bool,
    /// A line exceeds 998 octets.
    pub has_long_line: bool,
}

#[derive(Default)]
pub struct HostKnowledge {
    no_tls: Mutex<HashMap<(Endpoint, Box<str>), TlsFailure, foldhash::fast::RandomState>>,
    hosts: Mutex<HashMap<Endpoint, Host, foldhash::fast::RandomState>>,
    contents: Mutex<HashMap<ContentId, Traits, foldhash::fast::FixedState>>,
}

impl HostKnowledge {
    /// Returns the extensions that this host offers but that are not used with it.
    pub fn withheld(&self, host: &Endpoint, now: Ms) -> Extensions {
        let known = self.hosts.lock().get(host).copied().filter(|known| now < known.until).unwrap_or_default();
        if known.losses >= LOSSES_MAX {
            known.refused.and(Extensions::PIPELINING).and(Extensions::CHUNKING)
        } else {
            known.refused
        }
    }

    /// Notes that the host offered these extensions, refused them, and took the mail without them.
    pub fn refused(&self, host: &Endpoint, extensions: Extensions, now: Ms) {
        self.change(host, now, |known| known.refused = known.refused.and(extensions));
    }

    /// Notes that a connection's first transaction was lost. Returns whether PIPELINING and CHUNKING are withheld from
    /// now on.
    pub fn lost(&self, host: &Endpoint, now: Ms) -> bool {
        let mut losses = 0;
        self.change(host, now, |known| {
            if known.has_answered {
                return;
            }
            known.losses = known.losses.saturating_add(1);
            losses = known.losses;
        });
        losses == LOSSES_MAX
    }

    /// Notes an answered transaction: losses before it were not in a row.
    pub fn answered(&self, host: &Endpoint, now: Ms) {
        let mut hosts = self.hosts.lock();
        match hosts.get_mut(host).filter(|known| now < known.until) {
            // Extensions already withheld are not withheld for longer.
            Some(known) if known.losses < LOSSES_MAX => (known.losses, known.has_answered) = (0, true),
            Some(_) => {}
            None => {
                drop(hosts);
                self.change(host, now, |known| known.has_answered = true);
            }
        }
    }

    fn change(&self, host: &Endpoint, now: Ms, change: impl FnOnce(&mut Host)) {
        let mut hosts = self.hosts.lock();
        if hosts.len() >= HOSTS_MAX && !hosts.contains_key(host) {
            hosts.retain(|_, known| now < known.until);
            if hosts.len() >= HOSTS_MAX {
                return;
            }
        }
        let known = hosts.entry(host.clone()).or_default();
        if known.until <= now {
            *known = Host::default();
        }
        known.until = now + KEPT_MS;
        change(known);
    }

    /// Notes that TLS failed with the host of this name and address.
    pub fn tls_failed(&self, name: &str, addr: &Endpoint, why: &str, now: Ms) {
        let host = (addr.clone(), plain(name));
        let mut hosts = self.no_tls.lock();
        if hosts.len() >= HOSTS_MAX && !hosts.contains_key(&host) {
            hosts.retain(|_, known| now < known.until);
            if hosts.len() >= HOSTS_MAX {
                return;
            }
        }
        let wait = match hosts.get(&host).filter(|_| PASSING.contains(&why)) {
            // Parallel connections fail together and count once.
            Some(before) if now < before.until => return,
            Some(before) if now < before.until + TLS_KEPT_MS => (before.wait * 2).min(TLS_KEPT_MS),
            _ if PASSING.contains(&why) => TLS_PASSING_MS,
            _ => TLS_KEPT_MS,
        };
        hosts.insert(host, TlsFailure { why: why.into(), wait, until: now + wait });
    }

    /// Notes that the host of this name and address replied within TLS.
    pub fn tls_worked(&self, name: &str, addr: &Endpoint) {
        let mut hosts = self.no_tls.lock();
        if !hosts.is_empty() {
            hosts.remove(&(addr.clone(), plain(name)));
        }
    }

    /// Forgets TLS failures of these hosts, or of all. Returns how many of them were getting mail in clear as a result.
    pub fn forget_tls_failures(&self, of: Option<&[(Arc<str>, Endpoint)]>, now: Ms) -> usize {
        let mut hosts = self.no_tls.lock();
        let forgotten: Vec<TlsFailure> = match of {
            None => hosts.drain().map(|(_, known)| known).collect(),
            Some(of) => of.iter().filter_map(|(name, addr)| hosts.remove(&(addr.clone(), plain(name)))).collect(),
        };
        forgotten.iter().filter(|known| now < known.until).count()
    }

    /// Returns why TLS recently failed with this host.
    pub fn tls_failure(&self, name: &str, addr: &Endpoint, now: Ms) -> Option<Arc<str>> {
        self.no_tls
            .lock()
            .get(&(addr.clone(), plain(name)))
            .filter(|known| now < known.until)
            .map(|known| known.why.clone())
    }

    /// Returns the known properties of a content.
    pub fn traits(&self, content: ContentId) -> Option<Traits> {
        self.contents.lock().get(&content).copied()
    }

    pub fn note_traits(&self, content: ContentId, traits: Traits) {
        let mut contents = self.contents.lock();
        if contents.len() >= CONTENTS_MAX {
            contents.clear();
        }
        contents.insert(content, traits);
    }
}

/// Normalizes a name's letter case and trailing dot.
fn plain(name: &str) -> Box<str> {
    name.trim_end_matches('.').to_ascii_lowercase().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(n: u16) -> Endpoint {
        Endpoint::by_port(([192, 0, 2, 1], n))
    }

    #[test]
    fn what_was_refused_is_withheld_for_a_time() {
        let known = HostKnowledge::default();
        known.refused(&host(1), Extensions::CHUNKING, 5);
        known.refused(&host(1), Extensions::SIZE, 10);
        assert_eq!(known.withheld(&host(1), 10), Extensions::CHUNKING.and(Extensions::SIZE));
        assert_eq!(known.withheld(&host(2), 10), Extensions::NONE);
        assert_eq!(known.withheld(&host(1), 10 + KEPT_MS), Extensions::NONE);
        known.refused(&host(1), Extensions::DSN, 10 + KEPT_MS);
        assert_eq!(known.withheld(&host(1), 10 + KEPT_MS), Extensions::DSN, "the old is forgotten");
    }

    #[test]
    fn losses_in_a_row_are_a_rule() {
        let known = HostKnowledge::default();
        assert!(!known.lost(&host(1), 0));
        assert!(known.lost(&host(1), 0) && !known.lost(&host(1), 0));
        known.answered(&host(1), 0);
        assert_eq!(known.withheld(&host(1), 0), Extensions::PIPELINING.and(Extensions::CHUNKING));
        // A host that has answered and then loses several connections is being restarted.
        assert!(!known.lost(&host(2), 0));
        known.answered(&host(2), 0);
        assert!((0..20).all(|_| !known.lost(&host(2), 0)));
        assert_eq!(known.withheld(&host(2), 0), Extensions::NONE);
        assert!(!known.lost(&host(2), KEPT_MS) && known.lost(&host(2), KEPT_MS), "the old is forgotten");
    }

    #[test]
    fn where_tls_failed_it_is_not_tried_for_a_time() {
        let known = HostKnowledge::default();
        known.tls_failed("mx.a.example", &host(1), "expired", 5);
        assert_eq!(known.tls_failure("MX.a.example.", &host(1), 5).as_deref(), Some("expired"));
        assert_eq!(known.tls_failure("mx.a.example", &host(2), 5), None);
        assert_eq!(known.tls_failure("mx.b.example", &host(1), 5), None, "others' failures are not this name's");
        assert_eq!(known.tls_failure("mx.a.example", &host(1), 5 + TLS_KEPT_MS), None);
        for n in 0..10_000 {
            known.tls_failed("mx.a.example", &host(n), "expired", 6);
        }
        assert_eq!(known.no_tls.lock().len(), HOSTS_MAX);
    }

    #[test]
    fn what_may_be_a_chance_is_remembered_for_minutes_first() {
        let (known, name, addr) = (HostKnowledge::default(), "mx.a.example", host(1));
        let is_known = |now| known.tls_failure(name, &addr, now).is_some();
        let mut now = 5;
        for minutes in [5, 10, 20, 40, 60, 60] {
            let until = now + minutes * 60_000;
            known.tls_failed(name, &addr, "io", now);
            // A parallel connection.
            known.tls_failed(name, &addr, "timeout", now + 1);
            assert!(is_known(until - 1) && !is_known(until), "{minutes}");
            now = until;
        }
        known.tls_worked(name, &addr);
        known.tls_failed(name, &addr, "unexpected-eof", now);
        assert!(is_known(now + TLS_PASSING_MS - 1) && !is_known(now + TLS_PASSING_MS));
        // A failure long ago does not double the time.
        now += TLS_PASSING_MS + TLS_KEPT_MS;
        known.tls_failed(name, &addr, "lost", now);
        assert!(!is_known(now + TLS_PASSING_MS));
        known.tls_failed(name, &addr, "expired", now);
        assert!(is_known(now + TLS_KEPT_MS - 1));
        known.tls_failed("mx.b.example", &addr, "expired", now);
        let all = [(Arc::from("mx.A.example."), addr.clone()), (Arc::from("mx.c.example"), addr.clone())];
        assert_eq!((known.forget_tls_failures(Some(&all), now), is_known(now)), (1, false));
        assert_eq!((known.forget_tls_failures(None, now), known.forget_tls_failures(None, now)), (1, 0));
    }

    #[test]
    fn memory_is_bounded() {
        let known = HostKnowledge::default();
        for n in 0..10_000 {
            known.refused(&host(n), Extensions::SIZE, 1);
            known.note_traits(ContentId(u64::from(n)), Traits::default());
        }
        let hosts = known.hosts.lock().len();
        assert_eq!((hosts, known.withheld(&host(9_999), 1)), (HOSTS_MAX, Extensions::NONE));
        assert!(known.contents.lock().len() <= CONTENTS_MAX);
        known.refused(&host(9_999), Extensions::SIZE, 1 + KEPT_MS);
        assert_eq!(known.hosts.lock().len(), 1);
    }
}
