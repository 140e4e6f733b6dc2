//! What a configuration has of rules and routes, and what follows from it for all recipients.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use stentor_mail::address::Address;
use stentor_policy::{Policy, RouteHost};
use stentor_strangers::DnsList;

use crate::action::Action;
use crate::address::{AddressPattern, AddressSet, Key};
use crate::addresses::Addresses;
use crate::content::Matcher;
use crate::facts::TableId;
use crate::hop::NextHop;
use crate::routes::{Order, Routes, Who};
use crate::rule::{Dialect, Does, Rule, RuleId, TableName};
use crate::stranger_conditions::StrangerConditions;

/// What a configuration has of rules and routes.
#[derive(Debug)]
pub struct Book {
    pub policy: Arc<Policy>,
    pub rules: Vec<Rule>,
    /// In the order of the file.
    pub dns_lists: Arc<[Arc<DnsList>]>,
    /// What they ask of contents, compiled.
    pub content: Arc<Matcher>,
    pub tables: Vec<TableName>,
    /// By the names that next hops give.
    pub hops: HashMap<Box<str>, Vec<RouteHost>>,
    pub relay_domains: RelayDomains,
    pub addresses: Addresses,
    pub order: Order,
    pub by_recipient: Routes,
    pub by_sender: Routes,
    /// Tables of routes, in the order in which they are asked.
    pub recipient_tables: Vec<TableId>,
    pub sender_tables: Vec<TableId>,
    /// Port of hosts that name none.
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

/// Whether some rule has such conditions.
fn any(rules: &[Rule], is: fn(&StrangerConditions) -> bool) -> bool {
    rules.iter().any(|rule| is(&rule.when.strangers) || is(&rule.unless.strangers))
}

/// Domains whose mail is taken from anyone.
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

    /// How many the configuration itself names.
    pub fn len(&self) -> usize {
        self.named.len()
    }

    pub fn is_empty(&self) -> bool {
        self.named.is_empty() && self.tables.is_empty()
    }

    /// As they are written, in order.
    pub fn patterns(&self) -> Vec<&str> {
        let mut all: Vec<&str> = self.named.texts().collect();
        all.sort_unstable();
        all
    }

    /// The pattern of the configuration that matches, if one does; tables are not asked.
    pub fn find(&self, key: &Key) -> Option<&str> {
        self.named.find(key)
    }
}

impl Rulebook {
    pub fn new(book: Book) -> Rulebook {
        let has_tables = !book.recipient_tables.is_empty() || !book.sender_tables.is_empty();
        let routes = |rule: &Rule| match &rule.does {
            Does::Table => true,
            Does::Actions(actions) => actions.iter().any(|action| matches!(action, Action::Route(_))),
        };
        let refuses = |rule: &Rule| match &rule.does {
            Does::Table => true,
            Does::Actions(actions) => actions.iter().any(|action| matches!(action, Action::Route(NextHop::Refuse(_)))),
        };
        let place = |who: Who| book.order.iter().position(|other| other == who);
        // A catch-all that comes before what a domain has.
        let is_any_first = place(Who::Default) < place(Who::Recipient) && book.by_recipient.any().is_some();
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

    /// Nothing here changes what the policy alone says, and every next hop is that of the recipient's domain.
    pub fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// Whether rules are asked at the end of the data.
    pub fn has_end_of_data_rules(&self) -> bool {
        self.has_end_of_data_rules
    }

    /// Whether rules ask policy services at the end of the data.
    pub fn asks_service_at_end_of_data(&self) -> bool {
        self.asks_service_at_end_of_data
    }

    /// Whether a recipient may have another next hop than its domain.
    pub fn has_own_hops(&self) -> bool {
        self.has_own_hops
    }

    /// Whether some address may have `error:` for its next hop.
    pub fn refuses_hops(&self) -> bool {
        self.refuses_hops
    }

    /// Whether a client's name has to be looked up.
    pub fn needs_name(&self) -> bool {
        self.needs_name
    }

    /// Whether a condition asks for a client's name; a policy service is told it, too.
    pub fn asks_name(&self) -> bool {
        self.rules.iter().any(|rule| rule.when.asks_name() || rule.unless.asks_name())
    }

    /// Whether a rule asks the DNS about clients that are not trusted.
    pub fn asks_dns(&self) -> bool {
        self.asks_dns
    }

    /// Whether a rule says what becomes of clients that speak before the greeting.
    pub fn sees_early(&self) -> bool {
        self.sees_early
    }

    /// Whether a rule asks how often clients come.
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

    /// Whether names of a domain are looked up without it, too: users of this system.
    pub(crate) fn has_names(&self, domain: &str) -> bool {
        let own = &self.addresses;
        !own.virtual_domains.contains(domain) && self.has_own(domain)
    }

    /// Whether a domain is one of this server's: local, virtual, of alias files or its own name.
    pub(crate) fn has_own(&self, domain: &str) -> bool {
        let own = &self.addresses;
        self.policy.is_local_domain(domain) || own.alias_domains.contains(domain) || *domain == *own.origin
    }

    /// An address as rules and routes compare it; the empty text is the null sender. Some tables have keys for local domains alone.
    pub fn key_of(&self, address: &str) -> Key {
        self.mark_local(Key::new(address))
    }

    /// The same of a key that was made before its rules were known.
    pub fn mark_local(&self, mut key: Key) -> Key {
        key.is_local = self.policy.is_local_domain(key.domain());
        key
    }

    /// Domains of the configuration whose addresses may stand for others.
    pub fn own_domains(&self) -> impl Iterator<Item = &str> {
        let own = &self.addresses;
        let more = own.alias_domains.iter().map(AsRef::as_ref).chain(std::iter::once(&*own.origin));
        let more = more.filter(|domain| !self.policy.is_local_domain(domain));
        self.policy.local_domains().chain(more.filter(|domain| !domain.is_empty()))
    }

    /// Whether the configuration alone does not say which domains have addresses that stand for others.
    pub fn has_domains_in_tables(&self) -> bool {
        !self.addresses.virtual_tables.is_empty() || !self.addresses.virtual_domain_tables.is_empty()
    }

    /// Whether an address is in a domain that is this server's, or that it relays for.
    pub fn is_ours(&self, address: &Address) -> bool {
        let domain = address.domain();
        self.has_own(domain)
            || self.addresses.virtual_domains.contains(domain)
            || self.relay_domains.find(&Key::new(address.as_str())).is_some()
    }

    /// An address as it is written, or a name at the origin, with an extension.
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
