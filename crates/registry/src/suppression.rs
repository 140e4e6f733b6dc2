//! Suppressions: who gets no mail, of which scope, why, and until when.
//!
//! Promise: subject and scope are canonical, so that two spellings of an address are one entry: domains as in
//! [`Address`], ASCII letters of local parts in lower case, as the address book folds them. Texts have limits and no
//! control characters, so that an entry can be a log field and a line of CSV.

use std::fmt;

use stentor_mail::address::{Address, AddressError, normalise_domain};

use crate::Ms;

/// Longest source and note of an entry, in octets.
pub const TEXT_BYTES_MAX: usize = 200;
/// Longest name of a list, in octets.
const LIST_BYTES_MAX: usize = 255;

const LIST: &str = "list:";
const SENDER: &str = "sender:";

/// Who gets no mail.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Subject {
    /// A lower-case address.
    Address(Box<str>),
    /// All addresses of a domain, but not of its subdomains.
    Domain(Box<str>),
}

/// Which mail is not sent.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Scope {
    Everything,
    /// Posts to the list of this name.
    List(Box<str>),
    /// Mail of this envelope sender: an address or a domain.
    Sender(Box<str>),
}

/// Why nothing is sent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum SuppressionReason {
    /// The recipient unsubscribed.
    Unsubscribe = 0,
    /// The recipient reported mail as spam.
    Complaint = 1,
    /// The mailbox does not exist or is disabled.
    Bounce = 2,
    /// An operator decided so.
    Operator = 3,
}

/// Identity of an entry.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SuppressionKey {
    pub subject: Subject,
    pub scope: Scope,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Suppression {
    pub key: SuppressionKey,
    pub reason: SuppressionReason,
    /// Who or what entered it: `one-click`, `uid=0(root) pid=812`.
    pub source: Box<str>,
    /// Free text; may be empty.
    pub note: Box<str>,
    /// When it was entered.
    pub since: Ms,
    /// When it ends; `None`: never.
    pub expires: Option<Ms>,
}

/// Why a text is not part of a suppression.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SuppressionError {
    #[error("{text:?}: {source}")]
    Address { text: String, source: AddressError },
    #[error("{0:?} is not a valid scope: everything, list:NAME or sender:ADDRESS")]
    Scope(String),
    #[error("{0:?} is not a valid reason: unsubscribe, complaint, bounce or operator")]
    Reason(String),
    #[error("{what} is longer than {max} octets")]
    TooLong { what: &'static str, max: usize },
    #[error("{0} has a control character")]
    Control(&'static str),
}

impl Subject {
    /// Parses `ann@example.org`, or `@example.org` for a domain.
    pub fn parse(text: &str) -> Result<Subject, SuppressionError> {
        let named = |source| SuppressionError::Address { text: text.to_owned(), source };
        match text.strip_prefix('@') {
            Some(domain) => normalise_domain(domain).map(|domain| Subject::Domain(domain.into())).map_err(named),
            None => folded_address(text).map(Subject::Address).map_err(named),
        }
    }

    /// Returns the subject as [`Subject::parse`] reads it.
    pub fn text(&self) -> String {
        match self {
            Subject::Address(address) => address.to_string(),
            Subject::Domain(domain) => format!("@{domain}"),
        }
    }
}

fn folded_address(text: &str) -> Result<Box<str>, AddressError> {
    Ok(text.parse::<Address>()?.as_str().to_ascii_lowercase().into())
}

impl Scope {
    /// Parses `everything`, `list:NAME`, `sender:ADDRESS` or `sender:DOMAIN`.
    pub fn parse(text: &str) -> Result<Scope, SuppressionError> {
        if let Some(name) = text.strip_prefix(LIST) {
            return Scope::list(name);
        }
        if let Some(sender) = text.strip_prefix(SENDER) {
            return Scope::sender(sender);
        }
        if text == "everything" { Ok(Scope::Everything) } else { Err(SuppressionError::Scope(text.to_owned())) }
    }

    /// The scope of a list, by the name that the configuration gives it.
    pub fn list(name: &str) -> Result<Scope, SuppressionError> {
        check_text("list", name, LIST_BYTES_MAX)?;
        if name.is_empty() { Err(SuppressionError::Scope(LIST.to_owned())) } else { Ok(Scope::List(name.into())) }
    }

    /// The scope of a sender: an address or a domain.
    pub fn sender(text: &str) -> Result<Scope, SuppressionError> {
        let named = |source| SuppressionError::Address { text: text.to_owned(), source };
        let sender = if text.contains('@') {
            folded_address(text).map_err(named)?
        } else {
            normalise_domain(text).map_err(named)?.into()
        };
        Ok(Scope::Sender(sender))
    }

    /// Returns the scope as [`Scope::parse`] reads it.
    pub fn text(&self) -> String {
        match self {
            Scope::Everything => "everything".to_owned(),
            Scope::List(name) => format!("{LIST}{name}"),
            Scope::Sender(sender) => format!("{SENDER}{sender}"),
        }
    }
}

impl SuppressionReason {
    pub const ALL: [SuppressionReason; 4] = [
        SuppressionReason::Unsubscribe,
        SuppressionReason::Complaint,
        SuppressionReason::Bounce,
        SuppressionReason::Operator,
    ];

    pub fn name(self) -> &'static str {
        match self {
            SuppressionReason::Unsubscribe => "unsubscribe",
            SuppressionReason::Complaint => "complaint",
            SuppressionReason::Bounce => "bounce",
            SuppressionReason::Operator => "operator",
        }
    }

    pub fn parse(text: &str) -> Result<SuppressionReason, SuppressionError> {
        let found = SuppressionReason::ALL.into_iter().find(|reason| reason.name() == text);
        found.ok_or_else(|| SuppressionError::Reason(text.to_owned()))
    }
}

