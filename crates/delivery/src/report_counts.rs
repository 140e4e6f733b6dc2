//! Counts sessions for TLS reports (RFC 8460): the result of each, under the policy that was applied to it.
//!
//! Promise: a session counts once for each domain whose mail it was made for; an attempt in clear after a failed
//! handshake is part of it. Nothing is counted unless reports are configured. Sessions count under the domain's
//! published policy, under the absence of one if that was looked up, or under an MTA-STS policy that could not be
//! fetched (RFC 8460 4.3.2.2). Requirements of the operator alone, or of a sender by REQUIRETLS, are not a policy of
//! the domain. Our own reports are not counted: two servers would report about each other's reports for ever.

use std::net::IpAddr;

use stentor_config::SourceSettings;
use stentor_core::route::Route;
use stentor_core::unreached::UnreachedRcpts;
use stentor_core::{Core, Settings};
use stentor_queue::ids::Ms;
use stentor_queue::site::Target;
use stentor_tls::{TlsError, TlsErrorCause};
use stentor_tls_policy::sts::FetchFailure;
use stentor_tls_policy::tlsrpt::{AppliedPolicy, FailureDetails, PolicyType, ResultType, SessionCounter as _};
use stentor_tls_policy::{HostQuestion, Level, Peer, PolicySource, PostureQuery};

use super::protection::{ClearReason, Protection};
use super::stream::Stream;

/// Domains for which one failure is counted.
const DOMAINS_MAX: usize = 100;

/// How a session fails to meet a policy.
pub struct PolicyViolation {
    pub result: ResultType,
    pub reason: String,
}

impl PolicyViolation {
    /// Describes a failed handshake or an untrusted certificate.
    pub fn of(error: &TlsError) -> PolicyViolation {
        PolicyViolation { result: result_type(error.cause), reason: error.cause.key().to_owned() }
    }

    pub fn not_offered() -> PolicyViolation {
        PolicyViolation { result: ResultType::StarttlsNotSupported, reason: String::new() }
    }
}

/// Returns the result type of a cause (RFC 8460 4.3).
fn result_type(cause: TlsErrorCause) -> ResultType {
    match cause {
        TlsErrorCause::Expired | TlsErrorCause::NotYetValid => ResultType::CertificateExpired,
        TlsErrorCause::WrongName => ResultType::CertificateHostMismatch,
        TlsErrorCause::SelfSigned
        | TlsErrorCause::UnknownIssuer
        | TlsErrorCause::Revoked
        | TlsErrorCause::WrongFingerprint => ResultType::CertificateNotTrusted,
        TlsErrorCause::BadSignature
        | TlsErrorCause::BadCertificate
        | TlsErrorCause::NoCertificate
        | TlsErrorCause::NoTlsaMatch
        | TlsErrorCause::Policy
        | TlsErrorCause::NoSharedVersion
        | TlsErrorCause::NoSharedCipher
        | TlsErrorCause::NotTls
        | TlsErrorCause::Protocol
        | TlsErrorCause::Alert(_)
        | TlsErrorCause::UnexpectedEof
        | TlsErrorCause::Timeout
        | TlsErrorCause::Io(_)
        | TlsErrorCause::NotAsked
        | TlsErrorCause::Ours => ResultType::ValidationFailure,
    }
}

/// The two ends of a session.
#[derive(Clone, Copy)]
pub struct SessionEndpoints<'a> {
    pub target: &'a Target,
    /// Our own address as the host sees it, if known.
    pub our_ip: Option<IpAddr>,
}

/// Returns our own address on a connection.
pub fn our_ip(stream: &Stream) -> Option<IpAddr> {
    let local = match stream {
        Stream::Tcp(socket) => socket.local_addr(),
        Stream::Tls(socket) => socket.socket().local_addr(),
        Stream::Unix(_) | Stream::Gone => return None,
    };
    local.ok().map(|address| address.ip())
}

