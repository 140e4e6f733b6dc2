//! The HTTP API: the operator's verbs, as on the control socket, and submission of mail.
//!
//! Promise: a request is converted to the control socket's own ([`Request::parse`]), so both accept the same arguments
//! and give the same answers. A change needs a login and is audited under its name. `GET /api/v1/openapi.json`
//! describes every route; a test makes it from the types and compares.
//!
//! Failure answers: `{"error": {"code", "text"}}` with the code of the control socket, and the matching status.

mod answers;
mod dmarc;
mod export;
mod history;
mod idempotency;
mod inject;
mod merge;
#[cfg(test)]
mod openapi;
mod suppressions;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Json, Router};
use bytes::Bytes;
use serde_json::{Map, Value};
use stentor_control::VERSION;
use stentor_control::problem::Problem;
use stentor_control::protocol::REQUEST_BYTES_MAX;
use stentor_control::{ControlReply, ErrorCode, Request, Requester};

pub use self::answers::ErrorBody;
pub use self::idempotency::IdempotencyCache;

use self::answers::{Done, WebhookList};
use super::auth::Caller;
use super::{Http, problem};

/// The `OpenAPI` 3.1 document, written by a test (`openapi/mod.rs`).
const OPENAPI: &str = include_str!("openapi.json");
/// Seconds in Retry-After.
const RETRY_AFTER_S: u64 = 30;

/// Every route: its method, path and handler.
fn routes() -> Vec<(&'static str, &'static str, MethodRouter<Http>)> {
    let mut routes: Vec<(&'static str, &'static str, MethodRouter<Http>)> = vec![
        ("get", "/api/v1/status", get(|h, q| read(h, q, "status", None))),
        ("get", "/api/v1/queue", get(|h, q| read(h, q, "queue", None))),
        ("get", "/api/v1/queue/ages", get(|h, q| read(h, q, "ages", None))),
        ("get", "/api/v1/queue/stuck", get(|h, q| read(h, q, "queue_stuck", None))),
        ("get", "/api/v1/queue/export", get(export::export)),
        ("get", "/api/v1/messages/{id}", get(|h, q, Path(id)| read(h, q, "queue_show", Some(("id", id))))),
        ("get", "/api/v1/addresses/{address}", get(|h, q, Path(a)| read(h, q, "address", Some(("address", a))))),
        ("get", "/api/v1/sites/{name}", get(|h, q, Path(name)| read(h, q, "site", Some(("name", name))))),
        ("get", "/api/v1/mailqq", get(|h, q| read(h, q, "mailqq", None))),
        ("get", "/api/v1/hosts", get(|h, q| read(h, q, "hosts", None))),
        ("get", "/api/v1/posts", get(|h, q| read(h, q, "report", None))),
        ("get", "/api/v1/posts/{id}", get(|h, q, Path(id)| read(h, q, "report", Some(("id", id))))),
        ("get", "/api/v1/posts/{id}/recipients", get(|h, q, Path(id)| read(h, q, "post_show", Some(("id", id))))),
        ("get", "/api/v1/quarantine", get(|h, q| read(h, q, "quarantine", None))),
        ("get", "/api/v1/quarantine/{id}", get(quarantined)),
        ("get", "/api/v1/mailstat", get(history::mailstat)),
        ("get", "/api/v1/trace/{what}", get(history::trace)),
        ("get", "/api/v1/dmarc", get(dmarc::sums)),
        ("get", "/api/v1/suppressions", get(suppressions::list)),
        ("get", "/api/v1/suppressions/export", get(suppressions::export)),
        ("post", "/api/v1/suppressions/import", suppressions::import_route()),
        ("get", "/api/v1/suppressions/{subject}", get(suppressions::show)),
        ("get", "/api/v1/lists", get(|h, q| read(h, q, "lists", None))),
        ("get", "/api/v1/lists/{name}", get(|h, q, Path(name)| read(h, q, "list_show", Some(("name", name))))),
        ("get", "/api/v1/lists/{list}/members", get(|h, c, q, Path(list)| members(h, c, q, "members", ("list", list)))),
        ("get", "/api/v1/members/{address}", get(|h, c, q, Path(a)| members(h, c, q, "member_show", ("address", a)))),
        ("get", "/api/v1/webhooks", get(webhooks)),
        ("get", "/api/v1/users", get(users)),
        ("get", "/api/v1/openapi.json", get(|| async { ([(header::CONTENT_TYPE, "application/json")], OPENAPI) })),
        ("post", "/api/v1/messages", inject::route()),
    ];
    for (path, verb) in VERBS {
        routes.push(("post", path, post(move |h, c, b| change(h, c, b, verb, None))));
    }
    for (path, verb) in POSTS {
        routes.push(("post", path, post(move |h, c, Path(id), b| change(h, c, b, verb, Some(("id", id))))));
    }
    for (path, verb, own) in LISTS {
        routes.push(("post", path, post(move |h, c, Path(name), b| change(h, c, b, verb, Some((own, name))))));
    }
    routes
}

