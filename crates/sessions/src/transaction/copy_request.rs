//! The transaction's part of requests for copies of its own ([`super::super::copy_request`]).

use stentor_copies::CopyRequest;
use stentor_core::Settings;
use stentor_core::copies::may_have_own;
use stentor_core::envelope::NewEnvelope;
use stentor_mail::copy_request::COPY_REQUEST_FIELD;
use stentor_mail::headers::HeaderFacts;
use stentor_mail::reply::Reply;

use super::super::copy_request::{RequestInHeader, RequestedMail, twice};
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
        let Some(request) = &self.copy_request else { return Ok(()) };
        let field = format!("{COPY_REQUEST_FIELD}: {}", request.field_value()).into_bytes();
        for envelope in envelopes {
            let mail = RequestedMail {
                sender: &self.mail.path,
                list: envelope.list.as_deref(),
                is_by_token: self.is_request_beside,
                is_from_user: self.submitted.is_some() || self.protocol == "local",
                is_transactional: self.is_transactional,
            };
            mail.check(settings, request)?;
            if may_have_own(envelope.list.as_deref().unwrap_or_default(), &envelope.sender) {
                envelope.prefix.splice(0..0, field.iter().copied());
            }
        }
        Ok(())
    }
}
