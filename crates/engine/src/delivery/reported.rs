//! Sessions counted for reports on TLS (RFC 8460): what came of each, under the policy that was applied to it.
//!
//! Promise: a session counts once for each domain whose mail it was made for, an attempt in clear after a failed handshake as a
//! part of it; nothing is counted unless reports are configured. Counted is what a domain publishes, or that it publishes nothing
//! where that was looked for, or that its MTA-STS policy could not be fetched (RFC 8460 4.3.2.2); what the operator alone demands is
//! nobody's policy, and neither is what a sender demands by REQUIRETLS. Our own reports are not counted: two servers would report about each other's reports for ever.

use std::net::IpAddr;

use stentor_config::Source;
use stentor_posture::sts::FetchFailure;
use stentor_posture::tlsrpt::{AppliedPolicy, Failure, PolicyType, ResultType};
use stentor_posture::{Applied, HostQuestion, Level, Peer, Question, Wish};
use stentor_queue::book::split_hop;
use stentor_queue::ids::Ms;
use stentor_queue::site::Target;
use stentor_tls::{Cause, TlsError};

use super::protection::{InClear, Protection};
use super::stream::Stream;
use crate::core::unreached::Unreached;
use crate::core::{Core, Settings};

/// Domains for which one failure is counted.
const DOMAINS_MAX: usize = 100;

/// Why a session is not what a policy asks for.
pub struct Finding {
    pub result: ResultType,
    pub reason: String,
}

impl Finding {
    /// Of a failed handshake or a certificate that proves nothing.
    pub fn of(error: &TlsError) -> Finding {
        Finding { result: result_type(error.cause), reason: error.cause.key().to_owned() }
    }

    pub fn not_offered() -> Finding {
        Finding { result: ResultType::StarttlsNotSupported, reason: String::new() }
    }
}

/// The result type that stands for a cause (RFC 8460 4.3).
fn result_type(cause: Cause) -> ResultType {
    match cause {
        Cause::Expired | Cause::NotYetValid => ResultType::CertificateExpired,
        Cause::WrongName => ResultType::CertificateHostMismatch,
        Cause::SelfSigned | Cause::UnknownIssuer | Cause::Revoked | Cause::WrongFingerprint => {
            ResultType::CertificateNotTrusted
        }
        Cause::BadSignature
        | Cause::BadCertificate
        | Cause::NoCertificate
        | Cause::NoTlsaMatch
        | Cause::Policy
        | Cause::NoSharedVersion
        | Cause::NoSharedCipher
        | Cause::NotTls
        | Cause::Protocol
        | Cause::Alert(_)
        | Cause::UnexpectedEof
        | Cause::Timeout
        | Cause::Io(_)
        | Cause::NotAsked
        | Cause::Ours => ResultType::ValidationFailure,
    }
}

/// A host, and the address of ours that it sees, if that is known.
pub type Ends<'a> = (&'a Target, Option<IpAddr>);

/// The address of ours that a connection comes from.
pub fn our_ip(stream: &Stream) -> Option<IpAddr> {
    let local = match stream {
        Stream::Tcp(socket) => socket.local_addr(),
        Stream::Tls(socket) => socket.socket().local_addr(),
        Stream::Unix(_) | Stream::Gone => return None,
    };
    local.ok().map(|address| address.ip())
}

/// The same of a connection that is gone, or was never made: that of the source which the operator has configured.
pub fn source_ip(source: Option<&Source>, target: &Target) -> Option<IpAddr> {
    let source = source?;
    match target.addr.ip()? {
        IpAddr::V4(_) => source.v4.map(IpAddr::V4),
        IpAddr::V6(_) => source.v6.map(IpAddr::V6),
    }
}

/// Counts what came of a session for a domain.
pub fn count(core: &Core, settings: &Settings, (target, our_ip): Ends<'_>, domain: &str, found: Option<&Finding>) {
    if settings.config.tls_reports.is_none() || domain.is_empty() || target.addr.ip().is_none() {
        return;
    }
    let now = core.clock.now();
    let Some((policy, refused)) = applied(core, settings, target, domain, now) else { return };
    // What is wrong with the policy itself comes before what was wrong with the session.
    let failure = refused.as_ref().or(found).map(|found| Failure {
        result: found.result,
        sending_ip: our_ip.map(|ip| ip.to_string()).unwrap_or_default(),
        receiving_host: target.host.trim_end_matches('.').to_owned(),
        receiving_ip: target.addr.ip().map(|ip| ip.to_string()).unwrap_or_default(),
        receiving_helo: String::new(),
        reason: found.reason.clone(),
    });
    core.tls_counts.lock().session(domain, &policy, failure.as_ref(), now);
}

/// Counts a session that did not come about for the domains that waited for it.
pub fn count_unreached(core: &Core, settings: &Settings, ends: Ends<'_>, unreached: &Unreached, found: &Finding) {
    for (name, _) in unreached.domains.iter().take(DOMAINS_MAX) {
        if let Some(domain) = counted_domain(name) {
            count(core, settings, ends, domain, Some(found));
        }
    }
}

