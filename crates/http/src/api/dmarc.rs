//! `GET /api/v1/dmarc`: sums of the DMARC reports that others sent, as `stentor dmarc --json` prints them.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use stentor_control::{ControlReply, ErrorCode};
use stentor_domain_reports::dmarc::ReportFilter;
use stentor_mail::address::normalise_domain;

use super::{answer, bad_query};
use crate::dmarc_sums::ROWS_MAX;
use crate::{Http, problem};

/// Default maximum rows of each kind, as of the command.
const ROWS_DEFAULT: usize = 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DmarcQuery {
    /// Ignore reports on days that ended before, in milliseconds since the Unix epoch (default: none).
    since: Option<u64>,
    /// Only reports about this domain and domains below it.
    domain: Option<String>,
    /// Maximum rows of each kind (default 20, at most 1000).
    rows_max: Option<u32>,
}

pub(super) async fn sums(State(http): State<Http>, query: Result<Query<DmarcQuery>, QueryRejection>) -> Response {
    let bad = |text: &str| problem(StatusCode::BAD_REQUEST, ErrorCode::BadRequest, text);
    let DmarcQuery { since, domain, rows_max } = match query {
        Ok(Query(query)) => query,
        Err(error) => return bad_query(&error),
    };
    let domain = match domain.as_deref().map(normalise_domain).transpose() {
        Ok(domain) => domain,
        Err(error) => return bad(&format!("`domain` is not a valid domain: {error}")),
    };
    let rows_max = rows_max.map_or(ROWS_DEFAULT, |rows| rows as usize);
    if !(1..=ROWS_MAX).contains(&rows_max) {
        return bad(&format!("`rows_max` must be from 1 to {ROWS_MAX}"));
    }
    match http.dmarc_sums.get(&http.core, ReportFilter { since_s: since.unwrap_or(0) / 1_000, domain }).await {
        Ok(summary) => Json(summary.with_rows(rows_max)).into_response(),
        Err(refused) => answer(ControlReply::Error(refused)),
    }
}
