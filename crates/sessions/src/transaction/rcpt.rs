//! Handles a named recipient: resolves it, checks who may write to it, and applies its rules.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use stentor_addresses::AddressRole;
use stentor_core::log::Injector;
use stentor_core::route::Route;
use stentor_core::{Core, Settings, log, suppression};
use stentor_delivery::call_ahead::{self, RoutedRcpt};
use stentor_lists::{PostingPolicy, check_sender};
use stentor_mail::address::{Address, ReversePath};
use stentor_mail::headers::HeaderFacts;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_milter::MilterRefusal;
use stentor_policy::{AddressClass, Expansion, counted_as};
use stentor_queue::event::RcptParams;
use stentor_queue::sender::Senders;
use stentor_rules::{ActionRemark, DecisionReason, Key, NextHop, RemarkRecipients, SessionFacts, Wishes};
use stentor_smtp::server::{Notify, RcptTo};

use super::super::content::Members as _;
use super::super::judge::{AcceptedRcpt, ClientProof, Decider, Judged, RelayReason, Speaker};
use super::super::rewrite::canonical;
use super::{InForce, SpeakerFacts, Transaction};

/// Octets of a recipient's NOTIFY and ORCPT in its message's record, without ORCPT's text.
const RCPT_PARAMS_BYTES: usize = 20;
/// Maximum number of targets of all aliases of a message, not counting the first alias.
const TARGETS_MAX: usize = 20_000;
/// Targets of an alias that are compared with standing bounces: a larger alias is accepted.
const ALIAS_TARGETS_SEEN: usize = 100;

/// Maximum commands to lists in one message: each costs a transaction of the registry.
const COMMANDS_MAX: usize = 5;
/// RFC 5321 section 4.5.3.1.10: the client sends the rest in another transaction.
const TOO_MANY_COMMANDS: Reply = Reply::fixed(452, Enhanced::new(4, 5, 3), "Too many commands to lists");

/// Described in the log as what decided.
const SUPPRESSED: &str = "registry";
/// RFC 5321 section 4.5.3.1.10: the client sends the rest in another transaction.
const BESIDE_A_LIST: Reply = Reply::fixed(
    452,
    Enhanced::new(4, 5, 3),
    "A restricted list must be the only recipient; send this recipient in another transaction",
);
pub(super) const TAKEN: Reply = Reply::fixed(250, Enhanced::new(2, 1, 5), "Ok");

/// Why a recipient is refused.
pub(super) struct RcptRefusal {
    to: Address,
    pub reply: Reply,
    /// Description of the deciding rule.
    policy: String,
    /// A milter refused it.
    pub is_milters: bool,
}

#[expect(clippy::unnecessary_box_returns, reason = "as the results have it, which stay small")]
impl RcptRefusal {
    fn of(to: &Address, reply: Reply) -> Box<RcptRefusal> {
        Box::new(RcptRefusal { to: to.clone(), reply, policy: String::new(), is_milters: false })
    }

    fn by_milter(to: &Address, MilterRefusal { reply, by }: MilterRefusal) -> Box<RcptRefusal> {
        Box::new(RcptRefusal { policy: by, is_milters: true, ..*RcptRefusal::of(to, reply) })
    }
}

/// Returns lists with restricted posting, sorted, without duplicates.
fn restricted(settings: &Settings, lists: &[Arc<str>]) -> Vec<Arc<str>> {
    let is_restricted =
        |name: &&Arc<str>| settings.list(name).is_some_and(|list| list.settings().post != PostingPolicy::Anyone);
    let mut restricted: Vec<Arc<str>> = lists.iter().filter(is_restricted).cloned().collect();
    restricted.sort_unstable();
    restricted.dedup();
    restricted
}

/// Returns the lists that a recipient leads to.
fn lists_of(class: &AddressClass) -> &[Arc<str>] {
    match class {
        AddressClass::List(list) => std::slice::from_ref(list),
        AddressClass::Alias(expansion) => &expansion.lists,
        AddressClass::Relay | AddressClass::Bounces(_) | AddressClass::Command { .. } | AddressClass::Refuse(_) => &[],
    }
}

