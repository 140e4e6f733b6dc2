//! The HTTP side of the server: console, API, metrics, health; each a router on one listener.
//!
//! Promise: bound to loopback unless configured otherwise; answers come from memory or from files of history and
//! reports, never from a scan under the queue's lock; an action in progress is completed even if its caller leaves;
//! everything ends with the server. A port in use stops the start, and the error names the key.
//!
//! Every request passes the [`guard`] and has an [`auth::Caller`].

mod anonymous;
pub mod api;
pub mod auth;
mod body;
mod browser;
mod console;
mod dmarc_sums;
#[cfg(test)]
mod generated;
pub mod guard;
mod health;
mod held_message;
mod link_page;
mod list_pages;
mod listener;
pub mod metrics;
mod readings;
mod unsubscribe;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router, middleware};
use stentor_admin::operator::Operator;
use stentor_admin::quarantine::Links;
use stentor_control::{Control, ControlReply, ErrorCode, Request, Requester};
use stentor_core::Core;
use stentor_push::webhooks::Registry;
use stentor_records::civil::Zone;
use stentor_tls::Acceptor;
use tokio::net::TcpListener;
use tokio::sync::watch;

use self::api::ErrorBody;
use self::auth::Auth;

/// State shared by all handlers.
#[derive(Clone)]
pub struct Http {
    pub core: Arc<Core>,
    pub operator: Arc<Operator>,
    /// The time zone of pages.
    pub zone: Zone,
    pub auth: Arc<Auth>,
    /// The console's shared watch of live counters.
    pub now: console::LiveWatch,
    /// History readings cached for the console.
    pub past: Arc<console::HistoryCache>,
    /// Sums of DMARC reports of others.
    pub dmarc_sums: dmarc_sums::ReceivedReportSums,
    /// Actions on many recipients.
    pub jobs: Arc<console::Jobs>,
    /// State of each webhook endpoint.
    pub webhooks: Arc<Registry>,
    /// Answers by idempotency key.
    pub answers: Arc<api::IdempotencyCache>,
    /// Recipients' links to their quarantined mail.
    pub links: Arc<Links>,
    /// Counts of visits to these links.
    visits: Arc<held_message::Visits>,
    /// Permits of requests from the forms of lists.
    list_requests: Arc<tokio::sync::Semaphore>,
}

impl Http {
    pub fn new(
        core: Arc<Core>,
        operator: Arc<Operator>,
        webhooks: Arc<Registry>,
        links: Arc<Links>,
        zone: Zone,
    ) -> Http {
        Http {
            core,
            operator,
            zone,
            auth: Arc::default(),
            now: console::LiveWatch::default(),
            past: Arc::default(),
            dmarc_sums: dmarc_sums::ReceivedReportSums::default(),
            jobs: Arc::default(),
            webhooks,
            answers: Arc::default(),
            links,
            visits: Arc::default(),
            list_requests: list_pages::permits(),
        }
    }

    /// Runs a verb to its end even if the caller leaves: a verb dropped midway would leave recipients reserved.
    pub async fn ask(&self, request: Request, peer: Requester) -> ControlReply {
        let operator = self.operator.clone();
        let answer = tokio::spawn(async move { operator.handle(request, peer).await });
        answer.await.unwrap_or_else(|_| ControlReply::error(ErrorCode::Failed, "the server is stopping"))
    }
}

/// A refusal in the API's form, the same object as on the control socket.
pub fn problem(status: StatusCode, code: ErrorCode, text: &str) -> Response {
    let mut response = (status, Json(ErrorBody::new(code, text, Vec::new()))).into_response();
    if status == StatusCode::UNAUTHORIZED {
        let bearer = axum::http::HeaderValue::from_static("Bearer realm=\"stentor\"");
        response.headers_mut().insert(axum::http::header::WWW_AUTHENTICATE, bearer);
    }
    response
}

/// The router for all paths.
fn router(http: Http) -> Router {
    Router::new()
        .merge(health::router())
        .merge(auth::router())
        .merge(api::router())
        .merge(metrics::router())
        .merge(console::router())
        .merge(held_message::router())
        .merge(unsubscribe::router())
        .merge(list_pages::router())
        .fallback(console::missing)
        .layer(middleware::from_fn_with_state(http.clone(), guard::guard))
        .with_state(http)
}

/// Binds the listeners for [`serve`].
///
/// # Errors
/// The address that cannot be bound.
pub async fn bind(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>, (SocketAddr, io::Error)> {
    let mut bound = Vec::with_capacity(addresses.len());
    for addr in addresses {
        bound.push(TcpListener::bind(addr).await.map_err(|error| (*addr, error))?);
    }
    Ok(bound)
}

/// Serves the listeners until `stop`. `tls` turns on HTTPS. The addresses have the ports that the system chose.
pub fn serve(
    listeners: Vec<TcpListener>,
    tls: Option<&Arc<Acceptor>>,
    http: &Http,
    stop: &watch::Receiver<bool>,
) -> Vec<SocketAddr> {
    let connections_max = http.core.settings().config.http.connections_max as usize;
    let permits = Arc::new(tokio::sync::Semaphore::new(connections_max));
    let anonymous = anonymous::AnonymousConnections::new(connections_max);
    let app = router(http.clone());
    let addresses = listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect();
    for listener in listeners {
        let slots = listener::Slots { tls: tls.cloned(), permits: permits.clone(), anonymous: anonymous.clone() };
        tokio::spawn(listener::serve(listener, app.clone(), http.core.clone(), slots, stop.clone()));
    }
    addresses
}
