//! `[tables]`, `[hops]`, `[routes]`, `[sender_routes]`, `[routing]` and `[[rules]]`; see docs/design/rules.md.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use stentor_mail::Class;
use stentor_mail::address::Address;
use stentor_policy::{Policy, RouteHost};
use stentor_rules::{
    AddressPattern, Addresses, Book, ClientMatch, ClientPattern, Conditions, Dialect, Field, FinalAction, HopSource,
    HopSourceOrder, Matcher, NamePattern, NextHop, PatternError, RelayDomains, RouteEntry, Routes, Rule, RuleAction,
    RuleEffect, Rulebook, TableId, TableName, UNKNOWN, Unroutable, name_of, unlikely,
};

use super::content::{self, PATTERNS_MAX, TABLE};
use super::diagnose::{Spot, likely};
use super::dns_lists::{self, DnsLists};
use super::policy_services;
use super::raw::{Context, Entry, Section};
use super::rule_sources::{InlineEntry, NamedTable, TableConfig, TableSource};
use super::settings;

/// Maximum rules.
const RULES_MAX: usize = 10_000;

/// Everything read from these sections, before the policy is known.
pub(super) struct RuleTables {
    pub tables: Vec<TableConfig>,
    hops: HashMap<Box<str>, Vec<RouteHost>>,
    lists: DnsLists,
    pub rules: Vec<Rule>,
    content: Arc<Matcher>,
    order: HopSourceOrder,
    by_recipient: Routes,
    by_sender: Routes,
    recipient_tables: Vec<TableId>,
    sender_tables: Vec<TableId>,
    relay_domains: RelayDomains,
    /// Set when the tables are known.
    pub addresses: Addresses,
    smtp_port: u16,
    /// Entries of `[routes]` with a domain as pattern, for warnings.
    pub domains: Vec<Spot<String>>,
    /// Recipients of copies made by rules.
    pub copied: Vec<Spot<Address>>,
}

impl RuleTables {
    /// Reports a hop that does not exist.
    pub fn known_hop(&self, context: &Context<'_>, hop: &NextHop, span: &Range<usize>) {
        known_hop(context, &self.hops, hop, span);
    }

    pub fn book(self, policy: Arc<Policy>) -> (Rulebook, Vec<TableConfig>) {
        let names =
            self.tables.iter().map(|table| TableName { name: table.name.as_str().into(), dialect: table.dialect });
        let book = Rulebook::new(Book {
            policy,
            rules: self.rules,
            dns_lists: self.lists,
            content: self.content,
            tables: names.collect(),
            hops: self.hops,
            relay_domains: self.relay_domains,
            addresses: self.addresses,
            order: self.order,
            by_recipient: self.by_recipient,
            by_sender: self.by_sender,
            recipient_tables: self.recipient_tables,
            sender_tables: self.sender_tables,
            smtp_port: self.smtp_port,
        });
        (book, self.tables)
    }
}

fn known_hop(context: &Context<'_>, hops: &HashMap<Box<str>, Vec<RouteHost>>, hop: &NextHop, span: &Range<usize>) {
    if let NextHop::Named(name) = hop
        && !hops.contains_key(name)
    {
        let near = likely(name, hops.keys().map(AsRef::as_ref));
        let near = near.map_or(String::new(), |near| format!("; did you mean {near:?}?"));
        context.error(span.clone(), format!("there is no hop {name:?}{near}; see [hops]"));
    }
}

