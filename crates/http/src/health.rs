//! `/healthz`: the process responds. `/readyz`: it accepts mail now, or the reasons why not, one per line. Nothing
//! listens while a start replays the journal.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;

use super::Http;

pub fn router() -> Router<Http> {
    Router::new().route("/healthz", get(|| async { "ok\n" })).route("/readyz", get(ready))
}

async fn ready(State(http): State<Http>) -> (StatusCode, String) {
    let mut troubles = http.core.troubles();
    if http.core.with(|hub, _| hub.is_stopping()) {
        troubles.insert(0, "stopping");
    }
    if troubles.is_empty() {
        return (StatusCode::OK, "ready\n".to_owned());
    }
    (StatusCode::SERVICE_UNAVAILABLE, troubles.join("\n") + "\n")
}
