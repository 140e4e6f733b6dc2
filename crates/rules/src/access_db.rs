//! Finds entries of sendmail's access file that have no effect here, for `check`: no lookup or log would ever show
//! them.

use crate::book::Rulebook;
use crate::facts::{Field, TableId};
use crate::refusal::{ERROR, has_prefix, names_other_code};
use crate::rule::Dialect;

/// Other keys that sendmail looks up in the file, and their equivalent here. A key comes before its prefixes.
const OF_OTHER_USE: [(&str, &str); 10] = [
    ("GreetPause", "use `[listen] greet_delay_s` against clients that speak before the greeting"),
    ("ClientRate", "use a rule with `client_rate_over` to limit a client's rate"),
    ("ClientConn", "use `[listen] connections_per_client_max` to limit a client's connections"),
    ("Spam", "write the exception into the `not` of the refusing rule"),
    ("TLS_", "TLS is not configured by a table"),
    ("Try_TLS", "TLS is not configured by a table"),
    ("AuthInfo", "logins are configured in [smart_hosts]"),
    ("SRV_Features", "extensions are offered to all clients"),
    ("CLT_Features", "extensions are used as each host offers them"),
    ("Verify", "TLS is not configured by a table"),
];

impl Rulebook {
    /// Why an entry of a table in this dialect has no effect, or not the intended one.
    pub fn without_effect(dialect: Dialect, key: &str, value: &str) -> Option<String> {
        if dialect != Dialect::SendmailAccess {
            return None;
        }
        let (name, _) = tag(key);
        if of_other_use(key) {
            let known = OF_OTHER_USE.iter().find(|(of, _)| has_prefix(name, of));
            return Some(known.map_or_else(
                || format!("`{name}:` is not a tag of an access file; valid tags: Connect, From, To"),
                |(_, instead)| format!("`{name}:` is not looked up here: {instead}"),
            ));
        }
        if name.eq_ignore_ascii_case("From") && value.trim().eq_ignore_ascii_case("RELAY") {
            return Some("RELAY is treated as OK for a sender, which can be forged".to_owned());
        }
        let error = value.trim().get(ERROR.len()..).filter(|_| has_prefix(value.trim(), ERROR))?;
        names_other_code(error)
            .map(|code| format!("a refusal needs a code 4NN or 5NN, not {code}; the client gets 550 with this text"))
    }

    /// The condition that would look up such a key, if no rule has it.
    pub fn unasked(&self, table: &str, key: &str) -> Option<Field> {
        let at = self.tables.iter().position(|known| *known.name == *table)?;
        let id = TableId(u16::try_from(at).ok()?);
        let field = field_of(key).filter(|_| self.dialect(id) == Dialect::SendmailAccess)?;
        let asks = |(of, asked): &(Field, TableId)| {
            // A HELO name is looked up in the same way as the client's name.
            *asked == id && (*of == field || (field, *of) == (Field::ClientName, Field::Helo))
        };
        let mut rules = self.rules.iter();
        let is_asked = rules.any(|rule| rule.when.tables().iter().chain(rule.unless.tables()).any(asks));
        (!is_asked).then_some(field)
    }
}

/// Splits a key of sendmail's access file into its tag and the rest.
pub(crate) fn tag(key: &str) -> (&str, &str) {
    match key.split_once(':') {
        Some((tag, rest))
            if tag.bytes().all(|octet| octet.is_ascii_alphabetic() || octet == b'_') && !has_prefix(key, "IPv6:") =>
        {
            (tag, rest)
        }
        _ => ("", key),
    }
}

/// Whether sendmail uses the key for another purpose: `Spam:`, `TLS_Clt:`, `ClientRate:` and the like.
pub(crate) fn of_other_use(key: &str) -> bool {
    let (tag, _) = tag(key);
    !["", "Connect", "From", "To"].iter().any(|known| tag.eq_ignore_ascii_case(known)) && !is_hexadecimal(tag)
}

/// Whether the text before the colon is hexadecimal: `fe80:1` has no tag.
fn is_hexadecimal(text: &str) -> bool {
    text.len() <= 4 && text.bytes().all(|octet| octet.is_ascii_hexdigit())
}

/// Whether the text consists of digits and dots, like an IPv4 address or its beginning.
pub(crate) fn has_digits_alone(text: &str) -> bool {
    text.bytes().all(|octet| octet.is_ascii_digit() || octet == b'.')
}

/// The field that a key with a tag applies to.
fn field_of(key: &str) -> Option<Field> {
    match tag(key) {
        (name, subject) if name.eq_ignore_ascii_case("Connect") => {
            let is_address = has_prefix(subject, "IPv6:") || has_digits_alone(subject);
            Some(if is_address { Field::Client } else { Field::ClientName })
        }
        (name, _) if name.eq_ignore_ascii_case("From") => Some(Field::Sender),
        (name, _) if name.eq_ignore_ascii_case("To") => Some(Field::Recipient),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_do_nothing() {
        let why = |key, value| Rulebook::without_effect(Dialect::SendmailAccess, key, value).unwrap_or_default();
        for (key, value, expected) in [
            ("conect:1.2.3.4", "REJECT", "is not a tag"),
            ("GreetPause:127.0.0.1", "5000", "greet_delay_s"),
            ("clientrate:127.0.0.1", "10", "client_rate_over"),
            ("ClientConn:127.0.0.1", "10", "connections_per_client_max"),
            ("Spam:abuse@gw.test", "FRIEND", "`not` of the refusing rule"),
            ("TLS_Clt:a.test", "VERIFY", "TLS"),
            ("From:ok@x.test", "RELAY", "treated as OK"),
            ("From:x.test", "ERROR:5.7.1:250 text", "not 250"),
            ("x.test", "error:\"399 text\"", "not 399"),
        ] {
            assert!(why(key, value).contains(expected), "{key} {value}: {}", why(key, value));
        }
        for (key, value) in [
            ("Connect:1.2.3.4", "RELAY"),
            ("to:x.test", "RELAY"),
            ("x.test", "RELAY"),
            ("fe80:1", "REJECT"),
            ("IPv6:2001:db8", "REJECT"),
            ("From:x.test", "ERROR:5.7.1:550 text"),
            ("From:x.test", "ERROR:5.7.1:text 250"),
            ("From:x.test", "ERROR:4.2.2:450 text"),
        ] {
            assert_eq!(why(key, value), "", "{key} {value}");
        }
        assert_eq!(Rulebook::without_effect(Dialect::Access, "conect:1.2.3.4", "REJECT"), None);
    }

    #[test]
    fn what_sendmail_looks_up_elsewhere_defers_nothing() {
        for key in ["Spam:ann@a.test", "SPAMFRIEND:a", "TLS_Clt:a", "GreetPause:10"] {
            assert!(of_other_use(key), "{key}");
        }
        for key in ["Connect:10", "to:a", "a.test", "IPv6:2001:db8", "fe:80"] {
            assert!(!of_other_use(key), "{key}");
        }
    }

    #[test]
    fn what_a_key_is_asked_about() {
        for (key, field) in [
            ("Connect:10.1", Some(Field::Client)),
            ("Connect:IPv6:2001:db8", Some(Field::Client)),
            ("connect:evil.test", Some(Field::ClientName)),
            ("From:x.test", Some(Field::Sender)),
            ("To:x.test", Some(Field::Recipient)),
            ("x.test", None),
            ("Spam:x.test", None),
        ] {
            assert_eq!(field_of(key), field, "{key}");
        }
    }
}
