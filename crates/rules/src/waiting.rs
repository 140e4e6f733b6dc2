//! Rules of one message's recipients that wait for its content, from RCPT to the end of the data.
//!
//! States: recipients are accepted -> the content is searched as it streams by -> the waiting rules are evaluated in
//! order, up to the first that needs authentication results -> after milters have seen the message, the remaining
//! rules are evaluated.
//!
//! A policy service for the end of the data is queried once per message, when a rule that names it is reached; the
//! answer applies to all recipients of such rules.
//!
//! The data has one reply for all recipients. An untrusted client must therefore send to one kind of recipients at a
//! time: those whose waiting rules could end differently are deferred to another transaction (RFC 5321 section
//! 4.5.3.1.10). A trusted client may be a mail program that would show its user an error, so its recipients are not
//! deferred: the first refusal applies to the whole message.

use std::collections::HashMap;

use stentor_mail::address::Address;
use stentor_mail::reply::{Enhanced, Reply};

use crate::action::{FinalAction, RuleAction};
use crate::book::Rulebook;
use crate::content::{AuthFieldResults, ContentScanner, Hits, SCAN_BYTES_MAX};
use crate::decision::{DecisionReason, MISCONFIGURED, Marks, OpenRule, RuleEntry, SERVICE_UNAVAILABLE};
use crate::explain::{Step, yes};
use crate::facts::{Field, LookupResult, TableId};
use crate::hop::NextHop;
use crate::results::RuleResults;
use crate::rule::{NumberedRule, RuleEffect, RuleId};
use crate::wishes::RemarkRecipients;

/// Maximum kinds of recipients of one message, by their waiting rules.
const KINDS_MAX: usize = 100;
const OTHER_RULES: Reply =
    Reply::fixed(452, Enhanced::new(4, 5, 3), "Other rules apply to this recipient; send it in another transaction");

/// Waiting rules of a message; see the module documentation.
#[derive(Default)]
pub struct WaitingRules {
    kinds: Vec<Kind>,
    /// Index of each recipient's kind.
    of: HashMap<Box<str>, usize>,
    /// Rules of the first recipient that can end the evaluation.
    ends: Option<Vec<RuleId>>,
    scan: Option<ContentScanner>,
    /// Results of the content search; set at the end of the data.
    hits: Option<Hits>,
    /// Answers of policy services about the message.
    answers: ServiceAnswers,
    /// Whether the data has ended.
    is_over: bool,
}

/// Answers of policy services about a message whose data has ended.
pub type ServiceAnswers = HashMap<TableId, LookupResult>;

/// Facts about a message whose data has ended.
#[derive(Clone, Copy)]
pub struct MessageFacts<'a> {
    pub hits: &'a Hits,
    pub answers: &'a ServiceAnswers,
}

/// Recipients with the same waiting rules.
struct Kind {
    /// The rules in order, with the matches of the first recipient: DNS results are the same for all.
    open: Box<[OpenRule]>,
    /// Number of rules evaluated.
    asked: usize,
    /// Whether one of these set a next hop.
    has_route: bool,
    named: RemarkRecipients,
}

/// Results of the waiting rules.
#[derive(Debug, Default)]
pub struct ContentResults {
    /// Results for each kind of recipients.
    pub kinds: Vec<(RuleResults, RemarkRecipients)>,
    of: HashMap<Box<str>, usize>,
}

impl WaitingRules {
    /// Whether a recipient with waiting rules can be accepted. A recipient added after the content was searched is
    /// handled on its own: see [`WaitingRules::refusal`].
    ///
    /// # Errors
    /// The recipient must be sent in another transaction.
    pub fn admits(&self, rules: &Rulebook, is_trusted: bool, open: &[OpenRule]) -> Result<(), Reply> {
        if !rules.has_end_of_data_rules() || self.is_over {
            return Ok(());
        }
        let is_other = |first: &Vec<RuleId>| !first.iter().copied().eq(ends(rules, open));
        if !is_trusted && self.ends.as_ref().is_some_and(is_other) {
            return Err(OTHER_RULES);
        }
        let is_known = self.kinds.iter().any(|kind| are_same(&kind.open, open));
        if is_known || self.kinds.len() < KINDS_MAX { Ok(()) } else { Err(OTHER_RULES) }
    }

