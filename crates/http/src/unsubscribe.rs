//! One-click unsubscribing (RFC 8058): the links in copies ([`stentor_copies::Membership`]).
//!
//! Promise: POST suppresses this recipient for this list or sender, and answers 200 once that is on disk; repeating it
//! changes nothing. GET changes nothing, since link scanners follow every link: it shows a page whose button posts. The
//! body of a POST is not needed, because the link says everything, and is not read.
//!
//! Failure: a link that is foreign, altered or expired: 404, always the same, after one digest of its octets and
//! without a look at the registry. If the entry cannot be stored: 503; mail providers try again.

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use maud::html;
use stentor_copies::{Membership, UNSUBSCRIBE_PATH};
use stentor_core::log;
use stentor_core::suppression::sender_scope;
use stentor_registry::{RegistryError, Scope, Subject, Suppression, SuppressionError, SuppressionReason};

use super::Http;
use super::console::shown;
use super::link_page::{later, missing, page};

/// Source of the entries.
const SOURCE: &str = "one-click";

pub fn router() -> Router<Http> {
    Router::new().route(&format!("{UNSUBSCRIBE_PATH}{{token}}"), get(look).post(unsubscribe))
}

/// `GET /unsubscribe/TOKEN`
async fn look(State(http): State<Http>, Path(token): Path<String>) -> Response {
    let Some(membership) = open(&http, &token) else { return missing() };
    let text = html! {
        p { "Stop mail from " (name(&membership)) " to " (shown(membership.recipient())) "?" }
        // Posts to this page, wherever a proxy has put it.
        form method="post" { button { "Unsubscribe" } }
    };
    page(StatusCode::OK, "Unsubscribe", &text)
}

/// `POST /unsubscribe/TOKEN`
async fn unsubscribe(State(http): State<Http>, Path(token): Path<String>) -> Response {
    let Some(membership) = open(&http, &token) else { return missing() };
    let now = http.core.clock.now();
    let entry = match suppression(&membership, now) {
        Ok(entry) => entry,
        Err(error) => {
            tracing::error!(?membership, %error, "a valid unsubscribe link cannot be entered in the registry");
            return missing();
        }
    };
    let registry = http.core.registry.clone();
    // Runs to the end even if the client leaves.
    let stored = tokio::spawn(async move { registry.suppress(entry).await }).await;
    match stored {
        Ok(Ok(_)) => {
            let scope = name(&membership);
            log::audit_note(&http.core, "suppress", SOURCE, &format!("{} from {scope}", membership.recipient()));
            let text = html! {
                p role="status" { (shown(membership.recipient())) " gets no more mail from " (name(&membership)) "." }
            };
            page(StatusCode::OK, "Unsubscribed", &text)
        }
        Ok(Err(error @ RegistryError::Invalid(_))) => {
            tracing::error!(?membership, %error, "a valid unsubscribe link cannot be entered in the registry");
            missing()
        }
        _ => later(StatusCode::SERVICE_UNAVAILABLE, "60", "Your request could not be saved. Try again later."),
    }
}

fn open(http: &Http, token: &str) -> Option<Membership> {
    http.core.settings().copies.membership(token, http.core.clock.now())
}

fn suppression(membership: &Membership, now: u64) -> Result<Suppression, SuppressionError> {
    let scope = match membership {
        Membership::List { list, .. } => Scope::list(list)?,
        Membership::Sender { sender, .. } => sender_scope(sender)?,
    };
    let subject = Subject::parse(membership.recipient())?;
    Ok(Suppression::new(subject, scope, SuppressionReason::Unsubscribe, SOURCE, now))
}

/// The list or sender as people see it.
fn name(membership: &Membership) -> String {
    match membership {
        Membership::List { list, .. } => format!("the list {}", shown(list)),
        Membership::Sender { sender, .. } => shown(sender),
    }
}
