//! Builds the envelopes of a complete message from its recipients, with copies, next hops and class.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use stentor_core::envelope::{AcceptanceFacts, EnvelopeRcpt, EnvelopeRecipients, NewEnvelope};
use stentor_core::intake::IntakeRefusal;
use stentor_core::people::{MailReader, MailReaders};
use stentor_core::route::Route;
use stentor_core::{Core, Settings, log};
use stentor_lists::{check_delivered_to, delivered_to_field};
use stentor_mail::Class;
use stentor_mail::address::Address;
use stentor_mail::dsn::Ret;
use stentor_mail::headers::HeaderFacts;
use stentor_mail::reply::Reply;
use stentor_policy::{self as policy, AddressClass};
use stentor_queue::event::MessageIdAt;
use stentor_queue::ids::Ms;
use stentor_reputation::ClientName;
use stentor_rules::{CERTIFIED, COPIED, REDIRECTED};
use stentor_smtp::server::{EndOfData, VerpDelimiters};
use stentor_tls_policy::{Requirement, Wish};

use super::super::content::{ClassCause, check_post, class};
use super::super::interning::{Subscribers, subscribers_at};
use super::super::judge::{AcceptedRcpt, ClientProof, Decider, SLOW_TABLES, Speaker, Stranger};
use super::super::redirect::{
    AliasEnvelope, alias_envelope, alias_of, alias_sender, check_forwarded, is_same, redirected, via,
};
use super::rcpt::unasked;
use super::{InForce, Transaction, address_of};

type Group = policy::Group<AcceptedRcpt>;

/// How long tables may take once a message has arrived.
pub(super) const ROUTING_S_MAX: u64 = 120;

impl Transaction {
    /// Builds the envelopes, with copies and next hops by rules and routes.
    pub(super) async fn routed(
        &mut self,
        core: &Arc<Core>,
        settings: &Settings,
        end: &EndOfData,
    ) -> Result<Vec<NewEnvelope>, Reply> {
        let now = core.clock.now();
        let copies = std::mem::take(&mut self.wishes.bcc);
        let redirect = self.wishes.redirect.take();
        let mut named = Vec::new();
        if redirect.is_some() || !copies.is_empty() {
            named = self.names.all(&self.rcpts, |list| address_of(settings, list));
            self.names.replaced(named.clone(), redirect.is_some());
        }
        if let Some(to) = redirect {
            self.redirect(core, settings, to, named, &end.facts, now).await?;
        }
        for to in copies {
            self.add_copies(settings, &to, &end.facts, now).await?;
        }
        self.answer_requests();
        let mut owners = HashMap::new();
        for list in self.rcpts.bounces() {
            let found = settings.owners(&list, core.clock.now()).await.map_err(IntakeRefusal::reply)?;
            owners.insert(list, found);
        }
        let (mut groups, relayed) = self.groups(core, settings, owners);
        if settings.rules.has_own_hops() || !settings.rules.is_plain() && !settings.rules.by_recipient.is_empty() {
            self.route(settings, &mut groups, now).await?;
        }
        let envelopes = self.envelopes(core, settings, groups, relayed, end);
        let mut envelopes = Box::pin(self.through_lists(core, settings, envelopes, &end.facts)).await?;
        for envelope in &mut envelopes {
            let wish = wish(settings, envelope, &end.facts);
            if let EnvelopeRecipients::Addresses(all) = &mut envelope.recipients {
                for to in all.iter_mut().filter(|_| wish != Wish::default()) {
                    to.route.wish = wish;
                }
                continue;
            }
            let list = envelope.list.as_deref().unwrap_or_default();
            let hop = self.list_hops.iter().find(|(name, _)| **name == *list).map(|(_, hop)| hop);
            if hop.is_none() && wish == Wish::default() {
                continue;
            }
            let subscribers = match &envelope.recipients {
                EnvelopeRecipients::Interned(ids, ..) if ids.is_empty() => continue,
                EnvelopeRecipients::Interned(ids, ..) => Subscribers::These(ids),
                EnvelopeRecipients::List | EnvelopeRecipients::Addresses(_) => Subscribers::Of(list),
            };
            let all = subscribers_at(core, settings, subscribers, hop, wish).await;
            envelope.recipients = all.map_err(IntakeRefusal::reply)?;
        }
        self.request_copies(settings, &mut envelopes)?;
        Ok(envelopes)
    }