    /// Adds an accepted recipient, as [`WaitingRules::admits`] permits.
    pub fn add(&mut self, rules: &Rulebook, to: &Address, open: Vec<OpenRule>) {
        if !rules.has_end_of_data_rules() || self.is_over && self.hits.is_none() {
            return;
        }
        self.ends.get_or_insert_with(|| ends(rules, &open).collect());
        // A kind whose rules were evaluated gets no further recipients.
        let at =
            self.kinds.iter().position(|kind| kind.asked == 0 && are_same(&kind.open, &open)).unwrap_or_else(|| {
                let named = RemarkRecipients::default();
                self.kinds.push(Kind { open: open.into(), asked: 0, has_route: false, named });
                self.kinds.len() - 1
            });
        if self.of.insert(to.as_str().into(), at).is_none() {
            self.kinds[at].named.add(to.as_str());
        }
    }

    /// Whether any rule of any recipient waits.
    fn is_any(&self) -> bool {
        self.kinds.iter().any(|kind| kind.asked < kind.open.len())
    }

    /// Starts the data, which follows `ours` octets added by us. With `may_grow`, recipients whose rules are still
    /// unknown may be added after the data.
    pub fn begin(&mut self, rules: &Rulebook, ours: usize, may_grow: bool) {
        if (self.is_any() || may_grow) && rules.content.is_of_text() {
            self.scan = Some(ContentScanner::new(rules.content.clone(), ours, false));
        }
    }

    /// Whether the data has ended.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Maximum memory of the content search.
    pub fn bytes(&self) -> u64 {
        if self.scan.is_some() { SCAN_BYTES_MAX } else { 0 }
    }

    /// Whether the content is searched.
    pub fn is_searching(&self) -> bool {
        self.scan.is_some()
    }

    /// Whether the content has too many parts: rules would not see the last ones.
    pub fn has_too_many_parts(&self) -> bool {
        self.scan.as_ref().is_some_and(ContentScanner::has_too_many_parts)
    }

    /// Searches the next octets of the data.
    pub fn push(&mut self, octets: &[u8]) {
        if let Some(scan) = &mut self.scan {
            scan.push(octets);
        }
    }

    /// The refusal by rules on content, with the rule, of a recipient added after the data.
    pub fn refusal(&self, rules: &Rulebook, open: &[OpenRule]) -> Option<(Reply, DecisionReason)> {
        let open = &open[..asked_at_once(open, |id| !rules.asks_auth(id))];
        // Recipients added later have no session, so no service is queried.
        let results = rules
            .by_content(open, MessageFacts { hits: self.hits.as_ref()?, answers: &self.answers }, &mut None)
            .ok()?;
        results.refusal().map(|(reply, by)| (reply.clone(), by.clone()))
    }

    /// Ends the data.
    pub fn close(&mut self, rules: &Rulebook) {
        if !std::mem::replace(&mut self.is_over, true) && rules.has_end_of_data_rules() {
            let unread = || Hits::new(rules.content.tests, false);
            self.hits = Some(self.scan.take().map_or_else(unread, ContentScanner::finish));
        }
    }

    /// The next policy service whose answer the rules need; with `has_auth`, rules on authentication results are
    /// included.
    pub fn service(&self, rules: &Rulebook, has_auth: bool) -> Option<TableId> {
        let hits = self.hits.as_ref()?;
        self.kinds.iter().find_map(|kind| {
            let open = &kind.open[kind.asked..];
            let count = asked_at_once(open, |id| has_auth || !rules.asks_auth(id));
            rules.by_content(&open[..count], MessageFacts { hits, answers: &self.answers }, &mut None).err()
        })
    }

    /// Sets the answer of a policy service.
    pub fn answer(&mut self, service: TableId, answer: LookupResult) {
        self.answers.insert(service, answer);
    }

    /// Evaluates the rules at the end of the data, or those of recipients added since; the result only concerns
    /// these. `None`: no rule waited.
    pub fn finish(&mut self, rules: &Rulebook) -> Option<ContentResults> {
        self.close(rules);
        let hits = self.hits.take()?;
        let said = self.is_any().then(|| self.ask(rules, &hits, |id| !rules.asks_auth(id)));
        self.hits = Some(hits);
        said
    }

