//! Mail that answers a command, or asks a person to confirm one.
//!
//! Promise: it is marked as automatic (RFC 3834 section 5; `Precedence` and `X-Auto-Response-Suppress` for programs
//! that do not know that), so that no vacation program confirms for its person. Values cannot inject header fields. A
//! reply of the person goes to the confirmation address with the token.

mod texts;

use stentor_mail::address::{Address, DETAIL};

pub use self::texts::ReplyKind;
use self::texts::fill;
use crate::commands::{ConfirmationToken, ListCommand, address};
use crate::fields::{append, phrase};
use crate::list::List;

/// Longest Message-ID that is named as the request's.
const MESSAGE_ID_BYTES_MAX: usize = 250;

/// A reply before it is written.
#[derive(Debug, Clone, Copy)]
pub struct CommandReply<'a> {
    pub list: &'a List,
    pub to: &'a Address,
    pub kind: ReplyKind,
    /// Confirms what the text describes.
    pub token: Option<&'a ConfirmationToken>,
    /// Days until the token expires.
    pub days: u64,
    /// Base of links, if the server has pages.
    pub link_base: Option<&'a str>,
    /// Number of members, if the person asked for it.
    pub members: Option<u64>,
    /// Message-ID of the request, if it came by mail.
    pub in_reply_to: Option<&'a str>,
    /// Values of Date and Message-ID.
    pub date: &'a str,
    pub message_id: &'a str,
}

impl CommandReply<'_> {
    /// Path of the pages of confirmations.
    pub const CONFIRM_PATH: &'static str = "/confirm/";

    /// Writes the message.
    pub fn write(&self) -> Vec<u8> {
        let list = self.list.settings();
        let language = list.commands.unwrap_or_default().language;
        let link = match (self.link_base, self.token) {
            (Some(base), Some(token)) => format!("{base}{}{token}", Self::CONFIRM_PATH),
            _ => String::new(),
        };
        let owner = list.owner.as_ref().and_then(|_| address(&list.address, "owner"));
        let owner = owner.map_or_else(String::new, |owner| owner.to_string());
        let members = self.members.map(|members| members.to_string()).unwrap_or_default();
        let days = self.days.to_string();
        let command_address = |command: ListCommand| {
            command.address(&list.address).map_or_else(String::new, |address| address.to_string())
        };
        let text = fill(
            language,
            self.kind,
            &[
                ("list", &list.name),
                ("address", list.address.as_str()),
                ("description", list.description.trim()),
                ("person", self.to.as_str()),
                ("owner", &owner),
                ("members", &members),
                ("link", &link),
                ("days", &days),
                ("leave", &command_address(ListCommand::Leave)),
                ("request", &command_address(ListCommand::Request)),
            ],
        );
        let mut out = self.header(&text.subject, language.tag());
        out.extend_from_slice(text.body.as_bytes());
        out
    }

    fn header(&self, subject: &str, language: &str) -> Vec<u8> {
        let list = self.list.settings();
        let mut out = Vec::with_capacity(2048);
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<String>>();
        let from = ListCommand::Request.address(&list.address).unwrap_or_else(|| list.address.clone());
        append(&mut out, "Date", &words(self.date));
        // Names of lists need no escapes. An address has no line ends, but it may have spaces in quotes.
        out.extend_from_slice(format!("From: \"{}\" <{from}>\r\nTo: <{}>\r\n", list.name, self.to).as_bytes());
        if let Some(address) = self.confirm_address() {
            out.extend_from_slice(format!("Reply-To: <{address}>\r\n").as_bytes());
        }
        let mut field = |name: &str, tokens: &[String]| append(&mut out, name, tokens);
        // RFC 2047 section 5: an encoded word in a phrase is valid in a subject, too.
        field("Subject", &if subject.is_ascii() { words(subject) } else { phrase(subject) });
        field("Message-ID", &words(self.message_id));
        let request = self.in_reply_to.filter(|id| is_message_id(id)).map(str::to_owned);
        let automatic = if self.in_reply_to.is_some() { "auto-replied" } else { "auto-generated" };
        for id in request.as_slice() {
            field("In-Reply-To", std::slice::from_ref(id));
            field("References", std::slice::from_ref(id));
        }
        field("Auto-Submitted", &words(automatic));
        field("Precedence", &words("bulk"));
        field("X-Auto-Response-Suppress", &words("All"));
        field("MIME-Version", &words("1.0"));
        field("Content-Type", &words("text/plain; charset=utf-8"));
        field("Content-Language", &words(language));
        field("Content-Transfer-Encoding", &words("8bit"));
        out.extend_from_slice(b"\r\n");
        out
    }

    /// The address to which a reply confirms.
    fn confirm_address(&self) -> Option<Address> {
        let (token, list) = (self.token?, &self.list.settings().address);
        let word = ListCommand::Confirm.word();
        format!("{}-{word}{DETAIL}{token}@{}", list.local(), list.domain()).parse().ok()
    }
}

