//! Recipients and sites by messages waiting, as in `stentor latedudes`.

use axum::extract::{Query, State};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use stentor_admin::depth;
use stentor_control::StuckRow;

use super::format::{ago, message_link, next_try, number, recipient_link, shown, site_link};
use super::page::{Frame, heading};
use super::{message, sites};
use crate::Http;

const ROWS: usize = 50;
const ROWS_MAX: usize = 1_000;

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct Asked {
    rows: String,
}

/// `GET /stragglers`
pub async fn page(State(http): State<Http>, Query(asked): Query<Asked>, frame: Frame) -> Response {
    let rows_max = asked.rows.parse().unwrap_or(ROWS).clamp(1, ROWS_MAX);
    let stuck = depth::stuck(&http.core, rows_max).await;
    let is_full = stuck.recipients.len() == rows_max && rows_max < ROWS_MAX;
    let main = html! {
        (heading("Stragglers", &html! { "Recipients and sites with most messages waiting." }))
        @if stuck.is_counting { p.said.warn role="status" { "Still counting: after a start or a large post the numbers are too low." } }
        section.panel aria-labelledby="recipients" {
            h2 #recipients { "Recipients" }
            @if stuck.recipients.is_empty() { p.empty { "No recipients are waiting." } } @else { (table(&stuck.recipients, stuck.now)) }
            @if is_full { div.pages { a.button href={ "/stragglers?rows=" (ROWS_MAX) } { "More" } } }
        }
        section.panel aria-labelledby="by-site" {
            h2 #by-site { "Sites" }
            @if stuck.sites.is_empty() { p.empty { "Nothing is waiting." } } @else { (sites::table(&stuck.sites, stuck.now)) }
        }
    };
    frame.page("/stragglers", "Stragglers", &main)
}

fn table(rows: &[StuckRow], now: u64) -> Markup {
    html! {
        div.scroll role="region" aria-labelledby="recipients" tabindex="0" {
            table {
                caption { "Messages waiting by recipient" }
                thead { tr {
                    th.n scope="col" { "Messages" }
                    th.long scope="col" { "Recipient" }
                    th.wide scope="col" { "State" }
                    th.t scope="col" { "Oldest" }
                    th.t scope="col" { "Next try" }
                    th.wide scope="col" { "Site" }
                    th.reply scope="col" { "Last reply" }
                } }
                tbody {
                    @for row in rows {
                        tr {
                            td.n { (number(row.messages)) }
                            th.long scope="row" { (recipient_link(&row.state.address)) }
                            td.wide { (message::state(row.state.state)) }
                            td.t {
                                @if let Some(at) = row.oldest { (ago(at, now)) }
                                @if let Some(id) = &row.oldest_id { div.small { (message_link(id)) } }
                            }
                            td.t { (next_try(row.state.next_try, now)) }
                            td.wide { (site_link(&row.state.site)) }
                            td.reply { (shown(&row.state.last_reply)) }
                        }
                    }
                }
            }
        }
    }
}
