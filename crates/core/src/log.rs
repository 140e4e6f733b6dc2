//! Reports mail events: one record each, to history, logs and live counters.
//!
//! Promise: takes no lock of the hub (exceptions are documented) and never waits. In the common case it allocates only
//! for an attempt's recipients beyond four.

use std::cell::RefCell;
use std::fmt::Write;
use std::net::IpAddr;

use stentor_bounces::BounceReply;
use stentor_bounces::note::ReportNote;
use stentor_mail::Class;
use stentor_mail::address::PATH_BYTES_MAX;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_queue::event::{Accept, Fate};
use stentor_queue::ids::{AddressId, MessageId, MessageNo, Ms};
use stentor_queue::idset::IdSet;
use stentor_queue::message::Message;
use stentor_queue::site::Target;
use stentor_records::escape::{field, printable};
use stentor_records::record::{
    Accepted, Attempt, HELD_BY, Note, PROTO_RELEASED, RELEASED_BY, Record, Refused, Stat, To, Topic,
};
use stentor_sched::verdict::{Judge, Verdict};
use stentor_sched::{FailedRcpt, RcptOutcome, SessionSoFar};
use stentor_smtp::server::MailFrom;

use super::Core;
use super::assignment::Assignment;
use super::audit::Audit;
use super::envelope::AcceptanceFacts;
use super::hub::Hub;
use super::live::posts::{FAILURES_MAX, PostFailure};
use super::reputation_alarms::{BlockedPlace, FAILED_CODE_MIN};
use super::unreached::UnreachedRcpts;

/// Prefix of the policy text when a message is released from the quarantine; the queue id that it had there follows.
const RELEASED: &str = "released from the quarantine: ";

/// Prefix of the origin of a local user's mail.
const LOCAL_USER: &str = "uid ";
/// Separates client and user in the origin of mail submitted with a login.
const LOGIN: &str = " login ";

/// The target of a transaction or a failed connection.
#[derive(Clone, Copy)]
pub struct AttemptTarget<'a> {
    pub target: &'a Target,
    /// Name of the configured source, empty for the default.
    pub source: &'a str,
    /// TLS state of the session; empty if there is none.
    pub tls: &'a str,
    /// An earlier transaction of the session delivered to at least one recipient.
    pub has_delivered: bool,
}

impl AttemptTarget<'_> {
    fn mailer(&self) -> &'static str {
        if self.target.lmtp { "lmtp" } else { "esmtp" }
    }

    fn session(&self) -> SessionSoFar {
        SessionSoFar { is_lmtp: self.target.lmtp, has_delivered: self.has_delivered }
    }
}

/// Buffers for a record's texts, reused for the next record.
#[derive(Default)]
struct Texts {
    id: String,
    dsn: String,
    reply: String,
    tls: String,
}

thread_local! {
    static TEXTS: RefCell<Texts> = RefCell::default();
}

/// Formats `what` into a reused buffer. Writing into a string cannot fail.
fn text(buffer: &mut String, what: impl std::fmt::Display) -> &str {
    buffer.clear();
    let _ = write!(buffer, "{what}");
    buffer
}

/// Whether any consumer wants a record.
fn is_wanted(core: &Core) -> bool {
    core.history.is_on() || core.log.is_on()
}

fn record(core: &Core, record: &Record<'_>) {
    core.history.append(record);
    core.log.record(record);
}

/// Reports that a message was made durable.
pub fn accepted(core: &Core, accept: &Accept, taken: &AcceptanceFacts) {
    core.live.accepted(accept);
    record_accepted(core, accept, taken);
}

fn record_accepted(core: &Core, accept: &Accept, taken: &AcceptanceFacts) {
    if !is_wanted(core) {
        return;
    }
    TEXTS.with_borrow_mut(|texts| {
        record(
            core,
            &Record::Accepted(Accepted {
                at: accept.accepted,
                id: text(&mut texts.id, accept.id),
                from: &accept.sender,
                size: accept.size,
                recipients: accept.recipients.len() as u64,
                message_id: &accept.message_id,
                client_host: "",
                client: accept.origin.split(' ').next().and_then(|client| client.parse().ok()),
                proto: taken.proto,
                is_bulk: accept.class == Class::Bulk,
                is_of_stranger: accept.list.is_none() && core.settings().is_strangers(&accept.origin),
                list: accept.list.as_deref().filter(|_| !accept.is_archive).unwrap_or_default(),
                policy: &taken.policy,
                tls: match taken.tls {
                    Some((version, cipher)) => text(&mut texts.tls, format_args!("{version}:{cipher}")),
                    None => "",
                },
                named: taken.named.iter().map(|named| &**named).collect(),
                marks: &taken.marks,
                orig_from: accept.given_sender.as_deref().unwrap_or_default(),
                user: user(&accept.origin),
            }),
        );
    });
}

