//! The configured rules and routes, and the properties that follow from them for all recipients.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use stentor_mail::address::Address;
use stentor_policy::{AddressClass, Policy, RouteHost, UNTRUSTED_CLIENT};
use stentor_reputation::DnsList;

use crate::action::RuleAction;
use crate::address::{AddressPattern, AddressSet, Key};
use crate::addresses::Addresses;
use crate::content::Matcher;
use crate::facts::TableId;
use crate::hop::NextHop;
use crate::routes::{HopSource, HopSourceOrder, Routes};
use crate::rule::{Dialect, Rule, RuleEffect, RuleId, TableName};
use crate::stranger_conditions::StrangerConditions;

/// The configured rules and routes, as input of a [`Rulebook`].
#[derive(Debug)]
pub struct Book {
    pub policy: Arc<Policy>,
    pub rules: Vec<Rule>,
    /// DNS lists, in the order of the file.
    pub dns_lists: Arc<[Arc<DnsList>]>,
    /// Compiled content conditions of the rules.
    pub content: Arc<Matcher>,
    pub tables: Vec<TableName>,
    /// Hosts of named hops.
    pub hops: HashMap<Box<str>, Vec<RouteHost>>,
    pub relay_domains: RelayDomains,
    pub addresses: Addresses,
    pub order: HopSourceOrder,
    pub by_recipient: Routes,
    pub by_sender: Routes,
    /// Tables of routes, in lookup order.
    pub recipient_tables: Vec<TableId>,
    pub sender_tables: Vec<TableId>,
    /// Port of hosts without a port.
    pub smtp_port: u16,
}

/// The rules of a configuration; immutable.
#[derive(Debug)]
pub struct Rulebook {
    book: Book,
    is_plain: bool,
    has_end_of_data_rules: bool,
    asks_service_at_end_of_data: bool,
    has_own_hops: bool,
    refuses_hops: bool,
    needs_name: bool,
    asks_dns: bool,
    sees_early: bool,
    counts_clients: bool,
}

impl Deref for Rulebook {
    type Target = Book;

    fn deref(&self) -> &Book {
        &self.book
    }
}

/// Whether some rule has a condition for which `is` returns true.
fn any(rules: &[Rule], is: fn(&StrangerConditions) -> bool) -> bool {
    rules.iter().any(|rule| is(&rule.when.strangers) || is(&rule.unless.strangers))
}

/// Domains whose mail is accepted from anyone.
#[derive(Debug, Default)]
pub struct RelayDomains {
    named: AddressSet,
    /// Tables whose keys are domains.
    pub tables: Vec<TableId>,
}

impl RelayDomains {
    pub fn add(&mut self, pattern: AddressPattern) {
        self.named.add(pattern);
    }

    /// Number of patterns in the configuration itself.
    pub fn len(&self) -> usize {
        self.named.len()
    }

    pub fn is_empty(&self) -> bool {
        self.named.is_empty() && self.tables.is_empty()
    }

    /// Patterns as written, in order.
    pub fn patterns(&self) -> Vec<&str> {
        let mut all: Vec<&str> = self.named.texts().collect();
        all.sort_unstable();
        all
    }

    /// The matching pattern in the configuration, if there is one; tables are not consulted.
    pub fn find(&self, key: &Key) -> Option<&str> {
        self.named.find(key)
    }
}

impl Rulebook {
    pub fn new(book: Book) -> Rulebook {
        let has_tables = !book.recipient_tables.is_empty() || !book.sender_tables.is_empty();
        let routes = |rule: &Rule| match &rule.does {
            RuleEffect::Table => true,
            RuleEffect::Actions(actions) => actions.iter().any(|action| matches!(action, RuleAction::Route(_))),
        };
        let refuses = |rule: &Rule| match &rule.does {
            RuleEffect::Table => true,
            RuleEffect::Actions(actions) => {
                actions.iter().any(|action| matches!(action, RuleAction::Route(NextHop::Refuse(_))))
            }
        };
        let place = |who: HopSource| book.order.iter().position(|other| other == who);
        // Whether a catch-all comes before the entries of domains.
        let is_any_first = place(HopSource::Default) < place(HopSource::Recipient) && book.by_recipient.any().is_some();
        let by_address = has_tables || is_any_first || !book.by_sender.is_empty() || book.by_recipient.has_addresses();
        Rulebook {
            is_plain: book.rules.is_empty()
                && book.relay_domains.is_empty()
                && book.addresses.is_empty()
                && !by_address
                && !book.by_recipient.has_refusals(),
            has_end_of_data_rules: book.rules.iter().any(Rule::waits),
            asks_service_at_end_of_data: book.rules.iter().any(|rule| rule.when.end_of_data_service().is_some()),
            refuses_hops: has_tables
                || book.by_sender.has_refusals()
                || book.by_recipient.has_refusals()
                || book.rules.iter().any(refuses),
            has_own_hops: by_address || book.rules.iter().any(routes),
            needs_name: book.rules.iter().any(|rule| rule.when.needs_name() || rule.unless.needs_name()),
            asks_dns: any(&book.rules, StrangerConditions::asks_dns),
            sees_early: any(&book.rules, StrangerConditions::sees_early),
            counts_clients: any(&book.rules, StrangerConditions::counts),
            book,
        }
    }

