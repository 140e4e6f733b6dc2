//! Authenticates the message of an untrusted client: SPF, DKIM, DMARC, ARC and reverse DNS ([`stentor_message_auth`]).
//!
//! States: the message is scanned while it arrives, as the client sent it -> at the end of the data the DNS is asked ->
//! the results are a field before the message, and rules on authentication see them. Then the policy of the author's
//! domain is applied as far as `[message_authentication]` says.
//!
//! For a post from any client, it also determines whether receivers would refuse the copies because of the DMARC policy
//! of the author's domain ([`Transaction::replace_author`]).
//!
//! Failure: the DNS does not answer in time: `temperror`. That neither defers nor refuses a message.

use std::time::Duration;

use stentor_config::DmarcAction;
use stentor_core::{Core, Settings};
use stentor_mail::headers::HeaderFacts;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_message_auth::{
    AuthResults, Disposition, DmarcPolicy, FIELD, MessageScan, SessionIdentity, Step, Verification,
};
use tokio::time::Instant;

use super::Transaction;

/// A message to be authenticated.
pub(super) struct Authentication {
    scan: MessageScan,
    helo: String,
    /// Whether the client is untrusted, so that the message itself is authenticated; otherwise only DMARC of the copies
    /// is evaluated.
    is_checked: bool,
    /// Names of the fields that lists' copies have instead of a post's, in lower case; `None`: copies keep their From.
    replaced_fields: Option<Vec<String>>,
}

impl Transaction {
    /// Begins with the data of a message, before which are `ours` octets of our own.
    pub(super) fn begin_authentication(&mut self, settings: &Settings, helo: &str, ours: usize) {
        let is_checked = settings.config.message_auth.is_on && !self.is_of_trusted();
        let replaced_fields = self.replaced_fields(settings);
        self.begin_author(settings);
        if is_checked || replaced_fields.is_some() {
            let (scan, helo) = (MessageScan::new(ours), helo.to_owned());
            self.authentication = Some(Box::new(Authentication { scan, helo, is_checked, replaced_fields }));
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
    pub(super) async fn authenticate(
        &mut self,
        core: &Core,
        settings: &Settings,
        facts: &HeaderFacts,
    ) -> Result<(), Reply> {
        let Some(mut authentication) = self.authentication.take() else { return Ok(()) };
        if self.signs_for_author(core, settings, facts) {
            authentication.replaced_fields = None;
        }
        if let (Some(names), Some(request)) = (&mut authentication.replaced_fields, &self.copy_request) {
            names.extend(request.over(None).field_names().map(str::to_ascii_lowercase));
        }
        let is_checked = authentication.is_checked;
        if !is_checked && authentication.replaced_fields.is_none() {
            return Ok(());
        }
        let results = self.verify(core, settings, *authentication).await;
        if let Some(refusal) = results.refusal_of_copies() {
            self.replace_author(settings, &results, &refusal);
        }
        if !is_checked {
            return Ok(());
        }
        let value = results.value(&settings.config.authserv_id);
        tracing::debug!(message = %self.id, client = %self.client, "{FIELD}: {}", value.replace("\r\n\t", " "));
        let mut field = format!("{FIELD}: {value}\r\n").into_bytes();
        field.append(&mut self.added);
        self.added = field;
        self.authentication_results = Some(value.into());
        self.note_dmarc(settings, &results);
        let applied = self.apply_dmarc(settings, &results);
        self.dmarc.is_refused = applied.is_err();
        applied
    }

    async fn verify(&self, core: &Core, settings: &Settings, authentication: Authentication) -> AuthResults {
        let Authentication { scan, helo, is_checked, replaced_fields } = authentication;
        let config = &settings.config.message_auth;
        let sender = if self.mail.path.is_null() { String::new() } else { self.mail.path.as_str().to_owned() };
        let identity = SessionIdentity { client: self.client.to_canonical(), helo, sender };
        let now_s = core.clock.now() / 1_000;
        let message = scan.finish();
        let evaluates_dmarc = !is_checked || config.evaluates_dmarc();
        let all = |message| Verification::new(identity, message, evaluates_dmarc, now_s);
        let mut verification = match replaced_fields {
            None => all(message),
            Some(fields) if self.is_of_trusted() => Verification::of_copies(message, fields, now_s),
            // The list stands for an author only if the post is the author's.
            Some(fields) => all(message).with_copies(fields),
        };
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
        verification.into_results()
    }

    /// Applies what the authors' domains ask for a message that fails DMARC.
    fn apply_dmarc(&mut self, settings: &Settings, results: &AuthResults) -> Result<(), Reply> {
        for Disposition { policy, domain } in results.dispositions() {
            let action = settings.config.message_auth.action(&domain);
            let by = words(&Disposition { policy, domain: domain.clone() });
            match applied_policy(action, policy) {
                DmarcPolicy::None => {}
                DmarcPolicy::Reject => {
                    self.why_refused = by;
                    return Err(refusal(&domain));
                }
                DmarcPolicy::Quarantine => {
                    self.quarantine.get_or_insert_with(|| by.into());
                }
            }
        }
        Ok(())
    }
}

/// For the log and the quarantine.
pub(super) fn words(disposition: &Disposition) -> String {
    let Disposition { policy, domain } = disposition;
    if domain.is_empty() {
        return "DMARC: too many domains in From".to_owned();
    }
    format!("DMARC: {domain} asks to {}", policy.word())
}

/// Returns the policy to apply: what the domain asks for, limited by our action.
pub(super) fn applied_policy(action: DmarcAction, policy: DmarcPolicy) -> DmarcPolicy {
    match (action, policy) {
        (DmarcAction::Off | DmarcAction::Tag, _) | (_, DmarcPolicy::None) => DmarcPolicy::None,
        (DmarcAction::Reject, policy) => policy,
        (DmarcAction::Quarantine, DmarcPolicy::Quarantine | DmarcPolicy::Reject) => DmarcPolicy::Quarantine,
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
