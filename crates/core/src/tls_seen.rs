//! TLS states of sessions with hosts: each host's last one, and the weakest of thirty days with time and reason.
//!
//! Promise: memory is bounded by [`HOSTS_MAX`]; the host contacted longest ago is forgotten first. A session costs one
//! look-up under a lock that is held for microseconds. The states are saved to a file now and then and read at startup
//! ([`HostTlsStates::save`], [`HostTlsStates::load`]); a crash loses later ones. The file's text is made from a copy
//! that shares its entries with the table.
//!
//! Hosts are known by name, for all sites that they serve: their abilities do not depend on whose mail they get.

use std::cmp::Ordering;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use stentor_config::keys::hex;
use stentor_queue::ids::Ms;
use stentor_tls::{Certificate, HandshakeFacts, PeerProof, day};

/// Maximum number of hosts; 700 octets each, with certificate.
pub const HOSTS_MAX: usize = 20_000;
/// Part of the hosts that is forgotten at once when there are too many.
const FORGOTTEN_PART: usize = 16;
/// How long the weakest state is remembered.
pub const WEAKEST_MS: Ms = 30 * 24 * 3_600_000;
/// Names of a certificate that are shown.
const NAMES_MAX: usize = 10;
const NAME_BYTES_MAX: usize = 255;

/// A host's certificate, in the form shown to people.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CertificateSummary {
    pub names: Vec<String>,
    pub issuer: String,
    /// Its last day, `2027-01-31`.
    pub ends: String,
    /// SHA-256 of the whole certificate, in hexadecimal digits.
    pub sha256: String,
    /// SHA-256 of its public key, as in a TLSA record `3 1 1`.
    pub key_sha256: String,
}

impl CertificateSummary {
    pub fn of(certificate: &Certificate) -> CertificateSummary {
        let names = certificate.names.iter().map(|name| &**name);
        let names = names.chain(certificate.names.is_empty().then_some(&*certificate.subject));
        CertificateSummary {
            names: names.take(NAMES_MAX).map(cut).collect(),
            issuer: cut(&certificate.issuer),
            ends: day(certificate.not_after),
            sha256: hex(&certificate.sha256),
            key_sha256: hex(&certificate.key_sha256),
        }
    }
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(NAME_BYTES_MAX)].to_owned()
}

/// A session that was weaker than all later ones.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WeakSession {
    pub at: Ms,
    strength: u8,
    /// TLS state in the form of records: `clear:timeout`, `TLSv1.2:...:unproven(expired)`.
    pub tls: Box<str>,
}

/// TLS states of one host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostTlsState {
    /// Time of the last session.
    pub at: Ms,
    /// TLS state of the last session in the form of records; empty if TLS is not used on purpose.
    pub tls: Box<str>,
    /// How the host was proven, or why not, in words; empty if the session was in clear.
    pub proven: String,
    pub certificate: Option<CertificateSummary>,
    /// Weak sessions, oldest first, each stronger than the one before. The first is the weakest; when it expires, the
    /// next is.
    weak: Vec<WeakSession>,
}

impl HostTlsState {
    /// Returns the weakest session of the last thirty days.
    pub fn weakest(&self, now: Ms) -> Option<&WeakSession> {
        self.weak.iter().find(|weak| weak.at + WEAKEST_MS > now)
    }

    fn add(&mut self, strength: u8, tls: &str, now: Ms) {
        if let Some(last) = self.weak.last_mut().filter(|last| last.strength == strength && *last.tls == *tls) {
            last.at = now;
            return;
        }
        self.weak.retain(|weak| weak.strength < strength && weak.at + WEAKEST_MS > now);
        self.weak.push(WeakSession { at: now, strength, tls: tls.into() });
    }
}

impl WeakSession {
    /// Returns the weaker session, or the later one if both are equal.
    pub fn weaker<'w>(&'w self, other: &'w WeakSession) -> &'w WeakSession {
        match self.strength.cmp(&other.strength).then(other.at.cmp(&self.at)) {
            Ordering::Greater => other,
            _ => self,
        }
    }
}

/// Ranks a session by how its host was proven, then by TLS version.
fn strength(facts: Option<&HandshakeFacts>, tls: &str) -> u8 {
    let Some(facts) = facts else { return u8::from(!tls.is_empty()) };
    let kind = match facts.proven {
        PeerProof::Nothing(_) => 2,
        PeerProof::Ca(_) => 4,
        PeerProof::Dane(_) | PeerProof::Fingerprint => 6,
    };
    kind + u8::from(facts.version == "TLSv1.3")
}

/// Evidence from hosts' certificates that our clock may be wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dates {
    /// Hosts that showed a certificate.
    pub hosts: usize,
    pub not_yet_valid: usize,
    pub expired: usize,
}

#[derive(Default)]
struct Inner {
    hosts: HashMap<Arc<str>, Arc<HostTlsState>, foldhash::fast::RandomState>,
    is_changed: bool,
}

