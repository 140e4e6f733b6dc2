//! Tables, policy services, DNS lists and hops that are defined and never used: usually a rule or route was forgotten.
//! Sources need no such check: mail without `sources` of its own uses all of them.

use std::collections::HashSet;

use stentor_rules::{NextHop, TableId};
use stentor_tables::Table;

use super::configuration::Config;
use super::rule_sources::TableSource;
use super::smart_hosts::named_hops;

/// A section or key that nothing uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unused {
    pub section: String,
    pub key: String,
    pub what: String,
}

impl Config {
    /// What is defined and never used. `tables` are the tables that could be read: their values may name hops.
    pub fn unused(&self, tables: &[Table]) -> Vec<Unused> {
        let mut found = self.unused_tables();
        found.extend(self.unused_dns_lists());
        let mut hops: Vec<&str> = self.unused_hops(tables);
        hops.sort_unstable();
        found.extend(hops.into_iter().map(|name| {
            let what = format!("hop {name} is never used: no route, rule, archive or table has \"hop:{name}\"");
            Unused { section: "hops".to_owned(), key: name.to_owned(), what }
        }));
        found
    }

    /// Tables and policy services.
    fn unused_tables(&self) -> Vec<Unused> {
        let mut found = Vec::new();
        for (at, table) in self.tables.iter().enumerate() {
            if u16::try_from(at).is_ok_and(|id| self.rules.is_used(TableId(id))) {
                continue;
            }
            let name = &table.name;
            let (section, key, what) = match &table.source {
                TableSource::Service(_) => (
                    format!("policy_services.{name}"),
                    "address",
                    format!("policy service {name} is never asked: no rule has `policy_service = \"{name}\"`"),
                ),
                source => {
                    let key = if matches!(source, TableSource::Inline(_)) { "inline" } else { "source" };
                    let what = format!(
                        "table {name} is never looked up: no rule, nor [routing], [domains] or [addresses] names it"
                    );
                    (format!("tables.{name}"), key, what)
                }
            };
            found.push(Unused { section, key: key.to_owned(), what });
        }
        found
    }

    fn unused_dns_lists(&self) -> Vec<Unused> {
        let unused = self.rules.dns_lists.iter().filter(|list| !self.rules.queries(list));
        let unused = unused.map(|list| {
            let name = &list.name;
            // A score counts all lists that have a weight.
            let or_scored = if list.weight == 0 { "" } else { " or `dns_score_min`" };
            let what = format!("DNS list {name} is never queried: no rule has `dns_list = \"{name}\"`{or_scored}");
            Unused { section: format!("dns_lists.{name}"), key: "zone".to_owned(), what }
        });
        unused.collect()
    }

    fn unused_hops(&self, tables: &[Table]) -> Vec<&str> {
        let name_of = |hop: &NextHop| match hop {
            NextHop::Named(name) => Some(name.to_string()),
            _ => None,
        };
        let named: HashSet<String> = named_hops(self).filter_map(name_of).collect();
        let hops = self.rules.hops.keys().map(AsRef::as_ref);
        let unnamed: Vec<&str> = hops.filter(|name| !named.contains(*name)).collect();
        let Some(values) = self.values(tables).filter(|_| !unnamed.is_empty()) else { return Vec::new() };
        let in_tables: HashSet<&str> = values.iter().flat_map(|value| names_in(value)).collect();
        unnamed.into_iter().filter(|name| !in_tables.contains(name)).collect()
    }

    /// The values of all tables. `None`: some are unknown, as those of patterns, of tables behind sockets, and the
    /// answers of policy services.
    fn values(&self, tables: &[Table]) -> Option<Vec<String>> {
        let (mut values, mut files) = (Vec::new(), 0);
        for table in &self.tables {
            match &table.source {
                TableSource::Inline(entries) => values.extend(entries.iter().map(|entry| entry.value.clone())),
                TableSource::Named(_) => files += 1,
                TableSource::Service(_) => return None,
            }
        }
        if tables.len() < files || tables.iter().any(|table| table.lines().next().is_none()) {
            return None;
        }
        let of_files =
            tables.iter().flat_map(Table::lines).map(|(_, value, _)| String::from_utf8_lossy(value).into_owned());
        values.extend(of_files);
        Some(values)
    }
}

