//! One rule, and the tables used in rules.

use crate::action::{ActionError, RuleAction};
use crate::conditions::Conditions;
use crate::hop::{HopError, NextHop};
use crate::transport::{default_transport, mailer, next_hop, or_own, relayhost};

/// Syntax of a table's keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Ours, as in `do`.
    Own,
    /// Postfix's access(5).
    Access,
    /// sendmail's access file.
    SendmailAccess,
    /// Postfix's transport(5).
    Transport,
    /// sendmail's mailertable.
    Mailertable,
    /// Postfix's `sender_dependent_relayhost_maps`.
    Relayhost,
    /// Postfix's `sender_dependent_default_transport_maps`.
    SenderTransport,
    /// Postfix's `sender_bcc_maps` and `recipient_bcc_maps`.
    Bcc,
    /// Postfix's virtual(5).
    Virtual,
    /// sendmail's virtusertable.
    Virtusertable,
    /// aliases(5).
    Aliases,
    /// Postfix's canonical(5).
    Canonical,
    /// Postfix's generic(5).
    Generic,
    /// sendmail's genericstable.
    Genericstable,
}

impl Dialect {
    /// All dialects, with their names in `as` and on the command line.
    pub const ALL: [(&'static str, Dialect); 14] = [
        ("own", Dialect::Own),
        ("access", Dialect::Access),
        ("sendmail-access", Dialect::SendmailAccess),
        ("transport", Dialect::Transport),
        ("sender-transport", Dialect::SenderTransport),
        ("mailertable", Dialect::Mailertable),
        ("relayhost", Dialect::Relayhost),
        ("bcc", Dialect::Bcc),
        ("virtual", Dialect::Virtual),
        ("virtusertable", Dialect::Virtusertable),
        ("aliases", Dialect::Aliases),
        ("canonical", Dialect::Canonical),
        ("generic", Dialect::Generic),
        ("genericstable", Dialect::Genericstable),
    ];

    /// Whether a value that selects the default route also ends Postfix's lookup in other tables of this kind.
    pub(crate) fn ends_with_dunno(self) -> bool {
        matches!(self, Dialect::Transport | Dialect::SenderTransport | Dialect::Relayhost)
    }

    /// Whether values are addresses, which can be neither actions nor routes.
    pub fn is_of_addresses(self) -> bool {
        matches!(
            self,
            Dialect::Virtual
                | Dialect::Virtusertable
                | Dialect::Aliases
                | Dialect::Canonical
                | Dialect::Generic
                | Dialect::Genericstable
        )
    }

    /// Whether tables behind sockets are asked for partial keys, too. Postfix does not (its socketmap has
    /// `DICT_FLAG_PATTERN`: "don't look up parent domains or network superblocks"); sendmail's rules do.
    pub fn asks_remote_parts(self) -> bool {
        matches!(
            self,
            Dialect::Own
                | Dialect::SendmailAccess
                | Dialect::Mailertable
                | Dialect::Virtusertable
                | Dialect::Genericstable
        )
    }

    /// Whether `%1` in values is replaced by a part of the subject.
    pub(crate) fn has_arguments(self) -> bool {
        matches!(self, Dialect::Mailertable | Dialect::Virtusertable | Dialect::Genericstable)
    }
}

/// Index of a rule, from 0; a configuration has at most 10,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(u16);

impl RuleId {
    /// The rule at an index.
    pub fn new(at: usize) -> RuleId {
        RuleId(u16::try_from(at).unwrap_or(u16::MAX))
    }

    pub fn at(self) -> usize {
        usize::from(self.0)
    }

    /// Number of the rule, counted from 1.
    pub fn number(self) -> usize {
        self.at() + 1
    }
}

/// A table of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableName {
    pub name: Box<str>,
    pub dialect: Dialect,
}

/// Actions of a rule that holds.
#[derive(Debug, Clone)]
pub enum RuleEffect {
    Actions(Vec<RuleAction>),
    /// The value found in the table of its condition.
    Table,
}

/// A rule and its id.
#[derive(Clone, Copy)]
pub(crate) struct NumberedRule<'r> {
    pub id: RuleId,
    pub rule: &'r Rule,
}

/// One rule of the configuration.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Name for people.
    pub name: Option<Box<str>>,
    /// `file:line`.
    pub place: Box<str>,
    pub when: Conditions,
    /// Conditions of which none may hold.
    pub unless: Conditions,
    pub does: RuleEffect,
    /// Whether the rule only logs its actions and does nothing else.
    pub is_warning: bool,
}

impl Rule {
    /// Whether the rule is evaluated after milters have seen the message.
    pub(crate) fn asks_auth(&self) -> bool {
        self.when.content.asks_auth() || self.unless.content.asks_auth()
    }

    /// Whether the rule has a condition on the client, which the server's own mail does not have.
    pub(crate) fn asks_client(&self) -> bool {
        self.when.asks_client() || self.unless.asks_client()
    }

    /// Whether the rule is evaluated at the end of the data.
    pub fn waits(&self) -> bool {
        self.when.waits() || self.unless.waits()
    }
}

/// Parses a table's value as a next hop. `None`: it selects the default route.
///
/// # Errors
/// It is not a next hop in the table's dialect, nor in our syntax.
pub(crate) fn hop_of(dialect: Dialect, value: &str, smtp_port: u16) -> Result<Option<NextHop>, HopError> {
    match action_of(dialect, value, smtp_port) {
        Ok(RuleAction::Route(hop)) => Ok(Some(hop)),
        Ok(RuleAction::Dunno) => Ok(None),
        Err(ActionError::Hop(error)) => Err(error),
        _ => NextHop::parse(value, smtp_port).map(Some),
    }
}

/// Parses a table's value as an action.
///
/// # Errors
/// It is not an action in the table's dialect.
pub(crate) fn action_of(dialect: Dialect, value: &str, smtp_port: u16) -> Result<RuleAction, ActionError> {
    match dialect {
        Dialect::Own => RuleAction::parse(value, smtp_port),
        Dialect::Access => RuleAction::parse_postfix(value, smtp_port),
        Dialect::SendmailAccess => crate::sendmail::action(value),
        // transport(5): "do not change", as if the table did not exist.
        Dialect::Transport if value.trim() == ":" => Ok(RuleAction::Dunno),
        Dialect::Transport => Ok(RuleAction::Route(or_own(next_hop, value, smtp_port)?)),
        Dialect::SenderTransport | Dialect::Relayhost if value.trim().eq_ignore_ascii_case("DUNNO") => {
            Ok(RuleAction::Dunno)
        }
        Dialect::SenderTransport => {
            Ok(default_transport(value, smtp_port)?.map_or(RuleAction::Dunno, RuleAction::Route))
        }
        Dialect::Mailertable => Ok(RuleAction::Route(or_own(mailer, value, smtp_port)?)),
        Dialect::Relayhost => Ok(RuleAction::Route(or_own(relayhost, value, smtp_port)?)),
        Dialect::Bcc => RuleAction::parse(&format!("bcc {}", value.trim()), smtp_port),
        // The configuration's reader rejects such tables here.
        Dialect::Virtual
        | Dialect::Virtusertable
        | Dialect::Aliases
        | Dialect::Canonical
        | Dialect::Generic
        | Dialect::Genericstable => {
            let known = "the table contains addresses, not actions";
            Err(ActionError::Unknown { word: value.to_owned(), known })
        }
    }
}
