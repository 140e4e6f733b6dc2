//! Delivery status notifications (RFC 3464). Failures and expiries gathered by the scheduler become one message to the
//! sender, durable in the same batch as the recipients' fate. A requested success (NOTIFY=SUCCESS) that the next host
//! will not report itself becomes a "relayed" DSN.
//!
//! No DSN is sent for the null sender, for our own DSNs (never a bounce of a bounce), or for a recipient with
//! NOTIFY=NEVER or without FAILURE. Their fate is still recorded. Of an untrusted client's message only a few fields
//! are returned ([`dsn::essential_header`]), so that a victim whose address was forged gets no text of an attacker's
//! choice. A DSN to a list's bounce address goes to the list's owner. While an operator bounces all of a list's mail
//! there is none, since it would report each subscriber as failing. A message may ask for a DSN for each failed copy,
//! to the copy's own return path ([`DsnTo::Path`]), as Postfix sends them with XVERP. If the DSN cannot be stored,
//! the recipients stay pending and the scheduler tries again. A large one is submitted in pieces, and its text per
//! recipient is bounded (`stentor_mail::dsn`), so that none is permanently too large.

use std::net::Ipv4Addr;
use std::sync::Arc;

use stentor_addresses::{Srs, untagged};
use stentor_copies::{CopyRequest, CopyValues, DsnTo};
use stentor_core::assignment::Assignment;
use stentor_core::audit::Audit;
use stentor_core::envelope::{EnvelopeRcpt, NewEnvelope};
use stentor_core::intake::{FateRecord, IntakeRefusal};
use stentor_core::log::GivenUpRcpts;
use stentor_core::own::{MessageIds, hand_in};
use stentor_core::route::Route;
use stentor_core::verb::QueueChange;
use stentor_core::{Core, Settings, suppression};
use stentor_lists::{delivered_to_field, permalink_in};
use stentor_mail::address::Address;
use stentor_mail::copy_request::StoredPrefix;
use stentor_mail::dsn::{self, Dsn, DsnAction, ReportRcpt, Ret, format_date};
use stentor_mail::reply::Enhanced;
use stentor_policy::AddressClass;
use stentor_queue::book::AddressBook;
use stentor_queue::event::Fate;
use stentor_queue::ids::{AddressId, ContentId, MessageId, MessageNo, Ms};
use stentor_queue::idset::IdSet;
use stentor_queue::message::Message;
use stentor_records::escape::printable;
use stentor_sched::{FailedRcpt, RcptOutcome};
use tokio::task::JoinSet;

/// NOTIFY bits (RFC 3461 section 4.1).
const SUCCESS: u8 = 2;
const FAILURE: u8 = 4;
/// DSNs to return paths of a message that are built at once.
const PATH_REPORTS_MAX: usize = 64;
/// Whose copy failed, if the recipient is no subscriber.
const ARCHIVE: &str = "this is the copy for an archive of the list (`archive_to`); subscribers are not affected";
/// Characters of an address in the log.
const ADDRESS_CHARS_MAX: usize = 320;

/// Facts about the original message that a DSN reports.
pub(super) struct Subject {
    pub id: MessageId,
    pub sender: String,
    /// The sender that the client gave, if `sender` differs.
    pub given_sender: Option<String>,
    pub envid: Option<String>,
    pub ret: Option<Ret>,
    pub smtputf8: bool,
    /// The report also uses REQUIRETLS, and returns no content (RFC 8689 section 5).
    pub require_tls: bool,
    pub accepted: Ms,
    pub content: ContentId,
    /// Octets of the content, without the prefix that is added on the wire.
    pub size: u64,
    /// Where a list's post can be read.
    pub archive: Option<String>,
    /// The message came from outside the client networks: the sender may never have seen it.
    pub from_stranger: bool,
    /// The beginning of the content, if available.
    pub beginning: Option<Arc<Vec<u8>>>,
}

