//! The queue as envelopes, a few hundred recipients at a time: nothing is buffered beyond what the peer has read.

use std::sync::Arc;

use stentor_control::format::plural;
use stentor_control::protocol::EXPORTED_PER_LINE_MAX;
use stentor_control::reply::ExportedRecipient;
use stentor_control::{ActionResult, ControlReply, EnvelopeView, Selection};
use stentor_core::Core;
use stentor_core::hub::Hub;
use stentor_mail::dsn::Ret;
use stentor_queue::event::MessageIdAt;
use stentor_queue::ids::{AddressId, ContentId, MessageId, Ms};
use tokio::sync::mpsc;

use super::subject::{still_queued, with_subject};
use super::walk::{SelectedRecipients, Walk};
use crate::report;
use crate::views::{message_fates, recipient};

/// Sends the selected envelopes to `lines`; stops early if the receiver is dropped.
pub async fn export(core: &Arc<Core>, selection: &Selection, lines: mpsc::Sender<Vec<EnvelopeView>>) -> ControlReply {
    let mut walk = match Walk::begin(core, selection, false) {
        Ok(walk) => walk,
        Err(problem) => return ControlReply::Error(problem),
    };
    let (mut messages, mut recipients) = (0, 0);
    loop {
        let (mut found, is_last) = core.with(|hub, _| walk.step(hub, EXPORTED_PER_LINE_MAX));
        if let Some(text) = &selection.subject {
            found = with_subject(core, text, found).await;
        }
        let ids: Vec<MessageId> = found.iter().map(|found| found.id).collect();
        let headings = report::headings(core, &ids).await;
        let group = core.with(|hub, now| {
            let found = found.into_iter().zip(headings);
            let there = |(found, heading)| Some((still_queued(hub, vec![found]).pop()?, heading));
            let found: Vec<_> = found.filter_map(there).collect();
            found
                .iter()
                .filter_map(|(found, heading)| Some((envelope(hub, found, now)?, heading.clone())))
                .collect::<Vec<_>>()
        });
        let mut views = Vec::with_capacity(group.len());
        for ((mut envelope, message_id), heading) in group {
            if let Some((content, at)) = message_id {
                envelope.message_id = core.message_id(content, at);
            }
            envelope.subject = heading.map(|heading| heading.subject.clone());
            messages += u64::from(!envelope.continued);
            recipients += envelope.recipients.len() as u64;
            views.push(envelope);
        }
        if !views.is_empty() && lines.send(views).await.is_err() {
            break;
        }
        if is_last {
            break;
        }
        tokio::task::yield_now().await;
    }
    ControlReply::Counted(Box::new(ActionResult {
        text: format!("{} of {}", plural(recipients, "recipient"), plural(messages, "message")),
        count: Some(recipients),
        messages: Some(messages),
        ..ActionResult::default()
    }))
}

/// An envelope; if a place is returned, its Message-ID must still be read there.
fn envelope(
    hub: &Hub,
    found: &SelectedRecipients,
    now: Ms,
) -> Option<(EnvelopeView, Option<(ContentId, MessageIdAt)>)> {
    let message = hub.store.message(found.no)?;
    let envelope = message.envelope();
    let ret = message.ret().map(|ret| if ret == Ret::Full { "full" } else { "headers" });
    let recipients = found.ids.iter().map(AddressId).map(|id| {
        let params = message.params(id);
        ExportedRecipient {
            state: recipient(hub, found.no, id, now),
            notify: params.and_then(|params| params.notify),
            orcpt: params.and_then(|params| params.orcpt.clone()),
        }
    });
    let view = EnvelopeView {
        id: found.id.to_string(),
        continued: found.continued,
        held: message.is_held(),
        sender: envelope.sender.to_owned(),
        given_sender: envelope.given_sender.map(str::to_owned),
        subject: None,
        list: envelope.list.map(str::to_owned),
        class: message.class().name().to_owned(),
        size: envelope.size,
        accepted: message.accepted(),
        origin: envelope.origin.to_owned(),
        message_id: envelope.message_id.to_owned(),
        envid: envelope.envid.map(str::to_owned),
        ret: ret.map(str::to_owned),
        eight_bit: message.eight_bit(),
        smtputf8: message.smtputf8(),
        is_report: message.is_report(),
        fates: message_fates(message),
        recipients: recipients.collect(),
    };
    Some((view, envelope.message_id_at.map(|at| (message.content(), at))))
}
