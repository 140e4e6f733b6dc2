//! Rules on untrusted clients, read from a configuration and run against fixed DNS answers.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use stentor_config::Config;
use stentor_mail::address::Address;
use stentor_reputation::{Answered, ClientBehaviour, ClientName, DnsAnswer, Greylisted, Question};
use stentor_rules::{
    ContentScanner, Decision, Facts, Field, Key, LookupResult, MessageFacts, Outcome, ServiceAnswers, Subject, TableId,
    Tables,
};
use stentor_tables::{IncludeError, Included};

const HEAD: &str = "hostname = \"mx.home.test\"\nclient_networks = [\"10.0.0.0/8\"]\n[domains]\nlocal = [\"home.test\"]\n\
     relay = [\"relay.test\"]\n[dns_lists.zen]\nzone = \"zen.test\"\nanswers = [\"127.0.0.2-11\"]\nweight = 3\n\
     [dns_lists.other]\nzone = \"other.test\"\nweight = 2\n[dns_lists.good]\nzone = \"good.test\"\nweight = -4\n\
     [dns_lists.domains]\nzone = \"dbl.test\"\nof = \"sender\"\nweight = 0\n";

/// A DNS with fixed answers: name and addresses, `yes`, `no` or `silent`. Other names are not listed, and other
/// domains exist.
struct Dns<'d> {
    answers: &'d [(&'d str, &'d str)],
    /// Each query is answered only on the second attempt.
    waits: bool,
    asked: RefCell<Vec<String>>,
}

impl Tables for Dns<'_> {
    fn ask(&self, _: TableId, _: Field, _: Subject<'_>) -> LookupResult {
        LookupResult::NotFound
    }

    fn include(&self, _: TableId, _: &str, _: Option<u32>) -> Option<Result<Arc<Included>, IncludeError>> {
        None
    }

    fn dns(&self, question: &Question) -> Option<Answered> {
        let mut asked = self.asked.borrow_mut();
        if !asked.iter().any(|name| **name == *question.name) {
            asked.push(question.name.to_string());
            if self.waits {
                return None;
            }
        }
        let is_list = matches!(question.kind, stentor_reputation::Kind::Listed(_));
        let answer = match self.answers.iter().find(|(name, _)| **name == *question.name).map(|(_, answer)| *answer) {
            Some("silent") => DnsAnswer::Unanswered("silent".into()),
            Some("no") => DnsAnswer::Is(false),
            Some("yes") => DnsAnswer::Is(true),
            Some(addresses) => DnsAnswer::Addresses(addresses.split(' ').map(|ip| ip.parse().unwrap()).collect()),
            None if is_list => DnsAnswer::Addresses(Vec::new()),
            None => DnsAnswer::Is(true),
        };
        Some(Answered { answer, took_ms: 1 })
    }
}

