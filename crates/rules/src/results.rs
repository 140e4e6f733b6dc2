//! Results of the rules for one recipient, at RCPT and at the end of the data.
//!
//! Promise: actions are interpreted in one place, for decisions, for rules that wait for the content, and for
//! explanations. Of actions that can apply only once, the first counts, also within one `do`: the action that ends
//! the rules, hold, quarantine, redirect, class, route. All others accumulate.
//!
//! [`Decision::merge`] adds the results of waiting rules: they can refuse or discard an accepted recipient and set
//! the next hop of a relayed one; otherwise the results at RCPT take precedence.

use stentor_mail::reply::Reply;
use stentor_policy as policy;

use crate::action::{FinalAction, RuleAction};
use crate::decision::{Decision, DecisionReason, Marks, Outcome};
use crate::dry_run::DryRunAction;
use crate::hop::NextHop;

/// Results of rules, each with the rule that caused it and the entry of its table; see the module documentation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleResults {
    /// Action that ended the evaluation.
    pub final_action: Option<(FinalAction, DecisionReason)>,
    /// First rule that permits relaying and continues.
    pub may_relay: Option<DecisionReason>,
    pub route: Option<(NextHop, DecisionReason)>,
    pub marks: Marks,
}

impl RuleResults {
    /// Adds an action of a rule that holds.
    pub(crate) fn add(&mut self, action: RuleAction, by: DecisionReason) {
        match action {
            RuleAction::End(action) => {
                self.final_action.get_or_insert((action, by));
            }
            RuleAction::MayRelay => {
                self.may_relay.get_or_insert(by);
            }
            RuleAction::Route(hop) => {
                self.route.get_or_insert((hop, by));
            }
            other => self.marks.add(other, by),
        }
    }

    /// Adds an action of a rule that only warns, and the matches of its conditions.
    pub(crate) fn warn(&mut self, action: RuleAction, met: &str, by: DecisionReason) {
        self.marks.would.push((DryRunAction { action, met: met.into() }, by));
    }

    /// Whether no later rule is evaluated.
    pub fn is_over(&self) -> bool {
        self.final_action.is_some()
    }

    /// The refusal, if there is one.
    pub fn refusal(&self) -> Option<(&Reply, &DecisionReason)> {
        match &self.final_action {
            Some((FinalAction::Refuse(reply), by)) => Some((reply, by)),
            _ => None,
        }
    }

    /// The text of a discard.
    pub fn discard(&self) -> Option<(&str, &DecisionReason)> {
        match &self.final_action {
            Some((FinalAction::Discard(text), by)) => Some((text, by)),
            _ => None,
        }
    }
}

impl Decision {
    /// The refusal of the recipient, if there is one.
    pub fn refusal(&self) -> Option<&Reply> {
        match &self.outcome {
            Outcome::Refuse(reply) | Outcome::Local(policy::AddressClass::Refuse(reply)) => Some(reply),
            _ => None,
        }
    }

    /// Adds the results of rules that waited for the content.
    pub fn merge(&mut self, later: RuleResults) {
        let RuleResults { final_action, route, marks, .. } = later;
        self.marks.merge(marks);
        let is_open = !matches!(self.outcome, Outcome::Discard(_)) && self.refusal().is_none();
        let ended = match final_action {
            Some((FinalAction::Refuse(reply), by)) if self.refusal().is_none() => Some((Outcome::Refuse(reply), by)),
            Some((FinalAction::Discard(text), by)) if is_open => Some((Outcome::Discard(text), by)),
            _ => None,
        };
        match (ended, route) {
            (Some((outcome, by)), _) => {
                (self.outcome, self.why, self.route) = (outcome, by, None);
            }
            (None, Some((hop, by))) => match &mut self.outcome {
                Outcome::Relay(own) => (*own, self.route) = (hop, Some(by)),
                // For a post, the next hop that a rule set at RCPT takes precedence.
                _ => {
                    self.marks.route.get_or_insert((hop, by));
                }
            },
            (None, None) => {}
        }
    }
}
