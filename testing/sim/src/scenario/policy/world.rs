//! Random worlds of rules, routes, one table and a message's subject, and the rulebook of each. Whatever is parsed here
//! is one of the constants below, so that an `unwrap` is a mistake in them.

use std::collections::HashMap;
use std::sync::Arc;

use fastrand::Rng;
use stentor_policy::{Policy, PolicyInput};
use stentor_rules::{
    AddressPattern, Addresses, AuthTest, Book, ClientPattern, Conditions, Dialect, Field, HopSource, HopSourceOrder,
    IncludeError, Included, LookupResult, Matcher, NextHop, RelayDomains, RouteEntry, Routes, Rule, RuleAction,
    RuleEffect, Rulebook, Subject, TableEntry, TableId, TableName, Tables, Test,
};

pub(super) const ADDRESSES: [&str; 6] =
    ["a@x.test", "a+d@x.test", "b@x.test", "a@s.x.test", "b@y.test", "c@local.test"];
pub(super) const PATTERNS: [&str; 8] = ["a@x.test", "x.test", ".x.test", "a@", "y.test", "b@y.test", "*", "/^b@/"];
pub(super) const CLIENTS: [&str; 3] = ["10.0.0.1", "192.0.2.1", "2001:db8::1"];
pub(super) const ACTIONS: [&str; 14] = [
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
    "class bulk",
    "class ordinary",
    "redirect one@x.test",
    "redirect two@x.test",
];
/// What a message may have as its subject, and as a result of authentication.
pub(super) const SUBJECTS: [&str; 3] = ["offer", "invoice", "hello"];
pub(super) const AUTH: [&str; 2] = ["spf=fail", "spf=pass"];
pub(super) const AUTHSERV_ID: &str = "mx.local.test";
pub(super) const HOPS: [&str; 3] = ["10.2.2.2:25", "mx", "error: 551 5.1.6 away"];

#[derive(Debug, Clone)]
pub(super) struct RuleOf {
    pub(super) client: Option<usize>,
    pub(super) sender: Option<usize>,
    pub(super) recipient: Option<usize>,
    pub(super) not_sender: Option<usize>,
    pub(super) table: bool,
    /// In their order.
    pub(super) actions: Vec<usize>,
    /// What the subject has to be, or the result of authentication, behind the subjects.
    pub(super) content: Option<usize>,
    pub(super) not_content: Option<usize>,
}

#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) rules: Vec<RuleOf>,
    pub(super) order: Vec<usize>,
    pub(super) routes: Vec<(usize, usize)>,
    pub(super) sender_routes: Vec<(usize, usize)>,
    pub(super) relay_y: bool,
    /// What the table has for each of [`ADDRESSES`]; of index 7 it cannot be asked.
    pub(super) table: Vec<Option<usize>>,
    pub(super) client: usize,
    pub(super) sender: usize,
    pub(super) recipient: usize,
    pub(super) subject: usize,
    pub(super) auth: usize,
}

impl World {
    pub(super) fn new(seed: u64) -> World {
        let rng = &mut Rng::with_seed(seed);
        let maybe = |rng: &mut Rng, of: usize| rng.bool().then(|| rng.usize(..of));
        let is_content = rng.bool();
        let rule = |rng: &mut Rng| RuleOf {
            client: maybe(rng, CLIENTS.len()),
            sender: maybe(rng, PATTERNS.len()),
            recipient: maybe(rng, PATTERNS.len()),
            not_sender: maybe(rng, PATTERNS.len()),
            table: rng.f32() < 0.3,
            actions: (0..=rng.usize(..3)).map(|_| rng.usize(..ACTIONS.len())).collect(),
            content: maybe(rng, SUBJECTS.len() + AUTH.len()).filter(|_| is_content),
            not_content: maybe(rng, SUBJECTS.len() + AUTH.len()).filter(|_| is_content),
        };
        let rules = (0..rng.usize(..6)).map(|_| rule(rng)).collect();
        // `user@` and expressions are no routes.
        let entry = |rng: &mut Rng| ([0, 1, 2, 4, 5, 6][rng.usize(..6)], rng.usize(..HOPS.len()));
        let routes = (0..rng.usize(..4)).map(|_| entry(rng)).collect();
        let sender_routes = (0..rng.usize(..4)).map(|_| entry(rng)).collect();
        let mut order: Vec<usize> = (0..4).collect();
        rng.shuffle(&mut order);
        order.truncate(rng.usize(..=4));
        World {
            rules,
            order,
            routes,
            sender_routes,
            relay_y: rng.bool(),
            table: ADDRESSES.iter().map(|_| maybe(rng, ACTIONS.len() + 1)).collect(),
            client: rng.usize(..CLIENTS.len()),
            sender: rng.usize(..=ADDRESSES.len()),
            recipient: rng.usize(..ADDRESSES.len()),
            subject: rng.usize(..SUBJECTS.len()),
            auth: rng.usize(..AUTH.len()),
        }
    }

