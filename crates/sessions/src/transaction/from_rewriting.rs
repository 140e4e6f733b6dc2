//! Decides whether a list's copies get the list's address in From ([`stentor_lists::FromRewriting`]).
//!
//! Promise: the content stays as it came; such copies leave the author's From out when they are sent. A list does not
//! stand for an author who has not sent the post: that post is quarantined for it.
//!
//! Failure: if the DNS does not answer in time, From stays.

use stentor_config::{DmarcAction, ListConfig};
use stentor_core::{Core, Settings};
use stentor_dkim::MessageHash;
use stentor_lists::{FromRewriting, PostAuthor, PostFields, own_fields};
use stentor_mail::address::normalise_domain;
use stentor_mail::headers::HeaderFacts;
use stentor_message_auth::{AuthResults, Disposition};
use stentor_mime::field;

use super::Transaction;
use super::authentication::words;

/// The author of a post, as it is stored.
pub(super) struct StoredAuthor {
    /// The whole field From.
    from: Vec<u8>,
    has_reply_to: bool,
}

impl Transaction {
    /// Names of the fields that copies have instead of a post's, if lists may rewrite From.
    pub(super) fn replaced_fields(&self, settings: &Settings) -> Option<Vec<String>> {
        let named = self.rcpts.lists();
        // The post may also reach lists within those that it is for.
        let is_rewriting = |list: &ListConfig| list.list.settings().rewrite_from == FromRewriting::Dmarc;
        if named.is_empty() || !settings.config.lists.iter().any(is_rewriting) {
            return None;
        }
        let own = own_fields(settings.takes_list_commands);
        let mut names: Vec<String> = own.iter().map(|name| name.to_ascii_lowercase()).collect();
        for list in settings.config.lists.iter().filter(|list| named.contains(list.list.name())) {
            names.extend(list.flow.copies.field_names().map(str::to_ascii_lowercase));
        }
        Some(names)
    }

    /// Whether copies will have a signature of ours for the author's domain.
    pub(super) fn signs_for_author(&self, core: &Core, settings: &Settings, facts: &HeaderFacts) -> bool {
        let domain = facts.from.as_deref().and_then(|from| from.rsplit_once('@')).map(|(_, domain)| domain);
        let domain = domain.filter(|_| self.is_of_trusted() && !facts.has_more_from);
        let domain = domain.and_then(|domain| normalise_domain(domain).ok());
        domain.is_some_and(|domain| {
            settings.dkim().of_author(&domain).is_some_and(|signing| core.dkim.signers(signing).is_some())
        })
    }

    /// Begins to keep the header of a post as it is stored, if a list may have another From.
    pub(super) fn begin_author(&mut self, settings: &Settings) {
        let rewriting = |list: &ListConfig| list.list.settings().rewrite_from != FromRewriting::Never;
        if !self.rcpts.lists().is_empty() && settings.config.lists.iter().any(rewriting) {
            self.author_header = Some(Box::new(MessageHash::of_header()));
        }
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

    /// Returns the parts of a post on which the fields of lists' copies depend.
    pub(super) fn post_fields<'a>(&'a self, facts: &'a HeaderFacts) -> PostFields<'a> {
        PostFields {
            removed: &self.list_fields.replaced,
            author: self.post_author(),
            message_id: facts.message_id.as_deref(),
        }
    }

    /// Lets copies come from the list, unless the post is not from its author: the list does not vouch for that.
    pub(super) fn replace_author(&mut self, settings: &Settings, results: &AuthResults, refusal: &Disposition) {
        let is_applied = |one: &Disposition| settings.config.message_auth.action(&one.domain) != DmarcAction::Off;
        let forged = if self.is_of_trusted() { None } else { results.dispositions().into_iter().find(is_applied) };
        if let Some(forged) = forged {
            self.forged_post = Some(words(&forged).into());
            return;
        }
        let Disposition { policy, domain } = refusal;
        tracing::info!(message = %self.id, lists = ?self.rcpts.lists(),
            "From rewritten, since DMARC of {domain} asks to {}", policy.word());
        self.is_from_refused = true;
    }
}
