//! Reads what a message to a command address asks for.
//!
//! Promise: the subject and the first [`LINES_MAX`] lines that the person wrote are examined, of at most
//! [`BYTES_MAX`] octets of the message. A message asks for one thing: the first command found. Quoted lines, and those
//! after a signature's separator, are not commands.
//!
//! Failure: text without a command asks for help.

use stentor_mail::address::{Address, DETAIL};
use stentor_mail::heading::Heading;
use stentor_mime::html::Html;
use stentor_mime::walk::{Kind, Part, Visitor, Walker};

use super::ListCommand;
use super::token::ConfirmationToken;

/// Octets of a message that are examined.
pub const BYTES_MAX: usize = 64 * 1024;
/// Lines of the text that are examined.
const LINES_MAX: usize = 10;
/// Words of a line that may be a command: `subscribe news ann@example.org`.
const LINE_WORDS_MAX: usize = 4;
/// Octets of text that are kept; commands come first.
const TEXT_BYTES_MAX: usize = 4 * 1024;
/// Prefixes of subjects in replies.
const REPLIES: [&str; 6] = ["re", "aw", "sv", "antw", "fwd", "wg"];

/// What a message asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListRequest {
    Join,
    Leave,
    Confirm(ConfirmationToken),
    Help,
    /// The number of members.
    Who,
}

/// A message to a command address.
#[derive(Debug, Clone, Copy)]
pub struct CommandMail<'a> {
    pub command: ListCommand,
    /// The address as the client named it.
    pub address: &'a Address,
    /// The beginning of the message; up to [`CommandMail::BYTES_MAX`] octets.
    pub octets: &'a [u8],
}

impl CommandMail<'_> {
    /// Octets of a message that are examined.
    pub const BYTES_MAX: usize = BYTES_MAX;

    /// Returns what it asks for.
    pub fn request(self) -> ListRequest {
        match self.command {
            ListCommand::Join => ListRequest::Join,
            ListCommand::Leave => ListRequest::Leave,
            ListCommand::Confirm | ListCommand::Request => self.by_text(),
        }
    }

    fn by_text(self) -> ListRequest {
        let octets = &self.octets[..self.octets.len().min(BYTES_MAX)];
        let detail = self.address.local().split_once(DETAIL).map(|(_, detail)| detail);
        if let Some(token) = detail.and_then(ConfirmationToken::parse) {
            return ListRequest::Confirm(token);
        }
        let subject = Heading::of(octets).subject;
        if let Some(token) = ConfirmationToken::find(&subject) {
            return ListRequest::Confirm(token);
        }
        if let Some(request) = command(without_reply_prefix(&subject)) {
            return request;
        }
        let text = text_of(octets);
        let lines = text.lines().take_while(|line| line.trim_end() != "--").map(str::trim);
        let mut written = lines.filter(|line| !line.is_empty() && !line.starts_with('>')).take(LINES_MAX);
        written.find_map(command).unwrap_or(ListRequest::Help)
    }
}

/// Returns the person that a request is for. Both addresses may be forged. The author is the person if the envelope
/// agrees or DMARC proves it; otherwise the envelope's sender is, to whom answers go (RFC 3834 section 4).
pub fn requester<'a>(sender: &'a Address, author: Option<&'a Address>, is_proven: bool) -> &'a Address {
    author.filter(|author| is_proven || author.as_str().eq_ignore_ascii_case(sender.as_str())).unwrap_or(sender)
}

fn without_reply_prefix(subject: &str) -> &str {
    let mut rest = subject.trim();
    while let Some((prefix, more)) = rest.split_once(':')
        && REPLIES.iter().any(|known| prefix.trim().eq_ignore_ascii_case(known))
    {
        rest = more.trim();
    }
    rest
}

/// Reads a line.
fn command(line: &str) -> Option<ListRequest> {
    if let Some(token) = ConfirmationToken::find(line) {
        return Some(ListRequest::Confirm(token));
    }
    let mut words = line.split_whitespace();
    let first = words.next()?.trim_end_matches(['.', '!', ',']);
    if words.count() >= LINE_WORDS_MAX {
        return None;
    }
    let is = |word: &str| first.eq_ignore_ascii_case(word);
    match () {
        () if is("join") || is("subscribe") => Some(ListRequest::Join),
        () if is("leave") || is("unsubscribe") || is("signoff") => Some(ListRequest::Leave),
        () if is("help") || is("info") => Some(ListRequest::Help),
        () if is("who") => Some(ListRequest::Who),
        () => None,
    }
}

/// Returns the beginning of the message's plain text, or else of its HTML.
fn text_of(octets: &[u8]) -> String {
    let (mut walker, mut texts) = (Walker::new(), MessageTexts::default());
    walker.push(octets, &mut texts);
    walker.finish(&mut texts);
    if texts.plain.trim().is_empty() { texts.html } else { texts.plain }
}

/// Collects a message's texts.
#[derive(Default)]
struct MessageTexts {
    plain: String,
    html: String,
    parser: Html,
}