/// Recipients of an accepted message that end here or expand to several, and whose client requested success reports.
pub struct Success {
    pub id: MessageId,
    pub sender: String,
    pub envid: Option<String>,
    pub smtputf8: bool,
    pub require_tls: bool,
    pub content: ContentId,
    pub size: u64,
    pub beginning: Option<Arc<Vec<u8>>>,
    pub recipients: Vec<SuccessRcpt>,
}

/// One such recipient: a list (delivered: RFC 3461 section 5.2.7.3), or an alias (expanded).
pub struct SuccessRcpt {
    pub address: String,
    pub orcpt: Option<String>,
    pub is_expanded: bool,
}

/// One recipient in a DSN.
pub(super) struct DsnRcpt {
    pub address: String,
    pub orcpt: Option<String>,
    pub action: DsnAction,
    pub status: Enhanced,
    pub host: Option<Arc<str>>,
    pub diagnostic: Option<String>,
    pub reason: Option<String>,
    /// For a delay: when delivery is given up.
    pub until: Option<Ms>,
}

/// Performs `Effect::Bounce`.
pub async fn bounce(core: Arc<Core>, no: MessageNo, failures: Vec<FailedRcpt>) {
    let failures = suppression::remove_failed(&core, no, failures);
    if failures.is_empty() {
        return;
    }
    let settings = core.settings();
    if core.with(|hub, _| hub.store.message(no).and_then(path_request).is_none()) {
        return settle(core, settings, no, failures).await;
    }
    let mut reports = JoinSet::new();
    for failure in failures {
        if reports.len() >= PATH_REPORTS_MAX {
            reports.join_next().await;
        }
        reports.spawn(settle(core.clone(), settings.clone(), no, vec![failure]));
    }
    while reports.join_next().await.is_some() {}
}

/// Returns the request of a message for DSNs to the return paths of its copies.
fn path_request(message: &Message) -> Option<CopyRequest> {
    let envelope = message.envelope();
    let value = StoredPrefix::split(envelope.prefix).request.filter(|_| envelope.list.is_none())?;
    // One that cannot be read has been logged at the copies.
    CopyRequest::parse(value).ok().filter(|request| request.dsn() == DsnTo::Path)
}

/// Returns the return path of the copy that failed, if the message's DSNs go to these.
fn failed_path(settings: &Settings, message: &Message, book: &AddressBook, failures: &[FailedRcpt]) -> Option<String> {
    let ([failure], Some(request)) = (failures, path_request(message)) else { return None };
    let sender = message.envelope().sender;
    let (recipient, message) = (book.text(failure.id), message.id().to_string());
    let values = CopyValues { sender, membership_sender: sender, recipient, name: "", list: "", message: &message };
    settings.copies.return_path(&request.over(settings.copies.of("", sender)), &values)
}

/// Sends one DSN about recipients, if there is one to send, and records their fates.
async fn settle(core: Arc<Core>, settings: Arc<Settings>, no: MessageNo, failures: Vec<FailedRcpt>) {
    let Some((subject, lines, reported)) = gather(&core, &settings, no, &failures) else { return };
    let sorted = |expired: bool| -> IdSet {
        failures.iter().filter(|failure| failure.expired == expired).map(|failure| failure.id.0).collect()
    };
    let fates = [(Fate::Bounced, sorted(false)), (Fate::Expired, sorted(true))];
    let given_up = GivenUpRcpts::gather(&core, no, &failures);
    let Ok(to) = report_to(&core, &subject, reported).await else {
        return core.with(|hub, now| hub.sched.bounce_refused(no, failures, now));
    };
    if !to.is_empty() && !lines.is_empty() {
        let fate_records = fates.iter().filter(|(_, ids)| !ids.is_empty());
        let record = |(fate, ids): &(Fate, IdSet)| FateRecord {
            message: subject.id,
            fate: *fate,
            ids: ids.clone(),
            audit: None,
        };
        match send(&core, &subject, &lines, to, fate_records.map(record).collect()).await {
            Ok(()) => return GivenUpRcpts::record(given_up.as_ref(), &core, &failures),
            // No batch will ever hold it: record the fates without it, or they would be retried for ever.
            Err(IntakeRefusal::TooLarge) => {}
            Err(_) => return core.with(|hub, now| hub.sched.bounce_refused(no, failures, now)),
        }
    }
    GivenUpRcpts::record(given_up.as_ref(), &core, &failures);
    core.with(|hub, now| {
        let finished: Vec<AddressId> = failures.iter().map(|failure| failure.id).collect();
        hub.sched.bounced(no, &finished);
        for (fate, ids) in &fates {
            hub.outcome(no, *fate, ids, now);
        }
    });
}