    /// Whether rules wait for authentication results.
    pub fn waits_for_auth(&self) -> bool {
        self.is_over && self.is_any()
    }

    /// Tests the authentication results after milters have seen the message.
    pub fn match_auth(&mut self, rules: &Rulebook, results: &AuthFieldResults) {
        if let Some(hits) = &mut self.hits {
            rules.content.match_auth(results, hits);
        }
    }

    /// Evaluates the remaining rules. `None`: no rule waited for milters.
    pub fn finish_with_auth(&mut self, rules: &Rulebook) -> Option<ContentResults> {
        let hits = self.hits.take()?;
        Some(self.ask(rules, &hits, |_| true))
    }

    /// Evaluates the remaining rules of each kind, up to the first that cannot be evaluated yet.
    fn ask(&mut self, rules: &Rulebook, hits: &Hits, may_ask: impl Fn(RuleId) -> bool) -> ContentResults {
        let mut said = ContentResults { kinds: Vec::with_capacity(self.kinds.len()), ..ContentResults::default() };
        for kind in &mut self.kinds {
            let open = &kind.open[kind.asked..];
            let count = asked_at_once(open, &may_ask);
            let results = rules.by_content(&open[..count], MessageFacts { hits, answers: &self.answers }, &mut None);
            let mut results = results.unwrap_or_else(|service| rules.deferral(&open[..count], service));
            kind.asked = if results.is_over() { kind.open.len() } else { kind.asked + count };
            // The first next hop takes precedence.
            results.route = results.route.filter(|_| !kind.has_route);
            kind.has_route |= results.route.is_some();
            said.kinds.push((results, kind.named.clone()));
        }
        said.of = if self.is_any() { self.of.clone() } else { std::mem::take(&mut self.of) };
        said
    }
}

/// Number of rules before the first that cannot be evaluated yet.
fn asked_at_once(open: &[OpenRule], may_ask: impl Fn(RuleId) -> bool) -> usize {
    open.iter().position(|open| !may_ask(open.rule)).unwrap_or(open.len())
}

/// The waiting rules that can end the evaluation.
fn ends(rules: &Rulebook, open: &[OpenRule]) -> impl Iterator<Item = RuleId> {
    open.iter().map(|open| open.rule).filter(|id| rules.ends_by_content(*id))
}

/// Whether both are the same rules.
fn are_same(some: &[OpenRule], others: &[OpenRule]) -> bool {
    some.iter().map(|open| open.rule).eq(others.iter().map(|open| open.rule))
}

impl ContentResults {
    /// The first refusal, which applies to the message.
    pub fn refusal(&self) -> Option<(&Reply, &DecisionReason)> {
        self.kinds.iter().find_map(|(results, _)| results.refusal())
    }

    /// The results for a recipient.
    pub fn of(&self, to: &Address) -> Option<&RuleResults> {
        self.kinds.get(*self.of.get(to.as_str())?).map(|(results, _)| results)
    }

    /// The actions on the message for a recipient.
    pub fn marks_of(&self, to: &Address) -> Option<&Marks> {
        self.of(to).map(|results| &results.marks)
    }

    /// The next hop set by a rule for a recipient or its expansion.
    pub fn route(&self, to: &Address) -> Option<&NextHop> {
        self.of(to)?.route.as_ref().map(|(hop, _)| hop)
    }
}

