//! Finds entries of `[smart_hosts]` that no route uses, which are probably mistakes.

use stentor_mail::domain::is_at_or_below;
use stentor_policy::{HostSpec, RouteHost};
use stentor_rules::{NextHop, RuleAction, RuleEffect};
use stentor_tables::Table;

use super::configuration::{Config, ListConfig};
use super::rule_sources::TableSource;

impl Config {
    /// Entries of `[smart_hosts]` that no route uses, by index, with a message. `tables` are the tables that could be
    /// read.
    pub fn unnamed_smart_hosts(&self, tables: &[Table]) -> Vec<(usize, String)> {
        let mut named_tables = 0;
        let mut inline = Vec::new();
        for table in &self.tables {
            match &table.source {
                TableSource::Inline(entries) => {
                    inline.extend(entries.iter().map(|entry| entry.value.to_ascii_lowercase()));
                }
                TableSource::Named(_) => named_tables += 1,
                TableSource::Service(_) => return Vec::new(),
            }
        }
        // The values of patterns and of tables behind sockets are unknown.
        if tables.len() < named_tables || tables.iter().any(|table| table.lines().next().is_none()) {
            return Vec::new();
        }
        let mentions = |host: &str| {
            let says = |table: &Table| {
                table.lines().any(|(_, value, _)| String::from_utf8_lossy(value).to_ascii_lowercase().contains(host))
            };
            inline.iter().any(|value| value.contains(host)) || tables.iter().any(says)
        };
        let named = named_hosts(self);
        let mut found = Vec::new();
        for (at, smart) in self.protection.smart_hosts.iter().enumerate() {
            let is_name = |one: &RouteHost| match &one.host {
                HostSpec::Name(name) => **name == *smart.host,
                HostSpec::Addr(ip) => ip.to_string() == smart.host,
                HostSpec::Mx(domain) => is_at_or_below(&smart.host, domain),
                HostSpec::Unix(_) => false,
            };
            let mut ports = named.iter().filter(|one| is_name(one)).map(|one| one.port).peekable();
            let other = ports.peek().copied();
            if ports.any(|port| port == smart.port) || mentions(&smart.host) {
                continue;
            }
            let (host, port) = (&smart.host, smart.port);
            let what = match other {
                Some(other) => {
                    format!("no route uses {host}:{port}; routes use {host}:{other}, which has no login")
                }
                None if port == self.delivery.smtp_port => {
                    format!(
                        "no route, hop or table names {host}:{port}; this login is used only if an MX record \
                        names it"
                    )
                }
                None => format!("no route, hop or table names {host}:{port}; this login is never used"),
            };
            found.push((at, what));
        }
        found
    }
}

/// Next hops named by routes, rules and archives of lists.
pub(crate) fn named_hops(config: &Config) -> impl Iterator<Item = &NextHop> {
    let rules = &config.rules;
    let routes = rules.by_recipient.entries().chain(rules.by_sender.entries()).map(|entry| &entry.hop);
    let actions = rules.rules.iter().flat_map(|rule| match &rule.does {
        RuleEffect::Actions(actions) => actions.as_slice(),
        RuleEffect::Table => &[],
    });
    let actions = actions.filter_map(|action| match action {
        RuleAction::Route(hop) | RuleAction::Copy(hop) => Some(hop),
        _ => None,
    });
    routes.chain(actions).chain(config.lists.iter().flat_map(ListConfig::archive_hops))
}

/// Hosts named by routes, hops and rules.
fn named_hosts(config: &Config) -> Vec<&RouteHost> {
    let hops = named_hops(config).filter_map(|hop| match hop {
        NextHop::Hosts(hosts) => Some(hosts),
        _ => None,
    });
    hops.chain(config.rules.hops.values()).flat_map(|hosts| hosts.iter()).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_login_that_never_comes_about_is_named() {
        let host = |name: &str| format!("[smart_hosts.\"{name}\"]\nuser = \"u\"\nsecret_command = [\"/bin/true\"]\n");
        let text = [
            "[routes]\n\"*\" = [\"a.example:587\"]\n\"x.example\" = \"hop:inner\"\n[hops]\ninner = [\"b.example:587\"]\n".to_owned(),
            "[[rules]]\nsender = \"s.example\"\ndo = \"route e.example:587\"\n".to_owned(),
            ["a.example:587", "a.example:465", "b.example:587", "c.example:587", "e.example:587", "mx.example:25"].map(host).concat(),
        ];
        let config = crate::tests::config(&text.concat());
        let unnamed = config.unnamed_smart_hosts(&[]);
        assert_eq!(
            unnamed,
            [
                (1, "no route uses a.example:465; routes use a.example:587, which has no login".to_owned()),
                (3, "no route, hop or table names c.example:587; this login is never used".to_owned()),
                (
                    5,
                    "no route, hop or table names mx.example:25; this login is used only if an MX record names it"
                        .to_owned()
                ),
            ]
        );
    }
}
