//! Actions on many recipients: carried out while a page shows their progress.
//!
//! Promise: the action continues if the browser leaves, and ends like any other. The page reloads each second until the
//! action is over, then continues with the result. Results of the last [`KEPT_MAX`] actions are kept.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::{Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use maud::html;
use parking_lot::Mutex;
use serde::Deserialize;
use stentor_admin::verbs::who;
use stentor_control::{ControlReply, Request, Requester, Verb};

use super::format::{number, percent, plural};
use super::page::{self, Frame};
use crate::Http;

/// Minimum number of recipients for a progress page.
pub const RECIPIENTS_MIN: u64 = 500;
/// Maximum actions kept by number.
const KEPT_MAX: usize = 100;
/// Seconds between reloads of the page.
const AGAIN_S: &str = "1";

/// The result of an action.
#[derive(Clone)]
pub struct ActionOutcome {
    pub is_well: bool,
    pub text: String,
}

impl ActionOutcome {
    pub fn of(reply: ControlReply) -> ActionOutcome {
        let (is_well, text) = match reply {
            ControlReply::Done { text, .. } => (true, text),
            ControlReply::Counted(counted) => (true, counted.text),
            ControlReply::Error(problem) => (false, problem.text),
            _ => (false, "unexpected answer".to_owned()),
        };
        ActionOutcome { is_well, text }
    }
}

#[derive(Clone)]
struct Job {
    verb: Verb,
    who: String,
    total: u64,
    /// Where to continue.
    next: String,
    outcome: Option<ActionOutcome>,
}

/// The last actions, by number.
#[derive(Default)]
pub struct Jobs {
    all: Mutex<BTreeMap<u64, Job>>,
    last: AtomicU64,
}

impl Jobs {
    fn begin(&self, job: Job) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let mut all = self.all.lock();
        if all.len() == KEPT_MAX {
            all.pop_first();
        }
        all.insert(number, job);
        number
    }

    fn end(&self, number: u64, outcome: ActionOutcome) {
        if let Some(job) = self.all.lock().get_mut(&number) {
            job.outcome = Some(outcome);
        }
    }
}

/// Starts an action and redirects to its progress page.
pub fn begin(http: &Http, request: Request, peer: Requester, verb: Verb, total: u64, next: &str) -> Response {
    let job = Job { verb, who: who(&peer), total, next: next.to_owned(), outcome: None };
    let number = http.jobs.begin(job);
    let http = http.clone();
    tokio::spawn(async move {
        let outcome = ActionOutcome::of(http.ask(request, peer).await);
        http.jobs.end(number, outcome);
    });
    Redirect::to(&format!("/action?number={number}")).into_response()
}

#[derive(Deserialize)]
pub struct ActionQuery {
    number: u64,
}

/// `GET /action?number=N`
pub async fn page(
    State(http): State<Http>,
    Query(ActionQuery { number: at }): Query<ActionQuery>,
    frame: Frame,
) -> Response {
    let Some(job) = http.jobs.all.lock().get(&at).cloned() else {
        let text =
            html! { "This action is no longer tracked. See " a href="/audit" { "the audit log" } " for its result." };
        return frame.sorry(StatusCode::NOT_FOUND, "/audit", "Not found", &text);
    };
    if let Some(ActionOutcome { is_well, text }) = job.outcome {
        return page::go_on(&job.next, is_well, &text);
    }
    let now = http.core.live.action.now().filter(|now| now.verb == job.verb.name() && now.who == job.who);
    let done = now.as_ref().map_or(0, |now| now.recipients).min(job.total);
    let title = format!("{} under way", capital(&job.verb.name().replace('_', " ")));
    let main = html! {
        div.head { h1 { (title) } }
        section.panel aria-label="Progress" {
            @if now.is_some() {
                p { strong { (percent(done, job.total)) } ": " (number(done)) " of " (plural(job.total, "recipient")) }
            } @else {
                p { "Waiting for another action to finish." }
            }
            progress max=(job.total) value=(done) aria-label="Recipients" {}
            p.quiet { "This page reloads each second. The action continues if you leave it." }
        }
    };
    let mut response = frame.page("/audit", &title, &main);
    response.headers_mut().insert(header::REFRESH, HeaderValue::from_static(AGAIN_S));
    response
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_actions_are_known_with_what_they_came_to() {
        let jobs = Jobs::default();
        let job = || Job { verb: Verb::Hold, who: String::new(), total: 600, next: "/queue".to_owned(), outcome: None };
        let first = jobs.begin(job());
        assert!(jobs.all.lock()[&first].outcome.is_none());
        jobs.end(first, ActionOutcome { is_well: true, text: "hold: 600 recipients".to_owned() });
        assert_eq!(jobs.all.lock()[&first].outcome.as_ref().unwrap().text, "hold: 600 recipients");
        for _ in 0..KEPT_MAX {
            jobs.begin(job());
        }
        assert!(!jobs.all.lock().contains_key(&first) && jobs.all.lock().len() == KEPT_MAX);
        jobs.end(first, ActionOutcome { is_well: true, text: String::new() });
    }
}