/// Verbs that change something, with their names on the control socket.
const VERBS: [(&str, &str); 17] = [
    ("/api/v1/suspend", "suspend"),
    ("/api/v1/resume", "resume"),
    ("/api/v1/flush", "flush"),
    ("/api/v1/hold", "hold"),
    ("/api/v1/release", "release"),
    ("/api/v1/remove", "remove"),
    ("/api/v1/bounce", "bounce"),
    ("/api/v1/requeue", "requeue"),
    ("/api/v1/queue-only", "queue_only"),
    ("/api/v1/queue/run", "queue_run"),
    ("/api/v1/quarantine/release", "quarantine_release"),
    ("/api/v1/quarantine/delete", "quarantine_delete"),
    ("/api/v1/quarantine/copy", "quarantine_copy"),
    ("/api/v1/suppress", "suppress"),
    ("/api/v1/unsuppress", "unsuppress"),
    ("/api/v1/reload", "reload"),
    ("/api/v1/lists", "list_create"),
];
/// Verbs on one post, with their names on the control socket.
const POSTS: [(&str, &str); 4] = [
    ("/api/v1/posts/{id}/resend", "resend"),
    ("/api/v1/posts/{id}/pause", "hold"),
    ("/api/v1/posts/{id}/resume", "release"),
    ("/api/v1/posts/{id}/cancel", "remove"),
];

/// Verbs on one list, with their names on the control socket.
const LISTS: [(&str, &str, &str); 5] = [
    ("/api/v1/lists/{name}/set", "list_set", "name"),
    ("/api/v1/lists/{name}/delete", "list_delete", "name"),
    ("/api/v1/lists/{name}/members/add", "member_add", "list"),
    ("/api/v1/lists/{name}/members/remove", "member_remove", "list"),
    ("/api/v1/lists/{name}/members/set", "member_set", "list"),
];

pub fn router() -> Router<Http> {
    let all = routes().into_iter().fold(Router::new(), |router, (_, path, route)| router.route(path, route));
    all.layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
}

/// The state of the webhook endpoints.
async fn webhooks(State(http): State<Http>) -> Response {
    Json(WebhookList { webhooks: http.webhooks.views() }).into_response()
}