/// Reports an ended transaction: one record per group of recipients with the same outcome.
pub fn attempt(core: &Core, assignment: &Assignment, outcomes: &[RcptOutcome], via: &AttemptTarget<'_>) {
    let now = core.clock.now();
    let judge = Judge::of(outcomes, via.session());
    core.live.attempt(assignment.subscribers_list(), assignment.size, outcomes, via.target, via.session());
    note_reputation(core, outcomes, via, now);
    if let Some(observer) = core.observer.get() {
        observer.attempt(core, assignment, outcomes, via.target);
    }
    let stats = outcomes.iter().map(|outcome| stat(judge.verdict(outcome)));
    core.measures.attempt(now.saturating_sub(assignment.begun), stats);
    if !is_wanted(core) {
        return;
    }
    TEXTS.with_borrow_mut(|texts| {
        let id = text(&mut texts.id, assignment.id);
        let mut from = 0;
        while from < outcomes.len() {
            let first = &outcomes[from];
            let alike = |o: &RcptOutcome| {
                o.stage == first.stage && o.code == first.code && o.dsn == first.dsn && o.text == first.text
            };
            let to = outcomes[from..].iter().position(|o| !alike(o)).map_or(outcomes.len(), |n| from + n);
            let verdict = judge.verdict(first);
            let reply = match (first.code, first.dsn) {
                (0, _) => &*first.text,
                (code, None) => text(&mut texts.reply, format_args!("{code} {}", first.text)),
                (code, Some(dsn)) => text(&mut texts.reply, format_args!("{code} {dsn} {}", first.text)),
            };
            if verdict != Verdict::Delivered {
                let kind = if verdict.is_failure() { "bounced" } else { "deferred" };
                core.live.event(now, kind, || format!("{}: {reply}", via.target.host));
            }
            let attempt = Attempt {
                at: now,
                id,
                to: (from..to).map(|position| assignment.address(position)).collect(),
                from: &assignment.sender,
                list: assignment.subscribers_list(),
                source: via.source,
                mailer: via.mailer(),
                host: &via.target.host,
                ip: via.target.addr.ip(),
                port: via.target.addr.port(),
                delay_ms: now.saturating_sub(assignment.accepted),
                xdelay_ms: now.saturating_sub(assignment.begun),
                stat: stat(verdict),
                dsn: text(&mut texts.dsn, verdict.dsn(first.dsn)),
                reply,
                tls: via.tls,
                size: assignment.size,
                is_bulk: assignment.is_bulk,
                is_repeated: false,
                is_of_stranger: is_of_stranger(core, assignment),
                recoded: assignment.recoded,
                unreached: None,
            };
            record(core, &Record::Attempt(attempt));
            from = to;
        }
    });
}

/// Whether anybody may have written the sender. A list's sender is the list's own.
fn is_of_stranger(core: &Core, assignment: &Assignment) -> bool {
    let is_untrusted = |client| !core.settings().policy.is_trusted(client);
    assignment.list.is_empty() && assignment.client.is_some_and(is_untrusted)
}

fn is_message_of_stranger(core: &Core, message: &Message) -> bool {
    message.list().is_none() && core.settings().is_strangers(message.origin())
}

/// Looks for our reputation in failed replies. Mail for mailboxes of this machine says nothing about it.
fn note_reputation(core: &Core, outcomes: &[RcptOutcome], via: &AttemptTarget<'_>, now: Ms) {
    if via.target.lmtp {
        return;
    }
    let place = BlockedPlace { source: via.source, host: &via.target.host };
    if outcomes.iter().any(|outcome| outcome.code >= FAILED_CODE_MIN) {
        core.reputation_alarms.record_outcomes(core.settings().bounce_rules(), place, outcomes, now);
    } else if outcomes.iter().any(|outcome| outcome.code > 0) {
        core.reputation_alarms.record_delivery(place);
    }
}

/// Looks for our reputation in the reply by which a host refused a session.
pub fn session_refused(core: &Core, via: &AttemptTarget<'_>, text: &str) {
    if !via.target.lmtp {
        let host = &*via.target.host;
        let (place, reply) =
            (BlockedPlace { source: via.source, host }, BounceReply { text, host, ..Default::default() });
        core.reputation_alarms.record_reply(core.settings().bounce_rules(), place, &reply, core.clock.now());
    }
}

