//! `/healthz`: the process responds. `/readyz`: 200 while it accepts mail, else 503; either way with the problems, one
//! per line (docs/operate/health.md). Nothing listens while a start replays the journal.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use stentor_config::ReadAccess;
use stentor_core::live::health::refuses_mail;
use stentor_records::health::Condition;

use super::Http;

pub fn router() -> Router<Http> {
    Router::new().route("/healthz", get(|| async { "ok\n" })).route("/readyz", get(ready))
}

async fn ready(State(http): State<Http>) -> (StatusCode, String) {
    let core = &http.core;
    let conditions = core.live.health.conditions();
    // A caller who may not read gets the problems without details.
    let is_open = core.settings().config.http.reading != ReadAccess::Login;
    let mut lines = Vec::new();
    let is_stopping = core.with(|hub, _| hub.is_stopping());
    if is_stopping {
        lines.push("stopping".to_owned());
    }
    // Read together with the refusals, before the condition is recorded.
    let troubles = core.troubles();
    let are_said = conditions.iter().any(|condition| condition.name.ends_with("_full"));
    lines.extend(troubles.iter().filter(|_| !are_said).map(|trouble| (*trouble).to_owned()));
    lines.extend(conditions.iter().map(|condition| line(condition, is_open)));
    let is_ready = !is_stopping && troubles.is_empty() && !refuses_mail(&conditions);
    if is_ready {
        lines.insert(0, "ready".to_owned());
    }
    let code = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, lines.join("\n") + "\n")
}

/// Formats `PROBLEM milter rspamd: milter rspamd fails: ...`.
fn line(condition: &Condition, is_open: bool) -> String {
    let severity = condition.severity.words();
    if is_open {
        format!("{severity} {}: {}", condition.title(), condition.what.escape_debug())
    } else {
        format!("{severity} {}", condition.name)
    }
}
