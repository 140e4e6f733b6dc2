//! Decides about one recipient: rules in their order, then the local meaning of the address, then the next hop.
//!
//! States: relay forms are refused -> rules, until one ends them -> local addresses, relay domains, relaying -> next
//! hop. An unavailable table ends the decision with 451. If the caller wants an explanation, each lookup is recorded
//! when it is made.

use std::sync::Arc;

use stentor_mail::reply::Reply;
use stentor_policy as policy;

use crate::action::{ActionError, FinalAction, RuleAction};
use crate::book::Rulebook;
use crate::client_match::ClientMatch;
use crate::conditions::{Match, TableHit};
use crate::decision::{
    Decision, DecisionReason, End, MISCONFIGURED, Marks, OpenRule, Outcome, PendingLookup, RuleEntry,
    SERVICE_UNAVAILABLE, UNAVAILABLE, ended,
};
use crate::explain::{Step, UnknownFact, note, note_unknown, yes};
use crate::facts::{Facts, Field, TableId, Tables};
use crate::hop::NextHop;
use crate::results::RuleResults;
use crate::routes::{HopSource, RouteEntry};
use crate::rule::{NumberedRule, Rule, RuleEffect, RuleId, action_of};
use crate::stands_for::{AddressOutcome, AddressQuery, ExpandedAddress, Stop};
use crate::strangers::ConditionsResult;

/// Result of a rule's conditions.
enum Conclusion {
    /// They hold; with the value of the last table that matched.
    Holds(Option<TableHit>),
    Fails,
}

impl Rulebook {
    /// Finds the next hop of a recipient that the client did not name, such as an alias's target: only the routes of
    /// rules count. The default is the route that a rule set for the alias (`of_alias`). An unavailable table is a
    /// refusal. `steps` receives the lookups of routes.
    ///
    /// # Errors
    /// A table's answer must be fetched first.
    pub fn route(
        &self,
        facts: &Facts<'_>,
        tables: &dyn Tables,
        of_alias: Option<&(NextHop, DecisionReason)>,
        mut steps: Option<&mut Vec<Step>>,
    ) -> Result<Result<(NextHop, DecisionReason), Reply>, PendingLookup> {
        let found = self.rules(facts, tables, &mut None);
        let by_rule = |said: RuleResults| said.route.or_else(|| of_alias.cloned());
        let found = found.and_then(|said| self.next_hop(facts, tables, by_rule(said), &mut steps));
        found.map_or_else(|end| end.into_reply().map(Err), |found| Ok(Ok(found)))
    }

    /// The entry of `[routes]` for a domain; it applies to queued mail, too.
    pub fn of_domain(&self, domain: &str) -> Option<&Arc<RouteEntry>> {
        self.by_recipient.of_domain(domain)
    }

    /// The next hop for a domain from `[routes]`, and its origin.
    pub fn hop_of_domain(&self, domain: &str) -> (NextHop, DecisionReason) {
        let Some(entry) = self.of_domain(domain) else { return (NextHop::Mx, DecisionReason::Mx) };
        let is_any = self.by_recipient.any().is_some_and(|any| Arc::ptr_eq(any, entry));
        let who = if is_any { HopSource::Default } else { HopSource::Recipient };
        (entry.hop.clone(), DecisionReason::Route(who, entry.clone()))
    }

    /// Decides about one recipient. `steps` receives every lookup, in order.
    ///
    /// # Errors
    /// A table's answer must be fetched first.
    pub fn decide(
        &self,
        facts: &Facts<'_>,
        tables: &dyn Tables,
        mut steps: Option<&mut Vec<Step>>,
    ) -> Result<Decision, PendingLookup> {
        let ended = self.outcome(facts, tables, &mut steps);
        match ended {
            Ok(decision) => Ok(decision),
            Err(End::Decided(decision)) => Ok(*decision),
            Err(End::Pending) => Err(PendingLookup),
        }
    }