    pub(super) fn sender(&self) -> &'static str {
        ADDRESSES.get(self.sender).copied().unwrap_or("")
    }

    pub(super) fn recipient(&self) -> &'static str {
        ADDRESSES[self.recipient]
    }

    /// Whether the message has what a rule asks of its content.
    pub(super) fn has(&self, content: usize) -> bool {
        content == self.subject || content == SUBJECTS.len() + self.auth
    }

    pub(super) fn message(&self) -> String {
        format!(
            "Authentication-Results: {AUTHSERV_ID}; {}\r\nSubject: {}\r\n\r\nx\r\n",
            AUTH[self.auth], SUBJECTS[self.subject]
        )
    }
}

/// The table of a world: keys are whole addresses.
pub(super) struct Table<'w>(pub(super) &'w World);

impl Table<'_> {
    /// `Err`: it cannot be asked.
    pub(super) fn has(&self, address: &str) -> Result<Option<&'static str>, ()> {
        match ADDRESSES.iter().position(|own| *own == address).and_then(|at| self.0.table[at]) {
            None => Ok(None),
            Some(at) => ACTIONS.get(at).map(|action| Some(*action)).ok_or(()),
        }
    }
}

impl Tables for Table<'_> {
    fn include(&self, _: TableId, _: &str, _: Option<u32>) -> Option<Result<Arc<Included>, IncludeError>> {
        None
    }

    fn ask(&self, _: TableId, _: Field, subject: Subject<'_>) -> LookupResult {
        let Subject::Address(key) = subject else { return LookupResult::NotFound };
        match self.has(key.as_str()) {
            Ok(Some(value)) => LookupResult::Found(TableEntry {
                value: value.to_owned(),
                key: key.as_str().to_owned(),
                place: String::new(),
            }),
            Ok(None) => LookupResult::NotFound,
            Err(()) => LookupResult::Unavailable("down".to_owned()),
        }
    }
}

pub(super) fn routes(entries: &[(usize, usize)]) -> Routes {
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
pub(super) fn has(entries: &[(usize, usize)], pattern: usize, hop: usize) -> bool {
    entries.iter().find(|(other, _)| *other == pattern).is_some_and(|(_, first)| *first == hop)
}

pub(super) fn book(world: &World) -> Rulebook {
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
        for (conditions, content) in [(&mut when, rule.content), (&mut unless, rule.not_content)] {
            match content.filter(|_| rule.waits()) {
                Some(at) if at < SUBJECTS.len() => {
                    conditions.content.add("subject", vec![Test::subject(SUBJECTS[at]).unwrap()]);
                }
                Some(at) => {
                    let test = Test::Auth(AuthTest::parse(AUTH[at - SUBJECTS.len()]).unwrap());
                    conditions.content.add("auth", vec![test]);
                }
                None => {}
            }
        }
        let does = if rule.is_table() {
            RuleEffect::Table
        } else {
            RuleEffect::Actions(rule.actions().map(|action| RuleAction::parse(action, 25).unwrap()).collect())
        };
        Rule { name: None, place: "".into(), when, unless, does, is_warning: false }
    });
    let order: Vec<HopSource> = world.order.iter().map(|at| HopSource::ALL[*at].0).collect();
    let mut relay_domains = RelayDomains::default();
    if world.relay_y {
        relay_domains.add(AddressPattern::parse("y.test").unwrap());
    }
    let mut rules: Vec<Rule> = rules.collect();
    let conditions = rules.iter_mut().flat_map(|rule| [&mut rule.when.content, &mut rule.unless.content]);
    let content = Matcher::new(conditions).unwrap();
    Rulebook::new(Book {
        content: Arc::new(content),
        policy: Arc::new(policy.unwrap()),
        rules,
        dns_lists: Vec::new().into(),
        tables: vec![TableName { name: "t".into(), dialect: Dialect::Own }],
        hops: HashMap::new(),
        relay_domains,
        addresses: Addresses::default(),
        order: HopSourceOrder::new(&order).unwrap(),
        by_recipient: routes(&world.routes),
        by_sender: routes(&world.sender_routes),
        recipient_tables: Vec::new(),
        sender_tables: Vec::new(),
        smtp_port: 25,
    })
}

impl RuleOf {
    pub(super) fn is_table(&self) -> bool {
        self.table && self.recipient.is_none()
    }

    /// It is asked at the end of the data. A table's value would come too late.
    pub(super) fn waits(&self) -> bool {
        !self.is_table() && (self.content.is_some() || self.not_content.is_some())
    }

    /// Who may relay is decided at RCPT.
    pub(super) fn actions(&self) -> impl Iterator<Item = &'static str> {
        let waits = self.waits();
        self.actions
            .iter()
            .map(|at| ACTIONS[*at])
            .map(move |action| if waits && action == "relay" { "ok" } else { action })
    }
}
