//! One address: waiting messages, delivery history, and its suspension.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use stentor_admin::report;
use stentor_control::{AddressView, Control, ControlReply, RecipientState, RecipientView, Request, SuppressionView};
use stentor_mail::heading::Heading;
use stentor_queue::cause::Cause;
use stentor_queue::ids::{MessageId, Ms};

use super::act::{self, Button};
use super::format::{self, ago, instant, message_link, next_try, number, plural, sender, shown, site_link};
use super::page::{Frame, heading};
use super::table::{column, head, table};
use super::{causes, posts, story};
use crate::Http;

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct RecipientQuery {
    address: String,
}

/// `GET /recipient?address=`
pub async fn page(
    State(http): State<Http>,
    Query(RecipientQuery { address }): Query<RecipientQuery>,
    frame: Frame,
) -> Response {
    let address = address.trim();
    if address.is_empty() {
        let main = html! {
            (heading("Recipient", &html! { "Waiting mail and past deliveries of one address" }))
            section.panel aria-label="Look up" { (form("")) }
        };
        return frame.page("/recipient", "Recipient", &main);
    }
    let request = Request::Address { address: address.to_owned() };
    let now = match http.operator.handle(request, act::reader()).await {
        ControlReply::Address(view) => known(&frame, &view, &waiting(&http, &view.messages).await),
        ControlReply::Error(problem) => html! {
            div.head { h1 { (format::address(address)) } }
            section.panel aria-label="Look up" { (form(address)) p.empty { (shown(&problem.text)) } }
        },
        _ => html! {},
    };
    // A domain alone is not a recipient; its story would cover everyone there.
    let story = if address.contains('@') { Some(http.past.story(&http.core, address).await) } else { None };
    let main = html! { (now) @if let Some(story) = story { (story::panel(story, true, &http.zone)) } };
    frame.page("/recipient", address, &main)
}

fn form(address: &str) -> Markup {
    html! {
        form.fields method="get" action="/recipient" {
            div {
                label for="f-address" { "Address" }
                input #f-address name="address" type="text" inputmode="email" value=(address) autocomplete="off"
                    placeholder="bob@example.net" spellcheck="false";
            }
            div.go { button.main { "Show" } }
        }
    }
}

/// A message waiting for the recipient.
struct WaitingMessage {
    id: String,
    /// The time it was accepted; `None` if it has left the queue meanwhile.
    accepted: Option<Ms>,
    /// Its list, or its sender.
    from: String,
    heading: Option<Arc<Heading>>,
}

/// The waiting messages with their sender and subject.
async fn waiting(http: &Http, ids: &[String]) -> Vec<WaitingMessage> {
    let known: Vec<MessageId> = ids.iter().filter_map(|id| id.parse().ok()).collect();
    let headings = report::headings(&http.core, &known).await;
    let rows = known.iter().zip(headings).map(|(id, heading)| {
        let found = http.core.with(|hub, _| {
            let message = hub.store.message(hub.store.no_of(*id)?)?;
            let envelope = message.envelope();
            Some((message.accepted(), envelope.list.map_or_else(|| envelope.sender.to_owned(), str::to_owned)))
        });
        let (accepted, from) = found.unzip();
        WaitingMessage { id: id.to_string(), accepted, from: from.unwrap_or_default(), heading }
    });
    rows.collect()
}

fn waiting_table(rows: &[WaitingMessage], now: Ms) -> Markup {
    let columns =
        [head("Message", "t"), column("Subject", "long"), column("List or sender", "name"), column("Accepted", "t")];
    let row = |row: &WaitingMessage| {
        vec![
            message_link(&row.id),
            posts::subject(row.heading.as_deref()),
            sender(&row.from),
            html! { @if let Some(at) = row.accepted { (ago(at, now)) } @else { "–" } },
        ]
    };
    table("Messages waiting for this address", &columns, &rows.iter().map(row).collect::<Vec<_>>(), None)
}

/// Why the oldest message waits, and its next attempt unless an operator or a transaction holds it.
fn why_it_waits(pending: &RecipientView, messages: u64, now: Ms) -> Markup {
    let is_kept = Cause::of_name(&pending.cause).is_some_and(Cause::is_kept);
    let is_tried = !is_kept && pending.state != RecipientState::InFlight;
    html! {
        dl.facts {
            dt { "Reason" @if messages > 1 { " (oldest)" } } dd { (causes::cell(&pending.words, &pending.last_reply)) }
            @if is_tried { dt { "Next try" } dd { (next_try(pending.next_try.or(Some(now)), now)) } }
        }
    }
}