    fn outcome(
        &self,
        facts: &Facts<'_>,
        tables: &dyn Tables,
        steps: &mut Option<&mut Vec<Step>>,
    ) -> Result<Decision, End> {
        let base = self.policy.decide(facts.client, facts.address);
        if base.why == policy::PolicyReason::RouteSyntax {
            note(steps, || ("relay forms".to_owned(), String::new(), base.to_string()));
            return Ok(local(base, Marks::default(), None));
        }
        let results = self.rules(facts, tables, steps)?;
        let RuleResults { final_action, may_relay: may_relay_by, route, mut marks } = results;
        marks.accepted = matches!(final_action, Some((FinalAction::Ok, _)));
        let may_relay = match &final_action {
            Some((FinalAction::Refuse(reply), by)) => {
                let outcome = Outcome::Refuse(reply.clone());
                return Ok(Decision { outcome, why: by.clone(), route: None, marks });
            }
            Some((FinalAction::Discard(text), by)) => {
                let outcome = Outcome::Discard(text.clone());
                return Ok(Decision { outcome, why: by.clone(), route: None, marks });
            }
            Some((FinalAction::Relay, _)) => true,
            _ => may_relay_by.is_some(),
        };
        let mapped = match self.addresses_of(facts, tables, steps)? {
            AddressOutcome::Ours(meant) => return Ok(standing_for(meant, marks, route)),
            AddressOutcome::Elsewhere(meant) => Some(meant),
            AddressOutcome::AsItIs => None,
        };
        let is_relay_domain = !may_relay && self.is_relay_domain(facts, base.why, tables, steps)?;
        let is_relayed = match base.why {
            policy::PolicyReason::ClientOutside => may_relay || is_relay_domain || facts.is_trusted,
            policy::PolicyReason::ClientNetwork(_) => true,
            _ => false,
        };
        note(steps, || {
            let answer = if is_relayed && is_relay_domain {
                format!("relay: {} is a domain that is relayed for", facts.recipient.domain())
            } else if is_relayed && may_relay {
                "relay: a rule allows it".to_owned()
            } else {
                base.to_string()
            };
            ("local address or relay".to_owned(), String::new(), answer)
        });
        if !is_relayed {
            return Ok(local(base, marks, route));
        }
        if let Some(meant) = mapped {
            return Ok(standing_for(meant, marks, route));
        }
        // A rule with `ok` does not permit relaying.
        let by_rule =
            final_action.filter(|(action, _)| *action == FinalAction::Relay).map(|(_, by)| by).or(may_relay_by);
        let why = match by_rule {
            Some(by) => by,
            None if is_relay_domain => DecisionReason::RelayDomain,
            None if base.why == policy::PolicyReason::ClientOutside => DecisionReason::Authenticated,
            None => DecisionReason::Base(base.why),
        };
        let (hop, by) = self.next_hop(facts, tables, route, steps)?;
        Ok(match hop {
            NextHop::Refuse(reply) => Decision { outcome: Outcome::Refuse(reply), why: by, route: None, marks },
            hop => Decision { outcome: Outcome::Relay(hop), why, route: Some(by), marks },
        })
    }

    /// Whether anyone may send to the recipient's domain. Tables are consulted only if nothing else permits relaying.
    fn is_relay_domain(
        &self,
        facts: &Facts<'_>,
        base: policy::PolicyReason,
        tables: &dyn Tables,
        steps: &mut Option<&mut Vec<Step>>,
    ) -> Result<bool, End> {
        if self.relay_domains.find(facts.recipient).is_some() {
            return Ok(true);
        }
        let domain = facts.recipient.domain();
        if base != policy::PolicyReason::ClientOutside || facts.is_trusted || domain.starts_with('[') {
            return Ok(false);
        }
        for table in &self.relay_domains.tables {
            match self.has_domain(*table, domain, tables, steps).map_err(|PendingLookup| End::Pending)? {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(why) => return Err(ended(UNAVAILABLE, DecisionReason::Address(why.into()), Marks::default())),
            }
        }
        Ok(false)
    }

    /// Looks up the recipient in the address tables.
    fn addresses_of(
        &self,
        facts: &Facts<'_>,
        tables: &dyn Tables,
        steps: &mut Option<&mut Vec<Step>>,
    ) -> Result<AddressOutcome, End> {
        if self.addresses.is_empty() {
            return Ok(AddressOutcome::AsItIs);
        }
        let (address, today, is_report) = (facts.address, facts.today, facts.sender.is_null());
        self.here(AddressQuery { address, today, is_report }, tables, steps).map_err(|stop| match stop {
            Stop::Pending => End::Pending,
            Stop::Refuse(reply, why) => ended(reply, DecisionReason::Address(why.into()), Marks::default()),
        })
    }