/// Maps a verdict to its name in log and history.
pub(super) fn stat(verdict: Verdict) -> Stat {
    match verdict {
        Verdict::Delivered => Stat::Sent,
        verdict if verdict.is_failure() => Stat::Bounced,
        _ => Stat::Deferred,
    }
}

/// Recipients about to be given up: gathered while their message exists, recorded once their fate is durable. The
/// records of their attempts contain the last reply. These records mark it as final, and cover recipients for which no
/// host was reached.
pub struct GivenUpRcpts {
    id: MessageId,
    from: String,
    list: String,
    accepted: Ms,
    size: u64,
    is_bulk: bool,
    is_of_stranger: bool,
    to: Vec<String>,
}

impl GivenUpRcpts {
    /// Gathers the recipients. `None` if the message is gone, or if neither logs nor a post's report need them.
    pub fn gather(core: &std::sync::Arc<Core>, no: MessageNo, failures: &[FailedRcpt]) -> Option<GivenUpRcpts> {
        core.with(|hub, _| {
            let message = hub.store.message(no)?;
            if !is_wanted(core) && core.live.posts.get(message.id()).is_none() {
                return None;
            }
            Some(GivenUpRcpts {
                id: message.id(),
                from: message.sender().to_owned(),
                list: message.subscribers_list().unwrap_or_default().to_owned(),
                accepted: message.accepted(),
                size: message.size(),
                is_bulk: message.class() == Class::Bulk,
                is_of_stranger: is_message_of_stranger(core, message),
                to: failures.iter().map(|failure| hub.store.book.text(failure.id).to_owned()).collect(),
            })
        })
    }

    /// Reports that their fate is durable. `failures` must be those passed to [`GivenUpRcpts::gather`].
    pub fn record(this: Option<&GivenUpRcpts>, core: &Core, failures: &[FailedRcpt]) {
        core.live.given_up(failures);
        let (Some(this), now) = (this, core.clock.now()) else { return };
        if let Some(failure) = failures.iter().find(|failure| failure.expired) {
            core.live.event(now, "expired", || format!("message {}: {}", this.id, failure.text));
        }
        if let Some(post) = core.live.posts.get(this.id) {
            for (to, failure) in this.to.iter().zip(failures).take(FAILURES_MAX) {
                post.add_failure(PostFailure::new(to, failure, now));
            }
        }
        for (to, failure) in this.to.iter().zip(failures) {
            TEXTS.with_borrow_mut(|texts| {
                record(
                    core,
                    &Record::Attempt(Attempt {
                        at: now,
                        id: text(&mut texts.id, this.id),
                        to: std::iter::once(to.as_str()).collect(),
                        from: &this.from,
                        list: &this.list,
                        mailer: "bounce",
                        delay_ms: now.saturating_sub(this.accepted),
                        stat: if failure.expired { Stat::Expired } else { Stat::Bounced },
                        dsn: text(&mut texts.dsn, failure.dsn),
                        reply: &failure.text,
                        size: this.size,
                        is_bulk: this.is_bulk,
                        is_of_stranger: this.is_of_stranger,
                        ..Attempt::default()
                    }),
                );
            });
        }
    }
}

/// Reports recipients that an operator removed, or whose copies were merged into a digest. Under the hub's lock.
pub fn taken_out(core: &Core, hub: &Hub, message: MessageId, fate: Fate, ids: &IdSet, who: &str, now: Ms) {
    if !is_wanted(core) {
        return;
    }
    let Some(message) = hub.store.no_of(message).and_then(|no| hub.store.message(no)) else { return };
    let (mailer, stat, dsn) = match fate {
        Fate::Coalesced => ("digest", Stat::Coalesced, "2.0.0"),
        _ => ("operator", Stat::Removed, "5.0.0"),
    };
    all_without_host(core, hub, message, ids, HostlessOutcome { mailer, stat, dsn, reply: who }, now);
}

/// Reports recipients that are removed because they are suppressed. Under the hub's lock.
pub fn suppressed(core: &Core, hub: &Hub, message: MessageId, ids: &IdSet, why: &str, now: Ms) {
    if !is_wanted(core) {
        return;
    }
    let Some(message) = hub.store.no_of(message).and_then(|no| hub.store.message(no)) else { return };
    let outcome = HostlessOutcome { mailer: "suppression", stat: Stat::Removed, dsn: "5.7.1", reply: why };
    all_without_host(core, hub, message, ids, outcome, now);
}

