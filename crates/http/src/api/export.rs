//! `GET /api/v1/queue/export`: streams envelopes as NDJSON at the client's pace.

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use stentor_control::{Control, ControlReply, Request};
use tokio::sync::mpsc;

use super::{answer, from_query, request};
use crate::Http;
use crate::body::received;

/// Groups of lines buffered for a slow client.
const GROUPS_MAX: usize = 2;
/// A client that reads nothing for this long is disconnected.
pub(super) const UNREAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Streams the export. The last line is `{"end": {...}}` with the counts, or `{"error": {...}}`; without either the
/// export is incomplete.
pub(super) async fn export(State(http): State<Http>, Query(query): Query<HashMap<String, String>>) -> Response {
    let selection = match request("export", from_query(query), None) {
        Ok(Request::Export { selection }) => selection,
        Ok(_) => return answer(ControlReply::error(stentor_control::ErrorCode::BadRequest, "no export")),
        Err(refused) => return answer(ControlReply::Error(refused)),
    };
    let (lines, mut groups) = mpsc::channel(GROUPS_MAX);
    let (out, stream) = mpsc::channel::<Result<Bytes, Infallible>>(GROUPS_MAX);
    let walk = tokio::spawn(async move { http.operator.export(selection, lines).await });
    tokio::spawn(async move {
        while let Some(group) = groups.recv().await {
            let mut text = Vec::new();
            for envelope in group {
                // A plain struct with string keys: serialising it cannot fail.
                let _ = serde_json::to_writer(&mut text, &envelope);
                text.push(b'\n');
            }
            if !matches!(tokio::time::timeout(UNREAD_TIMEOUT, out.send(Ok(text.into()))).await, Ok(Ok(()))) {
                return;
            }
        }
        let end = match walk.await {
            Ok(ControlReply::Counted(counted)) => serde_json::json!({"end": counted}),
            Ok(ControlReply::Error(error)) => serde_json::json!({"error": error}),
            _ => serde_json::json!({"error": {"code": "failed", "text": "the server is stopping"}}),
        };
        let _ = out.send(Ok(format!("{end}\n").into())).await;
    });
    let body = Body::from_stream(received(stream));
    ([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response()
}
