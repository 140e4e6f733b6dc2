//! One mail transaction of a client: its recipients, its body, and its result.
//!
//! States: begun (MAIL) -> recipients -> reserved -> data (354) -> submitted -> answered. Until the ticket resolves
//! nothing is promised; any failure is answered with a 4xx or 5xx and forgotten. Memory is reserved when there is a
//! valid recipient and the data begins, so that a client that only announces a message holds nothing
//! (docs/design/decisions/0004-strangers.md).

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use stentor_addresses::Role;
use stentor_lists::{check_delivered_to, check_received, check_sender, delivered_to_field};
use stentor_mail::address::{Address, ReversePath};
use stentor_mail::headers::HeaderFacts;
use stentor_mail::heading::Heading;
use stentor_mail::received::{Trace, received, received_local};
use stentor_mail::reply::Reply;
use stentor_mail::server::{EndOfData, MailFrom, Notify, RcptTo};
use stentor_policy::{self as policy, Verdict};
use stentor_queue::event::{Class, MessageIdAt, RcptParams, Ret};
use stentor_queue::ids::{ContentId, MessageId, Ms};
use stentor_rules::{Key, NextHop};
use tokio::sync::oneshot;

use super::ahead::{intern_ahead, subscribers_at};
use super::judge::{Asked, Judged, Speaker, Wishes, judge, route_others};
use super::rewrite::{canonical, header};
use crate::core::envelope::{NewEnvelope, Recipients, Taken, To};
use crate::core::intake::{AssignedIds, Job, Refused, Submission};
use crate::core::limits::Limit;
use crate::core::memory::{PIECE_BYTES, Reserved};
use crate::core::observer::{Receiving, TraceParent};
use crate::core::people::today;
use crate::core::{Core, Settings, log};
use crate::live::posts::{Noted, RECIPIENTS_MIN};

/// NOTIFY and ORCPT of a recipient in its message's record, beside ORCPT's text.
const RCPT_PARAMS_BYTES: usize = 20;
/// Targets of all aliases of a message, but for the first alias.
const TARGETS_MAX: usize = 20_000;
/// How long tables may take when a message has come.
const ROUTING_S_MAX: u64 = 120;
const SLOW_TABLES: Reply = Reply::fixed(451, (4, 3, 0), "The tables that decide about this mail take too long");
const NOBODY: Reply = Reply::fixed(451, (4, 3, 5), "Server configuration error");
/// Targets of an alias that are compared with standing bounces: a larger one is taken.
const ALIAS_TARGETS_SEEN: usize = 100;

pub struct Transaction {
    mail: MailFrom,
    /// What its recipients stand for.
    rcpts: policy::Recipients<Asked>,
    /// What their rules ask of the message.
    wishes: Wishes,
    /// The next hops that rules name for the subscribers of lists.
    list_hops: Vec<(Arc<str>, NextHop)>,
    sender: Key,
    /// The sender, and what there was of the header, have been rewritten.
    has_canonical_sender: bool,
    has_canonical_header: bool,
    /// The client's name and its HELO, where next hops of others than the named recipients may depend on them.
    spoke: Option<(Option<Box<str>>, Box<str>)>,
    /// What the aliases among its recipients stand for.
    targets: usize,
    /// What NOTIFY and ORCPT of the recipients take in their message's record.
    params_bytes: usize,
    protocol: &'static str,
    id: MessageId,
    content: Option<ContentId>,
    /// Octets of the pieces that were handed to the journal.
    stored: u64,
    /// Why a piece could not be stored; the rest of the body is dropped.
    failed: Option<Refused>,
    /// From 354 on this session is on its way to the committer.
    is_receiving: bool,
    /// From the begin of the data on.
    memory: Option<Reserved>,
    client: IpAddr,
    trusted: bool,
    /// It came with a login, or from a local user, which stands for a client network; who that is.
    injector: Option<String>,
    assigned: Option<AssignedIds>,
    /// Its spans, if it is sampled.
    traced: Option<Box<dyn Receiving>>,
}

impl Transaction {
    /// Answers MAIL: the place to push back, before any recipient is named.
    pub fn begin(core: &Arc<Core>, mail: MailFrom, client: IpAddr, trusted: bool) -> Result<Transaction, Reply> {
        if let Some(reply) = core.push_back() {
            log::refused(core, "MAIL", &mail, "", client, &reply);
            return Err(reply);
        }
        let id = core.next_message_id();
        Ok(Transaction::new(core, mail, id, (client, trusted)))
    }