/// Who names a recipient, and under which settings.
#[derive(Clone, Copy)]
pub(super) struct RcptContext<'a> {
    pub core: &'a Arc<Core>,
    pub settings: &'a Arc<Settings>,
    pub speaker: Speaker<'a>,
    /// Facts of the content, for a recipient that a milter adds after it.
    pub content: Option<&'a HeaderFacts>,
}

/// A recipient that was taken, for milters: they may remove it again.
pub(super) struct TakenRcpt {
    /// As the client named it.
    pub named: Address,
    pub address: Address,
    pub accepted: AcceptedRcpt,
    pub class: AddressClass,
    pub why: String,
}

/// A recipient under the address that it is judged by.
struct NamedRcpt {
    rcpt: RcptTo,
    /// As the client wrote it, if that differs.
    original: Option<Address>,
}

impl Transaction {
    /// Answers RCPT.
    pub async fn rcpt(
        &mut self,
        core: &Arc<Core>,
        settings: &Arc<Settings>,
        speaker: Speaker<'_>,
        rcpt: RcptTo,
    ) -> Reply {
        let context = RcptContext { core, settings, speaker, content: None };
        if self.milters.is_some() {
            return Box::pin(self.filter_rcpt(context, rcpt)).await;
        }
        self.answer_rcpt(context, rcpt).await
    }

    /// Answers without telling milters of a refusal.
    pub(super) async fn answer_rcpt(&mut self, context: RcptContext<'_>, rcpt: RcptTo) -> Reply {
        match self.take_rcpt(context, rcpt).await {
            Ok(()) => TAKEN,
            Err(refusal) => self.refuse(context.core, context.speaker.client, *refusal),
        }
    }

    /// Takes the recipient, or says why not. A refused one does not count towards a user's limit.
    pub(super) async fn take_rcpt(&mut self, context: RcptContext<'_>, rcpt: RcptTo) -> Result<(), Box<RcptRefusal>> {
        self.count_submitted().map_err(|reply| RcptRefusal::of(&rcpt.address, reply))?;
        let taken = self.judge_and_record(context, rcpt).await;
        if taken.is_err() {
            self.uncount_submitted();
        }
        taken
    }

    /// Its name, the decision, whether it can be taken beside the others, milters, the record: in this order.
    async fn judge_and_record(&mut self, context: RcptContext<'_>, rcpt: RcptTo) -> Result<(), Box<RcptRefusal>> {
        let RcptContext { core, settings, speaker, .. } = context;
        let for_milters = self.milters.is_some().then(|| rcpt.clone());
        self.count_params(core, &rcpt).map_err(|reply| RcptRefusal::of(&rcpt.address, reply))?;
        let named = self.canonical(settings, own_name(core, settings, rcpt)).await?;
        let instance = speaker.session.map(|_| self.id.to_string()).unwrap_or_default();
        let session = speaker.session.map(|facts| SessionFacts { size: self.mail.size, instance: &instance, ..*facts });
        let may_relay = self.injector.is_some() || speaker.may_relay;
        let speaker = Speaker { may_relay, session: session.as_ref(), ..speaker };
        let context = RcptContext { speaker, ..context };
        // Wishes of a refused recipient do not reach the message.
        let mut wishes = Wishes::default();
        let decider = Decider { settings, speaker, sender: &self.sender, now: core.clock.now() };
        let mut judged = decider.judge(&named.rcpt.address, &mut wishes).await;
        self.admit(context, &named.rcpt.address, &mut judged, &wishes).await?;
        if let Some(rcpt) = for_milters {
            self.filter_judged(rcpt, &named.rcpt, &mut judged, speaker).await?;
        }
        self.record(context, named, judged, wishes);
        Ok(())
    }