/// The domain for whose mail a session is counted; `None`: the mail of this name is not held to what is published (`TLS-Required: No`),
/// so that nothing was looked for. Our own reports go that way.
fn counted_domain(name: &str) -> Option<&str> {
    let (domain, hop) = split_hop(name);
    (!Wish::of_hop(hop).0.tls_required_no).then_some(domain)
}

/// Whether a message is a report that this server sent on TLS: the only one of its own that has a sender.
pub fn is_tls_report(settings: &Settings, is_report: bool, sender: &str) -> bool {
    let from = settings.config.tls_reports.as_ref().map(|reports| reports.from.as_str());
    is_report && from.is_some_and(|from| from.eq_ignore_ascii_case(sender))
}

/// What it is counted under where no policy holds: one that could not be fetched is the domain's all the same (RFC 8460 4.3.2.2).
fn without_policy(failure: Option<FetchFailure>) -> (AppliedPolicy, Option<Finding>) {
    let kind = if failure.is_some() { PolicyType::Sts } else { PolicyType::NoPolicyFound };
    let found = failure.map(|failure| Finding { result: failure.kind.into(), reason: failure.why });
    (AppliedPolicy { kind, lines: Vec::new(), mx: Vec::new() }, found)
}

/// The policy that is applied to the host for mail to this domain, and why it refuses the host, if it does.
fn applied(
    core: &Core,
    settings: &Settings,
    target: &Target,
    domain: &str,
    now: Ms,
) -> Option<(AppliedPolicy, Option<Finding>)> {
    let host = target.host.trim_end_matches('.');
    let Some(known) = target.posture.as_deref() else {
        let question = Question { domain, hosts: &[host], list: None, sender: "" };
        let strength = settings.config.protection.policies.posture(&question).requirement.strength();
        let failure = if strength.asks_sts() { not_fetched(core, domain, now) } else { None };
        return (strength.asks_dane() || strength.asks_sts()).then(|| without_policy(failure));
    };
    if known.used.applied == Applied::NotFound {
        let asks_sts = known.posture.requirement.strength().asks_sts();
        let failure = if asks_sts { not_fetched(core, domain, now) } else { None };
        // Nothing is published, and the host is refused for what the message itself, or its list or sender, demands.
        let is_nobodys = failure.is_none() && matches!(known.used.level, Level::Refused(_));
        return (!is_nobodys).then(|| without_policy(failure));
    }
    let peer = Peer { hostname: host, nexthop: domain };
    // The site knows of the policy what it is for this host; the report quotes it whole.
    let whole = core.policies.live(domain, now).filter(|_| known.published.sts.is_some());
    let about = HostQuestion {
        posture: &known.posture,
        peer,
        dane: known.published.dane.as_ref(),
        sts: whole.as_deref().or(known.published.sts.as_deref()),
    };
    let policy = known.used.counted_under(&about)?;
    let refused = known.used.finding().map(|(result, reason)| Finding { result, reason });
    Some((policy, refused))
}

/// Why there is no MTA-STS policy, if one is published and none is kept.
fn not_fetched(core: &Core, domain: &str, now: Ms) -> Option<FetchFailure> {
    if core.policies.live(domain, now).is_some() { None } else { core.policies.about(domain).1 }
}

/// What a session that is ready shows; `None`: all that the policy asks for.
pub fn of_session(target: &Target, protection: &Protection) -> Option<Finding> {
    if let Some(facts) = protection.facts() {
        let wanted = target.posture.as_deref().is_some_and(|host| match &host.used.level {
            Level::Opportunistic { wanted } | Level::Encrypted { wanted } => wanted.is_some(),
            _ => false,
        });
        return match &facts.proven {
            stentor_tls::How::Nothing(error) if wanted => Some(Finding::of(error)),
            _ => None,
        };
    }
    Some(match (protection.failed(), protection.in_clear()) {
        (Some(error), _) => Finding::of(error),
        (None, Some(InClear::NotOffered | InClear::Refused)) => Finding::not_offered(),
        (None, why) => {
            let reason = why.map_or("", InClear::word).to_owned();
            Finding { result: ResultType::ValidationFailure, reason }
        }
    })
}

#[cfg(test)]
mod tests {
    use stentor_posture::sts::FetchFailureKind;
    use stentor_queue::book::at_hop;

    use super::*;

    #[test]
    fn mail_that_is_not_held_to_policies_is_not_counted() {
        let optional = Wish { require_tls: false, tls_required_no: true };
        let hop = |wish: Wish, own| at_hop("a.test", &wish.hop(own).unwrap_or_default());
        assert_eq!(counted_domain(&hop(optional, None)), None);
        assert_eq!(counted_domain(&hop(optional, Some("mx.test"))), None);
        assert_eq!(counted_domain("a.test"), Some("a.test"));
        assert_eq!(counted_domain(&hop(Wish::default(), Some("mx.test"))), Some("a.test"));
        assert_eq!(counted_domain(&hop(Wish { require_tls: true, ..optional }, None)), Some("a.test"));
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