pub(super) fn read(top: &Section<'_>, relay: &[Spot<String>], smtp_port: u16) -> RuleTables {
    let section = top.section("tables");
    let mut tables: Vec<TableConfig> = section.entries().iter().filter_map(|entry| table(&section, entry)).collect();
    tables.extend(policy_services::read(&top.section("policy_services"), smtp_port));
    let hops = hops(&top.section("hops"), smtp_port);
    let lists = dns_lists::read(&top.section("dns_lists"));
    let reader = Reader {
        context: top.context,
        tables: &tables,
        hops: &hops,
        lists: &lists,
        smtp_port,
        copied: RefCell::default(),
        unusable_tables: Cell::default(),
    };
    let mut domains = Vec::new();
    let by_recipient = reader.routes(&top.section("routes"), &mut domains);
    let by_sender = reader.routes(&top.section("sender_routes"), &mut Vec::new());
    let (order, recipient_tables, sender_tables) = reader.routing(top.section("routing"));
    let mut rules = reader.rules(top);
    let conditions = rules.iter_mut().flat_map(|rule| [&mut rule.when.content, &mut rule.unless.content]);
    let content = Matcher::new(conditions).unwrap_or_else(|error| {
        top.context.error(top.span_of("rules"), error.to_string());
        Matcher::default()
    });
    let copied = reader.copied.into_inner();
    let mut relay_domains = RelayDomains::default();
    for text in relay {
        if text.value.starts_with(TABLE) {
            relay_domains.tables.extend(table_of_domains(top.context, &tables, text));
            continue;
        }
        match AddressPattern::parse(&text.value) {
            Ok(pattern @ AddressPattern::Text(_)) if !text.value.contains('@') => relay_domains.add(pattern),
            _ => {
                let message = format!("{:?} is not a domain, .domain or table:NAME", text.value);
                top.context.error(text.span.clone(), message);
            }
        }
    }
    RuleTables {
        tables,
        lists,
        hops,
        rules,
        content: Arc::new(content),
        order,
        by_recipient,
        by_sender,
        recipient_tables,
        sender_tables,
        relay_domains,
        addresses: Addresses::default(),
        smtp_port,
        domains,
        copied,
    }
}

fn table<'a>(sections: &Section<'a>, entry: &Entry<'a>) -> Option<TableConfig> {
    let section = sections.of_entry(entry)?;
    let context = section.context;
    let dialect = section.choice("as", Dialect::Own, &Dialect::ALL);
    #[cfg(test)]
    section.note("inline", "table", None);
    let inline = section.entry("inline");
    let named = section.text("source");
    let mut place = context.place(&section.span);
    let source = match (inline, named) {
        (Some(entry), None) => inline_source(&section, &entry),
        (None, Some(text)) => {
            if let Some(path) = text_of_postmap(text.value).filter(|_| dialect == Dialect::Aliases) {
                let message = format!(
                    "{:?} is a postmap file, but as = \"aliases\" needs an alias file; write \"aliases:{path}\"",
                    text.value
                );
                context.error(text.span.clone(), message);
            }
            place = context.place(&text.span);
            Some(TableSource::Named(NamedTable { text: text.value.to_owned(), folder: context.path("") }))
        }
        _ => {
            let message = format!("table `{}` needs either `source` or `inline`", entry.key);
            context.error(section.span.clone(), message);
            None
        }
    };
    section.finish();
    Some(TableConfig { name: entry.key.clone(), dialect, source: source?, place })
}

/// Path of a table whose text form is postmap's.
fn text_of_postmap(source: &str) -> Option<&str> {
    let source = source.strip_prefix("proxy:").unwrap_or(source);
    let (kind, path) = source.split_once(':')?;
    matches!(kind, "hash" | "btree" | "dbm" | "sdbm" | "texthash").then_some(path)
}

fn inline_source<'a>(section: &Section<'a>, entry: &Entry<'a>) -> Option<TableSource> {
    let Some(table) = entry.value.as_table() else {
        section.wrong_type(entry, "a table of strings");
        return None;
    };
    section.keep_entry(entry, || settings::value(entry.value));
    let mut entries = Vec::with_capacity(table.len());
    for (key, value) in table {
        match value.get_ref().as_str() {
            Some(text) => entries.push(InlineEntry {
                key: key.get_ref().to_string(),
                value: text.to_owned(),
                place: section.context.place(&key.span()),
                position: section.context.position(&key.span()),
            }),
            None => section.context.error(value.span(), format!("the value of {:?} must be a string", key.get_ref())),
        }
    }
    Some(TableSource::Inline(entries))
}

