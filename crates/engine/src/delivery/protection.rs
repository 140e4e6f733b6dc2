//! TLS of outgoing sessions: what is demanded of a host, the handshake, and what is known of a session afterwards.
//!
//! Promise: a session is encrypted where the host can; it goes in clear only where nothing demands more, and says why.
//! What a posture demands of a site's mail was decided with the site's key ([`stentor_queue::site::SitePlan::protect`]), so
//! a host that does not do it keeps back that mail alone. What a list or sender demands beyond that is compared with what the
//! session has ([`Protection::lacks`]): their mail waits, others' goes.

use std::fmt::Write as _;
use std::sync::Arc;

use stentor_mail::client::TlsUse;
use stentor_mail::reply::Enhanced;
use stentor_posture::{Floor, HostPattern, Peer, Posture, Requirement as Asked};
use stentor_queue::site::{Endpoint, Target};
use stentor_tls::{Cause, Facts, Fingerprint, How, Requirement, TlsError};
use tokio::time::Instant;

use super::stream::Stream;
use crate::core::Settings;
use crate::core::measures::Measures;

/// TLS from the first octet (RFC 8314 section 3.3).
const SUBMISSIONS_PORT: u16 = 465;
/// RFC 7372 section 3.1 and RFC 3463: encryption needed; cryptographic failure.
const NOT_ENCRYPTED: Enhanced = Enhanced::new(4, 7, 10);
const NOT_PROVEN: Enhanced = Enhanced::new(4, 7, 5);

/// What is demanded of a host, and what a session with it has.
pub struct Protection {
    tls: TlsUse,
    requirement: Requirement,
    allows_clear: bool,
    logs_in: bool,
    facts: Option<Box<Facts>>,
    failed: Option<TlsError>,
    /// As records have it.
    text: Arc<str>,
}

impl Protection {
    /// What is demanded of this host; `failed` says why TLS has failed in this attempt or not long ago, so that mail which may goes in
    /// clear. An error if that is nothing that any host could do.
    pub fn of(settings: &Settings, target: &Target, failed: Option<&str>) -> Result<Protection, TlsError> {
        let Endpoint::Tcp(addr) = &target.addr else { return Ok(Protection::none()) };
        let asked = target.posture.as_deref();
        let (tls, requirement) = demand(target, asked)?;
        let is_implicit = addr.port() == SUBMISSIONS_PORT && tls != TlsUse::Never;
        let tls = if is_implicit { TlsUse::Implicit } else { tls };
        let logs_in = settings.config.protection.smart_host(&target.host, addr.port()).is_some();
        let allows_clear = tls == TlsUse::IfOffered && asked.is_none_or(Posture::allows_clear);
        let mut protection =
            Protection { tls, requirement, allows_clear, logs_in, facts: None, failed: None, text: "".into() };
        if let Some(why) = failed.filter(|_| allows_clear) {
            protection.tls = TlsUse::Never;
            protection.in_clear(why);
        }
        Ok(protection)
    }

    fn none() -> Protection {
        Protection {
            tls: TlsUse::Never,
            requirement: Requirement::Encrypted { names: Vec::new() },
            allows_clear: true,
            logs_in: false,
            facts: None,
            failed: None,
            text: "".into(),
        }
    }

    pub fn tls(&self) -> TlsUse {
        self.tls
    }

    /// Whether AUTH comes before the first transaction.
    pub fn logs_in(&self) -> bool {
        self.logs_in
    }

    /// Whether mail may go in clear if TLS fails.
    pub fn allows_clear(&self) -> bool {
        self.allows_clear
    }

    /// As records have it: `TLSv1.3:TLS_AES_256_GCM_SHA384:verified`, `clear:why`; empty where TLS is not used on purpose.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Counts the session, which has begun.
    pub fn count(&self, measures: &Measures) {
        let kind = match &self.facts {
            Some(facts) if facts.proven.is_proven() => 0,
            Some(_) => 1,
            None if self.text.is_empty() => 3,
            None => 2,
        };
        measures.tls_session(kind, self.facts().is_some_and(|facts| facts.resumed));
    }

    /// Nothing before the handshake.
    pub fn facts(&self) -> Option<&Facts> {
        self.facts.as_deref()
    }

