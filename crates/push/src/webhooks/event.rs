//! The payload of an endpoint: events built from the history's records, and the signature of a batch.

use hmac::{Hmac, KeyInit, Mac};
use serde::Serialize;
use serde_json::{Value, json};
use sha2::Sha256;
use stentor_bounces::note::{ReportNote, ReportProof};
use stentor_config::keys::hex;
use stentor_config::{Kind, WebhookConfig};
use stentor_history::Position;
use stentor_records::health::read_note;
use stentor_records::record::{Attempt, Note, Record, Stat, Topic, domain};

/// The kind of event for an attempt.
fn kind(stat: Stat) -> Kind {
    match stat {
        Stat::Sent => Kind::Delivered,
        Stat::Deferred => Kind::Deferred,
        Stat::Bounced => Kind::Bounced,
        Stat::Expired => Kind::Expired,
        Stat::Removed => Kind::Removed,
        Stat::Coalesced => Kind::Coalesced,
        Stat::Quarantined => Kind::Quarantined,
        Stat::Released => Kind::Released,
    }
}

/// The event for a health condition that began or ended.
fn health(config: &WebhookConfig, note: &Note<'_>, next: Position) -> Option<Value> {
    let (severity, condition, text) =
        read_note(note.text).filter(|_| note.topic == Topic::Server && config.events.contains(&Kind::Health))?;
    Some(json!({
        "id": id(note.at, next), "type": Kind::Health, "at": note.at, "severity": severity, "condition": condition, "text": text,
    }))
}

/// Whether the endpoint selected the mail of this list and sender domain.
pub(super) fn is_of(config: &WebhookConfig, list: &str, sender_domain: &str) -> bool {
    let is_any = config.lists.is_empty() && config.senders.is_empty();
    is_any
        || config.lists.iter().any(|own| own == list)
        || config.senders.iter().any(|own| own.eq_ignore_ascii_case(sender_domain))
}

/// The envelope sender; empty if anybody may have written it, so that nobody can make events for another's endpoint.
pub(super) fn proven_sender<'a>(attempt: &Attempt<'a>) -> &'a str {
    if attempt.is_of_stranger { "" } else { attempt.from }
}

/// The report in a note, if the endpoint selected such mail.
pub(super) fn report<'n>(config: &WebhookConfig, note: &'n Note<'_>) -> Option<ReportNote<'n>> {
    if note.topic != Topic::Policy || !config.events.contains(&Kind::Report) {
        return None;
    }
    ReportNote::read(note.text).filter(|report| is_of(config, &report.list, &report.sender_domain))
}

/// The id of an event from the record before `next`; the same if it is sent again.
pub(super) fn id(at: u64, next: Position) -> String {
    format!("{}-{at}", next.record.saturating_sub(1))
}

/// The event for a note.
fn of_note(config: &WebhookConfig, note: &Note<'_>, next: Position) -> Option<Value> {
    let Some(report) = report(config, note) else { return health(config, note, next) };
    let is_known = |text: &&str| !text.is_empty();
    let mut event = json!({
        "id": id(note.at, next), "type": Kind::Report, "at": note.at, "message": note.id, "sender": report.sender,
        "recipients": [report.recipient], "kind": if report.is_complaint() { "complaint" } else { "bounce" },
        "action": report.action, "cause": report.cause, "proven": report.proof != ReportProof::Unproven,
        "repeated": report.proof == ReportProof::Repeated, "confidence": report.confidence,
    });
    let post = if report.post.is_empty() { String::new() } else { format!("<{}>", report.post) };
    let others = [
        ("list", &*report.list),
        ("rule", &*report.rule),
        ("dsn", &*report.dsn),
        ("message_id", &*post),
        ("campaign", &*report.campaign),
        ("reply", report.text),
    ];
    for (name, text) in others.into_iter().filter(|(_, text)| is_known(text)) {
        event[name] = text.into();
    }
    Some(event)
}