fn hops(section: &Section<'_>, smtp_port: u16) -> HashMap<Box<str>, Vec<RouteHost>> {
    let mut hops = HashMap::new();
    for entry in section.entries() {
        section.keep_entry(&entry, || settings::value(entry.value));
        let name = match name_of(&entry.key) {
            Ok(name) => name,
            Err(error) => {
                section.context.error(entry.key_span.clone(), error.to_string());
                continue;
            }
        };
        let texts = section.texts_of(&entry);
        match NextHop::hosts(texts.iter().map(|text| text.value), smtp_port) {
            Ok(NextHop::Hosts(hosts)) => drop(hops.insert(name, hosts)),
            Ok(_) => {}
            Err(error) => section.context.error(entry.span, format!("hop `{}`: {error}", entry.key)),
        }
    }
    hops
}

/// Finds a table by name; reports an error if there is none.
pub(super) fn find_table(
    context: &Context<'_>,
    tables: &[TableConfig],
    name: &str,
    span: &Range<usize>,
) -> Option<(TableId, Dialect)> {
    let is_table = |table: &&TableConfig| !matches!(table.source, TableSource::Service(_));
    let found = tables.iter().position(|table| table.name == name && is_table(&table));
    if found.is_none() {
        let near = likely(name, tables.iter().filter(is_table).map(|table| table.name.as_str()));
        let near = near.map_or(String::new(), |near| format!("; did you mean {near:?}?"));
        context.error(span.clone(), format!("there is no table {name:?}{near}; see [tables.NAME]"));
    }
    let found = found?;
    u16::try_from(found).ok().map(|id| (TableId(id), tables[found].dialect))
}

/// Finds the table of `table:NAME` whose keys are domains; its values do not matter.
pub(super) fn table_of_domains(context: &Context<'_>, tables: &[TableConfig], text: &Spot<String>) -> Option<TableId> {
    let name = text.value.strip_prefix(TABLE)?;
    let (id, dialect) = find_table(context, tables, name, &text.span)?;
    if dialect != Dialect::Own {
        let message = format!("table {name:?} cannot list domains: only its keys are used, so omit `as`");
        context.error(text.span.clone(), message);
        return None;
    }
    Some(id)
}

/// Tables and hops, for looking up their names.
struct Reader<'r, 'c> {
    context: &'r Context<'c>,
    tables: &'r [TableConfig],
    hops: &'r HashMap<Box<str>, Vec<RouteHost>>,
    lists: &'r DnsLists,
    smtp_port: u16,
    copied: RefCell<Vec<Spot<Address>>>,
    /// Number of tables that rules and routes cannot use.
    unusable_tables: Cell<usize>,
}

impl Reader<'_, '_> {
    fn table(&self, name: &str, span: &Range<usize>) -> Option<TableId> {
        let id = self.usable_table(name, span);
        self.unusable_tables.update(|count| count + usize::from(id.is_none()));
        id
    }

    fn usable_table(&self, name: &str, span: &Range<usize>) -> Option<TableId> {
        let (id, dialect) = find_table(self.context, self.tables, name, span)?;
        if dialect.is_of_addresses() {
            let message = format!("table {name:?} is an alias or rewriting table; use it in [addresses]");
            self.context.error(span.clone(), message);
            return None;
        }
        Some(id)
    }

    /// Reports a hop that does not exist.
    fn known_hop(&self, hop: &NextHop, span: &Range<usize>) {
        known_hop(self.context, self.hops, hop, span);
    }

