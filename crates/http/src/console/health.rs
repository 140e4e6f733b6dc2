//! Current problems of the server, the list that `stentor status` prints; and complaint rates.

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use stentor_admin::health::reputation::complaint_rows;
use stentor_control::ComplaintView;
use stentor_control::format::{percent, span};
use stentor_records::health::Condition;

use super::badge::class;
use super::format::{instant, number, shown};
use super::page::{Frame, live_heading};
use super::table::{column, head, table};
use crate::Http;

/// Polling interval of the script, in seconds.
const EVERY_S: u64 = 2;

/// `GET /health`
pub async fn page(State(http): State<Http>, frame: Frame) -> Response {
    let conditions = http.core.live.health.conditions();
    let main = html! {
        (live_heading("Health", &html! { "Current problems, and what to do" }, EVERY_S))
        section.panel aria-labelledby="conditions" {
            h2 #conditions { "Problems and warnings" }
            div data-part="conditions" { (rows(&http, &conditions)) }
        }
        section.panel aria-labelledby="complaints" {
            h2 #complaints { "Complaints" }
            div data-part="complaints" { (complaints(&complaint_rows(&http.core, http.core.clock.now()))) }
        }
    };
    frame.page("/health", "Health", &main)
}

fn complaints(rows: &[ComplaintView]) -> Markup {
    if rows.is_empty() {
        return html! { p.empty { "No complaints about lists of this server within 30 days." } };
    }
    let columns = [
        head("About", "long"),
        column("Window", "t"),
        column("Rate", "n"),
        column("Complaints", "n"),
        column("Delivered", "n"),
        column("Unproven", "n"),
    ];
    let row = |row: &ComplaintView| {
        vec![
            html! { (row.subject) " " (shown(&row.name)) },
            html! { (row.window) },
            html! { (percent(row.complaints, row.delivered)) },
            html! { (number(row.complaints)) },
            html! { (number(row.delivered)) },
            html! { (number(row.unproven)) },
        ]
    };
    table("Complaint rates", &columns, &rows.iter().map(row).collect::<Vec<_>>(), None)
}

fn rows(http: &Http, conditions: &[Condition]) -> Markup {
    if conditions.is_empty() {
        return html! { p.empty { "No problems." } };
    }
    let columns = [
        head("Severity", "t"),
        column("Condition", "t"),
        column("Since", "t"),
        column("What failed", "long"),
        column("What to do", "reply"),
    ];
    let now = http.core.clock.now();
    let row = |condition: &Condition| {
        vec![
            html! { span.(class(condition.severity)) { (condition.severity.words()) } },
            html! { (shown(&condition.title())) },
            html! { (instant(condition.since, &http.zone)) " (" (span(now.saturating_sub(condition.since))) ")" },
            html! { @if condition.refuses_mail { strong { "Refusing mail: " } } (shown(&condition.what)) },
            html! { (shown(&condition.next)) },
        ]
    };
    table("Conditions, worst first", &columns, &conditions.iter().map(row).collect::<Vec<_>>(), None)
}
