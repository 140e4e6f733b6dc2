//! One mail transaction of a client: its recipients, its body, and its result.
//!
//! States: begun (MAIL) -> recipients -> reserved -> data (354) -> submitted -> answered. Until the ticket resolves
//! nothing is promised; any failure is answered with a 4xx or 5xx and forgotten. Memory is reserved when there is a
//! valid recipient and the data begins, so that a client that only announces a message holds nothing
//! (docs/design/decisions/0004-strangers.md).

mod added;
mod by_content;
mod envelopes;
mod filter;
mod rcpt;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use stentor_addresses::HeaderStream;
use stentor_mail::address::Address;
use stentor_mail::headers::HeaderFacts;
use stentor_mail::heading::Heading;
use stentor_mail::received::{Trace, received, received_local};
use stentor_mail::reply::Reply;
use stentor_mail::server::{EndOfData, MailFrom};
use stentor_policy::{self as policy, Names};
use stentor_queue::ids::{ContentId, MessageId};
use stentor_resolve::Asker;
use stentor_rules::{ClientName, Key, NextHop, Waiting, Wishes};
use stentor_strangers::Seen;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use self::filter::Filtering;
use super::ahead::intern_ahead;
use super::content::{Members, Named, check as check_content};
use super::judge::Asked;
use super::rewrite::header;
use crate::core::envelope::NewEnvelope;
use crate::core::intake::{AssignedIds, Job, Refused, Submission};
use crate::core::limits::Limit;
use crate::core::log::Whole;
use crate::core::observer::{Receiving, TraceParent};
use crate::core::{Core, Settings, log};
use stentor_live::posts::{Noted, RECIPIENTS_MIN};
use stentor_memory::{PIECE_BYTES, Reserved};

/// How long milters may take before a client may have left for it. Until then one whose side is closed has said all it wanted to, and
/// reads the reply.
const LEAVES_AFTER: Duration = Duration::from_secs(5);
/// Nobody hears it; it closes the session.
const LEFT: Reply = Reply::fixed(421, (4, 4, 2), "Connection closed before the message was taken");

/// The subscribers as they are now.
struct InForce<'c>(&'c Arc<Core>);

impl Members for InForce<'_> {
    fn is_read(&self, list: &Arc<str>) -> bool {
        self.0.lists.is_read(self.0, list)
    }

    fn is_member(&self, list: &Arc<str>, address: &str) -> bool {
        self.0.lists.is_member(self.0, list, address)
    }
}

pub struct Transaction {
    mail: MailFrom,
    /// What its recipients stand for.
    rcpts: policy::Recipients<Asked>,
    /// What their rules ask of the message.
    wishes: Wishes,
    /// Its recipients' rules that wait for the content.
    waiting: Waiting,
    /// Recipients with such rules, and the lists that each leads to.
    open: Vec<(Address, Vec<Arc<str>>)>,
    /// Fields that those put before the header.
    added: Vec<u8>,
    /// The next hops that rules name for the subscribers of lists.
    list_hops: Vec<(Arc<str>, NextHop)>,
    /// The rules that keep a post from a list's subscribers, in words.
    quarantined_lists: Vec<(Arc<str>, Arc<str>)>,
    /// The milter that keeps the message from all recipients, in words.
    quarantine: Option<Arc<str>>,
    sender: Key,
    /// Sender and recipients as the client gave them, where they are others here.
    given_sender: Option<String>,
    names: Names,
    /// The sender has been rewritten; what there was of the header.
    has_canonical_sender: bool,
    header: HeaderStream,
    /// The client's name, its HELO and who asks about it, where next hops of others than the named recipients may depend on them.
    spoke: Option<Spoke>,
    /// What the aliases among its recipients stand for.
    targets: usize,
    /// Aliases that stand for `/dev/null`, once the message has come: what rules had to do with it, and as the client named them.
    nulls: Vec<(Address, String, Vec<Box<str>>)>,
    /// What rules had to do with it that was refused, in words.
    why_refused: String,
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
    /// Its milters, if any are shown it.
    filtering: Option<Box<Filtering>>,
    assigned: Option<AssignedIds>,
    /// Its spans, if it is sampled.
    traced: Option<Box<dyn Receiving>>,
}

/// Who spoke, for what is decided at the end of the data.
struct Spoke {
    name: ClientName<Box<str>>,
    helo: Box<str>,
    asker: Option<Arc<Asker>>,
    seen: Seen,
}

