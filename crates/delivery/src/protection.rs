//! TLS of outgoing sessions: the requirements for a host, the handshake, and the session's TLS state afterwards.
//!
//! Promise: a session is encrypted if the host supports it; it goes in clear only where nothing requires more, and
//! records why. The use of a host for a site's mail is decided with the site's key
//! ([`stentor_queue::site::SitePlan::protect`]), from the operator's requirements and from DANE and MTA-STS. So a host
//! that does not meet them delays only that mail. Further requirements of a list or sender are compared with the
//! session ([`Protection::lacks_of_mail`]): their mail waits, other mail is sent.

use std::fmt::Write as _;
use std::sync::Arc;

use stentor_core::Settings;
use stentor_core::measures::Measures;
use stentor_mail::reply::Enhanced;
use stentor_queue::site::Target;
use stentor_smtp::client::{StartTlsRefusal, TlsUse};
use stentor_tls::{HandshakeFacts, PeerProof, PeerRequirement, PinnedHash, TlsError, TlsErrorCause, TlsaRecord};
use stentor_tls_policy::{
    HostPattern, HostPosture, Level, Peer, Posture, PostureQuery, Proof, PublishedPolicies, Strength,
};
use tokio::time::Instant;

use super::ending;
use super::stream::Stream;

/// The registry of RFC 5248 (X.7.10) and RFC 3463 (X.7.5): encryption needed; cryptographic failure.
const NOT_ENCRYPTED: Enhanced = Enhanced::new(4, 7, 10);
const NOT_PROVEN: Enhanced = Enhanced::new(4, 7, 5);

/// The properties of mail that may add requirements.
#[derive(Debug, Clone, Copy)]
pub struct Mail<'a> {
    /// Domain of the recipients.
    pub domain: &'a str,
    pub list: Option<&'a str>,
    /// Empty for the null sender.
    pub sender: &'a str,
}

/// The requirements for a host, and the TLS state of a session with it.
pub struct Protection {
    tls: TlsUse,
    requirement: PeerRequirement,
    /// Server name for the handshake.
    server_name: Box<str>,
    host: Option<Arc<HostPosture>>,
    allows_clear: bool,
    logs_in: bool,
    state: State,
    /// The handshake is completed whatever the certificate is worth.
    only_looks: bool,
    failed: Option<TlsError>,
    /// TLS failed after a completed handshake.
    broken: Option<TlsError>,
    /// The TLS state in the form of records.
    text: Box<str>,
}

/// The TLS state of a session.
enum State {
    /// No TLS: it is not to be used, or the handshake has not started yet.
    Unused,
    Clear(ClearReason),
    /// No session: TLS failed, and the mail requires it. The keyword says why.
    Failed(Box<str>),
    Secured(Box<HandshakeFacts>),
}

/// Why a session is in clear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClearReason {
    NotOffered,
    Refused,
    /// TLS failed in this attempt or recently; the keyword says why.
    Failed(Box<str>),
}

impl ClearReason {
    pub fn word(&self) -> &str {
        match self {
            ClearReason::NotOffered => "not-offered",
            ClearReason::Refused => "refused",
            ClearReason::Failed(why) => why,
        }
    }
}

impl Protection {
    /// Returns the requirements for this host. `failed` says why TLS failed in this attempt or recently, so that mail
    /// goes in clear if it may. An error if no host could meet the requirements.
    pub fn of(settings: &Settings, target: &Target, failed: Option<&str>) -> Result<Protection, TlsError> {
        let Some(addr) = target.addr.addr() else { return Ok(Protection::none()) };
        let host = target.posture.clone();
        let Demand { tls, requirement, server_name } = demand(target)?;
        // Such a port understands nothing else, whatever is required.
        let is_implicit = target.addr.is_implicit_tls();
        let tls = if is_implicit { TlsUse::Implicit } else { tls };
        let logs_in = settings.config.protection.smart_host(&target.host, addr.port()).is_some();
        let allows_clear = tls == TlsUse::IfOffered && host.as_ref().is_none_or(|host| host.posture.allows_clear());
        let mut protection =
            Protection { tls, requirement, server_name, host, allows_clear, logs_in, ..Protection::none() };
        if let Some(why) = failed.filter(|_| allows_clear) {
            protection.tls = TlsUse::Never;
            protection.goes_in_clear(ClearReason::Failed(why.into()));
        }
        Ok(protection)
    }

