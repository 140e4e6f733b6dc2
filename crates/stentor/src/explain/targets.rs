//! Where the mail of a decision goes in the end: each address that the recipient stands for, its route, and what the host there sees.

use serde_json::{Value, json};
use stentor_addresses::Role;
use stentor_engine::clock::Clock;
use stentor_engine::core::Settings;
use stentor_engine::core::people::today;
use stentor_engine::delivery::generic_address;
use stentor_mail::address::Address;
use stentor_mail::reply::Reply;
use stentor_policy::Verdict;
use stentor_rules::{Decision, NextHop, Outcome, Why};
use stentor_sessions::{Speaker, route_of};

use super::Decided;
use super::words::{named_by, refused, relayed};

/// Targets whose routes are looked up.
const TARGETS_SHOWN_MAX: usize = 100;

/// One address that gets the mail.
pub(super) struct Target {
    from: String,
    to: Address,
    /// Its next hop in words, and what named it; else why it has none.
    route: Result<(String, String), Reply>,
    /// Sender and recipient as other hosts see them, if not as they are here.
    seen: Option<Result<(String, String), Reply>>,
}

/// Where a decision leads.
#[derive(Default)]
pub(super) struct Targets {
    pub shown: Vec<Target>,
    /// How many more there are.
    pub left: usize,
}

impl Targets {
    /// Of those that are shown.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        self.shown.iter().map(|target| target.to.domain())
    }
}

/// The first of them, in order; the look-ups of generic addresses join the steps.
pub(super) async fn targets(settings: &Settings, speaker: Speaker<'_>, decided: &mut Decided) -> Targets {
    let Decided { decision, steps, also, from, to, by_content, .. } = decided;
    let (mut all, mut left) = (Vec::new(), 0);
    let (key, now) = (settings.rules.key_of(from), Clock::start().now());
    let tables = settings.tables.questions_about(speaker.stranger.asker, None);
    match &decision.outcome {
        Outcome::Relay(_) | Outcome::Local(Verdict::Alias(_) | Verdict::List(_))
            if decision.marks.redirect.is_some() =>
        {
            let Some((to, _)) = &decision.marks.redirect else { return Targets::default() };
            match settings.readers_of(to, now).await {
                Ok(found) => {
                    if found.is_nobody() {
                        also.push(format!("the message is refused: nobody here has {to}"));
                    }
                    also.extend(
                        found.lists.iter().map(|list| format!("a post to list {list}, if its sender may post")),
                    );
                    also.extend(found.has_null.then(|| format!("taken and dropped: {to} stands for /dev/null")));
                    let people = found.people;
                    left = people.len().saturating_sub(TARGETS_SHOWN_MAX);
                    for one in people.into_iter().take(TARGETS_SHOWN_MAX) {
                        let found = route_of((settings, &tables), speaker, (&key, &one.address), now).await;
                        all.push((from.clone(), one.address, found));
                    }
                }
                Err(refused) => also.push(format!("the message is refused: {}", refused.reply())),
            }
        }
        Outcome::Relay(hop) => {
            let by = decision.route.as_ref().unwrap_or(&Why::Mx).clone();
            all.push((from.clone(), to.clone(), Ok((hop.clone(), by))));
        }
        Outcome::Local(Verdict::Alias(expansion)) => {
            let forwarder = settings.rules.forwarder(from, expansion.addresses.iter(), today(now));
            let sender = forwarder.map_or_else(|| from.clone(), |sender| sender.as_str().to_owned());
            let unowned = expansion.addresses.iter().map(|to| (sender.clone(), to));
            let owner = |owner: &Address| if from.is_empty() { String::new() } else { owner.as_str().to_owned() };
            let owned = expansion.owned.iter().flat_map(|(by, all)| all.iter().map(move |to| (owner(by), to)));
            left = expansion.everyone().count().saturating_sub(TARGETS_SHOWN_MAX);
            for (sender, to) in unowned.chain(owned).take(TARGETS_SHOWN_MAX) {
                // A rule on the content of an alias's mail holds for whoever gets it.
                let found = match by_content {
                    Some((hop, by)) => Ok((hop.clone(), by.clone())),
                    None => route_of((settings, &tables), speaker, (&key, to), now).await,
                };
                all.push((sender, to.clone(), found));
            }
        }
        _ => {}
    }
    let mut targets = Targets { left, ..Targets::default() };
    for (from, to, found) in all {
        let seen = match &found {
            Ok((hop, _)) if !is_lmtp(settings, hop) && !settings.rules.addresses.generic.is_empty() => {
                let (mut own_steps, pair) = (Vec::new(), (from.as_str(), to.as_str()));
                let seen = seen(settings, pair, &mut own_steps).await;
                steps.extend(own_steps.into_iter().filter(|step| !steps.contains(step)).collect::<Vec<_>>());
                Some(seen).filter(|seen| !seen.as_ref().is_ok_and(|(a, b)| (a.as_str(), b.as_str()) == pair))
            }
            _ => None,
        };
        let route = found.map(|(hop, why)| (relayed(&settings.rules, &hop), named_by(&settings.rules, &why)));
        targets.shown.push(Target { from, to, route, seen });
    }
    targets
}

fn is_lmtp(settings: &Settings, hop: &NextHop) -> bool {
    match hop {
        NextHop::Hosts(hosts) => hosts.iter().all(|host| host.lmtp),
        NextHop::Named(name) => settings.rules.hops.get(name).is_some_and(|hosts| hosts.iter().all(|host| host.lmtp)),
        NextHop::Mx | NextHop::Refuse(_) => false,
    }
}

async fn seen(
    settings: &Settings,
    (from, to): (&str, &str),
    steps: &mut Vec<stentor_rules::Step>,
) -> Result<(String, String), Reply> {
    let sender =
        if from.is_empty() { None } else { generic_address(settings, from, Role::Sender, Some(steps)).await? };
    let recipient = generic_address(settings, to, Role::Recipient, Some(steps)).await?;
    let text = |new: Option<Address>, old: &str| new.map_or_else(|| old.to_owned(), |new| new.as_str().to_owned());
    Ok((text(sender, from), text(recipient, to)))
}

impl Target {
    /// For people: the route of a target that was not named, and what is seen there.
    pub fn lines(&self, decision: &Decision) -> Vec<String> {
        let mut lines = Vec::new();
        if !matches!(decision.outcome, Outcome::Relay(_)) || decision.marks.redirect.is_some() {
            lines.push(match &self.route {
                Ok((words, why)) => format!("{}: {words}, {why}", self.to),
                Err(reply) => format!("{}: {}", self.to, refused(reply)),
            });
        }
        match &self.seen {
            Some(Ok((from, to))) => lines.push(format!("other hosts see from <{from}> to <{to}>")),
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
            "route": self.route.as_ref().ok().map(|(words, _)| words),
            "route_because": self.route.as_ref().ok().map(|(_, why)| why),
            "refused": self.route.as_ref().err().map(ToString::to_string),
            "seen_from": seen.map(|(from, _)| from),
            "seen_to": seen.map(|(_, to)| to),
            "waits": self.seen.as_ref().and_then(|seen| seen.as_ref().err()).map(ToString::to_string),
        })
    }
}
