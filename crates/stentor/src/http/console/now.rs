//! What happens now: the view of `stentor realstat`, kept up by a script that asks for the page again. Rates are those of
//! the history's last quarter of an hour, the rest is what the queue knows.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, PreEscaped, html};
use serde_json::json;
use stentor_stats::rates::{Interval, Scale, clock};

use super::format::{number, plural, shown};
use super::page::{Frame, heading, live_bar};
use super::past::Recent;
use super::queue::tile;
use super::sites;
use crate::http::Http;

/// Seconds between two looks of the script.
const EVERY_S: u64 = 2;
/// What a row of the table covers, as `realstat` has it, and how many there are.
const ROW_MS: u64 = 15_000;
const ROWS: usize = 16;
const BAR_COLUMNS: usize = 32;
/// What a bar of the chart covers.
pub const BAR_MS: u64 = 5_000;
/// What the chart covers.
pub const SPAN_MS: u64 = 900_000;
const SITES: usize = 10;

/// `GET /`
pub async fn page(State(http): State<Http>, frame: Frame) -> Response {
    let now = http.core.clock.now();
    let (recent, problem) = match http.past.recent(&http.core).await {
        Ok(recent) => ((*recent).clone(), None),
        Err(problem) => (Recent::default(), Some(problem)),
    };
    let rows = intervals(&recent, ROW_MS, now);
    let queue = http.operator.queue(SITES).await;
    let main = html! {
        (heading("Now", &html! {}))
        (live_bar(EVERY_S))
        @if let Some(problem) = problem { p.said.warn { (shown(&problem.text)) } }
        div data-part="tiles" { (tiles(&http, rows.last())) }
        section.panel aria-labelledby="rates" {
            div.head {
                h2 #rates { "Deliveries per hour, the last 15 minutes" }
                ul.legend { li.key-good { "delivered" } li.key-bad { "failed attempts" } }
            }
            div.chart data-chart="rates" data-series="series-rates" data-readout="rates-readout" role="figure"
                aria-label="Delivered and failed in the last 15 minutes; the table below has the numbers" tabindex="0" {}
            p.readout #rates-readout { "A bar for each five seconds; arrow keys read them." }
            div data-part="series" { (series(&recent, now)) }
        }
        section.panel aria-labelledby="intervals" {
            h2 #intervals { "Quarter minutes" }
            div data-part="intervals" { (table(&rows)) }
        }
        section.panel aria-labelledby="pending" {
            h2 #pending { "Most waiting" }
            div data-part="pending" {
                @if queue.sites.is_empty() { p.empty { "Nothing waits." } } @else { (sites::table(&queue.sites, queue.now)) }
            }
        }
    };
    frame.page("/", "Now", &main)
}

fn tiles(http: &Http, last: Option<&Interval>) -> Markup {
    let (delivered, pending, messages, held, connections) = http.core.with(|hub, _| {
        let store = &hub.store;
        (
            store.totals().fates.delivered,
            store.pending(),
            store.len() as u64,
            store.held() as u64,
            hub.connections() as u64,
        )
    });
    let idle = Interval::default();
    let last = last.unwrap_or(&idle);
    html! {
        dl.tiles {
            (tile("Deliveries an hour", &number(last.per_hour()), &html! { (number(last.delivered)) " in the last 15 s" }))
            div.tile { dt { "Delivered" } dd.figure data-key="delivered" { (number(delivered)) } dd.beside { "since the store began" } }
            (tile("Failed attempts", &number(last.failed), &html! { "in the last 15 s" }))
            (tile("Waiting", &number(pending), &html! { "of " (plural(messages, "message")) @if held > 0 { ", " (number(held)) " held" } }))
            (tile("Connections", &number(connections), &html! { "to hosts" }))
        }
    }
}

/// What each stretch of `length_ms`, a multiple of the bars', brought, oldest first; the one that is not over is left out.
fn intervals(recent: &Recent, length_ms: u64, now: u64) -> Vec<Interval> {
    let mut rows: BTreeMap<u64, Interval> = BTreeMap::new();
    for (begin, (delivered, failed)) in gapless(recent, now) {
        let row = rows.entry(begin - begin % length_ms).or_default();
        row.delivered += delivered;
        row.failed += failed;
    }
    let over = rows.into_iter().filter(|(begin, _)| begin + length_ms <= now);
    over.map(|(begin, row)| Interval { at: begin + length_ms, interval_ms: length_ms, ..row }).collect()
}

/// All bars from the first that brought something until now.
fn gapless(recent: &Recent, now: u64) -> BTreeMap<u64, (u64, u64)> {
    let mut bars = recent.clone();
    if let Some(first) = recent.keys().next() {
        let mut at = *first;
        while at <= now {
            bars.entry(at).or_default();
            at += BAR_MS;
        }
    }
    bars
}

/// What the chart is drawn from: numbers alone, so that nothing in it could end the element.
fn series(recent: &Recent, now: u64) -> Markup {
    let rows = gapless(recent, now);
    let column = |of: fn(&(u64, u64)) -> u64| rows.values().map(of).collect::<Vec<u64>>();
    let series = json!({
        "every": BAR_MS / 1000,
        "from": now.saturating_sub(SPAN_MS) / 1000,
        "until": now / 1000,
        "at": rows.keys().map(|begin| begin / 1000).collect::<Vec<u64>>(),
        "delivered": column(|row| row.0),
        "failed": column(|row| row.1),
    });
    html! { script type="application/json" #series-rates { (PreEscaped(series.to_string())) } }
}

/// `realstat`'s rows, the newest first.
fn table(rows: &[Interval]) -> Markup {
    let mut scale = Scale::new(BAR_COLUMNS);
    let shown: Vec<&Interval> = rows.iter().rev().take(ROWS).collect();
    for row in &shown {
        scale.fit(row);
    }
    html! {
        @if shown.is_empty() { p.empty { "The first quarter of a minute is not over." } } @else {
            div.scroll role="region" aria-labelledby="intervals" tabindex="0" {
                table {
                    caption { "Each * is " (number(scale.per_mark())) " delivered, each - " (number(scale.per_mark())) " failed" }
                    thead { tr { th scope="col" { "Until" } th.n scope="col" { "An hour" } th.n scope="col" { "Delivered" } th.n scope="col" { "Failed" } th scope="col" { "Bar" } } }
                    tbody {
                        @for row in shown {
                            tr {
                                th.t scope="row" { (clock(row.at, 0)) }
                                td.n { (number(row.per_hour())) } td.n { (number(row.delivered)) } td.n { (number(row.failed)) }
                                td.bars aria-hidden="true" { (scale.bar(row)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_become_rows_without_gaps() {
        let recent: Recent = [(5_000, (1, 0)), (10_000, (2, 1)), (15_000, (4, 0)), (60_000, (8, 0))].into();
        let rows = intervals(&recent, 15_000, 62_000);
        let rows: Vec<(u64, u64, u64)> = rows.iter().map(|row| (row.at, row.delivered, row.failed)).collect();
        assert_eq!(rows, [(15_000, 3, 1), (30_000, 4, 0), (45_000, 0, 0), (60_000, 0, 0)], "the last one is not over");
        assert!(intervals(&Recent::default(), 15_000, 62_000).is_empty());
    }
}