    /// Whether the policy decides alone, and every next hop is that of the recipient's domain.
    pub fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// Whether some rules are evaluated at the end of the data.
    pub fn has_end_of_data_rules(&self) -> bool {
        self.has_end_of_data_rules
    }

    /// Whether some rules query policy services at the end of the data.
    pub fn asks_service_at_end_of_data(&self) -> bool {
        self.asks_service_at_end_of_data
    }

    /// Whether a recipient may have a next hop other than its domain's.
    pub fn has_own_hops(&self) -> bool {
        self.has_own_hops
    }

    /// Whether the next hop of some address may be `error:`.
    pub fn refuses_hops(&self) -> bool {
        self.refuses_hops
    }

    /// Whether a client's name has to be looked up.
    pub fn needs_name(&self) -> bool {
        self.needs_name
    }

    /// Whether a condition needs the client's name; policy services receive it, too.
    pub fn asks_name(&self) -> bool {
        self.rules.iter().any(|rule| rule.when.asks_name() || rule.unless.asks_name())
    }

    /// Whether a rule queries the DNS about untrusted clients.
    pub fn asks_dns(&self) -> bool {
        self.asks_dns
    }

    /// Whether a rule tests if clients speak before the greeting.
    pub fn sees_early(&self) -> bool {
        self.sees_early
    }

    /// Whether a rule tests how often clients connect.
    pub fn counts_clients(&self) -> bool {
        self.counts_clients
    }

    /// `rule 3`, `rule 3 "sales"`
    pub fn rule_name(&self, rule: RuleId) -> String {
        let number = rule.number();
        match self.rules.get(rule.at()).and_then(|rule| rule.name.as_deref()) {
            Some(name) => format!("rule {number} {name:?}"),
            None => format!("rule {number}"),
        }
    }

    /// Whether names in this domain are also looked up without it, as users of this system.
    pub(crate) fn has_names(&self, domain: &str) -> bool {
        let own = &self.addresses;
        !own.virtual_domains.contains(domain) && self.has_own(domain)
    }

    /// Whether a domain is this server's: local, of alias files, or the origin.
    pub(crate) fn has_own(&self, domain: &str) -> bool {
        let own = &self.addresses;
        self.policy.is_local_domain(domain) || own.alias_domains.contains(domain) || *domain == *own.origin
    }

    /// The key of an address for rules and routes; an empty text is the null sender. Some dialects have special keys
    /// for local domains.
    pub fn key_of(&self, address: &str) -> Key {
        self.mark_local(Key::new(address))
    }

    /// Sets whether the key's domain is ours, in a key made before its rules were known.
    pub fn mark_local(&self, mut key: Key) -> Key {
        key.is_local = self.policy.is_local_domain(key.domain());
        key
    }

    /// Configured domains whose addresses may be rewritten or expanded.
    pub fn own_domains(&self) -> impl Iterator<Item = &str> {
        let own = &self.addresses;
        let more = own.alias_domains.iter().map(AsRef::as_ref).chain(std::iter::once(&*own.origin));
        let more = more.filter(|domain| !self.policy.is_local_domain(domain));
        self.policy.local_domains().chain(more.filter(|domain| !domain.is_empty()))
    }

    /// Whether tables, too, define such domains.
    pub fn has_domains_in_tables(&self) -> bool {
        !self.addresses.virtual_tables.is_empty() || !self.addresses.virtual_domain_tables.is_empty()
    }

    /// Whether the address is in a domain of this server or one that it relays for.
    pub fn is_ours(&self, address: &Address) -> bool {
        let domain = address.domain();
        self.has_own(domain)
            || self.addresses.virtual_domains.contains(domain)
            || self.relay_domains.find(&Key::new(address.as_str())).is_some()
    }

    /// Whether the address is refused to untrusted clients without a table lookup; false if tables decide.
    pub fn is_refused(&self, address: &Address) -> bool {
        let in_tables = self.addresses.has_tables() || !self.relay_domains.tables.is_empty();
        let is_relayed = !self.policy.is_local_domain(address.domain()) && self.is_ours(address);
        !in_tables && !is_relayed && matches!(self.policy.rcpt(UNTRUSTED_CLIENT, address), AddressClass::Refuse(_))
    }

    /// Parses an address, or a name in the origin domain, and adds the extension.
    pub(crate) fn named(&self, text: &str, extension: &str) -> Option<Address> {
        let (user, domain) = match text.rsplit_once('@') {
            Some((user, domain)) if !domain.ends_with('"') => (user, domain),
            _ => (text, &*self.addresses.origin),
        };
        let text = match user.strip_suffix('"') {
            Some(open) if !extension.is_empty() => format!("{open}{extension}\"@{domain}"),
            _ => format!("{user}{extension}@{domain}"),
        };
        text.parse().ok()
    }

    pub(crate) fn dialect(&self, table: TableId) -> Dialect {
        self.tables.get(usize::from(table.0)).map_or(Dialect::Own, |table| table.dialect)
    }

    pub fn table_name(&self, table: TableId) -> &str {
        self.tables.get(usize::from(table.0)).map_or("?", |table| &table.name)
    }
}
