//! One mail transaction of a client: its recipients, its body, and its result.
//!
//! States: begun (MAIL) -> recipients -> reserved -> data (354) -> submitted -> answered. Until the ticket resolves
//! nothing is promised; any failure is answered with a 4xx or 5xx and forgotten. Memory is reserved when there is a
//! valid recipient and the data begins, so that a client that only announces a message holds nothing
//! (docs/design/decisions/0004-strangers.md).

mod added;
mod archives;
mod authentication;
mod body;
mod by_content;
mod copy_request;
mod dmarc_reports;
mod envelopes;
mod examination;
mod from_rewriting;
mod header;
mod hold_notice;
mod holdings;
mod list_commands;
mod milters;
mod post_reports;
mod rcpt;
mod report_paths;
mod submitted;
mod success;
mod umbrella;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stentor_addresses::HeaderStream;
use stentor_copies::CopyRequest;
use stentor_core::envelope::NewEnvelope;
use stentor_core::intake::{AssignedIds, IntakeRefusal, Job, Submission};
use stentor_core::limits::Limit;
use stentor_core::live::posts::{PostNotes, RECIPIENTS_MIN};
use stentor_core::log::{Injector, MessageSummary};
use stentor_core::memory::Reservation;
use stentor_core::observer::{Receiving, TraceParent};
use stentor_core::{Core, Settings, log};
use stentor_dkim::MessageHash;
use stentor_mail::address::Address;
use stentor_mail::edited::{HeaderEdit, ListFields};
use stentor_mail::headers::HeaderFacts;
use stentor_mail::heading::Heading;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_mail::stored_form::StoredForm;
use stentor_policy::{self as policy, Names, counted_as};
use stentor_queue::ids::{ContentId, MessageId};
use stentor_reputation::{ClientBehaviour, ClientName};
use stentor_resolve::Asker;
use stentor_rules::{Key, NextHop, SessionQuestion, WaitingRules, Wishes};
use stentor_smtp::server::{EndOfData, MailFrom};
use tokio::sync::oneshot;

use self::authentication::Authentication;
use self::dmarc_reports::DmarcOutcome;
use self::from_rewriting::StoredAuthor;
use self::hold_notice::PendingHoldNotices;
use self::holdings::{Arrival, Pieces};
use self::milters::MilterTransaction;
use self::post_reports::PostReports;
pub use self::submitted::{Account, Submitted};
use self::success::Answer;
use super::content::{ContentEnvelope, Members, check as check_content};
use super::interning::intern_ahead;
use super::judge::AcceptedRcpt;
use super::rewrite::header;
use super::socket::Socket;

/// How long authentication and milters may take before a client may have disconnected because of them. Before that, a
/// client with a closed side has only finished sending, and still reads the reply.
const LEAVES_AFTER: Duration = Duration::from_secs(5);
/// Never read by the client; it closes the session.
const LEFT: Reply = Reply::fixed(421, Enhanced::new(4, 4, 2), "Connection closed before the message was accepted");

