//! Commands that people send to a list by mail or web page: the addresses that take them ([`ListCommand`]), and what a
//! message asks for ([`CommandMail`]). The mail that answers it: [`crate::replies`].
//!
//! Promise: reading is linear in the octets given, and works on any octets. An automatic message asks for nothing
//! ([`automatic`]). Nobody joins or leaves without a [`ConfirmationToken`], which is only mailed to the person.
//!
//! Failure: text that is not a command is a request for help.

mod automatic;
mod request;
mod token;

use stentor_mail::address::Address;

pub use automatic::automatic;
pub use request::{CommandMail, ListRequest, requester};
pub use token::ConfirmationToken;

/// What a command address of a list does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ListCommand {
    Join,
    Leave,
    /// Joins or leaves, with the token in the address's detail or in the subject.
    Confirm,
    /// Does what subject or text say.
    Request,
}

impl ListCommand {
    /// The words of command addresses: `LIST-WORD@` and `LIST+WORD@`.
    pub const WORDS: [(&'static str, ListCommand); 6] = [
        ("join", ListCommand::Join),
        ("subscribe", ListCommand::Join),
        ("leave", ListCommand::Leave),
        ("unsubscribe", ListCommand::Leave),
        ("confirm", ListCommand::Confirm),
        ("request", ListCommand::Request),
    ];

    /// Its first word, also its name in logs.
    pub fn word(self) -> &'static str {
        match self {
            ListCommand::Join => "join",
            ListCommand::Leave => "leave",
            ListCommand::Confirm => "confirm",
            ListCommand::Request => "request",
        }
    }

    /// The list's address for the command. `None`: the list's local part is too long, or quoted.
    pub fn address(self, list: &Address) -> Option<Address> {
        address(list, self.word())
    }
}

/// Returns `LOCAL-WORD@DOMAIN`.
pub(crate) fn address(list: &Address, word: &str) -> Option<Address> {
    format!("{}-{word}@{}", list.local(), list.domain()).parse().ok()
}

/// Whether people may join a list by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum JoinPolicy {
    #[default]
    Open,
    /// Only an operator adds members; they may leave.
    Closed,
}

/// Language of the mail that answers commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Language {
    #[default]
    English,
    German,
}

impl Language {
    /// Languages by their tags (RFC 5646).
    pub const ALL: [(&'static str, Language); 2] = [("en", Language::English), ("de", Language::German)];

    pub fn tag(self) -> &'static str {
        match self {
            Language::English => "en",
            Language::German => "de",
        }
    }
}

/// Settings of a list that takes commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommandSettings {
    pub join: JoinPolicy,
    /// Language of the mail that answers commands.
    pub language: Language,
}
