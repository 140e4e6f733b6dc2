//! Tests of the whole configuration: defaults, every kind of diagnostic, and completeness of example and reference.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use stentor_logs::settings::LogTarget;
use stentor_sched::Backoff;
use stentor_tls::PinnedHash;

use super::configuration::RetryConfig;
use super::raw::Context;
use super::*;

mod listeners;
mod oauth;
pub(crate) mod pages;
mod protection;
mod values_of_postfix;
mod webhooks;

fn check_here(text: &str) -> Result<Config, String> {
    check_text(Path::new("stentor.toml"), text)
        .map_err(|found| found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

pub(super) fn config(text: &str) -> Config {
    check_here(text).unwrap_or_else(|found| panic!("{found}"))
}

/// Findings in a text, one a line; if there are no errors, its warnings.
pub(super) fn findings(text: &str) -> String {
    match check_here(text) {
        Ok(config) => config.warnings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
        Err(found) => found,
    }
}

#[test]
fn without_a_file_there_are_defaults() {
    let config = without_file().unwrap();
    assert_eq!(config.listen.smtp, [Service::Smtp.listener("127.0.0.1:2525".parse().unwrap())]);
    assert_eq!(config.data_dir, Path::new("stentor-data"));
    assert_eq!(config.control.socket, Path::new("stentor-data/control.sock"));
    assert!(config.policy.is_trusted("127.9.9.9".parse().unwrap()));
    assert!(config.policy.is_trusted("::1".parse().unwrap()));
    assert!(!config.policy.is_trusted("::2".parse().unwrap()));
    assert!(!config.policy.is_trusted("10.0.0.1".parse().unwrap()));
    assert!(!config.hostname.is_empty() && !config.dns.servers.is_empty());
    assert_eq!((config.message_size_bytes_max, config.retry.lifetime_ms), (52_428_800, 432_000_000));
    assert_eq!(config.warnings, []);
}

#[test]
fn a_full_configuration_is_read() {
    let config = config(
        r#"
        hostname = "MX.Example.org"
        data_dir = "/var/lib/stentor"
        client_networks = ["10.0.0.0/8", "192.0.2.1"]
        [listen]
        smtp = ["0.0.0.0:25", "[::]:25"]
        command_timeout_s = 0x20
        [domains]
        local = ["Example.org"]
        postmaster = "root@admin.example"
        [lists.news]
        address = "news@lists.example.org"
        subscribers = "/proc/version"
        post = ["ann@people.example"]
        [lists.talk]
        address = "talk@lists.example.org"
        subscribers = "/proc/version"
        post = "members"
        bounces = "verp@bounces.example"
        precedence = "none"
        [aliases]
        "team@example.org" = ["ann@people.example", "news@lists.example.org"]
        "one@example.org" = "bob@people.example"
        [routes]
        example.net = ["10.0.0.5:2525", "10.0.0.6"]
        ".example.net" = "lmtp:127.0.0.1:8024"
        "*" = ["smart.example"]
        [delivery]
        smtp_port = 2526
        eight_bit = "bounce"
        [retry]
        host_min_s = 0.5
        [log]
        attempts = "attempts.log"
        "#,
    );
    assert_eq!(config.hostname, "mx.example.org");
    assert_eq!(config.client_networks[0].to_string(), "10.0.0.0/8");
    assert_eq!(config.client_networks[1].to_string(), "192.0.2.1/32");
    assert_eq!(config.listen.command_timeout_ms, 32_000);
    assert_eq!(config.retry.host_ms_min, 500);
    assert_eq!(config.delivery.eight_bit, EightBit::Bounce);
    assert_eq!(config.log.attempts, LogTarget::File("attempts.log".into()));
    let names: Vec<&str> = config.lists.iter().map(|list| &**list.list.name()).collect();
    assert_eq!(names, ["news", "talk"]);
    let news = config.lists[0].list.settings();
    assert_eq!(news.bounces.as_str(), "news-bounces@lists.example.org");
    assert_eq!(news.list_id, "news.lists.example.org");
    assert_eq!(config.lists[1].list.settings().precedence, None);
    let route = |domain: &str| config.rules.of_domain(domain).map(|route| route.hop.to_string());
    assert_eq!(route("example.net").as_deref(), Some("10.0.0.5:2525 10.0.0.6:2526"));
    assert_eq!(route("a.example.net").as_deref(), Some("lmtp:127.0.0.1:8024"));
    assert_eq!(route("else.example").as_deref(), Some("smart.example:2526"));
    assert!(config.policy.is_local_domain("lists.example.org"));
    assert_eq!(config.warnings, []);
}

#[test]
fn unknown_keys_get_their_likely_spelling_or_place() {
    let text = "hostnam = \"a.example\"
[lists.news]
address = \"news@example.org\"
subscriber = \"/proc/version\"
[listen]
command_timeout = 5
data_dir = \"x\"
zebra = 1
mynetworks = 1
[delivry]
x = 1
[domains]
foo = 1
[dsn]
x = 1
[zebras]
x = 1
";
    let expected = "\
stentor.toml:1:1: unknown key `hostnam`; did you mean `hostname`?
stentor.toml:4:1: unknown key `subscriber` in [lists.news]; did you mean `subscribers`?
stentor.toml:6:1: unknown key `command_timeout` in [listen]; did you mean `command_timeout_s`?
stentor.toml:7:1: unknown key `data_dir` in [listen]; it belongs at the top of the file
stentor.toml:8:1: unknown key `zebra` in [listen]; see docs/operate/configuration.md
stentor.toml:9:1: unknown key `mynetworks` in [listen]; the Postfix parameter is `client_networks` here (docs/operate/moving.md)
stentor.toml:10:2: unknown section [delivry]; did you mean `delivery`?
stentor.toml:12:2: warning: mail to postmaster@example.org is refused, but RFC 5321 section 4.5.1 requires it to be accepted; set `postmaster` in [domains]
stentor.toml:13:1: unknown key `foo` in [domains]; valid keys: `local`, `virtual`, `postmaster`, `relay`
stentor.toml:14:2: unknown section [dsn]; did you mean `dns`?
stentor.toml:16:2: unknown section [zebras]; see docs/operate/configuration.md";
    assert_eq!(findings(text), expected);
}

#[test]
fn wrong_values_are_named_with_what_is_right() {
    let text = "hostname = \"a b\"
message_size_bytes_max = \"50 Mb\"
received_max = 0
client_networks = [\"10.0.0.0/33\", 5]
[listen]
smtp = [\"localhost:25\", \"127.0.0.1:25\", \"127.0.0.1:25\"]
errors_max = -5
session_timeout_s = 1e9
[dns]
servers = []
attempts = 1.5
[delivery]
chunking = \"yes\"
eight_bit = \"bounced\"
smtp_port = 99999
[log]
format = 3
[journal]
segment_bytes = 1048577
[control]
socket = \"/tmp/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x\"
";
    let expected = "\
stentor.toml:1:12: `hostname` is \"a b\"; it must be a host name, such as \"mx.example.org\"
stentor.toml:2:26: `message_size_bytes_max` is \"50 Mb\": \"Mb\" is not a valid unit; valid units: TiB, GiB, MiB, \
    KiB, B, TB, GB, MB, kB
stentor.toml:3:16: `received_max` is 0; it must be from 1 to 1000
stentor.toml:4:20: \"10.0.0.0/33\" is not a network; write, for instance, \"10.0.0.0/8\" or \"2001:db8::/32\"
stentor.toml:4:35: `client_networks` must hold strings, not a whole number
stentor.toml:6:9: \"localhost:25\" is not an address and port; write, for instance, \"0.0.0.0:25\" or \"[::]:25\"
stentor.toml:6:41: \"127.0.0.1:25\" appears twice
stentor.toml:7:14: `errors_max` in [listen] is -5; it must be from 1 to 10000
stentor.toml:8:21: `session_timeout_s` in [listen] is 1e9; it must be from 1s to 1d
stentor.toml:10:11: `servers` in [dns] is empty; omit it for the default
stentor.toml:11:12: `attempts` in [dns] must be a whole number, not a number with a fraction
stentor.toml:13:12: `chunking` in [delivery] must be true or false, not a string
stentor.toml:14:13: `eight_bit` in [delivery] is \"bounced\"; it must be one of \"convert\", \"bounce\"; did you mean \"bounce\"?
stentor.toml:15:13: `smtp_port` in [delivery] is 99999; it must be from 1 to 65535
stentor.toml:17:10: `format` in [log] must be a string, not a whole number
stentor.toml:19:17: `segment_bytes` in [journal] is 1048577; it must be a multiple of 4096
stentor.toml:21:10: the control socket's path `";
    let found = findings(text);
    assert!(found.starts_with(expected), "{found}");
    assert!(found.ends_with("is longer than 107 octets; set `socket` in [control] to a shorter one"), "{found}");
}

#[test]
fn errors_elsewhere_do_not_hide_where_the_server_is() {
    let places = |text: &str| {
        assert!(check_here(text).is_err(), "{text}");
        places_in(Path::new("/etc/stentor.toml"), text)
            .map(|places| [places.data_dir, places.socket].map(|path| path.display().to_string()))
    };
    let here = |dir: &str, socket: &str| Some([dir.to_owned(), socket.to_owned()]);
    assert_eq!(places("hostnam = \"x\"\n"), here("/etc/stentor-data", "/etc/stentor-data/control.sock"));
    assert_eq!(places("data_dir = \"/d\"\nreceived_max = 0\n"), here("/d", "/d/control.sock"));
    let broken = "data_dir = \"d\"\n[control]\nsocket = \"/run/s\"\n[listen\nsmtp = []\n";
    assert_eq!(places(broken), here("/etc/d", "/run/s"));
    // The broken line may be the one that set them.
    assert_eq!(places("data_dir \"/d\"\n"), None);
    assert_eq!(places("data_dir = \"/d\n"), None);
    assert_eq!(places("data_dir = 5\n"), None);
    assert_eq!(places("[control]\nsockt = \"/run/s\"\n"), None);
}

#[test]
fn lists_aliases_and_routes_are_checked_each() {
    let text = "[lists.news]
address = \"news\"
subscribers = \"/nonexistent/news\"
post = \"member\"
archive = \"news\"
[lists.\"a b\"]
address = \"ab@example.org\"
subscribers = \"/\"
[lists]
flat = 1
[aliases]
\"team\" = [\"x@y.example\"]
\"good@example.org\" = [\"a@\", 5]
\"none@example.org\" = 7
[routes]
\"exa mple\" = \"10.0.0.1\"
\"b.example\" = []
\"c.example\" = [\"10.0.0.1:0\", \"host name\"]
d.example = \"10.0.0.1\"
\"D.example\" = \"10.0.0.1\"
";
    let expected = "\
stentor.toml:2:11: \"news\" is not a valid mail address: address has no domain
stentor.toml:3:15: warning: subscribers file `/nonexistent/news` cannot be read: No such file or directory (os error 2); create it (it may be empty), or correct the path. Until then, posts go to the subscribers last read, or get 451 if there are none
stentor.toml:4:8: `post` in [lists.news] is \"member\"; it must be \"anyone\", \"members\" or an array of addresses
stentor.toml:6:8: \"a b\" is not a valid list name: use at most 64 of a-z, A-Z, 0-9, - _ . +
stentor.toml:7:11: `a b-bounces@example.org` is not a valid mail address; set `bounces` of list `a b`
stentor.toml:8:15: warning: subscribers file `/` cannot be read: not a regular file; name a file. Until then, posts go to the subscribers last read, or get 451 if there are none
stentor.toml:10:8: `lists.flat` must be a table, [lists.flat], not a whole number
stentor.toml:12:1: \"team\" is not a valid mail address: address has no domain
stentor.toml:13:23: \"a@\" is not a valid mail address: address has no domain
stentor.toml:13:29: `good@example.org` in [aliases] must hold strings, not a whole number
stentor.toml:14:22: `none@example.org` in [aliases] must be a string or an array of strings, not a whole number
stentor.toml:16:1: \"exa mple\" is not an address, a domain, \".domain\" (its subdomains) or \"*\" (all others)
stentor.toml:17:15: route `b.example` has no hosts
stentor.toml:18:16: \"10.0.0.1:0\" is not a valid route: `0` is not a valid port (1 to 65535)
stentor.toml:18:30: \"host name\" is not a valid route: `host name` is not a valid host name or address
stentor.toml:20:1: route `d.example` already exists at stentor.toml:19";
    assert_eq!(findings(text), expected);
}

#[test]
fn sections_are_compared_with_each_other() {
    let text = "[listen]
connections_max = 50
connections_per_client_max = 51
[lists.news]
address = \"news@example.org\"
subscribers = \"/proc/version\"
owner = \"ghost@example.org\"
[lists.same]
address = \"News@example.org\"
subscribers = \"/proc/version\"
list_id = \"news.example.org\"
[aliases]
\"a@example.org\" = \"b@example.org\"
\"b@example.org\" = \"a@example.org\"
\"news@example.org\" = \"x@people.example\"
\"c@elsewhere.example\" = \"x@people.example\"
[retry]
host_min_s = 100
host_max_s = 99
[journal]
batch_bytes_max = 16777216
";
    let expected = "\
stentor.toml:3:30: `connections_per_client_max` in [listen] must not be greater than `connections_max`
stentor.toml:9:11: `News@example.org` is already the address of list `news` (case does not matter)
stentor.toml:11:11: list `news` also has the list_id `news.example.org`
stentor.toml:14:1: alias loop: `a@example.org` -> `b@example.org` -> `a@example.org`
stentor.toml:15:1: `news@example.org` is already the address of list `news` (case does not matter)
stentor.toml:18:14: `host_min_s` in [retry] must not be greater than `host_max_s`
stentor.toml:21:19: `batch_bytes_max` in [journal] is 16777216; it must be at most half of `segment_bytes` (16777216)";
    assert_eq!(findings(text), expected);
    // Possible consequences of another error are reported once that error is fixed.
    let text = "[aliases]\n\"c@elsewhere.example\" = \"x@people.example\"\n";
    assert_eq!(
        findings(text),
        "stentor.toml:2:1: domain `elsewhere.example` of alias `c@elsewhere.example` is not local"
    );
    let text = "[lists.news]\naddress = \"news@example.org\"\nsubscribers = \"/proc/version\"\nowner = \"ghost@example.org\"\n";
    assert_eq!(findings(text), "stentor.toml:4:9: no list or alias has the local address `ghost@example.org`");
}

#[test]
fn a_lower_total_lowers_the_defaults_below_it() {
    let config =
        config("[listen]\nconnections_max = 10\n[delivery]\nconnections_max = 5\n[journal]\nsegment_bytes = 1048576\n");
    assert_eq!(config.listen.connections_per_client_max, 10);
    assert_eq!(config.delivery.connections_per_site_max, 5);
    assert_eq!(config.journal.batch_bytes_max, 524_288);
}

#[test]
fn what_is_doubtful_is_a_warning() {
    let text = "[domains]\nlocal = [\"example.org\"]\n[routes]\nexample.org = \"10.0.0.1\"\n";
    let expected = "\
stentor.toml:1:2: warning: mail to postmaster@example.org is refused, but RFC 5321 section 4.5.1 requires it to be accepted; set `postmaster` in [domains]
stentor.toml:4:1: warning: route `example.org` is never used: the domain is local, and its unknown addresses are refused";
    assert_eq!(findings(text), expected);
}

#[test]
fn client_networks_are_those_that_are_meant() {
    let text =
        "client_networks = [\"0.0.0.0/0\", \"10.0.0.1/8\", \"::/0\", \"fc00::/7\", \"2000::/3\", \"2001:db8::1/64\"]\n";
    let open = "makes this server an open relay: anyone can send mail to anyone through it; if that is intended, \
        confirm it with open_relay = \"yes, for everyone\"";
    let expected = format!(
        "stentor.toml:1:20: client network 0.0.0.0/0 {open}\n\
         stentor.toml:1:33: \"10.0.0.1/8\" has host bits set; write \"10.0.0.0/8\" for the network, or \"10.0.0.1\" \
             for this single address\n\
         stentor.toml:1:47: client network ::/0 {open}\n\
         stentor.toml:1:67: client network 2000::/3 {open}\n\
         stentor.toml:1:79: \"2001:db8::1/64\" has host bits set; write \"2001:db8::/64\" for the network, or \
             \"2001:db8::1\" for this single address"
    );
    assert_eq!(findings(text), expected);
    // Repeated in `open_relay`, it is intended.
    let text = "client_networks = [\"0.0.0.0/0\", \"::/0\"]\nopen_relay = \"yes, for everyone\"\n";
    assert!(config(text).policy.is_trusted("198.51.100.7".parse().unwrap()));
    let expected = "stentor.toml:1:14: `open_relay` is \"yes\"; it can only be \"yes, for everyone\"";
    assert_eq!(findings("open_relay = \"yes\"\n"), expected);
}

#[test]
fn durations_and_sizes_may_have_units() {
    let text = "message_size_bytes_max = \"10 MiB\"
[retry]
lifetime_s = \"5d\"
host_min_s = \"500ms\"
[delivery]
idle_ms = \"1m\"
[journal]
commit_delay_us = \"1ms\"
address_unseen_days = \"2w\"
[log]
rotate_hours = \"7d\"
rotate_bytes = \"1GiB\"
";
    let with = config(text);
    assert_eq!(
        (with.message_size_bytes_max, with.retry.lifetime_ms, with.retry.host_ms_min),
        (10 << 20, 432_000_000, 500)
    );
    assert_eq!((with.delivery.idle_ms, with.journal.commit_delay_us), (60_000, 1_000));
    assert_eq!(with.journal.address_unseen_ms, 14 * 86_400_000);
    assert_eq!((with.log.rotation.age_ms_max, with.log.rotation.bytes_max), (7 * 86_400_000, 1 << 30));
    let plain = "stentor.toml:2:15: `expire_days` in [quarantine] is 0; it must be from 1 to 3650 days";
    assert_eq!(findings("[quarantine]\nexpire_days = 0\n"), plain);
    let text = "[retry]\nlifetime_s = \"40d\"\n[journal]\naddress_unseen_days = \"36h\"\nsegment_bytes = \"2 GiB\"\n\
                addresses_max = \"1000\"\n[dns]\ntimeout_ms = true\n";
    let expected = "\
stentor.toml:2:14: `lifetime_s` in [retry] is 40d; it must be from 1s to 30d
stentor.toml:4:23: `address_unseen_days` in [journal] is 36h; it must be a whole number of days
stentor.toml:5:17: `segment_bytes` in [journal] is 2 GiB; it must be from 1MiB to 1GiB
stentor.toml:6:17: `addresses_max` in [journal] must be a whole number, not a string
stentor.toml:8:14: `timeout_ms` in [dns] must be a number of milliseconds, or a string with units such as \"1h30m\", not true or \
false";
    assert_eq!(findings(text), expected);
}

#[test]
fn syntax_errors_are_all_reported_and_hide_nothing_else() {
    let text = "hostname = \nreceived_max = 0\n[listen\nsmtp = [\"127.0.0.1:25\"]\n[lists.news]\naddress = news@example.org\n[dns]\natempts = 3\n";
    let found = findings(text);
    let lines: Vec<&str> = found.lines().collect();
    for (line, what) in
        [(1, "not TOML"), (2, "must be from 1 to 1000"), (3, "not TOML"), (6, "not TOML"), (8, "`attempts`")]
    {
        let place = format!("stentor.toml:{line}:");
        assert!(lines.iter().any(|found| found.starts_with(&place) && found.contains(what)), "{line}: {found}");
    }
    assert!(!found.contains("missing"), "{found}");
}

#[test]
fn a_key_twice_is_an_error_with_its_place() {
    let found = findings("received_max = 5\nreceived_max = 6\n");
    assert!(found.starts_with("stentor.toml:2:1: not TOML: duplicate key"), "{found}");
}

#[test]
fn paths_are_relative_to_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stentor.toml");
    fs::write(folder.path().join("news.txt"), "ann@people.example\n").unwrap();
    fs::write(
        &file,
        "[lists.news]\naddress = \"news@example.org\"\nsubscribers = \"news.txt\"\nowner = \"a@people.example\"\n",
    )
    .unwrap();
    let config = check(&file).unwrap_or_else(|found| panic!("{found:?}"));
    assert_eq!(config.lists[0].subscribers, Some(folder.path().join("news.txt")));
    assert_eq!(config.data_dir, folder.path().join("stentor-data"));
    assert_eq!(config.file, Some(file));
    assert_eq!(config.warnings, []);
}

#[test]
fn a_file_that_cannot_be_read_is_one_error() {
    let found = check(Path::new("/nonexistent/stentor.toml")).unwrap_err();
    assert_eq!(
        found[0].to_string(),
        "/nonexistent/stentor.toml: cannot be read: No such file or directory (os error 2)"
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stentor.toml");
    fs::write(&file, b"hostname = \"\xff\"").unwrap();
    assert!(check(&file).unwrap_err()[0].to_string().contains("cannot be read: invalid utf-8"));
}

#[test]
fn columns_count_characters() {
    assert!(findings("hostname = \"ü.example\"; x = 1\n").starts_with("stentor.toml:1:23:"));
}

#[test]
fn how_mail_is_sent_is_checked() {
    let text = r#"[sources.one]
address = ["127.0.0.1", "127.0.0.2"]
warm_up_per_day = [10, 0]
[sources.two]
address = "127.0.0.1"
warm_up_since = "2026-02-30"
[sources.three]
ehlo_name = "a b"
[sites."a b"]
connections_max = 0
mixes_domains = 1
[senders."home.example"]
sources = ["one", "four"]
share = 101
[lists.news]
address = "news@lists.example.org"
subscribers = "/proc/version"
sources = "five"
coalesce_over = 0
digest = "html"
[classes]
ordinary_networks = ["10.0.0.0/8"]
bulk_networks = ["10.0.0.0/8"]
[retry]
bulk_site_min_s = 100
bulk_site_max_s = 10
"#;
    let expected = "\
stentor.toml:1:1: warning: mail to postmaster@lists.example.org is refused, but RFC 5321 section 4.5.1 requires it to be accepted; set `postmaster` in [domains]
stentor.toml:2:25: a source can have only one IPv4 and one IPv6 address
stentor.toml:3:19: `warm_up_since` is missing in [sources.one]; set it to the first day of the warm-up
stentor.toml:3:24: `warm_up_per_day` in [sources.one] must hold whole numbers from 1 to 1000000000
stentor.toml:5:11: 127.0.0.1 is already the address of another source
stentor.toml:6:17: \"2026-02-30\" is not a valid date; write, for instance, \"2026-11-22\"
stentor.toml:7:10: `address` is missing in [sources.three]; add, for instance, address = \"192.0.2.1\"
stentor.toml:8:13: \"a b\" is not a host name
stentor.toml:9:8: \"a b\" is neither an MX host name nor a suffix of one, such as \"google.com\"
stentor.toml:10:19: `connections_max` in [sites.a b] is 0; it must be from 1 to 100000
stentor.toml:11:17: `mixes_domains` in [sites.a b] must be true or false, not a whole number
stentor.toml:13:19: there is no source \"four\"; see [sources.NAME]
stentor.toml:14:9: `share` in [senders.home.example] is 101; it must be from 1 to 100
stentor.toml:18:11: there is no source \"five\"; see [sources.NAME]
stentor.toml:19:17: `coalesce_over` in [lists.news] is 0; it must be from 1 to 10000
stentor.toml:20:10: `digest` in [lists.news] is \"html\"; it must be one of \"mime\", \"plain\"
stentor.toml:23:18: network 10.0.0.0/8 already has a class
stentor.toml:25:19: `bulk_site_min_s` in [retry] must not be greater than `bulk_site_max_s`";
    assert_eq!(findings(text), expected);
}

/// A file with one entry in each table with free names, so that all readers run.
pub(super) const ONE_OF_EACH: &str = "[lists.NAME]\naddress = \"news@example.org\"\nsubscribers = \"/proc/version\"\n\
     [sources.NAME]\naddress = \"192.0.2.1\"\n[sites.\"mx.example\"]\n[senders.\"example.org\"]\n[queue_only.NAME]\nall = true\n\
     [webhooks.NAME]\nurl = \"http://x/\"\nsecret = \"0123456789abcdef\"\n\
     [dns_lists.NAME]\nzone = \"bl.example\"\n[tables.NAME]\ninline = {}\n[policy_services.NAME]\naddress = \"unix:/x\"\n[[rules]]\ndo = \"ok\"\nnot = {}\n\
     [[milters]]\nname = \"dkim\"\naddress = \"unix:/dkim\"\n\
     [[dkim]]\ndomain = \"example.org\"\nselector = \"s1\"\nkey = \"s1.pem\"\n\
     [[tls.certificates]]\nchain = \"chain.pem\"\nkey = \"key.pem\"\n\
     [acme]\nagree_terms = true\n[[acme.certificates]]\nnames = [\"mx.example.org\"]\n\
     [[tls_policy]]\ndomain = \"example.org\"\nrequire = \"verify\"\n\
     [listen]\nsubmission = [{ address = \"127.0.0.1:587\" }]\n\
     [smart_hosts.\"HOST:587\"]\nuser = \"u\"\nsecret_file = \"/dev/null\"\n\
     [smart_hosts.\"A:587\"]\nuser = \"u\"\noauth = { token_url = \"https://x/\", client_id = \"x\", refresh_token_file = \"/dev/null\" }\n";

/// Every key that the readers read.
pub(super) fn known_keys() -> Vec<String> {
    let text = ONE_OF_EACH;
    let (document, _) = DeTable::parse_recoverable(text);
    let context = Context::new(Path::new("stentor.toml"), text);
    assert!(sections::read(&context, document.get_ref()).is_some());
    let keys = context.known_keys();
    assert!(keys.len() > 60, "{keys:?}");
    keys
}

#[test]
fn who_may_submit_as_whom_is_read_and_checked() {
    let text = "[submission]\nfolder = \"spool\"\nstrict = true\ntrusted_users = [\"www-data\", \"1005\"]\n\
                senders = { ann = [\"Ann@Shop.Example\", \"@Lists.Example\"], 1000 = \"bob@x.example\" }\n";
    let submission = config(text).submission;
    assert!(submission.strict && submission.folder.is_some_and(|folder| folder.ends_with("spool")));
    assert_eq!(submission.trusted_users, ["www-data", "1005"]);
    assert_eq!(submission.senders["ann"], ["Ann@shop.example", "@lists.example"]);
    assert_eq!(submission.senders["1000"], ["bob@x.example"]);
    assert_eq!(config("").submission.folder, None);
    let found = findings(
        "[submission]\ntrusted_users = [\"a b\"]\nsenders = { ann = [\"no address\"], \"x@y\" = [] }\nfile = \"\"\n",
    );
    for expected in [
        "\"a b\" is not a login name",
        "\"no address\" is neither an address nor",
        "\"x@y\" is not a login name",
        "unknown key `file`",
    ] {
        assert!(found.contains(expected), "{expected}: {found}");
    }
}

#[test]
fn tls_and_logins_are_read_and_checked() {
    let text = "[listen]\nsmtps = [\"127.0.0.1:465\"]\nsubmission = \"127.0.0.1:587\"\n[tls]\nmin_version = \"1.3\"\nclient_ca_file = \"ca.pem\"\n\
                client_certificates = [\"App.Example\"]\n[[tls.certificates]]\nchain = \"a.pem\"\nkey = \"a.key\"\n\
                [auth]\nusers = \"users\"\nmechanisms = [\"plain\", \"SCRAM-SHA-256\"]\nclear_networks = [\"10.0.0.0/8\"]\nown_senders = \"envelope\"\n";
    let read = config(text);
    assert_eq!((read.listen.smtps.len(), read.listen.submission.len()), (1, 1));
    assert_eq!((read.tls.min_version, read.tls.certificates.len()), (stentor_tls::MinVersion::Tls13, 1));
    assert_eq!(read.tls.client_certificates[0].text, "app.example");
    assert_eq!(read.auth.mechanisms.to_string(), "SCRAM-SHA-256 PLAIN", "best first");
    assert_eq!((read.auth.own_senders, read.auth.clear_networks.len()), (OwnSenders::Envelope, 1));
    let default = config("");
    assert!(default.auth.source.is_none() && default.listen.submission.is_empty());
    assert_eq!(config("[auth]\ndovecot = \"/x\"\n").auth.mechanisms.iter().count(), 6);
    let found = findings(
        "[listen]\nsmtp = \"127.0.0.1:25\"\nsubmission = [\"127.0.0.1:25\"]\n[tls]\nclient_certificates = [\"x y\"]\n[[tls.certificates]]\nchain = \"a\"\n\
         [auth]\nusers = \"u\"\ndovecot = \"d\"\nmechanisms = [\"CRAM-MD5\", \"PLAIN\", \"PLAIN\"]\n",
    );
    for expected in [
        "\"127.0.0.1:25\" appears twice",
        "\"x y\" is not a fingerprint",
        "`key` is missing",
        "`users` and `dovecot` are both set",
        "\"CRAM-MD5\" is not a supported mechanism",
        "PLAIN appears twice",
    ] {
        assert!(found.contains(expected), "{expected}: {found}");
    }
    assert!(findings("[auth]\nusers = \"u\"\nmechanisms = [\"XOAUTH2\"]\n").contains("XOAUTH2 needs `dovecot`"));
    assert!(findings("[tls]\nclient_certificates = [\"x.y\"]\n").contains("names need a CA: set `client_ca_file`"));
    let nobody = findings("[listen]\nsubmission = [\"127.0.0.1:587\"]\n");
    assert!(nobody.contains("nobody can log in"), "{nobody}");
    let both = "[listen]\nsmtps = \"127.0.0.1:465\"\n[auth]\nusers = \"u\"\ndovecot = \"d\"\n";
    assert!(!findings(both).contains("nobody can log in"));
}

#[test]
fn the_example_is_sound_and_names_every_key() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("stentor.example.toml")).unwrap();
    assert_eq!(findings(&text), "");
    // Each commented-out setting (`#` without a space) is, once uncommented, a known key with a valid value.
    let taken_in = |line: &str| match line.strip_prefix('#') {
        Some(setting) if !setting.starts_with(' ') => {
            setting.to_owned()
                + "
"
        }
        _ => {
            line.to_owned()
                + "
"
        }
    };
    let full: String = text.lines().map(taken_in).collect();
    let full =
        full.replace("\"news.subscribers\"", "\"/proc/version\"").replace("\"talk.subscribers\"", "\"/proc/version\"");
    let full = full.replace("\"srs.secret\"", "\"tests/golden/srs.secret\"");
    let (full_config, default) = (config(&full), without_file().unwrap());
    assert_eq!(full_config.warnings, []);
    assert_eq!(full_config.listen, default.listen);
    assert_eq!(full_config.delivery, default.delivery);
    // Bulk mail's own clocks exist only if they are set.
    assert_eq!(full_config.retry.bulk_site, Some(Backoff::new(default.retry.site_ms_min, default.retry.site_ms_max)));
    let own = RetryConfig { bulk_lifetime_ms: None, bounce_lifetime_ms: None, ..full_config.retry.clone() };
    let retry = RetryConfig { bulk_site: None, bulk_recipient: None, ..own };
    assert_eq!(retry, default.retry);
    assert_eq!(full_config.journal, default.journal);
    assert_eq!(full_config.log, default.log);
    assert_eq!(full_config.history, default.history);
    assert_eq!(super::BouncesConfig { rules_file: None, ..full_config.bounces.clone() }, default.bounces);
    assert_eq!(full_config.control, default.control);
    assert_eq!(HttpConfig { link_base: None, ..full_config.http.clone() }, default.http);
    assert_eq!(full_config.dns.timeout_ms, default.dns.timeout_ms);
    for key in known_keys() {
        let (section, name) = key.rsplit_once('.').unwrap_or(("", &key));
        let is_section = full.contains(&format!("[{name}]")) || full.contains(&format!("[{name}."));
        let is_array = full.contains(&format!("[[{key}]]"));
        assert!(
            is_array
                || is_section && section.is_empty()
                || full.contains(&format!(".{name}]"))
                || full.lines().any(|line| line.starts_with(&format!("{name} = "))),
            "{key}"
        );
    }
}

#[test]
fn the_reference_names_every_key() {
    let text: String = pages::reference().iter().map(|page| fs::read_to_string(page).unwrap()).collect();
    for key in known_keys() {
        let name = key.rsplit('.').next().unwrap();
        assert!(
            text.contains(&format!("`{name}`"))
                || text.contains(&format!("[{name}]"))
                || text.contains(&format!("[{name}.")),
            "{key}"
        );
    }
}

/// `section.key` and value of every setting in the example, which has the defaults (see the test above).
fn defaults() -> HashMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("stentor.example.toml")).unwrap();
    let (mut section, mut all) = (String::new(), HashMap::new());
    for line in text.lines().map(|line| line.strip_prefix('#').unwrap_or(line)) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name.to_owned();
        } else if let Some((key, value)) = line.split_once(" = ").filter(|(key, _)| !key.contains(' ')) {
            all.insert(format!("{section}.{key}"), value.to_owned());
        }
    }
    all
}