    /// Finds the next hops of recipients that no client named.
    async fn route(&mut self, settings: &Settings, groups: &mut [Group], now: Ms) -> Result<(), Reply> {
        let facts = self.speaker_facts.take();
        let speaker = Speaker {
            client: self.client,
            name: facts.as_ref().map_or(ClientName::Unknown, |facts| facts.name.as_deref()),
            helo: facts.as_ref().map_or("", |facts| &facts.helo),
            may_relay: self.is_of_trusted(),
            proof: ClientProof::None,
            session: None,
            stranger: facts.as_ref().map_or(Stranger::UNKNOWN, |facts| Stranger {
                behaviour: facts.behaviour,
                asker: facts.asker.as_ref(),
                greylist: None,
            }),
        };
        let decider = Decider { settings, speaker, sender: &self.sender, now };
        for group in groups {
            let routed = Box::pin(decider.route_others(&mut group.to));
            let limit = Duration::from_secs(ROUTING_S_MAX);
            group.hops = tokio::time::timeout(limit, routed).await.unwrap_or(Err(SLOW_TABLES))?;
        }
        Ok(())
    }

    /// Redirects the message by a rule: the readers of that address replace the named recipients.
    async fn redirect(
        &mut self,
        core: &Arc<Core>,
        settings: &Settings,
        to: Address,
        named: Vec<Box<str>>,
        facts: &HeaderFacts,
        now: Ms,
    ) -> Result<(), Reply> {
        // Copies for other servers stay.
        self.rcpts.forget_named();
        let found = self.redirected(core, settings, &to, facts, now).await;
        let found = found.inspect_err(|_| self.why_refused = self.wishes.words())?;
        let why = || REDIRECTED.to_owned();
        let quarantine: Option<Arc<str>> = self.wishes.quarantine.as_deref().map(Arc::from);
        let alias = Arc::new(to.clone());
        for reader in found.people {
            let via = via(&alias, &reader);
            let MailReader { to: EnvelopeRcpt { address, route, .. }, owner } = reader;
            let asked =
                AcceptedRcpt { hop: route.hop, quarantine: quarantine.clone(), via, owner, ..AcceptedRcpt::default() };
            self.rcpts.add(address, asked, AddressClass::Relay, why);
        }
        for list in found.lists {
            let address = address_of(settings, &list).unwrap_or_else(|| to.clone());
            let asked = AcceptedRcpt { quarantine: quarantine.clone(), ..AcceptedRcpt::default() };
            self.rcpts.add(address, asked, AddressClass::List(list), why);
        }
        if found.has_null {
            self.nulls.push((to, self.wishes.words() + "; ", named));
        }
        Ok(())
    }

    /// Returns the readers of a redirected message, with the lists that accept it as a post.
    async fn redirected(
        &self,
        core: &Arc<Core>,
        settings: &Settings,
        to: &Address,
        facts: &HeaderFacts,
        now: Ms,
    ) -> Result<MailReaders, Reply> {
        let found = redirected(settings, to, facts, now).await?;
        for list in &found.lists {
            if let Some(reply) = self.standing_bounce_refusal(core, to, &AddressClass::List(list.clone()), false) {
                return Err(reply);
            }
            self.check_list(core, list).await?;
            check_post(settings, list, &self.mail.path, facts, &InForce(core))?;
        }
        Ok(found)
    }