fn config(rules: &str) -> Result<Config, String> {
    stentor_config::check_text(Path::new("stentor.toml"), &format!("{HEAD}{rules}"))
        .map_err(|found| found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

/// Decision about mail with this client, HELO and sender, and the DNS queries made.
fn decided(config: &Config, answers: &[(&str, &str)], case: &str) -> (Decision, Vec<String>) {
    let mut words = case.split(' ');
    let mut word = || words.next().unwrap();
    let (client, helo, sender) = (word().parse().unwrap(), word(), word());
    let address: Address = "ann@relay.test".parse().unwrap();
    let (sender, recipient) = (Key::new(if sender == "~" { "" } else { sender }), Key::new(address.as_str()));
    let facts = Facts {
        client,
        client_name: ClientName::Nameless,
        helo,
        sender: &sender,
        recipient: &recipient,
        address: &address,
        list: None,
        class: None,
        today: 20_000,
        session: None,
        is_trusted: config.policy.is_trusted(client),
        is_own: false,
        behaviour: ClientBehaviour::NOTHING,
    };
    let dns = Dns { answers, waits: true, asked: RefCell::default() };
    let decision = loop {
        if let Ok(decision) = config.rules.decide(&facts, &dns, None) {
            break decision;
        }
    };
    let at_once = Dns { answers, waits: false, asked: RefCell::default() };
    assert_eq!(config.rules.decide(&facts, &at_once, Some(&mut Vec::new())).unwrap(), decision, "{case}");
    (decision, dns.asked.into_inner())
}

/// The reply, or `ok`.
fn answer(config: &Config, answers: &[(&str, &str)], case: &str) -> String {
    match decided(config, answers, case).0.outcome {
        Outcome::Refuse(reply) => reply.to_string(),
        Outcome::Relay(_) => "ok".to_owned(),
        other => format!("{other:?}"),
    }
}

const PLAIN: &str = "192.0.2.1 mx.a.test me@a.test";

#[test]
fn a_list_refuses_with_its_name_and_a_silent_one_does_not() {
    let rules = "[[rules]]\nname = \"lists\"\ndns_list = [\"zen\", \"domains\"]\n\
                 do = \"reject 554 5.7.1 {client} is listed by {lists}\"\n";
    let config = config(rules).unwrap();
    let of = |answers: &[(&str, &str)]| answer(&config, answers, PLAIN);
    assert_eq!(of(&[("1.2.0.192.zen.test", "127.0.0.4")]), "554 5.7.1 192.0.2.1 is listed by zen");
    assert_eq!(
        of(&[("1.2.0.192.zen.test", "127.0.0.4"), ("a.test.dbl.test", "127.0.1.2")]),
        "554 5.7.1 192.0.2.1 is listed by zen, domains"
    );
    for harmless in ["127.0.0.12", "silent", "127.255.255.254", "198.51.100.1"] {
        assert_eq!(of(&[("1.2.0.192.zen.test", harmless)]), "ok", "{harmless}");
    }
    let (decision, asked) = decided(&config, &[("1.2.0.192.zen.test", "127.0.0.4")], PLAIN);
    assert_eq!(
        config.rules.shown(&decision.why),
        "rule 1 \"lists\" (stentor.toml:20); zen has 127.0.0.4",
        "the log says what was listed"
    );
    assert_eq!(asked, ["1.2.0.192.zen.test", "a.test.dbl.test"], "nobody else is asked");
    // No queries are made about a trusted client or a sender without a domain.
    assert!(decided(&config, &[], "10.0.0.1 mx.a.test me@a.test").1.is_empty());
    assert_eq!(decided(&config, &[], "192.0.2.1 mx.a.test ~").1, ["1.2.0.192.zen.test"]);
}

#[test]
fn texts_say_who_is_listed_also_where_the_content_decides() {
    let rules = "[[rules]]\ndns_list = \"zen\"\nsubject = \"offer\"\n\
                 do = [\"quarantine {client} is on {lists}\", \"warn {lists}\", \"prepend X-By: {client}\", \"reject 554 5.7.1 {client} is listed by {lists}\"]\n\
                 [[rules]]\nclient = \"192.0.2.0/24\"\nsubject = \"offer\"\ndo = [\"hold of {client}\", \"discard {client}\"]\n\
                 [[rules]]\nsender = \"@b.test\"\ndo = \"reject 550 5.7.1 not from {client} {lists}\"\n";
    let config = config(rules).unwrap();
    let said = |answers: &[(&str, &str)]| {
        let decision = decided(&config, answers, PLAIN).0;
        let mut scan = ContentScanner::new(config.rules.content.clone(), 0, false);
        scan.push(b"Subject: offer\r\n\r\n");
        config
            .rules
            .by_content(
                &decision.marks.open,
                MessageFacts { hits: &scan.finish(), answers: &ServiceAnswers::default() },
                &mut None,
            )
            .unwrap_or_default()
    };
    let listed = said(&[("1.2.0.192.zen.test", "127.0.0.4")]);
    let (reply, by) = listed.refusal().unwrap();
    assert_eq!(reply.to_string(), "554 5.7.1 192.0.2.1 is listed by zen");
    assert_eq!(config.rules.shown(by), "rule 1 (stentor.toml:20); zen has 127.0.0.4");
    let quarantine = listed.marks.quarantine.as_ref().map(|(text, _)| &**text);
    assert_eq!(quarantine, Some("192.0.2.1 is on zen"));
    assert_eq!((&*listed.marks.warn[0], &*listed.marks.prepend[0]), ("zen", "X-By: 192.0.2.1"));
    let other = said(&[]);
    assert_eq!(other.discard().map(|(text, _)| text), Some("192.0.2.1"));
    assert_eq!(other.marks.hold.as_ref().map(|(text, _)| &**text), Some("of 192.0.2.1"));
    // The result is the same at RCPT.
    assert_eq!(answer(&config, &[], "192.0.2.1 mx.a.test me@b.test"), "550 5.7.1 not from 192.0.2.1 {lists}");
    assert!(config.warnings.iter().any(|found| found.to_string().contains("{lists} is not replaced here")));
}

#[test]
fn of_a_score_those_that_speak_for_the_client_are_not_named() {
    let rules = "[[rules]]\ndns_score_min = 1\ndo = \"reject 554 5.7.1 listed by {lists}\"\n";
    let all = ["zen", "other", "good"].map(|list| (format!("1.2.0.192.{list}.test"), "127.0.0.2"));
    let answers = all.each_ref().map(|(name, address)| (name.as_str(), *address));
    assert_eq!(answer(&config(rules).unwrap(), &answers, PLAIN), "554 5.7.1 listed by zen, other");
}

#[test]
fn weights_add_up_and_what_is_silent_counts_for_the_client() {
    let config = config("[[rules]]\ndns_score_min = 5\ndo = \"reject\"\n").unwrap();
    let (zen, other, good) = ("1.2.0.192.zen.test", "1.2.0.192.other.test", "1.2.0.192.good.test");
    let bad = [(zen, "127.0.0.2"), (other, "127.0.0.2")];
    assert_eq!(answer(&config, &bad, PLAIN), "550 5.7.1 Access denied");
    assert_eq!(answer(&config, &bad[..1], PLAIN), "ok");
    assert_eq!(answer(&config, &[bad[0], (other, "silent")], PLAIN), "ok");
    assert_eq!(
        answer(&config, &[bad[0], bad[1], (good, "127.0.0.1")], PLAIN),
        "ok",
        "a list of good clients refuses us"
    );
    assert_eq!(answer(&config, &[bad[0], bad[1], (good, "127.0.5.1")], PLAIN), "ok");
    // A list without weight is not queried.
    let (_, asked) = decided(&config, &[], PLAIN);
    assert_eq!(asked, [zen, other, good]);
}

#[test]
fn a_rule_before_that_decides_and_conditions_that_do_not_hold_save_the_question() {
    let rules = "[[rules]]\nclient = \"192.0.2.9\"\ndo = \"ok\"\n[[rules]]\nsender = \"@b.test\"\ndns_list = \"zen\"\ndo = \"reject\"\n\
                 [[rules]]\nhelo_is = \"literal\"\nsender_domain = \"unknown\"\ndo = \"reject\"\n\
                 [[rules]]\ndns_list = \"other\"\nnot = { dns_list = \"good\" }\ndo = \"defer\"\n";
    let config = config(rules).unwrap();
    let asked = |case: &str| decided(&config, &[], case).1;
    assert!(asked("192.0.2.9 mx.a.test me@b.test").is_empty());
    assert_eq!(asked(PLAIN), ["1.2.0.192.other.test"]);
    assert_eq!(asked("192.0.2.1 [192.0.2.1] me@b.test"), ["1.2.0.192.zen.test", "b.test", "1.2.0.192.other.test"]);
    let listed = ("1.2.0.192.other.test", "127.0.0.2");
    assert_eq!(answer(&config, &[listed], PLAIN), "450 4.7.1 Try again later");
    assert_eq!(answer(&config, &[listed, ("1.2.0.192.good.test", "127.0.0.2")], PLAIN), "ok");
    assert_eq!(answer(&config, &[listed, ("1.2.0.192.good.test", "silent")], PLAIN), "ok", "silence is for the client");
}

#[test]
fn names_in_helo_and_domains_of_senders() {
    let rules = "[[rules]]\nhelo_is = [\"invalid\", \"ours\", \"unknown\"]\ndo = \"reject 550 5.7.1 HELO\"\n\
                 [[rules]]\nsender_domain = \"unknown\"\ndo = \"defer 450 4.1.8 sender\"\n";
    let config = config(rules).unwrap();
    for (case, answers, wanted) in [
        (PLAIN, &[][..], "ok"),
        ("192.0.2.1 a..b me@a.test", &[], "550 5.7.1 HELO"),
        ("192.0.2.1 mx.home.test me@a.test", &[], "550 5.7.1 HELO"),
        ("192.0.2.1 home.test me@a.test", &[], "550 5.7.1 HELO"),
        ("192.0.2.1 [192.0.2.1] me@a.test", &[], "ok"),
        (PLAIN, &[("mx.a.test", "no")], "550 5.7.1 HELO"),
        (PLAIN, &[("mx.a.test", "silent")], "ok"),
        (PLAIN, &[("a.test", "no")], "450 4.1.8 sender"),
        (PLAIN, &[("a.test", "silent")], "ok"),
        ("192.0.2.1 mx.a.test ~", &[], "ok"),
        ("192.0.2.1 mx.a.test me@[192.0.2.1]", &[], "ok"),
        ("192.0.2.1 mx.a.test me@home.test", &[("home.test", "no")], "ok"),
        ("10.0.0.1 a..b me@a.test", &[("a.test", "no")], "ok"),
    ] {
        assert_eq!(answer(&config, answers, case), wanted, "{case}");
    }
}

#[test]
fn trusted_clients_are_asked_about_where_a_rule_says_so() {
    let config = config("[[rules]]\ntrusted = true\nhelo_is = \"not-fqdn\"\ndo = \"reject\"\n").unwrap();
    assert_eq!(answer(&config, &[], "10.0.0.1 pc me@a.test"), "550 5.7.1 Access denied");
    assert_eq!(answer(&config, &[], "192.0.2.1 pc me@a.test"), "ok");
}

#[test]
fn a_rule_that_only_warns_does_nothing_and_later_rules_are_asked() {
    let rules = "[[rules]]\nname = \"try\"\ndns_list = \"zen\"\nwarn_only = true\ndo = \"reject 554 5.7.1 listed\"\n\
                 [[rules]]\nwarn_only = true\ndo = [\"hold\", \"discard\"]\n[[rules]]\nhelo = \"bad.test\"\ndo = \"reject\"\n";
    let config = config(rules).unwrap();
    let (decision, _) = decided(&config, &[("1.2.0.192.zen.test", "127.0.0.2")], PLAIN);
    assert!(matches!(decision.outcome, Outcome::Relay(_)) && decision.marks.hold.is_none());
    let mut marks = decision.marks;
    assert_eq!(
        marks.warnings(&config.rules),
        [
            "would refuse with 554 5.7.1 listed (zen has 127.0.0.2), rule 1 \"try\" (stentor.toml:20), but it only \
             warns",
            "would hold, rule 2 (stentor.toml:25), but it only warns",
            "would discard, rule 2 (stentor.toml:25), but it only warns",
        ]
    );
    assert_eq!(answer(&config, &[], "192.0.2.1 bad.test me@a.test"), "550 5.7.1 Access denied");
}

#[test]
fn slips_have_their_place() {
    let wrong = |rules: &str| config(rules).unwrap_err();
    for (rules, finding) in [
        (
            "[[rules]]\ndns_list = \"zenn\"\ndo = \"reject\"\n",
            "stentor.toml:21:12: there is no DNS list \"zenn\"; did you mean \"zen\"?",
        ),
        (
            "[[rules]]\ndns_score_min = 6\ndo = \"reject\"\n",
            "this score is never reached: the weights in [dns_lists] add up to 5",
        ),
        (
            "[[rules]]\nhelo_is = \"fqdn\"\ndo = \"reject\"\n",
            "\"fqdn\" is not a valid value of `helo_is`; valid values: \"invalid\", \"not-fqdn\"",
        ),
        ("[[rules]]\nsender_domain = \"bad\"\ndo = \"reject\"\n", "it must be one of \"unknown\""),
        ("[dns_lists.x]\nzone = \"nodot\"\n", "stentor.toml:21:8: \"nodot\" is not the zone of a DNS list"),
        ("[dns_lists.x]\n", "`zone` is missing in [dns_lists.x]"),
        (
            "[dns_lists.x]\nzone = \"a.test\"\nanswers = [\"10.0.0.1\"]\n",
            "\"10.0.0.1\" is not a valid answer of a DNS list",
        ),
        (
            "[dns_lists.x]\nzone = \"a.test\"\nweight = 101\n",
            "`weight` in [dns_lists.x] is 101; it must be from -100 to 100",
        ),
    ] {
        let found = wrong(rules);
        assert!(found.contains(finding), "{rules}: {found}");
    }
}

/// Checks that each row of "From Postfix" has a valid rule, and that the page's examples are valid.
#[test]
fn the_page_says_what_is_so() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operate/untrusted-clients.md");
    let page = std::fs::read_to_string(path).unwrap();
    let examples: Vec<&str> = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let check = |text: &str| stentor_config::check_text(Path::new("stentor.toml"), text);
    for example in &examples {
        let config = check(example).unwrap_or_else(|found| panic!("{found:?}"));
        assert!(!config.rules.rules.is_empty());
    }
    let (_, table) = page.split_once("## From Postfix\n").unwrap();
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| `")).collect();
    assert!(rows.len() >= 10, "{rows:?}");
    let mut rules = 0;
    for row in rows {
        let ours = row.trim_matches('|').split(" | ").nth(1).unwrap();
        let lines: Vec<&str> = ours.split('`').skip(1).step_by(2).filter(|code| code.contains(" = ")).collect();
        let (settings, rule): (Vec<&str>, Vec<&str>) = lines.iter().partition(|line| line.starts_with("[listen] "));
        let does = if rule.iter().any(|line| line.starts_with("do = ")) { "" } else { "do = \"reject\"\n" };
        let settings: Vec<String> = settings.iter().map(|line| line.replacen("] ", "]\n", 1)).collect();
        let text = format!("{}\n{}\n[[rules]]\n{}\n{does}", settings.join("\n"), examples[0], rule.join("\n"));
        check(&text).unwrap_or_else(|found| panic!("{row}: {found:?}"));
        rules += usize::from(!rule.is_empty());
    }
    assert!(rules >= 10);
}

