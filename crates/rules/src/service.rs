//! Requests to policy services in Postfix's protocol (`SMTPD_POLICY_README`): for each recipient at RCPT, or for the
//! whole message at the end of the data.

use stentor_tables::policy_service::request;

use crate::facts::{Facts, TableId};
use crate::names::UNKNOWN;

/// A policy service named by rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyServiceCheck {
    pub table: TableId,
    pub stage: ServiceStage,
}

/// When a policy service is queried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServiceStage {
    #[default]
    Rcpt,
    EndOfData,
}

/// A complete message, as described to a policy service.
#[derive(Debug, Clone, Copy)]
pub struct WholeMessage<'a> {
    /// The recipient if there is only one, otherwise empty, as in Postfix.
    pub recipient: &'a str,
    pub recipients: u64,
    /// Size of the message as received, in octets.
    pub size: u64,
}

/// Session and sender attributes, kept until the end of the data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionQuestion(Box<str>);

impl SessionQuestion {
    /// `None`: there is no session, so no service is queried.
    pub fn new(facts: &Facts<'_>) -> Option<SessionQuestion> {
        policy_request(facts).map(|text| SessionQuestion(text.into()))
    }

    /// The request about the message. Services accept attributes in any order.
    pub fn about(&self, message: WholeMessage<'_>) -> String {
        let (count, size) = (message.recipients.to_string(), message.size.to_string());
        let own = [
            ("protocol_state", "END-OF-MESSAGE"),
            ("recipient", message.recipient),
            ("recipient_count", &count),
            ("size", &size),
        ];
        let is_own = |line: &str| own.iter().any(|(name, _)| line.split_once('=').is_some_and(|(key, _)| key == *name));
        let mut text = String::with_capacity(self.0.len());
        for line in self.0.split_inclusive('\n').filter(|line| !line.trim_end().is_empty() && !is_own(line)) {
            text.push_str(line);
        }
        text + &request(own)
    }
}

/// The request about a recipient; `None`: there is no session, so no service is queried.
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