/// The subscribers currently in force.
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
    rcpts: policy::Recipients<AcceptedRcpt>,
    /// What their rules ask of the message.
    wishes: Wishes,
    /// Its recipients' rules that wait for the content.
    waiting: WaitingRules,
    /// Recipients with such rules, and the lists that each leads to.
    open: Vec<(Address, Vec<Arc<str>>)>,
    /// Attributes for policy services at the end of the data.
    question: Option<SessionQuestion>,
    /// Fields put before the header at the end of the data: authentication results, and those of rules on the content.
    added: Vec<u8>,
    /// From the beginning of the data until it is authenticated, if it is.
    authentication: Option<Box<Authentication>>,
    /// Receivers would refuse lists' copies with the author's From.
    is_from_refused: bool,
    /// Why a post is not its author's: it is quarantined for lists, instead of coming from them.
    forged_post: Option<Arc<str>>,
    /// The header of a post as far as it is stored, if its copies may have another From; then its author.
    author_header: Option<Box<MessageHash>>,
    author: Option<StoredAuthor>,
    /// Its header, if mail that large receivers would refuse is to be held.
    examined_header: Option<Box<MessageHash>>,
    /// Notices to send once it is durable.
    hold_notices: Option<PendingHoldNotices>,
    /// Value of the field with its authentication results.
    authentication_results: Option<Box<str>>,
    /// What DMARC says about it, if that is evaluated.
    dmarc: DmarcOutcome,
    /// Lists with restricted posting, sorted, without duplicates.
    restricted_lists: Vec<Arc<str>>,
    /// The next hops that rules name for lists' subscribers.
    list_hops: Vec<(Arc<str>, NextHop)>,
    /// Descriptions of the rules that quarantine a post for a list's subscribers.
    quarantined_lists: Vec<(Arc<str>, Arc<str>)>,
    /// The milter that quarantines the message for all recipients, in words.
    quarantine: Option<Arc<str>>,
    sender: Key,
    /// Sender and recipients as the client gave them, if they differ here.
    given_sender: Option<String>,
    names: Names,
    /// Whether the sender has been rewritten, and the header read so far.
    has_canonical_sender: bool,
    header: HeaderStream,
    stored_form: StoredForm,
    /// The client's name, its HELO and its DNS look-ups, if next hops of further recipients may depend on them.
    speaker_facts: Option<SpeakerFacts>,
    /// Number of targets of the aliases among its recipients.
    targets: usize,
    /// Aliases of `/dev/null` in a complete message, with the rules' effects and the addresses that the client named.
    nulls: Vec<(Address, String, Vec<Box<str>>)>,
    /// Describes the effects of rules on a refused message.
    why_refused: String,
    /// Octets of NOTIFY and ORCPT of the recipients in their message's record.
    params_bytes: usize,
    protocol: &'static str,
    /// TLS version and cipher of the client's session.
    tls: Option<(&'static str, &'static str)>,
    /// The name in the certificate that let its client relay.
    certificate: Option<Box<str>>,
    /// A user's limits and senders, if a user submits it.
    submitted: Option<Box<Submitted>>,
    /// Edits its header; created when needed.
    edit: Option<Box<HeaderEdit>>,
    /// Octets of our own before the client's.
    own_octets: usize,
    /// Fields that lists' copies replace, and other copies keep as they came.
    list_fields: ListFields,
    id: MessageId,
    pieces: Option<Pieces>,
    /// Merge values of its recipients, to be stored behind it.
    merge: Vec<u8>,
    /// What it asks for its own copies.
    copy_request: Option<Box<CopyRequest>>,
    /// An API token asked for it beside the message.
    is_request_beside: bool,
    /// A user said that a person asked for this mail: only suppressions for all mail apply.
    is_transactional: bool,
    /// Why a piece could not be stored; the rest of the body is dropped.
    failed: Option<IntakeRefusal>,
    /// From 354 on, until it is on its way to the committer.
    arrival: Option<Arrival>,
    /// From the begin of the data on.
    memory: Option<Reservation>,
    client: IpAddr,
    trusted: bool,
    /// Login or local user that submits it, with the privileges of a client network.
    injector: Option<String>,
    /// Its milters, if there are any.
    milters: Option<Box<MilterTransaction>>,
    assigned: Option<AssignedIds>,
    /// It has commands to lists, which were carried out or ignored.
    has_commands: bool,
    /// Requests for success reports that are answered here.
    answer: Option<Box<Answer>>,
    /// Its spans, if it is sampled.
    traced: Option<Box<dyn Receiving>>,
}

/// A complete message.
struct Received<'e> {
    end: &'e mut EndOfData,
    /// Number of fields before the client's: those that rules had prepended when it began, our Received, and those that
    /// milters have put before an mbox line.
    own_fields: usize,
}

