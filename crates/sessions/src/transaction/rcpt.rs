//! A recipient is named: what it is, who may write to it, and what its rules ask.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use stentor_addresses::Role;
use stentor_filters::Refusal;
use stentor_lists::{Post, check_sender};
use stentor_mail::address::{Address, ReversePath};
use stentor_mail::headers::HeaderFacts;
use stentor_mail::reply::Reply;
use stentor_mail::server::{Notify, RcptTo};
use stentor_policy::{Expansion, Verdict, counted_as};
use stentor_queue::event::RcptParams;
use stentor_queue::sender::Senders;
use stentor_rules::{Key, Named, NextHop, Remark, SessionFacts, Why, Wishes};

use super::super::content::Members as _;
use super::super::judge::{Asked, Because, Judged, Proof, Speaker, judge, refused_targets};
use super::super::rewrite::canonical;
use super::{InForce, Spoke, Transaction};
use stentor_engine::core::log::Injector;
use stentor_engine::core::{Core, Settings, log};
use stentor_engine::delivery::call_ahead::{self, Recipient};

/// NOTIFY and ORCPT of a recipient in its message's record, beside ORCPT's text.
const RCPT_PARAMS_BYTES: usize = 20;
/// Targets of all aliases of a message, but for the first alias.
const TARGETS_MAX: usize = 20_000;
/// Targets of an alias that are compared with standing bounces: a larger one is taken.
const ALIAS_TARGETS_SEEN: usize = 100;

/// RFC 5321 section 4.5.3.1.10: the client sends the rest in another transaction.
const BESIDE_A_LIST: Reply =
    Reply::fixed(452, (4, 5, 3), "Restricted list must be the only recipient; send this one in another transaction");
pub(super) const TAKEN: Reply = Reply::fixed(250, (2, 1, 5), "Ok");

/// Why a recipient is not taken.
pub(super) struct RcptRefusal {
    to: Address,
    pub reply: Reply,
    /// What decided, in words.
    policy: String,
    /// A milter refuses it.
    pub is_milters: bool,
}

#[expect(clippy::unnecessary_box_returns, reason = "as the results have it, which stay small")]
impl RcptRefusal {
    fn of(to: &Address, reply: Reply) -> Box<RcptRefusal> {
        Box::new(RcptRefusal { to: to.clone(), reply, policy: String::new(), is_milters: false })
    }

    fn by_milter(to: &Address, Refusal { reply, by }: Refusal) -> Box<RcptRefusal> {
        Box::new(RcptRefusal { policy: by, is_milters: true, ..*RcptRefusal::of(to, reply) })
    }
}

/// Lists with restricted posting, sorted, each once.
fn restricted(settings: &Settings, lists: &[Arc<str>]) -> Vec<Arc<str>> {
    let is_restricted = |name: &&Arc<str>| settings.list(name).is_some_and(|list| list.settings().post != Post::Anyone);
    let mut restricted: Vec<Arc<str>> = lists.iter().filter(is_restricted).cloned().collect();
    restricted.sort_unstable();
    restricted.dedup();
    restricted
}

