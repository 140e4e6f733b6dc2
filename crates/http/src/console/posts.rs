//! Posts: progress and speed of each, the newest first; each one's page can hold, release or remove it.

use axum::extract::{Query, State};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use stentor_admin::report;
use stentor_control::PostReport;

use super::act;
use super::format::{ago, message_link, next_try, number, percent, sender, shown, site_link, span};
use super::page::{Frame, heading, live_bar};
use crate::Http;

const ROWS: usize = 50;
const ROWS_MAX: usize = 1_000;
/// Seconds between two looks of the script.
const EVERY_S: u64 = 3;

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct Asked {
    list: String,
    rows: String,
}

/// `GET /posts`
pub async fn page(State(http): State<Http>, Query(asked): Query<Asked>, frame: Frame) -> Response {
    let rows_max = asked.rows.parse().unwrap_or(ROWS).clamp(1, ROWS_MAX);
    let list = Some(asked.list.as_str()).filter(|list| !list.is_empty());
    let posts = report::posts(&http.core, list, rows_max);
    let lists: Vec<String> =
        http.core.settings().config.lists.iter().map(|list| list.list.name().to_string()).collect();
    let is_full = posts.len() == rows_max && rows_max < ROWS_MAX;
    let held = held(&http, &posts);
    let main = html! {
        (heading("Posts", &html! { "Messages to lists, or to 100 or more recipients; newest first." }))
        (live_bar(EVERY_S))
        @if !lists.is_empty() {
            section.panel aria-label="Filter" {
                form.fields method="get" action="/posts" {
                    div {
                        label for="f-list" { "List" }
                        select #f-list name="list" {
                            option value="" { "All" }
                            @for name in &lists { option value=(name) selected[*name == asked.list] { (name) } }
                        }
                    }
                    div.go { button.main { "Show" } }
                }
            }
        }
        section.panel aria-labelledby="posts" {
            h2 #posts { "Progress" }
            div data-part="posts" {
                @if posts.is_empty() { p.empty { "No posts since the server started." } } @else { (table(&frame, &posts, &held)) }
            }
            @if is_full { div.pages { a.button href={ "/posts?rows=" (ROWS_MAX) "&list=" (super::format::encode(&asked.list)) } { "More" } } }
        }
    };
    frame.page("/posts", "Posts", &main)
}

/// Whether an operator holds each of them.
fn held(http: &Http, posts: &[PostReport]) -> Vec<bool> {
    http.core.with(|hub, _| {
        let is_held = |post: &PostReport| {
            let no = post.id.parse().ok().and_then(|id| hub.store.no_of(id))?;
            Some(hub.store.message(no)?.is_held())
        };
        posts.iter().map(|post| is_held(post).unwrap_or(false)).collect()
    })
}

fn table(frame: &Frame, posts: &[PostReport], held: &[bool]) -> Markup {
    html! {
        div.scroll role="region" aria-labelledby="posts" tabindex="0" {
            table {
                caption { "Posts and the outcomes of their recipients" }
                thead { tr {
                    th scope="col" { "Post" }
                    th scope="col" { "List" }
                    th.long.wide scope="col" { "Sender" }
                    th.t scope="col" { "Age" }
                    th scope="col" { "Done" }
                    th.reply scope="col" { "So far" }
                    th scope="col" { "State" }
                    @if frame.caller.csrf().is_some() { th scope="col" { "Change" } }
                } }
                tbody { @for (post, held) in posts.iter().zip(held) { (row(frame, post, *held)) } }
            }
        }
    }
}

fn row(frame: &Frame, post: &PostReport, held: bool) -> Markup {
    html! {
        tr {
            th scope="row" { (message_link(&post.id)) }
            td { (shown(&post.list)) }
            td.long.wide { (sender(&post.sender)) }
            td.t { (ago(post.accepted, post.now)) }
            td {
                (percent(post.decided(), post.total))
                progress max=(post.total.max(1)) value=(post.decided()) aria-label={ "Progress of " (post.id) } {}
            }
            td.reply { (shown(&post.text)) }
            td {
                @if held { span.badge.warn { "held" } }
                @else if post.pending == 0 { span.badge.good { "finished" } }
                @else { span.badge.busy { "in progress" } }
            }
            @if frame.caller.csrf().is_some() {
                td {
                    @if post.pending > 0 {
                        (act::single(frame, &[("id", &post.id)], if held { "release" } else { "hold" }, if held { "Resume" } else { "Pause" }, &post.id))
                    }
                }
            }
        }
    }
}

/// A post's report on its message's page.
pub fn panel(post: &PostReport) -> Markup {
    let times = &post.timeline;
    html! {
        section.panel aria-labelledby="report" {
            h2 #report { "Delivery report" }
            p { (shown(&post.text)) }
            dl.facts {
                @if times.count > 0 {
                    dt { "Delivered within" } dd { "50 %: " (span(times.p50_ms)) ", 95 %: " (span(times.p95_ms)) ", 99 %: " (span(times.p99_ms)) ", all: " (span(times.p100_ms)) }
                }
                @if let Some(at) = post.finished { dt { "Finished" } dd { (ago(at, post.now)) ", " (span(at.saturating_sub(post.accepted))) " after it came" } }
                @if post.bounced + post.expired > 0 { dt { "Failed" } dd { (number(post.bounced + post.expired)) } }
            }
            @if !post.waiting.is_empty() {
                div.scroll role="region" aria-label="Still waiting at" tabindex="0" {
                    table {
                        caption { "Still waiting at" }
                        thead { tr { th.long scope="col" { "Site" } th.n scope="col" { "Recipients" } th.t scope="col" { "Next try" } th.reply scope="col" { "Last reply" } } }
                        tbody {
                            @for place in &post.waiting {
                                tr {
                                    th.long scope="row" { (site_link(&place.site)) }
                                    td.n { (number(place.recipients)) }
                                    td.t { @if place.in_flight { "in progress" } @else { (next_try(place.next_try, post.now)) } }
                                    td.reply { (shown(&place.last_reply)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
