//! Suppressions over HTTP: rows, and CSV in and out (`stentor_registry::csv`). Adding and removing single entries are
//! verbs like others.
//!
//! Promise: an import is read as it comes, a part in memory, and each part is durable and audited before the next. A
//! line with an error is reported with its number and skipped; with `dry_run` nothing is changed, so that a file can be
//! checked before. An import that was interrupted can be repeated: it changes nothing twice. An export has the entries
//! of one moment or another while it runs.
//!
//! Failure: a part that cannot be stored ends the import, and the answer says how many entries are stored. An export
//! that fails ends without the last chunk, which every client reports.

use std::collections::BTreeSet;
use std::io;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use bytes::Bytes;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use stentor_admin::suppression_forms::{addition, list_remark};
use stentor_control::suppression_view::{ENTRIES_MAX, ROWS_DEFAULT, ROWS_MAX};
use stentor_control::{
    ControlReply, ErrorCode, NewSuppressions, Problem, Request, Requester, SuppressionName, SuppressionOptions,
    SuppressionRequest,
};
use stentor_registry::csv::{CsvDefaults, entry_line, header_line};
use stentor_registry::csv_reader::{CsvLine, CsvReader};
use stentor_registry::{Scope, Suppression, SuppressionError, SuppressionQuery, SuppressionReason};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::export::UNREAD_TIMEOUT;
use super::{anonymous, answer, bad_query};
use crate::auth::Caller;
use crate::body::received;
use crate::{Http, problem};

/// Octets of an import at most: ten million lines.
const IMPORT_BYTES_MAX: u64 = 1 << 30;
/// Errors that an answer describes; all are counted.
const ERRORS_MAX: usize = 100;
/// Remarks of an answer.
const REMARKS_MAX: usize = 20;
/// Scopes of a dry run whose lists are looked for.
const SCOPES_MAX: usize = 1_000;
/// Source of imported entries without one.
const SOURCE: &str = "import";
const CSV: &str = "text/csv; charset=utf-8";
/// Parts of an export buffered for a slow client.
const PARTS_MAX: usize = 2;

/// Which entries to list.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SuppressionsQuery {
    /// Entries of this address and its domain, or of this `@domain`.
    subject: Option<String>,
    /// Entries of this scope: `everything`, `list:NAME`, `sender:ADDRESS` or `sender:DOMAIN`.
    scope: Option<String>,
    /// Entries with this reason: `unsubscribe`, `complaint`, `bounce` or `operator`.
    reason: Option<String>,
    /// Continue after the entry with this subject, and `after_scope`: `next` of the previous answer.
    after_subject: Option<String>,
    /// Scope of that entry.
    after_scope: Option<String>,
    /// Maximum number of entries returned (default 50, at most 1000).
    rows_max: Option<u32>,
}

/// Defaults for lines without them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ImportQuery {
    /// Scope of lines without one (default `everything`).
    scope: Option<String>,
    /// Reason of lines without one (default `operator`).
    reason: Option<String>,
    /// Source of lines without one (default `import`).
    source: Option<String>,
    /// When lines without an end expire (default: never).
    expires: Option<u64>,
    /// Only check the file.
    #[serde(default)]
    dry_run: bool,
}

/// The result of an import.
#[derive(Default, Serialize)]
pub(super) struct ImportResult {
    /// Lines with an entry.
    pub entries: u64,
    /// Entries that were added or extended; the others were there for as long or longer.
    pub changed: u64,
    /// Entries that had expired already, and were not added.
    pub ended: u64,
    /// Lines with errors.
    pub errors_total: u64,
    /// The first 100 of them.
    pub errors: Vec<LineError>,
    /// Doubts about the entries, such as lists that are not configured.
    pub remarks: Vec<String>,
}

#[derive(Default, Serialize)]
pub(super) struct LineError {
    /// Line number, from 1.
    pub line: u64,
    /// What is wrong.
    pub text: String,
}