/// TLS states by host; see the module documentation.
#[derive(Default)]
pub struct HostTlsStates(Mutex<Inner>);

impl HostTlsStates {
    /// Records a new session with a host. `facts`: its TLS, or `None` in clear.
    pub fn saw(&self, host: &str, facts: Option<&HandshakeFacts>, tls: &str, now: Ms) {
        let mut inner = self.0.lock();
        inner.is_changed = true;
        let strength = strength(facts, tls);
        let is_same = |seen: &HostTlsState| {
            let peer = facts.and_then(|facts| facts.peer.as_ref());
            let known = seen.certificate.as_ref();
            let has_same = match (peer, known) {
                (Some(peer), Some(known)) => known.sha256 == hex(&peer.sha256),
                (peer, known) => peer.is_none() && known.is_none(),
            };
            *seen.tls == *tls && has_same
        };
        if let Some(seen) = inner.hosts.get_mut(host)
            && is_same(seen)
        {
            let seen = Arc::make_mut(seen);
            seen.at = now;
            return seen.add(strength, tls, now);
        }
        let weak = inner.hosts.get(host).map(|seen| seen.weak.clone()).unwrap_or_default();
        let mut seen = HostTlsState {
            at: now,
            tls: tls.into(),
            proven: facts.map_or_else(String::new, |facts| facts.proven.to_string()),
            certificate: facts.and_then(|facts| facts.peer.as_ref()).map(CertificateSummary::of),
            weak,
        };
        seen.add(strength, tls, now);
        if inner.hosts.len() >= HOSTS_MAX && !inner.hosts.contains_key(host) {
            inner.forget();
        }
        inner.hosts.insert(host.into(), Arc::new(seen));
    }

    /// Returns the TLS states of a host.
    pub fn of(&self, host: &str) -> Option<HostTlsState> {
        let seen = self.0.lock().hosts.get(host.trim_end_matches('.')).cloned();
        seen.map(Arc::unwrap_or_clone)
    }

    /// Counts the certificates of hosts contacted since `since`, by their last session. Wrong dates on most of them
    /// point to our clock rather than to the certificates.
    pub fn dates(&self, since: Ms) -> Dates {
        let inner = self.0.lock();
        let met = inner.hosts.values().filter(|seen| seen.at >= since && seen.certificate.is_some());
        met.fold(Dates::default(), |all, seen| Dates {
            hosts: all.hosts + 1,
            not_yet_valid: all.not_yet_valid + usize::from(seen.tls.ends_with("(not-yet-valid)")),
            expired: all.expired + usize::from(seen.tls.ends_with("(expired)")),
        })
    }

    /// Returns the file's text, if anything changed since the last call.
    pub fn save(&self) -> Option<Vec<u8>> {
        let mut inner = self.0.lock();
        if !std::mem::take(&mut inner.is_changed) {
            return None;
        }
        let all: Vec<_> = inner.hosts.iter().map(|(host, seen)| (host.clone(), seen.clone())).collect();
        drop(inner);
        let all: Vec<(&str, &HostTlsState)> = all.iter().map(|(host, seen)| (&**host, &**seen)).collect();
        // Structs with string keys cannot fail.
        serde_json::to_vec(&all).ok()
    }

    /// Marks the states as changed again, since the last text could not be written.
    pub fn set_changed(&self) {
        self.0.lock().is_changed = true;
    }

    /// Restores the states from a file.
    ///
    /// # Errors
    /// The file is damaged; nothing changes.
    pub fn load(&self, octets: &[u8]) -> Result<(), serde_json::Error> {
        let all: Vec<(String, HostTlsState)> = serde_json::from_slice(octets)?;
        let all = all.into_iter().take(HOSTS_MAX).map(|(host, seen)| (Arc::<str>::from(host), Arc::new(seen)));
        self.0.lock().hosts = all.collect();
        Ok(())
    }
}

impl Inner {
    /// Forgets the hosts contacted longest ago.
    fn forget(&mut self) {
        let mut times: Vec<Ms> = self.hosts.values().map(|seen| seen.at).collect();
        let (_, &mut until, _) = times.select_nth_unstable(HOSTS_MAX / FORGOTTEN_PART);
        self.hosts.retain(|_, seen| seen.at > until);
    }
}

#[cfg(test)]
mod tests {
    use stentor_tls::{TlsError, TlsErrorCause};

    use super::*;

    const DAY: Ms = 24 * 3_600_000;

    fn facts(version: &'static str, proven: PeerProof, hash: u8) -> HandshakeFacts {
        let peer = Certificate {
            names: vec!["mx.example".into(), "*.example".into()],
            subject: "mx".into(),
            issuer: "A CA".into(),
            is_self_issued: false,
            not_before: 0,
            not_after: 1_800_000_000,
            sha256: [hash; 32],
            key_sha256: [0xab; 32],
        };
        HandshakeFacts {
            version,
            cipher: "C",
            bits: 128,
            group: "G",
            resumed: false,
            server_name: None,
            peer: Some(peer),
            proven,
            alpn: None,
        }
    }

