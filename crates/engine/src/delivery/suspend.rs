//! Carries out `Effect::Suspend`: a subscriber whom post after post is refused for good gets no more of the list, and its
//! owner is told.
//!
//! Promise: the suspension is durable, with an audit record, before anybody is told of it; it holds for posts accepted from
//! then on and ends with `stentor resume --list NAME --subscriber ADDRESS`. The subscribers file is not touched: it is the
//! operator's. A crash between suspension and notice leaves the notice out; `stentor status` names who is suspended.

use std::sync::Arc;

use serde_json::json;
use stentor_mail::dsn::format_date;
use stentor_queue::event::{Class, RcptParams};
use stentor_queue::ids::Ms;
use stentor_stats::escape::printable;
use tokio::sync::oneshot;

use crate::core::Core;
use crate::core::audit::Audit;
use crate::core::envelope::{NewEnvelope, Recipients, Taken};
use crate::core::intake::{Job, Refused};
use crate::core::own::hand_in;
use crate::core::verb::{Change, VerbJob};

/// Characters of a host's reply in the notice.
const REPLY_CHARS_MAX: usize = 500;

pub async fn subscriber(core: Arc<Core>, list: Arc<str>, address: String, posts: u32, since: Ms, text: Arc<str>) {
    if address.is_empty() {
        return; // nobody's id any more: the last post that named it is done with
    }
    let (now, since) = (core.clock.now(), format_date(since));
    let detail = json!({"list": &*list, "subscriber": address, "posts": posts, "since": since, "reply": &*text});
    let audit = Audit { at: now, who: "stentor".to_owned(), verb: "suspend", detail: detail.to_string() };
    let change = Change::Suspend { suspended: true, what: format!("subscriber:{list}:{address}") };
    let (answer, ticket) = oneshot::channel();
    core.intake.push(Job::Verb { job: Box::new(VerbJob { audit, change }), answer });
    if let Err(refused) = ticket.await.unwrap_or(Err(Refused::Stopping)) {
        // Its count begins anew.
        tracing::warn!(list = %list, subscriber = address, %refused, "a subscriber could not be suspended");
        return;
    }
    tracing::info!(list = %list, subscriber = address, posts, "a subscriber is suspended");
    tell(&core, &list, &address, posts, &since, &text).await;
}

async fn tell(core: &Arc<Core>, list: &str, address: &str, posts: u32, since: &str, text: &str) {
    let settings = core.settings();
    let owners = settings.owners(list);
    if owners.is_empty() {
        return;
    }
    let (id, content, now) = (core.next_message_id(), core.next_content_id(), core.clock.now());
    let (hostname, date) = (&settings.config.hostname, format_date(now));
    let (reply, to) = (printable(text, REPLY_CHARS_MAX), owners[0].as_str().to_owned());
    let times = if posts == 1 { "post" } else { "posts in a row" };
    let body = format!(
        "Date: {date}\r\nFrom: Mail Delivery System <MAILER-DAEMON@{hostname}>\r\nTo: <{to}>\r\n\
         Subject: {list}: a subscriber is suspended\r\nMessage-ID: <{id}.suspended@{hostname}>\r\n\
         Auto-Submitted: auto-generated\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Transfer-Encoding: 8bit\r\n\r\n\
         The subscriber\r\n\r\n    {address}\r\n\r\nof the list {list} gets no more posts: {posts} {times} were refused for good\r\n\
         since {since}. The last answer was\r\n\r\n    {reply}\r\n\r\n\
         Once the mailbox takes mail again, this ends the suspension:\r\n\r\n    \
         stentor resume --list {list} --subscriber '{address}'\r\n"
    )
    .into_bytes();
    let envelope = NewEnvelope {
        sender: String::new(),
        class: Class::Ordinary,
        list: None,
        recipients: Recipients::Addresses(owners.into_iter().map(|to| (to, RcptParams::default())).collect()),
        prefix: Vec::new(),
        eight_bit: !body.is_ascii(),
        smtputf8: !to.is_ascii(),
        ret: None,
        envid: None,
        origin: "local".to_owned(),
        message_id_at: None,
        message_id: format!("<{id}.suspended@{hostname}>"),
        is_report: true,
        taken: Taken::local("note to an owner"),
    };
    if hand_in(core, (id, content), body, envelope, Vec::new()).await.is_err() {
        tracing::warn!(list, "the notice of a suspension could not be stored");
    }
}