    /// Asks milters about a recipient that can otherwise be taken.
    async fn filter_judged(
        &mut self,
        as_named: RcptTo,
        rcpt: &RcptTo,
        judged: &mut Judged,
        speaker: Speaker<'_>,
    ) -> Result<(), Box<RcptRefusal>> {
        let why = std::mem::replace(&mut judged.why, RelayReason::Outside).words(speaker.proof);
        let (address, accepted, class) = (rcpt.address.clone(), judged.accepted(rcpt), judged.class.clone());
        let taken = TakenRcpt { named: as_named.address.clone(), address, accepted, class, why: why.clone() };
        judged.why = RelayReason::Rules(why);
        self.filter_taken(as_named, taken).await.map_err(|refusal| RcptRefusal::by_milter(&rcpt.address, refusal))
    }

    /// Keeps a recipient that is taken, with what its rules ask of the message.
    fn record(&mut self, context: RcptContext<'_>, named: NamedRcpt, judged: Judged, mut wishes: Wishes) {
        let RcptContext { settings, speaker, .. } = context;
        let NamedRcpt { rcpt, original } = named;
        let accepted = judged.accepted(&rcpt);
        let Judged { class, copies, open, question, why, .. } = judged;
        let address = rcpt.address;
        self.question = self.question.take().or(question);
        if let Some(original) = original {
            wishes.remark(ActionRemark::Rewritten { to: address.clone() }, &RemarkRecipients::one(original.as_str()));
            self.names.rewrite(original, address.clone());
        }
        let lists = lists_of(&class);
        if !open.is_empty() {
            self.open.push((address.clone(), lists.to_vec()));
        }
        self.waiting.add(&settings.rules, &address, open);
        self.wishes.merge(wishes);
        self.remember(settings, speaker);
        if let ClientProof::Certificate(name) = speaker.proof {
            self.certificate.get_or_insert_with(|| name.into());
        }
        if let Some((hop, _)) = accepted.route.as_deref() {
            self.route_lists(lists, hop);
        }
        for hop in copies {
            self.rcpts.add_copy(address.clone(), AcceptedRcpt { hop: Some(hop), ..unasked() });
        }
        self.restricted_lists.extend(restricted(settings, lists));
        self.restricted_lists.sort_unstable();
        self.restricted_lists.dedup();
        match why {
            RelayReason::Rules(words) => self.rcpts.add_by(address, accepted, class, words),
            RelayReason::Policy(_) | RelayReason::Outside => {
                self.rcpts.add(address, accepted, class, || why.words(speaker.proof));
            }
        }
    }

    /// Checks whether a recipient with these lists may join the earlier recipients. For an untrusted client, a list
    /// that may yet refuse the post because of its author must be the only recipient: data has one reply, and a refusal
    /// would take the message from all others.
    ///
    /// The reply reveals who may post. A client that keeps asking without posting is soon refused whatever the sender,
    /// so each restricted list needs a transaction of its own.
    fn admit_beside_lists(&self, core: &Arc<Core>, settings: &Settings, lists: &[Arc<str>]) -> Result<(), Reply> {
        let own = restricted(settings, lists);
        let others = &self.restricted_lists;
        if self.is_of_trusted() || self.rcpts.named() == 0 || own.is_empty() && others.is_empty() {
            return Ok(());
        }
        if own.len() == 1 && own == *others {
            return Ok(());
        }
        let (client, now) = (counted_as(self.client), core.clock.steady());
        let mut guesses = core.poster_guesses.lock();
        if guesses.wait_ms(&client, now).is_some() {
            return Err(BESIDE_A_LIST);
        }
        guesses.wrong(&client, now);
        drop(guesses);
        let sender = self.mail.path.as_str();
        let may_post = |name: &Arc<str>| {
            settings
                .list(name)
                .is_some_and(|list| list.is_poster(sender, &mut |who| InForce(core).is_member(name, who)))
        };
        if own.iter().chain(others).all(may_post) { Ok(()) } else { Err(BESIDE_A_LIST) }
    }

