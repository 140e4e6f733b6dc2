//! Gives a copy what it has of its own ([`stentor_copies`]): its return path, its unsubscribe link and further fields.
//!
//! Promise: these fields precede the content and replace fields of the same names in it; everything else is sent as
//! stored. They are signed with the rest of the header ([`super::dkim`]). The sender in logs, reports and bounces of
//! our own remains the stored one. A request that the message made at its acceptance takes precedence over the
//! configuration; it is the first stored field, and no copy has it.
//!
//! Failure: a copy whose stored request cannot be read, which only another version of this server could have written,
//! is returned: it would never become readable.
//!
//! Limits: a header over [`HEADER_BYTES_MAX`] keeps its fields of these names. A copy for several recipients, taken
//! before a reload asked for copies of their own, is sent as it is.

use std::borrow::Cow;
use std::io;

use stentor_addresses::header_octets;
use stentor_copies::{CopyParts, CopyRequest, CopyValues};
use stentor_core::assignment::Assignment;
use stentor_core::{Core, Settings};
use stentor_mail::copy_request::{COPY_REQUEST_FIELD, StoredPrefix};
use stentor_mail::edited::{has_other_author, is_author_field};
use stentor_mail::headers::HEADER_BYTES_MAX;
use stentor_mail::reply::Enhanced;

use super::body::ContentError;
use super::dkim::is_trusted;
use super::{body, generic};

/// RFC 3463 section 3.7: other or undefined media error.
const NOT_READABLE: Enhanced = Enhanced::new(5, 6, 0);

/// Renders a copy's own parts. Repeated it does nothing.
///
/// # Errors
/// The content or the request cannot be read.
pub fn render(core: &Core, settings: &Settings, assignment: &mut Assignment) -> Result<(), ContentError> {
    leave_out_author(core, assignment)?;
    let request = take_request(assignment)?;
    // Archives get the post alone: nobody may unsubscribe them, and their bounces are no subscriber's.
    if assignment.own.is_some() || assignment.is_archive || assignment.len() != 1 {
        return Ok(());
    }
    // Links are for mail of the sender's own, and anyone may write a sender. Who may make a request was checked when it
    // was accepted.
    let configured = settings.copies.of(&assignment.list, &assignment.sender);
    let is_own = !assignment.list.is_empty() || request.is_some();
    let configured = configured.filter(|_| is_own || is_trusted(settings, assignment));
    let copies = match (request, configured) {
        (Some(request), configured) => Cow::Owned(request.over(configured)),
        (None, Some(configured)) => Cow::Borrowed(configured),
        (None, None) => return Ok(()),
    };
    // A tag would prove for the list that somebody got its mail.
    if assignment.list.is_empty() && settings.copies.list_of_bounces(assignment.wire_sender()).is_some() {
        return Ok(());
    }
    let now = core.clock.now();
    if settings.copies.is_unlinked_news(&copies, now) {
        tracing::warn!(message = %assignment.id, "copies are sent without the unsubscribe links that their messages \
            asked for: `link_base` in [http] is not set any more; set it again");
    }
    body::load(core, assignment)?;
    let message = assignment.id.to_string();
    let has_names = !assignment.list.is_empty() && copies.fields.uses_names();
    let names = || core.lists.names.of(&assignment.list, assignment.id_at(0));
    let name = if has_names { names() } else { String::new() };
    let values = CopyValues {
        sender: assignment.wire_sender(),
        membership_sender: &assignment.sender,
        recipient: assignment.address(0),
        name: &name,
        list: &assignment.list,
        message: &message,
    };
    let own = settings.copies.render(&copies, &values, now);
    if !own.fields.is_empty() {
        replace_fields(core, &own, assignment)?;
    }
    assignment.own = Some(Box::new(own));
    Ok(())
}

/// Takes the message's own request out of the fields that are sent.
fn take_request(assignment: &mut Assignment) -> Result<Option<CopyRequest>, ContentError> {
    let StoredPrefix { request: Some(value), sent } = StoredPrefix::split(&assignment.prefix) else {
        return Ok(None);
    };
    let request = stored_request(value)?;
    let sent = sent.to_vec();
    assignment.size -= (assignment.prefix.len() - sent.len()) as u64;
    assignment.prefix = sent;
    Ok(Some(request))
}

fn stored_request(value: &[u8]) -> Result<CopyRequest, ContentError> {
    CopyRequest::parse(value).map_err(|why| {
        let text = format!("{COPY_REQUEST_FIELD} of this message cannot be read, so its copies cannot be made: {why}");
        ContentError::Unfit(NOT_READABLE, text)
    })
}

/// Leaves the author's fields out of a copy that has another From before the content.
fn leave_out_author(core: &Core, assignment: &mut Assignment) -> io::Result<()> {
    if !has_other_author(&assignment.prefix) {
        return Ok(());
    }
    body::load(core, assignment)?;
    replace_header(core, assignment, |header| stentor_copies::without(header, is_author_field))
}

/// Removes the fields that the copy has of its own from our prefix and from the stored header.
fn replace_fields(core: &Core, own: &CopyParts, assignment: &mut Assignment) -> io::Result<()> {
    if let Some(prefix) = own.without_own(&assignment.prefix) {
        assignment.size -= (assignment.prefix.len() - prefix.len()) as u64;
        assignment.prefix = prefix;
    }
    replace_header(core, assignment, |header| own.without_own(header))
}

/// Replaces the header of the content as it is sent, if it changes.
fn replace_header(
    core: &Core,
    assignment: &mut Assignment,
    change: impl Fn(&[u8]) -> Option<Vec<u8>>,
) -> io::Result<()> {
    let limit = HEADER_BYTES_MAX as usize;
    let (header, instead_of) = match (assignment.wire_header(), &assignment.body) {
        (Some((header, instead_of)), _) => (Cow::Borrowed(header), instead_of),
        (None, Some(body)) => {
            let end = header_octets(&body[..body.len().min(limit)]);
            (Cow::Borrowed(&body[..end]), end as u64)
        }
        (None, None) => {
            let header = generic::stored_header(core, assignment)?;
            let octets = header.len() as u64;
            (Cow::Owned(header), octets)
        }
    };
    // The last field of a longer header may be incomplete.
    if header.len() < limit
        && let Some(header) = change(&header)
    {
        assignment.generic.get_or_insert_default().header = Some((header, instead_of));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wait would have no end.
    #[test]
    fn a_copy_whose_request_cannot_be_read_is_returned() {
        for value in [&b" verp=of-a-later-version\r\n"[..], b"later=1\r\n", b"\xff", b"", &[b'x'; 9_000]] {
            match stored_request(value) {
                Err(ContentError::Unfit(code, text)) => {
                    assert_eq!(code.to_string(), "5.6.0");
                    assert!(text.starts_with("X-Stentor-Copies of this message cannot be read"), "{text}");
                }
                _ => panic!("{value:?}"),
            }
        }
        assert!(stored_request(b" verp=\"plain\"\r\n").is_ok());
    }
}
