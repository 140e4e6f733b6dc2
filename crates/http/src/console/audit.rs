//! The operators' actions of the last days, from the history.

use axum::extract::{Query, State};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use stentor_records::civil::Zone;

use super::actions::Action;
use super::format::{address, instant, plural, shown};
use super::page::{Frame, heading};
use super::table::{column, head, table};
use crate::Http;

const SPANS: [(u64, &str); 3] = [(24, "24 hours"), (168, "7 days"), (720, "30 days")];

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct AuditQuery {
    hours: String,
}

/// `GET /audit`
pub async fn page(State(http): State<Http>, Query(query): Query<AuditQuery>, frame: Frame) -> Response {
    let (hours, words) = SPANS.into_iter().find(|(hours, _)| hours.to_string() == query.hours).unwrap_or(SPANS[1]);
    let actions = match http.past.actions(&http.core, hours).await {
        Ok(actions) => actions,
        Err(problem) => return frame.problem("/audit", &problem),
    };
    let main = html! {
        (heading("Audit", &html! { "Actions of operators, newest first" }))
        section.panel aria-label="Options" {
            form.fields method="get" action="/audit" {
                div {
                    label for="f-hours" { "Last" }
                    select #f-hours name="hours" { @for (value, words) in SPANS { option value=(value) selected[value == hours] { (words) } } }
                }
                div.go { button.main { "Show" } }
            }
        }
        section.panel aria-labelledby="actions" {
            h2 #actions { "The last " (words) }
            @if actions.is_empty() { p.empty { "No actions." } } @else { (rows(&actions, &http.zone)) }
            p.quiet.small { "The journal keeps actions on mail as well: " code { "stentor journal dump" } "." }
        }
    };
    frame.page("/audit", "Audit", &main)
}

fn rows(actions: &[Action], zone: &Zone) -> Markup {
    let columns = [
        head("Time", "t"),
        column("Operator", "long"),
        column("Action", "t"),
        column("Applied to", "long"),
        column("Result", "t"),
        column("Reason", "reply"),
    ];
    let row = |action: &Action| {
        vec![
            instant(action.at, zone),
            operator(&action.who),
            html! { (shown(&action.verb)) },
            html! {
                @for (at, (name, value)) in action.on.iter().enumerate() {
                    @if at > 0 { br; }
                    @if !name.is_empty() { span.quiet { (shown(name)) " " } }
                    (address(value))
                }
                @if action.on.is_empty() { "–" }
            },
            result(action),
            html! { @if action.reason.is_empty() { "–" } @else { (shown(&action.reason)) } },
        ]
    };
    table("Actions with their operators and reasons", &columns, &actions.iter().map(row).collect::<Vec<_>>(), None)
}

/// Formats `user=ann address=192.0.2.1`, `token=ci address=...` or `uid=0(root) pid=7`: the name, with the rest below
/// it.
fn operator(who: &str) -> Markup {
    let (first, rest) = who.split_once(' ').unwrap_or((who, ""));
    let (kind, name) = first.split_once('=').unwrap_or(("", first));
    let login = name.split_once('(').and_then(|(_, login)| login.strip_suffix(')'));
    let beside = match kind {
        "user" | "" => rest.to_owned(),
        kind => format!("{kind} {} {rest}", if login.is_some() { name } else { "" }),
    };
    html! {
        (shown(login.unwrap_or(name)))
        div.beside { (shown(&beside.replace('=', " "))) }
    }
}

fn result(action: &Action) -> Markup {
    html! {
        @match (action.recipients, action.messages) {
            (Some(recipients), Some(messages)) => { (plural(recipients, "recipient")) div.beside { "of " (plural(messages, "message")) } },
            _ => "–",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_have_names() {
        let shown = |who: &str| operator(who).into_string();
        assert!(shown("user=ann address=192.0.2.1").starts_with("ann<"), "{}", shown("user=ann address=192.0.2.1"));
        assert!(shown("uid=0(root) pid=7").starts_with("root<") && shown("uid=0(root) pid=7").contains("pid 7"));
        assert!(shown("token=ci address=192.0.2.1").contains("token"));
        assert!(shown("uid=4711").starts_with("4711<") && shown("").starts_with('<'));
    }
}
