//! Conditions of a rule on the facts about a recipient.

use stentor_mail::Class;
use stentor_reputation::ClientName;

use crate::address::{AddressPattern, AddressSet, Key};
use crate::content::ContentConditions;
use crate::facts::{Facts, Field, LookupResult, Subject, TableEntry, TableId, Tables};
use crate::names::{ClientPattern, NamePattern, UNKNOWN};
use crate::service::{PolicyServiceCheck, ServiceStage};
use crate::stranger_conditions::StrangerConditions;

/// Conditions that must all match. An empty one is not set.
#[derive(Debug, Clone, Default)]
pub struct Conditions {
    client: Vec<ClientPattern>,
    client_name: Vec<NamePattern>,
    is_unknown: bool,
    helo: Vec<NamePattern>,
    sender: AddressSet,
    recipient: AddressSet,
    lists: Vec<Box<str>>,
    class: Option<Class>,
    trusted: Option<bool>,
    tables: Vec<(Field, TableId)>,
    /// Conditions on untrusted clients, evaluated after all others.
    pub strangers: StrangerConditions,
    service: Option<PolicyServiceCheck>,
    /// Conditions on the content, evaluated at the end of the data.
    pub content: ContentConditions,
}

/// The entry of a table, or the answer of a policy service, by which a condition holds.
#[derive(Debug)]
pub(crate) struct TableHit {
    pub table: TableId,
    /// The field that was looked up.
    pub field: Field,
    pub entry: TableEntry,
}

/// Result of evaluating conditions.
#[derive(Debug)]
pub(crate) enum Match {
    /// They hold; with the value of the last table that matched.
    Yes(Option<TableHit>),
    /// This condition does not hold.
    No(&'static str),
    /// This table is unavailable, with the reason.
    Unavailable(TableId, String),
    Pending,
}

impl Conditions {
    pub fn client(&mut self, pattern: ClientPattern) {
        self.client.push(pattern);
    }

    /// Adds a pattern for the client's name. `None`: clients without a name.
    pub fn client_name(&mut self, pattern: Option<NamePattern>) {
        match pattern {
            Some(pattern) => self.client_name.push(pattern),
            None => self.is_unknown = true,
        }
    }

    pub fn helo(&mut self, pattern: NamePattern) {
        self.helo.push(pattern);
    }

    pub fn sender(&mut self, pattern: AddressPattern) {
        self.sender.add(pattern);
    }

    pub fn recipient(&mut self, pattern: AddressPattern) {
        self.recipient.add(pattern);
    }

    pub fn list(&mut self, name: &str) {
        self.lists.push(name.into());
    }

    /// The DNS lists named.
    pub fn lists(&self) -> &[Box<str>] {
        &self.lists
    }

    pub fn class(&mut self, class: Class) {
        self.class = Some(class);
    }

    pub fn trusted(&mut self, trusted: bool) {
        self.trusted = Some(trusted);
    }

    pub fn table(&mut self, field: Field, table: TableId) {
        self.tables.push((field, table));
    }

    /// Sets the policy service whose answer is the rule's action.
    pub fn service(&mut self, service: PolicyServiceCheck) {
        self.service = Some(service);
    }

    /// Whether a table or policy service supplies the rule's action.
    pub fn has_action(&self) -> bool {
        self.tables.len() + usize::from(self.service.is_some()) == 1
    }

    pub fn is_service(&self, table: TableId) -> bool {
        self.service.is_some_and(|service| service.table == table)
    }

    pub fn asks_service(&self) -> bool {
        self.service.is_some()
    }

    pub fn asks_service_at_end_of_data(&self) -> bool {
        self.end_of_data_service().is_some()
    }

    /// The policy service to query at the end of the data.
    pub(crate) fn end_of_data_service(&self) -> Option<TableId> {
        self.service.filter(|service| service.stage == ServiceStage::EndOfData).map(|service| service.table)
    }

    /// Whether some condition is evaluated at the end of the data.
    pub fn waits(&self) -> bool {
        !self.content.is_empty() || self.end_of_data_service().is_some()
    }

    /// The tables to look up.
    pub fn tables(&self) -> &[(Field, TableId)] {
        &self.tables
    }

