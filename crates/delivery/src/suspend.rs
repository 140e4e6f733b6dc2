//! Performs `Effect::Suspend`: a subscriber whose posts bounce repeatedly gets no more of the list, and its owner is
//! notified. Also ends suspensions, standing bounces and queue-only settings when they expire.
//!
//! Promise: the suspension is durable, with an audit record, before anyone is notified. It applies to posts accepted
//! from then on, and ends with `stentor resume --list NAME --subscriber ADDRESS`. The subscribers file belongs to the
//! operator and is not changed. A crash between suspension and notice loses the notice; `stentor status` names
//! suspended subscribers.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use stentor_core::Core;
use stentor_core::audit::Audit;
use stentor_core::own::NoticeText;
use stentor_core::verb::QueueChange;
use stentor_mail::dsn::format_date;
use stentor_queue::ids::Ms;
use stentor_queue::queue_only::Scope;
use stentor_queue::standing_bounces::StandingBounce;
use stentor_records::escape::printable;

/// How often expired suspensions are looked for, and how many are ended at once.
const LOOK: Duration = Duration::from_secs(1);
const RESUMED_AT_ONCE: usize = 1_000;
/// Characters of a host's reply in the notice.
const REPLY_CHARS_MAX: usize = 500;

pub async fn subscriber(core: Arc<Core>, list: Arc<str>, address: String, posts: u32, since: Ms, text: Arc<str>) {
    if address.is_empty() {
        return; // the id has been forgotten: the last post that named it has ended
    }
    let (now, since) = (core.clock.now(), format_date(since));
    let detail = json!({"list": &*list, "subscriber": address, "posts": posts, "since": since, "reply": &*text});
    let audit = Audit { at: now, who: "stentor".to_owned(), verb: "suspend", detail: detail.to_string() };
    let what = format!("subscriber:{list}:{address}");
    let reason = format!("{} rejected with a permanent error", posts_in_words(posts));
    let change = QueueChange::Suspend { suspended: true, what, until: 0, reason };
    if let Err(refused) = core.intake.verb(audit, change).await {
        // Its count begins anew.
        tracing::warn!(list = %list, subscriber = address, %refused, "a subscriber could not be suspended");
        return;
    }
    tracing::info!(list = %list, subscriber = address, posts, "a subscriber is suspended");
    notify_owners(&core, &list, &address, posts, &since, &text).await;
}

/// Follows the configuration's queue-only windows. Ends suspensions, standing bounces and an operator's queue-only
/// settings when they expire, each durably and with an audit record, until the process ends. If the end cannot be
/// recorded, it stays in force and is tried again.
pub async fn resume_when_over(core: Arc<Core>) {
    loop {
        let (now, settings) = (core.clock.now(), core.settings());
        if !settings.config.queue_only.is_empty() {
            core.with(|hub, now| settings.give_queue_only(&mut hub.sched, now));
        }
        for what in core.with(|hub, _| hub.store.suspensions_over(now, RESUMED_AT_ONCE)) {
            // An operator may have extended it meanwhile.
            if core.with(|hub, _| hub.store.suspended_until(&what).is_none_or(|until| until > now)) {
                continue;
            }
            let detail = json!({"what": what, "end": true, "reason": "expired"}).to_string();
            let verb = match Scope::of_name(&what) {
                Some(_) => "queue_only",
                None if StandingBounce::of_name(&what).is_some() => "bounce",
                None => "resume",
            };
            let audit = Audit { at: now, who: "stentor".to_owned(), verb, detail };
            let change = QueueChange::Suspend { suspended: false, what: what.clone(), until: 0, reason: String::new() };
            match core.intake.verb(audit, change).await {
                Ok(()) => tracing::info!(what, "expired"),
                Err(refused) => {
                    tracing::warn!(what, %refused, "expired; could not record the end, will retry");
                    break;
                }
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn posts_in_words(posts: u32) -> String {
    if posts == 1 { "1 post".to_owned() } else { format!("{posts} posts in a row") }
}

async fn notify_owners(core: &Arc<Core>, list: &str, address: &str, posts: u32, since: &str, text: &str) {
    let settings = core.settings();
    let owners = match settings.owners(list, core.clock.now()).await {
        Ok(owners) if owners.is_empty() => return,
        Ok(owners) => owners,
        Err(refused) => return tracing::warn!(list, %refused, "the list owner could not be notified of a suspension"),
    };
    let reply = printable(text, REPLY_CHARS_MAX);
    let posts = posts_in_words(posts);
    let text = format!(
        "The subscriber\r\n\r\n    {address}\r\n\r\nof the list {list} no longer gets posts: {posts} were \
         rejected with a permanent\r\n\
         error since {since}. The last reply was\r\n\r\n    {reply}\r\n\r\n\
         Once the mailbox accepts mail again, end the suspension with:\r\n\r\n    \
         stentor resume --list {list} --subscriber '{address}'\r\n"
    );
    let note = NoticeText {
        to: owners,
        named: settings.list(list).and_then(|list| list.settings().owner.clone()).into_iter().collect(),
        subject: format!("{list}: subscriber suspended"),
        what: "note to the list owner",
        word: "suspended",
        text: &text,
    };
    if note.hand_in(core).await.is_err() {
        tracing::warn!(list, "the notice of a suspension could not be stored");
    }
}