/// The outcome of recipients that no host decided about.
#[derive(Clone, Copy)]
struct HostlessOutcome<'a> {
    mailer: &'a str,
    stat: Stat,
    dsn: &'a str,
    reply: &'a str,
}

/// Reports outcomes without a host, for those of `ids` that belong to the message.
fn all_without_host(core: &Core, hub: &Hub, message: &Message, ids: &IdSet, outcome: HostlessOutcome<'_>, now: Ms) {
    let mut pending = ids.iter().filter(|id| message.pending().contains(*id)).peekable();
    while pending.peek().is_some() {
        let some = pending.by_ref().take(stentor_history::TO_MAX);
        let to: To<'_> = some.map(|id| hub.store.book.text(AddressId(id))).collect();
        without_host(core, message, &to, outcome, now);
    }
}

/// Reports that a message entered the quarantine. Under the hub's lock.
pub fn quarantined(core: &Core, hub: &Hub, id: MessageId, now: Ms) {
    let Some(message) = hub.store.in_quarantine(id) else { return };
    let by = message.quarantined_by();
    core.live.event(now, "quarantined", || format!("message {id}: {by}"));
    if is_wanted(core) {
        let outcome = HostlessOutcome { mailer: "quarantine", stat: Stat::Quarantined, dsn: "2.0.0", reply: by };
        all_without_host(core, hub, message, message.pending(), outcome, now);
    }
}

/// A note of topic policy about one message.
fn message_note<'a>(at: Ms, id: &'a str, text: &'a str) -> Record<'a> {
    Record::Note(Note { at, id, text, topic: Topic::Policy, ..Note::default() })
}

/// Reports that a rule (`by`) holds a message from acceptance on.
pub fn held_by_rule(core: &Core, accept: &Accept, by: &str) {
    if is_wanted(core) {
        let text = format!("{HELD_BY}{by}");
        TEXTS.with_borrow_mut(|texts| {
            let id = self::text(&mut texts.id, accept.id);
            record(core, &message_note(accept.accepted, id, &text));
        });
    }
}

/// Reports an operator's hold or release to the history only; the log has the action itself.
pub fn hold_changed(core: &Core, id: MessageId, held: bool, who: &str, now: Ms) {
    if core.history.is_on() {
        let text = format!("{}{who}", if held { HELD_BY } else { RELEASED_BY });
        core.history.append(&message_note(now, &id.to_string(), &text));
    }
}

/// Reports recipients that leave the quarantine with another fate. Under the hub's lock.
pub fn left_quarantine(core: &Core, hub: &Hub, id: MessageId, fate: Fate, ids: &IdSet, who: &str, now: Ms) {
    let Some(message) = hub.store.in_quarantine(id).filter(|_| is_wanted(core)) else { return };
    let (mailer, stat) = match fate {
        Fate::Expired => ("quarantine", Stat::Expired),
        _ => ("operator", Stat::Removed),
    };
    all_without_host(core, hub, message, ids, HostlessOutcome { mailer, stat, dsn: "5.0.0", reply: who }, now);
}

/// Reports recipients that leave the quarantine as a message of their own. Under the hub's lock.
pub fn released(core: &Core, hub: &Hub, from: MessageId, accept: &Accept, who: &str) {
    let taken = AcceptanceFacts { policy: format!("{RELEASED}{from}").into(), ..AcceptanceFacts::local("") };
    record_accepted(core, accept, &AcceptanceFacts { proto: PROTO_RELEASED, ..taken });
    if let Some(message) = hub.store.in_quarantine(from).filter(|_| is_wanted(core)) {
        let reply = format!("as {} by {who}", accept.id);
        let outcome = HostlessOutcome { mailer: "quarantine", stat: Stat::Released, dsn: "2.0.0", reply: &reply };
        all_without_host(core, hub, message, &accept.recipients, outcome, accept.accepted);
    }
}

/// Reports a message that sends a post again to those that missed it. Under the hub's lock.
pub fn resent(core: &Core, accept: &Accept, of: MessageId, who: &str) {
    let policy = format!("resend of {of} by {who}").into();
    record_accepted(core, accept, &AcceptanceFacts { policy, ..AcceptanceFacts::local("") });
}

