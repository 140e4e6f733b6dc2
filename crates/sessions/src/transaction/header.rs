//! The client's header as stored: without fields that are never sent on, with missing ones added, and for posts without
//! the fields that lists set themselves ([`stentor_mail::edited`]).
//!
//! Promise: a message whose header needs no edit costs nothing. For one that arrives in pieces, which are stored before
//! the whole header is known, each field is checked on arrival.
//!
//! Failure: 552 if too much would have to be removed, 554 if the message asks for copies of its own in a wrong way;
//! nothing of it is kept.

use stentor_core::{Core, Settings};
use stentor_lists::own_fields;
use stentor_mail::dsn::format_date;
use stentor_mail::edited::{HeaderChanges, HeaderEdit, MissingFields};
use stentor_mail::headers::HeaderFacts;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_smtp::server::EndOfData;

use super::Transaction;

impl Transaction {
    /// Whether Date and Message-ID are added: always for users' messages (RFC 6409 section 8), for those of other
    /// trusted clients unless the operator disables it, and for posts if some list is archived: archives identify posts
    /// by them.
    fn is_completed(&self, settings: &Settings) -> bool {
        self.submitted.is_some()
            || self.is_of_trusted() && settings.config.listen.adds_missing_headers
            || settings.completes_posts && !self.rcpts.lists().is_empty()
    }

    /// Returns the editor of its header.
    pub(super) fn edit(&mut self, core: &Core, settings: &Settings) -> &mut HeaderEdit {
        let edit = self.edit.take().unwrap_or_else(|| {
            let missing = self.is_completed(settings).then(|| {
                let now = core.clock.now();
                let message_id = format!("<{}.{now:x}@{}>", self.id, settings.config.hostname);
                MissingFields { date: format_date(now), message_id }
            });
            // Nested lists may set fields that these lists do not.
            let own = || own_fields(settings.takes_list_commands).iter().map(|name| (*name).to_owned()).collect();
            let post = (!self.rcpts.lists().is_empty()).then(own);
            Box::new(HeaderEdit::new(self.own_octets, HeaderChanges { missing, post }))
        });
        self.edit.insert(edit)
    }

    /// Edits the rest of a complete message's header, or all of it if needed.
    ///
    /// # Errors
    /// The removed list fields are too large, or a request for copies is invalid.
    pub(super) fn end_header(&mut self, core: &Core, settings: &Settings, end: &mut EndOfData) -> Result<(), Reply> {
        if self.edit.is_none() && !self.needs_edit(settings, &end.facts) {
            return Ok(());
        }
        let last = std::mem::take(&mut end.last);
        let edit = self.edit(core, settings);
        end.last = edit.push(last, true);
        if let Some(why) = edit.overflow() {
            return Err(Reply::new(552, Enhanced::new(5, 3, 4), format!("Message header too large: {why}")));
        }
        let facts = &mut end.facts;
        facts.has_left_out = false;
        if let Some(id) = edit.given_id() {
            facts.message_id = Some(id.to_owned());
        }
        let (list_fields, requests) = (edit.take_list_fields(), edit.take_copy_request());
        self.list_fields = list_fields;
        facts.has_date |= self.is_completed(settings);
        self.read_copy_request(&requests, &end.facts)
    }

    fn needs_edit(&self, settings: &Settings, facts: &HeaderFacts) -> bool {
        let is_complete = facts.has_date && facts.message_id.is_some();
        let has_list_fields = facts.has_list_headers || facts.precedence.is_some();
        facts.has_left_out
            || !is_complete && self.is_completed(settings)
            || has_list_fields && !self.rcpts.lists().is_empty()
    }
}