    /// The session goes on in clear; why, in one word.
    pub fn in_clear(&mut self, why: &str) {
        self.text = format!("clear:{why}").into();
    }

    /// Why the last handshake failed.
    pub fn failed(&self) -> Option<&TlsError> {
        self.failed.as_ref()
    }

    /// Makes the handshake that the host expects.
    pub async fn handshake(
        &mut self,
        stream: Stream,
        settings: &Settings,
        target: &Target,
        deadline: Instant,
    ) -> Result<Stream, TlsError> {
        let name = target.host.trim_end_matches('.');
        let secured = settings.tls_client().begin(&self.requirement, name, &target.addr.to_string());
        let made = match secured {
            Ok(secured) => stream.secure(secured, deadline).await,
            Err(error) => Err(error),
        };
        match made {
            Ok((stream, facts)) => {
                self.text = described(&facts).into();
                self.facts = Some(facts);
                Ok(stream)
            }
            Err(error) => {
                self.failed = Some(error.clone());
                Err(error)
            }
        }
    }

    /// What the session lacks of what a message demands; nothing if it may go.
    pub fn lacks(&self, posture: &Posture, peer: Peer<'_>) -> Option<(Enhanced, String)> {
        if posture.allows_clear() {
            return None;
        }
        let Some(facts) = self.facts() else {
            let why = if self.text.is_empty() { "TLS is not used with this host" } else { &self.text };
            return Some((NOT_ENCRYPTED, format!("{posture} is demanded: {why}")));
        };
        if posture.floor == Floor::Encrypted || is_proven(facts, &posture.requirement, peer) {
            return None;
        }
        let why = match &facts.proven {
            How::Nothing(error) => error.to_string(),
            how => how.to_string(),
        };
        Some((NOT_PROVEN, format!("{posture} is demanded: {why}")))
    }
}

/// What TLS must do, for a host of this posture.
fn demand(target: &Target, posture: Option<&Posture>) -> Result<(TlsUse, Requirement), TlsError> {
    let host = target.host.trim_end_matches('.');
    let anybody = || Requirement::Encrypted { names: vec![host.into()] };
    let asked = posture.map_or(&Asked::May, |posture| &posture.requirement);
    let (tls, requirement) = match asked {
        Asked::None => (TlsUse::Never, anybody()),
        // What a domain publishes is no part of the posture: where it publishes nothing these are `may`.
        Asked::May | Asked::Dane | Asked::Sts => (TlsUse::IfOffered, anybody()),
        Asked::Encrypt => (TlsUse::Required, anybody()),
        Asked::Verify { names } => {
            // The site's key has the domain in it where names stand for it.
            let peer = Peer { hostname: host, nexthop: host };
            let names = names.iter().map(|name| name.pattern(peer).to_string().into()).collect();
            (TlsUse::Required, Requirement::Ca { names })
        }
        Asked::Fingerprint { fingerprints } => {
            let fingerprints = fingerprints.iter().map(|one| Fingerprint::Either(one.0)).collect();
            (TlsUse::Required, Requirement::Fingerprint(fingerprints))
        }
        Asked::DaneOnly => {
            let text = "dane-only is demanded, and there are no TLSA records that are proven";
            return Err(TlsError::new(Cause::NoTlsaMatch, text));
        }
    };
    let is_lifted = tls == TlsUse::IfOffered && posture.is_some_and(|posture| !posture.allows_clear());
    Ok((if is_lifted { TlsUse::Required } else { tls }, requirement))
}

/// Whether what is known of the host is what a requirement asks for.
fn is_proven(facts: &Facts, requirement: &Asked, peer: Peer<'_>) -> bool {
    let certificate = facts.peer.as_ref();
    match requirement {
        Asked::Fingerprint { fingerprints } => certificate.is_some_and(|certificate| {
            fingerprints.iter().any(|one| one.0 == certificate.sha256 || one.0 == certificate.key_sha256)
        }),
        Asked::Verify { names } => {
            let has = |pattern: &HostPattern| {
                certificate.is_some_and(|certificate| match pattern {
                    HostPattern::Exact(name) => certificate.is_for(name),
                    below @ HostPattern::Below(_) => certificate.names.iter().any(|name| below.matches(name)),
                })
            };
            matches!(facts.proven, How::Ca(_)) && names.iter().any(|name| has(&name.pattern(peer)))
        }
        Asked::DaneOnly => matches!(facts.proven, How::Dane(_)),
        _ => facts.proven.is_proven(),
    }
}