/// Decision about a client with this behaviour.
fn by_behaviour(config: &Config, behaviour: ClientBehaviour, greylisted: Option<Greylisted>) -> (String, u32) {
    struct Greylist(Option<Greylisted>, RefCell<u32>);

    impl Tables for Greylist {
        fn ask(&self, _: TableId, _: Field, _: Subject<'_>) -> LookupResult {
            LookupResult::NotFound
        }

        fn include(&self, _: TableId, _: &str, _: Option<u32>) -> Option<Result<Arc<Included>, IncludeError>> {
            None
        }

        fn dns(&self, _: &Question) -> Option<Answered> {
            Some(Answered { answer: DnsAnswer::Is(true), took_ms: 0 })
        }

        fn greylisted(&self, _: std::net::IpAddr, sender: &str, recipient: &str) -> Option<Greylisted> {
            assert_eq!((sender, recipient), ("me@a.test", "ann@relay.test"));
            *self.1.borrow_mut() += 1;
            self.0
        }
    }

    let address: Address = "ann@relay.test".parse().unwrap();
    let (sender, recipient) = (Key::new("me@a.test"), Key::new(address.as_str()));
    let facts = Facts {
        client: "192.0.2.1".parse().unwrap(),
        client_name: ClientName::Nameless,
        helo: "mx.a.test",
        sender: &sender,
        recipient: &recipient,
        address: &address,
        list: None,
        class: None,
        today: 20_000,
        session: None,
        is_trusted: false,
        is_own: false,
        behaviour,
    };
    let greylist = Greylist(greylisted, RefCell::default());
    let decision = config.rules.decide(&facts, &greylist, None).unwrap();
    let said = match decision.outcome {
        Outcome::Refuse(reply) => format!("{reply} because of {}", config.rules.shown(&decision.why)),
        _ => "ok".to_owned(),
    };
    (said, greylist.1.into_inner())
}