/// `GET /api/v1/suppressions`
pub(super) async fn list(
    State(http): State<Http>,
    query: Result<Query<SuppressionsQuery>, QueryRejection>,
) -> Response {
    let query = match query {
        Ok(Query(query)) => query,
        Err(error) => return bad_query(&error),
    };
    let after = match (query.after_subject, query.after_scope) {
        (Some(subject), Some(scope)) => Some(SuppressionName::of(subject, scope)),
        (None, None) => None,
        _ => return bad("give both after_subject and after_scope, or neither"),
    };
    let rows_max = query.rows_max.unwrap_or(ROWS_DEFAULT);
    if !(1..=ROWS_MAX).contains(&rows_max) {
        return bad(&format!("rows_max must be from 1 to {ROWS_MAX}"));
    }
    let (subject, scope, reason) = (query.subject, query.scope, query.reason);
    let request = SuppressionRequest::List(SuppressionOptions { subject, scope, reason, after, rows_max });
    answer(http.ask(Request::Suppression(request), anonymous()).await)
}

/// `GET /api/v1/suppressions/{subject}`
pub(super) async fn show(State(http): State<Http>, Path(subject): Path<String>) -> Response {
    let options = SuppressionOptions { subject: Some(subject), rows_max: ROWS_MAX, ..SuppressionOptions::default() };
    answer(http.ask(Request::Suppression(SuppressionRequest::List(options)), anonymous()).await)
}

/// `GET /api/v1/suppressions/export`
pub(super) async fn export(State(http): State<Http>) -> Response {
    let (out, stream) = mpsc::channel::<io::Result<Bytes>>(PARTS_MAX);
    tokio::spawn(async move {
        let mut text = header_line();
        let mut query = SuppressionQuery { rows_max: ROWS_MAX as usize, ..SuppressionQuery::default() };
        loop {
            let listed = http.core.registry.list(query.clone()).await.map_err(io::Error::other);
            let (part, next) = match listed {
                Ok(listed) => {
                    text.extend(listed.rows.iter().map(entry_line));
                    (Ok(Bytes::from(std::mem::take(&mut text))), listed.next)
                }
                Err(error) => (Err(error), None),
            };
            if !matches!(timeout(UNREAD_TIMEOUT, out.send(part)).await, Ok(Ok(()))) {
                return;
            }
            query.after = next;
            if query.after.is_none() {
                return;
            }
        }
    });
    ([(header::CONTENT_TYPE, CSV)], Body::from_stream(received(stream))).into_response()
}

/// `POST /api/v1/suppressions/import`
pub(super) fn import_route() -> MethodRouter<Http> {
    post(import).layer(DefaultBodyLimit::disable())
}

async fn import(
    State(http): State<Http>,
    caller: Caller,
    query: Result<Query<ImportQuery>, QueryRejection>,
    body: Body,
) -> Response {
    let peer = match caller.may_change(None) {
        Ok(peer) => peer,
        Err(refused) => return refused,
    };
    let query = match query {
        Ok(Query(query)) => query,
        Err(error) => return bad_query(&error),
    };
    let now = http.core.clock.now();
    let (is_dry, defaults) = (query.dry_run, defaults(query, now));
    let defaults = match defaults {
        Ok(defaults) => defaults,
        Err(error) => return bad(&error.to_string()),
    };
    let importer = Importer {
        http: &http,
        peer,
        now,
        is_dry,
        source: defaults.source.clone(),
        entries: Vec::new(),
        scopes: BTreeSet::new(),
        result: ImportResult::default(),
    };
    match importer.run(CsvReader::new(defaults), body).await {
        Ok(result) => Json(result).into_response(),
        Err(ImportFailure::TooLarge) => {
            let text = format!("the import exceeds {IMPORT_BYTES_MAX} octets; split the file");
            problem(StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::TooLarge, &text)
        }
        Err(ImportFailure::Body { why, stored }) => {
            bad(&format!("the body ended early: {why}; {stored} entries are stored: repeat the import"))
        }
        Err(ImportFailure::Refused { problem: Problem { code, text }, stored }) => {
            let text = format!("{text}; {stored} entries are stored: repeat the import; stored entries stay unchanged");
            answer(ControlReply::Error(Problem::new(code, text)))
        }
    }
}

