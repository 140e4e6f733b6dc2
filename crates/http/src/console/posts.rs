//! Posts: progress and speed of each, newest first; each post's page can hold, release or remove it.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use stentor_admin::report;
use stentor_control::{FailedRcptView, PostOptions, PostRcptView, PostReport, PostState, PostView, View, WaitingAt};
use stentor_mail::heading::Heading;
use stentor_queue::ids::MessageId;

use super::act::{self, Button};
use super::causes;
use super::format::{
    ago, bar, message_link, next_try, number, percent, recipient_link, sender, shown, site_link, span,
};
use super::page::{Frame, live_heading};
use super::table::{Column, column, head, table};
use crate::Http;
use crate::browser::encode;

const ROWS: usize = 50;
const ROWS_MAX: usize = 1_000;
/// Polling interval of the script, in seconds.
const EVERY_S: u64 = 3;

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct PostsQuery {
    list: String,
    rows: String,
}

/// `GET /posts`
pub async fn page(State(http): State<Http>, Query(query): Query<PostsQuery>, frame: Frame) -> Response {
    let rows_max = query.rows.parse().unwrap_or(ROWS).clamp(1, ROWS_MAX);
    let list = Some(query.list.as_str()).filter(|list| !list.is_empty());
    let view = View { list: list.map(str::to_owned), ..View::rows(rows_max as u32) };
    let posts = report::posts(&http.core, &view);
    let lists: Vec<String> =
        http.core.settings().config.lists.iter().map(|list| list.list.name().to_string()).collect();
    let is_full = posts.len() == rows_max && rows_max < ROWS_MAX;
    let held = held(&http, &posts);
    let ids: Vec<MessageId> = posts.iter().map(|post| post.id.parse().unwrap_or(MessageId(0))).collect();
    let headings = report::headings(&http.core, &ids).await;
    let main = html! {
        (live_heading("Posts", &html! { "Posts to lists and messages to 100 or more recipients, newest first" }, EVERY_S))
        @if !lists.is_empty() {
            section.panel aria-label="Filter" {
                form.fields method="get" action="/posts" {
                    div {
                        label for="f-list" { "List" }
                        select #f-list name="list" {
                            option value="" { "All" }
                            @for name in &lists { option value=(name) selected[*name == query.list] { (name) } }
                        }
                    }
                    div.go { button.main { "Show" } }
                }
            }
        }
        section.panel aria-label="Posts" {
            div data-part="posts" {
                @if posts.is_empty() { p.empty { "No posts since the server started." } } @else { (posts_table(&frame, &posts, &held, &headings)) }
            }
            @if is_full { div.pages { a.button href={ "/posts?rows=" (ROWS_MAX) "&list=" (encode(&query.list)) } { "More" } } }
        }
    };
    frame.page("/posts", "Posts", &main)
}

/// Whether an operator holds each post.
fn held(http: &Http, posts: &[PostReport]) -> Vec<bool> {
    http.core.with(|hub, _| {
        let is_held = |post: &PostReport| {
            let no = post.id.parse().ok().and_then(|id| hub.store.no_of(id))?;
            Some(hub.store.message(no)?.is_held())
        };
        posts.iter().map(|post| is_held(post).unwrap_or(false)).collect()
    })
}

fn posts_table(frame: &Frame, posts: &[PostReport], held: &[bool], headings: &[Option<Arc<Heading>>]) -> Markup {
    const COLUMNS: [Column; 6] = [
        head("Post", "long"),
        column("List or sender", "name"),
        column("Accepted", "t"),
        column("Done", "done"),
        column("Delivered", "reply"),
        column("State", ""),
    ];
    const CHANGE: Column = column("Action", "");
    let acts = frame.caller.csrf().is_some();
    let columns = if acts { [&COLUMNS[..], &[CHANGE]].concat() } else { COLUMNS.to_vec() };
    let rows = posts.iter().zip(held).zip(headings);
    let rows: Vec<Vec<Markup>> = rows
        .map(|((post, held), heading)| {
            let cells = row(post, *held, heading.as_deref());
            let change = acts.then(|| change(frame, post, *held));
            cells.into_iter().chain(change).collect()
        })
        .collect();
    table("Posts and the outcomes of their recipients", &columns, &rows, None)
}

fn row(post: &PostReport, held: bool, heading: Option<&Heading>) -> [Markup; 6] {
    let author = heading.map(|heading| heading.author.as_str()).filter(|author| !author.is_empty());
    [
        html! {
            (subject(heading))
            div.beside { @if let Some(author) = author { (shown(author)) " · " } (message_link(&post.id)) }
        },
        html! { @if post.list.is_empty() { (sender(&post.sender)) } @else { (shown(&post.list)) } },
        ago(post.accepted, post.now),
        html! {
            (percent(post.decided(), post.total)) " of " (number(post.total))
            (bar(&[("good", post.delivered), ("warn", post.removed + post.coalesced + post.quarantined), ("bad", post.bounced + post.expired)], post.total))
        },
        html! { (shown(&post.text)) },
        html! {
            @if held { span.badge.warn { "held" } }
            @else if post.pending == 0 { span.badge.good { "finished" } }
            @else { span.badge.busy { "in progress" } }
        },
    ]
}

