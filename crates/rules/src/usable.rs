//! Checks that a table's keys and values are valid in its dialect. `check` uses it to report values that would defer
//! mail, and keys that never have the intended effect.

use stentor_addresses::{ExpansionTarget, parse};
use stentor_reputation::DnsList;

use crate::access_db::{has_digits_alone, of_other_use, tag};
use crate::action::{FinalAction, RuleAction};
use crate::address::Key;
use crate::book::Rulebook;
use crate::conditions::Conditions;
use crate::facts::TableId;
use crate::hop::NextHop;
use crate::refusal::{ERROR, has_prefix};
use crate::rule::{Dialect, RuleEffect, action_of, hop_of};

/// Uses of a table's values, except for addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueUses {
    /// Rules use them as actions.
    pub rules: bool,
    /// `[routing]` uses them.
    pub routes: bool,
    /// Whether the table is used as above or in a condition, which only looks at keys. Values of an unused table may
    /// be actions or next hops.
    pub is_used: bool,
}

impl Rulebook {
    /// The uses of a table's values.
    pub fn value_uses(&self, table: &str) -> ValueUses {
        let is_it = |id: &TableId| self.table_name(*id) == table;
        let asks = |conditions: &Conditions| conditions.tables().iter().any(|(_, id)| is_it(id));
        let rules = self.rules.iter().any(|rule| matches!(rule.does, RuleEffect::Table) && asks(&rule.when));
        let routes = self.recipient_tables.iter().chain(&self.sender_tables).any(is_it);
        let names_domains = self.relay_domains.tables.iter().chain(&self.addresses.virtual_domain_tables).any(is_it);
        let is_used =
            rules || routes || names_domains || self.rules.iter().any(|rule| asks(&rule.when) || asks(&rule.unless));
        ValueUses { rules, routes, is_used }
    }

    /// Whether anything looks up a table, or asks a policy service.
    pub fn is_used(&self, table: TableId) -> bool {
        let (addresses, rewriting) = (&self.addresses, &self.addresses.rewriting);
        let named = [
            &self.recipient_tables,
            &self.sender_tables,
            &self.relay_domains.tables,
            &addresses.virtual_tables,
            &addresses.alias_tables,
            &addresses.virtual_domain_tables,
            &rewriting.canonical,
            &rewriting.sender_canonical,
            &rewriting.recipient_canonical,
            &addresses.generic.tables,
        ];
        let is_in = |conditions: &Conditions| {
            conditions.is_service(table) || conditions.tables().iter().any(|(_, id)| *id == table)
        };
        named.iter().any(|ids| ids.contains(&table))
            || self.rules.iter().any(|rule| is_in(&rule.when) || is_in(&rule.unless))
    }

    /// Whether a rule queries a DNS list, by its name or in a score.
    pub fn queries(&self, list: &DnsList) -> bool {
        let conditions = self.rules.iter().flat_map(|rule| [&rule.when, &rule.unless]);
        conditions.into_iter().any(|conditions| conditions.strangers.queries(list))
    }

    /// Whether a rule refuses or accepts recipients at RCPT one by one: by a table of recipients, or by a policy
    /// service that it asks about certain recipients. `any`: an address that stands for any of a domain; `None`: the
    /// domain is unknown.
    pub fn verifies_recipients(&self, any: Option<&Key>) -> bool {
        self.rules.iter().any(|rule| {
            let is_in_time = !rule.is_warning && !rule.when.waits() && !rule.unless.waits();
            let decides = match &rule.does {
                RuleEffect::Table => true,
                RuleEffect::Actions(actions) => actions.iter().any(|action| matches!(action, RuleAction::End(_))),
            };
            is_in_time
                && decides
                && (rule.when.verifies_recipients() || rule.unless.verifies_recipients())
                && any.is_none_or(|any| rule.when.may_be_about(any))
        })
    }

    /// Describes doubtful entries of a table.
    pub fn doubt(&self, table: &str, dialect: Dialect, uses: ValueUses, key: &str, value: &str) -> Option<String> {
        if let Some(why) = Rulebook::never_asked(dialect, key) {
            return Some(format!("{key:?} in table {table} is never looked up: {why}"));
        }
        if let Some(why) = Rulebook::without_effect(dialect, key, value) {
            return Some(format!("{key:?} in table {table} has no effect as written: {why}"));
        }
        let why = self.unusable(dialect, uses, key, value)?;
        Some(format!("mail for this key of table {table} is deferred: {why}"))
    }