    /// One of a local user, `origin`; its queue id is known before the first attempt to store it.
    pub fn begin_local(core: &Arc<Core>, mail: MailFrom, id: MessageId, origin: String) -> Result<Transaction, Reply> {
        let client = IpAddr::from(Ipv4Addr::LOCALHOST);
        if let Some(reply) = core.push_back() {
            return Err(reply);
        }
        Ok(Transaction { injector: Some(origin), ..Transaction::new(core, mail, id, (client, true)) })
    }

    fn new(core: &Core, mail: MailFrom, id: MessageId, (client, trusted): (IpAddr, bool)) -> Transaction {
        Transaction {
            sender: Key::new(mail.path.as_str()),
            wishes: Wishes::default(),
            has_canonical_sender: false,
            has_canonical_header: false,
            list_hops: Vec::new(),
            spoke: None,
            targets: 0,
            mail,
            rcpts: policy::Recipients::default(),
            params_bytes: 0,
            protocol: "SMTP",
            id,
            content: None,
            stored: 0,
            failed: None,
            is_receiving: false,
            memory: None,
            client,
            trusted,
            injector: None,
            assigned: None,
            traced: core.observer.get().and_then(|observer| observer.begin(id, "smtp", None, core.clock.now())),
        }
    }

    /// Relays for any injector, and assigns queue ids before the answer.
    pub fn of_injector(&mut self) -> AssignedIds {
        self.injector = Some(format!("{} login", self.client));
        self.assigned.get_or_insert_default().clone()
    }

    /// Makes it part of the client's trace.
    pub fn traced_by(&mut self, core: &Core, parent: Option<TraceParent>) {
        let observer = core.observer.get();
        self.traced = observer.and_then(|observer| observer.begin(self.id, "http", parent, core.clock.now()));
    }

    /// Answers RCPT.
    pub async fn rcpt(
        &mut self,
        core: &Arc<Core>,
        settings: &Arc<Settings>,
        speaker: Speaker<'_>,
        rcpt: RcptTo,
    ) -> Reply {
        let client = speaker.client;
        if rcpt.notify.is_some() || rcpt.orcpt.is_some() {
            let more = RCPT_PARAMS_BYTES + rcpt.orcpt.as_ref().map_or(0, String::len);
            if self.params_bytes + more > core.intake.batch_bytes_max() {
                // RFC 5321 section 4.5.3.1.10: the client sends the rest in another transaction.
                let reply = Reply::fixed(452, (4, 5, 3), "Too many recipients with parameters");
                return self.refuse(core, client, &rcpt.address, reply);
            }
            self.params_bytes += more;
        }
        let rcpt = match self.canonical(settings, rcpt).await {
            Ok(rcpt) => rcpt,
            Err((rcpt, reply)) => return self.refuse(core, client, &rcpt.address, reply),
        };
        let speaker = Speaker { may_relay: self.injector.is_some(), ..speaker };
        let asked = (&self.sender, &rcpt.address);
        // Of a recipient that is refused, nothing is asked of the message.
        let mut wishes = Wishes::default();
        let Judged { verdict, hop, copies, route, why } =
            judge((settings, core.clock.now()), speaker, asked, &mut wishes).await;
        let lists = match &verdict {
            Verdict::Refuse(reply) => return self.refuse(core, client, &rcpt.address, reply.clone()),
            Verdict::List(list) => std::slice::from_ref(list),
            Verdict::Alias(expansion) => &expansion.lists,
            Verdict::Relay | Verdict::Bounces(_) => &[],
        };
        if let Verdict::Alias(expansion) = &verdict
            && let Err(reply) = self.add_targets(expansion.everyone().count())
        {
            return self.refuse(core, client, &rcpt.address, reply);
        }
        if let Some(reply) = self.bounced(core, (&rcpt.address, hop.is_some()), &verdict) {
            return self.refuse(core, client, &rcpt.address, reply);
        }
        for list in lists {
            if let Err(reply) = self.check_list(core, list).await {
                return self.refuse(core, client, &rcpt.address, reply);
            }
        }
        self.wishes.merge(wishes);
        if self.spoke.is_none() && settings.rules.has_own_hops() {
            self.spoke = Some((speaker.name.map(Into::into), speaker.helo.to_ascii_lowercase().into()));
        }
        if let Some(route) = route {
            let new = lists.iter().filter(|list| self.list_hops.iter().all(|(known, _)| known != *list));
            let new: Vec<_> = new.map(|list| (list.clone(), route.clone())).collect();
            self.list_hops.extend(new);
        }
        let params = RcptParams { notify: rcpt.notify.map(Notify::bits), orcpt: rcpt.orcpt };
        for hop in copies {
            let asked = Asked { hop: Some(hop), ..unasked() };
            self.rcpts.add_copy(rcpt.address.clone(), asked);
        }
        self.rcpts.add(rcpt.address, Asked { params, hop }, verdict, || why.words());
        Reply::fixed(250, (2, 1, 5), "Ok")
    }

