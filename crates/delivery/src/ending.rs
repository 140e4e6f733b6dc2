//! What the end of a session means for the scheduler: whether there was a session, and why it ended.

use stentor_mail::reply::Enhanced;
use stentor_queue::site::Target;
use stentor_sched::{CloseReason, NoSession};
use stentor_smtp::client::{ClientError, ParsedReply, TlsStage};
use stentor_tls::{TlsError, TlsErrorCause};
use stentor_tls_policy::dane::DaneRefusal;
use stentor_tls_policy::{HostPosture, HostRefusal, Level};

/// RFC 8689 section 4.2.1: no TLS or no proof; no REQUIRETLS.
pub(super) const REQUIRETLS_NO_PROOF: Enhanced = Enhanced::new(5, 7, 10);
pub(super) const REQUIRETLS_NOT_OFFERED: Enhanced = Enhanced::new(5, 7, 30);

/// Returns the host's last reply, if it explains the end of the session.
pub(super) fn said(error: Option<&ClientError>) -> Option<&ParsedReply> {
    match error {
        Some(ClientError::Refused { reply, .. } | ClientError::ServerClosing { reply, .. }) => Some(reply),
        _ => None,
    }
}

/// How far TLS progressed in a session.
#[derive(Clone, Copy)]
pub(super) struct TlsProgress {
    pub stage: TlsStage,
    /// The host closed TLS with a close notification before the connection (RFC 8446 section 6.1), which nobody else
    /// can forge.
    pub is_closed_by_host: bool,
}

/// Whether TLS ended the session: a lost connection or a broken record in the handshake or right after it, an alert, or
/// octets that are not TLS. A reply read within TLS means that TLS works, whatever the reply says; a 421 to STARTTLS is
/// a reply, too.
pub(super) fn is_of_tls(error: &ClientError, tls: TlsProgress) -> bool {
    let is_reply = matches!(error, ClientError::ServerClosing { .. } | ClientError::Refused { .. });
    match tls.stage {
        TlsStage::Clear | TlsStage::Refused | TlsStage::Secured => false,
        TlsStage::Asked => !is_reply,
        TlsStage::Handshake => true,
        TlsStage::Hello => match error {
            ClientError::Tls(_) => true,
            ClientError::Disconnected(_) => !tls.is_closed_by_host,
            _ => false,
        },
    }
}

/// Classifies the end of a session that never became ready, by its error and its TLS progress.
pub(super) fn no_session(error: Option<&ClientError>, tls: TlsProgress) -> NoSession {
    match error {
        Some(ClientError::Auth { .. } | ClientError::NoAuth(_)) => NoSession::Auth,
        // A busy host may say so at any command.
        Some(ClientError::ServerClosing { reply, .. }) => reply_with(reply),
        Some(ClientError::GivenUp(_)) | None => NoSession::Failed,
        Some(ClientError::TlsNotOffered | ClientError::TlsRefused(_) | ClientError::Tls(_) | ClientError::Injected) => {
            NoSession::Tls
        }
        Some(error) if is_of_tls(error, tls) => NoSession::Tls,
        error => said(error).map_or(NoSession::Failed, reply_with),
    }
}

/// Returns the keyword of records for a failed TLS. `failed`: the error of the handshake or of what followed it.
pub(super) fn tls_word(error: &ClientError, failed: Option<&TlsError>) -> &'static str {
    match (error, failed) {
        (ClientError::TimedOut(_), _) => "timeout",
        (_, Some(error)) => error.cause.key(),
        (ClientError::Injected, None) => "injected",
        (ClientError::Disconnected(_), None) => "lost",
        (ClientError::TlsNotOffered, None) => "not-offered",
        (ClientError::TlsRefused(_), None) => "refused",
        // A reply to STARTTLS that is neither a go-ahead nor a refusal.
        (_, None) => "protocol",
    }
}