/// Reports outcomes of recipients without a host.
fn without_host(core: &Core, message: &Message, to: &[&str], outcome: HostlessOutcome<'_>, now: Ms) {
    let HostlessOutcome { mailer, stat, dsn, reply } = outcome;
    TEXTS.with_borrow_mut(|texts| {
        record(
            core,
            &Record::Attempt(Attempt {
                at: now,
                id: text(&mut texts.id, message.id()),
                to: to.iter().copied().collect(),
                from: message.sender(),
                list: message.subscribers_list().unwrap_or_default(),
                mailer,
                delay_ms: now.saturating_sub(message.accepted()),
                stat,
                dsn,
                reply,
                size: message.size(),
                is_bulk: message.class() == Class::Bulk,
                is_of_stranger: is_message_of_stranger(core, message),
                ..Attempt::default()
            }),
        );
    });
}

/// Reports a failed session. No copy was tried, so there is neither queue id nor recipient, but waiting recipients
/// count as deferred.
pub fn connect_failed(
    core: &Core,
    via: &AttemptTarget<'_>,
    begun: Ms,
    dsn: &str,
    why: &str,
    unreached: &UnreachedRcpts,
) {
    let now = core.clock.now();
    core.live.unreached(Some(via.target), unreached.waiting);
    core.measures.unreached(unreached.waiting);
    core.measures.connect_failures.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    core.live.event(now, "connect_failed", || format!("{}: {why}", via.target));
    if is_wanted(core) {
        record(
            core,
            &Record::Attempt(Attempt {
                at: now,
                source: via.source,
                mailer: via.mailer(),
                host: &via.target.host,
                ip: via.target.addr.ip(),
                port: via.target.addr.port(),
                xdelay_ms: now.saturating_sub(begun),
                stat: Stat::Deferred,
                dsn,
                reply: why,
                tls: via.tls,
                unreached: Some(unreached.as_record()),
                ..Attempt::default()
            }),
        );
    }
}

/// Reports a look-up that failed temporarily, for a domain without a known site.
pub fn look_up_failed(core: &Core, begun: Ms, dsn: Enhanced, text: &str, unreached: &UnreachedRcpts) {
    let now = core.clock.now();
    core.live.unreached(None, unreached.waiting);
    core.measures.unreached(unreached.waiting);
    let domain = || unreached.domains.first().map_or("", |(domain, _)| domain);
    core.live.event(now, "lookup_failed", || format!("{}: {text}", domain()));
    if is_wanted(core) {
        record(
            core,
            &Record::Attempt(Attempt {
                at: now,
                mailer: "dns",
                xdelay_ms: now.saturating_sub(begun),
                stat: Stat::Deferred,
                dsn: &dsn.to_string(),
                reply: text,
                unreached: Some(unreached.as_record()),
                ..Attempt::default()
            }),
        );
    }
}

/// The client or user that submits a message.
#[derive(Clone, Copy)]
pub struct Injector<'a> {
    pub client: IpAddr,
    /// The client with its login, or the local user; empty if there is neither.
    pub origin: &'a str,
}

/// Reports that a client was refused at the command `step`; `policy` describes the deciding rule, if it was not a
/// limit.
pub fn refused(core: &Core, step: &str, policy: &str, mail: &MailFrom, by: Injector<'_>, reply: &Reply) {
    let (client, user) = (Some(by.client), user(by.origin));
    record_refused(core, mail, reply, &Refused { client, step, policy, user, ..Refused::default() });
}

/// Reports a refused recipient; `policy` describes the deciding rule.
pub fn refused_recipient(core: &Core, mail: &MailFrom, to: &str, policy: &str, by: Injector<'_>, reply: &Reply) {
    let (client, user) = (Some(by.client), user(by.origin));
    let refused = Refused { client, to, step: "RCPT", policy, user, ..Refused::default() };
    record_refused(core, mail, reply, &refused);
}

/// A whole message that was refused or dropped.
pub struct MessageSummary<'a> {
    pub client: IpAddr,
    /// Description of the deciding rule.
    pub why: &'a str,
    /// Empty if the header has not arrived, or has no Message-ID.
    pub message_id: &'a str,
    /// Recipients as the client named them, as far as they are kept, and their total number.
    pub to: &'a [Box<str>],
    pub recipients: u64,
    /// Octets read so far.
    pub size: u64,
    /// The client's address, or the local user.
    pub origin: &'a str,
}

/// Returns the user in an origin, as a local user or a login; empty if it is only a client.
fn user(origin: &str) -> &str {
    if origin.starts_with(LOCAL_USER) { origin } else { origin.split_once(LOGIN).map_or("", |(_, login)| login) }
}

