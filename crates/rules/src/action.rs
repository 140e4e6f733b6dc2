//! Actions of rules, in our syntax and in that of Postfix's access(5).
//!
//! Both have one grammar: a word and its argument. They differ in the default codes of refusals and in some words
//! ([`Dialect`](crate::Dialect)).

use stentor_mail::Class;
use stentor_mail::address::Address;
use stentor_mail::copy_request::COPY_REQUEST_FIELD;
use stentor_mail::reply::Reply;
use stentor_mime::recode::RecodeTarget;

use crate::field_edit::{FieldEdit, FieldEditError};
use crate::hop::{HopError, NextHop};
use crate::refusal::{DENIED, Defaults, OURS, POSTFIX, RefusalCodes, refusal, reply_code, split};

/// An action that ends the evaluation of rules for a recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FinalAction {
    /// Accepted; no later rule is evaluated.
    Ok,
    /// As `Ok`, and the client may relay to this recipient.
    Relay,
    /// Refused with a 4xx or 5xx reply.
    Refuse(Reply),
    /// The message is accepted and dropped; the text is logged.
    Discard(Box<str>),
}

/// One action of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleAction {
    End(FinalAction),
    /// The client may relay to this recipient; evaluation continues.
    MayRelay,
    /// No action; evaluation continues.
    Dunno,
    Hold(Box<str>),
    /// The message is held back from this recipient until it is released.
    Quarantine(Box<str>),
    Redirect(Address),
    Bcc(Address),
    /// A header field, without its line end, is prepended.
    Prepend(Box<str>),
    /// Fields of the message's header are removed or changed.
    EditHeader(FieldEdit),
    /// The message is stored with other transfer encodings.
    TransferEncoding(RecodeTarget),
    Warn(Box<str>),
    Class(Class),
    Route(NextHop),
    /// Another copy for this recipient goes to this next hop.
    Copy(NextHop),
}