    /// Reads `[routes]`. Keys may be unquoted (`example.org = [...]`); TOML then nests tables, which are joined again
    /// here.
    fn routes(&self, section: &Section<'_>, domains: &mut Vec<Spot<String>>) -> Routes {
        let mut routes = Routes::default();
        let mut waiting: Vec<Entry<'_>> = section.entries();
        waiting.reverse();
        while let Some(entry) = waiting.pop() {
            if let Some(inner) = entry.value.as_table() {
                waiting.extend(inner.iter().map(|(key, value)| Entry {
                    key: format!("{}.{}", entry.key, key.get_ref()),
                    key_span: entry.key_span.clone(),
                    value: value.get_ref(),
                    span: value.span(),
                }));
                continue;
            }
            section.keep_entry(&entry, || settings::value(entry.value));
            let pattern = if let Ok(pattern) = AddressPattern::parse(&entry.key) {
                // `user@`, the hint for a bare word, is not a valid route.
                if let Some(why) = unlikely("recipient", &entry.key).filter(|_| entry.key.contains('*')) {
                    self.context.warn(entry.key_span.clone(), why);
                }
                Some(pattern)
            } else {
                let message = format!(
                    "{:?} is not an address, a domain, \".domain\" (its subdomains) or \"*\" (all others)",
                    entry.key
                );
                self.context.error(entry.key_span.clone(), message);
                None
            };
            let (Some(hop), Some(pattern)) = (self.hop_of(section, &entry), pattern) else { continue };
            let route = RouteEntry {
                pattern: entry.key.as_str().into(),
                place: self.context.place(&entry.key_span).into(),
                hop,
            };
            let other = routes.same(&pattern).map(|other| other.place.clone());
            match routes.insert(&pattern, route) {
                Ok(()) if !entry.key.contains(['@', '*']) => {
                    domains.push(Spot { value: pattern.to_string(), span: entry.key_span });
                }
                Ok(()) => {}
                Err(Unroutable::Twice) => {
                    self.context.error(
                        entry.key_span,
                        format!("route `{pattern}` already exists at {}", other.unwrap_or_default()),
                    );
                }
                Err(Unroutable::Pattern) => {
                    let message = format!("`{}` is not a valid route; use a rule with `do = \"route ...\"`", entry.key);
                    self.context.error(entry.key_span, message);
                }
            }
        }
        routes
    }

