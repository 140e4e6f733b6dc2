//! Authenticates the message of an untrusted client: SPF, DKIM, DMARC, ARC and reverse DNS ([`stentor_message_auth`]).
//!
//! States: the message is scanned while it arrives, as the client sent it -> at the end of the data the DNS is asked ->
//! the results are a field before the message, and rules on authentication see them. Then the policy of the author's
//! domain is applied as far as `[message_authentication]` says.
//!
//! Of a post, from whomever, it is also found out whether receivers would refuse copies because the policy of the
//! author's domain demands a signature that they lack ([`Transaction::rewrites_from`]).
//!
//! Failure: the DNS does not answer in time: `temperror`. That neither defers nor refuses a message; its From stays.

use std::time::Duration;

use stentor_config::{DmarcAction, ListConfig};
use stentor_core::{Core, Settings};
use stentor_dkim::MessageHash;
use stentor_lists::{FromRewriting, OWN_FIELDS, PostAuthor};
use stentor_mail::address::normalise_domain;
use stentor_mail::headers::HeaderFacts;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_message_auth::{
    Disposition, DmarcPolicy, FIELD, MessageScan, MethodResult, Report, SessionIdentity, Step, Verification,
};
use stentor_mime::field;
use tokio::time::Instant;

use super::Transaction;

/// The author of a post, as it is stored.
pub(super) struct StoredAuthor {
    /// The whole field From.
    from: Vec<u8>,
    has_reply_to: bool,
}

/// A message to be authenticated.
pub(super) struct Authentication {
    scan: MessageScan,
    helo: String,
    /// The client is untrusted: its message is authenticated. Otherwise only the copies of a list are asked about.
    is_checked: bool,
    /// Names of the fields that lists' copies have instead of a post's, in lower case; `None`: copies keep their From.
    replaced_fields: Option<Vec<String>>,
}

impl Transaction {
    /// Begins with the data of a message, before which are `ours` octets of our own.
    pub(super) fn begin_authentication(&mut self, settings: &Settings, helo: &str, ours: usize) {
        let is_checked = settings.config.message_auth.is_on && !self.is_of_trusted();
        let replaced_fields = self.replaced_fields(settings);
        let rewriting = |list: &ListConfig| list.list.settings().rewrite_from != FromRewriting::Never;
        if !self.rcpts.lists().is_empty() && settings.config.lists.iter().any(rewriting) {
            self.author_header = Some(Box::new(MessageHash::of_header()));
        }
        if is_checked || replaced_fields.is_some() {
            let (scan, helo) = (MessageScan::new(ours), helo.to_owned());
            self.authentication = Some(Box::new(Authentication { scan, helo, is_checked, replaced_fields }));
        }
    }

    /// Names of the fields that copies have instead of a post's, if lists may rewrite From.
    fn replaced_fields(&self, settings: &Settings) -> Option<Vec<String>> {
        let named = self.rcpts.lists();
        // The post may also reach lists within those that it is for.
        let is_rewriting = |list: &ListConfig| list.list.settings().rewrite_from == FromRewriting::Dmarc;
        if named.is_empty() || !settings.config.lists.iter().any(is_rewriting) {
            return None;
        }
        let mut names: Vec<String> = OWN_FIELDS.map(str::to_ascii_lowercase).to_vec();
        for list in settings.config.lists.iter().filter(|list| named.contains(list.list.name())) {
            names.extend(list.flow.copies.field_names().map(str::to_ascii_lowercase));
        }
        Some(names)
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
        let is_checked = authentication.is_checked;
        if !is_checked && authentication.replaced_fields.is_none() {
            return Ok(());
        }
        let report = self.verified(core, settings, *authentication).await;
        if let Some(refusal) = report.refusal_of_copies() {
            self.replace_author(settings, &report, &refusal);
        }
        if !is_checked {
            return Ok(());
        }
        let value = report.value(&settings.config.authserv_id);
        tracing::debug!(message = %self.id, client = %self.client, "{FIELD}: {}", value.replace("\r\n\t", " "));
        let mut field = format!("{FIELD}: {value}\r\n").into_bytes();
        field.append(&mut self.added);
        self.added = field;
        self.authentication_results = Some(value.into());
        self.fails_dmarc = report.dmarc.iter().any(|one| one.result == MethodResult::Fail);
        self.count_dmarc(core, settings, &report);
        self.apply_dmarc(settings, &report)
    }

