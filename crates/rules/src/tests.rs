//! Random worlds: what the engine decides, what it says when it explains, and what a plain reading of docs/design/rules.md
//! gives are the same. Written without the engine's sets and indexes, so that one mistake is not made twice.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use proptest::prelude::*;
use stentor_mail::address::Address;
use stentor_policy::{Policy, PolicyInput};

use crate::book::RelayDomains;
use crate::decision::Outcome;
use crate::facts::Subject;
use crate::rule::{Does, TableName};
use crate::*;

const ADDRESSES: [&str; 6] = ["a@x.test", "a+d@x.test", "b@x.test", "a@s.x.test", "b@y.test", "c@local.test"];
const PATTERNS: [&str; 8] = ["a@x.test", "x.test", ".x.test", "a@", "y.test", "b@y.test", "*", "/^b@/"];
const CLIENTS: [&str; 3] = ["10.0.0.1", "192.0.2.1", "2001:db8::1"];
const ACTIONS: [&str; 10] = [
    "ok",
    "relay",
    "reject 550 5.7.9 no",
    "defer 451 4.7.9 later",
    "discard",
    "hold x",
    "bcc copy@z.test",
    "route 10.1.1.1",
    "route hop:gate",
    "dunno",
];
const HOPS: [&str; 3] = ["10.2.2.2:25", "mx", "error: 551 5.1.6 away"];

#[derive(Debug, Clone)]
struct RuleOf {
    client: Option<usize>,
    sender: Option<usize>,
    recipient: Option<usize>,
    not_sender: Option<usize>,
    table: bool,
    action: usize,
}

#[derive(Debug, Clone)]
struct World {
    rules: Vec<RuleOf>,
    order: Vec<usize>,
    routes: Vec<(usize, usize)>,
    sender_routes: Vec<(usize, usize)>,
    relay_y: bool,
    /// What the table has for each of [`ADDRESSES`]; of index 7 it cannot be asked.
    table: Vec<Option<usize>>,
    client: usize,
    sender: usize,
    recipient: usize,
}

fn worlds() -> impl Strategy<Value = World> {
    let rule = (
        proptest::option::of(0..CLIENTS.len()),
        proptest::option::of(0..PATTERNS.len()),
        proptest::option::of(0..PATTERNS.len()),
        proptest::option::of(0..PATTERNS.len()),
        proptest::bool::weighted(0.3),
        0..ACTIONS.len(),
    );
    let rule = rule.prop_map(|(client, sender, recipient, not_sender, table, action)| RuleOf {
        client,
        sender,
        recipient,
        not_sender,
        table,
        action,
    });
    // `user@` and expressions are no routes.
    let entry = || proptest::collection::vec((prop_oneof![0..3_usize, 4..7_usize], 0..HOPS.len()), 0..4);
    let order = Just((0..4_usize).collect::<Vec<_>>()).prop_shuffle();
    (
        proptest::collection::vec(rule, 0..6),
        (order, 0..=4_usize).prop_map(|(order, len)| order[..len].to_vec()),
        entry(),
        entry(),
        any::<bool>(),
        proptest::collection::vec(proptest::option::of(0..ACTIONS.len() + 1), ADDRESSES.len()),
        0..CLIENTS.len(),
        0..=ADDRESSES.len(),
        0..ADDRESSES.len(),
    )
        .prop_map(|(rules, order, routes, sender_routes, relay_y, table, client, sender, recipient)| World {
            rules,
            order,
            routes,
            sender_routes,
            relay_y,
            table,
            client,
            sender,
            recipient,
        })
}

impl World {
    fn sender(&self) -> &'static str {
        ADDRESSES.get(self.sender).copied().unwrap_or("")
    }

    fn recipient(&self) -> &'static str {
        ADDRESSES[self.recipient]
    }
}

/// The table of a world: keys are whole addresses.
struct Table<'w>(&'w World);

impl Table<'_> {
    /// `Err`: it cannot be asked.
    fn has(&self, address: &str) -> Result<Option<&'static str>, ()> {
        match ADDRESSES.iter().position(|own| *own == address).and_then(|at| self.0.table[at]) {
            None => Ok(None),
            Some(at) => ACTIONS.get(at).map(|action| Some(*action)).ok_or(()),
        }
    }
}

impl Tables for Table<'_> {
    fn include(&self, _: TableId, _: &str) -> Answer {
        Answer::NotFound
    }

    fn ask(&self, _: TableId, _: Field, subject: Subject<'_>) -> Answer {
        let Subject::Address(key) = subject else { return Answer::NotFound };
        match self.has(key.as_str()) {
            Ok(Some(value)) => {
                Answer::Found(Found { value: value.to_owned(), key: key.as_str().to_owned(), place: String::new() })
            }
            Ok(None) => Answer::NotFound,
            Err(()) => Answer::Unavailable("down".to_owned()),
        }
    }
}

