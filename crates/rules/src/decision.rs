//! A decision about one recipient, and its reasons.

use std::sync::Arc;

use stentor_mail::Class;
use stentor_mail::address::Address;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_mime::recode::RecodeTarget;
use stentor_policy as policy;

use crate::action::RuleAction;
use crate::book::Rulebook;
use crate::client_match::ClientMatch;
use crate::dry_run::DryRunAction;
use crate::facts::TableId;
use crate::field_edit::FieldEdit;
use crate::hop::NextHop;
use crate::routes::{HopSource, RouteEntry};
use crate::rule::{Rule, RuleId};

/// Maximum recipients that rules may add to a message.
pub(crate) const BCC_MAX: usize = 100;
/// Maximum additional next hops of one recipient.
const COPIES_MAX: usize = 8;

pub(crate) const UNAVAILABLE: Reply = Reply::fixed(451, Enhanced::new(4, 3, 0), "Table lookup failed, try again later");
pub(crate) const SERVICE_UNAVAILABLE: Reply =
    Reply::fixed(451, Enhanced::new(4, 3, 0), "Policy service unavailable, try again later");
/// RFC 3463: "system incorrectly configured".
pub(crate) const MISCONFIGURED: Reply = Reply::fixed(451, Enhanced::new(4, 3, 5), "Server configuration error");

/// Reason why a client that has logged in may relay, as logged; a replay searches for this text.
pub const AUTHENTICATED: &str = "authenticated client";
/// Reason why a client with a certificate may relay, as logged.
pub const CERTIFIED: &str = "client certificate";

/// Reason of a recipient of a redirected message, as logged; a replay searches for these texts.
pub const REDIRECTED: &str = "redirected by a rule";

/// Reason of a recipient that a rule added, as logged.
pub const COPIED: &str = "copied by a rule";

/// Reason of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecisionReason {
    Rule(RuleId),
    /// A rule on untrusted clients, and the matches of its conditions.
    Stranger(RuleId, Box<str>),
    /// The table or policy service of a rule is unavailable: which one, and why.
    Unavailable(RuleId, Box<str>),
    /// An entry of a rule's table.
    Entry(Box<RuleEntry>),
    /// An entry of a table of routes, its kind, and its pattern.
    Route(HopSource, Arc<RouteEntry>),
    /// A table, the key that matched, and its position.
    Table(TableId, HopSource, Box<str>, Box<str>),
    /// A domain that we relay for.
    RelayDomain,
    /// The client has logged in.
    Authenticated,
    /// The local meaning of an address, or the permission to relay.
    Base(policy::PolicyReason),
    /// An address table's result, or another decision about the address, as text.
    Address(Box<str>),
    /// The address is unknown; with details.
    Nobody(Box<str>),
    /// No route applies: the MX hosts are used.
    Mx,
}

impl DecisionReason {
    /// Names a rule with this action, and the matches if the action ends the evaluation.
    pub(crate) fn of_rule(rule: &Rule, at: RuleId, action: &RuleAction, met: &ClientMatch) -> DecisionReason {
        let is_met = matches!(action, RuleAction::End(_)) && !rule.is_warning && !met.words.is_empty();
        if is_met { DecisionReason::Stranger(at, met.words.as_str().into()) } else { DecisionReason::Rule(at) }
    }
}

/// The entry of a rule's table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleEntry {
    pub rule: RuleId,
    pub table: TableId,
    /// Key of the entry; empty: the table is a policy service.
    pub key: Box<str>,
    /// `file:line`, if known.
    pub place: Box<str>,
    /// Why its value cannot be used.
    pub error: Option<Box<str>>,
}

/// Outcome for a recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A list, an alias or a bounce address.
    Local(policy::AddressClass),
    Relay(NextHop),
    Refuse(Reply),
    /// The message is accepted and dropped.
    Discard(Box<str>),
}

impl From<policy::AddressClass> for Outcome {
    fn from(class: policy::AddressClass) -> Outcome {
        match class {
            policy::AddressClass::Refuse(reply) => Outcome::Refuse(reply),
            other => Outcome::Local(other),
        }
    }
}

/// Further actions on the message. Those that redirect or stop mail name the rule and the entry of its table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marks {
    pub hold: Option<(Box<str>, DecisionReason)>,
    pub quarantine: Option<(Box<str>, DecisionReason)>,
    pub redirect: Option<(Address, DecisionReason)>,
    pub bcc: Vec<(Address, DecisionReason)>,
    pub prepend: Vec<Box<str>>,
    pub edits: Vec<FieldEdit>,
    pub transfer_encoding: Option<RecodeTarget>,
    pub warn: Vec<Box<str>>,
    /// Actions of rules that only warn.
    pub would: Vec<(DryRunAction, DecisionReason)>,
    pub class: Option<Class>,
    /// Further next hops for this recipient's mail.
    pub copies: Vec<(NextHop, DecisionReason)>,
    /// Targets of the address that do not exist.
    pub left_out: Vec<Address>,
    /// Other actions of rules on the content, for the log.
    pub did: Vec<(Box<str>, DecisionReason)>,
    /// Next hop set by a rule for recipients that the client did not name: list subscribers and alias targets.
    pub route: Option<(NextHop, DecisionReason)>,
    /// A rule said `ok`: the recipient's existence is not checked any further.
    pub accepted: bool,
    /// Rules that wait for the content, in order.
    pub open: Vec<OpenRule>,
}