/// One event, built from one record.
#[derive(Serialize)]
struct Event<'a> {
    /// Unchanged if the event is sent again.
    id: String,
    #[serde(rename = "type")]
    kind: Kind,
    at: u64,
    /// Queue id.
    message: &'a str,
    sender: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    list: &'a str,
    /// Only `bounced` and `expired`: this record gives the recipients up, and no other record of them follows.
    #[serde(rename = "final", skip_serializing_if = "std::ops::Not::not")]
    is_final: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    recipients: &'a [&'a str],
    #[serde(skip_serializing_if = "Option::is_none")]
    recipients_total: Option<u64>,
    #[serde(skip_serializing_if = "str::is_empty")]
    message_id: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    host: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    #[serde(skip_serializing_if = "str::is_empty")]
    dsn: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reply: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    tls: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    xdelay_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
}

/// The event of a record, if the endpoint wants it; `next` is the position after the record.
pub(super) fn event(config: &WebhookConfig, record: &Record<'_>, next: Position) -> Option<Value> {
    let (kind, list, from) = match record {
        Record::Accepted(accepted) if accepted.is_of_stranger => (Kind::Accepted, "", ""),
        Record::Accepted(accepted) => (Kind::Accepted, accepted.list, accepted.from),
        Record::Attempt(attempt) => (kind(attempt.stat), attempt.list, proven_sender(attempt)),
        Record::Refused(refused) => (Kind::Refused, "", refused.from),
        Record::Note(note) => return of_note(config, note, next),
        Record::Machine(_) => return None,
    };
    if !config.events.contains(&kind) || !is_of(config, list, domain(from)) {
        return None;
    }
    let at = record.at();
    let id = id(at, next);
    let mut event = Event {
        id,
        kind,
        at,
        message: "",
        sender: "",
        list,
        is_final: false,
        recipients: &[],
        recipients_total: None,
        message_id: "",
        host: "",
        address: None,
        dsn: "",
        reply: "",
        tls: "",
        delay_ms: None,
        xdelay_ms: None,
        size: None,
    };
    let one;
    match record {
        Record::Accepted(accepted) => {
            (event.message, event.sender) = (accepted.id, accepted.from);
            event.recipients_total = Some(accepted.recipients);
            event.message_id = accepted.message_id;
            event.address = accepted.client.map(|ip| ip.to_string());
            event.tls = accepted.tls;
            event.size = Some(accepted.size);
        }
        Record::Attempt(attempt) => {
            (event.message, event.sender) = (attempt.id, attempt.from);
            event.is_final = matches!(attempt.stat, Stat::Bounced | Stat::Expired) && attempt.is_fate_alone();
            event.recipients = &attempt.to;
            (event.host, event.address) = (attempt.host, attempt.ip.map(|ip| ip.to_string()));
            (event.dsn, event.reply, event.tls) = (attempt.dsn, attempt.reply, attempt.tls);
            (event.delay_ms, event.xdelay_ms) = (Some(attempt.delay_ms), Some(attempt.xdelay_ms));
        }
        Record::Refused(refused) => {
            one = [refused.to];
            event.sender = refused.from;
            event.recipients = if refused.to.is_empty() { &[] } else { &one };
            event.address = refused.client.map(|ip| ip.to_string());
            event.reply = refused.reply;
        }
        Record::Note(_) | Record::Machine(_) => {}
    }
    serde_json::to_value(&event).ok()
}

/// The value of `Stentor-Signature`: HMAC-SHA256 (RFC 2104) over the time, a dot and the body.
pub fn signature(secret: &str, unix_s: u64, body: &[u8]) -> String {
    // HMAC accepts keys of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.as_bytes()) else { return String::new() };
    mac.update(format!("{unix_s}.").as_bytes());
    mac.update(body);
    format!("t={unix_s},v1={}", hex(&mac.finalize().into_bytes()))
}