fn routes(entries: &[(usize, usize)]) -> Routes {
    let mut routes = Routes::default();
    for (pattern, hop) in entries {
        let text = PATTERNS[*pattern];
        let entry = RouteEntry { pattern: text.into(), place: "".into(), hop: NextHop::parse(HOPS[*hop], 25).unwrap() };
        // One that is there twice stays as it was first.
        if !has(entries, *pattern, *hop) {
            continue;
        }
        let _ = routes.insert(&AddressPattern::parse(text).unwrap(), entry);
    }
    routes
}

/// Whether this is the first entry of its pattern.
fn has(entries: &[(usize, usize)], pattern: usize, hop: usize) -> bool {
    entries.iter().find(|(other, _)| *other == pattern).is_some_and(|(_, first)| *first == hop)
}

fn book(world: &World) -> Rulebook {
    let policy = Policy::new(PolicyInput {
        hostname: "mx.local.test".to_owned(),
        client_networks: vec!["10.0.0.0/8".parse().unwrap()],
        local_domains: vec!["local.test".to_owned()],
        ..PolicyInput::default()
    });
    let rules = world.rules.iter().map(|rule| {
        let (mut when, mut unless) = (Conditions::default(), Conditions::default());
        if let Some(client) = rule.client {
            when.client(ClientPattern::parse(CLIENTS[client]).unwrap());
        }
        if let Some(pattern) = rule.sender {
            when.sender(AddressPattern::parse(PATTERNS[pattern]).unwrap());
        }
        if let Some(pattern) = rule.recipient {
            when.recipient(AddressPattern::parse(PATTERNS[pattern]).unwrap());
        } else if rule.table {
            when.table(Field::Recipient, TableId(0));
        }
        if let Some(pattern) = rule.not_sender {
            unless.sender(AddressPattern::parse(PATTERNS[pattern]).unwrap());
        }
        let does = if rule.is_table() {
            Does::Table
        } else {
            Does::Actions(vec![Action::parse(ACTIONS[rule.action], 25).unwrap()])
        };
        Rule { name: None, place: "".into(), when, unless, does }
    });
    let order: Vec<Who> = world.order.iter().map(|at| Who::ALL[*at].0).collect();
    let mut relay_domains = RelayDomains::default();
    if world.relay_y {
        relay_domains.add(AddressPattern::parse("y.test").unwrap());
    }
    Rulebook::new(Book {
        policy: Arc::new(policy.unwrap()),
        rules: rules.collect(),
        tables: vec![TableName { name: "t".into(), dialect: Dialect::Own }],
        hops: HashMap::new(),
        relay_domains,
        addresses: Addresses::default(),
        order: Order::new(&order).unwrap(),
        by_recipient: routes(&world.routes),
        by_sender: routes(&world.sender_routes),
        recipient_tables: Vec::new(),
        sender_tables: Vec::new(),
        smtp_port: 25,
    })
}

impl RuleOf {
    fn is_table(&self) -> bool {
        self.table && self.recipient.is_none()
    }
}

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
fn expected(world: &World) -> String {
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_engine_and_its_explanation_and_the_page_agree(world in worlds()) {
        let book = book(&world);
        let client: IpAddr = CLIENTS[world.client].parse().unwrap();
        let address: Address = world.recipient().parse().unwrap();
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
        is_trusted: CLIENTS[world.client].starts_with("10."),
        };
        let table = Table(&world);
        let decided = book.decide(&facts, &table, None).unwrap();
        let mut steps = Vec::new();
        let explained = book.decide(&facts, &table, Some(&mut steps)).unwrap();
        prop_assert_eq!(&decided, &explained);
        prop_assert_eq!(shown(&decided), expected(&world));
        // What the steps say is what was decided.
        let said = |text: &str| steps.iter().any(|step| step.answer.contains(text));
        match &decided.outcome {
            Outcome::Relay(NextHop::Mx) if decided.route == Some(Why::Mx) => {
                prop_assert!(steps.iter().filter(|step| step.asked.starts_with("routes:")).all(|step| step.answer == "no next hop"));
            }
            Outcome::Relay(hop) => {
                let text = format!("next hop {hop}");
                prop_assert!(said(&text), "{}", text);
            }
            Outcome::Refuse(reply) if reply.code != 451 || !said("cannot be asked") => {
                let text = reply.to_string();
                prop_assert!(said(&text), "{} in {:?}", text, steps);
            }
            Outcome::Discard(_) => prop_assert!(said("yes: discard")),
            Outcome::Refuse(_) | Outcome::Local(_) => {}
        }
    }
}