/// Who sends the messages of an SMTP session and how, for their Received fields.
#[derive(Clone, Copy)]
pub struct SmtpOrigin<'a> {
    pub helo: &'a str,
    pub is_esmtp: bool,
    pub client: IpAddr,
    pub tls: Option<(&'static str, &'static str)>,
    pub is_authenticated: bool,
}

/// What the log reports of a message as a whole.
#[derive(Clone, Copy)]
struct Totals<'a> {
    message_id: &'a str,
    /// Octets, as the client sent it.
    size: u64,
    recipients: u64,
}

impl<'a> Totals<'a> {
    fn of(end: &'a EndOfData, recipients: u64) -> Totals<'a> {
        Totals { message_id: end.facts.message_id.as_deref().unwrap_or_default(), size: end.size, recipients }
    }
}

/// Who sent the message and how, for its Received field.
#[derive(Clone, Copy)]
pub struct Origin<'a> {
    pub helo: &'a str,
    pub protocol: &'static str,
    pub client: IpAddr,
}

/// Facts about the client that decisions at the end of the data need.
struct SpeakerFacts {
    name: ClientName<Box<str>>,
    helo: Box<str>,
    asker: Option<Arc<Asker>>,
    behaviour: ClientBehaviour,
}

impl Transaction {
    /// Answers MAIL, where mail is pushed back before any recipient is named. `login`: the user logged in, here or at a
    /// proxy. A transaction is boxed, since it is large and moves through several futures at its end.
    pub fn begin(
        core: &Arc<Core>,
        mail: MailFrom,
        client: IpAddr,
        trusted: bool,
        login: Option<&str>,
    ) -> Result<Box<Transaction>, Reply> {
        let injector = login.map(|login| format!("{client} login {login}"));
        if let Some(reply) = core.push_back() {
            let by = Injector { client, origin: injector.as_deref().unwrap_or_default() };
            log::refused(core, "MAIL", "", &mail, by, &reply);
            return Err(reply);
        }
        let id = core.next_message_id();
        Ok(Box::new(Transaction { injector, ..Transaction::new(core, mail, id, client, trusted) }))
    }

    /// Begins a transaction of a local user, `origin`; its queue id is known before the first attempt to store it.
    pub fn begin_local(
        core: &Arc<Core>,
        mail: MailFrom,
        id: MessageId,
        origin: String,
    ) -> Result<Box<Transaction>, Reply> {
        let client = IpAddr::from(Ipv4Addr::LOCALHOST);
        if let Some(reply) = core.push_back() {
            return Err(reply);
        }
        Ok(Box::new(Transaction { injector: Some(origin), ..Transaction::new(core, mail, id, client, true) }))
    }

    fn new(core: &Core, mail: MailFrom, id: MessageId, client: IpAddr, trusted: bool) -> Transaction {
        Transaction {
            sender: Key::new(mail.path.as_str()),
            wishes: Wishes::default(),
            waiting: WaitingRules::default(),
            open: Vec::new(),
            question: None,
            added: Vec::new(),
            authentication: None,
            authentication_results: None,
            dmarc: DmarcOutcome::default(),
            given_sender: None,
            names: Names::default(),
            has_canonical_sender: false,
            header: HeaderStream::default(),
            stored_form: StoredForm::default(),
            list_hops: Vec::new(),
            restricted_lists: Vec::new(),
            quarantined_lists: Vec::new(),
            quarantine: None,
            speaker_facts: None,
            targets: 0,
            nulls: Vec::new(),
            why_refused: String::new(),
            mail,
            rcpts: policy::Recipients::default(),
            params_bytes: 0,
            protocol: "SMTP",
            tls: None,
            certificate: None,
            merge: Vec::new(),
            copy_request: None,
            is_request_beside: false,
            is_transactional: false,
            submitted: None,
            edit: None,
            own_octets: 0,
            list_fields: ListFields::default(),
            is_from_refused: false,
            forged_post: None,
            author_header: None,
            author: None,
            examined_header: None,
            hold_notices: None,
            has_commands: false,
            id,
            pieces: None,
            failed: None,
            arrival: None,
            memory: None,
            client,
            trusted,
            injector: None,
            milters: None,
            assigned: None,
            answer: None,
            traced: core.observer.get().and_then(|observer| observer.begin(id, "smtp", None, core.clock.now())),
        }
    }