/// Why a text is not a valid action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ActionError {
    #[error("the action is missing")]
    Empty,
    #[error("{word:?} is not an action; {known}")]
    Unknown { word: String, known: &'static str },
    #[error("{word} needs {what}")]
    Missing { word: String, what: &'static str },
    #[error("{word} {text:?}: {why}")]
    Address { word: String, text: String, why: String },
    #[error("{0:?} is not a header field: write Field-Name: text")]
    Field(String),
    #[error("{COPY_REQUEST_FIELD} is set by clients; use verp, one_click and copy_fields of [senders] or [lists]")]
    RequestField,
    #[error("{word} takes no argument, but {text:?} follows")]
    Surplus { word: String, text: String },
    #[error("{word} needs a {class}xx code, but {text:?} has another")]
    Code { word: String, class: u16, text: String },
    #[error("a reply must be ASCII, because not all clients support SMTPUTF8: {0:?}")]
    NotAscii(String),
    #[error("{0}")]
    Hop(#[from] HopError),
    #[error("{0}")]
    FieldEdit(#[from] FieldEditError),
}

const KNOWN: &str = "valid actions: ok, relay, reject, defer, discard, quarantine, hold, redirect, bcc, prepend, \
    remove_header, replace_header, transfer_encoding, warn, class, route, copy, dunno";
const KNOWN_OF_POSTFIX: &str = "valid actions: OK, PERMIT, REJECT, DEFER, DEFER_IF_PERMIT, 4NN or 5NN with a text, \
    DUNNO, DISCARD, HOLD, REDIRECT, BCC, PREPEND, WARN, INFO, FILTER";
const TRY_LATER: &str = "Try again later";

impl RuleAction {
    /// Parses an action in our syntax, as in `do`.
    ///
    /// # Errors
    /// The text is not a valid action.
    pub fn parse(text: &str, smtp_port: u16) -> Result<RuleAction, ActionError> {
        let action = RuleAction::parse_own(text, smtp_port)?;
        match &action {
            RuleAction::End(FinalAction::Refuse(reply)) | RuleAction::Route(NextHop::Refuse(reply))
                if !reply.text.is_ascii() =>
            {
                Err(ActionError::NotAscii(reply.text.to_string()))
            }
            _ => Ok(action),
        }
    }

    fn parse_own(text: &str, smtp_port: u16) -> Result<RuleAction, ActionError> {
        let (word, rest) = split(text);
        match word.to_ascii_lowercase().as_str() {
            "relay" => bare(word, rest, RuleAction::End(FinalAction::Relay)),
            "quarantine" => Ok(RuleAction::Quarantine(rest.into())),
            "class" => match rest {
                "ordinary" => Ok(RuleAction::Class(Class::Ordinary)),
                "bulk" => Ok(RuleAction::Class(Class::Bulk)),
                _ => Err(ActionError::Missing { word: word.to_owned(), what: "`ordinary` or `bulk`" }),
            },
            "remove_header" => Ok(RuleAction::EditHeader(FieldEdit::removal(rest)?)),
            "replace_header" => Ok(RuleAction::EditHeader(FieldEdit::replacement(rest)?)),
            "transfer_encoding" => match rest.to_ascii_lowercase().as_str() {
                "7bit" => Ok(RuleAction::TransferEncoding(RecodeTarget::SevenBit)),
                "8bit" => Ok(RuleAction::TransferEncoding(RecodeTarget::EightBit)),
                _ => Err(ActionError::Missing { word: word.to_owned(), what: "`8bit` or `7bit`" }),
            },
            "route" => Ok(RuleAction::Route(NextHop::parse(rest, smtp_port)?)),
            "copy" => match NextHop::parse(rest, smtp_port)? {
                NextHop::Refuse(_) => {
                    Err(ActionError::Missing { word: word.to_owned(), what: "hosts, `mx` or `hop:NAME`" })
                }
                hop => Ok(RuleAction::Copy(hop)),
            },
            _ => common(word, rest, &OURS, KNOWN),
        }
    }

    /// Parses an action in the syntax of access(5).
    ///
    /// # Errors
    /// The text is not a valid action, or it names a restriction (`reject_unauth_destination`), which is a rule here.
    pub fn parse_postfix(text: &str, smtp_port: u16) -> Result<RuleAction, ActionError> {
        let (word, rest) = split(text);
        match word.to_ascii_lowercase().as_str() {
            "info" => Ok(RuleAction::Warn(rest.into())),
            // "defer if some later restriction would permit": here the recipient is deferred unless an earlier rule
            // decided.
            "defer_if_permit" => Ok(RuleAction::End(FinalAction::Refuse(refusal(rest, POSTFIX.defer, TRY_LATER)))),
            "filter" => Ok(RuleAction::Route(crate::transport::next_hop(rest, smtp_port)?)),
            // "An all-numerical result is treated as OK", for programs like pop-before-smtp; three digits with a text
            // are a reply.
            word if word.bytes().all(|byte| byte.is_ascii_digit()) && rest.is_empty() => {
                Ok(RuleAction::End(FinalAction::Ok))
            }
            _ => common(word, rest, &POSTFIX, KNOWN_OF_POSTFIX),
        }
    }
}

fn common(word: &str, rest: &str, defaults: &Defaults, known: &'static str) -> Result<RuleAction, ActionError> {
    let refuse = |codes, text| Ok(RuleAction::End(FinalAction::Refuse(refusal(rest, codes, text))));
    match word.to_ascii_lowercase().as_str() {
        "" => Err(ActionError::Empty),
        "ok" | "permit" => Ok(RuleAction::End(FinalAction::Ok)),
        "dunno" => Ok(RuleAction::Dunno),
        "reject" => expecting(word, rest, 5, refuse(defaults.reject, DENIED)),
        "defer" => expecting(word, rest, 4, refuse(defaults.defer, TRY_LATER)),
        "discard" => Ok(RuleAction::End(FinalAction::Discard(rest.into()))),
        "hold" => Ok(RuleAction::Hold(rest.into())),
        "warn" => Ok(RuleAction::Warn(rest.into())),
        "redirect" => address(word, rest).map(RuleAction::Redirect),
        "bcc" => address(word, rest).map(RuleAction::Bcc),
        "prepend" => field(rest).map(RuleAction::Prepend),
        digits if reply_code(digits).is_some() => {
            let enhanced = if digits.starts_with('4') { defaults.defer.enhanced } else { defaults.reject.enhanced };
            let code = reply_code(digits).unwrap_or_default();
            Ok(RuleAction::End(FinalAction::Refuse(refusal(rest, RefusalCodes { code, enhanced }, DENIED))))
        }
        _ => Err(ActionError::Unknown { word: word.to_owned(), known }),
    }
}

fn bare(word: &str, rest: &str, action: RuleAction) -> Result<RuleAction, ActionError> {
    if rest.is_empty() {
        Ok(action)
    } else {
        Err(ActionError::Surplus { word: word.to_owned(), text: rest.to_owned() })
    }
}

/// Checks that the code fits the word: `reject 450 text` is probably a mistake.
fn expecting(
    word: &str,
    rest: &str,
    class: u16,
    action: Result<RuleAction, ActionError>,
) -> Result<RuleAction, ActionError> {
    let first = rest.split(' ').next().unwrap_or_default();
    let is_other_code =
        first.len() == 3 && first.bytes().all(|byte| byte.is_ascii_digit()) && reply_code(first).is_none();
    match &action {
        _ if is_other_code => Err(ActionError::Code { word: word.to_owned(), class, text: rest.to_owned() }),
        Ok(RuleAction::End(FinalAction::Refuse(reply)))
            if reply.code / 100 != class || reply.enhanced.is_some_and(|code| u16::from(code.class) != class) =>
        {
            Err(ActionError::Code { word: word.to_owned(), class, text: rest.to_owned() })
        }
        _ => action,
    }
}

fn address(word: &str, text: &str) -> Result<Address, ActionError> {
    if text.is_empty() {
        return Err(ActionError::Missing { word: word.to_owned(), what: "an address" });
    }
    let wrong = |why: String| ActionError::Address { word: word.to_owned(), text: text.to_owned(), why };
    text.parse().map_err(|error: stentor_mail::address::AddressError| wrong(error.to_string()))
}

/// Parses a header field (RFC 5322 section 2.2): a name of printable ASCII without a colon, then text on one line.
fn field(text: &str) -> Result<Box<str>, ActionError> {
    let is_field = text.split_once(':').is_some_and(|(name, body)| {
        !name.is_empty() && name.bytes().all(|byte| (33..=126).contains(&byte)) && !body.chars().any(char::is_control)
    });
    if !is_field {
        return Err(ActionError::Field(text.to_owned()));
    }
    let is_request = text.split(':').next().is_some_and(|name| name.eq_ignore_ascii_case(COPY_REQUEST_FIELD));
    if is_request { Err(ActionError::RequestField) } else { Ok(text.into()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(action: Result<RuleAction, ActionError>) -> String {
        match action {
            Ok(RuleAction::End(FinalAction::Refuse(reply))) => reply.to_string(),
            Ok(action) => format!("{action:?}"),
            Err(error) => format!("! {error}"),
        }
    }

    fn ours(text: &str) -> String {
        shown(RuleAction::parse(text, 25))
    }

    fn postfix(text: &str) -> String {
        shown(RuleAction::parse_postfix(text, 25))
    }

    #[test]
    fn refusals_have_the_words_and_codes_that_they_are_given() {
        assert_eq!(ours("reject"), "550 5.7.1 Access denied");
        assert_eq!(ours("reject 550 5.1.6 Moved: see \"here\" [1]."), "550 5.1.6 Moved: see \"here\" [1].");
        assert_eq!(ours("reject 5.1.6 moved"), "550 5.1.6 moved");
        assert_eq!(ours("reject 554 no"), "554 5.7.1 no");
        assert_eq!(ours("defer"), "450 4.7.1 Try again later");
        assert_eq!(ours("defer 451 4.3.2 busy"), "451 4.3.2 busy");
        assert_eq!(ours("451 busy"), "451 4.7.1 busy");
        assert_eq!(ours("550"), "550 5.7.1 Access denied");
        assert_eq!(postfix("REJECT"), "554 5.7.1 Access denied");
        assert_eq!(postfix("DEFER"), "450 4.7.1 Try again later");
        assert_eq!(postfix("521 5.7.1 go"), "521 5.7.1 go");
    }

    #[test]
    fn slips_are_errors() {
        assert_eq!(ours("reject 450 later"), "! reject needs a 5xx code, but \"450 later\" has another");
        assert_eq!(ours("defer 4.7.1"), "450 4.7.1 Try again later");
        assert!(ours("reject 4.7.1 x").starts_with('!'));
        assert_eq!(ours("reject 250 fine"), "! reject needs a 5xx code, but \"250 fine\" has another");
        assert_eq!(ours("reject 2500 times"), "550 5.7.1 2500 times");
        assert!(ours("rejekt x").starts_with("! \"rejekt\" is not an action; valid actions: ok,"));
        assert!(ours("").starts_with("! the action is missing"));
        assert!(ours("copy error: 550 no").starts_with('!'));
        assert!(ours("relay all").starts_with("! relay takes no argument"));
        assert!(ours("remove_header").starts_with('!') && ours("remove_header Received").starts_with('!'));
        assert!(ours("transfer_encoding base64").starts_with("! transfer_encoding needs `8bit` or `7bit`"));
        assert!(postfix("transfer_encoding 7bit").starts_with('!'), "Postfix has none");
        assert!(ours("redirect").starts_with("! redirect needs an address"));
        assert!(
            ours("bcc a b").starts_with('!')
                && ours("prepend X y").starts_with('!')
                && ours("class x").starts_with('!')
        );
        assert!(postfix("relay").starts_with('!') && postfix("reject_unknown_client").starts_with('!'));
        assert!(ours("600 x").starts_with('!') && ours("250 ok").starts_with('!'));
    }

    #[test]
    fn the_rest() {
        assert_eq!(RuleAction::parse("OK", 25), Ok(RuleAction::End(FinalAction::Ok)));
        assert_eq!(RuleAction::parse("hold ask  legal ", 25), Ok(RuleAction::Hold("ask  legal".into())));
        assert_eq!(RuleAction::parse("quarantine spam", 25), Ok(RuleAction::Quarantine("spam".into())));
        assert!(postfix("quarantine x").starts_with('!'), "Postfix has none");
        assert_eq!(RuleAction::parse("bcc a@b.test", 25), Ok(RuleAction::Bcc("a@b.test".parse().unwrap())));
        assert!(ours("prepend x-stentor-copies: verp=off").starts_with("! X-Stentor-Copies is set by clients"));
        assert_eq!(RuleAction::parse("prepend X-A: b: c", 25), Ok(RuleAction::Prepend("X-A: b: c".into())));
        assert_eq!(
            RuleAction::parse("remove_header X-A: b", 25),
            Ok(RuleAction::EditHeader(FieldEdit::removal("x-a: b").unwrap()))
        );
        assert_eq!(
            RuleAction::parse("transfer_encoding 8BIT", 25),
            Ok(RuleAction::TransferEncoding(RecodeTarget::EightBit))
        );
        assert_eq!(RuleAction::parse_postfix("1234", 25), Ok(RuleAction::End(FinalAction::Ok)));
        assert_eq!(RuleAction::parse_postfix("permit", 25), Ok(RuleAction::End(FinalAction::Ok)));
        assert_eq!(RuleAction::parse_postfix("INFO x", 25), Ok(RuleAction::Warn("x".into())));
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,60}") {
            let _ = RuleAction::parse(&text, 25);
            let _ = RuleAction::parse_postfix(&text, 25);
        }
    }
}