/// Reports that a whole message was refused.
pub fn refused_message(core: &Core, mail: &MailFrom, reply: &Reply, whole: &MessageSummary<'_>) {
    let MessageSummary { client, why: policy, message_id, to, recipients, size, origin } = *whole;
    let named = to.iter().map(|to| &**to).collect();
    let (client, user) = (Some(client), user(origin));
    let refused =
        Refused { client, step: ".", size, recipients, policy, message_id, named, user, ..Refused::default() };
    record_refused(core, mail, reply, &refused);
}

fn record_refused(core: &Core, mail: &MailFrom, reply: &Reply, refused: &Refused<'_>) {
    let client = || refused.client.map_or_else(String::new, |client| format!("client {client}: "));
    core.live.event(core.clock.now(), "refused", || format!("{}{reply}", client()));
    if is_wanted(core) {
        TEXTS.with_borrow_mut(|texts| {
            let (at, reply) = (core.clock.now(), text(&mut texts.reply, reply));
            let from = mail.path.as_str();
            let &Refused { client, to, step, size, recipients, policy, message_id, user, .. } = refused;
            let named = refused.named.iter().copied().collect();
            let refused =
                Refused { at, client, from, to, reply, step, size, recipients, policy, message_id, named, user };
            record(core, &Record::Refused(refused));
        });
    }
}

/// Reports a message dropped by a rule or by an alias for `/dev/null`; `is_end`: no other recipient gets it.
pub fn discarded(core: &Core, mail: &MailFrom, id: MessageId, is_end: bool, whole: &MessageSummary<'_>) {
    if !is_wanted(core) {
        return;
    }
    let MessageSummary { client, why, message_id, to, recipients, size, origin } = *whole;
    // `policy replay` parses sender and client from this text.
    let (from, user) = (field(mail.path.as_str(), PATH_BYTES_MAX), user(origin));
    let user = if user.is_empty() { String::new() } else { format!(", user={user}") };
    let text = format!("discarded: from=<{from}>, relay=[{client}]{user}, size={size}, nrcpts={recipients}: {why}");
    let (id, to) = (id.to_string(), to.iter().map(|to| &**to).collect());
    let at = core.clock.now();
    record(core, &Record::Note(Note { at, id: &id, text: &text, topic: Topic::Policy, is_end, to, message_id }));
}

/// Reports that a delivery report about a list's post arrived, and that no reader is configured for it.
pub fn report_noted(core: &Core, list: &str, mail: &MailFrom, client: IpAddr) {
    core.counters.reports_noted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let text =
        format!("report: list={list}, from=<{}>, relay=[{client}], noted", field(mail.path.as_str(), PATH_BYTES_MAX));
    note(core, Topic::Policy, &text);
}

/// Longest text about a command to a list: it has one or two addresses.
const COMMAND_BYTES_MAX: usize = 1_000;

/// Reports a command to a list, and its effect.
pub fn list_command(core: &Core, list: &str, mail: &MailFrom, client: IpAddr, text: &str) {
    let from = field(mail.path.as_str(), PATH_BYTES_MAX);
    let text = printable(text, COMMAND_BYTES_MAX);
    note(core, Topic::Policy, &format!("command: list={list}, from=<{from}>, relay=[{client}], {text}"));
}

/// Reports a bounce of a list's or manager's post, or a complaint about one, that came in the message `id`.
pub fn post_report(core: &Core, id: MessageId, report: &ReportNote<'_>) {
    if is_wanted(core) {
        let (at, id, text) = (core.clock.now(), id.to_string(), report.write());
        // The story of the recipient finds it.
        let to = std::iter::once(&*report.recipient).collect();
        record(core, &Record::Note(Note { at, id: &id, text: &text, topic: Topic::Policy, to, ..Note::default() }));
    }
}

/// Reports an operator's action that took effect.
pub fn audited(core: &Core, audit: &Audit) {
    audit_note(core, audit.verb, &audit.who, &audit.detail);
}

/// Reports an operator's action that the journal does not record.
pub fn audit_note(core: &Core, verb: &str, who: &str, detail: &str) {
    core.live.event(core.clock.now(), "audit", || format!("{verb} by {who}: {detail}"));
    if is_wanted(core) {
        note(core, Topic::Audit, &format!("audit: verb={verb}, who={who}, detail={detail}"));
    }
}

/// Reports any other event.
pub fn note(core: &Core, topic: Topic, text: &str) {
    if is_wanted(core) {
        record(core, &Record::Note(Note { at: core.clock.now(), text, topic, ..Note::default() }));
    }
}