    /// Whether a recipient is looked up in a table, or sent to a policy service by a rule that names recipients: a rule
    /// for all recipients asks about clients, as a greylist does.
    pub(crate) fn verifies_recipients(&self) -> bool {
        let has_table = self.tables.iter().any(|(field, _)| *field == Field::Recipient);
        has_table || self.service.is_some() && self.has_patterns(Field::Recipient)
    }

    /// Whether the patterns on recipients, if there are any, let this recipient pass, or a table may.
    pub(crate) fn may_be_about(&self, recipient: &Key) -> bool {
        !self.has_patterns(Field::Recipient)
            || self.recipient.find(recipient).is_some()
            || self.tables.iter().any(|(field, _)| *field == Field::Recipient)
    }

    pub fn is_empty(&self) -> bool {
        self.is_empty_at_rcpt() && self.strangers.is_empty() && self.content.is_empty()
    }

    /// Whether only trusted clients can match.
    pub(crate) fn is_of_trusted(&self) -> bool {
        self.trusted == Some(true)
    }

    /// Whether some condition is on the client.
    pub(crate) fn asks_client(&self) -> bool {
        let is_of_client = |field| self.is_given(field);
        [Field::Client, Field::ClientName, Field::Helo].into_iter().any(is_of_client)
            || self.trusted.is_some()
            || self.class.is_some()
            || self.service.is_some()
            || !self.strangers.is_empty()
    }

    /// Whether there are no conditions at RCPT, except those on untrusted clients.
    pub(crate) fn is_empty_at_rcpt(&self) -> bool {
        self.given().next().is_none()
    }

    /// Whether the client's name must be known.
    pub fn needs_name(&self) -> bool {
        self.asks_name() || self.service.is_some()
    }

    /// Whether a condition tests the client's name.
    pub fn asks_name(&self) -> bool {
        self.is_given(Field::ClientName) || self.strangers.needs_name()
    }

    fn is_given(&self, field: Field) -> bool {
        self.has_patterns(field) || self.tables.iter().any(|(of, _)| *of == field)
    }

    /// Whether the client's name is needed but unknown.
    pub(crate) fn lacks_name(&self, facts: &Facts<'_>) -> bool {
        facts.client_name == ClientName::Unknown && self.is_given(Field::ClientName)
    }

    fn has_patterns(&self, field: Field) -> bool {
        match field {
            Field::Client => !self.client.is_empty(),
            Field::ClientName => self.is_unknown || !self.client_name.is_empty(),
            Field::Helo => !self.helo.is_empty(),
            Field::Sender => !self.sender.is_empty(),
            Field::Recipient => !self.recipient.is_empty(),
        }
    }

    /// Names of the conditions that are set, in the order of evaluation.
    fn given(&self) -> impl Iterator<Item = &'static str> {
        let plain = [
            (self.trusted.is_some(), "trusted"),
            (self.class.is_some(), "class"),
            (!self.lists.is_empty(), "list"),
            (self.service.is_some(), "policy_service"),
        ];
        let plain = plain.into_iter().filter(|(is_given, _)| *is_given).map(|(_, name)| name);
        plain.chain(Field::ALL.into_iter().filter(|(field, _)| self.is_given(*field)).map(|(_, name)| name))
    }

    /// Whether all conditions hold. Tables come last, and only for keys without a matching pattern.
    pub(crate) fn all(&self, facts: &Facts<'_>, tables: &dyn Tables) -> Match {
        if let Some(no) = self.plain_failing(facts) {
            return Match::No(no);
        }
        let mut open = [false; 5];
        let lacks_name = self.lacks_name(facts);
        for (n, (field, name)) in Field::ALL.into_iter().enumerate() {
            // Reported last: it matters only if all others hold.
            if lacks_name && field == Field::ClientName {
                continue;
            }
            if self.is_given(field) && !self.is_matched(field, facts) {
                if !self.tables.iter().any(|(of, _)| *of == field) {
                    return Match::No(name);
                }
                open[n] = true;
            }
        }
        if lacks_name {
            return Match::No(Field::ClientName.name());
        }
        let mut value = None;
        for (n, (field, name)) in Field::ALL.into_iter().enumerate() {
            if !open[n] {
                continue;
            }
            match self.asked(field, facts, tables) {
                Match::Yes(found) => value = found,
                Match::No(_) => return Match::No(name),
                other => return other,
            }
        }
        Match::Yes(value)
    }