/// A rule that waits for the content, and the matches of its other conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRule {
    pub rule: RuleId,
    pub(crate) met: ClientMatch,
}

impl Marks {
    /// Warnings to log.
    pub fn warnings(&mut self, rules: &Rulebook) -> Vec<String> {
        let warn = std::mem::take(&mut self.warn).into_iter().map(String::from);
        let would = self.would.iter().map(|(would, by)| format!("{would}, {}, but it only warns", rules.shown(by)));
        warn.chain(would).collect()
    }

    /// Adds an action of a rule; an earlier one takes precedence.
    pub(crate) fn add(&mut self, action: RuleAction, by: DecisionReason) {
        match action {
            RuleAction::Hold(text) => {
                self.hold.get_or_insert((text, by));
            }
            RuleAction::Quarantine(text) => {
                self.quarantine.get_or_insert((text, by));
            }
            RuleAction::Redirect(to) => {
                self.redirect.get_or_insert((to, by));
            }
            RuleAction::Bcc(to) => self.bcc(to, by),
            RuleAction::Prepend(field) => self.prepend.push(field),
            RuleAction::EditHeader(edit) => self.edits.push(edit),
            RuleAction::TransferEncoding(target) => {
                self.transfer_encoding.get_or_insert(target);
            }
            RuleAction::Warn(text) => self.warn.push(text),
            RuleAction::Class(class) => {
                self.class.get_or_insert(class);
            }
            RuleAction::Copy(hop) => self.copy(hop, by),
            // These decide about the recipient: `RuleResults`.
            RuleAction::Dunno | RuleAction::End(_) | RuleAction::MayRelay | RuleAction::Route(_) => {}
        }
    }

    /// Adds the results of later rules; earlier ones take precedence.
    pub(crate) fn merge(&mut self, later: Marks) {
        self.hold = self.hold.take().or(later.hold);
        self.quarantine = self.quarantine.take().or(later.quarantine);
        self.redirect = self.redirect.take().or(later.redirect);
        self.transfer_encoding = self.transfer_encoding.or(later.transfer_encoding);
        self.class = self.class.or(later.class);
        later.bcc.into_iter().for_each(|(to, by)| self.bcc(to, by));
        later.copies.into_iter().for_each(|(hop, by)| self.copy(hop, by));
        self.prepend.extend(later.prepend);
        self.edits.extend(later.edits);
        self.warn.extend(later.warn);
        self.would.extend(later.would);
    }

    fn bcc(&mut self, to: Address, by: DecisionReason) {
        if self.bcc.len() < BCC_MAX && !self.bcc.iter().any(|(known, _)| *known == to) {
            self.bcc.push((to, by));
        }
    }

    fn copy(&mut self, hop: NextHop, by: DecisionReason) {
        if self.copies.len() < COPIES_MAX && !self.copies.iter().any(|(known, _)| *known == hop) {
            self.copies.push((hop, by));
        }
    }
}

/// The decision about one recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub outcome: Outcome,
    /// Reason of the outcome.
    pub why: DecisionReason,
    /// Origin of a relayed recipient's next hop.
    pub route: Option<DecisionReason>,
    pub marks: Marks,
}

/// A table must be looked up over the network first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingLookup;

/// Why a decision ends early.
pub(crate) enum End {
    Pending,
    Decided(Box<Decision>),
}

impl End {
    /// The table of routes that ended the decision.
    pub(crate) fn table(&self) -> Option<TableId> {
        match self {
            End::Decided(decision) => match decision.why {
                DecisionReason::Table(table, ..) => Some(table),
                _ => None,
            },
            End::Pending => None,
        }
    }

    /// The refusal, if only a refusal can have ended it.
    pub(crate) fn into_reply(self) -> Result<Reply, PendingLookup> {
        match self {
            End::Pending => Err(PendingLookup),
            End::Decided(decision) => match decision.outcome {
                Outcome::Refuse(reply) => Ok(reply),
                _ => Ok(UNAVAILABLE),
            },
        }
    }
}

pub(crate) fn ended(reply: Reply, why: DecisionReason, marks: Marks) -> End {
    End::Decided(Box::new(Decision { outcome: Outcome::Refuse(reply), why, route: None, marks }))
}
