//! Effect of a reload on each key. [`RULES`] is the only definition; the reload, the log and the reference use it.
//!
//! Promise: the configuration contains only values in force. A key that needs a restart keeps its old value, so that
//! every reader of a setting after a reload (the API reads the history's folder) sees the value that the server uses.
//!
//! Failure: a file with errors changes nothing, even if the errors appear only in combination with retained values.

use std::path::Path;

use super::configuration::{Config, HttpConfig, JournalConfig, SubmissionConfig};
use super::settings::{Origin, SECRET, Setting, Settings};
use super::{Diagnostic, check_alone, check_beside};

/// When a changed key takes effect.
#[derive(Clone, Copy)]
pub enum ReloadEffect {
    AtOnce,
    /// Applies to sessions and connections that start afterwards; open ones keep their values.
    NewConnections,
    /// Copies the old value into the new configuration; returns whether they differed.
    Restart(fn(&mut Config, &Config) -> bool),
}

/// Keys, and the effect of changing them.
pub struct ReloadRule {
    /// Section; empty: the top level of the file.
    pub section: &'static str,
    /// Keys; empty: all keys of the section that no other rule names.
    pub keys: &'static [&'static str],
    pub effect: ReloadEffect,
}

const fn rule(section: &'static str, keys: &'static [&'static str], effect: ReloadEffect) -> ReloadRule {
    ReloadRule { section, keys, effect }
}

macro_rules! restart {
    ($($field:tt)+) => { ReloadEffect::Restart(|new, old| keep(&mut new.$($field)+, &old.$($field)+)) };
}

/// All rules, in the order of the reference. A static, because rules are identified by their address.
pub static RULES: &[ReloadRule] = {
    use ReloadEffect::{AtOnce, NewConnections};
    &[
        rule("", &["hostname"], restart!(hostname)),
        rule("", &["data_dir"], restart!(data_dir)),
        rule("", &["client_networks", "open_relay"], NewConnections),
        // Space for large bodies is allocated for the maximum size.
        rule("", &["message_size_bytes_max"], restart!(message_size_bytes_max)),
        rule("", &["received_max", "authserv_id"], NewConnections),
        rule("listen", &[], NewConnections),
        rule("listen", &["smtp", "smtps", "submission", "address"], ReloadEffect::Restart(keep_listeners)),
        rule("listen", &["body_bytes_max"], restart!(listen.body_bytes_max)),
        rule("listen", &["streamed_bytes_max"], restart!(listen.streamed_bytes_max)),
        rule("auth", &[], NewConnections),
        rule("auth", &stentor_users::LIMIT_KEYS, AtOnce),
        rule("domains", &[], NewConnections),
        rule("call_ahead", &[], NewConnections),
        rule("quarantine", &[], AtOnce),
        rule("lists", &[], AtOnce),
        rule(
            "lists",
            &[
                "address",
                "post",
                "bounces",
                "list_id",
                "precedence",
                "description",
                "rewrite_from",
                "archive_to",
                "archived_at",
            ],
            NewConnections,
        ),
        rule("aliases", &[], NewConnections),
        rule("sources", &[], NewConnections),
        rule("sites", &[], AtOnce),
        rule("senders", &[], AtOnce),
        rule("tables", &[], NewConnections),
        rule("policy_services", &[], NewConnections),
        rule("addresses", &[], NewConnections),
        rule("hops", &[], AtOnce),
        rule("queue_only", &[], AtOnce),
        rule("routes", &[], AtOnce),
        rule("sender_routes", &[], NewConnections),
        rule("routing", &[], NewConnections),
        rule("dns_lists", &[], NewConnections),
        rule("rules", &[], NewConnections),
        rule("milters", &[], NewConnections),
        rule("dkim", &[], AtOnce),
        rule("message_authentication", &[], NewConnections),
        rule("greylist", &[], NewConnections),
        rule("classes", &[], NewConnections),
        rule("tls_policy", &[], AtOnce),
        rule("smart_hosts", &[], NewConnections),
        rule("tls_reports", &[], AtOnce),
        rule("dmarc_reports", &[], AtOnce),
        rule("dns", &[], ReloadEffect::Restart(keep_dns)),
        rule("delivery", &[], AtOnce),
        rule("delivery", &["smtp_port"], restart!(delivery.smtp_port)),
        rule(
            "delivery",
            &[
                "connect_timeout_s",
                "greeting_timeout_s",
                "ehlo_timeout_s",
                "mail_timeout_s",
                "rcpt_timeout_s",
                "data_init_timeout_s",
                "data_block_timeout_s",
                "data_done_timeout_s",
                "eight_bit",
                "chunking",
                "same_name_hosts",
                "tls_ca_file",
                "tls_timeout_s",
                "sts_port",
                "sts_private_allowed",
            ],
            NewConnections,
        ),
        rule("retry", &[], AtOnce),
        rule("journal", &[], ReloadEffect::Restart(keep_journal)),
        rule("journal", &["completion_sync_ms_max"], AtOnce),
        rule("log", &[], restart!(log)),
        rule("history", &[], restart!(history)),
        rule("bounces", &[], AtOnce),
        rule("submission", &[], AtOnce),
        rule("submission", &["folder", "group"], ReloadEffect::Restart(keep_submission)),
        rule("tls", &[], NewConnections),
        rule("acme", &[], AtOnce),
        rule("acme", &["http_listen"], restart!(acme.http_listen)),
        rule("acme", &["tls_listen"], restart!(acme.tls_listen)),
        rule("http", &[], AtOnce),
        rule("http", &["listen", "tls", "connections_max"], ReloadEffect::Restart(keep_http)),
        rule("webhooks", &[], restart!(webhooks)),
        rule("telemetry", &[], restart!(telemetry)),
        rule("control", &[], restart!(control)),
    ]
};

/// Whether a change of this key needs a restart.
pub(super) fn takes_restart(section: &str, key: &str) -> bool {
    rule_of(section, key).is_some_and(|rule| matches!(rule.effect, ReloadEffect::Restart(_)))
}

/// The rule for a key: the one that names it, else the one for the section's other keys.
fn rule_of(section: &str, key: &str) -> Option<&'static ReloadRule> {
    let of_section = || RULES.iter().filter(|rule| rule.section == section.split('.').next().unwrap_or_default());
    of_section().find(|rule| rule.keys.contains(&key)).or_else(|| of_section().find(|rule| rule.keys.is_empty()))
}

