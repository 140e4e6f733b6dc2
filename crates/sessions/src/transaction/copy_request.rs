//! The transaction's part of requests for copies of its own ([`super::super::copy_request`]): in the message, beside
//! it, or for return paths alone by XVERP of Postfix in MAIL.
//!
//! XVERP is the client's own wish, so it applies to mail that it passes on too. It precedes what is configured for the
//! sender; the message's own `verp` precedes it. It has no effect on posts to lists of this server, whose copies come
//! from the list's bounce address.

use std::borrow::Cow;

use stentor_copies::{CopyRequest, CopyRequestError};
use stentor_core::Settings;
use stentor_core::copies::may_have_own;
use stentor_core::envelope::NewEnvelope;
use stentor_mail::address::Address;
use stentor_mail::copy_request::COPY_REQUEST_FIELD;
use stentor_mail::headers::HeaderFacts;
use stentor_mail::reply::Reply;
use stentor_smtp::server::VerpDelimiters;

use super::super::copy_request::{RequestInHeader, RequestedMail, invalid, twice};
use super::Transaction;

impl Transaction {
    /// Sets what was asked for beside the message, by a client that may relay.
    pub fn set_copies(&mut self, request: CopyRequest) {
        self.copy_request = Some(Box::new(request));
        self.is_request_beside = true;
    }

    /// Reads the fields with requests that were removed from the message.
    ///
    /// # Errors
    /// The client may ask, and the request is invalid.
    pub(super) fn read_copy_request(&mut self, fields: &[u8], facts: &HeaderFacts) -> Result<(), Reply> {
        match RequestInHeader::read(fields, facts, self.is_of_trusted())? {
            RequestInHeader::None | RequestInHeader::Untrusted => {}
            RequestInHeader::Relayed => {
                tracing::info!(message = %self.id, "{COPY_REQUEST_FIELD} ignored: the message has a Received field, so \
                    another server passed it on; ask over HTTP");
            }
            RequestInHeader::Request(_) if self.copy_request.is_some() => return Err(twice()),
            RequestInHeader::Request(request) => self.copy_request = Some(request),
        }
        Ok(())
    }

    /// Stores the request with the message's envelopes.
    ///
    /// # Errors
    /// The request cannot be met for one of them.
    pub(super) fn request_copies(&self, settings: &Settings, envelopes: &mut [NewEnvelope]) -> Result<(), Reply> {
        let of_posts = self.copy_request.as_deref();
        let of_others = self.request_of_others().map_err(|why| invalid(&why))?;
        for envelope in envelopes {
            let request = if envelope.list.is_some() { of_posts } else { of_others.as_deref() };
            let Some(request) = request else { continue };
            let mail = RequestedMail {
                sender: &self.mail.path,
                list: envelope.list.as_deref(),
                is_by_token: self.is_request_beside,
                is_from_user: self.submitted.is_some() || self.protocol == "local",
                is_transactional: self.is_transactional,
            };
            mail.check(settings, request)?;
            if may_have_own(envelope.list.as_deref().unwrap_or_default(), &envelope.sender) {
                envelope.prefix.splice(0..0, stored_field(request));
            }
        }
        Ok(())
    }

    /// Returns the field that gives copies for an alias's targets what is configured for the alias's owner, their
    /// sender: it is this server's, whoever sends the message. Empty if nothing is configured, or if what is configured
    /// applies to all mail of the client.
    pub(super) fn owners_request(&self, settings: &Settings, owner: Option<&Address>) -> Vec<u8> {
        let owner = owner.filter(|_| !self.is_of_trusted() && !self.mail.path.is_null());
        match owner.and_then(|owner| settings.copies.of("", owner.as_str())) {
            Some(_) => stored_field(&CopyRequest::as_configured()),
            None => Vec::new(),
        }
    }

    /// Returns the request for mail that is not a post to a list.
    fn request_of_others(&self) -> Result<Option<Cow<'_, CopyRequest>>, CopyRequestError> {
        let own = self.copy_request.as_deref();
        match self.mail.verp {
            Some(delimiters) => CopyRequest::with_verp(own, &form(delimiters)).map(Cow::Owned).map(Some),
            None => Ok(own.map(Cow::Borrowed)),
        }
    }
}

fn stored_field(request: &CopyRequest) -> Vec<u8> {
    format!("{COPY_REQUEST_FIELD}: {}", request.field_value()).into_bytes()
}

/// The form of return paths that XVERP asks for.
fn form(delimiters: VerpDelimiters) -> String {
    if delimiters == VerpDelimiters::default() {
        return "plain".to_owned();
    }
    let VerpDelimiters { before, between } = delimiters;
    format!("{{local}}{before}{{user}}{between}{{host}}@{{domain}}")
}

#[cfg(test)]
mod tests {
    use stentor_copies::VerpTemplate;

    use super::*;

    #[test]
    fn each_form_is_a_template() {
        for before in "+-=".chars() {
            for between in "+-=".chars() {
                let form = form(VerpDelimiters { before, between });
                let template = VerpTemplate::named(&form).unwrap_or_else(|why| panic!("{form}: {why}"));
                assert_eq!(template.is_detail(), before == '+', "{form}");
            }
        }
        assert_eq!(form(VerpDelimiters::default()), "plain");
    }
}
