//! Fetches a domain's MTA-STS policy (RFC 8461 3.3): one GET over HTTPS ([`stentor_http_client`]).
//!
//! Promise: a fetch reads at most [`POLICY_BYTES_MAX`] of a policy, and returns it only if the certificate is valid for
//! the policy host, the status is 200 and the type `text/plain`.
//!
//! How it fails: with a [`FetchFailure`], classified as in TLS reports; the caller continues with the policy that it
//! has.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT, USER_AGENT};
use hyper::{Request, StatusCode};
use stentor_http_client::{Destination, HttpClient, RequestError};
use stentor_tls_policy::sts::{FetchFailure, FetchFailureKind, POLICY_BYTES_MAX, POLICY_PATH, StsPolicy};
use tokio::time::Instant;

/// Fetches and parses a policy from `mta-sts.` and the domain, at most until `until`.
///
/// # Errors
/// Why no valid policy was fetched.
pub async fn fetch(
    client: &HttpClient,
    destination: &Destination<'_>,
    until: Instant,
) -> Result<StsPolicy, FetchFailure> {
    let request = Request::get(POLICY_PATH)
        .header(USER_AGENT, "stentor")
        .header(ACCEPT, "text/plain")
        .body(Full::<Bytes>::default());
    let request = request.map_err(|error| failure(FetchFailureKind::Fetch, format!("HTTP: {error}")))?;
    let answer = client.send(destination, request, until).await.map_err(of)?;
    if answer.status != StatusCode::OK {
        let hint = if answer.status.is_redirection() { ", and redirects are not followed" } else { "" };
        let status = answer.status.as_u16();
        return Err(failure(FetchFailureKind::Fetch, format!("status {status}{hint}")));
    }
    if !is_plain_text(answer.content_type()) {
        let text = format!("its type is \"{}\", not text/plain", answer.content_type().escape_ascii());
        return Err(failure(FetchFailureKind::Invalid, text));
    }
    let body = answer.read(POLICY_BYTES_MAX, until).await.map_err(of)?;
    StsPolicy::parse(&body).map_err(|error| failure(FetchFailureKind::Invalid, format!("the policy: {error}")))
}

fn of(failed: RequestError) -> FetchFailure {
    match failed {
        RequestError::Tls(why) => failure(FetchFailureKind::Certificate, why),
        RequestError::Http(why) => failure(FetchFailureKind::Fetch, why),
        RequestError::Late => failure(FetchFailureKind::Fetch, "fetching the policy timed out".to_owned()),
        RequestError::TooLong => {
            failure(FetchFailureKind::Invalid, format!("the policy is longer than {POLICY_BYTES_MAX} octets"))
        }
    }
}

/// Whether the type is `text/plain`; its parameters are ignored, since a policy is ASCII.
fn is_plain_text(kind: &[u8]) -> bool {
    let kind = kind.split(|octet| *octet == b';').next().unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"text/plain")
}

fn failure(kind: FetchFailureKind, why: String) -> FetchFailure {
    FetchFailure { kind, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_may_have_parameters() {
        for good in ["text/plain", "Text/Plain; charset=utf-8", " text/plain ;x"] {
            assert!(is_plain_text(good.as_bytes()), "{good}");
        }
        for bad in ["", "text/html", "text/plainer", "application/octet-stream"] {
            assert!(!is_plain_text(bad.as_bytes()), "{bad}");
        }
    }
}
