//! Pages on which people join and leave lists, and confirm it.
//!
//! Promise: the form of a list changes nothing: it mails the address that somebody enters, at most once a day
//! ([`stentor_core::membership`]). Its answer is the same, and comes as soon, for members, others and people mailed
//! before, so that nobody learns who is a member. GET of a confirmation changes nothing, since link scanners follow
//! every link; POST does what its token says, once. Pages need no login and run no scripts. Forgery by another site's
//! page (CSRF) gains nothing: the forms use no rights of the visitor, so whoever can make a browser post can post.
//!
//! Failure: a list that takes no commands, and a token that is altered, used or expired: 404, always the same. Too many
//! requests of a client: 429; too many at once, or a registry that refuses changes: 503.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::rejection::FormRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::get;
use axum::{Form, Router};
use maud::html;
use serde::Deserialize;
use stentor_core::membership::{self, ConfirmedChange, MembershipRequest, MembershipWish, command_list};
use stentor_lists::commands::{ConfirmationToken, JoinPolicy};
use stentor_lists::replies::CommandReply;
use stentor_mail::address::Address;
use stentor_policy::counted_as;
use stentor_registry::ConfirmedAction;

use super::Http;
use super::auth::Caller;
use super::console::shown;
use super::link_page::{LISTS_PATH, later, missing, page};

/// Requests in progress.
pub const REQUESTS_MAX: usize = 64;
const FORWARDED_FOR: &str = "x-forwarded-for";

#[derive(Deserialize)]
struct ListForm {
    address: String,
    #[serde(default)]
    name: String,
    action: String,
}

pub fn router() -> Router<Http> {
    Router::new()
        .route(&format!("{LISTS_PATH}{{list}}"), get(look).post(ask))
        .route(&format!("{}{{token}}", CommandReply::CONFIRM_PATH), get(look_at_confirmation).post(confirm))
}

/// `GET /lists/NAME`
async fn look(State(http): State<Http>, Path(name): Path<String>) -> Response {
    let settings = http.core.settings();
    let Some(list) = command_list(&settings, &name) else { return missing() };
    let list = list.settings();
    let is_open = list.commands.is_some_and(|commands| commands.join == JoinPolicy::Open);
    let text = html! {
        @if !list.description.trim().is_empty() { p { (shown(&list.description)) } }
        p { "Posts: " (shown(list.address.as_str())) }
        // Posts to this page, wherever a proxy has put it.
        form method="post" {
            p { label { "Your address" br; input type="email" name="address" required maxlength="254" autocomplete="email"; } }
            @if is_open {
                p { label { "Your name (optional)" br; input name="name" maxlength="80" autocomplete="name"; } }
                button name="action" value="join" { "Join" } " "
            }
            button name="action" value="leave" { "Leave" }
        }
        p.quiet { "You get a mail with a link that confirms it." }
    };
    page(StatusCode::OK, &shown(&list.name), &text)
}

/// `POST /lists/NAME`
async fn ask(
    State(http): State<Http>,
    Path(name): Path<String>,
    caller: Caller,
    headers: HeaderMap,
    form: Result<Form<ListForm>, FormRejection>,
) -> Response {
    let settings = http.core.settings();
    let Some(list) = command_list(&settings, &name) else { return missing() };
    let Ok(Form(ListForm { address, name, action })) = form else { return invalid("The form is incomplete.") };
    let wish = match action.as_str() {
        "join" => MembershipWish::Join,
        "leave" => MembershipWish::Leave,
        _ => return invalid("The form is incomplete."),
    };
    let Ok(person) = address.trim().parse::<Address>() else { return invalid("This is not a valid mail address.") };
    let client = client(&caller, &headers);
    if is_too_often(&http, client, true) {
        return too_often();
    }
    let Ok(turn) = http.list_requests.clone().try_acquire_owned() else {
        return later(StatusCode::SERVICE_UNAVAILABLE, "60", "The server is busy. Try again in a minute.");
    };
    let text = html! {
        p role="status" {
            (shown(person.as_str())) " gets a mail with instructions, unless it got one in the last 24 hours."
        }
    };
    let source = format!("web {client}");
    let request =
        MembershipRequest { list: list.name().clone(), person, name, wish, source, is_proven: false, message_id: None };
    // The time of the answer must not depend on the membership.
    tokio::spawn(async move {
        let (core, settings, _turn) = (http.core.clone(), http.core.settings(), turn);
        let list = request.list.clone();
        match membership::request(&core, &settings, request).await {
            Ok(effect) => tracing::info!(%list, %client, ?wish, ?effect, "list form"),
            Err(error) => tracing::error!(%list, %client, %error, "request from a list's form not stored"),
        }
    });
    page(StatusCode::OK, "Check your mail", &text)
}

