//! The final destinations of a decision: each address that the recipient expands to and each that rules add or
//! substitute, its route, and the addresses that the host there sees.

use std::collections::HashSet;

use serde_json::{Value, json};
use stentor_addresses::AddressRole;
use stentor_core::Settings;
use stentor_core::clock::Clock;
use stentor_core::people::{MailReader, today};
use stentor_delivery::generic_address;
use stentor_mail::address::Address;
use stentor_mail::reply::Reply;
use stentor_policy::{AddressClass, Expansion};
use stentor_queue::ids::Ms;
use stentor_rules::{DecisionReason, NextHop, Outcome, Step};
use stentor_sessions::{Decider, Speaker, senders};

use super::Explanation;
use super::words::{named_by, refused, relayed};

/// Targets whose routes are looked up.
const TARGETS_SHOWN_MAX: usize = 100;
/// Targets whose steps are shown, out of these.
const TARGETS_NOTED_MAX: usize = 10;

/// Why an address gets the mail.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The client named it.
    Named,
    /// A target of the alias that the client named.
    Target,
    /// A rule redirects the mail to it.
    Redirected,
    /// A rule copies the mail to it.
    Copy,
}

/// One address that gets the mail.
pub(super) struct Target {
    kind: Kind,
    from: String,
    /// The sender for a rule's target, if it differs from the one that rules saw.
    own_from: Option<String>,
    to: Address,
    /// The next hop in words and what named it; else the refusal.
    route: Result<(String, String), Reply>,
    /// Sender and recipient as other hosts see them, if rewritten.
    seen: Option<Result<(String, String), Reply>>,
}

/// The destinations of a decision.
#[derive(Default)]
pub(super) struct Targets {
    pub shown: Vec<Target>,
    /// Number of further targets not shown.
    pub left: usize,
}

impl Targets {
    /// Domains of the shown targets, without copies.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        self.shown.iter().filter(|target| target.kind != Kind::Copy).map(|target| target.to.domain())
    }
}

/// An address, and its next hop unless that must still be looked up.
struct Lead {
    kind: Kind,
    from: String,
    to: Address,
    known: Option<(NextHop, DecisionReason)>,
}

/// Returns the first targets, in order; adds the steps of their routes and of generic addresses.
pub(super) async fn targets(settings: &Settings, speaker: Speaker<'_>, explanation: &mut Explanation) -> Targets {
    let (key, now) = (settings.rules.key_of(&explanation.from), Clock::start().now());
    let tables = settings.tables.questions_about(speaker.stranger.asker, None);
    let mut all = leads(settings, explanation, now);
    let mut targets = Targets { left: all.len().saturating_sub(TARGETS_SHOWN_MAX), ..Targets::default() };
    all.truncate(TARGETS_SHOWN_MAX);
    for (n, Lead { kind, from, to, known }) in all.into_iter().enumerate() {
        let mut asked = Vec::new();
        let found = if let Some(known) = known {
            Ok(known)
        } else {
            let of_alias = explanation.decision.marks.route.as_ref().filter(|_| kind == Kind::Target);
            let decider = Decider { settings, speaker, sender: &key, now };
            decider.route_of(&tables, &to, of_alias, Some(&mut asked)).await
        };
        if n < TARGETS_NOTED_MAX {
            explanation
                .steps
                .extend(asked.into_iter().map(|step| Step { asked: format!("{to}: {}", step.asked), ..step }));
        }
        let seen = match &found {
            Ok((hop, _)) if !is_lmtp(settings, hop) && !settings.rules.addresses.generic.is_empty() => {
                let mut own_steps = Vec::new();
                let seen = seen(settings, &from, to.as_str(), &mut own_steps).await;
                let steps = &mut explanation.steps;
                steps.extend(own_steps.into_iter().filter(|step| !steps.contains(step)).collect::<Vec<_>>());
                Some(seen).filter(|seen| !seen.as_ref().is_ok_and(|(a, b)| *a == from && b == to.as_str()))
            }
            _ => None,
        };
        let route = found.map(|(hop, why)| (relayed(&settings.rules, &hop), named_by(&settings.rules, &why)));
        let is_by_rule = matches!(kind, Kind::Redirected | Kind::Copy);
        let own_from = (is_by_rule && from != explanation.from).then(|| from.clone());
        targets.shown.push(Target { kind, from, own_from, to, route, seen });
    }
    targets
}

