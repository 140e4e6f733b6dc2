//! listmonk's bounce API, `POST /webhooks/bounce` (<https://listmonk.app/docs/bounces/>): one recipient in each
//! request.
//!
//! listmonk blocklists subscribers by what it gets here. So only faults of the person are sent, by the cause that the
//! rules of bounces name: `hard` if it is permanent, `soft` for a full mailbox or a recipient that expired; and
//! complaints. Failures because of our reputation, content, rate or TLS, those of hosts, and replies without a rule are
//! not sent, nor are reports that came back by mail and are not proven: anybody can send those.

use serde_json::{Value, json};
use stentor_bounces::note::{ReportNote, ReportProof};
use stentor_bounces::{BounceCause, BounceReply, BounceRules, ReportAction};
use stentor_config::{Kind, WebhookConfig};
use stentor_history::Position;
use stentor_mail::reply::Enhanced;
use stentor_records::record::{Attempt, Record, Stat, domain};

use super::event::{id, is_of, proven_sender, report};

/// Name of this server in listmonk's list of bounces.
const SOURCE: &str = "stentor";
/// Length of a UUID as text (RFC 9562 section 4).
const UUID_CHARS: usize = 36;

/// Kind of a bounce in listmonk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BounceType {
    Hard,
    Soft,
    Complaint,
}

impl BounceType {
    fn name(self) -> &'static str {
        match self {
            BounceType::Hard => "hard",
            BounceType::Soft => "soft",
            BounceType::Complaint => "complaint",
        }
    }

    /// `is_final`: a host said that the failure is permanent. `None`: it is not the person's.
    fn of(cause: BounceCause, is_final: bool) -> Option<BounceType> {
        let is_soft = cause == BounceCause::Full || !is_final;
        cause.counts_against_person().then_some(if is_soft { BounceType::Soft } else { BounceType::Hard })
    }
}

/// The event of a record, with the request's body in `body`; `next` is the position after the record.
pub(super) fn event(config: &WebhookConfig, rules: &BounceRules, record: &Record<'_>, next: Position) -> Option<Value> {
    match record {
        Record::Attempt(attempt) => of_attempt(config, rules, attempt, next),
        Record::Note(note) => {
            let report = report(config, note)?;
            let kind = of_report(&report)?;
            let mut body = json!({"email": report.recipient, "source": SOURCE, "type": kind.name()});
            if is_uuid(&report.campaign) {
                body["campaign_uuid"] = (&*report.campaign).into();
            }
            let meta = json!({
                "id": id(note.at, next), "at": note.at, "message": note.id, "message_id": report.post,
                "cause": report.cause, "dsn": report.dsn, "reply": report.text,
            });
            Some(with_meta(body, &meta))
        }
        _ => None,
    }
}

/// Returns the event of a recipient that was given up. Such records name one recipient each
/// (`GivenUpRcpts` in `core::log`), and no further record of the recipient follows.
fn of_attempt(config: &WebhookConfig, rules: &BounceRules, attempt: &Attempt<'_>, next: Position) -> Option<Value> {
    let kind = match attempt.stat {
        Stat::Bounced => Kind::Bounced,
        Stat::Expired => Kind::Expired,
        _ => return None,
    };
    let is_wanted = config.events.contains(&kind) && is_of(config, attempt.list, domain(proven_sender(attempt)));
    if attempt.is_of_stranger || !is_wanted || !attempt.is_given_up() {
        return None;
    }
    let [recipient] = &*attempt.to else { return None };
    let enhanced = Enhanced::parse(attempt.dsn).filter(|enhanced| enhanced.class != 2);
    let reply = BounceReply { text: attempt.reply, code: None, enhanced, host: domain(recipient) };
    let cause = rules.classify(&reply).cause;
    let kind = BounceType::of(cause, kind == Kind::Bounced)?;
    let meta = json!({
        "id": id(attempt.at, next), "at": attempt.at, "message": attempt.id, "cause": cause, "dsn": attempt.dsn,
        "reply": attempt.reply,
    });
    Some(with_meta(json!({"email": recipient, "source": SOURCE, "type": kind.name()}), &meta))
}

fn of_report(report: &ReportNote<'_>) -> Option<BounceType> {
    // listmonk counts each request; a repeated complaint is no further one.
    if report.proof != ReportProof::Proven || report.recipient.is_empty() {
        return None;
    }
    if report.is_complaint() {
        return Some(BounceType::Complaint);
    }
    let cause = BounceCause::named(report.cause)?;
    let is_failed = report.action == ReportAction::Failed.name();
    // RFC 3463 section 2: class 4 is persistent but temporary.
    is_failed.then(|| BounceType::of(cause, !report.dsn.starts_with('4')))?
}

/// listmonk documents `meta` as JSON in a string.
fn with_meta(mut body: Value, meta: &Value) -> Value {
    body["meta"] = meta.to_string().into();
    json!({"id": meta["id"], "message": meta["message"], "body": body})
}

/// listmonk would record no bounce for a campaign that is not a UUID.
fn is_uuid(text: &str) -> bool {
    let is_valid = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    text.len() == UUID_CHARS && text.bytes().enumerate().all(is_valid)
}