impl ReloadRule {
    /// Name of the rule in the log and in the reference.
    pub fn name(&self) -> String {
        let section = if self.section.is_empty() { String::new() } else { format!("[{}]", self.section) };
        format!("{section} {}", self.keys.join(", ")).trim().to_owned()
    }
}

/// Reads the configuration file again, beside the one in force. Keys that need a restart keep their values in force;
/// those that differ in the file are returned.
///
/// # Errors
/// As [`super::check`].
pub fn check_again(path: &Path, in_force: &Config) -> Result<(Config, Vec<String>), Vec<Diagnostic>> {
    let mut of_file = check_alone(path)?;
    let rules = keep_all(&mut of_file, in_force);
    let mut kept: Vec<String> = rules.iter().flat_map(|rule| changed(rule, &of_file, in_force)).collect();
    if kept.is_empty() {
        kept = rules.iter().map(|rule| rule.name()).collect();
    }
    let mut config = check_beside(path, Some(in_force))?;
    keep_all(&mut config, in_force);
    config.settings = in_force_now(&of_file.settings, &in_force.settings, &rules);
    config.restart_pending.clone_from(&kept);
    Ok((config, kept))
}

/// Settings in force while these rules wait for a restart: their keys have the old values, all others those of the
/// file.
fn in_force_now(of_file: &Settings, before: &Settings, waiting: &[&ReloadRule]) -> Settings {
    let waits = |setting: &&Setting| {
        rule_of(&setting.section, &setting.key).is_some_and(|of| waiting.iter().any(|rule| std::ptr::eq(*rule, of)))
    };
    let mut settings = Settings::default();
    let of_file = of_file.iter().filter(|setting| !waits(setting));
    of_file.chain(before.iter().filter(waits)).for_each(|setting| settings.note(setting.clone()));
    settings
}

