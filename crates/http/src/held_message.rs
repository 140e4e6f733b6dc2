//! The page behind a link in a quarantine digest: a recipient's own held message, and the button that releases it.
//!
//! Promise: GET changes nothing, whoever follows links; POST releases this recipient's copy and nothing else. Message
//! text is shown as plain text: the page runs no scripts, loads nothing, passes on no URL (`no-referrer`), and is not
//! indexed. It needs no login: the link is the permission ([`stentor_admin::quarantine::Links`]). It refers to no other
//! path of ours, so that a proxy in front only needs to pass `/kept/`.
//!
//! Failure: a link that is foreign, altered or expired: 404, always the same. More than [`VISITS_MAX`] requests in a
//! minute with links of one recipient: 429; more than [`READINGS_MAX`] messages being read: 503. A wrong link costs one
//! digest of its octets, and is not counted: behind a proxy all clients have one address.

use std::collections::HashMap;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use maud::{Markup, html};
use parking_lot::Mutex;
use stentor_admin::quarantine::{LinkSubject, OwnCopy, OwnView, look_at_own, release_own};
use stentor_queue::ids::Ms;
use tokio::sync::Semaphore;

use super::Http;
use super::auth::Caller;
use super::console::{bytes, instant, shown};
use super::link_page::{later, missing, page};

const VISITS_MAX: u32 = 60;
const MINUTE_MS: Ms = 60_000;
/// Maximum recipients whose visits are counted.
const RECIPIENTS_MAX: usize = 10_000;
/// Maximum messages read for these pages at a time.
const READINGS_MAX: usize = 4;

/// Requests per recipient in this minute.
pub struct Visits {
    minute: Mutex<(Ms, HashMap<String, u32>)>,
    readings: Semaphore,
}

impl Default for Visits {
    fn default() -> Visits {
        Visits { minute: Mutex::default(), readings: Semaphore::new(READINGS_MAX) }
    }
}

impl Visits {
    /// Counts a visit and returns whether it is allowed.
    fn count(&self, recipient: &str, now: Ms) -> bool {
        let mut minute = self.minute.lock();
        let (begin, counts) = &mut *minute;
        if now.saturating_sub(*begin) >= MINUTE_MS {
            *begin = now;
            counts.clear();
        }
        if counts.len() == RECIPIENTS_MAX && !counts.contains_key(recipient) {
            return false;
        }
        let count = counts.entry(recipient.to_owned()).or_default();
        *count = count.saturating_add(1);
        *count <= VISITS_MAX
    }
}

pub fn router() -> Router<Http> {
    Router::new().route("/kept/{token}", get(look).post(release))
}

/// Verifies a link's token; otherwise returns the answer that denies it.
fn admit(http: &Http, token: &str) -> Result<LinkSubject, Box<Response>> {
    let now = http.core.clock.now();
    let Some(ticket) = http.links.open(token, now) else { return Err(Box::new(missing())) };
    if http.visits.count(&ticket.recipient, now) {
        return Ok(ticket);
    }
    Err(Box::new(later(StatusCode::TOO_MANY_REQUESTS, "60", "Your links were used too often. Try again in a minute.")))
}

/// `GET /kept/TOKEN`
async fn look(State(http): State<Http>, Path(token): Path<String>) -> Response {
    let ticket = match admit(&http, &token) {
        Ok(ticket) => ticket,
        Err(refused) => return *refused,
    };
    let Ok(_reading) = http.visits.readings.try_acquire() else {
        return later(StatusCode::SERVICE_UNAVAILABLE, "5", "The server is busy. Try again in a few seconds.");
    };
    match look_at_own(&http.core, &http.links, &ticket).await {
        Ok(OwnCopy::Kept(view)) => page(StatusCode::OK, "Message in quarantine", &kept(&http, &view)),
        Ok(own) => over(&own),
        Err(_) => {
            later(StatusCode::SERVICE_UNAVAILABLE, "60", "The message cannot be read at the moment. Try again later.")
        }
    }
}

/// `POST /kept/TOKEN`
async fn release(State(http): State<Http>, Path(token): Path<String>, caller: Caller) -> Response {
    let ticket = match admit(&http, &token) {
        Ok(ticket) => ticket,
        Err(refused) => return *refused,
    };
    let client = caller.address.ip().to_string();
    // Runs to the end even if the browser leaves.
    let done = tokio::spawn(async move { release_own(&http.core, &http.links, &ticket, &client).await }).await;
    match done {
        Ok(Ok(None)) => {
            let text = html! { p role="status" { "The message was released and will arrive in your mailbox soon." } };
            page(StatusCode::OK, "Released", &text)
        }
        Ok(Ok(Some(own))) => over(&own),
        _ => later(StatusCode::SERVICE_UNAVAILABLE, "60", "The message could not be released now. Try again later."),
    }
}

/// The answer if there is nothing left to release.
fn over(own: &OwnCopy) -> Response {
    let (title, text) = match own {
        OwnCopy::Released => ("Already released", "You have already released this message."),
        OwnCopy::Kept(_) | OwnCopy::Gone => {
            ("Not in the quarantine", "This message is no longer in the quarantine: it was released or deleted.")
        }
    };
    page(StatusCode::OK, title, &html! { p role="status" { (text) } })
}

fn kept(http: &Http, view: &OwnView) -> Markup {
    html! {
        p { "The mail server has quarantined this message. Release it only if you expected it." }
        dl {
            dt { "From" } dd { (or_none(&view.from)) }
            dt { "Sender" } dd { @if view.sender.is_empty() { "none" } @else { (shown(&view.sender)) } }
            dt { "To" } dd { (shown(&view.recipient)) }
            dt { "Subject" } dd { (or_none(&view.subject)) }
            dt { "Why" } dd { (or_none(&view.why)) }
            dt { "Received" } dd { (instant(view.accepted, &http.zone)) }
            dt { "Kept until" } dd { (instant(view.expires, &http.zone)) }
        }
        // Posts to this page, wherever a proxy has put it.
        form method="post" { button { "Release" } }
        @if !view.files.is_empty() {
            h2 { "Attachments" }
            ul {
                @for file in &view.files {
                    li { @if file.name.is_empty() { "without a name" } @else { (shown(&file.name)) } ", " (shown(&file.content_type)) ", " (bytes(file.size)) }
                }
            }
        }
        h2 { "Text" }
        @if view.text.trim().is_empty() { p.quiet { "None." } }
        @else { div.text { @for line in view.text.lines() { (shown(line)) br; } } }
        @if let Some(limit) = view.limit { p.quiet { "Shortened: " (limit) "." } }
    }
}

fn or_none(text: &str) -> String {
    if text.trim().is_empty() { "none".to_owned() } else { shown(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visits_are_counted_by_recipient_and_minute_in_bounded_memory() {
        let visits = Visits::default();
        for n in 0..VISITS_MAX {
            assert!(visits.count("ann", 1_000_000), "{n}");
        }
        assert!(!visits.count("ann", 1_000_000) && visits.count("bob", 1_000_000));
        for n in 0..2 * RECIPIENTS_MAX {
            visits.count(&n.to_string(), 1_000_000);
        }
        assert_eq!(visits.minute.lock().1.len(), RECIPIENTS_MAX);
        assert!(visits.count("ann", 1_000_000 + MINUTE_MS));
    }
}
