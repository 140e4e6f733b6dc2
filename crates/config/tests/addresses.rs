//! Golden cases of what addresses stand for (golden/addresses.txt), through the configuration's reader and the engine.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;

use stentor_addresses::Role;
use stentor_config::{Config, TableSource};
use stentor_mail::address::Address;
use stentor_policy::{Expansion, Verdict};
use stentor_rules::{Answer, Asking, Facts, Field, Found, Key, Outcome, Part, Subject, TableId, Tables, find};
use stentor_tables::Table;

const HEAD: &str = "hostname = \"mx.local.test\"\nclient_networks = [\"10.0.0.0/8\"]\n";
/// When postsrsd made the senders of the cases.
const TODAY: u64 = 20_780;
/// The one file that can be included.
const STAFF: &str = "# who works here\nann@a.test, bob@b.test\n\ncarl\n";

/// The tables of a configuration; what is behind a socket does not answer.
struct InMemory<'c>(&'c Config);

impl Tables for InMemory<'_> {
    fn ask(&self, table: TableId, field: Field, subject: Subject<'_>) -> Answer {
        let table = &self.0.tables[usize::from(table.0)];
        let TableSource::Inline(entries) = &table.source else {
            return Answer::Unavailable("nobody listens".to_owned());
        };
        let made = Table::inline(entries.iter().map(|(key, value, _)| (key.as_bytes(), value.as_bytes())));
        find(&made, (table.dialect, field, subject), &mut Asking::default(), |_| String::new())
    }

    fn include(&self, _: TableId, path: &str) -> Answer {
        match path {
            "/staff" => Answer::Found(Found { value: STAFF.to_owned(), key: path.to_owned(), place: path.to_owned() }),
            "/programs" => {
                Answer::Found(Found { value: "|/bin/x\n".to_owned(), key: path.to_owned(), place: path.to_owned() })
            }
            _ => Answer::Unavailable("no such file".to_owned()),
        }
    }
}

fn shown(to: &Expansion) -> String {
    let mut words: Vec<String> = to.addresses.iter().map(Address::to_string).collect();
    for (owner, all) in &to.owned {
        words.push(format!("from {owner}:"));
        words.extend(all.iter().map(Address::to_string));
    }
    words.extend(to.lists.iter().map(|name| format!("list {name}")));
    words.join(" ")
}

/// `CLIENT RECIPIENT`
fn decide(config: &Config, case: &str) -> String {
    let (client, recipient) = case.split_once(' ').unwrap();
    let client: IpAddr = client.parse().unwrap();
    let address: Address = recipient.parse().unwrap();
    let key = |text| Key::new(text).told(|domain| config.policy.is_local_domain(domain));
    let (sender, recipient) = (key("a@x.test"), key(address.as_str()));
    let facts = Facts {
        client,
        client_name: None,
        helo: "client.test",
        sender: &sender,
        recipient: &recipient,
        address: &address,
        list: None,
        class: None,
        today: TODAY,
        is_trusted: config.policy.is_trusted(client),
    };
    let tables = InMemory(config);
    let mut steps = Vec::new();
    let decision = config.rules.decide(&facts, &tables, Some(&mut steps)).unwrap();
    assert_eq!(config.rules.decide(&facts, &tables, None).unwrap(), decision, "explained otherwise: {case}");
    assert!(!steps.is_empty(), "{case}");
    if let Outcome::Local(Verdict::Alias(to)) = &decision.outcome {
        // Who is named by the server itself is found by the same look-ups.
        let people = config.rules.people((&address, TODAY), &tables).unwrap().unwrap();
        assert_eq!(people, to.everyone().cloned().collect::<Vec<_>>(), "{case}");
    }
    match decision.outcome {
        Outcome::Local(Verdict::List(name)) => format!("list {name}"),
        Outcome::Local(Verdict::Alias(to)) => shown(&to),
        Outcome::Local(_) => "bounces".to_owned(),
        Outcome::Relay(_) => "relay".to_owned(),
        Outcome::Discard(_) => "discard".to_owned(),
        Outcome::Refuse(reply) => {
            let kind = if reply.is_temporary() { "defer" } else { "reject" };
            let code = reply.enhanced.map(|code| code.to_string()).unwrap_or_default();
            format!("{kind} {} {code}", reply.code)
        }
    }
}

/// `PART ADDRESS`
fn rewritten(config: &Config, case: &str) -> String {
    let (part, address) = case.split_once(' ').unwrap();
    let place = match part {
        "sender" => (Role::Sender, Part::Envelope),
        "recipient" => (Role::Recipient, Part::Envelope),
        "from" => (Role::Sender, Part::Header),
        _ => (Role::Recipient, Part::Header),
    };
    let (address, tables): (Address, _) = (address.parse().unwrap(), InMemory(config));
    let mut steps = Vec::new();
    let found = config.rules.canonical(&address, place, &tables, Some(&mut steps)).unwrap();
    assert_eq!(config.rules.canonical(&address, place, &tables, None).unwrap(), found, "explained otherwise: {case}");
    match found {
        Ok(Some(to)) => {
            assert!(to != address && !steps.is_empty(), "{case}");
            to.to_string()
        }
        Ok(None) => address.to_string(),
        Err(reply) if reply.is_temporary() => "defer".to_owned(),
        Err(reply) => reply.to_string(),
    }
}

#[test]
fn every_golden_case_is_what_it_says() {
    golden("addresses.txt", 60, decide);
}

#[test]
fn every_address_is_rewritten_as_it_says() {
    golden("canonical.txt", 30, rewritten);
}

fn golden(file: &str, cases_min: usize, run: fn(&Config, &str) -> String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let golden = std::fs::read_to_string(folder.join(file)).unwrap();
    let (mut cases, mut wrong) = (0, String::new());
    for world in golden.split("\n== ").skip(1) {
        let (name, rest) = world.split_once('\n').unwrap();
        let (config, lines) = rest.split_once("\n--\n").unwrap();
        let config = match stentor_config::check_text(&folder.join("golden.toml"), &format!("{HEAD}{config}\n")) {
            Ok(config) => config,
            Err(errors) => panic!("{name}: {errors:?}"),
        };
        for line in lines.lines().filter(|line| !line.is_empty()) {
            let (case, expected) = line.split_once(" => ").unwrap_or_else(|| panic!("{name}: {line}"));
            let got = run(&config, case);
            cases += 1;
            if got != expected {
                writeln!(wrong, "{name}\n    {case}\n    expected {expected}\n    got      {got}").unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(cases >= cases_min, "{cases}");
}
