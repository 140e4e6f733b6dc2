//! Authenticates the message of an untrusted client: SPF, DKIM, DMARC, ARC and reverse DNS ([`stentor_message_auth`]).
//!
//! States: the message is scanned while it arrives, as the client sent it -> at the end of the data the DNS is asked ->
//! the results are a field before the message, and rules on authentication see them. Then the policy of the author's
//! domain is applied as far as `[message_authentication]` says.
//!
//! Failure: the DNS does not answer in time: `temperror`. That neither defers nor refuses a message.

use std::time::Duration;

use stentor_config::DmarcAction;
use stentor_core::{Core, Settings};
use stentor_mail::reply::{Enhanced, Reply};
use stentor_message_auth::{Disposition, DmarcPolicy, FIELD, MessageScan, Report, SessionIdentity, Step, Verification};
use tokio::time::Instant;

use super::Transaction;

/// A message to be authenticated.
pub(super) struct Authentication {
    scan: MessageScan,
    helo: String,
}

impl Transaction {
    /// Begins with the data of a message, before which are `ours` octets of our own.
    pub(super) fn begin_authentication(&mut self, settings: &Settings, helo: &str, ours: usize) {
        if settings.config.message_auth.is_on && !self.is_of_trusted() {
            let authentication = Authentication { scan: MessageScan::new(ours), helo: helo.to_owned() };
            self.authentication = Some(Box::new(authentication));
        }
    }

    /// Reads the next octets of the data, as the client sent them.
    pub(super) fn scan_for_authentication(&mut self, octets: &[u8]) {
        if let Some(authentication) = &mut self.authentication {
            authentication.scan.push(octets);
        }
    }

    /// Octets that the scan keeps.
    pub(super) fn authentication_bytes(&self) -> u64 {
        self.authentication.as_ref().map_or(0, |authentication| authentication.scan.bytes())
    }

    /// Authenticates the complete message.
    ///
    /// # Errors
    /// It is refused, as the author's domain asks.
    pub(super) async fn authenticate(&mut self, core: &Core, settings: &Settings) -> Result<(), Reply> {
        let Some(authentication) = self.authentication.take() else { return Ok(()) };
        let report = self.verified(core, settings, *authentication).await;
        let value = report.value(&settings.config.authserv_id);
        tracing::debug!(message = %self.id, client = %self.client, "{FIELD}: {}", value.replace("\r\n\t", " "));
        let mut field = format!("{FIELD}: {value}\r\n").into_bytes();
        field.append(&mut self.added);
        self.added = field;
        self.authentication_results = Some(value.into());
        self.apply_dmarc(settings, &report)
    }

    async fn verified(&self, core: &Core, settings: &Settings, authentication: Authentication) -> Report {
        let Authentication { scan, helo } = authentication;
        let config = &settings.config.message_auth;
        let sender = if self.mail.path.is_null() { String::new() } else { self.mail.path.as_str().to_owned() };
        let identity = SessionIdentity { client: self.client.to_canonical(), helo, sender };
        let now_s = core.clock.now() / 1_000;
        let mut verification = Verification::new(identity, scan.finish(), config.evaluates_dmarc(), now_s);
        let until = Instant::now() + Duration::from_millis(config.timeout_ms);
        let resolver = core.resolver();
        while let Step::Ask(questions) = verification.step() {
            for answered in resolver.answer_all(questions, until).await {
                verification.answer(answered.question, answered.answer);
            }
            if until <= Instant::now() {
                verification.close();
            }
        }
        verification.into_report()
    }

    /// Applies what the authors' domains ask for a message that fails DMARC.
    fn apply_dmarc(&mut self, settings: &Settings, report: &Report) -> Result<(), Reply> {
        for Disposition { policy, domain } in report.dispositions() {
            let action = settings.config.message_auth.action(&domain);
            let by = if domain.is_empty() {
                "DMARC: too many domains in From".to_owned()
            } else {
                format!("DMARC: {domain} asks to {}", policy.word())
            };
            match (action, policy) {
                (DmarcAction::Off | DmarcAction::Tag, _) | (_, DmarcPolicy::None) => {}
                (DmarcAction::Reject, DmarcPolicy::Reject) => {
                    self.why_refused = by;
                    return Err(refusal(&domain));
                }
                (DmarcAction::Quarantine | DmarcAction::Reject, DmarcPolicy::Quarantine | DmarcPolicy::Reject) => {
                    self.quarantine.get_or_insert_with(|| by.into());
                }
            }
        }
        Ok(())
    }
}

/// The reply to a refused message (RFC 7372 section 3.4).
fn refusal(domain: &str) -> Reply {
    let text = if domain.is_empty() {
        "Message refused: too many domains in From".to_owned()
    } else {
        format!("Message refused by the DMARC policy of {domain}")
    };
    Reply::new(550, Enhanced::new(5, 7, 26), text)
}
