//! Warnings of `stentor check` about a valid configuration: omissions and mistakes that only show when mail is refused,
//! loops, or is accepted from everyone.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use stentor_config::Config;
use stentor_config::settings::Settings;
use stentor_lists::PostingPolicy;
use stentor_policy::{HostSpec, RouteHost};
use stentor_rules::{Key, NextHop, RuleAction, RuleEffect, RuleId};

/// Last labels of names that no other host can resolve (RFC 6761, RFC 6762, RFC 8375, and common router defaults).
const PRIVATE_LABELS: [&str; 9] =
    ["localhost", "localdomain", "local", "internal", "lan", "home", "arpa", "invalid", "intranet"];

/// A warning, and the key that it concerns.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Omission {
    pub section: String,
    pub key: String,
    pub what: String,
    /// `file:line` of a rule, which has no key of its own.
    pub place: Option<String>,
}

impl Omission {
    fn new(section: &str, key: &str, what: String) -> Omission {
        Omission { section: section.to_owned(), key: key.to_owned(), what, place: None }
    }
}

/// All warnings, in the order of the file's sections.
pub(crate) fn findings(config: &Config, settings: &Settings) -> Vec<Omission> {
    let mut found: Vec<Omission> = hostname(&config.hostname).into_iter().collect();
    lists(config, settings, &mut found);
    relay_domains(config, &mut found);
    own_listeners(config, &mut found);
    found
}

/// Warns if others cannot resolve the EHLO name (RFC 5321 4.1.1.1 and 4.1.4); many hosts refuse such a name.
fn hostname(name: &str) -> Option<Omission> {
    let name_shown = format!("hostname {name:?}");
    let (_, last) = name.rsplit_once('.').unwrap_or(("", name));
    let why = if name.starts_with('[') {
        return None;
    } else if !name.contains('.') {
        "has no dot"
    } else if last.bytes().all(|octet| octet.is_ascii_digit()) {
        "is an address"
    } else if PRIVATE_LABELS.contains(&last) {
        "is a private name that other hosts cannot resolve"
    } else {
        return None;
    };
    let what = format!(
        "{name_shown} {why}: hosts that check EHLO refuse its mail; set `hostname` to this server's public name, such as \
         mx.example.org"
    );
    Some(Omission::new("", "hostname", what))
}

fn lists(config: &Config, settings: &Settings, found: &mut Vec<Omission>) {
    for list in &config.lists {
        let own = list.list.settings();
        let section = format!("lists.{}", own.name);
        if own.post == PostingPolicy::Anyone && settings.position(&section, "post").is_none() {
            let what = format!(
                "list {} has no `post`: anyone may post to all its subscribers; set `post` to \"members\", to \
                 addresses, or, if intended, to \"anyone\"",
                own.name
            );
            found.push(Omission::new(&section, "address", what));
        }
        if own.owner.is_none() {
            let what = format!(
                "list {} has no `owner`: nobody is notified of suspended subscribers or receives returned posts; set \
                 `owner` to an address",
                own.name
            );
            found.push(Omission::new(&section, "address", what));
        }
    }
}

/// Warns of relay domains whose mailboxes are not verified at RCPT. Those that use a local delivery agent have their
/// own finding ([`crate::trial::rules::unknown_recipients`]).
fn relay_domains(config: &Config, found: &mut Vec<Omission>) {
    let rules = &config.rules;
    let named = crate::trial::rules::unknown_recipients(config);
    for domain in rules.relay_domains.patterns() {
        let below = if domain.starts_with('.') { "any" } else { "" };
        let key = Key::new(&format!("any@{below}{domain}"));
        let is_named = named.iter().any(|(route, _)| route.trim_start_matches('@') == domain);
        let is_checked = config.call_ahead.asks(&key) || rules.verifies_recipients(Some(&key));
        if is_named || is_checked || config.policy.is_local_domain(domain) {
            continue;
        }
        let what = format!(
            "relay domain {domain} has no recipient check: mail for unknown users is accepted, then bounced to \
             possibly forged senders; set `[call_ahead] domains = [{domain:?}]` to ask its host at RCPT, or name its \
             recipients in a table (docs/operate/call-ahead.md)"
        );
        found.push(Omission::new("domains", "relay", what));
    }
    // A table's domains are unknown here; any call_ahead domain counts as a deliberate choice.
    let is_unchecked = config.call_ahead.is_off() && !rules.verifies_recipients(None);
    for table in rules.relay_domains.tables.iter().filter(|_| is_unchecked) {
        let table = rules.table_name(*table);
        let what = format!(
            "the relay domains of table {table} have no recipient check: mail for unknown users is accepted, then \
             bounced to possibly forged senders; set `[call_ahead] domains = \"all\"` to ask their hosts at RCPT, or \
             name their recipients in a table (docs/operate/call-ahead.md)"
        );
        found.push(Omission::new("domains", "relay", what));
    }
}