    /// Reads a next hop: one string, or an array of hosts.
    fn hop_of<'a>(&self, section: &Section<'a>, entry: &Entry<'a>) -> Option<NextHop> {
        let texts = section.texts_of(entry);
        if texts.is_empty() && entry.value.as_array().is_some_and(|items| items.is_empty()) {
            self.context.error(entry.span.clone(), format!("route `{}` has no hosts", entry.key));
        }
        if let [only] = texts.as_slice() {
            return match NextHop::parse(only.value, self.smtp_port) {
                Ok(hop) => {
                    self.known_hop(&hop, &only.span);
                    Some(hop)
                }
                Err(error) => {
                    self.context.error(only.span.clone(), error.to_string());
                    None
                }
            };
        }
        let mut hosts = Vec::with_capacity(texts.len());
        for text in texts {
            match RouteHost::parse(text.value, self.smtp_port) {
                Ok(host) => hosts.push(host),
                Err(error) => self.context.error(text.span, format!("{:?} is not a valid route: {error}", text.value)),
            }
        }
        (!hosts.is_empty()).then_some(NextHop::Hosts(hosts))
    }

    fn routing(&self, section: Section<'_>) -> (HopSourceOrder, Vec<TableId>, Vec<TableId>) {
        let mut named = Vec::new();
        let texts = section.texts("order").unwrap_or_default();
        for text in &texts {
            if let Some((who, _)) = HopSource::ALL.iter().find(|(_, name)| *name == text.value) {
                named.push(*who);
            } else {
                let message = format!(
                    "{:?} is not a valid value of `order`; valid values: rule, recipient, sender and default",
                    text.value
                );
                self.context.error(text.span.clone(), message);
            }
        }
        let order = HopSourceOrder::new(&named).unwrap_or_else(|| {
            self.context
                .error(section.span_of("order"), "`order` names rule, recipient, sender or default twice".to_owned());
            HopSourceOrder::default()
        });
        let ids = |key| {
            let texts = section.texts(key).unwrap_or_default();
            texts.iter().filter_map(|text| self.table(text.value, &text.span)).collect()
        };
        let (recipient, sender) = (ids("tables"), ids("sender_tables"));
        section.finish();
        (order, recipient, sender)
    }

    fn rules(&self, top: &Section<'_>) -> Vec<Rule> {
        let sections = top.tables("rules");
        if let Some(section) = sections.get(RULES_MAX) {
            self.context.error(section.span.clone(), format!("more than {RULES_MAX} rules"));
        }
        sections.into_iter().take(RULES_MAX).filter_map(|section| self.rule(section)).collect()
    }

    fn rule(&self, section: Section<'_>) -> Option<Rule> {
        let name = section.text("name").map(|text| text.value.into());
        let unusable = self.unusable_tables.get();
        let when = self.conditions(&section, false);
        // The action may come from a table or a service whose name was already reported.
        let lacks_source =
            self.unusable_tables.get() > unusable || section.has("policy_service") && !when.asks_service();
        let unless = section.has("not").then(|| section.section("not"));
        let unless = unless.map_or_else(Conditions::default, |section| {
            let unless = self.conditions(&section, true);
            if unless.asks_service() {
                let message = "a policy service replies with an action, so it cannot be a condition in `not`";
                self.context.error(section.span.clone(), message.to_owned());
            }
            section.finish();
            unless
        });
        let does = self.does(&section, &when, lacks_source);
        let is_warning = section.flag("warn_only", false);
        if when.waits() || unless.waits() {
            self.may_wait(&section, &when, does.as_ref());
            if when.strangers.asks_greylist() {
                let message = "`greylisted` is checked at RCPT, before the content is known, and would also delay \
                    mail that does not match the rule: remove the conditions on content, or `greylisted`";
                self.context.error(section.span_of("greylisted"), message.to_owned());
            }
        }
        if let Some(RuleEffect::Actions(actions)) = &does
            && !when.strangers.names_lists()
            && actions.iter().any(ClientMatch::has_lists)
        {
            let message = "{lists} is not replaced here: the rule has neither `dns_list` nor `dns_score_min`";
            self.context.warn(section.span_of("do"), message.to_owned());
        }
        let place = self.context.place(&section.span).into();
        section.finish();
        Some(Rule { name, place, when, unless, does: does?, is_warning })
    }

    /// Reports actions that are too late for conditions known only at the end of the data.
    fn may_wait(&self, section: &Section<'_>, when: &Conditions, does: Option<&RuleEffect>) {
        let wrong = match does {
            Some(RuleEffect::Table) if when.asks_service_at_end_of_data() => return,
            Some(RuleEffect::Table) if when.asks_service() => {
                "a content rule needs a policy service with `at = \"end_of_data\"`; set it in [policy_services.NAME]"
            }
            Some(RuleEffect::Table) => {
                "a rule on content needs `do`: its table's value cannot be an action at the end of the data"
            }
            Some(RuleEffect::Actions(actions)) if actions.contains(&RuleAction::End(FinalAction::Relay)) => {
                "a rule on content cannot use `relay`: relaying is decided at RCPT"
            }
            Some(RuleEffect::Actions(actions))
                if actions.iter().any(|action| matches!(action, RuleAction::Route(NextHop::Refuse(_)))) =>
            {
                "a rule on content must refuse with `reject` or `defer`, not with `route error:`"
            }
            _ => return,
        };
        self.context.error(section.span_of("do"), wrong.to_owned());
    }

    fn does(&self, section: &Section<'_>, when: &Conditions, lacks_source: bool) -> Option<RuleEffect> {
        let Some(texts) = section.texts("do") else {
            if when.has_action() {
                return Some(RuleEffect::Table);
            }
            if lacks_source {
                return None;
            }
            let message = "`do` is missing: set the action for matching mail; only a rule with exactly one table, or \
                with `policy_service`, gets its action from there";
            self.context.error(section.span.clone(), message.to_owned());
            return None;
        };
        if when.asks_service() {
            let message = "a rule with `policy_service` takes its action from the service: remove `do`";
            self.context.error(section.span_of("do"), message.to_owned());
        }
        let mut actions = Vec::with_capacity(texts.len());
        for text in texts {
            match RuleAction::parse(text.value, self.smtp_port) {
                Ok(action) => {
                    match &action {
                        RuleAction::Route(hop) | RuleAction::Copy(hop) => self.known_hop(hop, &text.span),
                        RuleAction::Bcc(to) => {
                            self.copied.borrow_mut().push(Spot { value: to.clone(), span: text.span.clone() });
                        }
                        _ => {}
                    }
                    actions.push(action);
                }
                Err(error) => self.context.error(text.span, error.to_string()),
            }
        }
        if actions.is_empty() && !self.context.has_errors() {
            self.context.error(section.span_of("do"), "`do` is empty".to_owned());
        }
        if let Some(name) = doubled(&actions) {
            let message = format!(
                "a message must have only one {name}, and programs differ in which of two they show: add \
                 \"remove_header {name}\" to remove the original one"
            );
            self.context.warn(section.span_of("do"), message);
        }
        (!actions.is_empty()).then_some(RuleEffect::Actions(actions))
    }

    fn conditions(&self, section: &Section<'_>, is_unless: bool) -> Conditions {
        let mut conditions = Conditions::default();
        for (field, key) in Field::ALL {
            let texts = section.texts(key).unwrap_or_default();
            if let Some(text) = texts.get(PATTERNS_MAX) {
                let message = format!("more than {PATTERNS_MAX} patterns; use a table");
                self.context.error(text.span.clone(), message);
            }
            for text in texts {
                match text.value.strip_prefix(TABLE) {
                    Some(name) => {
                        if let Some(table) = self.table(name, &text.span) {
                            conditions.table(field, table);
                        }
                    }
                    None => {
                        if let Err(error) = add(&mut conditions, field, text.value) {
                            self.context.error(text.span, error.to_string());
                        } else if let Some(why) = unlikely(key, text.value) {
                            self.context.warn(text.span, why);
                        }
                    }
                }
            }
        }
        for text in section.texts("list").unwrap_or_default() {
            conditions.list(text.value);
        }
        if let Some(class) = section.maybe_choice("class", &[("ordinary", Class::Ordinary), ("bulk", Class::Bulk)]) {
            conditions.class(class);
        }
        if let Some(trusted) = section.maybe_flag("trusted") {
            conditions.trusted(trusted);
        }
        dns_lists::conditions(section, self.lists, &mut conditions.strangers, is_unless);
        if let Some(text) = section.text("policy_service")
            && let Some(service) = policy_services::find(self.context, self.tables, &text)
        {
            conditions.service(service);
        }
        content::read(section, &mut conditions.content);
        conditions
    }
}