fn change(frame: &Frame, post: &PostReport, held: bool) -> Markup {
    let (verb, label) = if held { ("release", "Resume") } else { ("hold", "Pause") };
    html! { @if post.pending > 0 { (act::single(frame, &[("id", &post.id)], verb, label, &post.id)) } @else { "–" } }
}

/// A message's subject, or why there is none.
pub fn subject(heading: Option<&Heading>) -> Markup {
    html! {
        @match heading {
            Some(heading) if !heading.subject.is_empty() => (shown(&heading.subject)),
            Some(_) => span.quiet { "(no subject)" },
            None => span.quiet { "(subject no longer stored)" },
        }
    }
}

/// A kept post with the first recipients that missed it; `None`: it is not kept.
pub async fn kept(http: &Http, id: MessageId) -> Option<PostView> {
    let options = PostOptions { state: Some(PostState::Missed), ..PostOptions::new(id) };
    stentor_admin::posts::show(&http.core, &options).await.ok()
}

/// Who missed a post, and the button that sends it to them, on its message's page.
pub fn missed(frame: &Frame, post: &PostView) -> Markup {
    const RESEND: Button = Button { verb: "resend", label: "Send it to those that missed it", is_reversible: false };
    let columns =
        [head("Recipient", "long"), column("List", "name"), column("Fate", ""), column("Last reply", "reply")];
    let row = |row: &PostRcptView| {
        vec![
            recipient_link(&row.address),
            html! { (shown(&row.list)) },
            html! { (shown(&row.state)) },
            html! { (shown(&row.reply)) },
        ]
    };
    let counts = &post.counts;
    html! {
        section.panel aria-labelledby="missed" {
            h2 #missed { "Who missed it" }
            p {
                (number(counts.delivered)) " of " (number(counts.total)) " recipients have the post, " (number(counts.waiting)) " wait for it, "
                (number(counts.missed)) " missed it: " (number(counts.bounced)) " bounced, " (number(counts.expired)) " expired, "
                (number(counts.dropped)) " removed by an operator."
            }
            @if !post.recipients.is_empty() {
                (table("Recipients that missed the post", &columns, &post.recipients.iter().map(row).collect::<Vec<_>>(), None))
            }
            @if post.next.is_some() { p.quiet { "More: " code { "stentor post show " (shown(&post.id)) " --state missed" } } }
        }
        @if counts.missed > 0 { (act::panel(frame, "Resend", &[("id", &post.id)], &[RESEND])) }
    }
}

/// A post's report on its message's page.
pub fn panel(post: &PostReport) -> Markup {
    let times = &post.timeline;
    let columns = [head("Site", "long"), column("Recipients", "n"), column("Next try", "t"), column("Why", "reply")];
    let row = |place: &WaitingAt| {
        vec![
            site_link(&place.site),
            html! { (number(place.recipients)) },
            html! { @if place.in_flight { "in progress" } @else { (next_try(place.next_try, post.now)) } },
            causes::cell(&place.words, &place.last_reply),
        ]
    };
    let failures = [head("Failed recipient", "long"), column("Fate", ""), column("Last reply", "reply")];
    let failed = |failed: &FailedRcptView| {
        vec![recipient_link(&failed.address), html! { (shown(&failed.fate)) }, html! { (shown(&failed.reply)) }]
    };
    html! {
        section.panel aria-labelledby="report" {
            h2 #report { "Delivery report" }
            p { (shown(&post.text)) }
            dl.facts {
                @if times.count > 0 {
                    dt { "Delivery time" } dd { "50 % within " (span(times.p50_ms)) ", 95 % within " (span(times.p95_ms)) ", 99 % within " (span(times.p99_ms)) ", all within " (span(times.p100_ms)) }
                }
                @if let Some(at) = post.finished { dt { "Finished" } dd { (ago(at, post.now)) ", " (span(at.saturating_sub(post.accepted))) " after it was accepted" } }
                @if post.bounced + post.expired > 0 { dt { "Bounced or expired" } dd { (number(post.bounced + post.expired)) } }
            }
            @if !post.waiting.is_empty() {
                (table("Sites with waiting recipients", &columns, &post.waiting.iter().map(row).collect::<Vec<_>>(), None))
            }
            @if !post.failed.is_empty() {
                (table("The first recipients that bounced or expired", &failures, &post.failed.iter().map(failed).collect::<Vec<_>>(), None))
            }
        }
    }
}