    /// Adds copies for the readers of an address that a rule names. A copy that would loop through the address, or
    /// through one of its programs, is left out.
    async fn add_copies(
        &mut self,
        settings: &Settings,
        address: &Address,
        facts: &HeaderFacts,
        now: Ms,
    ) -> Result<(), Reply> {
        let found = settings.readers_of(address, now).await.map_err(IntakeRefusal::reply)?;
        if found.is_nobody() {
            tracing::warn!(message = %self.id, %address, "copy not sent: the rule's address is unknown");
        }
        for list in &found.lists {
            tracing::warn!(message = %self.id, %address, %list, "copy not sent: a rule cannot copy to a list; name \
                recipients");
        }
        if check_forwarded(facts, address, &found).is_err() {
            tracing::warn!(message = %self.id, %address, "copy not sent: it would cause a mail loop (Delivered-To)");
            return Ok(());
        }
        let by = Arc::new(address.clone());
        // Named recipients and targets of named aliases get the message anyway, unless it is quarantined for them; the
        // sender is told of a failure.
        let reached = self.rcpts.reached().filter(|(_, asked)| asked.quarantine.is_none());
        let mut reached: HashSet<Address> = reached.map(|(to, _)| to.clone()).collect();
        for reader in found.people {
            let via = via(&by, &reader);
            let MailReader { to, owner } = reader;
            if !reached.insert(to.address.clone()) {
                continue;
            }
            if let Some(alias) = alias_of(settings, &to.address, to.route.hop.as_ref())
                && check_delivered_to(facts, &alias).is_err()
            {
                tracing::warn!(message = %self.id, %alias, "copy not sent: it would cause a mail loop (Delivered-To)");
                continue;
            }
            let asked = AcceptedRcpt { hop: to.route.hop, via, owner, ..unasked() };
            self.rcpts.add(to.address, asked, AddressClass::Relay, || COPIED.to_owned());
        }
        Ok(())
    }

    /// Groups the recipients by the address they were named for, and counts those relayed.
    fn groups(
        &mut self,
        core: &Core,
        settings: &Settings,
        mut owners: HashMap<Arc<str>, Vec<EnvelopeRcpt>>,
    ) -> (Vec<Group>, usize) {
        let owners = |list: &str, of_bounces: AcceptedRcpt| {
            let owners = owners.remove(list).unwrap_or_default();
            if owners.is_empty() {
                log::report_noted(core, list, &self.mail, self.client);
            }
            let asked = |EnvelopeRcpt { address, route, .. }| {
                (address, AcceptedRcpt { hop: route.hop.or_else(|| of_bounces.hop.clone()), ..of_bounces.clone() })
            };
            owners.into_iter().map(asked).collect()
        };
        let program = |asked| AcceptedRcpt { hop: settings.program(), ..asked };
        let nulls = self.rcpts.nulls();
        self.nulls
            .extend(nulls.map(|alias| (alias.clone(), String::new(), vec![self.names.given(alias).as_str().into()])));
        self.quarantined_lists = match &self.forged_post {
            Some(by) => self.rcpts.lists().iter().map(|list| (list.clone(), by.clone())).collect(),
            None => quarantined_lists(&self.rcpts),
        };
        std::mem::take(&mut self.rcpts).into_groups(owners, program)
    }