    /// Counts the octets of a recipient's parameters.
    fn count_params(&mut self, core: &Core, rcpt: &RcptTo) -> Result<(), Reply> {
        if rcpt.notify.is_none() && rcpt.orcpt.is_none() {
            return Ok(());
        }
        let more = RCPT_PARAMS_BYTES + rcpt.orcpt.as_ref().map_or(0, String::len);
        if self.params_bytes + more > core.intake.batch_bytes_max() {
            // RFC 5321 section 4.5.3.1.10: the client sends the rest in another transaction.
            return Err(Reply::fixed(452, Enhanced::new(4, 5, 3), "Too many recipients with parameters"));
        }
        self.params_bytes += more;
        Ok(())
    }

    /// Checks whether a judged recipient can be accepted: standing bounces, its lists, its next hop, other recipients'
    /// rules.
    async fn admit(
        &mut self,
        context: RcptContext<'_>,
        address: &Address,
        judged: &mut Judged,
        wishes: &Wishes,
    ) -> Result<(), Box<RcptRefusal>> {
        let RcptContext { core, settings, speaker, content } = context;
        let refused = |reply| RcptRefusal::of(address, reply);
        if let AddressClass::Refuse(reply) = &judged.class {
            let why = std::mem::replace(&mut judged.why, RelayReason::Rules(String::new()));
            return Err(Box::new(RcptRefusal { policy: why.words(speaker.proof), ..*refused(reply.clone()) }));
        }
        if let AddressClass::Alias(expansion) = &judged.class {
            self.add_targets(expansion.everyone().count()).map_err(refused)?;
            // A rule may yet name another next hop, or quarantine the message.
            let is_settled = judged.open.is_empty() && judged.quarantine.is_none() && wishes.redirect.is_none();
            let of_alias = judged.route.as_ref();
            if is_settled && let Some((reply, policy)) = self.refused_targets(context, expansion, of_alias).await {
                return Err(Box::new(RcptRefusal { policy, ..*refused(reply) }));
            }
        }
        if matches!(judged.class, AddressClass::Command { .. }) && self.rcpts.commands().count() >= COMMANDS_MAX {
            return Err(refused(TOO_MANY_COMMANDS));
        }
        // If rules may still lead it elsewhere, it is returned later if necessary.
        let is_settled = judged.open.is_empty() && wishes.redirect.is_none();
        // Targets of an alias may have next hops that are not known yet.
        let has_own_hop = judged.hop.is_some()
            || judged.route.is_some()
            || matches!(judged.class, AddressClass::Alias(_)) && settings.rules.has_own_hops();
        if is_settled && let Some(reply) = self.standing_bounce_refusal(core, address, &judged.class, has_own_hop) {
            return Err(refused(reply));
        }
        if is_settled && let Some(reply) = self.suppression_refusal(core, settings, address, &judged.class) {
            return Err(Box::new(RcptRefusal { policy: SUPPRESSED.to_owned(), ..*refused(reply) }));
        }
        let lists = lists_of(&judged.class);
        for list in lists {
            self.check_list(core, list).await.map_err(refused)?;
        }
        match content {
            None => self.admit_beside_lists(core, settings, lists).map_err(refused)?,
            Some(facts) => {
                let late = self.check_late(context, facts, address, judged);
                late.map_err(|(reply, policy)| Box::new(RcptRefusal { policy, ..*refused(reply) }))?;
            }
        }
        if let Some(next) = judged.ask.take() {
            let recipient = RoutedRcpt {
                address: address.clone(),
                hop: next,
                route: Route { hop: judged.hop.clone(), ..Route::default() },
            };
            let answer = Box::pin(call_ahead::ask(core, settings, speaker.client, recipient)).await;
            if let Some((reply, said)) = call_ahead::refusal(answer, settings.config.call_ahead.on_failure) {
                return Err(Box::new(RcptRefusal { policy: format!("call-ahead: {said}"), ..*refused(reply) }));
            }
        }
        self.waiting.admits(&settings.rules, self.is_of_trusted(), &judged.open).map_err(refused)
    }