/// The lists that a recipient leads to.
fn lists_of(verdict: &Verdict) -> &[Arc<str>] {
    match verdict {
        Verdict::List(list) => std::slice::from_ref(list),
        Verdict::Alias(expansion) => &expansion.lists,
        Verdict::Relay | Verdict::Bounces(_) | Verdict::Refuse(_) => &[],
    }
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
        if self.filtering.is_some() {
            return Box::pin(self.filter_rcpt(core, settings, speaker, rcpt)).await;
        }
        self.take_rcpt(core, settings, speaker, (rcpt, None)).await
    }

    /// The same without what milters hear of recipients that are refused. `facts` are those of a content that has come already.
    pub(super) async fn take_rcpt(
        &mut self,
        core: &Arc<Core>,
        settings: &Arc<Settings>,
        speaker: Speaker<'_>,
        (rcpt, facts): (RcptTo, Option<&HeaderFacts>),
    ) -> Reply {
        match self.try_rcpt(core, settings, speaker, (rcpt, facts)).await {
            Ok(()) => TAKEN,
            Err(refusal) => self.refuse(core, speaker.client, *refusal),
        }
    }

    /// Takes the recipient, or says why not; one that is refused counts for no limit of a user.
    pub(super) async fn try_rcpt(
        &mut self,
        core: &Arc<Core>,
        settings: &Arc<Settings>,
        speaker: Speaker<'_>,
        (rcpt, facts): (RcptTo, Option<&HeaderFacts>),
    ) -> Result<(), Box<RcptRefusal>> {
        self.count_submitted().map_err(|reply| RcptRefusal::of(&rcpt.address, reply))?;
        let taken = self.try_counted(core, settings, speaker, (rcpt, facts)).await;
        if taken.is_err() {
            self.uncount_submitted();
        }
        taken
    }

    /// The same for one that is counted already.
    async fn try_counted(
        &mut self,
        core: &Arc<Core>,
        settings: &Arc<Settings>,
        speaker: Speaker<'_>,
        (rcpt, facts): (RcptTo, Option<&HeaderFacts>),
    ) -> Result<(), Box<RcptRefusal>> {
        let told = self.filtering.is_some().then(|| rcpt.clone());
        self.count_params(core, &rcpt).map_err(|reply| RcptRefusal::of(&rcpt.address, reply))?;
        let (rcpt, at_literal) = own_name(core, settings, rcpt);
        let (rcpt, given) = self.canonical(settings, rcpt).await?;
        let given = at_literal.or(given);
        let instance = speaker.session.map(|_| self.id.to_string()).unwrap_or_default();
        let session = speaker.session.map(|facts| SessionFacts { size: self.mail.size, instance: &instance, ..*facts });
        let may_relay = self.injector.is_some() || speaker.may_relay;
        let speaker = Speaker { may_relay, session: session.as_ref(), ..speaker };
        // Of a recipient that is refused, nothing is asked of the message.
        let mut wishes = Wishes::default();
        let asked = (&self.sender, &rcpt.address);
        let mut judged = judge((settings, core.clock.now()), speaker, asked, &mut wishes).await;
        self.admit(core, settings, (speaker, &rcpt.address, facts), (&mut judged, &wishes)).await?;
        let Judged { verdict, hop, quarantine, copies, route, open, question, mut why, .. } = judged;
        self.question = self.question.take().or(question);
        if let Some(given) = given {
            wishes.remark(Remark::Rewritten { to: rcpt.address.clone() }, &Named::one(given.as_str()));
            self.names.rewrite(given, rcpt.address.clone());
        }
        let params = RcptParams { notify: rcpt.notify.map(Notify::bits), orcpt: rcpt.orcpt };
        let is_routed = matches!(verdict, Verdict::Relay);
        let asked = Asked { params, hop, is_routed, quarantine, route: route.map(Arc::new), ..Asked::default() };
        if let Some(told) = told {
            let words = why.words(speaker.proof);
            let taken = self.filter_taken(told, (&rcpt.address, &asked), &verdict, &words).await;
            taken.map_err(|refusal| RcptRefusal::by_milter(&rcpt.address, refusal))?;
            why = Because::Rules(words);
        }
        let lists = lists_of(&verdict);
        if !open.is_empty() {
            self.open.push((rcpt.address.clone(), lists.to_vec()));
        }
        self.waiting.add(&settings.rules, &rcpt.address, open);
        self.wishes.merge(wishes);
        self.remember(settings, speaker);
        if let Proof::Certificate(name) = speaker.proof {
            self.certificate.get_or_insert_with(|| name.into());
        }
        if let Some((hop, _)) = asked.route.as_deref() {
            self.route_lists(lists, hop);
        }
        for hop in copies {
            let asked = Asked { hop: Some(hop), ..unasked() };
            self.rcpts.add_copy(rcpt.address.clone(), asked);
        }
        self.restricted_lists.extend(restricted(settings, lists));
        self.restricted_lists.sort_unstable();
        self.restricted_lists.dedup();
        match why {
            Because::Rules(words) => self.rcpts.add_by(rcpt.address, asked, verdict, words),
            Because::Policy(_) | Because::Outside => {
                self.rcpts.add(rcpt.address, asked, verdict, || why.words(speaker.proof));
            }
        }
        Ok(())
    }

    /// Whether a recipient that leads to these lists can be taken beside those that were. A list that may yet refuse the post, by its author,
    /// is a stranger's only recipient: data has one reply, and its refusal would take the message from all others.
    ///
    /// The reply reveals who may post. A client that keeps asking without posting is soon refused whatever the sender, so each restricted
    /// list needs a transaction of its own.
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

    /// Counts what a recipient's parameters take.
    fn count_params(&mut self, core: &Core, rcpt: &RcptTo) -> Result<(), Reply> {
        if rcpt.notify.is_none() && rcpt.orcpt.is_none() {
            return Ok(());
        }
        let more = RCPT_PARAMS_BYTES + rcpt.orcpt.as_ref().map_or(0, String::len);
        if self.params_bytes + more > core.intake.batch_bytes_max() {
            // RFC 5321 section 4.5.3.1.10: the client sends the rest in another transaction.
            return Err(Reply::fixed(452, (4, 5, 3), "Too many recipients with parameters"));
        }
        self.params_bytes += more;
        Ok(())
    }

    /// Whether a recipient can be taken that was judged: standing bounces, its lists, its next hop, other recipients' rules.
    async fn admit(
        &mut self,
        core: &Arc<Core>,
        settings: &Arc<Settings>,
        (speaker, address, facts): (Speaker<'_>, &Address, Option<&HeaderFacts>),
        (judged, wishes): (&mut Judged, &Wishes),
    ) -> Result<(), Box<RcptRefusal>> {
        let refused = |reply| RcptRefusal::of(address, reply);
        if let Verdict::Refuse(reply) = &judged.verdict {
            let why = std::mem::replace(&mut judged.why, Because::Rules(String::new()));
            return Err(Box::new(RcptRefusal { policy: why.words(speaker.proof), ..*refused(reply.clone()) }));
        }
        if let Verdict::Alias(expansion) = &judged.verdict {
            self.add_targets(expansion.everyone().count()).map_err(refused)?;
            // A rule may yet name another next hop, or keep the message.
            let is_settled = judged.open.is_empty() && judged.quarantine.is_none() && wishes.redirect.is_none();
            let alias = (&**expansion, judged.route.as_ref());
            if is_settled && let Some((reply, policy)) = self.refused_targets(core, settings, speaker, alias).await {
                return Err(Box::new(RcptRefusal { policy, ..*refused(reply) }));
            }
        }
        // Where rules may still lead it elsewhere, it is returned later if need be.
        let is_settled = judged.open.is_empty() && wishes.redirect.is_none();
        // Targets of an alias may have hops that are not known yet.
        let has_own_hop = judged.hop.is_some()
            || judged.route.is_some()
            || matches!(judged.verdict, Verdict::Alias(_)) && settings.rules.has_own_hops();
        if is_settled && let Some(reply) = self.standing_bounce_refusal(core, (address, has_own_hop), &judged.verdict) {
            return Err(refused(reply));
        }
        let lists = lists_of(&judged.verdict);
        for list in lists {
            self.check_list(core, list).await.map_err(refused)?;
        }
        if facts.is_none() {
            self.admit_beside_lists(core, settings, lists).map_err(refused)?;
        }
        if let Some(facts) = facts {
            let late = self.check_late(core, settings, (address, facts), &judged.verdict, &judged.open);
            late.map_err(|(reply, policy)| Box::new(RcptRefusal { policy, ..*refused(reply) }))?;
        }
        if let Some(next) = judged.ask.take() {
            let recipient = Recipient { address: address.clone(), hop: next, own_hop: judged.hop.clone() };
            let answer = Box::pin(call_ahead::ask(core, settings, speaker.client, recipient)).await;
            if let Some((reply, said)) = call_ahead::refusal(answer, settings.config.call_ahead.on_failure) {
                return Err(Box::new(RcptRefusal { policy: format!("call-ahead: {said}"), ..*refused(reply) }));
            }
        }
        self.waiting.admits(&settings.rules, self.is_of_trusted(), &judged.open).map_err(refused)
    }

    /// Why an alias is refused whose targets all are, and by what, in words.
    async fn refused_targets(
        &self,
        core: &Core,
        settings: &Settings,
        speaker: Speaker<'_>,
        (expansion, of_alias): (&Expansion, Option<&(NextHop, Why)>),
    ) -> Option<(Reply, String)> {
        if !settings.rules.refuses_hops() {
            return None;
        }
        let sender = settings.rules.mark_local(self.sender.clone());
        let tables = settings.tables.questions_about(speaker.stranger.asker, None).of_stranger(self.stranger());
        let asked = refused_targets((settings, &tables), speaker, (&sender, expansion, core.clock.now()), of_alias);
        let (reply, why) = Box::pin(asked).await?;
        Some((reply, format!("all it stands for is refused: {}", settings.rules.shown(&why))))
    }

    /// Keeps who spoke, where next hops of others may depend on it.
    fn remember(&mut self, settings: &Settings, speaker: Speaker<'_>) {
        if self.spoke.is_none() && settings.rules.has_own_hops() {
            self.spoke = Some(Spoke {
                name: speaker.name.into_owned(),
                helo: speaker.helo.to_ascii_lowercase().into(),
                asker: speaker.stranger.asker.cloned(),
                seen: speaker.stranger.seen,
            });
        }
    }

    /// A rule names the next hop of these lists' subscribers; the first one counts.
    pub(super) fn route_lists(&mut self, lists: &[Arc<str>], hop: &NextHop) {
        for list in lists {
            if self.list_hops.iter().all(|(known, _)| known != list) {
                self.list_hops.push((list.clone(), hop.clone()));
            }
        }
    }

    /// The recipient with its canonical address, and the one that the client gave if it is another; the sender gets his own before
    /// the first.
    async fn canonical(
        &mut self,
        settings: &Settings,
        rcpt: RcptTo,
    ) -> Result<(RcptTo, Option<Address>), Box<RcptRefusal>> {
        if settings.rules.addresses.rewriting.is_empty() {
            return Ok((rcpt, None));
        }
        if !std::mem::replace(&mut self.has_canonical_sender, true)
            && let ReversePath::Address(sender) = &self.mail.path
        {
            match canonical(settings, (sender, Role::Sender), self.stranger(), None).await {
                Ok(Some(canonical)) => {
                    let remark = Remark::RewrittenSender { to: canonical.clone() };
                    self.wishes.remark(remark, &Named::one(sender.as_str()));
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
        match canonical(settings, (&rcpt.address, Role::Recipient), self.stranger(), None).await {
            Ok(Some(address)) => {
                let given = rcpt.address;
                Ok((RcptTo { address, ..rcpt }, Some(given)))
            }
            Ok(None) => Ok((rcpt, None)),
            Err(reply) => Err(RcptRefusal::of(&rcpt.address, reply)),
        }
    }

    /// Counts what aliases stand for: with their details, a client may name one alias a thousand times.
    fn add_targets(&mut self, targets: usize) -> Result<(), Reply> {
        if self.targets > 0 && self.targets + targets > TARGETS_MAX {
            // RFC 5321 section 4.5.3.1.10: the client sends the rest in another transaction.
            return Err(Reply::fixed(452, (4, 5, 3), "Too many recipients"));
        }
        self.targets += targets;
        Ok(())
    }

    /// What a standing bounce certainly covers is refused, rather than taken and returned to a sender who may be forged.
    pub(super) fn standing_bounce_refusal(
        &self,
        core: &Arc<Core>,
        (address, has_own_hop): (&Address, bool),
        verdict: &Verdict,
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
                bounces.reason((sender, None), (to.domain(), site), now).cloned()
            };
            match verdict {
                Verdict::Relay => of(address),
                // Its copies have the list's own sender.
                Verdict::List(list) => bounces.reason_of_list(sender, list, now).cloned(),
                Verdict::Alias(expansion) if expansion.lists.is_empty() => {
                    let first = expansion.everyone().next().and_then(of);
                    first.filter(|_| {
                        expansion.everyone().nth(ALIAS_TARGETS_SEEN).is_none()
                            && expansion.everyone().all(|to| of(to).is_some())
                    })
                }
                Verdict::Alias(_) | Verdict::Bounces(_) | Verdict::Refuse(_) => None,
            }
        })?;
        Some(Reply::new(550, (5, 7, 1), reason.to_string()))
    }

    /// A recipient is refused; reports that.
    pub(super) fn refuse(&self, core: &Core, client: IpAddr, refusal: RcptRefusal) -> Reply {
        let RcptRefusal { to, reply, policy, .. } = refusal;
        let by = Injector { client, ..self.by() };
        log::refused_recipient(core, &self.mail, (to.as_str(), &policy), by, &reply);
        reply
    }

    pub(super) async fn check_list(&self, core: &Arc<Core>, list: &Arc<str>) -> Result<(), Reply> {
        // A client may name it a thousand times.
        if self.rcpts.lists().contains(list) {
            return Ok(());
        }
        check_sender(&self.mail.path)?;
        // The subscribers as they are now: a replaced file is read before the post is taken.
        core.lists.refresh(core, list).await
    }
}

/// The recipient under our name if the address literal is this server's, and the one that the client gave: mail to the postmaster of a host
/// of which only the address is known arrives (RFC 5321 section 4.5.1), and never loops.
fn own_name(core: &Core, settings: &Settings, rcpt: RcptTo) -> (RcptTo, Option<Address>) {
    if !rcpt.address.domain().starts_with('[') || !core.resolver.is_own_literal(rcpt.address.domain()) {
        return (rcpt, None);
    }
    let named = format!("{}@{}", rcpt.address.local(), settings.config.hostname);
    match named.parse() {
        Ok(address) => (RcptTo { address, ..rcpt }, Some(rcpt.address)),
        Err(_) => (rcpt, None),
    }
}

/// Of a copy that its sender knows nothing of: nobody is told what becomes of it, as Postfix does with its own.
pub(super) fn unasked() -> Asked {
    Asked { params: RcptParams { notify: Some(Notify::NEVER.bits()), orcpt: None }, ..Asked::default() }
}
