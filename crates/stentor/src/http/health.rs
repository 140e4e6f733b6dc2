//! `/healthz`: the process answers. `/readyz`: it takes mail now, or why not.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;

use super::Http;

pub fn router() -> Router<Http> {
    Router::new().route("/healthz", get(|| async { "ok\n" })).route("/readyz", get(ready))
}

async fn ready(State(http): State<Http>) -> (StatusCode, String) {
    if http.core.with(|hub, _| hub.is_stopping()) {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n".to_owned());
    }
    match http.core.push_back() {
        None => (StatusCode::OK, "ready\n".to_owned()),
        Some(reply) => (StatusCode::SERVICE_UNAVAILABLE, format!("{} {}\n", reply.code, reply.text)),
    }
}
