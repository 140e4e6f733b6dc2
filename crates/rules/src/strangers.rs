//! Conditions on untrusted clients: their behaviour, and DNS data of the client, its HELO name and the sender's
//! domain.
//!
//! States: all DNS queries of a rule are sent at once, and its conditions are pending until each is answered. A rule
//! with such a condition does not apply to trusted clients unless it has `trusted = true`.
//!
//! Failure: a query without an answer counts in favour of the client. A condition then does not hold; under `not` it
//! does; in a score, a list with a negative weight counts as matching.

use std::fmt::Write as _;
use std::sync::Arc;

use stentor_reputation::{
    Answered, DnsAnswer, DnsList, DnsListResult, Greylisted, HeloFault, QueriedMail, Question, RateOver, RateVerdict,
    sender_question,
};

use crate::book::Rulebook;
use crate::client_match::ClientMatch;
use crate::explain::{Step, UnknownFact, note, note_unknown};
use crate::facts::{Facts, Tables};
use crate::rule::Rule;
use crate::stranger_conditions::StrangerConditions;

/// Result of conditions that only a client's session can decide.
const NOT_SEEN: &str = "not known here; depends on the client's session";

/// Result of one condition.
enum ConditionResult {
    Yes(String),
    No,
    /// The DNS did not answer.
    Unanswered,
    Pending,
}

/// Result of all conditions of a rule.
pub(crate) enum ConditionsResult {
    /// They hold; with the matches, empty if there are no conditions.
    Yes(ClientMatch),
    No(&'static str),
    Pending,
}

/// Inputs of the evaluation, and the recorded steps.
struct Evaluation<'e, 'a, 's> {
    rules: &'e Rulebook,
    facts: &'e Facts<'a>,
    tables: &'e dyn Tables,
    steps: &'e mut Option<&'s mut Vec<Step>>,
    lists: Vec<Arc<str>>,
}

impl Rulebook {
    /// Whether a rule's conditions on untrusted clients hold.
    pub(crate) fn of_stranger(
        &self,
        rule: &Rule,
        facts: &Facts<'_>,
        tables: &dyn Tables,
        steps: &mut Option<&mut Vec<Step>>,
    ) -> ConditionsResult {
        let (when, unless) = (&rule.when.strangers, &rule.unless.strangers);
        if when.is_empty() && unless.is_empty() {
            return ConditionsResult::Yes(ClientMatch::of(facts));
        }
        if facts.is_trusted && !rule.when.is_of_trusted() {
            return ConditionsResult::No("a trusted client");
        }
        let mut asking = Evaluation { rules: self, facts, tables, steps, lists: Vec::new() };
        let mut words = Vec::new();
        let mut is_pending = false;
        for (key, is) in asking.each(when, true) {
            match is {
                Some(ConditionResult::Yes(by)) => words.push(by),
                Some(ConditionResult::No | ConditionResult::Unanswered) => return ConditionsResult::No(key),
                Some(ConditionResult::Pending) => is_pending = true,
                None => {}
            }
        }
        if is_pending {
            return ConditionsResult::Pending;
        }
        let met = std::mem::take(&mut asking.lists);
        for (_, is) in asking.each(unless, false) {
            match is {
                Some(ConditionResult::Yes(_) | ConditionResult::Unanswered) => return ConditionsResult::No("not"),
                Some(ConditionResult::Pending) => is_pending = true,
                Some(ConditionResult::No) | None => {}
            }
        }
        if is_pending {
            return ConditionsResult::Pending;
        }
        if when.greylisted {
            match asking.greylisted() {
                Some(by) => words.push(by),
                None => return ConditionsResult::No("greylisted"),
            }
        }
        ConditionsResult::Yes(ClientMatch { client: facts.client, words: words.join("; "), lists: met })
    }
}

