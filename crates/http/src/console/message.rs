//! One message: its envelope, waiting recipients and reasons, a page at a time, and the operator's actions on it.

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;
use stentor_admin::report;
use stentor_control::problem::Problem;
use stentor_control::{ControlReply, ErrorCode, Fates, MessageView, RecipientState, RecipientView};
use stentor_mail::heading::Heading;
use stentor_queue::ids::{AddressId, MessageId};
use stentor_records::civil::Zone;

use super::act::{self, Button};
use super::format::{ago, bytes, instant, next_try, number, percent, plural, recipient_link, sender, shown, site_link};
use super::page::Frame;
use super::table::{column, head, table};
use super::{causes, posts, story};
use crate::Http;

/// Pending recipients per page; all are counted.
const RECIPIENTS: usize = 100;

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct MessageQuery {
    /// The number of the previous page's last recipient, and how many recipients precede this page.
    after: String,
    at: String,
}

/// `GET /messages/ID`
pub async fn page(
    State(http): State<Http>,
    Path(id): Path<String>,
    Query(query): Query<MessageQuery>,
    frame: Frame,
) -> Response {
    let Ok(known) = id.parse::<MessageId>() else {
        let text = html! { code { (shown(&id)) } " is not a valid queue ID." };
        return frame.sorry(StatusCode::BAD_REQUEST, "/queue", "Invalid queue ID", &text);
    };
    // An unreadable place means the beginning.
    let after = query.after.parse().ok().map(AddressId);
    let view = match http.operator.show(known, after, RECIPIENTS).await {
        ControlReply::Message(view) => view,
        ControlReply::Error(_) if http.core.with(|hub, _| hub.store.in_quarantine(known).is_some()) => {
            return Redirect::to(&format!("/quarantine/{known}")).into_response();
        }
        ControlReply::Error(problem) => return gone(&http, &frame, &id, &problem).await,
        _ => return frame.problem("/queue", &Problem::new(ErrorCode::Failed, "unexpected answer")),
    };
    let post = report::post(&http.core, known, None, &http.zone).await;
    let heading = report::headings(&http.core, &[known]).await.pop().flatten();
    let kept = posts::kept(&http, known).await;
    let main = html! {
        div.head {
            h1 { "Message " span.mono { (view.id) } }
            @if view.held { span.badge.warn { "held" } }
            @if view.class == "bulk" { span.badge { "bulk" } }
        }
        (progress(&view.fates))
        @if let Some(post) = &post { (posts::panel(post)) }
        @if let Some(kept) = &kept { (posts::missed(&frame, kept)) }
        div.pair {
            section.panel aria-labelledby="envelope" { h2 #envelope { "Envelope" } (envelope(&view, heading.as_deref(), &http.zone)) }
            section.panel aria-labelledby="fates" { h2 #fates { "Recipients" } (fates(&view.fates)) }
        }
        (verbs(&frame, &view))
        (pending(&http, &view, query.at.parse().unwrap_or(0)))
        (story::panel(http.past.story(&http.core, &view.id).await, false, &http.zone))
    };
    frame.page("/queue", &format!("Message {}", view.id), &main)
}

/// The page of a message that has left the queue, if the history knows it.
async fn gone(http: &Http, frame: &Frame, id: &str, problem: &Problem) -> Response {
    let story = http.past.story(&http.core, id).await;
    let post = match id.parse() {
        Ok(known) => report::post(&http.core, known, None, &http.zone).await,
        Err(_) => None,
    };
    let is_known = post.is_some() || matches!(&story, Ok(story) if !story.is_empty());
    if problem.code != ErrorCode::NotFound || !is_known {
        return frame.problem("/queue", problem);
    }
    let heading = match id.parse() {
        Ok(known) => report::headings(&http.core, &[known]).await.pop().flatten(),
        Err(_) => None,
    };
    let kept = match id.parse() {
        Ok(known) => posts::kept(http, known).await,
        Err(_) => None,
    };
    let main = html! {
        div.head { h1 { "Message " span.mono { (id) } } span.badge.good { "finished" } }
        @if let Some(heading) = &heading { p { "Subject: " (posts::subject(Some(heading))) } }
        @if let Some(post) = &post { (posts::panel(post)) }
        @if let Some(kept) = &kept { (posts::missed(frame, kept)) }
        (story::panel(story, false, &http.zone))
    };
    frame.page("/queue", &format!("Message {id}"), &main)
}

/// Progress in words and as a bar.
fn progress(fates: &Fates) -> Markup {
    let done = fates.acknowledged - fates.pending;
    html! {
        div.panel {
            p { strong { (percent(done, fates.acknowledged)) } " done: " (number(done)) " of " (plural(fates.acknowledged, "recipient")) }
            progress max=(fates.acknowledged.max(1)) value=(done) aria-label="Recipients done" {}
        }
    }
}

fn envelope(view: &MessageView, heading: Option<&Heading>, zone: &Zone) -> Markup {
    html! {
        dl.facts {
            dt { "Subject" } dd { (posts::subject(heading)) }
            @if let Some(heading) = heading.filter(|heading| !heading.author.is_empty()) { dt { "From" } dd { (shown(&heading.author)) } }
            dt { "Sender" } dd { (sender(&view.sender)) }
            @if let Some(given) = &view.given_sender { dt { "Original sender" } dd { (sender(given)) } }
            @if let Some(list) = &view.list { dt { "List" } dd { (shown(list)) } }
            dt { "Message-ID" } dd.mono { (shown(&view.message_id)) }
            dt { "Accepted" } dd { (instant(view.accepted, zone)) " (" (ago(view.accepted, view.now)) ")" }
            dt { "Client" } dd { (shown(&view.origin)) }
            dt { "Size" } dd { (bytes(view.size)) }
            @if view.held { dt { "Held by" } dd { (shown(&view.held_by)) } }
            @if let Some(since) = view.held_since { dt { "Held since" } dd { (instant(since, zone)) " (" (ago(since, view.now)) ")" } }
            @if let Some(expires) = view.expires { dt { "Expires" } dd { (next_try(Some(expires), view.now)) } }
        }
    }
}

fn fates(fates: &Fates) -> Markup {
    let rows = [
        ("Delivered", fates.delivered),
        ("Waiting", fates.pending),
        ("Bounced", fates.bounced),
        ("Expired", fates.expired),
        ("Removed", fates.removed),
        ("In a digest", fates.coalesced),
    ];
    html! {
        dl.facts {
            @for (name, count) in rows { @if count > 0 || name == "Delivered" || name == "Waiting" { dt { (name) } dd { (number(count)) } } }
        }
    }
}

fn verbs(frame: &Frame, view: &MessageView) -> Markup {
    let id = [("id", view.id.as_str())];
    let pause = if view.held {
        Button { verb: "release", label: "Release", is_reversible: true }
    } else {
        Button { verb: "hold", label: "Hold", is_reversible: true }
    };
    let buttons = [
        pause,
        Button { verb: "requeue", label: "Try all now", is_reversible: true },
        Button { verb: "bounce", label: "Bounce", is_reversible: false },
        Button { verb: "remove", label: "Remove", is_reversible: false },
    ];
    act::panel(frame, "This message", &id, &buttons)
}

/// One page of its pending recipients; `at` recipients precede it.
fn pending(http: &Http, view: &MessageView, at: u64) -> Markup {
    let last = view.recipients.last().filter(|_| at + (view.recipients.len() as u64) < view.fates.pending);
    let next = last.and_then(|last| http.core.with(|hub, _| hub.store.book.lookup(&last.address)));
    let until = at + view.recipients.len() as u64;
    html! {
        section.panel aria-labelledby="pending" {
            h2 #pending { "Waiting recipients" }
            @if view.recipients.is_empty() { p.empty { @if at > 0 { "No more recipients." } @else { "None." } } } @else {
                @if at > 0 || next.is_some() { p.quiet { (number(at + 1)) " to " (number(until)) " of " (number(view.fates.pending)) } }
                (waiting(&view.recipients, view.now))
            }
            @if at > 0 || next.is_some() {
                div.pages {
                    @if at > 0 { a.button href={ "/messages/" (view.id) "#pending" } { "First page" } }
                    @if let Some(AddressId(id)) = next {
                        a.button rel="next" href={ "/messages/" (view.id) "?after=" (id) "&at=" (until) "#pending" } { "Next page" }
                    }
                }
            }
        }
    }
}

/// Pending recipients: the state, next attempt and last reply of each.
fn waiting(rows: &[RecipientView], now: u64) -> Markup {
    let columns = [
        head("Recipient", "long"),
        column("State", ""),
        column("Next try", "t"),
        column("Site", "long"),
        column("Why", "reply"),
    ];
    let row = |row: &RecipientView| {
        vec![
            recipient_link(&row.address),
            state(row.state),
            next_try(row.next_try, now),
            site_link(&row.site),
            causes::cell(&row.words, &row.last_reply),
        ]
    };
    table("Waiting recipients with next try and reason", &columns, &rows.iter().map(row).collect::<Vec<_>>(), None)
}

pub fn state(state: RecipientState) -> Markup {
    html! {
        @match state {
            RecipientState::Waiting => span.badge { "waiting" },
            RecipientState::InFlight => span.badge.busy { "in flight" },
            RecipientState::Deferred => span.badge.warn { "deferred" },
            RecipientState::Held => span.badge.warn { "held" },
            RecipientState::Suspended => span.badge.warn { "suspended" },
            RecipientState::QueueOnly => span.badge.warn { "queue-only" },
            RecipientState::Other => span.badge { "other" },
        }
    }
}