/// Warns of next hops that are this server.
fn own_listeners(config: &Config, found: &mut Vec<Omission>) {
    let own: Vec<SocketAddr> = config.listen.listeners().map(|(_, listener)| listener.address).collect();
    let reached =
        |hosts: &[RouteHost]| hosts.iter().find_map(|host| Some((shown(host), listener_of(config, &own, host)?)));
    let ours = |hop: &NextHop| match hop {
        NextHop::Hosts(hosts) => reached(hosts),
        _ => None,
    };
    let what = |(host, listener): (String, SocketAddr)| {
        format!(
            "{host} is this server's own listener {listener}: its mail would loop until it bounces; name another host or port"
        )
    };
    let rules = &config.rules;
    for (section, routes) in [("routes", &rules.by_recipient), ("sender_routes", &rules.by_sender)] {
        let mut entries: Vec<_> = routes.entries().collect();
        entries.sort_unstable_by_key(|entry| &entry.pattern);
        for entry in entries {
            if let Some(own) = ours(&entry.hop) {
                found.push(Omission::new(section, &entry.pattern, what(own)));
            }
        }
    }
    for list in &config.lists {
        if let Some(own) = list.archive_hops().find_map(ours) {
            found.push(Omission::new(&format!("lists.{}", list.list.name()), "archive_to", what(own)));
        }
    }
    let mut hops: Vec<_> = rules.hops.iter().collect();
    hops.sort_unstable_by_key(|(name, _)| *name);
    for (name, hosts) in hops {
        if let Some(own) = reached(hosts) {
            found.push(Omission::new("hops", name, what(own)));
        }
    }
    for (at, rule) in rules.rules.iter().enumerate() {
        let RuleEffect::Actions(actions) = &rule.does else { continue };
        for action in actions {
            let RuleAction::Route(hop) = action else { continue };
            if let Some(own) = ours(hop) {
                let what = format!("{}: {}", rules.rule_name(RuleId::new(at)), what(own));
                let place = Some(rule.place.to_string());
                found.push(Omission { section: "rules".to_owned(), key: String::new(), what, place });
            }
        }
    }
}

/// The host as written in the configuration.
fn shown(host: &RouteHost) -> String {
    match &host.host {
        HostSpec::Addr(address) => SocketAddr::new(*address, host.port).to_string(),
        HostSpec::Name(name) => format!("{name}:{}", host.port),
        HostSpec::Mx(domain) => format!("mx:{domain}"),
        HostSpec::Unix(path) => format!("unix:{path}"),
    }
}

/// Our own listener that a connection to the host would reach. Nothing is looked up.
fn listener_of(config: &Config, own: &[SocketAddr], host: &RouteHost) -> Option<SocketAddr> {
    let is_reached = |listener: &SocketAddr, address: IpAddr| {
        let (address, ip) = (address.to_canonical(), listener.ip().to_canonical());
        ip == address || ip.is_unspecified() && is_of_this_machine(address)
    };
    let mut there = own.iter().filter(|listener| listener.port() == host.port && host.port > 0);
    match &host.host {
        HostSpec::Addr(address) => there.find(|listener| is_reached(listener, *address)).copied(),
        HostSpec::Name(name) if name.eq_ignore_ascii_case(&config.hostname) => there.next().copied(),
        HostSpec::Name(name) if name.eq_ignore_ascii_case("localhost") => {
            there.find(|listener| listener.ip().is_loopback() || listener.ip().is_unspecified()).copied()
        }
        HostSpec::Name(_) | HostSpec::Unix(_) | HostSpec::Mx(_) => None,
    }
}

