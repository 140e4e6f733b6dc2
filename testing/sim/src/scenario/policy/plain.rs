//! What docs/design/rules.md says of a world, read plainly: without the engine's sets and indexes, so that one mistake is not made
//! twice.

use std::collections::HashMap;

use super::world::{ACTIONS, CLIENTS, HOPS, PATTERNS, Table, World};

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
    let (mut verdict, mut route, mut marks): (Option<(&str, usize)>, Option<&str>, String) = Default::default();
    for (at, rule) in world.rules.iter().enumerate() {
        let holds = rule.client.is_none_or(|client| client == world.client)
            && rule.sender.is_none_or(|pattern| matches(PATTERNS[pattern], from))
            && rule.recipient.is_none_or(|pattern| matches(PATTERNS[pattern], to));
        let action = match (holds, rule.is_table()) {
            (false, _) => continue,
            (true, false) => Some(ACTIONS[rule.action]),
            (true, true) => match Table(world).has(to) {
                Ok(action) => action,
                Err(()) => return format!("451 4.3.0{marks}"),
            },
        };
        if rule.not_sender.is_some_and(|pattern| matches(PATTERNS[pattern], from)) {
            continue;
        }
        let Some(action) = action else { continue };
        let (word, rest) = action.split_once(' ').unwrap_or((action, ""));
        match word {
            "hold" if !marks.contains("hold") => marks.push_str(" +hold"),
            "bcc" if !marks.contains("bcc") => marks.push_str(" +bcc"),
            "dunno" | "hold" | "bcc" => {}
            "route" => route = route.or(Some(rest)),
            _ => {
                verdict = Some((action, at));
                break;
            }
        }
    }
    // Marks are shown in a fixed order.
    let marks =
        ["hold", "bcc"].iter().filter(|mark| marks.contains(*mark)).fold(String::new(), |all, mark| all + " +" + mark);
    let action = verdict.map_or("", |(action, _)| action);
    if let Some(text) = action.strip_prefix("reject ").or(action.strip_prefix("defer ")) {
        return format!("{}{marks}", &text[..9]);
    }
    if action == "discard" {
        return format!("discard{marks}");
    }
    if to.ends_with("@local.test") {
        return format!("550 5.1.1{marks}");
    }
    let trusted = CLIENTS[world.client].starts_with("10.");
    if !trusted && action != "relay" && !(world.relay_y && to.ends_with("@y.test")) {
        return format!("550 5.7.1{marks}");
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
    match hop.unwrap_or("mx") {
        "error: 551 5.1.6 away" => format!("551 5.1.6{marks}"),
        "10.1.1.1" => format!("10.1.1.1:25{marks}"),
        hop => format!("{hop}{marks}"),
    }
}
