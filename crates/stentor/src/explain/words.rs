//! Formats decisions in words.

use std::collections::HashSet;

use stentor_control::format::plural;
use stentor_core::people::MailReaders;
use stentor_mail::reply::Reply;
use stentor_policy::{AddressClass, LocalTarget};
use stentor_rules::{Decision, DecisionReason, Facts, NextHop, Outcome, Rulebook, UnknownFact};

/// The recipient's outcome, without places, so that two configurations can be compared.
pub(super) fn outcome(rules: &Rulebook, decision: &Decision) -> String {
    match &decision.outcome {
        Outcome::Local(AddressClass::List(name)) => format!("a post to list {name}"),
        Outcome::Local(AddressClass::Bounces(name)) => format!("a report about posts of list {name}"),
        Outcome::Local(AddressClass::Command { list, command }) => {
            format!("a command to list {list}: {}", command.word())
        }
        Outcome::Local(AddressClass::Alias(to)) => {
            let mut all: Vec<String> = to.addresses.iter().map(ToString::to_string).collect();
            let owned =
                to.owned.iter().flat_map(|(owner, all)| all.iter().map(move |to| format!("{to} (from {owner})")));
            all.extend(owned);
            let program = |to: &LocalTarget| match &to.owner {
                Some(owner) => format!("{} as {} (from {owner})", to.text, to.address),
                None => format!("{} as {}", to.text, to.address),
            };
            all.extend(to.programs.iter().map(program));
            all.extend(to.has_null.then(|| "/dev/null".to_owned()));
            all.extend(to.lists.iter().map(|name| format!("list {name}")));
            format!("alias: {}", all.join(", "))
        }
        Outcome::Local(AddressClass::Relay) => "relayed".to_owned(),
        Outcome::Local(AddressClass::Refuse(reply)) | Outcome::Refuse(reply) => refused(reply),
        Outcome::Discard(text) if text.is_empty() => "accepted and discarded".to_owned(),
        Outcome::Discard(text) => format!("accepted and discarded: {text}"),
        Outcome::Relay(hop) => relayed(rules, hop),
    }
}

/// Where mail to an address named by a rule goes.
pub(super) fn goes_to(found: &MailReaders) -> String {
    let people = plural(found.people.len() as u64, "recipient");
    let lists = found.lists.iter().map(|list| format!("a post to list {list}"));
    let null = found.has_null.then(|| "accepted and dropped: it is an alias of /dev/null".to_owned());
    let people = (!found.people.is_empty()).then(|| format!("goes to {people}"));
    people.into_iter().chain(lists).chain(null).collect::<Vec<_>>().join("; ")
}

/// The effect of a refusal on the recipient.
pub(super) fn refused(reply: &Reply) -> String {
    if reply.is_temporary() { format!("deferred: {reply}") } else { format!("refused: {reply}") }
}

/// The next hop with its hosts, or the reply of a next hop that refuses.
pub(super) fn relayed(rules: &Rulebook, hop: &NextHop) -> String {
    let hosts = match hop {
        NextHop::Refuse(reply) if reply.is_temporary() => return format!("waits: {reply}"),
        NextHop::Refuse(reply) => return format!("bounced with {reply}"),
        NextHop::Named(name) => rules.hops.get(name).map(|hosts| NextHop::Hosts(hosts.clone()).to_string()),
        _ => None,
    };
    let hosts = hosts.map_or(String::new(), |hosts| format!(" ({hosts})"));
    format!("relayed to {hop}{hosts}")
}

/// The recipient's outcome, with what named its next hop.
pub(super) fn headline(rules: &Rulebook, decision: &Decision) -> String {
    let is_kept = decision.marks.quarantine.is_some()
        && decision.refusal().is_none()
        && !matches!(decision.outcome, Outcome::Discard(_));
    let kept = if is_kept { "quarantined; once released, " } else { "" };
    format!("{kept}{}{}", outcome(rules, decision), because(rules, decision))
}

/// The rule or setting that named the next hop, to follow the outcome.
pub(super) fn because(rules: &Rulebook, decision: &Decision) -> String {
    match (&decision.outcome, &decision.route) {
        (Outcome::Relay(_), Some(why)) => format!(", {}", named_by(rules, why)),
        _ => String::new(),
    }
}

/// The rule or setting that named a next hop.
pub(super) fn named_by(rules: &Rulebook, why: &DecisionReason) -> String {
    match why {
        DecisionReason::Mx => "because no route names a next hop".to_owned(),
        why => format!("by {}", rules.shown(why)),
    }
}

