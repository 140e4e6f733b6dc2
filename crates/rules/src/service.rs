//! What a policy service is asked: everything that is known at RCPT, as Postfix tells it (`SMTPD_POLICY_README`).

use stentor_tables::policy_service::request;

use crate::facts::Facts;
use crate::names::UNKNOWN;

/// The text that asks about a recipient; `None`: there is no session, so no service is asked.
pub fn policy_request(facts: &Facts<'_>) -> Option<String> {
    let session = facts.session.as_ref()?;
    let (client, port) = (facts.client.to_string(), session.client_port.to_string());
    let server = session.server.map(|server| (server.ip().to_canonical().to_string(), server.port().to_string()));
    let (server, server_port) = server.unwrap_or_default();
    let name = facts.client_name.is().unwrap_or(UNKNOWN);
    let size = session.size.unwrap_or(0).to_string();
    let login = session.login.unwrap_or_default();
    let tls = session.tls;
    let (subject, issuer) = tls.and_then(|tls| tls.certificate).unwrap_or_default();
    let bits = tls.map_or(0, |tls| tls.bits).to_string();
    Some(request([
        ("request", "smtpd_access_policy"),
        ("protocol_state", "RCPT"),
        ("protocol_name", if session.is_esmtp { "ESMTP" } else { "SMTP" }),
        ("client_address", &client),
        ("client_name", name),
        ("client_port", &port),
        ("reverse_client_name", name),
        ("server_address", &server),
        ("server_port", &server_port),
        ("helo_name", facts.helo),
        ("sender", if facts.sender.is_null() { "" } else { facts.sender.as_str() }),
        ("recipient", facts.recipient.as_str()),
        ("recipient_count", "0"),
        ("queue_id", ""),
        ("instance", session.instance),
        ("size", &size),
        ("etrn_domain", ""),
        ("stress", ""),
        ("sasl_method", if login.is_empty() { "" } else { session.mechanism }),
        ("sasl_username", login),
        ("sasl_sender", ""),
        ("ccert_subject", subject),
        ("ccert_issuer", issuer),
        ("ccert_fingerprint", ""),
        ("ccert_pubkey_fingerprint", ""),
        ("encryption_protocol", tls.map_or("", |tls| tls.version)),
        ("encryption_cipher", tls.map_or("", |tls| tls.cipher)),
        ("encryption_keysize", &bits),
        ("policy_context", ""),
    ]))
}