impl fmt::Display for SuppressionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl SuppressionKey {
    /// Parses subject and scope.
    pub fn parse(subject: &str, scope: &str) -> Result<SuppressionKey, SuppressionError> {
        Ok(SuppressionKey { subject: Subject::parse(subject)?, scope: Scope::parse(scope)? })
    }
}

impl Suppression {
    /// An entry without an end and without a note.
    pub fn new(subject: Subject, scope: Scope, reason: SuppressionReason, source: &str, since: Ms) -> Suppression {
        let key = SuppressionKey { subject, scope };
        Suppression { key, reason, source: source.into(), note: "".into(), since, expires: None }
    }

    /// Checks the texts that the constructors of subject and scope did not check.
    pub fn check(&self) -> Result<(), SuppressionError> {
        check_text("source", &self.source, TEXT_BYTES_MAX)?;
        check_text("note", &self.note, TEXT_BYTES_MAX)
    }

    /// Whether it has no effect any more. Exports have such entries until they are deleted.
    pub fn has_expired(&self, now: Ms) -> bool {
        self.expires.is_some_and(|end| end <= now)
    }

    /// Whether this entry lasts longer than `other`.
    pub(crate) fn outlasts(&self, other: Option<Ms>) -> bool {
        match (self.expires, other) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(ours), Some(theirs)) => ours > theirs,
        }
    }
}

pub(crate) fn check_text(what: &'static str, text: &str, max: usize) -> Result<(), SuppressionError> {
    if text.len() > max {
        return Err(SuppressionError::TooLong { what, max });
    }
    if text.chars().any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')) {
        return Err(SuppressionError::Control(what));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spellings_of_an_address_are_one_subject() {
        let subject = |text| Subject::parse(text).unwrap();
        assert_eq!(subject("Ann.B@EXAMPLE.org"), subject("ann.b@example.ORG"));
        assert_eq!(subject("\"ann\"@example.org"), subject("ann@example.org"));
        assert_ne!(subject("ann+a@example.org"), subject("ann@example.org"));
        assert_eq!(subject("@BÜCHER.example"), subject("@xn--bcher-kva.example"));
        for bad in ["", "@", "ann", "ann@", "a b@c", "ann@example.org\n", "@a..b"] {
            assert!(Subject::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn scopes_are_read_as_they_are_written() {
        for text in ["everything", "list:news", "sender:a@example.org", "sender:example.org"] {
            assert_eq!(Scope::parse(text).unwrap().text(), text);
        }
        for bad in ["", "all", "list:", "list:a\nb", "sender:", "sender:a@", "Everything"] {
            assert!(Scope::parse(bad).is_err(), "{bad:?}");
        }
        assert!(SuppressionReason::parse("spam").is_err());
        for reason in SuppressionReason::ALL {
            assert_eq!(SuppressionReason::parse(reason.name()), Ok(reason));
        }
    }

    #[test]
    fn texts_have_limits() {
        let subject = Subject::parse("a@example.org").unwrap();
        let entry = |source: &str| {
            Suppression::new(subject.clone(), Scope::Everything, SuppressionReason::Bounce, source, 1).check()
        };
        assert_eq!(entry(&"x".repeat(TEXT_BYTES_MAX)), Ok(()));
        assert!(entry(&"x".repeat(TEXT_BYTES_MAX + 1)).is_err());
        assert!(entry("two\r\nlines").is_err());
    }

    #[test]
    fn an_entry_without_an_end_outlasts_all_others() {
        let subject = Subject::parse("a@example.org").unwrap();
        let forever = Suppression::new(subject, Scope::Everything, SuppressionReason::Bounce, "", 1);
        let until = |expires| Suppression { expires: Some(expires), ..forever.clone() };
        assert!(forever.outlasts(Some(9)) && !forever.outlasts(None));
        assert!(until(9).outlasts(Some(8)) && !until(9).outlasts(Some(9)) && !until(9).outlasts(None));
    }

    proptest! {
        #[test]
        fn what_is_parsed_is_canonical(text in "\\PC{0,40}", domain in "[a-zA-Z0-9.-]{0,20}") {
            for text in [text.clone(), format!("{text}@{domain}"), format!("@{domain}")] {
                if let Ok(subject) = Subject::parse(&text) {
                    prop_assert_eq!(Subject::parse(&subject.text()), Ok(subject.clone()));
                    prop_assert!(!subject.text().bytes().any(|byte| byte.is_ascii_uppercase()));
                }
            }
            for text in [text.clone(), format!("list:{text}"), format!("sender:{domain}")] {
                if let Ok(scope) = Scope::parse(&text) {
                    prop_assert_eq!(Scope::parse(&scope.text()), Ok(scope.clone()));
                }
            }
        }
    }
}
