//! Text with values of the copy in braces: `{local}+{user}={host}@{domain}`.
//!
//! Failure: unknown names and unbalanced braces are refused with the configuration; rendering cannot fail.

use std::fmt;

use crate::mailbox::mailbox;

/// Values that differ by copy or message.
#[derive(Debug, Clone, Copy)]
pub struct CopyValues<'a> {
    /// Envelope sender as other hosts see it; not null.
    pub sender: &'a str,
    /// Envelope sender as it was submitted, by which mail is suppressed.
    pub membership_sender: &'a str,
    pub recipient: &'a str,
    /// The subscriber's name; empty if it is not known.
    pub name: &'a str,
    /// Name of the list; empty for other mail.
    pub list: &'a str,
    /// Queue id of the message.
    pub message: &'a str,
}

/// A value by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    /// Local part and domain of the sender.
    Local,
    Domain,
    /// Local part of the sender without [`OWNER`].
    LocalOfOwner,
    /// Local part and domain of the recipient.
    User,
    Host,
    /// Seal of sender and recipient.
    Tag,
    List,
    Message,
    Recipient,
    /// Name and address of the recipient.
    Mailbox,
}

/// End of the local part of Sympa's senders.
pub(crate) const OWNER: &str = "-owner";

const NAMES: [(&str, Value); 10] = [
    ("local", Value::Local),
    ("local-owner", Value::LocalOfOwner),
    ("domain", Value::Domain),
    ("user", Value::User),
    ("host", Value::Host),
    ("tag", Value::Tag),
    ("list", Value::List),
    ("message", Value::Message),
    ("recipient", Value::Recipient),
    ("mailbox", Value::Mailbox),
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(Box<str>),
    Value(Value),
}

/// An invalid template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CopyTemplateError {
    #[error("`{{{0}}}` is not a value; values: {values}", values = Names)]
    UnknownValue(String),
    #[error("a brace is not closed")]
    OpenBrace,
    #[error("{0}")]
    Form(&'static str),
}

struct Names;

impl fmt::Display for Names {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (name, _)) in NAMES.iter().enumerate() {
            write!(out, "{}{{{name}}}", if position == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// A parsed template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template {
    pub(crate) pieces: Vec<Piece>,
}

impl Template {
    pub(crate) fn parse(text: &str) -> Result<Template, CopyTemplateError> {
        let (mut pieces, mut rest) = (Vec::new(), text);
        while let Some((before, behind)) = rest.split_once('{') {
            let (name, behind) = behind.split_once('}').ok_or(CopyTemplateError::OpenBrace)?;
            let value = NAMES.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
            let value = value.ok_or_else(|| CopyTemplateError::UnknownValue(name.to_owned()))?;
            if !before.is_empty() {
                pieces.push(Piece::Text(before.into()));
            }
            pieces.push(Piece::Value(value));
            rest = behind;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.into()));
        }
        Ok(Template { pieces })
    }

    pub(crate) fn has(&self, value: Value) -> bool {
        self.pieces.contains(&Piece::Value(value))
    }

    /// Returns the text with the copy's values. `tag` is used only where the template has it.
    pub(crate) fn render(&self, values: &CopyValues<'_>, tag: &str) -> String {
        let sender = values.sender.rsplit_once('@').unwrap_or((values.sender, ""));
        let recipient = values.recipient.rsplit_once('@').unwrap_or((values.recipient, ""));
        let mailbox = if self.has(Value::Mailbox) { mailbox(values.name, values.recipient) } else { String::new() };
        let mut out = String::with_capacity(96);
        for piece in &self.pieces {
            out.push_str(match piece {
                Piece::Text(text) => text,
                Piece::Value(Value::Local) => sender.0,
                Piece::Value(Value::LocalOfOwner) => sender.0.strip_suffix(OWNER).unwrap_or(sender.0),
                Piece::Value(Value::Domain) => sender.1,
                Piece::Value(Value::User) => recipient.0,
                Piece::Value(Value::Host) => recipient.1,
                Piece::Value(Value::Tag) => tag,
                Piece::Value(Value::List) => values.list,
                Piece::Value(Value::Message) => values.message,
                Piece::Value(Value::Recipient) => values.recipient,
                Piece::Value(Value::Mailbox) => &mailbox,
            });
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_replace_their_names() {
        let values = CopyValues {
            sender: "news@l.example",
            membership_sender: "news@l.example",
            recipient: "ann@x.example",
            name: "",
            list: "news",
            message: "9F",
        };
        let template = Template::parse("a{local}+{tag}-{user}={host}@{domain} {list}{message}{recipient}").unwrap();
        assert_eq!(template.render(&values, "t"), "anews+t-ann=x.example@l.example news9Fann@x.example");
        assert_eq!(Template::parse("").unwrap().render(&values, ""), "");
    }

    #[test]
    fn wrong_templates() {
        let unknown = Template::parse("{locl}").unwrap_err().to_string();
        assert!(unknown.starts_with("`{locl}` is not a value; values: {local}, {local-owner}, {domain}"), "{unknown}");
        assert_eq!(Template::parse("{local").unwrap_err(), CopyTemplateError::OpenBrace);
    }
}