/// Bounces reserved recipients for an operator: the DSN and their fate, with the audit record, are one batch. `Ok` if
/// it is durable; the reservation ends either way.
pub async fn by_operator(
    core: &Arc<Core>,
    no: MessageNo,
    failures: Vec<FailedRcpt>,
    audit: Audit,
) -> Result<(), IntakeRefusal> {
    let settings = core.settings();
    let Some((subject, lines, reported)) = gather(core, &settings, no, &failures) else { return Ok(()) };
    let ids: IdSet = failures.iter().map(|failure| failure.id.0).collect();
    let given_up = GivenUpRcpts::gather(core, no, &failures);
    let to = match report_to(core, &subject, reported).await {
        Ok(to) => to,
        Err(refused) => {
            core.with(|hub, now| hub.sched.unreserve(&hub.store, no, &ids, now));
            return Err(refused);
        }
    };
    if to.is_empty() || lines.is_empty() {
        let change = QueueChange::Settle { fate: Fate::Bounced, recipients: vec![(subject.id, ids)] };
        let done = core.intake.verb(audit, change).await;
        if done.is_ok() {
            GivenUpRcpts::record(given_up.as_ref(), core, &failures);
        }
        return done;
    }
    let fate_records =
        vec![FateRecord { message: subject.id, fate: Fate::Bounced, ids: ids.clone(), audit: Some(audit) }];
    let sent = send(core, &subject, &lines, to, fate_records).await;
    match sent {
        Ok(()) => GivenUpRcpts::record(given_up.as_ref(), core, &failures),
        Err(_) => core.with(|hub, now| hub.sched.unreserve(&hub.store, no, &ids, now)),
    }
    sent
}

/// After a transaction, sends success DSNs for recipients that requested them and that the host will not notify.
pub fn relayed(core: &Arc<Core>, assignment: &Assignment, outcomes: &[RcptOutcome], host: &Arc<str>) {
    let lines: Vec<DsnRcpt> = outcomes
        .iter()
        .enumerate()
        .filter(|(_, outcome)| outcome.is_delivered())
        .filter_map(|(position, _)| assignment.params(position).map(|params| (position, params)))
        .filter(|(_, params)| params.notify.is_some_and(|notify| notify & SUCCESS != 0))
        .map(|(position, params)| DsnRcpt {
            address: assignment.address(position).to_owned(),
            orcpt: params.orcpt.clone(),
            action: DsnAction::Relayed,
            status: Enhanced::new(2, 0, 0),
            host: Some(host.clone()),
            diagnostic: None,
            reason: None,
            until: None,
        })
        .collect();
    if lines.is_empty() || assignment.sender.is_empty() {
        return;
    }
    let subject = Subject {
        id: assignment.id,
        sender: assignment.sender.clone(),
        given_sender: assignment.given_sender.clone(),
        envid: assignment.envid.clone(),
        ret: Some(Ret::Headers),
        smtputf8: assignment.smtputf8,
        require_tls: assignment.require_tls,
        accepted: assignment.accepted,
        content: assignment.content,
        size: assignment.content_len(),
        archive: None,
        // Untrusted clients are not offered success reports.
        from_stranger: false,
        beginning: None,
    };
    let core = core.clone();
    tokio::spawn(async move {
        let to = report_to(&core, &subject, true).await.unwrap_or_default();
        if !to.is_empty() {
            // The failure is logged; a success without its report is still a success.
            let _ = send(&core, &subject, &lines, to, Vec::new()).await;
        }
    });
}

