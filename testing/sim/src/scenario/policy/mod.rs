//! Decisions in random worlds: what the rule engine decides, what it says when it explains, and a plain reading of
//! docs/design/rules.md are the same; also of rules that wait for the content, as a session asks them and as `explain`
//! does.

mod plain;
mod world;

use std::net::IpAddr;

use serde_json::{Value, json};
use stentor_mail::Class;
use stentor_mail::address::Address;
use stentor_reputation::{ClientBehaviour, ClientName};
use stentor_rules::{
    AuthFieldResults, ContentScanner, Decision, DecisionReason, Facts, Key, Marks, MessageFacts, NextHop, Outcome,
    RemarkRecipients, RuleId, Rulebook, ServiceAnswers, Step, WaitingRules, Wishes,
};
use world::{AUTHSERV_ID, CLIENTS, Table, World, book};

/// Differences that are named; all are counted.
const SHOWN_MAX: usize = 10;

/// So many worlds from a seed on.
pub fn run(first: u64, worlds: u64) -> Value {
    let (mut differ, mut steps_all, mut shown) = (0_u64, 0, Vec::new());
    for seed in first..first + worlds {
        match check(seed) {
            Ok(steps) => steps_all += steps,
            Err(why) => {
                differ += 1;
                if shown.len() < SHOWN_MAX {
                    shown.push(format!("world {seed}: {why}"));
                }
            }
        }
    }
    json!({ "worlds": worlds, "differ": differ, "steps": steps_all, "shown": shown })
}

/// How many steps the explanation has, or what differs.
fn check(seed: u64) -> Result<usize, String> {
    let world = World::new(seed);
    let book = book(&world);
    let client: IpAddr = CLIENTS[world.client].parse().map_err(|error| format!("{error}"))?;
    let address: Address = world.recipient().parse().map_err(|error| format!("{error}"))?;
    let (sender, recipient) = (Key::new(world.sender()), Key::new(world.recipient()));
    let facts = Facts {
        client,
        client_name: ClientName::Nameless,
        helo: "h.test",
        sender: &sender,
        recipient: &recipient,
        address: &address,
        list: None,
        class: None,
        today: 20_000,
        session: None,
        is_trusted: CLIENTS[world.client].starts_with("10."),
        is_own: false,
        behaviour: ClientBehaviour::NOTHING,
    };
    let table = Table(&world);
    let mut steps = Vec::new();
    let pending = |_| "a table is pending".to_owned();
    let decided = book.decide(&facts, &table, None).map_err(pending)?;
    let explained = book.decide(&facts, &table, Some(&mut steps)).map_err(pending)?;
    if decided != explained {
        return Err(format!("decided {decided:?}, explained {explained:?}"));
    }
    // As `explain` makes it: all waiting rules are asked once.
    let message = world.message();
    let mut scan = ContentScanner::new(book.content.clone(), 0, true).with_auth(AUTHSERV_ID);
    scan.push(message.as_bytes());
    let (hits, answers) = (scan.finish(), ServiceAnswers::default());
    let content = MessageFacts { hits: &hits, answers: &answers };
    let results = book.by_content(&decided.marks.open, content, &mut Some(&mut steps)).unwrap_or_default();
    let mut whole = decided.clone();
    if decided.refusal().is_none() {
        whole.merge(results);
    }
    let (explained, page) = (shown(&whole), plain::expected(&world));
    if explained != page {
        return Err(format!("the explanation says {explained}, the page {page}"));
    }
    // As a session makes it: those that wait for milters are asked behind them.
    let sent = sent(&book, &address, decided.clone(), &message)?;
    if sent != page {
        return Err(format!("a session says {sent}, the page {page}"));
    }
    if says(&steps, &decided) { Ok(steps.len()) } else { Err(format!("{decided:?} is not in {steps:?}")) }
}

