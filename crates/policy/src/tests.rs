//! Tests of the whole policy: classes, implied addresses, expansion, errors, and that it is never an open relay.

use std::net::IpAddr;

use proptest::prelude::*;
use stentor_lists::commands::{JoinPolicy, ListCommand};
use stentor_mail::address::Address;

use crate::{ALIAS_DEPTH_MAX, AddressClass, AliasInput, ListInput, Policy, PolicyInput, PolicyReason};

const INSIDE: &str = "127.0.0.1";
const OUTSIDE: &str = "192.0.2.7";

fn address(text: &str) -> Address {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn alias(from: &str, to: &[&str]) -> AliasInput {
    AliasInput { address: address(from), targets: to.iter().map(|text| address(text)).collect() }
}

fn list(name: &str, at: &str, owner: Option<&str>) -> ListInput {
    let (local, domain) = at.split_once('@').unwrap();
    let bounces = address(&format!("{local}-bounces@{domain}"));
    ListInput { name: name.into(), address: address(at), bounces, owner: owner.map(address), commands: None }
}

fn input() -> PolicyInput {
    PolicyInput {
        hostname: "mx.example.org".into(),
        client_networks: vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()],
        local_domains: vec!["example.org".into()],
        postmaster: Some(address("root@admin.example")),
        lists: vec![list("news", "news@lists.example.org", Some("ann@people.example"))],
        aliases: vec![
            alias("team@example.org", &["ann@people.example", "inner@example.org", "news@lists.example.org"]),
            alias("inner@example.org", &["bob@people.example", "ann@people.example"]),
        ],
        has_tables: false,
        routed: Vec::new(),
    }
}

#[test]
fn an_address_with_a_detail_is_what_it_is_without_it_unless_it_has_its_own_entry() {
    let mut input = input();
    input.aliases.push(alias("team+own@example.org", &["own@people.example"]));
    input.aliases.push(alias("all@example.org", &["team+own@example.org", "news+x@lists.example.org"]));
    let policy = Policy::new(input).unwrap();
    let same = |a: &str, b: &str| {
        for client in [INSIDE, OUTSIDE] {
            assert_eq!(policy.rcpt(ip(client), &address(a)), policy.rcpt(ip(client), &address(b)), "{a} {b}");
        }
    };
    for (with, without) in [
        ("team+x@example.org", "team@example.org"),
        ("TEAM+X+y@Example.ORG", "team@example.org"),
        ("\"team+a b\"@example.org", "team@example.org"),
        ("team+own+x@example.org", "team@example.org"),
        ("news+x@lists.example.org", "news@lists.example.org"),
        ("news-bounces+ann=x.test@lists.example.org", "news-bounces@lists.example.org"),
        ("news-owner+x@lists.example.org", "news-owner@lists.example.org"),
        ("owner-news+x@lists.example.org", "owner-news@lists.example.org"),
        ("postmaster+x@example.org", "postmaster@example.org"),
        // These addresses do not exist.
        ("nobody+x@example.org", "nobody@example.org"),
        ("+team@example.org", "nobody@example.org"),
        ("team-x@example.org", "nobody@example.org"),
    ] {
        same(with, without);
    }
    let of = |to: &str| match policy.rcpt(ip(OUTSIDE), &address(to)) {
        AddressClass::Alias(to) => {
            to.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",") + &to.lists.join(",")
        }
        other => format!("{other:?}"),
    };
    assert_eq!(of("team+own@example.org"), "own@people.example");
    assert_eq!(of("all@example.org"), "own@people.examplenews");
    assert!(
        policy.is_implied(&address("postmaster+x@example.org")) && !policy.is_by_base(&address("team+own@example.org"))
    );
}