/// Sends the DSN about recipients that this server answers for itself. It is stored when this returns, unless the log
/// says why not.
pub async fn succeeded(core: &Arc<Core>, success: Success) {
    let line = |SuccessRcpt { address, orcpt, is_expanded }| DsnRcpt {
        address,
        orcpt,
        action: if is_expanded { DsnAction::Expanded } else { DsnAction::Delivered },
        status: Enhanced::new(2, 0, 0),
        host: None,
        diagnostic: None,
        reason: None,
        until: None,
    };
    let lines: Vec<DsnRcpt> = success.recipients.into_iter().map(line).collect();
    let subject = Subject {
        id: success.id,
        sender: success.sender,
        given_sender: None,
        envid: success.envid,
        ret: Some(Ret::Headers),
        smtputf8: success.smtputf8,
        require_tls: success.require_tls,
        accepted: core.clock.now(),
        content: success.content,
        size: success.size,
        archive: None,
        from_stranger: false,
        beginning: success.beginning,
    };
    let to = report_to(core, &subject, true).await.unwrap_or_default();
    if !to.is_empty() {
        // The failure is logged; a success without its report is still a success.
        let _ = send(core, &subject, &lines, to, Vec::new()).await;
    }
}

impl Subject {
    /// Collects the facts about a queued message.
    pub fn of(message: &Message, settings: &Settings) -> Subject {
        let envelope = message.envelope();
        Subject {
            id: message.id(),
            sender: envelope.sender.to_owned(),
            given_sender: envelope.given_sender.map(str::to_owned),
            envid: envelope.envid.map(str::to_owned),
            ret: if envelope.require_tls { Some(Ret::Headers) } else { message.ret() },
            smtputf8: message.smtputf8(),
            require_tls: envelope.require_tls,
            accepted: message.accepted(),
            content: message.content(),
            size: envelope.size - envelope.prefix.len() as u64,
            archive: envelope.subscribers_list().and_then(|list| {
                let permalink = permalink_in(envelope.prefix).map(str::to_owned);
                permalink.or_else(|| settings.list(list)?.settings().archive.clone())
            }),
            from_stranger: settings.is_strangers(envelope.origin),
            beginning: None,
        }
    }

    /// Returns the return path as this server received it, by which a list manager identifies the subscriber (RFC 3464
    /// section 2), never the program, mailbox or people behind it. For a sender rewritten by SRS it is the one that the
    /// client gave.
    fn return_path(&self, settings: &Settings) -> &str {
        let is_forwarders =
            |srs: &Srs| self.sender.rsplit_once('@').is_some_and(|(local, domain)| srs.is_ours(local, domain));
        let given = self.given_sender.as_deref().filter(|given| !given.is_empty());
        given.filter(|_| settings.rules.addresses.srs.as_ref().is_some_and(is_forwarders)).unwrap_or(&self.sender)
    }
}

/// Returns the content of the DSN, and whether it has a reader. `None` if the message is gone.
fn gather(
    core: &Arc<Core>,
    settings: &Settings,
    no: MessageNo,
    failures: &[FailedRcpt],
) -> Option<(Subject, Vec<DsnRcpt>, bool)> {
    core.with(|hub, now| {
        let message = hub.store.message(no)?;
        let mut subject = Subject::of(message, settings);
        let bounces = hub.sched.bounces();
        let is_closed =
            message.list().is_some_and(|list| bounces.reason_of_list(message.senders(), list, now).is_some());
        let reported = !subject.sender.is_empty() && !message.is_report() && !is_closed;
        if let Some(path) = failed_path(settings, message, &hub.store.book, failures) {
            subject.sender = path;
        }
        let wants = |notify: Option<u8>| notify.is_none_or(|notify| notify & FAILURE != 0);
        let is_archive = message.envelope().is_archive;
        let lines = failures
            .iter()
            .map(|failure| (failure, message.params(failure.id)))
            .filter(|(_, params)| wants(params.and_then(|params| params.notify)))
            .map(|(failure, params)| DsnRcpt {
                address: told(settings, &hub.store.book, failure.id),
                orcpt: params.and_then(|params| params.orcpt.clone()),
                action: DsnAction::Failed,
                status: status(failure),
                host: failure.host.clone(),
                diagnostic: (failure.code > 0).then(|| failure.reply()),
                reason: if is_archive { Some(of_archive(reason(failure))) } else { reason(failure) },
                until: None,
            })
            .collect();
        Some((subject, lines, reported))
    })
}