/// All addresses that get the mail.
fn leads(settings: &Settings, explanation: &Explanation, now: Ms) -> Vec<Lead> {
    let Explanation { decision, from, to, by_content, .. } = explanation;
    let mut all = match &decision.outcome {
        _ if decision.marks.redirect.is_some() => Vec::new(),
        Outcome::Relay(hop) => {
            let by = decision.route.as_ref().unwrap_or(&DecisionReason::Mx).clone();
            vec![Lead { kind: Kind::Named, from: from.clone(), to: to.clone(), known: Some((hop.clone(), by)) }]
        }
        Outcome::Local(AddressClass::Alias(expansion)) => expanded(settings, from, expansion, by_content.as_ref(), now),
        _ => Vec::new(),
    };
    if decision.refusal().is_some() {
        return Vec::new();
    }
    let mut taken: HashSet<Address> = all.iter().map(|lead| lead.to.clone()).collect();
    for forward in &explanation.forwards {
        let senders = senders(settings, &forward.address, &forward.found, from, now);
        let kind = if forward.is_copy { Kind::Copy } else { Kind::Redirected };
        for (MailReader { to, .. }, from) in forward.found.people.iter().zip(senders) {
            // A copy to an address that already gets the mail is dropped.
            if !taken.insert(to.address.clone()) && forward.is_copy {
                continue;
            }
            let hop = to.route.hop.as_deref().cloned();
            let known = hop.map(|hop| (hop, DecisionReason::Address("[addresses] programs".into())));
            all.push(Lead { kind, from, to: to.address.clone(), known });
        }
    }
    all
}

/// The targets of an alias.
fn expanded(
    settings: &Settings,
    from: &str,
    expansion: &Expansion,
    by_content: Option<&(NextHop, DecisionReason)>,
    now: Ms,
) -> Vec<Lead> {
    let forwarder = settings.rules.forwarder(from, expansion.addresses.iter(), today(now));
    let sender = forwarder.map_or_else(|| from.to_owned(), |sender| sender.as_str().to_owned());
    let unowned = expansion.addresses.iter().map(|to| (sender.clone(), to));
    let owner = |owner: &Address| if from.is_empty() { String::new() } else { owner.as_str().to_owned() };
    let owned = expansion.owned.iter().flat_map(|(by, all)| all.iter().map(move |to| (owner(by), to)));
    // A rule on the content applies to all targets of an alias.
    let lead =
        |(from, to): (String, &Address)| Lead { kind: Kind::Target, from, to: to.clone(), known: by_content.cloned() };
    unowned.chain(owned).map(lead).collect()
}

fn is_lmtp(settings: &Settings, hop: &NextHop) -> bool {
    match hop {
        NextHop::Hosts(hosts) => hosts.iter().all(|host| host.lmtp),
        NextHop::Named(name) => settings.rules.hops.get(name).is_some_and(|hosts| hosts.iter().all(|host| host.lmtp)),
        NextHop::Mx | NextHop::Refuse(_) => false,
    }
}

async fn seen(settings: &Settings, from: &str, to: &str, steps: &mut Vec<Step>) -> Result<(String, String), Reply> {
    let sender =
        if from.is_empty() { None } else { generic_address(settings, from, AddressRole::Sender, Some(steps)).await? };
    let recipient = generic_address(settings, to, AddressRole::Recipient, Some(steps)).await?;
    let text = |new: Option<Address>, old: &str| new.map_or_else(|| old.to_owned(), |new| new.as_str().to_owned());
    Ok((text(sender, from), text(recipient, to)))
}

impl Target {
    /// The address and route, for comparison, of a target that the client did not name and that is not a copy.
    pub fn led_to(&self) -> Option<String> {
        let words = match &self.route {
            Ok((words, _)) => words.clone(),
            Err(reply) => refused(reply),
        };
        matches!(self.kind, Kind::Target | Kind::Redirected).then(|| format!("{}: {words}", self.to))
    }

    /// Lines for people: the route of a target that the client did not name, and what the host there sees.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.kind != Kind::Named {
            let copy = if self.kind == Kind::Copy { "copy to " } else { "" };
            let from = self.own_from.as_ref().map_or(String::new(), |from| format!("; from <{from}>"));
            lines.push(match &self.route {
                Ok((words, why)) => format!("{copy}{}: {words}, {why}{from}", self.to),
                Err(reply) => format!("{copy}{}: {}", self.to, refused(reply)),
            });
        }
        match &self.seen {
            Some(Ok((from, to))) => lines.push(format!("rewritten for other hosts: from <{from}> to <{to}>")),
            Some(Err(reply)) => lines.push(format!("{} waits: {reply}", self.to)),
            None => {}
        }
        lines
    }

    pub fn json(&self) -> Value {
        let seen = self.seen.as_ref().and_then(|seen| seen.as_ref().ok());
        json!({
            "from": self.from,
            "to": self.to.as_str(),
            "copy": self.kind == Kind::Copy,
            "route": self.route.as_ref().ok().map(|(words, _)| words),
            "route_because": self.route.as_ref().ok().map(|(_, why)| why),
            "refused": self.route.as_ref().err().map(ToString::to_string),
            "seen_from": seen.map(|(from, _)| from),
            "seen_to": seen.map(|(_, to)| to),
            "waits": self.seen.as_ref().and_then(|seen| seen.as_ref().err()).map(ToString::to_string),
        })
    }
}
