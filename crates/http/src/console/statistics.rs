//! The table of `stentor mailstat`, by hour, day, list, site or source, and its chart.

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};
use serde::Deserialize;
use stentor_control::ErrorCode;
use stentor_plot::sums::{self, Sum};
use stentor_plot::{Format, Size, Theme};
use stentor_records::histogram::Histogram;
use stentor_records::mailstat::{By, Counts, Key, Pair, label};

use super::format::{address, bytes, number, plural, span};
use super::history::Rows;
use super::page::{Frame, heading};
use super::table::{column, explained_table, head};
use crate::{Http, problem};

const ROWS_MAX: usize = 500;
const KINDS: [(&str, &str, By); 5] = [
    ("hour", "Hour", By::Hour),
    ("day", "Day", By::Day),
    ("list", "List", By::List),
    ("site", "Recipient domain", By::Site),
    ("source", "Source", By::Source),
];
const SPANS: [(u64, &str); 4] = [(24, "24 hours"), (72, "3 days"), (168, "7 days"), (720, "30 days")];

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct StatisticsQuery {
    by: String,
    hours: String,
    /// Theme of the chart.
    theme: String,
}

/// `GET /statistics`
pub async fn page(State(http): State<Http>, Query(query): Query<StatisticsQuery>, frame: Frame) -> Response {
    let (_, title, by) = KINDS.into_iter().find(|(name, ..)| *name == query.by).unwrap_or(KINDS[0]);
    let (hours, words) = SPANS.into_iter().find(|(hours, _)| hours.to_string() == query.hours).unwrap_or(SPANS[0]);
    let summed = match http.past.table(&http.core, &http.zone, by, hours).await {
        Ok(summed) => summed,
        Err(problem) => return frame.problem("/statistics", &problem),
    };
    let more = summed.rows.len().saturating_sub(ROWS_MAX);
    let main = html! {
        (heading("Statistics", &html! { "The last " (words) ", " (http.zone.label(http.core.clock.now())) }))
        section.panel aria-label="Options" { (form(by, hours)) }
        @if !summed.rows.is_empty() { (picture(by, title, hours, words)) }
        section.panel aria-labelledby="table" {
            h2 #table { "By " (title.to_lowercase()) }
            @if summed.rows.is_empty() { p.empty { "The history has no records for this period." } } @else {
                (rows(title, by, &summed))
                @if more > 0 { p.quiet { (plural(more as u64, "more row")) " not shown; " code { "stentor mailstat" } " prints all." } }
            }
        }
    };
    frame.page("/statistics", "Statistics", &main)
}

/// The chart of the table, in the theme that the browser prefers.
fn picture(by: By, title: &str, hours: u64, words: &str) -> Markup {
    let name = KINDS.into_iter().find(|(.., kind)| *kind == by).map_or("", |(name, ..)| name);
    let from = format!("/statistics.svg?by={name}&hours={hours}");
    let alt = format!(
        "Delivered and failed by {}, the last {words}; see the table below for the numbers",
        title.to_lowercase()
    );
    html! {
        section.panel aria-labelledby="picture" {
            h2 #picture { "Delivered and failed" }
            picture {
                source srcset={ (from) "&theme=dark" } media="(prefers-color-scheme: dark)";
                img.picture src=(from) alt=(alt) width=(sums::WIDTH) height=(sums::HEIGHT) loading="lazy";
            }
        }
    }
}

/// `GET /statistics.svg`
pub async fn drawn(State(http): State<Http>, Query(query): Query<StatisticsQuery>) -> Response {
    let (_, _, by) = KINDS.into_iter().find(|(name, ..)| *name == query.by).unwrap_or(KINDS[0]);
    let (hours, _) = SPANS.into_iter().find(|(hours, _)| hours.to_string() == query.hours).unwrap_or(SPANS[0]);
    let summed = match http.past.table(&http.core, &http.zone, by, hours).await {
        Ok(summed) => summed,
        Err(why) => return problem(StatusCode::SERVICE_UNAVAILABLE, why.code, &why.text),
    };
    let rows: Vec<Sum> = summed
        .rows
        .iter()
        .filter(|row| {
            matches!(row.key, Key::Time(_)) || row.counts.delivered.recipients + row.counts.failed.recipients > 0
        })
        .map(|row| Sum {
            name: title_of(&row.key, by),
            delivered: row.counts.delivered.recipients,
            failed: row.counts.failed.recipients,
        })
        .collect();
    let is_time = matches!(by, By::Hour | By::Day);
    let theme = if query.theme == "dark" { Theme::DARK } else { Theme::LIGHT };
    let size = Size { width: sums::WIDTH, height: sums::HEIGHT };
    match stentor_plot::draw(size, Format::Svg, theme, |canvas| sums::draw(canvas, &rows, is_time)) {
        Ok(svg) => ([(header::CONTENT_TYPE, "image/svg+xml")], svg).into_response(),
        Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, ErrorCode::Failed, &error.to_string()),
    }
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

fn rows(title: &'static str, by: By, summed: &Rows) -> Markup {
    let columns = [
        head(title, "long"),
        column("Failed", "n"),
        column("Delivered", "n"),
        column("Deferred", "n"),
        column("Bounced or expired", "n"),
        column("Messages", "n"),
        column("Size", "n"),
        column("Transaction, p50 / p99", "n"),
        column("Delay, p50 / p99", "n"),
    ];
    let rows: Vec<Vec<Markup>> =
        summed.rows.iter().take(ROWS_MAX).map(|row| line(&title_of(&row.key, by), &row.counts, false)).collect();
    let total = line("Total", &summed.total.counts, true);
    explained_table("Hosts/recipients: a host counts once per message.", &columns, &rows, Some(&total))
}

/// A row's name; hours as clock times.
fn title_of(key: &Key, by: By) -> String {
    let label = label(key, by);
    if matches!((key, by), (Key::Time(_), By::Hour)) { format!("{label}:00") } else { label }
}

fn line(name: &str, counts: &Counts, is_total: bool) -> Vec<Markup> {
    let pair = |pair: Pair| html! { span.quiet { (number(pair.hosts)) "/" } (number(pair.recipients)) };
    let times = |times: &Histogram| {
        let half_and_most = times.percentile_if_any(0.5).zip(times.percentile_if_any(0.99));
        html! { @if let Some((half, most)) = half_and_most { (span(half)) " / " (span(most)) } @else { "–" } }
    };
    let delivered = html! {
        span.quiet { (number(counts.delivered.hosts)) "/" }
        span data-key=[is_total.then_some("total-delivered")] { (number(counts.delivered.recipients)) }
    };
    vec![
        address(name),
        pair(counts.failed),
        delivered,
        html! { (number(counts.deferred)) },
        html! { (number(counts.bounced)) },
        html! {
            (number(counts.messages))
            @if counts.posts > 0 { div.beside { (plural(counts.posts, "post")) } }
        },
        html! { (bytes(counts.bytes)) },
        times(&counts.xdelay),
        times(&counts.delay),
    ]
}
