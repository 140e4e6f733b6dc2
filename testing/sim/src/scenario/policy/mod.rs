//! Decisions in random worlds: what the rule engine decides, what it says when it explains, and a plain reading of
//! docs/design/rules.md are the same.

mod plain;
mod world;

use std::net::IpAddr;

use serde_json::{Value, json};
use stentor_mail::address::Address;
use stentor_rules::{Decision, Facts, Key, NextHop, Outcome, Step, Why};
use stentor_strangers::Seen;
use world::{CLIENTS, Table, World, book};

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
        client_name: None,
        helo: "h.test",
        sender: &sender,
        recipient: &recipient,
        address: &address,
        list: None,
        class: None,
        today: 20_000,
        session: None,
        is_trusted: CLIENTS[world.client].starts_with("10."),
        seen: Seen::NOTHING,
    };
    let table = Table(&world);
    let mut steps = Vec::new();
    let pending = |_| "a table is pending".to_owned();
    let decided = book.decide(&facts, &table, None).map_err(pending)?;
    let explained = book.decide(&facts, &table, Some(&mut steps)).map_err(pending)?;
    if decided != explained {
        return Err(format!("decided {decided:?}, explained {explained:?}"));
    }
    let (engine, page) = (shown(&decided), plain::expected(&world));
    if engine != page {
        return Err(format!("the engine says {engine}, the page {page}"));
    }
    if says(&steps, &decided) { Ok(steps.len()) } else { Err(format!("{decided:?} is not in {steps:?}")) }
}

/// Whether the steps say what was decided.
fn says(steps: &[Step], decided: &Decision) -> bool {
    let said = |text: &str| steps.iter().any(|step| step.answer.contains(text));
    match &decided.outcome {
        Outcome::Relay(NextHop::Mx) if decided.route == Some(Why::Mx) => {
            steps.iter().filter(|step| step.asked.starts_with("routes:")).all(|step| step.answer == "no next hop")
        }
        Outcome::Relay(hop) => said(&format!("next hop {hop}")),
        Outcome::Refuse(reply) if reply.code == 451 && said("cannot be asked") => true,
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
    format!("{outcome}{hold}{bcc}")
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
