//! The table of `stentor mailstat`, by hour, day, list, site or source.

use axum::extract::{Query, State};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use stentor_stats::histogram::Histogram;
use stentor_stats::mailstat::{By, Counts, Pair, label};

use super::format::{bytes, number, shown, span};
use super::page::{Frame, heading};
use crate::Http;

const ROWS_MAX: usize = 500;
const KINDS: [(&str, &str, By); 5] = [
    ("hour", "Hour", By::Hour),
    ("day", "Day", By::Day),
    ("list", "List", By::List),
    ("site", "Recipients' domain", By::Site),
    ("source", "Source", By::Source),
];
const SPANS: [(u64, &str); 4] = [(24, "24 hours"), (72, "3 days"), (168, "7 days"), (720, "30 days")];

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct Asked {
    by: String,
    hours: String,
}

/// `GET /statistics`
pub async fn page(State(http): State<Http>, Query(asked): Query<Asked>, frame: Frame) -> Response {
    let (_, title, by) = KINDS.into_iter().find(|(name, ..)| *name == asked.by).unwrap_or(KINDS[0]);
    let (hours, words) = SPANS.into_iter().find(|(hours, _)| hours.to_string() == asked.hours).unwrap_or(SPANS[0]);
    let table = match http.past.table(&http.core, by, hours).await {
        Ok(table) => table,
        Err(problem) => return frame.problem("/statistics", &problem),
    };
    let more = table.rows.len().saturating_sub(ROWS_MAX);
    let main = html! {
        (heading("Statistics", &html! { "The last " (words) ", UTC" }))
        section.panel aria-label="Options" { (form(by, hours)) }
        section.panel aria-labelledby="table" {
            h2 #table { "By " (title.to_lowercase()) }
            @if table.rows.is_empty() { p.empty { "The history has no records of that time." } } @else {
                div.scroll role="region" aria-labelledby="table" tabindex="0" {
                    table {
                        caption { "Hosts/recipients: a host counts once for each message" }
                        (head(title))
                        tbody { @for row in table.rows.iter().take(ROWS_MAX) { (line(&shown(&label(&row.key, by)), &row.counts, false)) } }
                        tfoot { (line("Total", &table.total.counts, true)) }
                    }
                }
                @if more > 0 { p.quiet { "and " (number(more as u64)) " more rows; " code { "stentor mailstat" } " has all." } }
            }
        }
    };
    frame.page("/statistics", "Statistics", &main)
}

fn form(by: By, hours: u64) -> Markup {
    html! {
        form.fields method="get" action="/statistics" {
            div {
                label for="f-by" { "Rows by" }
                select #f-by name="by" { @for (name, title, kind) in KINDS { option value=(name) selected[kind == by] { (title) } } }
            }
            div {
                label for="f-hours" { "Last" }
                select #f-hours name="hours" { @for (value, words) in SPANS { option value=(value) selected[value == hours] { (words) } } }
            }
            div.go { button.main { "Show" } }
        }
    }
}

fn head(title: &str) -> Markup {
    html! {
        thead { tr {
            th scope="col" { (title) }
            th.n scope="col" { "Failed" }
            th.n scope="col" { "Delivered" }
            th.n.wide scope="col" { "Deferred" }
            th.n scope="col" { "Given up" }
            th.n.wide scope="col" { "Posts" }
            th.n.wide scope="col" { "Octets" }
            th.n.wide scope="col" { "Transaction 50/99 %" }
            th.n scope="col" { "Delay 50/99 %" }
        } }
    }
}

fn line(name: &str, counts: &Counts, is_total: bool) -> Markup {
    let pair = |pair: Pair| html! { span.quiet { (number(pair.hosts)) "/" } (number(pair.recipients)) };
    let times = |times: &Histogram| match (times.percentile_if_any(0.5), times.percentile_if_any(0.99)) {
        (Some(half), Some(most)) => format!("{}/{}", span(half), span(most)),
        _ => "–".to_owned(),
    };
    html! {
        tr {
            th.long scope="row" { (name) }
            td.n { (pair(counts.failed)) }
            td.n { span.quiet { (number(counts.delivered.hosts)) "/" } span data-key=[is_total.then_some("total-delivered")] { (number(counts.delivered.recipients)) } }
            td.n.wide { (number(counts.deferred)) }
            td.n { (number(counts.bounced)) }
            td.n.wide { (number(counts.posts)) }
            td.n.wide { (bytes(counts.bytes)) }
            td.n.wide { (times(&counts.xdelay)) }
            td.n { (times(&counts.delay)) }
        }
    }
}