/// Returns a recipient as the sender may know it: for a program or file, its alias (RFC 3464 section 2.3.2).
pub(super) fn told(settings: &Settings, book: &AddressBook, id: AddressId) -> String {
    let (entry, address) = (book.entry(id), book.text(id));
    let hop = Route::of_entry(entry, address).hop;
    let (local, domain) = address.rsplit_once('@').unwrap_or((address, ""));
    match untagged(local) {
        Some((alias, _)) if hop.is_some() && hop == settings.program() => format!("{alias}@{domain}"),
        _ => address.to_owned(),
    }
}

fn status(failure: &FailedRcpt) -> Enhanced {
    let dsn = failure.dsn;
    // A report of failure has a permanent status (RFC 3464 section 2.3.4): 5.4.7 is "delivery time expired".
    if failure.expired && dsn.class != 5 { Enhanced::new(5, 4, 7) } else { dsn }
}

/// Describes the reason if no host's reply does: the operator's text, the DNS error, or the extension that no host
/// supports.
fn reason(failure: &FailedRcpt) -> Option<String> {
    const EXPIRED: &str = "it could not be delivered within the time allowed";
    let own = Some(&*failure.text).filter(|text| failure.code == 0 && !text.is_empty());
    match (failure.expired, own) {
        (true, Some(own)) => Some(format!("{EXPIRED}; last: {own}")),
        (true, None) => Some(EXPIRED.to_owned()),
        (false, own) => own.map(str::to_owned),
    }
}

/// Adds to a reason that the recipient is an archive.
fn of_archive(reason: Option<String>) -> String {
    reason.map_or_else(|| ARCHIVE.to_owned(), |reason| format!("{reason}; {ARCHIVE}"))
}

/// Returns the recipients of a DSN, if one is to be sent: the readers of the sender's mail (for a list's bounce
/// address, the list's owner).
///
/// # Errors
/// A table needed for that cannot be asked.
pub(super) async fn report_to(
    core: &Arc<Core>,
    subject: &Subject,
    reported: bool,
) -> Result<Vec<EnvelopeRcpt>, IntakeRefusal> {
    let settings = core.settings();
    let sender = match Address::parse(subject.sender.as_bytes(), true) {
        Ok(sender) if reported => sender,
        _ => return Ok(Vec::new()),
    };
    let people = settings.people(&sender, core.clock.now()).await?;
    if people.is_empty() {
        tracing::info!(
            message = %subject.id, return_path = %printable(sender.as_str(), ADDRESS_CHARS_MAX),
            "no DSN sent: nobody receives mail for the return path; set the list's `owner` to get its reports"
        );
    }
    Ok(people)
}