    /// The policy service, if there is no session to query it in.
    pub(crate) fn unasked_service(&self, facts: &Facts<'_>) -> Option<TableId> {
        self.service.map(|service| service.table).filter(|_| facts.session.is_none())
    }

    /// Queries the policy service, if there is one. It comes last because a query may change the service's next
    /// answer.
    pub(crate) fn ask_service(&self, facts: &Facts<'_>, tables: &dyn Tables) -> Option<Match> {
        let service = self.service?.table;
        Some(match tables.ask_service(service, facts) {
            LookupResult::Found(found) => {
                Match::Yes(Some(TableHit { table: service, field: Field::Recipient, entry: found }))
            }
            LookupResult::NotFound => Match::No("policy_service"),
            LookupResult::Unavailable(why) => Match::Unavailable(service, why),
            LookupResult::Pending => Match::Pending,
        })
    }

    /// Whether any condition holds.
    pub(crate) fn any(&self, facts: &Facts<'_>, tables: &dyn Tables) -> Match {
        let is_plain = self.trusted.is_some_and(|trusted| trusted == facts.is_trusted)
            || self.class.is_some_and(|class| Some(class) == facts.class)
            || self.is_list(facts);
        if is_plain || Field::ALL.iter().any(|(field, _)| self.is_matched(*field, facts)) {
            return Match::Yes(None);
        }
        for (field, _) in Field::ALL {
            match self.asked(field, facts, tables) {
                Match::No(_) => {}
                other => return other,
            }
        }
        Match::No("not")
    }

    fn is_list(&self, facts: &Facts<'_>) -> bool {
        facts.list.as_ref().is_some_and(|list| self.lists.iter().any(|name| **name == **list))
    }

    fn plain_failing(&self, facts: &Facts<'_>) -> Option<&'static str> {
        if self.trusted.is_some_and(|trusted| trusted != facts.is_trusted) {
            return Some("trusted");
        }
        if self.class.is_some_and(|class| Some(class) != facts.class) {
            return Some("class");
        }
        (!self.lists.is_empty() && !self.is_list(facts)).then_some("list")
    }

    /// Whether a pattern of this key matches.
    fn is_matched(&self, field: Field, facts: &Facts<'_>) -> bool {
        match field {
            Field::Client => self.client.iter().any(|pattern| pattern.is_match(facts.client)),
            Field::ClientName => match facts.client_name {
                ClientName::Is(name) => self.client_name.iter().any(|pattern| pattern.is_match(name)),
                ClientName::Nameless => self.is_unknown,
                ClientName::Unknown => false,
            },
            Field::Helo => self.helo.iter().any(|pattern| pattern.is_match(facts.helo)),
            Field::Sender => self.sender.find(facts.sender).is_some(),
            Field::Recipient => self.recipient.find(facts.recipient).is_some(),
        }
    }

    /// Looks up this key's tables, one after the other.
    fn asked(&self, field: Field, facts: &Facts<'_>, tables: &dyn Tables) -> Match {
        let subject = match field {
            Field::Client => Subject::Client(facts.client),
            Field::ClientName => match facts.client_name {
                ClientName::Is(name) => Subject::Name(name),
                ClientName::Nameless => Subject::Name(UNKNOWN),
                ClientName::Unknown => return Match::No(field.name()),
            },
            Field::Helo => Subject::Name(facts.helo),
            Field::Sender => Subject::Address(facts.sender),
            Field::Recipient => Subject::Address(facts.recipient),
        };
        for (_, table) in self.tables.iter().filter(|(of, _)| *of == field) {
            match tables.ask(*table, field, subject) {
                LookupResult::Found(found) => return Match::Yes(Some(TableHit { table: *table, field, entry: found })),
                LookupResult::NotFound => {}
                LookupResult::Unavailable(why) => return Match::Unavailable(*table, why),
                LookupResult::Pending => return Match::Pending,
            }
        }
        Match::No(field.name())
    }
}