    /// Evaluates the rules until one ends the evaluation.
    fn rules(
        &self,
        facts: &Facts<'_>,
        tables: &dyn Tables,
        steps: &mut Option<&mut Vec<Step>>,
    ) -> Result<RuleResults, End> {
        let mut said = RuleResults::default();
        for (at, rule) in self.rules.iter().enumerate() {
            let id = RuleId::new(at);
            let numbered = NumberedRule { id, rule };
            if facts.is_own && rule.asks_client() {
                continue;
            }
            let asked = match rule.when.all(facts, tables) {
                Match::Yes(found) if rule.unless.is_empty_at_rcpt() => Match::Yes(found),
                Match::Yes(found) => match rule.unless.any(facts, tables) {
                    Match::No(_) => Match::Yes(found),
                    Match::Yes(_) => Match::No("not"),
                    other => other,
                },
                other => other,
            };
            let fails_by_name = matches!(asked, Match::No(key) if key == Field::ClientName.name());
            let holds = matches!(asked, Match::Yes(_));
            if fails_by_name && rule.when.lacks_name(facts) || holds && rule.unless.lacks_name(facts) {
                let name = if steps.is_some() { self.rule_name(id) } else { String::new() };
                let answer = "client_name is unknown here: assumed not to match";
                note_unknown(steps, UnknownFact::ClientName, (&name, &rule.place, answer));
            }
            let Conclusion::Holds(hit) = self.matched(numbered, asked, &mut said.marks, steps)? else { continue };
            let met = match self.of_stranger(rule, facts, tables, steps) {
                ConditionsResult::Yes(met) => met,
                ConditionsResult::No(condition) => {
                    self.note_rule(steps, numbered, || format!("no: {condition}"));
                    continue;
                }
                ConditionsResult::Pending => return Err(End::Pending),
            };
            if let Some(service) = rule.when.unasked_service(facts) {
                let name = if steps.is_some() { self.rule_name(id) } else { String::new() };
                let answer = "no: policy_service, which is asked only in a client's session";
                note_unknown(steps, UnknownFact::Service(service), (&name, &rule.place, answer));
                continue;
            }
            if rule.waits() {
                self.note_rule(steps, numbered, || "checked at the end of the data".to_owned());
                said.marks.open.push(OpenRule { rule: id, met });
                continue;
            }
            let hit = match rule.when.ask_service(facts, tables) {
                None => hit,
                Some(asked) => match self.matched(numbered, asked, &mut said.marks, steps)? {
                    Conclusion::Holds(hit) => hit,
                    Conclusion::Fails => continue,
                },
            };
            self.apply(numbered, hit, &mut said, steps, &met)?;
            if said.is_over() {
                break;
            }
        }
        Ok(said)
    }

    /// Whether a rule's conditions hold.
    fn matched(
        &self,
        rule: NumberedRule<'_>,
        asked: Match,
        marks: &mut Marks,
        steps: &mut Option<&mut Vec<Step>>,
    ) -> Result<Conclusion, End> {
        match asked {
            Match::Yes(hit) => Ok(Conclusion::Holds(hit)),
            Match::No(condition) => {
                self.note_rule(steps, rule, || self.missed(rule.rule, condition));
                Ok(Conclusion::Fails)
            }
            Match::Pending => Err(End::Pending),
            Match::Unavailable(table, why) => {
                self.note_rule(steps, rule, || format!("{} unavailable: {why}", self.table_name(table)));
                let is_service = rule.rule.when.is_service(table);
                let (reply, kind) =
                    if is_service { (SERVICE_UNAVAILABLE, "policy service") } else { (UNAVAILABLE, "table") };
                // No commas: they separate the log's fields.
                let words = format!("{kind} {}: {}", self.table_name(table), why.replace(',', ";"));
                Err(ended(reply, DecisionReason::Unavailable(rule.id, words.into()), std::mem::take(marks)))
            }
        }
    }

