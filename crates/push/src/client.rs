//! POSTs to URLs of the configuration and of domains, over [`stentor_http_client`] with the system's certificates.

use std::net::IpAddr;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::Full;
use stentor_http_client::{Destination, HttpClient, RequestError, Url};
use stentor_tls::{Roots, SystemRoots};
use tokio::time::Instant;

/// Maximum octets read of an answer's body, which is ignored; reading lets the peer finish sending.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Status and `Retry-After` of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PushResponse {
    pub status: u16,
    /// `Retry-After` in seconds, if it is a number.
    pub retry_after_s: Option<u64>,
}

/// An HTTP POST and its destination.
pub(crate) struct PushRequest<'a> {
    pub url: &'a Url,
    /// Addresses that the caller has approved; `None`: those that the system's resolver finds.
    pub addresses: Option<&'a [IpAddr]>,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub timeout: Duration,
}

/// The client that all tasks share. It reads the system's certificates at the first request.
#[derive(Default)]
pub struct PushClient {
    roots: SystemRoots,
    client: OnceLock<HttpClient>,
}

impl PushClient {
    /// Sends the body and waits for the response, all within the timeout.
    ///
    /// # Errors
    /// Why there was no response, in words.
    pub(crate) async fn send(&self, request: PushRequest<'_>) -> Result<PushResponse, String> {
        let PushRequest { url, addresses, headers, body, timeout } = request;
        let until = Instant::now() + timeout;
        let failed = |failure: RequestError| match failure {
            RequestError::Late => format!("no answer within {} s", timeout.as_secs_f32()),
            other => other.to_string(),
        };
        let mut request = Request::post(&url.uri).body(Full::new(body)).map_err(|error| error.to_string())?;
        *request.headers_mut() = headers;
        let destination =
            Destination { host: &url.host, port: url.port, addresses, allows_private: true, is_tls: url.is_tls };
        let answer = self.client(url.is_tls)?.send(&destination, request, until).await.map_err(failed)?;
        let response = PushResponse { status: answer.status.as_u16(), retry_after_s: answer.retry_after_s() };
        // The status decides; a truncated body does not matter.
        let _ = answer.read(ANSWER_BYTES_MAX, until).await;
        Ok(response)
    }

    fn client(&self, is_tls: bool) -> Result<HttpClient, String> {
        let new = |roots: &Roots| HttpClient::new(roots).map_err(|error| format!("TLS: {error}"));
        if !is_tls {
            return new(&Roots::none());
        }
        if let Some(client) = self.client.get() {
            return Ok(client.clone());
        }
        let roots = self.roots.get();
        if roots.is_empty() {
            return Err("TLS: the system has no certificates".to_owned());
        }
        let client = new(&roots)?;
        Ok(self.client.get_or_init(|| client).clone())
    }
}