impl Rulebook {
    /// Evaluates the waiting rules of a recipient in order; `steps` receives the tests.
    ///
    /// # Errors
    /// This policy service must be queried first.
    pub fn by_content(
        &self,
        open: &[OpenRule],
        MessageFacts { hits, answers }: MessageFacts<'_>,
        steps: &mut Option<&mut Vec<Step>>,
    ) -> Result<RuleResults, TableId> {
        let mut results = RuleResults::default();
        for &OpenRule { rule: id, met: ref of_client } in open {
            let Some(rule) = self.rules.get(id.at()) else { continue };
            let failing = rule.when.content.failing(hits);
            let failing = failing.or_else(|| rule.unless.content.holding(hits).map(|_| "not"));
            if let Some(key) = failing {
                self.note_rule(steps, NumberedRule { id, rule }, || format!("no: {key}"));
                continue;
            }
            let (actions, by_service) = match (&rule.does, rule.when.end_of_data_service()) {
                (RuleEffect::Actions(actions), _) => (actions.clone(), None),
                (RuleEffect::Table, Some(service)) => {
                    let answer = answers.get(&service).ok_or(service)?;
                    let (action, by) = self.of_service(id, service, answer);
                    (vec![action], Some(by))
                }
                (RuleEffect::Table, None) => continue,
            };
            for action in actions {
                let action = of_client.filled(action);
                self.note_rule(steps, NumberedRule { id, rule }, || {
                    let met = rule.when.content.met_by(hits);
                    let met = if met.is_empty() { String::new() } else { format!(" ({met})") };
                    format!("{}{met}", yes(rule, &action))
                });
                let by = by_service.clone().unwrap_or_else(|| DecisionReason::of_rule(rule, id, &action, of_client));
                if rule.is_warning {
                    results.warn(action, &of_client.words, by);
                    continue;
                }
                // The message's acceptance is logged with its earlier next hop and without header fields, so both are
                // recorded here.
                match &action {
                    RuleAction::Route(hop) if results.route.is_none() => {
                        results
                            .marks
                            .did
                            .push((format!("routed by its content to {hop}").into(), DecisionReason::Rule(id)));
                    }
                    RuleAction::Prepend(field) => {
                        let name = field.split(':').next().unwrap_or_default();
                        results.marks.did.push((format!("prepended {name}").into(), DecisionReason::Rule(id)));
                    }
                    _ => {}
                }
                results.add(action, by);
            }
            if results.is_over() {
                break;
            }
        }
        Ok(results)
    }

    /// The deciding service was not queried: the message is deferred.
    fn deferral(&self, open: &[OpenRule], service: TableId) -> RuleResults {
        let asks = |open: &&OpenRule| {
            self.rules.get(open.rule.at()).is_some_and(|rule| rule.when.end_of_data_service() == Some(service))
        };
        let id = open.iter().find(asks).map_or(RuleId::new(0), |open| open.rule);
        let (action, by) = self.of_service(id, service, &LookupResult::Unavailable("not asked".to_owned()));
        let mut results = RuleResults::default();
        results.add(action, by);
        results
    }

    /// Turns a service's answer into an action. An invalid answer defers the message, as at RCPT.
    fn of_service(&self, id: RuleId, service: TableId, answer: &LookupResult) -> (RuleAction, DecisionReason) {
        let refusal = |reply| RuleAction::End(FinalAction::Refuse(reply));
        let entry = |error: Option<String>| {
            let error = error.map(Into::into);
            DecisionReason::Entry(Box::new(RuleEntry {
                rule: id,
                table: service,
                key: "".into(),
                place: "".into(),
                error,
            }))
        };
        match answer {
            LookupResult::Found(found) => match self.action_for(service, Field::Recipient, &found.value) {
                Ok(RuleAction::Dunno) => (RuleAction::Dunno, DecisionReason::Rule(id)),
                Ok(action) => (action, entry(None)),
                Err(error) => (refusal(MISCONFIGURED), entry(Some(format!("{:?}: {error}", found.value)))),
            },
            LookupResult::NotFound | LookupResult::Pending => (RuleAction::Dunno, DecisionReason::Rule(id)),
            LookupResult::Unavailable(why) => {
                // No commas: they separate the log's fields.
                let words = format!("policy service {}: {}", self.table_name(service), why.replace(',', ";"));
                (refusal(SERVICE_UNAVAILABLE), DecisionReason::Unavailable(id, words.into()))
            }
        }
    }

    fn asks_auth(&self, id: RuleId) -> bool {
        self.rules.get(id.at()).is_some_and(crate::rule::Rule::asks_auth)
    }

    /// Whether a waiting rule can end the evaluation for its recipient.
    fn ends_by_content(&self, id: RuleId) -> bool {
        self.rules.get(id.at()).is_some_and(|rule| match &rule.does {
            _ if rule.is_warning => false,
            RuleEffect::Actions(actions) => actions.iter().any(|action| matches!(action, RuleAction::End(_))),
            RuleEffect::Table => rule.when.end_of_data_service().is_some(),
        })
    }
}