    /// Relays for any injector, and assigns queue ids before the answer.
    pub fn of_injector(&mut self) -> AssignedIds {
        self.injector = Some(format!("{} login", self.client));
        self.assigned.get_or_insert_default().clone()
    }

    /// Exempts the message from suppressions for a list or sender. Ignored for untrusted clients.
    pub fn set_transactional(&mut self, is_transactional: bool) {
        self.is_transactional = is_transactional && self.is_of_trusted();
    }

    /// Makes the transaction part of the client's trace.
    pub fn traced_by(&mut self, core: &Core, parent: Option<TraceParent>) {
        let observer = core.observer.get();
        self.traced = observer.and_then(|observer| observer.begin(self.id, "http", parent, core.clock.now()));
    }

    /// Whether the client is in the client networks, or logged in, so that its statements are believed.
    fn is_of_trusted(&self) -> bool {
        self.trusted || self.injector.is_some()
    }

    /// Returns the injector for the log.
    fn by(&self) -> Injector<'_> {
        Injector { client: self.client, origin: self.injector.as_deref().unwrap_or_default() }
    }

    /// Returns the client, if untrusted.
    fn stranger(&self) -> Option<IpAddr> {
        (!self.is_of_trusted()).then_some(self.client)
    }

    /// Rewrites the header's addresses in the next octets of the content.
    async fn canonical_header(
        &mut self,
        settings: &Settings,
        octets: Vec<u8>,
        is_last: bool,
    ) -> Result<Vec<u8>, Reply> {
        if !self.is_of_trusted() || settings.rules.addresses.rewriting.is_empty() {
            return Ok(octets);
        }
        header(settings, &mut self.header, octets, is_last, None).await
    }

    /// Logs that the body was refused after `size` octets.
    pub fn refused(self: Box<Self>, core: &Core, _: IpAddr, reply: &Reply, size: u64) {
        let recipients = self.rcpts.named();
        self.refused_with(core, reply, Totals { message_id: "", size, recipients });
    }

    /// Recipients that have become envelopes are only counted.
    fn refused_with(self: Box<Self>, core: &Core, reply: &Reply, totals: Totals<'_>) {
        let settings = core.settings();
        let to = self.names.all(&self.rcpts, |list| address_of(&settings, list));
        log::refused_message(core, &self.mail, reply, &self.whole(&self.why_refused, &to, totals));
    }

    /// For the log. `why`: what ended the message.
    fn whole<'a>(&'a self, why: &'a str, to: &'a [Box<str>], totals: Totals<'a>) -> MessageSummary<'a> {
        let Injector { client, origin } = self.by();
        let Totals { message_id, size, recipients } = totals;
        MessageSummary { client, why, message_id, to, recipients, size, origin }
    }

    /// Decides about the whole message, makes it durable and answers. A client that has disconnected meanwhile, by its
    /// `peer`, will send the message again, so it is not accepted.
    pub async fn end(
        mut self: Box<Self>,
        core: &Arc<Core>,
        settings: &Arc<Settings>,
        peer: Option<&Socket>,
        end: EndOfData,
    ) -> Reply {
        let size = end.size;
        let Some(mut traced) = self.traced.take() else {
            return self.finish(core, settings, peer, end).await;
        };
        traced.end_of_data();
        let reply = self.finish(core, settings, peer, end).await;
        traced.answered(core, size, &reply);
        reply
    }

    /// Judges the content by its checks, rules and milters, in this order: loops and posts, rules on the content as the
    /// client sent it, its stored form, canonical addresses, removed fields, authentication, milters, rules on their
    /// results, the transfer encoding.
    async fn judge_content(
        &mut self,
        core: &Arc<Core>,
        settings: &Arc<Settings>,
        peer: Option<&Socket>,
        end: &mut EndOfData,
    ) -> Result<(), Reply> {
        // Before the client's message are the fields that rules had prepended when it began, and our Received.
        let own_fields = self.wishes.fields_written() + 1;
        let size = end.size;
        if let Some(refused) = self.failed {
            return Err(refused.reply());
        }
        self.check(core, settings, &end.facts)?;
        if self.authentication.is_some() {
            self.scan_for_authentication(&end.last);
            self.hold(core, end.last.len() as u64)?;
        }
        self.push_examined(&end.last);
        self.by_content(settings, &end.last, size).await?;
        if end.facts.is_irregular || self.stored_form.is_begun() {
            end.last = self.stored_form.push(std::mem::take(&mut end.last), true);
        }
        self.check_author(&end.facts)?;
        self.end_header(core, settings, end)?;
        end.last = self.canonical_header(settings, std::mem::take(&mut end.last), true).await?;
        // If rules use authentication results, facts from the header are not relied on.
        let may_be_forged = end.facts.has_auth_results || self.waiting.waits_for_auth();
        let is_forged = may_be_forged && !self.is_of_trusted();
        let mut message = Received { end, own_fields };
        if (is_forged || !self.wishes.edits.is_empty()) && !self.wishes.is_discarded() {
            Box::pin(self.edit_fields(core, settings, &mut message, is_forged)).await?;
        }
        let begun = Instant::now();
        if self.authentication.is_some() && !self.wishes.is_discarded() {
            Box::pin(self.authenticate(core, settings, &message.end.facts)).await?;
            self.check_connected(peer, begun, "client disconnected during authentication")?;
        }
        if self.milters.is_some() {
            Box::pin(self.filter(core, settings, &mut message)).await?;
            self.check_connected(peer, begun, "client disconnected during milter checks")?;
        }
        if self.waiting.waits_for_auth() && !self.wishes.is_discarded() {
            self.apply_auth_rules(core, settings, &mut message, size).await?;
        }
        // Actions of rules on authentication, and of recipients that milters have added.
        if !self.wishes.edits.is_empty() && !self.wishes.is_discarded() {
            Box::pin(self.edit_fields(core, settings, &mut message, false)).await?;
        }
        if let Some(target) = self.wishes.transfer_encoding.filter(|_| !self.wishes.is_discarded()) {
            Box::pin(self.recode(core, settings, target, &mut message)).await?;
        }
        self.note_author(settings, &message.end.last);
        Ok(())
    }

    /// Checks that a client that has waited long is still there.
    fn check_connected(&mut self, peer: Option<&Socket>, begun: Instant, why: &str) -> Result<(), Reply> {
        if begun.elapsed() < LEAVES_AFTER || !peer.is_some_and(Socket::has_left) {
            return Ok(());
        }
        why.clone_into(&mut self.why_refused);
        Err(LEFT)
    }

    async fn finish(
        mut self: Box<Self>,
        core: &Arc<Core>,
        settings: &Arc<Settings>,
        peer: Option<&Socket>,
        mut end: EndOfData,
    ) -> Reply {
        let judged = self.judge_content(core, settings, peer, &mut end).await;
        let named = self.rcpts.named();
        let reports = match judged {
            Ok(()) => self.post_reports(core, settings, &end.last).await,
            Err(reply) => Err(reply),
        };
        let (verdict, reports) = match reports {
            Ok(reports) => {
                self.add_report_fields(&reports);
                let kept = self.keep_dmarc_reports(core, settings, &end.last).await;
                let verdict = match kept {
                    Ok(()) if self.rcpts.has_commands() => Box::pin(self.list_commands(core, settings, &end)).await,
                    kept => kept,
                };
                (verdict, reports)
            }
            Err(reply) => (Err(reply), PostReports::default()),
        };
        let (id, dmarc) = (self.id, std::mem::take(&mut self.dmarc));
        let reply = self.conclude(core, settings, end, named, verdict).await;
        if reply.code == 250 {
            reports.log(core, settings, id);
            reports.sync(core).await;
        } else {
            reports.expect_again(core);
        }
        dmarc.count(core, &reply);
        reply
    }

    /// Submits a message that was judged, or refuses it.
    async fn conclude(
        mut self: Box<Self>,
        core: &Arc<Core>,
        settings: &Arc<Settings>,
        mut end: EndOfData,
        named: u64,
        verdict: Result<(), Reply>,
    ) -> Reply {
        let envelopes = match verdict {
            Ok(()) if self.wishes.is_discarded() => return self.discarded(core, settings, &end),
            Ok(()) => self.routed(core, settings, &end).await,
            Err(reply) => Err(reply),
        };
        let envelopes = match envelopes {
            Ok(envelopes) if envelopes.is_empty() => {
                let size = self.stored() + end.last.len() as u64;
                let success = self.success(core.next_content_id(), size, &Arc::new(std::mem::take(&mut end.last)));
                success::report(core, success).await;
                return self.for_nobody(core, settings, &end, named);
            }
            Ok(mut envelopes) => match Box::pin(self.hold_unfit(core, settings, &mut envelopes, end.size)).await {
                Ok(unfit) => {
                    self.archive(settings, &mut envelopes, &end.facts);
                    self.hold_notices = self.pending_notices(unfit);
                    intern_ahead(core, envelopes).await.map_err(IntakeRefusal::reply)
                }
                Err(reply) => Err(reply),
            },
            Err(reply) => Err(reply),
        };
        match envelopes {
            Ok(envelopes) => self.submit(core, settings, envelopes, end, named).await,
            Err(reply) => {
                self.refused_with(core, &reply, Totals::of(&end, named));
                reply
            }
        }
    }

    /// No envelope follows from its recipients: it is taken, and nobody gets it.
    fn for_nobody(self: Box<Self>, core: &Core, settings: &Settings, end: &EndOfData, named: u64) -> Reply {
        if !self.nulls.is_empty() {
            self.log_nulls(core, Totals::of(end, named), true);
            return Reply::new(250, Enhanced::new(2, 0, 0), format!("Ok: queued as {}", self.id));
        }
        if named == 0 {
            // Milters have removed all named recipients, and the rules' copies have no reader.
            return self.discarded(core, settings, end);
        }
        if self.has_commands {
            return Reply::fixed(250, Enhanced::new(2, 0, 0), "Ok: command received");
        }
        Reply::fixed(250, Enhanced::new(2, 0, 0), "Ok: report noted")
    }

    /// Submits the message, and answers once it is durable.
    async fn submit(
        mut self: Box<Self>,
        core: &Arc<Core>,
        settings: &Settings,
        envelopes: Vec<NewEnvelope>,
        mut end: EndOfData,
        named: u64,
    ) -> Reply {
        let merge_bytes = self.merge.len() as u64;
        if merge_bytes > 0
            && let Err(refused) = self.store_values(core, settings, &mut end.last).await
        {
            let reply = refused.reply();
            self.refused_with(core, &reply, Totals::of(&end, named));
            return reply;
        }
        let size = self.stored() + end.last.len() as u64;
        let content = self.pieces.as_ref().map_or_else(|| core.next_content_id(), |pieces| pieces.content);
        self.note_post(core, settings, (content, &envelopes), &end.last);
        let (last, assigned) = (Arc::new(std::mem::take(&mut end.last)), self.assigned.take());
        let totals = Totals::of(&end, named);
        let hold_notices = self.hold_notices.take();
        let success = self.success(content, size, &last);
        let submission = Submission {
            first: self.id,
            content,
            last,
            size,
            merge_bytes,
            envelopes,
            fate_records: Vec::new(),
            assigned,
        };
        let (answer, ticket) = oneshot::channel();
        let begun = Instant::now();
        core.intake.push(Job::Accept { submission, answer });
        self.pieces.take().map(Pieces::submit);
        self.arrival = None;
        let answered = ticket.await;
        core.measures.commit_wait.observe(begun.elapsed());
        match answered {
            Ok(Ok(())) => {
                if !self.restricted_lists.is_empty() && !self.is_of_trusted() {
                    core.poster_guesses.lock().right(&counted_as(self.client));
                }
                if let Some(submitted) = &mut self.submitted {
                    submitted.keep();
                }
                self.log_nulls(core, totals, false);
                success::report(core, success).await;
                if let Some(notices) = hold_notices {
                    Box::pin(notices.send(core, settings)).await;
                }
                Reply::new(250, Enhanced::new(2, 0, 0), format!("Ok: queued as {}", self.id))
            }
            refused => {
                let refused = refused.ok().and_then(Result::err).unwrap_or(IntakeRefusal::Stopping);
                core.refused(refused);
                let reply = refused.reply();
                log::refused_message(core, &self.mail, &reply, &self.whole("", &[], totals));
                reply
            }
        }
    }

    /// Notes facts about a post that the queue does not store.
    fn note_post(&self, core: &Core, settings: &Settings, post: (ContentId, &[NewEnvelope]), last: &[u8]) {
        let (content, envelopes) = post;
        if !envelopes.iter().any(|envelope| envelope.list.is_some() || envelope.recipients.count() >= RECIPIENTS_MIN) {
            return;
        }
        let mut lists = envelopes.iter().filter_map(|envelope| settings.list_report(envelope.list.as_deref()?));
        let is_wanted = lists.any(|report| report.to.poster()) && !self.mail.path.is_null();
        // The beginning of a large body is in the journal already: it is read there when somebody wants to see it.
        let heading = (self.stored() == 0).then(|| Arc::new(Heading::of(last)));
        core.live
            .posts
            .note(content, PostNotes { poster: is_wanted.then(|| self.mail.path.as_str().to_owned()), heading });
    }

    /// Octets of the body that were handed to the journal.
    fn stored(&self) -> u64 {
        self.pieces.as_ref().map_or(0, |pieces| pieces.stored)
    }

    /// Checks loops, limits and posting rights.
    fn check(&self, core: &Arc<Core>, settings: &Settings, facts: &HeaderFacts) -> Result<(), Reply> {
        let members = InForce(core);
        let named = ContentEnvelope {
            sender: &self.mail.path,
            aliases: self.rcpts.aliases().collect(),
            lists: self.rcpts.lists(),
        };
        let checked = check_content(settings, &named, facts, &members, None);
        if checked.is_err() && facts.overflow.is_none() && facts.received_count > settings.config.received_max {
            core.limits.hit(Limit::Received, core.clock.now());
        }
        checked
    }

    /// Copies that nobody gets are in the log alone.
    fn log_nulls(&self, core: &Core, totals: Totals<'_>, is_all: bool) {
        for (alias, why, to) in &self.nulls {
            let why = format!("{why}alias {alias}: /dev/null");
            let recipients = to.len() as u64;
            let whole = self.whole(&why, to, Totals { recipients, ..totals });
            log::discarded(core, &self.mail, self.id, is_all, &whole);
        }
    }

    /// Discards the message for a rule: the client is told that it was accepted, and nobody gets it.
    fn discarded(self: Box<Self>, core: &Core, settings: &Settings, end: &EndOfData) -> Reply {
        let reply = Reply::new(250, Enhanced::new(2, 0, 0), format!("Ok: queued as {}", self.id));
        let (why, to) = (self.wishes.words(), self.names.all(&self.rcpts, |list| address_of(settings, list)));
        let whole = self.whole(&why, &to, Totals::of(end, self.rcpts.named()));
        log::discarded(core, &self.mail, self.id, true, &whole);
        reply
    }
}

/// Returns the address of a list.
fn address_of(settings: &Settings, list: &str) -> Option<Address> {
    Some(settings.list(list)?.settings().address.clone())
}