    fn none() -> Protection {
        Protection {
            tls: TlsUse::Never,
            requirement: PeerRequirement::Encrypted { names: Vec::new() },
            server_name: "".into(),
            host: None,
            allows_clear: true,
            logs_in: false,
            state: State::Unused,
            only_looks: false,
            failed: None,
            broken: None,
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

    /// Returns the TLS state in the form of records: `TLSv1.3:TLS_AES_256_GCM_SHA384:verified` (or `dane-ee`,
    /// `dane-ta`, `sts`), `clear:why`; empty where TLS is not used on purpose.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Counts the session, which has begun.
    pub fn count(&self, measures: &Measures) {
        let kind = match &self.state {
            State::Secured(facts) if facts.proven.is_proven() => 0,
            State::Secured(_) => 1,
            State::Clear(_) | State::Failed(_) => 2,
            State::Unused => 3,
        };
        measures.tls_session(kind, self.facts().is_some_and(|facts| facts.resumed));
    }

    /// Returns the results of the handshake; `None` before it.
    pub fn facts(&self) -> Option<&HandshakeFacts> {
        match &self.state {
            State::Secured(facts) => Some(facts),
            _ => None,
        }
    }

    /// Returns why the session is in clear, unless that is on purpose.
    pub fn in_clear(&self) -> Option<&ClearReason> {
        match &self.state {
            State::Clear(why) => Some(why),
            _ => None,
        }
    }

    /// Notes that the session continues in clear.
    pub fn goes_in_clear(&mut self, why: ClearReason) {
        self.set(State::Clear(why));
    }

    /// Notes that the session continues in clear because STARTTLS failed.
    pub fn unsecured(&mut self, why: &StartTlsRefusal) {
        self.goes_in_clear(match why {
            StartTlsRefusal::NotOffered => ClearReason::NotOffered,
            StartTlsRefusal::Refused(_) => ClearReason::Refused,
        });
    }

    /// Notes that TLS failed although the mail requires it; the keyword says why.
    pub fn has_failed(&mut self, why: &str) {
        self.set(State::Failed(why.into()));
    }

    fn set(&mut self, state: State) {
        let text = match &state {
            State::Unused => String::new(),
            State::Clear(why) => format!("clear:{}", why.word()),
            State::Failed(why) => format!("failed:{why}"),
            State::Secured(facts) => described(facts, self.host.as_deref()),
        };
        self.text = text.into();
        self.state = state;
    }

    /// Returns why the host's identity is not proven, if it is not.
    pub fn unproven(&self) -> Option<String> {
        match self.facts().map(|facts| &facts.proven) {
            None => Some("the session is in clear".to_owned()),
            Some(proven) if proven.is_proven() => None,
            Some(PeerProof::Nothing(error)) => Some(error.to_string()),
            Some(how) => Some(how.to_string()),
        }
    }

    /// Returns why the last handshake failed.
    pub fn failed(&self) -> Option<&TlsError> {
        self.failed.as_ref()
    }

    /// Returns why TLS ended, in the handshake or after it.
    pub fn broken(&self) -> Option<&TlsError> {
        self.failed.as_ref().or(self.broken.as_ref())
    }

    /// Notes that TLS failed after the handshake.
    pub fn has_broken(&mut self, error: &TlsError) {
        self.broken = Some(error.clone());
    }

    /// Makes the handshake complete, and keep its results, even with an untrusted certificate: for a check that sends
    /// no mail.
    pub fn only_look(&mut self) {
        self.only_looks = true;
    }

    /// Performs the handshake that the host expects.
    pub async fn handshake(
        &mut self,
        stream: Stream,
        settings: &Settings,
        target: &Target,
        deadline: Instant,
    ) -> Result<Stream, TlsError> {
        let must_prove = !matches!(self.requirement, PeerRequirement::Encrypted { .. } | PeerRequirement::Wanted(_));
        let looks = self.only_looks && must_prove;
        let wanted = looks.then(|| PeerRequirement::Wanted(Box::new(self.requirement.clone())));
        let requirement = wanted.as_ref().unwrap_or(&self.requirement);
        let secured = settings.tls_client().begin(requirement, &self.server_name, &target.addr.to_string());
        let made = match secured {
            Ok(secured) => stream.secure(secured, deadline).await,
            Err(error) => Err(error),
        };
        match made {
            Ok((_, facts)) if looks && !facts.proven.is_proven() => {
                let why = match &facts.proven {
                    PeerProof::Nothing(error) => error.clone(),
                    how => TlsError::new(TlsErrorCause::Policy, how.to_string()),
                };
                self.set(State::Secured(facts));
                self.failed = Some(why.clone());
                Err(why)
            }
            Ok((stream, facts)) => {
                self.set(State::Secured(facts));
                Ok(stream)
            }
            Err(error) => {
                self.failed = Some(error.clone());
                Err(error)
            }
        }
    }

    /// Returns the requirement of a message that the session lacks, if any.
    fn lacks(&self, posture: &Posture, peer: Peer<'_>) -> Option<(Enhanced, String)> {
        let nothing = PublishedPolicies::default();
        let published = self.host.as_ref().map_or(&nothing, |host| &host.published);
        let proof = match published.used(posture, peer).level {
            Level::Clear | Level::Opportunistic { .. } if posture.allows_clear() => return None,
            Level::Refused(why) => return Some((NOT_PROVEN, format!("{posture} is required: {why}"))),
            Level::Clear | Level::Opportunistic { .. } | Level::Encrypted { .. } => None,
            Level::Proven(proof) => Some(proof),
        };
        let Some(facts) = self.facts() else {
            let is_unused = matches!(self.state, State::Unused);
            let why = if is_unused { "TLS is not used with this host" } else { &*self.text };
            // Encryption is all that is missing if no proof is required.
            let demanded = if proof.is_some() { posture.to_string() } else { Strength::Encrypt.to_string() };
            return Some((NOT_ENCRYPTED, format!("{demanded} is required: {why}")));
        };
        if proof.is_none_or(|proof| self.is_proven(facts, &proof)) {
            return None;
        }
        let why = match &facts.proven {
            PeerProof::Nothing(error) => error.to_string(),
            how => how.to_string(),
        };
        Some((NOT_PROVEN, format!("{posture} is required: {why}")))
    }

    /// Returns the requirement of a message's list or sender that the session lacks, if any.
    pub fn lacks_of_mail(&self, settings: &Settings, target: &Target, mail: Mail<'_>) -> Option<(Enhanced, String)> {
        let policies = &settings.config.protection.policies;
        // Mail to a socket of this machine does not leave it.
        if !policies.differs_by_mail() || target.addr.ip().is_none() {
            return None;
        }
        let Mail { domain, list, sender } = mail;
        let host = target.host.trim_end_matches('.');
        let posture = policies.posture(&PostureQuery { domain, hosts: &[host], list, sender });
        self.lacks(&posture, Peer { hostname: host, nexthop: domain })
    }

    /// Returns a requirement of all mail of the site that the session lacks and a handshake does not show (RFC 8689
    /// section 4.2.1); none where REQUIRETLS is not demanded. A certificate's name from an insecure DNS answer proves
    /// nothing.
    pub fn lacks_of_site(&self, target: &Target, has_require_tls: bool) -> Option<(Enhanced, String)> {
        if !target.posture.as_deref().is_some_and(|host| host.posture.require_tls) {
            return None;
        }
        let is_proven = self.facts().is_some_and(|facts| facts.proven.is_proven());
        if !is_proven || matches!(self.requirement, PeerRequirement::Encrypted { .. } | PeerRequirement::Wanted(_)) {
            let text = "REQUIRETLS was requested but neither DANE, MTA-STS nor a [[tls_policy]] proves the host";
            return Some((ending::REQUIRETLS_NO_PROOF, text.to_owned()));
        }
        let text = "REQUIRETLS was requested but the host does not offer it";
        (!has_require_tls).then(|| (ending::REQUIRETLS_NOT_OFFERED, text.to_owned()))
    }

    /// Whether the host's proof meets the required one.
    fn is_proven(&self, facts: &HandshakeFacts, proof: &Proof) -> bool {
        let certificate = facts.peer.as_ref();
        match proof {
            Proof::Dane(_) => matches!(facts.proven, PeerProof::Dane(_)),
            Proof::Fingerprints(fingerprints) => certificate.is_some_and(|certificate| {
                fingerprints.iter().any(|one| one.0 == certificate.sha256 || one.0 == certificate.key_sha256)
            }),
            // Records of a signed zone prove a host's name as well as a CA does.
            Proof::Names(_) if matches!(facts.proven, PeerProof::Dane(_)) => {
                self.host.as_deref().is_some_and(is_of_secure_mx)
            }
            Proof::Names(patterns) => {
                let has = |pattern: &HostPattern| {
                    certificate.is_some_and(|certificate| match pattern {
                        HostPattern::Exact(name) => certificate.is_for(name),
                        below @ HostPattern::Below(_) => certificate.names.iter().any(|name| below.matches(name)),
                    })
                };
                matches!(facts.proven, PeerProof::Ca(_)) && patterns.iter().any(has)
            }
        }
    }
}

/// Whether records that prove the host also prove it to be the domain's: the MX answer is secure, or there is none.
fn is_of_secure_mx(host: &HostPosture) -> bool {
    let proof = match &host.used.level {
        Level::Proven(proof) => Some(proof),
        Level::Opportunistic { wanted } | Level::Encrypted { wanted } => wanted.as_ref(),
        _ => None,
    };
    matches!(proof, Some(Proof::Dane(proof)) if proof.mx.is_secure())
}

/// The TLS requirements for a host.
#[derive(Debug, PartialEq, Eq)]
struct Demand {
    tls: TlsUse,
    requirement: PeerRequirement,
    server_name: Box<str>,
}

/// Returns how TLS is used with a host. An error if the host cannot be used now.
fn demand(target: &Target) -> Result<Demand, TlsError> {
    let host = target.host.trim_end_matches('.');
    let anybody = || PeerRequirement::Encrypted { names: vec![host.into()] };
    let looked_at = |wanted: &Option<Proof>| match wanted {
        None => anybody(),
        Some(Proof::Names(patterns)) => PeerRequirement::Encrypted { names: names(patterns) },
        Some(proof) => PeerRequirement::Wanted(Box::new(required(proof))),
    };
    let Some(posture) = target.posture.as_deref() else {
        return Ok(Demand { tls: TlsUse::IfOffered, requirement: anybody(), server_name: host.into() });
    };
    let mut server_name = host;
    let (tls, requirement) = match &posture.used.level {
        Level::Clear => (TlsUse::Never, anybody()),
        Level::Opportunistic { wanted } if posture.posture.allows_clear() => (TlsUse::IfOffered, looked_at(wanted)),
        Level::Opportunistic { wanted } | Level::Encrypted { wanted } => (TlsUse::Required, looked_at(wanted)),
        Level::Proven(proof) => (TlsUse::Required, required(proof)),
        Level::Refused(why) => return Err(TlsError::new(TlsErrorCause::Policy, why.to_string())),
    };
    if let Level::Proven(Proof::Dane(proof))
    | Level::Opportunistic { wanted: Some(Proof::Dane(proof)) }
    | Level::Encrypted { wanted: Some(Proof::Dane(proof)) } = &posture.used.level
    {
        // RFC 7672 8.1.
        server_name = &proof.base_domain;
    }
    Ok(Demand { tls, requirement, server_name: server_name.into() })
}

/// Converts a proof to a requirement for TLS.
fn required(proof: &Proof) -> PeerRequirement {
    match proof {
        Proof::Names(patterns) => PeerRequirement::Ca { names: names(patterns) },
        Proof::Fingerprints(fingerprints) => {
            PeerRequirement::Fingerprint(fingerprints.iter().map(|one| PinnedHash::Either(one.0)).collect())
        }
        Proof::Dane(proof) => {
            let record = |record: &stentor_tls_policy::dane::Tlsa| {
                let (usage, selector, matching) = record.numbers();
                TlsaRecord { usage, selector, matching, data: record.data.clone() }
            };
            let names = proof.names.iter().map(|name| name.as_str().into()).collect();
            PeerRequirement::Dane { records: proof.records.iter().map(record).collect(), names }
        }
    }
}

fn names(patterns: &[HostPattern]) -> Vec<Box<str>> {
    patterns.iter().map(|pattern| pattern.to_string().into()).collect()
}

/// Formats TLS facts as one word for records: version, cipher, and how the host is proven.
fn described(facts: &HandshakeFacts, host: Option<&HostPosture>) -> String {
    let mut text = format!("{}:{}:", facts.version, facts.cipher);
    let _ = match &facts.proven {
        PeerProof::Nothing(why) => write!(text, "unproven({})", why.cause.key()),
        // Records prove the host, but not that it is the domain's.
        PeerProof::Dane(_) if !host.is_some_and(is_of_secure_mx) => write!(text, "{}(insecure-mx)", facts.proven.key()),
        PeerProof::Ca(_) => write!(text, "{}", host.and_then(HostPosture::applied).unwrap_or("verified")),
        how => write!(text, "{}", how.key()),
    };
    text
}

#[cfg(test)]
mod tests {
    use stentor_queue::site::Endpoint;
    use stentor_tls_policy::dane::{
        DaneDecision, DaneProof, DaneRefusal, NotApplicable, SecurityStatus, Tlsa as Record,
    };
    use stentor_tls_policy::sts::{StsMode, StsPolicy};
    use stentor_tls_policy::{Fingerprint as PolicyFetch, PeerName, Requirement as Asked};

    use super::*;

    const PEER: Peer<'_> = Peer { hostname: "mx.example", nexthop: "example" };

    fn host(posture: &Posture, published: PublishedPolicies) -> Option<Arc<HostPosture>> {
        HostPosture::new(posture, None, PEER, published).map(Arc::new)
    }

    fn demanded_with(posture: &Posture, published: PublishedPolicies) -> Result<Demand, TlsError> {
        let (addr, posture) = (Endpoint::by_port(([192, 0, 2, 1], 25)), host(posture, published));
        demand(&Target { preference: 0, host: "mx.example.".into(), addr, lmtp: false, posture })
    }

    fn demanded(asked: Asked) -> Result<(TlsUse, PeerRequirement), TlsError> {
        demanded_with(&asked.into(), PublishedPolicies::default()).map(|demand| (demand.tls, demand.requirement))
    }

    fn matched(base_domain: &str) -> DaneDecision {
        let records = vec![Record::parse(&[&[3, 1, 1][..], &[7; 32]].concat()).unwrap()];
        let (base_domain, names) = (base_domain.to_owned(), vec![base_domain.to_owned()]);
        DaneDecision::Match(DaneProof { records, base_domain, names, mx: SecurityStatus::Secure, unusable: 0 })
    }

    fn policy(mode: StsMode, mx: &str) -> PublishedPolicies {
        PublishedPolicies::new(PEER.hostname, None, Some(&StsPolicy { mode, max_age_s: 60, mx: vec![mx.to_owned()] }))
    }

    fn all_names(names: &[&str]) -> Vec<Box<str>> {
        names.iter().map(|name| (*name).into()).collect()
    }

    #[test]
    fn each_requirement_asks_of_tls_what_it_says() {
        let anybody = PeerRequirement::Encrypted { names: all_names(&["mx.example"]) };
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
        let by_ca = PeerRequirement::Ca { names: all_names(&["mx.example", ".example.com"]) };
        assert_eq!(demanded(Asked::Verify { names: patterns }), Ok((TlsUse::Required, by_ca)));
        let fingerprints = [PolicyFetch([7; 32])].into();
        let by_hash = PeerRequirement::Fingerprint(vec![PinnedHash::Either([7; 32])]);
        assert_eq!(demanded(Asked::Fingerprint { fingerprints }), Ok((TlsUse::Required, by_hash)));
        assert_eq!(demanded(Asked::DaneOnly).map_err(|error| error.cause), Err(TlsErrorCause::Policy));
        // Mail that may go in clear may not if a list or sender requires more for it.
        let lifted = Posture::from(Asked::Dane).join(Asked::Encrypt.into());
        assert_eq!(demanded_with(&lifted, PublishedPolicies::default()).map(|demand| demand.tls), Ok(TlsUse::Required));
    }

    #[test]
    fn what_is_published_is_asked_of_tls() {
        let sts: Posture = Asked::Sts.into();
        let dane = |decision| demanded_with(&sts, PublishedPolicies::new(PEER.hostname, Some(decision), None));
        let record = TlsaRecord { usage: 3, selector: 1, matching: 1, data: [7; 32].into() };
        let requirement = PeerRequirement::Dane { records: vec![record], names: all_names(&["real.example"]) };
        let wanted = Demand { tls: TlsUse::Required, requirement, server_name: "real.example".into() };
        assert_eq!(dane(matched("real.example")), Ok(wanted), "the name to ask for is where the records are");
        let unusable = dane(DaneDecision::Encrypt { base_domain: "mx.example".into(), unusable: 1 }).unwrap();
        assert_eq!(unusable.tls, TlsUse::Required);
        assert_eq!(dane(DaneDecision::NotApplicable(NotApplicable::NoRecords)).unwrap().tls, TlsUse::IfOffered);
        let refusal = DaneRefusal::LookUp { host: "mx.example".into(), port: 25, why: "SERVFAIL".into() };
        let error = dane(DaneDecision::Refuse(refusal)).unwrap_err();
        assert_eq!(&*error.text, "TLSA lookup error for mx.example:25: SERVFAIL");
        let by_ca = PeerRequirement::Ca { names: all_names(&["mx.example"]) };
        assert_eq!(demanded_with(&sts, policy(StsMode::Enforce, "mx.example")).unwrap().requirement, by_ca);
        let error = demanded_with(&sts, policy(StsMode::Enforce, "mx.other")).unwrap_err();
        assert_eq!(
            (error.cause, &*error.text),
            (TlsErrorCause::Policy, "the MTA-STS policy of example does not list mx.example")
        );
        for listed in ["mx.example", "mx.other"] {
            assert_eq!(demanded_with(&sts, policy(StsMode::Testing, listed)).unwrap().tls, TlsUse::IfOffered);
        }
    }

    #[test]
    fn tls_from_the_first_octet_is_the_hosts() {
        let settings = Settings::new(stentor_config::without_file().unwrap(), None);
        let of = |addr, posture: Option<Asked>| {
            let posture = posture.and_then(|asked| host(&asked.into(), PublishedPolicies::default()));
            let target = Target { preference: 0, host: "mx.example.".into(), addr, lmtp: false, posture };
            Protection::of(&settings, &target, Some("unexpected-eof")).unwrap()
        };
        let addr = ([192, 0, 2, 1], 4650).into();
        for asked in [None, Some(Asked::None), Some(Asked::Encrypt)] {
            let protection = of(Endpoint::Tls(addr), asked);
            assert_eq!((protection.tls(), protection.allows_clear()), (TlsUse::Implicit, false));
        }
        assert_eq!(of(Endpoint::by_port(([192, 0, 2, 1], 465)), None).tls(), TlsUse::Implicit);
        assert_eq!(of(Endpoint::Tcp(([192, 0, 2, 1], 465).into()), None).tls(), TlsUse::Never, "failed, in clear");
    }

    /// The memory of hosts is bounded: even when it is full, an attempt must not try TLS repeatedly.
    #[test]
    fn what_failed_in_this_attempt_is_not_tried_again_in_it() {
        let target = |posture| {
            let addr = Endpoint::by_port(([192, 0, 2, 1], 25));
            Target { preference: 0, host: "mx.example.".into(), addr, lmtp: false, posture }
        };
        let settings = Settings::new(stentor_config::without_file().unwrap(), None);
        assert_eq!(Protection::of(&settings, &target(None), None).unwrap().tls(), TlsUse::IfOffered);
        let again = Protection::of(&settings, &target(None), Some("unexpected-eof")).unwrap();
        assert_eq!((again.tls(), again.text()), (TlsUse::Never, "clear:unexpected-eof"));
        let demands = target(host(&Asked::Encrypt.into(), PublishedPolicies::default()));
        let again = Protection::of(&settings, &demands, Some("unexpected-eof")).unwrap();
        assert_eq!((again.tls(), again.text()), (TlsUse::Required, ""));
    }

    #[test]
    fn a_session_in_clear_lacks_whatever_is_demanded() {
        let mut session = Protection::none();
        session.goes_in_clear(ClearReason::NotOffered);
        assert_eq!(session.text(), "clear:not-offered");
        for asked in [Asked::May, Asked::Dane, Asked::Sts] {
            assert_eq!(session.lacks(&asked.into(), PEER), None, "nothing is published");
        }
        let (dsn, text) = session.lacks(&Asked::Encrypt.into(), PEER).unwrap();
        assert_eq!((dsn, text.as_str()), (NOT_ENCRYPTED, "encrypt is required: clear:not-offered"));
        assert_eq!(session.lacks(&Asked::DaneOnly.into(), PEER).unwrap().0, NOT_PROVEN);
        let published = PublishedPolicies::new(PEER.hostname, Some(matched("mx.example")), None);
        session.host = host(&Asked::May.into(), published);
        assert_eq!(session.lacks(&Asked::Dane.into(), PEER).unwrap().0, NOT_ENCRYPTED, "records are");
    }
}
