//! A recipient for deliveries: the local part without quotes, split into user and extension.

use stentor_addresses::untagged;
use stentor_mail::address::Address;
use stentor_smtp::server::xtext_decode;

/// One recipient of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalRecipient {
    /// Address as given by the client.
    pub address: String,
    /// Address that the sender used, if the client passes it on (ORCPT), otherwise [`LocalRecipient::address`].
    pub original: String,
    pub user: String,
    /// Text after the delimiter; empty without one.
    pub extension: String,
    pub domain: String,
    pub delimiter: Option<char>,
    /// Tag of a program or file of an alias; empty for other recipients.
    pub tag: String,
}

impl LocalRecipient {
    /// Splits the local part at the first `delimiter` that is not its first character.
    pub fn new(address: &Address, orcpt: Option<&str>, delimiter: Option<char>) -> LocalRecipient {
        let local = unquoted(address.local());
        let first = local.chars().next().map_or(0, char::len_utf8);
        let at = delimiter.and_then(|delimiter| local[first..].find(delimiter).map(|at| (at + first, delimiter)));
        let (user, extension) = match at {
            Some((at, delimiter)) => (local[..at].to_owned(), local[at + delimiter.len_utf8()..].to_owned()),
            None => (local, String::new()),
        };
        let original = orcpt.and_then(|text| xtext_decode(text.split_once(';')?.1));
        LocalRecipient {
            address: address.as_str().to_owned(),
            original: original.unwrap_or_else(|| address.as_str().to_owned()),
            user,
            extension,
            domain: address.domain().to_owned(),
            delimiter,
            tag: String::new(),
        }
    }

    /// Parses `NAME=TAG@domain`, a target of an alias. `None`: it has no tag.
    pub fn of_alias(address: &Address, orcpt: Option<&str>, delimiter: Option<char>) -> Option<LocalRecipient> {
        let (local, tag) = untagged(address.local())?;
        let alias = format!("{local}@{}", address.domain()).parse().ok()?;
        Some(LocalRecipient { tag: tag.to_owned(), ..LocalRecipient::new(&alias, orcpt, delimiter) })
    }
}

/// A part of the envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    Sender,
    Recipient,
    OriginalRecipient,
    User,
    Extension,
    Domain,
}

/// Sender and recipient of one delivery.
#[derive(Debug, Clone, Copy)]
pub struct DeliveryEnvelope<'a> {
    /// Sender; empty for the null reverse-path.
    pub sender: &'a str,
    pub recipient: &'a LocalRecipient,
    /// Whether the content's first `Delivered-To` field already names the recipient.
    pub is_marked: bool,
}

impl<'a> DeliveryEnvelope<'a> {
    pub fn field(&self, field: Field) -> &'a str {
        let recipient = self.recipient;
        match field {
            // A program's argument must not be empty.
            Field::Sender if self.sender.is_empty() => "MAILER-DAEMON",
            Field::Sender => self.sender,
            Field::Recipient => &recipient.address,
            Field::OriginalRecipient => &recipient.original,
            Field::User => &recipient.user,
            Field::Extension => &recipient.extension,
            Field::Domain => &recipient.domain,
        }
    }
}

/// The content of a quoted local part (RFC 5321 section 4.1.2); others are returned unchanged.
fn unquoted(local: &str) -> String {
    let Some(inner) = local.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else { return local.to_owned() };
    let mut plain = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        let c = if c == '\\' { chars.next().unwrap_or('\\') } else { c };
        plain.push(c);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(address: &str, delimiter: Option<char>) -> (String, String) {
        let recipient = LocalRecipient::new(&address.parse().unwrap(), None, delimiter);
        (recipient.user, recipient.extension)
    }

    fn pair(user: &str, extension: &str) -> (String, String) {
        (user.to_owned(), extension.to_owned())
    }

    #[test]
    fn the_first_delimiter_divides() {
        assert_eq!(parts("bob+a+b@x.org", Some('+')), pair("bob", "a+b"));
        assert_eq!(parts("bob+a@x.org", None), pair("bob+a", ""));
        assert_eq!(parts("bob@x.org", Some('+')), pair("bob", ""));
        assert_eq!(parts("bob+@x.org", Some('+')), pair("bob", ""));
        assert_eq!(parts("+bob@x.org", Some('+')), pair("+bob", ""));
        assert_eq!(parts("+bob+a@x.org", Some('+')), pair("+bob", "a"));
    }

    #[test]
    fn the_recipient_of_an_alias_is_the_alias() {
        let of = |text: &str| LocalRecipient::of_alias(&text.parse().unwrap(), None, Some('+'));
        let news = of("news+x=0123456789abcdef@x.org").unwrap();
        assert_eq!((&*news.address, &*news.user, &*news.extension), ("news+x@x.org", "news", "x"));
        assert_eq!((&*news.original, &*news.tag), ("news+x@x.org", "0123456789abcdef"));
        assert_eq!(of("\"a b=0123456789abcdef\"@x.org").unwrap().address, "\"a b\"@x.org");
        assert_eq!((of("news@x.org"), of("news=x@x.org")), (None, None));
    }

    #[test]
    fn quotes_are_no_part_of_a_name() {
        assert_eq!(parts("\"a b+c\"@x.org", Some('+')), pair("a b", "c"));
        assert_eq!(parts("\"a\\\"b\"@x.org", Some('+')), pair("a\"b", ""));
    }

    #[test]
    fn the_original_recipient_is_decoded() {
        let address = "bob@x.org".parse().unwrap();
        let original = |orcpt| LocalRecipient::new(&address, orcpt, None).original;
        assert_eq!(original(Some("rfc822;Sales+2Bq@y.org")), "Sales+q@y.org");
        assert_eq!(original(None), "bob@x.org");
    }
}