    /// Lets copies come from the list, unless the post is not from its author: the list does not vouch for that.
    fn replace_author(&mut self, settings: &Settings, report: &Report, refusal: &Disposition) {
        let is_applied = |one: &Disposition| settings.config.message_auth.action(&one.domain) != DmarcAction::Off;
        let forged = if self.is_of_trusted() { None } else { report.dispositions().into_iter().find(is_applied) };
        if let Some(forged) = forged {
            self.forged_post = Some(words(&forged).into());
            return;
        }
        let Disposition { policy, domain } = refusal;
        tracing::info!(message = %self.id, lists = ?self.rcpts.lists(),
            "From rewritten, since DMARC of {domain} asks to {}", policy.word());
        self.is_from_refused = true;
    }

    async fn verified(&self, core: &Core, settings: &Settings, authentication: Authentication) -> Report {
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
        verification.into_report()
    }

    /// Whether copies will have a signature of ours for the author's domain.
    fn signs_for_author(&self, core: &Core, settings: &Settings, facts: &HeaderFacts) -> bool {
        let domain = facts.from.as_deref().and_then(|from| from.rsplit_once('@')).map(|(_, domain)| domain);
        let domain = domain.filter(|_| self.is_of_trusted() && !facts.has_more_from);
        let domain = domain.and_then(|domain| normalise_domain(domain).ok());
        domain.is_some_and(|domain| {
            settings.dkim().of_author(&domain).is_some_and(|signing| core.dkim.signers(signing).is_some())
        })
    }

    /// Keeps the header of a post that is stored in pieces, if a list may have another From.
    pub(super) fn note_author_of(&mut self, octets: &[u8]) {
        if let Some(header) = self.author_header.as_mut().filter(|header| !header.has_header()) {
            header.push(octets);
        }
    }

    /// Notes the author of a complete post as it is stored, if copies of a list may have another From. `last`: its last
    /// octets.
    pub(super) fn note_author(&mut self, settings: &Settings, last: &[u8]) {
        let Some(mut header) = self.author_header.take() else { return };
        let is_always = |list: &ListConfig| list.list.settings().rewrite_from == FromRewriting::Always;
        if !self.is_from_refused && !settings.config.lists.iter().any(is_always) {
            return;
        }
        header.push(last);
        let (header, _) = header.finish();
        let named = |wanted: &str| {
            let is = |whole: &&[u8]| {
                field::split(whole).is_some_and(|(name, _)| name.eq_ignore_ascii_case(wanted.as_bytes()))
            };
            field::lines(&header).find(is)
        };
        self.author =
            named("From").map(|from| StoredAuthor { from: from.to_vec(), has_reply_to: named("Reply-To").is_some() });
    }

    /// The author of a post whose copies may have another From.
    pub(super) fn post_author(&self) -> Option<PostAuthor<'_>> {
        let StoredAuthor { from, has_reply_to } = self.author.as_ref()?;
        Some(PostAuthor { from, has_reply_to: *has_reply_to, is_refused: self.is_from_refused })
    }

    /// Applies what the authors' domains ask for a message that fails DMARC.
    fn apply_dmarc(&mut self, settings: &Settings, report: &Report) -> Result<(), Reply> {
        for Disposition { policy, domain } in report.dispositions() {
            let action = settings.config.message_auth.action(&domain);
            let by = words(&Disposition { policy, domain: domain.clone() });
            match applied(action, policy) {
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
fn words(disposition: &Disposition) -> String {
    let Disposition { policy, domain } = disposition;
    if domain.is_empty() {
        return "DMARC: too many domains in From".to_owned();
    }
    format!("DMARC: {domain} asks to {}", policy.word())
}

/// What is done of what a domain asks.
pub(super) fn applied(action: DmarcAction, policy: DmarcPolicy) -> DmarcPolicy {
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
