//! Golden cases of precedence (golden/precedence.txt), through the configuration's reader and the engine.

mod golden;

use std::fmt::Write as _;
use std::net::IpAddr;

use golden::{InMemory, golden};
use stentor_config::Config;
use stentor_mail::Class;
use stentor_mail::address::Address;
use stentor_policy::AddressClass;
use stentor_rules::{Decision, DecisionReason, Facts, HopSource, Marks, Outcome};

fn outcome(decision: &Decision) -> String {
    match &decision.outcome {
        Outcome::Local(AddressClass::List(name)) => format!("list {name}"),
        Outcome::Local(AddressClass::Alias(_)) => "alias".to_owned(),
        Outcome::Local(_) => "bounces".to_owned(),
        Outcome::Relay(hop) => format!("relay via {hop}"),
        Outcome::Discard(_) => "discard".to_owned(),
        Outcome::Refuse(reply) => {
            let kind = if reply.is_temporary() { "defer" } else { "reject" };
            let code = reply.enhanced.map(|code| code.to_string()).unwrap_or_default();
            format!("{kind} {} {code}", reply.code)
        }
    }
}

/// What decided: for relayed mail the source of the next hop, or else the rule that permitted relaying.
fn by(config: &Config, decision: &Decision) -> String {
    let shown = |why: &DecisionReason| match why {
        DecisionReason::Rule(at) | DecisionReason::Stranger(at, _) | DecisionReason::Unavailable(at, _) => {
            Some(format!("rule {}", at.number()))
        }
        DecisionReason::Entry(entry) => Some(format!("rule {}", entry.rule.number())),
        DecisionReason::Route(HopSource::Sender, entry) => Some(format!("sender_routes {}", entry.pattern)),
        DecisionReason::Route(_, entry) => Some(format!("routes {}", entry.pattern)),
        DecisionReason::Table(table, _, key, _) => Some(format!("table {} {key}", config.rules.table_name(*table))),
        DecisionReason::RelayDomain
        | DecisionReason::Authenticated
        | DecisionReason::Base(_)
        | DecisionReason::Address(_)
        | DecisionReason::Nobody(_)
        | DecisionReason::Mx => None,
    };
    let by = decision.route.as_ref().and_then(shown).or_else(|| shown(&decision.why));
    by.map_or(String::new(), |by| format!(" by {by}"))
}

fn marks(marks: &Marks) -> String {
    let mut text = String::new();
    if marks.hold.is_some() {
        text.push_str(" +hold");
    }
    if marks.quarantine.is_some() {
        text.push_str(" +quarantine");
    }
    for (to, _) in &marks.bcc {
        write!(text, " +bcc {to}").unwrap();
    }
    if let Some((to, _)) = &marks.redirect {
        write!(text, " +redirect {to}").unwrap();
    }
    for field in &marks.prepend {
        write!(text, " +prepend {}", field.split(':').next().unwrap()).unwrap();
    }
    match marks.class {
        Some(Class::Bulk) => text.push_str(" +class bulk"),
        Some(Class::Ordinary) => text.push_str(" +class ordinary"),
        None => {}
    }
    text
}

/// Runs a case `CLIENT[,NAME][;HELO] SENDER > RECIPIENT`.
fn decide(config: &Config, case: &str) -> String {
    let (from, to) = case.split_once(" > ").unwrap();
    let (client, sender) = from.split_once(' ').unwrap();
    let (client, helo) = client.split_once(';').unwrap_or((client, "client.test"));
    let (client, name) = client.split_once(',').map_or((client, None), |(client, name)| (client, Some(name)));
    let client = client.parse::<IpAddr>().unwrap().to_canonical();
    let address: Address = to.parse().unwrap();
    let key = |text| config.rules.key_of(text);
    let (sender, recipient) = (key(if sender == "~" { "" } else { sender }), key(address.as_str()));
    let (name, helo) = (name.map(str::to_lowercase), helo.to_lowercase());
    let facts = Facts {
        client,
        client_name: name.as_deref().into(),
        helo: &helo,
        sender: &sender,
        recipient: &recipient,
        address: &address,
        list: None,
        class: None,
        today: 20_000,
        session: None,
        is_trusted: config.policy.is_trusted(client),
        is_own: false,
        behaviour: stentor_reputation::ClientBehaviour::NOTHING,
    };
    let mut steps = Vec::new();
    let tables = InMemory(config);
    let decision = config.rules.decide(&facts, &tables, Some(&mut steps)).unwrap();
    assert_eq!(
        config.rules.decide(&facts, &tables, None).unwrap(),
        decision,
        "explained otherwise than decided: {case}"
    );
    assert!(!steps.is_empty(), "{case}");
    // Actions on the message from rules of a refused recipient are not carried out.
    let marks = if matches!(decision.outcome, Outcome::Refuse(_)) { String::new() } else { marks(&decision.marks) };
    format!("{}{}{marks}", outcome(&decision), by(config, &decision))
}

#[test]
fn every_golden_case_is_decided_as_it_says() {
    golden("precedence.txt", 200, decide);
}
