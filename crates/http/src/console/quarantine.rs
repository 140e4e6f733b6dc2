//! The quarantine: messages held by rules and milters, a page for each, and their release or deletion.
//!
//! Promise: message text is shown as plain text: no markup, no pictures, no links, no files. Only logged-in users see
//! it, and each access is recorded.

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use stentor_admin::quarantine;
use stentor_control::problem::Problem;
use stentor_control::{
    ControlReply, ErrorCode, QuarantineList, QuarantineOptions, QuarantinedMessage, QuarantinedView, Request, Selection,
};
use stentor_queue::ids::MessageId;

use super::act::{self, Button};
use super::format::{address, ago, bytes, instant, next_try, plural, recipient_link, sender, shown};
use super::page::{Frame, heading};
use super::table::{Column, column, head, table};
use crate::Http;
use crate::browser::encode;

/// Messages per page.
const ROWS: u32 = 50;

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct QuarantineQuery {
    sender: String,
    recipient: String,
    list: String,
    after: String,
}

impl QuarantineQuery {
    fn selection(&self) -> Selection {
        let given = |text: &String| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        Selection {
            sender: given(&self.sender).map(|text| if text == "<>" { String::new() } else { text }),
            recipient: given(&self.recipient),
            list: given(&self.list),
            ..Selection::default()
        }
    }