/// Returns our own address for a connection that is gone or was never made: that of the configured source.
pub fn source_ip(source: Option<&SourceSettings>, target: &Target) -> Option<IpAddr> {
    let source = source?;
    match target.addr.ip()? {
        IpAddr::V4(_) => source.v4.map(IpAddr::V4),
        IpAddr::V6(_) => source.v6.map(IpAddr::V6),
    }
}

/// Counts the result of a session for a domain.
pub fn count(
    core: &Core,
    settings: &Settings,
    ends: SessionEndpoints<'_>,
    domain: &str,
    found: Option<&PolicyViolation>,
) {
    let SessionEndpoints { target, our_ip } = ends;
    if settings.config.tls_reports.is_none() || domain.is_empty() || target.addr.ip().is_none() {
        return;
    }
    let now = core.clock.now();
    let Some((policy, refused)) = applied(core, settings, target, domain, now) else { return };
    // A problem with the policy itself takes precedence over one with the session.
    let failure = refused.as_ref().or(found).map(|found| FailureDetails {
        result: found.result,
        sending_ip: our_ip.map(|ip| ip.to_string()).unwrap_or_default(),
        receiving_host: target.host.trim_end_matches('.').to_owned(),
        receiving_ip: target.addr.ip().map(|ip| ip.to_string()).unwrap_or_default(),
        receiving_helo: String::new(),
        reason: found.reason.clone(),
    });
    core.tls_counts.lock().session(domain, &policy, failure.as_ref(), now);
}

/// Counts a failed session for the domains that waited for it.
pub fn count_unreached(
    core: &Core,
    settings: &Settings,
    ends: SessionEndpoints<'_>,
    unreached: &UnreachedRcpts,
    found: &PolicyViolation,
) {
    for (name, _) in unreached.domains.iter().take(DOMAINS_MAX) {
        if let Some(domain) = counted_domain(name) {
            count(core, settings, ends, domain, Some(found));
        }
    }
}

/// Returns the domain for whose mail a session is counted. `None`: published policies do not apply to mail of this name
/// (`TLS-Required: No`), so none was looked up. Our own reports are sent this way.
fn counted_domain(name: &str) -> Option<&str> {
    let (domain, route) = Route::split(name);
    (!route.wish.tls_required_no).then_some(domain)
}

/// Whether a message is a TLS report sent by this server: of its own reports, those of this sender. DMARC reports may
/// have the same.
pub fn is_tls_report(settings: &Settings, is_report: bool, sender: &str) -> bool {
    let from = settings.config.tls_reports.as_ref().map(|reports| reports.from.as_str());
    is_report && from.is_some_and(|from| from.eq_ignore_ascii_case(sender))
}

/// Returns the policy to count under if none is in force: one that could not be fetched is still the domain's (RFC 8460
/// 4.3.2.2).
fn without_policy(failure: Option<FetchFailure>) -> (AppliedPolicy, Option<PolicyViolation>) {
    let kind = if failure.is_some() { PolicyType::Sts } else { PolicyType::NoPolicyFound };
    let found = failure.map(|failure| PolicyViolation { result: failure.kind.into(), reason: failure.why });
    (AppliedPolicy { kind, lines: Vec::new(), mx: Vec::new() }, found)
}