/// What a session makes of a recipient and its message, by what a transaction has of both.
fn sent(book: &Rulebook, to: &Address, decided: Decision, message: &str) -> Result<String, String> {
    if decided.refusal().is_some() {
        let mut whole = decided;
        whole.marks.open.clear();
        return Ok(shown(&whole));
    }
    let Decision { mut outcome, why, route, marks } = decided;
    let (mut waiting, mut wishes, who) =
        (WaitingRules::default(), Wishes::default(), RemarkRecipients::one(to.as_str()));
    waiting.admits(book, false, &marks.open).map_err(|reply| reply.to_string())?;
    waiting.add(book, to, marks.open.clone());
    wishes.add(book, marks, &who);
    waiting.begin(book, 0, false);
    waiting.push(message.as_bytes());
    let mut auth = AuthFieldResults::new(AUTHSERV_ID);
    let (name, value) = message.split_once(':').ok_or("no field")?;
    auth.field(name.as_bytes(), value.lines().next().unwrap_or_default().as_bytes());
    let (first, mut second) = (waiting.finish(book), None);
    if first.as_ref().is_none_or(|said| said.refusal().is_none()) {
        waiting.match_auth(book, &auth);
        second = waiting.finish_with_auth(book);
    }
    for said in [first, second].into_iter().flatten() {
        let refused = said.refusal().map(|(reply, _)| reply.clone());
        let discards = said.of(to).and_then(|results| results.discard().map(|(text, _)| text.into()));
        match (&mut outcome, refused, discards, said.route(to)) {
            (_, Some(reply), _, _) => outcome = Outcome::Refuse(reply),
            (Outcome::Discard(_), None, _, _) => {}
            (_, None, Some(text), _) => outcome = Outcome::Discard(text),
            (Outcome::Relay(own), None, None, Some(hop)) => *own = hop.clone(),
            _ => {}
        }
        for (results, named) in said.kinds {
            wishes.add(book, results.marks, &named);
        }
    }
    let mut marks = Marks { class: wishes.class, ..Marks::default() };
    let rule = DecisionReason::Rule(RuleId::new(0));
    marks.hold = wishes.hold.map(|text| (text, rule.clone()));
    marks.redirect = wishes.redirect.map(|to| (to, rule.clone()));
    marks.bcc = wishes.bcc.into_iter().map(|to| (to, rule.clone())).collect();
    Ok(shown(&Decision { outcome, why, route, marks }))
}

/// Whether the steps say what was decided.
fn says(steps: &[Step], decided: &Decision) -> bool {
    let said = |text: &str| steps.iter().any(|step| step.answer.contains(text));
    match &decided.outcome {
        Outcome::Relay(NextHop::Mx) if decided.route == Some(DecisionReason::Mx) => {
            steps.iter().filter(|step| step.asked.starts_with("routes:")).all(|step| step.answer == "no next hop")
        }
        Outcome::Relay(hop) => said(&format!("next hop {hop}")),
        Outcome::Refuse(reply) if reply.code == 451 && said("unavailable") => true,
        Outcome::Refuse(reply) => said(&reply.to_string()),
        Outcome::Discard(_) => said("yes: discard"),
        Outcome::Local(_) => true,
    }
}

fn shown(decision: &Decision) -> String {
    let outcome = match &decision.outcome {
        Outcome::Local(_) => "local".to_owned(),
        Outcome::Relay(hop) => hop.to_string(),
        Outcome::Refuse(reply) => reply.to_string()[..9].to_owned(),
        Outcome::Discard(_) => "discard".to_owned(),
    };
    let hold = if decision.marks.hold.is_some() { " +hold" } else { "" };
    let bcc = if decision.marks.bcc.is_empty() { "" } else { " +bcc" };
    let redirect = decision.marks.redirect.as_ref().map_or(String::new(), |(to, _)| format!(" +redirect {to}"));
    let class = match decision.marks.class {
        None => "",
        Some(Class::Bulk) => " +class bulk",
        Some(Class::Ordinary) => " +class ordinary",
    };
    format!("{outcome}{hold}{bcc}{redirect}{class}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn engine_explanation_and_page_agree() {
        let seen = super::run(0, 2_000);
        assert_eq!(seen["differ"], 0, "{seen:#}");
        assert!(seen["steps"].as_u64() > Some(4_000), "{seen:#}");
    }
}