    /// Why a value of a table in this dialect would defer mail. `None`: it can be used.
    pub fn unusable(&self, dialect: Dialect, uses: ValueUses, key: &str, value: &str) -> Option<String> {
        if dialect == Dialect::SendmailAccess && of_other_use(key) {
            return None;
        }
        if !dialect.is_of_addresses() {
            // Arguments become a part of the address.
            let value = if dialect.has_arguments() { &*with_arguments(value) } else { value };
            let missing = |hop: NextHop| match hop {
                NextHop::Named(name) if !self.hops.contains_key(&name) => {
                    Some(format!("there is no hop {name:?}; see [hops]"))
                }
                _ => None,
            };
            let as_action = || match action_of(dialect, value, self.smtp_port) {
                Ok(RuleAction::Route(hop) | RuleAction::Copy(hop)) => missing(hop),
                Ok(_) => None,
                Err(error) => Some(error.to_string()),
            };
            let as_hop = || match hop_of(dialect, value, self.smtp_port) {
                Ok(hop) => hop.and_then(missing),
                Err(error) => Some(error.to_string()),
            };
            if !uses.is_used {
                return as_action().filter(|_| as_hop().is_some());
            }
            let of_rules = if uses.rules { as_action() } else { None };
            return of_rules.or_else(|| if uses.routes { as_hop() } else { None });
        }
        let begins_with_error = has_prefix(value.trim(), ERROR);
        // If the key is a domain, the value has no meaning.
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

    /// Whether a value ends all rules although in Postfix it would end only one list of restrictions.
    pub fn ends_more(&self, dialect: Dialect, value: &str) -> bool {
        dialect == Dialect::Access
            && matches!(action_of(dialect, value, self.smtp_port), Ok(RuleAction::End(FinalAction::Ok)))
    }

    /// Why a key of a table in this dialect is never looked up.
    pub fn never_asked(dialect: Dialect, key: &str) -> Option<&'static str> {
        const NO_AT: &str = "write a domain without `@` here";
        const NO_AT_OF_TRANSPORT: &str = "write a domain without `@` here; for senders \
            (sender_dependent_default_transport_maps) set as = \"sender-transport\"";
        let subject = if dialect == Dialect::SendmailAccess { tag(key).1 } else { key };
        let is_of_clients = matches!(dialect, Dialect::Access | Dialect::SendmailAccess);
        match dialect {
            Dialect::Transport if subject.starts_with('@') => Some(NO_AT_OF_TRANSPORT),
            Dialect::Access | Dialect::SendmailAccess if subject.starts_with('@') => Some(NO_AT),
            _ if is_of_clients && is_network(subject) => {
                Some("write a network as the beginning of its addresses here, or with a prefix length in a cidr: table")
            }
            Dialect::SendmailAccess if of_other_use(key) => None,
            _ if is_of_clients && is_like_address(subject) => {
                Some("it is neither an address, a prefix of one, nor a host name")
            }
            Dialect::SendmailAccess if subject.contains(':') && !has_prefix(subject, "IPv6:") => {
                Some("put `IPv6:` before an IPv6 address here")
            }
            Dialect::Mailertable if key.contains('@') => Some("keys are domains here"),
            Dialect::Virtusertable if !key.contains('@') => Some("keys are addresses or @domain here"),
            _ => None,
        }
    }

    fn unusable_target(&self, dialect: Dialect, target: &ExpansionTarget, value: &str) -> Option<String> {
        match target {
            ExpansionTarget::Address(text) | ExpansionTarget::Final(text) if has_argument(text) => (!dialect
                .has_arguments())
            .then(|| format!("{text:?}: `%` and a digit are sendmail table syntax; check `as`")),
            ExpansionTarget::Address(text) | ExpansionTarget::Final(text) => {
                self.named(text, "").is_none().then(|| format!("{text:?} is not a valid mail address"))
            }
            ExpansionTarget::Domain(_) => None,
            ExpansionTarget::Include(_) | ExpansionTarget::Program(_) | ExpansionTarget::File(_) => {
                (dialect != Dialect::Aliases).then(|| format!("{value:?} is alias file syntax; check `as`"))
            }
        }
    }
}

/// Whether the key consists of digits and dots but is never looked up: `192.0.2.300`, `192.0.2.`.
fn is_like_address(text: &str) -> bool {
    let is_number = |part: &str| part.parse::<u8>().is_ok_and(|number| number.to_string() == part);
    !text.is_empty() && has_digits_alone(text) && (text.split('.').count() > 4 || !text.split('.').all(is_number))
}

fn is_network(text: &str) -> bool {
    text.split_once('/').is_some_and(|(address, _)| address.parse::<std::net::IpAddr>().is_ok())
}

/// Replaces each `%1` by a letter.
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
            (Dialect::SenderTransport, "@a.test"),
            (Dialect::SenderTransport, "<>"),
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