    fn unproven() -> PeerProof {
        PeerProof::Nothing(TlsError::new(TlsErrorCause::Expired, "it ended"))
    }

    fn weakest(seen: &HostTlsStates, now: Ms) -> Option<(String, Ms)> {
        seen.of("mx.example.")?.weakest(now).map(|weak| (weak.tls.to_string(), weak.at / DAY))
    }

    #[test]
    fn the_last_and_the_weakest_of_thirty_days_are_known() {
        let seen = HostTlsStates::default();
        let saw = |facts: Option<HandshakeFacts>, tls: &str, at: Ms| seen.saw("mx.example", facts.as_ref(), tls, at);
        assert_eq!(seen.of("mx.example"), None);
        saw(None, "clear:timeout", 2 * DAY);
        saw(Some(facts("TLSv1.2", unproven(), 1)), "unproven", 4 * DAY);
        saw(Some(facts("TLSv1.3", PeerProof::Ca("mx.example".into()), 2)), "verified", 5 * DAY);
        saw(Some(facts("TLSv1.3", PeerProof::Fingerprint, 2)), "fingerprint", 6 * DAY);
        let of = |seen: &HostTlsStates| seen.of("mx.example").expect("it is known");
        let shown = of(&seen).certificate.expect("a certificate");
        assert_eq!(
            (&*shown.names.join(" "), &*shown.issuer, &*shown.ends),
            ("mx.example *.example", "A CA", "2027-01-15")
        );
        assert_eq!((shown.sha256, shown.key_sha256), ("02".repeat(32), "ab".repeat(32)));
        assert_eq!((&*of(&seen).tls, &*of(&seen).proven), ("fingerprint", "proven by its fingerprint"));
        let at = |now| weakest(&seen, now).expect("one is the weakest");
        assert_eq!(at(6 * DAY), ("clear:timeout".to_owned(), 2));
        assert_eq!(at(33 * DAY), ("unproven".to_owned(), 4));
        assert_eq!(at(34 * DAY), ("verified".to_owned(), 5));
        assert_eq!(at(35 * DAY), ("fingerprint".to_owned(), 6));
        assert_eq!(weakest(&seen, 36 * DAY), None);
        // A weaker session removes all earlier ones that are stronger.
        saw(None, "clear:lost", 7 * DAY);
        assert_eq!((at(7 * DAY), at(36 * DAY)), (("clear:lost".to_owned(), 7), ("clear:lost".to_owned(), 7)));
        assert_eq!(of(&seen).certificate, None);
        saw(None, "", 8 * DAY);
        assert_eq!(at(8 * DAY).0, "");
    }

    #[test]
    fn it_outlives_a_restart_and_is_bounded() {
        let seen = HostTlsStates::default();
        assert_eq!(seen.save(), None);
        for n in 0..=HOSTS_MAX as Ms {
            seen.saw(&format!("mx{n}.example"), None, "clear:lost", n);
        }
        let kept = seen.0.lock().hosts.len();
        assert!(kept <= HOSTS_MAX && kept > HOSTS_MAX - HOSTS_MAX / FORGOTTEN_PART - 2, "{kept}");
        assert_eq!(seen.of("mx0.example"), None);
        let last = seen.of(&format!("mx{HOSTS_MAX}.example"));
        let octets = seen.save().expect("it has changed");
        assert_eq!(seen.save(), None);
        let again = HostTlsStates::default();
        again.load(&octets).expect("it can be read");
        assert!(last.is_some());
        assert_eq!(again.of(&format!("mx{HOSTS_MAX}.example")), last);
        assert!(again.load(b"[[\"mx\"").is_err());
        assert!(again.of(&format!("mx{HOSTS_MAX}.example")).is_some(), "nothing changes");
    }

    #[test]
    fn certificates_say_what_the_clock_is_worth() {
        let seen = HostTlsStates::default();
        for (host, tls, at) in [
            ("a", "TLSv1.3:C:unproven(not-yet-valid)", 10),
            ("b", "TLSv1.3:C:unproven(expired)", 10),
            ("c", "TLSv1.3:C:verified", 10),
            ("d", "TLSv1.3:C:unproven(expired)", 9),
        ] {
            seen.saw(host, Some(&facts("TLSv1.3", unproven(), 1)), tls, at);
        }
        seen.saw("e", None, "clear:expired", 10);
        assert_eq!(seen.dates(10), Dates { hosts: 3, not_yet_valid: 1, expired: 1 });
    }

    #[test]
    fn of_two_the_weaker_and_then_the_later_one_counts() {
        let weak = |strength, at| WeakSession { at, strength, tls: "x".into() };
        let (a, b, c) = (weak(1, 5), weak(2, 9), weak(1, 7));
        assert_eq!((a.weaker(&b), b.weaker(&a), a.weaker(&c), c.weaker(&a)), (&a, &a, &c, &c));
    }
}
