//! One message: its envelope, waiting recipients and reasons, and the operator's actions on it.

use axum::extract::{Path, State};
use axum::response::Response;
use maud::{Markup, html};
use stentor_admin::report;
use stentor_control::problem::Problem;
use stentor_control::{Control, ErrorCode, Fates, MessageView, RecipientState, RecipientView, Reply, Request};

use super::act::{self, Button};
use super::format::{ago, bytes, instant, next_try, number, percent, plural, recipient_link, sender, shown, site_link};
use super::page::Frame;
use super::{posts, story};
use crate::Http;

/// Pending recipients that are shown; all are counted.
const RECIPIENTS_SHOWN: u32 = 200;

/// `GET /messages/ID`
pub async fn page(State(http): State<Http>, Path(id): Path<String>, frame: Frame) -> Response {
    let Ok(known) = id.parse() else {
        return frame.problem("/queue", &Problem::new(ErrorCode::BadRequest, format!("{id:?} is not a queue id")));
    };
    let request = Request::QueueShow { id: known, recipients_max: RECIPIENTS_SHOWN };
    let view = match http.operator.handle(request, act::reader()).await {
        Reply::Message(view) => view,
        Reply::Error(problem) => return gone(&http, &frame, &id, &problem).await,
        _ => return frame.problem("/queue", &Problem::new(ErrorCode::Failed, "unexpected answer")),
    };
    let post = report::post(&http.core, known).await;
    let main = html! {
        div.head {
            h1 { "Message " span.mono { (view.id) } }
            @if view.held { span.badge.warn { "held" } }
            @if view.class == "bulk" { span.badge { "bulk" } }
        }
        (progress(&view.fates))
        @if let Some(post) = &post { (posts::panel(post)) }
        div.pair {
            section.panel aria-labelledby="envelope" { h2 #envelope { "Envelope" } (envelope(&view)) }
            section.panel aria-labelledby="fates" { h2 #fates { "Recipients" } (fates(&view.fates)) }
        }
        (verbs(&frame, &view))
        section.panel aria-labelledby="pending" {
            h2 #pending { "Recipients waiting" }
            @if view.recipients.is_empty() { p.empty { "Nobody." } } @else {
                (waiting(&view.recipients, view.now))
                @let more = view.fates.pending.saturating_sub(view.recipients.len() as u64);
                @if more > 0 { p.quiet { "and " (plural(more, "more recipient")) } }
            }
        }
        (story::panel(http.past.story(&http.core, &view.id).await, false))
    };
    frame.page("/queue", &format!("Message {}", view.id), &main)
}

/// A message that is not queued any more, if the history knows it.
async fn gone(http: &Http, frame: &Frame, id: &str, problem: &Problem) -> Response {
    let story = http.past.story(&http.core, id).await;
    let post = match id.parse() {
        Ok(known) => report::post(&http.core, known).await,
        Err(_) => None,
    };
    if problem.code != ErrorCode::NotFound
        || (post.is_none() && !matches!(&story, Ok((entries, _)) if !entries.is_empty()))
    {
        return frame.problem("/queue", problem);
    }
    let main = html! {
        div.head { h1 { "Message " span.mono { (id) } } span.badge.good { "finished" } }
        @if let Some(post) = &post { (posts::panel(post)) }
        (story::panel(story, false))
    };
    frame.page("/queue", &format!("Message {id}"), &main)
}

/// How far it is, in words and as a bar.
pub fn progress(fates: &Fates) -> Markup {
    let done = fates.acknowledged - fates.pending;
    html! {
        div.panel {
            p { strong { (percent(done, fates.acknowledged)) } " done: " (number(done)) " of " (plural(fates.acknowledged, "recipient")) }
            progress max=(fates.acknowledged.max(1)) value=(done) aria-label="Recipients finished" {}
        }
    }
}

fn envelope(view: &MessageView) -> Markup {
    html! {
        dl.facts {
            dt { "Sender" } dd { (sender(&view.sender)) }
            @if let Some(list) = &view.list { dt { "List" } dd { (shown(list)) } }
            dt { "Message-ID" } dd.mono { (shown(&view.message_id)) }
            dt { "Accepted" } dd { (instant(view.accepted)) " (" (ago(view.accepted, view.now)) ")" }
            dt { "From" } dd { (shown(&view.origin)) }
            dt { "Size" } dd { (bytes(view.size)) }
            @if let Some(expires) = view.expires { dt { "Given up" } dd { (next_try(Some(expires), view.now)) } }
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
        Button { verb: "release", label: "Release", is_sure: true }
    } else {
        Button { verb: "hold", label: "Hold", is_sure: true }
    };
    let buttons = [
        pause,
        Button { verb: "requeue", label: "Try all now", is_sure: true },
        Button { verb: "bounce", label: "Return to sender", is_sure: false },
        Button { verb: "remove", label: "Remove", is_sure: false },
    ];
    act::panel(frame, "This message", &id, &buttons)
}

/// Pending recipients: where each is, when it is tried next, what was said last.
pub fn waiting(rows: &[RecipientView], now: u64) -> Markup {
    html! {
        div.scroll role="region" aria-labelledby="pending" tabindex="0" {
            table {
                caption { "Pending recipients, next try and last reply" }
                thead { tr {
                    th.long scope="col" { "Recipient" }
                    th scope="col" { "State" }
                    th.t scope="col" { "Next try" }
                    th.wide scope="col" { "Site" }
                    th.reply scope="col" { "Last reply" }
                } }
                tbody {
                    @for row in rows {
                        tr {
                            th.long scope="row" { (recipient_link(&row.address)) }
                            td { (state(row.state)) }
                            td.t { (next_try(row.next_try, now)) }
                            td.wide { (site_link(&row.site)) }
                            td.reply { (shown(&row.last_reply)) }
                        }
                    }
                }
            }
        }
    }
}

pub fn state(state: RecipientState) -> Markup {
    html! {
        @match state {
            RecipientState::Waiting => span.badge { "waiting" },
            RecipientState::InFlight => span.badge.busy { "being delivered" },
            RecipientState::Deferred => span.badge.warn { "deferred" },
            RecipientState::Held => span.badge.warn { "held" },
            RecipientState::Other => span.badge { "other" },
        }
    }
}
