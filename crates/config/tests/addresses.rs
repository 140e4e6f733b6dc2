//! Golden cases of address rewriting and expansion (golden/addresses.txt), through the configuration's reader and the
//! engine.

mod golden;

use std::net::IpAddr;

use golden::{InMemory, golden};
use stentor_addresses::{AddressRole, untagged};
use stentor_config::Config;
use stentor_mail::address::Address;
use stentor_policy::{AddressClass, Expansion};
use stentor_reputation::ClientName;
use stentor_rules::{AddressQuery, Facts, Outcome, Part};

/// Day on which the rewritten senders of the cases were made.
const TODAY: u64 = 20_780;
fn shown(to: &Expansion) -> String {
    let mut words: Vec<String> = to.addresses.iter().map(Address::to_string).collect();
    for (owner, all) in &to.owned {
        words.push(format!("from {owner}:"));
        words.extend(all.iter().map(Address::to_string));
    }
    words.extend(to.lists.iter().map(|name| format!("list {name}")));
    for program in &to.programs {
        let (local, tag) = untagged(program.address.local()).expect("a tag");
        assert!(tag.bytes().all(|byte| byte.is_ascii_hexdigit()), "{tag}");
        let owner = program.owner.as_ref().map_or(String::new(), |owner| format!(" (from {owner})"));
        words.push(format!("{} as {local}=TAG@{}{owner}", program.text, program.address.domain()));
    }
    words.extend(to.has_null.then(|| "/dev/null".to_owned()));
    words.join(" ")
}

/// Runs a case `CLIENT RECIPIENT`, or `CLIENT <> RECIPIENT` for the null sender.
fn decide(config: &Config, case: &str) -> String {
    let (client, recipient) = case.split_once(' ').unwrap();
    let (recipient, is_report) =
        recipient.strip_prefix("<> ").map_or((recipient, false), |recipient| (recipient, true));
    let client: IpAddr = client.parse().unwrap();
    let address: Address = recipient.parse().unwrap();
    let (sender, recipient) =
        (config.rules.key_of(if is_report { "" } else { "a@x.test" }), config.rules.key_of(address.as_str()));
    let facts = Facts {
        client,
        client_name: ClientName::Nameless,
        helo: "client.test",
        sender: &sender,
        recipient: &recipient,
        address: &address,
        list: None,
        class: None,
        session: None,
        today: TODAY,
        is_trusted: config.policy.is_trusted(client),
        is_own: false,
        behaviour: stentor_reputation::ClientBehaviour::NOTHING,
    };
    let tables = InMemory(config);
    let mut steps = Vec::new();
    let decision = config.rules.decide(&facts, &tables, Some(&mut steps)).unwrap();
    assert_eq!(config.rules.decide(&facts, &tables, None).unwrap(), decision, "explained otherwise: {case}");
    assert!(!steps.is_empty(), "{case}");
    if let Outcome::Local(AddressClass::Alias(to)) = &decision.outcome {
        // Recipients that the server itself names are found by the same lookups.
        let people =
            config.rules.people(AddressQuery { address: &address, today: TODAY, is_report }, &tables).unwrap().unwrap();
        assert_eq!(people, **to, "{case}");
    }
    match decision.outcome {
        Outcome::Local(AddressClass::List(name)) => format!("list {name}"),
        Outcome::Local(AddressClass::Alias(to)) => shown(&to),
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

/// Runs a case `PART ADDRESS`.
fn rewritten(config: &Config, case: &str) -> String {
    let (part, address) = case.split_once(' ').unwrap();
    let (role, part) = match part {
        "sender" => (AddressRole::Sender, Part::Envelope),
        "recipient" => (AddressRole::Recipient, Part::Envelope),
        "from" => (AddressRole::Sender, Part::Header),
        _ => (AddressRole::Recipient, Part::Header),
    };
    let (address, tables): (Address, _) = (address.parse().unwrap(), InMemory(config));
    let mut steps = Vec::new();
    let found = config.rules.canonical(&address, role, part, &tables, Some(&mut steps)).unwrap();
    assert_eq!(
        config.rules.canonical(&address, role, part, &tables, None).unwrap(),
        found,
        "explained otherwise: {case}"
    );
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

/// Runs a case `ROLE ADDRESS`.
fn sent(config: &Config, case: &str) -> String {
    let (role, address) = case.split_once(' ').unwrap();
    let role = if role == "sender" { AddressRole::Sender } else { AddressRole::Recipient };
    let (address, tables): (Address, _) = (address.parse().unwrap(), InMemory(config));
    let mut steps = Vec::new();
    let found = config.rules.generic(&address, role, &tables, Some(&mut steps)).unwrap();
    assert_eq!(config.rules.generic(&address, role, &tables, None).unwrap(), found, "explained otherwise: {case}");
    match found {
        Ok(Some(to)) => {
            assert!(to != address && !steps.is_empty(), "{case}");
            to.to_string()
        }
        Ok(None) => address.to_string(),
        Err(reply) => if reply.is_temporary() { "defer" } else { "reject" }.to_owned(),
    }
}

#[test]
fn every_address_is_rewritten_as_it_says() {
    golden("canonical.txt", 30, rewritten);
}

#[test]
fn every_address_is_sent_as_it_says() {
    golden("generic.txt", 40, sent);
}

#[test]
fn short_srs_hashes_are_raised_with_a_warning() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let read = |chars: &str| {
        let text = format!("[addresses]\nsrs = \"fwd.test\"\nsrs_secret_file = \"srs.secret\"\n{chars}");
        stentor_config::check_text(&folder.join("golden.toml"), &text).unwrap()
    };
    for (chars, shown, is_warned) in [
        ("", 8, false),
        ("srs_hash_chars = 4\n", 8, true),
        ("srs_hash_chars = 7\n", 8, true),
        ("srs_hash_chars = 8\n", 8, false),
        ("srs_hash_chars = 20\n", 20, false),
    ] {
        let config = read(chars);
        let sent = config.rules.addresses.srs.as_ref().unwrap().forward("joe", "a.test", TODAY);
        assert_eq!(sent.split('=').nth(1).map(str::len), Some(shown), "{chars}: {sent}");
        let warned: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
        let wanted = "shorter hashes can be guessed; using 8";
        assert_eq!(warned.iter().any(|warning| warning.contains(wanted)), is_warned, "{chars}: {warned:?}");
    }
}