    /// The recipient with its canonical address; the sender gets his own before the first.
    async fn canonical(&mut self, settings: &Settings, rcpt: RcptTo) -> Result<RcptTo, (RcptTo, Reply)> {
        if settings.rules.addresses.rewriting.is_empty() {
            return Ok(rcpt);
        }
        if !std::mem::replace(&mut self.has_canonical_sender, true)
            && let ReversePath::Address(sender) = &self.mail.path
        {
            match canonical(settings, sender, Role::Sender, None).await {
                Ok(Some(sender)) => {
                    self.sender = Key::new(sender.as_str());
                    self.mail.path = ReversePath::Address(sender);
                }
                Ok(None) => {}
                Err(reply) => {
                    self.has_canonical_sender = false;
                    return Err((rcpt, reply));
                }
            }
        }
        match canonical(settings, &rcpt.address, Role::Recipient, None).await {
            Ok(Some(address)) => Ok(RcptTo { address, ..rcpt }),
            Ok(None) => Ok(rcpt),
            Err(reply) => Err((rcpt, reply)),
        }
    }

    /// The beginning of the content, with canonical addresses in its header.
    async fn canonical_header(&mut self, settings: &Settings, content: Vec<u8>) -> Result<Vec<u8>, Reply> {
        let is_done = std::mem::replace(&mut self.has_canonical_header, true);
        let is_trusted = self.trusted || self.injector.is_some();
        if is_done || !is_trusted || settings.rules.addresses.rewriting.is_empty() {
            return Ok(content);
        }
        header(settings, content).await
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
    fn bounced(&self, core: &Arc<Core>, (address, has_own_hop): (&Address, bool), verdict: &Verdict) -> Option<Reply> {
        if !core.standing.load(Ordering::Relaxed) {
            return None;
        }
        let sender = self.mail.path.as_str();
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

    /// Whether [`Transaction::reserve`] will not wait.
    pub fn is_room(&self, core: &Core) -> bool {
        core.memory.is_plenty(self.mail.size)
    }

    /// Reserves memory for the body at DATA or the first BDAT; a trusted client waits for it.
    pub async fn reserve(&mut self, core: &Core) -> Result<(), Reply> {
        self.memory =
            if self.trusted { core.memory.reserve(self.mail.size).await } else { core.memory.begin(self.client) };
        if self.memory.is_some() {
            return Ok(());
        }
        let reply = Self::no_room(core);
        log::refused(core, "DATA", &self.mail, "", self.client, &reply);
        Err(reply)
    }

    /// In place of [`Transaction::reserve`], where the body is in memory already: who holds some must not wait for more.
    pub fn reserved(&mut self, memory: Reserved) {
        self.memory = Some(memory);
    }

    /// Reserves memory for this many octets of the body.
    pub fn hold(&mut self, core: &Core, bytes: u64) -> Result<(), Reply> {
        let is_held = self.memory.as_mut().is_none_or(|memory| core.memory.hold(memory, bytes));
        if is_held { Ok(()) } else { Err(Self::no_room(core)) }
    }

    fn no_room(core: &Core) -> Reply {
        core.limits.hit(Limit::BodyMemory, core.clock.now());
        Reply::fixed(452, (4, 3, 1), "Too many messages are being received, try again later")
    }

    /// The body was refused after `size` octets: logs that and abandons the transaction.
    pub fn refused(self, core: &Core, client: IpAddr, reply: &Reply, size: u64) {
        let named = self.rcpts.named();
        self.refused_of(core, client, reply, (size, named));
    }

    /// The same of a message whose recipients have become envelopes.
    fn refused_of(self, core: &Core, client: IpAddr, reply: &Reply, (size, named): (u64, u64)) {
        log::refused_message(core, &self.mail, client, reply, (size, named));
        self.abandon(core);
    }

    /// A recipient is refused; reports that.
    fn refuse(&self, core: &Core, client: IpAddr, to: &stentor_mail::address::Address, reply: Reply) -> Reply {
        log::refused(core, "RCPT", &self.mail, to.as_str(), client, &reply);
        reply
    }

    async fn check_list(&self, core: &Arc<Core>, list: &Arc<str>) -> Result<(), Reply> {
        // A client may name it a thousand times.
        if self.rcpts.lists().contains(list) {
            return Ok(());
        }
        check_sender(&self.mail.path)?;
        // The subscribers as they are now: a replaced file is read before the post is taken.
        core.lists.refresh(core, list).await
    }

    /// The fields to put before the body, and the gathering rule told that a message is on its way.
    pub fn start_data(
        &mut self,
        core: &Core,
        settings: &Settings,
        (helo, is_esmtp, client): (&str, bool, IpAddr),
    ) -> Vec<u8> {
        let protocol = match (self.mail.smtputf8, is_esmtp) {
            (true, _) => "UTF8SMTP",
            (false, true) => "ESMTP",
            (false, false) => "SMTP",
        };
        self.start_data_by(core, settings, (helo, protocol, client))
    }

    /// The same for whatever the message came by.
    pub fn start_data_by(
        &mut self,
        core: &Core,
        settings: &Settings,
        (helo, protocol, client): (&str, &'static str, IpAddr),
    ) -> Vec<u8> {
        self.begin_data(core, protocol);
        // Of others than trusted clients nothing is held before it has come.
        let expected = self.mail.size.filter(|_| self.trusted).unwrap_or(0).min(PIECE_BYTES) as usize;
        let mut prefix = Vec::with_capacity(expected + 512);
        self.wishes.fields(&mut prefix);
        let hostname = &settings.config.hostname;
        received(&Trace { helo, client, hostname, protocol, id: &self.id, now: core.clock.now() }, &mut prefix);
        prefix
    }

    /// The same for a message of a local user.
    pub fn start_local_data(&mut self, core: &Core, settings: &Settings, uid: u32) -> Vec<u8> {
        self.begin_data(core, "local");
        let mut prefix = Vec::new();
        self.wishes.fields(&mut prefix);
        received_local(&settings.config.hostname, uid, (&self.id, core.clock.now()), &mut prefix);
        prefix
    }

    fn begin_data(&mut self, core: &Core, protocol: &'static str) {
        self.protocol = protocol;
        // Nobody's commit waits for who may send slowly on purpose.
        self.is_receiving = self.trusted;
        if self.trusted {
            core.intake.receiving();
        }
        if let Some(traced) = &mut self.traced {
            traced.data();
        }
    }

    /// Stores a piece of a body that is too large to be held; waits until it is written, so that one piece at a time is
    /// in memory.
    pub async fn piece(&mut self, core: &Arc<Core>, bytes: Vec<u8>, size_max: u64) {
        if self.failed.is_some() {
            return;
        }
        let Ok(bytes) = self.canonical_header(&core.settings(), bytes).await else {
            self.failed = Some(Refused::Table);
            return;
        };
        let Some(memory) = &mut self.memory else { return };
        if !core.memory.stream(memory, bytes.len() as u64, size_max).await {
            core.limits.hit(Limit::StreamedBytes, core.clock.now());
            self.failed = Some(Refused::Crowded);
            return;
        }
        let content = *self.content.get_or_insert_with(|| core.next_content_id());
        self.stored += bytes.len() as u64;
        // A large body is no company worth waiting for.
        self.arrived(core);
        let (answer, ticket) = oneshot::channel();
        core.intake.push(Job::Piece { content, bytes, answer });
        self.failed = match ticket.await {
            Ok(Ok(())) => None,
            Ok(Err(refused)) => Some(refused),
            Err(_) => Some(Refused::Stopping),
        };
    }

    /// Decides about the whole message, makes it durable and answers.
    pub async fn end(mut self, core: &Arc<Core>, settings: &Arc<Settings>, client: IpAddr, end: EndOfData) -> Reply {
        let size = end.size;
        let Some(mut traced) = self.traced.take() else {
            return self.finish(core, settings, client, end).await;
        };
        traced.end_of_data();
        let reply = self.finish(core, settings, client, end).await;
        traced.answered(core, size, &reply);
        reply
    }

    async fn finish(mut self, core: &Arc<Core>, settings: &Arc<Settings>, client: IpAddr, mut end: EndOfData) -> Reply {
        let mut verdict = match self.failed {
            Some(refused) => Err(refused.reply()),
            None => self.check(core, settings, &end.facts),
        };
        if verdict.is_ok() {
            match self.canonical_header(settings, std::mem::take(&mut end.last)).await {
                Ok(last) => end.last = last,
                Err(reply) => verdict = Err(reply),
            }
        }
        let named = self.rcpts.named();
        let envelopes = match verdict {
            Ok(()) if self.wishes.discard.is_some() => return self.discarded(core, client, end.size),
            Ok(()) => {
                let routed = self.routed(core, settings, client, &end);
                let limit = Duration::from_secs(ROUTING_S_MAX);
                tokio::time::timeout(limit, routed).await.unwrap_or(Err(SLOW_TABLES))
            }
            Err(reply) => Err(reply),
        };
        let envelopes = match envelopes {
            Ok(envelopes) => envelopes,
            Err(reply) => {
                self.refused_of(core, client, &reply, (end.size, named));
                return reply;
            }
        };
        if envelopes.is_empty() {
            self.abandon(core);
            return Reply::fixed(250, (2, 0, 0), "Ok: report noted");
        }
        let envelopes = match intern_ahead(core, envelopes).await {
            Ok(envelopes) => envelopes,
            Err(refused) => {
                let reply = refused.reply();
                self.refused_of(core, client, &reply, (end.size, named));
                return reply;
            }
        };
        let content = self.content.unwrap_or_else(|| core.next_content_id());
        self.note_post(core, settings, (content, &envelopes), &end.last);
        let told_size = end.size;
        let size = self.stored + end.last.len() as u64;
        let (last, assigned) = (Arc::new(end.last), self.assigned.take());
        let held = self.wishes.marks.hold.is_some();
        let submission =
            Submission { first: self.id, content, last, size, envelopes, held, fate_records: Vec::new(), assigned };
        let (answer, ticket) = oneshot::channel();
        let begun = std::time::Instant::now();
        core.intake.push(Job::Accept { submission, answer });
        self.arrived(core);
        let answered = ticket.await;
        core.measures.commit_wait.observe(begun.elapsed());
        match answered {
            Ok(Ok(())) => Reply::new(250, (2, 0, 0), format!("Ok: queued as {}", self.id)),
            refused => {
                let refused = refused.ok().and_then(Result::err).unwrap_or(Refused::Stopping);
                core.refused(refused);
                let reply = refused.reply();
                log::refused_message(core, &self.mail, client, &reply, (told_size, named));
                reply
            }
        }
    }

    /// What is to be known of a post and the queue does not have.
    fn note_post(&self, core: &Core, settings: &Settings, post: (ContentId, &[NewEnvelope]), last: &[u8]) {
        let (content, envelopes) = post;
        if !envelopes.iter().any(|envelope| envelope.list.is_some() || envelope.recipients.count() >= RECIPIENTS_MIN) {
            return;
        }
        let mut lists = envelopes.iter().filter_map(|envelope| settings.list_report(envelope.list.as_deref()?));
        let is_wanted = lists.any(|report| report.to.poster()) && !self.mail.path.is_null();
        // The beginning of a large body is in the journal already: it is read there when somebody wants to see it.
        let heading = (self.stored == 0).then(|| Arc::new(Heading::of(last)));
        core.live.posts.note(content, Noted { poster: is_wanted.then(|| self.mail.path.as_str().to_owned()), heading });
    }

    /// Forgets the message: nothing of it was promised.
    pub fn abandon(mut self, core: &Core) {
        self.arrived(core);
        if self.stored > 0
            && let Some(content) = self.content
        {
            core.intake.push(Job::Drop { content });
        }
    }

    fn arrived(&mut self, core: &Core) {
        if std::mem::take(&mut self.is_receiving) {
            core.intake.arrived();
        }
    }

    /// Content rules: loops, caps, and who may post.
    fn check(&self, core: &Arc<Core>, settings: &Settings, facts: &HeaderFacts) -> Result<(), Reply> {
        if let Some(why) = facts.overflow {
            return Err(Reply::new(552, (5, 3, 4), format!("Message header too large: {why}")));
        }
        let received_max = settings.config.received_max;
        if let Err(reply) = check_received(facts, received_max) {
            core.limits.hit(Limit::Received, core.clock.now());
            return Err(reply);
        }
        for alias in self.rcpts.aliases() {
            check_delivered_to(facts, alias)?;
        }
        for name in self.rcpts.lists() {
            // A reload may have taken it away since its RCPT: nobody would get the post.
            let list = settings.list(name).filter(|_| core.lists.is_read(core, name));
            let Some(list) = list else {
                return Err(Reply::fixed(451, (4, 3, 0), "The list is being changed, try again later"));
            };
            list.admit(&self.mail.path, facts, received_max, &mut |who| core.lists.is_member(core, name, who))?;
        }
        Ok(())
    }

    /// A rule asks for it: the client hears that the message was taken, and nobody gets it.
    fn discarded(mut self, core: &Core, client: IpAddr, size: u64) -> Reply {
        let why = self.wishes.discard.take().unwrap_or_default();
        let reply = Reply::new(250, (2, 0, 0), format!("Ok: queued as {}", self.id));
        log::discarded(core, &self.mail, (self.id, client), &why, (size, self.rcpts.named()));
        self.abandon(core);
        reply
    }

    /// The envelopes, with copies and next hops as rules and routes have them.
    async fn routed(
        &mut self,
        core: &Arc<Core>,
        settings: &Settings,
        client: IpAddr,
        end: &EndOfData,
    ) -> Result<Vec<NewEnvelope>, Reply> {
        let now = core.clock.now();
        let marks = &mut self.wishes.marks;
        let copies = std::mem::take(&mut marks.bcc);
        if let Some(to) = marks.redirect.take() {
            self.rcpts = policy::Recipients::default();
            self.add_people((settings, now), &to, &Asked::default(), "redirected by a rule").await?;
            if self.rcpts.named() == 0 {
                return Err(NOBODY);
            }
        }
        for to in copies {
            self.add_people((settings, now), &to, &unasked(), "copied by a rule").await?;
        }
        let mut owners = HashMap::new();
        for list in self.rcpts.bounces() {
            owners.insert(list.clone(), settings.owners(list, core.clock.now()).await.map_err(Refused::reply)?);
        }
        let mut envelopes = self.envelopes(core, settings, (client, owners), end);
        let (name, helo) = self.spoke.as_ref().map_or((None, ""), |(name, helo)| (name.as_deref(), helo));
        let speaker = Speaker { client, name, helo, may_relay: self.injector.is_some() };
        for envelope in &mut envelopes {
            match &mut envelope.recipients {
                Recipients::Addresses(all) => route_others(settings, speaker, (&self.sender, now), all).await?,
                Recipients::List => {
                    let list = envelope.list.as_deref().unwrap_or_default();
                    let Some((_, hop)) = self.list_hops.iter().find(|(name, _)| **name == *list) else { continue };
                    let all = subscribers_at(core, settings, list, hop).await;
                    envelope.recipients = all.map_err(Refused::reply)?;
                }
                Recipients::Interned(..) => {}
            }
        }
        Ok(envelopes)
    }

    /// Adds those who read mail to an address that a rule names.
    async fn add_people(
        &mut self,
        (settings, now): (&Settings, Ms),
        address: &Address,
        asked: &Asked,
        why: &str,
    ) -> Result<(), Reply> {
        let people = settings.people(address, now).await.map_err(Refused::reply)?;
        if people.is_empty() {
            tracing::warn!(message = %self.id, %address, "nobody here reads mail to an address that a rule names");
        }
        for to in people {
            // Who is named gets it anyway, and hears of a failure.
            if self.rcpts.has(&to) {
                continue;
            }
            self.rcpts.add(to, asked.clone(), Verdict::Relay, || why.to_owned());
        }
        Ok(())
    }

    fn envelopes(
        &mut self,
        core: &Core,
        settings: &Settings,
        (client, mut owners): (IpAddr, HashMap<Arc<str>, Vec<Address>>),
        end: &EndOfData,
    ) -> Vec<NewEnvelope> {
        let facts = &end.facts;
        let (groups, relayed) = std::mem::take(&mut self.rcpts).into_groups(|list| {
            let owners = owners.remove(list).unwrap_or_default();
            if owners.is_empty() {
                log::report_noted(core, list, &self.mail, client);
            }
            owners
        });
        let (class, class_why) = self.class(core, settings, client, facts, relayed as u64);
        let message_id = facts.message_id.clone().unwrap_or_default();
        let relayed = NewEnvelope {
            sender: self.mail.path.as_str().to_owned(),
            class,
            list: None,
            recipients: Recipients::List,
            prefix: Vec::new(),
            eight_bit: facts.eight_bit,
            smtputf8: self.mail.smtputf8,
            ret: self.mail.ret,
            envid: self.mail.envid.take(),
            origin: self.injector.clone().unwrap_or_else(|| client.to_string()),
            // A large body's header has been stored already; its text is nothing beside it.
            message_id_at: if self.stored == 0 { MessageIdAt::find(&end.last, &message_id) } else { None },
            message_id,
            is_report: false,
            taken: Taken { policy: "".into(), proto: self.protocol },
        };
        let held = self.wishes.marks.hold.as_deref().map(|text| match text {
            "" => "; held by a rule".to_owned(),
            text => format!("; held by a rule: {text}"),
        });
        let held = held.unwrap_or_default();
        let taken = |why: String| Taken { policy: (why + &held).into(), proto: self.protocol };
        let to = |(address, Asked { params, hop })| To { address, hop, params };
        let all = |named: Vec<(Address, Asked)>| named.into_iter().map(to).collect();
        let (last, mut relayed) = (groups.len().saturating_sub(1), Some(relayed));
        let envelope = |(n, policy::Group { of, sender, to, why })| {
            // Nearly always there is one.
            let relayed = if n == last { relayed.take() } else { relayed.clone() }?;
            Some(match of {
                policy::Of::List(name) => {
                    let list = settings.list(&name)?;
                    NewEnvelope {
                        sender: list.settings().bounces.as_str().to_owned(),
                        class: Class::Bulk,
                        list: Some(name.to_string()),
                        prefix: list.header_fields().to_vec(),
                        ret: Some(Ret::Headers),
                        envid: None,
                        taken: taken(why),
                        ..relayed
                    }
                }
                policy::Of::Alias(address) => NewEnvelope {
                    sender: alias_sender(settings, sender, &relayed.sender, (&to, core.clock.now())),
                    recipients: Recipients::Addresses(all(to)),
                    prefix: delivered_to_field(&address),
                    taken: taken(why + class_why),
                    ..relayed
                },
                policy::Of::Others => {
                    NewEnvelope { recipients: Recipients::Addresses(all(to)), taken: taken(why + class_why), ..relayed }
                }
            })
        };
        groups.into_iter().enumerate().filter_map(envelope).collect()
    }

    /// The class of what is relayed, and why in words: what the configuration says of the injector, else header fields and
    /// sender's rate.
    fn class(
        &self,
        core: &Core,
        settings: &Settings,
        client: IpAddr,
        facts: &HeaderFacts,
        recipients: u64,
    ) -> (Class, &'static str) {
        if let Some(class) = self.wishes.class() {
            return class;
        }
        let classes = &settings.config.classes;
        match classes.injectors.of(client) {
            Some(Class::Ordinary) => return (Class::Ordinary, "; ordinary: its client's network"),
            Some(Class::Bulk) => return (Class::Bulk, "; bulk: its client's network"),
            None => {}
        }
        if facts.is_bulk() {
            return (Class::Bulk, "; bulk: its header");
        }
        let (trusted, now) = (settings.policy.is_trusted(client), core.clock.now());
        if recipients > 0
            && core.senders.lock().is_bulk(&self.mail.path, client, trusted, recipients, &classes.sender_rate, now)
        {
            return (Class::Bulk, "; bulk: its sender's rate");
        }
        (Class::Ordinary, "")
    }
}

/// The envelope sender of what an alias expands to, but of what is itself a report: who owns it reads what comes back, else it comes back
/// through this server, if that is configured.
fn alias_sender(
    settings: &Settings,
    owner: Option<Address>,
    sender: &str,
    (to, now): (&[(Address, Asked)], Ms),
) -> String {
    if sender.is_empty() {
        return String::new();
    }
    let forwarder = || settings.rules.forwarder(sender, to.iter().map(|(to, _)| to), today(now));
    owner.or_else(forwarder).map_or_else(|| sender.to_owned(), |sender| sender.as_str().to_owned())
}

/// Of a copy that its sender knows nothing of: nobody is told what becomes of it, as Postfix does with its own.
fn unasked() -> Asked {
    Asked { params: RcptParams { notify: Some(Notify::NEVER.bits()), orcpt: None }, hop: None }
}