impl Evaluation<'_, '_, '_> {
    /// Evaluates each condition that is set, by key. `all`: all must hold, so the DNS is not queried if the other
    /// conditions already fail.
    fn each(&mut self, of: &StrangerConditions, all: bool) -> [(&'static str, Option<ConditionResult>); 6] {
        let early = of.early.map(|wanted| self.early(wanted));
        let rates = (!of.rates.is_empty()).then(|| self.rates(&of.rates));
        let may_ask =
            !all || !matches!((&early, &rates), (Some(ConditionResult::No), _) | (_, Some(ConditionResult::No)));
        let helo = (!of.helo.is_empty() && may_ask).then(|| self.helo(&of.helo));
        let is_no = |is: &Option<ConditionResult>| matches!(is, Some(ConditionResult::No));
        let is_over = all && (is_no(&early) || is_no(&rates) || is_no(&helo));
        let lists = (!of.lists.is_empty() && !is_over).then(|| self.lists(&of.lists));
        let score = of.score.as_ref().filter(|_| !is_over).map(|(least, lists)| self.score(*least, lists));
        let sender = (of.sender && !is_over).then(|| self.sender());
        [
            ("early_talker", early),
            ("client_rate_over", rates),
            ("helo_is", helo),
            ("dns_list", lists),
            ("dns_score_min", score),
            ("sender_domain", sender),
        ]
    }

    fn early(&mut self, wanted: bool) -> ConditionResult {
        match self.facts.behaviour.is_early {
            Some(is_early) if is_early != wanted => return ConditionResult::No,
            Some(_) => {}
            None => {
                note_unknown(self.steps, UnknownFact::EarlyTalker, ("early_talker", "", NOT_SEEN));
                return ConditionResult::Unanswered;
            }
        }
        ConditionResult::Yes(if wanted {
            "the client spoke before the greeting".to_owned()
        } else {
            "the client waited".to_owned()
        })
    }

    fn rates(&mut self, rates: &[RateOver]) -> ConditionResult {
        let mut is = ConditionResult::No;
        for rate in rates {
            match rate.is_exceeded(&self.facts.behaviour.counts) {
                RateVerdict::Yes(now) => return ConditionResult::Yes(format!("{now} with a limit of {rate}")),
                RateVerdict::No => {}
                RateVerdict::Unknown => {
                    note_unknown(self.steps, UnknownFact::Rate, (&format!("client_rate_over {rate}"), "", NOT_SEEN));
                    is = ConditionResult::Unanswered;
                }
            }
        }
        is
    }

    /// Whether greylisting defers the mail; evaluated last, because it starts the delay.
    fn greylisted(&mut self) -> Option<String> {
        let facts = self.facts;
        match facts.behaviour.is_greylisted {
            Some(true) => return Some("greylisted, as given".to_owned()),
            Some(false) => return None,
            None => {}
        }
        match self.tables.greylisted(facts.client, facts.sender.as_str(), facts.recipient.as_str()) {
            Some(Greylisted::Yes(ms)) => Some(format!("greylisted for {} s", ms.div_ceil(1_000))),
            Some(Greylisted::No) => None,
            None => {
                let answer = "checked only by the server at RCPT; assumed to pass";
                note_unknown(self.steps, UnknownFact::Greylist, ("greylist", "", answer));
                None
            }
        }
    }

    fn ask(&mut self, asked: &str, question: &Question) -> Option<Answered> {
        let answered = self.tables.dns(question)?;
        note(self.steps, || {
            let said = match &answered.answer {
                DnsAnswer::Addresses(all) if all.is_empty() => "not listed".to_owned(),
                DnsAnswer::Addresses(all) => all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
                DnsAnswer::Is(true) => "it is known".to_owned(),
                DnsAnswer::Is(false) => "it is not known".to_owned(),
                DnsAnswer::Unanswered(why) => format!("unanswered: {why}"),
            };
            (format!("{asked} {}", question.name), String::new(), format!("{said} ({} ms)", answered.took_ms))
        });
        Some(answered)
    }

    /// The answer of a list; `None`: it must be queried.
    fn list(&mut self, list: &DnsList) -> Option<DnsListResult> {
        let facts = self.facts;
        let about = QueriedMail {
            client: facts.client,
            client_name: facts.client_name,
            helo: facts.helo,
            sender: if facts.sender.is_null() { "" } else { facts.sender.domain() },
        };
        let Some(question) = list.question(&about) else { return Some(DnsListResult::No) };
        let answered = self.ask(&list.name, &question)?;
        Some(list.read(&answered.answer))
    }

    fn note_list(&mut self, list: &DnsList) {
        if !self.lists.contains(&list.name) {
            self.lists.push(list.name.clone());
        }
    }

    fn lists(&mut self, lists: &[Arc<DnsList>]) -> ConditionResult {
        // All lists are queried together.
        let all: Vec<_> = lists.iter().map(|list| (list, self.list(list))).collect();
        if all.iter().any(|(_, listed)| listed.is_none()) {
            return ConditionResult::Pending;
        }
        let mut words = String::new();
        for (list, listed) in &all {
            if let Some(DnsListResult::Yes(address)) = listed {
                let and = if words.is_empty() { "" } else { ", " };
                let _ = write!(words, "{and}{} has {address}", list.name);
                self.note_list(list);
            }
        }
        if !words.is_empty() {
            return ConditionResult::Yes(words);
        }
        let is_open = all.iter().any(|(_, listed)| matches!(listed, Some(DnsListResult::Unanswered(_))));
        if is_open { ConditionResult::Unanswered } else { ConditionResult::No }
    }

    fn score(&mut self, least: i32, lists: &[Arc<DnsList>]) -> ConditionResult {
        let all: Vec<_> = lists.iter().map(|list| (list, self.list(list))).collect();
        let (mut sum, mut open, mut words) = (0, 0, String::new());
        for (list, listed) in &all {
            match listed {
                None => return ConditionResult::Pending,
                Some(DnsListResult::Yes(address)) => {
                    sum += list.weight;
                    let and = if words.is_empty() { "" } else { ", " };
                    let _ = write!(words, "{and}{} has {address}: {:+}", list.name, list.weight);
                    if list.weight > 0 {
                        self.note_list(list);
                    }
                }
                Some(DnsListResult::Unanswered(_)) if list.weight < 0 => {
                    sum += list.weight;
                    let _ = write!(words, ", {} unanswered: {:+}", list.name, list.weight);
                }
                Some(DnsListResult::Unanswered(_)) => open += list.weight,
                Some(DnsListResult::No) => {}
            }
        }
        note(self.steps, || {
            ("dns_score_min".to_owned(), String::new(), format!("the score is {sum}; the limit is {least}"))
        });
        if sum >= least {
            ConditionResult::Yes(format!("score {sum} ({words})"))
        } else if sum + open >= least {
            ConditionResult::Unanswered
        } else {
            ConditionResult::No
        }
    }

    fn helo(&mut self, faults: &[HeloFault]) -> ConditionResult {
        let helo = self.facts.helo;
        // In a session, HELO comes before MAIL.
        if helo.is_empty() {
            note_unknown(self.steps, UnknownFact::Helo, ("helo_is", "", NOT_SEEN));
        }
        let mut is_asked = false;
        for fault in faults {
            match fault.is_of(helo, |name| self.rules.policy.is_local_domain(name)) {
                Some(true) => return ConditionResult::Yes(format!("HELO {helo} is {}", fault.word())),
                Some(false) => {}
                None => is_asked = true,
            }
        }
        if !is_asked {
            return ConditionResult::No;
        }
        match self.ask("HELO", &HeloFault::question(helo)).map(|answered| answered.answer) {
            None => ConditionResult::Pending,
            Some(DnsAnswer::Is(false)) => ConditionResult::Yes(format!("HELO {helo} is {}", HeloFault::Unknown.word())),
            Some(DnsAnswer::Unanswered(_)) => ConditionResult::Unanswered,
            Some(_) => ConditionResult::No,
        }
    }

    fn sender(&mut self) -> ConditionResult {
        let sender = self.facts.sender;
        let domain = if sender.is_null() { "" } else { sender.domain() };
        if self.rules.policy.is_local_domain(domain) {
            return ConditionResult::No;
        }
        let Some(question) = sender_question(domain) else { return ConditionResult::No };
        match self.ask("sender", &question).map(|answered| answered.answer) {
            None => ConditionResult::Pending,
            Some(DnsAnswer::Is(false)) => ConditionResult::Yes(format!("the sender's domain {domain} accepts no mail")),
            Some(DnsAnswer::Unanswered(_)) => ConditionResult::Unanswered,
            Some(_) => ConditionResult::No,
        }
    }
}