    fn filters(&self) -> [(&'static str, &str); 3] {
        [("sender", &self.sender), ("recipient", &self.recipient), ("list", &self.list)]
    }

    fn is_narrow(&self) -> bool {
        self.filters().iter().any(|(_, value)| !value.is_empty())
    }

    fn url(&self, after: &str) -> String {
        let all = self.filters().into_iter().chain([("after", after)]).filter(|(_, value)| !value.is_empty());
        let parts: Vec<String> = all.map(|(name, value)| format!("{name}={}", encode(value))).collect();
        if parts.is_empty() { "/quarantine".to_owned() } else { format!("/quarantine?{}", parts.join("&")) }
    }
}

/// `GET /quarantine`
pub async fn page(State(http): State<Http>, Query(query): Query<QuarantineQuery>, frame: Frame) -> Response {
    // An unreadable place means the beginning.
    let after = query.after.parse().ok();
    let options = QuarantineOptions { selection: query.selection(), rows_max: ROWS, after };
    let list = match quarantine::list(&http.core, &options).await {
        ControlReply::Quarantine(list) => list,
        ControlReply::Error(problem) => return frame.problem("/quarantine", &problem),
        _ => return frame.problem("/quarantine", &Problem::new(ErrorCode::Failed, "unexpected answer")),
    };
    let all = format!(
        "{} for {}, {}",
        plural(list.messages, "message"),
        plural(list.recipients, "recipient"),
        bytes(list.octets)
    );
    let main = html! {
        (heading("Quarantine", &html! { (all) }))
        section.panel aria-labelledby="filters" { h2 #filters { "Filters" } (form(&query)) }
        section.panel aria-labelledby="messages" {
            h2 #messages { "Messages" }
            @if list.rows.is_empty() {
                p.empty { @if query.is_narrow() { "No messages match." } @else { "The quarantine is empty." } }
            } @else {
                (bulk(&frame, &query))
                (rows(&frame, &list))
            }
            div.pages {
                @if after.is_some() { a.button href=(query.url("")) { "From the beginning" } }
                @if let Some(next) = &list.next { a.button rel="next" href=(query.url(next)) { "Next page" } }
            }
        }
    };
    frame.page("/quarantine", "Quarantine", &main)
}

fn form(query: &QuarantineQuery) -> Markup {
    let text = |name: &str, label: &str, value: &str, hint: &str| {
        html! {
            div {
                label for={ "f-" (name) } { (label) }
                input id={ "f-" (name) } name=(name) value=(value) placeholder=(hint) autocomplete="off" spellcheck="false";
            }
        }
    };
    html! {
        form.fields.grid method="get" action="/quarantine" {
            (text("sender", "Sender or @domain", &query.sender, "@example.org"))
            (text("recipient", "Recipient or @domain", &query.recipient, "@example.net"))
            (text("list", "List", &query.list, "news"))
            div.go {
                button.main { "Filter" }
                @if query.is_narrow() { a href="/quarantine" { "Clear" } }
            }
        }
    }
}

/// Buttons for the selected rows, or for all that match.
fn bulk(frame: &Frame, query: &QuarantineQuery) -> Markup {
    let verbs = [("quarantine_release", "Release"), ("quarantine_delete", "Delete")];
    let filters = query.filters();
    act::bulk_of(frame, query.is_narrow().then_some(filters.as_slice()), &verbs, "release or delete messages")
}

fn rows(frame: &Frame, list: &QuarantineList) -> Markup {
    const TICK: Column = column("Select", "tick");
    const COLUMNS: [Column; 6] = [
        head("Message", ""),
        column("From", "words"),
        column("To", "name"),
        column("Subject", "words"),
        column("Quarantined by", "reply"),
        column("Expires", "t"),
    ];
    let can_act = frame.caller.csrf().is_some();
    let columns = if can_act { [&[TICK][..], &COLUMNS].concat() } else { COLUMNS.to_vec() };
    let row = |row: &QuarantinedView| {
        let cells = [
            html! { input type="checkbox" name="id" form="bulk" value=(row.id) aria-label={ "Select " (row.id) }; },
            html! { a.id href={ "/quarantine/" (encode(&row.id)) } { (row.id) } div.beside { (ago(row.accepted, list.now)) } },
            from(row),
            recipients(row),
            html! { (shown(&row.subject)) },
            html! { (shown(&row.by)) },
            next_try(Some(row.expires), list.now),
        ];
        // No checkboxes for callers who cannot act.
        cells.into_iter().skip(usize::from(!can_act)).collect::<Vec<_>>()
    };
    table("Messages in the quarantine", &columns, &list.rows.iter().map(row).collect::<Vec<_>>(), None)
}

/// The header's From, beside the envelope sender.
fn from(row: &QuarantinedView) -> Markup {
    html! {
        @if !row.from.is_empty() { (shown(&row.from)) }
        div.beside { (sender(&row.sender)) }
    }
}

fn recipients(row: &QuarantinedView) -> Markup {
    let more = row.recipients_total.saturating_sub(row.recipients.len() as u64);
    html! {
        @for (at, to) in row.recipients.iter().enumerate() { @if at > 0 { ", " } (recipient_link(to)) }
        @if more > 0 { " and " (plural(more, "more recipient")) }
    }
}

/// `GET /quarantine/ID`
pub async fn one(State(http): State<Http>, Path(id): Path<String>, frame: Frame) -> Response {
    let Ok(known) = id.parse::<MessageId>() else {
        let text = html! { code { (shown(&id)) } " is not a valid queue ID." };
        return frame.sorry(StatusCode::BAD_REQUEST, "/quarantine", "Invalid queue ID", &text);
    };
    let csrf = frame.caller.csrf().map(str::to_owned);
    let Ok(peer) = frame.caller.may_change(csrf.as_deref()) else {
        let text = html! { a href={ "/login?next=" (encode(&frame.here)) } { "Log in" } " to view a message." };
        return frame.sorry(StatusCode::UNAUTHORIZED, "/quarantine", "Login needed", &text);
    };
    let message = match http.ask(Request::QuarantineShow { id: known }, peer).await {
        ControlReply::Quarantined(message) => message,
        ControlReply::Error(problem) => return frame.problem("/quarantine", &problem),
        _ => return frame.problem("/quarantine", &Problem::new(ErrorCode::Failed, "unexpected answer")),
    };
    let buttons = [
        Button { verb: "quarantine_release", label: "Release", is_reversible: true },
        Button { verb: "quarantine_delete", label: "Delete", is_reversible: false },
    ];
    let main = html! {
        div.head { h1 { "Message " span.mono { (message.message.id) } } span.badge.warn { "quarantined" } }
        section.panel aria-labelledby="envelope" { h2 #envelope { "Envelope" } (envelope(&http, &message)) }
        (act::panel(&frame, "This message", &[("id", message.message.id.as_str())], &buttons))
        (act::copy(&frame, &[("id", message.message.id.as_str())]))
        (content(&message))
    };
    frame.page("/quarantine", &format!("Message {}", message.message.id), &main)
}

fn envelope(http: &Http, message: &QuarantinedMessage) -> Markup {
    let view = &message.message;
    html! {
        dl.facts {
            dt { "Quarantined by" } dd { (shown(&view.by)) }
            dt { "Sender" } dd { (sender(&view.sender)) }
            @if let Some(list) = &view.list { dt { "List" } dd { (shown(list)) } }
            dt { "Recipients" } dd { (recipients(view)) }
            dt { "Accepted" } dd { (instant(view.accepted, &http.zone)) " (" (ago(view.accepted, message.now)) ")" }
            dt { "Expires" } dd { (next_try(Some(view.expires), message.now)) }
            dt { "Client" } dd { (address(&view.origin)) }
            dt { "Size" } dd { (bytes(view.size)) }
        }
    }
}

/// The message's header, text and file names, as plain text.
fn content(message: &QuarantinedMessage) -> Markup {
    html! {
        section.panel aria-labelledby="header" {
            h2 #header { "Header" }
            dl.facts { @for (name, value) in &message.fields { dt { (shown(name)) } dd { (shown(value)) } } }
        }
        @if !message.attachments.is_empty() {
            section.panel aria-labelledby="files" {
                h2 #files { "Attachments" }
                ul {
                    @for file in &message.attachments {
                        li { @if file.name.is_empty() { "without a name" } @else { (shown(&file.name)) } ", " (shown(&file.content_type)) ", " (bytes(file.size)) }
                    }
                }
            }
        }
        section.panel aria-labelledby="text" {
            h2 #text { "Text" }
            @if message.text.trim().is_empty() { p.empty { "None." } }
            @else { div.plain { @for line in message.text.lines() { (shown(line)) br; } } }
            @if let Some(limit) = &message.limit { p.quiet { "Shortened: " (limit) "." } }
        }
    }
}