#[test]
fn early_talkers_and_clients_that_come_too_often() {
    let rules = "[[rules]]\nearly_talker = true\ndo = \"reject 554 5.5.1 Wait\"\n\
                 [[rules]]\nclient_rate_over = [\"2 connections/minute\", \"9 messages/hour\"]\ndo = \"defer 451 4.7.1 Slow down\"\n";
    let config = config(rules).unwrap();
    assert!(config.rules.sees_early() && config.rules.counts_clients() && !config.rules.asks_dns());
    let mut rates = stentor_reputation::Rates::new(10);
    let client = "192.0.2.1".parse().unwrap();
    let mut behaviour = |times: usize, is_early: bool| {
        let counts = (0..times).map(|_| rates.count(client, stentor_reputation::Event::Connection, 0)).last();
        ClientBehaviour {
            is_early: Some(is_early),
            counts: counts.unwrap_or(ClientBehaviour::NOTHING.counts),
            ..ClientBehaviour::NOTHING
        }
    };
    let said = |behaviour: ClientBehaviour| by_behaviour(&config, behaviour, None).0;
    assert!(
        said(behaviour(0, true))
            .starts_with("554 5.5.1 Wait because of rule 1 (stentor.toml:20); the client spoke before")
    );
    assert_eq!(said(behaviour(2, false)), "ok");
    let shown = said(behaviour(1, false));
    assert!(
        shown.starts_with("451 4.7.1 Slow down") && shown.ends_with("3 with a limit of 2 connections/minute"),
        "{shown}"
    );
}