    fn envelopes(
        &mut self,
        core: &Core,
        settings: &Settings,
        groups: Vec<Group>,
        relayed: usize,
        end: &EndOfData,
    ) -> Vec<NewEnvelope> {
        let groups = self.quarantined_apart(mailboxes_apart(aliases_apart(settings, groups)));
        let (class, class_why) = self.class(core, settings, &end.facts, relayed as u64);
        let relayed = self.relayed(class, end);
        let given = self.given_sender.take().unwrap_or_else(|| self.mail.path.as_str().to_owned());
        let (marks, protocol, tls) = (self.marks(), self.protocol, self.tls);
        let (list_fields, post) = (&self.list_fields, self.post_fields(&end.facts));
        let to = |(address, AcceptedRcpt { params, hop, .. })| {
            let route = Route { hop, ..Route::default() };
            EnvelopeRcpt { address, route, params }
        };
        let all = |named: Vec<(Address, AcceptedRcpt)>| named.into_iter().map(to).collect();
        let (last, mut relayed) = (groups.len().saturating_sub(1), Some(relayed));
        let envelope = |(n, (group, quarantine)): (usize, (_, Option<Arc<str>>))| {
            let named = self.names.of(&group, |list| address_of(settings, list));
            let policy::Group { of, sender, to, why, hops } = group;
            let why = if matches!(of, policy::EnvelopeKind::List(_)) { why } else { why + &hops + &class_why };
            // There is usually just one.
            let relayed = if n == last { relayed.take() } else { relayed.clone() }?;
            let is_mailbox = is_mailbox(&of, &to);
            let taken =
                AcceptanceFacts { policy: why.into(), named, marks: marks.clone().into(), proto: protocol, tls };
            let envelope = match of {
                policy::EnvelopeKind::List(name) => {
                    let list = settings.list(&name)?;
                    NewEnvelope {
                        sender: list.settings().bounces.as_str().to_owned(),
                        class: Class::Bulk,
                        list: Some(name.to_string()),
                        prefix: [relayed.prefix, list.copy_fields(post)].concat(),
                        ret: Some(Ret::Headers),
                        envid: None,
                        taken,
                        ..relayed
                    }
                }
                policy::EnvelopeKind::Alias(address) => {
                    let request = self.owners_request(settings, sender.as_ref());
                    let mark = if is_mailbox { Vec::new() } else { delivered_to_field(&address) };
                    let targets = &mut to.iter().map(|(to, _)| to);
                    NewEnvelope {
                        sender: alias_sender(settings, sender, &relayed.sender, targets, core.clock.now()),
                        recipients: EnvelopeRecipients::Addresses(all(to)),
                        prefix: [request, relayed.prefix, mark, list_fields.all()].concat(),
                        taken,
                        ..relayed
                    }
                }
                policy::EnvelopeKind::Others => NewEnvelope {
                    recipients: EnvelopeRecipients::Addresses(all(to)),
                    prefix: [relayed.prefix, list_fields.all()].concat(),
                    taken,
                    ..relayed
                },
            };
            let given_sender = (given != envelope.sender).then(|| given.clone());
            let is_quarantined = quarantine.is_some();
            let held_by = quarantine.map(|by| by.as_ref().into()).or(envelope.held_by);
            Some(NewEnvelope { given_sender, held_by, is_quarantined, ..envelope })
        };
        groups.into_iter().enumerate().filter_map(envelope).collect()
    }

    /// Builds the envelope of recipients that belong to no list and no alias, still without them.
    fn relayed(&mut self, class: Class, end: &EndOfData) -> NewEnvelope {
        let facts = &end.facts;
        let message_id = facts.message_id.clone().unwrap_or_default();
        NewEnvelope {
            sender: self.mail.path.as_str().to_owned(),
            class,
            list: None,
            recipients: EnvelopeRecipients::List,
            eight_bit: facts.eight_bit || !self.added.is_ascii(),
            prefix: self.added.clone(),
            smtputf8: self.mail.smtputf8,
            ret: self.mail.ret,
            envid: self.mail.envid.take(),
            origin: self.origin(),
            // A large body's header has been stored already; its text is nothing beside it.
            message_id_at: if self.stored() == 0 { MessageIdAt::find(&end.last, &message_id) } else { None },
            message_id,
            is_report: false,
            require_tls: self.mail.requiretls,
            is_transactional: self.is_transactional,
            is_archive: false,
            given_sender: None,
            held_by: self.wishes.hold.clone(),
            is_quarantined: false,
            taken: AcceptanceFacts::local(""),
        }
    }

