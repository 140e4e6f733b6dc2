//! A decision about one recipient, and what led to it.

use std::sync::Arc;

use stentor_mail::Class;
use stentor_mail::address::Address;
use stentor_mail::reply::Reply;
use stentor_policy as policy;
use stentor_recode::Target;

use crate::action::Action;
use crate::book::Rulebook;
use crate::facts::TableId;
use crate::field_edit::FieldEdit;
use crate::hop::NextHop;
use crate::met::Met;
use crate::routes::{RouteEntry, Who};
use crate::rule::{Rule, RuleId};
use crate::would::Would;

/// Recipients that rules may add to a message.
pub(crate) const BCC_MAX: usize = 100;
/// Other next hops of one recipient.
const COPIES_MAX: usize = 8;

pub(crate) const UNAVAILABLE: Reply =
    Reply::fixed(451, (4, 3, 0), "A table that decides about this mail cannot be asked now");
pub(crate) const SERVICE_UNAVAILABLE: Reply =
    Reply::fixed(451, (4, 3, 0), "A policy service that decides about this mail cannot be asked now");
/// RFC 3463: "system incorrectly configured".
pub(crate) const MISCONFIGURED: Reply = Reply::fixed(451, (4, 3, 5), "Server configuration error");

/// What lets a client that has logged in relay, in the words of the log: a replay finds it there.
pub const AUTHENTICATED: &str = "authenticated client";
/// The same of one that has shown a certificate, in words.
pub const CERTIFIED: &str = "client certificate";

/// Why somebody gets a message that a rule redirects, in the words of the log: a replay finds them there.
pub const REDIRECTED: &str = "redirected by a rule";

/// Why somebody gets a copy of a message whom only a rule has named, in the words of the log.
pub const COPIED: &str = "copied by a rule";

/// What decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    Rule(RuleId),
    /// The same of a rule on untrusted clients, with what met its conditions.
    Stranger(RuleId, Box<str>),
    /// The table or policy service that a rule asks cannot be asked: which, and why.
    Unavailable(RuleId, Box<str>),
    /// An entry of the table that a rule asks.
    Entry(Box<RuleEntry>),
    /// An entry of a table of routes: whose, and its pattern.
    Route(Who, Arc<RouteEntry>),
    /// A table, the key that matched, and where that stands.
    Table(TableId, Who, Box<str>, Box<str>),
    /// A domain that we relay for.
    RelayDomain,
    /// The client has logged in.
    Authenticated,
    /// What an address is here, or who may relay.
    Base(policy::Why),
    /// What a table says that the address stands for, or what else decided about it, in words.
    Address(Box<str>),
    /// Nobody has the address, in words.
    Nobody(Box<str>),
    /// Nothing names a next hop.
    Mx,
}

impl Why {
    /// A rule that does this, with what met it where that ends the rules.
    pub(crate) fn of_rule(rule: &Rule, at: RuleId, action: &Action, met: &Met) -> Why {
        let is_met = matches!(action, Action::End(_)) && !rule.is_warning && !met.words.is_empty();
        if is_met { Why::Stranger(at, met.words.as_str().into()) } else { Why::Rule(at) }
    }
}

/// What a rule's table had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleEntry {
    pub rule: RuleId,
    pub table: TableId,
    /// Empty: the table is a policy service.
    pub key: Box<str>,
    /// `file:line`, if it has one.
    pub place: Box<str>,
    /// Why its value cannot be used.
    pub error: Option<Box<str>>,
}

/// What becomes of a recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A list, an alias or a bounce address.
    Local(policy::Verdict),
    Relay(NextHop),
    Refuse(Reply),
    /// The message is accepted and dropped.
    Discard(Box<str>),
}

impl From<policy::Verdict> for Outcome {
    fn from(verdict: policy::Verdict) -> Outcome {
        match verdict {
            policy::Verdict::Refuse(reply) => Outcome::Refuse(reply),
            other => Outcome::Local(other),
        }
    }
}

/// What else is to be done with the message; what moves or stops mail has its rule, and the entry of its table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marks {
    pub hold: Option<(Box<str>, Why)>,
    pub quarantine: Option<(Box<str>, Why)>,
    pub redirect: Option<(Address, Why)>,
    pub bcc: Vec<(Address, Why)>,
    pub prepend: Vec<Box<str>>,
    pub edits: Vec<FieldEdit>,
    pub transfer_encoding: Option<Target>,
    pub warn: Vec<Box<str>>,
    /// What rules that only warn would do.
    pub would: Vec<(Would, Why)>,
    pub class: Option<Class>,
    /// Other next hops that this recipient's mail goes to as well.
    pub copies: Vec<(NextHop, Why)>,
    /// Targets of the address that nobody has.
    pub left_out: Vec<Address>,
    /// What else rules on the content do, for the log.
    pub did: Vec<(Box<str>, Why)>,
    /// The next hop that a rule names for those whom nobody named: subscribers of a list, whom an alias stands for.
    pub route: Option<(NextHop, Why)>,
    /// A rule says `ok`: nobody else is asked whether the recipient exists.
    pub accepted: bool,
    /// Rules that wait for the content, in their order.
    pub open: Vec<Open>,
}