/// The rule or setting that decided.
pub(super) fn because_of(rules: &Rulebook, why: &DecisionReason) -> String {
    match why {
        DecisionReason::Base(_) => format!("because {}", rules.shown(why)),
        DecisionReason::RelayDomain => "because its domain is a relay domain".to_owned(),
        DecisionReason::Authenticated => "because the client is logged in".to_owned(),
        DecisionReason::Nobody(by) => format!("because {by}"),
        why => format!("because of {}", rules.shown(why)),
    }
}

/// Further effects on the message, each with the rule that asks for it. `has_content`: those without effect on the
/// message were dropped.
pub(super) fn also(rules: &Rulebook, decision: &Decision, has_content: bool) -> Vec<String> {
    also_with(rules, decision, has_content, &|by| format!(", by {}", rules.shown(by)))
}

/// As [`also`], without places, which differ between configurations that do the same.
pub(super) fn also_without_places(rules: &Rulebook, decision: &Decision) -> Vec<String> {
    also_with(rules, decision, false, &|_| String::new())
}

fn also_with(
    rules: &Rulebook,
    decision: &Decision,
    has_content: bool,
    by: &dyn Fn(&DecisionReason) -> String,
) -> Vec<String> {
    let marks = &decision.marks;
    let mut all = Vec::new();
    if let Some((text, why)) = &marks.hold {
        all.push(if text.is_empty() { format!("held{}", by(why)) } else { format!("held: {text}{}", by(why)) });
    }
    if let Some((text, why)) = &marks.quarantine {
        let text = if text.is_empty() { String::new() } else { format!(": {text}") };
        all.push(format!("quarantined{text}{}", by(why)));
    }
    all.extend(marks.redirect.iter().map(|(to, why)| format!("redirected to {to}{}", by(why))));
    all.extend(marks.bcc.iter().map(|(to, why)| format!("copied to {to}{}", by(why))));
    all.extend(marks.copies.iter().map(|(hop, why)| format!("copied to {hop}{}", by(why))));
    all.extend(marks.prepend.iter().map(|field| format!("with {field}")));
    let condition = if has_content { "" } else { ", if it has such a field" };
    all.extend(marks.edits.iter().map(|edit| {
        let what = if edit.is_removal() { "without header " } else { "header changed, " };
        format!("{what}{edit}{condition}")
    }));
    all.extend(marks.transfer_encoding.iter().map(|target| format!("re-encoded to {} where possible", target.name())));
    all.extend(marks.left_out.iter().map(|to| format!("without {to}: this address does not exist")));
    all.extend(logged(rules, decision));
    // Two rules may demand the same field or edit, which is applied once.
    let mut known = HashSet::new();
    all.retain(|text| known.insert(text.clone()));
    all
}

/// Notes that are logged for a recipient, even a refused one.
pub(super) fn logged(rules: &Rulebook, decision: &Decision) -> Vec<String> {
    let warn = decision.marks.warn.iter().map(|text| format!("logged: {text}"));
    let would = decision.marks.would.iter();
    let would = would.map(|(would, by)| format!("logged only: {would}, {}", rules.shown(by)));
    warn.chain(would).collect()
}

/// The sender shown to an alias's targets.
pub(super) fn by_srs(rules: &Rulebook, decision: &Decision, facts: &Facts<'_>) -> Option<String> {
    match &decision.outcome {
        Outcome::Local(AddressClass::Alias(to)) if !facts.sender.is_null() && decision.marks.redirect.is_none() => {
            let forwarder = rules.forwarder(facts.sender.as_str(), to.addresses.iter(), facts.today);
            forwarder.map(|sender| format!("from {sender}, by SRS"))
        }
        _ => None,
    }
}

/// The class assigned by rules.
pub(super) fn class_of(decision: &Decision) -> Option<String> {
    decision.marks.class.map(|class| format!("class {}", class.name()))
}

/// A fact that only a client's session shows, and the option that states it.
pub(super) fn unknown(rules: &Rulebook, what: UnknownFact) -> String {
    let words = match what {
        UnknownFact::ClientName => "the client's name (--client-name)",
        UnknownFact::Helo => "its name in HELO (--helo)",
        UnknownFact::EarlyTalker => "whether it sends before the greeting (--early-talker)",
        UnknownFact::Rate => "its rate (--rate)",
        UnknownFact::Greylist => "whether the greylist lets it pass (--greylisted)",
        UnknownFact::Service(service) => return format!("the reply of policy service {}", rules.table_name(service)),
    };
    words.to_owned()
}