    /// Returns the origin to be stored: beside the address of a trusted client, why it is trusted, unless that is the
    /// address.
    fn origin(&self) -> String {
        match (&self.injector, &self.certificate) {
            (Some(injector), _) => injector.clone(),
            (None, Some(_)) => format!("{} certificate", self.client),
            (None, None) => self.client.to_string(),
        }
    }

    /// Describes the effects of rules and milters on the message, the certificate that let its client relay, and what
    /// the message asks for.
    fn marks(&self) -> String {
        let mut marks = self.wishes.words();
        if let Some(name) = &self.certificate {
            marks += if marks.is_empty() { "" } else { "; " };
            marks += CERTIFIED;
            marks += " ";
            marks += name;
        }
        if let Some(milters) = self.milters.as_ref().filter(|shown| !shown.words.is_empty()) {
            marks += if marks.is_empty() { "" } else { "; " };
            marks += &milters.words;
        }
        if self.mail.requiretls {
            marks += if marks.is_empty() { "" } else { "; " };
            marks += "REQUIRETLS";
        }
        if let Some(VerpDelimiters { before, between }) = self.mail.verp {
            marks += if marks.is_empty() { "" } else { "; " };
            marks.extend(["XVERP=", before.encode_utf8(&mut [0; 4]), between.encode_utf8(&mut [0; 4])]);
        }
        if let Some(request) = &self.copy_request {
            marks += if marks.is_empty() { "" } else { "; " };
            marks += &request.to_string();
        }
        marks
    }

    /// Returns each group with the rule or milter that quarantines the message for it, if there is one.
    fn quarantined_apart(&self, groups: Vec<Group>) -> Vec<(Group, Option<Arc<str>>)> {
        let mut all = Vec::with_capacity(groups.len());
        for group in groups {
            let of_list = match &group.of {
                policy::EnvelopeKind::List(name) => self.quarantined_lists.iter().find(|(list, _)| list == name),
                policy::EnvelopeKind::Alias(_) | policy::EnvelopeKind::Others => None,
            };
            let whole = self.quarantine.clone().or_else(|| of_list.map(|(_, by)| by.clone()));
            if whole.is_some() || group.to.iter().all(|(_, asked)| asked.quarantine.is_none()) {
                all.push((group, whole));
                continue;
            }
            let policy::Group { of, sender, to, why, hops } = group;
            let mut apart: BTreeMap<Option<Arc<str>>, Vec<(Address, AcceptedRcpt)>> = BTreeMap::new();
            for (address, asked) in to {
                apart.entry(asked.quarantine.clone()).or_default().push((address, asked));
            }
            all.extend(apart.into_iter().map(|(by, to)| {
                let (of, sender, why, hops) = (of.clone(), sender.clone(), why.clone(), hops.clone());
                (policy::Group { of, sender, to, why, hops }, by)
            }));
        }
        all
    }

    /// Returns the class of relayed mail, and its reason: the configuration of the injector, else header fields and the
    /// sender's rate.
    fn class(&self, core: &Core, settings: &Settings, facts: &HeaderFacts, recipients: u64) -> (Class, String) {
        let client = self.client;
        if let Some((class, cause)) = class(settings, self.wishes.class, client, facts) {
            return (class, cause.logged(class));
        }
        let classes = &settings.config.classes;
        let (trusted, now) = (settings.policy.is_trusted(client), core.clock.now());
        if recipients > 0
            && core.senders.lock().is_bulk(&self.mail.path, client, trusted, recipients, &classes.sender_rate, now)
        {
            return (Class::Bulk, ClassCause::SenderRate.logged(Class::Bulk));
        }
        (Class::Ordinary, String::new())
    }
}

/// The lists that no way lets the message through to, with the first rule that keeps it.
fn quarantined_lists(rcpts: &policy::Recipients<AcceptedRcpt>) -> Vec<(Arc<str>, Arc<str>)> {
    let kept = |list: &Arc<str>| {
        let mut ways = rcpts.ways_to(list).map(|way| way.quarantine.clone());
        let first = ways.next().flatten()?;
        ways.all(|by| by.is_some()).then(|| (list.clone(), first))
    };
    rcpts.lists().iter().filter_map(kept).collect()
}

