//! Posts to lists that are under way: how far each is, and the way to its page, where it is held, let go or removed.

use axum::extract::{Query, State};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::find::{self, Row};
use super::format::{ago, message_link, number, percent, sender, shown};
use super::page::{Frame, heading};
use crate::control::Selection;
use crate::http::Http;

const ROWS: usize = 50;

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct Asked {
    from: String,
}

/// `GET /posts`
pub async fn page(State(http): State<Http>, Query(asked): Query<Asked>, frame: Frame) -> Response {
    let takes = |message: &stentor_queue::message::Message| message.envelope().list.is_some();
    let from = asked.from.parse().ok();
    let found = match find::messages(&http.core, &Selection::default(), &takes, from, ROWS).await {
        Ok(found) => found,
        Err(problem) => return frame.problem("/posts", &problem),
    };
    let main = html! {
        (heading("Posts", &html! { "To lists, under way, oldest first." }))
        section.panel aria-labelledby="posts" {
            h2 #posts { "Under way" }
            @if found.rows.is_empty() {
                p.empty { @if found.is_partial { "Nothing so far; the search has not reached the end of the queue." } @else { "All posts have been delivered." } }
            } @else { (table(&found.rows, found.now)) }
            div.pages {
                @if from.is_some() { a.button href="/posts" { "From the beginning" } }
                @if let Some(next) = found.next {
                    a.button rel="next" href={ "/posts?from=" (next) } { @if found.is_partial { "Search on" } @else { "Next page" } }
                }
            }
        }
    };
    frame.page("/posts", "Posts", &main)
}

fn table(rows: &[Row], now: u64) -> Markup {
    html! {
        div.scroll role="region" aria-labelledby="posts" tabindex="0" {
            table {
                caption { "Posts with recipients still to serve" }
                thead { tr {
                    th scope="col" { "Post" }
                    th scope="col" { "List" }
                    th.long.wide scope="col" { "Poster" }
                    th.t scope="col" { "Age" }
                    th scope="col" { "Progress" }
                    th.n scope="col" { "Waiting" }
                    th.n.wide scope="col" { "Failed" }
                    th scope="col" { "State" }
                } }
                tbody {
                    @for row in rows {
                        @let done = row.total - row.pending;
                        tr {
                            th scope="row" { (message_link(&row.id)) }
                            td { (row.list.as_deref().map(shown).unwrap_or_default()) }
                            td.long.wide { (sender(&row.sender)) }
                            td.t { (ago(row.accepted, now)) }
                            td { (percent(done, row.total)) progress max=(row.total.max(1)) value=(done) aria-label={ "Progress of " (row.id) } {} }
                            td.n { (number(row.pending)) }
                            td.n.wide { (number(row.failed)) }
                            td { @if row.held { span.badge.warn { "held" } } @else { span.badge.busy { "under way" } } }
                        }
                    }
                }
            }
        }
    }
}
