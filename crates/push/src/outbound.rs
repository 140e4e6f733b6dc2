//! POSTs to URLs of the configuration and of domains, over [`stentor_https`] with the system's certificates.

use std::net::IpAddr;
use std::sync::OnceLock;
use std::time::Duration;

use axum::http::uri::{Authority, PathAndQuery};
use axum::http::{HeaderMap, Request, header};
use bytes::Bytes;
use http_body_util::Full;
use stentor_https::{HttpsClient, Place, RequestError, Url};
use stentor_tls::Roots;
use tokio::time::Instant;

/// Maximum octets read of an answer's body, which is ignored; reading lets the peer finish sending.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// The response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PostResponse {
    pub status: u16,
    /// `Retry-After` in seconds, if it is a number.
    pub retry_after_s: Option<u64>,
}

/// A POST, and where it goes.
pub(crate) struct Post<'a> {
    pub url: &'a Url,
    /// Addresses that the caller has approved; `None`: those that the system's resolver finds.
    pub addresses: Option<&'a [IpAddr]>,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub timeout: Duration,
}

/// The client that all tasks share. It reads the system's certificates at the first request.
#[derive(Default)]
pub struct Outbound(OnceLock<Result<HttpsClient, String>>);

impl Outbound {
    /// Sends the body and waits for the response, all within the timeout.
    ///
    /// # Errors
    /// Why there was no response, in words.
    pub(crate) async fn send(&self, post: Post<'_>) -> Result<PostResponse, String> {
        let Post { url, addresses, headers, body, timeout } = post;
        let until = Instant::now() + timeout;
        let failed = |failure: RequestError| match failure {
            RequestError::Late => format!("no answer within {} s", timeout.as_secs_f32()),
            other => other.to_string(),
        };
        let path = url.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let mut request = Request::post(path).body(Full::new(body)).map_err(|error| error.to_string())?;
        *request.headers_mut() = headers;
        if let Ok(host) = url.uri.authority().map_or("", Authority::as_str).parse() {
            request.headers_mut().insert(header::HOST, host);
        }
        let place = Place { host: &url.host, port: url.port, addresses, allows_private: true, is_tls: url.is_tls };
        let answer = self.client(url.is_tls)?.send(&place, request, until).await.map_err(failed)?;
        let response = PostResponse { status: answer.status.as_u16(), retry_after_s: answer.retry_after_s() };
        // The status decides; a truncated body does not matter.
        let _ = answer.read(ANSWER_BYTES_MAX, until).await;
        Ok(response)
    }

    fn client(&self, is_tls: bool) -> Result<HttpsClient, String> {
        let new = |roots: &Roots| HttpsClient::new(roots).map_err(|error| format!("TLS: {error}"));
        if !is_tls {
            return new(&Roots::none());
        }
        let client = self.0.get_or_init(|| match Roots::of_system() {
            roots if roots.is_empty() => Err("TLS: the system has no certificates".to_owned()),
            roots => new(&roots),
        });
        client.clone()
    }
}
