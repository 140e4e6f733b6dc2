//! Recipients and sites by messages waiting, as in `stentor latedudes`.

use axum::extract::{Query, State};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use stentor_admin::depth;
use stentor_admin::row_query::RowQuery;
use stentor_control::StuckRow;

use super::format::{ago, bar, message_link, next_try, number, recipient_link, site_link};
use super::page::{Frame, heading};
use super::table::{column, head, table};
use super::{causes, message, sites};
use crate::Http;

const ROWS: usize = 50;
const ROWS_MAX: usize = 1_000;

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct StragglersQuery {
    rows: String,
}

/// `GET /stragglers`
pub async fn page(State(http): State<Http>, Query(query): Query<StragglersQuery>, frame: Frame) -> Response {
    let rows_max = query.rows.parse().unwrap_or(ROWS).clamp(1, ROWS_MAX);
    // All mail: there is no list that could be unknown.
    let query = RowQuery::all(rows_max);
    let stuck = depth::stuck(&http.core, &http.operator.overviews.causes, &query, None).await.unwrap_or_default();
    let is_full = stuck.recipients.len() == rows_max && rows_max < ROWS_MAX;
    let main = html! {
        (heading("Stragglers", &html! { "Recipients and sites with the most waiting mail" }))
        @if stuck.is_counting { p.said.warn role="status" { "Still counting: the numbers are too low for some time \
            after a start or a large post." } }
        section.panel aria-labelledby="recipients" {
            h2 #recipients { "Recipients" }
            @if stuck.recipients.is_empty() { p.empty { "No recipients are waiting." } } @else { (recipients(&stuck.recipients, stuck.now)) }
            @if is_full { div.pages { a.button href={ "/stragglers?rows=" (ROWS_MAX) } { "More" } } }
        }
        section.panel aria-labelledby="by-site" {
            h2 #by-site { "Sites" }
            @if stuck.sites.is_empty() { p.empty { "Nothing is waiting." } } @else { (sites::sites_table(&stuck.sites, stuck.now)) }
        }
    };
    frame.page("/stragglers", "Stragglers", &main)
}

fn recipients(rows: &[StuckRow], now: u64) -> Markup {
    let columns = [
        head("Recipient", "long"),
        column("Messages", "n share"),
        column("State", ""),
        column("Oldest", "t"),
        column("Next try", "t"),
        column("Site", "long"),
        column("Why", "reply"),
    ];
    let most = rows.iter().map(|row| row.messages).max().unwrap_or(0);
    let row = |row: &StuckRow| {
        vec![
            recipient_link(&row.state.address),
            html! { (number(row.messages)) (bar(&[("in", row.messages)], most)) },
            message::state(row.state.state),
            html! {
                @if let Some(at) = row.oldest { (ago(at, now)) } @else { "–" }
                @if let Some(id) = &row.oldest_id { div.beside { (message_link(id)) } }
            },
            next_try(row.state.next_try, now),
            site_link(&row.state.site),
            causes::cell(&row.state.words, &row.state.last_reply),
        ]
    };
    table("Recipients by messages waiting for them", &columns, &rows.iter().map(row).collect::<Vec<_>>(), None)
}
