//! Recipients of a submission that are refused permanently, or for the whole lifetime of mail: a delivery status
//! notification to the sender.
//!
//! The program has already exited with 0, so this is the only way to report them. Recipients with NOTIFY=NEVER or
//! without FAILURE are not reported.

use std::sync::Arc;

use stentor_core::envelope::{EnvelopeRcpt, NewEnvelope};
use stentor_core::own::{MessageIds, hand_in};
use stentor_core::{Core, intake};
use stentor_mail::address::Address;
use stentor_mail::dsn::{self, Dsn, DsnAction, ReportRcpt, Ret, format_date};
use stentor_mail::reply::{Enhanced, Reply};
use stentor_queue::ids::MessageId;
use stentor_smtp::server::{Notify, RcptTo};

use super::file::OpenSubmission;

/// A refused recipient, with the reply.
pub(super) struct SubmissionRefusal {
    /// Its index in the envelope.
    pub at: usize,
    pub address: String,
    pub notify: Option<Notify>,
    pub orcpt: Option<String>,
    pub reply: Reply,
    /// The reply is temporary, but the lifetime has ended.
    pub is_expired: bool,
}

/// A recipient of the envelope that is offered to the server.
pub(super) struct OfferedRcpt {
    /// Its index in the envelope.
    pub at: usize,
    pub rcpt: RcptTo,
}

impl SubmissionRefusal {
    pub fn of(offered: &OfferedRcpt, reply: Reply) -> SubmissionRefusal {
        let RcptTo { address, notify, orcpt } = offered.rcpt.clone();
        SubmissionRefusal {
            at: offered.at,
            address: address.as_str().to_owned(),
            notify,
            orcpt,
            reply,
            is_expired: false,
        }
    }

    pub fn expired(self) -> SubmissionRefusal {
        SubmissionRefusal { is_expired: true, ..self }
    }

    pub fn is_wanted(&self) -> bool {
        self.notify.is_none_or(|notify| notify.contains(Notify::FAILURE))
    }
}

/// The submission that a report is about.
pub(super) struct Subject<'a> {
    pub id: MessageId,
    pub sender: &'a Address,
    /// Readers of the sender's mail; never empty.
    pub readers: Vec<EnvelopeRcpt>,
    pub opened: &'a OpenSubmission,
}

/// Makes a report durable, under its queue id.
///
/// # Errors
/// The report is not stored.
pub(super) async fn report(
    core: &Arc<Core>,
    subject: &Subject<'_>,
    part: &[&SubmissionRefusal],
    id: MessageId,
) -> Result<(), intake::IntakeRefusal> {
    // The semaphore is never closed.
    let _place = core.reports.acquire().await;
    let (content, now) = (core.next_content_id(), core.clock.now());
    let settings = core.settings();
    let hostname = &settings.config.hostname;
    let envelope = &subject.opened.envelope;
    let ret = envelope.ret.unwrap_or(Ret::Headers);
    let (original, is_whole) = original(subject.opened, ret);
    let (date, arrival) = (format_date(now), format_date(envelope.at));
    let bare_id = format!("{id}.report@{hostname}");
    let texts: Vec<String> = part.iter().map(|refused| refused.reply.to_string()).collect();
    let rcpts: Vec<ReportRcpt<'_>> =
        part.iter().zip(&texts).map(|(refused, text)| recipient(refused, text, &date)).collect();
    let report = dsn::build(&Dsn {
        hostname,
        to: subject.sender.as_str(),
        date: &date,
        message_id: &bare_id,
        queue_id: &subject.id.to_string(),
        arrival: Some(&arrival),
        envid: envelope.envid.as_deref(),
        received_from: None,
        rcpts: &rcpts,
        original: &original,
        original_whole: is_whole,
        ret,
        archive: None,
        smtputf8: !original.is_ascii(),
    });
    let own = NewEnvelope::own(subject.readers.clone(), format!("<{bare_id}>"), "delivery report");
    let own = NewEnvelope { eight_bit: !report.is_ascii(), ..own };
    hand_in(core, MessageIds { message: id, content }, report, own, Vec::new()).await
}

fn recipient<'a>(refused: &'a SubmissionRefusal, text: &'a str, date: &'a str) -> ReportRcpt<'a> {
    ReportRcpt {
        address: &refused.address,
        orcpt: refused.orcpt.as_deref(),
        action: DsnAction::Failed,
        // A report of failure has a permanent status (RFC 3464 section 2.3.4): 5.4.7 is "delivery time expired".
        status: if refused.is_expired {
            Enhanced::new(5, 4, 7)
        } else {
            refused.reply.enhanced.unwrap_or(Enhanced::new(5, 0, 0))
        },
        remote_mta: None,
        diagnostic: Some(text),
        reason: refused.is_expired.then_some("it could not be queued within the time allowed"),
        last_attempt: Some(date),
        will_retry_until: None,
    }
}

/// Returns the message or its beginning with CRLF line ends, and whether that is all of it. Unreadable parts are left
/// out.
fn original(opened: &OpenSubmission, ret: Ret) -> (Vec<u8>, bool) {
    let max = match ret {
        Ret::Full if opened.head.message <= dsn::ORIGINAL_BYTES_MAX as u64 => dsn::ORIGINAL_BYTES_MAX,
        _ => dsn::ORIGINAL_HEADER_BYTES_MAX,
    };
    let wanted = opened.head.message.min(max as u64) as usize;
    let mut bytes = vec![0; wanted];
    if opened.read(&mut bytes, 0).is_err() {
        return (Vec::new(), false);
    }
    let mut lines = Vec::with_capacity(bytes.len() + bytes.len() / 16);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let whole = line.strip_suffix(b"\n");
        lines.extend_from_slice(whole.unwrap_or(line));
        if whole.is_some() {
            lines.extend_from_slice(b"\r\n");
        }
    }
    (lines, wanted as u64 == opened.head.message)
}