impl Visitor for MessageTexts {
    fn text(&mut self, part: &Part, text: &str) {
        if part.kind != Kind::Text || part.is_attachment() {
            return;
        }
        let kept = if part.is_html() { &mut self.html } else { &mut self.plain };
        let left = TEXT_BYTES_MAX.saturating_sub(kept.len());
        let text = &text[..text.floor_char_boundary(left)];
        if part.is_html() {
            self.parser.push(text, kept);
        } else {
            kept.push_str(text);
        }
    }

    fn end(&mut self, part: &Part, _: u64) {
        if part.is_html() {
            self.parser.finish(&mut self.html);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn to(command: ListCommand, address: &str, message: &str) -> ListRequest {
        CommandMail { command, address: &address.parse().unwrap(), octets: message.as_bytes() }.request()
    }

    fn request(message: &str) -> ListRequest {
        to(ListCommand::Request, "news-request@lists.test", message)
    }

    #[test]
    fn the_address_decides_for_join_and_leave() {
        let help = "Subject: help\r\n\r\nleave\r\n";
        assert_eq!(to(ListCommand::Join, "news-join@lists.test", help), ListRequest::Join);
        assert_eq!(to(ListCommand::Leave, "news-leave@lists.test", help), ListRequest::Leave);
    }

    #[test]
    fn a_confirmation_has_its_token_in_address_subject_or_text() {
        let token = ConfirmationToken::new([9; 16]);
        let confirmed = ListRequest::Confirm(token.clone());
        let upper = format!("news-confirm+{}@lists.test", token.as_str().to_uppercase());
        assert_eq!(to(ListCommand::Confirm, &upper, "\r\nNo, thanks"), confirmed);
        let subject = format!("Subject: Re: Join news? (confirm\r\n {token})\r\n\r\n");
        assert_eq!(to(ListCommand::Confirm, "news-confirm@lists.test", &subject), confirmed);
        assert_eq!(request(&subject), confirmed);
        assert_eq!(request(&format!("Subject: \r\n\r\nconfirm {token}\r\n")), confirmed);
        assert_eq!(to(ListCommand::Confirm, "news-confirm+x@lists.test", "\r\nhello"), ListRequest::Help);
    }

    #[test]
    fn subjects_and_first_lines_are_commands() {
        for (message, wanted) in [
            ("Subject: subscribe\r\n\r\n", ListRequest::Join),
            ("Subject: RE: AW: Join!\r\n\r\n", ListRequest::Join),
            ("Subject: =?utf-8?B?bGVhdmU=?=\r\n\r\n", ListRequest::Leave),
            ("Subject: hello\r\n\r\n\r\n  Unsubscribe news ann@x.example\r\n", ListRequest::Leave),
            ("Subject: hello\r\n\r\nDear list,\r\nwho\r\n", ListRequest::Who),
            ("\r\nhelp\r\njoin\r\n", ListRequest::Help),
            ("\r\nI want to join this list please\r\n", ListRequest::Help),
            ("\r\n> join\r\n", ListRequest::Help),
            ("\r\n-- \r\njoin\r\n", ListRequest::Help),
            ("\r\n1\r\n2\r\n3\r\n4\r\n5\r\n6\r\n7\r\n8\r\n9\r\n10\r\njoin\r\n", ListRequest::Help),
            ("", ListRequest::Help),
        ] {
            assert_eq!(request(message), wanted, "{message}");
        }
    }

    #[test]
    fn texts_are_decoded() {
        let parts = "Content-Type: multipart/alternative; boundary=b\r\n\r\n--b\r\nContent-Transfer-Encoding: base64\r\n\
                     \r\nbGVhdmUK\r\n--b\r\nContent-Type: text/html\r\n\r\n<p>join</p>\r\n--b--\r\n";
        assert_eq!(request(parts), ListRequest::Leave);
        assert_eq!(request("Content-Type: text/html\r\n\r\n<html><p>join</p></html>"), ListRequest::Join);
        let file = "Content-Type: text/plain; name=a.txt\r\nContent-Disposition: attachment\r\n\r\njoin\r\n";
        assert_eq!(request(file), ListRequest::Help);
    }

    #[test]
    fn the_person_is_the_author_if_the_envelope_agrees_or_dmarc_proves_it() {
        let ann: Address = "Ann@x.example".parse().unwrap();
        let bob: Address = "bob@y.example".parse().unwrap();
        let lower = "ann@x.example".parse().unwrap();
        assert_eq!(requester(&bob, Some(&ann), false), &bob);
        assert_eq!(requester(&bob, Some(&ann), true), &ann);
        assert_eq!(requester(&lower, Some(&ann), false), &ann);
        assert_eq!(requester(&bob, None, true), &bob);
    }

    proptest! {
        #[test]
        fn any_octets_are_read(octets in proptest::collection::vec(any::<u8>(), 0..500), local in "[a-z+0-9]{1,40}") {
            let Ok(address) = format!("{local}@lists.test").parse::<Address>() else { return Ok(()) };
            for (_, command) in ListCommand::WORDS {
                CommandMail { command, address: &address, octets: &octets }.request();
            }
        }

        #[test]
        fn any_text_is_read(text in any::<String>()) {
            request(&format!("Subject: {text}\r\n\r\n{text}"));
        }
    }
}
