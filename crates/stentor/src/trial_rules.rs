//! What `stentor check` says of rules and routes that do not do here what the same words do in Postfix or sendmail.

use stentor_config::Config;
use stentor_policy::Host;
use stentor_rules::{Dialect, Does, Field, Key, NextHop, RuleId, Rulebook};
use stentor_tables::Table;

/// The first `OK` of an access table behind which rules are not asked.
pub(crate) fn ending_ok(rules: &Rulebook, (name, dialect): (&str, Dialect), table: &Table) -> Option<(u32, String)> {
    let id = rules.tables.iter().position(|known| *known.name == *name)?;
    let asks = |at: &usize| {
        let rule = &rules.rules[*at];
        let is_asked = rule.when.tables().iter().any(|(_, table)| usize::from(table.0) == id);
        is_asked && matches!(rule.does, Does::Table)
    };
    let at = (0..rules.rules.len()).find(asks).filter(|at| at + 1 < rules.rules.len())?;
    let entries = table.lines().filter(|(_, value, _)| rules.ends_more(dialect, &String::from_utf8_lossy(value)));
    let (key, value, line) = entries.min_by_key(|(_, _, line)| *line)?;
    let (key, value) = (String::from_utf8_lossy(key), String::from_utf8_lossy(value));
    let (by, next) = (rules.rule_name(RuleId::new(at)), rules.rule_name(RuleId::new(at + 1)));
    let message = format!(
        "{value} for {key:?} in table {name} ends all rules, where Postfix ends one list of restrictions: behind {by} neither {next} nor any \
         later one is asked. What is to hold all the same stands before it, what it excepts from behind it (docs/operate/moving.md)"
    );
    Some((line, message))
}

/// Routes of relay domains to mailboxes, of which nobody knows before the 250 who has one.
pub(crate) fn unknown_recipients(config: &Config) -> Vec<(String, String)> {
    let rules = &config.rules;
    let of_recipients = |tables: &[(Field, _)]| tables.iter().any(|(field, _)| *field == Field::Recipient);
    if rules.rules.iter().any(|rule| of_recipients(rule.when.tables()) || of_recipients(rule.unless.tables())) {
        return Vec::new();
    }
    let is_mailboxes = |hop: &NextHop| match hop {
        NextHop::Hosts(hosts) => hosts.iter().all(|host| host.lmtp && matches!(host.host, Host::Unix(_))),
        _ => false,
    };
    let mut found = Vec::new();
    for entry in rules.by_recipient.entries() {
        let domain = entry.pattern.trim_start_matches('@');
        let below = if domain.starts_with('.') { "any" } else { "" };
        let key = Key::new(&format!("any@{below}{domain}"));
        let is_domain = !domain.contains(['@', '*', '<']);
        if is_domain
            && is_mailboxes(&entry.hop)
            && rules.relay_domains.find(&key).is_some()
            && !config.call_ahead.asks(&key)
        {
            let message = format!(
                "mail for users that {domain} does not have is taken, and bounced to senders who may be forged: `[call_ahead] domains = \
                 [{domain:?}]` asks who takes the mail before it is taken"
            );
            found.push((entry.pattern.to_string(), message));
        }
    }
    found.sort();
    found
}