/// Keys of a rule whose value in the file differs from the one in force: `[dns] attempts`.
fn changed(rule: &ReloadRule, of_file: &Config, in_force: &Config) -> Vec<String> {
    let is_ruled =
        |setting: &&Setting| rule_of(&setting.section, &setting.key).is_some_and(|of| std::ptr::eq(of, rule));
    let written = |settings: &Settings, like: &Setting| {
        let found = settings.iter().find(|setting| (&setting.section, &setting.key) == (&like.section, &like.key));
        found.filter(|setting| matches!(setting.origin, Origin::File { .. })).and_then(|setting| setting.value.clone())
    };
    let mut names = Vec::new();
    for setting in of_file.settings.iter().chain(in_force.settings.iter()).filter(is_ruled) {
        let name = if setting.section.is_empty() {
            setting.key.clone()
        } else {
            format!("[{}] {}", setting.section, setting.key)
        };
        if written(&of_file.settings, setting) != written(&in_force.settings, setting) && !names.contains(&name) {
            names.push(name);
        }
    }
    let has_secret =
        of_file.settings.iter().any(|setting| is_ruled(&setting) && setting.value.as_deref() == Some(SECRET));
    if names.is_empty() && has_secret {
        // Its value is not recorded.
        names.push(rule.name());
    }
    // If empty, the rule's value follows from a key that another rule names.
    names
}

fn keep_all(config: &mut Config, in_force: &Config) -> Vec<&'static ReloadRule> {
    let changed = RULES.iter().filter(|rule| match rule.effect {
        ReloadEffect::Restart(keep) => keep(config, in_force),
        ReloadEffect::AtOnce | ReloadEffect::NewConnections => false,
    });
    changed.collect()
}

fn keep<T: PartialEq + Clone>(new: &mut T, old: &T) -> bool {
    let differs = new != old;
    if differs {
        new.clone_from(old);
    }
    differs
}

/// Keeps the listeners if their addresses changed, with all their settings: they wait for a restart as a whole. If
/// the addresses are equal, new sessions use the settings of the file.
fn keep_listeners(new: &mut Config, old: &Config) -> bool {
    let addresses = |config: &Config| {
        config.listen.listeners().map(|(service, listener)| (service, listener.address)).collect::<Vec<_>>()
    };
    let differs = addresses(new) != addresses(old);
    if differs {
        let (new, old) = (&mut new.listen, &old.listen);
        new.smtp.clone_from(&old.smtp);
        new.smtps.clone_from(&old.smtps);
        new.submission.clone_from(&old.submission);
    }
    differs
}

/// Name servers of the system are followed while the server runs, so a change of them needs no restart.
fn keep_dns(new: &mut Config, old: &Config) -> bool {
    let mut kept = old.dns.clone();
    if new.dns.is_from_system && old.dns.is_from_system {
        kept.servers.clone_from(&new.dns.servers);
    }
    keep(&mut new.dns, &kept)
}

fn keep_journal(new: &mut Config, old: &Config) -> bool {
    let completion_sync_ms_max = new.journal.completion_sync_ms_max;
    keep(&mut new.journal, &JournalConfig { completion_sync_ms_max, ..old.journal.clone() })
}

fn keep_submission(new: &mut Config, old: &Config) -> bool {
    let (folder, group) = (old.submission.folder.clone(), old.submission.group.clone());
    let kept = SubmissionConfig { folder, group, ..new.submission.clone() };
    keep(&mut new.submission, &kept)
}