impl Transaction {
    /// Answers MAIL: the place to push back, before any recipient is named.
    pub fn begin(core: &Arc<Core>, mail: MailFrom, client: IpAddr, trusted: bool) -> Result<Transaction, Reply> {
        if let Some(reply) = core.push_back() {
            log::refused(core, ("MAIL", ""), &mail, client, &reply);
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
            waiting: Waiting::default(),
            open: Vec::new(),
            added: Vec::new(),
            given_sender: None,
            names: Names::default(),
            has_canonical_sender: false,
            header: HeaderStream::default(),
            list_hops: Vec::new(),
            quarantined_lists: Vec::new(),
            quarantine: None,
            spoke: None,
            targets: 0,
            nulls: Vec::new(),
            why_refused: String::new(),
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
            filtering: None,
            assigned: None,
            traced: core.observer.get().and_then(|observer| observer.begin(id, "smtp", None, core.clock.now())),
        }
    }

    /// Relays for any injector, and assigns queue ids before the answer.
    pub fn of_injector(&mut self) -> AssignedIds {
        self.injector = Some(format!("{} login", self.client));
        self.assigned.get_or_insert_default().clone()
    }

    /// Of a client that a proxy has logged in.
    #[must_use]
    pub fn with_login(self, login: Option<&str>) -> Transaction {
        let injector = login.map(|login| format!("{} login {login}", self.client));
        Transaction { injector, ..self }
    }

    /// Makes it part of the client's trace.
    pub fn traced_by(&mut self, core: &Core, parent: Option<TraceParent>) {
        let observer = core.observer.get();
        self.traced = observer.and_then(|observer| observer.begin(self.id, "http", parent, core.clock.now()));
    }

    /// The client's word counts: it is in the client networks, or who uses it has logged in.
    fn is_of_trusted(&self) -> bool {
        self.trusted || self.injector.is_some()
    }

    /// The next octets of the content, with canonical addresses in its header.
    async fn canonical_header(
        &mut self,
        settings: &Settings,
        octets: Vec<u8>,
        is_last: bool,
    ) -> Result<Vec<u8>, Reply> {
        if !self.is_of_trusted() || settings.rules.addresses.rewriting.is_empty() {
            return Ok(octets);
        }
        header(settings, &mut self.header, (octets, is_last), None).await
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
        log::refused(core, ("DATA", ""), &self.mail, self.client, &reply);
        Err(reply)
    }

    /// In place of [`Transaction::reserve`], where the body is in memory already: who holds some must not wait for more.
    pub fn reserved(&mut self, memory: Reserved) {
        self.memory = Some(memory);
    }

    /// Reserves memory for this many octets of the body.
    pub fn hold(&mut self, core: &Core, bytes: u64) -> Result<(), Reply> {
        let is_held = self.memory.as_mut().is_none_or(|memory| core.memory.hold(memory, bytes + self.waiting.bytes()));
        if is_held { Ok(()) } else { Err(Self::no_room(core)) }
    }

    fn no_room(core: &Core) -> Reply {
        core.limits.hit(Limit::BodyMemory, core.clock.now());
        Reply::fixed(452, (4, 3, 1), "Too many messages are being received, try again later")
    }

    /// The body was refused after `size` octets: logs that and abandons the transaction.
    pub fn refused(self, core: &Core, client: IpAddr, reply: &Reply, size: u64) {
        let named = self.rcpts.named();
        self.refused_of(core, client, reply, ("", size, named));
    }

    /// The same with its Message-ID; those that have become envelopes are counted only.
    fn refused_of(self, core: &Core, client: IpAddr, reply: &Reply, of: (&str, u64, u64)) {
        let settings = core.settings();
        let to = self.names.all(&self.rcpts, |list| address_of(&settings, list));
        log::refused_message(core, &self.mail, reply, &self.whole(client, &self.why_refused, &to, of));
        self.abandon(core);
    }