/// Adapts the reason for mail with REQUIRETLS: a host known to lack TLS or proof is unfit for it. Time-outs, lost
/// connections and temporary refusals are retried. `failed`: the error of the handshake, if it failed.
pub(super) fn for_site(
    why: NoSession,
    error: Option<&ClientError>,
    failed: Option<&TlsError>,
    target: &Target,
) -> NoSession {
    // A failed look-up says nothing about the host.
    let is_known =
        |host: &HostPosture| !matches!(host.used.level, Level::Refused(HostRefusal::Dane(DaneRefusal::LookUp { .. })));
    let is_demanded = target.posture.as_deref().is_some_and(|host| host.posture.require_tls && is_known(host));
    let is_found = match error {
        Some(ClientError::TlsNotOffered | ClientError::Injected) => true,
        Some(ClientError::TlsRefused(reply)) => reply.code >= 500,
        // No other error is possible before a session begins.
        None | Some(ClientError::Tls(_)) => failed.is_some_and(|failed| !is_passing(failed.cause)),
        Some(_) => false,
    };
    if why == NoSession::Tls && is_demanded && is_found { NoSession::Unfit { dsn: REQUIRETLS_NO_PROOF } } else { why }
}

/// Whether TLS ended in a way that reveals nothing about the host's abilities.
fn is_passing(cause: TlsErrorCause) -> bool {
    matches!(cause, TlsErrorCause::UnexpectedEof | TlsErrorCause::Timeout | TlsErrorCause::Io(_) | TlsErrorCause::Ours)
}

/// Returns its enhanced code in records (RFC 3463; RFC 4954 section 6; RFC 8689 section 8).
pub(super) fn dsn(why: NoSession) -> &'static str {
    match why {
        NoSession::Unfit { dsn: REQUIRETLS_NO_PROOF } => "4.7.10",
        NoSession::Unfit { .. } => "4.7.30",
        NoSession::Tls => "4.7.5",
        NoSession::Auth => "4.7.8",
        NoSession::Unreachable | NoSession::Failed | NoSession::Reply { .. } => "4.4.1",
    }
}

fn reply_with(reply: &ParsedReply) -> NoSession {
    NoSession::Reply { code: reply.code, dsn: reply.enhanced }
}

