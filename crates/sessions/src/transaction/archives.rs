//! Posts for the archives of their lists (`archive_to`).
//!
//! Promise: the copies for a list's archives are messages of their own, durable in the batch of the post, so that they
//! have its retries and no subscriber waits for them. They have the list's fields, and the post's Message-ID; they are
//! held and quarantined like the post. Archives at a next hop get the author's From, those at addresses of other
//! servers the From of subscribers' copies, since receivers check it.
//!
//! Cost: one look at a flag, if no list has archives.

use std::collections::HashSet;

use stentor_core::Settings;
use stentor_core::envelope::{AcceptanceFacts, EnvelopeRcpt, EnvelopeRecipients, NewEnvelope};
use stentor_mail::headers::HeaderFacts;

use super::Transaction;
use super::envelopes::wish;

impl Transaction {
    /// Adds the envelopes for the archives of all lists that the post goes to.
    pub(super) fn archive(&self, settings: &Settings, envelopes: &mut Vec<NewEnvelope>, facts: &HeaderFacts) {
        if !settings.has_archives() {
            return;
        }
        // Aliases among the subscribers come first, with Delivered-To; the last envelope of a list is its own.
        let (mut lists, mut copies) = (HashSet::new(), Vec::new());
        for post in envelopes.iter().rev() {
            let Some(name) = post.list.as_deref() else { continue };
            let Some((list, archives)) = settings.list(name).zip(settings.list_archives(name)) else { continue };
            if !lists.insert(name) {
                continue;
            }
            let rewritten = list.author_fields(self.post_author());
            let authors = post.prefix.strip_suffix(&*rewritten).unwrap_or(&post.prefix);
            let wish = wish(settings, post, facts);
            for (to, prefix) in [(&archives.at_hops, authors), (&archives.at_addresses, &post.prefix)] {
                if to.is_empty() {
                    continue;
                }
                let to = to.iter().cloned().map(|mut to: EnvelopeRcpt| {
                    to.route.wish = wish;
                    to
                });
                copies.push(NewEnvelope {
                    sender: list.settings().bounces.as_str().to_owned(),
                    recipients: EnvelopeRecipients::Addresses(to.collect()),
                    prefix: prefix.to_vec(),
                    is_archive: true,
                    taken: AcceptanceFacts { policy: format!("archive of list {name}").into(), ..post.taken.clone() },
                    ..post.clone()
                });
            }
        }
        envelopes.extend(copies);
    }
}