/// Builds the DSN for `to` (never empty) and passes it to the committer together with the fates that it reports.
///
/// # Errors
/// The DSN is not stored, and no fate is recorded.
pub(super) async fn send(
    core: &Arc<Core>,
    subject: &Subject,
    lines: &[DsnRcpt],
    to: Vec<EnvelopeRcpt>,
    fate_records: Vec<FateRecord>,
) -> Result<(), IntakeRefusal> {
    // The semaphore is never closed.
    let _place = core.reports.acquire().await;
    let (id, content, now) = (core.next_message_id(), core.next_content_id(), core.clock.now());
    let settings = core.settings();
    let hostname = &settings.config.hostname;
    let (original, is_whole) = original(core, subject);
    let (date, arrival) = (format_date(now), format_date(subject.accepted));
    let bare_id = format!("{id}.report@{hostname}");
    let message_id = format!("<{bare_id}>");
    // The same for all recipients: it follows from the acceptance.
    let until = lines.iter().find_map(|line| line.until).map(format_date);
    let rcpts: Vec<ReportRcpt<'_>> = lines
        .iter()
        .map(|line| ReportRcpt {
            address: &line.address,
            orcpt: line.orcpt.as_deref(),
            action: line.action,
            status: line.status,
            // A socket of this machine has no DNS name.
            remote_mta: line.host.as_deref().filter(|host| !host.starts_with("unix:")),
            diagnostic: line.diagnostic.as_deref(),
            reason: line.reason.as_deref(),
            last_attempt: Some(&date),
            will_retry_until: until.as_deref(),
        })
        .collect();
    let report = dsn::build(&Dsn {
        hostname,
        to: subject.return_path(&settings),
        date: &date,
        message_id: &bare_id,
        queue_id: &subject.id.to_string(),
        arrival: Some(&arrival),
        envid: subject.envid.as_deref(),
        received_from: None,
        rcpts: &rcpts,
        original: &original,
        original_whole: is_whole,
        ret: subject.ret.unwrap_or(Ret::Headers),
        archive: subject.archive.as_deref(),
        smtputf8: subject.smtputf8,
    });
    // Mail from the null sender also goes to hosts without REQUIRETLS, rather than be lost (section 5): its site is the
    // usual one.
    let (eight_bit, require_tls) = (!report.is_ascii(), subject.require_tls);
    let prefix = delivered_to(&settings, &subject.sender, &to);
    let envelope =
        NewEnvelope { prefix, eight_bit, require_tls, ..NewEnvelope::own(to, message_id, "delivery report") };
    let stored = hand_in(core, MessageIds { message: id, content }, report, envelope, fate_records).await;
    if let Err(refused) = stored {
        tracing::warn!(message = %subject.id, %refused, "a DSN could not be stored; its recipients remain pending");
    }
    stored
}

/// Returns a Delivered-To field for a report to an alias or virtual user, as other mail gets. It tells the alias's
/// people why they got the report, tells its programs who ran them, and reveals loops. There is none if the address
/// itself is among the recipients: its mailbox adds the field.
fn delivered_to(settings: &Settings, sender: &str, to: &[EnvelopeRcpt]) -> Vec<u8> {
    let Ok(sender) = Address::parse(sender.as_bytes(), true) else { return Vec::new() };
    let is_bounces = matches!(settings.policy.rcpt(Ipv4Addr::LOCALHOST.into(), &sender), AddressClass::Bounces(_));
    let is_among = to.iter().any(|to| to.address.as_str().eq_ignore_ascii_case(sender.as_str()));
    if is_bounces || is_among { Vec::new() } else { delivered_to_field(&sender) }
}

/// Returns the original, or its beginning, for the report's last part, and whether that is all of it. If the content
/// cannot be read the part stays empty: the report matters more than the copy.
fn original(core: &Core, subject: &Subject) -> (Vec<u8>, bool) {
    let wanted = match subject.ret {
        Some(Ret::Full) if subject.size <= dsn::ORIGINAL_BYTES_MAX as u64 => subject.size as usize,
        _ => subject.size.min(dsn::ORIGINAL_HEADER_BYTES_MAX as u64) as usize,
    };
    if let Some(beginning) = &subject.beginning {
        return (beginning[..wanted.min(beginning.len())].to_vec(), beginning.len() as u64 == subject.size);
    }
    let mut bytes = vec![0; wanted];
    let mut filled = 0;
    while filled < wanted {
        match core.reader.read_at(subject.content.0, filled as u64, &mut bytes[filled..]) {
            Ok(n) if n > 0 => filled += n,
            _ => break,
        }
    }
    bytes.truncate(filled);
    if subject.from_stranger {
        return (dsn::essential_header(&bytes), false);
    }
    (bytes, filled as u64 == subject.size)
}