/// Returns the sender's TLS wish, as far as it decides where copies go. A list's copies use REQUIRETLS as the post does
/// (RFC 8689 section 6), but a poster cannot weaken the list operator's requirements. Without a sender, REQUIRETLS is
/// only for hosts that offer it (section 5). If published policies are not looked up, there is nothing to weaken.
pub(super) fn wish(settings: &Settings, envelope: &NewEnvelope, facts: &HeaderFacts) -> Wish {
    let asks = |requirement: &Requirement| {
        let strength = requirement.strength();
        strength.asks_dane() || strength.asks_sts()
    };
    let is_lowered = facts.tls_required_no && envelope.list.is_none();
    Wish {
        require_tls: envelope.require_tls && !envelope.sender.is_empty(),
        tls_required_no: is_lowered
            && !envelope.require_tls
            && settings.config.protection.policies.requirements().any(asks),
    }
}

/// Gives separate envelopes to programs and files that a rule or a list's owner led to. Their service takes a first
/// Delivered-To of the alias as the server's own, so it must not be the client's. The same applies to people behind an
/// alias that a rule named: that field identifies their mail when it returns, and the alias's owner is its sender.
fn aliases_apart(settings: &Settings, groups: Vec<Group>) -> Vec<Group> {
    let mut all = Vec::with_capacity(groups.len());
    for mut group in groups {
        if group.of == policy::EnvelopeKind::Others {
            let mut aliases: BTreeMap<AliasEnvelope, Vec<(Address, AcceptedRcpt)>> = BTreeMap::new();
            for (to, asked) in std::mem::take(&mut group.to) {
                match alias_envelope(settings, &to, asked.hop.as_ref(), asked.via.as_deref(), asked.owner.as_ref()) {
                    Some(by) => aliases.entry(by).or_default().push((to, asked)),
                    None => group.to.push((to, asked)),
                }
            }
            for ((alias, _, sender), to) in aliases {
                // The reason for relaying to others does not apply to copies.
                let is_copy = !group.why.contains(REDIRECTED) && to.iter().all(|(_, asked)| asked.via.is_some());
                let why = if is_copy { format!("relay: {COPIED}") } else { group.why.clone() };
                all.push(policy::Group {
                    of: policy::EnvelopeKind::Alias(alias),
                    sender,
                    to,
                    why,
                    hops: group.hops.clone(),
                });
            }
            if group.to.is_empty() {
                continue;
            }
        }
        all.push(group);
    }
    all
}

/// Gives a recipient that is itself the alias an envelope without Delivered-To: its mailbox adds that field, and would
/// take an existing one for a loop.
fn mailboxes_apart(groups: Vec<Group>) -> Vec<Group> {
    let mut all = Vec::with_capacity(groups.len());
    for mut group in groups {
        if let policy::EnvelopeKind::Alias(alias) = &group.of
            && group.to.iter().any(|(to, _)| is_same(to, alias))
        {
            let (own, others): (Vec<_>, Vec<_>) = group.to.into_iter().partition(|(to, _)| is_same(to, alias));
            group.to = others;
            let (of, sender, why) = (group.of.clone(), group.sender.clone(), group.why.clone());
            all.push(policy::Group { of, sender, to: own, why, hops: group.hops.clone() });
            if group.to.is_empty() {
                continue;
            }
        }
        all.push(group);
    }
    all
}

/// Whether a group is such an envelope.
fn is_mailbox(of: &policy::EnvelopeKind, to: &[(Address, AcceptedRcpt)]) -> bool {
    matches!(of, policy::EnvelopeKind::Alias(alias) if to.iter().all(|(to, _)| is_same(to, alias)))
}