/// A rule that waits for the content, and what has met its other conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    pub rule: RuleId,
    pub(crate) met: Met,
}

impl Marks {
    /// What is to be logged as warnings.
    pub fn warnings(&mut self, rules: &Rulebook) -> Vec<String> {
        let warn = std::mem::take(&mut self.warn).into_iter().map(String::from);
        let would = self.would.iter().map(|(would, by)| format!("{would}, {}, which only warns", rules.shown(by)));
        warn.chain(would).collect()
    }

    /// Takes what a rule's action asks of the message; what an earlier one asked stays.
    pub(crate) fn add(&mut self, action: Action, by: Why) {
        match action {
            Action::Hold(text) => {
                self.hold.get_or_insert((text, by));
            }
            Action::Quarantine(text) => {
                self.quarantine.get_or_insert((text, by));
            }
            Action::Redirect(to) => {
                self.redirect.get_or_insert((to, by));
            }
            Action::Bcc(to) => self.bcc((to, by)),
            Action::Prepend(field) => self.prepend.push(field),
            Action::EditHeader(edit) => self.edits.push(edit),
            Action::TransferEncoding(target) => {
                self.transfer_encoding.get_or_insert(target);
            }
            Action::Warn(text) => self.warn.push(text),
            Action::Class(class) => {
                self.class.get_or_insert(class);
            }
            Action::Copy(hop) => self.copy((hop, by)),
            // What becomes of the recipient: `RuleResults`.
            Action::Dunno | Action::End(_) | Action::MayRelay | Action::Route(_) => {}
        }
    }

    /// Takes what later rules ask; what these have asked stays.
    pub(crate) fn merge(&mut self, later: Marks) {
        self.hold = self.hold.take().or(later.hold);
        self.quarantine = self.quarantine.take().or(later.quarantine);
        self.redirect = self.redirect.take().or(later.redirect);
        self.transfer_encoding = self.transfer_encoding.or(later.transfer_encoding);
        self.class = self.class.or(later.class);
        later.bcc.into_iter().for_each(|bcc| self.bcc(bcc));
        later.copies.into_iter().for_each(|copy| self.copy(copy));
        self.prepend.extend(later.prepend);
        self.edits.extend(later.edits);
        self.warn.extend(later.warn);
        self.would.extend(later.would);
    }

    fn bcc(&mut self, (to, by): (Address, Why)) {
        if self.bcc.len() < BCC_MAX && !self.bcc.iter().any(|(known, _)| *known == to) {
            self.bcc.push((to, by));
        }
    }

    fn copy(&mut self, (hop, by): (NextHop, Why)) {
        if self.copies.len() < COPIES_MAX && !self.copies.iter().any(|(known, _)| *known == hop) {
            self.copies.push((hop, by));
        }
    }
}

/// The decision about one recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub outcome: Outcome,
    /// What led to the outcome.
    pub why: Why,
    /// What named the next hop, of a recipient that is relayed.
    pub route: Option<Why>,
    pub marks: Marks,
}

/// A table has to be asked over the network first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending;

/// Why a decision ends early.
pub(crate) enum End {
    Pending,
    Decided(Box<Decision>),
}

impl End {
    /// The table of routes that has ended it.
    pub(crate) fn table(&self) -> Option<TableId> {
        match self {
            End::Decided(decision) => match decision.why {
                Why::Table(table, ..) => Some(table),
                _ => None,
            },
            End::Pending => None,
        }
    }

    /// The refusal, where only that can have ended it.
    pub(crate) fn into_reply(self) -> Result<Reply, Pending> {
        match self {
            End::Pending => Err(Pending),
            End::Decided(decision) => match decision.outcome {
                Outcome::Refuse(reply) => Ok(reply),
                _ => Ok(UNAVAILABLE),
            },
        }
    }
}

pub(crate) fn ended(reply: Reply, why: Why, marks: Marks) -> End {
    End::Decided(Box::new(Decision { outcome: Outcome::Refuse(reply), why, route: None, marks }))
}