    /// Returns the refusal of an alias whose targets are all refused, and what refuses it, in words.
    async fn refused_targets(
        &self,
        context: RcptContext<'_>,
        expansion: &Expansion,
        of_alias: Option<&(NextHop, DecisionReason)>,
    ) -> Option<(Reply, String)> {
        let RcptContext { core, settings, speaker, .. } = context;
        if !settings.rules.refuses_hops() {
            return None;
        }
        let sender = settings.rules.mark_local(self.sender.clone());
        let tables = settings.tables.questions_about(speaker.stranger.asker, None).of_stranger(self.stranger());
        let decider = Decider { settings, speaker, sender: &sender, now: core.clock.now() };
        let (reply, why) = Box::pin(decider.refused_targets(&tables, expansion, of_alias)).await?;
        Some((reply, format!("all its targets are refused: {}", settings.rules.shown(&why))))
    }

    /// Keeps facts about the client if next hops of further recipients may depend on them.
    fn remember(&mut self, settings: &Settings, speaker: Speaker<'_>) {
        if self.speaker_facts.is_none() && settings.rules.has_own_hops() {
            self.speaker_facts = Some(SpeakerFacts {
                name: speaker.name.into_owned(),
                helo: speaker.helo.to_ascii_lowercase().into(),
                asker: speaker.stranger.asker.cloned(),
                behaviour: speaker.stranger.behaviour,
            });
        }
    }

    /// Sets the next hop that a rule names for these lists' subscribers; the first one counts.
    pub(super) fn route_lists(&mut self, lists: &[Arc<str>], hop: &NextHop) {
        for list in lists {
            if self.list_hops.iter().all(|(known, _)| known != list) {
                self.list_hops.push((list.clone(), hop.clone()));
            }
        }
    }

    /// Gives the recipient its canonical address, and the sender his before the first recipient.
    async fn canonical(&mut self, settings: &Settings, named: NamedRcpt) -> Result<NamedRcpt, Box<RcptRefusal>> {
        if settings.rules.addresses.rewriting.is_empty() {
            return Ok(named);
        }
        let NamedRcpt { rcpt, original } = named;
        if !std::mem::replace(&mut self.has_canonical_sender, true)
            && let ReversePath::Address(sender) = &self.mail.path
        {
            match canonical(settings, sender, AddressRole::Sender, self.stranger(), None).await {
                Ok(Some(canonical)) => {
                    let remark = ActionRemark::RewrittenSender { to: canonical.clone() };
                    self.wishes.remark(remark, &RemarkRecipients::one(sender.as_str()));
                    self.given_sender = Some(sender.as_str().to_owned());
                    self.sender = Key::new(canonical.as_str());
                    self.mail.path = ReversePath::Address(canonical);
                }
                Ok(None) => {}
                Err(reply) => {
                    self.has_canonical_sender = false;
                    return Err(RcptRefusal::of(&rcpt.address, reply));
                }
            }
        }
        match canonical(settings, &rcpt.address, AddressRole::Recipient, self.stranger(), None).await {
            Ok(Some(address)) => {
                let before = rcpt.address;
                Ok(NamedRcpt { rcpt: RcptTo { address, ..rcpt }, original: original.or(Some(before)) })
            }
            Ok(None) => Ok(NamedRcpt { rcpt, original }),
            Err(reply) => Err(RcptRefusal::of(&rcpt.address, reply)),
        }
    }

    /// Counts the targets of aliases: by adding details, a client may name one alias a thousand times.
    fn add_targets(&mut self, targets: usize) -> Result<(), Reply> {
        if self.targets > 0 && self.targets + targets > TARGETS_MAX {
            // RFC 5321 section 4.5.3.1.10: the client sends the rest in another transaction.
            return Err(Reply::fixed(452, Enhanced::new(4, 5, 3), "Too many recipients"));
        }
        self.targets += targets;
        Ok(())
    }

