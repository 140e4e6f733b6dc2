//! What rules say of one recipient, at RCPT and at the end of the data.
//!
//! Promise: one reading of actions, for the decision, for rules that wait for the content, and for explanations. Of what there can be
//! one of, the first counts: the action that ends the rules, hold, quarantine, redirect, class, route; also within one `do`. All others
//! add up.
//!
//! What waiting rules say is added by [`Decision::merge`]: they refuse or discard what was accepted, and name the next hop of who is
//! relayed; of the rest, what was said at RCPT stays.

use stentor_mail::reply::Reply;
use stentor_policy as policy;

use crate::action::{Action, Verdict};
use crate::decision::{Decision, Marks, Outcome, Why};
use crate::hop::NextHop;
use crate::would::Would;

/// See the module's documentation. What is done has the rule that says so, and the entry of its table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleResults {
    /// What ends the rules.
    pub verdict: Option<(Verdict, Why)>,
    /// The first rule that lets the client relay and asks on.
    pub may_relay: Option<Why>,
    pub route: Option<(NextHop, Why)>,
    pub marks: Marks,
}

impl RuleResults {
    /// Takes an action of a rule that holds.
    pub(crate) fn add(&mut self, action: Action, by: Why) {
        match action {
            Action::End(verdict) => {
                self.verdict.get_or_insert((verdict, by));
            }
            Action::MayRelay => {
                self.may_relay.get_or_insert(by);
            }
            Action::Route(hop) => {
                self.route.get_or_insert((hop, by));
            }
            other => self.marks.add(other, by),
        }
    }

    /// Takes an action of a rule that only warns, and what met its conditions.
    pub(crate) fn warn(&mut self, action: Action, met: &str, by: Why) {
        self.marks.would.push((Would { action, met: met.into() }, by));
    }

    /// Whether no later rule is asked.
    pub fn is_over(&self) -> bool {
        self.verdict.is_some()
    }

    /// The refusal, if it is one.
    pub fn refusal(&self) -> Option<(&Reply, &Why)> {
        match &self.verdict {
            Some((Verdict::Refuse(reply), by)) => Some((reply, by)),
            _ => None,
        }
    }

    /// The text of a discard.
    pub fn discard(&self) -> Option<(&str, &Why)> {
        match &self.verdict {
            Some((Verdict::Discard(text), by)) => Some((text, by)),
            _ => None,
        }
    }
}

impl Decision {
    /// Whether the recipient is refused.
    pub fn refusal(&self) -> Option<&Reply> {
        match &self.outcome {
            Outcome::Refuse(reply) | Outcome::Local(policy::Verdict::Refuse(reply)) => Some(reply),
            _ => None,
        }
    }

    /// Takes what the rules say that waited for the content.
    pub fn merge(&mut self, later: RuleResults) {
        let RuleResults { verdict, route, marks, .. } = later;
        self.marks.merge(marks);
        let is_open = !matches!(self.outcome, Outcome::Discard(_)) && self.refusal().is_none();
        let ended = match verdict {
            Some((Verdict::Refuse(reply), by)) if self.refusal().is_none() => Some((Outcome::Refuse(reply), by)),
            Some((Verdict::Discard(text), by)) if is_open => Some((Outcome::Discard(text), by)),
            _ => None,
        };
        match (ended, route) {
            (Some((outcome, by)), _) => {
                (self.outcome, self.why, self.route) = (outcome, by, None);
            }
            (None, Some((hop, by))) => match &mut self.outcome {
                Outcome::Relay(own) => (*own, self.route) = (hop, Some(by)),
                // Of a post, the next hop that a rule has named at RCPT stays.
                _ => {
                    self.marks.route.get_or_insert((hop, by));
                }
            },
            (None, None) => {}
        }
    }
}
