//! Fetches a domain's MTA-STS policy (RFC 8461 3.3): one GET over HTTPS ([`https`], which other crates use, too).
//!
//! Promise: that of [`https`]; a fetch reads at most [`POLICY_BYTES_MAX`] of a policy, and returns it only if the
//! certificate is valid for the policy host, the status is 200 and the type `text/plain`.
//!
//! How it fails: with a [`FetchFailure`], classified as in TLS reports; the caller continues with the policy that it
//! has.

mod address;
pub mod https;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT, HOST, USER_AGENT};
use hyper::{Request, StatusCode};
use stentor_posture::sts::{FetchFailure, FetchFailureKind, POLICY_BYTES_MAX, POLICY_PATH, Policy};
use stentor_tls::{Roots, TlsError};
use tokio::time::Instant;

pub use self::address::is_public;
pub use self::https::Place;
use self::https::{Answer, Client, Failure};

/// Fetches policies.
#[derive(Debug, Clone)]
pub struct Fetcher(Client);

impl Fetcher {
    /// Creates a fetcher.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn new(roots: &Roots) -> Result<Fetcher, TlsError> {
        Client::new(roots).map(Fetcher)
    }

    /// Fetches and parses a policy from `mta-sts.` and the domain, at most until `until`.
    ///
    /// # Errors
    /// The reason why there is none.
    pub async fn fetch(&self, place: &Place<'_>, until: Instant) -> Result<Policy, FetchFailure> {
        let host = if place.port == 443 { place.host.to_owned() } else { format!("{}:{}", place.host, place.port) };
        let request = Request::get(POLICY_PATH)
            .header(HOST, host)
            .header(USER_AGENT, "stentor")
            .header(ACCEPT, "text/plain")
            .body(Full::<Bytes>::default());
        let request = request.map_err(|error| failure(FetchFailureKind::Fetch, format!("HTTP: {error}")))?;
        match self.0.send(place, request, POLICY_BYTES_MAX, until).await {
            Ok(answer) => read(&answer),
            Err(Failure::Tls(why)) => Err(failure(FetchFailureKind::Certificate, why)),
            Err(Failure::Http(why)) => Err(failure(FetchFailureKind::Fetch, why)),
            Err(Failure::Late) => Err(failure(FetchFailureKind::Fetch, "fetching the policy timed out".to_owned())),
            Err(Failure::TooLong(status)) if status != StatusCode::OK => Err(not_ok(status)),
            Err(Failure::TooLong(_)) => {
                Err(failure(FetchFailureKind::Invalid, format!("the policy is longer than {POLICY_BYTES_MAX} octets")))
            }
        }
    }
}

fn read(answer: &Answer) -> Result<Policy, FetchFailure> {
    let status = answer.status;
    if status != StatusCode::OK {
        return Err(not_ok(status));
    }
    if !is_plain_text(&answer.content_type) {
        let text = format!("its type is \"{}\", not text/plain", answer.content_type.escape_ascii());
        return Err(failure(FetchFailureKind::Invalid, text));
    }
    Policy::parse(&answer.body).map_err(|error| failure(FetchFailureKind::Invalid, format!("the policy: {error}")))
}

fn not_ok(status: StatusCode) -> FetchFailure {
    let hint = if status.is_redirection() { ", and redirects are not followed" } else { "" };
    failure(FetchFailureKind::Fetch, format!("status {}{hint}", status.as_u16()))
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
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;

    /// The first address accepts connections but does not answer; nothing listens at the second.
    #[tokio::test]
    async fn an_address_that_does_not_answer_leaves_time_for_the_next() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let addresses = ["127.0.0.1".parse().unwrap(), "127.0.0.2".parse().unwrap()];
        let port = silent.local_addr().unwrap().port();
        let place = Place { host: "mta-sts.a.example", addresses: &addresses, port, allows_private: true };
        let fetcher = Fetcher::new(&Roots::none()).unwrap();
        let until = Instant::now() + Duration::from_secs(1);
        let failure = fetcher.fetch(&place, until).await.unwrap_err();
        assert!(failure.why.starts_with("127.0.0.2:"), "{}", failure.why);
    }

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