/// `GET /confirm/TOKEN`
async fn look_at_confirmation(
    State(http): State<Http>,
    Path(token): Path<String>,
    caller: Caller,
    headers: HeaderMap,
) -> Response {
    let client = client(&caller, &headers);
    let Some(token) = ConfirmationToken::parse(&token) else { return missing() };
    if is_too_often(&http, client, false) {
        return too_often();
    }
    match membership::pending(&http.core, &http.core.settings(), &token, None).await {
        Ok(Some(change)) => {
            let (list, person) = (shown(change.list.name()), shown(&change.confirmation.address));
            let (title, button) = match change.confirmation.action {
                ConfirmedAction::Join => (format!("Join {list}?"), "Join"),
                ConfirmedAction::Leave => (format!("Leave {list}?"), "Leave"),
            };
            let text = html! {
                p { "List " (list) ", address " (person) "." }
                form method="post" { button { (button) } }
            };
            page(StatusCode::OK, &title, &text)
        }
        Ok(None) => invalid_token(&http, client),
        Err(_) => {
            later(StatusCode::SERVICE_UNAVAILABLE, "60", "This confirmation could not be read. Try again in a minute.")
        }
    }
}

/// `POST /confirm/TOKEN`
async fn confirm(State(http): State<Http>, Path(token): Path<String>, caller: Caller, headers: HeaderMap) -> Response {
    let client = client(&caller, &headers);
    let Some(token) = ConfirmationToken::parse(&token) else { return missing() };
    if is_too_often(&http, client, false) {
        return too_often();
    }
    let core = http.core.clone();
    let source = format!("web {client}");
    // Runs to the end even if the browser leaves.
    let done = tokio::spawn(async move {
        let settings = core.settings();
        membership::confirm(&core, &settings, &token, None, &source).await
    });
    match done.await {
        Ok(Ok(Some(change))) => confirmed(&change),
        Ok(Ok(None)) => invalid_token(&http, client),
        _ => not_stored(),
    }
}

fn confirmed(change: &ConfirmedChange) -> Response {
    let (list, person) = (shown(change.list.name()), shown(&change.confirmation.address));
    let (title, text) = match change.confirmation.action {
        ConfirmedAction::Join => ("You have joined", format!("{person} is now a member of the list {list}.")),
        ConfirmedAction::Leave => ("You have left", format!("{person} is no longer a member of the list {list}.")),
    };
    page(StatusCode::OK, title, &html! { p role="status" { (text) } })
}

/// The client for limits. Only a proxy on this machine is believed about the address it forwards for.
fn client(caller: &Caller, headers: &HeaderMap) -> IpAddr {
    let forwarded = headers.get_all(FORWARDED_FOR).iter().next_back().and_then(|value| value.to_str().ok());
    client_behind(caller.address.ip().to_canonical(), forwarded)
}

/// The client of a peer that may be a proxy. `forwarded`: value of the last X-Forwarded-For.
fn client_behind(peer: IpAddr, forwarded: Option<&str>) -> IpAddr {
    let last = forwarded.and_then(|all| all.rsplit(',').next()).and_then(|last| last.trim().parse().ok());
    last.filter(|_| peer.is_loopback()).unwrap_or(peer)
}

/// Whether a client must wait. `counts`: this request counts.
fn is_too_often(http: &Http, client: IpAddr, counts: bool) -> bool {
    let (key, now) = (("web", counted_as(client)), http.core.clock.steady());
    let mut requests = http.core.list_requests.lock();
    let is_too_often = requests.wait_ms(&key, now).is_some();
    if counts && !is_too_often {
        requests.wrong(&key, now);
    }
    is_too_often
}

/// Guesses count like requests: each costs the registry a look-up.
fn invalid_token(http: &Http, client: IpAddr) -> Response {
    is_too_often(http, client, true);
    missing()
}

fn too_often() -> Response {
    later(StatusCode::TOO_MANY_REQUESTS, "60", "Too many requests from your address. Try again later.")
}

fn not_stored() -> Response {
    later(StatusCode::SERVICE_UNAVAILABLE, "60", "Your request could not be saved. Try again later.")
}

fn invalid(text: &str) -> Response {
    page(StatusCode::BAD_REQUEST, "Invalid request", &html! { p role="alert" { (text) } })
}

/// The permits of requests in progress.
pub fn permits() -> Arc<tokio::sync::Semaphore> {
    Arc::new(tokio::sync::Semaphore::new(REQUESTS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_proxy_on_this_machine_names_the_client() {
        let client = |peer: &str, forwarded| client_behind(peer.parse().unwrap(), forwarded).to_string();
        assert_eq!(client("127.0.0.1", Some("203.0.113.9, 192.0.2.1")), "192.0.2.1");
        assert_eq!(client("::1", Some("2001:db8::1")), "2001:db8::1");
        assert_eq!(client("198.51.100.1", Some("192.0.2.1")), "198.51.100.1");
        for none in [None, Some(""), Some("unknown"), Some("192.0.2.1,")] {
            assert_eq!(client("127.0.0.1", none), "127.0.0.1", "{none:?}");
        }
    }
}
