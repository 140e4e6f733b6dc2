//! Queries on the history: the table of `mailstat`, and the story of a message or subscriber (`trace`).
//!
//! Read from files, with limited concurrency ([`Readings`](crate::readings::Readings)).

use std::ops::ControlFlow;
use std::path::PathBuf;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::Value;
use stentor_control::{Control, EnvelopeView, ErrorCode, Selection};
use stentor_history::{Reader, StoryQuery};
use stentor_records::mailstat::{By, Options, Table, json};
use tokio::sync::mpsc;

use super::bad_query;
use crate::{Http, problem};

/// Default period in milliseconds, if `since` is missing.
const SINCE_DEFAULT_MS: u64 = 24 * 3_600_000;
/// The longest period summed at once: a week.
const SPAN_MS_MAX: u64 = 7 * 24 * 3_600_000;
/// Maximum messages with a full story; the latest are kept.
const MESSAGES_MAX: usize = 100;
/// Pending recipients whose messages and domain failures are included.
const PENDING_MAX: usize = 10_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RowsQuery {
    /// Group rows by hour (default), day, list, site, host or source.
    #[serde(default)]
    by: Rows,
    /// Start, in milliseconds since the Unix epoch (default: a day before `until`).
    since: Option<u64>,
    /// End, exclusive, in milliseconds since the Unix epoch (default: now).
    until: Option<u64>,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum Rows {
    #[default]
    Hour,
    Day,
    List,
    Site,
    Host,
    Source,
}

/// `GET /api/v1/mailstat`
pub(super) async fn mailstat(State(http): State<Http>, query: Result<Query<RowsQuery>, QueryRejection>) -> Response {
    let bad = |text: &str| problem(StatusCode::BAD_REQUEST, ErrorCode::BadRequest, text);
    let query = match query {
        Ok(Query(query)) => query,
        Err(error) => return bad_query(&error),
    };
    let until = query.until.unwrap_or_else(|| http.core.clock.now());
    let since = query.since.unwrap_or(until.saturating_sub(SINCE_DEFAULT_MS));
    if until.saturating_sub(since) > SPAN_MS_MAX {
        return bad("at most a week can be summed at once");
    }
    let by = match query.by {
        Rows::Hour => By::Hour,
        Rows::Day => By::Day,
        Rows::List => By::List,
        Rows::Site => By::Site,
        Rows::Host => By::Host,
        Rows::Source => By::Source,
    };
    read(&http, move |reader| {
        let mut table = Table::new(Options { by, since: Some(since), until: Some(until), ..Options::default() });
        reader.scan(since, until, &mut |record| {
            table.add(record);
            ControlFlow::Continue(())
        })?;
        Ok(json(&table))
    })
    .await
}

/// For a domain only the records of the last day are scanned.
const SCAN_MS: u64 = 24 * 3_600_000;

/// `GET /api/v1/trace/{what}`
pub(super) async fn trace(State(http): State<Http>, Path(what): Path<String>) -> Response {
    let (pending, pending_left_out) = pending(&http, &what).await;
    let now = http.core.clock.now();
    read(&http, move |reader| {
        let mut wanted =
            StoryQuery { what: &what, is_sender: false, from: 0, pending: &pending, messages_max: MESSAGES_MAX };
        if stentor_history::is_scan(&wanted) {
            wanted.from = now.saturating_sub(SCAN_MS);
        }
        let (story, _) = stentor_history::story(reader, &wanted)?;
        let mut story = serde_json::to_value(&story).unwrap_or(Value::Null);
        story["pending_left_out"] = pending_left_out.into();
        Ok(story)
    })
    .await
}

/// The messages that are waiting for it, with their recipients, and the number of further recipients: the history does
/// not name recipients before their first attempt.
async fn pending(http: &Http, what: &str) -> (Vec<(String, String)>, u64) {
    let (mut pending, mut left_out) = (Vec::new(), 0);
    let Some(selection) = Selection::about(what) else { return (pending, left_out) };
    let (sender, mut groups) = mpsc::channel(1);
    let taking = async {
        while let Some(group) = groups.recv().await {
            for EnvelopeView { id, recipients, .. } in group {
                let room = PENDING_MAX - pending.len();
                left_out += recipients.len().saturating_sub(room) as u64;
                pending.extend(recipients.into_iter().take(room).map(|of| (id.clone(), of.state.address)));
            }
        }
    };
    // A refusal means that it is not an address, so nothing is waiting for it.
    let (_, ()) = tokio::join!(http.operator.export(selection, sender), taking);
    (pending, left_out)
}

async fn read(http: &Http, work: impl FnOnce(&Reader) -> std::io::Result<Value> + Send + 'static) -> Response {
    let folder: PathBuf = http.core.settings().config.data_dir.join("history");
    let read = http.past.readings.run(move || Reader::open(&folder).and_then(|reader| work(&reader)));
    match read.await {
        Some(Ok(value)) => Json(value).into_response(),
        Some(Err(error)) => {
            let text = format!("the history cannot be read: {error}");
            problem(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Failed, &text)
        }
        None => problem(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Failed, "the server is stopping"),
    }
}