/// Whether a client's Message-ID may be copied.
fn is_message_id(text: &str) -> bool {
    let inner = text.strip_prefix('<').and_then(|rest| rest.strip_suffix('>'));
    text.len() <= MESSAGE_ID_BYTES_MAX && inner.is_some_and(|id| id.bytes().all(|byte| byte.is_ascii_graphic()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::commands::{CommandSettings, Language};
    use crate::list::ListSettings;
    use crate::list::tests::settings;

    fn list(language: Language) -> List {
        let commands = Some(CommandSettings { language, ..CommandSettings::default() });
        List::new(ListSettings { commands, ..settings() }).unwrap()
    }

    fn written(reply: CommandReply<'_>) -> String {
        String::from_utf8(reply.write()).unwrap()
    }

    fn reply<'a>(list: &'a List, to: &'a Address, token: &'a ConfirmationToken) -> CommandReply<'a> {
        CommandReply {
            list,
            to,
            kind: ReplyKind::ConfirmJoin,
            token: Some(token),
            days: 3,
            link_base: Some("https://mail.example.org"),
            members: None,
            in_reply_to: Some("<1@x.example>"),
            date: "Tue, 1 Dec 2026 12:00:00 +0000",
            message_id: "<2@mx.example.org>",
        }
    }

    #[test]
    fn a_confirmation_mail_is_automatic_and_has_its_token_twice() {
        let (list, to, token) = (list(Language::English), "ann@x.example".parse().unwrap(), [3; 16]);
        let token = ConfirmationToken::new(token);
        let text = written(reply(&list, &to, &token));
        for part in [
            "From: \"news\" <news-request@lists.example.org>\r\nTo: <ann@x.example>\r\n".to_owned(),
            format!("Reply-To: <news-confirm+{token}@lists.example.org>\r\n"),
            "In-Reply-To: <1@x.example>\r\nReferences: <1@x.example>\r\nAuto-Submitted: auto-replied\r\n".to_owned(),
            "Precedence: bulk\r\nX-Auto-Response-Suppress: All\r\n".to_owned(),
            format!("https://mail.example.org/confirm/{token}\r\n"),
        ] {
            assert!(text.contains(&part), "{part}\n{text}");
        }
        let no_pages = written(CommandReply { link_base: None, in_reply_to: None, ..reply(&list, &to, &token) });
        assert!(!no_pages.contains("page") && no_pages.contains("Auto-Submitted: auto-generated\r\n"));
    }

    #[test]
    fn any_address_can_be_answered() {
        let (list, token) = (list(Language::English), ConfirmationToken::new([3; 16]));
        for to in ["\"a b\"@x.example", "\"a\\\"<b>\"@x.example", "ü@x.example"] {
            let to: Address = to.parse().unwrap();
            let text = written(reply(&list, &to, &token));
            assert!(text.contains(&format!("\r\nTo: <{to}>\r\n")), "{text}");
        }
    }

    #[test]
    fn german_subjects_are_encoded() {
        let (list, to, token) =
            (list(Language::German), "ann@x.example".parse().unwrap(), ConfirmationToken::new([3; 16]));
        for kind in ReplyKind::ALL {
            let text = written(CommandReply { kind, ..reply(&list, &to, &token) });
            let (header, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(header.is_ascii() && header.contains("Content-Language: de"), "{header}");
            assert!(body.lines().count() > 3, "{body}");
        }
    }

    proptest! {
        #[test]
        fn no_message_id_injects_a_field(id in any::<String>()) {
            let (list, to, token) = (list(Language::English), "ann@x.example".parse().unwrap(), ConfirmationToken::new([3; 16]));
            let text = written(CommandReply { in_reply_to: Some(&id), ..reply(&list, &to, &token) });
            let header = text.split_once("\r\n\r\n").unwrap().0;
            prop_assert!(header.lines().count() <= 20, "{}", header);
        }
    }
}