fn defaults(query: ImportQuery, now: u64) -> Result<CsvDefaults, SuppressionError> {
    let scope = query.scope.as_deref().map_or(Ok(Scope::Everything), Scope::parse)?;
    let reason = query.reason.as_deref().map_or(Ok(SuppressionReason::Operator), SuppressionReason::parse)?;
    let source = query.source.unwrap_or_else(|| SOURCE.to_owned());
    Ok(CsvDefaults { scope, reason, source, since: now, expires: query.expires })
}

/// Why an import ended early. `stored`: entries that are stored all the same.
enum ImportFailure {
    TooLarge,
    Body { why: String, stored: u64 },
    Refused { problem: Problem, stored: u64 },
}

/// An import under way.
struct Importer<'a> {
    http: &'a Http,
    peer: Requester,
    now: u64,
    is_dry: bool,
    source: String,
    /// Entries that are not stored yet.
    entries: Vec<Suppression>,
    /// Scopes that a dry run has seen.
    scopes: BTreeSet<String>,
    result: ImportResult,
}

impl Importer<'_> {
    async fn run(mut self, mut reader: CsvReader, body: Body) -> Result<ImportResult, ImportFailure> {
        let (mut octets, mut left, mut stored) = (body.into_data_stream(), IMPORT_BYTES_MAX, 0);
        while let Some(piece) = octets.next().await {
            let piece = piece.map_err(|error| ImportFailure::Body { why: error.to_string(), stored })?;
            left = left.checked_sub(piece.len() as u64).ok_or(ImportFailure::TooLarge)?;
            reader.push(&piece, &mut |line| self.line(line));
            while self.entries.len() >= ENTRIES_MAX {
                stored += self.store(stored).await?;
            }
        }
        reader.finish(&mut |line| self.line(line));
        while !self.entries.is_empty() {
            stored += self.store(stored).await?;
        }
        Ok(self.result)
    }

    fn line(&mut self, line: CsvLine) {
        let result = &mut self.result;
        match line.entry {
            Ok(None) => {}
            Ok(Some(entry)) => {
                result.entries += 1;
                if entry.has_expired(self.now) {
                    result.ended += 1;
                } else if self.is_dry {
                    let scope = entry.key.scope;
                    let is_new = self.scopes.len() < SCOPES_MAX && self.scopes.insert(scope.text());
                    if is_new && result.remarks.len() < REMARKS_MAX {
                        result.remarks.extend(list_remark(&self.http.core, &scope));
                    }
                } else {
                    self.entries.push(entry);
                }
            }
            Err(error) => {
                result.errors_total += 1;
                if result.errors.len() < ERRORS_MAX {
                    result.errors.push(LineError { line: line.number, text: error.to_string() });
                }
            }
        }
    }

    /// Stores the next part. Returns its size.
    async fn store(&mut self, stored: u64) -> Result<u64, ImportFailure> {
        let part = self.entries.drain(..self.entries.len().min(ENTRIES_MAX));
        let entries: Vec<_> = part.map(|entry| addition(&entry)).collect();
        let count = entries.len() as u64;
        let source = Some(self.source.clone());
        let request = SuppressionRequest::Add(NewSuppressions { entries, source, known_lists_only: false });
        match self.http.ask(Request::Suppression(request), self.peer.clone()).await {
            ControlReply::Done { count: changed, remarks, .. } => {
                self.result.changed += changed.unwrap_or_default();
                let known = &mut self.result.remarks;
                for remark in remarks {
                    if known.len() < REMARKS_MAX && !known.contains(&remark) {
                        known.push(remark);
                    }
                }
                Ok(count)
            }
            ControlReply::Error(problem) => Err(ImportFailure::Refused { problem, stored }),
            _ => Err(ImportFailure::Refused { problem: Problem::new(ErrorCode::Failed, "unexpected reply"), stored }),
        }
    }
}

fn bad(text: &str) -> Response {
    problem(StatusCode::BAD_REQUEST, ErrorCode::BadRequest, text)
}