/// Checks that the table of limits in docs/operate/limits.md names the key of each configurable limit, and its
/// default in readable form.
#[test]
fn the_limits_are_those_that_hold() {
    let (defaults, mut compared) = (defaults(), 0);
    for (heading, cells) in pages::table_rows("limits.md") {
        let [_, value, keys, ..] = cells.as_slice() else { continue };
        let Some((section, key)) = keys.strip_prefix("`[").and_then(|keys| keys.split_once("] ")) else { continue };
        let key = key.split('`').next().unwrap();
        let Some(default) = defaults.get(&format!("{section}.{key}")).filter(|_| heading == "Limits") else { continue };
        let mut words = value.split([' ', ';']);
        let number: u64 = words.next().unwrap().trim_end_matches(',').replace(',', "").parse().unwrap();
        let unit = match words.next() {
            Some("MiB") => 1 << 20,
            Some("GiB") => 1 << 30,
            Some("days") => 86_400,
            _ => 1,
        };
        assert_eq!((number * unit).to_string(), *default, "[{section}] {key} in docs/operate/limits.md");
        compared += 1;
    }
    assert!(compared >= 7, "{compared}");
}

#[test]
fn tls_names_files_and_where_they_stand() {
    let text = "[tls]\ncertificates = [\n  { chain = \"a.pem\", key = \"/b.key\" },\n]\nmin_version = \"1.3\"\n\
                client_ca_file = \"ca.pem\"\nclient_certificates = [\"Host.Example\"]\nclient_unverified = \"refuse\"\n";
    let mut tls = config(text).tls;
    let certificate = tls.certificates.pop().unwrap();
    let at = |line, column| FilePosition { line, column };
    assert_eq!((certificate.chain_at, certificate.key_at), (at(3, 13), at(3, 28)));
    assert_eq!(certificate.files.key, Path::new("/b.key"));
    assert_eq!(tls.client_ca_file, Some(CaFile { path: "ca.pem".into(), named_at: at(6, 18) }));
    let host = TrustedClient { text: "host.example".to_owned(), fingerprint: None };
    assert_eq!(tls.client_certificates, [host]);
    assert_eq!(tls.client_unverified, UnverifiedClients::Refuse);
    let text = "[[tls.certificates]]\nchain = \"a.pem\"\nkey = \"a.key\"\n[[tls.certificates]]\nchain = \"b.pem\"\nkey = \"b.key\"\n";
    assert_eq!(config(text).tls.files().len(), 2);
    // The files are read at the start and by `stentor check`.
    let read = config(text);
    let errors = stentor_tls::Identities::load(&read.tls.files(), 0).unwrap_err();
    let errors = read.certificate_errors(errors);
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let next = "give the PEM file from the CA, with the server's own certificate first (certbot: fullchain.pem)";
    let at = |place: &str| format!("{place}: there is no such file; {next}");
    assert_eq!(lines, [at(":2:9: a.pem"), at(":5:9: b.pem")]);
    for (text, expected) in [
        ("certificates = [{ chain = \"a.pem\" }]", "`key` is missing in [tls.certificates.1]"),
        ("certificates = [{ chain = \"a.pem\", key = \"a.key\", keys = 1 }]", "did you mean `key`?"),
        ("certificates = \"a.pem\"", "must be an array of tables, [[tls.certificates]], not a string"),
        ("min_version = \"1.1\"", "it must be one of \"1.2\", \"1.3\""),
        ("client_certificates = [\"a.example\"]", "names need a CA"),
        (
            "client_ca_file = \"ca.pem\"\nclient_certificates = [\"*.A.example\"]",
            "\"*.A.example\" never matches: write \".a.example\" for all names below a.example",
        ),
        ("client_ca_file = \"ca.pem\"\nclient_certificates = [\".\"]", "\".\" is not a valid domain after the dot"),
        ("client_unverified = \"refuse\"", "without `client_ca_file` no client can be verified"),
    ] {
        let found = findings(&format!("[tls]\n{text}\n"));
        assert!(found.contains(expected), "{expected}: {found}");
    }
    let hash = [0xab; 32];
    for (prefix, expected) in [
        ("", PinnedHash::Either(hash)),
        ("key:", PinnedHash::PublicKey(hash)),
        ("CERT:", PinnedHash::Certificate(hash)),
    ] {
        let text = format!("[tls]\nclient_certificates = [\"{prefix}{}AB\"]\n", "ab:".repeat(31));
        assert_eq!(config(&text).tls.client_certificates[0].fingerprint, Some(expected), "{prefix}");
    }
    for bad in ["key:12", &"z".repeat(64)] {
        let found = findings(&format!("[tls]\nclient_certificates = [\"{bad}\"]\n"));
        assert!(found.contains("is not a fingerprint"), "{found}");
    }
}