fn known(frame: &Frame, view: &AddressView, waiting: &[WaitingMessage]) -> Markup {
    html! {
        div.head { h1 { (format::address(&view.address)) } }
        div.pair {
            section.panel aria-labelledby="mailbox" { h2 #mailbox { "Mailbox" } (mailbox(view)) }
            section.panel aria-labelledby="hosts" { h2 #hosts { "Hosts of its domain" } (hosts(view)) }
        }
        @if !view.suppressions.is_empty() {
            section.panel aria-labelledby="suppressed" {
                h2 #suppressed { "Suppressions" }
                (suppressions(frame, &view.suppressions, view.now))
            }
        }
        section.panel aria-labelledby="waits" {
            h2 #waits { "Waiting" }
            @if view.messages.is_empty() { p.empty { "No messages are waiting for this address." } } @else {
                p { (plural(view.messages_total, "message")) @if view.messages_total > view.messages.len() as u64 { ", oldest first:" } @else { ":" } }
                (waiting_table(waiting, view.now))
                @if let Some(pending) = &view.pending { (why_it_waits(pending, view.messages_total, view.now)) }
            }
        }
        @for list in &view.lists {
            @let name = format!("subscriber:{list}:{}", view.address);
            @let (suspended, until) = frame.http.core.with(|hub, _| (hub.store.is_suspended(&name), hub.store.suspended_until(&name)));
            @let reason = view.suspended_reasons.get(list);
            @if suspended { p.said.warn { "Suspended as subscriber of " (shown(list)) @if let Some(at) = until { " until " (instant(at, &frame.http.zone)) } @if let Some(reason) = reason { ": " (shown(reason)) } @else { "." } } }
            (act::panel(frame, &format!("Subscriber of {list}"), &[("list", list), ("subscriber", &view.address)], &[
                if suspended { Button { verb: "resume", label: "Resume posts", is_reversible: true } }
                else { Button { verb: "suspend", label: "Suspend", is_reversible: true } }
            ]))
        }
    }
}

/// Suppressions of the address and its domain.
fn suppressions(frame: &Frame, rows: &[SuppressionView], now: Ms) -> Markup {
    let columns = [
        head("Subject", "long"),
        column("Scope", "name"),
        column("Reason", "t"),
        column("Source", "name"),
        column("Since", "t"),
        column("Until", "t"),
        column("Note", "long"),
    ];
    let zone = &frame.http.zone;
    let row = |row: &SuppressionView| {
        vec![
            format::address(&row.subject),
            html! { @if row.scope == "everything" { "all mail" } @else { (shown(&row.scope)) } },
            html! { (shown(&row.reason)) },
            html! { (shown(&row.source)) },
            instant(row.since, zone),
            html! {
                @match row.expires {
                    None => "for ever",
                    Some(end) if end <= now => "expired",
                    Some(end) => (instant(end, zone)),
                }
            },
            html! { (shown(&row.note)) },
        ]
    };
    table("Suppressions", &columns, &rows.iter().map(row).collect::<Vec<_>>(), None)
}

/// The last outcome; times are kept in slots of some hours.
fn last_outcome(view: &AddressView) -> Markup {
    let is_recent = |at: Ms| view.now < at + stentor_queue::book::SLOT_MS;
    let last = outcome(&view.mailbox.last);
    match view.mailbox.last_seen.filter(|_| view.mailbox.last != "untried") {
        Some(at) if is_recent(at) => html! { (last) ", within the last 4 h" },
        Some(at) => html! { (last) ", " (ago(at, view.now)) },
        None => html! { (last) },
    }
}

fn mailbox(view: &AddressView) -> Markup {
    let mailbox = &view.mailbox;
    let at_most = |count: u8| if count == u8::MAX { "255 or more".to_owned() } else { count.to_string() };
    html! {
        dl.facts {
            dt { "Domain" } dd { (shown(&view.domain)) }
            dt { "Lists" } dd { @if view.lists.is_empty() { "none" } @else { (shown(&view.lists.join(", "))) } }
            dt { "Last outcome" } dd { (last_outcome(view)) }
            dt { "Deliveries" } dd { (at_most(mailbox.deliveries)) }
            @if let Some(ms) = mailbox.xdelay_ms { dt { "Duration" } dd { (number(ms)) " ms, last attempt" } }
            dt { "Rejected (permanent)" } dd {
                @if mailbox.refusals == 0 { (if mailbox.deliveries == 0 { "never" } else { "none since the last \
                    delivery" }) } @else {
                    (at_most(mailbox.refusals)) " in a row"
                    @if let Some(since) = mailbox.refused_since { ", the first " (ago(since, view.now)) }
                }
            }
        }
    }
}

/// The last outcome in the words of the other pages.
fn outcome(last: &str) -> &str {
    match last {
        "refused" => "rejected (permanent)",
        "untried" => "none recorded",
        other => other,
    }
}

fn hosts(view: &AddressView) -> Markup {
    let hosts = &view.hosts;
    html! {
        dl.facts {
            dt { "Site" } dd { @if let Some(site) = &view.site { (site_link(site)) } @else { "not looked up yet" } }
            dt { "Last success" } dd { @if let Some(at) = hosts.last_success { (ago(at, view.now)) } @else { "never" } }
            dt { "Last failure" } dd { @if let Some(at) = hosts.last_failure { (ago(at, view.now)) } @else { "never" } }
            dt { "Attempts" } dd { (number(hosts.answered.into())) " answered (delivered, or a mailbox deferred or refused), " (number(hosts.failed.into())) " failed; halved every seven days" }
            @if let Some(ms) = hosts.xdelay_ms { dt { "Duration" } dd { (number(ms)) " ms" @if let Some(p99) = hosts.p99_ms { ", 99 % under " (number(p99)) " ms" } } }
        }
    }
}