/// Names of hops in the value of a table: `hop:NAME` alone, or in an action.
fn names_in(value: &str) -> impl Iterator<Item = &str> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    value.split("hop:").skip(1).map(move |rest| rest.split(|c| !is_of_name(c)).next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    fn unused(text: &str) -> Vec<String> {
        let config = crate::tests::config(text);
        config.unused(&[]).into_iter().map(|one| format!("{}/{}", one.section, one.key)).collect()
    }

    #[test]
    fn tables_services_and_hops_that_nothing_uses_are_named() {
        let table =
            |name: &str, more: &str| format!("[tables.{name}]\ninline = {{ \"a@x.example\" = \"ok\" }}\n{more}");
        let tables = table("a", "") + &table("b", "as = \"virtual\"\n") + &table("c", "") + &table("d", "");
        let service = "[policy_services.p]\naddress = \"inet:127.0.0.1:9\"\n";
        let hops = "[hops]\nh = \"192.0.2.1\"\ni = \"192.0.2.2\"\n";
        assert_eq!(
            unused(&format!("{tables}{hops}")),
            ["tables.a/inline", "tables.b/inline", "tables.c/inline", "tables.d/inline", "hops/h", "hops/i"]
        );
        // Its answers may name hops.
        assert_eq!(unused(&format!("{service}{hops}")), ["policy_services.p/address"]);
        let uses = "[[rules]]\nsender = \"table:a\"\n[[rules]]\nnot = { recipient = \"table:d\" }\ndo = \"route \
            hop:h\"\n\
                    [addresses]\nvirtual = \"b\"\n[domains]\nrelay = [\"table:c\"]\n[routes]\n\"y.example\" = \"hop:i\"\n";
        assert_eq!(unused(&format!("{tables}{hops}{uses}")), Vec::<String>::new());
        let asked = "[[rules]]\npolicy_service = \"p\"\n";
        assert_eq!(unused(&format!("{service}{asked}")), Vec::<String>::new());
        let routing = "[tables.t]\ninline = { \"x.example\" = \"hop:h\" }\n[routing]\ntables = \"t\"\n";
        assert_eq!(unused(&format!("{routing}{hops}")), ["hops/i"]);
    }

    #[test]
    fn a_hop_is_named_by_its_whole_name() {
        let hops = "[hops]\nin = \"192.0.2.1\"\ninner = \"192.0.2.2\"\n";
        let table = |value: &str| {
            format!("[tables.t]\ninline = {{ \"x.example\" = \"{value}\" }}\n[routing]\ntables = \"t\"\n{hops}")
        };
        assert_eq!(unused(&table("hop:inner")), ["hops/in"]);
        assert_eq!(unused(&table("hop:in")), ["hops/inner"]);
        assert_eq!(unused(&table("route hop:in ")), ["hops/inner"]);
    }
    #[test]
    fn a_dns_list_is_used_by_a_rule_that_names_it_or_by_a_score() {
        let list =
            |name: &str, weight: i32| format!("[dns_lists.{name}]\nzone = \"{name}.bl.example\"\nweight = {weight}\n");
        let lists = list("one", 2) + &list("two", -1) + &list("three", 0);
        let of = |rules: &str| unused(&format!("{lists}{rules}"));
        assert_eq!(of(""), ["dns_lists.one/zone", "dns_lists.two/zone", "dns_lists.three/zone"]);
        let scored = "[[rules]]\ndns_score_min = 2\ndo = \"reject\"\n";
        assert_eq!(of(scored), ["dns_lists.three/zone"]);
        let named = "[[rules]]\ndns_list = \"one\"\nnot = { dns_list = \"three\" }\ndo = \"reject\"\n";
        assert_eq!(of(named), ["dns_lists.two/zone"]);
    }
}