fn keep_http(new: &mut Config, old: &Config) -> bool {
    let (listen, tls, connections_max) = (old.http.listen.clone(), old.http.tls, old.http.connections_max);
    let kept = HttpConfig { listen, tls, connections_max, ..new.http.clone() };
    keep(&mut new.http, &kept)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::check_text;
    use super::super::tests::known_keys;
    use super::*;

    /// The rule's row in the table of docs/operate/configuration.md.
    fn row(rule: &ReloadRule) -> String {
        let keys = rule.keys.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
        let section = if rule.section.is_empty() { String::new() } else { format!("[{}]", rule.section) };
        let has_others = RULES.iter().any(|other| other.section == rule.section && !other.keys.is_empty());
        let others = if rule.keys.is_empty() && has_others { "all others" } else { "" };
        let name = format!("{section} {keys}{others}").trim().to_owned();
        let effect = match rule.effect {
            ReloadEffect::AtOnce => "at once",
            ReloadEffect::NewConnections => "new connections",
            ReloadEffect::Restart(_) => "restart",
        };
        format!("| {name} | {effect} |")
    }

    #[test]
    fn the_reference_has_the_table() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operate/configuration.md");
        let text = fs::read_to_string(path).unwrap();
        let table = text.split("## What a reload changes").nth(1).expect("the section");
        let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
        let right: Vec<String> = RULES.iter().map(row).collect();
        assert_eq!(rows, right, "the table should be:\n{}", right.join("\n"));
    }

    #[test]
    fn every_key_has_one_rule() {
        for key in known_keys() {
            let parts: Vec<&str> = key.split('.').collect();
            let section = if parts.len() == 1 { "" } else { parts[0] };
            let name = parts[parts.len() - 1];
            if RULES.iter().any(|rule| rule.section == name && section.is_empty()) {
                continue; // a section itself
            }
            let own = RULES.iter().filter(|rule| rule.section == section && rule.keys.contains(&name)).count();
            let others = RULES.iter().filter(|rule| rule.section == section && rule.keys.is_empty()).count();
            assert!(own == 1 || own == 0 && others == 1, "{key}: {own} rules name it, {others} mean it");
        }
    }

    #[test]
    fn what_takes_a_restart_stays_and_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stentor.toml");
        let before = "hostname = \"old.example\"\n[journal]\ncompletion_sync_ms_max = 100\n";
        let in_force = check_text(&path, before).unwrap();
        let after = "hostname = \"new.example\"\ndata_dir = \"elsewhere\"\nmessage_size_bytes_max = 2048\nreceived_max = 7\n\
             [listen]\nsmtp = [\"127.0.0.1:9\"]\nsmtps = [\"127.0.0.1:8\"]\nsubmission = [\"127.0.0.1:7\"]\nbody_bytes_max = 2000000\nstreamed_bytes_max = 2000000\nerrors_max = 3\n\
             [dns]\nattempts = 9\n[delivery]\nsmtp_port = 2626\nidle_ms = 1\n[routes]\n\"a.example\" = [\"mx.a.example\"]\n\
             [journal]\naddresses_max = 2000\ncompletion_sync_ms_max = 50\n[log]\nattempts = \"off\"\n\
             [history]\nkeep_days = 1\n[http]\nlisten = []\ntls = true\nconnections_max = 9\nhost_names = [\"mail.example\"]\n\
             [webhooks.a]\nurl = \"http://127.0.0.1/\"\nsecret = \"0123456789abcdef\"\n[telemetry]\nsample_one_in = 9\n\
             [acme]\nhttp_listen = \"127.0.0.1:6\"\ntls_listen = \"127.0.0.1:5\"\n[control]\nsocket = \"other.sock\"\n[submission]\nfolder = \"spool\"\nstrict = true\n";
        fs::write(&path, after).unwrap();
        let (config, kept) = check_again(&path, &in_force).unwrap();
        let rules = RULES.iter().filter(|rule| matches!(rule.effect, ReloadEffect::Restart(_)));
        for rule in rules {
            let is_named = |key: &&String| match key.strip_prefix('[').and_then(|key| key.split_once("] ")) {
                Some((section, key)) => std::ptr::eq(rule_of(section, key).unwrap(), rule),
                None => std::ptr::eq(rule_of("", key).unwrap(), rule),
            };
            assert!(kept.iter().any(|key| is_named(&key)), "{} in {kept:?}", rule.name());
        }
        // Only the keys that differ in the file.
        let of = |section: &str| kept.iter().filter(|key| key.starts_with(section)).cloned().collect::<Vec<_>>();
        assert_eq!(of("[dns]"), ["[dns] attempts"]);
        assert_eq!(of("[journal]"), ["[journal] addresses_max"]);
        assert_eq!(of("[webhooks"), ["[webhooks.a] url", "[webhooks.a] secret"]);
        assert_eq!((of("[http]").len(), of("[listen]").len(), config.restart_pending.len()), (3, 5, kept.len()));
        assert_eq!((&config.hostname, &config.data_dir), (&in_force.hostname, &in_force.data_dir));
        assert!(config.policy.is_local_domain("old.example") && !config.policy.is_local_domain("new.example"));
        let route = config.rules.of_domain("a.example").map(|route| route.hop.to_string());
        assert_eq!(route.as_deref(), Some("mx.a.example:25"), "routes without a port follow the port in force");
        assert_eq!((config.journal.addresses_max, config.http.connections_max), (10_000_000, 256));
        assert_eq!(
            (config.listen.smtp.clone(), config.log.clone()),
            (in_force.listen.smtp.clone(), in_force.log.clone())
        );
        assert_eq!((config.journal.completion_sync_ms_max, config.http.host_names.len()), (50, 1));
        assert_eq!((config.received_max, config.listen.errors_max, config.delivery.idle_ms), (7, 3, 1));
        assert!(config.submission.folder.is_none() && config.submission.strict);
        // It is pending until the file has the old value again or the server is restarted.
        let (again, still) = check_again(&path, &config).unwrap();
        assert_eq!((&still, &again.restart_pending), (&kept, &kept));
        fs::write(&path, before).unwrap();
        let (back, none) = check_again(&path, &again).unwrap();
        assert_eq!((none, back.restart_pending), (Vec::<String>::new(), Vec::new()));
    }

    #[test]
    fn what_an_earlier_reload_took_is_not_named_by_a_later_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stentor.toml");
        let text = |smtp, auth| {
            format!(
                "[listen]\nsmtp = \"{smtp}\"\nsubmission = {{ address = \"127.0.0.1:587\", auth = \"{auth}\" }}\n[auth]\nusers = \"users\"\n"
            )
        };
        let started = check_text(&path, &text("127.0.0.1:25", "required")).unwrap();
        fs::write(&path, text("127.0.0.1:25", "offered")).unwrap();
        let (in_force, kept) = check_again(&path, &started).unwrap();
        assert_eq!(kept, Vec::<String>::new());
        fs::write(&path, text("127.0.0.1:26", "offered")).unwrap();
        assert_eq!(check_again(&path, &in_force).unwrap().1, ["[listen] smtp"]);
    }

    #[test]
    fn what_follows_from_a_changed_key_is_not_named_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stentor.toml");
        let in_force = check_text(&path, "[dns]\nservers = \"127.0.0.1\"\n").unwrap();
        fs::write(&path, "data_dir = \"elsewhere\"\n[dns]\nservers = \"127.0.0.1\"\n").unwrap();
        // The control socket is in that folder.
        assert_eq!(check_again(&path, &in_force).unwrap().1, ["data_dir"]);
    }

    #[test]
    fn only_a_check_alone_opens_no_subscribers_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stentor.toml");
        let list = "[lists.all]\naddress = \"all@lists.test\"\nsubscribers = \"missing\"\n";
        fs::write(&path, format!("[domains]\nlocal = [\"lists.test\"]\npostmaster = \"me@one.test\"\n{list}")).unwrap();
        let warnings =
            |config: &Config| config.warnings.iter().filter(|found| found.message.contains("missing")).count();
        let config = super::super::check(&path).unwrap();
        assert_eq!(warnings(&config), 1, "{:?}", config.warnings);
        assert_eq!(warnings(&check_again(&path, &config).unwrap().0), 1);
        let alone = check_alone(&path).unwrap();
        assert_eq!((warnings(&alone), alone.file.as_deref()), (0, Some(&*path)));
    }

    #[test]
    fn name_servers_of_the_system_need_no_restart() {
        let path = Path::new("stentor.toml");
        let (in_force, mut new) = (check_text(path, "").unwrap(), check_text(path, "").unwrap());
        new.dns.servers = vec!["192.0.2.53:53".parse().unwrap()];
        assert!(keep_all(&mut new, &in_force).is_empty());
        assert_eq!(new.dns.servers[0].to_string(), "192.0.2.53:53");
        let mut named = check_text(path, "[dns]\nservers = \"192.0.2.53\"\n").unwrap();
        assert_eq!(keep_all(&mut named, &in_force).len(), 1);
        assert_eq!(named.dns, in_force.dns);
    }
}