/// The first field that actions prepend although a message may have it only once (RFC 5322 section 3.6) and no action
/// removes it.
fn doubled(actions: &[RuleAction]) -> Option<&'static str> {
    const ONCE: [&str; 9] = ["Subject", "From", "To", "Cc", "Date", "Message-ID", "Reply-To", "Sender", "Content-Type"];
    let is_removed =
        |name: &str| actions.iter().any(|action| matches!(action, RuleAction::EditHeader(edit) if edit.removes(name)));
    let prepended = actions.iter().filter_map(|action| match action {
        RuleAction::Prepend(field) => field.split(':').next(),
        _ => None,
    });
    prepended
        .filter(|name| !is_removed(name))
        .find_map(|name| ONCE.into_iter().find(|once| once.eq_ignore_ascii_case(name)))
}

/// Adds one pattern.
fn add(conditions: &mut Conditions, field: Field, text: &str) -> Result<(), PatternError> {
    match field {
        Field::Client => conditions.client(ClientPattern::parse(text)?),
        Field::ClientName if text == UNKNOWN => conditions.client_name(None),
        Field::ClientName => conditions.client_name(Some(NamePattern::parse(text)?)),
        Field::Helo => conditions.helo(NamePattern::parse(text)?),
        Field::Sender => conditions.sender(AddressPattern::parse(text)?),
        Field::Recipient => conditions.recipient(AddressPattern::parse(text)?),
    }
    Ok(())
}