#[test]
fn the_greylist_is_asked_last_and_only_where_all_else_holds() {
    let rules = "[[rules]]\nsender = \"@b.test\"\ngreylisted = true\ndo = \"defer\"\n\
                 [[rules]]\nhelo_is = \"unknown\"\ngreylisted = true\ndo = \"defer\"\n\
                 [[rules]]\ngreylisted = true\nnot = { client = \"192.0.2.0/25\" }\ndo = \"defer\"\n";
    let config_of = |last: &str| config(&format!("{rules}{last}")).unwrap();
    let elsewhere = config_of("");
    assert_eq!(by_behaviour(&elsewhere, ClientBehaviour::NOTHING, Some(Greylisted::Yes(1))), ("ok".to_owned(), 0));
    let asked = config_of("[[rules]]\nname = \"grey\"\ngreylisted = true\ndo = \"defer 450 4.2.0 Later\"\n");
    let (said, times) = by_behaviour(&asked, ClientBehaviour::NOTHING, Some(Greylisted::Yes(60_000)));
    assert_eq!(said, "450 4.2.0 Later because of rule 4 \"grey\" (stentor.toml:32); greylisted for 60 s");
    assert_eq!(times, 1);
    assert_eq!(by_behaviour(&asked, ClientBehaviour::NOTHING, Some(Greylisted::No)), ("ok".to_owned(), 1));
    assert_eq!(
        by_behaviour(&asked, ClientBehaviour::NOTHING, None),
        ("ok".to_owned(), 1),
        "where nobody keeps a greylist"
    );
    for (rules, finding) in [
        ("[[rules]]\nnot = { greylisted = true }\ndo = \"defer\"\n", "`greylisted` cannot be used in `not`"),
        (
            "[[rules]]\ngreylisted = true\nbody = \"x\"\ndo = \"defer\"\n",
            "`greylisted` is checked at RCPT, before the content",
        ),
        (
            "[[rules]]\ngreylisted = true\nnot = { subject = \"x\" }\ndo = \"defer\"\n",
            "`greylisted` is checked at RCPT",
        ),
        ("[[rules]]\ngreylisted = false\ndo = \"defer\"\n", "`greylisted` can only be true"),
        (
            "[[rules]]\nclient_rate_over = \"30 connections\"\ndo = \"defer\"\n",
            "\"30 connections\" is not a valid rate",
        ),
        ("[greylist]\ndelay_s = \"3d\"\nwindow_s = \"1d\"\n", "`delay_s` in [greylist]"),
    ] {
        let found = config(rules).unwrap_err();
        assert!(found.contains(finding), "{rules}: {found}");
    }
}