pub(super) fn close_reason(error: Option<ClientError>) -> CloseReason {
    match error {
        None => CloseReason::Normal,
        Some(ClientError::ServerClosing { reply, .. } | ClientError::Refused { reply, .. }) => {
            let text = reply.enhanced.map_or_else(|| reply.text.clone(), |dsn| format!("{dsn} {}", reply.text).into());
            CloseReason::Refused { text }
        }
        Some(error) => CloseReason::Lost { text: error.to_string().into() },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stentor_queue::site::Endpoint;
    use stentor_smtp::client::AuthRefusal;
    use stentor_tls_policy::{Floor, Peer, Posture, PublishedPolicies, Requirement};

    use super::*;

    #[test]
    fn failures_of_tls_and_auth_are_told_from_those_of_hosts() {
        let reply = |code| ParsedReply { code, enhanced: None, text: Arc::from("no") };
        let closing = |at| ClientError::ServerClosing { at, reply: reply(421) };
        let busy = NoSession::Reply { code: 421, dsn: None };
        for (error, stage, expected) in [
            (ClientError::Disconnected("x"), TlsStage::Clear, NoSession::Failed),
            (ClientError::Disconnected("x"), TlsStage::Refused, NoSession::Failed),
            (ClientError::Disconnected("x"), TlsStage::Asked, NoSession::Tls),
            (ClientError::TimedOut("x"), TlsStage::Handshake, NoSession::Tls),
            (ClientError::Disconnected("x"), TlsStage::Hello, NoSession::Tls),
            (ClientError::Disconnected("x"), TlsStage::Secured, NoSession::Failed),
            (ClientError::Tls("x".into()), TlsStage::Secured, NoSession::Tls),
            (ClientError::TlsNotOffered, TlsStage::Clear, NoSession::Tls),
            (ClientError::TlsRefused(reply(454)), TlsStage::Refused, NoSession::Tls),
            (ClientError::Injected, TlsStage::Handshake, NoSession::Tls),
            (closing("STARTTLS"), TlsStage::Asked, busy),
            (ClientError::GivenUp("x"), TlsStage::Handshake, NoSession::Failed),
            (
                ClientError::Auth { why: AuthRefusal::Credentials, reply: reply(535) },
                TlsStage::Secured,
                NoSession::Auth,
            ),
            (ClientError::NoAuth("x".into()), TlsStage::Clear, NoSession::Auth),
        ] {
            assert_eq!(no_session(Some(&error), at(stage)), expected, "{error} {stage:?}");
        }
        assert_eq!(no_session(None, at(TlsStage::Secured)), NoSession::Failed);
    }

    fn at(stage: TlsStage) -> TlsProgress {
        TlsProgress { stage, is_closed_by_host: false }
    }

    /// A busy host says so within TLS as in clear: no new connection is made, and none in clear.
    #[test]
    fn a_reply_within_tls_is_no_failure_of_tls() {
        let reply = |code| ParsedReply { code, enhanced: None, text: Arc::from("no") };
        let busy = |code| NoSession::Reply { code, dsn: None };
        for code in [421, 450, 451, 454, 500, 502, 521, 550, 554] {
            for stage in [TlsStage::Secured, TlsStage::Clear] {
                let closing = ClientError::ServerClosing { at: "EHLO", reply: reply(code) };
                for error in [ClientError::Refused { at: "EHLO", reply: reply(code) }, closing] {
                    assert!(!is_of_tls(&error, at(stage)), "{error} {stage:?}");
                    assert_eq!(no_session(Some(&error), at(stage)), busy(code), "{error} {stage:?}");
                }
            }
        }
        let odd = || ClientError::Unexpected { to: "EHLO", reply: reply(354) };
        let closed = TlsProgress { stage: TlsStage::Hello, is_closed_by_host: true };
        for (error, tls, is_tls) in [
            (odd(), at(TlsStage::Secured), false),
            (ClientError::Disconnected("x"), at(TlsStage::Secured), false),
            (ClientError::TimedOut("x"), at(TlsStage::Hello), false),
            (ClientError::Disconnected("x"), closed, false),
            (ClientError::Disconnected("x"), at(TlsStage::Hello), true),
            (ClientError::Tls("alert certificate_required".into()), at(TlsStage::Hello), true),
            (ClientError::Tls("x".into()), closed, true),
            (odd(), at(TlsStage::Asked), true),
            (ClientError::ServerClosing { at: "STARTTLS", reply: reply(421) }, at(TlsStage::Asked), false),
            (ClientError::TimedOut("x"), at(TlsStage::Asked), true),
            (ClientError::TimedOut("x"), at(TlsStage::Handshake), true),
            (ClientError::Disconnected("x"), at(TlsStage::Asked), true),
            (ClientError::Disconnected("x"), at(TlsStage::Refused), false),
        ] {
            assert_eq!(is_of_tls(&error, tls), is_tls, "{error} {:?}", tls.stage);
        }
        let alert = TlsError::new(TlsErrorCause::Alert(116), "alert certificate_required");
        assert_eq!(tls_word(&ClientError::Tls("x".into()), Some(&alert)), "alert");
        assert_eq!(tls_word(&odd(), None), "protocol");
    }

    /// A broken network must not return mail that requires TLS.
    #[test]
    fn what_was_late_or_lost_makes_no_host_unfit() {
        let posture = Posture { requirement: Requirement::Sts, floor: Floor::Proven, require_tls: true };
        let peer = Peer { hostname: "mx.a.test", nexthop: "a.test" };
        let host = HostPosture::new(&posture, None, peer, PublishedPolicies::default()).map(Arc::new);
        let addr = Endpoint::by_port(([192, 0, 2, 1], 25));
        let target = Target { preference: 0, host: "mx.a.test".into(), addr, lmtp: false, posture: host };
        let refused = |code| ClientError::TlsRefused(ParsedReply { code, enhanced: None, text: Arc::from("no") });
        let (broken, not_offered) = (|| Some(ClientError::Tls("x".into())), Some(ClientError::TlsNotOffered));
        let failed = |cause| Some(TlsError::new(cause, "x"));
        for (error, failed, is_unfit) in [
            (not_offered, None, true),
            (Some(ClientError::Injected), None, true),
            (Some(refused(502)), None, true),
            (Some(refused(454)), None, false),
            (broken(), failed(TlsErrorCause::SelfSigned), true),
            (broken(), failed(TlsErrorCause::NoSharedVersion), true),
            (broken(), failed(TlsErrorCause::UnexpectedEof), false),
            (broken(), failed(TlsErrorCause::Timeout), false),
            (broken(), failed(TlsErrorCause::Io(std::io::ErrorKind::ConnectionReset)), false),
            // The connection broke after the handshake.
            (broken(), None, false),
            (Some(ClientError::Disconnected("x")), None, false),
            // Before the session: a failed handshake at port 465, or a policy that forbids the host.
            (None, failed(TlsErrorCause::Timeout), false),
            (None, failed(TlsErrorCause::Policy), true),
        ] {
            let found = for_site(NoSession::Tls, error.as_ref(), failed.as_ref(), &target);
            assert_eq!(found != NoSession::Tls, is_unfit, "{error:?} {failed:?}");
        }
    }
}