    /// For the log: what asks for its end, recipients, Message-ID, octets and the number of recipients.
    fn whole<'a>(
        &'a self,
        client: IpAddr,
        why: &'a str,
        to: &'a [Box<str>],
        (message_id, size, recipients): (&'a str, u64, u64),
    ) -> Whole<'a> {
        let origin = self.injector.as_deref().unwrap_or_default();
        Whole { client, why, message_id, to, recipients, size, origin }
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
        self.wishes.write_fields(&mut prefix);
        let hostname = &settings.config.hostname;
        received(&Trace { helo, client, hostname, protocol, id: &self.id, now: core.clock.now() }, &mut prefix);
        self.waiting.begin(&settings.rules, prefix.len(), self.filtering.is_some());
        prefix
    }

    /// The same for a message of a local user.
    pub fn start_local_data(&mut self, core: &Core, settings: &Settings, uid: u32) -> Vec<u8> {
        self.begin_data(core, "local");
        let mut prefix = Vec::new();
        self.wishes.write_fields(&mut prefix);
        received_local(&settings.config.hostname, uid, (&self.id, core.clock.now()), &mut prefix);
        self.waiting.begin(&settings.rules, prefix.len(), self.filtering.is_some());
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

    /// Takes a piece of a body that is too large to be held: it is searched, rewritten and stored.
    pub async fn piece(&mut self, core: &Arc<Core>, settings: &Settings, bytes: Vec<u8>, size_max: u64) {
        if self.failed.is_some() {
            return;
        }
        self.waiting.push(&bytes);
        match self.canonical_header(settings, bytes, false).await {
            // All of it may be the beginning of a field.
            Ok(bytes) if bytes.is_empty() => {}
            Ok(bytes) => self.store_piece(core, bytes, size_max).await,
            Err(_) => self.failed = Some(Refused::Table),
        }
    }

    /// Stores a piece; waits until it is written, so that one piece at a time is in memory.
    async fn store_piece(&mut self, core: &Arc<Core>, bytes: Vec<u8>, size_max: u64) {
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
    /// A client that has left meanwhile, by its `peer`, will send it again: it is not taken.
    pub async fn end(
        mut self,
        core: &Arc<Core>,
        settings: &Arc<Settings>,
        (client, peer): (IpAddr, Option<&TcpStream>),
        end: EndOfData,
    ) -> Reply {
        let size = end.size;
        let Some(mut traced) = self.traced.take() else {
            return self.finish(core, settings, (client, peer), end).await;
        };
        traced.end_of_data();
        let reply = self.finish(core, settings, (client, peer), end).await;
        traced.answered(core, size, &reply);
        reply
    }

    /// What content, rules and milters say of the message, in this order: loops and posts, rules that wait for the content, canonical
    /// addresses, fields that go, milters, rules that wait for what milters have found, the transfer encoding.
    async fn judge_content(
        &mut self,
        core: &Arc<Core>,
        settings: &Arc<Settings>,
        (client, peer): (IpAddr, Option<&TcpStream>),
        end: &mut EndOfData,
    ) -> Result<(), Reply> {
        // Before the client's message there are the fields that rules had prepended when it began, and our Received.
        let mut ours = self.wishes.fields_written() + 1;
        if let Some(refused) = self.failed {
            return Err(refused.reply());
        }
        self.check(core, settings, &end.facts)?;
        self.by_content(settings, client, &end.last)?;
        end.last = self.canonical_header(settings, std::mem::take(&mut end.last), true).await?;
        let is_forged = end.facts.has_auth_results && !self.is_of_trusted();
        if (is_forged || !self.wishes.remove.is_empty()) && !self.wishes.is_discarded() {
            Box::pin(self.remove_fields(core, settings, (&mut *end, ours), is_forged)).await?;
        }
        if self.filtering.is_some() {
            let begun = Instant::now();
            ours = Box::pin(self.filter(core, settings, client, (&mut *end, ours))).await?;
            if begun.elapsed() >= LEAVES_AFTER && peer.is_some_and(has_left) {
                "client left while milters were asked".clone_into(&mut self.why_refused);
                return Err(LEFT);
            }
        }
        if self.waiting.waits_for_auth() && !self.wishes.is_discarded() {
            self.apply_auth_rules(core, settings, client, (&mut *end, ours))?;
        }
        // Of rules on authentication, and of recipients that milters have added.
        if !self.wishes.remove.is_empty() && !self.wishes.is_discarded() {
            Box::pin(self.remove_fields(core, settings, (&mut *end, ours), false)).await?;
        }
        if let Some(target) = self.wishes.transfer_encoding.filter(|_| !self.wishes.is_discarded()) {
            Box::pin(self.recode(core, settings, target, (end, ours))).await?;
        }
        Ok(())
    }

    async fn finish(
        mut self,
        core: &Arc<Core>,
        settings: &Arc<Settings>,
        (client, peer): (IpAddr, Option<&TcpStream>),
        mut end: EndOfData,
    ) -> Reply {
        let verdict = self.judge_content(core, settings, (client, peer), &mut end).await;
        let named = self.rcpts.named();
        let envelopes = match verdict {
            Ok(()) if self.wishes.is_discarded() => return self.discarded(core, settings, client, &end),
            Ok(()) => self.routed(core, settings, client, &end).await,
            Err(reply) => Err(reply),
        };
        let message_id = end.facts.message_id.as_deref().unwrap_or_default();
        let envelopes = match envelopes {
            Ok(envelopes) => envelopes,
            Err(reply) => {
                self.refused_of(core, client, &reply, (message_id, end.size, named));
                return reply;
            }
        };
        if envelopes.is_empty() {
            if !self.nulls.is_empty() {
                self.log_nulls(core, client, (message_id, end.size, true));
                let id = self.id;
                self.abandon(core);
                return Reply::new(250, (2, 0, 0), format!("Ok: queued as {id}"));
            }
            if named == 0 {
                // Milters have removed all who were named, and the copies of rules lead to nobody.
                return self.discarded(core, settings, client, &end);
            }
            self.abandon(core);
            return Reply::fixed(250, (2, 0, 0), "Ok: report noted");
        }
        let envelopes = match intern_ahead(core, envelopes).await {
            Ok(envelopes) => envelopes,
            Err(refused) => {
                let reply = refused.reply();
                self.refused_of(core, client, &reply, (message_id, end.size, named));
                return reply;
            }
        };
        let content = self.content.unwrap_or_else(|| core.next_content_id());
        self.note_post(core, settings, (content, &envelopes), &end.last);
        let told_size = end.size;
        let size = self.stored + end.last.len() as u64;
        let (last, assigned) = (Arc::new(end.last), self.assigned.take());
        let held = self.wishes.hold.is_some();
        let submission =
            Submission { first: self.id, content, last, size, envelopes, held, fate_records: Vec::new(), assigned };
        let (answer, ticket) = oneshot::channel();
        let begun = Instant::now();
        core.intake.push(Job::Accept { submission, answer });
        self.arrived(core);
        let answered = ticket.await;
        core.measures.commit_wait.observe(begun.elapsed());
        match answered {
            Ok(Ok(())) => {
                self.log_nulls(core, client, (message_id, told_size, false));
                Reply::new(250, (2, 0, 0), format!("Ok: queued as {}", self.id))
            }
            refused => {
                let refused = refused.ok().and_then(Result::err).unwrap_or(Refused::Stopping);
                core.refused(refused);
                let reply = refused.reply();
                let whole = self.whole(client, "", &[], (message_id, told_size, named));
                log::refused_message(core, &self.mail, &reply, &whole);
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
        if let Some(filtering) = &self.filtering {
            filtering.over();
        }
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

    /// Loops, limits and posting rights.
    fn check(&self, core: &Arc<Core>, settings: &Settings, facts: &HeaderFacts) -> Result<(), Reply> {
        let members = InForce(core);
        let named =
            Named { sender: &self.mail.path, aliases: self.rcpts.aliases().collect(), lists: self.rcpts.lists() };
        let checked = check_content(settings, &named, facts, &members, None);
        if checked.is_err() && facts.overflow.is_none() && facts.received_count > settings.config.received_max {
            core.limits.hit(Limit::Received, core.clock.now());
        }
        checked
    }

    /// Copies that nobody gets are in the log alone.
    fn log_nulls(&self, core: &Core, client: IpAddr, (message_id, size, is_all): (&str, u64, bool)) {
        for (alias, why, to) in &self.nulls {
            let why = format!("{why}alias {alias}: /dev/null");
            let recipients = to.len() as u64;
            let whole = self.whole(client, &why, to, (message_id, size, recipients));
            log::discarded(core, &self.mail, (self.id, is_all), &whole);
        }
    }

    /// A rule asks for it: the client hears that the message was taken, and nobody gets it.
    fn discarded(self, core: &Core, settings: &Settings, client: IpAddr, end: &EndOfData) -> Reply {
        let reply = Reply::new(250, (2, 0, 0), format!("Ok: queued as {}", self.id));
        let (why, to) = (self.wishes.words(), self.names.all(&self.rcpts, |list| address_of(settings, list)));
        let message_id = end.facts.message_id.as_deref().unwrap_or_default();
        let whole = self.whole(client, &why, &to, (message_id, end.size, self.rcpts.named()));
        log::discarded(core, &self.mail, (self.id, true), &whole);
        self.abandon(core);
        reply
    }
}

/// Whether a client has closed its side of the connection, whatever it sent before.
fn has_left(peer: &TcpStream) -> bool {
    let mut polled = [PollFd::new(peer, PollFlags::RDHUP)];
    matches!(poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1..))
}

/// The address of a list.
fn address_of(settings: &Settings, list: &str) -> Option<Address> {
    Some(settings.list(list)?.settings().address.clone())
}