/// Returns the policy applied to the host for mail to this domain, and why it refuses the host, if it does.
fn applied(
    core: &Core,
    settings: &Settings,
    target: &Target,
    domain: &str,
    now: Ms,
) -> Option<(AppliedPolicy, Option<PolicyViolation>)> {
    let host = target.host.trim_end_matches('.');
    let Some(known) = target.posture.as_deref() else {
        let question = PostureQuery { domain, hosts: &[host], list: None, sender: "" };
        let strength = settings.config.protection.policies.posture(&question).requirement.strength();
        let failure = if strength.asks_sts() { not_fetched(core, domain, now) } else { None };
        return (strength.asks_dane() || strength.asks_sts()).then(|| without_policy(failure));
    };
    if known.used.applied == PolicySource::NotFound {
        let asks_sts = known.posture.requirement.strength().asks_sts();
        let failure = if asks_sts { not_fetched(core, domain, now) } else { None };
        // Nothing is published, and the host was refused because of the message itself, or its list or sender.
        let is_nobodys = failure.is_none() && matches!(known.used.level, Level::Refused(_));
        return (!is_nobodys).then(|| without_policy(failure));
    }
    let peer = Peer { hostname: host, nexthop: domain };
    // The site has only the policy's effect on this host; the report quotes the whole policy.
    let whole = core.policies.live(domain, now).filter(|_| known.published.sts.is_some());
    let about = HostQuestion {
        posture: &known.posture,
        peer,
        dane: known.published.dane.as_ref(),
        sts: whole.as_deref().or(known.published.sts.as_deref()),
    };
    let policy = known.used.counted_under(&about)?;
    let refused = known.used.finding().map(|(result, reason)| PolicyViolation { result, reason });
    Some((policy, refused))
}

/// Returns why there is no MTA-STS policy, if one is published and none is kept.
fn not_fetched(core: &Core, domain: &str, now: Ms) -> Option<FetchFailure> {
    if core.policies.live(domain, now).is_some() { None } else { core.policies.about(domain).1 }
}

/// Returns how a ready session fails to meet the policy; `None` if it meets it.
pub fn of_session(target: &Target, protection: &Protection) -> Option<PolicyViolation> {
    if let Some(facts) = protection.facts() {
        let wanted = target.posture.as_deref().is_some_and(|host| match &host.used.level {
            Level::Opportunistic { wanted } | Level::Encrypted { wanted } => wanted.is_some(),
            _ => false,
        });
        return match &facts.proven {
            stentor_tls::PeerProof::Nothing(error) if wanted => Some(PolicyViolation::of(error)),
            _ => None,
        };
    }
    Some(match (protection.failed(), protection.in_clear()) {
        (Some(error), _) => PolicyViolation::of(error),
        (None, Some(ClearReason::NotOffered | ClearReason::Refused)) => PolicyViolation::not_offered(),
        (None, why) => {
            let reason = why.map_or("", ClearReason::word).to_owned();
            PolicyViolation { result: ResultType::ValidationFailure, reason }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_rules::NextHop;
    use stentor_tls_policy::Wish;
    use stentor_tls_policy::sts::FetchFailureKind;

    #[test]
    fn mail_that_is_not_held_to_policies_is_not_counted() {
        let optional = Wish { require_tls: false, tls_required_no: true };
        let (at_domain, at_mx) = (Route::default(), Route::by(NextHop::Mx));
        for (wish, is_counted) in
            [(optional, false), (Wish::default(), true), (Wish { require_tls: true, ..optional }, true)]
        {
            for route in [&at_domain, &at_mx] {
                let route = Route { wish, ..route.clone() };
                assert_eq!(counted_domain(&route.entry("a.test")).is_some(), is_counted, "{route}");
            }
        }
    }

    #[test]
    fn a_policy_that_cannot_be_fetched_is_reported_as_one() {
        let of = |kind| without_policy(Some(FetchFailure { kind, why: "why".to_owned() }));
        for (kind, name) in [
            (FetchFailureKind::Fetch, "sts-policy-fetch-error"),
            (FetchFailureKind::Invalid, "sts-policy-invalid"),
            (FetchFailureKind::Certificate, "sts-webpki-invalid"),
        ] {
            let (policy, found) = of(kind);
            let found = found.expect("a finding");
            assert_eq!((policy.kind, found.result.name(), &*found.reason), (PolicyType::Sts, name, "why"));
        }
        let (policy, found) = without_policy(None);
        assert!(policy.kind == PolicyType::NoPolicyFound && found.is_none());
    }
}
