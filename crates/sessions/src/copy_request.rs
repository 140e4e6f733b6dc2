//! A message that asks for copies of its own ([`CopyRequest`]): in its field `X-Stentor-Copies`, or beside it over
//! HTTP.
//!
//! Promise: only a client that may relay is obeyed, and only in a message that it wrote itself: one with a Received
//! field has passed another server, and whoever wrote it could have put the field there. Whoever sends it, the field is
//! removed before milters see it ([`stentor_mail::edited`]). An accepted request is stored as the first field before
//! the content ([`stentor_mail::copy_request`]), and removed from each copy.
//!
//! A list keeps what its configuration gives its copies, whoever posts; only an API token may ask for less. Only the
//! list's own mail has its return paths.
//!
//! Forwarded mail with an SRS sender keeps its return path: its bounces must come back to this server.
//!
//! Failure: a request that is invalid or cannot be met refuses the message for good.

use stentor_copies::{CopyRequest, CopyRequestError};
use stentor_core::Settings;
use stentor_mail::address::ReversePath;
use stentor_mail::copy_request::COPY_REQUEST_FIELD;
use stentor_mail::headers::HeaderFacts;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_mime::field;

/// Longest text of a refusal: a reply line has 512 octets (RFC 5321 section 4.5.3.1.5).
const WHY_BYTES_MAX: usize = 300;
/// RFC 3463 section 3.7: other or undefined media error.
const INVALID: Enhanced = Enhanced::new(5, 6, 0);
/// RFC 3463 section 3.4: system incorrectly configured.
const NO_LINKS: Enhanced = Enhanced::new(5, 3, 5);
/// RFC 3463 section 3.8: delivery not authorized.
const NOT_ALLOWED: Enhanced = Enhanced::new(5, 7, 1);

/// The fields with requests that were removed from a message.
pub enum RequestInHeader {
    None,
    /// The client may not ask.
    Untrusted,
    /// The message has passed another server.
    Relayed,
    Request(Box<CopyRequest>),
}

impl RequestInHeader {
    /// Reads the removed fields of a message with these facts.
    ///
    /// # Errors
    /// The client may ask, and the request is invalid.
    pub fn read(fields: &[u8], facts: &HeaderFacts, is_trusted: bool) -> Result<RequestInHeader, Reply> {
        if fields.is_empty() {
            return Ok(RequestInHeader::None);
        }
        if !is_trusted {
            return Ok(RequestInHeader::Untrusted);
        }
        if facts.received_count > 0 {
            return Ok(RequestInHeader::Relayed);
        }
        let mut values = field::lines(fields).filter_map(field::split).map(|(_, value)| value);
        let value = values.next().unwrap_or_default();
        if values.next().is_some() {
            return Err(twice());
        }
        let request = CopyRequest::parse(value).map_err(|why| invalid(&why))?;
        Ok(RequestInHeader::Request(Box::new(request)))
    }
}

/// The mail for which copies are asked, as a trusted client handed it in.
#[derive(Clone, Copy)]
pub struct RequestedMail<'a> {
    pub sender: &'a ReversePath,
    /// The list of this server that it goes to.
    pub list: Option<&'a str>,
    /// Whether an API token asks, beside the message.
    pub is_by_token: bool,
    /// Whether an authenticated user or a local program submits it.
    pub is_from_user: bool,
    /// It was marked as transactional.
    pub is_transactional: bool,
}

impl RequestedMail<'_> {
    /// Checks that the request can be met.
    ///
    /// # Errors
    /// It cannot.
    pub fn check(self, settings: &Settings, request: &CopyRequest) -> Result<(), Reply> {
        let RequestedMail { sender, list, is_by_token, is_from_user, is_transactional } = self;
        let is_post = list.is_some();
        settings.copies.check(request).map_err(|why| refusal(NO_LINKS, &why))?;
        if !is_post && sender.is_null() {
            return Err(refusal(
                INVALID,
                &"mail from the null sender cannot have its own return paths, links or fields",
            ));
        }
        if !is_post && settings.copies.list_of_bounces(sender.as_str()).is_some() {
            let why =
                format!("{} is a list's bounce address; only the list's posts have its return paths", sender.as_str());
            return Err(refusal(NOT_ALLOWED, &why));
        }
        if let Some(list) = list.filter(|_| !is_by_token) {
            let configured = settings.copies.of(list, "");
            request.check_weakens_nothing(configured).map_err(|why| refusal(NOT_ALLOWED, &why))?;
        }
        if !is_post && request.needs_list() {
            return Err(refusal(INVALID, &"{list} is only for mail to a list of this server"));
        }
        // Only `{local}+` leads to the list's bounce address, or stays within the user's own address.
        if (is_post || is_from_user) && !request.is_detail() {
            let who = if is_post { "a list" } else { "a user" };
            return Err(refusal(INVALID, &format!("`verp` must begin with {{local}}+ for {who}")));
        }
        let sender = if is_post { "" } else { sender.as_str() };
        if request.demands_link() && settings.is_transactional(is_transactional, sender, true) {
            let why = "transactional mail cannot have `one_click`: unsubscribing would not stop it";
            return Err(refusal(INVALID, &why));
        }
        Ok(())
    }
}

/// The message has two requests.
pub fn twice() -> Reply {
    refusal(INVALID, &"only one request is allowed")
}

/// The request is invalid.
pub fn invalid(why: &CopyRequestError) -> Reply {
    refusal(INVALID, why)
}

/// The text is printable ASCII.
fn refusal(code: Enhanced, why: &dyn std::fmt::Display) -> Reply {
    let mut why = why.to_string();
    why.truncate(why.floor_char_boundary(WHY_BYTES_MAX));
    Reply::new(554, code, format!("{COPY_REQUEST_FIELD}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(fields: &str, received_count: u32, is_trusted: bool) -> String {
        let facts = HeaderFacts { received_count, ..HeaderFacts::default() };
        match RequestInHeader::read(fields.as_bytes(), &facts, is_trusted) {
            Ok(RequestInHeader::None) => "none".to_owned(),
            Ok(RequestInHeader::Untrusted) => "untrusted".to_owned(),
            Ok(RequestInHeader::Relayed) => "relayed".to_owned(),
            Ok(RequestInHeader::Request(request)) => request.to_string(),
            Err(reply) => reply.to_string(),
        }
    }

    #[test]
    fn only_the_author_who_may_relay_is_obeyed() {
        let field = "X-Stentor-Copies: verp=plain;\r\n one_click\r\n";
        assert_eq!(read(field, 0, true), "own copies: verp=plain one_click=true");
        assert_eq!(
            (&*read(field, 0, false), &*read(field, 1, true), &*read("", 0, true)),
            ("untrusted", "relayed", "none")
        );
        assert_eq!(read(&field.repeat(2), 0, true), "554 5.6.0 X-Stentor-Copies: only one request is allowed");
        assert!(read("X-Stentor-Copies: loud\r\n", 0, true).contains("`loud` is not an item"));
        let long = read(&format!("X-Stentor-Copies: {}\r\n", "y".repeat(900)), 0, true);
        assert!(long.len() < 400 && long.starts_with("554 5.6.0"), "{long}");
        assert_eq!(read("X-Stentor-Copies: loud\r\n", 0, false), "untrusted", "nobody learns from it");
    }
}