/// Handles a verb that changes nothing, with its arguments in the query.
async fn read(
    State(http): State<Http>,
    query: Result<Query<HashMap<String, String>>, QueryRejection>,
    verb: &'static str,
    own: Option<(&'static str, String)>,
) -> Response {
    let fields = match query {
        Ok(Query(query)) => from_query(query),
        Err(error) => return bad_query(&error),
    };
    match request(verb, fields, own) {
        // No caller is needed: requests that change nothing are not audited.
        Ok(request) => answer(http.ask(request, anonymous()).await),
        Err(refused) => answer(ControlReply::Error(refused)),
    }
}

/// Shows a quarantined message to operators only, and records the access.
async fn quarantined(State(http): State<Http>, caller: Caller, Path(id): Path<String>) -> Response {
    let peer = match caller.may_change(None) {
        Ok(peer) => peer,
        Err(refused) => return refused,
    };
    match request("quarantine_show", Map::new(), Some(("id", id))) {
        Ok(request) => answer(http.ask(request, peer).await),
        Err(refused) => answer(ControlReply::Error(refused)),
    }
}

/// Shows members to operators only: who reads a list is nobody else's business.
async fn members(
    State(http): State<Http>,
    caller: Caller,
    query: Result<Query<HashMap<String, String>>, QueryRejection>,
    verb: &'static str,
    own: (&'static str, String),
) -> Response {
    let peer = match caller.may_change(None) {
        Ok(peer) => peer,
        Err(refused) => return refused,
    };
    let fields = match query {
        Ok(Query(query)) => from_query(query),
        Err(error) => return bad_query(&error),
    };
    match request(verb, fields, Some(own)) {
        Ok(request) => answer(http.ask(request, peer).await),
        Err(refused) => answer(ControlReply::Error(refused)),
    }
}

/// Shows users to operators only.
async fn users(State(http): State<Http>, caller: Caller) -> Response {
    match caller.may_change(None) {
        Ok(peer) => answer(http.ask(Request::Users, peer).await),
        Err(refused) => refused,
    }
}

/// Handles a verb that changes something, with its arguments in a JSON body.
async fn change(
    State(http): State<Http>,
    caller: Caller,
    body: Result<Bytes, BytesRejection>,
    verb: &'static str,
    own: Option<(&'static str, String)>,
) -> Response {
    let peer = match caller.may_change(None) {
        Ok(peer) => peer,
        Err(refused) => return refused,
    };
    let body = match body {
        Ok(body) => body,
        Err(error) => {
            let too_large = error.status() == StatusCode::PAYLOAD_TOO_LARGE;
            let code = if too_large { ErrorCode::TooLarge } else { ErrorCode::BadRequest };
            return problem(error.status(), code, &error.body_text());
        }
    };
    let fields = if body.trim_ascii().is_empty() { Ok(Map::new()) } else { serde_json::from_slice(&body) };
    let fields = match fields {
        Ok(fields) => fields,
        Err(error) => {
            let text = format!("expected a JSON object: {error}");
            return problem(StatusCode::BAD_REQUEST, ErrorCode::BadRequest, &text);
        }
    };
    match request(verb, fields, own) {
        Ok(request) => answer(http.ask(request, peer).await),
        Err(refused) => answer(ControlReply::Error(refused)),
    }
}

/// Answers a query with a wrong value or parameter.
fn bad_query(error: &QueryRejection) -> Response {
    let text = error.body_text();
    problem(StatusCode::BAD_REQUEST, ErrorCode::BadRequest, &query_fault(&text))
}

/// What is wrong with a query, in words of the API; other errors as they are.
fn query_fault(text: &str) -> String {
    const NO_NUMBER: [&str; 2] = ["invalid digit found in string", "cannot parse integer from empty string"];
    let text = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(text);
    match text.split_once(": ") {
        Some((name @ ("since" | "until" | "expires"), why)) if NO_NUMBER.contains(&why) => {
            format!("`{name}` is in milliseconds since 1970")
        }
        Some((name, why)) if NO_NUMBER.contains(&why) => format!("`{name}` is a number"),
        Some((name, why)) => format!("`{name}`: {why}"),
        None => text.to_owned(),
    }
}

fn anonymous() -> Requester {
    Requester::Http { who: "reader".into(), address: std::net::Ipv4Addr::UNSPECIFIED.into() }
}

/// Builds the control socket's request for a verb with these arguments; `own` is the one in the path.
fn request(verb: &str, mut fields: Map<String, Value>, own: Option<(&str, String)>) -> Result<Request, Problem> {
    for taken in ["v", "verb"].into_iter().chain(own.as_ref().map(|(name, _)| *name)) {
        if fields.contains_key(taken) {
            return Err(Problem::new(ErrorCode::BadRequest, format!("{verb}: `{taken}` is already given by the path")));
        }
    }
    if let Some((name, value)) = own {
        fields.insert(name.to_owned(), value.into());
    }
    fields.insert("v".to_owned(), VERSION.into());
    fields.insert("verb".to_owned(), verb.into());
    Request::parse(Value::Object(fields).to_string().as_bytes())
}

/// Converts query values to JSON, with numbers and booleans where the name implies them.
fn from_query(query: HashMap<String, String>) -> Map<String, Value> {
    let value = |name: &str, text: String| {
        let is_number = name.ends_with("_max") || name.ends_with("_min") || matches!(name, "last" | "offset");
        let is_truth = matches!(name, "all" | "waiting" | "failing");
        match text.as_str() {
            "true" if is_truth => true.into(),
            "false" if is_truth => false.into(),
            digits if is_number => digits.parse::<u64>().map_or_else(|_| Value::from(text.clone()), Value::from),
            _ => text.into(),
        }
    };
    query.into_iter().map(|(name, text)| (name.clone(), value(&name, text))).collect()
}

/// Converts a reply to a response.
fn answer(reply: ControlReply) -> Response {
    fn data(value: impl serde::Serialize) -> Response {
        Json(value).into_response()
    }
    match reply {
        ControlReply::Status(status) => data(status),
        ControlReply::Queue(queue) => data(queue),
        ControlReply::Stuck(stuck) => data(stuck),
        ControlReply::Message(message) => data(message),
        ControlReply::Address(address) => data(address),
        ControlReply::Verified(verified) => data(verified),
        ControlReply::Ages(ages) => data(ages),
        ControlReply::Site(site) => data(site),
        ControlReply::Mailqq(mailqq) => data(mailqq),
        ControlReply::Hosts(hosts) => data(hosts),
        ControlReply::Posts(posts) => data(posts),
        ControlReply::Post(post) => data(post),
        ControlReply::Doctor(doctor) => data(doctor),
        ControlReply::Users(users) => data(users),
        ControlReply::Quarantine(list) => data(list),
        ControlReply::Quarantined(message) => data(message),
        ControlReply::DkimRecords(records) => data(records),
        ControlReply::Suppressions(list) => data(list),
        ControlReply::Lists(table) => data(table),
        ControlReply::Members(table) => data(table),
        ControlReply::Person(person) => data(person),
        ControlReply::Done { text, count, .. } => data(Done { text, count }),
        ControlReply::Counted(counted) => data(counted),
        ControlReply::Error(Problem { code, text }) => {
            let mut response = problem(status_of(code), code, &text);
            if response.status() == StatusCode::SERVICE_UNAVAILABLE {
                response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER_S.into());
            }
            response
        }
    }
}

fn status_of(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::BadRequest | ErrorCode::BadVersion | ErrorCode::UnknownVerb => StatusCode::BAD_REQUEST,
        ErrorCode::NotFound => StatusCode::NOT_FOUND,
        ErrorCode::BadConfiguration => StatusCode::UNPROCESSABLE_ENTITY,
        ErrorCode::NeedsRestart => StatusCode::CONFLICT,
        ErrorCode::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorCode::Forbidden => StatusCode::FORBIDDEN,
        ErrorCode::NotInThisVersion => StatusCode::NOT_IMPLEMENTED,
        ErrorCode::Busy | ErrorCode::Failed | ErrorCode::Other => StatusCode::SERVICE_UNAVAILABLE,
    }
}