    /// Refuses a recipient that a standing bounce certainly covers, rather than return the message to a sender that may
    /// be forged.
    pub(super) fn standing_bounce_refusal(
        &self,
        core: &Arc<Core>,
        address: &Address,
        class: &AddressClass,
        has_own_hop: bool,
    ) -> Option<Reply> {
        if !core.standing.load(Ordering::Relaxed) {
            return None;
        }
        let sender = Senders { envelope: self.mail.path.as_str(), given: self.given_sender.as_deref() };
        let reason = core.with(|hub, now| {
            let bounces = hub.sched.bounces();
            let of = |to: &Address| -> Option<Arc<str>> {
                let domain = hub.store.book.domain_lookup(to.domain()).filter(|_| !has_own_hop);
                let site =
                    domain.and_then(|domain| hub.sched.site_of(domain)).and_then(|site| hub.sched.site_name(site));
                bounces.reason(sender, None, to.domain(), site, now).cloned()
            };
            match class {
                AddressClass::Relay => of(address),
                // Its copies have the list's own sender.
                AddressClass::List(list) => bounces.reason_of_list(sender, list, now).cloned(),
                AddressClass::Alias(expansion) if expansion.lists.is_empty() => {
                    let first = expansion.everyone().next().and_then(of);
                    first.filter(|_| {
                        expansion.everyone().nth(ALIAS_TARGETS_SEEN).is_none()
                            && expansion.everyone().all(|to| of(to).is_some())
                    })
                }
                AddressClass::Alias(_)
                | AddressClass::Bounces(_)
                | AddressClass::Command { .. }
                | AddressClass::Refuse(_) => None,
            }
        })?;
        Some(Reply::new(550, Enhanced::new(5, 7, 1), reason.to_string()))
    }

    /// Refuses a recipient to whom nothing would be sent, so that the sender learns of it at once. Members of lists and
    /// targets of aliases are left out when their copies are sent.
    fn suppression_refusal(
        &self,
        core: &Core,
        settings: &Settings,
        address: &Address,
        class: &AddressClass,
    ) -> Option<Reply> {
        if !matches!(class, AddressClass::Relay) || core.registry.is_empty() {
            return None;
        }
        let sender = self.mail.path.as_str();
        let is_exempt = settings.is_transactional(self.is_transactional, sender, self.is_of_trusted());
        let sender = if is_exempt { "" } else { sender };
        let found = core.registry.is_suppressed(address.as_str(), None, sender, core.clock.now())?;
        Some(suppression::refusal(found))
    }

    /// Reports a refused recipient.
    pub(super) fn refuse(&self, core: &Core, client: IpAddr, refusal: RcptRefusal) -> Reply {
        let RcptRefusal { to, reply, policy, .. } = refusal;
        let by = Injector { client, ..self.by() };
        log::refused_recipient(core, &self.mail, to.as_str(), &policy, by, &reply);
        reply
    }

    pub(super) async fn check_list(&self, core: &Arc<Core>, list: &Arc<str>) -> Result<(), Reply> {
        // A client may name it a thousand times.
        if self.rcpts.lists().contains(list) {
            return Ok(());
        }
        check_sender(&self.mail.path)?;
        // The current subscribers: a replaced file is read before the post is accepted.
        core.lists.refresh(core, list).await
    }
}

/// Puts our name in place of an address literal of this server: mail to the postmaster of a host known only by its
/// address arrives (RFC 5321 section 4.5.1), and never loops.
fn own_name(core: &Core, settings: &Settings, rcpt: RcptTo) -> NamedRcpt {
    if !rcpt.address.domain().starts_with('[') || !core.resolver().is_own_literal(rcpt.address.domain()) {
        return NamedRcpt { rcpt, original: None };
    }
    let named = format!("{}@{}", rcpt.address.local(), settings.config.hostname);
    match named.parse() {
        Ok(address) => NamedRcpt { original: Some(rcpt.address), rcpt: RcptTo { address, ..rcpt } },
        Err(_) => NamedRcpt { rcpt, original: None },
    }
}

/// Of a copy that its sender knows nothing of: nobody is told what becomes of it, as Postfix does with its own.
pub(super) fn unasked() -> AcceptedRcpt {
    AcceptedRcpt { params: RcptParams { notify: Some(Notify::NEVER.bits()), orcpt: None }, ..AcceptedRcpt::default() }
}