mod random {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "([a-z_]{0,8}|\\[|\\]|\\.|=|\"|\n| |#|[0-9]|é|\\{|\\}|,|'){0,60}") {
            let _ = check_text(Path::new("stentor.toml"), &text);
        }

        #[test]
        fn no_value_makes_it_panic(
            key in prop::sample::select(vec![
                "hostname", "client_networks", "listen.smtp", "domains.local", "domains.postmaster", "routes.a", "lists.a.post",
                "lists.a.address", "lists.a.list_id", "dns.servers", "retry.host_min_s", "listen.errors_max", "aliases.a",
            ]),
            value in "\"[^\"\\\\\\p{Cc}]{0,20}\"|-?[0-9]{1,30}|[0-9]{1,3}\\.[0-9]{1,3}|true|inf|nan|\\[\\]|\\[\"[a-z.@:]{0,9}\"\\]|\\{\\}",
        ) {
            let text = format!("{key} = {value}\n");
            if let Err(found) = check_text(Path::new("stentor.toml"), &text) {
                prop_assert!(!found.is_empty());
            }
        }
    }
}

#[test]
fn log_targets_are_places_of_this_host() {
    use stentor_logs::settings::SyslogTo;
    let text = "[log]
attempts = \"syslog\"
deliveries = \"mail.log\"
refusals = \"syslog:127.0.0.1:514\"
audit = \"journald:/run/x\"
bulk = \"attempts\"
lists = { news = \"news.log\" }
[lists.news]
address = \"news@example.org\"
subscribers = \"/proc/version\"
";
    let log = config(text).log;
    assert_eq!(log.attempts, LogTarget::Syslog(SyslogTo::Unix("/dev/log".into())));
    assert_eq!(log.refusals, Some(LogTarget::Syslog(SyslogTo::Udp("127.0.0.1:514".parse().unwrap()))));
    assert_eq!(log.audit, Some(LogTarget::Journald("/run/x".into())));
    assert_eq!((log.bulk, log.lists.len()), (None, 1));
    let wrong = findings("[log]\nattempts = \"syslog:192.0.2.1:514\"\nlists = { nobody = \"x\" }\n");
    assert!(wrong.contains("is not on this host") && wrong.contains("is not the name of a list"), "{wrong}");
}
