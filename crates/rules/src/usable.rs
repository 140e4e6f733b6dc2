//! Whether a table's keys and values are in the words of its dialect: for `check`, before mail is deferred for a value, or a key
//! never has the effect that it was written for.

use stentor_addresses::{Target, parse};

use crate::access_db::{has_digits_alone, of_other_use, tag};
use crate::action::{Action, Verdict};
use crate::book::Rulebook;
use crate::hop::NextHop;
use crate::refusal::{ERROR, has_prefix};
use crate::rule::{Dialect, action_of};

impl Rulebook {
    /// Why mail for a key of a table with these words would be deferred. `None`: it can be used.
    pub fn unusable(&self, dialect: Dialect, key: &str, value: &str) -> Option<String> {
        if dialect == Dialect::SendmailAccess && of_other_use(key) {
            return None;
        }
        if !dialect.is_of_addresses() {
            // What stands for them is a part of the address.
            let value = if dialect.has_arguments() { &*with_arguments(value) } else { value };
            let error = match action_of(dialect, value, self.smtp_port) {
                Ok(Action::Route(NextHop::Named(name))) if !self.hops.contains_key(&name) => {
                    return Some(format!("there is no hop {name:?}; see [hops]"));
                }
                Ok(_) => return None,
                Err(error) => error,
            };
            let is_hop = dialect == Dialect::Own && NextHop::parse(value, self.smtp_port).is_ok();
            return (!is_hop).then(|| error.to_string());
        }
        let begins_with_error = has_prefix(value.trim(), ERROR);
        // Of a domain that is itself a key, the value means nothing.
        if dialect == Dialect::Virtual && !key.contains('@') || dialect == Dialect::Virtusertable && begins_with_error {
            return None;
        }
        let targets = match parse(value) {
            Ok(targets) => targets,
            Err(error) => return Some(error.to_string()),
        };
        let is_one = matches!(dialect, Dialect::Canonical | Dialect::Generic | Dialect::Genericstable);
        if is_one && targets.len() != 1 {
            return Some(format!("{value:?} is not one address"));
        }
        targets.iter().find_map(|target| self.unusable_target(dialect, target, value))
    }

    /// Whether a value ends all rules, and Postfix, whose words these are, ends with it one list of restrictions alone.
    pub fn ends_more(&self, dialect: Dialect, value: &str) -> bool {
        dialect == Dialect::Access && matches!(action_of(dialect, value, self.smtp_port), Ok(Action::End(Verdict::Ok)))
    }

    /// Why no mail leads to a key of a table with these words.
    pub fn never_asked(dialect: Dialect, key: &str) -> Option<&'static str> {
        const NO_AT: &str = "a domain is written without `@` here";
        let subject = if dialect == Dialect::SendmailAccess { tag(key).1 } else { key };
        let is_of_clients = matches!(dialect, Dialect::Access | Dialect::SendmailAccess);
        match dialect {
            Dialect::Transport | Dialect::Access | Dialect::SendmailAccess if subject.starts_with('@') => Some(NO_AT),
            _ if is_of_clients && is_network(subject) => {
                Some("a network is written as the beginning of its addresses here, and with a length in a cidr: table")
            }
            Dialect::SendmailAccess if of_other_use(key) => None,
            _ if is_of_clients && is_like_address(subject) => {
                Some("it is no address, of which the beginning is enough, and no name of a host has only digits")
            }
            Dialect::SendmailAccess if subject.contains(':') && !has_prefix(subject, "IPv6:") => {
                Some("`IPv6:` stands before an address of IPv6 here")
            }
            Dialect::Mailertable if key.contains('@') => Some("keys are domains here"),
            Dialect::Virtusertable if !key.contains('@') => Some("keys are addresses or @domain here"),
            _ => None,
        }
    }

    fn unusable_target(&self, dialect: Dialect, target: &Target, value: &str) -> Option<String> {
        match target {
            Target::Address(text) | Target::Final(text) if has_argument(text) => (!dialect.has_arguments())
                .then(|| format!("{text:?}: `%` and a digit belong to sendmail's tables; is `as` right?")),
            Target::Address(text) | Target::Final(text) => {
                self.named(text, "").is_none().then(|| format!("{text:?} is not a mail address"))
            }
            Target::Domain(_) => None,
            Target::Include(_) | Target::Program(_) | Target::File(_) => {
                (dialect != Dialect::Aliases).then(|| format!("{value:?} belongs to alias files; is `as` right?"))
            }
        }
    }
}

/// Digits and dots, of which no look-up is made: `192.0.2.300`, `192.0.2.`.
fn is_like_address(text: &str) -> bool {
    let is_number = |part: &str| part.parse::<u8>().is_ok_and(|number| number.to_string() == part);
    !text.is_empty() && has_digits_alone(text) && (text.split('.').count() > 4 || !text.split('.').all(is_number))
}

fn is_network(text: &str) -> bool {
    text.split_once('/').is_some_and(|(address, _)| address.parse::<std::net::IpAddr>().is_ok())
}

/// With a letter in place of each `%1`.
fn with_arguments(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let mut letters = value.chars().peekable();
    while let Some(letter) = letters.next() {
        let is_argument = letter == '%' && letters.next_if(char::is_ascii_digit).is_some();
        out.push(if is_argument { 'x' } else { letter });
    }
    out
}

fn has_argument(text: &str) -> bool {
    text.as_bytes().windows(2).any(|two| two[0] == b'%' && two[1].is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_no_mail_leads_to() {
        let never = |dialect, key| Rulebook::never_asked(dialect, key).is_some();
        for (dialect, key) in [
            (Dialect::Transport, "@a.test"),
            (Dialect::Access, "@a.test"),
            (Dialect::Access, "10.0.0.0/8"),
            (Dialect::SendmailAccess, "From:@a.test"),
            (Dialect::SendmailAccess, "connect:10.9.0.0/16"),
            (Dialect::SendmailAccess, "Connect:2001:db8::/32"),
            (Dialect::SendmailAccess, "Connect:2001:db8"),
            (Dialect::SendmailAccess, "2001:db8::1"),
            (Dialect::SendmailAccess, "Connect:192.0.2.300"),
            (Dialect::SendmailAccess, "192.0.2."),
            (Dialect::Access, "192.0.2.010"),
            (Dialect::Mailertable, "ann@a.test"),
            (Dialect::Virtusertable, "a.test"),
        ] {
            assert!(never(dialect, key), "{dialect:?} {key}");
        }
        for (dialect, key) in [
            (Dialect::Transport, "ann@a.test"),
            (Dialect::Access, "ann@"),
            (Dialect::Access, "2001:db8"),
            (Dialect::Access, "192.0.2.1"),
            (Dialect::SendmailAccess, "Connect:10"),
            (Dialect::SendmailAccess, "GreetPause:192.0.2.300"),
            (Dialect::SendmailAccess, "Connect:IPv6:2001:db8"),
            (Dialect::SendmailAccess, "ipv6:2001:db8"),
            (Dialect::SendmailAccess, "TLS_Clt:a:b"),
            (Dialect::SendmailAccess, "To:ann@"),
            (Dialect::Bcc, "@a.test"),
            (Dialect::Relayhost, "@a.test"),
            (Dialect::Own, "@a.test"),
            (Dialect::Virtusertable, "@a.test"),
        ] {
            assert!(!never(dialect, key), "{dialect:?} {key}");
        }
    }

    #[test]
    fn what_arguments_stand_for_is_left_open() {
        assert_eq!(with_arguments("smtp:%1.in.test 5% %%2"), "smtp:x.in.test 5% %x");
    }
}