fn class(client: &str, recipient: &str) -> String {
    let policy = Policy::new(input()).unwrap();
    match policy.rcpt(ip(client), &address(recipient)) {
        AddressClass::List(name) => format!("list {name}"),
        AddressClass::Bounces(name) => format!("bounces {name}"),
        AddressClass::Command { list, command } => format!("{} {list}", command.word()),
        AddressClass::Relay => "relay".into(),
        AddressClass::Refuse(reply) => reply.to_string(),
        AddressClass::Alias(to) => {
            let mut all: Vec<String> = to.addresses.iter().map(ToString::to_string).collect();
            all.extend(to.lists.iter().map(|name| format!("list {name}")));
            all.join(", ")
        }
    }
}

fn errors(change: impl FnOnce(&mut PolicyInput)) -> Vec<String> {
    let mut input = input();
    change(&mut input);
    Policy::new(input).err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

#[test]
fn lists_and_aliases_are_for_everyone() {
    for client in [INSIDE, OUTSIDE] {
        assert_eq!(class(client, "news@lists.example.org"), "list news");
        assert_eq!(class(client, "NEWS@LISTS.example.ORG"), "list news");
        assert_eq!(class(client, "Team@example.org"), "ann@people.example, bob@people.example, list news");
        assert_eq!(class(client, "news-bounces@lists.example.org"), "bounces news");
        assert_eq!(class(client, "news-owner@lists.example.org"), "ann@people.example");
        assert_eq!(class(client, "owner-news@lists.example.org"), "ann@people.example");
    }
}

#[test]
fn postmaster_is_there_in_every_local_domain() {
    for domain in ["example.org", "lists.example.org", "mx.example.org"] {
        assert_eq!(class(OUTSIDE, &format!("Postmaster@{domain}")), "root@admin.example");
    }
}

/// Tables take precedence over implied addresses, so the target of an alias is kept until they are looked up.
#[test]
fn what_nobody_named_is_left_to_tables() {
    let mut input = input();
    input.lists.push(list("free", "free@lists.example.org", None));
    input.aliases.push(alias("abuse@example.org", &["postmaster@example.org"]));
    let expanded = |policy: &Policy| match policy.rcpt(ip(OUTSIDE), &address("abuse@example.org")) {
        AddressClass::Alias(to) => to.addresses.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(expanded(&Policy::new(input.clone()).unwrap()), [address("root@admin.example")]);
    input.has_tables = true;
    let policy = Policy::new(input.clone()).unwrap();
    assert_eq!(expanded(&policy), [address("postmaster@example.org")]);
    let is_implied = |text: &str| policy.is_implied(&address(text));
    assert!(is_implied("PostMaster@example.org") && is_implied("free-owner@lists.example.org"));
    for named in ["news-owner@lists.example.org", "abuse@example.org", "news-bounces@lists.example.org", "x@y.example"]
    {
        assert!(!is_implied(named), "{named}");
    }
    assert_eq!(policy.postmaster(), Some(&address("root@admin.example")));
    input.postmaster = Some(address("postmaster@example.org"));
    let policy = Policy::new(input).unwrap();
    assert!(!policy.is_implied(&address("postmaster@example.org")), "tables have it, or nobody");
}

#[test]
fn without_a_postmaster_the_first_owner_is_one() {
    let mut input = input();
    input.postmaster = None;
    let policy = Policy::new(input).unwrap();
    let AddressClass::Alias(to) = policy.rcpt(ip(OUTSIDE), &address("postmaster@example.org")) else { panic!() };
    assert_eq!(to.addresses, [address("ann@people.example")]);
}

#[test]
fn unknown_local_addresses_are_refused_even_to_trusted_clients() {
    for client in [INSIDE, OUTSIDE] {
        for recipient in ["nobody@example.org", "nobody@lists.example.org", "nobody@mx.example.org"] {
            assert!(class(client, recipient).starts_with("550 5.1.1"), "{client} {recipient}");
        }
    }
}

#[test]
fn only_client_networks_relay() {
    assert_eq!(class(INSIDE, "x@elsewhere.example"), "relay");
    assert_eq!(class("::1", "x@elsewhere.example"), "relay");
    assert_eq!(class("::ffff:127.0.0.1", "x@elsewhere.example"), "relay");
    assert!(class(OUTSIDE, "x@elsewhere.example").starts_with("550 5.7.1"));
    assert!(class("::ffff:192.0.2.7", "x@elsewhere.example").starts_with("550 5.7.1"));
    assert!(class(OUTSIDE, "x@[127.0.0.1]").starts_with("550 5.7.1"));
    assert!(class(OUTSIDE, "x@sub.example.org").starts_with("550 5.7.1"));
}

#[test]
fn relay_forms_are_refused_to_everyone() {
    for client in [INSIDE, OUTSIDE] {
        for recipient in ["a%elsewhere.example@example.org", "elsewhere!a@example.org", "\"a@b.example\"@c.example"] {
            assert!(class(client, recipient).starts_with("550 5.7.1"), "{client} {recipient}");
        }
    }
}

#[test]
fn an_alias_or_list_beats_what_is_implied() {
    let mut input = input();
    input.aliases.push(alias("news-bounces@lists.example.org", &["verp@bounces.example"]));
    input.aliases.push(alias("postmaster@example.org", &["pm@people.example"]));
    let policy = Policy::new(input).unwrap();
    for (recipient, target) in
        [("news-bounces@lists.example.org", "verp@bounces.example"), ("postmaster@example.org", "pm@people.example")]
    {
        let AddressClass::Alias(to) = policy.rcpt(ip(OUTSIDE), &address(recipient)) else { panic!() };
        assert_eq!(to.addresses, [address(target)]);
    }
}

#[test]
fn a_list_takes_commands_at_addresses_that_nothing_else_has() {
    let mut input = input();
    input.lists[0].commands = Some(JoinPolicy::Open);
    input.aliases.push(alias("news-leave@lists.example.org", &["ann@people.example"]));
    input.lists.push(ListInput { commands: Some(JoinPolicy::Closed), ..list("dev", "dev@example.org", None) });
    let policy = Policy::new(input.clone()).unwrap();
    let class = |text: &str| policy.rcpt(ip(OUTSIDE), &address(text));
    for (text, list, command) in [
        ("news-join@lists.example.org", "news", ListCommand::Join),
        ("News-Subscribe@lists.example.org", "news", ListCommand::Join),
        ("news+join@lists.example.org", "news", ListCommand::Join),
        ("news+leave@lists.example.org", "news", ListCommand::Leave),
        ("news-unsubscribe@lists.example.org", "news", ListCommand::Leave),
        ("news-confirm+0123@lists.example.org", "news", ListCommand::Confirm),
        ("news-request@lists.example.org", "news", ListCommand::Request),
        ("dev-leave@example.org", "dev", ListCommand::Leave),
    ] {
        assert_eq!(class(text), AddressClass::Command { list: list.into(), command }, "{text}");
        assert!(policy.is_implied(&address(text)), "{text}");
    }
    assert!(matches!(class("news-leave@lists.example.org"), AddressClass::Alias(_)), "an alias takes precedence");
    assert_eq!(class("news+x@lists.example.org"), AddressClass::List("news".into()));
    let closed = policy.decide(ip(OUTSIDE), &address("dev-join@example.org"));
    assert_eq!(closed.why, PolicyReason::ClosedList);
    assert!(closed.to_string().starts_with("refuse with 550 5.7.1 This list is closed"), "{closed}");
    let request = policy.decide(ip(OUTSIDE), &address("news-request@lists.example.org"));
    assert_eq!(request.to_string(), "command to list news: request: it takes commands to a list");

    input.aliases.push(alias("all@example.org", &["news-join@lists.example.org"]));
    let errors = Policy::new(input).unwrap_err();
    assert!(errors[0].message.contains("takes commands to list `news`"), "{errors:?}");
    let plain = Policy::new(self::input()).unwrap();
    assert!(matches!(plain.rcpt(ip(OUTSIDE), &address("news-join@lists.example.org")), AddressClass::Refuse(_)));
}

#[test]
fn a_decision_explains_itself() {
    let policy = Policy::new(input()).unwrap();
    let decision = policy.decide(ip(INSIDE), &address("x@elsewhere.example"));
    assert_eq!(decision.to_string(), "relay: its domain is not local, and the client is in client network 127.0.0.0/8");
    assert_eq!(policy.decide(ip(OUTSIDE), &address("x@elsewhere.example")).why, PolicyReason::ClientOutside);
    let decision = policy.decide(ip(OUTSIDE), &address("team@example.org"));
    assert_eq!(decision.to_string(), "alias of 2 addresses and 1 lists: it is an alias");
}

#[test]
fn alias_loops_are_found() {
    let found = errors(|input| {
        input.aliases.push(alias("a@example.org", &["b@example.org", "out@people.example"]));
        input.aliases.push(alias("b@example.org", &["C@example.org"]));
        input.aliases.push(alias("c@example.org", &["a@example.org"]));
        input.aliases.push(alias("self@example.org", &["self@example.org"]));
    });
    assert_eq!(
        found,
        [
            "alias loop: `a@example.org` -> `b@example.org` -> `c@example.org` -> `a@example.org`",
            "alias loop: `self@example.org` -> `self@example.org`"
        ]
    );
}

#[test]
fn wrong_targets_are_found() {
    let found = errors(|input| {
        input.aliases.push(alias("a@example.org", &["nobody@example.org"]));
        input.aliases.push(alias("b@example.org", &["news-bounces@lists.example.org"]));
        input.aliases.push(alias("c@elsewhere.example", &["x@people.example"]));
        input.aliases.push(alias("d@example.org", &[]));
        input.aliases.push(alias("News@lists.example.org", &["x@people.example"]));
        input.aliases.push(alias("TEAM@example.org", &["x@people.example"]));
        input.lists.push(list("same", "news@lists.example.org", None));
    });
    assert_eq!(
        found,
        [
            "`news@lists.example.org` is already the address of list `news` (case does not matter)",
            "domain `elsewhere.example` of alias `c@elsewhere.example` is not local",
            "alias `d@example.org` has no targets",
            "`News@lists.example.org` is already the address of list `news` (case does not matter)",
            "`TEAM@example.org` is already an alias (case does not matter)",
            "no list or alias has the local address `nobody@example.org`",
            "`news-bounces@lists.example.org` receives the bounces of list `news` and cannot be a target",
        ]
    );
}

#[test]
fn an_owner_or_postmaster_that_nobody_reads_is_an_error_said_once() {
    let found = errors(|input| input.lists[0].owner = Some(address("ghost@example.org")));
    assert_eq!(found, ["no list or alias has the local address `ghost@example.org`"]);
    let found = errors(|input| input.postmaster = Some(address("postmaster@example.org")));
    let way = "`postmaster@example.org` -> `postmaster@example.org`";
    assert_eq!(found, [format!("`postmaster` is an alias loop ({way}); name its reader")]);
}

#[test]
fn aliases_nest_to_a_limit() {
    let chain = |length: usize| {
        errors(|input| {
            for step in 0..length {
                let next = format!("a{:03}@example.org", step + 1);
                input.aliases.push(alias(&format!("a{step:03}@example.org"), &[&next]));
            }
            input.aliases.push(alias(&format!("a{length:03}@example.org"), &["x@people.example"]));
        })
    };
    assert_eq!(chain(ALIAS_DEPTH_MAX - 1), [""; 0]);
    assert!(chain(ALIAS_DEPTH_MAX)[0].starts_with("aliases are nested more than 50 deep"));
    assert!(!chain(2_000).is_empty(), "bounded stack");
}

#[test]
fn an_expansion_that_doubles_at_each_step_stays_small() {
    let mut input = input();
    for step in 0..40 {
        let next = format!("a{:03}@example.org", step + 1);
        input.aliases.push(alias(&format!("a{step:03}@example.org"), &[&next, &next]));
    }
    input.aliases.push(alias("a040@example.org", &["x@people.example", "y@people.example"]));
    let policy = Policy::new(input).unwrap();
    let AddressClass::Alias(to) = policy.rcpt(ip(OUTSIDE), &address("a000@example.org")) else { panic!() };
    assert_eq!(to.addresses.len(), 2);
}

#[test]
fn a_host_with_a_route_of_its_own_name_passes_its_mail_on() {
    let mut input = input();
    input.routed.push("mx.example.org".to_owned());
    let policy = Policy::new(input).unwrap();
    assert!(!policy.is_local_domain("mx.example.org"));
    assert_eq!(policy.rcpt(ip(INSIDE), &address("x@mx.example.org")), AddressClass::Relay);
}

#[test]
fn local_parts_beyond_ascii_ignore_case_too() {
    let mut input = input();
    input.aliases.push(alias("büro@example.org", &["x@people.example"]));
    let policy = Policy::new(input).unwrap();
    assert!(matches!(policy.rcpt(ip(OUTSIDE), &address("BÜRO@example.org")), AddressClass::Alias(_)));
}

fn any_address() -> impl Strategy<Value = Address> {
    let local = prop_oneof![
        "[a-zA-Z0-9.!%+=_-]{1,20}",
        Just("news".to_owned()),
        Just("postmaster".to_owned()),
        "\"[a-z@ %!\\\\]{0,10}\"",
    ];
    let domain = prop_oneof![
        Just("example.org".to_owned()),
        Just("lists.example.org".to_owned()),
        Just("mx.example.org".to_owned()),
        "([a-z]{1,5}\\.){1,3}(example|org)",
        Just("[127.0.0.1]".to_owned()),
        Just("[IPv6:::1]".to_owned()),
    ];
    (local, domain).prop_filter_map("not an address", |(local, domain)| format!("{local}@{domain}").parse().ok())
}

proptest! {
    #[test]
    fn an_untrusted_client_never_gets_relay(recipient in any_address(), bits in any::<u32>(), six in any::<u128>()) {
        let policy = Policy::new(input()).unwrap();
        let four = IpAddr::from(bits.to_be_bytes());
        for client in [four, IpAddr::from(six.to_be_bytes())] {
            if client.to_canonical().is_loopback() {
                continue;
            }
            prop_assert!(!policy.is_trusted(client));
            let class = policy.rcpt(client, &recipient);
            prop_assert!(!matches!(class, AddressClass::Relay), "{} {}", client, recipient);
        }
    }

    #[test]
    fn a_local_domain_is_never_relayed(recipient in any_address()) {
        let policy = Policy::new(input()).unwrap();
        if policy.is_local_domain(recipient.domain()) {
            prop_assert_ne!(policy.rcpt(ip(INSIDE), &recipient), AddressClass::Relay);
        }
    }

    #[test]
    fn any_alias_graph_ends(edges in prop::collection::vec((0_u8..12, 0_u8..12), 0..40)) {
        let mut input = input();
        let mut targets = vec![Vec::new(); 12];
        for (from, to) in &edges {
            targets[usize::from(*from)].push(address(&format!("n{to}@example.org")));
        }
        for (number, mut targets) in targets.into_iter().enumerate() {
            targets.push(address(&format!("out{number}@people.example")));
            input.aliases.push(AliasInput { address: address(&format!("n{number}@example.org")), targets });
        }
        let cyclic = is_cyclic(&edges);
        match Policy::new(input) {
            Ok(policy) => {
                prop_assert!(!cyclic);
                let AddressClass::Alias(to) = policy.rcpt(ip(OUTSIDE), &address("n0@example.org")) else { panic!() };
                let reach = reachable(&edges, 0);
                prop_assert_eq!(to.addresses.len(), reach.len());
            }
            Err(errors) => prop_assert!(cyclic, "{:?}", errors),
        }
    }
}

fn reachable(edges: &[(u8, u8)], from: u8) -> Vec<u8> {
    let mut found = vec![from];
    let mut next = 0;
    while next < found.len() {
        let here = found[next];
        for (_, to) in edges.iter().filter(|(start, _)| *start == here) {
            if !found.contains(to) {
                found.push(*to);
            }
        }
        next += 1;
    }
    found
}

fn is_cyclic(edges: &[(u8, u8)]) -> bool {
    edges.iter().any(|(from, to)| reachable(edges, *to).contains(from))
}
