//! What docs/design/rules.md says of a world, read plainly: without the engine's sets and indexes, so that one mistake
//! is not made twice.

use std::collections::HashMap;

use super::world::{CLIENTS, HOPS, PATTERNS, Table, World};

/// Whether a pattern matches, read off the table of docs/design/rules.md.
fn matches(pattern: &str, address: &str) -> bool {
    let (local, domain) = address.split_once('@').unwrap_or((address, ""));
    let plain = local.split('+').next().unwrap_or(local);
    match pattern {
        "*" => true,
        "/^b@/" => address.starts_with("b@"),
        _ if address.is_empty() => false,
        _ if pattern.starts_with('.') => domain.ends_with(pattern),
        _ => match pattern.split_once('@') {
            None => domain == pattern,
            Some((user, "")) => user == local || user == plain,
            Some((user, at)) => at == domain && (user == local || user == plain),
        },
    }
}

/// The decision as the page has it: a line of text.
pub(super) fn expected(world: &World) -> String {
    let (from, to) = (world.sender(), world.recipient());
    let mut effects = RuleEffects::default();
    let mut waiting = Vec::new();
    for rule in &world.rules {
        let holds = rule.client.is_none_or(|client| client == world.client)
            && rule.sender.is_none_or(|pattern| matches(PATTERNS[pattern], from))
            && rule.recipient.is_none_or(|pattern| matches(PATTERNS[pattern], to));
        let actions: Vec<&str> = match (holds, rule.is_table()) {
            (false, _) => continue,
            (true, false) => rule.actions().collect(),
            (true, true) => match Table(world).has(to) {
                Ok(action) => action.into_iter().collect(),
                Err(()) => return format!("451 4.3.0{}", effects.marks()),
            },
        };
        if rule.not_sender.is_some_and(|pattern| matches(PATTERNS[pattern], from)) {
            continue;
        }
        if rule.waits() {
            waiting.push((rule, actions));
            continue;
        }
        effects.take(&actions);
        if effects.verdict.is_some() {
            break;
        }
    }
    let mut later = RuleEffects::default();
    for (rule, actions) in waiting {
        let holds = rule.content.is_none_or(|content| world.has(content));
        if holds && !rule.not_content.is_some_and(|content| world.has(content)) {
            later.take(&actions);
        }
        if later.verdict.is_some() {
            break;
        }
    }
    decided(world, &effects, &later)
}

/// What rules have said, in the words of their actions.
#[derive(Default)]
struct RuleEffects {
    verdict: Option<&'static str>,
    route: Option<&'static str>,
    class: Option<&'static str>,
    redirect: Option<&'static str>,
    hold: bool,
    bcc: bool,
}

impl RuleEffects {
    /// Takes the actions of a rule that holds; of those of one kind the first counts.
    fn take(&mut self, actions: &[&'static str]) {
        for action in actions {
            let (word, rest) = action.split_once(' ').unwrap_or((action, ""));
            match word {
                "hold" => self.hold = true,
                "bcc" => self.bcc = true,
                "dunno" => {}
                "route" => self.route = self.route.or(Some(rest)),
                "class" => self.class = self.class.or(Some(rest)),
                "redirect" => self.redirect = self.redirect.or(Some(rest)),
                _ => self.verdict = self.verdict.or(Some(action)),
            }
        }
    }

    /// In a fixed order.
    fn marks(&self) -> String {
        let mut all = String::new();
        all.push_str(if self.hold { " +hold" } else { "" });
        all.push_str(if self.bcc { " +bcc" } else { "" });
        all.extend(self.redirect.map(|to| format!(" +redirect {to}")));
        all.extend(self.class.map(|class| format!(" +class {class}")));
        all
    }

    fn refusal(&self) -> Option<&'static str> {
        let text = self.verdict?;
        text.strip_prefix("reject ").or(text.strip_prefix("defer ")).map(|reply| &reply[..9])
    }
}

/// The decision at RCPT, and what rules on the content change about it.
fn decided(world: &World, effects: &RuleEffects, later: &RuleEffects) -> String {
    let (from, to) = (world.sender(), world.recipient());
    let both = RuleEffects {
        verdict: None,
        route: None,
        class: effects.class.or(later.class),
        redirect: effects.redirect.or(later.redirect),
        hold: effects.hold || later.hold,
        bcc: effects.bcc || later.bcc,
    };
    let marks = both.marks();
    if let Some(reply) = effects.refusal() {
        return format!("{reply}{}", effects.marks());
    }
    let refused = later.refusal();
    let is_discarded = [effects.verdict, later.verdict].contains(&Some("discard"));
    if effects.verdict == Some("discard") {
        return refused.map_or(format!("discard{marks}"), |reply| format!("{reply}{marks}"));
    }
    let outcome = at_rcpt(world, from, to, effects);
    if outcome.starts_with(['4', '5']) && outcome.len() == 9 {
        // Nothing waits for the content of a recipient that is refused.
        return outcome + &effects.marks();
    }
    match (refused, is_discarded, later.route) {
        (Some(reply), _, _) => format!("{reply}{marks}"),
        (None, true, _) => format!("discard{marks}"),
        (None, false, Some(hop)) => format!("{}{marks}", shown(hop)),
        (None, false, None) => outcome + &marks,
    }
}

fn shown(hop: &str) -> &str {
    match hop {
        "error: 551 5.1.6 away" => "551 5.1.6",
        "10.1.1.1" => "10.1.1.1:25",
        hop => hop,
    }
}

/// What an address that no rule refuses is here, and its next hop.
fn at_rcpt(world: &World, from: &str, to: &str, effects: &RuleEffects) -> String {
    let (action, route) = (effects.verdict.unwrap_or_default(), effects.route);
    if to.ends_with("@local.test") {
        return "550 5.1.1".to_owned();
    }
    let trusted = CLIENTS[world.client].starts_with("10.");
    if !trusted && action != "relay" && !(world.relay_y && to.ends_with("@y.test")) {
        return "550 5.7.1".to_owned();
    }
    let most_specific = |entries: &[(usize, usize)], address: &str, any: bool| {
        let first: HashMap<usize, usize> = entries.iter().rev().map(|(pattern, hop)| (*pattern, *hop)).collect();
        let rank = |pattern: &str| match pattern {
            "*" => 0,
            text if text.starts_with('.') => text.len(),
            text if !text.contains('@') => 100,
            _ => 200,
        };
        let all = first.iter().filter(|(pattern, _)| (PATTERNS[**pattern] == "*") == any);
        let all = all.filter(|(pattern, _)| matches(PATTERNS[**pattern], address));
        all.max_by_key(|(pattern, _)| rank(PATTERNS[**pattern])).map(|(_, hop)| HOPS[*hop])
    };
    let mut order: Vec<usize> = Vec::new();
    if !world.order.contains(&0) {
        order.push(0);
    }
    order.extend(&world.order);
    order.extend((0..4).filter(|who| !world.order.contains(who) && *who != 0));
    let hop = order.iter().find_map(|who| match who {
        0 => route,
        1 => most_specific(&world.routes, to, false),
        2 => most_specific(&world.sender_routes, from, false).or(most_specific(&world.sender_routes, from, true)),
        _ => most_specific(&world.routes, to, true),
    });
    shown(hop.unwrap_or("mx")).to_owned()
}