/// Whether a socket can be bound to the address; no packet is sent.
fn is_of_this_machine(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn named(text: &str) -> Vec<String> {
        let checked = stentor_config::check_text_noting(Path::new("/tmp/stentor.toml"), text);
        let (config, settings) = checked.unwrap_or_else(|found| panic!("{found:?}"));
        findings(&config, &settings)
            .into_iter()
            .map(|found| format!("{}/{}: {}", found.section, found.key, found.what))
            .collect()
    }

    const SOUND: &str = "hostname = \"mx.example.org\"\n";

    #[test]
    fn hostnames_that_others_refuse_are_named() {
        for (name, why) in [
            ("15b0717dc4c2", "has no dot"),
            ("localhost", "has no dot"),
            ("localhost.localdomain", "private name"),
            ("mail.localhost", "private name"),
            ("nas.local", "private name"),
            ("ip-10-0-0-1.ec2.internal", "private name"),
            ("router.home.arpa", "private name"),
            ("192.0.2.1", "is an address"),
        ] {
            let found = hostname(name).unwrap_or_else(|| panic!("{name}"));
            assert!(found.what.contains(why) && found.what.contains(&format!("{name:?}")), "{found:?}");
        }
        for name in ["mx.example.org", "mx1.lists.example", "[192.0.2.1]", "xn--mx-bja.example"] {
            assert_eq!(hostname(name), None, "{name}");
        }
    }

    #[test]
    fn a_list_that_anyone_may_post_to_says_so_in_the_file() {
        let list = "[lists.news]\naddress = \"news@lists.example\"\nsubscribers = \"/proc/version\"\n";
        let found = named(&format!("{SOUND}{list}"));
        assert!(
            found.len() == 2 && found.iter().all(|found| found.starts_with("lists.news/address: list news has no ")),
            "{found:?}"
        );
        assert!(found[0].contains("no `post`") && found[1].contains("no `owner`"), "{found:?}");
        for post in ["\"anyone\"", "\"members\"", "[\"ann@example.org\"]"] {
            let found = named(&format!("{SOUND}{list}owner = \"ann@example.org\"\npost = {post}\n"));
            assert_eq!(found, Vec::<String>::new());
        }
    }

    #[test]
    fn a_relay_domain_without_a_recipient_check_is_named() {
        let relay = "[domains]\nrelay = [\"a.example\", \".b.example\"]\n";
        let found = named(&format!("{SOUND}{relay}"));
        let places: Vec<_> = found.iter().map(|found| &found[..found.find(" has").unwrap()]).collect();
        assert_eq!(places, ["domains/relay: relay domain .b.example", "domains/relay: relay domain a.example"]);
        let found = named(&format!("{SOUND}{relay}[call_ahead]\ndomains = [\"a.example\"]\n"));
        assert!(found.len() == 1 && found[0].contains(".b.example"), "{found:?}");
        assert_eq!(named(&format!("{SOUND}{relay}[call_ahead]\ndomains = \"all\"\n")), Vec::<String>::new());
    }

    #[test]
    fn only_rules_that_verify_recipients_at_rcpt_silence_the_warning() {
        let relay = "[domains]\nrelay = [\"a.example\"]\n";
        let service = "[policy_services.s]\naddress = \"inet:127.0.0.1:9\"\n";
        let late = format!("{service}at = \"end_of_data\"\n");
        let table = "[tables.users]\ninline = { \"ann@a.example\" = \"OK\" }\n";
        let (by_service, of_domain) = ("[[rules]]\npolicy_service = \"s\"\n", "recipient = \"a.example\"\n");
        let valid = "not = { recipient = \"table:users\" }\n";
        for (check, is_one) in [
            (format!("{table}[[rules]]\nrecipient = \"table:users\"\n"), true),
            (format!("{table}[[rules]]\n{of_domain}{valid}do = \"reject\"\n"), true),
            (format!("{table}[[rules]]\nrecipient = \"b.example\"\n{valid}do = \"reject\"\n"), false),
            (format!("{table}[[rules]]\n{of_domain}{valid}do = \"reject\"\nwarn_only = true\n"), false),
            (format!("{table}[[rules]]\n{of_domain}{valid}do = \"reject\"\nsubject = \"x\"\n"), false),
            (format!("{table}[[rules]]\nrecipient = \"table:users\"\ndo = \"hold\"\n"), false),
            (format!("{table}[[rules]]\nsender = \"table:users\"\n"), false),
            (format!("{service}{by_service}"), false),
            (format!("{service}{by_service}{of_domain}"), true),
            (format!("{service}{by_service}recipient = \"b.example\"\n"), false),
            (format!("{late}{by_service}{of_domain}"), false),
        ] {
            let found = named(&format!("{SOUND}{relay}{check}"));
            assert_eq!(found.is_empty(), is_one, "{check}{found:?}");
        }
    }

    #[test]
    fn relay_domains_of_a_table_without_a_recipient_check_are_named() {
        let relay = "[tables.partners]\ninline = { \"a.example\" = \"x\" }\n[domains]\nrelay = [\"table:partners\"]\n";
        let found = named(&format!("{SOUND}{relay}"));
        assert!(
            found.len() == 1
                && found[0].starts_with("domains/relay: the relay domains of table partners have no recipient check"),
            "{found:?}"
        );
        for check in [
            "[call_ahead]\ndomains = \"all\"\n",
            "[call_ahead]\ndomains = [\"a.example\"]\n",
            "[policy_services.users]\naddress = \"inet:127.0.0.1:9\"\n[[rules]]\nrecipient = \
             \"a.example\"\npolicy_service = \"users\"\n",
        ] {
            assert_eq!(named(&format!("{SOUND}{relay}{check}")), Vec::<String>::new(), "{check}");
        }
    }

    #[test]
    fn a_route_to_a_listener_of_ours_is_named_and_one_to_another_port_is_not() {
        let list = "[lists.news]\naddress = \"news@lists.example\"\nsubscribers = \"/proc/version\"\nowner = \"ann@example.org\"\n\
            post = \"members\"\n";
        let listen = "[listen]\nsmtp = [\"0.0.0.0:2525\", \"127.0.0.5:25\"]\nsubmission = [{ address = \"127.0.0.1:587\", auth = \"none\", tls = \"none\" }]\n";
        for (host, is_own) in [
            ("127.0.0.1:2525", true),
            ("127.0.0.9:2525", true),
            ("localhost:2525", true),
            ("mx.example.org:2525", true),
            ("127.0.0.5", true),
            ("127.0.0.1:587", true),
            ("127.0.0.1:10025", false),
            ("127.0.0.1", false),
            ("192.0.2.1:2525", false),
            ("mx.other.example:2525", false),
            ("lmtp:unix:/run/dovecot/lmtp", false),
        ] {
            for (text, place) in [
                (format!("[routes]\n\"a.example\" = \"{host}\"\n"), "routes/a.example"),
                (format!("[sender_routes]\n\"a.example\" = \"{host}\"\n"), "sender_routes/a.example"),
                (format!("[hops]\nup = \"{host}\"\n"), "hops/up"),
                (format!("{list}archive_to = \"{host}\"\n"), "lists.news/archive_to"),
            ] {
                let found = named(&format!("{SOUND}{listen}{text}"));
                assert_eq!(found.len(), usize::from(is_own), "{text}{found:?}");
                assert!(
                    found.iter().all(|found| found.starts_with(place) && found.contains("own listener")),
                    "{found:?}"
                );
            }
        }
    }
}