/// One word of records: version, cipher, and how the host is proven.
fn described(facts: &Facts) -> String {
    let mut text = format!("{}:{}:", facts.version, facts.cipher);
    let _ = match &facts.proven {
        How::Nothing(why) => write!(text, "unproven({})", why.cause.key()),
        How::Ca(_) => write!(text, "verified"),
        how => write!(text, "{}", how.key()),
    };
    text
}

#[cfg(test)]
mod tests {
    use stentor_posture::{Fingerprint as Wanted, PeerName};

    use super::*;

    fn target(port: u16) -> Target {
        let addr = ([192, 0, 2, 1], port).into();
        Target { preference: 0, host: "mx.example.".into(), addr, lmtp: false, posture: None }
    }

    fn demanded(asked: Asked) -> Result<(TlsUse, Requirement), TlsError> {
        demand(&target(25), Some(&asked.into()))
    }

    #[test]
    fn each_requirement_asks_of_tls_what_it_says() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).into()).collect::<Vec<Box<str>>>();
        let anybody = Requirement::Encrypted { names: names(&["mx.example"]) };
        assert_eq!(demand(&target(25), None), Ok((TlsUse::IfOffered, anybody.clone())));
        for (asked, tls) in [
            (Asked::None, TlsUse::Never),
            (Asked::May, TlsUse::IfOffered),
            (Asked::Dane, TlsUse::IfOffered),
            (Asked::Sts, TlsUse::IfOffered),
            (Asked::Encrypt, TlsUse::Required),
        ] {
            assert_eq!(demanded(asked), Ok((tls, anybody.clone())));
        }
        let patterns = [PeerName::Hostname, PeerName::parse(".example.com").unwrap()].into();
        let by_ca = Requirement::Ca { names: names(&["mx.example", ".example.com"]) };
        assert_eq!(demanded(Asked::Verify { names: patterns }), Ok((TlsUse::Required, by_ca)));
        let fingerprints = [Wanted([7; 32])].into();
        let by_hash = Requirement::Fingerprint(vec![Fingerprint::Either([7; 32])]);
        assert_eq!(demanded(Asked::Fingerprint { fingerprints }), Ok((TlsUse::Required, by_hash)));
        assert_eq!(demanded(Asked::DaneOnly).map_err(|error| error.cause), Err(Cause::NoTlsaMatch));
        // What may go in clear by itself may not where a list or sender demands more of the same mail.
        let lifted = Posture::from(Asked::Dane).join(Asked::Encrypt.into());
        assert_eq!(demand(&target(25), Some(&lifted)).map(|(tls, _)| tls), Ok(TlsUse::Required));
    }

    /// The memory of hosts is bounded: where it is full, an attempt must not begin TLS again and again.
    #[test]
    fn what_failed_in_this_attempt_is_not_tried_again_in_it() {
        let settings = Settings::new(stentor_config::without_file().unwrap(), None);
        assert_eq!(Protection::of(&settings, &target(25), None).unwrap().tls(), TlsUse::IfOffered);
        let again = Protection::of(&settings, &target(25), Some("unexpected-eof")).unwrap();
        assert_eq!((again.tls(), again.text()), (TlsUse::Never, "clear:unexpected-eof"));
        let demands = Target { posture: Some(std::sync::Arc::new(Asked::Encrypt.into())), ..target(25) };
        let again = Protection::of(&settings, &demands, Some("unexpected-eof")).unwrap();
        assert_eq!((again.tls(), again.text()), (TlsUse::Required, ""));
    }

    #[test]
    fn a_session_in_clear_lacks_whatever_is_demanded() {
        let peer = Peer { hostname: "mx.example", nexthop: "example" };
        let mut session = Protection::none();
        session.in_clear("not-offered");
        assert_eq!(session.text(), "clear:not-offered");
        assert_eq!(session.lacks(&Asked::May.into(), peer), None);
        let (dsn, text) = session.lacks(&Asked::Encrypt.into(), peer).unwrap();
        assert_eq!((dsn, text.as_str()), (NOT_ENCRYPTED, "encrypt is demanded: clear:not-offered"));
    }
}