    /// The action of a table's value. RELAY has no effect for senders and HELO names, which can be forged: sendmail
    /// permits it for senders only with `FEATURE(relay_mail_from)`, and never for HELO names.
    pub(crate) fn action_for(&self, table: TableId, field: Field, value: &str) -> Result<RuleAction, ActionError> {
        let action = action_of(self.dialect(table), value, self.smtp_port)?;
        let is_claim = matches!(field, Field::Sender | Field::Helo);
        Ok(if is_claim && action == RuleAction::MayRelay { RuleAction::Dunno } else { action })
    }

    /// Applies the action of a rule that holds.
    fn apply(
        &self,
        numbered: NumberedRule<'_>,
        hit: Option<TableHit>,
        said: &mut RuleResults,
        steps: &mut Option<&mut Vec<Step>>,
        met: &ClientMatch,
    ) -> Result<(), End> {
        let NumberedRule { id, rule } = numbered;
        match (&rule.does, hit) {
            (RuleEffect::Actions(actions), _) => {
                for action in actions {
                    let action = met.filled(action.clone());
                    self.note_rule(steps, numbered, || yes(rule, &action));
                    let by = DecisionReason::of_rule(rule, id, &action, met);
                    said.take(action, by, rule, met);
                }
            }
            (RuleEffect::Table, Some(TableHit { table, field, entry: found })) => {
                let action = self.action_for(table, field, &found.value);
                let asked = || format!("{}, table {} has {}", self.rule_name(id), self.table_name(table), found.key);
                let entry = |error| {
                    let (key, place) = (found.key.as_str().into(), found.place.as_str().into());
                    Box::new(RuleEntry { rule: id, table, key, place, error })
                };
                match action {
                    Ok(action) => {
                        let is_any = action != RuleAction::Dunno;
                        note(steps, || {
                            let nothing =
                                || format!("yes: {}, which does not decide; continue with the next rule", found.value);
                            (asked(), found.place.clone(), if is_any { yes(rule, &action) } else { nothing() })
                        });
                        let by = if is_any { DecisionReason::Entry(entry(None)) } else { DecisionReason::Rule(id) };
                        said.take(action, by, rule, met);
                    }
                    Err(error) => {
                        let error = format!("{:?}: {error}", found.value);
                        note(steps, || (asked(), found.place.clone(), error.clone()));
                        let why = DecisionReason::Entry(entry(Some(error.into())));
                        return Err(ended(MISCONFIGURED, why, std::mem::take(&mut said.marks)));
                    }
                }
            }
            // A pattern matched in place of the table, so there is no action.
            (RuleEffect::Table, None) => {}
        }
        Ok(())
    }
}

impl RuleResults {
    /// Applies an action of a rule; if the rule only warns, the action is recorded.
    fn take(&mut self, action: RuleAction, by: DecisionReason, rule: &Rule, met: &ClientMatch) {
        if rule.is_warning {
            self.warn(action, &met.words, by);
        } else {
            self.add(action, by);
        }
    }
}

fn standing_for(meant: ExpandedAddress, marks: Marks, route: Option<(NextHop, DecisionReason)>) -> Decision {
    let ExpandedAddress { class, by, left_out } = meant;
    here(class.into(), by, Marks { left_out, ..marks }, route)
}

fn local(base: policy::AddressDecision, marks: Marks, route: Option<(NextHop, DecisionReason)>) -> Decision {
    here(base.class.into(), DecisionReason::Base(base.why), marks, route)
}

/// The decision on a local address. A rule's next hop applies to its targets or subscribers; `error:` refuses the
/// address itself, because the client named no other.
fn here(outcome: Outcome, why: DecisionReason, marks: Marks, route: Option<(NextHop, DecisionReason)>) -> Decision {
    match (outcome, route) {
        (Outcome::Local(_), Some((NextHop::Refuse(reply), by))) => {
            Decision { outcome: Outcome::Refuse(reply), why: by, route: None, marks }
        }
        (outcome, route) => Decision { outcome, why, route: None, marks: Marks { route, ..marks } },
    }
}
